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
from typing import Any

import numpy as np
import xarray as xr
from xarray.indexes import PandasMultiIndex

from labeled.dims import SPATIAL, Axis, find_axes, name_of, role_of
from labeled.errors import DimsError, SpaceTypeError
from labeled.spaces.arrays import canonical_axes
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.kinds import ConvNDSpace, IndexSpace, VectorSpace

Names = Mapping[Axis, Hashable]
Dims = Sequence[Hashable]
DimsOf = Mapping[Hashable, Dims]
RECORD = "flattened"  # the attribute that says what a feature dim is made of

# the encoding entry that keeps the dims and encoding of what an array was laid out from
ORIGIN = "labeled_origin"


def format_dataarray(x: xr.DataArray, space: Space, *, dims: Names | None = None) -> xr.DataArray:
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
    if not isinstance(space, VectorSpace | ConvNDSpace | IndexSpace) or space.sparse:
        raise SpaceTypeError(f"{space}: a DataArray cannot be formatted for this space")
    if not (dims is None or isinstance(dims, Mapping)):
        raise DimsError(f"dims= maps axes to dims, as in {{'b': 'time'}}; found {dims!r}")
    new = dict(dims or {})  # names of dims that are made
    is_there = [axis for axis, dim in new.items() if dim in x.dims or axis in ("b", "batch")]
    there = {axis: new.pop(axis) for axis in is_there}
    to_images = isinstance(space, ConvNDSpace)
    if to_images:
        stacked = [dim for dim in x.dims if isinstance(x.xindexes.get(dim), PandasMultiIndex)]
        x = x.unstack([d for d in stacked if role_of(d) != "batch" and d not in there.values()])
    own, dim_of = _read(x, space, there)
    present = [dim for dim in dim_of.values() if dim is not None]
    data = x.transpose(*present).data
    if len(present) < len(dim_of):  # an axis of length 1 that `x` lacks
        data = data[(*(slice(None),) * [*dim_of.values()].index(None), None)]
    data = own.format_as(data, space)

    if isinstance(own, ConvNDSpace) and not to_images:
        made = [dim_of[axis] for axis in canonical_axes(len(own.shape))[1:]]
        made = [dim for dim in made if dim is not None]
        return _flattened(x, data, made, new.get("feature", "feature"))
    if isinstance(space, ConvNDSpace) and not isinstance(own, ConvNDSpace):
        return _unflattened(x, data, space, [*dim_of.values()], new)
    alike = isinstance(own, IndexSpace) == isinstance(space, IndexSpace)
    kept, order = x, [dim_of.get(axis) for axis in space.axis_names()]
    if not alike or len(present) < len(dim_of):
        axis = str(space.axis_names()[1])
        kept, order = x.drop_vars(_touching(x, present[1:])), [present[0], new.get(axis, axis)]
    laid_out = _array_of(x, data, order, kept)
    if alike:
        laid_out.encoding = {**x.encoding, ORIGIN: (x.dims, x.encoding)}
    return laid_out


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
        rows = x.transpose(batch, feature).data
        data = VectorSpace(rows.shape[1]).format_as(rows, ConvNDSpace(record["sizes"], 1))[..., 0]
        restored = _unstacked(x, data, (batch, *made), feature, made, record["coords"])
        order = [dim if dim in made else batch for dim in record["order"]]
        return restored.transpose(*order, transpose_coords=False)
    order, encoding = x.encoding.get(ORIGIN, (None, None))
    if order is None:
        kept = f"attribute {RECORD!r}, encoding {ORIGIN!r}"
        wrong = f"dims {x.dims} carry no record of how they were formatted ({kept})"
        remedy = "format the array for the space it came from instead"
        raise DimsError(f"{wrong}; {remedy}. Labels that became indicators do not come back")
    added = [dim for dim in x.dims if dim not in order]
    if len(x.dims) - len(added) != len(order) or any(x.sizes[dim] > 1 for dim in added):
        raise DimsError(f"dims {x.dims} are no longer those that {order} became")
    made = x.isel(dict.fromkeys(added, 0), drop=True)
    made = made.transpose(*order, transpose_coords=False)
    made.encoding = dict(encoding)
    return made


# ---------------------------------------------------------------- reading a DataArray
def _read(
    x: xr.DataArray, space: ArraySpace, there: Names
) -> tuple[ArraySpace, dict[Axis, Hashable | None]]:
    """Return what `x` is, and the dim at each of its axes; None for one of length 1 that it lacks.

    Integers along the batch dim alone, or beside a dim ``index``, are labels; two dims of which
    one plays no role in images are rows; all else is images.
    """
    to_images = isinstance(space, ConvNDSpace)
    roles = [*there, *(role_of(dim) for dim in x.dims if dim not in there.values())]
    n_spatial = sum(isinstance(role, int) or role in SPATIAL for role in roles)
    n_spatial = len(space.shape) if isinstance(space, ConvNDSpace) else n_spatial
    found = find_axes(x.dims, n_spatial, there)
    dims: dict[Axis, Hashable | None] = dict(found.dim_of_axis)
    own: ArraySpace | None = None
    added = ""
    row = next((dim for dim in x.dims if dim != dims.get("b")), None)
    axes: tuple[Axis, ...] = ("b", "feature")
    if x.dtype.kind in "iu" and not to_images and (x.ndim == 1 or "index" in dims):
        axes, added = ("b", "index"), "index" if x.ndim == 1 else ""
        own = IndexSpace(None, x.sizes[dims["index"]] if x.ndim > 1 else 1)
    elif x.ndim == 2 and "b" in dims and row in (*found.others, dims.get("feature")):
        dims["feature"], own = row, VectorSpace(x.sizes[row])
    elif n_spatial:
        axes, added = canonical_axes(n_spatial), "" if to_images else "c"
    dim_of = {axis: dims.get(axis) for axis in axes}
    missing = [axis for axis, dim in dim_of.items() if dim is None and axis != added]
    wrong = [dim for dim in x.dims if dim not in dim_of.values()]
    if missing or wrong:
        inner = [dim for dim in x.dims if dim != dims.get("b")]
        flat = isinstance(space, VectorSpace) and space.dim == math.prod(x.sizes[n] for n in inner)
        raise _mismatch(x, space, missing, wrong, inner if flat and wrong else wrong, n_spatial)
    if own is None:
        *shape, channels = (x.sizes.get(dim_of[axis], 1) for axis in axes[1:])
        own = ConvNDSpace(shape, channels)
    return own, dim_of


def _mismatch(
    x: xr.DataArray,
    space: ArraySpace,
    missing: list[Axis],
    wrong: list[Hashable],
    flat: list[Hashable],
    n_spatial: int,
) -> DimsError:
    """Say what does not fit, and what to do: `flat` are dims that make the rows of a space."""
    text = f"the array has dims {x.dims}, {space} has axes {space.axis_names()}"
    text += f"; dims that play no axis: {tuple(wrong)}" * bool(wrong)
    shown = ", ".join(f"{axis!r} ({name_of(axis, n_spatial)})" for axis in missing)
    text += f"; axes without a dim: {shown}" * bool(missing)
    if len(flat) > 1 and not isinstance(space, ConvNDSpace) and not {"b", "c"} & {*missing}:
        names: dict[Any, Hashable] = dict(enumerate(flat))
        names |= {"feature": "pixel"} if "feature" in x.dims else {}  # what the new dim is called
        remedy = f"Say which is which, e.g. with dims={names} to flatten them in this order"
    elif wrong and missing:
        remedy = f"Say which is which, e.g. with dims={{{missing[0]!r}: {wrong[0]!r}}}"
    elif missing:
        remedy = f"Add it, e.g. with x.expand_dims({name_of(missing[0], n_spatial)!r})"
    else:
        remedy = f"Choose from it, e.g. with x.isel({{{wrong[0]!r}: 0}})"
    return DimsError(f"{text}. {remedy}")


# ---------------------------------------------------------------- names put back
def _flattened(x: xr.DataArray, data: Any, made: Dims, feature: Hashable) -> xr.DataArray:
    """Return `data`, which is `x` as (batch, feature), with its coordinates and a record.

    Raises
    ------
    DimsError
        If there is a `feature` already.
    """
    along = _touching(x, made)
    if feature in x.dims or (feature in x.coords and feature not in along):
        other = "dims={'feature': 'pixel'}"
        raise DimsError(f"the array already has a {feature!r}; name the flattened dim with {other}")
    record: dict[str, Any] = {
        "dim": feature,
        "dims": list(made),
        "sizes": [int(x.sizes[dim]) for dim in made],
        "order": list(x.dims),
        "coords": {name: list(x.coords[name].dims) for name in along},
    }
    (batch,) = (dim for dim in x.dims if dim not in made)
    # not by x.stack, which makes objects of categories and intervals: they would not come back
    indices = np.indices(record["sizes"]).reshape(len(made), -1)
    places = {dim: xr.Variable(feature, at) for dim, at in zip(made, indices, strict=True)}
    coords: dict[Hashable, xr.Variable] = {}
    for name in along:
        found = x.coords[name].variable.to_base_variable()
        coords[name] = found.isel(places, missing_dims="ignore").transpose(..., feature)
    result = _array_of(x, data, (batch, feature), x.drop_vars(along))
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
    if x.ndim != 2 or x.sizes.get(record["dim"]) != math.prod(record["sizes"]):
        feature = repr(record["dim"])
        made = f"{feature} is made of {record['dims']} of lengths {record['sizes']}"
        wrong = f"the array has lengths {dict(x.sizes)}, but its record says that {made}"
        raise DimsError(f"{wrong}; undo the flattening before selecting or renaming {feature}")
    return record


def _unflattened(
    x: xr.DataArray, data: Any, space: ConvNDSpace, dims: Dims, new: Names
) -> xr.DataArray:
    """Return `data`, which is `x` as images, under the names that the record of `x` has for them.

    Names given for new dims go before, those of the table behind.
    """
    axes, record = canonical_axes(len(space.shape))[1:], _record_of(x) or {}
    names = [name_of(axis, len(space.shape)) for axis in axes]
    known = record["dims"] if record.get("sizes") == [*space.shape, space.channels] else names
    triples = zip(axes, names, known, strict=True)
    made = {axis: str(new.get(axis, new.get(role, name))) for axis, role, name in triples}
    before = record["coords"] if [*made.values()] == record.get("dims") else {}
    order = [made.get(axis, dims[0]) for axis in space.axes]
    return _unstacked(x, data, order, dims[1], [*made.values()], before)


def _unstacked(
    x: xr.DataArray, data: Any, dims: Dims, feature: Hashable, made: Sequence[str], before: DimsOf
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
        found = x.coords[name].variable.to_base_variable().isel({feature: places})
        coords[name] = found.transpose(*own) if own else found
    result.attrs.pop(RECORD, None)
    return result.assign_coords(coords)


def _touching(x: xr.DataArray, dims: Dims) -> list[Hashable]:
    """Return the names of the coordinates along any of some dims."""
    return [name for name, coord in x.coords.items() if {*dims} & {*coord.dims}]


def _array_of(x: xr.DataArray, data: Any, dims: Dims, kept: xr.DataArray) -> xr.DataArray:
    """Return `data` with the name, attributes and coordinates of `x` that still apply."""
    made = xr.DataArray(data, coords=kept.coords, dims=dims, attrs=x.attrs)
    made.name = x.name  # given no name, it would take that of the dask array
    return made
