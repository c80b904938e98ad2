"""Parts of an epoch on real worker processes: each row once; what may be asked and what is told."""

from __future__ import annotations

import gc
import operator
import os
import pickle
import sys
import threading
from importlib.util import find_spec

import dask.array as da
import distributed
import numpy as np
import pytest
from two_workers import (
    DATA,
    WORKERS,
    N,
    count_rows,
    file_of_digits,
    nothing_yet,
    two_workers,
)

import labeled
from labeled import cluster as cl
from labeled.errors import ClusterError, LoaderError, MissingExtraError


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


def fails(acc, batch):
    raise ZeroDivisionError("no such batch")


def test_what_listens_listens_on_loopback(client):
    services = [client.scheduler.address, client.dashboard_link, *client.nthreads()]
    assert all("127.0.0.1" in each for each in services)


def test_a_lazy_selection_is_computed_on_workers_from_the_path(client, ds):
    lazy = ds.split("test").isel(channel=1)["features"][::3]
    assert len(pickle.dumps(lazy)) < 20_000  # a recipe, no rows and no handles
    with client.as_current():
        found = lazy.compute()
        pids = lazy.data.map_blocks(lambda _: np.array([[[os.getpid()]]])).compute()
    np.testing.assert_array_equal(found, DATA["features"][150:, 1][::3])
    assert os.getpid() not in pids


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}, {"shuffle": "full"}])
@pytest.mark.parametrize("parts", [None, 7])
def test_every_row_counts_once(client, ds, parts, options):
    found = cl.run_parts(
        client, ds, count_rows, nothing_yet, operator.add, batch_size=8, parts=parts, **options
    )
    np.testing.assert_array_equal(found, np.ones(N))


def test_what_fold_raises_is_raised_here_and_says_where(client, ds):
    with pytest.raises(ZeroDivisionError, match="no such batch") as caught:
        cl.run_parts(client, ds, fails, 0, max, batch_size=50, parts=1)
    assert "in part 0 of 1, on worker" in caught.value.__notes__[-1]


def test_a_running_scheduler_is_found_by_its_address(client, ds, capsys):
    address = client.scheduler.address
    options = {"batch_size": 50, "progress": True}
    found = cl.run_parts(address, ds, count_rows, nothing_yet, operator.add, **options)
    shown = capsys.readouterr().err
    assert "2 parts: " in shown
    assert "203/203 " in shown
    np.testing.assert_array_equal(found, np.ones(N))


@pytest.mark.parametrize("scheme", ["nonsense", "tcp"])
def test_a_client_that_reaches_nobody_is_closed(ds, scheme, monkeypatch):
    monkeypatch.setattr("labeled.cluster.client.CONNECT_S", 0.5)
    with pytest.raises(ClusterError, match=f"no scheduler answers at '{scheme}://127") as failed:
        cl.check_files(f"{scheme}://127.0.0.1:1", ds)
    assert failed.tb  # whose frames hold the client
    clients = [each for each in gc.get_objects() if isinstance(each, distributed.Client)]
    assert {each.status for each in clients} <= {"running", "closed"}


def test_long_lists_of_rows_travel_without_a_word(client, ds):
    rows = np.zeros(1_500_000, np.int64)  # 12 MB: dask would warn
    found = cl.run_parts(
        client, ds.subset(rows).select("targets"), count, 0, operator.add, batch_size=1 << 17
    )
    assert found == len(rows)


def count(acc, batch):
    return acc + batch.count


def count_in_place(acc, batch):
    np.add.at(acc, batch.rows[: batch.count], 1)
    return acc


def test_parts_share_no_accumulator_where_workers_are_threads(ds):
    init = np.zeros(N, np.int64)
    with cl.local_cluster(2, processes=False) as cluster, cluster.get_client() as own:
        found = cl.run_parts(
            own, ds, count_in_place, init, operator.add, batch_size=8, parts=5, every=2
        )
        np.testing.assert_array_equal(found, np.ones(N))
    assert not init.any()


def test_rows_come_along_with_specs(client, ds):
    space = labeled.spaces.VectorSpace(105)
    found = cl.run_parts(
        client,
        ds,
        add_first_pixels,
        0,
        operator.add,
        batch_size=16,
        specs=(space, "features"),
        with_rows=True,
        last="pad",
        resources={"TOKEN": 1},
    )
    assert found == int(DATA["features"][:, 0, 0, 0].sum()) + sum(range(N))


def add_first_pixels(acc, served):
    data, rows, count = served
    return acc + int(data[:count, 0].sum()) + int(rows[:count].sum())


def test_bad_requests_are_refused_before_anything_is_sent(client, ds):
    def run(**options):
        return cl.run_parts(client, ds, count_rows, 0, max, **{"batch_size": 8, **options})

    for options, words in [
        ({"every": 0}, "every=0 must be at least 1"),
        ({"parts": 0}, "parts=0"),
        ({"shard": (0, 2)}, "how many with parts="),
        ({"memory": "1 kB"}, "too small"),
    ]:
        with pytest.raises(LoaderError, match=words):
            run(**options)
    with pytest.raises(ClusterError, match=r"no worker that has resources {'GPU': 1}"):
        run(resources={"GPU": 1})
    with pytest.raises(ClusterError, match=r"no worker among \['nobody'\]"):
        run(workers=["nobody"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs a path that differs by process")
def test_workers_that_cannot_see_the_file_say_so_by_name(client, ds, monkeypatch):
    path = ds.files.paths[0]
    monkeypatch.chdir(os.path.dirname(path))
    ds = labeled.open_dataset("/proc/self/cwd/d.hdf5")  # another file in every process
    infos = client.scheduler_info(n_workers=-1)["workers"]
    one, *others = sorted(infos)
    client.run(os.chdir, os.path.dirname(path), workers=[one])
    client.run(os.chdir, "/", workers=others)
    names = "|".join(str(infos[a]["name"]) for a in others)
    with pytest.raises(ClusterError, match=rf"1 of 2 workers cannot read .*\n +worker '({names})'"):
        cl.run_parts(client, ds, count_rows, 0, max, batch_size=8)
    with pytest.raises(ClusterError, match=r"FileFormatError: .*/proc/self/cwd/d.hdf5"):
        cl.check_files(client, ds, workers=others)
    cl.check_files(client, ds, workers=[one])
    found = cl.run_parts(
        client, ds, count_rows, nothing_yet, operator.add, batch_size=8, parts=2, workers=[one]
    )
    np.testing.assert_array_equal(found, np.ones(N))


@pytest.mark.parametrize("which", ["fold", "init", "pipeline"])
def test_what_cannot_travel_is_named_before_anything_is_sent(client, ds, which):
    lock = threading.Lock()
    fold, init = count_rows, nothing_yet
    options = {}
    if which == "fold":

        def fold(acc, batch):
            return (lock, acc)[1]
    elif which == "init":
        init = lock
    else:
        options = {"pipeline": {"features": lambda image: (lock, image)[1]}}
    with pytest.raises(ClusterError, match=f"{which}=.* cannot be sent to workers: .*lock"):
        cl.run_parts(client, ds, fold, init, operator.add, batch_size=50, **options)


def test_only_files_that_workers_can_open_are_shared_out(client, ds):
    for given in (ds.to_xarray(), ds["features"], "path.hdf5"):
        words = rf"not a {type(given).__name__}; cluster\.write"
        with pytest.raises(ClusterError, match=words):
            cl.run_parts(client, given, count_rows, nothing_yet, operator.add, batch_size=8)
        with pytest.raises(ClusterError, match=r"what labeled\.open_dataset returns"):
            cl.statistics(client, given)


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_a_gpu_is_asked_for_where_workers_have_one(client, ds):
    options = {"device": "cuda", "output": "cupy", "batch_size": 50, "resources": {"TOKEN": 1}}
    with pytest.raises(MissingExtraError, match="arrays on a GPU need CuPy") as raised:
        cl.run_parts(client, ds, count_rows, nothing_yet, operator.add, **options)
    assert "on worker" in raised.value.__notes__[0]
    options["batch_size"] = -1
    with pytest.raises(LoaderError, match="batch_size"):
        cl.run_parts(client, ds, count_rows, nothing_yet, operator.add, **options)


@pytest.mark.skipif(find_spec("dask_cuda") is not None, reason="dask-cuda is installed")
def test_a_worker_a_gpu_needs_dask_cuda():
    with pytest.raises(MissingExtraError, match="gpu-cu13"):
        cl.cuda_cluster()


def total(array, threads):
    distributed.get_client()  # from now on a worker has one, which its threads find
    loader = labeled.batches({"x": array}, 8, shuffle=True, seed=1, threads=threads)
    return sum(int(batch["x"].values.sum()) for batch in loader)


@pytest.mark.parametrize("threads", [0, 1])
def test_batches_of_dask_arrays_come_here_and_inside_tasks(client, threads):
    lazy = da.from_array(np.arange(100).reshape(50, 2), chunks=(10, 1)) + 1
    assert total(lazy, threads) == 5050
    tasks = [client.submit(total, lazy, threads, pure=False) for _ in range(4)]
    assert client.gather(tasks) == [5050] * 4


def test_batches_come_of_what_the_cluster_holds(client):
    held = (da.from_array(np.arange(100).reshape(50, 2), chunks=(10, 1)) + 1).persist()
    for array, wanted in [(held, 5050), (held * 2, 10100)]:
        assert total(array, 1) == wanted
