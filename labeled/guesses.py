"""Names from other libraries, and what to write here instead.

One table answers unknown options, methods and attributes of the package; any other name gets the
closest match. An answer is one sentence of code to copy: this is a hint, not a manual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from labeled.errors import UnknownAttributeError, closest, did_you_mean

_ANSWERS = {
    "batch DataLoader loader iterate shuffle sample": "use ds.batches(64, shuffle=True, seed=7)",
    "map apply transform collate_fn": "use ds.batches(64, pipeline={'x': function})",
    "normalize mean std": "use normalize={'x': (mean, std)}",
    "axes data_format": "use layout={'images': 'batch height width channel'}, naming the axes of a "
    "source",
    "axis_labels": "use dims={'x': ('batch', 'height', 'width')} when opening; ds.dims has them",
    "bucket_by_length max_length padding": "use bucket=True for batches of about equal length, and "
    "ragged='pad' or 'flat'",
    "class_weight stratify": "use balance='y' for even classes, weights= for each row, or "
    "ds.train_test_split(stratify='y')",
    "buffer_size": "use memory= or window_rows= to set how many rows are shuffled together",
    "drop_remainder": "use last='drop'",
    "random_state generator rng": "use seed=7",
    "rank world_size num_replicas num_shards": "use shard=(rank, world_size) or 'torch'",
    "num_workers n_jobs": "use threads=4, or labeled.torch.data_loader for worker processes",
    "prefetch_to_device": "use device='cuda', which copies ahead",
    "pin_memory": "use pinned=True with output='torch'",
    "to to_torch to_tensor to_tf cuda jax": "use ds.batches(64, output='torch'), or 'jax', "
    "'tensorflow', 'cupy'",
    "repeat epochs reset": "each `for` over a loader is the next epoch",
    "take limit head skip iloc rows": "use ds[:10] or ds.subset([5, 3]) for rows, "
    "itertools.islice(loader, 10) for batches",
    "filter query loc": "use a mask: ds.subset(ds['y'].values == 3)",
    "columns features fields": "use ds.select('x', 'y'); ds.sources has the names",
    "kfold folds": "use scikit-learn: for train, test in KFold(5).split(ds): ds.subset(train)",
    "cache persist compute": "use ds.load()",
    "values numpy to_numpy array data": "use ds['x'].values for one source, batch.arrays for all",
    "shape ndim dtype": "each source has its own: ds.shapes, ds.dtypes, batch['x'].shape",
    "size num_rows num_batches": "use len(ds) or batch.count for rows, len(loader) for batches",
    "index ids": "use batch.rows, positions in the dataset",
    "save to_hdf5": "use labeled.write('new.hdf5', ds)",
    "concatenate merge": "use labeled.concat([a, b])",
    "open load read load_dataset File open_mfdataset": "use labeled.open_dataset(path) with a "
    "file, a list, a glob or a folder",
    "from_numpy from_xarray from_arrays": "use labeled.batches({'x': array}, 64)",
    "engine mode": "files are opened for reading, whatever their format; to write use "
    "labeled.write or labeled.append",
    "info describe": "use print(ds), ds.statistics('x'), or `labeled info FILE` in a shell",
    "lengths tolist": "use ragged.shapes for lengths, list(ragged) for examples",
    "split which_sets": "use ds.split('train'); to write splits, labeled.write(..., splits=...)",
}
GUESSES = {name: answer for names, answer in _ANSWERS.items() for name in names.split()}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message for an unknown name.

    Examples
    --------
    >>> suggestion("drop_remainder", ["last", "seed"])
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
