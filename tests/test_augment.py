"""Augmentation: laws that hold for every transform, and what each of them computes."""

from __future__ import annotations

import colorsys
import dataclasses
import math
import pickle
from itertools import permutations

import numpy as np
import pytest
import xarray as xr
from augment_cases import ALL, BYTES, DIMS, LAST, ROWS, H, N, W, batch_of, every, plain
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from labeled import transforms as tf
from labeled.errors import AugmentError

ndimage = pytest.importorskip("scipy.ndimage", reason="SciPy is not installed")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")

# -- laws


@every
@pytest.mark.parametrize("images", [BYTES, BYTES.astype(np.float32) / 255], ids=["u8", "f4"])
def test_a_row_gets_the_same_wherever_it_is(transform, images):
    whole = transform(images, rows=ROWS, seed=5, epoch=2, dims=DIMS)
    for order in ([3, 1, 0, 5, 2, 4], [4, 2], [5]):
        part = transform(images[order], rows=ROWS[order], seed=5, epoch=2, dims=DIMS)
        assert_array_equal(part, whole[order])
        assert part.dtype == whole.dtype
    for place, row in enumerate(ROWS):
        one = transform(images[place], rows=row, seed=5, epoch=2, dims=DIMS[1:])
        assert_array_equal(one, whole[place])


@every
def test_axes_do_not_matter(transform):
    first = transform(BYTES, rows=ROWS, seed=5, dims=DIMS)
    labelled = xr.DataArray(BYTES.transpose(1, 2, 0, 3).copy(), dims=("c", "y", "b", "x"))
    found = transform(labelled, rows=ROWS, seed=5)
    assert found.dims == ("c", "y", "b", "x")
    assert found.dtype == first.dtype
    assert_array_equal(found.transpose("b", "c", "y", "x"), first)


@every
def test_pictures_of_different_sizes_are_changed_one_by_one(transform):
    images = [np.resize(BYTES, (3, H + k, W + 2 * k)) for k in range(3)]
    found = transform(batch_of(images), rows=ROWS[:3], seed=5)
    for place, image in enumerate(images):
        one = transform(image, rows=ROWS[place], seed=5, dims=DIMS[1:])
        assert_array_equal(found.values[place], one)


@pytest.mark.parametrize("dtype", ["u1", "i4", "f2", "f4", "f8"])
@pytest.mark.parametrize("asked", [None, "f4", "f8"])
def test_factors_of_pictures_of_different_sizes_are_computed_as_of_those_of_one(dtype, asked):
    images = (BYTES[:3] / 2).astype(dtype) * 3
    transform = tf.Augment([tf.Normalize((1, 2, 3), 7)], axes=("b", 0, 1, "c"), dtype=asked)
    alike = transform(images, dims=DIMS)
    for found, wanted in zip(transform(batch_of(images)).values, alike, strict=True):
        assert found.dtype == wanted.dtype
        assert_array_equal(found, wanted)


@every
def test_an_empty_batch_has_the_shape_of_others(transform):
    some, none = (transform(BYTES[:n], dims=DIMS) for n in (2, 0))
    assert none.shape == (0, *some.shape[1:])
    assert none.dtype == some.dtype
    labelled = xr.DataArray(BYTES[:0], dims=DIMS)
    assert transform(labelled).dims == DIMS


@every
def test_pictures_given_stay_as_they_are(transform):
    images = BYTES.copy()
    made = transform(images, rows=ROWS, seed=5, dims=DIMS)
    assert_array_equal(images, BYTES)
    made[...] = 0
    assert_array_equal(images, BYTES)


@every
def test_transforms_are_values(transform):
    field = next(iter(dataclasses.fields(transform))).name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(transform, field, 1)
    assert repr(eval(repr(transform), dict(vars(tf)))) == repr(transform)
    sent = pickle.loads(pickle.dumps(transform))
    made = transform(BYTES, rows=ROWS, seed=5, dims=DIMS)
    assert_array_equal(sent(BYTES, rows=ROWS, seed=5, dims=DIMS), made)


RANDOM = [t for t in ALL if not isinstance(t, tf.Crop | tf.Pad | tf.Resize | tf.Normalize)]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
def test_seed_epoch_row_and_place_change_what_is_drawn(transform):
    images = np.broadcast_to(BYTES[0], (40, 3, H, W))
    rows = np.arange(40)
    base = transform(images, rows=rows, seed=1, epoch=0, dims=DIMS)
    others = [
        transform(images, rows=rows + 40, seed=1, epoch=0, dims=DIMS),
        transform(images, rows=rows, seed=2, epoch=0, dims=DIMS),
        transform(images, rows=rows, seed=1, epoch=1, dims=DIMS),
        tf.Augment([tf.Pad(0), transform])(images, rows=rows, seed=1, epoch=0, dims=DIMS),
    ]
    for other in others:
        same = [np.array_equal(a, b) for a, b in zip(base, other, strict=True)]
        assert np.mean(same) < 0.8
    again = tf.Augment([transform])(images, rows=rows, seed=1, epoch=0, dims=DIMS)
    if not isinstance(transform, tf.Augment):  # whose steps are steps within a step
        assert_array_equal(again, base)


def test_numbers_drawn_are_even():
    drawn = tf.Illumination(1)(np.zeros((20_000, 1, 1, 1)), seed=3, epoch=1, dims=DIMS).ravel()
    counts = np.histogram(drawn, 20, (-1, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # 19 degrees of freedom
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.03


def test_what_is_drawn_for_a_row_never_changes():
    """Figures of the first release: what was trained with must come out again."""
    place = np.broadcast_to(np.arange(400).reshape(1, 1, 20, 20), (4, 1, 20, 20))
    given = {"rows": [0, 7, 500, 12345678901], "seed": 5, "epoch": 2, "dims": DIMS}
    steps = tf.Augment([tf.Mirror(), tf.RandomCrop(9), tf.RandomResizedCrop(1, method="nearest")])
    assert tf.RandomCrop(9)(place, **given)[:, 0, 0, 0].tolist() == [190, 30, 100, 69]
    assert steps(place, **given).ravel().tolist() == [213, 172, 263, 226]
    factors = tf.Contrast(0.5, about=0)(np.ones((4, 1, 1, 1)), **given)
    assert_allclose(factors.ravel(), [0.62835327, 0.67220249, 1.47744822, 0.76077814], rtol=1e-8)


# -- what is kept


@given(st.integers(1, H), st.integers(1, W), st.integers(0, 2**31))
def test_crops_are_slices_of_the_picture(height, width, seed):
    image = np.arange(3 * H * W).reshape(3, H, W)
    corner = tf.Crop((height, width), y=0, x=W - width)(image, dims=DIMS[1:])
    assert_array_equal(corner, image[:, :height, W - width :])
    middle = tf.Crop((height, width))(image, dims=DIMS[1:])
    top, left = (H - height) // 2, (W - width) // 2
    assert_array_equal(middle, image[:, top : top + height, left : left + width])
    random = tf.RandomCrop((height, width))(image, seed=seed, dims=DIMS[1:])
    top, left = divmod(int(random[0, 0, 0]), W)
    assert_array_equal(random, image[:, top : top + height, left : left + width])


@pytest.mark.parametrize("step", [tf.Crop(8, y=0), tf.Crop(4, y=5), tf.RandomCrop(8)])
def test_a_picture_that_does_not_fit_is_named_by_its_row(step):
    pictures = batch_of([np.zeros((3, height, 9), np.uint8) for height in (12, 7, 6)])
    with pytest.raises(AugmentError, match=r"a picture of 7 x 9 \(row 50\)"):
        step(pictures, rows=[40, 50, 60])


def test_mirrors():
    assert_array_equal(tf.Mirror(1)(BYTES, dims=DIMS), BYTES[..., ::-1])
    assert_array_equal(tf.Mirror(0)(BYTES, dims=DIMS), BYTES)
    found = tf.Mirror(0.25)(np.broadcast_to(BYTES[:1], (400, 3, H, W)), dims=DIMS)
    turned = (found == BYTES[0, :, :, ::-1]).all(axis=(1, 2, 3))
    assert 0.17 < turned.mean() < 0.33
    twice = tf.Augment([tf.RandomCrop((9, 11)), tf.Mirror(1), tf.Crop((5, 4), x=1), tf.Mirror(1)])
    cut = tf.Augment([tf.RandomCrop((9, 11)), tf.Crop((5, 4), x=6)])
    assert_array_equal(twice(BYTES, dims=DIMS), cut(BYTES, dims=DIMS))


@pytest.mark.parametrize(("fill", "held"), [(300, 255), (-3.0, 0), (2.5, 2), (3.5, 4)])
def test_what_fills_is_rounded_and_clipped_like_other_values(fill, held):
    assert tf.Pad(1, fill=fill)(BYTES, dims=DIMS)[0, 0, 0, 0] == held
    assert tf.Pad(1, fill=fill)(plain, dims=DIMS)[0, 0, 0, 0] == fill
    for method in ("nearest", "bilinear", "lanczos"):
        far = tf.Affine(canvas=(99, 99), fill=fill, method=method)
        assert far(BYTES, dims=DIMS)[0, 0, 0, 0] == held
        assert far(plain, dims=DIMS)[0, 0, 0, 0] == pytest.approx(fill)


# -- new pixels


@given(st.sampled_from(["u1", "i1", "u2", "i2", "i4"]), st.floats(-1e6, 1e6), st.floats(-9, 9))
def test_what_is_asked_for_in_integers_is_rounded_and_clipped(dtype, mean, scale):
    steps, limits = [tf.Mirror(1.0), tf.Normalize(mean, scale=scale)], np.iinfo(dtype)
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    floats = tf.Augment(steps)(pixels, dims=LAST).astype(np.float64)
    made = tf.Augment(steps, dtype=dtype)(pixels, dims=LAST)
    assert made.dtype == np.dtype(dtype)
    assert_array_equal(made, np.clip(np.round(floats), limits.min, limits.max))


def shares(before, after):
    """Return how much of each old pixel every new one covers."""
    edges = np.arange(after + 1) * (before / after)
    old = np.arange(before)
    covered = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
    return np.maximum(covered, 0) * (after / before)


@pytest.mark.parametrize("method", ["area", "bilinear", "bicubic", "lanczos"])
@given(st.integers(1, H), st.integers(1, W))
def test_a_smaller_picture_is_the_mean_of_what_its_pixels_cover(method, height, width):
    found = tf.Resize((height, width), method=method)(plain, dims=DIMS)
    means = np.einsum("ij,bcjk,lk->bcil", shares(H, height), plain, shares(W, width))
    assert_allclose(found, means, atol=1e-3)  # OpenCV has weights in float32
    whole = tf.Resize((height, width), method=method)(BYTES, dims=DIMS)
    assert whole.dtype == np.uint8
    assert_allclose(whole, means, atol=0.51)


@pytest.mark.parametrize(("method", "code"), [("bicubic", 2), ("lanczos", 4), ("bilinear", 1)])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i4", ">u2", "f2", "f4", "f8"])
def test_methods_are_those_of_opencv(method, code, dtype):
    images = (BYTES[0] // 2).astype(dtype)
    found = tf.Resize((40, 50), method=method)(images, dims=DIMS[1:])
    assert found.dtype == images.dtype.newbyteorder("=")
    wanted = cv2.resize(plain[0].transpose(1, 2, 0) // 2, (50, 40), interpolation=code)
    if images.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        wanted = np.clip(np.rint(wanted), limits.min, limits.max)
    assert_allclose(found, wanted.transpose(2, 0, 1), atol=1.01, rtol=1e-3)


def test_pictures_of_many_channels_are_resized_channel_by_channel():
    many = np.concatenate([BYTES, BYTES[:, ::-1]], axis=1)
    for change in (tf.Resize((31, 40)), tf.Affine(rotate=20, fill=9)):
        found = change(many, dims=DIMS)
        assert_array_equal(found[:, :3], change(BYTES, dims=DIMS))
        assert_array_equal(found[:, :2:-1], found[:, :3])


def test_proportions_stay():
    assert tf.Resize(shorter=10)(BYTES, dims=DIMS).shape == (N, 3, 10, 13)
    assert tf.Resize(least=30)(BYTES, dims=DIMS).shape == (N, 3, 30, 39)
    assert tf.Resize(least=(20, 39))(BYTES, dims=DIMS).shape == (N, 3, 30, 39)
    assert tf.Resize(least=(25, 30))(BYTES, dims=DIMS).shape == (N, 3, 25, 33)  # halves go up
    assert tf.Resize(least=5)(BYTES, dims=DIMS).shape == BYTES.shape


def test_crops_of_random_area_and_proportions():
    ramp = np.stack(np.meshgrid(np.arange(60.0), np.arange(60.0), indexing="ij"))
    image = np.broadcast_to(ramp, (300, 2, 60, 60))
    found = tf.RandomResizedCrop(20, area=(0.1, 0.5), aspect=(0.5, 2.0))(image, dims=DIMS)
    spans = np.ptp(found, axis=(2, 3)) * 20 / 19
    shares, aspects = spans.prod(axis=1) / 3600, spans[:, 1] / spans[:, 0]
    assert 0.07 < shares.min() < 0.15 < 0.44 < shares.max() < 0.56
    assert 0.45 < aspects.min() < 0.6 < 1.7 < aspects.max() < 2.2
    narrow = np.broadcast_to(np.arange(200.0), (30, 1, 4, 200))
    found = tf.RandomResizedCrop(4, area=(0.9, 1.0), aspect=(1.0, 1.0))(narrow, dims=DIMS)
    assert_allclose(np.ptp(found, axis=(1, 2, 3)), 3)  # nothing fits: the largest that does


def by_scipy(image, matrix, size, fill, order):
    back = np.linalg.inv(matrix)[::-1, ::-1]  # rows and columns, not x and y
    middle, new = (np.array([(n - 1) / 2 for n in s]) for s in (image.shape[1:], size))
    return np.stack(
        [
            ndimage.affine_transform(
                plane, back, middle - back @ new, size, order=order, mode="grid-constant", cval=fill
            )
            for plane in image
        ]
    )


@given(
    st.floats(-180, 180), st.floats(-0.5, 0.5), st.floats(0.5, 1.5), st.floats(0.6, 1.6),
    st.integers(3, 30), st.integers(3, 30),
)  # fmt: skip
def test_affine_maps_are_those_of_scipy(angle, shear, scale, aspect, height, width):
    down = 2 * scale / (1 + aspect)
    turn = math.radians(angle)
    matrix = (
        np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        @ np.array([[1, shear], [0, 1]])
        @ np.diag([aspect * down, down])
    )
    image = 50 + 10 * np.sin(np.indices((3, H, W)).sum(axis=0) / 3)  # 5 a pixel at most
    affine = tf.Affine(angle, shear, scale, aspect, canvas=(height, width), fill=50)
    found = affine(image, dims=DIMS[1:])
    wanted = by_scipy(image, matrix, (height, width), 50, 1)
    assert_allclose(found, wanted, atol=2 * 10 / 32)  # OpenCV takes places in steps of 1/32 pixel


def test_canvases():
    assert tf.Affine(scale=1.5)(plain[0], dims=DIMS[1:]).shape == (3, H, W)
    assert tf.Affine(scale=1.5, canvas=(30, 32))(BYTES, dims=DIMS).shape == (N, 3, 30, 32)


# -- colours and values


def jittered(name, most, image):
    """Return what a jitter of one kind makes of pictures, and its factor of each."""
    grey = np.einsum("c,bchw->bhw", (0.299, 0.587, 0.114), image)[:, np.newaxis]
    level = grey.mean(axis=(1, 2, 3), keepdims=True)
    centre = {"brightness": np.zeros_like(level), "contrast": level, "saturation": grey}[name]
    found, away = tf.Jitter(**{name: most})(image, dims=DIMS), image - centre
    factors = ((found - centre) * away).sum(axis=(1, 2, 3)) / (away**2).sum(axis=(1, 2, 3))
    assert_allclose(found, centre + away * factors.reshape(-1, 1, 1, 1), atol=1e-6)
    return factors


def test_brightness_contrast_saturation_in_any_order():
    image = np.broadcast_to(plain[0] / 255, (50, 3, H, W))
    factors = {n: jittered(n, 0.4, image) for n in ("brightness", "contrast", "saturation")}
    for one in factors.values():
        assert 0.6 <= one.min() < 0.65 < 1.35 < one.max() <= 1.4
    found, orders = tf.Jitter(0.4, 0.4, 0.4)(image, dims=DIMS), set()
    for place in range(50):
        for order in permutations(factors):
            x = image[place]
            for name in order:
                grey = np.einsum("c,chw->hw", (0.299, 0.587, 0.114), x)
                centre = {"brightness": 0, "contrast": grey.mean(), "saturation": grey}[name]
                x = centre + (x - centre) * factors[name][place]
            orders |= {order} if np.abs(x - found[place]).max() < 1e-6 else set()
    assert len(orders) == 6
    assert tf.Jitter(brightness=3.0)(BYTES, dims=DIMS).max() == 255


def test_alpha_is_neither_jittered_nor_counted_as_grey():
    alpha = np.arange(N * H * W, dtype=np.uint8).reshape(N, 1, H, W)
    step = tf.Jitter(brightness=0.3, contrast=0.4)
    found = step(np.concatenate([BYTES, alpha], axis=1), dims=DIMS)
    assert_array_equal(found[:, :3], step(BYTES, dims=DIMS))
    assert_array_equal(found[:, 3:], alpha)


def test_shifts_of_hue_saturation_and_lightness():
    assert_allclose(tf.ShiftHSL()(plain / 255, dims=DIMS), plain / 255, atol=1e-5)
    image = np.broadcast_to(np.array([0.6, 0.3, 0.4]).reshape(1, 3, 1, 1), (100, 3, 2, 2))
    for name, most, unit, place in [
        ("hue", 30, 360, 0), ("lightness", 0.2, 1, 1), ("saturation", 0.2, 1, 2),
    ]:  # fmt: skip
        found = tf.ShiftHSL(**{name: most})(image, dims=DIMS)[:, :, 0, 0]
        changed = np.array([colorsys.rgb_to_hls(*c) for c in found])
        away = changed - np.array(colorsys.rgb_to_hls(0.6, 0.3, 0.4))
        away[:, 0] = (away[:, 0] + 0.5) % 1 - 0.5
        assert_allclose(np.delete(away, place, axis=1), 0, atol=1e-6)
        assert -most <= away[:, place].min() * unit < -0.8 * most
        assert 0.8 * most < away[:, place].max() * unit <= most
    as_bytes = tf.ShiftHSL(lightness=0.2)((image * 100).astype(np.uint8), dims=DIMS)
    with_peak = tf.ShiftHSL(lightness=0.2, peak=100)((image * 100).astype(np.uint8), dims=DIMS)
    assert not np.array_equal(as_bytes, with_peak)


def test_normalisation():
    found = tf.Normalize([10, 20, 30], [2, 4, 8], 0.5)(BYTES, dims=DIMS)
    shaped = [np.reshape(v, (3, 1, 1)) for v in ([10, 20, 30], [2, 4, 8])]
    assert found.dtype == np.float32
    assert_allclose(found, (plain - shaped[0]) / shaped[1] * 0.5, rtol=1e-5, atol=1e-5)
    assert tf.Normalize(1)(plain, dims=DIMS).dtype == np.float64
    assert tf.Augment([tf.Normalize(1)], dtype="float16")(BYTES, dims=DIMS).dtype == np.float16


def test_contrast_and_illumination():
    image = np.broadcast_to(plain[0], (50, 3, H, W))
    for about, centre in [(None, plain[0].mean()), (0, 0), (100.0, 100.0)]:
        found = tf.Contrast(0.3, about)(image, dims=DIMS)
        factors = (found - centre)[:, 0, 0, 0] / (image - centre)[:, 0, 0, 0]
        assert_allclose(found, centre + (image - centre) * factors.reshape(-1, 1, 1, 1), rtol=1e-6)
        assert 0.7 <= factors.min() < 0.75 < 1.25 < factors.max() <= 1.3
    found = tf.Illumination(20)(image, dims=DIMS) - image
    assert_allclose(found, found[:, :1, :1, :1] + np.zeros_like(found), atol=1e-9)
    assert -20 <= found.min() < -15 < 15 < found.max() <= 20


def test_floats_are_mapped_once():
    steps = [
        tf.Normalize([1, 2, 3], 9),
        tf.Contrast(0.3, about=0),
        tf.RandomCrop(9),
        tf.Illumination(2),
    ]
    found = tf.Augment(steps)(BYTES, rows=ROWS, seed=3, dims=DIMS)
    expected = plain
    for place, step in enumerate(steps):
        padded = tf.Augment([tf.Pad(0)] * place + [step])  # draws as the step does in its place
        expected = padded(expected, rows=ROWS, seed=3, dims=DIMS)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
