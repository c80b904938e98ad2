"""Providers of pictures in record files: every parameter has its say, and epochs are whole."""

from __future__ import annotations

import logging
from inspect import signature

import numpy as np
import pytest
from fake_device import FakeDevice
from provided import IMAGES, LABELS, handed_out, make, same
from record_files import pictures, png, write_records

import labeled
from labeled.device import HostDevice
from labeled.errors import (
    AugmentError,
    FileFormatError,
    LabeledWarning,
    LoaderError,
    OptionError,
    ReadError,
    WriteError,
)
from labeled.providers import DataProvider, ImageRecordProvider, PictureParameters
from labeled.transforms import Augment, Mirror, read_mean_file, write_mean_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("providers")
    write_records(made / "a.rec", IMAGES, LABELS)
    write_records(made / "other.rec", IMAGES[::-1], LABELS)
    sizes = [pictures(1, 24 + 3 * i, 30)[0] for i in range(12)]
    write_records(made / "sizes.rec", sizes, LABELS)
    rgba = np.concatenate([IMAGES, 255 - IMAGES[..., :1]], axis=-1)
    write_records(made / "rgba.rec", rgba, LABELS)
    write_records(made / "multi.rec", IMAGES[:4], [[i, i + 1, i + 2] for i in range(4)])
    lines = [f"{10 * (i + 1)}\t{i * 2}\t{i * 3}\tx/{i}.png\n" for i in range(12)]
    (made / "a.lst").write_text("".join(lines))
    write_mean_file(made / "mean.bin", np.full((3, 12, 16), 7, np.float32))
    return made


# what each parameter does

CHANGES = {
    "path_imgrec": ({}, "other.rec"),
    "path_imglist": ({}, "a.lst"),
    "label_width": ({"path_imglist": "a.lst"}, 2),
    "data_shape": ({}, (3, 12, 17)),
    "batch_size": ({}, 5),
    "data_name": ({}, "x"),
    "label_name": ({}, None),
    "shuffle": ({}, True),
    "seed": ({"shuffle": True}, 7),
    "num_parts": ({}, 2),
    "part_index": ({"num_parts": 2}, 1),
    "round_batch": ({"batch_size": 5}, False),
    "data_padding": ({"batch_size": 5, "round_batch": False}, 9),
    "label_padding": ({"batch_size": 5, "round_batch": False}, 9),
    "axes": ({}, "last"),
    "dtype": ({}, "float64"),
    "mean_img": ({}, "mean.bin"),
    "resize": ({}, 20),
    "rotate": ({}, -30),
    "max_rotate_angle": ({}, 40),
    "rotate_list": ({}, (90, 180)),
    "max_shear_ratio": ({}, 0.5),
    "max_aspect_ratio": ({}, 0.4),
    "min_aspect_ratio": ({"max_aspect_ratio": 0.9}, 0.5),
    "min_random_scale": ({}, 0.8),
    "max_random_scale": ({}, 1.4),
    "min_img_size": ({}, 41),
    "max_img_size": ({"min_random_scale": 2, "max_random_scale": 2}, 33),
    "fill_value": ({"rotate": 45, "data_shape": (3, 24, 30)}, 0),
    "pad": ({"data_shape": (3, 30, 34)}, 3),
    "inter_method": ({"min_crop_size": 10}, 0),
    "rand_crop": ({}, True),
    "crop_y_start": ({}, 0),
    "crop_x_start": ({}, 0),
    "min_crop_size": ({}, 9),
    "max_crop_size": ({"min_crop_size": 9}, 15),
    "random_resized_crop": ({}, True),
    "min_random_area": ({"random_resized_crop": True}, 0.2),
    "max_random_area": ({"random_resized_crop": True, "min_random_area": 0.2}, 0.4),
    "brightness": ({}, 0.4),
    "contrast": ({}, 0.4),
    "saturation": ({}, 0.4),
    "pca_noise": ({}, 0.5),
    "random_h": ({}, 40),
    "random_s": ({}, 40),
    "random_l": ({}, 40),
    "mirror": ({}, True),
    "rand_mirror": ({}, True),
    "mean_r": ({}, 10),
    "mean_g": ({}, 10),
    "mean_b": ({}, 10),
    "mean_a": ({"path_imgrec": "rgba.rec", "data_shape": (4, 12, 16)}, 10),
    "std_r": ({}, 2),
    "std_g": ({}, 2),
    "std_b": ({}, 2),
    "std_a": ({"path_imgrec": "rgba.rec", "data_shape": (4, 12, 16)}, 2),
    "scale": ({}, 0.5),
    "max_random_contrast": ({}, 0.4),
    "max_random_illumination": ({}, 20),
}
"""Parameter -> (others that it needs, a value that changes what is handed out)."""

NOTHING = {
    "path_imgidx": "a.idx",
    "preprocess_threads": 2,
    "prefetch_buffer": 1,
    "verbose": True,
    "memory": "300 MiB",
}
"""Parameters that change speed, memory and log alone."""


USUAL = {}
"""What is handed out without the parameter in question, by the others."""


def located(folder, one):
    known = isinstance(one, str) and one.endswith((".rec", ".lst", ".idx", ".bin"))
    return folder / one if known else one


def differing(folder, name, others, value):
    given = {key: located(folder, one) for key, one in others.items()}
    usual = USUAL.get(str(others))
    first = USUAL[str(others)] = handed_out(make(folder, **given)) if usual is None else usual
    dtype = name == "dtype"
    second = handed_out(make(folder, **{**given, name: located(folder, value)}))
    if dtype:
        return [getattr(x, "dtype", None) for x in first] != [
            getattr(x, "dtype", None) for x in second
        ]
    return not same(first, second)


def test_every_parameter_is_in_the_tables():
    assert set(signature(PictureParameters).parameters) <= set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_parameter_that_changes_batches_is_heeded(folder, name):
    assert differing(folder, name, *CHANGES[name])


@pytest.mark.parametrize("name", NOTHING)
def test_other_parameters_change_nothing(folder, name):
    others = {"rand_crop": True, "shuffle": True, "max_random_contrast": 0.3, "batch_size": 5}
    assert not differing(folder, name, others, NOTHING[name])


WHOLE = IMAGES[:, 6:18, 7:23].transpose(0, 3, 1, 2).astype(np.float32)
"""The middle of every picture."""
RGB = list(enumerate("rgb", 1))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, WHOLE),
        ({"dtype": "uint8"}, WHOLE),
        ({"crop_y_start": 2, "crop_x_start": 5}, IMAGES[:, 2:14, 5:21].transpose(0, 3, 1, 2)),
        ({"crop_x_start": 0}, IMAGES[:, 6:18, :16].transpose(0, 3, 1, 2)),
        ({"mirror": True}, WHOLE[..., ::-1]),
        ({"mean_g": 60, "scale": 0.5}, (WHOLE - np.float32([0, 60, 0])[:, None, None]) / 2),
        ({"mean_img": "mean.bin", "std_b": 4}, (WHOLE - 7) / np.float32([1, 1, 4])[:, None, None]),
        (
            {f"{what}_{c}": n * k for what, k in (("mean", 10), ("std", 2)) for n, c in RGB},
            (WHOLE - np.float32([10, 20, 30])[:, None, None])
            / np.float32([2, 4, 6])[:, None, None],
        ),
        ({"rotate": 180, "data_shape": (3, 24, 30)}, IMAGES[:, ::-1, ::-1].transpose(0, 3, 1, 2)),
        ({"pad": 2, "crop_y_start": 0, "fill_value": 9}, None),
    ],
)
def test_pixels_are_what_the_text_says(folder, parameters, expected):
    given = {key: located(folder, one) for key, one in parameters.items()}
    made = np.concatenate([batch.data[0] for batch in make(folder, **given)])
    if expected is None:
        padded = np.pad(IMAGES, ((0, 0), (2, 2), (2, 2), (0, 0)), constant_values=9)
        expected = padded[:, :12, 9:25].transpose(0, 3, 1, 2)
    np.testing.assert_allclose(made, expected, atol=1e-4)


def test_contrast_turns_about_the_mean_and_is_bounded(folder):
    made = make(folder, mean_r=50, mean_g=50, mean_b=50, max_random_contrast=0.3)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.concatenate([b.data[0] for b in made]) / (WHOLE - 50)
    factors = np.nanmedian(ratio, axis=(1, 2, 3))
    assert np.abs(factors - 1).max() <= 0.3
    assert np.ptp(factors) > 0.1
    np.testing.assert_allclose(
        ratio[WHOLE != 50], np.repeat(factors, (WHOLE != 50).sum((1, 2, 3))), rtol=1e-3
    )


def test_too_small_pictures_are_enlarged(folder):
    assert make(folder, data_shape=(3, 48, 48)).provide_data == [("data", (4, 3, 48, 48))]
    assert all(b.data[0].std() > 10 for b in make(folder, data_shape=(3, 48, 48)))


# order


@pytest.mark.parametrize("record", ["a.rec", "sizes.rec"])
def test_every_epoch_is_whole_and_counts_are_true(folder, record):
    made = make(folder, path_imgrec=folder / record, batch_size=5, shuffle=True)
    assert isinstance(made, DataProvider)
    orders = []
    for _ in range(3):
        batches = list(made)
        assert [b.count_samples for b in batches] == [5, 5, 2]
        rows = np.concatenate([b.rows[: b.count_samples] for b in batches])
        labels = np.concatenate([b.label[0][: b.count_samples] for b in batches])
        np.testing.assert_array_equal(labels, rows + 0.25)
        np.testing.assert_array_equal(np.sort(rows), np.arange(12))
        np.testing.assert_array_equal(batches[-1].rows[2:], rows[:3])
        orders.append(rows.tolist())
    assert orders[0] != orders[1] != orders[2]


def test_results_do_not_depend_on_threads_parts_or_other_loops(folder):
    options = {
        "path_imgrec": folder / "sizes.rec",
        "rand_crop": True,
        "rand_mirror": True,
        "max_random_illumination": 9,
        "round_batch": False,
        "shuffle": True,
        "batch_size": 4,
    }

    def by_row(*providers):
        return {
            int(row): picture.tobytes()
            for provider in providers
            for batch in provider
            for row, picture in zip(batch.rows, batch.data[0], strict=True)
            if row >= 0
        }

    whole = by_row(make(folder, **options))
    assert len(whole) == 12
    threaded = {**options, "preprocess_threads": 3}
    assert by_row(make(folder, **threaded)) == whole
    parts = [make(folder, **options, num_parts=2, part_index=k) for k in range(2)]
    assert by_row(*parts) == whole
    nested = make(folder, **options)
    outer = iter(nested)
    first = next(outer)
    inner = {int(r) for b in nested for r in b.rows}
    rest = [first, *outer]
    assert inner == set(range(12))
    assert {
        int(r): p.tobytes() for b in rest for r, p in zip(b.rows, b.data[0], strict=True)
    } == whole


# labels, means, errors


def test_labels_of_records_and_lists(folder):
    multi = make(folder, path_imgrec=folder / "multi.rec", label_width=3)
    assert multi.provide_label == [("softmax_label", (4, 3))]
    np.testing.assert_array_equal(next(iter(multi)).label[0][1], [1, 2, 3])
    listed = make(folder, path_imglist=folder / "a.lst", label_width=2, batch_size=12)
    expected = [[2 * i, 3 * i] for i in range(12)]
    np.testing.assert_array_equal(next(iter(listed)).label[0], expected)
    with pytest.raises(
        LoaderError, match=r"hold 3 labels each, not label_width=1; pass label_width=3"
    ):
        make(folder, path_imgrec=folder / "multi.rec")
    assert make(folder, path_imgrec=folder / "multi.rec", label_name=None).provide_label == []


def test_a_mean_image_is_computed_once_over_all_pictures(folder, tmp_path):
    path = tmp_path / "mean.bin"
    options = {"mean_img": path, "num_parts": 2, "rand_crop": True, "shuffle": True}
    make(folder, **options)
    np.testing.assert_allclose(read_mean_file(path), WHOLE.mean(0), rtol=1e-5)
    before = path.read_bytes()
    make(folder, **options)
    assert path.read_bytes() == before
    with pytest.raises(LoaderError, match=r"shape \(3, 12, 16\), data_shape is"):
        make(folder, mean_img=path, data_shape=(3, 8, 8))


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"rand_crp": True}, OptionError, "no option 'rand_crp'; did you mean 'rand_crop'"),
        ({"data_shape": (3, 12)}, LoaderError, "must be .channels, height, width."),
        ({"data_shape": (2, 12, 12)}, LoaderError, "must begin with the channels, 1, 3 or 4"),
        ({"data_shape": (16, 12, 3)}, LoaderError, r"must begin with the channels"),
        ({"batch_size": 0}, LoaderError, "at least 1"),
        ({"label_width": 0}, LoaderError, "at least 1"),
        (
            {"num_parts": 2, "part_index": 2},
            LoaderError,
            "part_index=2 must be from 0 to",
        ),
        ({"num_parts": 0}, LoaderError, "num_parts=0 must be at least 1"),
        ({"prefetch_buffer": -1}, LoaderError, "prefetch_buffer=-1 must be at least 0"),
        ({"preprocess_threads": "all"}, LoaderError, "preprocess_threads='all' must be a whole"),
        ({"mirror": "false"}, AugmentError, "mirror='false' must be True or False"),
        ({"shuffle": "no"}, LoaderError, "shuffle='no' must be True or False"),
        ({"round_batch": "no", "mean_img": "new.bin"}, LoaderError, "round_batch='no' must be"),
        ({"inter_method": 5}, LoaderError, "inter_method=5 must be one of"),
        ({"dtype": "int32"}, LoaderError, "dtype='int32' must be one of"),
        ({"dtype": "uint8", "scale": 2}, LoaderError, "bytes as they are"),
        ({"mean_r": 1, "mean_img": "mean.bin"}, LoaderError, "exclude one another"),
        ({"rand_crop": True, "crop_x_start": 1}, LoaderError, "exclude one another"),
        ({"random_resized_crop": True, "min_crop_size": 3}, LoaderError, "exclude one another"),
        ({"rotate": "far"}, AugmentError, "rotate"),
        ({"brightness": -1}, AugmentError, "brightness"),
        ({"max_rotate_angle": -3}, AugmentError, "max_rotate_angle=-3 must be at least 0"),
        ({"min_random_scale": 2}, AugmentError, "min_random_scale=2: scale=.2, 1."),
        (
            {"min_crop_size": 9, "max_crop_size": 5},
            AugmentError,
            "min_crop_size=9, max_crop_size=5: ",
        ),
        ({"crop_y_start": 1.5}, AugmentError, "^crop_y_start=1.5 must be a whole"),
        ({"resize": 0}, AugmentError, "^resize=0: .* must be a whole number of 1"),
        ({"max_shear_ratio": "x"}, AugmentError, "max_shear_ratio='x' must be a number"),
        ({"min_aspect_ratio": "x"}, AugmentError, "min_aspect_ratio='x' must be a number or"),
        ({"pad": 2, "fill_value": None}, AugmentError, "fill_value=None must be a number"),
        (
            {"rotate_list": "90,180"},
            AugmentError,
            "rotate_list='90,180' must be a sequence",
        ),
        ({"rotate_list": [90, "x"]}, AugmentError, "rotate_list=.90, 'x'. must be a sequence"),
        ({"pad": -1}, AugmentError, "^pad=-1: .* must be a whole number of 0 or"),
        ({"pca_noise": -1}, AugmentError, "^pca_noise=-1 must be"),
        ({"random_h": -1}, AugmentError, "^random_h=-1 must be at least 0$"),
        ({"std_g": 0}, AugmentError, "std_g=0: std holds a 0"),
        ({"max_random_illumination": -1}, AugmentError, "^max_random_illumination=-1 must be"),
        (
            {"dtype": "uint8", "data_padding": 0.5, "batch_size": 5, "round_batch": False},
            LoaderError,
            "dtype uint8 cannot be padded with 0.5",
        ),
        (
            {"label_padding": 1e39, "batch_size": 5, "round_batch": False},
            LoaderError,
            r"dtype float32 cannot be padded with 1e\+39",
        ),
        ({"mean_img": "new.bin", "mean_g": 3}, LoaderError, "exclude one another"),
        ({"mean_img": "new.bin", "dtype": "uint8"}, LoaderError, "bytes as they are"),
        ({"mean_img": "no/new.bin"}, WriteError, "folder .*no' does not exist; make it first"),
        ({"path_imgrec": "none.rec"}, FileFormatError, "none.rec"),
        ({"path_imgidx": "multi.idx"}, FileFormatError, "multi.idx' is not the index of .*a.rec"),
    ],
)
def test_impossible_parameters_are_refused_at_once(folder, parameters, error, words):
    with pytest.raises(error, match=words):
        make(folder, **{key: located(folder, one) for key, one in parameters.items()})
    assert not (folder / "new.bin").exists()  # no mean image was computed before


def test_a_crop_that_starts_too_far_is_an_error_of_its_batch(folder):
    with pytest.raises(AugmentError, match="reaches beyond"):
        list(make(folder, crop_y_start=20))


def test_pictures_that_cannot_be_decoded_are_left_out_if_that_is_wanted(folder, tmp_path):
    damaged = [*IMAGES[:5], png(IMAGES[5])[:60] + bytes(80), *IMAGES[6:]]
    path = write_records(tmp_path / "damaged.rec", damaged, LABELS)
    with pytest.raises(ReadError, match="row 5"):
        list(make(folder, path_imgrec=path))
    made = make(folder, path_imgrec=path, errors="skip", max_lost=1, round_batch=False)
    with pytest.warns(LabeledWarning, match=r"1 rows are left out.*row 5"):
        batches = list(made)
    assert [b.count_samples for b in batches] == [4, 3, 4]
    assert batches[1].rows.tolist() == [4, 6, 7, -1]
    np.testing.assert_array_equal(batches[1].data[0][:3], WHOLE[[4, 6, 7]])
    with pytest.raises(LoaderError, match="pad it instead"):
        make(folder, errors="skip")
    none = make(folder, path_imgrec=path, errors="skip", max_lost=0, round_batch=False)
    with pytest.raises(ReadError), pytest.warns(LabeledWarning):
        list(none)


@pytest.mark.parametrize("alike", [True, False])
def test_a_batch_that_lacks_all_its_pictures_is_left_out(folder, tmp_path, alike):
    images = [pictures(1, 24 + 3 * (i % 4) * (not alike), 30)[0] for i in range(6)]
    damaged = [*images[:2], *(png(one)[:60] for one in images[2:4]), *images[4:]]
    path = write_records(tmp_path / "damaged.rec", damaged, LABELS[:6])
    options = {"errors": "skip", "round_batch": False, "batch_size": 2}
    with pytest.warns(LabeledWarning, match="1 rows are left out"):
        batches = list(make(folder, path_imgrec=path, **options))
    assert [b.rows.tolist() for b in batches] == [[0, 1], [4, 5]]
    ds = labeled.open_dataset(path)
    pipeline = {"images": Augment([Mirror(1)])}
    with pytest.warns(LabeledWarning, match="1 rows are left out"):
        counts = [b.count for b in ds.batches(2, errors="skip", pipeline=pipeline)]
    assert counts == [2, 0, 2]


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_batches_whose_pictures_are_all_too_small_are_left_out(tmp_path, batch_size):
    images = [pictures(1, 30 if i in (2, 3, 7) else 40, 40)[0] for i in range(8)]
    path = write_records(tmp_path / "some.rec", images, LABELS[:8])
    made = ImageRecordProvider(
        path,
        data_shape=(3, 16, 16),
        batch_size=batch_size,
        crop_y_start=20,
        errors="skip",
        round_batch=False,
    )
    for _ in range(2):
        with pytest.warns(LabeledWarning, match="is left out of this epoch"):
            rows = [batch.rows[: batch.count_samples] for batch in made]
        assert np.concatenate(rows).tolist() == [0, 1, 4, 5, 6]


def test_dtypes_have_several_names(folder):
    for dtype in (np.float64, "f8", np.dtype("float64")):
        assert next(iter(make(folder, dtype=dtype))).data[0].dtype == np.float64
    for dtype in ("int16", None, ">f4"):
        with pytest.raises(LoaderError, match=f"dtype='?{dtype}'? must be one of 'float32'"):
            make(folder, dtype=dtype)


def test_int8_is_rounded_and_clipped(folder):
    floats = next(iter(make(folder, mean_r=-10, mean_g=100.5, mean_b=128))).data[0]
    whole = next(iter(make(folder, mean_r=-10, mean_g=100.5, mean_b=128, dtype="int8"))).data[0]
    assert whole.dtype == np.int8
    assert floats.max() > 128
    np.testing.assert_array_equal(whole, np.clip(np.round(floats), -128, 127))


def test_what_is_read_is_logged_unless_it_is_not_wanted(folder, caplog):
    caplog.set_level(logging.INFO, "labeled")
    make(folder, verbose=True)
    assert "12 pictures for <labeled.providers.ImageRecordProvider" in caplog.text
    caplog.clear()
    make(folder, verbose=False)
    assert "pictures for" not in caplog.text


@pytest.mark.parametrize(
    "parameters",
    [
        {"rand_crop": True, "shuffle": True},
        {"axes": "last", "dtype": "uint8"},
        {"errors": "skip", "round_batch": False, "batch_size": 5},
    ],
)
def test_pictures_go_to_a_device(folder, parameters):
    there = FakeDevice(1)
    found = handed_out(make(folder, device=there, **parameters))
    assert same(found, handed_out(make(folder, device="cpu", **parameters)))
    assert same(found, handed_out(make(folder, device=HostDevice(), **parameters)))
    assert there.n_placed == 2 * sum(isinstance(one, int) for one in found)  # data and labels
    with pytest.raises(LoaderError, match="device 'gpu' is not 'cpu'"):
        make(folder, device="gpu")
