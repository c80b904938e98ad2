"""Data providers: whole batches, true counts, loops that do not disturb one another."""

from __future__ import annotations

import pickle

import array_api_strict as xp
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from fake_device import FakeDevice
from hypothesis import given
from hypothesis import strategies as st
from record_files import pictures, png, write_records

import labeled
from labeled.device import copy_into
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


def test_nothing_said_of_the_batch_size_takes_all_samples():
    made = ArrayDataProvider(IMAGES)
    assert (made.batch_size, made.provide_data) == (15, [("data", (15, 2, 3))])
    (batch,) = made
    np.testing.assert_array_equal(batch.data[0], IMAGES)


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


def test_a_loop_given_up_leaves_the_next_one_whole():
    made = ArrayDataProvider(LABELS, batch_size=4)
    for batch in made:
        assert batch.data[0][0] == 100
        break
    np.testing.assert_array_equal(joined(made), LABELS)


def test_a_provider_goes_on_where_it_is_unpickled():
    made = ArrayDataProvider(LABELS, batch_size=4, shuffle=True, seed=3)
    list(made)
    copy = pickle.loads(pickle.dumps(made))
    for _ in range(2):
        np.testing.assert_array_equal(joined(copy), joined(made))


def test_batches_stay_what_they_were():
    made = ArrayDataProvider(IMAGES, LABELS, batch_size=4, shuffle=True, seed=3)
    held = [batch for _ in range(3) for batch in made]
    for batch in held:
        n = batch.count_samples
        np.testing.assert_array_equal(batch.data[0][:n], IMAGES[batch.rows[:n]])


def test_a_seed_governs_the_order_and_epochs_differ():
    def orders(seed):
        made = ArrayDataProvider(np.arange(50), batch_size=8, shuffle=True, seed=seed)
        return [joined(made).tolist() for _ in range(2)]

    first, second = orders(7)
    assert [first, second] == orders(7)
    assert first != second
    assert orders(8)[0] != first


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
    assert b.to_xarray()["data"].dims == ("data_1", "data_2", "batch")


def test_labelled_and_lazy_arrays_keep_their_dims():
    image = xr.DataArray(IMAGES, dims=("batch", "y", "x")).transpose("y", "x", "batch")
    odd = ArrayDataProvider(xr.DataArray(IMAGES, dims=(0, 1, 2)), batch_size=5)
    np.testing.assert_array_equal(joined(odd), IMAGES)
    lazy = da.from_array(LABELS, chunks=4)
    made = ArrayDataProvider(image.chunk(batch=6), lazy, batch_size=5)
    batch = next(iter(made))
    assert batch.to_xarray()["data"].dims == ("batch", "y", "x")
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
        ({"label": "text"}, ArrayError, "must be an array of samples"),
        ({"label": [("y", LABELS), LABELS]}, ArrayError, r"must be a \(name, array\) pair"),
        ({"axes": "middle"}, LoaderError, "'first' or 'last'"),
        ({"data": da.ones((15, 9), chunks=5), "memory": "1 B"}, LoaderError, "memory"),
        ({"roll_over": "no"}, LoaderError, "roll_over='no' must be True or False"),
        (
            {"data_padding": 0.5, "batch_size": 4},
            LoaderError,
            "cannot be padded with 0.5",
        ),
        ({"shard": (2, 2)}, LoaderError, "shard"),
        ({"label": {1: LABELS}}, ArrayError, "the name 1 of an array must be text"),
        ({"label": np.ma.array(LABELS, mask=LABELS > 3)}, ArrayError, "mask would be lost"),
        ({"label": da.ma.masked_greater(da.arange(15), 3)}, ArrayError, "mask would be lost"),
        ({"label": [[1], [2, 3]]}, ArrayError, "'softmax_label' must be an array .*inhomogeneous"),
        (
            {"data": np.ones(15, "f4"), "batch_size": 4, "data_padding": 1e39},
            LoaderError,
            r"cannot be padded with 1e\+39",
        ),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments, error, words):
    with pytest.raises(error, match=words):
        ArrayDataProvider(**{"data": IMAGES, "label": LABELS, **arguments})


def test_no_data_at_all_is_refused():
    with pytest.raises(LoaderError, match="at least one array of data"):
        ArrayDataProvider([], LABELS)
    with pytest.raises(LoaderError, match="give a batch_size"):
        ArrayDataProvider(np.empty((0, 3)))
    assert list(ArrayDataProvider(np.empty((0, 3)), batch_size=2)) == []


# batches


def test_a_batch_finds_arrays_by_name():
    batch = DataBatch({"x": LABELS}, {"y": IMAGES}, 3)
    assert batch.get("y") is IMAGES
    assert batch.count_samples == 3
    with pytest.raises(UnknownNameError, match=r"'z'.*[Tt]here are: 'x', 'y'"):
        batch.get("z")


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


def test_targets_that_do_not_fit_are_refused_before_anything_is_copied():
    batch = DataBatch({"x": np.ones((4, 2)), "y": np.ones(4)}, {"z": np.ones(4)})
    whole, short = np.zeros((4, 2)), np.zeros(3)
    with pytest.raises(ArrayError, match=r"'y' have shape \(4,\), their target \(3,\)"):
        batch.load_data([whole, short])
    with pytest.raises(ArrayError, match=r"one for each of \['x', 'y'\]; found 1"):
        batch.load_data([whole])
    with pytest.raises(ArrayError, match="must be consecutive samples"):
        batch.load_label([[(slice(2, 5), short)]])
    with pytest.raises(ArrayError, match="must be consecutive samples"):
        batch.load_label([[(slice(0, 4, 2), np.zeros(2))]])
    for bad in ([[(2, short)]], [[short]], [None], [[(slice(0, 4), "text")]]):
        with pytest.raises(ArrayError, match="cannot be filled with 'z': give an array, or a list"):
            batch.load_label(bad)
    with pytest.raises(ArrayError, match="target for 'y' is read-only"):
        batch.load_data([whole, np.broadcast_to(np.zeros(1), 4)])
    with pytest.raises(ArrayError, match=r"float64 values .* int64 array"):
        batch.load_data([whole, np.zeros(4, np.int64)])
    for which in (slice(0.0, 2.0), slice("a", "b"), slice(-2, None)):
        with pytest.raises(LabeledError, match=r"whole number|consecutive"):
            batch.load_data([whole, [(which, np.zeros(2))]])
    for targets in (None, (place for place in (whole, short)), {"x": whole}):
        with pytest.raises(ArrayError, match="load_data takes a list of targets, one for each"):
            batch.load_data(targets)
    assert not whole.any()
    batch.load_label([[(slice(0, 3), short), (range(3, 4), whole[0, :1])]])
    assert short.all()
    assert whole[0, 0] == 1


def test_tensors_are_targets():
    torch = pytest.importorskip("torch")
    batch = DataBatch({"x": IMAGES})
    places = torch.zeros(10, 2, 3), torch.zeros((5, 2, 3), dtype=torch.uint8)
    batch.load_data([[(slice(0, 10), places[0]), (slice(10, 15), places[1])]])
    np.testing.assert_array_equal(np.concatenate([place.numpy() for place in places]), IMAGES)


def test_floats_are_not_copied_into_integers():
    with pytest.raises(ArrayError, match=r"float64 values .* int32 array"):
        copy_into(np.zeros(2, np.int32), np.ones(2))


@given(st.lists(st.integers(-(2**40), 2**40), max_size=4), st.sampled_from(["i1", "i4", "i8"]))
def test_integers_are_copied_or_refused_but_never_changed(values, dtype):
    places = np.zeros(len(values), np.int64), np.zeros(len(values), dtype)
    batch = DataBatch({"x": np.array(values, np.int64), "y": np.array(values, np.int64)})
    if all(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values):
        batch.load_data(places)
        assert places[1].tolist() == values
    else:
        with pytest.raises(
            ArrayError, match=f"int64 values from .* which holds {np.iinfo(dtype).min}"
        ):
            batch.load_data(places)
        assert not places[0].any()


def test_arrays_of_a_batch_are_of_one_length():
    with pytest.raises(ArrayError, match="different numbers of samples"):
        DataBatch({"x": np.ones(3)}, {"y": np.ones(4)})
    with pytest.raises(ArrayError, match="at least one array of data"):
        DataBatch({}, {"y": np.ones(4)})
    with pytest.raises(ArrayError, match="count_samples=5 is more than the batch size, 4"):
        DataBatch({"y": np.ones(4)}, count_samples=5)
    for count in (-5, 2.5, "a"):
        with pytest.raises(LoaderError, match=f"count_samples='?{count}"):
            DataBatch({"y": np.ones(4)}, count_samples=count)
    with pytest.raises(ArrayError, match="rows has 3 entries for the 4 samples"):
        DataBatch({"y": np.ones(4)}, rows=np.arange(3))
    with pytest.raises(ArrayError, match="'y' must be an array of samples, not"):
        DataBatch({"y": [1, 2]})
    with pytest.raises(ArrayError, match="'y' is both among the data and the labels"):
        DataBatch({"y": np.ones(4)}, {"y": np.ones(4)})
    with pytest.raises(LoaderError, match="axes='middle'"):
        DataBatch({"y": np.ones(4)}, axes="middle")


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


@given(st.integers(0, 99), st.booleans(), st.sampled_from(["first", "last"]))
def test_a_device_makes_the_batches_of_the_host(ds, seed, roll_over, axes):
    options = {"shuffle": True, "seed": seed, "roll_over": roll_over, "axes": axes}
    there = ds.as_provider(4, device=FakeDevice(seed), **options)
    here = ds.as_provider(4, **options)
    for _ in range(2):
        for a, b in zip(there, here, strict=True):
            for name in ("features", "targets"):
                np.testing.assert_array_equal(a.get(name), b.get(name))
            assert a.count_samples == b.count_samples


def test_arrays_go_to_a_device():
    there = FakeDevice(3)
    made = ArrayDataProvider(IMAGES, LABELS, batch_size=5, device=there)
    for one, other in zip(made, ArrayDataProvider(IMAGES, LABELS, batch_size=5), strict=True):
        np.testing.assert_array_equal(one.data[0], other.data[0])
        np.testing.assert_array_equal(one.label[0], other.label[0])
    assert there.n_uploads


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
    with pytest.warns(LabeledWarning, match="rows are left out"):
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
