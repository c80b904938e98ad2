"""Names of other libraries either work here or are answered by what says the same."""

import copy
import pickle
import re

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled import Ragged
from labeled.errors import LabeledError, OptionError, UnknownAttributeError, UnknownNameError


@pytest.fixture
def ds(tmp_path):
    arrays = {"x": np.arange(30.0).reshape(10, 3), "y": np.arange(10) % 2}
    dims = {"x": ("batch", "feature"), "y": ("batch",)}
    path = labeled.write(tmp_path / "x.hdf5", arrays, splits={"train": (0, 8)}, dims=dims)
    return labeled.open_dataset(path)


def test_an_order_of_axes_is_answered_by_a_layout_that_works(tmp_path):
    images = np.arange(4 * 3 * 32 * 32, dtype="i4").reshape(4, 3, 32, 32)
    dims = {"images": ("batch", "channel", "height", "width")}
    path = labeled.write(tmp_path / "p.hdf5", {"images": images}, dims=dims)
    ds = labeled.open_dataset(path)
    with pytest.raises(OptionError, match="layout=") as caught:
        ds.batches(2, axes=("b", 0, 1, "c"))
    told = str(caught.value).partition("layout=")[2].partition("}")[0] + "}"
    batch = next(iter(ds.batches(2, layout=eval(told))))
    np.testing.assert_array_equal(batch["images"], images[:2].transpose(0, 2, 3, 1))


def test_a_dataset_is_not_made_an_array_of_the_names_of_its_sources(ds):
    for array in (np.asarray, np.mean, lambda d: np.stack([d, d])):
        with pytest.raises(TypeError, match=r"np\.asarray\(ds\['x'\]\) reads one source"):
            array(ds)


def test_a_tree_of_groups_is_opened_group_by_group(ds):
    with pytest.raises(NotImplementedError, match=r"x\.hdf5'.*group='\.\.\.'"):
        xr.open_datatree(ds.files.paths[0], engine="labeled")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("split", r"ds\.split\('train'\)"),
        ("which_sets", r"ds\.split\('train'\)"),
        ("shuffle", r"ds\.batches\(64, shuffle=True, seed=7\)"),
        ("mode", "for reading"),
        ("grup", "did you mean 'group'"),
    ],
)
def test_options_of_others_are_answered_by_what_does_the_same(ds, option, words):
    with pytest.raises(OptionError, match=f"open_dataset.. has no option '{option}'; .*{words}"):
        labeled.open_dataset(ds.files.paths[0], **{option: "train"})


@pytest.mark.parametrize(
    ("guess", "words"),
    [
        ("x", r"did you mean dataset\['x'\]"),
        ("take", r"ds\[:10\]"),
        ("shuffle", "shuffle=True"),
        ("map", "pipeline="),
        ("to_torch", "output='torch'"),
        ("bathces", "did you mean 'batches'"),
    ],
)
def test_a_dataset_answers_guesses(ds, guess, words):
    with pytest.raises(UnknownAttributeError, match=words):
        getattr(ds, guess)
    assert not hasattr(ds, guess)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("drop_remainder", "last='drop'"),
        ("random_state", "seed="),
        ("num_workers", "threads="),
        ("transform", "pipeline="),
        ("mean", r"normalize=\{'x': \(mean, std\)\}"),
        ("rank", r"shard=\(rank, world_size\)"),
        ("sources", r"ds\.select"),
        ("shufle", "did you mean 'shuffle'"),
    ],
)
def test_batches_answers_options_of_other_libraries(ds, option, words):
    with pytest.raises(OptionError, match=rf"batches\(\) has no option '{option}'; .*{words}"):
        ds.batches(4, **{option: 1})


def test_shares_are_no_names_of_splits(ds):
    with pytest.raises(UnknownNameError, match=r"there are: 'train'.*train_size=0\.8, seed=7"):
        ds.split(0.8, 0.2)


def test_a_misspelt_source_is_found(tmp_path):
    path = labeled.write(tmp_path / "x.hdf5", {"images": np.zeros((4, 2)), "targets": np.zeros(4)})
    with pytest.raises(UnknownAttributeError, match=r"did you mean \w+\['images'\]\?"):
        _ = labeled.open_dataset(path).imgaes


def test_batches_loaders_ragged_and_the_package_answer_guesses(ds):
    loader = ds.batches(4)
    batch = next(iter(loader))
    words = Ragged.of([[1, 2], [3]])
    for thing, guess, said in [
        (batch, "x", r"\['x'\]"),
        (batch, "numpy", "values"),
        (batch, "to", "output='torch'"),
        (loader, "take", "islice"),
        (words, "lengths", "shapes"),
        (Ragged.of([[1]], name="signal"), "mean", r"ds\.statistics\('signal'\)"),
        (labeled, "DataLoader", "batches"),
        (labeled, "load_dataset", "open_dataset"),
        (labeled, "opendataset", "did you mean 'open_dataset'"),
    ]:
        with pytest.raises(UnknownAttributeError, match=said):
            getattr(thing, guess)


def test_a_layout_without_sources_is_shown_one_with(ds):
    with pytest.raises(LabeledError, match=r"layout=\{'images': 'batch channel height width'\}"):
        ds.batches(2, layout="NCHW")


def test_copies_and_pickles_are_not_taken_for_guesses(ds):
    for other in (copy.copy(ds), copy.deepcopy(ds), pickle.loads(pickle.dumps(ds))):
        assert other.n_rows == 10
    batch = next(iter(ds.batches(4)))
    assert copy.copy(batch).count == pickle.loads(pickle.dumps(batch)).count == 4
    with pytest.raises(AttributeError, match="'_no_such'"):
        _ = ds._no_such


def test_splits_asked_for_in_the_wrong_place_are_shown_the_right_one(tmp_path):
    path = labeled.write(
        tmp_path / "x.hdf5", {"x": np.arange(9)}, {"train": (0, 6), "test": (6, 9)}
    )
    dataset = labeled.open_dataset(path)
    with pytest.raises(LabeledError, match=r"'train' .* is a split.*ds\.split\('train'\).*are 'x'"):
        dataset["train"]
    with pytest.raises(
        LabeledError, match=r"holds split 'train'; split\('test'\) is asked of what"
    ):
        dataset.split("train").split("test")
    with pytest.raises(LabeledError, match=r"holds chosen rows; split\('test'\)"):
        dataset.subset([1]).split("test")


def test_a_glob_without_files_tells_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LabeledError, match=re.escape(str(tmp_path / "*.hdf5"))):
        labeled.open_dataset("*.hdf5")


def test_sources_and_groups_called_like_a_split(tmp_path):
    path = str(tmp_path / "halves.h5")
    with h5py.File(path, "w") as f:
        for name in ("X_test", "X_train", "y_train", "valid/x"):
            f[name] = np.arange(4)
    ds = labeled.open_dataset(path)
    with pytest.raises(UnknownNameError, match=r"say select\('X_train', 'y_train'\)\. As splits"):
        ds.split("train")
    with pytest.raises(UnknownNameError, match=r"is a source.*ds\.select\('X_train'\).*are 'all'"):
        ds.split("X_train")
    with pytest.raises(UnknownNameError, match="say group='valid' on opening"):
        ds.split("valid")
    with pytest.raises(UnknownNameError, match=r"in '[^']*'; there are: 'all'"):
        ds.split("development")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda path: labeled.write(path, {}, split={}), "write.*'split'; .*splits="),
        (lambda path: labeled.append(path, {}, inplace=True), "append.*'inplace'; .*'in_place'"),
        (
            lambda path: labeled.repack(path, path, compress=3),
            "repack.*'compress'; .*'compression'",
        ),
        (lambda path: labeled.verify(path, thread=3), "verify.*'thread'; .*'threads'"),
        (lambda path: labeled.doctor(path, second=1), "doctor.*'second'; .*'seconds'"),
        (lambda path: labeled.convert({}, path, compresion=3), "convert.*; .*'compression'"),
        (lambda path: labeled.concat([], dim="x"), "concat.*'dim'; there are: 'datasets'"),
        (lambda path: Ragged.of([[1]], dim="x"), "of.*'dim'; .*'dims'"),
        (lambda path: Ragged.from_flat([1], offset=[0]), "from_flat.*'offset'; .*'offsets'"),
        (lambda path: Ragged.of([[1]]).pad(fill=0), "pad.*'fill'; there are: 'mask', 'to', 'v"),
        (lambda path: Ragged.of([[1]]).bucket(batch_size=2), "bucket.*'batch_size'; .*'batch_row"),
    ],
)
def test_keywords_that_there_are_none_of_name_what_was_meant(tmp_path, call, words):
    with pytest.raises(OptionError, match=words):
        call(tmp_path / "x.hdf5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ds: ds.split(split="train"), "split.*'split'; .*ds\\.split"),
        (lambda ds: ds.subset(indices=[0]), "subset.*'indices'; there are: 'rows'"),
        (lambda ds: ds.select(names=["x"]), "select.*'names'; there are: none"),
        (
            lambda ds: ds.train_test_split(testsize=2),
            "train_test_split.*'testsize'; .*'test_size'",
        ),
        (lambda ds: ds.load(show=True), "load.*'show'; there are: 'progress'"),
        (
            lambda ds: ds.statistics(name="x"),
            "statistics.*'name'; there are: 'progress', 'source'",
        ),
        (lambda ds: ds.batches(2).explain(label="y"), "explain.*'label'; .*'labels'"),
    ],
)
def test_keywords_of_methods_name_what_was_meant(ds, call, words):
    with pytest.raises(OptionError, match=words):
        call(ds)


def test_options_that_keep_datasets_apart_are_named(tmp_path):
    path = str(tmp_path / "groups.h5")
    with h5py.File(path, "w") as f:
        for start, name in ((0, "test"), (3, "train")):
            f[f"{name}/x"] = np.arange(start, start + 3)
    test, train = (labeled.open_dataset(path, group=name) for name in ("test", "train"))
    words = r"group='train', not group='test'.*open_dataset\(path, group='\*'\)"
    with pytest.raises(LabeledError, match=words):
        labeled.concat([test, train])
    np.testing.assert_array_equal(labeled.open_dataset(path, group="*")["x"], np.arange(6))
    with pytest.raises(LabeledError, match=r"dims=\{\}, not dims=\{'x': \('time',\)\}; open both"):
        labeled.concat([labeled.open_dataset(path, group="test", dims={"x": ("time",)}), test])
