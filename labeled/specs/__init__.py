"""Data specs: which sources a consumer asks for, and how it wants them to look."""

from labeled.specs.compiled import (
    ArraySpec,
    CompiledSpecs,
    SourceInfo,
    compile_specs,
    row_space,
)
from labeled.specs.mapping import CombinedSpecs, DataSpecsMapping, combine
from labeled.specs.structure import (
    Source,
    Specs,
    as_specs,
    is_flat_source,
    is_flat_space,
    is_flat_specs,
    leaves,
)

__all__ = [
    "ArraySpec",
    "CombinedSpecs",
    "CompiledSpecs",
    "DataSpecsMapping",
    "Source",
    "SourceInfo",
    "Specs",
    "as_specs",
    "combine",
    "compile_specs",
    "is_flat_source",
    "is_flat_space",
    "is_flat_specs",
    "leaves",
    "row_space",
]
