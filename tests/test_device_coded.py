"""Stored chunks decoded as a device would: the rows and the damage that the host finds."""

from __future__ import annotations

import zlib

import h5py
import numpy as np
import payload_files
import pytest
from coded_files import CODECS, damaged, flip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from payload_files import header_of, layouts, read_with_h5py, rows_of, runs, write

from labeled.device import HostDevice, adler32
from labeled.errors import ReadError
from labeled.formats.coded import CodedWindow, coded_of, joined_rows
from labeled.formats.hdf5.payload import open_reader
from labeled.loader.devices.decoding import DeviceDecoding


def decoded_rows(reader, wanted):
    """Return the rows of runs, decoded as a device would; None where the host must do it."""
    coded = coded_of(reader)
    if isinstance(coded, str):
        return coded
    parts = coded.parts(wanted)
    window = CodedWindow(coded.coding, wanted, parts, joined_rows(parts, coded.coding.chunk_rows))
    device = HostDevice()
    memory = device.empty((window.packed_bytes,), np.dtype(np.uint8))
    for task in window.tasks(memory):
        task()
    there = DeviceDecoding(device, device.copy_stream(), {})
    packed = there.upload(memory, len(memory))
    target = np.empty((len(window.rows), *reader.row_shape), reader.dtype)
    n_bad = np.ones(1, np.int64)
    there.decode(packed, window, window.n_bands, target, n_bad).check()
    frames = window.found().frames
    assert not (frames.starts % 4).any(), "decoders of a device want them aligned"
    return target


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_are_those_of_h5py(tmp_path, data):
    codec = data.draw(st.sampled_from(["gzip", "zstd", "lz4"]))
    layout = data.draw(layouts(compression=codec))
    path = write(tmp_path, layout)
    wanted = data.draw(runs(layout.shape[0]))
    wanted = wanted[wanted[:, 0] < wanted[:, 1]]
    if not len(wanted):  # no window is empty
        return
    found = decoded_rows(open_reader(header_of(path)), wanted)
    if layout.dtype[0] in "S>":
        assert isinstance(found, str)
        return
    np.testing.assert_array_equal(found, read_with_h5py(path)[rows_of(wanted)])


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_chunks_that_skipped_a_filter_travel_decoded(tmp_path, codec):
    path = tmp_path / "masked.h5"
    data = np.arange(60, dtype="<i4").reshape(15, 4)
    options = {**CODECS[codec], "fletcher32": False, "shuffle": True}
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", data=data, chunks=(5, 4), **options)
        x.id.write_direct_chunk((5, 0), data[5:10].tobytes(), 0b11)  # neither filter
        planes = np.ascontiguousarray(data[10:].view("u1").reshape(20, 4).T)
        x.id.write_direct_chunk((10, 0), planes.tobytes(), 0b10)  # shuffled, not packed
    found = decoded_rows(open_reader(header_of(path)), np.array([[1, 15]]))
    np.testing.assert_array_equal(found, data[1:])
    np.testing.assert_array_equal(found, read_with_h5py(path)[1:])


@pytest.mark.parametrize(
    ("codec", "fletcher32", "place"),
    [
        ("gzip", False, 0),  # zlib's head
        ("gzip", False, 1),
        ("gzip", False, -1),  # zlib's checksum
        ("gzip", False, 40),
        ("gzip", True, 40),
        ("zstd", False, 1),
        ("zstd", True, -1),
        ("lz4", False, 3),
        ("lz4", False, 9),
        ("lz4", False, 15),
    ],
)
def test_damage_is_told_as_the_host_tells_it(tmp_path, codec, fletcher32, place):
    layout = payload_files.Layout("<i4", (30, 40), (10, 40), codec, fletcher32=fletcher32)
    path = write(tmp_path, layout)
    at = damaged(path, 1, flip(place))
    reader = open_reader(header_of(path))
    words = rf"source 'x' in '.*', rows 10 to 19: the chunk at byte {at} is damaged: .*Copy"
    with pytest.raises(ReadError, match=words):
        decoded_rows(reader, np.array([[3, 25]]))
    with pytest.raises(ReadError, match=words):
        reader.read(range(3, 25))


def test_a_literal_that_changed_shows_in_the_checksum(tmp_path):
    """Bytes that decode to as many as belong, but to others."""
    path = tmp_path / "x.h5"
    data = np.random.default_rng(0).integers(0, 256, (20, 500)).astype("u1")
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=data, chunks=(10, 500), compression="gzip")
    damaged(path, 1, flip(2500))  # noise is stored as it is
    with pytest.raises(ReadError, match=r"rows 10 to 19: .* its checksum is 0x\w+, its bytes give"):
        decoded_rows(open_reader(header_of(path)), np.array([[0, 20]]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 700), st.integers(1, 3), st.integers(0, 2**32))
def test_adler32_is_that_of_zlib(length, n, seed):
    chunks = np.random.default_rng(seed).integers(0, 256, (n, length)).astype(np.uint8)
    assert adler32(chunks).tolist() == [zlib.adler32(chunk) for chunk in chunks]


def test_adler32_of_what_takes_several_slices(monkeypatch):
    monkeypatch.setattr("labeled.device.decoding._SLICE_BYTES", 1000)
    for shape in ((7, 300), (2, 5003)):
        chunks = np.full(shape, 255, np.uint8)
        assert adler32(chunks).tolist() == [zlib.adler32(chunk) for chunk in chunks]
