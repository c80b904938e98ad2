"""What must change in a file, besides rows, when its sources become longer.

The scales of the example axis are as long as it is, so they are made again; the split
table, statistics and checksums are written again. Rows themselves go through
:class:`.writing.SourceWriter`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import h5py

from labeled.errors import NotYetError
from labeled.formats.hdf5.door import opened
from labeled.formats.hdf5.fuel import remove_table, write_table
from labeled.formats.hdf5.labels import NOT_A_VARIABLE, scale_of
from labeled.formats.hdf5.own import Checksums, Statistics, write_own
from labeled.formats.hdf5.safety import resolve
from labeled.formats.header import Rows


def growable_sources(path: str, names: Sequence[str]) -> dict[str, bool]:
    """Return which sources can grow along axis 0: those in chunks without a limit there."""
    with opened(path) as file:
        return {name: _is_growable(resolve(file["/"], name).thing) for name in names}


def _is_growable(dataset: Any) -> bool:
    return dataset.chunks is not None and dataset.maxshape[0] is None


def check_growable(path: str, names: Sequence[str]) -> None:
    """Refuse files whose example axis has scales with values, which would be too short.

    Raises
    ------
    NotYetError
    """
    with opened(path) as file:
        for name in names:
            for scale in _scales(resolve(file["/"], name).thing):
                if scale_of(scale).has_values:
                    raise NotYetError(
                        f"file {path!r} has values {scale.name!r} along axis 0 of source {name!r}, "
                        f"which append cannot make longer yet; write the file again"
                    )


def _scales(dataset: h5py.Dataset) -> list[h5py.Dataset]:
    return list(dataset.dims[0].values())


def grow_file(
    file: h5py.File,
    names: Sequence[str],
    splits: Mapping[str, Mapping[str, Rows]] | None,
    statistics: Statistics | None,
    checksums: Mapping[str, Checksums],
) -> None:
    """Bring all else of a file up to the new lengths of its sources.

    Parameters
    ----------
    file : h5py.File
        Open for writing; its sources have grown already.
    names : sequence of str
        Of the sources.
    splits : mapping, optional
        The new split table; None for a file without one.
    """
    _lengthen_scales(file, names)
    if splits is not None:
        scales = any(_scales(file[name]) for name in names)
        comments = remove_table(file["/"])
        write_table(file["/"], splits, names, comments=comments, scales=scales)
    write_own(file, statistics, checksums)


def _lengthen_scales(file: h5py.File, names: Sequence[str]) -> None:
    """Make the empty scales of the example axes again, as long as these are now."""
    users: dict[str, list[str]] = {}
    for name in names:
        for scale in _scales(file[name]):
            users.setdefault(scale.name, []).append(name)
    for path, sources in users.items():
        length = file[sources[0]].shape[0]
        for name in sources:
            file[name].dims[0].detach_scale(file[path])
        del file[path]
        scale = file.create_dataset(path, (length,), ">f4")
        scale.make_scale(f"{NOT_A_VARIABLE}.{length:10d}")
        for name in sources:
            file[name].dims[0].attach_scale(scale)
