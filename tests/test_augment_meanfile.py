"""Mean images in files: three forms, and what is not one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from labeled.errors import ArrayError, FileFormatError, WriteError
from labeled.transforms import read_mean_file, write_mean_file

FORMS = ("newest", "v1", "oldest")
means = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))


@given(means, st.sampled_from(FORMS))
def test_written_then_read_is_equal(tmp_path_factory, mean, form):
    path = tmp_path_factory.mktemp("means") / "mean.bin"
    write_mean_file(path, mean, form=form)
    found = read_mean_file(path)
    assert found.dtype == np.float32
    assert_array_equal(found, mean)


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(WriteError, match=r"folder .*no' does not exist"):
        write_mean_file(tmp_path / "no" / "mean.bin", np.zeros((1, 2, 2)))
    write_mean_file(tmp_path / "mean.bin", np.zeros((1, 2, 2)))
    write_mean_file(tmp_path / "mean.bin", np.ones((1, 2, 2)))  # replaced
    assert read_mean_file(tmp_path / "mean.bin").all()
    assert [path.name for path in tmp_path.iterdir()] == ["mean.bin"]


def test_bytes_of_the_forms(tmp_path):
    mean = np.array([[1.5, 2.0, 3.0]], np.float32)
    head, tail = struct.pack("<QQQ", 0x112, 0, 1), struct.pack("<QQ", 1, 8) + b"mean_img"
    context, values = struct.pack("<iii", 1, 0, 0), struct.pack("<fff", 1.5, 2, 3)
    arrays = {
        "newest": struct.pack("<Iiiqq", 0xF993FAC9, 0, 2, 1, 3),
        "v1": struct.pack("<Iiqq", 0xF993FAC8, 2, 1, 3),
        "oldest": struct.pack("<III", 2, 1, 3),
    }
    for form, array in arrays.items():
        path = tmp_path / form
        write_mean_file(path, mean, form=form)
        assert path.read_bytes() == head + array + context + values + tail
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(FORMS)  # no drafts are left


def test_other_types_become_float32(tmp_path):
    path = tmp_path / "mean.bin"
    array = struct.pack("<Iiiq", 0xF993FAC9, 0, 1, 2) + struct.pack("<iii", 1, 0, 1)
    path.write_bytes(struct.pack("<QQQ", 0x112, 0, 1) + array + struct.pack("<dd", 1.5, -2))
    assert_array_equal(read_mean_file(path), np.array([1.5, -2], np.float32))


@pytest.mark.parametrize("form", FORMS)
def test_files_cut_off_are_refused(tmp_path, form):
    path = tmp_path / "mean.bin"
    write_mean_file(path, np.ones((3, 2, 2), np.float32), form=form)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 24, 5):  # the name at the end is not needed
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"mean\.bin"):
            read_mean_file(path)


def test_headers_that_claim_too_much_are_refused(tmp_path):
    path = tmp_path / "mean.bin"
    head = struct.pack("<QQQ", 0x112, 0, 1)
    dense = struct.pack("<Ii", 0xF993FAC9, 0)
    for array, words in [
        (dense + struct.pack("<iqqiii", 2, 2**40, 2**40, 1, 0, 0), "ends before"),
        (dense + struct.pack("<iqiii", 1, -4, 1, 0, 0), "ends before"),
        (dense + struct.pack("<i", 2**30), "axes"),
        (dense + struct.pack("<iqiii", 1, 1, 1, 0, 77), "type 77"),
        (struct.pack("<Ii", 0xF993FAC9, 2), "storage type 2"),
        (struct.pack("<I", 0xF0000000), "axes"),
    ]:
        path.write_bytes(head + array + bytes(64))
        with pytest.raises(FileFormatError, match=words):
            read_mean_file(path)


def test_what_is_no_mean_image(tmp_path):
    path = tmp_path / "mean.bin"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    with pytest.raises(FileFormatError, match="begins with"):
        read_mean_file(path)
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_mean_file(tmp_path / "none.bin")
    with pytest.raises(ArrayError, match="form="):
        write_mean_file(path, np.ones(3), form="new")
