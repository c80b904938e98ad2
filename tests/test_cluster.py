"""Parts of an epoch on real worker processes: each row once, also when a worker is killed."""

from __future__ import annotations

import operator
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import dask
import distributed
import h5py
import numpy as np
import pytest
from dask.base import is_dask_collection

import labeled
from labeled import cluster as cl
from labeled.cluster import door, measures, parts, sight
from labeled.cluster.door import WorkerInfo, paused_of, workers_of
from labeled.cluster.parts import _Desk, _Share
from labeled.cluster.work import PartWork, Report, run_part
from labeled.errors import ArrayError, ClusterError, LoaderError, MissingExtraError
from make_files import DIGIT_LABELS, digits, fuel_file, ragged_file

N = 203
DATA = digits(N)
WORKERS = 2


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


def fails(acc, batch):
    raise ZeroDivisionError("no such batch")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        {**DATA, "names": np.array([f"class {label % 4}" for label in range(N)])},
        {"train": (0, 150), "test": (150, N)},
        {**DIGIT_LABELS, "names": ("batch",)},
        chunks={"features": (8, 3, 5, 7)},
        compression={"features": "gzip"},
    )


@pytest.fixture(scope="module")
def ds(path):
    return labeled.open_dataset(path)


@pytest.fixture(scope="module")
def client():
    with cl.local_cluster(WORKERS, resources={"TOKEN": 1}) as cluster, cluster.get_client() as made:
        made.wait_for_workers(WORKERS)
        yield made


@pytest.fixture(autouse=True)
def quiet(client):
    """Let worker processes that a test killed come back before the next test begins."""
    yield
    client.wait_for_workers(WORKERS, timeout=200)


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


def test_persisted_arrays_stay_on_workers(client, ds):
    space = labeled.spaces.Conv2DSpace((5, 7), num_channels=3, axes=("c", 0, 1, "b"))
    lazy = ds["features"].labeled.to_device("cpu").labeled.format_as(space)
    assert is_dask_collection(lazy)
    with client.as_current():
        kept = lazy.persist()
        distributed.wait(kept)
        places = client.who_has(kept.data)
        found = kept.labeled.to_device("cpu").compute()
    assert len(places) == kept.data.npartitions
    assert all(places.values())
    np.testing.assert_array_equal(found, DATA["features"].transpose(1, 2, 3, 0))


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}, {"shuffle": "full"}])
@pytest.mark.parametrize("parts", [None, 7])
def test_every_row_counts_once(client, ds, parts, options):
    found = cl.run_parts(
        client, ds, count_rows, nothing_yet, operator.add, batch_size=8, parts=parts, **options
    )
    np.testing.assert_array_equal(found, np.ones(N))


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


def test_a_part_that_loses_worker_after_worker_is_given_up(ds):
    share = _Share(PartWork("r", ds, (0, 2), count_rows, 0, 1, {}, with_rows=False))
    for step in (3, 5):  # further each time: no end to it
        share.worker = WorkerInfo("tcp://127.0.0.1:1", "w", "here")
        share.lose(retries=1)
        assert share.worker is None
        assert share.take(Report(0, step, 8, done=False, pair=b""))
    share.lose(retries=1)
    with pytest.raises(ClusterError, match=r"part 0 of 2 lost its worker 2 times in a row after b"):
        share.lose(retries=1)


def test_a_part_that_is_done_needs_no_worker_any_more(client, ds):
    """Its worker may go before its end is seen, after its last report."""
    work = PartWork("run", ds, (0, 1), count_rows, nothing_yet, 8, {}, False)
    desk = _Desk(client, [work], workers_of(client), None, {}, 0, 1.0, lambda _: None)
    try:
        share = desk._line.popleft()
        share.worker, share.done = WorkerInfo("tcp://127.0.0.1:1", "w", "here"), True
        desk._look_around()
    finally:
        desk._reports.close()
    assert not desk._line


class BegunAndSlow:
    """Leave a mark, and take long."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, acc, batch):
        (self.folder / "begun").touch()
        time.sleep(0.2)
        return acc


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_goes_is_told_as_such(ds, tmp_path):
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


@contextmanager
def paused(client, address):
    """Have a worker begin nothing, as one does whose memory is nearly full."""
    client.run(_pause, True, workers=[address])
    try:
        while address not in paused_of(client):
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
    monkeypatch.setattr(sight, "ASK_S", 600)
    monkeypatch.setattr(parts, "QUIET_S", 600)
    address = min(client.nthreads())
    with paused(client, address), resumed_after(client, address, 60) as late:
        found = cl.run_parts(client, ds, count_rows, nothing_yet, operator.add, batch_size=9)
        assert not late, "nothing ended before the worker was there again"
        monkeypatch.setattr(sight, "ASK_S", 0.2)
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
    monkeypatch.setattr(parts, "LOOK_PAUSED_S", 0.05)
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


def test_when_all_are_paused_for_good_that_is_told(client, ds, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "LOOK_PAUSED_S", 0.05)
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


def test_a_client_that_is_closed_is_told_as_such_and_workers_end(client, ds, tmp_path):
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


def test_what_fold_raises_is_raised_here_and_says_where(client, ds):
    with pytest.raises(ZeroDivisionError, match="no such batch") as caught:
        cl.run_parts(client, ds, fails, 0, max, batch_size=50, parts=1)
    assert "in part 0 of 1, on worker" in caught.value.__notes__[-1]


def test_a_running_scheduler_is_found_by_its_address(client, ds, capsys):
    address = client.scheduler.address
    options = {"batch_size": 50, "progress": True}
    found = cl.run_parts(address, ds, count_rows, nothing_yet, operator.add, **options)
    assert "2 parts: 203 of 203" in capsys.readouterr().err
    np.testing.assert_array_equal(found, np.ones(N))
    with pytest.raises(ClusterError, match="no scheduler answers at 'nonsense://127"):
        cl.check_files("nonsense://127.0.0.1:1", ds)


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
        counts, _ = cl.histogram(own, ds, "targets", bins=5, parts=4)
    assert not init.any()
    np.testing.assert_array_equal(counts, np.histogram(DATA["targets"], 5)[0])


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
        ({"every": 0}, "every=0 must be a whole number, 1 or more"),
        ({"parts": 0}, "parts=0"),
        ({"part": (0, 2)}, "how many with parts="),
        ({"memory": "1 kB"}, "too small"),
    ]:
        with pytest.raises(LoaderError, match=words):
            run(**options)
    with pytest.raises(ClusterError, match=r"no worker that has resources {'GPU': 1}"):
        run(resources={"GPU": 1})
    with pytest.raises(ClusterError, match=r"no worker among \['nobody'\]"):
        run(workers=["nobody"])


def test_who_works_is_told_right_whatever_the_client_asks_by_itself():
    """It asks now and then who is there, and keeps an answer that names nobody."""
    often = dask.config.set({"distributed.client.scheduler-info-interval": "1ms"})
    with often, cl.local_cluster(1, processes=False) as cluster, cluster.get_client() as own:
        addresses = set(own.nthreads())
        assert all(set(workers_of(own)) == addresses for _ in range(500))


class Silent:
    """A worker's answer that never comes."""

    def result(self, timeout):
        raise TimeoutError


def test_a_worker_that_goes_while_it_is_asked_is_no_worker_any_more(client):
    gone = WorkerInfo("tcp://127.0.0.1:1", "w", "here")
    assert sight._answer(client, gone, Silent()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs a path that differs by process")
def test_workers_that_cannot_see_the_file_say_so_by_name(client, path, monkeypatch):
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


def test_a_worker_that_joins_and_sees_no_files_is_left_out(client, ds, tmp_path, monkeypatch):
    def no_such_file(question):
        tmp_path.joinpath("joined").touch()
        return "no such file"

    monkeypatch.setattr(sight.Question, "words", no_such_file)
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
    works = [PartWork("run", ds, (i, 2), count_rows, nothing_yet, 8, {}, False) for i in range(2)]
    infos = workers_of(client)
    desk = _Desk(client, works, {free: infos[free]}, None, {}, 0, 1.0, lambda _: None)
    end = distributed.Event("end of other work", client=client)
    other = client.submit(waits_for, "end of other work", workers=[busy], pure=False)
    try:
        for _ in range(3):
            desk._look_around()  # returns, though it says nothing yet
        assert set(desk._workers) == {free}
        assert set(desk._questions) == {busy}
    finally:
        end.set()
        other.result()
        desk._reports.close()
    while desk._questions:
        desk._look_around()
    assert set(desk._workers) == {free, busy}


def test_a_worker_that_joins_while_others_are_asked_is_asked_too(client, ds, monkeypatch):
    """It joined between two looks, of which only one saw it, and was left out for good."""
    early, late = sorted(client.nthreads())
    infos, told = workers_of(client), client.scheduler_info(n_workers=-1)["workers"]
    looks = iter([{early: told[early]}])
    monkeypatch.setattr(door, "_told_of_workers", lambda _: next(looks, told))
    work = PartWork("run", ds, (0, 1), count_rows, nothing_yet, 8, {}, False)
    desk = _Desk(client, [work], {early: infos[early]}, None, {}, 0, 1.0, lambda _: None)
    try:
        end = time.monotonic() + 60
        while late not in desk._workers and time.monotonic() < end and not desk._unfit:
            desk._look_around()
            time.sleep(0.01)
    finally:
        desk._reports.close()
    assert set(desk._workers) == {early, late}


def waits_for(name):
    distributed.Event(name).wait()


def gives_a_lock(acc, batch):
    return threading.Lock()


def leaves(acc, batch):
    sys.exit(3)


def interrupts(acc, batch):
    raise KeyboardInterrupt


def exits(acc, batch):
    raise GeneratorExit


class NeverThere:
    """What pickles, and does not come back."""

    def __reduce__(self):
        return _not_here, ()


def _not_here():
    raise ImportError("no such module here")


def gives_what_is_not_there(acc, batch):
    return NeverThere()


@pytest.mark.parametrize(
    ("fold", "words"),
    [
        (gives_a_lock, "what fold returned, a lock, does not pickle .*so it cannot be sent"),
        (leaves, r"fold raised SystemExit\(3\), which would end the worker"),
        (exits, r"fold raised GeneratorExit\(\), which would end the worker"),
        (interrupts, r"fold raised KeyboardInterrupt\(\), which would end the worker"),
        (gives_what_is_not_there, "was sent, but does not unpickle .*no such module here"),
    ],
)
def test_what_fold_may_not_do_is_told(client, ds, fold, words):
    before = set(client.nthreads())
    with pytest.raises(ClusterError, match=words):
        cl.run_parts(client, ds, fold, None, operator.add, batch_size=50)
    assert set(client.nthreads()) == before


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


def test_statistics_agree_with_numpy(client, ds):
    found = cl.statistics(client, ds.split("train"), batch_size=7)
    assert set(found) == {"features", "targets"}  # texts have no mean
    x = DATA["features"][:150].astype(float)
    told = found["features"]
    assert (told["n_rows"], told["by"], told["n_values"]) == (150, "channel", [150 * 35] * 3)
    np.testing.assert_allclose(told["mean"], x.mean((0, 2, 3)))
    np.testing.assert_allclose(told["std"], x.std((0, 2, 3)))
    np.testing.assert_array_equal(told["max"], x.max((0, 2, 3)))
    values, counts = np.unique(DATA["targets"][:150], return_counts=True)
    assert found["targets"]["classes"] == dict(zip(map(str, values), counts, strict=True))


def test_statistics_of_ragged_rows(client, tmp_path):
    images = [np.full((1, n % 3 + 1, 2), n, np.uint8) for n in range(12)]
    ds = labeled.open_dataset(ragged_file(tmp_path / "r.hdf5", images, np.zeros((12, 1), int)))
    told = cl.statistics(client, ds, batch_size=5)["image_features"]
    flat = np.concatenate([image.reshape(-1) for image in images])
    assert (told["n_rows"], told["n_values"]) == (12, flat.size)
    np.testing.assert_allclose((told["mean"], told["std"]), (flat.mean(), flat.std()))
    with pytest.raises(ArrayError, match="not one class a row"):
        cl.class_counts(client, ds, "image_features")


def test_measuring_takes_batches_of_some_mebibytes(client, ds, tmp_path):
    with h5py.File(tmp_path / "large.hdf5", "w") as f:  # nothing is stored of it
        f.create_dataset("x", (3, measures.BATCH_BYTES + 1), "u1", chunks=(1, 1 << 20))
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "index"
    large = labeled.open_dataset(tmp_path / "large.hdf5")
    assert measures._batch_rows(large) == 1
    assert measures._batch_rows(ds.select("features")) == measures.BATCH_BYTES // (3 * 5 * 7)
    assert measures._batch_rows(ds.select("targets")) == measures.BATCH_ROWS
    with pytest.raises(LoaderError, match="batch_size"):  # of which one may ask for others
        cl.statistics(client, ds, batch_size=-1)


def test_histograms_agree_with_numpy(client, ds):
    counts, edges = cl.histogram(client, ds, "features", bins=16, batch_size=30)
    wanted = np.histogram(DATA["features"], 16, (0, 255))
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_array_equal(edges, wanted[1])
    counts, edges = cl.histogram(client, ds, "targets", bins=5, parts=2)  # finds its range first
    wanted = np.histogram(DATA["targets"], 5)
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_allclose(edges, wanted[1])
    counts, edges = cl.histogram(client, ds, "features", bins=4, range=(10, 90))
    wanted = np.histogram(DATA["features"], 4, (10, 90))
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_array_equal(edges, wanted[1])
    with pytest.raises(ArrayError, match="not numbers"):
        cl.histogram(client, ds, "names")
    with pytest.raises(LoaderError, match="bins=0 must be"):
        cl.histogram(client, ds, "features", bins=0)


def test_a_histogram_counts_by_the_edges_it_returns(client, tmp_path):
    """Also of half floats, whose own arithmetic has no such edges."""
    rng = np.random.default_rng(0)
    x = {"half": rng.normal(0, 300, (500, 4)).astype("f2"), "same": np.full((500, 4), 60000, "f2")}
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        for name, values in x.items():
            f[name] = values
            f[name].dims[0].label, f[name].dims[1].label = "batch", "index"
        f["far"] = np.full(500, 2**62)
        f["far"].dims[0].label = "batch"
        f["flags"] = rng.random(500) < 0.3
        f["flags"].dims[0].label = "batch"
        f["real"] = np.zeros(500)
        f["real"].dims[0].label = "batch"
        flags = f["flags"][()]
    ds = labeled.open_dataset(tmp_path / "x.hdf5")
    for name, values in x.items():
        counts, edges = cl.histogram(client, ds, name, bins=10, parts=2)
        np.testing.assert_array_equal(counts, np.histogram(values.astype("f8"), edges)[0])
        assert counts.sum() == values.size
    counts, edges = cl.histogram(client, ds, "flags", bins=2)
    assert (counts.tolist(), edges.tolist()) == ([(~flags).sum(), flags.sum()], [0, 0.5, 1])
    assert cl.class_counts(client, ds, "flags") == {False: (~flags).sum(), True: flags.sum()}
    with pytest.raises(ArrayError, match="float64, not one class a row"):
        cl.class_counts(client, ds, "real")
    with pytest.raises(ArrayError, match=r"'far' of .* no 10 bins from .* give another range="):
        cl.histogram(client, ds, "far", bins=10)


def test_only_files_that_workers_can_open_are_shared_out(client, ds):
    for given in (ds.to_xarray(), ds["features"], "path.hdf5"):
        words = rf"not \w+'s {type(given).__name__}\. cluster\.write"
        with pytest.raises(ClusterError, match=words):
            cl.run_parts(client, given, count_rows, nothing_yet, operator.add, batch_size=8)
        with pytest.raises(ClusterError, match=r"what labeled\.open_dataset returns"):
            cl.statistics(client, given)


def test_a_cluster_leads_to_its_scheduler(client, ds):
    assert cl.class_counts(client.cluster, ds, "targets") == cl.class_counts(client, ds, "targets")
    with pytest.raises(ClusterError, match=r"int is no client; give a distributed\.Client"):
        cl.class_counts(3, ds, "targets")


def test_no_rows_have_no_statistics(client, ds):
    told = cl.statistics(client, ds.subset([]))
    assert told["features"]["n_rows"] == 0
    assert told["features"]["n_values"] == [0, 0, 0]
    assert told["features"]["mean"] == [None] * 3
    assert "classes" not in told["targets"]
    counts, edges = cl.histogram(client, ds.subset([]), "targets", bins=3)
    assert counts.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(edges, np.histogram([], 3)[1])
    assert cl.class_counts(client, ds.subset([]), "targets") == {}


def test_classes_are_counted_whatever_they_are(client, ds):
    values, counts = np.unique(DATA["targets"], return_counts=True)
    found = cl.class_counts(client, ds, "targets", batch_size=2)
    assert list(found.items()) == list(zip(values.tolist(), counts.tolist(), strict=True))
    texts = cl.class_counts(client, ds, "names", parts=1)
    assert sum(texts.values()) == N
    assert len(texts) == 4
    with pytest.raises(ArrayError, match="not one class a row"):
        cl.class_counts(client, ds, "features")


def test_writing_on_a_cluster_gives_the_bytes_of_writing_here(client, ds, tmp_path):
    part = ds.split("train").select("features", "targets")
    options = {"compression": "gzip", "chunks": 16}
    here = labeled.write(tmp_path / "here.hdf5", part, **options)
    there = cl.write(client, tmp_path / "there.hdf5", part, **options)
    with open(here, "rb") as one, open(there, "rb") as two:
        assert one.read() == two.read()
    pids = part["targets"].data.map_blocks(pid_like)
    written = labeled.open_dataset(cl.write(client, tmp_path / "pids.hdf5", {"pids": pids}))
    assert os.getpid() not in written["pids"].values


def pid_like(block):
    return np.full(block.shape, os.getpid())


def test_reports_that_come_late_change_nothing(ds):
    share = _Share(PartWork("r", ds, (0, 1), count_rows, 0, 1, {}, with_rows=False))
    assert share.take(Report(0, 4, 32, done=False, pair=b"four"))
    assert time.monotonic() - 60 < share.heard_s <= time.monotonic()
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


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_a_gpu_is_asked_for_where_workers_have_one(client, ds):
    stand_in = str(Path(__file__).with_name("stand_in"))
    options = {"device": "cuda", "as_": "cupy", "batch_size": 50, "resources": {"TOKEN": 1}}
    with pytest.raises(MissingExtraError, match="arrays on a GPU need CuPy") as raised:
        cl.run_parts(client, ds, count_rows, nothing_yet, operator.add, **options)
    assert "on worker" in raised.value.__notes__[0]
    with pytest.raises(LoaderError, match="batch_size"):
        cl.run_parts(
            client, ds, count_rows, nothing_yet, operator.add, **{**options, "batch_size": -1}
        )
    client.run(find_first, stand_in)
    try:
        options |= {"with_rows": True}
        found = cl.run_parts(
            client, ds.select("features"), count_there, nothing_yet, operator.add, **options
        )
    finally:
        client.run(forget, stand_in)
    np.testing.assert_array_equal(found, np.ones(N))


def count_there(acc, batch):
    data, rows, count = batch
    assert type(data["features"]).__module__ == "cupy"
    return acc + np.bincount(rows[:count], minlength=len(acc))


def find_first(folder):
    sys.path.insert(0, folder)


def forget(folder):
    sys.path.remove(folder)
    sys.modules.pop("cupy", None)


def test_a_worker_a_gpu_needs_dask_cuda():
    with pytest.raises((MissingExtraError, ClusterError), match=r"gpu-cu13|NVIDIA driver"):
        cl.cuda_cluster()
