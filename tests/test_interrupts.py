"""Ctrl-C, a fork: wherever they come, no batch is lost and nobody hangs."""

from __future__ import annotations

import contextlib
import dis
import os
import signal
import sys
import threading
import time
import warnings

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import LoaderError

N = 400
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("interrupts") / "x.hdf5"
    return labeled.write(path, {"x": np.arange(N * 6).reshape(N, 6)}, chunks=10, compression="gzip")


def loader_of(path, **options):
    order = {"shuffle": "window", "window_rows": 100, "memory": "2 MiB", "seed": 5}
    return labeled.open_dataset(path).batches(16, **{**order, **options})


def rows_of(batches):
    return [rows.copy() for _, rows, _ in batches]


class InterruptAt:
    """Raises KeyboardInterrupt before the n-th instruction of an iterator's own methods.

    None of those that return: Python looks for signals behind calls and jumps. Counts from when
    it is armed; a method must have run once before, for Python 3.14 to tell of its instructions.
    """

    def __init__(self, kind, n):
        self.left, self.armed, self.raised = n, False, False
        methods = vars(kind).values()
        self._codes = {method.__code__ for method in methods if hasattr(method, "__code__")}

    def called(self, frame, event, arg):
        if frame.f_code not in self._codes:
            return None
        frame.f_trace_opcodes = True
        return self.stepped

    def stepped(self, frame, event, arg):
        if event == "opcode" and self.armed and not self.raised:
            code = frame.f_code.co_code[frame.f_lasti]
            self.left -= not dis.opname[code].startswith("RETURN")
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self.stepped

    def __enter__(self):
        self._before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks when tracing begins
        sys.settrace(self.called)
        return self

    def __exit__(self, *exc):
        sys.settrace(self._before)


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"pipeline": lambda data: data}])
def test_wherever_an_interrupt_comes_the_rest_follows_whole(packed, options):
    options = {**options, "threads": 0}
    whole = rows_of(loader_of(packed, **options).with_rows())
    at, raised, broken, loader = 0, True, [], loader_of(packed, **options)
    begin = loader.state_dict()
    while raised:
        at += 1
        loader.load_state_dict(begin)
        iterator, seen = iter(loader.with_rows()), []
        next_rows = iterator.__next__
        with InterruptAt(type(iterator), at) as interrupt:
            seen.append(next_rows()[1])
            interrupt.armed = True
            try:
                seen.append(next_rows()[1])
            except KeyboardInterrupt:
                assert interrupt.raised
        raised = interrupt.raised
        assert len(seen) == 1 + (not raised)
        try:
            seen.append(next_rows()[1])
        except LoaderError as error:
            broken.append(str(error))
        loader.load_state_dict(loader.state_dict())
        seen += rows_of(loader.with_rows())
        assert [rows.tolist() for rows in seen] == [rows.tolist() for rows in whole], at
    assert at > len(broken) > 100
    assert "was broken off by KeyboardInterrupt after 1 of 25 batches" in broken[0]


def reading_threads():
    return [one for one in threading.enumerate() if one.name.startswith("labeled-read")]


def no_thread_reads():
    end = time.monotonic() + 10
    while reading_threads() and time.monotonic() < end:
        time.sleep(0.01)
    return not reading_threads()


def test_an_interrupt_while_threads_are_started_leaves_none(packed, monkeypatch):
    start, loader = threading.Thread.start, loader_of(packed, threads=2, pipeline=lambda data: data)

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        iter(loader)
    assert no_thread_reads()


def test_an_interrupt_while_an_epoch_ends_leaves_no_thread(packed):
    at, raised, loader = 0, True, loader_of(packed, threads=1, pipeline=lambda data: data)
    iterator = iter(loader)
    with InterruptAt(type(iterator), 1):  # never armed: the first run
        iterator.close()
    while raised:
        at += 1
        iterator = iter(loader)
        next(iterator)
        with contextlib.suppress(KeyboardInterrupt), InterruptAt(type(iterator), at) as interrupt:
            interrupt.armed = True
            iterator.close()
        raised = interrupt.raised
        del iterator
        assert no_thread_reads(), at
    assert at > 10


@contextlib.contextmanager
def interrupted_on_return(function):
    """Raise KeyboardInterrupt whenever a function has done its work."""

    def called(frame, event, arg):
        return returned if frame.f_code is function.__code__ else None

    def returned(frame, event, arg):
        if event == "return":
            raise KeyboardInterrupt
        return returned

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


def slow(data):
    time.sleep(0.002)
    return data


@pytest.mark.parametrize("options", [{}, {"pipeline": slow}])
@pytest.mark.parametrize("python", [threading.Condition.__enter__, threading.Condition.wait])
def test_no_lock_is_taken_where_an_interrupt_would_leave_it_taken(packed, options, python):
    """`with condition` is Python's: Ctrl-C may come when it has the lock, and before its block."""
    iterator = iter(loader_of(packed, threads=2, **options))
    with interrupted_on_return(python):
        assert sum(batch.count for batch in iterator) == N


def test_an_interrupt_within_a_transform_is_itself(packed):
    loader = loader_of(packed, threads=0, pipeline=slow)
    iterator = iter(loader)
    with pytest.raises(KeyboardInterrupt), interrupted_on_return(slow):
        next(iterator)
    loader.load_state_dict(loader.state_dict())
    assert sum(map(len, rows_of(loader.with_rows()))) == N


def test_closing_ends_the_loop_of_another_thread_that_waits():
    """Its next batch is cut and nobody has begun to transform it, as the only thread reads."""
    reads, go_on = threading.Event(), threading.Event()

    def block(values, block_info):
        if not threading.current_thread().name.startswith("labeled-read"):
            time.sleep(0.1)
        elif block_info[0]["chunk-location"][0] > 1:
            reads.set()
            assert go_on.wait(30)
        return values

    rows = da.zeros((400, 1024), chunks=(10, 1024)).map_blocks(block, dtype=float, meta=np.empty(0))
    data = {"rows": xr.DataArray(rows, dims=("batch", "channel"))}
    loader = labeled.batches(data, 20, threads=1, prefetch=3, memory="3.4 MiB", pipeline=slow)
    iterator = iter(loader)
    loop = threading.Thread(target=lambda: list(iterator), daemon=True)
    loop.start()
    assert reads.wait(30)
    time.sleep(0.5)
    threading.Timer(0.1, go_on.set).start()
    iterator.close()
    loop.join(10)
    assert not loop.is_alive()


def test_an_error_is_no_end_of_the_epoch(packed):
    def fails(data):
        raise RuntimeError("no")

    iterator = iter(loader_of(packed, pipeline=fails))
    with pytest.raises(RuntimeError, match="no"):
        next(iterator)
    with pytest.raises(LoaderError, match="broken off by RuntimeError after 0 of 25 batches"):
        next(iterator)
    with pytest.raises(LoaderError, match="batch 0 raised StopIteration"):
        next(iter(loader_of(packed, pipeline=lambda data: next(iter(())))))
    iterator = iter(loader_of(packed))
    iterator.close()
    assert list(iterator) == []  # who ends it knows


def in_fork(work, timeout_s=30):
    """Return whether `work` returned True in a forked child, in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads beside a fork
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(timeout_s)
            code = 0 if work() is True else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


@forks
def test_a_forked_child_iterates_the_loader_of_an_epoch_under_way(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (6000, 1024), dtype=np.uint8)
    path = labeled.write(tmp_path / "x.hdf5", {"x": rows}, chunks=50, compression="gzip")
    loader = loader_of(path, window_rows=500, memory="5 MiB")  # too much to be kept
    iterator = iter(loader)
    seen = [next(iterator).rows for _ in range(5)]

    def reads():
        return sum(batch.count for batch in loader) == len(rows)

    assert in_fork(reads)
    seen += [batch.rows for batch in iterator]
    assert sorted(np.concatenate(seen)) == list(range(len(rows)))


@forks
def test_a_forked_child_computes_lazy_arrays_though_its_parent_did(packed):
    x = labeled.open_dataset(packed)["x"]
    total = int(x.sum())  # dask has threads now, which do not come along
    assert in_fork(lambda: int(x.sum()) == total)


def test_threads_that_cannot_be_started_are_done_without(packed, monkeypatch):
    """As where a system allows a user no more of them."""
    start, started = threading.Thread.start, []

    def refuses(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    whole = rows_of(loader_of(packed).with_rows())
    monkeypatch.setattr(threading.Thread, "start", refuses)
    for options in ({"threads": 3}, {"threads": 3, "pipeline": lambda data: data}):
        found = rows_of(loader_of(packed, **options).with_rows())
        assert [rows.tolist() for rows in found] == [rows.tolist() for rows in whole]


class Stop(Exception):
    pass


def stop(number, frame):
    raise Stop


def stop_for_good(*_):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    raise Stop


def signalling(call, at):
    """Return a call whose `at`-th time comes with a signal."""
    calls = iter(range(at))

    def called(*args, **kwargs):
        if next(calls, None) == at - 1:
            signal.raise_signal(signal.SIGUSR1)
        return call(*args, **kwargs)

    return called


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A hundred pictures as records."""
    picture, folder = pytest.importorskip("PIL.Image"), tmp_path_factory.mktemp("pictures")
    (folder / "pictures" / "a").mkdir(parents=True)
    for i in range(100):
        values = np.full((4, 4, 3), i, "u1")
        picture.fromarray(values).save(folder / "pictures" / "a" / f"{i:03}.gif")
    return labeled.convert(folder / "pictures", folder / "x.rec")


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="a signal for users")
@pytest.mark.parametrize("handler", [stop, stop_for_good])
@pytest.mark.parametrize("options", [{}, {"errors": "skip"}, {"pipeline": lambda data: data}])
@pytest.mark.parametrize("kind", ["h5py", "opening", "dask", "head", "picture"])
def test_what_a_handler_of_a_signal_raises_is_no_damage(
    kind, options, handler, tmp_path, monkeypatch, request
):
    """It comes through as it is, also where damaged rows are left out."""
    if kind in ("h5py", "opening"):  # rows that nobody has stored, more than are kept
        with h5py.File(tmp_path / "x.hdf5", "w") as file:
            layout = h5py.VirtualLayout((1000, 8192), "f8")
            file.create_virtual_dataset("x", layout, fillvalue=1)
        ds = labeled.open_dataset(tmp_path / "x.hdf5", dims={"x": ("batch", "value")})
        owner, name = h5py.Dataset, "__getitem__"
        if kind == "opening":
            owner, name = h5py.File, "__init__"
    elif kind in ("head", "picture"):
        picture = pytest.importorskip("PIL.Image")
        ds = labeled.open_dataset(request.getfixturevalue("pictures")).select("images")
        owner, name = (picture, "open") if kind == "head" else (picture.Image, "convert")
    else:

        def block(block_info):
            return np.ones([z - a for a, z in block_info[None]["array-location"]])

        made = da.map_blocks(block, dtype=float, chunks=((10,) * 100, (8192,)))
        ds = xr.Dataset({"x": (("batch", "value"), made)}).labeled
        owner, name = np, "ones"
    loader = ds.batches(4, threads=0, memory="40 MiB", **options)
    n_rows = 4 * len(loader)
    before = signal.signal(signal.SIGUSR1, handler)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, signalling(getattr(owner, name), 51))
        with pytest.raises(Stop):
            rows_of(loader.with_rows())
    signal.signal(signal.SIGUSR1, before)
    n_seen = 4 * loader.state_dict()["step"]
    assert n_seen < n_rows
    loader.load_state_dict(loader.state_dict())
    rest = np.concatenate(rows_of(loader.with_rows()))
    assert rest.tolist() == [*range(n_seen, n_rows)]
