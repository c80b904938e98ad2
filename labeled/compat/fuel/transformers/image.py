"""Transformers of images: decode, enlarge, crop, turn; and those behind built-in datasets.

Images are (channel, height, width). Decoding, enlarging and turning are done by Pillow, the extra
'images'; cropping needs none.
Batches are arrays (batch, channel, height, width) where all images have one shape, else
lists or arrays of objects. Arrays are cut to arrays and turned to arrays, arrays of objects are
turned to such; all other batches come back as lists.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from labeled.compat.errors import check
from labeled.compat.fuel.schemes import random_state
from labeled.compat.fuel.transformers import Cast, ScaleAndShift, base
from labeled.formats.pictures import pillow

RESAMPLINGS = ("nearest", "bilinear", "bicubic", "lanczos")
Size = tuple[int, int]
BATCH_LABELS = ("batch", "channel", "height", "width")


class ImagesFromBytes(base.SourcewiseTransformer):
    """Decodes images from the bytes of their files.

    Parameters
    ----------
    data_stream : AbstractDataStream
    color_mode : str or None
        What Pillow is to convert them to; None leaves them as they are.

    Raises
    ------
    TypeError
        If what is to be decoded is not a byte string.
    """

    def __init__(self, data_stream: Any, color_mode: str | None = "RGB", **kwargs: Any) -> None:
        options = base.as_behind(data_stream, kwargs)
        new = BATCH_LABELS[1:] if options["produces_examples"] else BATCH_LABELS
        labels = dict.fromkeys(data_stream.sources) | dict(data_stream.axis_labels or {})
        labels |= dict.fromkeys(kwargs.get("which_sources", data_stream.sources), new)
        super().__init__(data_stream, **{**options, "axis_labels": labels, **kwargs})
        self.color_mode = color_mode

    def transform_source_example(self, source_example: Any, source_name: str) -> Any:
        check(isinstance(source_example, bytes), f"{source_name!r} holds no bytes", TypeError)
        with pillow().open(io.BytesIO(source_example)) as image:
            pixels = np.array(image if self.color_mode is None else image.convert(self.color_mode))
        return pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)

    def transform_source_batch(self, source_batch: Any, source_name: str) -> list[Any]:
        return [self.transform_source_example(one, source_name) for one in source_batch]


class _Images(base.SourcewiseTransformer, base.ExpectsAxisLabels):
    """Changes image by image."""

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        super().__init__(data_stream, **base.as_behind(data_stream, kwargs))

    def _verify(self, source_name: str, expected: tuple[str, ...]) -> None:
        labels = self.data_stream.axis_labels
        self.verify_axis_labels(expected, labels[source_name] if labels else None, source_name)

    def transform_source_example(self, source_example: Any, source_name: str) -> Any:
        self._verify(source_name, BATCH_LABELS[1:])
        return self._changed(self._checked(source_example, source_name))

    def transform_source_batch(self, source_batch: Any, source_name: str) -> Any:
        self._verify(source_name, BATCH_LABELS)
        return [self._changed(self._checked(one, source_name)) for one in source_batch]

    def _checked(self, image: Any, source_name: str) -> Any:
        fits = isinstance(image, np.ndarray) and image.ndim == 3
        found = getattr(image, "shape", type(image).__name__)
        wrong = f"images of {source_name!r} are arrays (channel, height, width), not {found}"
        check(fits, wrong)
        return image

    _changed = base.SourcewiseTransformer._not_transformed


class MinimumImageDimensions(_Images):
    """Enlarges images that are smaller than asked for, keeping their proportions.

    Images are (channel, height, width) or (height, width).

    Parameters
    ----------
    data_stream : AbstractDataStream
    minimum_shape : (int, int)
        Height and width.
    resample : {"nearest", "bilinear", "bicubic", "lanczos"}
        Checked, but without effect: Pillow's own choice applies, the old rule.
    """

    def __init__(
        self, data_stream: Any, minimum_shape: Size, resample: str = "nearest", **kwargs: Any
    ) -> None:
        _check_resampling(resample)
        super().__init__(data_stream, **kwargs)
        self.minimum_shape, self.resample = minimum_shape, resample

    def _checked(self, image: Any, source_name: str) -> Any:
        shape = getattr(image, "shape", ())
        wrong = f"images of {source_name!r} have 2 or 3 axes, not {shape or type(image).__name__}"
        check(len(shape) in (2, 3), wrong, NotImplementedError)
        return image

    def _changed(self, image: Any) -> Any:
        height, width = image.shape[-2:]
        factor = max(self.minimum_shape[0] / height, self.minimum_shape[1] / width)
        if factor <= 1:
            return image
        size = math.ceil(width * factor), math.ceil(height * factor)
        larger = _by_channel(image.reshape(-1, height, width), lambda plane: plane.resize(size))
        return larger if image.ndim == 3 else larger[0]


class RandomFixedSizeCrop(_Images):
    """Cuts windows of one size out of images, at random places.

    A batch in one array draws all places along the width, then all along the height;
    single images draw height, then width, and nothing where there is no choice.

    Parameters
    ----------
    data_stream : AbstractDataStream
    window_shape : (int, int)
        Height and width.
    rng : numpy.random.RandomState, optional

    Raises
    ------
    ValueError
        If an image is smaller than the window.
    """

    def __init__(
        self, data_stream: Any, window_shape: Size, rng: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(data_stream, **kwargs)
        self.window_shape, self.rng = window_shape, random_state(rng)

    def transform_source_batch(self, source_batch: Any, source_name: str) -> Any:
        if not (isinstance(source_batch, np.ndarray) and source_batch.ndim == 4):
            return super().transform_source_batch(source_batch, source_name)
        self._verify(source_name, BATCH_LABELS)
        down, right = self._room(source_batch.shape[2:])
        lefts = self.rng.randint(0, right + 1, size=len(source_batch))
        tops = self.rng.randint(0, down + 1, size=len(source_batch))
        windows = sliding_window_view(source_batch, self.window_shape, (2, 3))
        return windows[np.arange(len(source_batch)), :, tops, lefts]

    def _changed(self, image: Any) -> Any:
        down, right = self._room(image.shape[1:])
        top = int(self.rng.randint(0, down + 1)) if down else 0
        left = int(self.rng.randint(0, right + 1)) if right else 0
        height, width = self.window_shape
        return image[:, top : top + height, left : left + width]

    def _room(self, shape: Any) -> tuple[int, int]:
        down, right = shape[0] - self.window_shape[0], shape[1] - self.window_shape[1]
        check(min(down, right) >= 0, f"a window of {self.window_shape} does not fit {shape}")
        return down, right


class Random2DRotation(_Images):
    """Turns images about their middle by random angles.

    Parameters
    ----------
    data_stream : AbstractDataStream
    maximum_rotation : float
        Radians, above 0 and at most pi; angles are drawn from plus or minus that. The attribute
        of that name holds degrees.
    resample : {"nearest", "bilinear", "bicubic"}
    rng : numpy.random.RandomState, optional
    """

    def __init__(
        self,
        data_stream: Any,
        maximum_rotation: float = math.pi,
        resample: str = "nearest",
        rng: np.random.RandomState | None = None,
        **kwargs: Any,
    ) -> None:
        check(0 < maximum_rotation <= math.pi, f"the angle {maximum_rotation} is not in (0, pi]")
        _check_resampling(resample)
        super().__init__(data_stream, **kwargs)
        self.maximum_rotation, self.resample = float(np.rad2deg(maximum_rotation)), resample
        self.rng = random_state(rng)

    def transform_source_batch(self, source_batch: Any, source_name: str) -> Any:
        images: list[Any] = super().transform_source_batch(source_batch, source_name)
        if not isinstance(source_batch, np.ndarray):
            return images
        if source_batch.dtype == object:
            return np.fromiter(images, object, len(images))
        return np.asarray(images, source_batch.dtype).reshape(source_batch.shape)

    def _changed(self, image: Any) -> Any:
        angle = self.rng.uniform(-self.maximum_rotation, self.maximum_rotation)
        how = getattr(pillow().Resampling, self.resample.upper())
        return _by_channel(image, lambda plane: plane.rotate(angle, resample=how))


def _check_resampling(resample: str) -> None:
    check(resample in RESAMPLINGS, f"resample is one of {RESAMPLINGS}, found {resample!r}")


def _by_channel(image: Any, change: Callable[[Any], Any]) -> Any:
    """Change each channel by Pillow; what it has no mode for goes through float32.

    Two or four channels of bytes change together: the last is alpha, which weighs the others.
    """
    library = pillow()
    if image.dtype == np.uint8 and len(image) in (2, 4):
        whole = library.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
        return np.array(change(whole)).transpose(2, 0, 1)
    dtype = image.dtype if image.dtype in (np.uint8, np.float32, np.int32) else np.float32
    planes = [library.fromarray(np.ascontiguousarray(plane, dtype)) for plane in image]
    return np.stack([np.asarray(change(plane)) for plane in planes]).astype(image.dtype, copy=False)


# ---------------------------------------------------------------- behind built-in datasets
class ToBytes(base.SourcewiseTransformer):
    """Makes byte strings of arrays: of each example of a batch one.

    Their axis is labelled 'bytes', behind 'batch' where that was a label.
    """

    def __init__(self, stream: Any, **kwargs: Any) -> None:
        labels = dict(stream.axis_labels or {})
        for source in kwargs.get("which_sources", stream.sources):
            is_batch = "batch" in labels.get(source, ())
            labels[source] = ("batch", "bytes") if is_batch else ("bytes",)
        options = {"axis_labels": labels, **kwargs}
        super().__init__(stream, **base.as_behind(stream, options))

    def transform_source_example(self, source_example: Any, source_name: str) -> Any:
        return source_example.tobytes()

    def transform_source_batch(self, source_batch: Any, source_name: str) -> list[bytes]:
        return [example.tobytes() for example in source_batch]


def uint8_pixels_to_floatX(which_sources: Any) -> tuple[Any, ...]:
    """Return default transformers that scale pixels to 0..1 and cast them to floatX."""
    chosen = {"which_sources": which_sources}
    scaled = ScaleAndShift, [1 / 255.0, 0], chosen
    return scaled, (Cast, ["floatX"], chosen)


def rgb_images_from_encoded_bytes(which_sources: Any) -> tuple[Any, ...]:
    """Return default transformers that decode images of which a file holds the bytes."""
    chosen = {"which_sources": which_sources}
    return (ToBytes, [], chosen), (ImagesFromBytes, [], chosen)
