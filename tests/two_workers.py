"""Two worker processes on this machine, and a file to fold: what tests of the cluster share."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from multiprocessing import forkserver

import dask
import numpy as np

from labeled import cluster as cl
from make_files import DIGIT_LABELS, digits, fuel_file

N = 203
DATA = digits(N)
WORKERS = 2


@contextmanager
def forked_workers():
    """Make workers forks of a server that has the libraries, which take two seconds to import."""
    if sys.platform == "win32":  # which has no forks
        yield
        return
    forkserver.ensure_running()  # with what conftest.py names, before distributed names less
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@contextmanager
def two_workers():
    """Have two worker processes, each with a token; yield a client of theirs."""
    with (
        forked_workers(),
        cl.local_cluster(WORKERS, resources={"TOKEN": 1}) as cluster,
        cluster.get_client() as made,
    ):
        made.wait_for_workers(WORKERS)
        yield made


def file_of_digits(folder):
    """Write a file of images, targets and names, in two splits."""
    return fuel_file(
        folder / "d.hdf5",
        {**DATA, "names": np.array([f"class {label % 4}" for label in range(N)])},
        {"train": (0, 150), "test": (150, N)},
        {**DIGIT_LABELS, "names": ("batch",)},
        chunks={"features": (8, 3, 5, 7)},
        compression={"features": "gzip"},
    )


def count_rows(acc, batch):
    return acc + np.bincount(batch.rows[: batch.count], minlength=len(acc))


def nothing_yet():
    return np.zeros(N, np.int64)


def count_and_note(folder, acc, batch):
    """Count rows, and leave a mark for every batch that was folded."""
    with open(os.path.join(folder, "folds"), "a") as file:
        file.write(f"{os.getpid()}\n")
    return count_rows(acc, batch)


class KilledOnce:
    """Fold as `count_and_note`; the first worker that comes to a certain row is killed."""

    def __init__(self, folder, row):
        self.folder, self.row = str(folder), row

    def __call__(self, acc, batch):
        if self.row in batch.rows:
            try:
                os.mkdir(os.path.join(self.folder, "killed"))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return count_and_note(self.folder, acc, batch)
