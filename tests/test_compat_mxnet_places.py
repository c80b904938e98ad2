"""The old crops, sizes and affine step: compared with slices, SciPy and the drawn numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from old_pictures import PICTURE, RAW, SHAPE, augmenter_of, cv2, ndimage, smooth, words_taken

from labeled.compat.mxnet.opencv import resize_cubic
from labeled.compat.mxnet.twister import Twister
from labeled.errors import AugmentError

# -- places


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_crops_are_slices(seed, random):
    draws = Twister(seed)
    top, left = (draws.whole(0, 16), draws.whole(0, 20)) if random else (8, 10)
    found = augmenter_of(SHAPE, rand_crop=random)(PICTURE, Twister(seed))
    assert_array_equal(found, PICTURE[top : top + 24, left : left + 32])


def test_offsets_of_centred_crops_are_rounded_down():
    assert_array_equal(augmenter_of((3, 23, 31))(PICTURE, Twister(0)), PICTURE[8:31, 10:41])


@pytest.mark.parametrize("random", [False, True])
def test_square_crops_have_a_random_edge(random):
    augment = augmenter_of(SHAPE, max_crop_size=36, min_crop_size=20, rand_crop=random)
    for seed in range(5):
        draws = Twister(seed)
        edge = draws.whole(20, 36)
        slack = 40 - edge, 52 - edge
        top, left = (draws.whole(0, n) for n in slack) if random else (n // 2 for n in slack)
        cut = RAW[top : top + edge, left : left + edge]
        assert_allclose(augment(PICTURE, Twister(seed)), bilinear(cut, 24, 32), atol=1.01)


def test_resized_crops_keep_to_their_area():
    augment = augmenter_of(
        (3, 20, 20), random_resized_crop=True, min_random_area=0.2, max_random_area=0.5,
        min_aspect_ratio=0.8, max_aspect_ratio=1.25,
    )  # fmt: skip
    ramp = np.zeros((100, 100, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(100)[:, np.newaxis], np.arange(100)
    for seed in range(10):
        found = augment(ramp, Twister(seed)).astype(float)
        down, across = (np.ptp(found[..., channel]) * 20 / 19 for channel in (0, 1))
        assert 0.15 < down * across / 10_000 < 0.56
        assert 0.7 < across / down < 1.4


def drawn_window(draws, height, width, areas, aspects):
    """Return the first window that fits, drawn in the old order: top, left, height, width."""
    for _ in range(10):
        area = height * width * float(draws.uniform(*areas))
        ratio = float(draws.uniform(*aspects))
        down, across = (math.floor(math.sqrt(v) + 0.5) for v in (area / ratio, area * ratio))
        if draws.unit() > 0.5:
            down, across = across, down
        if down <= height and across <= width:
            return draws.whole(0, height - down), draws.whole(0, width - across), down, across
    return None


@pytest.mark.parametrize("seed", range(8))
def test_resized_crops_are_drawn_in_the_old_order(seed):
    areas, aspects = (0.3, 0.95), (0.7, 1.6)
    augment = augmenter_of(
        SHAPE, random_resized_crop=True, min_random_area=areas[0], max_random_area=areas[1],
        min_aspect_ratio=aspects[0], max_aspect_ratio=aspects[1],
    )  # fmt: skip
    top, left, down, across = drawn_window(Twister(seed), 40, 52, areas, aspects)
    cut = RAW[top : top + down, left : left + across]
    assert_allclose(augment(PICTURE, Twister(seed)), bilinear(cut, 24, 32), atol=1.01)


def test_windows_that_never_fit_leave_the_crop_in_the_middle():
    augment = augmenter_of(
        SHAPE, random_resized_crop=True, min_random_area=0.9, max_random_area=1.0,
        min_aspect_ratio=3.0, max_aspect_ratio=4.0,
    )  # fmt: skip
    assert_array_equal(augment(PICTURE, Twister(0)), PICTURE[8:32, 10:42])
    assert words_taken(lambda draws: augment(PICTURE, draws)) == 30


def test_small_pictures_are_enlarged_in_the_newest_version_only():
    wanted = (3, 80, 60)
    found = augmenter_of(wanted)(PICTURE, Twister(0))
    assert_allclose(found, bilinear(RAW, 80, 104)[:, 22:82], atol=1.01)
    for rules in ("seed", "0.9.5"):
        with pytest.raises(AugmentError, match="smaller than data_shape"):
            augmenter_of(wanted, rules=rules)(PICTURE, Twister(0))
    with pytest.raises(AugmentError, match="max_crop_size"):
        augmenter_of(SHAPE, max_crop_size=45, min_crop_size=2)(PICTURE, Twister(0))


@pytest.mark.parametrize(
    "parameters",
    [
        {"pad": 10**6},
        {"resize": 10**6},
        {"resize": 10**6, "inter_method": 2},
        {"min_random_scale": 1e6, "max_random_scale": 1e6},
        {"min_img_size": 99999},
    ],
)
def test_pictures_without_end_are_refused_before_they_are_made(parameters):
    with pytest.raises(AugmentError, match=r"pixels, more than the 268,435,456"):
        augmenter_of(SHAPE, **parameters)(PICTURE, Twister(0))
    with pytest.raises(AugmentError, match=r"1,000,000 x .* pixels, more than the 268,435,456"):
        augmenter_of((3, 10**6, 10**6))(PICTURE, Twister(0))


# -- sizes


def bilinear(picture, height, width):
    """Resize without smoothing: pixels are squares, borders repeat."""
    for axis, (before, after) in enumerate(zip(picture.shape, (height, width), strict=False)):
        at = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
        low = np.minimum(at.astype(int), before - 2)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(3)])
        picture = picture.take(low, axis) * (1 - part) + picture.take(low + 1, axis) * part
    return picture


@pytest.mark.parametrize(("picture", "size"), [(PICTURE, (30, 39)), (smooth(52, 40), (39, 30))])
def test_the_shorter_edge_is_resized(picture, size):
    found = augmenter_of((3, *size), resize=30)(picture, Twister(0))
    assert_allclose(found, bilinear(picture.astype(float), *size), atol=1.01)


@pytest.mark.parametrize(
    ("size", "code"), [((30, 36), 3), ((60, 80), 2), ((60, 40), 1), ((60, 30), 1)]
)
def test_interpolation_by_the_sizes(size, code):
    square = {"max_crop_size": 40, "min_crop_size": 40}
    found = [
        augmenter_of((3, *size), **square, inter_method=n)(PICTURE, Twister(0))
        for n in (*range(5), 9)
    ]
    assert [np.array_equal(one, found[-1]) for one in found[:5]] == [n == code for n in range(5)]


def test_interpolation_of_the_affine_step_goes_by_whole_pixels():
    square = smooth(40, 40)
    for scale, code in [(1.02, 1), (1.03, 2), (0.98, 3)]:  # 40.8 is 40, 41.2 is 41, 39.2 is 39
        asked = {"max_random_scale": scale, "min_random_scale": scale}
        auto, given = (
            augmenter_of(SHAPE, inter_method=n, **asked)(square, Twister(0)) for n in (9, code)
        )
        assert_array_equal(auto, given)


def test_interpolation_drawn():
    augment = augmenter_of((3, 20, 20), resize=30, inter_method=10)
    for seed in range(6):
        code = Twister(seed).whole(0, 4)
        fixed = augmenter_of((3, 20, 20), resize=30, inter_method=code)
        assert_array_equal(augment(PICTURE, Twister(seed)), fixed(PICTURE, Twister(seed)))


@given(st.integers(3, 30), st.integers(3, 30), st.integers(1, 60), st.integers(1, 60))
def test_cubic_is_within_one_level_of_the_librarys(height, width, new_height, new_width):
    picture = smooth(height, width)
    theirs = cv2.resize(picture, (new_width, new_height), interpolation=cv2.INTER_CUBIC)
    ours = resize_cubic(picture, new_height, new_width)
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


# -- the affine step


def warped(picture, angle=0.0, shear=0.0, scale=1.0, ratio=1.0, size=None, fill=255):
    """The map of the old programs, taken backwards by SciPy."""
    height, width = picture.shape[:2]
    new = np.array(size or (scale * height, scale * width))
    along_x = 2 * scale / (1 + ratio)
    along_y = ratio * along_x
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    forward = np.array(  # rows and columns, not x and y
        [
            [cos * along_y, -sin * along_y],
            [along_x * sin + shear * cos * along_y, along_x * cos - shear * sin * along_y],
        ]
    )
    shift = new / 2 - forward @ np.array([height / 2, width / 2])
    back = np.linalg.inv(forward)
    return np.stack(
        [
            ndimage.affine_transform(
                picture[..., channel].astype(float), back, -back @ shift,
                tuple(new.astype(int)), order=1, mode="grid-constant", cval=fill,
            )
            for channel in range(picture.shape[2])
        ],
        axis=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ({"rotate": 30}, {"angle": 30}),
        ({"rotate": 30, "fill_value": 9}, {"angle": 30, "fill": 9}),
        ({"rotate": 90, "max_rotate_angle": 10}, {"angle": 90}),
        ({"rotate": 7, "rotate_list": (50,)}, {"angle": 50}),
        ({"max_random_scale": 1.5, "min_random_scale": 1.5}, {"scale": 1.5}),
        ({"max_aspect_ratio": 1.5, "min_aspect_ratio": 1.5}, {"ratio": 1.5}),
        ({"max_random_scale": 2.0, "min_random_scale": 2.0, "max_img_size": 70.0},
         {"scale": 2.0, "size": (70, 70)}),
        ({"min_img_size": 46.0}, {"size": (46, 52)}),
    ],
)  # fmt: skip
def test_affine_steps_that_are_not_drawn(asked, meant):
    check_warp(asked, meant, 0)


def check_warp(asked, meant, seed):
    expected = warped(PICTURE, **meant)
    shape = (3, *(min(n, 30) for n in expected.shape[:2]))
    found = augmenter_of(shape, **asked)(PICTURE, Twister(seed)).astype(float)
    top, left = ((n - m) // 2 for n, m in zip(expected.shape, shape[1:], strict=False))
    wanted = expected[top : top + shape[1], left : left + shape[2]]
    away = np.abs(found - wanted)
    assert np.quantile(away, 0.97) <= 4.5  # places are rounded to 1/32 pixel
    assert away.mean() < 1.5


@pytest.mark.parametrize("seed", range(6))
def test_affine_steps_that_are_drawn(seed):
    draws = Twister(seed)
    shear = draws.unit() * 0.6 - 0.3
    angle = draws.whole(-40, 40)
    scale, ratio = draws.uniform(0.9, 1.3), draws.uniform(0.8, 1.2)
    asked = {
        "max_shear_ratio": 0.3, "max_rotate_angle": 40, "max_aspect_ratio": 0.2,
        "min_random_scale": 0.9, "max_random_scale": 1.3,
    }  # fmt: skip
    meant = {"shear": float(shear), "angle": angle, "scale": float(scale), "ratio": float(ratio)}
    check_warp(asked, meant, seed)


def test_turns_without_effect():
    for asked in ({"rotate": 0}, {"rotate": -30}, {"fill_value": 3}):
        assert_array_equal(
            augmenter_of(SHAPE, **asked)(PICTURE, Twister(0)),
            augmenter_of(SHAPE)(PICTURE, Twister(0)),
        )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_padding(channels):
    picture = smooth(20, 26, channels)
    found = augmenter_of((channels, 30, 36), pad=5, fill_value=9)(picture, Twister(0))
    padded = np.pad(picture, ((5, 5), (5, 5), (0, 0)), constant_values=9)
    if channels == 4:  # the border has three values
        padded[..., 3] = np.pad(picture[..., 3], 5)
    assert_array_equal(found, padded)
