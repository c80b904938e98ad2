"""Transforms of every kind, and the pictures that tests of augmentation give them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from labeled import transforms as tf

DIMS = ("batch", "channel", "height", "width")
LAST = ("batch", "height", "width", "channel")
N, H, W = 6, 20, 26
BYTES = np.random.default_rng(0).integers(0, 256, (N, 3, H, W), dtype=np.uint8)
ROWS = np.array([11, 3, 500, 7, 0, 12345678901])


def batch_of(pictures, dims=DIMS[1:]):
    """Return pictures of different sizes as a loader hands them out."""
    objects = np.empty(len(pictures), object)
    for place, picture in enumerate(pictures):
        objects[place] = picture
    batch = xr.DataArray(objects, dims="batch")
    batch.encoding["example_dims"] = dims
    return batch


ALL = [
    tf.Crop((9, 14)),
    tf.Crop((9, 14), y=1, x=2),
    tf.RandomCrop((9, 14)),
    tf.Mirror(),
    tf.Pad((1, 2), fill=7),
    tf.Resize((11, 31)),
    tf.Resize(shorter=14, method="bicubic"),
    tf.Resize(least=(25, 30), method="nearest"),
    tf.RandomResizedCrop((8, 9), area=(0.2, 0.9)),
    tf.Affine(rotate=(-30, 30), shear=(-0.2, 0.2), scale=(0.8, 1.2), aspect=(0.8, 1.2)),
    tf.Affine(rotate=(-30, 30), method="nearest", fill=9),
    tf.Affine(rotate=(-30, 30), method="lanczos", fill=9),
    tf.Affine(shear=(-0.3, 0.3), method="bicubic"),
    tf.Jitter(0.4, 0.3, 0.5),
    tf.ShiftHSL(20, 0.2, 0.1),
    tf.Contrast(0.4),
    tf.Contrast(0.4, about=100),
    tf.Illumination(30),
    tf.Normalize([1, 2, 3], [4, 5, 6], 2.0),
    tf.Augment([tf.RandomCrop(12), tf.Mirror(), tf.Normalize(100, 50), tf.Contrast(0.2, about=0)]),
    tf.Augment(
        [tf.Resize(shorter=18), tf.RandomCrop(12), tf.Jitter(0.2), tf.Mirror(), tf.Mirror()]
    ),
]
every = pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
plain = BYTES.astype(np.float64)
