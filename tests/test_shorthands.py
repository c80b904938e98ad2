"""The short options of `batches`, each against the lines of NumPy or xarray that it stands for."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import (
    LabeledWarning,
    LoaderError,
    SpaceError,
    SplitError,
    UnknownNameError,
)

DIMS = ("batch", "channel", "height", "width")
IMAGES = np.random.default_rng(0).integers(0, 256, (30, 3, 4, 5), "u1")
TARGETS = np.arange(30) % 10
INDEX = TARGETS[:, None].astype("u1")
ORDERS = list(itertools.permutations(DIMS))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return labeled.write(
        tmp_path_factory.mktemp("short") / "a.hdf5",
        {"images": IMAGES, "targets": TARGETS, "columns": INDEX, "words": ["a"] * 30},
        dims={"images": DIMS, "columns": ("batch", "index")},
    )


@pytest.fixture(scope="module")
def ds(path):
    return labeled.open_dataset(path)


def epoch(ds, n=8, **options):
    """Return the batches of an epoch, and the rows of each."""
    return list(ds.batches(n, **options).with_rows())


@given(data=st.data())
def test_a_layout_is_a_transpose_and_a_mean_and_deviation_are_subtracted_and_divided(ds, data):
    order = data.draw(st.sampled_from(ORDERS))
    layout = data.draw(st.sampled_from([" ".join(order), order]))
    normalize, n_classes = data.draw(st.booleans()), data.draw(st.sampled_from([None, 10, 12]))
    options = {"shuffle": True, "seed": data.draw(st.integers(0, 99)), "layout": {"images": layout}}
    options["last"] = data.draw(st.sampled_from(["keep", "pad", "drop"]))
    stored = IMAGES
    if normalize:
        mean, std = np.array([10.0, 120, 200]), np.array([3.0, 50, 90])
        options["normalize"] = {"images": (mean, std.tolist())}
        stored = (IMAGES - mean[:, None, None]) / std[:, None, None]
    if n_classes is not None:
        options["one_hot"] = {"targets": n_classes, "columns": n_classes}
    for batch, rows, count in epoch(ds, 8, **options):
        rows = rows[:count]
        wanted = xr.DataArray(stored[rows], dims=DIMS).transpose(*order)
        found = batch["images"]
        assert found.dims == order
        assert found.dtype == ("f4" if normalize else "u1")
        assert found.values.flags.c_contiguous
        np.testing.assert_allclose(found.isel(batch=slice(count)), wanted, 1e-5, 1e-5)
        for name in ("targets", "columns"):
            if n_classes is None:
                np.testing.assert_array_equal(batch[name][:count].values.ravel(), TARGETS[rows])
                continue
            assert batch[name].dims == ("batch", f"{name}_class")
            assert batch[name].dtype == "f4"
            np.testing.assert_array_equal(
                batch[name][:count], np.eye(n_classes, dtype="f4")[TARGETS[rows]]
            )


@pytest.mark.parametrize("pair", [(128.0, 64.0), ([1, 2, 3], 4), (5, [1, 2, 3])])
def test_one_pair_normalizes_pictures_and_leaves_labels_alone(ds, pair):
    batch, rows, _ = epoch(ds.select("images", "targets"), normalize=pair)[1]
    mean, std = (np.asarray(one).reshape(-1, 1, 1) for one in pair)
    np.testing.assert_allclose(batch["images"], (IMAGES[rows] - mean) / std, 1e-5, 1e-5)
    np.testing.assert_array_equal(batch["targets"], TARGETS[rows])


def test_tuples_and_other_libraries_get_the_same_arrays(ds):
    options = {"layout": {"images": "batch height width channel"}, "one_hot": {"targets": 10}}
    x, y = next(iter(ds.select("images", "targets").batches(7, as_tuple=True, **options)))
    np.testing.assert_array_equal(x, IMAGES[:7].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(y.argmax(axis=1), TARGETS[:7])


def test_any_xarray_object_is_laid_out(ds):
    steps = xr.DataArray(np.arange(24).reshape(6, 4), dims=("time", "x"), name="t").chunk(time=4)
    (one, _), *_ = [
        (b["t"], 0) for b in labeled.batches(steps, 3, dim="time", layout={"t": "x time"})
    ]
    xr.testing.assert_equal(one, steps[:3].compute().transpose("x", "time"))


def test_a_pipeline_gets_examples_laid_out(ds):
    seen = []
    loader = ds.select("images").batches(
        30,
        layout={"images": "batch height width channel"},
        pipeline={"images": lambda x: seen.append(x.dims) or x},
    )
    np.testing.assert_array_equal(next(iter(loader))["images"], IMAGES.transpose(0, 2, 3, 1))
    assert set(seen) == {("height", "width", "channel")}


def test_drop_last_is_last_drop(ds):
    for options in ({}, {"shuffle": True, "seed": 3}, {"balance": "targets", "seed": 3}):
        short, full = (
            epoch(ds, **options, **one) for one in ({"drop_last": True}, {"last": "drop"})
        )
        np.testing.assert_array_equal([r for _, r, _ in short], [r for _, r, _ in full])
    assert len(epoch(ds, drop_last=False)) == 4
    with pytest.warns(LabeledWarning, match="batch_size=64"):
        ds.batches(64, drop_last=True)


def test_random_state_is_seed(ds):
    for number in (0, 3):
        sides = (ds.train_test_split(0.2, **{name: number}) for name in ("seed", "random_state"))
        (train, test), (same_train, same_test) = sides
        for one, other in ((train, same_train), (test, same_test)):
            np.testing.assert_array_equal(one["targets"], other["targets"])
    with pytest.raises(SplitError, match=r"seed= or random_state="):
        ds.train_test_split(seed=1, random_state=1)


def test_progress_ends_where_all_is_done(tmp_path, capsys):
    words = [[row] * (row % 9 + 1) for row in range(500)]
    path = labeled.write(tmp_path / "r.hdf5", {"words": words}, progress=True)
    labeled.repack(path, tmp_path / "s.hdf5", order="shuffle", seed=1, progress=True)
    rows = {"x": np.zeros((100_001, 8), "u1"), "y": np.arange(100_001)}
    path = labeled.write(tmp_path / "a.hdf5", rows, progress=True)
    labeled.verify(path, progress=True)
    labeled.repack(path, tmp_path / "b.hdf5", progress=True)
    shown = capsys.readouterr().err.split("\r")
    last = {line.split(":")[0]: line for line in shown if ":" in line}
    assert len(last) == 5
    assert all(": 100%|" in line for line in last.values())


def test_progress_shows_the_batches_of_each_epoch(ds, capsys):
    loader = ds.batches(8, progress=True)
    assert len(list(loader)) == 4
    words = capsys.readouterr().err
    assert "epoch 0" in words
    assert "4/4" in words
    state = {**loader.state_dict(), "epoch": 1, "step": 3, "finished": False}
    loader.load_state_dict(state)
    assert len(list(loader)) == 1
    assert "4/4" in capsys.readouterr().err
    assert not capsys.readouterr().err
    list(ds.batches(8))
    assert not capsys.readouterr().err


def test_shards_of_torch(ds, tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    with pytest.raises(LoaderError, match=r"init_process_group\(\).*shard=\(rank, world_size\)"):
        ds.batches(8, shard="torch")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        loader = ds.batches(8, shard="torch", shuffle=True, seed=1)
        assert loader.plan.options.shard == (0, 1)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6.0) % 3,
        np.arange(12).reshape(6, 2) % 3,
        np.array(list("abcabc")),
        np.array([b"a", b"bc"] * 3).reshape(6, 1),
    ],
)
def test_what_is_said_where_one_hot_does_not_fit_can_be_followed(values):
    table = xr.Dataset({"y": (("batch", "k")[: values.ndim], values)})
    with pytest.raises(LoaderError, match="one whole number a row") as caught:
        labeled.batches(table, 6, one_hot={"y": 3})
    said = re.search(r"pipeline=(\{.*\})", str(caught.value))[1]
    numbers = np.unique(values, return_inverse=True)[1].reshape(6, -1)
    pipeline = eval(said, {"np": np, "classes": np.unique(values).tolist()})
    (batch,) = labeled.batches(table, 6, pipeline=pipeline)
    np.testing.assert_array_equal(batch["y"], np.eye(3)[numbers].sum(axis=1))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"layout": {"images": "batch height width"}}, LoaderError, "batch channel height width"),
        ({"layout": {"images": "batch channel height height"}}, LoaderError, "each of its dims"),
        ({"layout": {"image": "batch"}}, UnknownNameError, "'images'"),
        ({"layout": "batch height width"}, LoaderError, "names no source"),
        ({"layout": {"targets": "batch"}, "one_hot": {"targets": 9}}, LoaderError, "leave one"),
        ({"layout": {"images": DIMS[::-1]}, "pipeline": np.abs}, LoaderError, "first in layout="),
        ({"one_hot": {"images": 10}}, LoaderError, "one whole number a row.*channel"),
        ({"one_hot": {"words": 10}}, LoaderError, "one whole number a row"),
        ({"one_hot": {"target": 10}}, UnknownNameError, "'targets'"),
        ({"one_hot": {"targets": 0}}, LoaderError, "one_hot of 'targets'"),
        ({"one_hot": {"targets": 10}, "scale": {"targets": 2}}, LoaderError, "scale= does not go"),
        ({"one_hot": {"targets": 10}, "dtype": {"targets": "S3"}}, LoaderError, "makes numbers"),
        ({"normalize": 3}, LoaderError, "pair"),
        ({"normalize": (1, 2, 3)}, LoaderError, "pair"),
        ({"normalize": {"images": ([1, 2], [1, 2, 3])}}, LoaderError, "pair"),
        ({"normalize": {"images": (1, 0)}}, LoaderError, "above 0"),
        ({"normalize": {"images": ([1, 2], 1)}}, LoaderError, "2 factors"),
        ({"normalize": {"picture": (1, 1)}}, UnknownNameError, "normalize= names 'picture'"),
        ({"normalize": (1, 1), "scale": 2}, LoaderError, "normalize= decides what scale would"),
        ({"drop_last": True, "last": "pad"}, LoaderError, "leave last out"),
        ({"shard": "tensorflow"}, LoaderError, "or .torch."),
        ({"progress": "yes"}, LoaderError, "True or False"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_read(ds, options, error, words):
    with pytest.raises(error, match=words):
        ds.batches(8, **options)


def test_a_label_out_of_range_is_named_with_its_row(ds):
    with pytest.raises(
        SpaceError, match=r"source 'targets'.*label 9 .*row 9 of the.*expected 0 to 8"
    ):
        list(ds.batches(8, one_hot={"targets": 9}))


def test_ragged_examples_have_no_layout(tmp_path):
    rows = [np.zeros((n, 2), "f4") for n in (1, 3, 2)]
    ragged = labeled.open_dataset(labeled.write(tmp_path / "r.hdf5", {"x": rows}))
    for options, words in (
        ({"layout": {"x": "batch time y"}}, "differ in shape"),
        ({"one_hot": {"x": 3}}, "one whole number"),
    ):
        with pytest.raises(LoaderError, match=words):
            ragged.batches(2, **options)
