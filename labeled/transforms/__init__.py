"""Transforms: what happens to samples, batches and pictures on their way into a program.

``batches(pipeline=...)`` takes a pipeline, or transforms of samples: a callable, callables by
source, or a list of them. They run in the loader's threads, and what they ask for by the names
of their parameters (``rng``, or ``row``, ``seed`` and ``epoch``) makes random ones depend on the
row alone:

>>> import labeled, numpy as np, xarray as xr
>>> from labeled.transforms import Augment, Mirror, Normalize, RandomCrop, Stages
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

A transform with a parameter ``rows`` is given whole batches, as those of pictures are:

>>> def brighter(images, rows, seed, epoch):
...     return images + xr.DataArray(rows % 3, dims="batch")

:class:`Stages` names the three stages, of which the last runs where batches are handed out:

>>> pipeline = Stages(sample={"image": [brighter, cropped]}, batch=lambda b: b["image"].values)
>>> [batch.shape for batch in labeled.batches(images, 4, pipeline=pipeline, seed=7)]
[(4, 2, 2), (2, 2, 2)]

Transforms of pictures (:class:`PictureTransform`) are frozen values and plain callables:
``augment(images, rows=..., seed=..., epoch=...)`` takes one labelled picture or a batch, and what
a row gets is a function of (seed, epoch, row) alone.
``dataset.batches(64, pipeline={"images": augment})`` applies one in the loader's threads.

>>> augment = Augment([RandomCrop(28), Mirror(), Normalize(mean=128, std=64)])
"""

from labeled.transforms.augment import Augment, Decode, PictureTransform
from labeled.transforms.kinds import (
    Affine,
    Contrast,
    Crop,
    Illumination,
    Jitter,
    Mirror,
    Normalize,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    ShiftHSL,
)
from labeled.transforms.means import mean_image, read_mean_file, write_mean_file
from labeled.transforms.pipeline import SampleContext, Stages, takes, whole
from labeled.transforms.sample import RowSpec, Sample, Stack, stack
from labeled.transforms.series import synchronise, time_windows

__all__ = [
    "Affine",
    "Augment",
    "Contrast",
    "Crop",
    "Decode",
    "Illumination",
    "Jitter",
    "Mirror",
    "Normalize",
    "Pad",
    "PictureTransform",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "RowSpec",
    "Sample",
    "SampleContext",
    "ShiftHSL",
    "Stack",
    "Stages",
    "mean_image",
    "read_mean_file",
    "stack",
    "synchronise",
    "takes",
    "time_windows",
    "whole",
    "write_mean_file",
]
