"""Workers that are killed, paused, late or new, and schedulers that go: each row once, and told."""

from __future__ import annotations

import operator
import os
import threading
import time
from contextlib import ExitStack

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


class BegunAndSlow:
    """Leave a mark, and take long."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, acc, batch):
        (self.folder / "begun").touch()
        time.sleep(0.2)
        return acc


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_goes_is_reported(ds, tmp_path):

    def end():
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        cluster.sync(cluster.scheduler.close)

    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, cl.local_cluster(1, processes=False) as cluster, cluster.get_client() as own:
        thread = threading.Thread(target=end)
        thread.start()
        with pytest.raises(ClusterError, match=r"the scheduler at .* no longer answers"):
            cl.run_parts(own, ds, BegunAndSlow(tmp_path), 0, operator.add, batch_size=5)
        thread.join()


def _pause(pausing, dask_worker):
    dask_worker.memory_manager.memory_pause_fraction = False if pausing else 0.8
    dask_worker.status = distributed.Status.paused if pausing else distributed.Status.running


class PausesItself:
    """Count rows; the worker that comes to the first row is paused, and waits to be told."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, acc, batch):
        if 0 in batch.rows and not (self.folder / "address").exists():
            worker = distributed.get_worker()
            worker.loop.add_callback(_pause, True, worker)
            (self.folder / "address.part").write_text(worker.address)
            (self.folder / "address.part").rename(self.folder / "address")
            while not (self.folder / "over").exists():
                time.sleep(0.05)
        time.sleep(0.05)
        return count_rows(acc, batch)


def test_parts_of_a_worker_that_is_paused_meanwhile_go_to_another(client, ds, tmp_path):
    timer = threading.Timer(40, (tmp_path / "over").touch)
    timer.start()
    with ExitStack() as after:
        after.callback(lambda: client.run(_pause, False))
        after.callback((tmp_path / "over").touch)
        fold = PausesItself(tmp_path)
        found = cl.run_parts(client, ds, fold, nothing_yet, operator.add, batch_size=9, parts=6)
        late = (tmp_path / "over").exists()
    timer.cancel()
    assert not late, "nothing ended before the worker went on"
    np.testing.assert_array_equal(found, np.ones(N))


class NotesAndSlow:
    """Leave a mark for each batch, and take long."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, acc, batch):
        time.sleep(0.05)
        return count_and_note(self.folder, np.zeros(N, np.int64), batch)


def test_a_client_that_is_closed_is_reported(client, ds, tmp_path):
    marks = tmp_path / "folds"

    def close():
        while not marks.exists():
            time.sleep(0.02)
        own.close()

    own = distributed.Client(client.scheduler.address, set_as_default=False)
    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(ClusterError, match="or the client was closed in the middle of its work"):
        cl.run_parts(own, ds, NotesAndSlow(tmp_path), 0, operator.add, batch_size=1, every=2)
    thread.join()
