"""What the old iterators did to pictures, against formulas written another way.

That the genuine programs agree is shown by ``compare_records.py``; here every parameter has to
count, every step is held against plain NumPy, SciPy or the standard library, and the numbers
drawn are counted.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from old_pictures import PICTURE, RAW, SHAPE, augmenter_of, cv2, output_of, smooth, words_taken

from labeled.compat.mxnet.augmenter import mean_of_outputs
from labeled.compat.mxnet.opencv import hls_of, resize_cubic
from labeled.compat.mxnet.parameters import RULES
from labeled.compat.mxnet.twister import Twister
from labeled.errors import AugmentError

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
        found = augmenter_of((3, 40, 52), brightness=0.3, contrast=0.2)(PICTURE, Twister(seed))
        assert_allclose(found, expected, atol=1)
        assert (found == expected).mean() > 0.97


def test_saturation():
    draws = Twister(3)
    draws.word(), draws.word()  # brightness and contrast
    factor = float(1 + draws.uniform(-0.4, 0.4))
    grey = np.rint(RAW @ (0.114, 0.587, 0.299))[..., np.newaxis]
    expected = np.clip(np.rint(RAW * factor + grey * (1 - factor)), 0, 255)
    found = augmenter_of((3, 40, 52), saturation=0.4)(PICTURE, Twister(3))
    assert_allclose(found, expected, atol=1)
    assert (found == expected).mean() > 0.97


@pytest.mark.parametrize("rules", RULES)
def test_hue_saturation_and_lightness(rules):
    draws = Twister(5)
    shifts = []
    for most in (30, 40, 50):
        unit = draws.unit()
        if rules.startswith("1.9.1"):
            unit = (unit + 4 * draws.unit()) / 5
        shifts.append(math.trunc(float(unit * most * 2 - most)))
    hue, saturation, lightness = shifts
    asked = {"random_h": 30, "random_s": 40, "random_l": 50}
    found = augmenter_of((3, 40, 52), rules=rules, **asked)(PICTURE, Twister(5))
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
        found = augmenter_of((3, 40, 52), pca_noise=0.5)(PICTURE, Twister(seed))
        assert_array_equal(found, expected)


def test_grey_pictures_have_no_colours():
    grey = smooth(40, 52, 1)
    for asked in ({"random_h": 3}, {"pca_noise": 0.1}, {"saturation": 0.2}, {"brightness": 0.2}):
        with pytest.raises(AugmentError, match="3 channels"):
            augmenter_of((1, 24, 32), **asked)(grey, Twister(0))


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
    assert words_taken(lambda draws: augmenter_of(SHAPE, **asked)(PICTURE, draws)) == count


def test_old_versions_draw_less():
    for asked, count in [({"random_l": 9}, 3), ({"rotate": 30, "inter_method": 10}, 5)]:
        augment = augmenter_of(SHAPE, rules="0.9.5", **asked)
        assert words_taken(lambda draws, augment=augment: augment(PICTURE, draws)) == count


# -- the output


def test_planes_are_in_order_and_mirrored():
    expected = PICTURE.transpose(2, 0, 1).astype(np.float32)
    assert_array_equal(output_of()(PICTURE, Twister(0)), expected)
    assert_array_equal(output_of(mirror=True)(PICTURE, Twister(0)), expected[..., ::-1])
    for seed in range(4):
        wanted = expected[..., ::-1] if Twister(seed).coin() else expected
        assert_array_equal(output_of(rand_mirror=True)(PICTURE, Twister(seed)), wanted)


@pytest.mark.parametrize("rules", RULES)
def test_normalisation(rules):
    asked = {"mean_r": 10, "mean_g": 20, "mean_b": 30, "scale": 0.5, "rand_mirror": True}
    newer = rules.startswith("1.9.1")
    if newer:
        asked |= {"std_r": 2, "std_g": 4, "std_b": 8}
    draws = Twister(9)
    first = draws.coin() if rules == "1.9.1" else None
    contrast = draws.unit() * 0.6 - 0.3 + 1
    illumination = draws.unit() * 16 - 8
    mirrored = draws.coin() if first is None else first
    std = [2, 4, 8] if newer else [1, 1, 1]
    expected = ((RAW - [10, 20, 30]) * contrast + illumination) * 0.5 / std
    expected = expected[:, ::-1] if mirrored else expected
    output = output_of(rules=rules, max_random_contrast=0.3, max_random_illumination=8, **asked)
    found = output(PICTURE, Twister(9))
    assert found.dtype == np.float32
    assert_allclose(found, expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-4)


def test_contrast_without_a_mean():
    light = {"max_random_contrast": 0.3, "max_random_illumination": 8}
    plain = output_of(scale=0.5)(PICTURE, Twister(9))
    for mean in ({}, {"mean_r": -3.0}):  # a negative mean is none
        old = output_of(rules="0.9.5", scale=0.5, **light, **mean)
        assert_array_equal(old(PICTURE, Twister(9)), plain)
    assert not np.array_equal(output_of(scale=0.5, **light)(PICTURE, Twister(9)), plain)
    assert words_taken(lambda draws: output_of(rules="0.9.5", **light)(PICTURE, draws)) == 2


def test_which_mean_wins():
    image = np.full((3, 40, 52), 5, np.float32)
    new = output_of(mean_img=image, mean_r=90)(PICTURE, Twister(0))
    assert_array_equal(new, PICTURE.transpose(2, 0, 1) - np.float32(5))
    old = output_of(mean_img=image, mean_r=90, rules="0.9.5")(PICTURE, Twister(0))
    assert_array_equal(old[0], PICTURE[..., 0] - np.float32(90))
    assert_array_equal(old[1], PICTURE[..., 1])


def test_the_mean_image_stays_when_pictures_are_mirrored():
    image = np.random.default_rng(1).uniform(0, 255, (3, 40, 52)).astype(np.float32)
    found = output_of(mean_img=image, mirror=True)(PICTURE, Twister(0))
    assert_array_equal(found, (PICTURE.transpose(2, 0, 1) - image)[..., ::-1])


def test_small_integers():
    asked = {"mean_r": 100.5, "mean_g": -2.5, "scale": 3, "std_r": 2}
    raw = output_of(dtype="uint8", mirror=True, **asked)(PICTURE, Twister(0))
    assert raw.dtype == np.uint8
    assert_array_equal(raw, PICTURE.transpose(2, 0, 1)[..., ::-1])
    signed = output_of(dtype="int8", **asked)(PICTURE, Twister(0))
    expected = np.clip(RAW - [101, -3, 0], -128, 127).astype(np.int8)
    assert_array_equal(signed, expected.transpose(2, 0, 1))
    assert words_taken(lambda draws: output_of(dtype="uint8")(PICTURE, draws)) == 0
    assert words_taken(lambda draws: output_of(dtype="int8")(PICTURE, draws)) == 2


def test_mean_images_are_means_of_outputs():
    pictures = [smooth(8, 9, seed=seed) for seed in range(5)]
    output = output_of(scale=0.5)
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
        ({"inter_method": 5}, "inter_method=5"),
        ({"inter_method": 0, "rotate": 5}, "inter_method=0"),
        ({"max_crop_size": 5}, "go together"),
        ({"max_crop_size": 5, "min_crop_size": 6}, "go together"),
        ({"random_resized_crop": True, "rand_crop": True}, "random_resized_crop"),
        ({"random_resized_crop": True, "max_random_scale": 2.0}, "random_resized_crop"),
    ],
)
def test_parameters_that_do_not_fit(asked, words):
    with pytest.raises(AugmentError, match=words):
        augmenter_of(SHAPE, **asked)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"dtype": "float64"}, "dtype"),
    ],
)
def test_outputs_that_do_not_fit(asked, words):
    with pytest.raises(AugmentError, match=words):
        output_of(**asked)
    with pytest.raises(AugmentError, match="mean image"):
        output_of(mean_img=np.zeros((3, 4, 4), np.float32))(PICTURE, Twister(0))
