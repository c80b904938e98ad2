"""What a DataArray keeps so that it can come back from a space, and the way back.

Flattening is recorded in an attribute, in JSON, so that the record survives arithmetic
and writing to a file. Every other way of laying out keeps the dims and coordinates that
there were in the encoding, so that the array equals a transpose; xarray drops encodings
when it computes. Every way of laying out leaves one step to undo: the last one.

Coordinates along dims that are flattened lie along the made dim meanwhile: those of one
dim are repeated as they are (dates, categories), the levels of a MultiIndex stand alone
and are put together again. This module knows dims, coordinates and plain reshapes; which
dim plays which axis is found elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from xarray.indexes import PandasMultiIndex

from labeled.errors import DimsError
from labeled.spaces.arrays import is_dask
from labeled.spaces.base import ArraySpace
from labeled.spaces.kinds import ConvNDSpace, VectorSpace

RECORD = "flattened"
"""The attribute that says what a ``feature`` dim is made of."""

ORIGIN = "labeled_origin"
"""The encoding entry that keeps what an array was laid out from."""

Lengths = Mapping[Hashable, int]


def undo_format(x: xr.DataArray) -> xr.DataArray:
    """Bring back the dims and coordinates that an array had before it was formatted.

    Parameters
    ----------
    x : DataArray
        Made by :func:`labeled.spaces.format_dataarray`. A flattened one may have been computed with
        since. One whose axes were only moved, or whose rows became images, forgets its origin once
        it is computed with.

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
    origin = x.encoding.get(ORIGIN)
    if isinstance(origin, Origin):
        return origin.restored(x)
    raise DimsError(
        f"dims {x.dims} carry no record of how they were formatted (attribute {RECORD!r}, "
        f"encoding {ORIGIN!r}); format the array for the space it came from instead. Labels that "
        "became indicators do not come back"
    )


# ---------------------------------------------------------------- all but flattening
@dataclass(frozen=True, eq=False)
class Origin:
    """What an array was laid out from: all but its values."""

    order: tuple[Hashable, ...]
    """Its dims."""
    coords: xr.Dataset
    encoding: Mapping[Any, Any]
    record: Any
    """What it recorded of a flattening of its own."""
    own: ArraySpace
    dims: tuple[Hashable | None, ...]
    """The dims in the order of `own`; None is an axis of length 1 that was added."""
    space: ArraySpace

    def restored(self, x: xr.DataArray) -> xr.DataArray:
        """Return `x` as it was, with the values that it has now."""
        new = [dim for dim in x.dims if dim not in self.order]
        gone = [dim for dim in self.order if dim not in x.dims]
        if x.ndim != len(self.space.axis_names()) or (
            not gone and any(x.sizes[d] > 1 for d in new)
        ):
            raise DimsError(f"dims {x.dims} are no longer those of a batch of {self.space}")
        try:
            made = self._as_rows(x, new, gone) if gone else x.isel(dict.fromkeys(new, 0), drop=True)
        except ValueError as error:
            raise DimsError(f"{error}; undo the formatting before selecting from it") from error
        made = made.transpose(*self.order, transpose_coords=False)
        made.encoding = dict(self.encoding)
        if self.record is not None:
            made.attrs[RECORD] = self.record
        return made

    def _as_rows(
        self, x: xr.DataArray, new: Sequence[Hashable], gone: Sequence[Hashable]
    ) -> xr.DataArray:
        data = self.space.with_dtype(None).format_as(x.data, self.own.with_dtype(None))
        dims = [dim for dim in self.dims if dim is not None]
        made = array_of(x, data, dims, x.drop_vars(_touching(x, new)))
        kept = _touching(self.coords, gone)
        others = [name for name in self.coords.coords if name not in kept]
        return made.assign_coords(self.coords.drop_vars(others).coords)


def remember(
    made: xr.DataArray,
    x: xr.DataArray,
    own: ArraySpace,
    dims: tuple[Hashable | None, ...],
    space: ArraySpace,
) -> xr.DataArray:
    """Return `made`, which is `x` laid out for `space`, with the way back to `x`."""
    coords = x.coords.to_dataset()  # without the values of x, which may be large
    origin = Origin(x.dims, coords, x.encoding, x.attrs.get(RECORD), own, dims, space)
    made.encoding = {**x.encoding, ORIGIN: origin}
    return made


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
        raise DimsError(f"dims {unwritten} are not str, as flattening records them; rename them")
    taken = x.coords.get(feature)
    if feature in x.dims or (taken is not None and not {*taken.dims} == {*made}):
        raise DimsError(
            f"the array already has a {feature!r}; name the flattened dim with "
            f"dims={{'feature': 'pixel'}}"
        )
    x, levels = _without_levels(x, made)
    along = _touching(x, made)
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
    coords = {name: _stacked(_plain(x, name), x.sizes, made, feature) for name in along}
    result = array_of(x, data, (batch, feature), x.drop_vars(along))
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
    for dim, names in record.get("levels", {}).items():
        if all(name in restored.coords and restored[name].dims == (dim,) for name in names):
            restored = restored.set_index({dim: names})
    if record.get("before") is not None:
        restored.attrs[RECORD] = record["before"]
    order = (dim if dim in made else batch for dim in record["order"])
    return restored.transpose(*order, transpose_coords=False)


# ---------------------------------------------------------------- rows that become images
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
    x, levels = _without_levels(x, (feature,))
    along = _touching(x, (feature,))
    result = array_of(x, data, dims, x.drop_vars(along))
    before = {} if record is None else record["coords"]
    batch = next(dim for dim in dims if dim not in made)
    lengths = dict(zip(dims, data.shape, strict=True))
    sizes = {dim: int(lengths[dim]) for dim in made}
    coords: dict[Hashable, xr.Variable] = {}
    for name in along:
        variable = _plain(x, name)
        own = [dim if dim in made else batch for dim in before[name]] if name in before else None
        if own is None and name in made and _lies_along(variable, str(name), feature, sizes):
            own = [name]
        elif own is None and name in made and levels:
            raise DimsError(
                f"{feature!r} is stacked of {levels[str(feature)]}, and not in the order of "
                f"{tuple(made)}, in which spaces flatten; stack it anew in that order"
            )
        coords[name] = _unstacked(variable, feature, sizes, own)
    result.attrs.pop(RECORD, None)
    return result.assign_coords(coords)


# ---------------------------------------------------------------- coordinates
def _touching(x: xr.DataArray | xr.Dataset, dims: Sequence[Hashable]) -> list[Hashable]:
    """Return the names of the coordinates along any of some dims."""
    return [name for name, coord in x.coords.items() if {*dims} & {*coord.dims}]


def _without_levels(
    x: xr.DataArray, dims: Sequence[Hashable]
) -> tuple[xr.DataArray, dict[str, list[str]]]:
    """Return `x` with the levels of each MultiIndex along some dims as plain coordinates."""
    levels: dict[str, list[str]] = {}
    for dim in dims:
        index = x.xindexes.get(dim)
        if isinstance(index, PandasMultiIndex):
            names = levels[str(dim)] = [str(name) for name in index.index.names]
            plain = {name: ((dim,), x[name].values, x[name].attrs) for name in names}
            x = x.drop_vars([dim, *names]).assign_coords(plain)
    return x, levels


def _plain(x: xr.DataArray, name: Hashable) -> xr.Variable:
    """Return a coordinate without its index."""
    variable: xr.Variable = x.coords[name].variable.to_base_variable()
    return variable


def _stacked(
    variable: xr.Variable, lengths: Lengths, made: Sequence[Hashable], feature: Hashable
) -> xr.Variable:
    """Return a coordinate along `feature`, which the dims `made` become; of its own dtype."""
    places = np.indices([int(lengths[dim]) for dim in made])
    along = {dim: xr.Variable((feature,), at.ravel()) for dim, at in zip(made, places, strict=True)}
    found = variable.isel({dim: at for dim, at in along.items() if dim in variable.dims})
    return found.transpose(..., feature)


def _unstacked(
    variable: xr.Variable,
    feature: Hashable,
    sizes: Mapping[str, int],
    own: Sequence[Hashable] | None,
) -> xr.Variable:
    """Return a coordinate along the dims that `feature` is made of, or those of its own."""
    numbers = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    grid = xr.Variable(tuple(sizes), numbers)
    if own is not None:
        grid = grid.isel({dim: 0 for dim in sizes if dim not in own})
    found = variable.isel({feature: grid})
    return found if own is None else found.transpose(*own)


def _lies_along(
    variable: xr.Variable, dim: str, feature: Hashable, sizes: Mapping[str, int]
) -> bool:
    """Whether a coordinate along `feature` adds nothing to one along `dim`."""
    if variable.dims != (feature,) or is_dask(variable.data):
        return False
    lengths: Lengths = dict(sizes.items())
    again = _stacked(_unstacked(variable, feature, sizes, (dim,)), lengths, [*sizes], feature)
    return bool((np.asarray(again) == np.asarray(variable)).all())


def array_of(
    x: xr.DataArray, data: Any, dims: Sequence[Hashable], kept: xr.DataArray
) -> xr.DataArray:
    """Return `data` with the name, attributes and coordinates of `x` that still apply."""
    made = xr.DataArray(data, coords=kept.coords, dims=dims, attrs=x.attrs)
    made.name = x.name  # given no name, it would take that of the dask array
    return made
