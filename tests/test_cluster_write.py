"""Files written by real worker processes: the bytes of writing here, whoever packed what."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from contextvars import Context
from functools import partial

import dask.array as da
import distributed
import numpy as np
import pytest
from two_workers import WORKERS, N, file_of_digits, two_workers

import labeled
from labeled import cluster as cl
from labeled.errors import ClusterError, UnknownNameError, WriteError


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = file_of_digits(tmp_path_factory.mktemp("data"))
    return labeled.open_dataset(path, chunks={"batch": 20})


@pytest.fixture(scope="module")
def client():
    with two_workers() as made:
        yield made


@pytest.fixture(autouse=True)
def quiet(client):
    """Let worker processes that a test killed come back before the next test begins."""
    yield
    client.wait_for_workers(WORKERS, timeout=200)


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def noting(block, folder):
    """Leave a mark for the process that works on a block."""
    if len(block) > 1:  # dask tries it on one row or none, here
        open(os.path.join(folder, str(os.getpid())), "w").close()
    return block


@pytest.mark.slow
def test_the_bytes_are_those_of_writing_here_and_no_row_comes_by(client, ds, tmp_path, monkeypatch):
    options = {"compression": {"features": "gzip"}, "chunks": {"features": 16}}
    here = labeled.write(tmp_path / "here.hdf5", ds, **options)
    monkeypatch.chdir(tmp_path)
    there = cl.write(client, "there.hdf5", ds, **options)
    assert there == str(tmp_path / "there.hdf5")
    assert bytes_of(here) == bytes_of(there)
    seen = tmp_path / "seen"
    seen.mkdir()
    noted = {"features": ds["features"].data.map_blocks(noting, str(seen))}
    there = cl.write(client, tmp_path / "noted.hdf5", noted, **options)
    pids = {int(name) for name in os.listdir(seen)}
    assert pids
    assert pids <= set(client.run(os.getpid).values())
    np.testing.assert_array_equal(labeled.open_dataset(there)["features"], ds["features"])


def test_a_cluster_or_its_address_does_without_a_default_client(client, ds, tmp_path, monkeypatch):
    here = labeled.write(tmp_path / "here.hdf5", ds)
    monkeypatch.setattr(distributed.client, "_global_clients", {})
    alone = Context()  # without that of the fixture's with-block
    for at in (client.cluster, client.cluster.scheduler_address):
        there = alone.run(cl.write, at, tmp_path / "there.hdf5", ds, overwrite=True)
        assert bytes_of(here) == bytes_of(there)


def test_arrays_of_all_kinds_are_written_as_here(client, ds, tmp_path):
    with client.as_current():
        kept = (ds["features"] * 2).persist()
    sources = {
        "kept": kept,
        "lazy": ds["targets"].data + 1,
        "held": np.arange(N),
        "texts": [f"row {row}" for row in range(N)],
        "uneven": [np.arange(row % 5) for row in range(N)],
    }
    splits = {"train": (0, 90), "test": [100, 97, 150]}
    options = {"compression": {"kept": "gzip"}, "attrs": {"title": "all kinds"}}
    there = cl.write(client, tmp_path / "there.hdf5", sources, splits, **options)
    with client.as_current():
        here = labeled.write(tmp_path / "here.hdf5", sources, splits, **options)
    assert bytes_of(here) == bytes_of(there)


def never(*args, **options):
    raise AssertionError("this process writes the file itself")


def test_rows_of_this_process_are_written_from_here(client, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "submit", never)
    batches = [{"x": np.arange(10) + i} for i in range(0, 30, 10)]
    path = cl.write(client, tmp_path / "b.hdf5", iter(batches), progress=False)
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"], np.arange(30))
    lazy = da.arange(100, chunks=10).map_blocks(pid_like)
    path = cl.write(client, tmp_path / "c.hdf5", {"pids": lazy}, writer="client")
    assert os.getpid() not in labeled.open_dataset(path)["pids"].values
    cl.write(client, tmp_path / "d.hdf5", {"x": np.zeros(9)})


def pid_like(block):
    return np.full(block.shape, os.getpid())


def test_a_worker_may_be_named(client, ds, tmp_path, capsys, monkeypatch):
    infos = client.scheduler_info(n_workers=-1)["workers"]
    one = sorted(infos)[0]
    pid = client.run(os.getpid)[one]
    lazy = ds["targets"].data.map_blocks(pid_like)
    options = {"writer": str(infos[one]["name"]), "workers": [one], "progress": True}
    monkeypatch.setenv("HOME", str(tmp_path))
    path = cl.write(client, "~/x.hdf5", {"pids": lazy}, **options)
    assert set(labeled.open_dataset(path)["pids"].values.ravel().tolist()) == {pid}
    assert "1.59k/1.59k " in capsys.readouterr().err


def test_what_cannot_be_is_refused_by_name(client, ds, tmp_path, monkeypatch):
    with pytest.raises(ClusterError, match=r"2 of 2 workers cannot write into the .*nowhere'"):
        cl.write(client, tmp_path / "nowhere" / "x.hdf5", ds)
    with pytest.raises(ClusterError, match=r"writer='w' is none of the workers \['0', '1'\]"):
        cl.write(client, tmp_path / "x.hdf5", ds, writer="w")
    with pytest.raises(ClusterError, match=r"no worker among \['w'\]"):
        cl.write(client, tmp_path / "x.hdf5", ds, workers=["w"])
    with pytest.raises(WriteError, match="exists already"):
        cl.write(client, ds.files.paths[0], ds)
    with pytest.raises(UnknownNameError, match="source_attrs= names 'y'"):
        cl.write(client, tmp_path / "x.hdf5", ds, source_attrs={"y": {}})
    with pytest.raises(TypeError, match=r"has no option .compresion.; did you mean"):
        cl.write(client, tmp_path / "x.hdf5", ds, compresion="gzip")
    monkeypatch.setattr(platform, "python_version_tuple", lambda: ("3", "0", "0"))
    for sources in (ds, {"x": da.arange(3)}):
        with pytest.raises(ClusterError, match=r"worker '0' .*it has Python .*, and 3\.0 asks"):
            cl.write(client, tmp_path / "x.hdf5", sources)


def test_what_a_block_raises_is_raised_here_and_nothing_stays_behind(client, tmp_path):
    lazy = da.arange(4000, chunks=100).map_blocks(fails_at, 1700, dtype=int)
    began = tmp_path / "began"
    began.mkdir()
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ZeroDivisionError):
        cl.write(client, folder / "x.hdf5", {"x": lazy})
    assert os.listdir(folder) == []
    marked = da.arange(4000, chunks=100).map_blocks(mark, str(began), dtype=int)
    lazy = marked.map_blocks(fails_at, 1700, dtype=int)
    with pytest.raises(ZeroDivisionError):
        cl.write(client, folder / "x.hdf5", {"x": lazy}, memory=8 * 100 * 8)
    assert len(os.listdir(began)) <= 17 + 1 + 8, "more was begun than may be on its way"


def fails_at(block, row):
    if row in block:
        raise ZeroDivisionError
    return block


def mark(block, folder):
    open(os.path.join(folder, str(block[0])), "w").close()
    return block


@pytest.mark.slow
def test_the_worker_that_writes_is_killed_on_the_way(client, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    lazy = da.arange(6000, chunks=100).map_blocks(slow, dtype=int)
    killed = []
    killer = threading.Thread(target=kill_writer, args=(client, folder, killed))
    killer.start()
    path = cl.write(client, folder / "x.hdf5", {"x": lazy}, chunks=100, memory=8 * 100 * 8)
    killer.join()
    assert killed
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"], np.arange(6000))
    assert len(os.listdir(folder)) <= 2, "more than what the killed process had no time to remove"


def slow(block):
    time.sleep(0.02)
    return block


def kill_writer(client, folder, killed):
    """Kill the worker that writes as soon as there is something of a file."""
    pids = client.run(os.getpid)
    while not os.listdir(folder):
        time.sleep(0.01)
    (writer,) = [address for address, yes in client.run(is_writing).items() if yes]
    os.kill(pids[writer], signal.SIGKILL)
    killed.append(writer)


def is_writing(dask_worker):
    tasks = dask_worker.state.tasks.values()
    return any(t.state == "long-running" and t.key.startswith("labeled-write") for t in tasks)


@pytest.mark.slow
def test_nobody_left_who_can_write_is_reported(tmp_path):
    lazy = da.arange(60_000, chunks=100).map_blocks(slow, dtype=int)
    with cl.local_cluster(1) as cluster, cluster.get_client() as client:
        leaving = threading.Thread(target=leave, args=(cluster, tmp_path))
        leaving.start()
        with pytest.raises(ClusterError, match=r"no worker that can write is left on \['127"):
            cl.write(client, tmp_path / "x.hdf5", {"x": lazy}, memory=8 * 100 * 8, wait_s=0.1)
        leaving.join()


def leave(cluster, folder):
    """Take all workers away as soon as there is something of a file."""
    while not os.listdir(folder):
        time.sleep(0.01)
    cluster.scale(0)


def test_nobody_waiting_ends_the_writing(client, tmp_path, monkeypatch):
    lazy = da.arange(60_000, chunks=100).map_blocks(slow, dtype=int)
    monkeypatch.setattr(distributed, "wait", partial(interrupted, tmp_path))
    with pytest.raises(KeyboardInterrupt):
        cl.write(client, tmp_path / "x.hdf5", {"x": lazy}, memory=8 * 100 * 8)
    until = time.monotonic() + 20
    while os.listdir(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert os.listdir(tmp_path) == []


def interrupted(folder, *args, **options):
    while not os.listdir(folder):
        time.sleep(0.01)
    raise KeyboardInterrupt
