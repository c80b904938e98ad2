"""Transforms, collates and pipelines: what happens to samples on their way into a program.

``batches(pipeline=...)`` takes a pipeline, or transforms of samples: a callable, callables by
source, or a list of them. They run in the loader's threads, and what they ask for by the names
of their parameters (``rng``, or ``row``, ``seed`` and ``epoch``) makes random ones depend on the
row alone:

>>> import labeled, numpy as np, xarray as xr
>>> images = xr.DataArray(
...     np.arange(96).reshape(6, 4, 4), dims=("batch", "height", "width"), name="image"
... )
>>> def cropped(image, rng):
...     y, x = rng.integers(0, 3, 2)
...     return image.isel(height=slice(y, y + 2), width=slice(x, x + 2))
>>> loader = labeled.batches(images, 4, pipeline={"image": cropped}, shuffle=True, seed=7)
>>> for batch in loader:
...     print(batch["image"].dims, batch["image"].shape)
('batch', 'height', 'width') (4, 2, 2)
('batch', 'height', 'width') (2, 2, 2)

A transform with a parameter ``rows`` is given whole batches, as those of `labeled.augment` are:

>>> def brighter(images, rows, seed, epoch):
...     return images + xr.DataArray(rows % 3, dims="batch")

:class:`Stages` names the three stages, of which the last runs where batches are handed out:

>>> pipeline = Stages(sample={"image": [brighter, cropped]}, batch=lambda b: b["image"].values)
>>> [batch.shape for batch in labeled.batches(images, 4, pipeline=pipeline, seed=7)]
[(4, 2, 2), (2, 2, 2)]
"""

from labeled.pipeline.memory import StatesMemory, takes
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
    "StatesMemory",
    "TimeWindow",
    "Trace",
    "Transform",
    "decimate",
    "identity",
    "needs",
    "stack",
    "subsample",
    "synchronise",
    "takes",
    "whole",
]
