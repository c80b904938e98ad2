"""Transforms, collates and pipelines: what happens to samples on their way into a program.

>>> from labeled.pipeline import Stages
>>> pipeline = Stages(sample={"images": lambda image: image / 255}, batch=lambda batch: batch)
"""

from labeled.pipeline.pipelines import (
    ComposedPipeline,
    ParallelCollate,
    ParallelPipelines,
    Stages,
)
from labeled.pipeline.place import Place
from labeled.pipeline.protocols import Collate, Dataset, Pipeline, Trace, Transform
from labeled.pipeline.sample import Sample, Stack, stack
from labeled.pipeline.sampling import subsample
from labeled.pipeline.sequences import SequencePipeline, StackedSequencePipeline
from labeled.pipeline.series import Concatenated, SeriesTrace, TimeWindow
from labeled.pipeline.synchronising import decimate, synchronise
from labeled.pipeline.transforms import (
    ParallelTransforms,
    SequentialTransforms,
    identity,
    needs,
    whole,
)

__all__ = [
    "Collate",
    "ComposedPipeline",
    "Concatenated",
    "Dataset",
    "ParallelCollate",
    "ParallelPipelines",
    "ParallelTransforms",
    "Pipeline",
    "Place",
    "Sample",
    "SequencePipeline",
    "SequentialTransforms",
    "SeriesTrace",
    "Stack",
    "StackedSequencePipeline",
    "Stages",
    "TimeWindow",
    "Trace",
    "Transform",
    "decimate",
    "identity",
    "needs",
    "stack",
    "subsample",
    "synchronise",
    "whole",
]
