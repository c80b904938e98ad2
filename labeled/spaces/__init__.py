"""Spaces: what a consumer wants one batch to look like, and the way from one to another."""

from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.checks import Batch
from labeled.spaces.composite import CompositeSpace, NullSpace
from labeled.spaces.conv import Conv2DSpace, ConvNDSpace
from labeled.spaces.dataarrays import format_dataarray
from labeled.spaces.layout import canonical_axes
from labeled.spaces.records import undo_format
from labeled.spaces.routes import one_hot_layout
from labeled.spaces.sources import space_of
from labeled.spaces.vector import (
    IndexSequenceSpace,
    IndexSpace,
    VectorSequenceSpace,
    VectorSpace,
)

__all__ = [
    "ArraySpace",
    "Batch",
    "CompositeSpace",
    "Conv2DSpace",
    "ConvNDSpace",
    "IndexSequenceSpace",
    "IndexSpace",
    "NullSpace",
    "Space",
    "VectorSequenceSpace",
    "VectorSpace",
    "canonical_axes",
    "format_dataarray",
    "one_hot_layout",
    "space_of",
    "undo_format",
]
