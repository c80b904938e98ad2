"""Which rows and which sources: what names and requests of a dataset mean, or why they mean none.

Rows are named by splits, numbers, the labels of a coordinate, as xarray's `sel` finds them, or the
sizes and rules of ``train_test_split``, as scikit-learn takes them. Nothing is read for it but
coordinates, and the values that rules go by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array
from labeled.dataset.files import Catalog
from labeled.errors import (
    SelectionError,
    SelectionTypeError,
    SplitError,
    UnknownNameError,
    did_you_mean,
    listed,
)
from labeled.ragged import Ragged
from labeled.selection import Request, Selection


def names_of(given: tuple[Any, ...]) -> tuple[str, ...]:
    """Return names given one by one, or all in one list."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given


def names_rows(given: Any) -> TypeGuard[Request]:
    """Whether something in brackets means rows: a slice, row numbers or a mask; not names.

    Examples
    --------
    >>> names_rows(slice(3)), names_rows([0, 2]), names_rows(["x"]), names_rows([]), names_rows("x")
    (True, True, False, False, False)
    """
    if isinstance(given, list | range):
        return len(given) > 0 and all(isinstance(one, int | np.integer | np.bool_) for one in given)
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    return isinstance(given, slice) or kind in ("i", "u", "b")


def rows_of_splits(
    names: Sequence[Any],
    splits: Mapping[str, Mapping[str, Selection]],
    sources: Iterable[str],
    where: str,
) -> dict[str, Selection]:
    """Return the rows of some splits, one after another, by the sources that all of them have.

    Raises
    ------
    UnknownNameError
        If there is no such split.
    SplitError
        If none is named, or no source is common to them.
    """
    if not names:
        raise SplitError(f"name a split; {where} has {sorted(splits)}")
    for name in names:
        share = next(iter(name.values()), 0.8) if isinstance(name, Mapping) else name
        if isinstance(share, float):
            raise UnknownNameError(
                f"split() takes names of splits, {did_you_mean('', splits)}. To draw splits use "
                f"ds.train_test_split(train_size={share}, seed=7)"
            )
        if isinstance(name, int | np.integer | slice | np.ndarray):
            rows = [*names] if isinstance(name, int | np.integer) else "rows"
            raise UnknownNameError(
                f"split() takes names of splits, {did_you_mean('', splits)}. To choose rows use "
                f"ds.subset({rows})"
            )
        if not isinstance(name, str) or name not in splits:
            raise UnknownNameError(
                f"no split {name!r} in {where}; {_called(str(name), sources)}"
                f"{did_you_mean(str(name), splits)}"
            )
    wanted = [source for source in sources if all(source in splits[name] for name in names)]
    if not wanted:
        provided = {name: sorted(splits[name]) for name in names}
        raise SplitError(f"splits {names} of {where} share no source: {provided}")
    return {source: Selection.concat(splits[name][source] for name in names) for source in wanted}


def _called(split: str, sources: Iterable[str]) -> str:
    """Return what to say of sources with the name of a split in theirs, as many files have them.

    Examples
    --------
    >>> _called("train", ["X_test", "X_train", "trained", "y_train"])
    "sources are called so: say select('X_train', 'y_train'). As splits "
    >>> _called("train", ["train/x", "train/y", "x_train"])
    "a group is called so: say group='train' on opening. As splits "
    """
    names = list(sources)
    if any(name.startswith(f"{split}/") for name in names):
        return f"a group is called so: say group={split!r} on opening. As splits "
    named = [name for name in names if split.lower() in re.split(r"[^a-z0-9]+", name.lower())]
    return f"sources are called so: say select({listed(named)}). As splits " if named else ""


def rows_among(
    selections: Mapping[str, Selection], rows: Request, where: str
) -> dict[str, Selection]:
    """Take the same rows of each selection; sources with equal rows share what comes out."""
    done: dict[str, Selection] = {}
    for selection in selections.values() or [Selection.all(0)]:
        if selection.token in done:
            continue
        try:
            done[selection.token] = selection[rows]
        except (SelectionError, SelectionTypeError) as error:
            raise type(error)(f"{error} (rows of {where})") from None
    return {name: done[selection.token] for name, selection in selections.items()}


def shared(selections: Mapping[str, Selection]) -> dict[str, Selection]:
    """Let sources with equal rows share one selection, so that pickles stay small."""
    seen: dict[str, Selection] = {}
    return {name: seen.setdefault(rows.token, rows) for name, rows in selections.items()}


def is_example_dim(dim: str, request: Any, dims_of_sources: Iterable[tuple[str, ...]]) -> bool:
    """Whether a request is for rows; else it is for a dim that some source has.

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
        raise UnknownNameError(
            f"no source has a dim {dim!r}; {did_you_mean(dim, inner | examples)}"
        )
    if np.ndim(request) == 0 and not isinstance(request, slice | range):
        raise SelectionTypeError(
            f"{dim!r} is the example dim and stays: take row {request!r} as [{request!r}]"
        )
    return True


def held_already(asked: Sequence[Any], chosen: Sequence[str]) -> str:
    """Return what to say where splits are asked of rows that were chosen already."""
    what = f"split {', '.join(map(repr, chosen))}" if chosen else "chosen rows"
    wanted = ", ".join(repr(name) for name in asked)
    return (
        f"this dataset already holds {what}; split({wanted}) is asked of what open_dataset "
        f"returned, and subset() of what split() returned"
    )


def check_source(
    name: object, sources: Sequence[str], catalog: Catalog, chosen: Sequence[str], where: str
) -> None:
    """Complain where a dataset has no such source, and say why it has none.

    Parameters
    ----------
    sources : sequence of str
        Those of the dataset.
    catalog : Catalog
        All that its files hold.
    chosen : sequence of str
        Names of its splits.

    Raises
    ------
    UnknownNameError
    """
    if isinstance(name, str) and name in sources:
        return
    if not isinstance(name, str):
        raise UnknownNameError(
            f"{name!r} is not a source; there are {list(sources)}. For rows use ds.subset(rows) or "
            "ds[:10], for parts of axes ds.isel(...), one after the other"
        )
    reason = catalog.not_opened.get(name)
    if reason is not None:
        raise UnknownNameError(f"{name!r} in {where} is not a source: {reason}")
    if name in catalog.variables:
        raise UnknownNameError(
            f"{name!r} in {where} is no source, but comes along with them: it is a coordinate, or "
            f"has no example dim; ds[{name!r}] gives it"
        )
    inside = [source for source in sources if source.startswith(f"{name.rstrip('/')}/")]
    if inside:
        raise UnknownNameError(
            f"{name!r} in {where} is a group, not a source; take {listed(inside)}, or pass "
            f"group={name.strip('/')!r} when opening it"
        )
    if name in catalog.splits:
        raise UnknownNameError(
            f"{name!r} in {where} is a split, not a source: ds.split({name!r}) gives its rows, and "
            f"sources are {listed(sources)}"
        )
    hint = did_you_mean(name, sources)
    if name in catalog.sources:
        raise UnknownNameError(
            f"source {name!r} of {where} is not in this dataset (not selected, or not "
            f"provided by {tuple(chosen) or 'it'}); {hint}"
        )
    raise UnknownNameError(f"no source {name!r} in {where}; {hint}")


def coordinate_of(dim: str, arrays: Iterable[xr.DataArray]) -> xr.DataArray:
    """Return the coordinate of a dim, of the first array that has it.

    Raises
    ------
    UnknownNameError
        If no array has the dim, or the dim has no coordinate.
    """
    dims: set[str] = set()
    for array in arrays:
        if dim in array.dims and dim in array.coords:
            found: xr.DataArray = array.coords[dim]
            return found
        dims.update(map(str, array.dims))
    if dim not in dims:
        raise UnknownNameError(f"no source has a dim {dim!r}; {did_you_mean(dim, dims)}")
    raise UnknownNameError(
        f"dim {dim!r} has no coordinate to select by; take positions, isel(), or give a lazy array "
        f"one: ds['x'].assign_coords({dim}=values).sel(...)"
    )


def positions(
    coordinate: xr.DataArray, label: Any, method: str | None, tolerance: Any
) -> int | slice | list[int]:
    """Return the positions at which a coordinate has a label, a range or a list of them.

    Raises
    ------
    SelectionError
        If a label is not there, or the coordinate cannot be searched as asked.

    Examples
    --------
    >>> lat = xr.DataArray([10.0, 20.0, 30.0], dims="lat", name="lat")
    >>> positions(lat, 20, None, None), positions(lat, slice(15, 35), None, None)
    (1, slice(1, 3, None))
    >>> positions(lat, [29, 12], "nearest", None)
    [2, 0]
    """
    (dim,) = coordinate.dims
    values = coordinate.values
    places = xr.DataArray(np.arange(values.size), {dim: values}, [dim])
    try:
        found = places.sel({dim: label}, method=method, tolerance=tolerance).values
    except (KeyError, ValueError, TypeError) as error:
        ends = f" from {values[0]} to {values[-1]}" if values.size else ""
        raise SelectionError(
            f"{dim}={label!r} is not found among {values.size:,} values{ends}: {error.args[0]}"
        ) from error
    if found.ndim == 0:
        return int(found)
    if found.size and (np.diff(found) == 1).all():
        return slice(int(found[0]), int(found[-1]) + 1)
    return [int(place) for place in found]


def two_sides(
    n_rows: int,
    train_size: float | int | None,
    test_size: float | int | None,
    *,
    seed: int,
    in_order: bool,
    classes: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
) -> tuple[Request, Request]:
    """Return the rows for training and those for testing; a quarter is for testing by default.

    Raises
    ------
    SplitError
        If the sizes are impossible, or two rules are given at once.
    """
    from labeled.writing.sharing import splits_by_rules

    given = [size for size in (train_size, test_size) if size is not None]
    if len(given) == 2 and all(isinstance(size, float) for size in given) and sum(given) > 1:
        raise SplitError(f"train_size={train_size} and test_size={test_size} are more than all")
    sizes = {"train": train_size, "test": test_size if given else 0.25}
    rules = {name: "rest" if size is None else size for name, size in sizes.items()}
    sides = splits_by_rules(
        rules, n_rows, seed=seed, in_order=in_order, classes=classes, groups=groups
    )
    return _request(sides["train"]), _request(sides["test"])


def one_value_a_row(option: str, given: Any, n_rows: int, where: str) -> npt.NDArray[Any]:
    """Return classes or groups as one value for each row; of ragged sources, the shapes.

    Raises
    ------
    SplitError
        If there are more or fewer.
    """
    values = as_array(option, given.shapes if isinstance(given, Ragged) else given, SplitError)
    if values.shape[:1] != (n_rows,) or values.size != n_rows:
        raise SplitError(
            f"{option}= has shape {values.shape}; it must be one value for each of the "
            f"{n_rows} rows of {where}"
        )
    return values.reshape(-1)


def _request(rows: Any) -> Request:
    """Return rows as a request: a slice where they follow one another."""
    request: Request = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
    return request
