"""Spaces and specs: what a consumer wants one batch to look like, and the way there.

A space says how a batch looks; specs, a ``(space, source)`` pair, say also which data it is of.
"""

from labeled.spaces import routes  # noqa: F401 (fills the table of routes)
from labeled.spaces.arrays import canonical_axes
from labeled.spaces.dataarrays import format_dataarray, undo_format
from labeled.spaces.kinds import (
    ArraySpace,
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    Space,
    VectorSequenceSpace,
    VectorSpace,
    space_of,
)
from labeled.spaces.specs import (
    CompiledSpecs,
    DataSpecsMapping,
    SourceInfo,
    combine,
    compile_specs,
    row_space,
)

__all__ = [
    "ArraySpace",
    "CompiledSpecs",
    "CompositeSpace",
    "Conv2DSpace",
    "ConvNDSpace",
    "DataSpecsMapping",
    "IndexSequenceSpace",
    "IndexSpace",
    "NullSpace",
    "SourceInfo",
    "Space",
    "VectorSequenceSpace",
    "VectorSpace",
    "canonical_axes",
    "combine",
    "compile_specs",
    "format_dataarray",
    "row_space",
    "space_of",
    "undo_format",
]
