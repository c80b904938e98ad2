"""DataArrays: axes found by name, and what is needed to come back kept along.

`format_dataarray` finds, by the table of :mod:`labeled.dims`, which dim of a DataArray
plays which axis, hands the plain data to the ordinary conversion, and puts names and
coordinates back. Moving axes is a transpose. Flattening makes a dim ``feature``:
coordinates along the flattened dims become coordinates along it (as xarray's
``stack`` without an index makes them). What is kept to come back again, and how, is
written down in :mod:`labeled.spaces.records`.

The time of a sequence plays the part of its batch: it is found as the dim ``time``, or
given as ``dims={"time": ...}``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from labeled.device import concat
from labeled.dims import ROLES, SPATIAL, Axis, Found, find_axes, name_of, role_of
from labeled.errors import DimsError, SpaceTypeError
from labeled.spaces.arrays import canonical_axes, compact, is_dask
from labeled.spaces.base import ArraySpace, Space, title
from labeled.spaces.kinds import (
    CompositeSpace,
    ConvNDSpace,
    IndexSequenceSpace,
    IndexSpace,
    LabelSpace,
    NullSpace,
    SequenceSpace,
    VectorSequenceSpace,
    VectorSpace,
)
from labeled.spaces.records import RECORD, array_of, flattened, record_of, remember, unstacked
from labeled.spaces.routes import lazy_concat

Names = Mapping[Axis, Hashable]
KEYS = {"b", "c", "time", *ROLES}
"""What ``dims=`` may call an axis, besides its number."""


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
        The space of `x`, where its dims and dtype do not determine it (the number of labels).
    contiguous : bool
        Whether data must be C-contiguous; it is copied where it is not.

    Returns
    -------
    DataArray, or a tuple of them for a `CompositeSpace`
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
    if isinstance(space, CompositeSpace):
        parts = _format_composite(x, space, dims, own)
        return compact(parts) if contiguous else parts
    _check_target(space)
    assert isinstance(space, ArraySpace)
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


def _check_target(space: Any) -> None:
    if not isinstance(space, Space):
        raise SpaceTypeError(f"the target must be a space, found {space!r}")
    if not isinstance(space, ArraySpace):
        raise SpaceTypeError(f"{space}: a DataArray is not laid out for such a space")
    if isinstance(space, VectorSpace) and space.sparse:
        raise SpaceTypeError(
            f"{space}: a DataArray holds no scipy sparse array; lay out its data instead: "
            "space.format_as(x.data, ...)"
        )


# ---------------------------------------------------------------- reading a DataArray
def _read(x: xr.DataArray, space: Space, dims: Names | None, own: Space | None = None) -> _Reading:
    there, new = _split_names(x, dims)
    if isinstance(space if own is None else own, SequenceSpace):
        there = _time_as_batch(x, space, there)
    if own is None:
        own = _own_space(x, space, there)
    added: list[Axis] = []  # an axis of length 1 that x may lack
    if isinstance(own, ConvNDSpace):
        n_spatial, axes = len(own.shape), tuple(own.axes)
        found = find_axes(x.dims, n_spatial, there)
        names = [found.dim_of_axis.get(axis) for axis in axes]
        if own.channels == 1 and not isinstance(space, ConvNDSpace):
            added = ["c"]
    elif isinstance(own, VectorSpace | VectorSequenceSpace | LabelSpace):
        n_spatial, axes = 0, ("b", own.axis_names()[1])
        found = find_axes(x.dims, _n_spatial(x, there), there)
        row = _row_dim(x, found, axes[1])
        names = [found.dim_of_axis.get("b"), found.dim_of_axis.get(axes[1]) if row is None else row]
        if x.ndim == 1 and isinstance(own, LabelSpace):
            added = [axes[1]]
    else:
        raise SpaceTypeError(f"{own}: a DataArray is not a batch of such a space")
    missing = [axis for axis, name in zip(axes, names, strict=True) if name is None]
    wrong = [dim for dim in x.dims if dim not in names]
    if wrong or (missing and missing != added):
        raise _mismatch(x.dims, own, missing, wrong, n_spatial)
    data = x.transpose(*[name for name in names if name is not None]).data
    if missing:
        data = data[(*(slice(None),) * axes.index(missing[0]), None)]
    return _Reading(x, own, data, tuple(names), new)


def _time_as_batch(x: xr.DataArray, space: Space, there: Names) -> Names:
    """Let the time of a sequence, which counts its rows, play the part of the batch."""
    others = {axis: dim for axis, dim in there.items() if axis != "time"}
    time = there.get("time", "time")
    if time not in x.dims:
        raise DimsError(
            f"the array has dims {x.dims}, {space} has axes {_axes_shown(space)}; no dim is the "
            f"time. Say which, e.g. with dims={{'time': {x.dims[0] if x.dims else 'time'!r}}}"
        )
    return {**others, "b": time}


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
    """Return what `x` is, as far as the target space and its own dims show."""
    labels = x.dtype.kind in "iu" and not isinstance(space, ConvNDSpace)
    found = find_axes(x.dims, _n_spatial(x, there), there)
    sequence = isinstance(space, SequenceSpace)
    if labels and (x.ndim == 1 or "index" in found.dim_of_axis):
        count = 1 if x.ndim == 1 else x.sizes[found.dim_of_axis["index"]]
        return IndexSequenceSpace(None, count) if sequence else IndexSpace(None, count)
    row = _row_dim(x, found, "feature")
    if row is not None:
        return VectorSequenceSpace(x.sizes[row]) if sequence else VectorSpace(x.sizes[row])
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
    return DimsError(f"{'; '.join(parts)}. {_remedy(dims, space, missing, wrong, n_spatial)}")


def _remedy(
    dims: tuple[Hashable, ...],
    space: Space,
    missing: list[Axis],
    wrong: list[Hashable],
    n_spatial: int,
) -> str:
    """Say what would make the dims fit, or nearly."""
    if len(wrong) > 1 and not isinstance(space, ConvNDSpace) and not {"b", "c"} & {*missing}:
        flat = dict(enumerate(dim for dim in dims if dim in wrong))
        return f"Say which is which, e.g. with dims={flat} to flatten them in this order"
    if wrong and missing:
        return f"Say which is which, e.g. with dims={{{missing[0]!r}: {wrong[0]!r}}}"
    if missing == ["feature"] and getattr(space, "dim", 1) > 1:
        return "Labels must be integers to become indicators; cast them first, with x.astype(int)"
    if missing:
        return f"Add it, e.g. with x.expand_dims({name_of(missing[0], n_spatial)!r})"
    return f"Choose from it, e.g. with x.isel({wrong[0] if wrong else '...'}=0)"


def _axes_shown(space: Space) -> tuple[Any, ...]:
    return space.axis_names() if isinstance(space, ArraySpace) else ()


# ---------------------------------------------------------------- names put back
def _moved(reading: _Reading, space: ArraySpace, data: Any) -> xr.DataArray:
    x = reading.x
    dim_of = dict(zip(_axes_shown(reading.own), reading.dims, strict=True))
    order = [dim_of[axis] for axis in space.axis_names()]
    made = array_of(x, data, order, x.transpose(*order, transpose_coords=False))
    return remember(made, x, reading.own, reading.dims, space)


def _rows(reading: _Reading, space: ArraySpace, data: Any) -> xr.DataArray:
    x, (batch, row) = reading.x, reading.dims
    alike = isinstance(reading.own, LabelSpace) == isinstance(space, LabelSpace)
    if alike and row is not None:
        return _moved(reading, reading.own, data)
    axis = str(space.axis_names()[1])
    along = [key for key, coord in x.coords.items() if row in coord.dims]
    name = reading.new_names.get(axis, name_of(axis, 0))
    made = array_of(x, data, (batch, name), x.drop_vars(along))
    return remember(made, x, reading.own, reading.dims, space) if alike else made


def _flattened(reading: _Reading, data: Any) -> xr.DataArray:
    own = reading.own
    assert isinstance(own, ConvNDSpace)
    dim_of = dict(zip(own.axes, reading.dims, strict=True))
    batch, *made = (dim_of[axis] for axis in canonical_axes(len(own.shape)))
    feature = str(reading.new_names.get("feature", "feature"))
    return flattened(reading.x, data, batch, [dim for dim in made if dim is not None], feature)


def _unflattened(reading: _Reading, space: ConvNDSpace, data: Any) -> xr.DataArray:
    batch, feature = reading.dims
    axes = canonical_axes(len(space.shape))[1:]
    record = record_of(reading.x)
    if record is not None and tuple(record["sizes"]) != (*space.shape, space.channels):
        record = None
    by_axis: dict[Axis, Hashable] = {"b": batch}
    for position, axis in enumerate(axes):
        role = name_of(axis, len(space.shape))
        known = role if record is None else record["dims"][position]
        by_axis[axis] = reading.new_names.get(axis, reading.new_names.get(role, known))
    made = tuple(str(by_axis[axis]) for axis in axes)
    if record is not None and tuple(record["dims"]) != made:
        record = None
    order = tuple(by_axis[axis] for axis in space.axes)
    images = unstacked(reading.x, data, order, feature, made, record)
    return remember(images, reading.x, reading.own, reading.dims, space)


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
        made = format_dataarray(piece, part, dims={"b": batch, "feature": feature})
        _forget(made)
        parts.append(made)
        start = stop
    return tuple(parts)


def _forget(made: Any) -> None:
    """Take away what would lead a part back to its piece of the rows: they are not arrays of x."""
    for part in made if isinstance(made, tuple) else (made,):
        if isinstance(part, tuple):
            _forget(part)
        elif part is not None:
            part.encoding.clear()


def joined(pieces: list[Any], who: str) -> xr.DataArray:
    """Return rows joined along the features, with the names of the first that has any."""
    named = [piece for piece in pieces if isinstance(piece, xr.DataArray)]
    batch, feature = named[0].dims
    indexes = [one.indexes[one.dims[0]] for one in named if one.dims[0] in one.indexes]
    if any(not index.equals(indexes[0]) for index in indexes[1:]):
        raise DimsError(f"{who}the components label their rows differently along {batch!r}")
    data = [one.data if isinstance(one, xr.DataArray) else one for one in pieces]
    joined = lazy_concat(data) if any(map(is_dask, data)) else concat(data, axis=1)
    along = [name for name, coord in named[0].coords.items() if feature in coord.dims]
    coords = dict(named[0].drop_vars(along).coords)
    for name in along if len(named) == len(pieces) else ():
        found = [one.coords[name].variable for one in named if name in one.coords]
        if len(found) == len(named) and all(one.dims == (feature,) for one in found):
            coords[name] = xr.Variable.concat([one.to_base_variable() for one in found], feature)
    return xr.DataArray(joined, coords=coords, dims=(batch, feature)).rename(None)


# ---------------------------------------------------------------- what spaces call
def data_of(x: xr.DataArray, space: Space, branch: str) -> Any:
    """Return the data of `x` with its axes in the order of `space`."""
    try:
        return _read(x, space, None, space).data
    except DimsError as error:
        raise DimsError(f"{title(space, branch)}{error}") from error


def named(data: Any, space: ArraySpace, dims: Names) -> xr.DataArray:
    """Return `data`, a batch of `space`, as a DataArray; `dims` names axes beyond the table."""
    n_spatial = len(space.shape) if isinstance(space, ConvNDSpace) else 0
    names = [dims.get(axis, name_of(axis, n_spatial)) for axis in space.axis_names()]
    return xr.DataArray(data, dims=names)
