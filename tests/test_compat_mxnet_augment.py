"""What the old iterators did to pictures, against formulas written another way.

That the genuine programs agree is shown by ``compare_records.py``; here every parameter has to
count, every step is held against plain NumPy, SciPy or the standard library, and the numbers
drawn are counted.
"""

from __future__ import annotations

import colorsys
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from labeled.compat.mxnet.augmenter import VERSIONS, Augmenter, later_than
from labeled.compat.mxnet.cubic import resize_cubic
from labeled.compat.mxnet.hls import hls_of, rgb_of
from labeled.compat.mxnet.output import Output, mean_of_outputs
from labeled.compat.mxnet.twister import Twister
from labeled.errors import AugmentError

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


def words_taken(make):
    """Count the raw words that a call takes from its twister."""

    class Counted(Twister):
        taken = 0

        def word(self):
            type(self).taken += 1
            return super().word()

    make(Counted(111))
    return Counted.taken


# -- every parameter counts

WITH = {
    "rand_crop": {"rand_crop": True},
    "max_rotate_angle": {"max_rotate_angle": 30},
    "rotate": {"rotate": 30},
    "rotate_list": {"rotate_list": (20, 70)},
    "max_shear_ratio": {"max_shear_ratio": 0.4},
    "max_random_scale": {"max_random_scale": 1.4},
    "min_random_scale": {"min_random_scale": 0.8},
    "max_aspect_ratio": {"max_aspect_ratio": 0.4},
    "min_aspect_ratio": {"min_aspect_ratio": 1.2, "max_aspect_ratio": 1.4},
    "max_img_size": {"max_img_size": 20.0},
    "min_img_size": {"min_img_size": 60.0, "data_shape": (3, 50, 60)},
    "max_crop_size": {"max_crop_size": 20, "min_crop_size": 10},
    "min_crop_size": {"max_crop_size": 20, "min_crop_size": 19},
    "random_h": {"random_h": 40},
    "random_s": {"random_s": 60},
    "random_l": {"random_l": 60},
    "fill_value": {"pad": 20, "data_shape": (3, 60, 60), "fill_value": 7},
    "inter_method": {"resize": 30, "inter_method": 0},
    "resize": {"resize": 30},
    "pad": {"pad": 20, "data_shape": (3, 60, 60)},
    "random_resized_crop": {"random_resized_crop": True, "min_random_area": 0.3},
    "min_random_area": {"random_resized_crop": True, "min_random_area": 0.2},
    "max_random_area": {
        "random_resized_crop": True, "min_random_area": 0.2, "max_random_area": 0.4,
    },
    "brightness": {"brightness": 0.4},
    "contrast": {"contrast": 0.4},
    "saturation": {"saturation": 0.4},
    "pca_noise": {"pca_noise": 0.3},
}  # fmt: skip


def test_no_parameter_is_forgotten():
    known = {field.name for field in dataclasses.fields(Augmenter)}
    assert known == WITH.keys() | {"data_shape", "version"}


@pytest.mark.parametrize("name", WITH)
def test_every_parameter_counts(name):
    asked = {"data_shape": SHAPE, **WITH[name]}
    without = {key: value for key, value in asked.items() if key != name}
    if name == "min_crop_size":
        without = {**asked, "min_crop_size": 10}
    elif name == "max_crop_size":
        without = {"data_shape": SHAPE}
    elif name == "random_resized_crop":
        without = {"data_shape": SHAPE, "rand_crop": True}
    assert any(
        not np.array_equal(
            Augmenter(**asked)(PICTURE, Twister(seed)), Augmenter(**without)(PICTURE, Twister(seed))
        )
        for seed in (111, 112)
    )


OUT = {
    "dtype": {"dtype": "uint8"},
    "mirror": {"mirror": True},
    "rand_mirror": {"rand_mirror": True},
    **{f"mean_{c}": {f"mean_{c}": 9.0} for c in "rgba"},
    **{f"std_{c}": {f"std_{c}": 2.0} for c in "rgba"},
    "scale": {"scale": 0.5},
    "mean_img": {"mean_img": np.full((4, 40, 52), 7, np.float32)},
    "max_random_contrast": {"max_random_contrast": 0.3},
    "max_random_illumination": {"max_random_illumination": 10.0},
}


def test_no_parameter_of_the_output_is_forgotten():
    known = {field.name for field in dataclasses.fields(Output)}
    assert known == OUT.keys() | {"version", "v1"}


@pytest.mark.parametrize("name", OUT)
def test_every_parameter_of_the_output_counts(name):
    picture = smooth(40, 52, 4)
    plain = Output()(picture, Twister(111))
    found = Output(**OUT[name])(picture, Twister(111))
    assert found.dtype != plain.dtype or not np.array_equal(found, plain)


# -- places


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_crops_are_slices(seed, random):
    draws = Twister(seed)
    top, left = (draws.whole(0, 16), draws.whole(0, 20)) if random else (8, 10)
    found = Augmenter(SHAPE, rand_crop=random)(PICTURE, Twister(seed))
    assert_array_equal(found, PICTURE[top : top + 24, left : left + 32])


def test_offsets_of_centred_crops_are_rounded_down():
    assert_array_equal(Augmenter((3, 23, 31))(PICTURE, Twister(0)), PICTURE[8:31, 10:41])


@pytest.mark.parametrize("random", [False, True])
def test_square_crops_have_a_random_edge(random):
    augment = Augmenter(SHAPE, max_crop_size=36, min_crop_size=20, rand_crop=random)
    for seed in range(5):
        draws = Twister(seed)
        edge = draws.whole(20, 36)
        slack = 40 - edge, 52 - edge
        top, left = (draws.whole(0, n) for n in slack) if random else (n // 2 for n in slack)
        cut = RAW[top : top + edge, left : left + edge]
        assert_allclose(augment(PICTURE, Twister(seed)), bilinear(cut, 24, 32), atol=1.01)


def test_resized_crops_keep_to_their_area():
    augment = Augmenter(
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
    augment = Augmenter(
        SHAPE, random_resized_crop=True, min_random_area=areas[0], max_random_area=areas[1],
        min_aspect_ratio=aspects[0], max_aspect_ratio=aspects[1],
    )  # fmt: skip
    top, left, down, across = drawn_window(Twister(seed), 40, 52, areas, aspects)
    cut = RAW[top : top + down, left : left + across]
    assert_allclose(augment(PICTURE, Twister(seed)), bilinear(cut, 24, 32), atol=1.01)


def test_windows_that_never_fit_leave_the_crop_in_the_middle():
    augment = Augmenter(
        SHAPE, random_resized_crop=True, min_random_area=0.9, max_random_area=1.0,
        min_aspect_ratio=3.0, max_aspect_ratio=4.0,
    )  # fmt: skip
    assert_array_equal(augment(PICTURE, Twister(0)), PICTURE[8:32, 10:42])
    assert words_taken(lambda draws: augment(PICTURE, draws)) == 30


def test_small_pictures_are_enlarged_in_the_newest_version_only():
    wanted = (3, 80, 60)
    found = Augmenter(wanted)(PICTURE, Twister(0))
    assert_allclose(found, bilinear(RAW, 80, 104)[:, 22:82], atol=1.01)
    for version in ("seed", "0.9.5"):
        with pytest.raises(AugmentError, match="smaller than data_shape"):
            Augmenter(wanted, version=version)(PICTURE, Twister(0))
    with pytest.raises(AugmentError, match="max_crop_size"):
        Augmenter(SHAPE, max_crop_size=45, min_crop_size=2)(PICTURE, Twister(0))


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
        Augmenter(SHAPE, **parameters)(PICTURE, Twister(0))
    with pytest.raises(AugmentError, match=r"1,000,000 x .* pixels, more than the 268,435,456"):
        Augmenter((3, 10**6, 10**6))(PICTURE, Twister(0))


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
    found = Augmenter((3, *size), resize=30)(picture, Twister(0))
    assert_allclose(found, bilinear(picture.astype(float), *size), atol=1.01)


@pytest.mark.parametrize(
    ("size", "code"), [((30, 36), 3), ((60, 80), 2), ((60, 40), 1), ((60, 30), 1)]
)
def test_interpolation_by_the_sizes(size, code):
    auto = Augmenter((3, *size), max_crop_size=40, min_crop_size=40, inter_method=9)
    given = Augmenter((3, *size), max_crop_size=40, min_crop_size=40, inter_method=code)
    found = auto(PICTURE, Twister(0))
    assert_array_equal(found, given(PICTURE, Twister(0)))
    others = [dataclasses.replace(given, inter_method=n) for n in range(5) if n != code]
    assert all(not np.array_equal(found, other(PICTURE, Twister(0))) for other in others)


def test_interpolation_of_the_affine_step_goes_by_whole_pixels():
    square = smooth(40, 40)
    for scale, code in [(1.02, 1), (1.03, 2), (0.98, 3)]:  # 40.8 is 40, 41.2 is 41, 39.2 is 39
        asked = {"max_random_scale": scale, "min_random_scale": scale}
        auto, given = (
            Augmenter(SHAPE, inter_method=n, **asked)(square, Twister(0)) for n in (9, code)
        )
        assert_array_equal(auto, given)


def test_interpolation_drawn():
    augment = Augmenter((3, 20, 20), resize=30, inter_method=10)
    for seed in range(6):
        code = Twister(seed).whole(0, 4)
        fixed = Augmenter((3, 20, 20), resize=30, inter_method=code)
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
    found = Augmenter(shape, **asked)(PICTURE, Twister(seed)).astype(float)
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
            Augmenter(SHAPE, **asked)(PICTURE, Twister(0)), Augmenter(SHAPE)(PICTURE, Twister(0))
        )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_padding(channels):
    picture = smooth(20, 26, channels)
    found = Augmenter((channels, 30, 36), pad=5, fill_value=9)(picture, Twister(0))
    padded = np.pad(picture, ((5, 5), (5, 5), (0, 0)), constant_values=9)
    if channels == 4:  # the border has three values
        padded[..., 3] = np.pad(picture[..., 3], 5)
    assert_array_equal(found, padded)


# -- colours


def test_brightness_and_contrast():
    for seed in range(4):
        draws = Twister(seed)
        bright, contrast = (float(1 + draws.uniform(-v, v)) for v in (0.3, 0.2))
        draws.unit()
        order = draws.shuffled(3).tolist()
        expected = RAW
        for step in order:
            if step == 0:
                expected = np.clip(np.rint(expected * bright), 0, 255)
            elif step == 1:
                grey = expected @ (0.114, 0.587, 0.299)  # red and blue exchanged
                moved = expected * contrast + (1 - contrast) * np.rint(grey).mean()
                expected = np.clip(np.rint(moved), 0, 255)
        found = Augmenter((3, 40, 52), brightness=0.3, contrast=0.2)(PICTURE, Twister(seed))
        assert_allclose(found, expected, atol=1)
        assert (found == expected).mean() > 0.97


def test_saturation():
    draws = Twister(3)
    draws.word(), draws.word()  # brightness and contrast
    factor = float(1 + draws.uniform(-0.4, 0.4))
    grey = np.rint(RAW @ (0.114, 0.587, 0.299))[..., np.newaxis]
    expected = np.clip(np.rint(RAW * factor + grey * (1 - factor)), 0, 255)
    found = Augmenter((3, 40, 52), saturation=0.4)(PICTURE, Twister(3))
    assert_allclose(found, expected, atol=1)
    assert (found == expected).mean() > 0.97


@pytest.mark.parametrize("version", VERSIONS)
def test_hue_saturation_and_lightness(version):
    draws = Twister(5)
    shifts = []
    for most in (30, 40, 50):
        unit = draws.unit()
        if version == "1.9.1":
            unit = (unit + 4 * draws.unit()) / 5
        shifts.append(math.trunc(float(unit * most * 2 - most)))
    hue, saturation, lightness = shifts
    asked = {"random_h": 30, "random_s": 40, "random_l": 50}
    found = Augmenter((3, 40, 52), version=version, **asked)(PICTURE, Twister(5))
    for y, x in [(0, 0), (5, 9), (30, 30), (39, 51), (12, 40)]:
        h, l, s = colorsys.rgb_to_hls(*PICTURE[y, x] / 255)  # noqa: E741 (their usual name)
        h = min(max(h * 180 + hue, 0), 180) / 180
        l = min(max(l * 255 + lightness, 0), 255) / 255  # noqa: E741
        s = min(max(s * 255 + saturation, 0), 255) / 255
        expected = np.array(colorsys.hls_to_rgb(h, l, s)) * 255
        assert_allclose(found[y, x], expected, atol=4.5)


def test_hls_is_within_one_level_of_the_librarys():
    colours = np.random.default_rng(3).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    theirs = cv2.cvtColor(colours, cv2.COLOR_RGB2HLS).astype(int)
    assert np.abs(hls_of(colours) - theirs).max() <= 1
    assert (hls_of(colours) == theirs).mean() > 0.999
    colours[..., 0] %= 181
    assert_array_equal(rgb_of(colours), cv2.cvtColor(colours, cv2.COLOR_HLS2RGB))


def test_pixels_at_the_end_of_a_row_are_summed_in_another_order():
    colours = np.random.default_rng(3).integers(0, 256, (90_000, 1, 3), dtype=np.uint8)
    rows = colours.repeat(7, axis=1)
    found = hls_of(rows).astype(int)
    assert (found[:, :4] == found[:, :1]).all()
    assert (found[:, 4:] == found[:, 4:5]).all()
    away = np.abs(found[:, 4] - found[:, 0])
    assert 0 < np.count_nonzero(away) < 50
    assert away.max() == 1


def test_the_last_values_of_a_row_are_enlarged_in_whole_numbers():
    colours = np.random.default_rng(3).integers(0, 256, (5000, 7, 3), dtype=np.uint8)
    found = resize_cubic(colours, 5000, 14)  # 42 values a row, 2 of them beside groups of 8
    turned = resize_cubic(colours[..., ::-1], 5000, 14)[..., ::-1]  # others of the last pixel
    rows, columns, channels = np.nonzero(found != turned)
    assert len(rows)
    assert set(columns) == {13}
    assert set(channels) <= {0, 2}


def test_noise_along_the_principal_colours():
    values = (55.46, 4.794, 1.148)
    vectors = np.array(
        [(-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203)]
    )
    for seed in range(4):
        offset = vectors @ (values * np.array(Twister(seed).normals(3, 0.5), float))
        expected = np.clip(np.trunc(RAW + offset), 0, 255)
        found = Augmenter((3, 40, 52), pca_noise=0.5)(PICTURE, Twister(seed))
        assert_array_equal(found, expected)


def test_grey_pictures_have_no_colours():
    grey = smooth(40, 52, 1)
    for asked in ({"random_h": 3}, {"pca_noise": 0.1}, {"saturation": 0.2}, {"brightness": 0.2}):
        with pytest.raises(AugmentError, match="3 channels"):
            Augmenter((1, 24, 32), **asked)(grey, Twister(0))


# -- numbers drawn


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 0),
        ({"rand_crop": True}, 2),
        ({"rotate": 30}, 4),
        ({"rotate_list": (5, 6)}, 5),
        ({"rotate": 30, "inter_method": 10}, 6),
        ({"resize": 30, "inter_method": 10}, 2),
        ({"max_crop_size": 20, "min_crop_size": 20}, 1),
        ({"max_crop_size": 20, "min_crop_size": 20, "rand_crop": True}, 3),
        ({"random_resized_crop": True, "min_random_area": 0.2, "max_random_area": 0.3}, 5),
        ({"random_resized_crop": True, "min_random_area": 0.2, "rotate": 3}, 7),
        ({"brightness": 0.1}, 5),
        ({"random_l": 9}, 6),
    ],
)
def test_so_many_numbers_are_drawn(asked, count):
    assert words_taken(lambda draws: Augmenter(SHAPE, **asked)(PICTURE, draws)) == count


def test_old_versions_draw_less():
    for asked, count in [({"random_l": 9}, 3), ({"rotate": 30, "inter_method": 10}, 5)]:
        augment = Augmenter(SHAPE, version="0.9.5", **asked)
        assert words_taken(lambda draws, augment=augment: augment(PICTURE, draws)) == count


# -- the output


def test_planes_are_in_order_and_mirrored():
    expected = PICTURE.transpose(2, 0, 1).astype(np.float32)
    assert_array_equal(Output()(PICTURE, Twister(0)), expected)
    assert_array_equal(Output(mirror=True)(PICTURE, Twister(0)), expected[..., ::-1])
    for seed in range(4):
        wanted = expected[..., ::-1] if Twister(seed).coin() else expected
        assert_array_equal(Output(rand_mirror=True)(PICTURE, Twister(seed)), wanted)


@pytest.mark.parametrize(("version", "v1"), [("1.9.1", False), ("1.9.1", True), ("0.9.5", False)])
def test_normalisation(version, v1):
    asked = {"mean_r": 10, "mean_g": 20, "mean_b": 30, "scale": 0.5, "rand_mirror": True}
    if version == "1.9.1":
        asked |= {"std_r": 2, "std_g": 4, "std_b": 8}
    draws = Twister(9)
    first = draws.coin() if version == "1.9.1" and not v1 else None
    contrast = draws.unit() * 0.6 - 0.3 + 1
    illumination = draws.unit() * 16 - 8
    mirrored = draws.coin() if first is None else first
    std = [2, 4, 8] if version == "1.9.1" else [1, 1, 1]
    expected = ((RAW - [10, 20, 30]) * contrast + illumination) * 0.5 / std
    expected = expected[:, ::-1] if mirrored else expected
    output = Output(
        version=version, v1=v1, max_random_contrast=0.3, max_random_illumination=8, **asked
    )
    found = output(PICTURE, Twister(9))
    assert found.dtype == np.float32
    assert_allclose(found, expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-4)


def test_contrast_without_a_mean():
    light = {"max_random_contrast": 0.3, "max_random_illumination": 8}
    plain = Output(scale=0.5)(PICTURE, Twister(9))
    for mean in ({}, {"mean_r": -3.0}):  # a negative mean is none
        old = Output(version="0.9.5", scale=0.5, **light, **mean)
        assert_array_equal(old(PICTURE, Twister(9)), plain)
    assert not np.array_equal(Output(scale=0.5, **light)(PICTURE, Twister(9)), plain)
    assert words_taken(lambda draws: Output(version="0.9.5", **light)(PICTURE, draws)) == 2


def test_which_mean_wins():
    image = np.full((3, 40, 52), 5, np.float32)
    new = Output(mean_img=image, mean_r=90)(PICTURE, Twister(0))
    assert_array_equal(new, PICTURE.transpose(2, 0, 1) - np.float32(5))
    old = Output(mean_img=image, mean_r=90, version="0.9.5")(PICTURE, Twister(0))
    assert_array_equal(old[0], PICTURE[..., 0] - np.float32(90))
    assert_array_equal(old[1], PICTURE[..., 1])


def test_the_mean_image_stays_when_pictures_are_mirrored():
    image = np.random.default_rng(1).uniform(0, 255, (3, 40, 52)).astype(np.float32)
    found = Output(mean_img=image, mirror=True)(PICTURE, Twister(0))
    assert_array_equal(found, (PICTURE.transpose(2, 0, 1) - image)[..., ::-1])


def test_small_integers():
    asked = {"mean_r": 100.5, "mean_g": -2.5, "scale": 3, "std_r": 2}
    raw = Output(dtype="uint8", mirror=True, **asked)(PICTURE, Twister(0))
    assert raw.dtype == np.uint8
    assert_array_equal(raw, PICTURE.transpose(2, 0, 1)[..., ::-1])
    signed = Output(dtype="int8", **asked)(PICTURE, Twister(0))
    expected = np.clip(RAW - [101, -3, 0], -128, 127).astype(np.int8)
    assert_array_equal(signed, expected.transpose(2, 0, 1))
    assert words_taken(lambda draws: Output(dtype="uint8")(PICTURE, draws)) == 0
    assert words_taken(lambda draws: Output(dtype="int8")(PICTURE, draws)) == 2


def test_mean_images_are_means_of_outputs():
    pictures = [smooth(8, 9, seed=seed) for seed in range(5)]
    output = Output(scale=0.5)
    found = mean_of_outputs(output(picture, Twister(0)) for picture in pictures)
    expected = np.mean(pictures, axis=0).transpose(2, 0, 1) / 2
    assert found.dtype == np.float32
    assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(AugmentError, match="no picture"):
        mean_of_outputs([])


# -- what cannot be


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"version": "2.0"}, "none of"),
        ({"inter_method": 5}, "inter_method=5"),
        ({"inter_method": 0, "rotate": 5}, "inter_method=0"),
        ({"max_crop_size": 5}, "go together"),
        ({"max_crop_size": 5, "min_crop_size": 6}, "go together"),
        ({"random_resized_crop": True, "rand_crop": True}, "random_resized_crop"),
        ({"random_resized_crop": True, "max_random_scale": 2.0}, "random_resized_crop"),
        ({"version": "seed", "resize": 5}, "resize came after"),
        ({"version": "0.9.5", "contrast": 0.5}, "contrast came after"),
    ],
)
def test_parameters_that_do_not_fit(asked, words):
    with pytest.raises(AugmentError, match=words):
        Augmenter(SHAPE, **asked)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"version": "2.0"}, "none of"),
        ({"dtype": "float64"}, "dtype"),
        ({"dtype": "uint8", "v1": True}, "ImageRecordIter"),
        ({"version": "0.9.5", "std_r": 2.0}, "std_r"),
    ],
)
def test_outputs_that_do_not_fit(asked, words):
    with pytest.raises(AugmentError, match=words):
        Output(**asked)
    with pytest.raises(AugmentError, match="mean image"):
        Output(mean_img=np.zeros((3, 4, 4), np.float32))(PICTURE, Twister(0))


def test_versions_know_what_came_later():
    assert later_than("1.9.1") == frozenset()
    assert later_than("seed") > later_than("0.9.5") > later_than("1.9.1")
