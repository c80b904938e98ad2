"""Opening files and joining datasets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

from labeled._validation import check_arguments, check_keywords
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import Files, find_named
from labeled.dataset.joining import joined_rows
from labeled.errors import (
    ArgumentError,
    DimsError,
    FileFormatError,
    LabeledWarning,
    LoaderError,
    SplitError,
    UnknownNameError,
)
from labeled.formats.format import Options
from labeled.formats.registry import (
    check_reachable,
    common_format,
    format_named,
    option_names,
    own_options,
)
from labeled.sources.source import Io

Path = str | os.PathLike[str]

IO = ("auto", "pread", "mmap")


@check_arguments(but=("path", "dims"))
def open_dataset(
    path: Path | Iterable[Path] | Mapping[str, Path | Sequence[Path]],
    *,
    sources: Sequence[str] | None = None,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    chunks: Any = "auto",
    example_dim: str | None = None,
    group: str | None = None,
    examples: str | None = None,
    io: Io = "auto",
    decode_cf: bool = True,
    allow_external: bool = False,
    format: str | None = None,
    **options: Any,
) -> Dataset:
    """Open one or many files as a labelled, lazy dataset. Reads headers only.

    Parameters
    ----------
    path : path, list of paths, glob, folder, or mapping of source to these
        Several files are joined along the example dim, in the order given (sorted,
        for globs and folders); they must agree in sources, dims, dtypes and splits. A mapping
        names the one source that each file holds: ``{"images": path, "labels": path}``.
        HDF5 is also read by any address that fsspec knows (``s3://bucket/x.hdf5``), each
        stretch by a request of its own: slower than a copy on this machine.
    sources : sequence of str, optional
        Open only these, in this order. All of them, alphabetically, by default.
    dims : mapping of str to names, optional
        Names of all axes of a source, in place of what the file says.
    chunks : "auto", int, tuple or dict, optional
        Blocks of the dask arrays, as dask takes them. "auto" gives blocks of about 16 MiB,
        whole multiples of the stored chunks where the rows allow it.
    example_dim : str, optional
        The dim that counts examples, in netCDF-style files; by default the single
        unlimited dim, else axis 0.
    group : str, optional
        Open what lies below this group. A pattern such as ``"data/demo_*"`` joins all groups that
        it matches, in the order of the numbers in their names, as if each were a file.
    examples : str, optional
        Everything that this pattern matches (``"data/*"``, below `group`) is one example: a
        dataset, or a group of datasets, which are then the sources. Those whose shapes differ
        are ragged. Rows are in the order of the numbers in names. `sources` may name ``"name"``
        and ``"attrs/KEY"``, too: what examples are called, and attributes that all of them have.
        The headers of all examples are read.
    io : {"auto", "pread", "mmap"}
        How bytes are read: "auto" reads stretches by ``pread`` and maps files only
        for scattered rows.
    decode_cf : bool
        Apply scale, offset, fill value and times of netCDF-style variables.
    allow_external : bool
        Follow links, storage and virtual datasets that lead out of the file.
    format : str, optional
        "hdf5", "idx", "csv" (any delimited text), "recordio" or "zarr"; by default the first bytes
        of the files say, then their names.
    **options
        What only one format has: see :class:`labeled.formats.csv.options.TextOptions` and
        :class:`labeled.formats.recordio.options.RecordOptions`.

    Returns
    -------
    Dataset
        Every row of each source, in file order, before :meth:`Dataset.split`.

    Raises
    ------
    FileFormatError
        If a file is missing, damaged or of no known format, or files do not fit together.
    UnsafeFileError
        If the file leads outside itself and `allow_external` is not set.
    DimsError, SplitError, UnknownNameError
        If names, labels or the split table do not fit the file.
    OptionError
        If an option is unknown, or means nothing in files of this format.

    Notes
    -----
    A netCDF-4 style file opens as xarray opens it, with these differences. The coordinate of
    the example dim stays lazy, without an index (``set_xindex`` makes one), where it takes more
    than 8 MiB or lies in more than 100 files. Times are ``datetime64[ns]``, and
    stay numbers in calendars that it cannot hold. Arrays of single characters stay ``S1``
    with their last dim; ``xr.decode_cf(ds.to_xarray())`` joins them. The
    attribute `coordinates` is left out, also with ``decode_cf=False``: coordinates are
    attached either way. Variables without the example dim are not sources, but stand in
    :meth:`Dataset.to_xarray`.
    """
    if io not in IO:
        raise ArgumentError(f"io must be one of {IO}, not {io!r}")
    if isinstance(sources, str):
        sources = (sources,)
    if sources is not None and not len(sources):
        raise UnknownNameError("sources=[] is empty; leave it out to open all sources")
    if options:
        check_keywords("open_dataset", options, GENERAL, option_names())
    paths, names = find_named(path, format)
    chosen = common_format(paths) if format is None else format_named(format)
    check_reachable(chosen, paths)
    given = {"group": group, "examples": examples, "allow_external": allow_external or None}
    own = own_options(chosen, paths[0], options, given)
    asked = Options(
        sources=None if sources is None else tuple(sources),
        dims=() if dims is None else _checked_dims(dims),
        example_dim=example_dim,
        group=group,
        examples=examples,
        io=io,
        decode_cf=decode_cf,
        allow_external=allow_external,
        format=chosen.name,
        own=own,
    )
    dataset = Dataset(Files.open(paths, asked, names), names=asked.sources, chunks=chunks)
    is_notes = format is None and paths[0].lower().endswith((".txt", ".txt.gz"))
    if is_notes and [dtype.kind for dtype in dataset.dtypes.values()] == ["O"]:
        raise FileFormatError(
            f"{paths[0]!r} looks like plain text (one column, no numbers); pass format='csv' to "
            "read each line as a row"
        )
    if not (isinstance(chunks, str) and chunks == "auto"):
        from labeled.dataset.lazy import check_chunks

        check_chunks(chunks, set().union(*dataset.dims.values()), dataset.where)
    return dataset


GENERAL = tuple(
    name for name, one in signature(open_dataset).parameters.items() if one.kind is one.KEYWORD_ONLY
)
"""What a caller may name whatever the format."""


def _checked_dims(dims: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(dims, Mapping):
        raise DimsError(f"dims={dims!r} is not a mapping; pass {{source: (name, ...)}}")
    for name, names in dims.items():
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DimsError(f"dims={{{name!r}: {names!r}}} is not a tuple; pass one name per axis")
    return tuple(sorted((name, tuple(names)) for name, names in dims.items()))


@check_arguments()
def concat(datasets: Iterable[Dataset | Path]) -> Dataset:
    """Join datasets along the example dim, lazily; paths are opened first.

    Parameters
    ----------
    datasets : iterable of Dataset or path
        With the same sources, dims and dtypes, taken apart in the same way.

    Returns
    -------
    Dataset
        The rows of the first, then of the second, and so on.

    Raises
    ------
    LabeledError
        If two do not fit; the message names the files.
    """
    if isinstance(datasets, str | os.PathLike | Dataset):
        what = "a dataset" if isinstance(datasets, Dataset) else repr(os.fspath(datasets))
        raise LoaderError(f"concat takes a list of datasets or paths, not {what} alone")
    parts = [d if isinstance(d, Dataset) else open_dataset(d) for d in datasets]
    if not parts:
        raise LoaderError("concat needs at least one dataset")
    first = parts[0]
    for other in parts[1:]:
        _check_joinable(first, other)
    paths = (path for part in parts for path in part.files.paths)
    names = (name for part in parts for name in part.files.names)
    with warnings.catch_warnings():  # each file warned about its axes when it was opened
        warnings.filterwarnings("ignore", ".* does not name every axis", LabeledWarning)
        files = Files.open(paths, first.files.options, names)
    chosen = first.chosen if all(part.chosen == first.chosen for part in parts) else ()
    joined = replace(first, files=files, names=first.names, chosen=chosen)
    if all(part.selections is None for part in parts):
        return joined
    rows = {}
    for name in first.sources:
        rows[name] = joined_rows(
            [(one.selection(name), one.files.catalog.sources[name].n_rows) for one in parts]
        )
    return replace(joined, names=first.sources, selections=rows)


def _check_joinable(first: Dataset, other: Dataset) -> None:
    cannot = f"cannot join {other.files.paths[0]!r} to {first.files.paths[0]!r}"
    if first.loaded is not None or other.loaded is not None:
        raise LoaderError("join datasets before load(), not after")
    if first.sources != other.sources:
        raise SplitError(
            f"{cannot}: it has sources {other.sources}, not {first.sources}; select() the same "
            "sources of both"
        )
    if repr(first.steps) != repr(other.steps):
        raise SplitError(f"{cannot}: their isel() calls differ")
    if first.files.options != other.files.options:
        raise LoaderError(f"{cannot}: opened with different options")
