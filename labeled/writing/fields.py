"""Structured arrays given to be written: each field becomes a source of its own.

A table ``{"events": array with fields energy and at}`` is written as the sources
``events/energy`` and ``events/at``: what a table that lies in a file of other programs is
opened as. HDF5 could hold the table as one dataset; fields of their own are named by splits,
compressed by what is in them, and read without the other fields.

Nothing is computed or copied here: a field is a view, of lazy arrays a lazy one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled.errors import ArrayError
from labeled.formats.region import Array
from labeled.writing.given import Passing


def with_fields(sources: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return sources with the fields of structured ones in place of these.

    Raises
    ------
    ArrayError
        If a field and another source have one name.

    Examples
    --------
    >>> table = np.zeros(3, [("energy", "f4"), ("at", [("x", "i2"), ("y", "i2", (2,))])])
    >>> {name: field.shape for name, field in with_fields({"events": table}).items()}
    {'events/energy': (3,), 'events/at/x': (3,), 'events/at/y': (3, 2)}
    """
    if not any(map(_names, sources.values())):
        return sources
    out: dict[str, Any] = {}
    for name, value in sources.items():
        fields = _names(value)
        if fields:
            made = with_fields({f"{name}/{each}": _field(value, each) for each in fields})
        else:
            made = {name: value}
        for each in made:
            if each in out:
                raise ArrayError(
                    f"there is a source {each!r} twice, once as a field of a structured array; "
                    f"rename one"
                )
        out |= made
    return out


def dims_of_fields(
    dims: Mapping[str, Sequence[str | None]], sources: Mapping[str, Any], whole: Mapping[str, Any]
) -> dict[str, Sequence[str | None]]:
    """Return names of axes where those of a structured source count for all its fields.

    Parameters
    ----------
    dims : mapping of source to names
    sources : mapping
        As they were given.
    whole : mapping
        What :func:`with_fields` made of them.
    """
    out = dict(dims)
    for name in dims:
        if name in sources and _names(sources[name]):
            names = out.pop(name)
            for each, field in whole.items():
                if each.startswith(f"{name}/"):
                    more = (None,) * (len(field.shape) - len(sources[name].shape))
                    out.setdefault(each, (*names, *more))
    return out


def _names(value: Any) -> tuple[str, ...]:
    """Return the fields of an array; none where it is no structured one."""
    dtype = getattr(value, "dtype", None)
    return (dtype.names or ()) if isinstance(dtype, np.dtype) else ()


def _field(value: Any, name: str) -> Any:
    if isinstance(value, xr.Variable):
        value = xr.DataArray(value)
    if isinstance(value, xr.DataArray):
        data = _field(value.data, name)
        dims = (*value.dims, *(f"{name}_axis_{i}" for i in range(1, data.ndim - value.ndim + 1)))
        return xr.DataArray(data, value.coords, dims, attrs=value.attrs)
    if isinstance(value, np.ndarray) or is_dask_collection(value):
        return value[name]
    if isinstance(value, Passing):
        part, begin = value.dtype[name], value.begin
        shape = (*value.shape, *part.shape)
        return Passing(part.base, shape, lambda rows: (block[name] for block in begin(rows)))
    return _Field(value, name)


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    """A field of something with dtype, shape and slices that is no array yet."""

    whole: Any
    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        base: np.dtype[Any] = self.whole.dtype[self.name].base
        return base

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.whole.shape, *self.whole.dtype[self.name].shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> Array:
        field: Array = np.asarray(self.whole[rows])[self.name]
        return field
