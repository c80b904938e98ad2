"""Record files as datasets: pictures, labels and ids, however they are asked for."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import record_files
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_records import ALIKE, IDS, PICTURES, SIZES, N, picture_records
from PIL import Image

import labeled
from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    LoaderError,
    OptionError,
    ReadError,
    SplitError,
    UnknownNameError,
)
from labeled.formats.pictures import encode
from labeled.formats.recordio import records as records_module
from labeled.formats.recordio.writing import write_records

REFERENCE = os.environ.get("LABELED_REFERENCE")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return picture_records(tmp_path_factory.mktemp("rec"))


# what is there


def test_pictures_of_many_sizes_are_ragged(folder):
    ds = labeled.open_dataset(folder / "mixed.rec")
    assert ds.sources == ("ids", "images", "labels")
    assert ds.dims["images"] == ("batch", "height", "width", "channel")
    images = ds["images"]
    assert images.shapes.tolist() == [list(size) for size in SIZES]
    np.testing.assert_array_equal(ds["ids"].values, IDS)
    np.testing.assert_array_equal(ds["labels"].values, np.arange(N, dtype=np.float32) / 2)
    assert ds["ids"].dtype == np.uint64
    for found, wanted in zip(images, PICTURES, strict=True):
        np.testing.assert_array_equal(found.values, wanted)
    taken = images[[7, 3, 7]].flat().examples()
    for found, row in zip(taken, (7, 3, 7), strict=True):
        np.testing.assert_array_equal(found, PICTURES[row])


def test_pictures_that_are_alike_are_one_array(folder):
    ds = labeled.open_dataset(folder / "alike.rec")
    assert ds.shapes["images"] == (N, 8, 6, 3)
    np.testing.assert_array_equal(ds["images"].values, ALIKE)
    np.testing.assert_array_equal(
        ds["images"][[5, 2], 1:, ::2, 1].values, ALIKE[[5, 2], 1:, ::2, 1]
    )
    part = ds.isel(channel=2, height=[4, 1])
    np.testing.assert_array_equal(part["images"].values, ALIKE[..., 2][:, [4, 1]])
    np.testing.assert_array_equal(ds.to_xarray()["images"].values, ALIKE)
    np.testing.assert_array_equal(ds.load()["images"].values, ALIKE)


def test_several_labels_a_record(folder):
    wanted = np.arange(4) + np.arange(N)[:, None]
    ds = labeled.open_dataset(folder / "several.rec")
    assert ds.dims["labels"] == ("batch", "label")
    np.testing.assert_array_equal(ds["labels"].values, wanted)
    np.testing.assert_array_equal(ds.isel(label=[3, 0])["labels"].values, wanted[:, [3, 0]])


def test_labels_of_different_numbers_are_ragged(folder):
    ds = labeled.open_dataset(folder / "differing.rec")
    found = ds["labels"].to_objects()
    for i in range(N):
        wanted = np.arange(i % 4) + i if i % 4 else [0]  # no labels: the header's own
        np.testing.assert_array_equal(found[i], wanted)


def test_bytes_on_request_and_records_of_any_bytes(folder):
    ds = labeled.open_dataset(folder / "alike.rec", sources=("encoded", "labels"))
    assert ds.sources == ("encoded", "labels")
    assert ds["encoded"][9].values.tobytes() == encode(ALIKE[9], ".png")
    raw = labeled.open_dataset(folder / "bytes.rec")
    assert raw.sources == ("records",)
    assert [one.values.tobytes() for one in raw["records"]] == [bytes([i]) * i for i in range(N)]
    told = labeled.open_dataset(folder / "alike.rec", content="labelled")
    assert told.sources == ("encoded", "ids", "labels")
    whole = labeled.open_dataset(folder / "alike.rec", content="raw")
    assert whole["records"].sizes[0] == 24 + len(encode(ALIKE[0], ".png"))
    with pytest.raises(UnknownNameError, match=r"'encoded'.*ask for it by name"):
        labeled.open_dataset(folder / "alike.rec")["encoded"]


def test_labels_as_whole_numbers(folder):
    ds = labeled.open_dataset(folder / "alike.rec", label_dtype="int64")
    np.testing.assert_array_equal(ds["labels"].values, np.arange(N) % 7)
    assert ds["labels"].dtype == np.int64
    with pytest.raises(FileFormatError, match=r"30 labels, 0.5 among them, are no int64"):
        labeled.open_dataset(folder / "mixed.rec", label_dtype=int)["labels"].values  # noqa: B018


def test_files_are_joined_and_a_folder_is_opened(folder, tmp_path):
    for name in ("a", "b"):
        os.link(folder / "mixed.rec", tmp_path / f"{name}.rec")
    ds = labeled.open_dataset(tmp_path)
    assert len(ds) == 2 * N
    np.testing.assert_array_equal(ds["ids"].values, [*IDS, *IDS])
    np.testing.assert_array_equal(ds["images"][N + 7].values, PICTURES[7])
    both = labeled.open_dataset([folder / "mixed.rec", folder / "alike.rec"])
    assert both["images"].shapes[-1].tolist() == [8, 6, 3]
    rows = np.array([N + 1, 3, N, 2])
    for found, row in zip(both["images"][rows], rows, strict=True):
        np.testing.assert_array_equal(found.values, [*PICTURES, *ALIKE][row])
    for batch in both.batches(50, shuffle=True, seed=2):
        for row, found in zip(batch.rows, batch.arrays["images"], strict=True):
            np.testing.assert_array_equal(found, [*PICTURES, *ALIKE][row])


# how pictures are asked for


def test_grey_colour_and_alpha(folder):
    for channels in (1, 3, 4):
        ds = labeled.open_dataset(folder / "mixed.rec", channels=channels)
        assert set(ds["images"].shapes[:, 2]) == {channels}
        found = ds["images"][5].values  # a grey one
        wanted = np.repeat(PICTURES[5], channels, axis=2)
        if channels == 4:
            wanted[..., 3] = 255
        np.testing.assert_array_equal(found, wanted)
        assert labeled.open_dataset(folder / "alike.rec", channels=channels).shapes["images"] == (
            (N, 8, 6, channels)
        )


@pytest.mark.parametrize("resize", [None, 4, 16])
@pytest.mark.parametrize("shape", [None, (5, 9), (40, 3)])
def test_pictures_are_resized_and_cut_to_one_shape(folder, resize, shape):
    ds = labeled.open_dataset(folder / "mixed.rec", resize=resize, shape=shape, channels=3)
    sizes = np.array(SIZES)[:, :2]
    if resize is not None:
        sizes = resize * sizes // sizes.min(axis=1, keepdims=True)
    if shape is None:
        np.testing.assert_array_equal(ds["images"].shapes[:, :2], sizes)
        found = [one.values for one in ds["images"]]
    else:
        assert ds.shapes["images"] == (N, *shape, 3)
        found = list(ds["images"].values)
    for one, picture, (height, width) in zip(found, PICTURES, sizes.tolist(), strict=True):
        whole = np.broadcast_to(picture, (*picture.shape[:2], 3))
        grows = (height >= whole.shape[0]) + (width >= whole.shape[1])
        shrinks = height <= whole.shape[0] and width <= whole.shape[1]
        how = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC if grows == 2 else cv2.INTER_LINEAR
        if resize is not None and (height, width) != whole.shape[:2]:
            whole = cv2.resize(np.ascontiguousarray(whole), (width, height), interpolation=how)
        if shape is None:
            np.testing.assert_array_equal(one, whole)
        elif height >= shape[0] and width >= shape[1]:
            y, x = (height - shape[0]) // 2, (width - shape[1]) // 2
            np.testing.assert_array_equal(one, whole[y : y + shape[0], x : x + shape[1]])


def test_a_picture_is_turned_upright_unless_asked_not_to(tmp_path):

    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((4, 10, 3), np.uint8)).save(tmp_path / "x.jpg", exif=exif)
    write_records(tmp_path / "x.rec", [(tmp_path / "x.jpg").read_bytes()], [0])
    assert labeled.open_dataset(tmp_path / "x.rec").shapes["images"] == (1, 10, 4, 3)
    asis = labeled.open_dataset(tmp_path / "x.rec", upright=False)
    assert asis["images"].values.shape == asis.shapes["images"] == (1, 4, 10, 3)


# lists


def test_lists_name_the_rows_of_splits(folder, tmp_path):
    record_files.write_list(tmp_path / "train.lst", IDS[::2][::-1], np.zeros(30), ["x"] * 30)
    record_files.write_list(tmp_path / "rest.lst", IDS[1::2], np.zeros(30), ["x"] * 30)
    splits = {"train": tmp_path / "train.lst", "rest": tmp_path / "rest.lst"}
    ds = labeled.open_dataset(folder / "mixed.rec", splits=splits)
    np.testing.assert_array_equal(ds.split("train")["ids"].values, IDS[::2])
    np.testing.assert_array_equal(ds.split("rest")["ids"].values, IDS[1::2])
    record_files.write_list(tmp_path / "other.lst", [1, 2], [0, 0], ["x", "y"])
    with pytest.raises(SplitError, match=r"'other': none of the 2 ids in .*other.lst"):
        labeled.open_dataset(folder / "mixed.rec", splits={"other": tmp_path / "other.lst"})
    record_files.write_list(tmp_path / "more.lst", [*IDS[1::2], 99_999], np.zeros(31), ["x"] * 31)
    words = r"'more': 1 of 31 ids in '.*more.lst' .* no record of '.*mixed.rec': 99999; open all"
    with pytest.raises(SplitError, match=words):
        labeled.open_dataset(folder / "mixed.rec", splits={"more": tmp_path / "more.lst"})


def test_labels_of_a_list_take_the_place_of_those_in_the_records(folder, tmp_path):
    labels = np.arange(2 * N, dtype=np.float32).reshape(N, 2)
    record_files.write_list(tmp_path / "x.lst", IDS[::-1], labels[::-1], ["x.jpg"] * N)
    ds = labeled.open_dataset(folder / "mixed.rec", label_list=tmp_path / "x.lst")
    np.testing.assert_array_equal(ds["labels"].values, labels)
    one = labeled.open_dataset(
        folder / "mixed.rec", label_list=tmp_path / "x.lst", label_width=1, label_dtype="int32"
    )
    np.testing.assert_array_equal(one["labels"].values, labels[:, 0])
    record_files.write_list(tmp_path / "few.lst", IDS[:50], labels[:50], ["x.jpg"] * 50)
    with pytest.raises(
        UnknownNameError, match=r"10 of 60 records of .*mixed.rec.*few.lst': ids 250"
    ):
        labeled.open_dataset(folder / "mixed.rec", label_list=tmp_path / "few.lst")


def test_a_list_may_begin_with_the_mark_of_a_text_editor(folder, tmp_path):
    record_files.write_list(tmp_path / "x.lst", IDS, np.arange(N), ["x.jpg"] * N)
    (tmp_path / "x.lst").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "x.lst").read_bytes())
    ds = labeled.open_dataset(folder / "mixed.rec", label_list=tmp_path / "x.lst")
    np.testing.assert_array_equal(ds["labels"].values, np.arange(N))


def test_a_width_of_labels_without_a_list_is_refused(folder):
    with pytest.raises(LoaderError, match="label_width=2 counts the labels of a list: pass label_"):
        labeled.open_dataset(folder / "mixed.rec", label_width=2)


def test_a_list_that_changes_is_noticed(folder, tmp_path):
    record_files.write_list(tmp_path / "x.lst", IDS, np.zeros(N), ["x.jpg"] * N)
    record_files.write_list(tmp_path / "y.lst", IDS, np.ones(N), ["x.jpg"] * N)
    first = labeled.open_dataset(folder / "mixed.rec", label_list=tmp_path / "x.lst")
    assert first["labels"].values.sum() == 0
    os.replace(tmp_path / "y.lst", tmp_path / "x.lst")
    second = labeled.open_dataset(folder / "mixed.rec", label_list=tmp_path / "x.lst")
    assert second["labels"].values.sum() == N


# what is wrong


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """Pictures of which three cannot be decoded, each for another reason."""
    examples = [encode(one, ".png") for one in ALIKE]
    header = bytearray(examples[1])
    header[16:24] = b"\0\1\x86\xa0\0\1\x86\xa0"
    examples[11] = b"not a picture"
    examples[0] = b"nor is this"
    examples[25] = bytes(header)
    examples[40] = examples[40][:-40]
    path = tmp_path_factory.mktemp("rec") / "spoilt.rec"
    write_records(path, examples, np.arange(N), IDS)
    return path


@pytest.mark.parametrize("shape", [None, (8, 6)])
def test_a_picture_that_is_none_is_named(spoilt, shape):
    ds = labeled.open_dataset(spoilt, shape=shape, channels=3)
    words = r"'images' in .*spoilt.rec', row 0 \(id 100\): Pillow does not open it.*errors='skip'"
    with pytest.raises(ReadError, match=words):
        for _ in ds.batches(8):
            pass
    with pytest.raises(ReadError, match=r"row 25 \(id 175\): it claims 100,000 x 100,000 pixels"):
        ds.subset([25]).load()
    with pytest.raises(ReadError, match=r"row 40 \(id 220\): the PNG is damaged"):
        ds.subset([40]).load()


@pytest.mark.parametrize("as_ragged", [False, True])
def test_pictures_that_are_none_are_left_out_on_request(spoilt, folder, as_ragged):
    paths = [spoilt, folder / "mixed.rec"] if as_ragged else spoilt
    ds = labeled.open_dataset(paths)
    assert (ds["images"].__class__.__name__ == "Ragged") == as_ragged
    loader = ds.batches(8, errors="skip", shuffle=True, seed=4)
    with pytest.warns(LabeledWarning, match=r"1 rows are left out"):
        batches = list(loader)
    rows = np.concatenate([batch.rows for batch in batches])
    assert sorted(set(range(len(ds))) - set(rows)) == [0, 11, 25, 40]
    assert loader.stats().n_lost == 4
    everything = [*ALIKE, *PICTURES]
    for batch in batches:
        for row, image in zip(batch.rows, batch.arrays["images"], strict=True):
            np.testing.assert_array_equal(image, everything[row])
    with pytest.warns(LabeledWarning), pytest.raises(ReadError, match=r"2 of the .* max_lost=1"):
        list(ds.batches(8, errors="skip", max_lost=1))
    with pytest.warns(LabeledWarning):
        assert sum(b.count for b in ds.batches(8, errors="skip", max_lost=0.07)) == len(ds) - 4


def test_a_picture_that_says_it_is_huge_is_named_where_memory_is_too_small(tmp_path):
    huge = bytearray(record_files.png(PICTURES[1]))
    huge[16:24] = struct.pack(">II", 9000, 9000)
    huge[29:33] = struct.pack(">I", zlib.crc32(bytes(huge[12:29])))
    images = [PICTURES[0], PICTURES[2], bytes(huge), PICTURES[3]]
    path = record_files.write_records(tmp_path / "huge.rec", images, range(4), range(4))
    ds = labeled.open_dataset(path).subset([3, 2, 0, 1])
    words = r"a subset without row 1 of source 'images' in .*huge.rec', which is to take 231.74 MiB"
    with pytest.raises(LoaderError, match=words):
        ds.batches(2, memory="32 MiB")
    assert [b.count for b in ds.subset([0, 2, 3]).batches(2, memory="32 MiB")] == [2, 1]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"channels": 2}, LoaderError, "channels=2"),
        ({"content": "film"}, LoaderError, "content='film'"),
        ({"resize": 0}, LoaderError, "resize=0"),
        ({"shape": 5}, LoaderError, "shape=5"),
        ({"shape": (5, -1)}, LoaderError, "-1"),
        ({"index": None}, LoaderError, "index=None"),
        ({"index": "no.idx"}, FileFormatError, "no.idx"),
        ({"label_dtype": "S3"}, LoaderError, "label_dtype"),
        ({"label_list": "no.lst"}, FileFormatError, "no.lst"),
        ({"splits": "x.lst"}, LoaderError, "splits="),
        ({"sources": ("pictures",)}, UnknownNameError, "pictures"),
        ({"dims": {"images": ("b", "y", "x")}}, DimsError, "4 axes"),
        ({"group": "x"}, OptionError, "group="),
        ({"chanels": 3}, OptionError, "did you mean 'channels'"),
    ],
)
def test_options_that_mean_nothing_are_refused(folder, options, error, words):
    with pytest.raises(error, match=words):
        labeled.open_dataset(folder / "mixed.rec", **options)


def test_an_index_that_is_not_beside_its_file(folder, tmp_path):
    os.link(folder / "alike.rec", tmp_path / "x.rec")
    os.link(folder / "mixed.idx", tmp_path / "x.idx")
    with pytest.raises(FileFormatError, match=r"not the index of .*x.rec.*index=False"):
        labeled.open_dataset(tmp_path / "x.rec")
    for index in (False, folder / "alike.idx"):
        ds = labeled.open_dataset(tmp_path / "x.rec", index=index)
        np.testing.assert_array_equal(ds["images"].values, ALIKE)
    with pytest.raises(LoaderError, match=r"2 files for 1"):
        labeled.open_dataset(tmp_path / "x.rec", index=[folder / "alike.idx"] * 2)


def test_lists_and_labels_of_records_without_ids(folder, tmp_path):
    record_files.write_list(tmp_path / "x.lst", IDS, np.zeros(N), ["x.jpg"] * N)
    with pytest.raises(LoaderError, match="without ids"):
        labeled.open_dataset(folder / "bytes.rec", label_list=tmp_path / "x.lst")
    with pytest.raises(FileFormatError, match=r"record 0 .*content='raw'"):
        labeled.open_dataset(folder / "bytes.rec", content="images")


# genuine files


@pytest.mark.skipif(REFERENCE is None, reason="LABELED_REFERENCE names no folder of record files")
def test_genuine_files():
    assert REFERENCE is not None
    rec = Path(REFERENCE) / "rec"
    single = labeled.open_dataset(rec / "photos_single.rec")
    sizes = "96x96 80x128 97x131 120x80 90x135 40x48 107x160 100x150 64x64 85x128 96x96 76x96"
    wanted = [list(map(int, size.split("x"))) for size in sizes.split()]
    assert single["images"].shapes[:, :2].tolist() == wanted
    np.testing.assert_array_equal(single["ids"].values, np.arange(10, 130, 10))
    np.testing.assert_array_equal(single["labels"].values, np.arange(12) + 0.25)
    lossless = labeled.open_dataset(rec / "photos_png.rec")
    for one, other in zip(single["images"], lossless["images"], strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    digits = labeled.open_dataset(rec / "digits250_png.rec", label_dtype="int64")
    assert digits.shapes["images"] == (250, 28, 28, 1)
    assert labeled.open_dataset(rec / "photos_multi.rec").shapes["labels"] == (12, 4)
    assert labeled.open_dataset(rec / "photos_rgba_png.rec")["images"].shapes[0, 2] == 4
    listed = rec / "photos_override_3.lst"
    three = labeled.open_dataset(rec / "photos_single.rec", label_list=listed)
    assert three["labels"].values[-1].tolist() == [11, 22, 33.5]
    words = labeled.open_dataset(rec / "dmlc_core_sample.rec", content="labelled")
    assert words["encoded"][0].values.tobytes() == b"1\n" * 10
    assert words["labels"].values.tolist() == [1, 0] * 5


def test_many_files_are_gone_through_once_each(tmp_path, monkeypatch):
    for i in range(70):
        write_records(tmp_path / f"{i:02}.rec", list(ALIKE[:2]), [i, i], format=".png", index=False)
    scanned = []
    whole = records_module._scanned
    monkeypatch.setattr(records_module, "_scanned", lambda *a: scanned.append(a) or whole(*a))
    ds = labeled.open_dataset(tmp_path)
    for _ in range(2):
        rows = [batch.rows for batch in ds.batches(16, shuffle=True, seed=1, memory="8 MiB")]
        assert len(np.concatenate(rows)) == 140
    assert len(scanned) == 70


def test_nothing_is_gone_through_that_is_not_asked_for(folder, monkeypatch):
    monkeypatch.setattr(records_module, "_heads_of", None)
    monkeypatch.setattr(records_module, "sizes_by_blocks", None)
    ds = labeled.open_dataset(folder / "mixed.rec", sources=["images"], shape=(7, 7), channels=3)
    assert next(iter(ds.batches(9))).arrays["images"].shape == (9, 7, 7, 3)


@settings(max_examples=60)
@given(data=st.data())
def test_any_damage_ends_in_an_error_of_ours_or_in_rows(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "x.rec"
    write_records(path, list(ALIKE[:6]), range(6), range(6), format=".png")
    stored = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(stored) - 1))
        width = data.draw(st.sampled_from([1, 4, 8]))
        stored[at : at + width] = data.draw(st.binary(min_size=width, max_size=width))
    path.write_bytes(stored[: data.draw(st.integers(len(stored) // 2, len(stored)))])
    index = data.draw(st.sampled_from(["auto", False]))
    content = data.draw(st.sampled_from(["auto", "images", "labelled", "raw"]))
    try:
        ds = labeled.open_dataset(path, index=index, content=content)
        for batch in ds.batches(4, memory="64 MiB", threads=0):
            assert len(batch.rows) <= 4
    except LabeledError:
        pass


@pytest.mark.parametrize("swapped", [False, True])
def test_an_index_left_by_another_version_of_the_file_is_reported_on_opening(tmp_path, swapped):
    """As a crash between the renaming of a record file and of its index leaves them."""
    same = [encode(ALIKE[i], ".png") for i in range(12)]
    longer = [*same[:8], same[8] + bytes(len(same[9]) + 32), *same[10:]]  # two in the place of one
    paths = [tmp_path / "old.rec", tmp_path / "new.rec"]
    for path, payloads in zip(paths, (same, longer), strict=True):
        write_records(path, payloads, np.arange(len(payloads)))
    assert len({path.stat().st_size for path in paths}) == 1
    path, other = reversed(paths) if swapped else paths
    path.with_suffix(".idx").write_bytes(other.with_suffix(".idx").read_bytes())
    with pytest.raises(
        FileFormatError, match=r"record [89] .*\.idx' is of another file.*index=False"
    ):
        labeled.open_dataset(path)
    assert len(labeled.open_dataset(path, index=False)["labels"]) == (11 if swapped else 12)
