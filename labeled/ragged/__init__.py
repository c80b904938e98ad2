"""Examples of different shapes: a lazy labelled value over flat values and offsets."""

from labeled.ragged.flat import Flat, FlatRows, RaggedReader
from labeled.ragged.value import Buckets, Ragged

__all__ = ["Buckets", "Flat", "FlatRows", "Ragged", "RaggedReader"]
