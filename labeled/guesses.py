"""Names from other libraries, and what to write here instead.

One table answers unknown options, methods and attributes of the package; any other name gets the
closest match. An answer is one sentence of code to copy: this is a hint, not a manual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from labeled.errors import UnknownAttributeError, closest, did_you_mean

_BATCHES = "ds.batches(64, shuffle=True, seed=7) makes shuffled batches"
_PIPELINE = "ds.batches(64, pipeline={'x': function}) changes examples"
_NORMALIZE = "pass normalize={'x': (mean, std)}"
_LENGTHS = "bucket=True makes batches of about equal length, ragged='pad' or 'flat' lays them out"
_ORDER = "pass layout={'images': 'batch height width channel'}, the names of a source's axes"

_ANSWERS = {
    "batch DataLoader dataloader loader iter_batches iterate shuffle sample": _BATCHES,
    "map apply transform with_transform set_transform collate_fn": _PIPELINE,
    "normalize mean std": _NORMALIZE,
    "axes data_format channels_last": _ORDER,
    "axis_labels": "dims={'x': ('batch', 'height', 'width')} names axes, ds.dims has them",
    "max_tokens bucket_boundaries bucket_by_length group_by_length packing padding": _LENGTHS,
    "pad_to_multiple_of max_length truncate truncation": _LENGTHS,
    "class_weight sample_weight": "balance='y' draws classes evenly, weights= rows in proportion",
    "stratify": "balance='y' draws classes evenly; ds.train_test_split(stratify='y') keeps shares",
    "buffer_size shuffle_buffer": "memory= or window_rows= say how many rows are shuffled together",
    "drop_last drop_remainder": "pass last='drop'",
    "random_state generator rng": "pass seed=, a whole number",
    "batch_sampler": "pass sampler=",
    "rank world_size num_replicas": "pass shard=(rank, world_size) or 'torch', and one seed=",
    "n_jobs num_workers persistent_workers": "pass threads= for threads of this process; "
    "labeled.torch.data_loader has worker processes",
    "prefetch_factor": "pass prefetch=",
    "pin_memory": "pass pinned=True, with output='torch'",
    "output framework with_format set_format to to_torch to_tensor to_tf tensor cuda jax": (
        "ds.batches(64, output='torch') makes tensors; 'jax', 'tensorflow' and 'cupy' do as well"
    ),
    "repeat epochs reset": "each loop over ds.batches(...) is the next epoch",
    "take limit head first skip iloc rows": "ds[:10] or ds.subset([5, 3]) choose rows; "
    "itertools.islice(loader, 10) takes batches",
    "filter query loc": "choose rows by a mask: ds.subset(ds['y'].values == 3)",
    "sources columns features fields": "ds.select('x', 'y') chooses sources; ds.sources names them",
    "split which_sets": "ds.split('train') chooses a split, splits= names them in a new file",
    "kfold folds": "for train, test in KFold(5).split(ds): ds.subset(train), with scikit-learn",
    "cache persist compute load_in_memory": "ds.load() reads these rows into memory",
    "values numpy to_numpy array data": "one source: ds['x'].values; all of a batch: batch.arrays",
    "shape ndim dtype": "each source has its own: ds.shapes, ds.dtypes, batch['x'].shape",
    "size n_rows num_rows n_batches num_batches": "len(ds) and batch.count count rows, "
    "len(loader) batches",
    "index ids": "batch.rows are positions in the dataset",
    "next get_batch": "next(iter(ds.batches(64))) is the first batch",
    "save to_hdf5 export": "labeled.write('new.hdf5', ds) makes a file",
    "extend concatenate merge interleave": "labeled.concat([a, b]) joins rows",
    "open load read load_dataset read_hdf5 File open_mfdataset open_zarr from_file": (
        "labeled.open_dataset(path) opens a file, a list, a glob or a folder"
    ),
    "from_numpy from_xarray from_arrays": "labeled.batches({'x': array}, 64) serves arrays",
    "engine mode": "files are recognised and only read; labeled.write and labeled.append write",
    "info describe": "print(ds), ds.statistics('x'), or on a command line: labeled info FILE",
    "lengths tolist to_list": "ragged.shapes has all lengths; list(ragged) has the examples",
}
GUESSES = {name: answer for names, answer in _ANSWERS.items() for name in names.split()}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message for an unknown name.

    Examples
    --------
    >>> suggestion("drop_last", ["last", "seed"])
    "pass last='drop'"
    >>> suggestion("sed", ["last", "seed"])
    "did you mean 'seed'? There are: 'last', 'seed'"
    """
    return GUESSES.get(name) or did_you_mean(name, known)


def unknown_attribute(
    thing: object, name: str, sources: Callable[[], Iterable[str]] = tuple
) -> AttributeError:
    """Return the error for an attribute that `thing` lacks; called from its ``__getattr__``.

    Parameters
    ----------
    sources : callable, optional
        Returns the names that belong in brackets instead.

    Raises
    ------
    AttributeError
        The one that a property of `thing` raised itself, if it has one of that name.

    Examples
    --------
    >>> class Thing:
    ...     size = 3
    >>> unknown_attribute(Thing(), "siez")
    UnknownAttributeError("Thing has no attribute 'siez'; did you mean 'size'?")
    """
    kind = type(thing)
    if hasattr(kind, name):
        object.__getattribute__(thing, name)  # raises again what brought us here
    plain = f"{kind.__name__} has no attribute {name!r}"
    if name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ()):
        return AttributeError(plain)  # asked for by protocols and while unpickling
    names = list(sources())
    source = name if name in names else closest(name, names)
    if source is not None:
        return UnknownAttributeError(f"{plain}; did you mean {kind.__name__.lower()}[{source!r}]?")
    public = [one for one in dir(kind) if not one.startswith("_")]
    near = closest(name, public)
    answer = GUESSES.get(name) or (near and f"did you mean {near!r}?")
    return UnknownAttributeError(f"{plain}; {answer}" if answer else plain)
