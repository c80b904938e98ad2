"""Augmentation: laws that hold for every transform, and what each of them computes."""

from __future__ import annotations

import colorsys
import dataclasses
import importlib
import math
import pickle
import threading
import tracemalloc
from fractions import Fraction
from itertools import permutations

import array_api_strict
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from labeled import augment
from labeled.augment import (
    Affine,
    Augment,
    Contrast,
    Crop,
    Illumination,
    Jitter,
    Mirror,
    Normalize,
    OneOf,
    Pad,
    PrincipalNoise,
    RandomCrop,
    RandomResizedCrop,
    RandomSizedCrop,
    Resize,
    ShiftHSL,
    mean_image,
    write_mean_file,
)
from labeled.augment import pictures as pictures_module
from labeled.augment import resizing as resizing_module
from labeled.augment.chances import Chances
from labeled.augment.fast import LOOPS
from labeled.augment.filters import METHODS
from labeled.errors import AugmentError, DimsError, FileFormatError

ndimage = pytest.importorskip("scipy.ndimage", reason="SciPy is not installed")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

DIMS = ("batch", "channel", "height", "width")
LAST = ("batch", "height", "width", "channel")
N, H, W = 6, 20, 26
BYTES = np.random.default_rng(0).integers(0, 256, (N, 3, H, W), dtype=np.uint8)
ROWS = np.array([11, 3, 500, 7, 0, 12345678901])

ALL = [
    Crop((9, 14)),
    Crop((9, 14), y=1, x=2),
    RandomCrop((9, 14)),
    Mirror(),
    Pad((1, 2), fill=7),
    Resize((11, 31)),
    Resize(shorter=14, method="bicubic"),
    Resize(least=(25, 30), method="nearest"),
    RandomSizedCrop((8, 9), edge=(5, 15)),
    RandomResizedCrop((8, 9), area=(0.2, 0.9)),
    Affine(rotate=(-30, 30), shear=(-0.2, 0.2), scale=(0.8, 1.2), aspect=(0.8, 1.2)),
    Affine(rotate=(-30, 30), method="nearest", fill=9),
    Affine(rotate=(-30, 30), method="lanczos", fill=9),
    Affine(shear=(-0.3, 0.3), method="bicubic"),
    Jitter(0.4, 0.3, 0.5),
    ShiftHSL(20, 0.2, 0.1),
    PrincipalNoise(0.5),
    Contrast(0.4),
    Contrast(0.4, about=100),
    Illumination(30),
    Normalize([1, 2, 3], [4, 5, 6], 2.0),
    Augment([RandomCrop(12), Mirror(), Normalize(100, 50), Contrast(0.2, about=0)]),
    Augment([Resize(shorter=18), RandomCrop(12), Jitter(0.2), Mirror(), Mirror()]),
]
every = pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
plain = BYTES.astype(np.float64)


# -- laws


@every
@pytest.mark.parametrize("images", [BYTES, BYTES.astype(np.float32) / 255], ids=["u8", "f4"])
def test_a_row_gets_the_same_wherever_it_is(transform, images):
    whole = transform(images, rows=ROWS, seed=5, epoch=2, dims=DIMS)
    for order in ([3, 1, 0, 5, 2, 4], [4, 2], [5]):
        part = transform(images[order], rows=ROWS[order], seed=5, epoch=2, dims=DIMS)
        assert_array_equal(part, whole[order])
    for place, row in enumerate(ROWS):
        one = transform(images[place], rows=row, seed=5, epoch=2, dims=DIMS[1:])
        assert_array_equal(one, whole[place])


@every
def test_axes_do_not_matter(transform):
    first = transform(BYTES, rows=ROWS, seed=5, dims=DIMS)
    last = transform(BYTES.transpose(0, 2, 3, 1).copy(), rows=ROWS, seed=5, dims=LAST)
    assert_array_equal(last.transpose(0, 3, 1, 2), first)
    assert last.dtype == first.dtype
    labelled = xr.DataArray(BYTES.transpose(1, 2, 0, 3).copy(), dims=("c", "y", "time", "x"))
    labelled = labelled.rename(time="b")
    found = transform(labelled, rows=ROWS, seed=5)
    assert found.dims == ("c", "y", "b", "x")
    assert_array_equal(found.transpose("b", "c", "y", "x"), first)


@every
def test_other_libraries_agree(transform):
    images = BYTES.astype(np.float32)
    ours = transform(images, rows=ROWS, seed=5, dims=DIMS)
    theirs = transform(array_api_strict.asarray(images), rows=ROWS, seed=5, dims=DIMS)
    assert isinstance(theirs, type(array_api_strict.asarray(images)))
    assert_allclose(np.asarray(theirs), ours, rtol=1e-4, atol=1e-3)


@every
def test_pictures_of_different_sizes_are_changed_one_by_one(transform):
    images = [np.resize(BYTES, (3, H + k, W + 2 * k)) for k in range(3)]
    found = transform(images, rows=ROWS[:3], seed=5, dims=DIMS[1:])
    for place, image in enumerate(images):
        one = transform(image, rows=ROWS[place], seed=5, dims=DIMS[1:])
        assert_array_equal(found[place], one)


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
    assert repr(eval(repr(transform), vars(augment))) == repr(transform)
    sent = pickle.loads(pickle.dumps(transform))
    made = transform(BYTES, rows=ROWS, seed=5, dims=DIMS)
    assert_array_equal(sent(BYTES, rows=ROWS, seed=5, dims=DIMS), made)


RANDOM = [t for t in ALL if not isinstance(t, Crop | Pad | Resize | Normalize)]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
def test_seed_epoch_row_and_place_change_what_is_drawn(transform):
    images = np.broadcast_to(BYTES[0], (40, 3, H, W))
    rows = np.arange(40)
    base = transform(images, rows=rows, seed=1, epoch=0, dims=DIMS)
    others = [
        transform(images, rows=rows + 40, seed=1, epoch=0, dims=DIMS),
        transform(images, rows=rows, seed=2, epoch=0, dims=DIMS),
        transform(images, rows=rows, seed=1, epoch=1, dims=DIMS),
        Augment([Pad(0), transform])(images, rows=rows, seed=1, epoch=0, dims=DIMS),
    ]
    for other in others:
        same = [np.array_equal(a, b) for a, b in zip(base, other, strict=True)]
        assert np.mean(same) < 0.8
    again = Augment([transform])(images, rows=rows, seed=1, epoch=0, dims=DIMS)
    if not isinstance(transform, Augment):  # whose steps are steps within a step
        assert_array_equal(again, base)


def test_threads_do_not_matter():
    steps = Augment([RandomResizedCrop(12), Mirror(), Jitter(0.3, 0.3, 0.3), Normalize(9, 3)])
    expected = steps(BYTES, rows=ROWS, seed=5, dims=DIMS)
    found = {}

    def work(places):
        found[places] = steps(BYTES[list(places)], rows=ROWS[list(places)], seed=5, dims=DIMS)

    threads = [threading.Thread(target=work, args=(p,)) for p in [(0, 5), (3,), (4, 2, 1)]]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == 3
    for places, made in found.items():
        assert_array_equal(made, expected[list(places)])


def test_numbers_drawn_are_even():
    chances = Chances(np.arange(20_000), seed=3, epoch=1)
    unit = chances.uniform("x", 0, 1)
    counts = np.histogram(unit, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # 19 degrees of freedom
    assert abs(np.corrcoef(unit[1:], unit[:-1])[0, 1]) < 0.03
    assert abs(np.corrcoef(unit, chances.uniform("y", 0, 1))[0, 1]) < 0.03
    assert abs(chances.normal("z").std() - 1) < 0.03
    assert set(chances.whole("w", np.full(20_000, 3))) == {0, 1, 2}
    assert abs(chances.coin("c", 0.3).mean() - 0.3) < 0.02
    assert chances.uniform("bounds", -2, 5).min() < -1.9


# -- what is kept


@given(st.integers(1, H), st.integers(1, W), st.integers(0, 2**31))
def test_crops_are_slices_of_the_picture(height, width, seed):
    image = np.arange(3 * H * W).reshape(3, H, W)
    middle = Crop((height, width))(image, dims=DIMS[1:])
    top, left = (H - height) // 2, (W - width) // 2
    assert_array_equal(middle, image[:, top : top + height, left : left + width])
    random = RandomCrop((height, width))(image, seed=seed, dims=DIMS[1:])
    top, left = divmod(int(random[0, 0, 0]), W)
    assert_array_equal(random, image[:, top : top + height, left : left + width])


def test_random_crops_reach_every_place():
    image = np.broadcast_to(np.arange(12).reshape(1, 1, 3, 4), (400, 1, 3, 4))
    found = RandomCrop((2, 3))(image, dims=DIMS)[:, 0, 0, 0]
    assert np.unique(found).tolist() == [0, 1, 4, 5]
    assert np.bincount(found)[[0, 1, 4, 5]].min() > 70


def test_given_starts():
    found = Crop((5, 6), y=3, x=4)(BYTES, dims=DIMS)
    assert_array_equal(found, BYTES[:, :, 3:8, 4:10])
    assert_array_equal(Crop(6, x=20)(BYTES, dims=DIMS), BYTES[:, :, 7:13, 20:26])
    with pytest.raises(AugmentError, match="reaches beyond"):
        Crop(6, x=21)(BYTES, dims=DIMS)
    with pytest.raises(AugmentError, match="Resize\\(least=\\(21, 6\\)\\)"):
        RandomCrop((21, 6))(BYTES, dims=DIMS)


def test_mirrors():
    assert_array_equal(Mirror(1)(BYTES, dims=DIMS), BYTES[..., ::-1])
    assert_array_equal(Mirror(0)(BYTES, dims=DIMS), BYTES)
    found = Mirror(0.25)(np.broadcast_to(BYTES[:1], (400, 3, H, W)), dims=DIMS)
    turned = (found == BYTES[0, :, :, ::-1]).all(axis=(1, 2, 3))
    assert 0.17 < turned.mean() < 0.33
    twice = Augment([RandomCrop((9, 11)), Mirror(1), Crop((5, 4), x=1), Mirror(1)])
    cut = Augment([RandomCrop((9, 11)), Crop((5, 4), x=6)])
    assert_array_equal(twice(BYTES, dims=DIMS), cut(BYTES, dims=DIMS))


def test_borders():
    expected = np.pad(BYTES, ((0, 0), (0, 0), (2, 2), (3, 3)), constant_values=9)
    assert_array_equal(Pad((2, 3), fill=9)(BYTES, dims=DIMS), expected)


# -- new pixels


def by_pillow(image, size, method):
    how = {"bilinear": 2, "bicubic": 3, "lanczos": 1, "area": 4}[method]
    planes = [pillow.fromarray(p.astype(np.float32)).resize(size[::-1], how) for p in image]
    return np.stack([np.asarray(p) for p in planes])


@pytest.mark.parametrize("method", METHODS[1:])
@given(st.integers(1, 45), st.integers(1, 45))
def test_sizes_change_as_pillow_changes_them(method, height, width):
    image = BYTES[0].astype(np.float32)
    found = Resize((height, width), method=method)(image, dims=DIMS[1:])
    assert_allclose(found, by_pillow(image, (height, width), method), atol=2e-3)
    whole = Resize((height, width), method=method)(BYTES[0], dims=DIMS[1:])
    assert whole.dtype == np.uint8
    assert_allclose(whole, np.clip(found, 0, 255), atol=0.51)


@given(st.integers(1, 60))
def test_the_nearest_pixel_is_found_exactly(width):  # Pillow is off by one at some borders
    image = np.arange(26.0).reshape(1, 1, 26)
    found = Resize((1, width), method="nearest")(image, dims=DIMS[1:])
    centres = [Fraction(2 * i + 1, 2) * 26 / width for i in range(width)]
    assert_array_equal(found[0, 0], [math.floor(c) for c in centres])


def test_without_antialiasing_neighbours_count_alone():
    image = np.arange(12.0).reshape(1, 1, 12) ** 2
    found = Resize((1, 4), antialias=False)(image, dims=DIMS[1:])
    assert_allclose(found[0, 0], image[0, 0, 1::3])
    assert not np.array_equal(found, Resize((1, 4))(image, dims=DIMS[1:]))


def test_proportions_stay():
    assert Resize(shorter=10)(BYTES, dims=DIMS).shape == (N, 3, 10, 13)
    assert Resize(least=30)(BYTES, dims=DIMS).shape == (N, 3, 30, 39)
    assert Resize(least=(20, 39))(BYTES, dims=DIMS).shape == (N, 3, 30, 39)
    assert Resize(least=5)(BYTES, dims=DIMS).shape == BYTES.shape


def test_crops_of_random_size():
    image = np.broadcast_to(np.arange(30.0).reshape(1, 1, 1, 30), (200, 1, 30, 30))
    found = RandomSizedCrop(10, edge=(10, 20))(image, dims=DIMS)
    edges = (found[..., -1] - found[..., 0])[:, 0, 0] * 10 / 9
    assert 9 < edges.min() < 11.5 < 18.5 < edges.max() < 21
    middles = found.mean(axis=(1, 2, 3))
    assert middles.min() < 10 < 20 < middles.max()
    centred = RandomSizedCrop(10, edge=(10, 20), centred=True)(image, dims=DIMS)
    assert_allclose(centred.mean(axis=(1, 2, 3)), 14.5, atol=0.51)


def test_crops_of_random_area_and_proportions():
    ramp = np.stack(np.meshgrid(np.arange(60.0), np.arange(60.0), indexing="ij"))
    image = np.broadcast_to(ramp, (300, 2, 60, 60))
    found = RandomResizedCrop(20, area=(0.1, 0.5), aspect=(0.5, 2.0))(image, dims=DIMS)
    spans = np.ptp(found, axis=(2, 3)) * 20 / 19
    shares, aspects = spans.prod(axis=1) / 3600, spans[:, 1] / spans[:, 0]
    assert 0.07 < shares.min() < 0.15 < 0.44 < shares.max() < 0.56
    assert 0.45 < aspects.min() < 0.6 < 1.7 < aspects.max() < 2.2
    narrow = np.broadcast_to(np.arange(200.0), (30, 1, 4, 200))
    found = RandomResizedCrop(4, area=(0.9, 1.0), aspect=(1.0, 1.0))(narrow, dims=DIMS)
    assert_allclose(np.ptp(found, axis=(1, 2, 3)), 3)  # nothing fits: the largest that does


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "area", "lanczos"])
def test_windows_as_large_as_the_picture_are_resized_like_it(method, antialias):
    image = np.random.default_rng(0).integers(0, 256, (2, 3, 24, 24), dtype=np.uint8)
    how = {"method": method, "antialias": antialias}
    whole = Resize((9, 7), **how)(image, dims=DIMS)
    for crop in (
        RandomSizedCrop((9, 7), edge=(24, 24), **how),
        RandomResizedCrop((9, 7), area=(1.0, 1.0), aspect=(1.0, 1.0), **how),
    ):
        np.testing.assert_array_equal(crop(image, dims=DIMS), whole)


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
    image = plain[0]
    affine = Affine(angle, shear, scale, aspect, canvas=(height, width), fill=50)
    found = affine(image, dims=DIMS[1:])
    assert_allclose(found, by_scipy(image, matrix, (height, width), 50, 1), atol=1e-6)


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos"])
def test_pictures_are_enlarged_alike_by_maps_and_by_sizes(method):
    image = BYTES[0].astype(np.float64)
    for scale in (2, 3):
        size = (H * scale, W * scale)
        found = Affine(scale=scale, canvas=size, method=method)(image, dims=DIMS[1:])
        wanted = Resize(size, method=method)(image, dims=DIMS[1:])
        inside = (slice(None), *(slice(3 * scale, -3 * scale),) * 2)
        assert_allclose(found[inside], wanted[inside], atol=1e-9)


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic", "lanczos"])
def test_level_pictures_stay_level_under_maps(method):
    image = np.full((1, 30, 30), 7.0)
    turned = Affine(rotate=33, shear=0.2, aspect=1.3, method=method)(image, dims=DIMS[1:])
    assert_allclose(turned[:, 12:18, 12:18], 7, rtol=1e-12)
    edge = Affine(rotate=45, method=method, fill=7)(image, dims=DIMS[1:])
    assert_allclose(edge, 7, rtol=1e-12)


def test_turns_are_counter_clockwise_and_exact():
    image = np.arange(16).reshape(1, 4, 4)
    for method in ("nearest", "bilinear", "bicubic", "lanczos"):
        found = Affine(rotate=90, method=method)(image, dims=DIMS[1:])
        assert_array_equal(found[0], np.rot90(image[0]))


def test_drawn_maps_lie_in_their_ranges():
    ramp = np.stack(np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij"))
    image = np.broadcast_to(ramp, (200, 2, 9, 9))
    found = Affine(scale=(1.0, 2.0))(image, dims=DIMS)
    steps = 1 / (found[:, 0, 5, 4] - found[:, 0, 4, 4])
    assert 1 <= steps.min() < 1.1 < 1.9 < steps.max() <= 2
    found = Affine(rotate=(10, 20))(image, dims=DIMS)
    angles = np.degrees(np.arctan2(*(found[:, c, 4, 5] - found[:, c, 4, 4] for c in (0, 1))))
    assert 10 <= angles.min() < 11 < 19 < angles.max() <= 20


def test_canvases():
    image = plain[0]
    assert Affine(scale=1.5)(image, dims=DIMS[1:]).shape == image.shape
    assert Affine(scale=1.5, canvas="scaled")(image, dims=DIMS[1:]).shape == (3, 30, 39)
    limited = Affine(scale=1.5, canvas="scaled", limits=(1, 32))
    assert limited(image, dims=DIMS[1:]).shape == (3, 30, 32)
    several = Augment([Affine(scale=(0.5, 1.5), canvas="scaled"), Resize(8)])
    assert several(BYTES, dims=DIMS).shape == (N, 3, 8, 8)
    with pytest.raises(AugmentError, match="different sizes"):
        Affine(scale=(0.5, 1.5), canvas="scaled")(BYTES, dims=DIMS)


# -- colours and values


def test_brightness_contrast_saturation():
    image = np.broadcast_to(plain[0] / 255, (50, 3, H, W))
    grey = np.einsum("c,bchw->bhw", (0.299, 0.587, 0.114), image)[:, np.newaxis]
    for name, centre in [
        ("brightness", np.zeros((50, 1, 1, 1))),
        ("contrast", grey.mean(axis=(1, 2, 3), keepdims=True)),
        ("saturation", grey),
    ]:
        found = Jitter(**{name: 0.4})(image, dims=DIMS)
        away = image - centre
        factors = ((found - centre) * away).sum(axis=(1, 2, 3)) / (away**2).sum(axis=(1, 2, 3))
        assert_allclose(found, centre + away * factors.reshape(-1, 1, 1, 1), atol=1e-6)
        assert 0.6 <= factors.min() < 0.65 < 1.35 < factors.max() <= 1.4
    bytes_ = Jitter(brightness=3.0)(BYTES, dims=DIMS)
    assert bytes_.dtype == np.uint8
    assert bytes_.max() == 255


def test_jitter_comes_in_any_order():
    image = np.broadcast_to(BYTES[:1], (40, 3, H, W))
    jitter = Jitter(0.9, 0.9, 0.9)
    found = jitter(image, dims=DIMS)
    chances = Chances(np.arange(40), 0, 0, (0,))
    factors = {n: chances.uniform(n, 1 - 0.9, 1 + 0.9)
               for n in ("brightness", "contrast", "saturation")}  # fmt: skip
    orders = []
    for place in range(40):
        fitting = []
        for order in permutations(factors):
            x = plain[0]
            for name in order:
                grey = np.einsum("c,chw->hw", (0.299, 0.587, 0.114), x)
                centre = {"brightness": 0, "contrast": grey.mean(), "saturation": grey}[name]
                x = np.clip(np.rint(centre + (x - centre) * factors[name][place]), 0, 255)
            if np.abs(x - found[place]).max() <= 2:
                fitting.append(order)
        assert fitting
        orders += fitting[:1]
    assert len(set(orders)) >= 5


@given(st.tuples(*[st.floats(0, 1)] * 3))
def test_hsl_there_and_back(colour):
    image = np.array(colour).reshape(1, 3, 1, 1)
    h, s, l = augment.colour.hsl_of(image)  # noqa: E741 (their usual name)
    expected = colorsys.rgb_to_hls(*colour)
    assert_allclose(float(l[0, 0, 0, 0]), expected[1], atol=1e-9)
    if min(expected[1], 1 - expected[1]) > 1e-6 and expected[2] > 1e-6:
        assert_allclose(float(s[0, 0, 0, 0]), expected[2], atol=1e-6)
        turned = (float(h[0, 0, 0, 0]) / 6 - expected[0] + 0.5) % 1 - 0.5
        assert abs(turned) < 1e-6
    assert_allclose(augment.colour.rgb_of(h, s, l).ravel(), colour, atol=1e-9)


def test_shifts_of_hue_saturation_and_lightness():
    image = np.broadcast_to(np.array([0.6, 0.3, 0.4]).reshape(1, 3, 1, 1), (100, 3, 2, 2))
    for name, most, unit, place in [
        ("hue", 30, 360, 0), ("lightness", 0.2, 1, 1), ("saturation", 0.2, 1, 2),
    ]:  # fmt: skip
        found = ShiftHSL(**{name: most})(image, dims=DIMS)[:, :, 0, 0]
        changed = np.array([colorsys.rgb_to_hls(*c) for c in found])
        away = changed - np.array(colorsys.rgb_to_hls(0.6, 0.3, 0.4))
        away[:, 0] = (away[:, 0] + 0.5) % 1 - 0.5
        assert_allclose(np.delete(away, place, axis=1), 0, atol=1e-9)
        assert -most <= away[:, place].min() * unit < -0.8 * most
        assert 0.8 * most < away[:, place].max() * unit <= most
    as_bytes = ShiftHSL(lightness=0.2)((image * 100).astype(np.uint8), dims=DIMS)
    with_peak = ShiftHSL(lightness=0.2, peak=100)((image * 100).astype(np.uint8), dims=DIMS)
    assert not np.array_equal(as_bytes, with_peak)


def test_noise_along_principal_colours():
    image = np.full((3000, 3, 1, 1), 0.5)
    noise = PrincipalNoise(0.1)
    found = noise(image, dims=DIMS)[:, :, 0, 0] - 0.5
    vectors = np.array(noise.vectors)
    expected = vectors @ np.diag(np.square(np.array(noise.values) * 0.1)) @ vectors.T
    assert_allclose(np.cov(found.T), expected, rtol=0.1, atol=2e-6)
    larger = PrincipalNoise(0.1, values=(1, 1, 1))(image, dims=DIMS)[:, :, 0, 0]
    assert larger.std() > 2 * found.std()
    other = PrincipalNoise(0.1, vectors=((1, 0, 0), (0, 0, 0), (0, 0, 0)))(image, dims=DIMS)
    assert (other[:, 1:] == 0.5).all()
    assert not (other[:, 0] == 0.5).any()
    wide = PrincipalNoise(0.1, peak=255)(image, dims=DIMS)[:, :, 0, 0] - 0.5
    assert_allclose(wide, found * 255, rtol=1e-6)


def test_normalisation():
    found = Normalize([10, 20, 30], [2, 4, 8], 0.5)(BYTES, dims=DIMS)
    shaped = [np.reshape(v, (3, 1, 1)) for v in ([10, 20, 30], [2, 4, 8])]
    assert found.dtype == np.float32
    assert_allclose(found, (plain - shaped[0]) / shaped[1] * 0.5, rtol=1e-5, atol=1e-5)
    assert Normalize(1)(plain, dims=DIMS).dtype == np.float64
    assert Augment([Normalize(1)], dtype="float16")(BYTES, dims=DIMS).dtype == np.float16


def test_contrast_and_illumination():
    image = np.broadcast_to(plain[0], (50, 3, H, W))
    for about, centre in [(None, plain[0].mean()), (0, 0), (100.0, 100.0)]:
        found = Contrast(0.3, about)(image, dims=DIMS)
        factors = (found - centre)[:, 0, 0, 0] / (image - centre)[:, 0, 0, 0]
        assert_allclose(found, centre + (image - centre) * factors.reshape(-1, 1, 1, 1), rtol=1e-6)
        assert 0.7 <= factors.min() < 0.75 < 1.25 < factors.max() <= 1.3
    found = Illumination(20)(image, dims=DIMS) - image
    assert_allclose(found, found[:, :1, :1, :1] + np.zeros_like(found), atol=1e-9)
    assert -20 <= found.min() < -15 < 15 < found.max() <= 20


def test_bytes_are_rounded_and_clipped():
    found = Illumination(200)(BYTES, rows=ROWS, dims=DIMS)
    exact = Illumination(200)(plain, rows=ROWS, dims=DIMS)
    assert found.dtype == np.uint8
    assert_allclose(found, np.clip(exact, 0, 255), atol=0.51)
    assert (found == 255).any() or (found == 0).any()


def test_floats_are_mapped_once():
    steps = [Normalize([1, 2, 3], 9), Contrast(0.3, about=0), RandomCrop(9), Illumination(2)]
    found = Augment(steps)(BYTES, rows=ROWS, seed=3, dims=DIMS)
    expected = plain
    for place, step in enumerate(steps):
        padded = Augment([Pad(0)] * place + [step])  # draws as the step does in its place
        expected = padded(expected, rows=ROWS, seed=3, dims=DIMS)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [8, 100])
def test_small_and_large_pictures_are_copied_alike(size):
    image = np.random.default_rng(1).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    steps = [RandomCrop(size - 3), Mirror(), Normalize([1, 2, 3], [4, 5, 6])]
    for axes in [("b", "c", 0, 1), ("b", 0, 1, "c"), ("c", 0, 1, "b"), (1, "b", "c", 0)]:
        found = Augment(steps, axes=axes)(image, rows=[5, 6, 7], dims=LAST)
        assert found.flags.c_contiguous
        place = [("b", 0, 1, "c").index(axis) for axis in axes]
        expected = Augment(steps)(image.astype(np.float64), rows=[5, 6, 7], dims=LAST)
        assert_allclose(found, expected.transpose(place), rtol=1e-5, atol=1e-5)


# -- mean images


def test_the_mean_of_a_dataset():
    expected = plain.mean(axis=0)
    lazy = xr.DataArray(BYTES, dims=DIMS).chunk(batch=2)
    batches = [BYTES[:4], BYTES[4:]]
    labelled = [{"x": xr.DataArray(b, dims=DIMS), "y": 0} for b in batches]
    for given_, options in [
        (lazy, {}), (batches, {"dims": DIMS}), (labelled, {"source": "x"}),
    ]:  # fmt: skip
        found = mean_image(given_, **options)
        assert found.dims == DIMS[1:]
        assert found.dtype == np.float32
        assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(AugmentError, match="source="):
        mean_image(labelled)
    with pytest.raises(AugmentError, match="no picture"):
        mean_image([])
    with pytest.raises(AugmentError, match="sizes"):
        mean_image([BYTES, BYTES[..., 1:]], dims=DIMS)


def test_rows_that_pad_a_batch_do_not_count():
    class Padded(dict):
        count = 2

    batch = Padded(x=xr.DataArray(BYTES, dims=DIMS))
    assert_allclose(mean_image([batch]), plain[:2].mean(axis=0), rtol=1e-6)


def test_mean_images_are_subtracted(tmp_path):
    mean = mean_image(xr.DataArray(BYTES, dims=DIMS))
    write_mean_file(tmp_path / "mean.bin", mean)
    expected = plain - mean.values
    for given_ in (mean, mean.values, str(tmp_path / "mean.bin"), mean.transpose(..., "channel")):
        found = Normalize(given_)(BYTES, dims=DIMS)
        assert_allclose(found, expected, atol=1e-4)
    steps = Augment([Mirror(1), Normalize(mean, scale=2), Mirror(1), Contrast(0.3, about=0)])
    turned = plain[..., ::-1] - mean.values
    factors = Chances(np.arange(N), 0, 0, (3,)).uniform("factor", 0.7, 1.3)
    wanted = turned[..., ::-1] * 2 * factors.reshape(-1, 1, 1, 1)
    assert_allclose(steps(BYTES, dims=DIMS), wanted, atol=1e-3)
    with pytest.raises(AugmentError, match="mean image is 20 x 26"):
        Augment([Crop(5), Normalize(mean)])(BYTES, dims=DIMS)
    with pytest.raises(FileFormatError, match="cannot be read"):
        Normalize(tmp_path / "none.bin")


# -- kinds of pictures


def test_labels_come_back():
    images = xr.DataArray(
        BYTES, dims=DIMS, name="faces", attrs={"unit": "none"},
        coords={"batch": ROWS, "channel": list("rgb"), "width": np.arange(W), "who": 3},
    )  # fmt: skip
    found = Crop(5)(images)
    assert found.name == "faces"
    assert found.attrs == {"unit": "none"}
    assert set(found.coords) == {"batch", "channel", "who"}
    assert_array_equal(found, BYTES[:, :, 7:12, 10:15])
    assert "width" not in Mirror(1)(images).coords  # of the same length, and no longer true
    turned = Augment([Crop(5)], axes=(0, "c", 1, "b"))(images)
    assert turned.dims == ("height", "channel", "width", "batch")
    assert_array_equal(turned.transpose(*DIMS), found)


def test_grey_pictures_need_no_channel():
    grey = BYTES[:, 0]
    found = Augment([Crop(5), Normalize(1)])(grey, dims=("batch", "height", "width"))
    assert_array_equal(found, grey[:, 7:12, 10:15] - np.float32(1))
    added = Augment([Crop(5)], axes=("b", "c", 0, 1))(grey, dims=("batch", "height", "width"))
    assert added.shape == (N, 1, 5, 5)
    one = Crop(5)(grey[0], dims=("height", "width"))
    assert_array_equal(one, grey[0, 7:12, 10:15])


def test_objects_and_lists():
    images = [np.resize(BYTES, (H + k, W, 3)) for k in range(3)]
    objects = np.empty(3, object)
    objects[:] = images
    labelled = xr.DataArray(objects, dims="batch", name="x")
    steps = Augment([Crop(5)], axes=("b", "c", 0, 1), dims=LAST[1:])
    found = steps(labelled)
    assert found.dims == DIMS
    assert_array_equal(found, steps(images))
    padded = Pad(1)(labelled, dims=LAST[1:])
    assert padded.dtype == object
    assert [one.shape for one in padded.values] == [(H + 2 + k, W + 2, 3) for k in range(3)]
    singles = [xr.DataArray(one, dims=LAST[1:]) for one in images]
    assert steps(singles).dims == DIMS
    assert [one.dims for one in Pad(1)(singles)] == [LAST[1:]] * 3


MORE = [
    Affine(scale=(0.8, 1.2), canvas="scaled"),
    Affine(scale=0.5, canvas="scaled"),
    Affine(rotate=(0, 9), canvas=(7, 8)),
    OneOf([Resize((6, 7)), Crop((6, 7))]),
    OneOf([Resize((6, 7)), Crop((7, 6))]),
    Augment([Resize(shorter=14), Pad(2)]),
    Augment([Crop(8), Affine(scale=(0.5, 1.5), canvas="scaled")]),
]


@pytest.mark.parametrize("transform", [*ALL, *MORE], ids=lambda t: type(t).__name__)
def test_a_ragged_batch_stays_one_unless_all_pictures_come_out_alike(transform):
    images = [np.resize(BYTES, (H + k, W + 2 * k, 3)) for k in range(4)]

    def batch_of(some):
        objects = np.empty(len(some), object)
        for place, image in enumerate(some):
            objects[place] = image
        return xr.DataArray(objects, dims="batch")

    alone = [transform(batch_of([one]), dims=LAST[1:]) for one in images]
    together = transform(batch_of(images), rows=[0] * 4, dims=LAST[1:])
    alike = transform.common_size(None)
    assert {one.dtype == object for one in [*alone, together]} == {alike is None}
    for image, one, found in zip(images, alone, together, strict=True):
        one, found = (x.values if alike else x.item() for x in (one[0], found))
        assert_array_equal(one, found)
        wanted = transform.common_size(image.shape[:2])
        assert wanted in (None, one.shape[:2])
        if isinstance(transform, Pad | Mirror | Resize):
            assert wanted is not None


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (Pad(10**6), r"2,000,020 x 2,000,026 pixels, more than the 268,435,456"),
        (Pad((0, 10**9)), r"20 x 2,000,000,026 pixels"),
        (Resize(10**6), r"1,000,000 x 1,000,000 pixels"),
        (Resize(shorter=10**6), r"1,000,000 x 1,300,000 pixels"),
        (Resize(least=10**6), r"1,000,000 x 1,300,000 pixels"),
        (Resize(least=8_000), r"8,000 x 10,400 pixels, more than the 67,108,864 that are made"),
        (Affine(canvas=10**6), r"1,000,000 x 1,000,000 pixels"),
        (Affine(scale=10**5, canvas="scaled"), r"100,000 x 100,000 pixels"),
        (RandomSizedCrop(10**6, edge=(5, 5)), r"1,000,000 x 1,000,000 pixels"),
        (RandomResizedCrop(10**6), r"1,000,000 x 1,000,000 pixels"),
    ],
)
def test_pictures_without_end_are_refused_before_they_are_made(transform, words):
    for images in (BYTES, list(BYTES)):
        with pytest.raises(AugmentError, match=words):
            transform(images, dims=DIMS if images is BYTES else DIMS[1:])


@pytest.mark.parametrize("method", ["area", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(50, 70), (5, 70), (50, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_bands_of_a_large_picture_are_made_alike(method, size, dtype, monkeypatch):
    transform, images = Resize(size, method=method), BYTES.astype(dtype)
    whole = transform(images, dims=DIMS)
    monkeypatch.setattr(resizing_module, "BAND_ITEMS", 3 * N * size[0] * 11)
    np.testing.assert_array_equal(transform(images, dims=DIMS), whole)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_enlarged_picture_takes_little_more_than_itself(dtype, monkeypatch):
    monkeypatch.setattr(resizing_module, "BAND_ITEMS", 1 << 20)
    narrow, size = np.zeros((3, 1, 1000), dtype), (100, 100_000)
    resizing_module.resized(narrow, size, "bilinear", True)  # loads what is to be loaded
    tracemalloc.start()
    made = resizing_module.resized(narrow, size, "bilinear", True)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.shape == (3, *size)
    assert most < 1.6 * made.nbytes


def test_a_batch_that_grows_too_large_is_stopped_on_its_way(monkeypatch):
    monkeypatch.setattr(pictures_module, "MOST_VALUES", 3 * 40 * 40 * N)
    monkeypatch.setattr(pictures_module, "GROUP_ITEMS", 1)
    assert Resize(40)(BYTES, dims=DIMS).shape == (N, 3, 40, 40)
    made = []

    def counted(x, group):
        made.append(group)
        return np.zeros((1, 3, 40, 41), np.uint8)

    words = r"6 pictures would become 40 x 41 pixels, about 29,520 values, more than the 28,800"
    with pytest.raises(AugmentError, match=words):
        pictures_module.all_at_once(pictures_module.pictures_of(BYTES), counted)
    assert len(made) == 1
    with pytest.raises(AugmentError, match=words):
        Affine(canvas=(40, 41))(BYTES, dims=DIMS)


# -- what cannot be


@pytest.mark.parametrize(
    ("images", "options", "error", "words"),
    [
        (BYTES, {}, DimsError, "pass dims="),
        (BYTES, {"dims": DIMS[1:]}, DimsError, "do not fit"),
        (BYTES, {"dims": ("batch", "channel", "height", "time")}, DimsError, "not those of"),
        (BYTES, {"dims": DIMS, "rows": [1, 2]}, AugmentError, "rows are 6"),
        (BYTES, {"dims": DIMS, "rows": [0.5] * 6}, AugmentError, "whole numbers"),
        (BYTES.astype(str), {"dims": DIMS}, AugmentError, "dtype"),
        (xr.DataArray(BYTES, dims=DIMS).chunk(), {}, AugmentError, "lazy"),
        ([], {"dims": DIMS}, AugmentError, "empty list"),
        ([BYTES[0], BYTES[0, :2]], {"dims": DIMS[1:]}, AugmentError, "2 of uint8 and 3 of uint8"),
        ([BYTES], {"dims": DIMS}, DimsError, "without a batch dim"),
        ("picture", {"dims": DIMS}, AugmentError, "str"),
    ],
)
def test_pictures_that_are_none(images, options, error, words):
    with pytest.raises(error, match=words):
        Mirror()(images, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Crop(0), "size=0"),
        (lambda: Crop((1, 2, 3)), "height, width"),
        (lambda: Crop(2, y=-1), "y=-1"),
        (lambda: Mirror(1.5), "chance=1.5"),
        (lambda: Resize(), "found none"),
        (lambda: Resize(3, shorter=3), "size"),
        (lambda: Resize(3, method="cubic"), "did you mean 'bicubic'"),
        (lambda: RandomSizedCrop(3, edge=(5, 4)), "least comes first"),
        (lambda: RandomResizedCrop(3, area=(0.1, 1.1)), "area"),
        (lambda: RandomResizedCrop(3, aspect=(0.0, 1.1)), "above 0"),
        (lambda: Affine(rotate=(3, 2)), "least comes first"),
        (lambda: Affine(scale=0), "above 0"),
        (lambda: Affine(canvas="big"), "canvas"),
        (lambda: Affine(rotate=float("nan")), "finite"),
        (lambda: Jitter(brightness=-1), "0 or more"),
        (lambda: Normalize(std=[1, 0, 1]), "holds a 0"),
        (lambda: Normalize(mean=[[1, 2]]), "one a channel"),
        (lambda: ShiftHSL(peak=0), "peak"),
        (lambda: PrincipalNoise(0.1, values=(1, 2)), "three values"),
        (lambda: Augment([abs]), "no transform"),
        (lambda: Normalize([1, 2])(BYTES, dims=DIMS), "has 2 channels"),
        (lambda: ShiftHSL(3)(BYTES[:, :2], dims=DIMS), "3 channels"),
        (lambda: Jitter(saturation=0.3)(BYTES[:, :1], dims=DIMS), "3 channels"),
    ],
)
def test_parameters_that_do_not_fit(make, words):
    with pytest.raises(AugmentError, match=words):
        make()


def test_axes_that_do_not_fit():
    with pytest.raises(DimsError, match="no order"):
        Augment([Mirror()], axes=("b", "c", 0))(BYTES, dims=DIMS)


# -- compiled loops


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_compiled_loops_compute_the_same(monkeypatch, dtype):
    pytest.importorskip("numba", reason="numba is not installed")
    importlib.import_module(LOOPS)  # else only large pictures are worth it
    image = np.random.default_rng(1).integers(0, 256, (3, 170, 131)).astype(dtype)
    changes = [
        *(Resize(size, method=m) for size in [(80, 200), (201, 70)] for m in METHODS),
        Resize((60, 60), antialias=False),
        Affine(rotate=31, shear=0.1, scale=0.9, aspect=1.2, fill=7),
    ]
    for change in changes:
        found = change(image, dims=DIMS[1:])
        with monkeypatch.context() as without:
            without.setenv("LABELED_FAST", "0")
            assert_array_equal(found, change(image, dims=DIMS[1:]))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "i4", "f4", "f8"])
def test_compiled_windows_are_the_same(monkeypatch, dtype):
    pytest.importorskip("numba", reason="numba is not installed")
    importlib.import_module(LOOPS)  # else only large pictures are worth it
    most = min(30_000, np.iinfo(dtype).max) if dtype[0] in "ui" else 30_000
    images = np.random.default_rng(1).integers(0, most, (70, 18, 3, 20)).astype(dtype)
    dims = ("batch", "height", "channel", "width")
    cut = [RandomCrop((17, 18)), Mirror()]
    for steps in (cut, [*cut, Normalize([1, 2, 3], 7)], [Normalize(9), Illumination(9), *cut]):
        for axes in (None, ("b", "c", 0, 1), ("c", 1, 0, "b"), (0, "b", 1, "c")):
            change = Augment(steps, axes=axes)
            found = change(images, dims=dims)
            assert found.flags.c_contiguous
            with monkeypatch.context() as without:
                without.setenv("LABELED_FAST", "0")
                assert_array_equal(found, change(images, dims=dims))
