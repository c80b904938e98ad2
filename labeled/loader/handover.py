"""Batches handed over: the same nest, of another library's arrays.

Libraries that have no arrays for a source are refused here, before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr

from labeled.device import HandOff, dtype_of, is_array
from labeled.errors import LoaderError, warn
from labeled.loader.batch import Batch
from labeled.loader.layout import BatchLayout
from labeled.loader.options import BatchOptions


def map_nest(data: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same nest of mappings, tuples and lists, with everything in it changed."""
    if isinstance(data, Mapping):
        return {name: map_nest(one, change) for name, one in data.items()}
    if isinstance(data, tuple | list):
        made = [map_nest(one, change) for one in data]
        return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
    return change(data)


class HandedOver:
    """Turns what a loader makes into the same nest of another library's arrays.

    What a pipeline makes is not known before: without `layout` every array of numbers is
    handed over that is met.

    Raises
    ------
    LoaderError
        If the library has no dtype for a source, or no such arrays.

    Warns
    -----
    LabeledWarning
        If the library makes narrower numbers of a source.
    """

    def __init__(self, options: BatchOptions, layout: BatchLayout | None) -> None:
        self.as_tuple = options.as_tuple
        specs = None if layout is None else layout.specs
        if self.as_tuple and specs is not None:
            raise LoaderError("as_tuple=True: batches are nested as specs= asks; leave one out")
        if options.output is None and options.pinned:
            raise LoaderError("pinned=True goes with output='torch'")
        self.to = to = HandOff(options.output or "numpy", options.pinned)
        if specs is not None and specs.sparse and to.library != "numpy":
            raise LoaderError(f"output={to.library!r}: sparse batches are scipy's; make them dense")
        for name, dtype in () if layout is None else layout.out_dtypes.items():
            found = to.dtype(dtype)
            if found is None:
                what = "text" if dtype.kind in "OSU" else str(dtype)
                cast = "" if dtype.kind in "OSUmM" else ", or give a dtype= such as 'float32'"
                raise LoaderError(
                    f"source {name!r} is {what}, of which {to.library} makes no arrays; leave it "
                    f"out with select(), make numbers of it with pipeline={{{name!r}: ...}}{cast}"
                )
            if found.itemsize < dtype.itemsize:
                warn(
                    f"{to.library} makes {found} of source {name!r}, which is {dtype}, and does "
                    f"not look whether values fit: give dtype={{{name!r}: {str(found)!r}}}, which "
                    "does, or turn 64 bits on there"
                )

    def __call__(self, data: Any) -> Any:
        """Return a batch with arrays of the library; `as_tuple` makes a tuple of a mapping.

        A pipeline that makes something else of one source leaves the others labelled.
        """
        if isinstance(data, Batch) and self.to.library == "numpy":
            made: Any = dict(data.arrays)
        else:
            made = map_nest(data.arrays if isinstance(data, Batch) else data, self._handed)
        return tuple(made.values()) if self.as_tuple and isinstance(made, dict) else made

    def _handed(self, data: Any) -> Any:
        """Return an array as one of the library; other values stay as they are."""
        data = data.data if isinstance(data, xr.DataArray) else data
        if not is_array(data) or self.to.library == "numpy":
            return data
        if dtype_of(data).kind == "O":
            return [map_nest(example, self._handed) for example in data]
        return self.to(data) if dtype_of(data).kind in "biufc" else data
