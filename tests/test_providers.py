"""Data providers: whole batches, true counts, loops that do not disturb one another."""

from __future__ import annotations

import pickle

import array_api_strict as xp
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from record_files import pictures, png, write_records

import labeled
from labeled.errors import (
    ArrayError,
    LabeledError,
    LabeledWarning,
    LoaderError,
    OptionError,
    ReadError,
    UnknownNameError,
)
from labeled.providers import (
    ArrayDataProvider,
    DataBatch,
    DataProvider,
    IteratorProvider,
    device_slices,
    provider,
)
from labeled.transforms import Augment, Crop, Mirror
from make_files import fuel_file

IMAGES = np.arange(15 * 2 * 3, dtype=np.uint8).reshape(15, 2, 3)
LABELS = np.arange(100, 115)


def joined(batches, which="data"):
    """Return the real samples of batches, one after another."""
    return np.concatenate([getattr(b, which)[0][: b.count_samples] for b in batches])


@given(st.integers(1, 20), st.integers(1, 24), st.booleans(), st.booleans())
def test_batches_are_whole_and_hold_every_sample_once(n, size, shuffle, roll_over):
    values = np.arange(n) * 3
    made = ArrayDataProvider(values, values + 1, size, shuffle, 7, 8, roll_over=roll_over, seed=5)
    batches = list(made)
    assert len(batches) == len(made) == -(-n // size)
    assert [b.count_samples for b in batches] == [size] * (n // size) + [n % size] * (n % size > 0)
    seen = joined(batches)
    np.testing.assert_array_equal(np.sort(seen), values)
    np.testing.assert_array_equal(joined(batches, "label"), seen + 1)
    if not shuffle:
        np.testing.assert_array_equal(seen, values)
    last = batches[-1]
    filled = last.data[0][last.count_samples :]
    assert all(b.data[0].shape == (size,) for b in batches)
    if roll_over:
        np.testing.assert_array_equal(filled, np.resize(seen, len(filled)))
        np.testing.assert_array_equal(last.label[0], last.data[0] + 1)
        np.testing.assert_array_equal(values[last.rows], last.data[0])
    else:
        assert (filled == 7).all()
        assert (last.label[0][last.count_samples :] == 8).all()
        assert (last.rows[last.count_samples :] == -1).all()


@pytest.mark.parametrize(
    ("data", "label", "names"),
    [
        (IMAGES, None, (["data"], [])),
        (IMAGES, LABELS, (["data"], ["softmax_label"])),
        (("x", IMAGES), ("y", LABELS), (["x"], ["y"])),
        ([("b", IMAGES), ("a", LABELS)], [], (["b", "a"], [])),
        ({"b": IMAGES, "a": LABELS}, {"y": LABELS, "z": IMAGES}, (["b", "a"], ["y", "z"])),
        (list(range(15)), [float(x) for x in range(15)], (["data"], ["softmax_label"])),
    ],
)
def test_data_and_labels_are_named_as_given(data, label, names):
    made = ArrayDataProvider(data, label, batch_size=4)
    assert [name for name, _ in made.provide_data] == names[0]
    assert [name for name, _ in made.provide_label] == names[1]
    batch = next(iter(made))
    assert [a.shape for a in batch.data] == [shape for _, shape in made.provide_data]
    assert [a.shape for a in batch.label] == [shape for _, shape in made.provide_label]


@given(st.integers(0, 3), st.booleans())
def test_two_loops_over_one_provider_are_independent(ahead, shuffle):
    made = ArrayDataProvider(LABELS, batch_size=4, shuffle=shuffle, seed=1)
    alone = ArrayDataProvider(LABELS, batch_size=4, shuffle=shuffle, seed=1)
    epochs = [[b.data[0].copy() for b in alone] for _ in range(2)]
    outer = iter(made)
    got = [next(outer).data[0] for _ in range(ahead)]
    inner = [b.data[0] for b in made]
    got += [b.data[0] for b in outer]
    np.testing.assert_array_equal(got, epochs[0])
    np.testing.assert_array_equal(inner, epochs[1])


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_parts_together_hold_every_sample_once(n, size, parts, roll_over):
    made = [
        ArrayDataProvider(
            np.arange(n),
            batch_size=size,
            shuffle=True,
            seed=2,
            shard=(k, parts),
            roll_over=roll_over,
        )
        for k in range(parts)
    ]
    seen = [joined([*one, DataBatch({"data": np.empty(0, int)})]) for one in made]
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(n))
    if roll_over:
        assert len({len(one) for one in made}) == 1
    else:
        assert all(b.count_samples > 0 for one in made for b in one)


def test_the_batch_axis_moves_last():
    first = ArrayDataProvider(IMAGES, LABELS, batch_size=4)
    last = ArrayDataProvider(IMAGES, LABELS, batch_size=4, axes="last")
    assert last.provide_data == [("data", (2, 3, 4))]
    assert last.provide_label == [("softmax_label", (4,))]
    for a, b in zip(first, last, strict=True):
        assert b.data[0].flags.c_contiguous
        np.testing.assert_array_equal(np.moveaxis(b.data[0], -1, 0), a.data[0])
        assert b.count_samples == a.count_samples


def test_labelled_and_lazy_arrays_are_turned_to_their_samples():
    cast = ArrayDataProvider(IMAGES, batch_size=5, dtype={"data": "float32"}, scale={"data": 0.5})
    np.testing.assert_array_equal(joined(cast), IMAGES / np.float32(2))
    image = xr.DataArray(IMAGES, dims=("batch", "y", "x")).transpose("y", "x", "batch")
    odd = ArrayDataProvider(xr.DataArray(IMAGES, dims=(0, 1, 2)), batch_size=5)
    np.testing.assert_array_equal(joined(odd), IMAGES)
    lazy = da.from_array(LABELS, chunks=4)
    made = ArrayDataProvider(image.chunk(batch=6), lazy, batch_size=5)
    batch = next(iter(made))
    np.testing.assert_array_equal(batch.data[0], IMAGES[:5])
    np.testing.assert_array_equal(joined(made, "label"), LABELS)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"bach_size": 3}, OptionError, "'bach_size'; did you mean 'batch_size'"),
        ({"batch_size": -1}, LoaderError, "batch_size=-1"),
        ({"batch_size": 2.0}, LoaderError, "whole number"),
        ({"label": LABELS[:3]}, LoaderError, "different numbers of samples"),
        ({"label": ("data", LABELS)}, LoaderError, "'data' is given twice"),
        ({"data": [("x", IMAGES), ("x", IMAGES)]}, LoaderError, "'x' is given twice"),
        ({"label": "text"}, ArrayError, "must be an array of samples"),
        ({"label": [("y", LABELS), LABELS]}, ArrayError, r"must be a \(name, array\) pair"),
        ({"axes": "middle"}, LoaderError, "'first' or 'last'"),
        ({"data": da.ones((15, 9), chunks=5), "memory": "1 B"}, LoaderError, "memory"),
        ({"roll_over": "no"}, LoaderError, "roll_over='no' must be True or False"),
        (
            {"data_padding": 0.5, "batch_size": 4},
            LoaderError,
            "pad_value=0.5 is not a value of dtype uint8.*data_padding= or label_padding=",
        ),
        *(
            (
                {"data": np.ones(15, "f4"), "batch_size": 4, "data_padding": value},
                LoaderError,
                "is not a value of dtype float32",
            )
            for value in ("x", [1.0, 2.0])
        ),
        ({"shard": (2, 2)}, LoaderError, "shard"),
        ({"data": []}, LoaderError, "at least one array of data"),
        ({"data": IMAGES[:0], "label": None}, LoaderError, "give a batch_size"),
        ({"label": {1: LABELS}}, ArrayError, "must be a .name, array. pair, its name a text"),
        ({"label": np.ma.array(LABELS, mask=LABELS > 3)}, ArrayError, "mask would be lost"),
        ({"label": da.ma.masked_greater(da.arange(15), 3)}, ArrayError, "mask would be lost"),
        ({"label": [[1], [2, 3]]}, ArrayError, "'softmax_label' must be an array .*inhomogeneous"),
        (
            {"data": np.ones(15, "f4"), "batch_size": 4, "data_padding": 1e39},
            LoaderError,
            r"pad_value=1e\+39 is not a value",
        ),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments, error, words):
    with pytest.raises(error, match=words):
        ArrayDataProvider(**{"data": IMAGES, "label": LABELS, **arguments})
    assert list(ArrayDataProvider(np.empty((0, 3)), batch_size=2)) == []


# batches


@given(st.integers(1, 20), st.integers(1, 8), st.booleans(), st.sampled_from([np, xp]))
def test_device_slices_cover_a_batch_and_load_it(size, devices, last, library):
    if devices > size:
        with pytest.raises(LoaderError, match="too small for"):
            device_slices(size, devices)
        return
    slices = device_slices(size, devices)
    np.testing.assert_array_equal(
        [s.stop - s.start for s in slices], [len(p) for p in np.array_split(range(size), devices)]
    )
    values = np.arange(size * 2.0).reshape((2, size) if last else (size, 2))
    batch = DataBatch({"x": values}, axes="last" if last else "first")
    places = []
    for s in slices:
        n = s.stop - s.start
        places.append(library.zeros((2, n) if last else (n, 2), dtype=library.float32))
    batch.load_data([list(zip(slices, places, strict=True))])
    got = np.concatenate([np.asarray(p) for p in places], axis=-1 if last else 0)
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([None, np.zeros(3)], r"'y' have shape \(4,\), their target \(3,\)"),
        ([None], r"one for each of \['x', 'y'\]; found 1"),
        ({"x": None}, "load_data takes a list of targets, one for each"),
        ([None, [(slice(2, 5), np.zeros(3))]], r"slice\(2, 5, None\) of 'y' have shape \(2,\)"),
        ([None, [(2, np.zeros(3))]], "cannot be filled with 'y': give an array, or a list"),
        ([None, [(slice(4), "text")]], "cannot be filled with 'y'"),
        ([None, np.broadcast_to(np.zeros(1), 4)], "target for 'y' is read-only"),
        ([None, np.zeros(4, np.int64)], r"float64 values .* int64 array"),
    ],
)
def test_targets_that_do_not_fit_are_refused_before_anything_is_copied(targets, words):
    batch, whole = DataBatch({"x": np.ones((4, 2)), "y": np.ones(4)}), np.zeros((4, 2))
    if isinstance(targets, list):
        targets[0] = whole
    with pytest.raises(ArrayError, match=words):
        batch.load_data(targets)
    assert not whole.any()
    batch.load_data([whole, [(slice(0, 3), np.zeros(3)), (range(3, 4), np.zeros(1))]])
    assert whole.all()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (([IMAGES], [LABELS]), "takes mappings from name to array, found"),
        (({"x": IMAGES}, LABELS), "takes mappings from name to array, found"),
        (({"x": np.ones(3)}, {"y": np.ones(4)}), "different numbers of samples"),
        (({}, {"y": np.ones(4)}), "at least one array of data"),
        (({"y": np.ones(4)}, {}, 5), "count_samples=5 is more than the batch size, 4"),
        (({"y": np.ones(4)}, {}, 2.5), "count_samples=2.5 must be a whole number"),
        (({"y": [1, 2]},), "'y' must be an array of samples, not"),
        (({"y": np.ones(4)}, {"y": np.ones(4)}), "'y' is both among the data and the labels"),
        (({"y": np.ones(4)}, {}, 4, None, "middle"), "axes='middle'"),
    ],
)
def test_what_is_no_batch_is_refused(parts, words):
    with pytest.raises(LabeledError, match=words):
        DataBatch(*parts)


# datasets


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = fuel_file(
        tmp_path_factory.mktemp("providers") / "d.hdf5",
        {"features": IMAGES, "targets": LABELS[:, None]},
        {"train": (0, 10), "test": (10, 15)},
        {"features": ("batch", "y", "x"), "targets": ("batch", "index")},
    )
    return labeled.open_dataset(path)


def test_a_dataset_as_provider(ds):
    made = ds.split("train").as_provider(4, shuffle=True, seed=1)
    assert isinstance(made, DataProvider)
    assert made.provide_data == [("features", (4, 2, 3))]
    assert made.provide_label == [("targets", (4, 1))]
    for batch in made:
        real = batch.rows[: batch.count_samples]
        np.testing.assert_array_equal(batch.get("features")[: len(real)], IMAGES[real])
        np.testing.assert_array_equal(batch.get("targets")[: len(real), 0], LABELS[real])
    assert len(made) == 3


def test_sources_of_a_dataset_are_chosen_and_renamed(ds):
    made = ds.as_provider(
        5, data={"x": "targets"}, label=(), axes="last", dtype={"targets": "float32"}
    )
    assert (made.provide_data, made.provide_label) == ([("x", (1, 5))], [])
    assert next(iter(made)).get("x").dtype == np.float32
    with pytest.raises(UnknownNameError, match="did you mean 'features'"):
        ds.as_provider(5, data="feature")
    with pytest.raises(LoaderError, match=r"data= names 'features' twice; .*mapping"):
        ds.as_provider(5, data=["features", "features"])
    with pytest.raises(LoaderError, match="label= names 'targets' twice"):
        ds.as_provider(5, label=["targets", "targets"])
    twice = ds.as_provider(5, data={"x": "features", "again": "features"})
    assert [name for name, _ in twice.provide_data] == ["x", "again"]
    with pytest.raises(OptionError, match="did you mean 'shuffle'"):
        ds.as_provider(5, shufle=True)
    with pytest.raises(OptionError, match="no option 'pipeline'"):
        ds.as_provider(5, pipeline={"features": np.negative})
    piped = IteratorProvider(ds.batches(5, pipeline={"features": lambda x: x[:, :2]}))
    assert dict(piped.provide_data)["features"] == (5, 2, 2)


@pytest.mark.parametrize("piped", [False, True])
def test_pictures_that_cannot_be_decoded_are_left_out_if_that_is_wanted(tmp_path, piped):
    images = pictures(8)
    damaged = [png(one)[:60] if i in (1, 4, 5) else one for i, one in enumerate(images)]
    path = write_records(tmp_path / "damaged.rec", damaged, range(8))
    ds = labeled.open_dataset(path, sources=("images", "labels"))
    if not piped:
        made = ds.as_provider(2, errors="skip")
    else:
        loader = ds.batches(2, errors="skip", pipeline={"images": Augment([Mirror(0)])})
        made = IteratorProvider(loader, batch_size=2, label="labels")
    with pytest.warns(LabeledWarning, match="left out of this epoch"):
        batches = list(made)
    assert [b.label[0].tolist()[: b.count_samples] for b in batches] == [[0], [2, 3], [6, 7]]
    for batch in batches:
        real = batch.label[0][: batch.count_samples].astype(int)
        np.testing.assert_array_equal(batch.data[0][: len(real)], images[real])
    with pytest.raises(ReadError, match="row 1"):
        list(ds.as_provider(2))
    with pytest.raises(LoaderError, match="pad it instead"):
        ds.as_provider(2, errors="skip", roll_over=True)


def test_pictures_of_many_sizes_are_refused_with_the_way_to_provide_them(tmp_path):
    images = [pictures(1, 24 + 3 * i, 30)[0] for i in range(4)]
    path = write_records(tmp_path / "sizes.rec", images, range(4))
    ds = labeled.open_dataset(path, sources=("images", "labels"))
    with pytest.raises(
        LoaderError, match=r"'images' .*sizes\.rec'.* its loader to IteratorProvider"
    ):
        ds.as_provider(2)
    loader = ds.batches(2, pipeline={"images": Augment([Crop((12, 16), y=0, x=0)])})
    for batch, first in zip(IteratorProvider(loader, label="labels"), (0, 2), strict=True):
        expected = [image[:12, :16] for image in images[first : first + 2]]
        np.testing.assert_array_equal(batch.get("images"), expected)


# over what others iterate


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
    assert calls == list(range(5))  # the names are those of the first loop's first batch


def test_a_coroutine_draws_from_its_seed_and_loop():
    def noise(rng):
        yield rng.random(3)

    def draws(seed):
        made = provider(noise, seed=seed)
        return [next(iter(made)).data[0].tolist() for _ in range(2)]

    assert draws(1) == draws(1)
    assert draws(1)[0] != draws(1)[1] != draws(2)[1]


class Padded:
    """A batch as MXNet's iterators yield it."""

    def __init__(self, n, pad):
        self.data, self.label, self.pad = [np.arange(n)], [np.arange(n)], pad


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
        return Padded(2, 1 if self.place == 3 else 0)

    def reset(self):
        self.place = 0


def test_an_old_iterator_is_reset_for_each_loop():
    made = IteratorProvider(OldStyle(), data_name="x")
    assert made.provide_data == [("x", (2,))]
    for _ in range(2):
        assert [b.count_samples for b in made] == [2, 2, 1]


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
    assert (made.provide_data, made.provide_label) == ([("x", (5, 3))], [("y", (5,))])
    assert [b.get("y").tolist() for b in made] == [[0, 1, 0, 0, 0], [0, 1, 2, 3, 0]]
    by_name = IteratorProvider([{"x": np.ones(2), "y": np.ones(2)}], label_name="y")
    assert [name for name, _ in by_name.provide_label] == ["y"]


def test_what_yields_nothing_has_no_shapes():
    assert list(IteratorProvider([])) == []
    with pytest.raises(LoaderError, match="yields no batch"):
        _ = IteratorProvider([]).batch_size
    with pytest.raises(LoaderError, match="iterable=5 must be a sequence"):
        IteratorProvider(5)
    with pytest.raises(LoaderError, match="takes a function"):
        provider([1])
    with pytest.raises(LoaderError, match=r"<lambda> returned NoneType, which yields no batches"):
        list(provider(lambda: None))
    with pytest.raises(OptionError, match="did you mean 'batch_size'"):
        IteratorProvider([], batchsize=3)


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
    shuffled = ArrayDataProvider(LABELS, batch_size=4, shuffle=True, seed=3)
    foreign = IteratorProvider([np.arange(3)] * 2)
    for made in (provider(batches_of_one), seeded, foreign, shuffled):
        assert made.batch_size  # learnt from a pass that waits for the loop
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
        ([[("x", np.ones(2))], [("x", np.zeros(2))]], "'x' is both among the data and the labels"),
        (3.0, "'data' must be an array of samples: float 3.0 makes one of shape"),
        (Padded(4, 5), "a batch of 4 samples cannot have pad=5"),
    ],
)
def test_what_makes_no_batch_is_reported(item, words):
    with pytest.raises(ArrayError, match=words):
        list(IteratorProvider([item]))


def test_tensors_are_taken_or_refused_with_their_name():
    torch = pytest.importorskip("torch")
    (batch,) = IteratorProvider([(torch.ones(3, 2), torch.arange(3))])
    assert (batch.data[0] == 1).all()
    for bad in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bfloat16)):
        with pytest.raises(ArrayError, match="'data' must be an array of samples: torch's Tensor"):
            list(IteratorProvider([bad]))
        with pytest.raises(ArrayError, match="'y' must be an array of samples: torch's Tensor"):
            ArrayDataProvider(np.ones(3), {"y": bad})


def test_providers_and_their_batches_show_shapes():
    provider = ArrayDataProvider({"data": np.zeros((6, 2))}, batch_size=2)
    shown = "LoaderProvider: batches of 2 samples; data data (2, 2); labels none"
    assert repr(provider) == f"<labeled.providers.{shown}>"
    assert repr(next(iter(provider))) == (
        "<labeled.providers.DataBatch, 2 samples>\n  data  (2, 2)  float64"
    )
