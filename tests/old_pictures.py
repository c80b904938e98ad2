"""Pictures for the old augmenters, and what they draw."""

from __future__ import annotations

import numpy as np
import pytest

from labeled.compat.mxnet import augmenter
from labeled.compat.mxnet.augmenter import Output
from labeled.compat.mxnet.parameters import PictureParameters
from labeled.compat.mxnet.twister import Twister

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
ndimage = pytest.importorskip("scipy.ndimage", reason="SciPy is not installed")

SHAPE = (3, 24, 32)


def smooth(height, width, channels=3, seed=0):
    """A picture without sharp edges, so that interpolations differ by little."""
    rng = np.random.default_rng(seed)
    rough = rng.uniform(0, 255, (height, width, channels))
    soft = ndimage.gaussian_filter(rough, (2, 2, 0))
    return np.rint((soft - soft.min()) / np.ptp(soft) * 255).astype(np.uint8)


PICTURE = smooth(40, 52)
RAW = PICTURE.astype(np.float64)


def augmenter_of(shape, rules="1.9.1", **asked):
    """An augmentation by the names of its parameters."""
    return augmenter.Augmenter(shape, rules, PictureParameters(**asked))


def output_of(rules="1.9.1", dtype="float32", mean_img=None, **asked):
    """A last step by the names of its parameters."""
    return Output(rules, PictureParameters(**asked), dtype, mean_img)


def words_taken(make):
    """Count the raw words that a call takes from its twister."""

    class Counted(Twister):
        taken = 0

        def word(self):
            type(self).taken += 1
            return super().word()

    make(Counted(111))
    return Counted.taken
