"""Ctrl-C, a fork: wherever they come, no batch is lost and nobody hangs."""

from __future__ import annotations

import dis
import gzip
import os
import signal
import struct
import sys
import threading
import warnings

import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError
from labeled.formats.bytesource import FileRef
from labeled.loader.buffers import BufferPool, LoadedWindow
from labeled.loader.loader import EpochIterator
from labeled.loader.prefetch import Prefetcher
from labeled.loader.stats import Stats
from labeled.samplers.windows import WindowRows

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

    def __init__(self, n):
        self.left, self.armed, self.raised = n, False, False
        methods = vars(EpochIterator).values()
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
        with InterruptAt(at) as interrupt:
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


def test_an_interrupt_waits_for_no_window():
    """The caller reads for windows that come later, too."""
    stats = Stats()

    def interrupted():
        raise KeyboardInterrupt

    core = Prefetcher(iter(()), [], None, BufferPool({}, 1, 1), stats)
    later = LoadedWindow(0, 1, WindowRows(), {})
    later.pending = 1
    with pytest.raises(KeyboardInterrupt):
        core.read(later, interrupted)
    assert isinstance(later.error, KeyboardInterrupt)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_window_has_the_error_of_a_piece_of_it_whatever_became_of_the_others(failing):
    core = Prefetcher(iter(()), [], None, BufferPool({}, 1, 1), Stats())
    window = LoadedWindow(0, 1, WindowRows(), {})
    window.pending = 3
    fault = OSError("this piece")

    def fails():
        raise fault

    for number in range(3):
        core.read(window, fails if number == failing else lambda: None)
    assert window.ready
    assert window.error is fault


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
def test_a_fork_ends_an_iteration_without_the_locks_of_threads_left_behind(packed):
    iterator = iter(loader_of(packed, pipeline=lambda data: data, threads=2))
    next(iterator)
    held, done = threading.Event(), threading.Event()

    def holds():
        with iterator._source._changed:
            held.set()
            done.wait(60)

    def leaves():
        iterator.close()
        return True

    holder = threading.Thread(target=holds)
    holder.start()
    held.wait()
    ended = in_fork(leaves)
    done.set()
    holder.join()
    iterator.close()
    assert ended


@forks
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cached properties have no lock there")
def test_a_forked_child_needs_no_lock_of_a_property_that_a_thread_computes(packed):
    """Python 3.11 has one for all objects of a class, which a thread left behind may hold."""
    loader = loader_of(packed, shuffle="window")
    expected = rows_of(loader.with_rows())
    held, done = threading.Event(), threading.Event()

    def holds():
        with WindowRows.__dict__["rows"].lock:
            held.set()
            done.wait(60)

    def same():
        signal.alarm(20)  # ends a child that waits for ever
        loader.set_epoch(0)
        found = rows_of(loader.with_rows())
        return all(map(np.array_equal, found, expected)) and len(found) == len(expected)

    holder = threading.Thread(target=holds)
    holder.start()
    held.wait()
    went_on = in_fork(same)
    done.set()
    holder.join()
    assert went_on


@forks
def test_a_forked_child_opens_files_anew(tmp_path):
    """A thread that did not come along may have the lock of a packed file for ever."""
    path = tmp_path / "train-images-idx3-ubyte.gz"
    header = struct.pack(">iiii", 2051, 64, 4, 4)
    path.write_bytes(gzip.compress(header + bytes(64 * 16)))
    dataset = labeled.open_dataset(path)
    (name,) = dataset
    ref = FileRef(dataset._sources[name].headers[0].file)
    file = ref()
    assert ref() is file
    with file._lock:
        assert in_fork(lambda: ref() is not file and ref().size == file.size)


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
