"""Augmentation: random changes of pictures, the same whoever makes them, and when.

>>> from labeled.augment import Augment, Mirror, Normalize, RandomCrop
>>> augment = Augment([RandomCrop(28), Mirror(), Normalize(mean=128, std=64)])

Transforms are frozen values and plain callables: ``augment(images, rows=..., seed=...,
epoch=...)`` takes one labelled picture or a batch, and what a row gets is a function of (seed,
epoch, row) alone. ``dataset.batches(64, pipeline={"images": augment})`` applies one in the
loader's workers.
"""

from labeled.augment.base import Augment, Transform
from labeled.augment.choice import OneOf
from labeled.augment.colour import Jitter, PrincipalNoise, ShiftHSL
from labeled.augment.decoding import Decode
from labeled.augment.meanfile import read_mean_file, write_mean_file
from labeled.augment.meanimage import mean_image
from labeled.augment.place import Crop, Mirror, Pad, RandomCrop
from labeled.augment.resizing import Affine, RandomResizedCrop, RandomSizedCrop, Resize
from labeled.augment.values import Contrast, Illumination, Normalize

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
    "OneOf",
    "Pad",
    "PrincipalNoise",
    "RandomCrop",
    "RandomResizedCrop",
    "RandomSizedCrop",
    "Resize",
    "ShiftHSL",
    "Transform",
    "mean_image",
    "read_mean_file",
    "write_mean_file",
]
