"""``xr.open_dataset(path, engine="labeled")``: the same datasets through xarray's door."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint

from labeled.api.opening import open_dataset
from labeled.catalog.source import Io
from labeled.errors import FileFormatError
from labeled.selection import Request

SUFFIX = ".labeled.h5"


class LabeledBackendEntrypoint(BackendEntrypoint):
    """HDF5 files of examples: dims from labels and scales, splits and subsets."""

    description = "HDF5 files of examples, with dims from labels, splits and subsets"
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "which_sets",
        "subset",
        "sources",
        "dims",
        "example_dim",
        "group",
        "io",
        "decode_cf",
        "allow_external",
    )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        which_sets: str | Sequence[str] | None = None,
        subset: Request | None = None,
        sources: Sequence[str] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        example_dim: str | None = None,
        group: str | None = None,
        io: Io = "auto",
        decode_cf: bool = True,
        allow_external: bool = False,
        mask_and_scale: bool | None = None,
        decode_times: bool | None = None,
        concat_characters: bool | None = None,
        decode_coords: bool | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: bool | None = None,
    ) -> xr.Dataset:
        """Open a file as a lazy xarray.Dataset; see :func:`labeled.open_dataset`.

        Parameters
        ----------
        which_sets : str or sequence of str, optional
            Splits, joined in this order; every row by default.
        subset : slice, integers or boolean mask, optional
            Rows among those of the splits.
        drop_variables : str or iterable of str, optional
            Variables to leave out.
        """
        if not isinstance(filename_or_obj, str | os.PathLike):
            raise FileFormatError(
                f"engine 'labeled' opens paths, not {type(filename_or_obj).__name__}"
            )
        dataset = open_dataset(
            filename_or_obj,
            sources=sources,
            dims=dims,
            example_dim=example_dim,
            group=group,
            io=io,
            decode_cf=decode_cf,
            allow_external=allow_external,
        )
        if which_sets is not None:
            names = (which_sets,) if isinstance(which_sets, str) else tuple(which_sets)
            dataset = dataset.split(*names)
        if subset is not None:
            dataset = dataset.subset(subset)
        opened = dataset.to_xarray()
        dropped = (
            [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
        )
        return opened.drop_vars(dropped, errors="ignore")

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Claim only files whose name says so; any other HDF5 file is xarray's own."""
        return isinstance(filename_or_obj, str | os.PathLike) and os.fspath(
            filename_or_obj
        ).endswith(SUFFIX)
