"""Batches as torch tensors, in one process and in DataLoader's workers: each row once."""

from __future__ import annotations

import copy
import pickle
from itertools import chain

import numpy as np
import pytest

import labeled
import labeled.torch
from labeled.device import Device
from labeled.errors import LabeledWarning, LoaderError, ReadError, StateError
from make_files import DIGIT_LABELS, digits, fuel_file, ragged_file

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

N = 101
DATA = digits(N)
DATA["features"][:, 0, 0, 0] = np.arange(N)  # every row knows its number


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        {**DATA, "names": np.array(["a"] * N)},
        {"train": (0, N)},
        {**DIGIT_LABELS, "names": ("batch",)},
    )
    return labeled.open_dataset(path)


@pytest.fixture(scope="module")
def train(ds):
    return ds.select("features", "targets")


def joined(lists):
    return list(chain.from_iterable(lists))


def rows_of(batches):
    return [batch["features"][:, 0, 0, 0].tolist() for batch in batches]


def test_tensors_hold_the_batch(train):
    plain = train.batches(16, shuffle=True, seed=3)
    as_torch = train.batches(16, shuffle=True, seed=3, output="torch")
    for batch, tensors in zip(plain, as_torch, strict=True):
        assert list(tensors) == ["features", "targets"]
        assert tensors["features"].dtype == torch.uint8
        np.testing.assert_array_equal(batch["features"], tensors["features"])


def test_tensors_stay_what_they_were_while_somebody_holds_them(train):
    loader = train.batches(8, shuffle=True, seed=1, output="torch", memory="4 MiB")
    kept = list(loader)
    copies = [batch["features"].clone() for batch in kept]
    for _ in loader:
        pass
    assert all(torch.equal(batch["features"], c) for batch, c in zip(kept, copies, strict=True))


def test_torchs_own_dtypes_and_devices_are_known(train):
    dtypes = {"features": torch.float32, "targets": torch.int64}
    batch = next(iter(train.batches(4, dtype=dtypes, output="torch", device=torch.device("cpu"))))
    assert {name: x.dtype for name, x in batch.items()} == dtypes
    with pytest.raises(LoaderError, match="'mps' must be 'cpu', 'cuda'"):
        train.batches(4, device=torch.device("mps"))


@pytest.mark.parametrize("teacher", [None, "ml_dtypes"])
def test_bfloat16_is_refused_whether_or_not_numpy_was_taught_it(train, teacher):
    if teacher is not None:  # what JAX imports, and for good: other tests may have done so
        pytest.importorskip(teacher, reason="ml_dtypes is not installed")
    with pytest.raises(
        LoaderError, match=r"torch.bfloat16 is not a dtype: .*x.to\(torch.bfloat16\)"
    ):
        train.batches(4, dtype=torch.bfloat16, output="torch")


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_loops_that_count_epochs_themselves(train, workers):
    def made():
        options = {"shuffle": True, "seed": 5}
        if workers is None:
            return train.batches(8, output="torch", **options)
        return labeled.torch.data_loader(train, 8, num_workers=workers, **options)

    plain = made()
    epochs = [rows_of(plain) for _ in range(3)]
    loader = made()
    for epoch in (0, 1, 2, 1):
        loader.set_epoch(epoch)
        assert loader.epoch == epoch
        assert rows_of(loader) == epochs[epoch]
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    again = made()
    again.load_state_dict(state)
    for epoch in (1, 2):  # the epoch that is resumed goes on in its middle
        again.set_epoch(epoch)
        assert rows_of(again) == epochs[epoch][epoch == 1 :]
    again.set_epoch(1)
    assert rows_of(again) == epochs[1]
    with pytest.raises(LoaderError, match="epoch=-1 must be at least 0"):
        loader.set_epoch(-1)
    assert "epoch=2" in repr(again)


def test_a_drawn_seed_is_that_of_the_state(train):
    one, two = (labeled.torch.data_loader(train, 8, shuffle=True, num_workers=2) for _ in "ab")
    batches = iter(one)
    next(batches)
    two.load_state_dict(one.state_dict())
    assert rows_of(two) == rows_of(batches)
    assert rows_of(two) == rows_of(one)  # the next epoch
    three = labeled.torch.data_loader(train, 8, shuffle=True, num_workers=2, seed=5)
    with pytest.warns(LabeledWarning, match="which replaces seed=5 of this loader"):
        three.load_state_dict(one.state_dict())
    assert rows_of(three) == rows_of(one)


def test_ragged_examples_come_as_lists(tmp_path):
    images = [np.full((1, n % 3 + 1, 2), n, np.uint8) for n in range(6)]
    ds = labeled.open_dataset(ragged_file(tmp_path / "r.hdf5", images, np.zeros((6, 1), int)))
    batch = next(iter(ds.batches(6, output="torch")))
    assert all(np.array_equal(a, b) for a, b in zip(batch["image_features"], images, strict=True))


def test_text_is_refused_before_anything_is_read(ds):
    with pytest.raises(
        LoaderError,
        match=r"source 'names' is text, of which torch makes no arr.*pipeline=.*\.\.\.}$",
    ):
        ds.batches(4, output="torch")


def test_what_is_said_of_times_makes_tensors_of_them(tmp_path):
    times = np.arange(6).astype("datetime64[s]")
    ds = labeled.open_dataset(labeled.write(tmp_path / "t.hdf5", {"when": times}))
    with pytest.raises(LoaderError, match=r"'when' is datetime64.*pipeline=\{'when': ...\}$"):
        ds.batches(6, output="torch")
    with pytest.raises(LoaderError, match=r"holds no numbers, expected int64"):
        ds.batches(6, output="torch", dtype={"when": "int64"})
    made = ds.batches(6, output="torch", pipeline={"when": lambda times: times.astype("int64")})
    assert next(iter(made))["when"].tolist() == [n * 10**9 for n in range(6)]


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 5}])
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_every_row_comes_once_whatever_the_workers(train, workers, options):
    found = []
    for rank in range(2):
        rows = labeled.torch.IterableDataset(train, 8, shard=(rank, 2), **options)
        assert isinstance(rows, torch.utils.data.IterableDataset)
        found += rows_of(torch.utils.data.DataLoader(rows, batch_size=None, num_workers=workers))
    assert sorted(joined(found)) == list(range(N))


@pytest.mark.parametrize("persistent", [None, False, True])
def test_a_second_iteration_ends_the_first(train, persistent):
    """Workers that live on gave batches of the second to whoever asked first."""
    workers = {} if persistent is None else {"num_workers": 2}
    more = {"torch_options": {"persistent_workers": True}} if persistent else {}
    loader = labeled.torch.data_loader(train, 8, shuffle=True, seed=5, **workers, **more)
    one, never = iter(loader), iter(loader)
    with pytest.raises(LoaderError, match=r"ended when another one .* began"):
        next(one)
    next(never)
    other = iter(loader)
    first = rows_of([next(other)])
    with pytest.raises(LoaderError, match="make a second one to iterate twice at the same time"):
        next(never)
    assert sorted(joined(first + rows_of(other))) == list(range(N))
    assert (loader.epoch, next(never, None)) == (3, None)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_set_while_batches_come_is_where_the_next_iteration_begins(train, workers):
    """The batch that came next wrote its own place over it, and epoch 1 followed."""

    def loader():
        return labeled.torch.data_loader(train, 8, shuffle=True, seed=5, num_workers=workers)

    plain = loader()
    epochs = [rows_of(plain) for _ in range(5)]
    one = loader()
    batches = iter(one)
    next(batches)
    one.set_epoch(4)
    assert rows_of(batches) == epochs[0][1:]
    assert (one.epoch, rows_of(one)) == (4, epochs[4])

    other = loader()
    batches = iter(other)
    next(batches)
    state = other.state_dict()
    next(batches)
    other.load_state_dict(state)
    with pytest.raises(LoaderError, match=r"ended when .* a state was loaded"):
        next(batches)
    assert rows_of(other) == epochs[0][1:]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_workers_of_a_copy_that_live_on_hear_of_its_epochs(train, copied):
    """They began the first epoch again and again."""
    options = {"shuffle": True, "seed": 5, "num_workers": 2}
    plain = labeled.torch.data_loader(train, 8, **options)
    kept = {"persistent_workers": True}
    made = copied(labeled.torch.data_loader(train, 8, torch_options=kept, **options))
    for _ in range(3):
        assert rows_of(made) == rows_of(plain)


def test_torchs_own_loader_makes_no_batches_of_a_dataset(train):
    with pytest.raises(TypeError, match="batch must contain tensors"):
        next(iter(torch.utils.data.DataLoader(train, batch_size=16, shuffle=True)))


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_serve_a_sampler_that_lists_other_batches_when_asked_again(train, workers):
    drawn = np.random.default_rng(5)  # each worker would draw its own, or find nothing left
    for sampler in (Redrawn(drawn), iter(Redrawn(drawn))):
        loader = labeled.torch.data_loader(train, sampler=sampler, num_workers=workers)
        first = rows_of(loader)
        assert len(loader) == len(first) == 13
        assert sorted(joined(first)) == list(range(N))
        assert rows_of(loader) == first


class Redrawn:
    """Batches in another order each time they are listed, like torch's BatchSampler."""

    def __init__(self, drawn):
        self.drawn = drawn

    def __iter__(self):
        rows = self.drawn.permutation(N)
        return iter([rows[at : at + 8] for at in range(0, N, 8)])


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_that_live_on_go_on_to_the_next_epoch(train, workers):
    rows = labeled.torch.IterableDataset(train, 8, shuffle=True, seed=5)
    options = {"persistent_workers": True} if workers else {}
    loader = torch.utils.data.DataLoader(rows, batch_size=None, num_workers=workers, **options)
    first, second, third = rows_of(loader), rows_of(loader), rows_of(loader)
    assert sorted(joined(first)) == sorted(joined(second)) == list(range(N))
    assert first != second != third
    anew = torch.utils.data.DataLoader(rows, batch_size=None, num_workers=workers)
    for epoch, wanted in ((2, third), (0, first)):
        rows.set_epoch(epoch)
        assert rows_of(anew) == wanted


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (3, True)])
def test_a_place_is_found_again_in_every_epoch(train, workers, persistent):
    """Three workers have 4, 4 and 3 batches, so that one has none left where others have."""

    def loader():
        return labeled.torch.data_loader(
            train,
            11,
            num_workers=workers,
            shuffle=True,
            seed=5,
            torch_options={"persistent_workers": True} if persistent else None,
        )

    whole = loader()
    epochs = [rows_of(whole), rows_of(whole)]
    assert len(epochs[0]) == len(loader())
    assert sorted(joined(epochs[1])) == list(range(N)) != sorted(epochs[0][0])
    for stop in {1, 5, len(epochs[0])} | set(range(len(epochs[0]) - workers, len(epochs[0]))):
        first, other = loader(), loader()
        batches = iter(first)
        for _ in range(stop):
            next(batches)
        other.load_state_dict(first.state_dict())
        rest = rows_of(other) + rows_of(other)
        assert rest[: len(epochs[0]) + len(epochs[1]) - stop] == (epochs[0] + epochs[1])[stop:]


def ends_in_three(features):
    if features[0, 0, 0] % 10 != 3:
        raise ReadError("not this one")
    return features


def taken_as_they_are(batch):
    return {name: torch.as_tensor(values) for name, values in batch.items()}


@pytest.mark.parametrize(("workers", "collate"), [(0, taken_as_they_are), (2, None)])
@pytest.mark.filterwarnings("ignore:.* left out")
def test_places_count_batches_that_lost_all_rows(train, workers, collate):
    def loader():
        options = {"num_workers": workers, "shuffle": True, "seed": 5, "errors": "skip"}
        return labeled.torch.data_loader(
            train,
            3,
            pipeline={"features": ends_in_three},
            torch_options={"collate_fn": collate},
            **options,
        )

    whole = rows_of(loader())
    assert sorted(joined(whole)) == list(range(3, N, 10))
    for stop in range(1, len(whole)):
        first, other = loader(), loader()
        batches = iter(first)
        for _ in range(stop):
            next(batches)
        other.load_state_dict(first.state_dict())
        assert rows_of(other) == whole[stop:]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"in_order": False}, "a place in the epoch could not be found again"),
        ({"batch_size": 3}, "torch's DataLoader refuses"),
        ({"prefetch": 3}, "torch's DataLoader refuses"),
        ({"num_workers": 3}, "torch's DataLoader refuses"),
    ],
)
def test_options_that_are_not_torchs_are_refused(train, options, words):
    """Out of their order, batches that follow a state would be others."""
    with pytest.raises(LoaderError, match=words):
        labeled.torch.data_loader(train, 20, num_workers=2, torch_options=options)
    kept = labeled.torch.data_loader(train, 20, torch_options={"in_order": True, "timeout": 0})
    assert len(list(kept)) == len(kept)


def test_other_data_than_a_dataset_is_refused():
    with pytest.raises(LoaderError, match=r"give what labeled.open_dataset returns, not str \('x"):
        labeled.torch.data_loader("x.hdf5", 8)


def test_states_of_other_rows_are_refused(train):
    saved = labeled.torch.data_loader(train, 8).state_dict()
    with pytest.raises(StateError, match="saved with batch_size=8"):
        labeled.torch.data_loader(train, 9).load_state_dict(saved)
    with pytest.raises(StateError, match="saved with 1 workers, not 2"):
        labeled.torch.data_loader(train, 8, num_workers=2).load_state_dict(saved)
    with pytest.raises(StateError, match="saved by one of 1 shards, not of 2: take as many"):
        labeled.torch.data_loader(train, 8, shard=(0, 2)).load_state_dict(saved)
    with pytest.raises(StateError, match="not a state"):
        labeled.torch.data_loader(train, 8).load_state_dict({})
    with pytest.raises(StateError, match="state=None must be a mapping"):
        labeled.torch.data_loader(train, 8).load_state_dict(None)


def test_pinning_needs_torch(train):
    with pytest.raises(LoaderError, match="pinned=True goes with output='torch'"):
        train.batches(8, pinned=True)
    loader = train.batches(8, pinned=True, output="torch")
    assert next(iter(loader))["features"].is_pinned() == torch.cuda.is_available()


def test_what_torch_refuses_is_reported_before_an_epoch_begins(train):
    words = r"torch's DataLoader refuses torch_options=.*num_workers=0: persistent_workers"
    with pytest.raises(LoaderError, match=words):
        labeled.torch.data_loader(train, 8, torch_options={"persistent_workers": True})


def test_a_loader_given_to_torchs_data_loader_is_refused(tmp_path):
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(8)})
    loader = labeled.open_dataset(path).batches(4, output="torch")

    for batch_size in (None, 4):
        with pytest.raises(TypeError, match="not subscriptable"):
            next(iter(torch.utils.data.DataLoader(loader, batch_size=batch_size)))
    assert sum(len(batch["x"]) for batch in loader) == 8


def test_workers_are_refused_batches_of_a_gpu(train):
    """A forked worker has no CUDA, and none can hand its memory over."""
    loader = labeled.torch.data_loader(train, 8, num_workers=1, device=Device())
    with pytest.raises(LoaderError, match=r"does not go with num_workers=1: .*num_workers=0"):
        next(iter(loader))
