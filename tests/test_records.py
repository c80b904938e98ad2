"""Record files: written byte for byte as described, opened whatever they hold, damage told."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from record_files import (
    ALIKE,
    IDS,
    MAGIC,
    PICTURES,
    SIZES,
    N,
    encoded,
    exif,
    header,
    picture_records,
    png,
    record,
    record_of_words,
)
from record_files import write_records as made_by_hand

import labeled
from labeled.compat.mxnet.recordio import MXIndexedRecordIO, MXRecordIO, unpack
from labeled.errors import (
    FileChangedError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    LoaderError,
    ReadError,
    UnknownNameError,
    WriteError,
)
from labeled.formats.recordio.writing import write_records
from labeled.spaces import Conv2DSpace

REFERENCE = Path(os.environ.get("LABELED_REFERENCE", "nowhere")) / "rec"
needs_reference = pytest.mark.skipif(
    not REFERENCE.exists(), reason="LABELED_REFERENCE names no folder of genuine record files"
)

payload = st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC)), max_size=4).map(b"".join)
payloads = st.lists(payload, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return picture_records(tmp_path_factory.mktemp("rec"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.rec"


def raw(path):
    """Return the payloads of a file, whatever they hold."""
    found = labeled.open_dataset(path, content="raw")["records"]
    return [one.values.tobytes() for one in found]


# what is written


@given(payloads, st.data())
@example([b""], None)
@example([MAGIC, b"abc" + MAGIC, MAGIC * 3 + b"q", MAGIC[:2] + MAGIC], None)
def test_any_payloads_are_stored_as_described_and_come_back(tmp_path_factory, examples, data):
    path = tmp_path_factory.mktemp("rec") / "x.rec"
    assert write_records(path, examples) == len(examples)

    stored = [record_of_words(one) for one in examples]
    assert path.read_bytes() == b"".join(stored)
    offsets = np.cumsum([0, *map(len, stored)]).tolist()
    assert path.with_suffix(".idx").read_text().split()[1::2] == list(map(str, offsets[:-1]))
    assert raw(path) == examples
    if data is not None:
        rows = data.draw(st.lists(st.integers(0, len(examples) - 1), max_size=20))
        found = labeled.open_dataset(path, content="raw").subset(rows)["records"]
        assert [one.values.tobytes() for one in found] == [examples[row] for row in rows]
    with contextlib.closing(MXRecordIO(str(path), "r")) as old:
        assert [old.read() for _ in range(len(examples) + 1)] == [*examples, None]


def test_the_old_reader_finds_labels_ids_and_keys(path):
    labels = [1.5, [1, 2, 3], np.array([4.0]), 2]
    assert write_records(path, [b"a", b"bb", MAGIC, b""], labels, ids=[7, 5, 2**63, 9]) == 4
    with contextlib.closing(MXIndexedRecordIO(str(path)[:-4] + ".idx", str(path), "r")) as old:
        assert old.keys == [7, 5, 2**63, 9]
        found, payload = unpack(old.read_idx(5))
        assert (found.flag, found.label.tolist(), found.id, payload) == (3, [1, 2, 3], 5, b"bb")
        found, payload = unpack(old.read_idx(2**63))
        assert (found.flag, found.label.tolist(), payload) == (1, [4.0], MAGIC)
        assert unpack(old.read_idx(9)) == ((0, 2.0, 9, 0), b"")
    ds = labeled.open_dataset(path, content="labelled")
    assert ds["ids"].values.tolist() == [7, 5, 2**63, 9]
    assert [one.values.tolist() for one in ds["labels"]] == [[1.5], [1, 2, 3], [4], [2]]
    assert [one.values.tobytes() for one in ds["encoded"]] == [b"a", b"bb", MAGIC, b""]


@pytest.mark.parametrize("threads", [0, 3])
def test_pictures_are_encoded_in_order(path, threads):
    def refilled():
        held = np.empty_like(ALIKE[0])
        for image in ALIKE:
            held[:] = image
            yield held

    write_records(path, refilled(), range(N), format=".png", threads=threads)
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds["images"].values, ALIKE)
    np.testing.assert_array_equal(ds["labels"].values, range(N))


@pytest.mark.parametrize(
    ("examples", "options", "words"),
    [
        ([b"1", b"2"], {"labels": [1]}, "examples, labels and ids differ in number"),
        ([b"1"], {"labels": [1], "ids": [1, 2]}, "differ in number: zip"),
        ([b"1"], {"ids": [-1]}, "record 0: labels 0 with id -1"),
        ([b"1"], {"labels": ["cat"]}, "record 0: labels 'cat'"),
        ([b"1", "text"], {}, "record 1: str is neither bytes nor a picture"),
        ([np.zeros((2, 2, 2), "u1")], {}, "is not a picture"),
        ([np.zeros((2, 2), "u1")], {"format": ".exe"}, "must be one of '.jpg'"),
        ([np.zeros((2, 2), "u1")], {"quality": 101}, "quality=101 must be at most 100"),
        ([memoryview(np.zeros(1 << 29, "u1"))], {}, "record 0 .*too long"),
        ([b"a", b"b"], {"labels": [1, 2**24 + 1]}, "record 1: the label .* would be rounded"),
        ([b"a", b"b"], {"labels": [1, [0, -(2**53) - 2]]}, "record 1: .* would be rounded"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(path, tmp_path, examples, options, words):
    with pytest.raises(WriteError, match=words):
        write_records(path, examples, **options)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_there_stay(path, tmp_path):
    write_records(path, [b"old"])
    with pytest.raises(WriteError, match="exists already"):
        write_records(path, [b"new"])
    os.unlink(path)
    with pytest.raises(WriteError, match=r"x\.idx' exists already"):
        write_records(path, [b"new"])
    with pytest.raises(WriteError, match="index"):
        write_records(str(tmp_path / "y.idx"), [b"new"])

    def failing():
        yield b"new"
        raise RuntimeError("no more")

    write_records(path, [b"old"], overwrite=True)
    with pytest.raises(RuntimeError, match="no more"):
        write_records(path, failing(), overwrite=True)
    assert path.read_bytes() == record(b"old")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.idx", "x.rec"]


# what is there


def test_pictures_of_many_sizes_are_ragged(folder):
    ds = labeled.open_dataset(folder / "mixed.rec")
    assert ds.sources == ("ids", "images", "labels")
    assert ds.dims["images"] == ("batch", "height", "width", "channel")
    images = ds["images"]
    assert images.shapes.tolist() == [list(size) for size in SIZES]
    np.testing.assert_array_equal(ds["ids"].values, IDS)
    np.testing.assert_array_equal(ds["labels"].values, np.arange(N, dtype=np.float32) / 2)
    for found, wanted in zip(images, PICTURES, strict=True):
        np.testing.assert_array_equal(found.values, wanted)
    taken = images[[7, 3, 7]].flat().examples()
    for found, row in zip(taken, (7, 3, 7), strict=True):
        np.testing.assert_array_equal(found, PICTURES[row])
    padded = next(iter(ds.select("images").batches(4, ragged="pad")))
    assert padded.arrays["images"].shape[:2] == (4, max(height for height, _, _ in SIZES[:4]))


def test_pictures_that_are_alike_are_one_array(folder):
    ds = labeled.open_dataset(folder / "alike.rec")
    np.testing.assert_array_equal(ds["images"].values, ALIKE)
    np.testing.assert_array_equal(
        ds["images"][[5, 2], 1:, ::2, 1].values, ALIKE[[5, 2], 1:, ::2, 1]
    )
    part = ds.isel(channel=2, height=[4, 1])
    np.testing.assert_array_equal(part["images"].values, ALIKE[..., 2][:, [4, 1]])
    np.testing.assert_array_equal(ds.load()["images"].values, ALIKE)
    space = Conv2DSpace(shape=(8, 6), num_channels=3, axes=("c", 0, 1, "b"))
    first = next(iter(ds.batches(10, specs=(space, "images"), dtype="float32", scale=1 / 255)))
    np.testing.assert_allclose(first, ALIKE[:10].transpose(3, 1, 2, 0) / 255, rtol=1e-6)


def test_labels(folder):
    wanted = np.arange(4) + np.arange(N)[:, None]
    ds = labeled.open_dataset(folder / "several.rec")
    assert ds.dims["labels"] == ("batch", "label")
    np.testing.assert_array_equal(ds["labels"].values, wanted)
    np.testing.assert_array_equal(ds.isel(label=[3, 0])["labels"].values, wanted[:, [3, 0]])
    found = labeled.open_dataset(folder / "differing.rec")["labels"].to_objects()
    for i in range(N):
        wanted = np.arange(i % 4) + i if i % 4 else [0]  # no labels: the header's own
        np.testing.assert_array_equal(found[i], wanted)
    ds = labeled.open_dataset(folder / "alike.rec", label_dtype="int64")
    assert ds["labels"].dtype == np.int64
    np.testing.assert_array_equal(ds["labels"].values, np.arange(N) % 7)
    with pytest.raises(FileFormatError, match=r"30 labels, 0.5 among them, are not int64"):
        labeled.open_dataset(folder / "mixed.rec", label_dtype=int)["labels"].values  # noqa: B018


def test_bytes_on_request_and_records_of_any_bytes(folder):
    ds = labeled.open_dataset(folder / "alike.rec", sources=("encoded", "labels"))
    assert ds.sources == ("encoded", "labels")
    assert ds["encoded"][9].values.tobytes() == png(ALIKE[9])
    assert labeled.open_dataset(folder / "bytes.rec").sources == ("records",)
    assert raw(folder / "bytes.rec") == [bytes([i]) * i for i in range(N)]
    told = labeled.open_dataset(folder / "alike.rec", content="labelled")
    assert told.sources == ("encoded", "ids", "labels")
    with pytest.raises(UnknownNameError, match=r"'encoded'.*ask for it by name"):
        labeled.open_dataset(folder / "alike.rec")["encoded"]


def test_files_are_joined(folder):
    both = labeled.open_dataset([folder / "mixed.rec", folder / "alike.rec"])
    for batch in both.batches(50, shuffle=True, seed=2):
        for row, found in zip(batch.rows, batch.arrays["images"], strict=True):
            np.testing.assert_array_equal(found, [*PICTURES, *ALIKE][row])


def test_scattered_pictures_far_apart_and_one_stored_in_two_parts(path):
    images = np.random.default_rng(0).integers(0, 256, (120, 6, 9, 3), np.uint8)
    examples = [png(image) + bytes(6000 * (i % 9)) for i, image in enumerate(images)]
    examples[50] += bytes(-len(examples[50]) % 4) + MAGIC  # stored in two parts
    write_records(path, examples, range(120))
    rows = np.append(np.arange(0, 120, 2), 119)
    ds = labeled.open_dataset(path).subset(rows)
    for batch in ds.batches(40, shuffle=True, seed=3, memory="6 MiB", errors="skip"):
        np.testing.assert_array_equal(batch["images"], images[rows[batch.rows]])


def test_pickles_are_small_and_hold_no_index(folder):
    for name in ("mixed.rec", "alike.rec"):
        ds = labeled.open_dataset([folder / name] * 20)
        loader = ds.batches(16, memory="16 MiB")
        assert list(loader)
        assert len(pickle.dumps(loader)) < 20_000  # shapes alone take 24 bytes a row
        again = pickle.loads(pickle.dumps(loader))
        np.testing.assert_array_equal(next(iter(again)).arrays["ids"], IDS[:16])


# how pictures are asked for


def test_grey_colour_and_alpha(folder):
    for channels in (1, 3, 4):
        ds = labeled.open_dataset(folder / "mixed.rec", channels=channels)
        assert set(ds["images"].shapes[:, 2]) == {channels}
        wanted = np.repeat(PICTURES[5], channels, axis=2)  # a grey one
        if channels == 4:
            wanted[..., 3] = 255
        np.testing.assert_array_equal(ds["images"][5].values, wanted)
        alike = labeled.open_dataset(folder / "alike.rec", channels=channels)
        assert alike.shapes["images"] == (N, 8, 6, channels)


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


def test_a_picture_is_turned_upright_unless_asked_not_to(path):
    lying = encoded(np.zeros((4, 10, 3), np.uint8), "JPEG", exif=exif(6))
    made_by_hand(path, [lying])
    assert labeled.open_dataset(path).shapes["images"] == (1, 10, 4, 3)
    asis = labeled.open_dataset(path, upright=False)
    assert asis["images"].values.shape == asis.shapes["images"] == (1, 4, 10, 3)


@pytest.mark.parametrize("threads", [0, 3])
def test_jpegs_go_directly_to_batches_past_those_that_need_more(path, threads):
    soft = [cv2.resize(one, (44, 32), interpolation=cv2.INTER_CUBIC) for one in ALIKE]
    examples = [encoded(one, "JPEG") for one in soft]
    examples[3] = png(soft[3])
    examples[7] = encoded(soft[7][::-1, ::-1].copy(), "JPEG", exif=exif(3))
    examples[8] = encoded(soft[8], "JPEG", quality=40)
    examples[12] = examples[12][:-300]
    made_by_hand(path, examples, [[1.0, 2.0]] * N)
    wanted = [np.frombuffer(one, np.uint8) for one in examples]
    wanted = [None if i == 12 else cv2.imdecode(one, 1)[..., ::-1] for i, one in enumerate(wanted)]
    ds = labeled.open_dataset(path)
    assert ds.shapes["images"] == (N, 32, 44, 3)
    with pytest.raises(ReadError, match=r"row 12 \(id 130\): the JPEG is cut short"):
        list(ds.batches(8, threads=threads))
    for shuffle in (False, True):
        loader = ds.batches(8, threads=threads, shuffle=shuffle, seed=2, errors="skip")
        with pytest.warns(LabeledWarning, match="1 row is left out"):
            batches = list(loader)
        seen = [row for batch in batches for row in batch.rows.tolist()]
        assert sorted(seen) == [i for i in range(N) if i != 12]
        for batch in batches:
            for row, image in zip(batch.rows, batch.arrays["images"], strict=True):
                np.testing.assert_array_equal(image, wanted[row])


# what is wrong


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """Pictures of which four cannot be decoded, each for another reason."""
    examples = [png(one) for one in ALIKE]
    examples[25] = examples[1][:16] + struct.pack(">II", 100_000, 100_000) + examples[1][24:]
    examples[11], examples[0] = b"not a picture", b"nor is this"
    examples[40] = examples[40][:-40]
    return made_by_hand(tmp_path_factory.mktemp("rec") / "spoilt.rec", examples, range(N), IDS)


@pytest.mark.parametrize("shape", [None, (8, 6)])
def test_a_picture_that_is_none_is_named(spoilt, shape):
    ds = labeled.open_dataset(spoilt, shape=shape, channels=3)
    words = r"'images' in .*spoilt.rec', row 0 \(id 100\): Pillow does not open it.*errors='skip'"
    with pytest.raises(ReadError, match=words):
        list(ds.batches(8))
    with pytest.raises(ReadError, match=r"row 25 \(id 175\): it claims 100,000 x 100,000 pixels"):
        ds.subset([25]).load()
    with pytest.raises(ReadError, match=r"row 40 \(id 220\): the PNG cannot be decoded"):
        ds.subset([40]).load()


@pytest.mark.parametrize("as_ragged", [False, True])
def test_pictures_that_are_none_are_left_out_on_request(spoilt, folder, as_ragged):
    ds = labeled.open_dataset([spoilt, folder / "mixed.rec"] if as_ragged else spoilt)
    loader = ds.batches(8, errors="skip", shuffle=True, seed=4)
    with pytest.warns(LabeledWarning, match=r"1 row is left out"):
        batches = list(loader)
    rows = np.concatenate([batch.rows for batch in batches])
    assert sorted(set(range(len(ds))) - set(rows)) == [0, 11, 25, 40]
    assert loader.stats().n_lost == 4
    for batch in batches:
        for row, image in zip(batch.rows, batch.arrays["images"], strict=True):
            np.testing.assert_array_equal(image, [*ALIKE, *PICTURES][row])
    with pytest.warns(LabeledWarning), pytest.raises(ReadError, match=r"2 of the .* max_lost=1"):
        list(ds.batches(8, errors="skip", max_lost=1))


def test_a_picture_that_says_it_is_huge_is_named_where_memory_is_too_small(path):
    huge = bytearray(png(PICTURES[1]))
    huge[16:24] = struct.pack(">II", 9000, 9000)
    huge[29:33] = struct.pack(">I", zlib.crc32(bytes(huge[12:29])))
    made_by_hand(path, [PICTURES[0], PICTURES[2], bytes(huge), PICTURES[3]], range(4), range(4))
    ds = labeled.open_dataset(path).subset([3, 2, 0, 1])
    words = r"a subset without row 1 of source 'images' in .*x.rec', which takes 231.74 MiB"
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
        ({"label_dtype": "S3"}, LoaderError, "label_dtype"),
    ],
)
def test_options_that_mean_nothing_are_refused(folder, options, error, words):
    with pytest.raises(error, match=words):
        labeled.open_dataset(folder / "mixed.rec", **options)


WHOLE = record(b"first") + record_of_words(MAGIC) + record(b"third")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no records, only text", "record 0 of .*x.rec', at byte 0, is damaged: it begins with"),
        (WHOLE[:-1], r"record 2 of .* at byte 32, .*claims 5 bytes, 1 more than the file has"),
        (WHOLE[:-12], "record 2 .*4 bytes are left"),
        (WHOLE[:24], "record 1 .*0 bytes are left"),
        (WHOLE[:16] + MAGIC + b"\0\0\0\x40", "record 1 .*part of kind 2 out of its order"),
        (WHOLE[:16] + MAGIC + b"\xff\xff\xff\x1f", "claims 536,870,911 bytes"),
        (WHOLE + bytes(8), "record 3 .*begins with 0x00000000"),
        (b"", "is empty"),
    ],
)
def test_damage_is_found_when_a_file_is_gone_through(path, data, words):
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"\.idx' is empty"),
        ("\n", "lists 0 records"),
        ("0\t16\n1\t32\n", "2 records from byte 16 to 32, which do not fill its 48 bytes; make it"),
        ("0\t0\n1\t16\n2\t999\n", "from byte 0 to 999"),
        ("0\t0\n1\t18\n2\t32\n", "not the index"),
        ("0\t0\n1\t16\n", "record 1 .*ends 16 bytes before the next one of the index"),
        ("0\t0\n1\t36\n", "record 0 .*ends 20 bytes before"),
        ("0\n", "cannot read the index .*; make it again, or remove it"),
        ("0\t0\n1\tx\n", "cannot read the index .* 'x' to int64 at row 1"),
        (f"0\t0\n1\t{'9' * 30}\n", "cannot read the index"),
    ],
)
def test_an_index_of_something_else_is_refused(path, text, words):
    path.write_bytes(WHOLE)
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(path)
    path.with_suffix(".idx").unlink()
    assert raw(path) == [b"first", MAGIC, b"third"]


def test_an_index_in_another_order_or_without_a_record(path):
    path.write_bytes(record(b"first") + record(b"second") + record(b"third"))
    path.with_suffix(".idx").write_text("2\t32\n0\t0\n1 16\n")
    assert raw(path) == [b"first", b"second", b"third"]
    path.with_suffix(".idx").write_text("0\t0\n2\t32\n")
    with pytest.raises(FileFormatError, match=r"record 0 .*the index leaves records out"):
        labeled.open_dataset(path)


@pytest.mark.parametrize("swapped", [False, True])
def test_an_index_left_by_another_version_of_the_file_is_reported_on_opening(tmp_path, swapped):
    """As a crash between the renaming of a record file and of its index leaves them."""
    same = [png(ALIKE[i]) for i in range(12)]
    longer = [*same[:8], same[8] + bytes(len(same[9]) + 32), *same[10:]]  # two in the place of one
    paths = [tmp_path / "old.rec", tmp_path / "new.rec"]
    for path, examples in zip(paths, (same, longer), strict=True):
        write_records(path, examples, np.arange(len(examples)))
    assert len({path.stat().st_size for path in paths}) == 1
    path, other = reversed(paths) if swapped else paths
    path.with_suffix(".idx").write_bytes(other.with_suffix(".idx").read_bytes())
    words = r"record [89] .*\.idx' is of another file.*remove it"
    with pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(path)
    path.with_suffix(".idx").unlink()
    assert len(labeled.open_dataset(path)["labels"]) == (11 if swapped else 12)


def test_headers_that_are_none(path):
    for payload, words in (
        (b"\xff\xff\xff\xff" + bytes(30), "record 1 .*claims 4,294,967,295 labels"),
        (b"short", "record 1 .* has 5 bytes, where a header alone .*content='raw'"),
    ):
        path.write_bytes(record(header(1, 2) + b"fine") + record(payload))
        with pytest.raises(FileFormatError, match=words):
            labeled.open_dataset(path, content="labelled")


@settings(max_examples=60)
@given(data=st.data())
def test_any_damage_ends_in_an_error_of_ours_or_in_rows(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "x.rec"
    made_by_hand(path, list(ALIKE[:6]))
    stored = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(stored) - 1))
        width = data.draw(st.sampled_from([1, 4, 8]))
        stored[at : at + width] = data.draw(st.binary(min_size=width, max_size=width))
    path.write_bytes(stored[: data.draw(st.integers(len(stored) // 2, len(stored)))])
    if data.draw(st.booleans()):
        path.with_suffix(".idx").unlink(missing_ok=True)
    content = data.draw(st.sampled_from(["auto", "images", "labelled", "raw"]))
    with contextlib.suppress(LabeledError):
        ds = labeled.open_dataset(path, content=content)
        for batch in ds.batches(4, memory="64 MiB", threads=0):
            assert len(batch.rows) <= 4


# genuine files


@needs_reference
@pytest.mark.parametrize(
    "name", ["photos_single", "photos_multi", "photos_im2rec", "digits250_png", "framing_magic"]
)
def test_genuine_files_are_written_again_byte_for_byte(tmp_path, name):
    genuine, again = REFERENCE / f"{name}.rec", tmp_path / f"{name}.rec"
    if name == "framing_magic":
        examples = raw(genuine)
        told = json.loads((REFERENCE / "framing_magic.payloads.json").read_text())
        assert examples == list(map(bytes.fromhex, told))
        write_records(again, examples)
    else:
        ones = list(map(unpack, raw(genuine)))
        labels, ids = (h.label for h, _ in ones), (h.id for h, _ in ones)
        write_records(again, (one for _, one in ones), labels, ids)

    assert again.read_bytes() == genuine.read_bytes()
    listed = [one.with_suffix(".idx").read_text().split() for one in (genuine, again)]
    assert listed[0][1::2] == listed[1][1::2]


@needs_reference
def test_genuine_files():
    single = labeled.open_dataset(REFERENCE / "photos_single.rec")
    sizes = "96x96 80x128 97x131 120x80 90x135 40x48 107x160 100x150 64x64 85x128 96x96 76x96"
    wanted = [list(map(int, size.split("x"))) for size in sizes.split()]
    assert single["images"].shapes[:, :2].tolist() == wanted
    np.testing.assert_array_equal(single["ids"].values, np.arange(10, 130, 10))
    np.testing.assert_array_equal(single["labels"].values, np.arange(12) + 0.25)
    lossless = labeled.open_dataset(REFERENCE / "photos_png.rec")
    for one, other in zip(single["images"], lossless["images"], strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    digits = labeled.open_dataset(REFERENCE / "digits250_png.rec", label_dtype="int64")
    assert digits.shapes["images"] == (250, 28, 28, 1)
    assert labeled.open_dataset(REFERENCE / "photos_multi.rec").shapes["labels"] == (12, 4)
    assert labeled.open_dataset(REFERENCE / "photos_rgba_png.rec")["images"].shapes[0, 2] == 4
    words = labeled.open_dataset(REFERENCE / "dmlc_core_sample.rec", content="labelled")
    assert words["encoded"][0].values.tobytes() == b"1\n" * 10
    assert words["labels"].values.tolist() == [1, 0] * 5


def test_a_changed_file_is_not_read_on(path):
    Path(path).write_bytes(record(b"1") + record(b"2"))
    ds = labeled.open_dataset(path)
    assert ds["records"][1].values.tobytes() == b"2"
    Path(path).write_bytes(record(b"1") + record(b"2") + record(b"3"))
    with pytest.raises(FileChangedError):
        list(ds.batches(1))
