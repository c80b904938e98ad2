"""The old spaces: what a batch looks like, and how it becomes another."""

from labeled.compat.pylearn2.space.base import SimplyTypedSpace, Space
from labeled.compat.pylearn2.space.batches import is_numeric_batch, is_symbolic_batch
from labeled.compat.pylearn2.space.kinds import (
    CompositeSpace,
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
)
from labeled.compat.pylearn2.space.routes import ROUTES

__all__ = [
    "ROUTES",
    "CompositeSpace",
    "Conv2DSpace",
    "IndexSequenceSpace",
    "IndexSpace",
    "NullSpace",
    "SimplyTypedSpace",
    "Space",
    "VectorSequenceSpace",
    "VectorSpace",
    "is_numeric_batch",
    "is_symbolic_batch",
]
