"""`fuel.transformers.image` by aliases."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel.datasets import IndexableDataset, IterableDataset
from fuel.schemes import SequentialExampleScheme, SequentialScheme
from fuel.streams import DataStream
from fuel.transformers.defaults import rgb_images_from_encoded_bytes
from fuel.transformers.image import (
    ImagesFromBytes,
    MinimumImageDimensions,
    Random2DRotation,
    RandomFixedSizeCrop,
)
from numpy.testing import assert_array_equal

SHAPES = [(3, 4, 6), (3, 9, 5), (3, 5, 5)]
IMAGES = [np.arange(math.prod(s), dtype="u1").reshape(s) for s in SHAPES]
EQUAL = np.arange(5 * 2 * 7 * 8, dtype="u1").reshape(5, 2, 7, 8)


def objects(images):
    made = np.empty(len(images), object)
    made[:] = images
    return made


def batches(values, size=10):
    return DataStream(
        IndexableDataset({"x": values}), iteration_scheme=SequentialScheme(len(values), size)
    )


def examples(values):
    scheme = SequentialExampleScheme(len(values))
    return DataStream(IndexableDataset({"x": values}), iteration_scheme=scheme)


def first(stream):
    return next(stream.get_epoch_iterator())[0]


def encoded(image, mode="RGB"):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    held = io.BytesIO()
    pixels = image[0] if mode == "L" else image.transpose(1, 2, 0)
    pillow.fromarray(np.ascontiguousarray(pixels)).save(held, "png")
    return held.getvalue()


def test_images_are_decoded():
    files = [encoded(image) for image in IMAGES]
    for one, other in zip(first(ImagesFromBytes(batches(files))), IMAGES, strict=True):
        assert_array_equal(one, other)
    assert_array_equal(first(ImagesFromBytes(examples(files))), IMAGES[0])
    grey = examples([encoded(IMAGES[0][:1], "L")])
    assert_array_equal(first(ImagesFromBytes(grey, color_mode=None)), IMAGES[0][:1])
    assert first(ImagesFromBytes(grey)).shape == (3, 4, 6)
    with pytest.raises(TypeError):
        first(ImagesFromBytes(examples(IMAGES)))


def test_images_of_default_transformers():
    stream = batches(objects([np.frombuffer(encoded(image), "u1") for image in IMAGES]))
    for cls, arguments, options in rgb_images_from_encoded_bytes(("x",)):
        stream = cls(stream, *arguments, **options)
    for one, other in zip(first(stream), IMAGES, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("held", [list, objects])
def test_small_images_are_enlarged(held):
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    found = first(MinimumImageDimensions(batches(held(IMAGES)), (5, 10)))
    assert [image.shape for image in found] == [(3, 7, 10), (3, 18, 10), (3, 10, 10)]
    assert type(found) is list
    assert first(MinimumImageDimensions(examples(IMAGES), (4, 6))) is not None
    assert_array_equal(first(MinimumImageDimensions(examples(IMAGES), (2, 2))), IMAGES[0])
    with pytest.raises(ValueError):
        MinimumImageDimensions(examples(IMAGES), (2, 2), resample="nonsense")


@pytest.mark.parametrize(
    ("wrong", "found"), [([[1, 2]], "list"), (np.zeros(3), r"\(3,\)"), (np.float64(1), "float64")]
)
def test_images_of_other_axes_are_refused_by_their_shape(wrong, found):
    with pytest.raises(NotImplementedError, match=f"'x' have 2 or 3 axes, not {found}"):
        first(MinimumImageDimensions(examples([wrong]), (2, 2)))


def test_alpha_weighs_the_channels_before_it():
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    images = np.random.RandomState(3).randint(0, 256, (2, 4, 4, 6)).astype("u1")
    whole = pillow.fromarray(np.ascontiguousarray(images[0].transpose(1, 2, 0)))
    larger = first(MinimumImageDimensions(batches(images), (8, 8)))[0]
    assert_array_equal(larger, np.array(whole.resize((12, 8))).transpose(2, 0, 1))
    by_30 = SimpleNamespace(uniform=lambda low, high: 30)
    turned = first(Random2DRotation(batches(images), resample="bilinear", rng=by_30))[0]
    expected = whole.rotate(30, resample=pillow.Resampling.BILINEAR)
    assert_array_equal(turned, np.array(expected).transpose(2, 0, 1))


def test_decoded_images_have_labels_and_other_sources_keep_theirs():
    files = {"x": [b""], "y": [b""], "z": [0]}
    labels = {"x": ("batch", "bytes"), "y": ("batch", "bytes")}

    def labels_of(scheme, labels=labels, **options):
        stream = DataStream(IndexableDataset(files, axis_labels=labels), iteration_scheme=scheme)
        return ImagesFromBytes(stream, **options).axis_labels

    image = ("channel", "height", "width")
    found = labels_of(SequentialExampleScheme(1), which_sources=("y",))
    assert found == {"x": ("bytes",), "y": image, "z": None}
    found = labels_of(SequentialScheme(1, 1), which_sources=("x", "z"))
    assert found == {"x": ("batch", *image), "y": ("batch", "bytes"), "z": ("batch", *image)}
    assert labels_of(SequentialExampleScheme(1), labels=None) == dict.fromkeys("xyz", image)
    own = {"x": ("a",)}
    assert labels_of(SequentialExampleScheme(1), axis_labels=own) == own


def test_crops_of_a_batch_draw_widths_then_heights():
    found = first(RandomFixedSizeCrop(batches(EQUAL), (3, 5), rng=np.random.RandomState(7)))
    state = np.random.RandomState(7)
    lefts, tops = state.randint(0, 4, size=5), state.randint(0, 5, size=5)
    assert found.shape == (5, 2, 3, 5)
    for image, cut, top, left in zip(EQUAL, found, tops, lefts, strict=True):
        assert_array_equal(cut, image[:, top : top + 3, left : left + 5])
    cropped = RandomFixedSizeCrop(batches(EQUAL), (3, 5))
    assert cropped.transform_source_batch(EQUAL[:0], "x").shape == (0, 2, 3, 5)


@pytest.mark.parametrize("held", [list, objects])
def test_crops_of_images_draw_height_then_width(held):
    found = first(RandomFixedSizeCrop(batches(held(IMAGES)), (4, 4), rng=np.random.RandomState(7)))
    state = np.random.RandomState(7)
    for image, cut in zip(IMAGES, found, strict=True):
        down, right = image.shape[1] - 4, image.shape[2] - 4
        top = state.randint(0, down + 1) if down else 0
        left = state.randint(0, right + 1) if right else 0
        assert_array_equal(cut, image[:, top : top + 4, left : left + 4])


def test_what_cannot_be_cropped():
    for stream in (batches(EQUAL), batches(IMAGES), examples(IMAGES)):
        with pytest.raises(ValueError):
            first(RandomFixedSizeCrop(stream, (20, 4)))
    with pytest.raises(ValueError):
        first(RandomFixedSizeCrop(examples([np.zeros((3, 3))]), (2, 2)))
    labelled = DataStream(IterableDataset({"x": IMAGES}, axis_labels={"x": ("a", "b", "c")}))
    with pytest.raises(ValueError, match="axes"):
        first(RandomFixedSizeCrop(labelled, (2, 2)))


def test_images_are_turned():
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    half = SimpleNamespace(uniform=lambda low, high: high)  # by 180 degrees
    assert_array_equal(first(Random2DRotation(batches(EQUAL), rng=half)), EQUAL[..., ::-1, ::-1])
    none = Random2DRotation(batches(EQUAL)).transform_source_batch(EQUAL[:0], "x")
    assert (none.shape, none.dtype) == (EQUAL[:0].shape, EQUAL.dtype)
    found = first(Random2DRotation(batches(IMAGES), math.pi / 4))
    assert [image.shape for image in found] == SHAPES
    for wrong in (0, -1, 4):
        with pytest.raises(ValueError):
            Random2DRotation(batches(EQUAL), maximum_rotation=wrong)
    with pytest.raises(ValueError):
        Random2DRotation(batches(EQUAL), resample="nonsense")
