"""Names from other libraries, and what to write here instead.

One table answers unknown options, methods and attributes of the package; any other name gets the
closest match. An answer is one sentence of code to copy: this is a hint, not a manual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from labeled.errors import UnknownAttributeError, closest, did_you_mean

_BATCHES = "use ds.batches(64, shuffle=True, seed=7)"
_PIPELINE = "use ds.batches(64, pipeline={'x': function})"
_NORMALIZE = "use normalize={'x': (mean, std)}"
_LENGTHS = "use bucket=True for batches of about equal length, and ragged='pad' or 'flat'"
_ORDER = "use layout={'images': 'batch height width channel'}, naming the axes of a source"

_ANSWERS = {
    "batch DataLoader dataloader loader iter_batches iterate shuffle sample": _BATCHES,
    "map apply transform with_transform set_transform collate_fn": _PIPELINE,
    "normalize mean std": _NORMALIZE,
    "axes data_format channels_last": _ORDER,
    "axis_labels": "use dims={'x': ('batch', 'height', 'width')} when opening; ds.dims has them",
    "max_tokens bucket_boundaries bucket_by_length group_by_length packing padding": _LENGTHS,
    "pad_to_multiple_of max_length truncate truncation": _LENGTHS,
    "class_weight sample_weight": "use balance='y' for even classes, or weights= for each row",
    "stratify": "use balance='y' for even classes, or ds.train_test_split(stratify='y')",
    "buffer_size shuffle_buffer": "use memory= or window_rows= to set how many rows are shuffled "
    "together",
    "drop_last drop_remainder": "use last='drop'",
    "random_state generator rng": "use seed=7",
    "batch_sampler": "use sampler=",
    "rank world_size num_replicas num_shards": "use shard=(rank, world_size) or 'torch'",
    "n_jobs num_workers persistent_workers": "use threads=4, or labeled.torch.data_loader for "
    "worker processes",
    "prefetch_factor": "use prefetch=",
    "prefetch_to_device": "use device='cuda', which copies ahead",
    "pin_memory": "use pinned=True with output='torch'",
    "output framework with_format set_format to to_torch to_tensor to_tf tensor cuda jax": (
        "use ds.batches(64, output='torch'), or 'jax', 'tensorflow', 'cupy'"
    ),
    "repeat epochs reset": "each `for` over a loader is the next epoch",
    "take limit head first skip iloc rows": "use ds[:10] or ds.subset([5, 3]) for rows, "
    "itertools.islice(loader, 10) for batches",
    "filter query loc": "use a mask: ds.subset(ds['y'].values == 3)",
    "sources columns features fields": "use ds.select('x', 'y'); ds.sources has the names",
    "split which_sets": "use ds.split('train'); to write splits, labeled.write(..., splits=...)",
    "kfold folds": "use scikit-learn: for train, test in KFold(5).split(ds): ds.subset(train)",
    "cache persist compute load_in_memory": "use ds.load()",
    "values numpy to_numpy array data": "use ds['x'].values for one source, batch.arrays for all",
    "shape ndim dtype": "each source has its own: ds.shapes, ds.dtypes, batch['x'].shape",
    "size n_rows num_rows n_batches num_batches": "use len(ds) or batch.count for rows, "
    "len(loader) for batches",
    "index ids": "use batch.rows, positions in the dataset",
    "next get_batch": "use next(iter(ds.batches(64)))",
    "save to_hdf5 export": "use labeled.write('new.hdf5', ds)",
    "extend concatenate merge interleave": "use labeled.concat([a, b])",
    "open load read load_dataset read_hdf5 File open_mfdataset open_zarr from_file": (
        "use labeled.open_dataset(path) with a file, a list, a glob or a folder"
    ),
    "from_numpy from_xarray from_arrays": "use labeled.batches({'x': array}, 64)",
    "engine mode": "files are opened for reading, whatever their format; to write use "
    "labeled.write or labeled.append",
    "info describe": "use print(ds), ds.statistics('x'), or `labeled info FILE` in a shell",
    "lengths tolist to_list": "use ragged.shapes for lengths, list(ragged) for examples",
}
GUESSES = {name: answer for names, answer in _ANSWERS.items() for name in names.split()}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message for an unknown name.

    Examples
    --------
    >>> suggestion("drop_last", ["last", "seed"])
    "use last='drop'"
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
