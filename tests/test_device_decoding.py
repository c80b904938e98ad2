"""Chunks decoded on a device: the rows that h5py reads, whatever is stored and whatever comes when.

The host stands in for a device that decodes: with its own decoders (zlib's, numcodecs'), through
the same steps.
"""

from __future__ import annotations

import gc
import math
import pickle
import re
import tracemalloc
import types

import h5py
import hdf5plugin
import numpy as np
import payload_files
import pytest
from coded_files import CODECS, damaged, flip
from fake_device import FakeDevice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from payload_files import header_of, write

import labeled
from labeled.device import HostDecoder, HostDevice, adler32
from labeled.device.decoding import SUM_BYTES
from labeled.errors import DeviceMemoryError, LoaderError, MissingExtraError, ReadError
from labeled.formats.bytesource import LocalFile
from labeled.formats.coded import CodedWindow, coded_of, joined_rows
from labeled.formats.hdf5.payload import open_reader
from labeled.loader.devices import decoding
from labeled.loader.devices.decoding import DeviceDecoding
from labeled.loader.sizing import budget, cutting, fitting
from labeled.transforms import Stages

N = 900
SHAPE = (3, 7, 10)
LABELS = ("batch", "channel", "height", "width")


def values(n=N, seed=0):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 6, (n, *SHAPE)).astype("f4")
    data[n // 3 : n // 2] = rng.random((n // 2 - n // 3, *SHAPE))  # some do not shrink
    return data


DATA = values()


def labelled(dataset):
    for axis, name in enumerate(LABELS[: dataset.ndim]):
        dataset.dims[axis].label = name


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Return sources of every codec, one whose rows are wider than a chunk, and plain ones."""
    path = tmp_path_factory.mktemp("data") / "d.hdf5"
    with h5py.File(path, "w") as f:
        for name, options in CODECS.items():
            f.create_dataset(name, data=DATA, chunks=(32, *SHAPE), **options)
        f.create_dataset("tiles", data=DATA, chunks=(48, 2, 5, 6), compression="gzip")
        f.create_dataset("blosc", data=DATA, chunks=(32, *SHAPE), **hdf5plugin.Blosc())
        f["plain"] = DATA[:, 0]
        f["number"] = np.arange(N)
        for dataset in f.values():
            labelled(dataset)
    return labeled.open_dataset(path)


@pytest.fixture(autouse=True)
def many_windows(monkeypatch):
    """Read ahead in small jobs, and keep nothing: windows are on their way all the time."""
    monkeypatch.setattr(cutting, "DEAR_JOB_BYTES", 1 << 17)
    monkeypatch.setattr(fitting, "choose_kept", lambda *_: set())


def small(**options):
    return {"seed": 3, "memory": "16 MiB", "threads": 1, **options}


def check_same(ours, theirs):
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
        for name in one.arrays:
            np.testing.assert_array_equal(one.arrays[name], two.arrays[name])
            assert one.arrays[name].dtype == two.arrays[name].dtype


def test_what_stays_on_the_host_says_why(tmp_path):
    for layout, words in [
        ({"compression": "blosc"}, "blosc.*: undone on the host only"),
        ({"compression": "bitshuffle"}, "undone on the host only"),
        ({"dtype": ">f4"}, "another byte order"),
        ({"dtype": "S3"}, "no numbers"),
        ({"compression": "bzip2"}, "made on the host"),
        ({"compression": "none"}, "made on the host"),
    ]:
        given = {"dtype": "<f4", "compression": "gzip", **layout}
        path = write(tmp_path, payload_files.Layout(shape=(9, 4), chunks=(3, 4), **given))
        assert re.search(words, coded_of(open_reader(header_of(path))))
    path = write(tmp_path, payload_files.Layout("u1", (9, 4), (3, 4), "gzip"))
    reader = open_reader(header_of(path), region=(slice(0, 2),))
    assert coded_of(reader) == "only part of each row is taken"


orders = st.sampled_from(
    [
        {"shuffle": False},
        {"shuffle": "window", "window_rows": 96},
        {"shuffle": "window", "window_rows": 320, "part": (1, 3)},
    ]
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    orders,
    st.integers(20, 150),
    st.sampled_from(["keep", "pad"]),
    st.integers(0, 99),
    st.booleans(),
)
def test_batches_are_those_of_the_host(ds, order, size, last, seed, fake):
    """The fake device itself complains of a slot or window that is written too early."""
    device = FakeDevice(seed, haste=seed / 200) if fake else HostDevice()
    options = small(batch_size=size, last=last, **order)
    ours, theirs = ds.batches(device=device, decode="device", **options), ds.batches(**options)
    told = ours.explain()
    kept = list(ours)
    stats = ours.stats()
    list(ours)  # windows are used again; batches that are held stay what they were
    check_same(kept, theirs)
    assert stats.n_chunks_there >= 90
    here = ds.batches(device=HostDevice(), **options)
    first = here.explain()
    list(here)
    assert stats.bus_bytes < here.stats().bus_bytes
    assert here.stats().n_chunks_there == 0
    assert stats.bus_bytes == told.bus_bytes
    assert first.bus_bytes == here.stats().bus_bytes


@pytest.mark.parametrize("haste", [0.0, 0.05, 0.5])
def test_slots_are_nobodys_before_they_are_copied(ds, monkeypatch, haste):
    """The fake device copies late here, as nothing is decoded, and complains as it does."""
    decoded = []

    def decode(self, packed, window, *_):
        decoded.append(window.n_stored)
        return types.SimpleNamespace(check=lambda: None)

    monkeypatch.setattr(DeviceDecoding, "decode", decode)
    device = FakeDevice(3, haste)
    loader = ds.batches(20, device=device, decode="device", **small(prefetch=2))
    for _ in range(2):
        for batch in loader:
            del batch
    assert sum(decoded) >= 2 * 100
    assert device.n_uploads > len(decoded)


def test_lists_repeats_and_draws_come_in_their_order(ds):
    ds = ds.select("gzip", "number")
    listed = np.random.default_rng(0).permutation(N)[: N * 9 // 10]
    several = [[*range(a, a + 90), a + 3, a + 3] for a in range(0, N - 90, 90)]
    for data, options in [
        (ds.subset(listed), {"batch_size": 64, "shuffle": "window", "window_rows": 400}),
        (ds.subset(slice(7, N - 5, 2)), {"batch_size": 50}),
        (ds, {"sampler": several}),
        (ds, {"batch_size": 64, "balance": "number", "shuffle": False}),
    ]:
        options = {"memory": "16 MiB", "threads": 1, **options}
        if "sampler" not in options:
            options["seed"] = 3
        if options.get("balance"):
            options["weights"] = np.arange(N)
            del options["balance"]
        ours = data.batches(device=FakeDevice(2), decode="device", **options)
        check_same(ours, data.batches(**options))


def test_some_of_it_does_reach_the_device(ds):
    """What the test before compares is not all decoded on the host."""
    data = ds.select("gzip").subset(np.random.default_rng(0).permutation(N)[: N * 9 // 10])
    options = {"batch_size": 64, "shuffle": "window", "window_rows": 400, "memory": "16 MiB"}
    loader = data.batches(device=HostDevice(), decode="device", seed=1, threads=1, **options)
    list(loader)
    assert loader.stats().n_chunks_there >= math.ceil(N / 32)
    assert loader.explain().lanes[0].decoded_there == 1


def test_files_are_joined(tmp_path):
    paths = []
    for number, n in enumerate((200, 77, 300)):
        paths.append(tmp_path / f"{number}.hdf5")
        with h5py.File(paths[-1], "w") as f:
            x = f.create_dataset("x", data=values(n, number), chunks=(32, *SHAPE), **CODECS["gzip"])
            labelled(x)
    ds = labeled.open_dataset(paths)
    for options in ({}, {"shuffle": "window", "seed": 1, "window_rows": 130}):
        options = {"batch_size": 40, "memory": "16 MiB", "threads": 1, **options}
        ours = ds.batches(device=FakeDevice(1), decode="device", **options)
        check_same(ours, ds.batches(**options))
        assert ours.stats().n_chunks_there >= 19
    at = damaged(paths[1], 1, flip(-1))
    with pytest.raises(ReadError, match=rf"1.hdf5', rows 32 to 63: the chunk at byte {at}"):
        list(labeled.open_dataset(paths).batches(
            40, memory="16 MiB", device=FakeDevice(1), decode="device"
        ))  # fmt: skip


def test_files_that_differ_stay_on_the_host(tmp_path):
    for number, options in enumerate(({"compression": "gzip"}, {**hdf5plugin.Zstd()})):
        with h5py.File(tmp_path / f"{number}.hdf5", "w") as f:
            labelled(f.create_dataset("x", data=values(300), chunks=(32, *SHAPE), **options))
    ds = labeled.open_dataset(sorted(tmp_path.glob("*.hdf5")))
    loader = ds.batches(40, memory="16 MiB", device=HostDevice(), decode="device")
    assert "the files store it in different ways" in loader.explain().lanes[0].why
    check_same(loader, ds.batches(40, memory="16 MiB"))


def test_a_plan_tells_who_decodes_what(ds, monkeypatch):
    told = ds.batches(64, device=HostDevice(), decode="device", **small()).explain()
    why = {lane.name: lane.why for lane in told.lanes}
    assert "decoded on the device (deflate, byte shuffle)" in why["gzip"]
    assert "decoded on the device (zstd, byte shuffle)" in why["zstd"]
    assert "decoded on the device (lz4)" in why["lz4"]
    assert "decoded on the host: blosc" in why["blosc"]
    assert "decoded" not in why["plain"]
    assert "chunks are decoded there by the host in its place" in repr(told)
    assert told.to_dict()["decoder"] == told.decoder == HostDecoder.name
    for options in ({}, {"decode": "host"}, {"decode": "auto"}):
        plain = ds.batches(64, device=HostDevice(), **small(**options)).explain()
        assert plain.decoder == ""
        assert "decoded on" not in repr(plain)
        assert plain.device_bytes < told.device_bytes
    monkeypatch.setattr(fitting, "choose_kept", budget.choose_kept)
    kept = ds.select("gzip").batches(64, device=HostDevice(), decode="device")
    assert "kept in memory, decoded once" in kept.explain().lanes[0].why
    monkeypatch.setattr(fitting, "choose_kept", lambda *_: set())
    options = {"batch_size": 64, "shuffle": "full", "seed": 1, "memory": "4 MiB", "threads": 1}
    full = ds.select("gzip").batches(device=HostDevice(), decode="device", **options)
    assert "decoded on the host: all windows touch" in full.explain().lanes[0].why
    check_same(full, ds.select("gzip").batches(**options))
    assert full.stats().n_chunks_there == 0


def test_reads_are_counted_before_they_are_made(ds, monkeypatch):
    loader = ds.select("gzip", "tiles").batches(64, device=HostDevice(), decode="device", **small())
    told = loader.explain()
    seen = []
    read_into = LocalFile.read_into

    def counted(self, target, offset):
        seen.append(target.nbytes)
        read_into(self, target, offset)

    monkeypatch.setattr(LocalFile, "read_into", counted)
    list(loader)
    assert len(seen) == sum(lane.n_reads for lane in told.lanes)
    assert sum(seen) == sum(lane.bytes_read for lane in told.lanes)


class NoDecoder(FakeDevice):
    def decoder(self):
        raise MissingExtraError("no decoder is installed: pip install it")


class OtherDecoder(HostDecoder):
    def why_not(self, codec, frame_bytes):
        return "of all codecs this one" if codec == "zstd" else None


class OtherDevice(FakeDevice):
    def decoder(self):
        return OtherDecoder()


def test_without_a_decoder_the_host_decodes(ds):
    options = small(batch_size=100)
    loader = ds.batches(device=NoDecoder(), decode="device", **options)
    told = loader.explain()
    assert told.decoder == ""
    assert "decoded on the host: no decoder is installed" in repr(told)
    check_same(loader, ds.batches(**options))
    loader = ds.batches(device=OtherDevice(), decode="device", **options)
    why = {lane.name: lane.why for lane in loader.explain().lanes}
    assert "decoded on the host: of all codecs this one" in why["zstd"]
    assert "decoded on the device" in why["gzip"]
    check_same(loader, ds.batches(**options))


@pytest.mark.parametrize("order", [{}, {"shuffle": "window", "window_rows": 192}])
def test_memory_of_both_sides_is_told_before_and_kept(ds, order):
    device = FakeDevice(5)
    ds = ds.select("gzip", "tiles", "number")
    loader = ds.batches(64, device=device, decode="device", **small(**order))
    told = loader.explain()
    for _ in range(2):
        for batch in loader:
            del batch
    assert loader.stats().n_chunks_there > 100
    assert device.pinned_bytes <= told.pinned_bytes <= told.promised_bytes + 64
    windows = told.device_windows * told.job_rows * 2 * DATA[0].nbytes
    assert windows < device.most_bytes <= told.device_bytes
    assert loader.pools()[0].extra == 0


class Silent(HostDecoder):
    """Decodes nothing, in no memory, and says that it did."""

    def decode(self, codec, packed, frames, out):
        out[...] = 0
        return frames.lengths


@pytest.mark.parametrize(
    ("chunks", "options"),
    [
        ((64, 16, 32), {"compression": "gzip"}),
        ((64, 16, 32), {"compression": "gzip", "shuffle": True}),
        ((64, 16, 32), {"shuffle": True, **hdf5plugin.Zstd()}),
        ((64, 9, 11), {"compression": "gzip", "shuffle": True}),
        ((64, 9, 11), {**hdf5plugin.Zstd()}),
    ],
)
def test_what_is_made_on_the_way_is_promised(tmp_path, monkeypatch, chunks, options):
    """Arrays that steps make of one another, counted while the largest window is decoded."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", (2048, 16, 32), "f8", chunks=chunks, fillvalue=3, **options)
        f["x"][:2000] = 1
    reader = open_reader(header_of(path))
    coding = coded_of(reader).coding
    wanted = np.array([[0, 2000]])  # 8 MiB
    parts = coded_of(reader).parts(wanted)
    window = CodedWindow(coding, wanted, parts, joined_rows(parts, coding.chunk_rows))
    memory = np.zeros(window.packed_bytes, np.uint8)
    for task in window.tasks(memory):
        task()
    target = np.empty((2000, 16, 32))
    n_bad = np.zeros(1, np.int64)
    monkeypatch.setattr(decoding, "adler32", lambda chunks: window.found().sums)
    monkeypatch.setattr(HostDevice, "decoder", lambda self: Silent())
    device = HostDevice()
    promised = decoding.memory_beside(coding, window.n_bands, len(memory), Silent())
    there = DeviceDecoding(device, device.copy_stream(), {})
    for traced in (False, True):  # once before, for kernels that are compiled
        if traced:
            tracemalloc.start()
        sent = there.upload(memory, len(memory))
        there.decode(sent, window, window.n_bands, target, n_bad).check()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sums = 4 * window.n_bands * coding.band_bytes if coding.codec == "deflate" else 0
    assert most <= promised - min(SUM_BYTES, sums) + target.nbytes + (1 << 20)  # NumPy's take


def test_checksums_take_what_is_promised():
    chunks = np.zeros((144, 1 << 17), np.uint8)
    tracemalloc.start()
    adler32(chunks)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert SUM_BYTES / 2 < most < SUM_BYTES


def test_too_little_memory_there_tells_what_decoding_takes(ds):
    loader = ds.batches(64, device=FakeDevice(5, room=500_000), decode="device", **small())
    with pytest.raises(DeviceMemoryError, match=r"needs [\d.]+ MiB there .*MiB to decode in, and"):
        list(loader)


def test_damage_is_told_before_a_batch_of_it(tmp_path):
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as f:
        labelled(f.create_dataset("x", data=DATA, chunks=(32, *SHAPE), compression="gzip"))
    damaged(path, 20, flip(-2))
    for haste in (0.0, 0.5):
        device = FakeDevice(1, haste)
        ds = labeled.open_dataset(path)
        batches = iter(ds.batches(32, device=device, decode="device", memory="16 MiB", threads=1))
        seen = []
        with pytest.raises(ReadError, match=r"rows 640 to 671: .* its checksum is"):
            seen.extend(batches)
        assert 0 < len(seen) <= 20
        for number, batch in enumerate(seen):
            rows = slice(number * 32, number * 32 + 32)
            np.testing.assert_array_equal(batch.arrays["x"], DATA[rows])
        gc.collect()
        assert all(stream.n_done == len(stream.work) for stream in device.streams)


@pytest.mark.parametrize("name", ["x", "y"])
def test_damage_of_one_source_is_told_beside_a_whole_one(tmp_path, name):
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as f:
        for each in ("x", "y"):
            labelled(f.create_dataset(each, data=DATA, chunks=(32, *SHAPE), compression="gzip"))
    damaged(path, 2, flip(-2), name)
    loader = labeled.open_dataset(path).batches(32, device=FakeDevice(1), **there_only())
    with pytest.raises(ReadError, match=rf"'{name}' in .* rows 64 to 95: .* its checksum is"):
        list(loader)


def test_checksums_are_looked_at_beside_chunks_that_have_none(tmp_path):
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", DATA.shape, DATA.dtype, chunks=(8, *SHAPE), compression="gzip")
        x[:32], x[40:] = DATA[:32], DATA[40:]  # the fifth chunk is not stored
        labelled(x)
    damaged(path, 2, flip(-2))
    loader = labeled.open_dataset(path).batches(32, device=FakeDevice(1), **there_only())
    assert loader.explain().job_rows > 40, "they are not decoded together"
    with pytest.raises(ReadError, match=r"rows 16 to 23: .* its checksum is"):
        next(iter(loader))


def there_only():
    return {"decode": "device", "memory": "16 MiB", "threads": 1}


def test_an_iterator_that_is_dropped_waits_for_what_it_began(ds):
    device = FakeDevice(0, haste=0.0)
    loader = ds.batches(20, device=device, decode="device", **small(prefetch=2))
    batches = iter(loader)
    next(batches)
    del batches
    gc.collect()
    assert all(stream.n_done == len(stream.work) for stream in device.streams)


def test_a_place_is_found_again_wherever_chunks_are_decoded(ds):
    options = small(batch_size=50, shuffle="window", window_rows=96)
    first = ds.batches(device=FakeDevice(1), decode="device", **options)
    batches = iter(first)
    for _ in range(5):
        next(batches)
    other = ds.batches(**options)
    other.load_state_dict(first.state_dict())
    check_same(batches, other)


def test_a_loader_that_was_pickled_decodes_there_too(ds):
    loader = ds.batches(64, device=HostDevice(), decode="device", **small())
    again = pickle.loads(pickle.dumps(loader))
    check_same(again, ds.batches(64, **small()))
    assert again.stats().n_chunks_there > 100


def test_what_does_not_go_with_decoding_there_is_refused(ds):
    with pytest.raises(LoaderError, match=r"decode='device' needs a device: device='cuda'"):
        ds.batches(8, decode="device")
    with pytest.raises(LoaderError, match=r"decode='gpu' must be .*'device'"):
        ds.batches(8, decode="gpu", device=HostDevice())
    pipeline = Stages(sample={"gzip": lambda image: image + 1})
    with pytest.raises(LoaderError, match="with a pipeline that works on the host"):
        ds.batches(8, decode="device", device=HostDevice(), pipeline=pipeline)
    batch = Stages(batch=lambda batch: batch)
    loader = ds.batches(64, decode="device", device=HostDevice(), pipeline=batch, **small())
    check_same(loader, ds.batches(64, **small()))


def test_a_chunk_is_decoded_once_a_window(ds):
    """Shuffled windows of whole chunks: as many chunks as the file has, an epoch."""
    loader = ds.select("gzip").batches(
        64, device=HostDevice(), decode="device", shuffle="window", window_rows=320,
        seed=1, memory="16 MiB", threads=1,
    )  # fmt: skip
    list(loader)
    assert loader.stats().n_chunks_there == math.ceil(N / 32)
