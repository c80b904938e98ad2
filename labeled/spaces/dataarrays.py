"""DataArrays: axes found by name, and what is needed to come back kept along.

`format_dataarray` finds, by the table of :mod:`labeled.dims`, which dim of a DataArray
plays which axis, hands the plain data to the ordinary conversion, and puts names and
coordinates back. Moving axes is a transpose. Flattening makes a dim ``feature``:
coordinates along the flattened dims become coordinates along it (as xarray's
``stack`` without an index makes them), and the attribute ``flattened`` says, in JSON,
which dims of which lengths went into it, so `undo_format` can bring all of it back.
The record is an attribute so that it survives arithmetic and writing to a file; if a
computation drops attributes, the target space still gives the lengths. Moved axes
keep their first order in the encoding only, so that the array equals a transpose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from labeled.dims import SPATIAL, Axis, Found, find_axes, name_of, role_of
from labeled.errors import DimsError, SpaceTypeError
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.checks import serve_named_batches, title
from labeled.spaces.compact import compact
from labeled.spaces.composite import CompositeSpace, NullSpace
from labeled.spaces.conv import ConvNDSpace
from labeled.spaces.layout import canonical_axes
from labeled.spaces.vector import IndexSpace, LabelRows, VectorSpace

RECORD = "flattened"
"""The attribute that says what a ``feature`` dim is made of."""

ORDER = "labeled_order"
"""The encoding entry that keeps the order of dims which were only moved."""

Names = Mapping[Axis, Hashable]


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
    contiguous: bool = False,
) -> Any:
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
        What `x` is, where its dims and dtype do not tell (the number of labels).
    contiguous : bool
        Whether data must be C-contiguous; copied where it is not.

    Returns
    -------
    DataArray, or a tuple of them for a `CompositeSpace`
        Dims in the order of the space's axes; (batch, feature) for vectors. Lazy if `x`
        is; a view where axes only move.

    Raises
    ------
    DimsError
        If a dim plays no axis of the space, or an axis has no dim; lists both sides.
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
    if isinstance(space, CompositeSpace):
        parts = _format_composite(x, space, dims, own)
        return compact(parts) if contiguous else parts
    if not isinstance(space, VectorSpace | ConvNDSpace | IndexSpace):
        raise SpaceTypeError(f"{space}: a DataArray is not laid out for such a space")
    reading = _read(x, space, dims, own)
    _check_new_names(reading, space)
    data = reading.own.format_as(reading.data, space, contiguous=contiguous)
    if isinstance(reading.own, ConvNDSpace):
        if isinstance(space, ConvNDSpace):
            return _moved(reading, space, data)
        return _flattened(reading, data)
    if isinstance(space, ConvNDSpace):
        return _unflattened(reading, space, data)
    return _rows(reading, space, data)


def undo_format(x: xr.DataArray) -> xr.DataArray:
    """Bring back the dims and coordinates that an array had before it was formatted.

    Parameters
    ----------
    x : DataArray
        Made by :func:`format_dataarray`. A flattened one may have been computed with
        since; one whose axes were only moved remembers their order until then.

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
    >>> import numpy as np
    >>> x = xr.DataArray(np.zeros((8, 3, 4, 5)), dims=("batch", "channel", "height", "width"))
    >>> undo_format(format_dataarray(x, VectorSpace(60))).identical(x)
    True
    """
    record = _record_of(x)
    if record is None:
        return _moved_back(x)
    feature, made, sizes = record["dim"], tuple(record["dims"]), tuple(record["sizes"])
    batch = next(dim for dim in x.dims if dim != feature)
    images = ConvNDSpace(sizes, 1)
    flat = x.transpose(batch, feature)
    data = VectorSpace(flat.sizes[feature]).format_as(flat.data, images)[..., 0]
    restored = _rebuilt(x, feature, made, sizes, record, (batch, *made), data)
    return restored.transpose(*record["order"], transpose_coords=False)


def _moved_back(x: xr.DataArray) -> xr.DataArray:
    order = x.encoding.get(ORDER)
    if order is None or set(order) != set(x.dims):
        raise DimsError(
            f"dims {x.dims} carry no record of how they were formatted (attribute {RECORD!r}, "
            f"encoding {ORDER!r}); format the array for the space it came from instead"
        )
    back = x.transpose(*order, transpose_coords=False)
    back.encoding = {key: value for key, value in x.encoding.items() if key != ORDER}
    return back


# ---------------------------------------------------------------- reading a DataArray
def _read(x: xr.DataArray, space: Space, dims: Names | None, own: Space | None = None) -> _Reading:
    there, new = _split_names(x, dims)
    if own is None:
        own = _own_space(x, space, there)
    if isinstance(own, ConvNDSpace):
        return _read_images(x, own, space, there, new)
    if isinstance(own, VectorSpace | LabelRows):
        return _read_rows(x, own, there, new)
    raise SpaceTypeError(f"{own}: a DataArray is not a batch of such a space")


def _split_names(x: xr.DataArray, dims: Names | None) -> tuple[Names, Names]:
    """Part the names given into dims that are there and dims to be made."""
    given = {} if dims is None else dict(dims)
    there = {axis: dim for axis, dim in given.items() if dim in x.dims}
    new = {axis: dim for axis, dim in given.items() if dim not in x.dims}
    if "b" in new or "batch" in new:
        raise DimsError(f"dims={given} names a batch dim that is not there; dims are {x.dims}")
    return there, new


def _check_new_names(reading: _Reading, space: Space) -> None:
    """Raise if a name was given for an axis whose dim is not made: it is a slip of the pen."""
    n_spatial = len(space.shape) if isinstance(space, ConvNDSpace) else 0
    made: set[Axis] = {"feature", "index"}
    if isinstance(space, ConvNDSpace) and not isinstance(reading.own, ConvNDSpace):
        axes = canonical_axes(n_spatial)[1:]
        made |= {*axes, *(name_of(axis, n_spatial) for axis in axes)}
    for axis, dim in reading.new_names.items():
        if axis not in made:
            raise DimsError(
                f"dims={{{axis!r}: {dim!r}}} names a dim that is neither there nor made; the "
                f"array has dims {reading.x.dims}, {space} has axes {_axes_shown(space)}"
            )


def _own_space(x: xr.DataArray, space: Space, there: Names) -> ArraySpace:
    """Return what `x` is, as far as the wanted space and its own dims tell."""
    labels = x.dtype.kind in "iu" and not isinstance(space, ConvNDSpace)
    found = find_axes(x.dims, _n_spatial(x, there), there)
    if labels and (x.ndim == 1 or "index" in found.dim_of_axis):
        return IndexSpace(None, 1 if x.ndim == 1 else x.sizes[found.dim_of_axis["index"]])
    row = _row_dim(x, found, "feature")
    if row is not None:
        return VectorSpace(x.sizes[row])
    n_spatial = len(space.shape) if isinstance(space, ConvNDSpace) else _n_spatial(x, there)
    return _images_of(x, n_spatial, there, space)


def _row_dim(x: xr.DataArray, found: Found, axis: str) -> Hashable | None:
    """Return the dim of a (batch, row) array that is not the batch, if it is one."""
    if x.ndim != 2 or "b" not in found.dim_of_axis:
        return None
    (other,) = (dim for dim in x.dims if dim != found.dim_of_axis["b"])
    return other if other in (*found.others, found.dim_of_axis.get(axis)) else None


def _n_spatial(x: xr.DataArray, there: Names) -> int:
    named = set(there.values())
    by_role = sum(role_of(dim) in SPATIAL for dim in x.dims if dim not in named)
    return by_role + sum(isinstance(axis, int) or axis in SPATIAL for axis in there)


def _images_of(x: xr.DataArray, n_spatial: int, there: Names, space: Space) -> ConvNDSpace:
    """Return the space of `x` as images, channels optional where they get flattened."""
    found = find_axes(x.dims, n_spatial, there)
    needed: set[Axis] = {"b", "c", *range(n_spatial)}
    if not isinstance(space, ConvNDSpace):
        needed -= {"c"}
    missing = [
        axis for axis in canonical_axes(n_spatial) if axis in needed - set(found.dim_of_axis)
    ]
    wrong = [dim for dim in x.dims if _axis_at(found, dim) in (None, "feature", "index")]
    if n_spatial == 0 and not isinstance(space, ConvNDSpace):  # neither images nor rows
        missing.append("feature")
        wrong = [dim for dim in x.dims if _axis_at(found, dim) != "b"]
    if missing or wrong or n_spatial == 0:
        raise _mismatch(x.dims, space, missing, wrong, n_spatial)
    length = {axis: x.sizes[dim] for axis, dim in found.dim_of_axis.items()}
    order = [_axis_at(found, dim) for dim in x.dims]
    axes = (*(axis for axis in order if axis is not None), *(() if "c" in length else ("c",)))
    shape = tuple(length[i] for i in range(n_spatial))
    return ConvNDSpace(shape, length.get("c", 1), axes=axes)


def _axis_at(found: Found, dim: Hashable) -> Axis | None:
    return next((axis for axis, name in found.dim_of_axis.items() if name == dim), None)


def _mismatch(
    dims: tuple[Hashable, ...],
    space: Space,
    missing: list[Axis],
    wrong: list[Hashable],
    n_spatial: int,
) -> DimsError:
    parts = [f"the array has dims {dims}, {space} has axes {_axes_shown(space)}"]
    if wrong:
        parts.append(f"dims that play no axis: {tuple(wrong)}")
    if missing:
        shown = ", ".join(f"{axis!r} ({name_of(axis, n_spatial)})" for axis in missing)
        parts.append(f"axes without a dim: {shown}")
    if wrong and missing:
        remedy = f"dims={{{missing[0]!r}: {wrong[0]!r}}}"
    elif missing:
        remedy = f"x.expand_dims({name_of(missing[0], n_spatial)!r})"
    else:
        remedy = f"x.isel({wrong[0] if wrong else '...'}=0)"
    return DimsError(f"{'; '.join(parts)}. Say which is which, e.g. with {remedy}")


def _axes_shown(space: Space) -> tuple[Any, ...]:
    return space.axis_names() if isinstance(space, ArraySpace) else ()


def _read_images(
    x: xr.DataArray, own: ConvNDSpace, space: Space, there: Names, new: Names
) -> _Reading:
    n_spatial = len(own.shape)
    found = find_axes(x.dims, n_spatial, there)
    missing = [axis for axis in own.axes if axis not in found.dim_of_axis]
    wrong = [dim for dim in x.dims if _axis_at(found, dim) not in own.axes]
    adds_channel = missing == ["c"] and own.channels == 1 and not isinstance(space, ConvNDSpace)
    if wrong or (missing and not adds_channel):
        raise _mismatch(x.dims, own, missing, wrong, n_spatial)
    if adds_channel:
        names = tuple(found.dim_of_axis[axis] for axis in own.axes if axis != "c")
        at = own.axes.index("c")
        data = x.transpose(*names).data[(*(slice(None),) * at, None)]
        return _Reading(x, own, data, (*names[:at], None, *names[at:]), new)
    names = tuple(found.dim_of_axis[axis] for axis in own.axes)
    return _Reading(x, own, x.transpose(*names).data, names, new)


def _read_rows(x: xr.DataArray, own: ArraySpace, there: Names, new: Names) -> _Reading:
    axis = str(own.axis_names()[1])
    found = find_axes(x.dims, _n_spatial(x, there), there)
    if "b" not in found.dim_of_axis:
        raise _mismatch(x.dims, own, ["b"], list(x.dims), 0)
    batch = found.dim_of_axis["b"]
    if x.ndim == 1 and isinstance(own, IndexSpace):
        return _Reading(x, own, x.data[:, None], (batch, None), new)
    row = _row_dim(x, found, axis)
    if row is None:
        wrong = [dim for dim in x.dims if _axis_at(found, dim) not in ("b", axis)]
        raise _mismatch(x.dims, own, [] if axis in found.dim_of_axis else [axis], wrong, 0)
    return _Reading(x, own, x.transpose(batch, row).data, (batch, row), new)


# ---------------------------------------------------------------- names put back
def _moved(reading: _Reading, space: ConvNDSpace, data: Any) -> xr.DataArray:
    dim_of = dict(zip(_axes_shown(reading.own), reading.dims, strict=True))
    order = (dim_of[axis] for axis in space.axes)
    moved = _holding(reading.x.transpose(*order, transpose_coords=False), data)
    moved.encoding = {**moved.encoding, ORDER: [str(dim) for dim in reading.x.dims]}
    return moved


def _rows(reading: _Reading, space: ArraySpace, data: Any) -> xr.DataArray:
    batch, row = reading.dims
    axis = str(space.axis_names()[1])
    if isinstance(reading.own, VectorSpace) == isinstance(space, VectorSpace) and row is not None:
        return _holding(reading.x.transpose(batch, row, transpose_coords=False), data)
    name = reading.new_names.get(axis, name_of(axis, 0))
    along = [key for key, coord in reading.x.coords.items() if row in coord.dims]
    kept = reading.x.drop_vars(along)
    return _array(reading.x, data, (batch, name), kept)


def _flattened(reading: _Reading, data: Any) -> xr.DataArray:
    x, own = reading.x, reading.own
    dim_of = dict(zip(_axes_shown(own), reading.dims, strict=True))
    assert isinstance(own, ConvNDSpace)
    batch, *made = (dim_of[axis] for axis in canonical_axes(len(own.shape)))
    flat = tuple(str(dim) for dim in made if dim is not None)
    feature = str(reading.new_names.get("feature", "feature"))
    if feature in x.coords or feature in x.dims:
        raise DimsError(
            f"the array already has a {feature!r}; name the flattened dim with "
            f"dims={{'feature': 'pixel'}}"
        )
    along = [str(name) for name, coord in x.coords.items() if set(coord.dims) & set(flat)]
    result = _array(x, data, (batch, feature), x.drop_vars(along))
    record = {
        "dim": feature,
        "dims": list(flat),
        "sizes": [x.sizes[dim] for dim in flat],
        "order": [str(dim) for dim in x.dims],
        "coords": {name: [str(dim) for dim in x.coords[name].dims] for name in along},
    }
    stacked = {name: _stacked(x.coords[name].variable, x, flat, feature) for name in along}
    return result.assign_coords(stacked).assign_attrs({RECORD: json.dumps(record)})


def _stacked(
    variable: xr.Variable, x: xr.DataArray, flat: tuple[str, ...], feature: str
) -> xr.Variable:
    others = tuple(dim for dim in variable.dims if dim not in flat)
    sizes = {dim: x.sizes[dim] for dim in (*others, *flat)}
    full: Any = variable.to_base_variable()
    spread = full.set_dims(sizes).transpose(*others, *flat)
    shape = (*(sizes[dim] for dim in others), math.prod(sizes[dim] for dim in flat))
    return xr.Variable((*others, feature), spread.data.reshape(shape), variable.attrs)


def _unflattened(reading: _Reading, space: ConvNDSpace, data: Any) -> xr.DataArray:
    batch, feature = reading.dims
    n_spatial = len(space.shape)
    record = _record_of(reading.x)
    sizes = (*space.shape, space.channels)
    by_axis: dict[Axis, Hashable] = {"b": batch}
    for position, axis in enumerate(canonical_axes(n_spatial)[1:]):
        kept = None if record is None or tuple(record["sizes"]) != sizes else record["dims"]
        known = name_of(axis, n_spatial) if kept is None else kept[position]
        role = reading.new_names.get(name_of(axis, n_spatial), known)
        by_axis[axis] = reading.new_names.get(axis, role)
    made = tuple(str(by_axis[axis]) for axis in canonical_axes(n_spatial)[1:])
    order = tuple(by_axis[axis] for axis in space.axes)
    return _rebuilt(reading.x, feature, made, sizes, record or {}, order, data)


def _rebuilt(
    x: xr.DataArray,
    feature: Any,
    made: tuple[str, ...],
    sizes: tuple[int, ...],
    record: Mapping[str, Any],
    dims: tuple[Hashable, ...],
    data: Any,
) -> xr.DataArray:
    """Return `data` under `dims`, coordinates along `feature` brought back to theirs."""
    along = [str(name) for name, coord in x.coords.items() if feature in coord.dims]
    result = _array(x, data, dims, x.drop_vars(along))
    result.attrs.pop(RECORD, None)
    before = record.get("coords", {}) if tuple(record.get("dims", ())) == made else {}
    restored: dict[str, xr.Variable] = {}
    for name in along:
        if name == feature:
            continue
        full = x.coords[name].variable.to_base_variable()
        full = full.unstack({feature: dict(zip(made, sizes, strict=True))})
        its_own = before.get(name, list(full.dims))
        first = full.isel({dim: 0 for dim in full.dims if dim not in its_own})
        restored[name] = first.transpose(*its_own)
    return result.assign_coords(restored)


def _array(
    x: xr.DataArray, data: Any, dims: tuple[Hashable, ...], kept: xr.DataArray
) -> xr.DataArray:
    """Return `data` with the name, attributes and coordinates of `x` that still apply."""
    return xr.DataArray(data, coords=kept.coords, dims=dims, name=x.name, attrs=x.attrs)


def _holding(x: xr.DataArray, data: Any) -> xr.DataArray:
    """Return `x` with other data; also where a length is not known, so that none are compared."""
    held = _array(x, data, x.dims, x)
    held.encoding = dict(x.encoding)
    return held


def _record_of(x: xr.DataArray) -> dict[str, Any] | None:
    text = x.attrs.get(RECORD)
    if text is None:
        return None
    record: dict[str, Any] = json.loads(text)
    total = math.prod(record["sizes"])
    if record["dim"] not in x.dims or x.ndim != 2 or x.sizes[record["dim"]] != total:
        raise DimsError(
            f"the array has lengths {dict(x.sizes)}, but its record says that "
            f"{record['dim']!r} is made of {record['dims']} of lengths {record['sizes']}; "
            f"undo the flattening before selecting from it"
        )
    return record


# ---------------------------------------------------------------- composites
def _format_composite(
    x: xr.DataArray, space: CompositeSpace, dims: Names | None, own: Space | None
) -> tuple[Any, ...]:
    """Cut the columns of a flattened array left to right."""
    flat = format_dataarray(x, VectorSpace(space.get_total_dimension()), dims=dims, own=own)
    batch, feature = flat.dims
    flat.attrs.pop(RECORD, None)
    parts: list[Any] = []
    start = 0
    for part in space.components:
        if isinstance(part, NullSpace):
            parts.append(None)
            continue
        stop = start + part.get_total_dimension()
        piece = flat.isel({feature: slice(start, stop)})
        parts.append(format_dataarray(piece, part, dims={"b": batch, "feature": feature}))
        start = stop
    return tuple(parts)


# ---------------------------------------------------------------- what spaces call
class _DataArrays:
    """DataArrays as batches of a space."""

    def data_of(self, x: Any, space: Any, branch: str) -> Any:
        try:
            return _read(x, space, None, space).data
        except DimsError as error:
            raise DimsError(f"{title(space, branch)}{error}") from error

    def named(self, data: Any, space: Any, dims: Any) -> Any:
        n_spatial = len(space.shape) if isinstance(space, ConvNDSpace) else 0
        given = {} if dims is None else dims
        names = [given.get(axis, name_of(axis, n_spatial)) for axis in space.axis_names()]
        return xr.DataArray(data, dims=names)

    def convert(self, x: Any, source: Any, target: Any, branch: str) -> Any:
        return format_dataarray(x, target, own=source)


serve_named_batches(_DataArrays())
