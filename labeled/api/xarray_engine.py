"""``xr.open_dataset(path, engine="labeled")``: the same datasets through xarray's door.

xarray keeps its own ``decode_cf=`` to itself and tells a backend only of the single
decoders, each set to False; so all of them are accepted here and must agree, because
values are decoded whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint

from labeled.api.opening import open_dataset
from labeled.catalog.source import Io
from labeled.errors import FileFormatError, LoaderError, NotYetError
from labeled.selection import Request

SUFFIX = ".labeled.h5"

VALUE_DECODERS = ("mask_and_scale", "decode_times")
"""Both on or both off: what they do is one step here."""

DECODERS = (
    *VALUE_DECODERS,
    "decode_timedelta",
    "use_cftime",
    "concat_characters",
    "decode_coords",
)


class LabeledBackendEntrypoint(BackendEntrypoint):
    """Files of examples: dims from labels and scales, splits and subsets."""

    description = "Files of examples, with dims from labels, splits and subsets"
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "which_sets",
        "subset",
        "sources",
        "dims",
        "example_dim",
        "group",
        "examples",
        "io",
        "decode_cf",
        "allow_external",
        "format",
        "options",
        *DECODERS,
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
        examples: str | None = None,
        io: Io = "auto",
        decode_cf: bool = True,
        allow_external: bool = False,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        mask_and_scale: Any = None,
        decode_times: Any = None,
        decode_timedelta: Any = None,
        use_cftime: bool | None = None,
        concat_characters: bool | None = None,
        decode_coords: Any = None,
    ) -> xr.Dataset:
        """Open files as a lazy xarray.Dataset; see :func:`labeled.open_dataset`.

        xarray itself makes an index of the coordinate of every dim, for which it reads that
        of the example dim too; ``create_default_indexes=False`` leaves a long one lazy (see
        :func:`labeled.open_dataset`).

        Parameters
        ----------
        filename_or_obj : path or list of paths
            Several files are joined along the example dim.
        drop_variables : str or iterable of str, optional
            Variables to leave out.
        which_sets : str or sequence of str, optional
            Splits, joined in this order; every row by default.
        subset : slice, integers or boolean mask, optional
            Rows among those of the splits.
        options : mapping, optional
            What only one format has, such as ``{"labels": "species"}`` for delimited text.
        mask_and_scale, decode_times, decode_timedelta, use_cftime, concat_characters, \
decode_coords : bool, optional
            xarray's ``decode_cf=False`` turns all of them off. Each by itself can only be
            what this engine does anyway: `mask_and_scale` and `decode_times` go together,
            times become ``datetime64[ns]`` or stay numbers, characters stay apart.

        Raises
        ------
        LoaderError
            If the decoders asked for are not those there are.
        """
        decoded = decode_cf and _decoded(
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            decode_timedelta=decode_timedelta,
            use_cftime=use_cftime,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
        )
        dataset = open_dataset(
            _paths(filename_or_obj),
            sources=sources,
            dims=dims,
            example_dim=example_dim,
            group=group,
            examples=examples,
            io=io,
            decode_cf=decoded,
            allow_external=allow_external,
            format=format,
            **({} if options is None else options),
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

    def open_datatree(self, filename_or_obj: Any, **_: Any) -> Any:
        """Refuse: groups are parts of names here, and none is a node.

        Raises
        ------
        NotYetError
            Always; the message says what opens groups.
        """
        raise NotYetError(
            f"engine 'labeled' makes no tree of {filename_or_obj!r}: groups are parts of the names "
            "of sources. Open one of them, xr.open_dataset(path, engine='labeled', group='...'), "
            "or the tree by engine='h5netcdf', phony_dims='sort'"
        )

    open_groups_as_dict = open_datatree

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Claim only files whose name says so; any other HDF5 file is xarray's own."""
        return isinstance(filename_or_obj, str | os.PathLike) and os.fspath(
            filename_or_obj
        ).endswith(SUFFIX)


def _paths(given: Any) -> str | os.PathLike[str] | list[str | os.PathLike[str]]:
    if isinstance(given, str | os.PathLike):
        return given
    if isinstance(given, list | tuple) and all(isinstance(p, str | os.PathLike) for p in given):
        return list(given)
    raise FileFormatError(
        f"engine 'labeled' opens a path or a list of paths, not {type(given).__name__}"
    )


def _decoded(**asked: Any) -> bool:
    """Return whether values are decoded, as far as xarray's decoders were set.

    Raises
    ------
    LoaderError
        If they are set so that some values would be decoded and others not.
    """
    off = all(asked[name] is False for name in VALUE_DECODERS)
    as_they_are: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(VALUE_DECODERS, (None, not off)),
        "decode_timedelta": (None, False) if off else (None,),
        "use_cftime": (None, False),
        "concat_characters": (None, False),
        "decode_coords": (None, True, "coordinates", *([False] if off else [])),
    }
    for name, value in asked.items():
        if not any(value is known for known in as_they_are[name]):
            raise LoaderError(
                f"engine 'labeled' cannot open a file with {name}={value!r}: it decodes scale, "
                "fill values and times together, times to datetime64, and joins no characters. "
                "Pass decode_cf=False for values as stored and decode them with xr.decode_cf, "
                "or use another engine"
            )
    return not off
