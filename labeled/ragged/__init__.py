"""Examples of different shapes: a lazy labelled value over flat values and offsets."""

from labeled.ragged.flat import Flat, FlatRows, RaggedReader
from labeled.ragged.value import Ragged

__all__ = ["Flat", "FlatRows", "Ragged", "RaggedReader"]
