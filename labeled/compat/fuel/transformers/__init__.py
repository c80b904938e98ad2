"""The transformers, by their old names."""

from labeled.compat.fuel.transformers.base import (
    AgnosticSourcewiseTransformer,
    AgnosticTransformer,
    ExpectsAxisLabels,
    SourcewiseTransformer,
    Transformer,
    log,
)
from labeled.compat.fuel.transformers.batches import Batch, Cache, Padding, Unpack
from labeled.compat.fuel.transformers.routing import (
    Filter,
    FilterSources,
    Merge,
    MultiProcessing,
    Rename,
)
from labeled.compat.fuel.transformers.values import (
    Cast,
    Flatten,
    ForceFloatX,
    Mapping,
    ScaleAndShift,
    SortMapping,
)

__all__ = [
    "AgnosticSourcewiseTransformer",
    "AgnosticTransformer",
    "Batch",
    "Cache",
    "Cast",
    "ExpectsAxisLabels",
    "Filter",
    "FilterSources",
    "Flatten",
    "ForceFloatX",
    "Mapping",
    "Merge",
    "MultiProcessing",
    "Padding",
    "Rename",
    "ScaleAndShift",
    "SortMapping",
    "SourcewiseTransformer",
    "Transformer",
    "Unpack",
    "log",
]
