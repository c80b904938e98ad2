"""Workers that are killed, paused, late or new, and schedulers that go: each row once, and told."""

from __future__ import annotations

import operator
import os
import pickle
import threading
import time
from contextlib import ExitStack, contextmanager

import dask
import distributed
import numpy as np
import pytest
from two_workers import (
    WORKERS,
    KilledOnce,
    N,
    count_and_note,
    count_rows,
    file_of_digits,
    nothing_yet,
    two_workers,
)

import labeled
from labeled import cluster as cl
from labeled.cluster import client as clients
from labeled.cluster import parts
from labeled.cluster.client import Worker, workers_of
from labeled.cluster.parts import PartWork, Report, _Rules, _Run, _Share, run_part
from labeled.errors import ClusterError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    return labeled.open_dataset(file_of_digits(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def client():
    with two_workers() as made:
        yield made


@pytest.fixture(autouse=True)
def quiet(client):
    """Let worker processes that a test killed come back before the next test begins."""
    yield
    client.wait_for_workers(WORKERS, timeout=200)


def test_a_worker_killed_in_mid_epoch_costs_no_row_and_repeats_none(client, ds, tmp_path):
    before = set(client.nthreads())
    fold = KilledOnce(tmp_path, row=40)  # in the middle of the first of three parts
    found = cl.run_parts(
        client, ds, fold, nothing_yet, operator.add, batch_size=4, parts=3, every=2
    )
    assert (tmp_path / "killed").exists()
    assert before - set(client.nthreads()), "no worker process was lost"
    np.testing.assert_array_equal(found, np.ones(N))
    n_batches, folds = 3 * 17, len((tmp_path / "folds").read_text().split())
    assert n_batches <= folds <= n_batches + 2, "what was told before the kill was folded again"


class KilledAt:
    """Count rows; whoever comes to one of some rows is killed, each time or the first time."""

    def __init__(self, folder, rows, again=False):
        self.folds = {row: KilledOnce(folder / str(row), row) for row in rows}
        self.again = again
        for row in rows:
            (folder / str(row)).mkdir()

    def __call__(self, acc, batch):
        for row, fold in self.folds.items():
            if row in batch.rows:
                if self.again and os.path.exists(os.path.join(fold.folder, "killed")):
                    os.rmdir(os.path.join(fold.folder, "killed"))
                fold(acc, batch)
        return count_rows(acc, batch)


ONE_PART = {"batch_size": 8, "every": 1, "parts": 1, "retries": 1}


def test_a_part_that_comes_further_may_lose_any_number_of_workers(ds, tmp_path):
    fold = KilledAt(tmp_path, (20, 100))
    with two_workers() as own:
        found = cl.run_parts(own, ds, fold, nothing_yet, operator.add, **ONE_PART)
    np.testing.assert_array_equal(found, np.ones(N))
    assert all((tmp_path / row / "killed").exists() for row in ("20", "100"))


def test_a_part_that_loses_worker_after_worker_is_given_up(ds, tmp_path):
    fold = KilledAt(tmp_path, (20,), again=True)
    words = r"part 0 of 1 lost its worker 2 times in a row after batch 2, last '"
    with two_workers() as own, pytest.raises(ClusterError, match=words):
        cl.run_parts(own, ds, fold, nothing_yet, operator.add, **ONE_PART)


GONE = Worker("tcp://127.0.0.1:1", "w", "here")


@contextmanager
def a_run(client, ds, known=(), retries=0, n_parts=1):
    """Have parts to give out, to workers that are known to see the files."""
    works = [
        PartWork("run", ds, (i, n_parts), count_rows, nothing_yet, 8, {}, False)
        for i in range(n_parts)
    ]
    run = _Run(client, works, _Rules(None, {}, retries, 1.0), known, lambda _: None)
    try:
        yield run
    finally:
        run._reports.close()


def test_a_part_that_is_done_needs_no_worker_any_more(client, ds):
    """Its worker may go before its end is seen, after its last report."""
    with a_run(client, ds) as run:
        share = run._waiting.popleft()
        share.worker, share.done = GONE, True
        run._look_around()
    assert not run._waiting


class Killed:
    """A task that the scheduler gave up, for several workers ended while they were at it."""

    status = "error"

    def done(self):
        return True

    def exception(self):
        return distributed.KilledWorker("a part", None, 3)

    def cancel(self):
        pass


def test_a_part_that_the_scheduler_gives_up_goes_to_another_worker_as_long_as_it_may(client, ds):
    with a_run(client, ds, retries=1) as run:
        share = run._waiting.popleft()
        share.worker, share.future = GONE, Killed()
        run._listen()
        assert list(run._waiting) == [share]
        assert (share.worker, share.future) == (None, None)
        share.worker, share.future = GONE, Killed()
        with pytest.raises(ClusterError, match="part 0 of 1 lost its worker 2 times in a row"):
            run._listen()


class BegunAndSlow:
    """Leave a mark, and take long."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, acc, batch):
        (self.folder / "begun").touch()
        time.sleep(0.2)
        return acc


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_goes_is_reported(ds, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "CONNECT_S", 0.5)
    monkeypatch.setattr(clients, "AGAIN_S", 0.5)

    def end():
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        cluster.sync(cluster.scheduler.close)

    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, cl.local_cluster(1, processes=False) as cluster, cluster.get_client() as own:
        thread = threading.Thread(target=end)
        thread.start()
        with pytest.raises(ClusterError, match=r"the scheduler at .* does not answer any more"):
            cl.run_parts(own, ds, BegunAndSlow(tmp_path), 0, operator.add, batch_size=5, wait_s=0.5)
        thread.join()


def test_a_scheduler_that_was_there_is_not_waited_for_as_one_that_begins(monkeypatch):
    monkeypatch.setattr(clients, "CONNECT_S", 30.0)
    monkeypatch.setattr(clients, "AGAIN_S", 0.2, raising=False)
    with cl.local_cluster(1, processes=False) as cluster:
        client = cluster.get_client()
        address = clients.address_of(client)
        client.close()
    began = time.monotonic()
    with pytest.raises(OSError), clients.reachable(client, address):
        pass
    assert time.monotonic() - began < 10


@contextmanager
def paused(client, address):
    """Have a worker begin nothing, as one does whose memory is nearly full."""
    client.run(_pause, True, workers=[address])
    try:
        while not workers_of(client)[address].paused:
            time.sleep(0.05)
        yield
    finally:
        client.run(_pause, False, workers=[address])


def _pause(pausing, dask_worker):
    dask_worker.memory_manager.memory_pause_fraction = False if pausing else 0.8
    dask_worker.status = distributed.Status.paused if pausing else distributed.Status.running


@contextmanager
def resumed_after(client, address, seconds):
    """Let a test that waits for a paused worker fail rather than wait for ever."""
    late = []
    timer = threading.Timer(
        seconds, lambda: (late.append(1), client.run(_pause, False, workers=[address]))
    )
    timer.start()
    yield late
    timer.cancel()
    timer.join()


def test_a_paused_worker_is_given_no_part(client, ds, monkeypatch):
    monkeypatch.setattr(clients, "ASK_S", 600)
    monkeypatch.setattr(parts, "QUIET_S", 600)
    address = min(client.nthreads())
    with paused(client, address), resumed_after(client, address, 60) as late:
        found = cl.run_parts(client, ds, count_rows, nothing_yet, operator.add, batch_size=9)
        assert not late, "nothing ended before the worker was there again"
        monkeypatch.setattr(clients, "ASK_S", 0.2)
        with pytest.raises(
            ClusterError, match=rf"(?s)1 of 2 workers.*{address}.*it is paused, bec"
        ):
            cl.check_files(client, ds)
    np.testing.assert_array_equal(found, np.ones(N))


class PausesItself:
    """Count rows; the worker that comes to the first row is paused, and may wait to be told."""

    def __init__(self, folder, *, waits):
        self.folder, self.waits = folder, waits

    def __call__(self, acc, batch):
        if 0 in batch.rows and not (self.folder / "address").exists():
            worker = distributed.get_worker()
            worker.loop.add_callback(_pause, True, worker)
            (self.folder / "address.part").write_text(worker.address)
            (self.folder / "address.part").rename(self.folder / "address")
            time.sleep(0.3)
            while self.waits and not (self.folder / "over").exists():
                time.sleep(0.05)
        time.sleep(0.05)
        return count_rows(acc, batch)


@pytest.mark.parametrize("waits", [False, True])
def test_parts_of_a_worker_that_is_paused_meanwhile_go_to_another(
    client, ds, tmp_path, monkeypatch, waits
):
    monkeypatch.setattr(parts, "LOOK_S", 0.05)
    monkeypatch.setattr(parts, "QUIET_S", 0.5 if waits else 60)
    timer = threading.Timer(15, (tmp_path / "over").touch)
    timer.start()
    with ExitStack() as after:
        after.callback(lambda: client.run(_pause, False))
        fold = PausesItself(tmp_path, waits=waits)
        after.callback((tmp_path / "over").touch)
        found = cl.run_parts(client, ds, fold, nothing_yet, operator.add, batch_size=9, parts=6)
        late = (tmp_path / "over").exists()
    timer.cancel()
    assert not late, "nothing ended before the worker went on"
    np.testing.assert_array_equal(found, np.ones(N))


def test_when_all_are_paused_for_good_that_is_reported(client, ds, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "LOOK_S", 0.05)
    timer = threading.Timer(20, lambda: client.run(_pause, False))
    timer.start()
    with ExitStack() as after:
        after.callback(lambda: client.run(_pause, False))
        fold = PausedAtFirst(tmp_path)
        with pytest.raises(
            ClusterError, match=r"every worker is paused since 0\.5 s, with 3 parts"
        ):
            cl.run_parts(
                client, ds, fold, nothing_yet, operator.add, batch_size=9, parts=5, wait_s=0.5
            )
    assert timer.is_alive()
    timer.cancel()
    assert len((tmp_path / "folds").read_text().split()) == 2 * 5, "what was begun was not ended"


class PausedAtFirst:
    """Pauses its worker; what the worker is at then goes on, and takes longer than one waits."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, acc, batch):
        worker = distributed.get_worker()
        worker.loop.add_callback(_pause, True, worker)
        time.sleep(0.4)
        return count_and_note(self.folder, acc, batch)


class NotesAndSlow:
    """Leave a mark for each batch, and take long."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, acc, batch):
        time.sleep(0.05)
        return count_and_note(self.folder, np.zeros(N, np.int64), batch)


def test_a_client_that_is_closed_is_reported_and_workers_end(client, ds, tmp_path):
    marks = tmp_path / "folds"

    def close():
        while not marks.exists():
            time.sleep(0.02)
        own.close()

    own = distributed.Client(client.scheduler.address, set_as_default=False)
    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(ClusterError, match="the client was closed in the middle of its work"):
        cl.run_parts(own, ds, NotesAndSlow(tmp_path), 0, operator.add, batch_size=1, every=2)
    thread.join()
    for address in client.nthreads():  # comes to this when it has ended that
        client.submit(os.getpid, workers=[address], pure=False).result()
    assert len(marks.read_text().split()) < N, "workers went through the epoch for nobody"


def test_who_works_is_reported_right_whatever_the_client_asks():
    """It asks now and then who is there, and keeps an answer that names nobody."""
    often = dask.config.set({"distributed.client.scheduler-info-interval": "1ms"})
    with often, cl.local_cluster(1, processes=False) as cluster, cluster.get_client() as own:
        addresses = set(own.nthreads())
        assert all(set(workers_of(own)) == addresses for _ in range(500))


class Silent:
    """A worker's answer that never comes, or that something else took too long there."""

    def __init__(self, status):
        self.status = status

    def result(self, timeout=None):
        raise TimeoutError("no file server answers")


def test_a_worker_that_goes_while_it_is_asked_is_no_worker_any_more(client):
    assert clients._answer(client, GONE, Silent("pending")) is None
    with pytest.raises(TimeoutError):
        clients.said(Silent("finished"), 0.1)  # just now: it is asked for again
    assert clients.said(Silent("error")) == "TimeoutError: no file server answers"


def test_a_worker_that_joins_and_sees_no_files_is_left_out(client, ds, tmp_path, monkeypatch):
    def no_such_file(asked):
        tmp_path.joinpath("joined").touch()
        return "no such file"

    monkeypatch.setattr(parts, "said", no_such_file)
    with pytest.warns(labeled.LabeledWarning, match="joined and is left out, .*: no such file"):
        found = cl.run_parts(
            client, ds, KilledThenWaiting(tmp_path, 40), nothing_yet, operator.add, batch_size=8
        )
    np.testing.assert_array_equal(found, np.ones(N))


class KilledThenWaiting(KilledOnce):
    """It goes on once another worker has joined, however long that takes."""

    def __call__(self, acc, batch):
        end = time.monotonic() + 120
        while (
            os.path.exists(os.path.join(self.folder, "killed"))
            and not os.path.exists(os.path.join(self.folder, "joined"))
            and time.monotonic() < end
        ):
            time.sleep(0.05)
        return super().__call__(acc, batch)


def test_nobody_waits_for_a_worker_that_joins_and_has_other_work(client, ds):
    busy, free = sorted(client.nthreads())
    end = distributed.Event("end of other work", client=client)
    other = client.submit(waits_for, "end of other work", workers=[busy], pure=False)
    with a_run(client, ds, [free], n_parts=2) as run:
        try:
            for _ in range(3):
                run._look_around()  # returns, though it says nothing yet
            assert set(run._workers) == {free}
            assert run._asked[free] is None is not run._asked[busy]
        finally:
            end.set()
            other.result()
        while run._asked[busy] is not None:
            run._look_around()
        assert set(run._workers) == {free, busy}


def look_once_more_after(run, address):
    while address not in run._rejected:
        run._look_around()
    run._look_around()


def test_a_worker_that_sees_no_files_is_reported_once(client, ds, monkeypatch):
    monkeypatch.setattr(parts, "said", lambda asked: "no such file")
    one, other = sorted(client.nthreads())
    with a_run(client, ds, [one]) as run:
        with pytest.warns(labeled.LabeledWarning, match="joined and is left out") as caught:
            look_once_more_after(run, other)
        assert (len(caught), set(run._workers)) == (1, {one})


def waits_for(name):
    distributed.Event(name).wait()


def test_reports_that_come_late_change_nothing(ds):
    share = _Share(PartWork("r", ds, (0, 1), count_rows, 0, 1, {}, with_rows=False))
    assert share.take(Report(0, 4, 32, done=False, pair=b"four"))
    assert not share.take(Report(0, 2, 16, done=False, pair=b"of a worker thought lost"))
    assert not share.take(Report(0, 4, 32, done=False, pair=b"the same, by another worker"))
    assert share.take(Report(0, 6, 16, done=True, pair=b"six"))
    assert not share.take(Report(0, 6, 16, done=True, pair=b"the same, by another worker"))
    assert (share.pair, share.step) == (b"six", 6)


def test_the_report_of_the_last_batch_ends_the_part(client, ds):
    """Going on from its state would begin the next epoch."""
    work = PartWork("the-run", ds, (1, 2), count_rows, nothing_yet, 2, {"batch_size": 34}, False)
    queue = distributed.Queue("the-run", client=client)
    with client.as_current():
        run_part(work, None)
        told = [pickle.loads(each) for each in queue.get(batch=True)]
        run_part(work, told[0].pair)
        again = [pickle.loads(each) for each in queue.get(batch=True)]
    queue.close()
    assert [(each.step, each.n_rows, each.done) for each in told] == [(2, 68, False), (3, 34, True)]
    assert [each.step for each in again] == [3]
    np.testing.assert_array_equal(*(pickle.loads(each.pair)[0] for each in (told[1], again[0])))
