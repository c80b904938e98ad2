"""Record files by their old names: the old rules, and files that the native reader reads."""

from __future__ import annotations

import os
import pickle
import struct

import cv2
import numpy as np
import pytest

from labeled.compat import mxnet
from labeled.compat.mxnet.recordio import (
    IRHeader,
    MXIndexedRecordIO,
    MXRecordIO,
    pack,
    pack_img,
    rec2idx,
    unpack,
    unpack_img,
)
from labeled.errors import FileFormatError


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.rec")


def written(path, payloads):
    record = MXRecordIO(path, "w")
    for payload in payloads:
        record.write(payload)
    record.close()


def test_records_come_back_one_by_one_then_none(path):
    written(path, [b"", b"a", b"\x0a\x23\xd7\xce"])
    record = MXRecordIO(path, "r")
    assert [record.read() for _ in range(5)] == [b"", b"a", b"\x0a\x23\xd7\xce", None, None]
    record.reset()
    assert record.read() == b""
    record.close()
    record.close()


def test_records_by_key_in_any_order(path, tmp_path):
    idx = str(tmp_path / "x.idx")
    record = MXIndexedRecordIO(idx, path, "w")
    for i in range(255):
        record.write_idx(i, bytes([i]))
    record.close()
    assert (tmp_path / "x.idx").read_text().startswith("0\t0\n1\t12\n")
    record = MXIndexedRecordIO(idx, path, "r")
    assert record.keys == list(range(255))
    for i in np.random.default_rng(0).permutation(255):
        assert record.read_idx(i) == bytes([i])
    with pytest.raises(KeyError):
        record.read_idx(255)
    record.close()


@pytest.mark.parametrize("n_labels", [0, 1, 2, 254])
@pytest.mark.parametrize("n_bytes", [0, 1, 254])
def test_many_labels_are_packed_and_unpacked(n_labels, n_bytes):
    label = np.arange(n_labels, dtype=np.float64) / 7
    header, payload = unpack(pack(IRHeader(99, label, 5, 6), bytes(n_bytes)))
    assert (header.flag, header.id, header.id2, payload) == (n_labels, 5, 6, bytes(n_bytes))
    if n_labels:
        np.testing.assert_array_equal(header.label, label.astype(np.float32))
    else:
        assert header.label == 0.0


@pytest.mark.parametrize("label", [2, 2.0, np.float32(2), np.int64(2), True])
def test_a_number_goes_into_the_header_whatever_the_flag(label):
    stored = pack(IRHeader(7, label, 1, 0), b"x")
    assert stored == struct.pack("<IfQQ", 0, float(label), 1, 0) + b"x"


def test_pictures_are_blue_green_red(path):
    image = np.zeros((4, 5, 3), np.uint8)
    image[..., 0] = 200
    header, found = unpack_img(pack_img(IRHeader(0, 3.0, 1, 0), image, 9, ".png"))
    assert header == (0, 3.0, 1, 0)
    np.testing.assert_array_equal(found, image)
    _, encoded = unpack(pack_img(IRHeader(0, 3.0, 1, 0), image, quality=40))
    options = [cv2.IMWRITE_JPEG_QUALITY, 40]
    assert encoded == cv2.imencode(".jpg", image, options)[1].tobytes()
    assert unpack_img(pack(IRHeader(0, 1, 2, 3), encoded), 0)[1].shape == (4, 5)


def test_pickling_closes_and_opens_again_at_the_beginning(path):
    written(path, [b"1", b"2"])
    record = MXRecordIO(path, "r")
    assert record.read() == b"1"
    copy = pickle.loads(pickle.dumps(record))
    assert not record.is_open
    assert copy.read() == b"1"
    copy.close()


def test_a_fork_may_not_read_on_but_an_index_opens_anew(path, tmp_path, monkeypatch):
    idx = str(tmp_path / "x.idx")
    record = MXIndexedRecordIO(idx, path, "w")
    for i in range(3):
        record.write_idx(i, bytes([i]))
    record.close()
    plain, indexed = MXRecordIO(path, "r"), MXIndexedRecordIO(idx, path, "r")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="Forbidden operation in multiple processes"):
        plain.read()
    assert indexed.read_idx(2) == b"\x02"
    plain.close()
    indexed.close()


def test_what_cannot_be_read_is_reported(path, tmp_path):
    with pytest.raises(ValueError, match="Invalid flag a"):
        MXRecordIO(path, "a")
    with pytest.raises(FileFormatError, match="cannot open"):
        MXRecordIO(path, "r")
    written(path, [b"whole"])
    with open(path, "ab") as out:
        out.write(b"garbage.")
    record = MXRecordIO(path, "r")
    assert record.read() == b"whole"
    with pytest.raises(FileFormatError, match="Invalid RecordIO File"):
        record.read()
    record.close()
    with pytest.raises(FileFormatError, match="is closed"):
        record.read()


@pytest.mark.parametrize(
    "line", [b";\t8", b"1 8", b"1\t8`", b"\xec\t8", b"", b"1\t-4", b"1\t" + b"9" * 30]
)
def test_a_line_that_is_none_of_an_index_is_reported(path, tmp_path, line):
    written(path, [b"whole"])
    (tmp_path / "x.idx").write_bytes(b"0\t0\n" + line + b"\n")
    with pytest.raises(
        FileFormatError, match=r"line 2 of .*x\.idx', .* not a key, a tab and an offset"
    ):
        MXIndexedRecordIO(str(tmp_path / "x.idx"), path, "r")


def test_records_without_room_for_their_header_are_reported():
    with pytest.raises(FileFormatError, match="has 4 bytes, where a header alone takes 24"):
        unpack(b"tiny")
    with pytest.raises(FileFormatError, match="claims 3 labels, more than its 32 bytes hold"):
        unpack(pack(IRHeader(0, [1, 2, 3], 7, 0), b"")[:-4])


def test_old_code_catches_what_it_caught(tmp_path):
    for wrong in (
        lambda: mxnet.recordio.MXRecordIO(str(tmp_path / "none.rec"), "r"),
        lambda: mxnet.io.CSVIter(data_csv=str(tmp_path / "none.csv"), data_shape=1, batch_size=1),
        lambda: mxnet.io.CSVIter(data_shape=1, batch_size=1),
    ):
        with pytest.raises(mxnet.base.MXNetError):
            wrong()


def test_an_index_is_made_of_a_record_file(path, tmp_path):
    written(path, [b"", b"abcde", b"\x0a\x23\xd7\xce"])
    rec2idx(path, str(tmp_path / "x.idx"))
    assert (tmp_path / "x.idx").read_text() == "0\t0\n1\t8\n2\t24\n"
