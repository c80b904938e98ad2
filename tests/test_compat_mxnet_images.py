"""The old image iterators: orders, parts, labels, and every parameter has its say."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest
from compare_records import cases, compare
from old_pictures import augmenter_of, output_of
from record_files import pictures, png, record, write_records

from labeled.compat.mxnet import ImageRecordIter, ImageRecordIter_v1
from labeled.compat.mxnet.parameters import OF_PICTURES, RULES, image_parameters
from labeled.compat.mxnet.records import ByteStream
from labeled.compat.mxnet.twister import Twister
from labeled.errors import AugmentError, FileFormatError, LoaderError, OptionError
from labeled.transforms.meanimage import read_mean_file, write_mean_file

REFERENCE = os.environ.get("LABELED_REFERENCE")
IMAGES = pictures()
LABELS = [i + 0.25 for i in range(12)]
V1 = "1.9.1 v1"
"""The older iterator of the newest version."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("records")
    write_records(made / "a.rec", IMAGES, LABELS)
    write_records(made / "other.rec", IMAGES[::-1], LABELS)
    write_records(made / "multi.rec", IMAGES[:4], [[i, i + 1, i + 2] for i in range(4)])
    rgba = np.concatenate([IMAGES, 255 - IMAGES[..., :1]], axis=-1)
    write_records(made / "rgba.rec", rgba, LABELS)
    lines = [f"{10 * (i + 1)}\t{i * 2}\t{i * 3}\tx/{i}.png\n" for i in range(12)]
    (made / "a.lst").write_text("".join(lines))
    write_mean_file(made / "mean.bin", np.full((3, 12, 16), 7, np.float32))
    return made


def make(folder, version="1.9.1", kind=ImageRecordIter, **parameters):
    if version == V1:
        version, kind = "1.9.1", ImageRecordIter_v1
    given = {
        "path_imgrec": folder / "a.rec",
        "data_shape": (3, 12, 16),
        "batch_size": 4,
        "verbose": False,
        **parameters,
    }
    return kind(version=version, **{k: v for k, v in given.items() if v is not ...})


def values(it):
    """Return everything that an iterator hands out in an epoch."""
    return [
        found for batch in it for found in (batch.data[0], batch.label[0], batch.pad, batch.index)
    ]


def same(a, b):
    return len(a) == len(b) and all(
        np.shape(x) == np.shape(y) and np.array_equal(x, y) for x, y in zip(a, b, strict=True)
    )


def labels_of(it):
    return [int(label) for batch in it for label in batch.label[0]]


# what each parameter does

CHANGES = {
    "path_imgrec": ({}, "other.rec"),
    "path_imglist": ({}, "a.lst"),
    "label_width": ({"path_imglist": "a.lst"}, 2),
    "data_shape": ({}, (3, 12, 17)),
    "num_parts": ({}, 2),
    "part_index": ({"num_parts": 2}, 1),
    "shuffle": ({}, True),
    "seed": ({"shuffle": True}, 7),
    "batch_size": ({}, 3),
    "round_batch": ({"batch_size": 5}, False),
    "rand_crop": ({}, True),
    "crop_y_start": ({}, 1),
    "crop_x_start": ({}, 1),
    "max_rotate_angle": ({}, 40),
    "max_aspect_ratio": ({}, 0.4),
    "max_shear_ratio": ({}, 0.5),
    "max_crop_size": ({"min_crop_size": 9, "rand_crop": True}, 15, 9),
    "min_crop_size": ({"max_crop_size": 15, "rand_crop": True}, 9, 15),
    "max_random_scale": ({}, 1.4),
    "min_random_scale": ({}, 0.8),
    "max_img_size": ({"max_random_scale": 2, "min_random_scale": 2}, 33),
    "min_img_size": ({}, 41),
    "random_h": ({}, 40),
    "random_s": ({}, 40),
    "random_l": ({}, 40),
    "rotate": ({}, 45),
    "fill_value": ({"rotate": 45, "data_shape": (3, 24, 30)}, 0),
    "inter_method": ({"max_crop_size": 10, "min_crop_size": 10}, 0),
    "mirror": ({}, True),
    "rand_mirror": ({}, True),
    "mean_img": ({}, "mean.bin"),
    "mean_r": ({}, 10),
    "mean_g": ({}, 10),
    "mean_b": ({}, 10),
    "mean_a": ({"path_imgrec": "rgba.rec", "data_shape": (4, 12, 16)}, 10),
    "scale": ({}, 0.5),
    "max_random_contrast": ({"mean_r": 5}, 0.4),
    "max_random_illumination": ({"mean_r": 5}, 20),
}
"""Parameter of the old manual -> (others that it needs, a value that changes the batches)."""

NOTHING = {
    "preprocess_threads": 1,
    "verbose": False,
    "prefetch_buffer": 1,
}
"""Parameters that changed nothing, or nothing but speed and log."""

LATER = {
    "path_imgidx": ({"num_parts": 5, "part_index": 3, "batch_size": 2}, "a.idx"),
    "resize": ({}, 20),
    "pad": ({"rand_crop": True}, 4),
    "min_aspect_ratio": ({"max_aspect_ratio": 1.5}, 1.2),
    "random_resized_crop": (
        {"min_random_area": 0.2, "max_random_area": 0.5, "max_aspect_ratio": 0.2},
        True,
    ),
    "min_random_area": ({"random_resized_crop": True, "max_random_area": 1}, 0.2),
    "max_random_area": ({"random_resized_crop": True, "min_random_area": 0.2}, 0.4),
    "brightness": ({}, 0.4),
    "contrast": ({}, 0.4),
    "saturation": ({}, 0.4),
    "pca_noise": ({}, 0.5),
    "std_r": ({}, 2),
    "std_g": ({}, 2),
    "std_b": ({}, 2),
    "std_a": ({"path_imgrec": "rgba.rec", "data_shape": (4, 12, 16)}, 2),
    "rotate_list": ({}, "90,180"),
    "seed_aug": ({"rand_crop": True}, 5),
    "aug_seq": ({"data_shape": (3, 24, 30), "rotate": 45}, ""),
    "dtype": ({"mean_r": 3}, "uint8"),
}


def differing(folder, version, name, others, value, usual=...):
    def located(one):
        known = isinstance(one, str) and one.endswith((".rec", ".lst", ".idx", ".bin"))
        return str(folder / one) if known else one

    given = {key: located(one) for key, one in others.items()}
    first = values(make(folder, version, **given, **({} if usual is ... else {name: usual})))
    second = values(make(folder, version, **{**given, name: located(value)}))
    return not same(first, second)


def test_every_parameter_of_the_manual_is_in_the_tables():
    own = {"data_name", "label_name"}
    assert set(image_parameters("seed")) == {*CHANGES, *NOTHING, *own, "rotate_list"}
    later = set(image_parameters("1.9.1")) - {*CHANGES, *NOTHING, *own}
    assert later == {*LATER, "shuffle_chunk_size", "shuffle_chunk_seed", "ctx", "device_id"}


@pytest.mark.parametrize("version", RULES)
@pytest.mark.parametrize("name", CHANGES)
def test_a_parameter_that_changes_batches_is_honoured(folder, version, name):
    expected = version == "seed" or name not in ("crop_y_start", "crop_x_start")
    assert differing(folder, version, name, *CHANGES[name]) == expected


@pytest.mark.parametrize("version", RULES)
@pytest.mark.parametrize("name", LATER)
def test_a_later_parameter_is_honoured_by_the_later_versions_alone(folder, version, name):
    others, value = LATER[name]
    if name in image_parameters(version):
        assert differing(folder, version, name, others, value)
    elif set(others) <= set(image_parameters(version)):
        assert not differing(folder, version, name, others, value)


@pytest.mark.parametrize("version", RULES)
@pytest.mark.parametrize("name", NOTHING)
def test_other_parameters_change_nothing(folder, version, name):
    assert not differing(folder, version, name, {"rand_crop": True}, NOTHING[name])


@pytest.mark.parametrize("version", ["seed", "1.9.1"])
def test_contrast_counts_without_a_mean_in_the_newest_version_alone(folder, version):
    heeded = differing(folder, version, "max_random_contrast", {}, 0.4)
    assert heeded == (version == "1.9.1")


@pytest.mark.parametrize("version", RULES)
def test_names_and_unknown_words(folder, version):
    it = make(folder, version, data_name="x", label_name="y", batch_sze=3)
    assert it.provide_data == [("x", (4, 3, 12, 16))]
    assert it.provide_label == [("y", (4,))]
    assert make(folder, version, label_name=None).provide_label == []
    with pytest.raises(OptionError, match="did you mean 'batch_size'"):
        make(folder, version, strict=True, batch_sze=3)


@pytest.mark.parametrize(
    ("version", "later"), [("seed", "resize"), ("0.9.5", "std_r"), (V1, "seed_aug")]
)
def test_words_of_later_versions_are_unknown(folder, version, later):
    make(folder, version, **{later: 3})
    with pytest.raises(OptionError, match=f"no parameter '{later}'"):
        make(folder, version, strict=True, **{later: 3})


@pytest.mark.parametrize("version", RULES)
def test_files_are_logged_unless_it_is_not_wanted(folder, caplog, version):
    caplog.set_level(logging.INFO, "labeled")
    make(folder, version, verbose=False)
    assert "a.rec" not in caplog.text
    make(folder, version, verbose=...)
    assert f"reading {folder / 'a.rec'}" in caplog.text


# pixels

WHOLE = IMAGES[:, 6:18, 7:23].transpose(0, 3, 1, 2).astype(np.float32)
"""The middle of every picture."""


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, WHOLE),
        ({"mirror": True}, WHOLE[..., ::-1]),
        ({"mean_g": 60}, WHOLE - np.float32([0, 60, 0])[:, None, None]),
        ({"mean_img": "mean.bin", "scale": 2}, (WHOLE - 7) * 2),
        ({"data_shape": (3, 24, 30)}, IMAGES.transpose(0, 3, 1, 2)),
    ],
)
@pytest.mark.parametrize("version", ["seed", "0.9.5", "1.9.1"])
def test_plain_pixels(folder, version, parameters, expected):
    given = {k: folder / v if k == "mean_img" else v for k, v in parameters.items()}
    it = make(folder, version, **given)
    np.testing.assert_array_equal(np.concatenate([b.data[0] for b in it]), expected)


def test_crops_begin_where_the_manual_of_the_seed_says(folder):
    def pixels(**given):
        return np.concatenate([b.data[0] for b in make(folder, "seed", **given)])

    expected = IMAGES[:, 2:14, 5:21].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(pixels(crop_y_start=2, crop_x_start=5), expected)
    expected = IMAGES[:, 6:18, :16].transpose(0, 3, 1, 2)  # rows from the middle
    np.testing.assert_array_equal(pixels(crop_x_start=0), expected)
    drawn = pixels(rand_crop=True)
    np.testing.assert_array_equal(pixels(rand_crop=True, crop_x_start=0), drawn)
    with pytest.raises(AugmentError, match=r"crop_x_start=15 leaves too little .*at 14 at most"):
        make(folder, "seed", crop_x_start=15)


def test_turned_pictures_take_the_nearest_pixels_if_that_is_asked_for(folder):
    given = {"rotate": 90, "inter_method": 0, "data_shape": (3, 16, 16)}
    found = make(folder, "seed", **given).next().data[0][0].transpose(1, 2, 0)
    turned = np.rot90(IMAGES[0])  # (30, 24): the middle of it, to within a pixel
    around = [turned[y : y + 16, x : x + 16] for y in (6, 7, 8) for x in (3, 4, 5)]
    assert any(np.array_equal(found, one) for one in around)
    for version in ("0.9.5", "1.9.1"):
        with pytest.raises(AugmentError, match="inter_method=0 does not go with turning"):
            make(folder, version, **given)


DONE = {
    **{
        name: {**others, name: value}
        for name, (others, value, *_) in (CHANGES | LATER).items()
        if name in OF_PICTURES
    },
    "mean": {f"mean_{colour}": 20 * n for n, colour in enumerate("rgb", 1)},
    "std": {f"std_{colour}": 2**n for n, colour in enumerate("rgb", 1)},
    "hsl": {"random_h": 20, "random_s": 50, "random_l": 80},
    "jitter": {"brightness": 0.2, "contrast": 0.4, "saturation": 0.6},
    "light": {"mean_r": 5, "max_random_contrast": 0.4, "max_random_illumination": 20},
}
"""What is done to pictures: alone, and what is easily mistaken for one another together."""


@pytest.mark.parametrize("version", RULES)
@pytest.mark.parametrize("name", DONE)
def test_pictures_are_drawn_for_one_after_another(folder, version, name):
    """What Augmenter and Output make has tests of its own; each iterator has its engines."""
    asked = {"data_shape": (3, 12, 16), **DONE[name]}
    path = asked.get("path_imgrec", "a.rec")
    given = {n: one for n, one in asked.items() if n in image_parameters(version)}
    done = {n: one for n, one in given.items() if n in OF_PICTURES}
    turns = {"rotate_list": (90, 180)} if "rotate_list" in done else {}
    augment = augmenter_of(asked["data_shape"], version, **{**done, **turns})
    output = output_of(version, **{**done, **turns})
    engine = Twister(111)
    light = engine if version == "1.9.1" else Twister(0)
    pictures = np.concatenate([IMAGES, 255 - IMAGES[..., :1]], -1) if "rgba" in path else IMAGES
    expected = [output(augment(one, engine), light) for one in pictures]
    given |= {"path_imgrec": folder / path, "batch_size": 12}
    np.testing.assert_array_equal(make(folder, version, **given).next().data[0], expected)


# orders


def test_shuffles_go_on_from_epoch_to_epoch(folder):
    draws = Twister(111 + 3)
    it = make(folder, shuffle=True, seed=3)
    for _ in range(3):
        assert labels_of(it) == draws.shuffled(12).tolist()
        it.reset()


def test_an_index_shuffles_all_records_alike(folder):
    plain = make(folder, shuffle=True, seed=3)
    indexed = make(folder, shuffle=True, seed=3, path_imgidx=folder / "a.idx")
    for _ in range(2):
        assert labels_of(plain) == labels_of(indexed)
        plain.reset()
        indexed.reset()


def test_parts_are_bytes_without_an_index_and_records_with_one(folder):
    def parts(count, **options):
        found = []
        for k in range(count):
            try:
                it = make(folder, batch_size=1, num_parts=count, part_index=k, **options)
            except LoaderError:
                found.append([])
                continue
            found.append(labels_of(it))
        return found

    by_bytes = parts(20)
    assert [label for part in by_bytes for label in part] == list(range(12))
    assert sum(not part for part in by_bytes) == 8
    index = str(folder / "a.idx")
    assert parts(5, path_imgidx=index) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], []]
    with pytest.raises(LoaderError, match="from 0 to num_parts - 1"):
        make(folder, num_parts=2, part_index=2)


def test_chunks_end_at_the_head_of_a_record(folder):
    stream = ByteStream([str(folder / "a.rec")])
    sizes = np.diff(np.loadtxt(folder / "a.idx", dtype=int)[:, 1])
    chunks = list(stream.chunks(0, stream.n_bytes, int(sizes[0]) + 4))
    assert sum(len(chunk) for chunk in chunks) == 12
    assert len(chunks) > 3
    assert [bytes(p) for chunk in chunks for p in chunk] == [
        bytes(p) for p in stream.payloads(0, stream.n_bytes)
    ]


@pytest.mark.parametrize("version", ["1.9.1", V1])
def test_pieces_are_shuffled_before_every_pass(tmp_path, version):
    images = np.random.default_rng(1).integers(0, 256, (24, 200, 400, 1), dtype=np.uint8)
    path = write_records(tmp_path / "big.rec", images, range(24))

    def orders(**options):
        asked = {"data_shape": (1, 8, 8), "shuffle_chunk_size": 1, **options}
        it = make(tmp_path, version, path_imgrec=path, **asked)
        found = []
        for _ in range(2):
            found.append(labels_of(it))
            it.reset()
        return found

    first, second = orders()
    assert sorted(first) == list(range(24))
    assert first != list(range(24)) != second != first
    assert orders() == [first, second]
    assert orders(shuffle_chunk_seed=1) != [first, second]
    runs = np.flatnonzero(np.diff(first) != 1)
    assert len(runs) <= 4  # pieces of some ten records, whole


def test_epochs_are_shifted_and_pads_are_true(folder):
    expected = [[0, 0, 3], [0, 1], [0, 0, 4], [0, 2]]
    for kind in (ImageRecordIter, ImageRecordIter_v1):
        it = make(folder, kind=kind, batch_size=5)
        seen = []
        for pads in expected:
            got = list(it)
            assert [b.pad for b in got] == pads
            seen += [int(x) for b in got for x in b.label[0]]
            it.reset()
        assert seen == [i % 12 for i in range(len(seen))]
    newest = make(folder, batch_size=5, round_batch=False)
    assert [b.pad for b in newest] == [0, 0, 0]  # never told
    older = make(folder, kind=ImageRecordIter_v1, batch_size=5, round_batch=False)
    got = list(older)
    assert [b.pad for b in got] == [0, 0, 3]
    np.testing.assert_array_equal(got[2].data[0][2:], got[1].data[0][2:])
    assert got[2].index.tolist() == [110, 120, 80, 90, 100]


@pytest.mark.parametrize(("ctx", "first"), [("gpu", 3), ("cpu", 0)])
def test_a_reset_acts_where_the_thread_was_if_there_was_one(folder, ctx, first):
    it = make(folder, batch_size=5, ctx=ctx)
    it.reset()
    assert labels_of(it)[0] == first


# labels


def test_labels_of_records_and_lists(folder):
    multi = make(folder, path_imgrec=folder / "multi.rec", label_width=3)
    assert multi.provide_label == [("softmax_label", (4, 3))]
    np.testing.assert_array_equal(multi.next().label[0][1], [1, 2, 3])
    listed = make(folder, path_imglist=folder / "a.lst", label_width=2, batch_size=12)
    np.testing.assert_array_equal(listed.next().label[0], [[2 * i, 3 * i] for i in range(12)])
    path = make(folder, path_imglist=folder / "a.lst", label_width=3)
    np.testing.assert_array_equal(path.next().label[0][1], [2, 3, 0])  # a path went unnoticed
    with pytest.raises(FileFormatError, match="Bad ImageList format: line 1"):
        make(folder, path_imglist=folder / "a.lst", label_width=4)
    alone = make(folder, version="seed", label_width=2, batch_size=12)
    assert alone.provide_label == [("softmax_label", (12,))]
    np.testing.assert_array_equal(alone.next().label[0], np.arange(12) + np.float32(0.25))
    with pytest.raises(FileFormatError, match="3 labels, label_width is 1"):
        make(folder, path_imgrec=folder / "multi.rec")


def test_a_record_that_is_not_listed(folder, tmp_path):
    (tmp_path / "b.lst").write_text("10 1 a\n")
    with pytest.raises(FileFormatError, match="fail to find imagelabel for id 20"):
        make(folder, path_imglist=tmp_path / "b.lst")


# mean images


@pytest.mark.parametrize("version", ["seed", "1.9.1"])
def test_a_mean_image_is_made_once_and_saved(folder, tmp_path, version):
    path = tmp_path / "mean.bin"
    it = make(folder, version, mean_img=path, scale=0.5)
    np.testing.assert_allclose(read_mean_file(path), WHOLE.mean(0) * 0.5, rtol=1e-6)
    first = it.next().data[0]
    np.testing.assert_allclose(first, (WHOLE[:4] - read_mean_file(path)) * 0.5, rtol=1e-5)
    before = path.read_bytes()
    again = make(folder, version, mean_img=path, scale=0.5)
    np.testing.assert_array_equal(again.next().data[0], first)
    assert path.read_bytes() == before


# damage


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (record(b"x" * 30)[:-4], "damaged: it claims"),
        (record(b"x" * 30) + b"1234" * 3, "damaged: it begins with"),
        (record(b"x" * 30) + b"1", "no multiple of 4"),
        (record(b"tiny"), "no header"),
        (record(b"\0" * 24 + b"no picture"), "id 0 cannot be decoded"),
        (b"", "no file with anything in it"),
    ],
)
def test_damaged_files_are_reported(folder, tmp_path, content, words):
    path = tmp_path / "bad.rec"
    path.write_bytes(content)
    for version in RULES:
        with pytest.raises(FileFormatError, match=words):
            make(folder, version, path_imgrec=path, batch_size=1)


@pytest.mark.parametrize("offset", [1 << 20, 1 << 80])
def test_an_index_of_another_file_is_reported(folder, tmp_path, offset):
    (tmp_path / "a.idx").write_text(f"0\t0\n1\t{offset}\n")
    with pytest.raises(FileFormatError, match=f"record at byte {offset:,}, but the records end"):
        make(folder, path_imgidx=tmp_path / "a.idx")


@pytest.mark.parametrize("place", [1, 3])  # beside another one, and in a batch of its own
def test_pictures_that_make_no_batch_are_reported(tmp_path, place):
    mixed = [*IMAGES[:place], IMAGES[place][..., :1]]
    write_records(tmp_path / "mixed.rec", mixed, LABELS[: len(mixed)])
    asked = {"path_imgrec": tmp_path / "mixed.rec", "batch_size": 3, "round_batch": False}
    with pytest.raises(FileFormatError, match=r"index \d+ has shape \(1, 12, 16\), those before"):
        list(make(tmp_path, "seed", **asked))


RESIZED = {"random_resized_crop": True}


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"data_shape": (3, 12)}, LoaderError, "wrong dimensions"),
        ({"data_shape": (3, 0, 4)}, LoaderError, "wrong dimensions"),
        ({"data_shape": (2, 12, 12)}, LoaderError, "2 channels"),
        ({"data_shape": ...}, LoaderError, "data_shape is required"),
        ({"batch_size": 0}, LoaderError, "at least 1"),
        ({"label_width": 0}, LoaderError, "at least 1"),
        ({"preprocess_threads": 0}, LoaderError, "at least 1"),
        ({"rand_crop": "yes"}, LoaderError, "not a valid flag"),
        ({"rotate": 1.5}, LoaderError, "rotate=1.5 is not a valid integer"),
        ({"scale": "big"}, LoaderError, "not a valid number"),
        ({"min_img_size": "inf"}, LoaderError, "min_img_size='inf' is not a valid number"),
        ({"max_rotate_angle": 1 << 40}, LoaderError, "max_rotate_angle=1099511627776 is too large"),
        ({"inter_method": 5}, AugmentError, "inter_method"),
        ({"aug_seq": "mine"}, LoaderError, "aug_seq names 'mine'"),
        ({"resize": 0}, AugmentError, "would become 0 x 0 pixels"),
        ({**RESIZED, "max_random_area": 0.5}, AugmentError, "min_random_area=1 and max_random_"),
        ({**RESIZED, "min_random_area": -1}, AugmentError, "at least 0 and at most the second"),
        ({**RESIZED, "max_aspect_ratio": 1.5}, AugmentError, "ratios from -0.5 to 2.5; give a min"),
        ({**RESIZED, "min_aspect_ratio": 2}, AugmentError, "ratios from 2 to 0; give a min"),
        ({"dtype": "float64"}, AugmentError, "dtype"),
        ({"data_shape": (4, 12, 16)}, FileFormatError, "3 channels, data_shape asks for 4"),
    ],
)
def test_impossible_parameters_are_refused(folder, parameters, error, words):
    with pytest.raises(error, match=words):
        make(folder, **parameters)


def test_too_small_pictures_are_refused_by_the_older_versions(folder):
    assert make(folder, data_shape=(3, 30, 30)).provide_data[0][1] == (4, 3, 30, 30)
    with pytest.raises(AugmentError, match="smaller"):
        make(folder, "0.9.5", data_shape=(3, 30, 30))


def test_several_files_are_one_stream(folder, tmp_path):
    path = write_records(tmp_path / "b.rec", [png(IMAGES[0])], [99])
    it = make(folder, path_imgrec=f"{folder / 'a.rec'};{path}", batch_size=13)
    assert labels_of(it) == [*range(12), 99]


# everything recorded


@pytest.mark.skipif(REFERENCE is None, reason="LABELED_REFERENCE names no folder of recordings")
@pytest.mark.parametrize(
    "case", list(cases(Path(REFERENCE))) if REFERENCE else [], ids=lambda case: case.name
)
def test_recorded_cases_come_out_the_same(case):
    if case.missing:
        pytest.skip(f"the folder lacks {case.missing[0]}")
    found = compare(case)
    assert found.good, found.line()
