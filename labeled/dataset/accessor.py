"""``.labeled`` on xarray objects: spaces for labelled arrays, batches for any dask-backed one.

Where an array is, its data decide. Coordinates stay on the host, where xarray needs those that
are indexes. A lazy array moves lazily: its blocks go to the device when they are computed,
wherever that is, so the machine that asks needs no GPU of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, wraps
from inspect import getdoc
from typing import Any, ParamSpec

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled._validation import check_arguments
from labeled.dataset.dataset import Dataset, spaces_of
from labeled.device import adopted, device_number, has_dlpack, is_array, is_cupy, on_gpus, to_device
from labeled.errors import ArrayError, DimsError, LoaderError, MissingExtraError, did_you_mean
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions
from labeled.loader.plan import LoaderPlan
from labeled.selection import Selection
from labeled.sources.source import Source
from labeled.spaces import Space, format_dataarray, space_of, undo_format

P = ParamSpec("P")


def _describes_options(call: Callable[P, Loader]) -> Callable[P, Loader]:
    """Let a docstring describe the options of :meth:`labeled.Dataset.batches`."""
    _, _, options = (getdoc(Dataset.batches) or "").partition("\nshuffle : ")
    options, _, _ = options.partition("\n\nReturns\n")
    call.__doc__ = (getdoc(call) or "").replace("**options\n", f"shuffle : {options}\n")
    return call


@check_arguments(LoaderError, but=("layout", "sampler"), options=BatchOptions(1))
@_describes_options
def batches(
    obj: xr.Dataset | xr.DataArray | Mapping[str, Any] | Any,
    batch_size: int | None = None,
    *,
    dim: str = "batch",
    **options: object,
) -> Loader:
    """Make a loader over any xarray object, or over arrays, along one dim.

    Whole dask blocks are computed, each once per epoch, and windows follow the coarsest chunks.
    `memory` bounds the blocks that are held; what dask needs to compute one comes on top.

    Parameters
    ----------
    obj : xarray.Dataset, DataArray, array, mapping of name to array, or pandas.DataFrame
        Dask-backed or in memory. Of a Dataset, the data variables that have `dim`. Plain arrays,
        also of libraries with DLPack such as torch, have `dim` first; they are not copied.
    batch_size : int
        Rows per batch. Leave it out with `sampler`.
    dim : str
        The example dim.
    **options

    Returns
    -------
    Loader
        Batches with `dim` first in every variable.

    Raises
    ------
    DimsError
        If no variable has the dim, or arrays differ in length.
    ArrayError
        If a value is not an array.
    OptionError
        If an option does not exist.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> steps = xr.DataArray(np.arange(12.0).reshape(6, 2), dims=("time", "x"), name="t")
    >>> [batch["t"].shape for batch in batches(steps.chunk(time=3), 4, dim="time")]
    [(4, 2), (2, 2)]
    """
    asked = BatchOptions(batch_size, **options)  # type: ignore[arg-type]  # checked above
    obj = _as_dataset(obj, dim)
    found = [name for name, array in obj.data_vars.items() if dim in array.dims]
    if not found:
        dims = [str(name) for name in obj.dims]
        hint = f"say dim=, one of {dims}" if dim == "batch" else did_you_mean(dim, dims)
        raise DimsError(f"no variable has a dim {dim!r} to make batches along; {hint}")
    sources = {str(name): _source(obj[name], dim, str(name)) for name in found}
    n_rows = int(obj.sizes[dim])
    rows = dict.fromkeys(sources, Selection.all(n_rows))
    return Loader(LoaderPlan(sources, rows, spaces_of(sources, rows, {}), n_rows, asked))


def _source(array: xr.DataArray, dim: str, name: str) -> Source:
    """Return what the loader reads: numbers in memory as they lie there, else dask blocks."""
    dtype: Any = array.dtype
    if not isinstance(dtype, np.dtype):
        from labeled.writing.tables import as_numpy  # takes long to import, and few need it

        array = as_numpy(name, array)
    if not isinstance(array.variable._data, np.ndarray) or array.dtype.kind not in "biufc":
        return Source.of_lazy(array, dim, name)
    turned = array.transpose(dim, ...)
    return Source.of_array(name, tuple(map(str, turned.dims)), turned.values)


def _as_dataset(obj: Any, dim: str) -> xr.Dataset:
    """Return arrays as variables of a Dataset; those without names have `dim` first."""
    if isinstance(obj, xr.Dataset):
        return obj
    if isinstance(obj, xr.DataArray):
        return obj.to_dataset(name="data" if obj.name is None else obj.name)
    if isinstance(obj, str | os.PathLike):
        raise ArrayError(f"{os.fspath(obj)!r} is a path; open it first: labeled.open_dataset(path)")
    from labeled.writing.tables import frame_sources, is_frame

    if is_frame(obj):
        obj = frame_sources(obj)
    arrays = obj if isinstance(obj, Mapping) else {"data": obj}
    variables = {str(name): _variable(str(name), one, dim) for name, one in arrays.items()}
    lengths = {name: one.sizes[dim] for name, one in variables.items() if dim in one.dims}
    if len(set(lengths.values())) > 1:
        raise DimsError(f"different numbers of rows along {dim!r}: {lengths}; pass equal lengths")
    return xr.Dataset(variables)


def _variable(name: str, array: Any, dim: str) -> xr.Variable:
    if isinstance(array, xr.DataArray | xr.Variable):
        return array.variable if isinstance(array, xr.DataArray) else array
    if has_dlpack(array):
        array = adopted(array)
    if not (is_array(array) or is_dask_collection(array)) or array.ndim == 0:
        raise ArrayError(
            f"{name!r} is {type(array).__name__}; batches are made of arrays with an axis of "
            "examples: NumPy's, dask's, xarray's, or any with __dlpack__"
        )
    return xr.Variable((dim, *(f"{name}_axis_{i}" for i in range(1, array.ndim))), array)


class _Accessor:
    """:func:`labeled.batches` as a method of what xarray has."""

    def __init__(self, xarray_object: Any) -> None:
        self._object = xarray_object

    @wraps(batches)
    def batches(self, *args: Any, **options: Any) -> Loader:
        return batches(self._object, *args, **options)


@xr.register_dataset_accessor("labeled")
class LabeledDataset(_Accessor):
    """The accessor ``.labeled`` of xarray Datasets: :func:`labeled.batches` as a method."""


@xr.register_dataarray_accessor("labeled")
class LabeledArray(_Accessor):
    """Lay a labelled array out for a space, and serve it in batches."""

    _object: xr.DataArray

    @property
    def space(self) -> Space:
        """The space that this array's dims and dtype say it is in."""
        a = self._object
        return space_of(tuple(map(str, a.dims)), a.shape, a.dtype, name=str(a.name))

    def format_as(self, space: Space, *, dims: Mapping[Any, str] | None = None) -> xr.DataArray:
        """Lay the array out for `space`, finding its axes by name.

        Parameters
        ----------
        space : Space
            What the result must look like.
        dims : mapping of axis to dim name, optional
            Where names differ from batch/channel/height/width: ``{"b": "time"}``.

        Returns
        -------
        xarray.DataArray
            Lazy if this array is; a transpose is a view.

        Raises
        ------
        DimsError
            If a dim is missing, or one is there that the space does not know.
        SpaceError
            If the lengths do not fit.
        """
        return format_dataarray(self._object, space, dims=dims)

    def to_device(self, device: str) -> xr.DataArray:
        """Return the array with its data on a device; coordinates stay where they are.

        Parameters
        ----------
        device : "cpu", "cuda" or "cuda:<n>"

        Returns
        -------
        xarray.DataArray
            Lazy if this array is: blocks go there where and when they are computed.

        Raises
        ------
        LoaderError
            If `device` is not the name of a device, or the data is neither numbers nor booleans.
        MissingExtraError
            If CuPy is needed and not installed: at once, or where lazy blocks are computed.
        """
        array = self._object
        if device != "cpu":
            device_number(device)
            if not on_gpus(array.dtype):
                raise LoaderError(f"{array.name!r} holds {array.dtype}, which a GPU cannot hold")
        data = array.data
        if not is_dask_collection(data):
            return array.copy(deep=False, data=to_device(data, device))
        dtype = data.dtype if device == "cpu" else data.dtype.newbyteorder("=")  # as on a GPU
        meta = np.empty((0,) * data.ndim, dtype)
        # without a GPU none of CuPy's can be made, and NumPy's stand for them
        with suppress(MissingExtraError, LoaderError):
            meta = to_device(meta, device)
        data = data.map_blocks(partial(to_device, device=device), dtype=dtype, meta=meta)
        return array.copy(deep=False, data=data)

    @property
    def device(self) -> str:
        """Where the data is: "cpu", "cuda:0"; of a lazy array, where it will be if that is known.

        A lazy array that was moved to a GPU on a machine that has none says "cpu".
        """
        data = self._object.data
        data = data._meta if is_dask_collection(data) else data
        if is_cupy(data):
            return f"cuda:{data.device.id}"
        return "cpu" if isinstance(data, np.ndarray) else str(getattr(data, "device", "cpu"))

    def undo_format_as(self) -> xr.DataArray:
        """Return the array as it was before :meth:`format_as`: dims, order and coordinates."""
        return undo_format(self._object)
