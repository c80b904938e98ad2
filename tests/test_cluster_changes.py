"""Files that are replaced under a running cluster: an error, or the rows that were opened."""

from __future__ import annotations

import operator
import os
import pickle
import time

import h5py
import numpy as np
import pytest
from two_workers import two_workers

import labeled
from labeled import cluster as cl
from labeled.errors import ClusterError, FileChangedError

N = 240


def values_file(path, value):
    """Write a file that differs from others of its kind in nothing but values and time."""
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", data=np.full((N, 16), value, np.int32), chunks=(20, 16))
        made.dims[0].label, made.dims[1].label = "batch", "value"
    return str(path)


def replaced(path, value, how):
    """Give a file other values, once; return whether this call did it."""
    try:
        os.mkdir(f"{path}.replaced")
    except FileExistsError:
        return
    time.sleep(0.02)  # a file system's clock ticks some hundred times a second
    if how == "renamed":
        os.replace(values_file(f"{path}.new", value), path)
    else:
        with open(values_file(f"{path}.new", value), "rb") as new, open(path, "r+b") as file:
            file.write(new.read())
    os.mkdir(f"{path}.done")


class ReplacesMeanwhile:
    """Add up what is folded; the first worker that comes to a certain row replaces the file.

    Rows behind it wait for that, or they could all be through before.
    """

    def __init__(self, path, row, how):
        self.path, self.row, self.how = path, row, how

    def __call__(self, acc, batch):
        if self.row in batch.rows:
            replaced(self.path, 2, self.how)
        end = time.monotonic() + 60
        while batch.rows.min() > self.row and time.monotonic() < end:
            if os.path.exists(f"{self.path}.done"):
                break
            time.sleep(0.01)
        return acc + int(batch["x"].values.sum())


def total(acc, batch):
    return acc + int(batch["x"].values.sum())


@pytest.fixture(scope="module")
def client():
    with two_workers() as made:
        yield made


@pytest.fixture
def path(tmp_path):
    return values_file(tmp_path / "x.hdf5", 1)


@pytest.mark.parametrize(("how", "row"), [("renamed", 0), ("overwritten", N // 2 + 30)])
def test_a_file_replaced_during_a_run_is_noticed_and_named(client, path, how, row):
    ds = labeled.open_dataset(path)
    with pytest.raises(FileChangedError, match=r"x\.hdf5' has changed since it was opened"):
        cl.run_parts(
            client, ds, ReplacesMeanwhile(path, row, how), 0, operator.add, batch_size=10, parts=6
        )


def test_workers_that_have_a_file_open_notice_that_its_path_leads_to_another(client, path):
    ds = labeled.open_dataset(path)
    run = {"init": 0, "combine": operator.add, "batch_size": 10, "parts": 2}
    assert cl.run_parts(client, ds, total, **run) == N * 16  # each keeps a descriptor
    replaced(path, 2, "renamed")
    with pytest.raises(ClusterError, match=r"2 of 2 workers cannot (.*\n)*.*x\.hdf5'.*modified at"):
        cl.run_parts(client, ds, total, **run)
    with pytest.raises(ClusterError, match=r"2 of 2 workers cannot (.*\n)*.*cp -p"):
        cl.write(client, path + ".written", ds)
    assert cl.run_parts(client, labeled.open_dataset(path), total, **run) == 2 * N * 16


def test_lazy_arrays_of_a_file_that_was_replaced_before_raise(client, path, tmp_path):
    ds = labeled.open_dataset(path)
    replaced(path, 2, "renamed")
    changed = r"x\.hdf5' has changed since it was opened"
    with client.as_current(), pytest.raises(FileChangedError, match=changed):
        ds["x"].compute()
    with pytest.raises(FileChangedError, match=changed):
        cl.write(client, tmp_path / "y.hdf5", {"x": ds["x"]})


def test_datasets_travel_without_headers(path):
    ds = labeled.open_dataset(path).isel(value=3)
    assert ds.dims["x"] == ("batch",)  # which takes headers
    frozen = pickle.dumps(ds)
    assert b"Header" not in frozen
    assert len(frozen) < 1000
    np.testing.assert_array_equal(pickle.loads(frozen)["x"], np.ones(N))


def test_what_travels_elsewhere_may_be_a_copy_of_another_time(path):
    """Which only a cluster refuses: there, others may read the file at the same moment."""
    frozen = pickle.dumps(labeled.open_dataset(path))
    os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(pickle.loads(frozen)["x"], 1)
