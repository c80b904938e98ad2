"""Filters are undone exactly, and damaged or lying bytes are refused."""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_files import BY_RANGE, COMPRESSIONS

import labeled
from labeled.formats.hdf5 import filters
from labeled.formats.hdf5.filters import DecodeError, Pipeline, fletcher32, why_not
from labeled.formats.hdf5.sources import filters_of
from labeled.formats.header import (
    BITSHUFFLE,
    BLOSC,
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZF,
    SHUFFLE,
    ZSTD,
    Filter,
)
from labeled.permute import compiler

SHAPE = (40, 33)


def chunk_of(compression: str, *, shuffle: bool = False) -> tuple[tuple[Filter, ...], bytes, bytes]:
    """Return the filters, the stored bytes and the decoded bytes of one chunk, by HDF5."""
    data = np.random.default_rng(1).integers(0, 9, SHAPE).astype("i4")
    with h5py.File(io.BytesIO(), "w") as file:
        x = file.create_dataset(
            "x", data=data, chunks=SHAPE, shuffle=shuffle, **COMPRESSIONS[compression]
        )
        stored = x.id.read_direct_chunk((0, 0))[1]
        return filters_of(x.id.get_create_plist()), stored, data.tobytes()


@pytest.fixture
def fresh_libraries() -> Iterator[None]:
    libraries = filters._imagecodecs, filters._libdeflate
    for library in libraries:
        library.cache_clear()
    yield
    for library in libraries:
        library.cache_clear()


@pytest.fixture(params=[False, True], ids=["numpy", "numba"])
def with_numba(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Take the path with numba's loops, or the one without."""
    monkeypatch.setattr(compiler, "loaded", lambda: request.param)
    return bool(request.param)


def checksum_word_by_word(data: bytes) -> int:
    """HDF5's definition, folded after every word."""
    first = second = 0
    for i in range(0, len(data), 2):
        word = data[i] << 8 | (data[i + 1] if i + 1 < len(data) else 0)
        first = first + word
        first = (first & 0xFFFF) + (first >> 16)
        second += first
        second = (second & 0xFFFF) + (second >> 16)
    return second << 16 | first


@pytest.mark.parametrize("ones", [b"\x00", b"\xff", b"\xff\x00", b"\x80\x01\x7f"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 719, 720, 721, 8191, 70_001])
def test_fletcher32_of_awkward_lengths_and_sums(ones: bytes, n: int, with_numba: bool) -> None:
    data = (ones * n)[:n]
    assert fletcher32(np.frombuffer(data, "u1")) == checksum_word_by_word(data)


@given(st.binary(max_size=3000))
def test_fletcher32_of_any_bytes(data: bytes) -> None:
    assert fletcher32(np.frombuffer(data, "u1")) == checksum_word_by_word(data)


@pytest.mark.parametrize("item", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("n", [0, 1, 16, 1000, 1003])
def test_unshuffle_brings_bytes_together(item: int, n: int, with_numba: bool) -> None:
    data = np.random.default_rng(0).integers(0, 256, n, "u1")
    whole = n // item * item
    shuffled = np.concatenate([data[:whole].reshape(-1, item).T.reshape(-1), data[whole:]])

    steps = Pipeline((Filter(SHUFFLE, "shuffle", (item,)),), n, item)
    assert bytes(steps.undo(shuffled, 0)) == data.tobytes()


@pytest.mark.parametrize("compression", sorted(BY_RANGE))
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pipeline_undoes_what_hdf5_did(compression: str, shuffle: bool) -> None:
    steps, stored, data = chunk_of(compression, shuffle=shuffle)
    assert why_not(steps) is None
    undo = Pipeline(steps, len(data), 4).undo
    assert bytes(undo(stored, 0)) == data
    assert bytes(undo(np.frombuffer(stored, "u1"), 0)) == data
    assert bytes(undo(memoryview(stored), 0)) == data


def test_a_checksum_inside_compression_is_checked_too() -> None:
    data = np.random.default_rng(0).integers(0, 9, 500, "u1").tobytes()
    body = data + fletcher32(np.frombuffer(data, "u1")).to_bytes(4, "little")
    steps = (Filter(FLETCHER32, "fletcher32"), Filter(DEFLATE, "deflate", (4,)))
    pipeline = Pipeline(steps, len(data), 1)

    assert bytes(pipeline.undo(zlib.compress(body), 0)) == data
    assert bytes(pipeline.undo(zlib.compress(data), 0b01)) == data
    assert bytes(pipeline.undo(body, 0b10)) == data
    assert bytes(pipeline.undo(data, 0b11)) == data
    with pytest.raises(DecodeError, match="fletcher32"):
        pipeline.undo(zlib.compress(body[:-1] + b"?"), 0)
    with pytest.raises(DecodeError, match="499 bytes where 500"):
        pipeline.undo(data[:-1], 0b11)


def test_checksums_of_old_hdf5_versions_are_accepted() -> None:
    data = b"some bytes"
    old = bytearray(fletcher32(np.frombuffer(data, "u1")).to_bytes(4, "little"))
    old[0], old[1], old[2], old[3] = old[1], old[0], old[3], old[2]
    steps = Pipeline((Filter(FLETCHER32, "fletcher32"),), len(data), 1)
    assert bytes(steps.undo(data + bytes(old), 0)) == data


@pytest.mark.parametrize("compression", sorted(BY_RANGE - {"none", "bitshuffle, no codec"}))
def test_damage_never_gets_past_the_size(compression: str) -> None:
    """Any byte may be wrong: the outcome is the right size, or an error that says so."""
    steps, stored, data = chunk_of(compression)
    undo = Pipeline(steps, len(data), 4).undo
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        bad = bytearray(stored)
        bad[rng.integers(len(bad))] ^= 1 << int(rng.integers(8))
        try:
            assert len(undo(bytes(bad), 0)) == len(data)
        except DecodeError:
            refused += 1
    assert refused
    for n in (0, 1, 3, 11, 12, 15, 17, len(stored) // 2, len(stored) - 1):
        with pytest.raises(DecodeError):
            undo(stored[:n], 0)


@pytest.mark.parametrize("size", [100, 5279, 5281, 1 << 20])
@pytest.mark.parametrize("compression", sorted(BY_RANGE - {"none"}))
def test_another_size_than_the_chunk_has_is_refused(compression: str, size: int) -> None:
    steps, stored, data = chunk_of(compression)
    assert len(data) == 5280
    with pytest.raises(DecodeError):
        Pipeline(steps, size, 4).undo(stored, 0)


def test_what_a_stream_claims_is_not_allocated() -> None:
    huge = 1 << 50
    zstd = b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + struct.pack("<Q", huge) + bytes(20)
    lz4 = struct.pack(">QII", huge, 1 << 30, 12) + bytes(12)
    blosc = struct.pack("<4BIII", 2, 1, 0x21, 4, (1 << 32) - 1, 1 << 20, 40) + bytes(24)
    bits = struct.pack(">QI", huge, 1 << 30) + bytes(12)
    streams = {ZSTD: zstd, LZ4: lz4, BLOSC: blosc, BITSHUFFLE: bits}
    for code, stream in streams.items():
        with pytest.raises(DecodeError, match=r"where|claim|damaged"):
            Pipeline((Filter(code, "x", (0, 4, 1, 0, 2)),), 1000, 1).undo(stream, 0)
    bomb = zlib.compress(bytes(10_000_000))
    with pytest.raises(DecodeError, match="damaged"):
        Pipeline((Filter(DEFLATE, "deflate"),), 1000, 1).undo(bomb, 0)


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Pretend that libraries are not installed."""
    real = importlib.import_module

    def imported(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in names:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", imported)


@pytest.mark.usefixtures("fresh_libraries")
def test_deflate_is_undone_by_the_binding_where_its_functions_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filters, "inflate_into", lambda: None)
    steps, stored, data = chunk_of("gzip")
    pipeline = Pipeline(steps, len(data), 4)

    assert bytes(pipeline.undo(stored, 0)) == data
    with pytest.raises(DecodeError):
        pipeline.undo(stored[:-5], 0)
    with pytest.raises(DecodeError):
        Pipeline(steps, len(data) - 1, 4).undo(stored, 0)


@pytest.mark.usefixtures("fresh_libraries")
@pytest.mark.parametrize("code", [ZSTD, LZ4, BLOSC, LZF, BITSHUFFLE])
def test_the_extra_that_is_missing_is_named(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "imagecodecs")
    step = Filter(code, "its name", (0, 4, 4, 0, 2))
    assert "the extra 'codecs' has it" in (why_not((step,)) or "")


@pytest.mark.parametrize("shape", [(1000, 700), (33, 129, 5), (7,), (3, 2, 5, 4, 3), (65_537,)])
@pytest.mark.parametrize("dtype", ["u1", ">i2", "f4", "c16"])
@pytest.mark.parametrize(
    "filters_",
    [
        hdf5plugin.Bitshuffle(nelems=64),
        hdf5plugin.Bitshuffle(cname="zstd"),
    ],
)
def test_chunks_in_blocks_of_any_shape(filters_: Any, dtype: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    for data in (random.integers(0, 50, shape), np.zeros(shape)):
        rows = data.astype(dtype)
        with h5py.File(io.BytesIO(), "w") as file:
            x = file.create_dataset("x", data=rows, chunks=shape, **filters_)
            mask, stored = x.id.read_direct_chunk((0,) * len(shape))
            steps = filters_of(x.id.get_create_plist())
        found = Pipeline(steps, rows.nbytes, rows.itemsize).undo(stored, mask)
        assert bytes(found) == rows.tobytes()


def test_bits_shuffled_in_a_way_that_is_not_known_are_left_to_hdf5() -> None:
    odd = Filter(BITSHUFFLE, "bitshuffle", (0, 9, 4, 0, 77))
    assert "undone by HDF5 only" in (why_not((odd,)) or "")


@pytest.mark.parametrize("name", ["zstd", "lz4", "blosc", "blosc2", "bzip2", "zfp", "sz3"])
def test_filters_are_called_by_their_short_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.hdf5"
    made = {
        "bzip2": hdf5plugin.BZip2(),
        "sz3": hdf5plugin.SZ3(absolute=0.1),
        "lz4": hdf5plugin.LZ4(),
    }
    coded = made.get(name) or getattr(hdf5plugin, name.capitalize())()
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((100, 3)), chunks=(10, 3), **coded)
    dataset = labeled.open_dataset(path, dims={"x": ("batch", "feature")})
    assert f"chunks (10, 3), {name}\n" in repr(dataset)
    told = str(dataset.batches(10).explain())
    assert f"({name})" in told or f"filter '{name}' (" in told


def test_two_compressors_are_left_to_hdf5() -> None:
    steps = (Filter(DEFLATE, "deflate"), Filter(SHUFFLE, "shuffle"), Filter(ZSTD, "zstd"))
    assert "two compressing filters" in (why_not(steps) or "")
    assert why_not(steps[:2]) is None
