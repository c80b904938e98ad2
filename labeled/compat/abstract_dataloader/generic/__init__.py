"""The old implementations that know nothing of their data."""

from labeled.compat.abstract_dataloader.generic.composition import (
    ComposedPipeline,
    DatasetMeta,
    ParallelPipelines,
    ParallelTransforms,
)
from labeled.compat.abstract_dataloader.generic.sequence import Metadata, SequencePipeline, Window
from labeled.compat.abstract_dataloader.generic.sync import Decimate, Empty, Nearest, Next
from labeled.transforms import StackedSequencePipeline

__all__ = [
    "ComposedPipeline",
    "DatasetMeta",
    "Decimate",
    "Empty",
    "Metadata",
    "Nearest",
    "Next",
    "ParallelPipelines",
    "ParallelTransforms",
    "SequencePipeline",
    "StackedSequencePipeline",
    "Window",
]
