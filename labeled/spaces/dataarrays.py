"""DataArrays: axes found by name, and what is needed to come back kept along.

`format_dataarray` finds, by the table of :mod:`labeled.dims`, which dim of a DataArray
plays which axis, hands the plain data to the ordinary conversion, and puts names and
coordinates back. Moving axes is a transpose. Flattening makes a dim ``feature``:
coordinates along the flattened dims become coordinates along it (as xarray's
``stack`` without an index makes them), and an attribute says, in JSON, what it is made of, so
that the way back survives arithmetic and writing to a file. Every other way of laying out keeps
the dims that there were in the encoding, so that the array equals a transpose; xarray drops
encodings when it computes.
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

from labeled.dims import ROLES, SPATIAL, Axis, FoundAxes, find_axes, name_of, role_of
from labeled.errors import DimsError, SpaceTypeError
from labeled.spaces.arrays import canonical_axes
from labeled.spaces.kinds import (
    ArraySpace,
    ConvNDSpace,
    IndexSpace,
    Space,
    VectorSpace,
)

Names = Mapping[Axis, Hashable]
KEYS = {"b", "c", *ROLES}
"""What ``dims=`` may call an axis, besides its number."""

RECORD = "flattened"
"""The attribute that says what a ``feature`` dim is made of."""

ORIGIN = "labeled_origin"
"""The encoding entry that keeps the dims and encoding of what an array was laid out from."""


@dataclass(frozen=True)
class _Reading:
    """A DataArray read as a batch of a space: its data, and the dim at each axis."""

    x: xr.DataArray
    own: ArraySpace
    data: Any  # axes in the order of own
    dims: tuple[Hashable | None, ...]  # None: an axis added here, of length 1
    new_names: Names  # for dims that are made


def format_dataarray(
    x: xr.DataArray,
    space: Space,
    *,
    dims: Names | None = None,
    own: Space | None = None,
) -> xr.DataArray:
    """Lay a DataArray out for a space, its axes found by name.

    Parameters
    ----------
    x : DataArray
        Over NumPy, CuPy or dask; dims in any order.
    space : Space
        What the consumer wants.
    dims : mapping from axis (or role) to dim name, optional
        Beyond the table: ``{"b": "time"}`` for dims that are there, ``{"feature":
        "pixel"}`` for the name of one that is made.
    own : Space, optional
        The space of `x`, where its dims and dtype do not determine it (the number of labels).

    Returns
    -------
    DataArray
        Dims in the order of the space's axes; (batch, feature) for vectors. Lazy if `x`
        is; a view where axes only move.

    Raises
    ------
    DimsError
        If a dim has no axis in the space, or an axis has no dim; the message lists both.
    SpaceError
        If lengths, dtype or labels do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from labeled.spaces import Conv2DSpace
    >>> x = xr.DataArray(np.zeros((8, 3, 4, 5)), dims=("time", "channel", "height", "width"))
    >>> c01b = Conv2DSpace((4, 5), channels=3, axes=("c", 0, 1, "b"))
    >>> format_dataarray(x, c01b, dims={"b": "time"}).dims
    ('channel', 'height', 'width', 'time')
    >>> format_dataarray(x, VectorSpace(60), dims={"b": "time"}).dims
    ('time', 'feature')
    """
    if not isinstance(space, Space):
        raise SpaceTypeError(f"the target must be a space, found {space!r}")
    if not isinstance(space, VectorSpace | ConvNDSpace | IndexSpace):
        raise SpaceTypeError(f"{space}: a DataArray cannot be formatted for this space")
    if space.sparse:
        raise SpaceTypeError(
            f"{space}: a DataArray holds no scipy sparse array; lay out its data instead: "
            "space.format_as(x.data, ...)"
        )
    read = _read(x, space, dims, own)
    x, data = read.x, read.own.format_as(read.data, space)
    dim_of = dict(zip(read.own.axis_names(), read.dims, strict=True))
    if isinstance(read.own, ConvNDSpace) and not isinstance(space, ConvNDSpace):
        order = [dim_of[axis] for axis in canonical_axes(len(read.own.shape))]
        made = [dim for dim in order[1:] if dim is not None]
        return _flattened(x, data, made, read.new_names.get("feature", "feature"))
    if isinstance(space, ConvNDSpace) and not isinstance(read.own, ConvNDSpace):
        return _unflattened(read, space, data)
    alike = isinstance(read.own, IndexSpace) == isinstance(space, IndexSpace)
    if alike and None not in read.dims:
        order = [dim_of[axis] for axis in space.axis_names()]
        return _remember(_array_of(x, data, order, x.transpose(*order, transpose_coords=False)), x)
    batch, axis = read.dims[0], str(space.axis_names()[1])
    kept = x.drop_vars(_touching(x, read.dims[1:]))
    rows = _array_of(x, data, (batch, read.new_names.get(axis, axis)), kept)
    return _remember(rows, x) if alike else rows


def undo_format(x: xr.DataArray) -> xr.DataArray:
    """Bring back the dims and coordinates that an array had before it was formatted.

    Parameters
    ----------
    x : DataArray
        Made by :func:`labeled.spaces.format_dataarray`. A flattened one may have been computed with
        since. One whose axes were only moved forgets its origin once it is computed with. Rows that
        became images are flattened to come back.

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
    record = _record_of(x)
    if record is not None:
        feature, made = record["dim"], record["dims"]
        batch = next(dim for dim in x.dims if dim != feature)
        images = ConvNDSpace(record["sizes"], 1)
        rows = x.transpose(batch, feature).data
        data = VectorSpace(rows.shape[1]).format_as(rows, images)[..., 0]
        restored = _unstacked(x, data, (batch, *made), feature, made, record["coords"])
        order = [dim if dim in made else batch for dim in record["order"]]
        return restored.transpose(*order, transpose_coords=False)
    order, encoding = x.encoding.get(ORIGIN, (None, None))
    if order is None:
        raise DimsError(
            f"dims {x.dims} carry no record of how they were formatted (attribute {RECORD!r}, "
            f"encoding {ORIGIN!r}); format the array for the space it came from instead. Labels "
            "that became indicators do not come back"
        )
    added = [dim for dim in x.dims if dim not in order]
    if len(x.dims) - len(added) != len(order) or any(x.sizes[dim] > 1 for dim in added):
        raise DimsError(f"dims {x.dims} are no longer those that {order} became")
    made = x.isel(dict.fromkeys(added, 0), drop=True)
    made = made.transpose(*order, transpose_coords=False)
    made.encoding = dict(encoding)
    return made


# ---------------------------------------------------------------- reading a DataArray
def _read(x: xr.DataArray, space: ArraySpace, dims: Names | None, own: Any = None) -> _Reading:
    there, new = _split_names(x, dims)
    to_images = isinstance(space, ConvNDSpace)
    if own is None and to_images:
        stacked = [dim for dim in x.dims if isinstance(x.xindexes.get(dim), PandasMultiIndex)]
        x = x.unstack([d for d in stacked if role_of(d) != "batch" and d not in there.values()])
    asked = space if own is None else own
    n_spatial = len(asked.shape) if isinstance(asked, ConvNDSpace) else _n_spatial(x, there)
    found = find_axes(x.dims, n_spatial, there)
    own = _row_space(x, found, to_images) if own is None else own
    names = found.dim_of_axis
    axes: tuple[Axis, ...]
    added: Axis | None = None  # an axis of length 1 that `x` may lack
    if isinstance(own, VectorSpace | IndexSpace):
        axes = own.axis_names()
        row = _row_dim(x, found, axes[1])
        names = {axis: names[axis] for axis in axes if axis in names}
        names |= {} if row is None else {axes[1]: row}
        added = axes[1] if x.ndim == 1 and isinstance(own, IndexSpace) else None
    elif own is None or isinstance(own, ConvNDSpace):
        axes = canonical_axes(n_spatial)
        if not n_spatial:  # neither images nor rows
            axes = ("b", "c", "feature") if to_images else ("b", "feature")
        names = {axis: dim for axis, dim in names.items() if axis in axes}
        added = "c" if not to_images and (own is None or own.channels == 1) else None
    else:
        raise SpaceTypeError(f"{own}: a DataArray is not a batch of this space")
    missing: list[Axis] = [axis for axis in axes if axis not in names and axis != added]
    wrong = [dim for dim in x.dims if dim not in names.values()]
    if missing or wrong:
        raise _mismatch(x.dims, asked, missing, wrong, n_spatial)
    if own is None:
        axis_at = {dim: axis for axis, dim in names.items()}
        order = [axis_at[dim] for dim in x.dims] + (["c"] if "c" not in names else [])
        shape = [x.sizes[names[i]] for i in range(n_spatial)]
        own = ConvNDSpace(shape, x.sizes[names["c"]] if "c" in names else 1, axes=order)
    dim_at = tuple(names.get(axis) for axis in own.axis_names())
    data = x.transpose(*[dim for dim in dim_at if dim is not None]).data
    if None in dim_at:
        data = data[(*(slice(None),) * dim_at.index(None), None)]
    return _Reading(x, own, data, dim_at, new)


def _split_names(x: xr.DataArray, dims: Names | None) -> tuple[Names, Names]:
    """Part the names given into dims that are there and dims to be made."""
    if dims is not None and not isinstance(dims, Mapping):
        raise DimsError(f"dims= maps axes to dims, as in {{'b': 'time'}}; found {dims!r}")
    given = {} if dims is None else dict(dims)
    for axis in given:
        if not (isinstance(axis, int) or axis in KEYS):
            raise DimsError(
                f"dims= has the key {axis!r}, which is not an axis; use 0, 1, ... or one of "
                f"{sorted(KEYS)}"
            )
    there = {axis: dim for axis, dim in given.items() if dim in x.dims}
    new = {axis: dim for axis, dim in given.items() if dim not in x.dims}
    if "b" in new or "batch" in new:
        raise DimsError(f"dims={given} names a batch dim that is not there; dims are {x.dims}")
    return there, new


def _row_space(x: xr.DataArray, found: FoundAxes, to_images: bool) -> ArraySpace | None:
    """Return what `x` is, as far as its own dims and dtype show; None where it holds images."""
    if x.dtype.kind in "iu" and not to_images:
        if x.ndim == 1:
            return IndexSpace(None, 1)
        if "index" in found.dim_of_axis:
            return IndexSpace(None, x.sizes[found.dim_of_axis["index"]])
    row = _row_dim(x, found, "feature")
    return None if row is None else VectorSpace(x.sizes[row])


def _row_dim(x: xr.DataArray, found: FoundAxes, axis: str) -> Hashable | None:
    """Return the dim of a (batch, row) array that is not the batch, if it is one."""
    if x.ndim != 2 or "b" not in found.dim_of_axis:
        return None
    (other,) = (dim for dim in x.dims if dim != found.dim_of_axis["b"])
    return other if other in (*found.others, found.dim_of_axis.get(axis)) else None


def _n_spatial(x: xr.DataArray, there: Names) -> int:
    given = set(there.values())
    by_role = sum(role_of(dim) in SPATIAL for dim in x.dims if dim not in given)
    return by_role + sum(isinstance(axis, int) or axis in SPATIAL for axis in there)


def _mismatch(
    dims: tuple[Hashable, ...],
    space: ArraySpace,
    missing: list[Axis],
    wrong: list[Hashable],
    n_spatial: int,
) -> DimsError:
    parts = [f"the array has dims {dims}, {space} has axes {space.axis_names()}"]
    if wrong:
        parts.append(f"dims that play no axis: {tuple(wrong)}")
    if missing:
        shown = ", ".join(f"{axis!r} ({name_of(axis, n_spatial)})" for axis in missing)
        parts.append(f"axes without a dim: {shown}")
    if len(wrong) > 1 and not isinstance(space, ConvNDSpace) and not {"b", "c"} & {*missing}:
        flat = dict(enumerate(dim for dim in dims if dim in wrong))
        remedy = f"Say which is which, e.g. with dims={flat} to flatten them in this order"
    elif wrong and missing:
        remedy = f"Say which is which, e.g. with dims={{{missing[0]!r}: {wrong[0]!r}}}"
    elif missing == ["feature"] and getattr(space, "dim", 1) > 1:
        remedy = "Labels must be integers to become indicators; cast them first, with x.astype(int)"
    elif missing:
        remedy = f"Add it, e.g. with x.expand_dims({name_of(missing[0], n_spatial)!r})"
    else:
        remedy = f"Choose from it, e.g. with x.isel({wrong[0] if wrong else '...'}=0)"
    return DimsError(f"{'; '.join(parts)}. {remedy}")


# ---------------------------------------------------------------- names put back
def _remember(made: xr.DataArray, x: xr.DataArray) -> xr.DataArray:
    made.encoding = {**x.encoding, ORIGIN: (x.dims, x.encoding)}
    return made


def _flattened(
    x: xr.DataArray, data: Any, made: Sequence[Hashable], feature: Hashable
) -> xr.DataArray:
    """Return `data`, which is `x` as (batch, feature), with its coordinates and a record.

    Raises
    ------
    DimsError
        If there is a `feature` already, or dims have names that cannot be written down.
    """
    (batch,) = (dim for dim in x.dims if dim not in made)
    unwritten = [dim for dim in (*x.dims, feature) if not isinstance(dim, str)]
    if unwritten:
        raise DimsError(f"dims {unwritten} are not str, as flattening records them; rename them")
    taken = x.coords.get(feature)
    if feature in x.dims or (taken is not None and not {*taken.dims} == {*made}):
        raise DimsError(
            f"the array already has a {feature!r}; name the flattened dim with "
            f"dims={{'feature': 'pixel'}}"
        )
    sizes = {dim: int(x.sizes[dim]) for dim in made}
    along = _touching(x, made)
    record = {
        "dim": feature,
        "dims": list(made),
        "sizes": list(sizes.values()),
        "order": list(x.dims),
        "coords": {name: list(x.coords[name].dims) for name in along},
    }
    result = _array_of(x, data, (batch, feature), x.drop_vars(along))
    coords = {name: _stacked(_plain(x, name), sizes, feature) for name in along}
    return result.assign_coords(coords).assign_attrs({RECORD: json.dumps(record)})


def _record_of(x: xr.DataArray) -> dict[str, Any] | None:
    """Return the record of flattening that `x` carries, None if it carries none.

    Raises
    ------
    DimsError
        If it carries one that its dims no longer fit.
    """
    try:
        record: Any = json.loads(x.attrs.get(RECORD, ""))
    except (TypeError, ValueError):
        return None
    if not isinstance(record, dict) or not {"dim", "dims", "sizes", "order"} <= {*record}:
        return None  # an attribute of somebody else
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


def _unflattened(read: _Reading, space: ConvNDSpace, data: Any) -> xr.DataArray:
    x, (batch, feature) = read.x, read.dims
    axes, record = canonical_axes(len(space.shape))[1:], _record_of(x)
    if record is not None and tuple(record["sizes"]) != (*space.shape, space.channels):
        record = None
    by_axis: dict[Axis, Hashable] = {"b": batch}
    for position, axis in enumerate(axes):
        role = name_of(axis, len(space.shape))
        known = role if record is None else record["dims"][position]
        by_axis[axis] = read.new_names.get(axis, read.new_names.get(role, known))
    made = [str(by_axis[axis]) for axis in axes]
    before = record["coords"] if record is not None and record["dims"] == made else {}
    order = tuple(by_axis[axis] for axis in space.axes)
    return _unstacked(x, data, order, feature, made, before)


def _unstacked(
    x: xr.DataArray,
    data: Any,
    dims: Sequence[Hashable],
    feature: Hashable,
    made: Sequence[str],
    before: Mapping[Hashable, Sequence[Hashable]],
) -> xr.DataArray:
    """Return `data` under `dims`, coordinates along `feature` brought to those of `made`.

    Coordinates of `before` get the dims that they had, others all of those made; none of those
    may be called as one of them.
    """
    along = _touching(x, (feature,))
    result = _array_of(x, data, dims, x.drop_vars(along))
    batch = next(dim for dim in dims if dim not in made)
    lengths = [int(result.sizes[dim]) for dim in made]
    grid = xr.Variable(made, np.arange(math.prod(lengths)).reshape(lengths))
    coords: dict[Hashable, xr.Variable] = {}
    for name in along:
        if name not in before and name in made:
            continue
        own = [dim if dim in made else batch for dim in before.get(name, ())]
        places = grid.isel({dim: 0 for dim in made if dim not in own} if own else {})
        found = _plain(x, name).isel({feature: places})
        coords[name] = found.transpose(*own) if own else found
    result.attrs.pop(RECORD, None)
    return result.assign_coords(coords)


def _touching(x: xr.DataArray, dims: Sequence[Hashable]) -> list[Hashable]:
    """Return the names of the coordinates along any of some dims."""
    return [name for name, coord in x.coords.items() if {*dims} & {*coord.dims}]


def _plain(x: xr.DataArray, name: Hashable) -> xr.Variable:
    """Return a coordinate without its index."""
    variable: xr.Variable = x.coords[name].variable.to_base_variable()
    return variable


def _stacked(
    variable: xr.Variable, sizes: Mapping[Hashable, int], feature: Hashable
) -> xr.Variable:
    """Return a coordinate along `feature`, which other dims become; of its own dtype."""
    places = np.indices(tuple(sizes.values()))
    along = {
        dim: xr.Variable((feature,), at.ravel()) for dim, at in zip(sizes, places, strict=True)
    }
    found = variable.isel({dim: at for dim, at in along.items() if dim in variable.dims})
    return found.transpose(..., feature)


def _array_of(
    x: xr.DataArray, data: Any, dims: Sequence[Hashable], kept: xr.DataArray
) -> xr.DataArray:
    """Return `data` with the name, attributes and coordinates of `x` that still apply."""
    made = xr.DataArray(data, coords=kept.coords, dims=dims, attrs=x.attrs)
    made.name = x.name  # given no name, it would take that of the dask array
    return made


def data_of(x: xr.DataArray, space: ArraySpace) -> Any:
    """Return the data of `x` with its axes in the order of `space`."""
    return _read(x, space, None, space).data
