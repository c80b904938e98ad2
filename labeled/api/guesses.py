"""What people ask a Dataset, or the package, for by the names of other libraries."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping

import xarray as xr

from labeled.errors import UnknownAttributeError, did_you_mean
from labeled.guesses import said_of

OF_DATASET = said_of(
    (
        "batch dataloader loader to_dataloader iter_batches iterate iter as_numpy_iterator",
        "say ds.batches(64, shuffle=True, seed=7), and loop over what it returns",
    ),
    ("shuffle sample", "say it of batches: ds.batches(64, shuffle=True, seed=7)"),
    (
        "map apply transform with_transform set_transform augment",
        "say it of batches: ds.batches(64, pipeline={'x': function})",
    ),
    ("filter query loc", "choose rows by a mask: ds.subset(ds['y'].values == 3)"),
    (
        "take head first limit skip iloc tail last select_rows",
        "choose rows by position: ds[:10], or ds.subset([5, 3])",
    ),
    (
        "shard partition distribute",
        "say it of batches: ds.batches(64, part=(index, count), seed=7)",
    ),
    ("repeat epochs", "each loop over ds.batches(...) is the next epoch"),
    (
        "prefetch num_workers",
        "batches reads ahead by itself; ds.batches(..., memory=, threads=, prefetch=) say how far",
    ),
    (
        "cache persist compute read to_memory load_in_memory preload",
        "ds.load() reads these rows into memory; batches keeps what fits memory= by itself",
    ),
    (
        "values numpy to_numpy array data asarray",
        "take one source: ds['x'].values, or all of them: ds.load()",
    ),
    (
        "to torch to_torch to_tensor with_format set_format to_tf to_tf_dataset to_jax cuda gpu",
        "say it of batches: ds.batches(64, as_='torch'), 'jax', 'tensorflow' or 'cupy'",
    ),
    ("to_dataframe to_pandas df", "say ds.to_xarray().to_dataframe(), where that fits into memory"),
    (
        "to_hdf5 to_hdf to_h5 save write export to_file to_csv to_parquet to_disk",
        "say labeled.write('new.hdf5', ds), or ds.to_xarray() for files of other kinds",
    ),
    (
        "append extend concat concatenate",
        "say labeled.concat([ds, other]), or labeled.append(path, rows)",
    ),
    ("shape ndim", "sources differ: ds.shapes has one by source, len(ds) counts the rows"),
    ("dtype", "sources differ: ds.dtypes has one by source"),
    (
        "columns column_names features fields data_vars variables",
        "ds.sources are the names, ds['x'] is one as a lazy DataArray",
    ),
    ("items", "say dict(ds).items(), whose values are lazy DataArrays"),
    ("get", "say ds['x']"),
    (
        "size n num_rows num_examples n_examples nrows",
        "len(ds) counts the rows, ds.shapes tells more",
    ),
    ("info summary schema", "print(ds), or on a command line: labeled info FILE"),
    ("describe stats", "say ds.statistics('x')"),
    (
        "random_split train_valid_split",
        "say ds.train_test_split(0.2, seed=7), which knows stratify= and groups=",
    ),
    (
        "kfold k_fold folds cross_validation cross_validate",
        "take folds of scikit-learn's: for train, test in KFold(5).split(ds): ds.subset(train)",
    ),
    ("rows index indices", "ds.selection('x').rows are rows of the file; ds[5] is one example"),
    (
        "train test valid val validation",
        "no split is called that: ds.splits has those of the file, and "
        "ds.train_test_split(0.2, seed=7) draws two",
    ),
    (
        "windows sequences rolling clips",
        "batches of consecutive rows are a sampler's: labeled.samplers.row_sequences",
    ),
)
"""Where each leads, by guess."""

NOT_ADDED = (
    "a Dataset adds nothing: rows of one behind those of another are labeled.concat([a, b]), and "
    "values are reckoned with source by source: ds['x'] + 1, or ds.to_xarray() + 1"
)

NOT_ASSIGNED = (
    "a Dataset is what its files hold, and never changes: ds.to_xarray() takes new variables, "
    "batches(pipeline={'x': function}) changes what comes out, labeled.write makes a new file"
)

NOT_ONE_ARRAY = (
    "a Dataset is no one array: np.asarray(ds['x']) reads one source, ds.to_xarray() holds all of "
    "them, and ds.batches(256, as_='numpy') gives them batch by batch"
)

OF_PACKAGE = said_of(
    (
        "open load read load_dataset read_hdf5 open_file open_hdf5 read_file File H5PYDataset "
        "open_mfdataset open_zarr from_file from_hdf5 from_files",
        "say labeled.open_dataset(path): a file, a list, a glob or a folder",
    ),
    ("DataLoader", "say labeled.open_dataset(path).batches(64, shuffle=True, seed=7)"),
    (
        "from_numpy from_xarray from_dask from_arrays from_torch from_tensor_slices",
        "say labeled.batches({'x': array}, 64), or labeled.write for a file",
    ),
    ("save to_hdf5 save_dataset", "say labeled.write('new.hdf5', {'x': array})"),
    (
        "mix interleave sample_from_datasets interleave_datasets concatenate_datasets merge",
        "say labeled.concat([a, b]), and batches(..., weights=) to draw from them unevenly",
    ),
    ("info head", "print(labeled.open_dataset(path)), or on a command line: labeled info FILE"),
)
"""What to say of names that the package lacks."""

PARTS = (
    "augment",
    "cluster",
    "compat",
    "pipeline",
    "providers",
    "samplers",
    "spaces",
    "specs",
    "torch",
)
"""Packages inside that are imported when they are asked for."""


def hint_for_dataset(name: str, sources: Iterable[str], splits: Mapping[str, object]) -> str | None:
    """Return what a name that is no attribute of a Dataset most likely means."""
    if name in sources:
        return f"source {name!r} is ds[{name!r}]"
    if name in splits:
        return f"split {name!r} is ds.split({name!r})"
    if name in OF_DATASET:
        return None
    if hasattr(xr.Dataset, name):
        return f"xarray has it: ds.to_xarray().{name}"
    return nearest_source(name, sources, "ds")


def nearest_source(name: str, sources: Iterable[str], thing: str) -> str | None:
    """Return how to say the source that a misspelt name is meant for, if there is one.

    Examples
    --------
    >>> nearest_source("imgaes", ["images", "targets"], "ds")
    "did you mean ds['images']?"
    """
    close = difflib.get_close_matches(name, list(sources), n=1, cutoff=0.75)
    return f"did you mean {thing}[{close[0]!r}]?" if close else None


def of_package(name: str, known: Iterable[str]) -> object:
    """Return a part of the package, or complain.

    Raises
    ------
    UnknownAttributeError
        If there is none of that name.
    """
    if name in PARTS:
        return importlib.import_module(f"labeled.{name}")
    words = OF_PACKAGE.get(name) or did_you_mean(name, (*known, *PARTS), limit=40)
    raise UnknownAttributeError(f"module 'labeled' has no attribute {name!r}; {words}")
