"""Spaces and specs: what a consumer wants one batch to look like, and the way there.

A space says how a batch looks; specs, a ``(space, source)`` pair, say also which data it is of.
"""

from labeled.spaces.arrays import canonical_axes
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.dataarrays import format_dataarray
from labeled.spaces.kinds import (
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
    space_of,
)
from labeled.spaces.records import undo_format
from labeled.spaces.specs import (
    ArraySpec,
    CompiledSpecs,
    DataSpecsMapping,
    SourceInfo,
    as_specs,
    combine,
    compile_specs,
    is_flat_source,
    is_flat_space,
    is_flat_specs,
    leaves,
    row_space,
)

__all__ = [
    "ArraySpace",
    "ArraySpec",
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
    "as_specs",
    "canonical_axes",
    "combine",
    "compile_specs",
    "format_dataarray",
    "is_flat_source",
    "is_flat_space",
    "is_flat_specs",
    "leaves",
    "row_space",
    "space_of",
    "undo_format",
]
