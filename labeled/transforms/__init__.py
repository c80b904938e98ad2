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

from labeled.transforms.augment import Augment as Augment
from labeled.transforms.augment import Decode as Decode
from labeled.transforms.augment import PictureTransform as PictureTransform
from labeled.transforms.kinds import Affine as Affine
from labeled.transforms.kinds import Contrast as Contrast
from labeled.transforms.kinds import Crop as Crop
from labeled.transforms.kinds import Illumination as Illumination
from labeled.transforms.kinds import Jitter as Jitter
from labeled.transforms.kinds import Mirror as Mirror
from labeled.transforms.kinds import Normalize as Normalize
from labeled.transforms.kinds import Pad as Pad
from labeled.transforms.kinds import RandomCrop as RandomCrop
from labeled.transforms.kinds import RandomResizedCrop as RandomResizedCrop
from labeled.transforms.kinds import Resize as Resize
from labeled.transforms.kinds import ShiftHSL as ShiftHSL
from labeled.transforms.means import mean_image as mean_image
from labeled.transforms.means import read_mean_file as read_mean_file
from labeled.transforms.means import write_mean_file as write_mean_file
from labeled.transforms.pipeline import SampleContext as SampleContext
from labeled.transforms.pipeline import Stages as Stages
from labeled.transforms.pipeline import takes as takes
from labeled.transforms.pipeline import whole as whole
from labeled.transforms.sample import RowSpec as RowSpec
from labeled.transforms.sample import Sample as Sample
from labeled.transforms.sample import Stack as Stack
from labeled.transforms.sample import stack as stack
from labeled.transforms.series import synchronise as synchronise
from labeled.transforms.series import time_windows as time_windows
