"""Names of other libraries either work here or are answered by what says the same."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import LabeledError, OptionError, UnknownAttributeError, UnknownNameError


@pytest.fixture
def ds(tmp_path):
    arrays = {"x": np.arange(30.0).reshape(10, 3), "y": np.arange(10) % 2}
    dims = {"x": ("batch", "feature"), "y": ("batch",)}
    path = labeled.write(tmp_path / "x.hdf5", arrays, splits={"train": (0, 8)}, dims=dims)
    return labeled.open_dataset(path)


@pytest.mark.parametrize(
    ("thing", "guess", "words"),
    [
        ("dataset", "x", r"did you mean dataset\['x'\]"),
        ("dataset", "take", r"ds\[:10\]"),
        ("dataset", "map", "pipeline="),
        ("dataset", "bathces", "did you mean 'batches'"),
        ("loader", "take", "islice"),
        ("batch", "numpy", "values"),
        ("batch", "y", r"\['y'\]"),
        ("ragged", "lengths", "shapes"),
        ("labeled", "load_dataset", "open_dataset"),
        ("labeled", "opendataset", "did you mean 'open_dataset'"),
    ],
)
def test_attributes_of_others_are_answered(ds, thing, guess, words):
    loader = ds.batches(4)
    things = {"dataset": ds, "loader": loader, "batch": next(iter(loader)), "labeled": labeled}
    things["ragged"] = labeled.Ragged.of([[1, 2], [3]])
    with pytest.raises(UnknownAttributeError, match=words):
        getattr(things[thing], guess)
    assert not hasattr(things[thing], guess)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ds, p: ds.batches(4, drop_remainder=1), "last='drop'"),
        (lambda ds, p: ds.batches(4, persistent_workers=True), "torch_options="),
        (lambda ds, p: ds.batches(4, num_workers=1), "threads="),
        (lambda ds, p: ds.batches(4, shufle=1), "did you mean 'shuffle'"),
        (lambda ds, p: ds.batches(4, axes="bc01"), "layout="),
        (lambda ds, p: ds.batches(2).explain(label="y"), "'labels'"),
        (lambda ds, p: ds.subset(indices=[0]), "there are: 'rows'"),
        (lambda ds, p: ds.train_test_split(testsize=2), "'test_size'"),
        (lambda ds, p: labeled.open_dataset(ds.files.paths[0], mode="r"), "for reading"),
        (lambda ds, p: labeled.open_dataset(ds.files.paths[0], grup="a"), "did you mean 'group'"),
        (lambda ds, p: labeled.write(p, {}, split={}), "splits="),
        (lambda ds, p: labeled.repack(p, p, compress=3), "'compression'"),
        (lambda ds, p: labeled.verify(p, thread=3), "'threads'"),
        (lambda ds, p: labeled.doctor(p, targt=1), "'target'"),
        (lambda ds, p: labeled.convert({}, p, compresion=3), "'compression'"),
        (lambda ds, p: labeled.concat([], dim="x"), "there are: 'datasets'"),
        (lambda ds, p: labeled.Ragged.of([[1]]).pad(fill=0), "there are: 'mask'"),
    ],
)
def test_options_that_there_are_none_of_are_answered(ds, tmp_path, call, words):
    with pytest.raises(OptionError, match=rf"has no option .*{words}"):
        call(ds, tmp_path / "new.hdf5")
    assert not (tmp_path / "new.hdf5").exists()


def test_copies_and_pickles_are_not_taken_for_guesses(ds):
    for other in (copy.copy(ds), copy.deepcopy(ds), pickle.loads(pickle.dumps(ds))):
        assert other.n_rows == 10
    batch = next(iter(ds.batches(4)))
    assert copy.copy(batch).count == pickle.loads(pickle.dumps(batch)).count == 4
    with pytest.raises(AttributeError, match="'_no_such'"):
        _ = ds._no_such


def test_parts_of_the_package_are_imported_when_asked_for():
    there = "assert 'labeled.cluster' not in sys.modules; labeled.cluster.run_parts"
    code = f"import labeled, sys; {there}"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_splits_asked_for_in_the_wrong_place_are_shown_the_right_one(ds):
    with pytest.raises(
        LabeledError, match=r"'train' .* is a split.*ds\.split\('train'\).* are: 'x'"
    ):
        ds["train"]
    with pytest.raises(LabeledError, match=r"holds chosen rows; call split\('test'\)"):
        ds.subset([1]).split("test")
    with pytest.raises(UnknownNameError, match=r"that is a source: ds\.select\('x'\)"):
        ds.split("x")


def test_options_that_keep_datasets_apart_are_named(tmp_path):
    path = str(tmp_path / "groups.h5")
    with h5py.File(path, "w") as f:
        for start, name in ((0, "test"), (3, "train")):
            f[f"{name}/x"] = np.arange(start, start + 3)
    test, train = (labeled.open_dataset(path, group=name) for name in ("test", "train"))
    words = r"group='train', not group='test'.*group='\*' opens several"
    with pytest.raises(LabeledError, match=words):
        labeled.concat([test, train])
    np.testing.assert_array_equal(labeled.open_dataset(path, group="*")["x"], np.arange(6))
