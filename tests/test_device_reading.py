"""Files read by a device itself: the batches of the host, whatever comes when.

The fake device brings bytes at any time, and the host stands in for one that reads; the library
that reads for a GPU is met over a driver of C that knows of no GPU.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import types
import weakref
from contextlib import nullcontext
from importlib.util import find_spec

import h5py
import numpy as np
import pytest
from fake_device import FakeDevice, FakeMemoryError, FakeReader
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.device import HostDevice, HostReader, kvikio
from labeled.errors import (
    DeviceMemoryError,
    FileChangedError,
    FileFormatError,
    LoaderError,
    MissingExtraError,
    ReadError,
)
from labeled.loader.devices import direct
from labeled.loader.devices.dealing import DeviceDealer
from labeled.loader.order import units
from labeled.loader.sizing import budget, cutting, fitting
from labeled.transforms import Stages

N = 600
LABELS = ("batch", "channel", "height", "width")


def images(n=N, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 12, (n, 3, 5, 7)).astype("i2")


def write(path, n=N, seed=0, **more):
    """Write sources that a device can read, and others that it cannot."""
    data = images(n, seed)
    with h5py.File(path, "w") as f:
        f["plain"] = data
        f.create_dataset("chunks", data=data, chunks=(16, 3, 5, 7))
        sparse = f.create_dataset("sparse", data.shape, "f4", chunks=(32, 3, 5, 7), fillvalue=7)
        sparse[64 : n // 2] = data[64 : n // 2]  # nothing is stored of the others
        f.create_dataset("packed", data=data, chunks=(16, 3, 5, 7), compression="gzip")
        f.create_dataset("tiles", data=data, chunks=(16, 2, 5, 7))
        f["swapped"] = data.astype(">i4")
        f["number"] = np.arange(n)
        for dataset in f.values():
            for axis, name in enumerate(LABELS[: dataset.ndim]):
                dataset.dims[axis].label = name
    return path


STRAIGHT = ("chunks", "number", "plain", "sparse")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data") / "d.hdf5")


@pytest.fixture(scope="module")
def ds(path):
    return labeled.open_dataset(path)


@pytest.fixture(scope="module", autouse=True)
def many_windows():
    """Read ahead in small jobs, and keep nothing, so that many windows are on their way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "JOB_BYTES", 1 << 15)
        patch.setattr(cutting, "DEAR_JOB_BYTES", 1 << 15)
        patch.setattr(units, "RUN_BYTES", 1 << 10)
        patch.setattr(fitting, "choose_kept", lambda *_: set())
        yield


def small(**options):
    return {"seed": 3, "memory": "24 MiB", "threads": 1, **options}


def check_same(ours, theirs):
    n = 0
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
        for name in two.arrays:
            np.testing.assert_array_equal(one.arrays[name], two.arrays[name])
            assert one.arrays[name].dtype == two.arrays[name].dtype
        n += 1
    return n


orders = st.sampled_from(
    [
        {"shuffle": False},
        {"shuffle": "window", "window_rows": 20},
        {"shuffle": "window", "window_rows": 200},
        {"shuffle": False, "part": (1, 3)},
    ]
)


@settings(max_examples=16, deadline=None)
@given(st.data())
def test_batches_are_those_of_the_host(ds, data):
    rows = data.draw(st.sampled_from([slice(None), slice(40, 500), "list", "repeats"]))
    if isinstance(rows, str):
        rng = np.random.default_rng(data.draw(st.integers(0, 9)))
        rows = rng.permutation(N)[:200] if rows == "list" else rng.integers(0, N, 200)
    some = ds.select(*data.draw(st.sampled_from([STRAIGHT, ("plain",), tuple(ds.sources)])))
    some = some.subset(rows)
    options = small(**data.draw(orders), batch_size=data.draw(st.integers(20, 150)))
    options["last"] = data.draw(st.sampled_from(["keep", "pad", "wrap"]))
    there = FakeDevice(
        data.draw(st.integers(0, 2**32)), data.draw(st.sampled_from([0.0, 0.3, 0.9]))
    )
    ours = some.batches(device=there, reader="device", **options)
    for _ in range(2):
        held = list(ours) if data.draw(st.booleans()) else ours
        check_same(held, some.batches(**options | {"epoch": ours.epoch - isinstance(held, list)}))
    assert there.n_reads


def test_nothing_of_it_passes_the_host(ds):
    some, there = ds.select("plain", "chunks"), FakeDevice()
    loader = some.batches(64, device=there, reader="device", **small(shuffle="window"))
    told = loader.explain()
    n = check_same(loader, some.batches(64, **small(shuffle="window")))
    stats = loader.stats()
    row_bytes = 2 * images(1).nbytes
    assert n == len(loader)
    assert (stats.direct_bytes, stats.bus_bytes) == (N * row_bytes, 0)
    assert there.n_uploads == 0
    assert there.pinned_bytes < 1000  # nothing but who holds a slot
    assert (told.pinned_bytes, told.bus_bytes, told.direct) == (0, 0, "fake reader")
    assert sum(lane.bytes_read for lane in told.lanes) == N * row_bytes
    assert sum(lane.n_reads for lane in told.lanes) == there.n_reads
    assert "files are read there by fake reader" in repr(told)
    assert "read by itself" in repr(stats)
    plain = some.batches(64, device=FakeDevice(), **small(shuffle="window")).explain()
    spared = plain.slots * plain.job_rows * row_bytes
    assert plain.promised_bytes - told.promised_bytes in range(spared, spared * 34 // 32)
    assert told.window_rows == plain.window_rows
    # runs are put in order beside their windows, by places of 8 bytes
    beside = told.device_windows * told.job_rows * (row_bytes + 2 * 8)
    assert told.device_bytes == plain.device_bytes + beside


def test_in_file_order_rows_are_read_to_their_windows(ds):
    some, there = ds.select("plain"), FakeDevice()
    loader = some.batches(64, device=there, reader="device", **small())
    plain = some.batches(64, device=FakeDevice(), **small())
    assert loader.explain().device_bytes == plain.explain().device_bytes
    check_same(loader, some.batches(64, **small()))
    assert loader.stats().n_windows == there.n_reads


@pytest.mark.parametrize("shuffle", [False, "window"])
def test_memory_of_the_device_stays_within_the_promise(ds, shuffle):
    some = ds.select(*STRAIGHT)
    options = small(shuffle=shuffle, window_rows=100) if shuffle else small()
    room = some.batches(64, device=FakeDevice(), reader="device", **options).explain().device_bytes
    there = FakeDevice(5, haste=0.9, room=room)  # in haste: what is let go of is free at once
    check_same(
        some.batches(64, device=there, reader="device", **options), some.batches(64, **options)
    )
    assert there.most_bytes <= room
    with pytest.raises(DeviceMemoryError, match="out of memory"):
        next(iter(some.batches(64, device=FakeDevice(room=room // 8), reader="device", **options)))


def test_files_joined_are_read_one_after_another(tmp_path):
    for k, n in enumerate((100, 40, 130)):
        write(tmp_path / f"{k}.hdf5", n, seed=k)
    both = labeled.open_dataset(str(tmp_path / "*.hdf5")).select("plain", "sparse")
    for shuffle in (False, "window"):
        there = FakeDevice()
        options = small(shuffle=shuffle)
        ours = both.batches(50, device=there, reader="device", **options)
        assert check_same(ours, both.batches(50, **options)) == 6
        assert there.n_opened == 3


def test_a_loader_goes_on_where_it_was_pickled(ds):
    options = small(shuffle="window", device=HostDevice(), reader="device")
    loader = ds.select("plain", "chunks").batches(50, **options)
    served = iter(loader)
    next(served)
    again = pickle.loads(pickle.dumps(loader))
    again.load_state_dict(loader.state_dict())
    assert check_same(again, served) == len(loader) - 1
    assert again.stats().bus_bytes == 0


def test_who_reads_what_is_told(ds):
    loader = ds.batches(64, device=FakeDevice(), reader="device", **small(shuffle="window"))
    why = {lane.name: lane.why for lane in loader.explain().lanes}
    for name in STRAIGHT:
        assert "read by the device itself, and put in order there" in why[name]
    assert "read on the host: its rows are made on the host" in why["packed"]
    assert "read on the host: its rows span chunks" in why["tiles"]
    assert "read on the host: its numbers are stored in another byte order" in why["swapped"]
    part = ds.select("plain").isel(channel=1)
    with pytest.raises(LoaderError, match="'plain': only part of each row is taken"):
        part.batches(64, device=HostDevice(), reader="device", **small())


def test_chunks_may_be_decoded_there_beside(ds):
    options = small(shuffle="window")
    loader = ds.batches(64, device=FakeDevice(), reader="device", decode="device", **options)
    check_same(loader, ds.batches(64, **options))
    stats = loader.stats()
    assert stats.n_chunks_there
    assert stats.direct_bytes


def test_what_is_kept_is_read_once(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "choose_kept", budget.choose_kept)
        ds = labeled.open_dataset(path)
        loader = ds.batches(64, device=FakeDevice(), reader="device", memory="64 MiB")
        check_same(loader, ds.batches(64, memory="64 MiB"))
        assert "kept in memory, read once" in loader.explain().lanes[0].why
        assert loader.explain().direct == ""


@pytest.mark.parametrize(
    ("sources", "options", "words"),
    [
        (["plain"], {"device": "cpu"}, "needs a device"),
        (["plain"], {"pipeline": Stages(sample=lambda s: s)}, "does not go with a pipeline"),
        (["packed"], {}, "'packed': its rows are made on the host"),
        (["plain"], {"shuffle": "full"}, "would be a read each"),
        (["plain"], {"shuffle": "staggered"}, "staggered order are gathered on the host"),
        (["plain"], {"errors": "skip"}, "reader='threads' only"),
    ],
)
def test_what_cannot_be_is_refused(ds, sources, options, words):
    with pytest.raises(LoaderError, match=words):
        ds.select(*sources).batches(64, **small(device=HostDevice(), reader="device") | options)


def test_large_rows_may_come_in_any_order(tmp_path):
    data = np.random.default_rng(0).integers(0, 255, (30, 300, 300), np.uint8)
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        f["x"] = data
        for axis, name in enumerate(("batch", "height", "width")):
            f["x"].dims[axis].label = name
    ds = labeled.open_dataset(tmp_path / "x.hdf5")
    options = small(shuffle="full")
    ours = ds.batches(4, device=FakeDevice(), reader="device", **options)
    assert ours.explain().mapped_bytes == 0
    check_same(ours, ds.batches(4, **options))


def test_files_that_were_read_are_closed_where_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(direct, "MAX_OPEN_FILES", 2)
    for k in range(5):
        write(tmp_path / f"{k}.hdf5", 40, seed=k)
    joined = labeled.open_dataset(str(tmp_path / "*.hdf5")).select("plain")
    there, files = FakeDevice(), weakref.WeakSet()
    opened = FakeReader.open

    def noted(self, path):
        files.add(file := opened(self, path))
        return file

    monkeypatch.setattr(FakeReader, "open", noted)
    ours = iter(joined.batches(20, device=there, reader="device", **small(prefetch=1)))
    for batch, plain in zip(ours, joined.batches(20, **small()), strict=True):
        np.testing.assert_array_equal(batch.arrays["plain"], plain.arrays["plain"])
        open_still = len(files) - len({id(one.file) for one in there.on_their_way})
        assert open_still <= 2 + 1  # and the one that is opened
    assert there.n_opened == 5


# ---------------------------------------------------------------- what goes wrong


def test_a_file_that_changes_is_noticed(tmp_path):
    path = write(tmp_path / "d.hdf5")
    ds = labeled.open_dataset(path).select("plain")
    served = iter(ds.batches(8, device=FakeDevice(), reader="device", **small()))
    first = next(served)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChangedError, match="Open it again"):
        list(served)
    np.testing.assert_array_equal(first.arrays["plain"], images()[:8])
    path.unlink()
    with pytest.raises(FileFormatError, match="cannot open"):
        next(iter(ds.batches(8, device=FakeDevice(), reader="device", **small())))


@pytest.mark.parametrize("shuffle", [False, "window"])
def test_bytes_that_do_not_come_are_told_in_their_turn(path, ds, shuffle):
    with h5py.File(path) as f:
        end = f["plain"].id.get_offset() + 300 * images(1).nbytes + 5
    there = FakeDevice()
    there.ends[str(path)] = end
    loader = ds.select("plain").batches(10, device=there, reader="device", **small(shuffle=shuffle))
    found = []
    with pytest.raises(ReadError, match=r"source 'plain' in .*d.hdf5', rows \d+ to \d+: \d+ of"):
        found.extend(loader)
    for batch in found:
        np.testing.assert_array_equal(batch.arrays["plain"], images()[batch.rows])
    job_rows = loader.explain().job_rows
    assert shuffle or len(found) == 300 // job_rows * job_rows // 10
    assert not there.on_their_way


def test_rows_put_in_order_for_a_batch_that_fails_are_waited_for(ds, monkeypatch):
    """Nothing was cut of their window, so that no event of a batch is behind them."""

    def no_room(self, length):
        raise FakeMemoryError

    monkeypatch.setattr(DeviceDealer, "_room", no_room)
    there = FakeDevice(haste=0.0)
    options = small(shuffle="window", window_rows=20)
    served = iter(ds.select("plain").batches(100, device=there, reader="device", **options))
    with pytest.raises(DeviceMemoryError):
        next(served)
    (copies,) = (stream for stream in there.streams if stream not in there.consumers)
    assert copies.work
    assert copies.n_done == len(copies.work)


def test_an_iterator_let_go_of_waits_for_its_bytes(ds):
    there = FakeDevice(2, haste=0.2)
    served = iter(ds.select("plain").batches(10, device=there, reader="device", **small()))
    while not there.on_their_way:  # of windows to come
        next(served)
    del served
    assert not there.on_their_way


# ---------------------------------------------------------------- what reads for a GPU


class Future:
    """Tells once, as kvikio's do."""

    def __init__(self, fd, found):
        self.fd, self.found, self.told = fd, found, False

    def done(self):
        assert not self.told, "the future does not refer to a valid shared state"
        return True

    def get(self):
        assert not self.told, "no associated state"
        os.fstat(self.fd)  # not permitted where the file was closed meanwhile
        self.told = True
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class CuFile:
    def __init__(self, path, flags="r"):
        assert flags == "r"
        try:
            self.fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise RuntimeError(f"Unable to open file: {error}") from error
        weakref.finalize(self, os.close, self.fd)

    def fileno(self):
        return self.fd

    def pread(self, buf, size=None, file_offset=0, task_size=None):
        data = os.pread(self.fileno(), size, file_offset)
        np.frombuffer(buf, np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        short = RuntimeError("POSIX error on pread: EOF")
        return Future(self.fd, size if len(data) == size else short)


@pytest.fixture
def door(monkeypatch):
    """Return the door to kvikio, with a library of the tests behind it."""
    current = types.SimpleNamespace(Device=nullcontext)
    monkeypatch.setattr(kvikio, "cupy_module", lambda: types.SimpleNamespace(cuda=current))
    library = types.SimpleNamespace(CuFile=CuFile, __version__="26.10.00")
    return kvikio.KvikioReader(library, 0)


@pytest.mark.parametrize("make", [HostReader, "door"])
def test_readers_bring_bytes_or_say_why_not(tmp_path, door, make):
    reader = door if make == "door" else make()
    data = np.random.default_rng(0).integers(0, 255, 5000, np.uint8)
    data.tofile(tmp_path / "x.bin")
    file = reader.open(str(tmp_path / "x.bin"))
    assert os.fstat(file.fileno()).st_size == 5000
    target = np.zeros(100, np.uint8)
    arrival = file.begin(target, 1234)
    for _ in range(2):
        arrival.wait()
        arrival.check()
        assert arrival.done()
    np.testing.assert_array_equal(target, data[1234:1334])
    late = file.begin(target, 4950)
    late.wait()
    for _ in range(2):
        with pytest.raises((OSError, EOFError), match=r"EOF|ends early"):
            late.check()
    again = file.begin(target, 0)
    del file  # what is on its way keeps it open
    again.check()
    np.testing.assert_array_equal(target, data[:100])
    with pytest.raises(OSError, match=r"nothing\.bin"):
        reader.open(str(tmp_path / "nothing.bin"))


def test_reads_are_asked_for_on_the_gpu_that_they_are_for(door, monkeypatch, tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(8))
    numbers = []
    current = types.SimpleNamespace(Device=lambda number: nullcontext(numbers.append(number)))
    monkeypatch.setattr(kvikio, "cupy_module", lambda: types.SimpleNamespace(cuda=current))
    reader = kvikio.KvikioReader(door._library, 2)
    reader.open(str(tmp_path / "x.bin")).begin(np.zeros(8, np.uint8), 0).check()
    assert numbers == [2]


def test_a_read_under_way_is_not_done_and_a_short_one_is_told(tmp_path):
    with (tmp_path / "x.bin").open("wb") as file:
        future = Future(file.fileno(), 7)
        arrival = kvikio.KvikioArrival(future, file, 30, 8)
        assert arrival.done()
        future.done = lambda: False
        assert not arrival.done()
        with pytest.raises(EOFError, match=r"8 .* 30\b.*\b7\b"):
            arrival.check()
        assert arrival.done()


@pytest.mark.parametrize("fault", [RuntimeError, ValueError])
def test_reads_that_kvikio_refuses_are_told_as_those_of_a_file(door, monkeypatch, fault, tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(8))

    def refuses(*given):
        raise fault("no such memory")

    monkeypatch.setattr(CuFile, "pread", refuses)
    with pytest.raises(OSError, match="kvikio: no such memory"):
        door.open(str(tmp_path / "x.bin")).begin(np.zeros(8, np.uint8), 0)


def test_the_door_is_named_by_its_version(door):
    assert door.name == "kvikio 26.10"


def test_a_library_that_is_missing_or_lacks_its_own_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "kvikio", None)
    with pytest.raises(MissingExtraError, match=r"needs? kvikio .*gds-cu13"):
        kvikio.kvikio_reader(0)

    def broken(*_):
        raise RuntimeError("Failure finding libcufile.so.0")

    monkeypatch.setattr(kvikio, "extra_module", broken)
    with pytest.raises(MissingExtraError, match=r"does not load here .*libcufile.*gds-cu13"):
        kvikio.kvikio_reader(0)


DRIVER = r"""
#include <stdlib.h>
int cuPointerGetAttribute(void* data, int what, unsigned long at) { return 1; }
int cuPointerGetAttributes(unsigned n, int* which, void** data, unsigned long at) {
    for (unsigned k = 0; k < n; ++k) *(int*)data[k] = 0;
    return 0;
}
int cuMemHostAlloc(void** found, size_t n, unsigned flags) { *found = malloc(n); return 0; }
int cuMemFreeHost(void* memory) { free(memory); return 0; }
int cuGetErrorName(int error, const char** name) { *name = "an error"; return 0; }
int cuGetErrorString(int error, const char** words) { *words = "an error"; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
"""
NOTHING = """\
cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxGetCurrent cuCtxGetDevice cuCtxPopCurrent_v2
cuCtxPushCurrent_v2 cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDevicePrimaryCtxRelease_v2
cuDevicePrimaryCtxRetain cuEventCreate cuEventDestroy_v2 cuEventQuery cuEventRecord
cuEventSynchronize cuInit cuLaunchHostFunc cuMemGetAddressRange_v2 cuMemHostRegister_v2
cuMemHostUnregister cuMemcpyAsync cuMemcpyBatchAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyHtoDAsync_v2
cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize
"""
PROGRAM = """
import sys, types
from contextlib import nullcontext
from pathlib import Path
import numpy as np
from labeled.device import kvikio
current = types.SimpleNamespace(Device=nullcontext)
kvikio.cupy_module = lambda: types.SimpleNamespace(cuda=current)
path = Path(sys.argv[1])
data = np.random.default_rng(0).integers(0, 255, 9_000_000, np.uint8)
data.tofile(path)
reader = kvikio.kvikio_reader(0)
print(reader.name)
file = reader.open(str(path))
target = np.zeros(8_500_000, np.uint8)
arrivals = [file.begin(target[a : a + 850_000], 1234 + a) for a in range(0, 8_500_000, 850_000)]
del file
for arrival in arrivals:
    arrival.check(), arrival.wait(), arrival.check()
    assert arrival.done()
assert (target == data[1234:8_501_234]).all()
late = reader.open(str(path)).begin(target, 1_000_000)
try:
    late.check()
except OSError as error:
    assert "EOF" in str(error)
    print("told where the file ends")

import labeled
from labeled.device import HostDevice


class ReadByKvikio(HostDevice):
    def direct_reader(self):
        return reader


ds = labeled.open_dataset(sys.argv[2]).select("chunks", "plain", "sparse")
for shuffle in (False, "window"):
    options = {"batch_size": 33, "shuffle": shuffle, "seed": 3, "memory": "4 MiB"}
    ours = ds.batches(device=ReadByKvikio(), reader="device", **options)
    for one, two in zip(ours, ds.batches(**options), strict=True):
        for name in two.arrays:
            np.testing.assert_array_equal(one.arrays[name], two.arrays[name])
    assert ours.explain().direct == reader.name
    print(ours.stats().direct_bytes, "bytes of batches")
"""


@pytest.mark.skipif(find_spec("kvikio") is None, reason="kvikio is not installed")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_kvikio_itself_reads_to_the_host(tmp_path):
    """It asks a driver what memory is, and is told that it is the host's."""
    path = write(tmp_path / "d.hdf5", n=6000)
    source = tmp_path / "driver.c"
    source.write_text(
        DRIVER + "".join(f"int {name}() {{ return 0; }}\n" for name in NOTHING.split())
    )
    driver = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", driver, source], check=True)
    more = {"LD_LIBRARY_PATH": str(tmp_path), "KVIKIO_COMPAT_MODE": "ON"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "x.bin", path],
        env=os.environ | more, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "kvikio" in done.stdout
    assert "told where the file ends" in done.stdout
    assert done.stdout.count("bytes of batches") == 2


def test_only_bytes_that_are_stored_count_as_read(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        x = f.create_dataset("x", (640, 100), "i4", chunks=(64, 100), fillvalue=3)
        x[:200] = np.arange(200 * 100).reshape(200, 100)
        x.dims[0].label, x.dims[1].label = "batch", "index"
    ds = labeled.open_dataset(tmp_path / "x.hdf5")
    loader = ds.batches(50, device=HostDevice(), reader="device", memory="4 MiB")
    found = np.concatenate([batch["x"] for batch in loader])
    with h5py.File(tmp_path / "x.hdf5", "r") as f:
        np.testing.assert_array_equal(found, f["x"])
        assert f["x"].id.get_num_chunks() == 4
    assert loader.stats().direct_bytes == 4 * 64 * 400
