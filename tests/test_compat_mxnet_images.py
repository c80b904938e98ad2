"""The old image iterators: what every parameter makes, orders, parts, labels and damage.

``mxnet_pictures.json`` holds some values of what each case gives in each version, from a run that
agreed with the genuine programs in all cases of ``compare_records.py``. Running this module
writes it again.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from compare_records import cases, compare
from PIL import Image
from record_files import encoded, pictures, png, record, write_records

from labeled.compat.mxnet import ImageRecordIter, ImageRecordIter_v1
from labeled.errors import AugmentError, FileFormatError, LoaderError, OptionError
from labeled.transforms import read_mean_file, write_mean_file

REFERENCE = os.environ.get("LABELED_REFERENCE")
RECORDED = Path(__file__).with_name("mxnet_pictures.json")
CASES = json.loads(RECORDED.read_text())
IMAGES = pictures()
LABELS = [i + 0.25 for i in range(12)]
V1 = "1.9.1 v1"
"""The older iterator of the newest version."""
RULES = ("seed", "0.9.5", V1, "1.9.1")


def write_files(made):
    write_records(made / "a.rec", IMAGES, LABELS)
    write_records(made / "other.rec", IMAGES[::-1], LABELS)
    write_records(made / "grey.rec", IMAGES[..., :1], LABELS)
    write_records(made / "multi.rec", IMAGES[:4], [[i, i + 1, i + 2] for i in range(4)])
    rgba = np.concatenate([IMAGES, 255 - IMAGES[..., :1]], axis=-1)
    write_records(made / "rgba.rec", rgba, LABELS)
    lines = [f"{10 * (i + 1)}\t{i * 2}\t{i * 3}\tx/{i}.png\n" for i in range(12)]
    (made / "a.lst").write_text("".join(lines))
    write_mean_file(made / "mean.bin", np.full((3, 12, 16), 7, np.float32))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("records"))


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


def labels_of(it):
    return [int(label) for batch in it for label in batch.label[0]]


# what each parameter does


def some_values(folder, version, given):
    """Return what an epoch is: shapes, labels, pads, rows, and one value in 397."""

    def located(one):
        known = isinstance(one, str) and one.endswith((".rec", ".lst", ".idx", ".bin"))
        return str(folder / one) if known else one

    try:
        asked = {key: located(one) for key, one in given.items()}
        it = make(folder, version, **{"batch_size": 5, **asked})
    except (AugmentError, LoaderError, FileFormatError) as error:
        return {"refused": type(error).__name__}
    batches = list(it)
    data = np.concatenate([batch.data[0].ravel() for batch in batches])
    return {
        "made": [str(it.provide_data), str(it.provide_label), data.dtype.str],
        "labels": [np.asarray(batch.label[0], int).ravel().tolist() for batch in batches],
        "rows": [[int(batch.pad), *batch.index.tolist()] for batch in batches],
        "values": np.round(data[::397].astype(float), 1).tolist(),
    }


@pytest.mark.parametrize("version", RULES)
@pytest.mark.parametrize("name", CASES)
def test_every_parameter_makes_what_was_recorded(folder, version, name):
    plain, case = CASES["plain"][version], CASES[name]
    found = some_values(folder, version, case["given"])
    wanted = {key: one for key, one in {**plain, **case[version]}.items() if one is not None}
    values, recorded = (np.array(one.pop("values", [])) for one in (found, wanted))
    assert found == wanted
    near = np.abs(values - recorded) <= 4.5  # other releases of OpenCV round otherwise
    assert near.sum() >= 0.9 * len(recorded)


@pytest.mark.parametrize(
    ("version", "later"), [("seed", "resize"), ("0.9.5", "std_r"), (V1, "seed_aug")]
)
def test_words_of_later_versions_are_unknown(folder, version, later):
    make(folder, version, **{later: 3})
    with pytest.raises(OptionError, match=f"no option '{later}'"):
        make(folder, version, strict=True, **{later: 3})


# pixels

WHOLE = IMAGES[:, 6:18, 7:23].transpose(0, 3, 1, 2).astype(np.float32)
"""The middle of every picture."""


# orders


def test_shuffles_go_on_from_epoch_to_epoch(folder):
    it = make(folder, shuffle=True, seed=10 - 111, batch_size=12)
    first, second = (labels_of(it), it.reset(), labels_of(it))[::2]
    assert first != second != sorted(second) == sorted(first)
    again = make(folder, shuffle=True, seed=10 - 111, batch_size=12)
    assert labels_of(again) == first


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
    with pytest.raises(LoaderError, match="is none of num_parts=2"):
        make(folder, num_parts=2, part_index=2)


def test_pieces_are_shuffled_before_every_pass(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (24, 200, 400, 1), dtype=np.uint8)
    path = write_records(tmp_path / "big.rec", images, range(24))

    def orders(**options):
        asked = {"data_shape": (1, 8, 8), "shuffle_chunk_size": 1, **options}
        it = make(tmp_path, V1, path_imgrec=path, **asked)
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


@pytest.mark.parametrize(("ctx", "first"), [("gpu", 3), ("cpu", 0)])
def test_a_reset_acts_where_the_thread_was_if_there_was_one(folder, ctx, first):
    it = make(folder, batch_size=5, ctx=ctx)
    it.reset()
    assert labels_of(it)[0] == first


# labels


def test_labels_of_records_and_lists(folder, tmp_path):
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
    (tmp_path / "b.lst").write_text("10 1 a\n")
    with pytest.raises(FileFormatError, match="fail to find imagelabel for id 20"):
        make(folder, path_imglist=tmp_path / "b.lst")
    with pytest.raises(FileFormatError, match="3 labels, not 1"):
        make(folder, path_imgrec=folder / "multi.rec")


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
        (record(b"x" * 30) + b"1", "damaged: 1 bytes are left"),
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
    with pytest.raises(FileFormatError, match=f"record at byte {offset:,}, where none begins"):
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
        ({"data_shape": (3, 12)}, LoaderError, "must be .channels, height, width"),
        ({"data_shape": (2, 12, 12)}, LoaderError, "2 channels"),
        ({"data_shape": ...}, LoaderError, "data_shape is required"),
        ({"batch_size": 0}, LoaderError, "at least 1"),
        ({"rand_crop": "yes"}, LoaderError, "not a valid flag"),
        ({"rotate": 1.5}, LoaderError, "rotate=1.5 is not a valid integer"),
        ({"min_img_size": "inf"}, LoaderError, "min_img_size='inf' is not a valid number"),
        ({"max_rotate_angle": 1 << 40}, LoaderError, "max_rotate_angle=1099511627776 is too large"),
        ({"inter_method": 5}, AugmentError, "inter_method"),
        ({"aug_seq": "mine"}, LoaderError, "aug_seq names 'mine'"),
        ({"resize": 0}, AugmentError, "would become 0 x 0 pixels"),
        ({**RESIZED, "max_random_area": 0.5}, AugmentError, "min_random_area=1 and max_random_"),
        ({**RESIZED, "max_aspect_ratio": 1.5}, AugmentError, "ratios from -0.5 to 2.5; give a min"),
        ({"dtype": "float64"}, AugmentError, "dtype"),
        ({"data_shape": (4, 12, 16)}, FileFormatError, "3 channels, not 4"),
    ],
)
def test_impossible_parameters_are_refused(folder, parameters, error, words):
    with pytest.raises(error, match=words):
        make(folder, **parameters)


def test_several_files_are_one_stream(folder, tmp_path):
    path = write_records(tmp_path / "b.rec", [png(IMAGES[0])], [99])
    it = make(folder, path_imgrec=f"{folder / 'a.rec'};{path}", batch_size=13)
    assert labels_of(it) == [*range(12), 99]


COLOURS = np.uint8([[104, 179, 38], [51, 230, 46], [172, 47, 117], [192, 67, 251], [9, 9, 9]])


@pytest.mark.parametrize(
    ("kind", "chunk", "grey"),
    [
        ("PNG", b"", [140, 155, 92, 125, 9]),
        ("PNG", b"\0\0\0\1sRGB\0\xae\xce\x1c\xe9", [151, 182, 111, 148, 9]),
        ("PNG", b"\0\0\0\4gAMA\0\0\xb1\x8f\x0b\xfca\x05", [151, 182, 111, 148, 9]),
        ("BMP", b"", [140, 155, 92, 125, 9]),
    ],
)
def test_colours_become_grey_as_the_old_library_weighed_them(tmp_path, kind, chunk, grey):
    found = encoded(COLOURS[:, np.newaxis], kind)
    begin = 33 if chunk else 0  # behind the first chunk
    path = write_records(tmp_path / "x.rec", [found[:begin] + chunk + found[begin:]], [1])
    it = ImageRecordIter(path_imgrec=path, data_shape=(1, 5, 1), batch_size=1)
    assert it.next().data[0].ravel().tolist() == grey


# colour JPEGs of the old build

OLD_JPEG = """
import os, sys, warnings
from labeled.compat.mxnet import ImageRecordIter
for path in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    if "without" in path:
        sys.modules["jpeglib"] = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = [
            ImageRecordIter(
                version=version, path_imgrec=path, data_shape=(3, 48, 64), batch_size=1
            ).next().data[0]
            for version in ("0.9.5", "1.9.1")
        ]
    print(abs(found[0] - found[1]).max(), *(one.message for one in told), flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_colours_of_jpegs_are_enlarged_as_the_old_build_did(tmp_path):
    pytest.importorskip("jpeglib", reason="jpeglib is not installed")
    rough = np.random.default_rng(2).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(rough.repeat(8, axis=0).repeat(8, axis=1))
    cases = {"full": 0, "halved": 2, "halved_without": 2}
    paths = []
    for name, subsampling in cases.items():
        held = io.BytesIO()
        picture.save(held, "jpeg", quality=90, subsampling=subsampling)
        paths.append(write_records(tmp_path / f"{name}.rec", [held.getvalue()], [1]))
    done = subprocess.run(
        [sys.executable, "-c", OLD_JPEG, *paths], capture_output=True, text=True, check=True
    )
    for name, line in zip(cases, done.stdout.splitlines(), strict=True):
        away, *told = line.split(maxsplit=1)
        assert (float(away) > 10) == (name == "halved"), name
        assert ("the extra 'mxnet'" in "".join(told)) == (name == "halved_without"), name
    assert float(away) == 0


# everything recorded from the genuine programs


@pytest.mark.skipif(REFERENCE is None, reason="LABELED_REFERENCE names no folder of recordings")
@pytest.mark.parametrize(
    "case", list(cases(Path(REFERENCE))) if REFERENCE else [], ids=lambda case: case.name
)
def test_recorded_cases_come_out_the_same(case):
    if case.missing:
        pytest.skip(f"the folder lacks {case.missing[0]}")
    found = compare(case)
    assert found.good, found.line()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = write_files(Path(place))
        for case in CASES.values():
            for version in RULES:
                new = some_values(made, version, case["given"])
                same = {} if not case["given"] else CASES["plain"][version]
                case[version] = {key: new.get(key) for key in same | new
                                 if key not in same or new.get(key) != same[key]}  # fmt: skip
    lines = [f'"{name}": {json.dumps(case)}' for name, case in CASES.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
