"""Which rows and which sources: what names and requests of a dataset mean, or why they mean none.

Rows are named by splits, numbers, the labels of a coordinate, as xarray's `sel` finds them, or the
sizes and rules of ``train_test_split``, as scikit-learn takes them. Nothing is read for it but
coordinates, and the values that rules go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array, check_classes
from labeled.dataset.dataset import Dataset
from labeled.errors import (
    SelectionError,
    SelectionTypeError,
    SplitError,
    UnknownNameError,
    did_you_mean,
    listed,
)
from labeled.formats.header import ALL
from labeled.ragged import Ragged
from labeled.selection import Request, Selection
from labeled.writing.splits import splits_by_rules


def names_rows(given: Any) -> TypeGuard[Request]:
    """Whether something in brackets means rows: a slice, row numbers or a mask; not names.

    Examples
    --------
    >>> names_rows(slice(3)), names_rows([0, 2]), names_rows(["x"]), names_rows([]), names_rows("x")
    (True, True, False, True, False)
    """
    if isinstance(given, list | range):
        return all(isinstance(one, int | np.integer | np.bool_) for one in given)
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    return isinstance(given, slice) or kind in ("i", "u", "b", "f")


def rows_of_splits(dataset: Dataset, names: Sequence[Any]) -> dict[str, Selection]:
    """Return the rows of some splits, one after another, by the sources that all of them have.

    Raises
    ------
    UnknownNameError
        If there is no such split.
    SplitError
        If none is named, no source is common to them, or rows were chosen already.
    """
    splits, where = dataset.files.known.splits, dataset.where
    if dataset.loaded is not None:
        raise SplitError("these rows are loaded already; split() first, then load()")
    if dataset.selections is not None:
        held = f"split {', '.join(map(repr, dataset.chosen))}" if dataset.chosen else "chosen rows"
        raise SplitError(
            f"this dataset already holds {held}; call split({', '.join(map(repr, names))}) on what "
            "open_dataset returned, and subset() on what split() returned"
        )
    if not names:
        raise SplitError(f"name a split; {where} has {sorted(splits)}")
    for name in names:
        if not isinstance(name, str) or name not in splits:
            raise UnknownNameError(_why_no_split(dataset, name, names))
    wanted = [s for s in dataset.sources if all(s in splits[name] for name in names)]
    if not wanted:
        provided = {name: sorted(splits[name]) for name in names}
        raise SplitError(f"splits {tuple(names)} of {where} share no source: {provided}")
    rows = {source: Selection.concat(splits[name][source] for name in names) for source in wanted}
    seen: dict[str, Selection] = {}  # sources with equal rows share them: pickles stay small
    return {source: seen.setdefault(one.token, one) for source, one in rows.items()}


def _why_no_split(dataset: Dataset, name: Any, names: Sequence[Any]) -> str:
    splits, found = dataset.files.known.splits, f"no split {name!r} in {dataset.where}; "
    if not isinstance(name, str):
        share = next(iter(name.values()), 0.8) if isinstance(name, Mapping) else name
        instead = f"choose rows use ds.subset({[*names] if isinstance(name, int) else 'rows'})"
        if isinstance(share, float):
            instead = f"draw splits use ds.train_test_split(train_size={share}, seed=7)"
        return f"split() takes names of splits ({did_you_mean('', splits)}); to {instead}"
    if name in dataset.sources:
        return f"{found}that is a source: ds.select({name!r}) has it alone"
    if any(source.startswith(f"{name}/") for source in dataset.sources):
        return f"{found}a group has that name: open it with group={name!r}"
    return found + did_you_mean(name, splits)


def is_example_dim(dim: str, request: Any, dims_of_sources: Iterable[tuple[str, ...]]) -> bool:
    """Whether a request is for rows of all sources; else it is for a dim that some have.

    Raises
    ------
    UnknownNameError
        If no source has such a dim.
    SelectionTypeError
        If it is for a single row, whose dim would go.
    """
    known = list(dims_of_sources)
    examples, inner = {dims[0] for dims in known}, {dim for dims in known for dim in dims[1:]}
    if dim in inner:
        return False
    if dim not in examples:
        hint = did_you_mean(dim, inner | examples)
        raise UnknownNameError(f"no source has a dim {dim!r}; {hint}")
    if np.ndim(request) == 0 and not isinstance(request, slice | range):
        raise SelectionTypeError(
            f"{dim!r} is the example dim and stays: take row {request!r} as [{request!r}]"
        )
    return examples == {dim}


def why_no_source(dataset: Dataset, name: Any) -> str:
    """Say why a dataset has no source of that name."""
    sources, known, where = dataset.sources, dataset.files.known, dataset.where
    if not isinstance(name, str):
        return (
            f"{name!r} is not the name of a source ({did_you_mean('', sources)}); for several "
            "sources use ds.select('a', 'b'), for rows ds[:10] or ds.subset(rows), for positions "
            "along an axis ds.isel(...)"
        )
    inside = [source for source in sources if source.startswith(f"{name.rstrip('/')}/")]
    no, hint = f"{name!r} in {where} is", did_you_mean(name, sources)
    not_opened = known.headers[0].not_opened
    if name in not_opened:
        return f"{no} not a source: {not_opened[name]}"
    if name in known.variables:
        return f"{no} not a source, but carried along with them: ds[{name!r}] gives it"
    if inside:
        group = name.strip("/")
        return f"{no} a group, not a source; take {listed(inside)}, or open it with {group=}"
    if name in known.splits:
        return f"{no} a split, not a source: ds.split({name!r}) gives its rows; {hint}"
    if name in known.sources:
        return f"{no} not selected, or not provided by {dataset.chosen or 'this dataset'}; {hint}"
    return f"no source {name!r} in {where}; {hint}"


def heaviest(dataset: Dataset) -> list[str]:
    """Return the sources of one length that hold most of the bytes together."""

    def n_bytes(names: list[str]) -> int:
        return sum(len(dataset._rows[name]) * dataset._sources[name].row_bytes for name in names)

    return max(_by_length(dataset).values(), key=n_bytes, default=[])


def lengths_differ(dataset: Dataset) -> str:
    """Say how many rows the sources have, and which of them agree."""
    sources_of = _by_length(dataset)
    lengths = [f"{n:,} in {listed(names, 2)}" for n, names in sources_of.items()]
    there = "; ".join([*lengths[:5], "..."][: len(lengths)])
    splits = {*dataset.files.known.splits} - {ALL} if dataset.selections is None else ()
    found = (
        f"the sources of {dataset.where} have different numbers of rows ({there}); select "
        f"{'a split, or ' if splits else ''}sources of equal length: "
        f"ds.select({', '.join(map(repr, heaviest(dataset)[:8]))})"
    )
    for name, source in dataset._sources.items():
        if source.row_shape and source.row_shape[-1] in sources_of:
            return (
                f"{found}; or, if examples lie along the last axis of {name!r}, name it in dims= "
                "and use labeled.batches(ds.to_xarray(), 64, dim=...)"
            )
    return found


def _by_length(dataset: Dataset) -> dict[int, list[str]]:
    sources_of: dict[int, list[str]] = {}
    for name, rows in dataset._rows.items():
        sources_of.setdefault(len(rows), []).append(name)
    return sources_of


def positions(dataset: Dataset, dim: str, label: Any, method: str | None, tolerance: Any) -> Any:
    """Return the positions at which the coordinate of a dim has a label, a range or a list.

    Raises
    ------
    UnknownNameError
        If no source has the dim, or the dim has no coordinate.
    SelectionError
        If a label is not there, or the coordinate cannot be searched as asked.
    """
    dense = [name for name, source in dataset._sources.items() if source.ragged is None]
    dims = {dim for name in dense for dim in dataset.dims[name]}
    if dim not in dims:
        raise UnknownNameError(f"no source has a dim {dim!r}; {did_you_mean(dim, dims)}")
    for name in dense:
        if dim in dataset.dims[name] and dim in dataset[name].coords:
            found = _found(dataset[name].coords[dim], label, method, tolerance)
            of_rows = any(one[0] == dim for one in dataset.dims.values())
            return [found] if of_rows and isinstance(found, int) else found
    raise UnknownNameError(
        f"dim {dim!r} has no coordinate to select by; take positions, isel(), or give a lazy array "
        f"one: ds['x'].assign_coords({dim}=values).sel(...)"
    )


def _found(
    coordinate: xr.DataArray, label: Any, method: str | None, tolerance: Any
) -> int | slice | list[int]:
    """Return the positions at which a coordinate has a label, a range or a list of them.

    Examples
    --------
    >>> lat = xr.DataArray([10.0, 20.0, 30.0], dims="lat", name="lat")
    >>> _found(lat, 20, None, None), _found(lat, slice(15, 35), None, None)
    (1, slice(1, 3, None))
    >>> _found(lat, [29, 12], "nearest", None)
    [2, 0]
    """
    (dim,) = coordinate.dims
    values = coordinate.values
    places = xr.DataArray(np.arange(values.size), {dim: values}, [dim])
    try:
        found = places.sel({dim: label}, method=method, tolerance=tolerance).values
    except Exception as error:  # pandas has some of its own
        ends = f" from {values[0]} to {values[-1]}" if values.size else ""
        why = " ".join(map(str, error.args))
        if not places.indexes[dim].is_unique:
            why += "; values repeat: give one, a range, or positions, isel()"
        raise SelectionError(
            f"{dim}={label!r} is not found among {values.size:,} values{ends}: {why}"
        ) from error
    if found.size and found.ndim and (np.diff(found) == 1).all():
        return slice(int(found[0]), int(found[-1]) + 1)
    listed_places: int | list[int] = found.tolist()
    return listed_places


def split_rows(
    dataset: Dataset,
    sizes: Mapping[str, float | int | None],
    rules: Mapping[str, Any],
    *,
    seed: int,
    shuffle: bool,
) -> tuple[Any, Any]:
    """Return the rows for training and those for testing; a quarter is for testing by default.

    Raises
    ------
    SplitError
        If the sizes are impossible, or two rules are given at once.
    """
    given = {name: size for name, size in sizes.items() if size is not None}
    classes = _values_of(dataset, "stratify", rules["stratify"])
    groups = _values_of(dataset, "groups", rules["groups"])
    if classes is not None:
        where, labels, by = "stratify=", "labels", rules["stratify"]
        if isinstance(by, str):
            where, labels = f"source {by!r} in {dataset.where}", f"ds[{by!r}].values.ravel()"
        check_classes(where, classes, labels, SplitError)
    shares = {"train": "rest", "test": "rest" if given else 0.25} | given
    drawn: Any = {"seed": seed, "in_order": not shuffle}
    sides = splits_by_rules(shares, dataset.n_rows, classes=classes, groups=groups, **drawn)
    return sides["train"], sides["test"]


def _values_of(dataset: Dataset, option: str, given: Any) -> npt.NDArray[Any] | None:
    """Return classes or groups, given outright or by the name of a source."""
    if given is None:
        return None
    where = option
    if isinstance(given, str):
        where = f"{option}={given!r}"
        if given not in {*dataset.sources, *dataset.files.catalog.variables}:
            able = [name for name, shape in dataset.shapes.items() if np.prod(shape[1:]) == 1]
            raise UnknownNameError(
                f"{where} is not a source of one value a row in {dataset.where}; "
                f"{did_you_mean(given, able)}"
            )
        given = dataset[given]
    return one_value_a_row(where, given, dataset.n_rows)


def one_value_a_row(where: str, given: Any, n_rows: int) -> npt.NDArray[Any]:
    """Return classes or groups as one value for each row; of ragged sources, the shapes.

    `where` begins the message: the option, and the source where it names one.

    Raises
    ------
    SplitError
        If there are more values or fewer, or some that cannot be compared.
    """
    values = as_array(where, given.shapes if isinstance(given, Ragged) else given, SplitError)
    if values.shape[:1] != (n_rows,) or values.size != n_rows:
        raise SplitError(
            f"{where} has shape {values.shape}; it must be one value for each of {n_rows} rows"
        )
    if values.dtype.kind == "O":
        try:
            np.sort(values.reshape(-1))
        except TypeError as error:
            raise SplitError(
                f"{where} holds values that cannot be compared ({error}); give numbers or texts "
                "alone, and leave out rows without one"
            ) from None
    return values.reshape(-1)
