"""Laws to inherit: classes of tests for formats, loaders, datasets, spaces and writers of your own.

They run under pytest with Hypothesis, which the extra ``test`` installs.
"""

from labeled.testing.loader import LoaderTests, RaggedTests
from labeled.testing.readers import ReaderTests
from labeled.testing.spaces import SpaceTests
from labeled.testing.writers import WriterTests

__all__ = ["LoaderTests", "RaggedTests", "ReaderTests", "SpaceTests", "WriterTests"]
