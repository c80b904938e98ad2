"""What a DataArray keeps so that it can come back from a space, and the way back.

Flattening is recorded in an attribute, in JSON, so that the record survives arithmetic
and writing to a file. What only moved axes, or gave rows the shape of images, is kept in
the encoding alone, so that the array equals a transpose; xarray drops encodings when it
computes. Every way of laying out leaves one step to undo: the last one.

Coordinates along dims that are flattened lie along the made dim meanwhile: those of one
dim are repeated as they are (dates, categories), the levels of a MultiIndex stand alone
and are put together again. This module knows dims, coordinates and plain reshapes; which
dim plays which axis is found elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.indexes import PandasMultiIndex

from labeled.errors import DimsError
from labeled.spaces.checks import is_dask
from labeled.spaces.conv import ConvNDSpace
from labeled.spaces.vector import VectorSpace

RECORD = "flattened"
"""The attribute that says what a ``feature`` dim is made of."""

ORDER = "labeled_order"
"""The encoding entry that keeps the dims of an array of which some were moved or added."""

ROWS = "labeled_rows"
"""The encoding entry that keeps what images were made of, where they came from rows."""

Lengths = Mapping[Hashable, int]
Levels = dict[str, list[str]]


def undo_format(x: xr.DataArray) -> xr.DataArray:
    """Bring back the dims and coordinates that an array had before it was formatted.

    Parameters
    ----------
    x : DataArray
        Made by :func:`labeled.spaces.format_dataarray`. A flattened one may have been
        computed with since; one whose axes were only moved, or whose rows became images,
        remembers where it came from until then.

    Returns
    -------
    DataArray
        Dims in their first order, coordinates restored, nothing cast back; lazy if `x` is.

    Raises
    ------
    DimsError
        If `x` carries no record, or its dims no longer fit it.

    Examples
    --------
    >>> from labeled.spaces import VectorSpace, format_dataarray
    >>> x = xr.DataArray(np.zeros((8, 3, 4, 5)), dims=("batch", "channel", "height", "width"))
    >>> undo_format(format_dataarray(x, VectorSpace(60))).identical(x)
    True
    """
    record = record_of(x)
    if record is not None:
        return _from_flat(x, record)
    rows = x.encoding.get(ROWS)
    if rows is not None and {*rows["made"]} < {*x.dims} and x.ndim == len(rows["made"]) + 1:
        return _to_rows(x, rows)
    return _moved_back(x)


# ---------------------------------------------------------------- dims that were flattened
def flattened(
    x: xr.DataArray, data: Any, batch: Hashable, made: Sequence[Hashable], feature: str
) -> xr.DataArray:
    """Return `data`, which is `x` as (batch, feature), with the coordinates of `x` and a record.

    Raises
    ------
    DimsError
        If there is a `feature` already, or dims have names that cannot be written down.
    """
    unwritten = [dim for dim in x.dims if not isinstance(dim, str)]
    if unwritten:
        raise DimsError(f"dims {unwritten} are no str, which flattening has to record; rename them")
    taken = x.coords.get(feature)
    if feature in x.dims or (taken is not None and not {*taken.dims} == {*made}):
        raise DimsError(
            f"the array already has a {feature!r}; name the flattened dim with "
            f"dims={{'feature': 'pixel'}}"
        )
    along, levels = _along(x, made)
    before = x.attrs.get(RECORD)  # somebody else's
    record = {
        "dim": feature,
        "dims": list(made),
        "sizes": [x.sizes[dim] for dim in made],
        "order": list(x.dims),
        "coords": {name: list(x.coords[name].dims) for name in along},
        "levels": levels,
        "before": before if isinstance(before, str) else None,
    }
    result = array_of(x, data, (batch, feature), x.drop_vars(_touching(x, made)))
    coords = {name: stacked(_variable(x, name, levels), x.sizes, made, feature) for name in along}
    return result.assign_coords(coords).assign_attrs({RECORD: json.dumps(record)})


def record_of(x: xr.DataArray) -> dict[str, Any] | None:
    """Return the record of flattening that `x` carries, None if it carries none.

    Raises
    ------
    DimsError
        If it carries one that its dims no longer fit.
    """
    record = _read_record(x.attrs.get(RECORD))
    if record is None:
        return None
    dims, feature = x.dims, record["dim"]
    if feature not in dims and x.ndim == 2:  # renamed, perhaps
        others = [dim for dim in dims if dim not in record["order"]]
        feature = others[0] if len(others) == 1 else feature
    if feature not in dims or x.ndim != 2 or x.sizes[feature] != math.prod(record["sizes"]):
        raise DimsError(
            f"the array has lengths {dict(x.sizes)}, but its record says that "
            f"{record['dim']!r} is made of {record['dims']} of lengths {record['sizes']}; "
            f"undo the flattening before selecting from it"
        )
    return {**record, "dim": feature}


def _read_record(text: Any) -> dict[str, Any] | None:
    """Return what an attribute records; None for attributes of somebody else."""
    try:
        record: Any = json.loads(text)
    except (TypeError, ValueError):
        return None
    whole = isinstance(record, dict) and {"dim", "dims", "sizes", "order", "coords"} <= {*record}
    return record if whole else None


def _from_flat(x: xr.DataArray, record: dict[str, Any]) -> xr.DataArray:
    feature, made = record["dim"], tuple(record["dims"])
    batch = next(dim for dim in x.dims if dim != feature)
    images = ConvNDSpace(record["sizes"], 1)
    flat = VectorSpace(images.get_total_dimension())
    data = flat.format_as(x.transpose(batch, feature).data, images)[..., 0]
    restored = unstacked(x, data, (batch, *made), feature, made, record)
    order = (dim if dim in made else batch for dim in record["order"])
    return restored.transpose(*order, transpose_coords=False)


# ---------------------------------------------------------------- rows that became images
def unstacked(
    x: xr.DataArray,
    data: Any,
    dims: Sequence[Hashable],
    feature: Hashable,
    made: Sequence[str],
    record: Mapping[str, Any] | None = None,
) -> xr.DataArray:
    """Return `data` under `dims`, coordinates along `feature` brought to those of `made`.

    With the `record` of flattening coordinates are what they were; without it they have all
    of the dims made, and an index of the rows is kept as one of them.
    """
    along, levels = _along(x, (feature,))
    result = array_of(x, data, dims, x.drop_vars(_touching(x, (feature,))))
    before = {} if record is None else record["coords"]
    batch = next(dim for dim in dims if dim not in made)
    lengths = dict(zip(dims, data.shape, strict=True))
    sizes = {dim: int(lengths[dim]) for dim in made}
    coords: dict[str, xr.Variable] = {}
    for name in along:
        variable = _variable(x, name, levels)
        own = [dim if dim in made else batch for dim in before[name]] if name in before else None
        if own is None and name in made and _lies_along(variable, name, feature, sizes):
            own = [name]
        elif own is None and name in made and levels:
            raise DimsError(
                f"{feature!r} is stacked of {levels[str(feature)]}, and not in the order of "
                f"{tuple(made)}, in which spaces flatten; stack it anew in that order"
            )
        coords[name] = _unstacked(variable, feature, sizes, own)
    result.attrs.pop(RECORD, None)
    if record is not None and record.get("before") is not None:
        result.attrs[RECORD] = record["before"]
    result = result.assign_coords(coords)
    return result if record is None else with_levels(result, record.get("levels", {}))


def remember_rows(
    images: xr.DataArray, x: xr.DataArray, feature: Hashable, made: Sequence[str]
) -> xr.DataArray:
    """Return `images`, made of the rows `x`, with what it takes to make them rows again."""
    along, levels = _along(x, (feature,))
    images.encoding[ROWS] = {
        "order": list(x.dims),
        "feature": feature,
        "made": list(made),
        "coords": {name: list(x.coords[name].dims) for name in along},
        "levels": levels,
        "record": x.attrs.get(RECORD),
    }
    return images


def _to_rows(x: xr.DataArray, rows: Mapping[str, Any]) -> xr.DataArray:
    made, feature = tuple(rows["made"]), rows["feature"]
    batch = next(dim for dim in x.dims if dim not in made)
    images = ConvNDSpace([x.sizes[dim] for dim in made], 1)
    flat = VectorSpace(images.get_total_dimension())
    data = images.format_as(x.transpose(batch, *made).data[..., None], flat)
    result = array_of(x, data, (batch, feature), x.drop_vars(_touching(x, made)))
    result.attrs.pop(RECORD, None)
    if rows["record"] is not None:
        result.attrs[RECORD] = rows["record"]
    _, levels = _along(x, made)
    coords: dict[str, xr.Variable] = {}
    for name, dims in rows["coords"].items():
        if name in x.coords:
            found = stacked(_variable(x, name, levels), x.sizes, made, feature)
            coords[name] = found.transpose(*(dim if dim == feature else batch for dim in dims))
    result = with_levels(result.assign_coords(coords), rows["levels"])
    order = (dim if dim == feature else batch for dim in rows["order"])
    return result.transpose(*order, transpose_coords=False)


# ---------------------------------------------------------------- dims that were moved
def remember_order(moved: xr.DataArray, x: xr.DataArray) -> xr.DataArray:
    """Return `moved`, which holds what `x` does, with the dims that `x` had."""
    moved.encoding = {**{k: v for k, v in x.encoding.items() if k != ROWS}, ORDER: list(x.dims)}
    return moved


def _moved_back(x: xr.DataArray) -> xr.DataArray:
    order = x.encoding.get(ORDER)
    added = [] if order is None else [dim for dim in x.dims if dim not in order]
    if order is None or {*order} - {*x.dims} or any(x.sizes[dim] != 1 for dim in added):
        raise DimsError(
            f"dims {x.dims} carry no record of how they were formatted (attribute {RECORD!r}, "
            f"encodings {ORDER!r} and {ROWS!r}); format the array for the space it came from "
            "instead. Labels that became indicators do not come back"
        )
    back = x.isel(dict.fromkeys(added, 0), drop=True).transpose(*order, transpose_coords=False)
    back.encoding = {key: value for key, value in x.encoding.items() if key != ORDER}
    return back


# ---------------------------------------------------------------- coordinates
def _touching(x: xr.DataArray, dims: Iterable[Hashable]) -> list[Hashable]:
    """Return the names of the coordinates along any of some dims."""
    wanted = {*dims}
    return [name for name, coord in x.coords.items() if wanted & {*coord.dims}]


def _along(x: xr.DataArray, dims: Sequence[Hashable]) -> tuple[list[str], Levels]:
    """Return the coordinates along some dims that lie elsewhere meanwhile, and who leads levels."""
    levels: Levels = {}
    for dim in dims:
        index = x.xindexes.get(dim)
        if isinstance(index, PandasMultiIndex):
            levels[str(dim)] = [str(name) for name in index.index.names]
    return [str(name) for name in _touching(x, dims) if name not in levels], levels


def _variable(x: xr.DataArray, name: str, levels: Levels) -> xr.Variable:
    """Return a coordinate without its index: a level as plain values, others of their dtype."""
    variable = x.coords[name].variable
    if any(name in names for names in levels.values()):
        return xr.Variable(variable.dims, np.asarray(variable.values), variable.attrs)
    plain: xr.Variable = variable.to_base_variable()
    return plain


def with_levels(x: xr.DataArray, levels: Levels) -> xr.DataArray:
    """Return `x` with the levels of each MultiIndex put together, where all are there."""
    for dim, names in levels.items():
        if all(name in x.coords and x.coords[name].dims == (dim,) for name in names):
            indexes: dict[Hashable, Any] = {dim: names}
            x = x.set_index(indexes)
    return x


def stacked(
    variable: xr.Variable, lengths: Lengths, made: Sequence[Hashable], feature: Hashable
) -> xr.Variable:
    """Return a coordinate along `feature`, which the dims `made` become; of its own dtype."""
    if len(variable.dims) == 1:
        places = _places(variable.dims[0], [int(lengths[dim]) for dim in made], made)
        repeated: xr.Variable = variable.isel({variable.dims[0]: xr.Variable((feature,), places)})
        return repeated
    others = tuple(dim for dim in variable.dims if dim not in made)
    sizes = {dim: int(lengths[dim]) for dim in (*others, *made)}
    spread: Any = variable.set_dims(sizes).transpose(*others, *made)
    shape = (*(sizes[dim] for dim in others), math.prod(sizes[dim] for dim in made))
    return xr.Variable((*others, feature), spread.data.reshape(shape), variable.attrs)


def _unstacked(
    variable: xr.Variable,
    feature: Hashable,
    sizes: Mapping[str, int],
    own: Sequence[Hashable] | None,
) -> xr.Variable:
    """Return a coordinate along the dims that `feature` is made of, or those of its own."""
    if own is not None and len(own) == 1 and variable.dims == (feature,):
        grid = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
        places = grid[tuple(slice(None) if dim == own[0] else 0 for dim in sizes)]
        first: xr.Variable = variable.isel({feature: xr.Variable((own[0],), places)})
        return first
    full: xr.Variable = variable.unstack({feature: dict(sizes)})
    if own is not None:
        full = full.isel({dim: 0 for dim in full.dims if dim not in own}).transpose(*own)
    return full


def _lies_along(
    variable: xr.Variable, dim: str, feature: Hashable, sizes: Mapping[str, int]
) -> bool:
    """Whether a coordinate along `feature` tells no more than one along `dim` would."""
    if variable.dims != (feature,) or is_dask(variable.data):
        return False
    lengths: Lengths = dict(sizes.items())
    again = stacked(_unstacked(variable, feature, sizes, (dim,)), lengths, [*sizes], feature)
    return bool((np.asarray(again) == np.asarray(variable)).all())


def _places(dim: Hashable, lengths: Sequence[int], made: Sequence[Hashable]) -> Any:
    """Return the index along `dim` of every place of the flattened dims."""
    shape = tuple(n if one == dim else 1 for one, n in zip(made, lengths, strict=True))
    own = np.arange(math.prod(shape)).reshape(shape)
    return np.broadcast_to(own, tuple(lengths)).reshape(-1)


def array_of(
    x: xr.DataArray, data: Any, dims: Sequence[Hashable], kept: xr.DataArray
) -> xr.DataArray:
    """Return `data` with the name, attributes and coordinates of `x` that still apply."""
    made = xr.DataArray(data, coords=kept.coords, dims=dims, attrs=x.attrs)
    made.name = x.name  # given no name, it would take that of the dask array
    return made
