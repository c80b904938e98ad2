"""Providers over what others iterate: generator functions, lists, loaders of other libraries."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import ArrayError, LoaderError, OptionError, UnknownNameError
from labeled.providers import (
    ArrayDataProvider,
    DataProvider,
    IteratorProvider,
    provider,
)


def test_a_coroutine_is_begun_anew_by_each_loop():
    calls = []

    @provider(label=("next",), batch_size=2)
    def text():
        calls.append(len(calls))
        shared = np.zeros(2, int)
        for position in range(3):
            shared[:] = position
            yield {"letter": shared, "next": shared + 1}

    assert isinstance(text, DataProvider)
    assert text.provide_data == [("letter", (2,))]
    assert text.provide_label == [("next", (2,))]
    pairs = [(a.get("letter")[0], b.get("next")[0]) for a in text for b in text]
    assert pairs == [(a, b + 1) for a in range(3) for b in range(3)]
    assert [b.data[0].tolist() for b in list(text)] == [[0, 0], [1, 1], [2, 2]]
    assert calls == list(range(6))


def test_a_coroutine_draws_from_its_seed_and_loop():
    def noise(rng):
        yield rng.random(3)

    def draws(seed):
        made = provider(noise, seed=seed)
        return [next(iter(made)).data[0].tolist() for _ in range(2)]

    assert draws(1) == draws(1)
    assert draws(1)[0] != draws(1)[1] != draws(2)[1]


def test_functions_that_yield_nothing_are_reported():
    def nothing():
        return None

    def drawn(rng):
        yield rng.random(3)

    with pytest.raises(LoaderError, match=r"nothing returned NoneType, which yields no batches"):
        list(provider(nothing))
    with pytest.raises(LoaderError, match=r"drawn: missing a required argument: 'rng'.*seed="):
        provider(drawn)
    with pytest.raises(LoaderError, match=r"nothing: too many positional arguments.*a generator"):
        provider(nothing, seed=1)


def test_labels_that_are_asked_for_must_be_there():
    with pytest.raises(
        UnknownNameError, match=r"no array 'labl' for a label; did you mean 'label'"
    ):
        next(iter(IteratorProvider([{"x": np.ones(2), "label": np.ones(2)}], label="labl")))


class OldStyle:
    """An iterator of its own, as older libraries had them: reset() begins again."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == 3:
            raise StopIteration
        self.place += 1
        batch = type("Batch", (), {})()
        batch.data = [np.full((2, 1), self.place)]
        batch.label = [np.full(2, self.place)]
        batch.pad = 1 if self.place == 3 else 0
        return batch

    def reset(self):
        self.place = 0


def test_an_old_iterator_is_reset_for_each_loop():
    made = IteratorProvider(OldStyle(), data_name="x")
    assert made.provide_data == [("x", (2, 1))]
    for _ in range(2):
        batches = list(made)
        assert [b.data[0][0, 0] for b in batches] == [1, 2, 3]
        assert [b.count_samples for b in batches] == [2, 2, 1]


def test_an_iterator_serves_one_loop_at_a_time():
    made = IteratorProvider(OldStyle())
    outer = iter(made)
    next(outer)
    assert len(list(made)) == 3
    with pytest.raises(LoaderError, match="ended when another one"):
        next(outer)
    once = IteratorProvider(iter([np.ones(2)]))
    assert once.batch_size == 2
    assert len(list(once)) == 1
    with pytest.raises(LoaderError, match="looped over once"):
        list(once)


def test_a_loader_of_this_library_is_a_foreign_iterable_too():
    loader = labeled.batches(xr.Dataset({"x": ("batch", np.arange(5))}), 2, last="pad")
    assert [b.count_samples for b in IteratorProvider(loader)] == [2, 2, 1]


def test_short_batches_are_padded_and_others_must_fit():
    items = [(np.ones((3, 2)), np.ones(3)), (np.ones((1, 2)), np.ones(1))]
    made = IteratorProvider(items, data_padding=5, label_padding=-1, axes="last")
    assert made.provide_data == [("data", (2, 3))]
    last = list(made)[-1]
    assert last.count_samples == 1
    np.testing.assert_array_equal(last.data[0], [[1, 5, 5], [1, 5, 5]])
    np.testing.assert_array_equal(last.label[0], [1, -1, -1])
    for bad, words in [
        ((np.ones((3, 4)), np.ones(3)), "batch 1 holds data"),
        ((np.ones((4, 2)), np.ones(4)), "at most the batch size 3"),
        ((np.ones((2, 2)), np.ones(3)), "different numbers of samples"),
        (np.ones((3, 2)), "and labels {}"),
    ]:
        with pytest.raises(ArrayError, match=words):
            list(IteratorProvider([items[0], bad]))


def test_names_and_sizes_that_are_given_are_not_learnt():
    pairs = [(np.ones((2, 3)), np.arange(2)), (np.ones((4, 3)), np.arange(4))]
    made = IteratorProvider(pairs, batch_size=5, data_name="x", label_name="y")
    assert made.provide_data == [("x", (5, 3))]
    assert made.provide_label == [("y", (5,))]
    assert [(b.count_samples, b.get("y").tolist()) for b in made] == [
        (2, [0, 1, 0, 0, 0]),
        (4, [0, 1, 2, 3, 0]),
    ]
    assert provider(lambda: pairs, batch_size=5).batch_size == 5
    by_name = IteratorProvider([{"x": np.ones(2), "y": np.ones(2)}], label_name="y")
    assert [name for name, _ in by_name.provide_label] == ["y"]


def test_what_yields_nothing_has_no_shapes():
    assert list(IteratorProvider([])) == []
    with pytest.raises(LoaderError, match="yields no batch"):
        _ = IteratorProvider([]).batch_size
    with pytest.raises(LoaderError, match="iterable=5 must be a sequence"):
        IteratorProvider(5)
    with pytest.raises(LoaderError, match="copy='no' must be True or False"):
        IteratorProvider([], copy="no")
    with pytest.raises(LoaderError, match="takes a function"):
        provider([1])
    with pytest.raises(OptionError, match="did you mean 'batch_size'"):
        IteratorProvider([], batchsize=3)


class Padded:
    """A batch as MXNet's iterators yield it."""

    def __init__(self, n, pad):
        self.data, self.label, self.pad = [np.arange(n)], [np.arange(n)], pad


@pytest.mark.parametrize("pad", [5, -1])
def test_a_padding_longer_than_its_batch_is_refused(pad):
    with pytest.raises(ArrayError, match=f"a batch of 4 samples cannot have pad={pad}"):
        list(IteratorProvider([Padded(4, pad)]))


def test_batches_without_samples_are_left_out():
    empty, full = np.zeros((0, 2)), np.ones((4, 2))
    items = [empty, full, empty, full[:3], empty]
    for made in (IteratorProvider(items), provider(lambda: iter(items))):
        assert made.provide_data == [("data", (4, 2))]
        assert [b.count_samples for b in made] == [4, 3]
    once = IteratorProvider(iter(items))
    assert once.batch_size == 4
    assert [b.count_samples for b in once] == [4, 3]
    assert [b.count_samples for b in IteratorProvider([Padded(4, 1), Padded(4, 4)])] == [3]
    with pytest.raises(LoaderError, match="yields no batch"):
        _ = IteratorProvider([empty]).batch_size


def test_shapes_are_learnt_from_a_loop_that_waits():
    made = IteratorProvider(iter([np.ones((2, 3)), np.ones((2, 3))]))
    loop = made.eachbatch()
    assert made.provide_data == [("data", (2, 3))]
    assert len(list(loop)) == 2


def test_a_mapping_is_one_whatever_its_names_are():
    ds = xr.Dataset(
        {"data": (("f", "batch"), np.arange(8).reshape(2, 4)), "label": ("batch", range(4))}
    )
    made = IteratorProvider([ds, ds.chunk()], label="label")
    assert made.provide_data == [("data", (4, 2))]
    assert made.provide_label == [("label", (4,))]
    for batch in made:
        np.testing.assert_array_equal(batch.data[0], ds["data"].values.T)


@pytest.mark.parametrize("axes", ["first", "last"])
def test_batches_of_a_provider_are_taken_with_their_axes(axes):
    values = np.arange(24).reshape(4, 3, 2)
    inner = ArrayDataProvider(values, np.arange(4), batch_size=3, axes="last")
    made = IteratorProvider(inner, axes=axes)
    assert made.provide_data == [("data", (3, 3, 2) if axes == "first" else (3, 2, 3))]
    seen = [
        np.moveaxis(b.data[0], 0 if axes == "first" else -1, 0)[: b.count_samples] for b in made
    ]
    np.testing.assert_array_equal(np.concatenate(seen), values)


def batches_of_one():
    yield np.ones(3)


def random_batches(rng):
    yield rng.random(3)


def test_what_can_be_pickled_goes_on_where_it_is_unpickled():
    seeded = provider(random_batches, seed=3)
    for made in (provider(batches_of_one), seeded, IteratorProvider([np.arange(3)] * 2)):
        next(iter(made))
        copy = pickle.loads(pickle.dumps(made))
        for mine, its in zip(made, copy, strict=True):
            np.testing.assert_array_equal(mine.data[0], its.data[0])


@pytest.mark.parametrize(
    ("dtype", "padding"), [("int64", 0.5), ("uint8", 300), ("uint8", -1), ("float32", 1e39)]
)
def test_a_padding_that_is_no_value_of_a_short_batch_is_refused(dtype, padding):
    items = [np.ones(3, dtype), np.ones(2, dtype)]
    with pytest.raises(LoaderError, match=r"short batch of dtype .* cannot be padded with"):
        list(IteratorProvider(items, data_padding=padding))
    assert len(list(IteratorProvider(items[:1], data_padding=padding))) == 1


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"x": [[1, 2], [3]]}, "'x' must be an array of samples: .*inhomogeneous"),
        (np.ma.array([1, 2], mask=[0, 1]), "'data' is a masked array, whose mask would be lost"),
        ({"x": da.ma.masked_equal(da.arange(3), 1)}, "'x' is a masked array"),
        (np.array([None]), "'data' must be an array of samples: ndarray .* dtype object"),
        ([("x", np.ones(2)) for _ in range(3)], "two arrays of one name"),
        ([[("x", np.ones(2))], [("x", np.zeros(2))]], "'x' is both among the data and the labels"),
        (3.0, "'data' must be an array of samples: float 3.0 makes one of shape"),
    ],
)
def test_what_makes_no_batch_is_reported(item, words):
    with pytest.raises(ArrayError, match=words):
        list(IteratorProvider([item]))


@pytest.mark.parametrize("name", [1, None, b"x"])
def test_a_name_beside_an_array_must_be_a_str(name):
    for given in ((name, np.ones(3)), [(name, np.ones(3))], {name: np.ones(3)}, [(name, [1, 2])]):
        with pytest.raises(ArrayError, match=f"the name {name!r} of an array must be text"):
            ArrayDataProvider(given)
    rows = ArrayDataProvider([(1, 2), (3, 4)])  # nested numbers are no pairs
    assert rows.provide_data == [("data", (2, 2))]


def test_tensors_are_taken_or_refused_with_their_name():
    torch = pytest.importorskip("torch")
    (batch,) = IteratorProvider([(torch.ones(3, 2), torch.arange(3))])
    assert (batch.data[0] == 1).all()
    for bad in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bfloat16)):
        with pytest.raises(ArrayError, match="'data' must be an array of samples: torch's Tensor"):
            list(IteratorProvider([bad]))
        with pytest.raises(ArrayError, match="'y' must be an array of samples: torch's Tensor"):
            ArrayDataProvider(np.ones(3), {"y": bad})


def test_keywords_and_names_that_are_none_are_refused():
    with pytest.raises(OptionError, match=r"provider\(\) has no option 'sed'.* 'seed'"):
        provider(sed=3)
    with pytest.raises(LoaderError, match="label=3 must be text or a sequence of text"):
        IteratorProvider([], label=3)
    with pytest.raises(LoaderError, match="label_name=None must be text"):
        IteratorProvider([], label_name=None)
