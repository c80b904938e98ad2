"""``xr.open_dataset(path, engine="labeled")``: the same datasets through xarray's own function.

The engine gives xarray lazily indexed arrays of stored values. xarray decodes them, keeps what
was read, and makes dask arrays where `chunks` is given, as with every engine of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import xarray as xr
from xarray.backends import AbstractDataStore, BackendEntrypoint, StoreBackendEntrypoint
from xarray.core.indexing import LazilyIndexedArray

from labeled.dataset.dataset import Dataset
from labeled.dataset.opening import open_dataset
from labeled.dataset.to_xarray import LazyArray, along_dims, arrays_of, stored_along, stored_rows
from labeled.errors import LoaderError
from labeled.formats.header import DEFLATE, FLETCHER32, SHUFFLE, is_text
from labeled.selection import Request

SUFFIX = ".labeled.h5"

# what xarray asks of an engine by these names, and what its own decoding takes
DECODERS = (
    "drop_variables",
    "mask_and_scale",
    "decode_times",
    "concat_characters",
    "decode_coords",
    "use_cftime",
    "decode_timedelta",
)


class LabeledBackendEntrypoint(BackendEntrypoint):
    """Files of examples: dims from labels and scales, splits and subsets."""

    description = "Files of examples, with dims from labels, splits and subsets"
    open_dataset_parameters = ("filename_or_obj", *DECODERS)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        which_sets: str | Sequence[str] | None = None,
        subset: Request | None = None,
        **options: Any,
    ) -> xr.Dataset:
        """Open files as a lazy xarray.Dataset; see :func:`labeled.open_dataset`.

        xarray makes an index of the coordinate of every dim, for which it reads that
        of the example dim too; ``create_default_indexes=False`` leaves a long one lazy (see
        :func:`labeled.open_dataset`).

        Parameters
        ----------
        filename_or_obj : path or list of paths
            Several files are joined along the example dim.
        which_sets : str or sequence of str, optional
            Splits, joined in this order; every row by default.
        subset : slice, integers or boolean mask, optional
            Rows among those of the splits.
        **options
            As for :func:`labeled.open_dataset`, but `chunks` and `decode_cf`, which are
            xarray's; and its decoders, as for :func:`xarray.open_dataset`.

        Raises
        ------
        LoaderError
            If files that are packed in different ways are to be decoded in part.
        """
        decoders = {name: options.pop(name) for name in DECODERS if name in options}
        ways = [decoders.get(name, True) for name in ("mask_and_scale", "decode_times")]
        stored = ways == [False, False]
        dataset = open_dataset(filename_or_obj, decode_cf=not stored, **options)
        if which_sets is not None:
            dataset = dataset.split(*([which_sets] if isinstance(which_sets, str) else which_sets))
        if subset is not None:
            dataset = dataset.subset(subset)
        store = _Store(dataset, in_part=not (stored or all(ways)))
        opened = StoreBackendEntrypoint().open_dataset(store, **decoders)
        named = decoders.get("decode_coords", True)
        return opened.set_coords(store.coords & opened.variables.keys() if named else ())

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Claim only files whose name says so; any other HDF5 file is xarray's own."""
        path = filename_or_obj
        return isinstance(path, str | os.PathLike) and os.fspath(path).endswith(SUFFIX)


class _Store(AbstractDataStore):
    """The stored values and attributes of a dataset, as xarray asks for them."""

    def __init__(self, dataset: Dataset, in_part: bool) -> None:
        self._dataset, arrays = dataset, arrays_of(dataset)
        self._arrays, self.coords = {**arrays.others, **arrays.sources}, set(arrays.coords)
        for name, array in self._arrays.items():
            if in_part and array.source.packed_differently:
                raise LoaderError(
                    f"source {name!r} of {dataset.where} is packed differently from file to file: "
                    "open it with decode_cf=True or decode_cf=False, or the files apart"
                )
            self._arrays[name] = replace(array, source=array.source.as_stored())

    def get_variables(self) -> dict[str, xr.Variable]:
        chunked = [one for one in self._arrays.values() if one.source.stored_chunks is not None]
        chunks, variables = along_dims(chunked, _stored_chunks), {}
        for name, array in self._arrays.items():
            preferred = {at[0]: chunks[at] for at in array.lengths if at in chunks}
            encoding = _encoding(array) | ({"preferred_chunks": preferred} if preferred else {})
            lazy, attrs = LazilyIndexedArray(array), dict(array.source.attrs)
            variables[name] = xr.Variable(array.dims, lazy, attrs, encoding)
        return variables

    def get_attrs(self) -> dict[str, Any]:
        return self._dataset.attrs

    def get_encoding(self) -> dict[str, Any]:
        dim = self._dataset.files.known.headers[0].example_dim
        return {} if dim is None else {"unlimited_dims": {dim}}


def _stored_chunks(array: LazyArray) -> tuple[Any, ...]:
    return stored_rows(array.source, array.rows), *stored_along(array.source)[1:]


def _encoding(array: LazyArray) -> dict[str, Any]:
    """Return how a variable of one HDF5 file is stored, in the words of engine="h5netcdf"."""
    first, *others = array.source.headers
    if others or first.format != "hdf5":
        return {"dtype": str} if is_text(first.dtype) else {}
    steps = {step.id for step in first.filters}
    encoding: dict[str, Any] = {
        "dtype": str if is_text(first.dtype) else first.dtype,
        "contiguous": first.chunks is None,
        "chunksizes": first.chunks,
        "source": first.file.path,
        "original_shape": first.shape,
        **dict.fromkeys(("zlib", "szip", "bzip2", "blosc", "zstd"), False),
        "shuffle": SHUFFLE in steps,
        "fletcher32": FLETCHER32 in steps,
    }
    for step in first.filters:
        if step.id == DEFLATE and step.options:
            encoding |= {"zlib": True, "complevel": step.options[0]}
        elif step.words == "lzf":
            encoding |= {"compression": "lzf", "compression_opts": None}
    return encoding
