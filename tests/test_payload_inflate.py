"""Chunks decoded straight into their place hold what h5py and zlib say, or raise."""

import threading
import zlib

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.formats.hdf5 import filters
from labeled.formats.hdf5.filters import DecodeError, Pipeline, fletcher32, inflate_into
from labeled.formats.header import DEFLATE, FLETCHER32, SHUFFLE, Filter

DEFLATED = Filter(DEFLATE, "deflate", (4,))


def steps_of(item, packed, summed):
    taken_apart = Filter(SHUFFLE, "shuffle", (item,))
    summing = [Filter(FLETCHER32, "fletcher32")] if summed else []
    return (taken_apart, *([DEFLATED] if packed else []), *summing)


def stored_as(data, item, packed, summed):
    whole = len(data) // item * item
    planes = np.frombuffer(data[:whole], np.uint8).reshape(-1, item).T.tobytes() + data[whole:]
    stored = zlib.compress(planes) if packed else planes
    total = fletcher32(np.frombuffer(stored, np.uint8)) if summed else 0
    return stored + total.to_bytes(4, "little") * summed


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 5), st.booleans(), st.booleans())
def test_what_is_decoded_in_place_is_what_was_stored(data, item, packed, summed):
    pipeline = Pipeline(steps_of(item, packed, summed), len(data), item)
    stored = stored_as(data, item, packed, summed)
    place = np.zeros(len(data) + 2, np.uint8)

    pipeline.undo(memoryview(bytearray(stored)), 0, place[1:-1])

    assert place[1:-1].tobytes() == data
    assert place[0] == place[-1] == 0
    assert bytes(pipeline.undo(stored, 0)) == data


def test_a_step_that_was_left_out_is_not_undone():
    data = bytes(range(200)) * 4
    pipeline, out = Pipeline((DEFLATED,), len(data), 1), np.empty(len(data), np.uint8)

    pipeline.undo(data, 1, out)

    assert out.tobytes() == data


@pytest.mark.parametrize("item", [1, 4])
@pytest.mark.parametrize("harm", [lambda d: d[:-7], lambda d: b"no" + d[2:], lambda d: b""])
def test_damage_is_an_error_in_place_too(item, harm):
    data = np.arange(5000, dtype=np.uint32).tobytes()
    stored = harm(stored_as(data, item, True, False))
    out = np.empty(len(data), np.uint8)

    with pytest.raises(DecodeError, match="damaged"):
        Pipeline(steps_of(item, True, False), len(data), item).undo(stored, 0, out)


@pytest.mark.parametrize("n", [3999, 4001])
@pytest.mark.parametrize("item", [1, 4])
def test_nothing_is_written_behind_a_place_that_is_too_small(n, item):
    stored = stored_as(bytes(4000), item, True, False)
    place = np.full(n + 64, 7, np.uint8)

    with pytest.raises(DecodeError):
        Pipeline(steps_of(item, True, False), n, item).undo(stored, 0, place[:n])
    assert (place[n:] == 7).all()


@pytest.mark.skipif(inflate_into() is None, reason="this build of deflate hides libdeflate")
def test_every_thread_inflates_for_itself():
    inflate = inflate_into()
    texts = [np.random.default_rng(k).integers(0, 9, 40_000, np.uint8) for k in range(6)]
    packed = [np.frombuffer(zlib.compress(text), np.uint8) for text in texts]
    wrong = []

    def work(k):
        out = np.empty(40_000, np.uint8)
        done = [inflate(packed[k], out) and np.array_equal(out, texts[k]) for _ in range(30)]
        if not all(done):
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f4", ">f4"])
def test_batches_in_order_agree_with_h5py(tmp_path, monkeypatch, hidden, dtype):
    if hidden:
        monkeypatch.setattr(filters, "inflate_into", lambda: None)
        monkeypatch.setattr(filters, "_libdeflate", filters._libdeflate.__wrapped__)
    values = (np.arange(1000 * 7) % 251).reshape(1000, 7).astype(dtype)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=values, chunks=(30, 7), compression="gzip", shuffle=True)
    dims = {"x": ("batch", "value")}
    rows = labeled.open_dataset(tmp_path / "a.hdf5", dims=dims).subset(slice(17, 981))

    got = [batch.arrays["x"] for batch in rows.batches(64)]

    np.testing.assert_array_equal(np.concatenate(got), values[17:981])
