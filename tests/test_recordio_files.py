"""Record files on the disk: indices, reading by row, lists, writing; damage is told in words."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import record_files
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.compat.mxnet.recordio import MXIndexedRecordIO, MXRecordIO
from labeled.compat.mxnet.recordio import unpack as old_unpack
from labeled.errors import FileChangedError, FileFormatError, UnknownNameError, WriteError
from labeled.formats.bytesource import stamp_of
from labeled.formats.pictures import decode
from labeled.formats.recordio import records
from labeled.formats.recordio.framing import MAGIC_BYTES, frame
from labeled.formats.recordio.lists import read_list
from labeled.formats.recordio.records import RecordFile, offsets_of, read_idx, table_of
from labeled.formats.recordio.writing import write_records

REFERENCE = os.environ.get("LABELED_REFERENCE")
needs_reference = pytest.mark.skipif(
    REFERENCE is None, reason="LABELED_REFERENCE names no folder of genuine record files"
)

payloads = st.lists(
    st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC_BYTES)), max_size=4).map(b"".join),
    min_size=1,
    max_size=12,
)


def record_file(path: str, idx: bool = True) -> RecordFile:
    return RecordFile(stamp_of(path), stamp_of(path[:-4] + ".idx") if idx else None)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.rec")


# reading and writing


@given(examples=payloads, data=st.data())
def test_any_payloads_come_back_in_any_order(tmp_path_factory, examples, data):
    path = str(tmp_path_factory.mktemp("rec") / "x.rec")
    assert write_records(path, examples) == len(examples)
    rows = data.draw(st.lists(st.integers(0, len(examples) - 1), max_size=20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "READ_BYTES", data.draw(st.sampled_from([1, 40, 1 << 20])))
        patch.setattr(records, "STREAM_BYTES", data.draw(st.sampled_from([8, 24, 1 << 18])))
        for idx in (True, False):
            file = record_file(path, idx)
            found = [(row, bytes(one)) for row, one in file.payloads(np.array(rows, np.int64))]
            assert found == [(row, examples[row]) for row in rows]
    old = MXRecordIO(path, "r")
    assert [old.read() for _ in examples] == examples
    assert old.read() is None
    old.close()


@given(examples=payloads, data=st.data())
def test_blocks_hold_the_rows_asked_for_however_they_lie(tmp_path_factory, examples, data):
    path = str(tmp_path_factory.mktemp("rec") / "x.rec")
    write_records(path, examples)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(examples) - 1)] * 2)))
    ways = (st.just, st.permutations, lambda run: st.lists(st.sampled_from(run), max_size=20))
    rows = data.draw(data.draw(st.sampled_from(ways))(range(first, last + 1)).map(list))
    file = record_file(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "READ_BYTES", data.draw(st.sampled_from([40, 1 << 20])))
        found = list(file.blocks(file.placed(np.array(rows, np.int64))))
        for numbers, _ in found:
            assert len(numbers) == 1 or file.stored_sizes(numbers).sum() <= records.READ_BYTES
    assert [row for numbers, _ in found for row in numbers] == rows
    assert [bytes(one) for _, some in found for one in some] == [examples[row] for row in rows]


@pytest.mark.parametrize("rows", [[1, 0, 3], [2, 2, 0, 4]])  # as long as what they lie over
def test_rows_that_are_not_side_by_side_are_not_read_as_if_they_were(path, rows):
    write_records(path, [bytes([i] * 4) for i in range(5)])
    found = record_file(path).payloads(np.array(rows))
    assert [bytes(one) for _, one in found] == [bytes([row] * 4) for row in rows]


@given(examples=payloads, n_bytes=st.integers(0, 40))
def test_heads_are_the_beginnings_of_records(tmp_path_factory, examples, n_bytes):
    path = str(tmp_path_factory.mktemp("rec") / "x.rec")
    write_records(path, examples)
    found = record_file(path).heads(range(len(examples)), n_bytes)
    for one, payload in zip(found, examples, strict=True):
        stored = frame(payload)[: 8 + n_bytes]
        assert one.tobytes() == stored.ljust(8 + n_bytes, b"\0")


def test_the_old_reader_finds_labels_ids_and_keys(path, tmp_path):
    labels = [1.5, [1, 2, 3], np.array([4.0]), 2]
    n = write_records(path, [b"a", b"bb", MAGIC_BYTES, b""], labels, ids=[7, 5, 2**63, 9])
    assert n == 4
    old = MXIndexedRecordIO(str(tmp_path / "x.idx"), path, "r")
    assert old.keys == [7, 5, 2**63, 9]
    header, payload = old_unpack(old.read_idx(5))
    assert (header.flag, header.label.tolist(), header.id, payload) == (3, [1, 2, 3], 5, b"bb")
    header, payload = old_unpack(old.read_idx(2**63))
    assert (header.flag, header.label.tolist(), payload) == (1, [4.0], MAGIC_BYTES)
    assert old_unpack(old.read_idx(9)) == ((0, 2.0, 9, 0), b"")
    old.close()
    table = table_of(record_file(path))
    assert table.ids.tolist() == [7, 5, 2**63, 9]
    assert table.widths.tolist() == [1, 3, 1, 1]
    assert table.payload_bytes.tolist() == [1, 2, 4, 0]
    assert table.label_width is None


@pytest.mark.parametrize("threads", [0, 3])
def test_pictures_are_encoded_in_order(path, threads):
    images = np.random.default_rng(1).integers(0, 256, (30, 5, 4, 3), np.uint8)

    def refilled():
        held = np.empty_like(images[0])
        for image in images:
            held[:] = image
            yield held

    write_records(path, refilled(), range(30), format=".png", threads=threads)
    for row, payload in record_file(path).payloads(range(30)):
        header, encoded = old_unpack(bytes(payload))
        assert (header.label, header.id) == (row, row)
        np.testing.assert_array_equal(decode(encoded), images[row])


@pytest.mark.parametrize(
    ("examples", "options", "words"),
    [
        ([b"1", b"2"], {"labels": [1]}, "examples and labels differ in number"),
        ([b"1"], {"labels": [1], "ids": [1, 2]}, "examples and labels, ids differ in number"),
        ([b"1"], {"ids": [-1]}, "record 0: labels 0 with ids -1"),
        ([b"1"], {"ids": ["a"]}, "record 0"),
        ([b"1"], {"labels": ["cat"]}, "record 0: labels 'cat'"),
        ([b"1", "text"], {}, "record 1: str is neither bytes nor a picture"),
        ([np.zeros((2, 2))], {}, "record 0: an array of float64"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(path, tmp_path, examples, options, words):
    with pytest.raises(WriteError, match=words):
        write_records(path, examples, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", [2**24 + 1, -(2**24) - 1, 2**53 + 2, 2**62 + 1])
@pytest.mark.parametrize("form", [int, np.array, lambda label: [0, label]])
def test_whole_labels_that_float32_rounds_are_refused(path, label, form):
    with pytest.raises(WriteError, match=f"record 1: the label {label} would be rounded"):
        write_records(path, [b"a", b"b"], labels=[1, form(label)])
    assert not os.path.exists(path)
    exact = [2**24, -(2**24), 2**60, 0.1]
    write_records(path, [b""] * 4, labels=exact)
    table = table_of(record_file(path))
    assert table.labels.tolist() == [float(np.float32(one)) for one in exact]


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
    assert Path(path).read_bytes() == frame(b"old")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.idx", "x.rec"]
    write_records(path, [b"new"], overwrite=True, index=False)
    assert Path(path).read_bytes() == frame(b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["x.rec"]  # no index of other records
    (tmp_path / "z.idx").write_text("0\t0\n")
    with pytest.raises(WriteError, match=r"z\.idx' exists already"):
        write_records(tmp_path / "z.rec", [b"new"], index=False)


# what reading does not do


def test_a_reader_is_small_in_a_pickle_and_safe_in_threads(path):
    examples = [bytes([i % 256]) * (i % 700) for i in range(3000)]
    write_records(path, examples)
    file = record_file(path)
    assert file.n_rows == 3000
    assert len(pickle.dumps(file)) < 400
    orders = [np.random.default_rng(i).permutation(3000)[:500] for i in range(8)]

    def read(order):
        return [bytes(one) for _, one in pickle.loads(pickle.dumps(file)).payloads(order)]

    with ThreadPoolExecutor(4) as pool:
        for order, found in zip(orders, pool.map(read, orders), strict=True):
            assert found == [examples[i] for i in order]


def test_a_file_that_changed_is_not_read_on(path):
    write_records(path, [b"1", b"2"])
    file = record_file(path)
    assert bytes(file.payload(1)) == b"2"
    with open(path, "ab") as out:
        out.write(frame(b"3"))
    with pytest.raises(FileChangedError):
        file.payload(1)


# damage


def damaged(path: str, data: bytes) -> RecordFile:
    Path(path).write_bytes(data)
    return RecordFile(stamp_of(path))


WHOLE = frame(b"first") + frame(MAGIC_BYTES) + frame(b"third")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"no records here, only text",
            "record 0 of .*x.rec', at byte 0, is damaged: it begins with",
        ),
        (WHOLE[:-1], r"record 2 of .* at byte 32, .*claims 5 bytes, 1 more than the file has"),
        (WHOLE[:-12], "record 2 .*4 bytes are left"),
        (WHOLE[:24], "record 1 .*ends|record 1 .*0 bytes are left"),
        (WHOLE[:16] + MAGIC_BYTES + b"\0\0\0\x40", "record 1 .*part of kind 2 out of its order"),
        (WHOLE[:16] + MAGIC_BYTES + b"\xff\xff\xff\x1f", "claims 536,870,911 bytes"),
        (WHOLE + bytes(4), "record 3 .*4 bytes are left"),
        (WHOLE + bytes(8), "record 3 .*begins with 0x00000000"),
    ],
)
def test_damage_is_found_when_a_file_is_gone_through(path, data, words):
    with pytest.raises(FileFormatError, match=words):
        _ = damaged(path, data).offsets


def test_an_empty_file_holds_no_record(path):
    Path(path).write_bytes(b"")
    assert len(offsets_of(records.FileStamp(path, 0, 0))) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n", "lists no record"),
        ("0\t16\n1\t32\n", "first record begins at byte 16"),
        ("0\t0\n1\t16\n2\t999\n", "a record at byte 999, but the file has 48"),
        ("0\t0\n1\t18\n2\t32\n", "cannot be those of records"),
        ("0\t0\n1\t16\n2\t16\n", "cannot be those of records"),
        ("0\t0\n1\t16\n", "ends at byte 32, but the file has 48"),
        ("0\t0\n1\t36\n", "at byte 36, which it lists last, stands no record"),
        ("0\n", "line 1 of .* is '0'"),
        ("0\t0\n1\tx\n", "line 2 of .*; make it again, or open with index=False"),
        (f"0\t0\n1\t{'9' * 30}\n", "cannot read the index .*; make it again, or open with"),
        (f"0\t0\n1\t{'9' * 5000}\n", "cannot read the index .*; make it again, or open with"),
        ("0\t0\n1\t\x1f18\n", "cannot be those of records"),
    ],
)
def test_an_index_of_something_else_is_refused(path, text, words):
    write_records(path, [b"first", MAGIC_BYTES, b"third"])
    Path(path[:-4] + ".idx").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        _ = record_file(path).offsets


def test_an_index_without_a_byte_names_the_remedy(path):
    write_records(path, [b"abc"])
    empty = Path(path).with_suffix(".idx")
    empty.write_bytes(b"")
    for options in ({}, {"index": str(empty)}):
        with pytest.raises(FileFormatError, match=r"\.idx' is empty .*open with index=False"):
            labeled.open_dataset(path, **options)
    assert labeled.open_dataset(path, index=False).n_rows == 1


def test_a_record_that_an_index_leaves_out_is_missed_when_reading(path):
    write_records(path, [b"first", b"second", b"third"])
    Path(path[:-4] + ".idx").write_text("0\t0\n2\t32\n")
    file = record_file(path)
    assert bytes(file.payload(1)) == b"third"
    with pytest.raises(FileFormatError, match=r"record 0 .*the index leaves records out"):
        file.payload(0)


def test_an_index_in_another_order_names_the_same_records(path):
    write_records(path, [b"first", b"second", b"third"])
    Path(path[:-4] + ".idx").write_text("2\t32\n0\t0\n1 16\n")
    assert [bytes(one) for _, one in record_file(path).payloads(range(3))] == [
        b"first",
        b"second",
        b"third",
    ]


def test_a_header_that_claims_too_many_labels(path):
    write_records(path, [b"fine" * 6, b"\xff\xff\xff\xff" + bytes(30)])
    with pytest.raises(FileFormatError, match=r"record 0 .*claims 1,701,734,758 labels"):
        table_of(record_file(path))
    write_records(path, [b"short"], overwrite=True)
    with pytest.raises(FileFormatError, match=r"record 0 .* has 5 bytes, where a header alone"):
        table_of(record_file(path))


# lists


def test_lists_are_read_as_they_are_written(tmp_path):
    path = tmp_path / "x.lst"
    labels = np.array([[0.1, 2], [3, -4e20]], np.float32)
    record_files.write_list(path, [5, 2**64 - 1], labels, ["a/b c.jpg", "d.jpg"])
    found = read_list(path)
    assert found.ids.tolist() == [5, 2**64 - 1]
    np.testing.assert_array_equal(found.labels, labels)
    assert read_list(path, 1).labels.tolist() == labels[:, :1].tolist()


def test_labels_by_id_and_the_last_of_two_lines_wins(tmp_path):
    path = tmp_path / "x.lst"
    path.write_text("3\t1\ta.jpg\n\n1 2 b.jpg\n3\t7\tc.jpg\n9\t8\n")
    found = read_list(path)
    ids = np.array([3, 1, 9, 3], np.uint64)
    assert found.labels_of(ids, "here")[:, 0].tolist() == [7, 2, 8, 7]
    with pytest.raises(UnknownNameError, match=r"2 of 3 records of here .*x.lst': ids 4, 5; list"):
        found.labels_of(np.array([4, 3, 5], np.uint64), "here")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x\t1\ta.jpg\n", "line 1 .*'x' is not an id"),
        ("1\t1\ta\n-1\t1\ta.jpg\n", "line 2 .*'-1' is not an id"),
        (f"{2**64}\t1\ta\n", "is not an id"),
        ("1\ta.jpg\n", "no label"),
        ("1\t1\t2\ta\n2\t1\tb\n", "line 2 .*it has 1 labels, those before it 2"),
        ("1\t1\tcat\t2\ta.jpg\n", "'cat' is not a label"),
    ],
)
def test_lines_that_are_none_are_named(tmp_path, text, words):
    path = tmp_path / "x.lst"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_list(path)


def test_a_list_with_fewer_labels_than_asked_for(tmp_path):
    path = tmp_path / "x.lst"
    path.write_text("1\t1\ta.jpg\n")
    with pytest.raises(FileFormatError, match="fewer than 2 labels"):
        read_list(path, 2)
    with pytest.raises(FileFormatError, match="cannot read the list"):
        read_list(tmp_path / "none.lst")


# genuine files


@needs_reference
@pytest.mark.parametrize(
    "name", ["photos_single", "photos_multi", "photos_im2rec", "digits250_png", "framing_magic"]
)
def test_genuine_files_are_written_again_byte_for_byte(tmp_path, name):
    assert REFERENCE is not None
    genuine = Path(REFERENCE) / "rec" / f"{name}.rec"
    file = record_file(str(genuine))
    again = str(tmp_path / f"{name}.rec")

    if name == "framing_magic":
        write_records(again, (bytes(one) for _, one in file.payloads(range(file.n_rows))))
    else:
        table = table_of(file)
        ones = [old_unpack(bytes(one)) for _, one in file.payloads(range(file.n_rows))]
        write_records(again, (one for _, one in ones), (h.label for h, _ in ones), table.ids)

    assert Path(again).read_bytes() == genuine.read_bytes()
    keys, offsets = read_idx(str(genuine.with_suffix(".idx")))
    assert read_idx(again[:-4] + ".idx")[1].tolist() == offsets.tolist()
    if name == "framing_magic":
        assert read_idx(again[:-4] + ".idx")[0] == keys


@needs_reference
def test_genuine_lists():
    assert REFERENCE is not None
    folder = Path(REFERENCE) / "rec"
    assert read_list(folder / "photos_im2rec.lst").labels[:, 0].tolist()[:3] == [0, 0, 1]
    three = read_list(folder / "photos_override_3.lst")
    assert three.labels.shape == (12, 3)
    assert three.labels[-1].tolist() == [11, 22, 33.5]
