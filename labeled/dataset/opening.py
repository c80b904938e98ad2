"""Opening files and joining datasets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from labeled._validation import check_arguments, check_keywords, keywords_of
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import Files, Path, find_files, find_named, joined_rows
from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledWarning,
    LoaderError,
    SplitError,
    UnknownNameError,
    check_known,
)
from labeled.formats.format import Options
from labeled.formats.reader import Io
from labeled.formats.registry import common_format, option_names, own_options


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
    """Open one or more files as a lazy dataset with named axes. Only headers are read.

    Parameters
    ----------
    path : path, list of paths, glob, folder, or mapping of source to these
        Several files are joined along the example dim, in the order given (sorted, for globs and
        folders); they must have the same sources, dims, dtypes and splits. A mapping names the
        single source of each file: ``{"images": path, "labels": path}``. HDF5 also opens from any
        address that fsspec knows (``s3://bucket/x.hdf5``), with one request per stretch: slower
        than a local copy.
    sources : sequence of str, optional
        Open only these, in this order. By default all, alphabetically.
    dims : mapping of str to names, optional
        Names of all axes of a source, instead of those in the file: ``{"images": ("batch",
        "height", "width")}``.
    chunks : "auto", int, tuple or dict, optional
        Blocks of the dask arrays, in dask's notation. "auto" makes blocks of about 16 MiB, whole
        multiples of the stored chunks if rows are small enough.
    example_dim : str, optional
        The dim that counts examples in netCDF-style files; by default the only unlimited dim,
        else axis 0.
    group : str, optional
        Open this group only. A pattern such as ``"data/demo_*"`` joins all matching groups, in the
        order of the numbers in their names, as if each were a file.
    examples : str, optional
        A pattern such as ``"data/*"``, below `group`. Every match is one example: a dataset, or a
        group whose datasets are the sources. Sources with several shapes are ragged. Rows follow
        the numbers in the names. `sources` may also name ``"name"`` and ``"attrs/KEY"``: names of
        the examples, and attributes that all of them have. The headers of all examples are read.
    io : {"auto", "pread", "mmap"}
        How bytes are read. "auto" reads stretches by ``pread``, and maps a file into memory only
        for scattered rows.
    decode_cf : bool
        Decode scale, offset, fill value and times of netCDF-style variables, as xarray does.
    allow_external : bool
        Follow links, external storage and virtual datasets that lead out of the file.
    format : str, optional
        "hdf5", "idx", "csv" (any delimited text), "recordio" or "zarr"; by default recognised by
        the first bytes of the files, then by their names.
    **options
        Options of one format: :class:`labeled.formats.csv.index.TextOptions`,
        :class:`labeled.formats.recordio.RecordOptions`.

    Returns
    -------
    Dataset
        Every row of each source, in file order; :meth:`Dataset.split` selects a split.

    Raises
    ------
    FileFormatError
        If a file is missing, damaged or of an unknown format, or files do not fit together.
    UnsafeFileError
        If the file points outside itself and `allow_external` is False.
    DimsError, SplitError, UnknownNameError
        If names, labels or the split table do not fit the file.
    OptionError
        If an option does not exist, or does not apply to this format.

    Examples
    --------
    >>> import numpy as np, os, tempfile, labeled
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> arrays = {"x": np.zeros((10, 3)), "y": np.arange(10)}
    >>> _ = labeled.write(path, arrays, splits={"train": (0, 8)}, dims={"x": ("batch", "feature")})
    >>> ds = labeled.open_dataset(path)
    >>> ds.dims["x"], ds.shapes["x"], ds.split("train").n_rows
    (('batch', 'feature'), (10, 3), 8)

    Notes
    -----
    A netCDF-4 style file opens as in xarray, with these differences. A coordinate of the example
    dim that takes more than 8 MiB, or lies in more than 100 files, stays lazy and has no index
    (``set_xindex`` makes one). Times are ``datetime64[ns]``, or stay numbers in calendars that it
    cannot hold. Arrays of single characters stay ``S1`` with their last dim;
    ``xr.decode_cf(ds.to_xarray())`` joins them. Coordinates are attached with and without
    ``decode_cf``, and the attribute `coordinates` is left out. Variables without the example dim
    are not sources, but :meth:`Dataset.to_xarray` has them.
    """
    if isinstance(sources, str):
        sources = (sources,)
    if sources is not None and not len(sources):
        raise UnknownNameError("sources=[] is empty; leave it out to open all sources")
    if options:
        check_keywords("open_dataset", options, keywords_of(open_dataset), option_names())
    names: tuple[str, ...] = ()
    if isinstance(path, Mapping):
        paths, names = find_named(path, format)
    else:
        paths = find_files(path, format)
    chosen = common_format(paths, format)
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
    files = Files(paths, asked, names)
    found = tuple(sorted(files.catalog.sources))  # looks at the files, whatever is asked for
    dataset = Dataset(files, asked.sources or found, chunks=chunks)
    is_notes = format is None and paths[0].lower().endswith((".txt", ".txt.gz"))
    if is_notes and [dtype.kind for dtype in dataset.dtypes.values()] == ["O"]:
        raise FileFormatError(
            f"{paths[0]!r} looks like plain text (one column, no numbers); pass format='csv' to "
            "read each line as a row"
        )
    if isinstance(chunks, dict):
        dims_there = set().union(*dataset.dims.values())
        check_known("chunks= names", chunks, dims_there, f"a dim of {dataset.where}", DimsError)
    return dataset


def _checked_dims(dims: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(dims, Mapping):
        raise DimsError(f"dims={dims!r} is not a mapping; pass {{source: (name, ...)}}")
    for name, names in dims.items():
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DimsError(f"dims={{{name!r}: {names!r}}} is not a tuple; pass one name per axis")
    return tuple(sorted((name, tuple(names)) for name, names in dims.items()))


@check_arguments()
def concat(datasets: Iterable[Dataset | Path]) -> Dataset:
    """Join datasets along the example dim, lazily. Paths are opened first.

    Parameters
    ----------
    datasets : iterable of Dataset or path
        With the same sources, dims and dtypes, and the same `isel` calls.

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
    options = first.files.options
    held = [(one.files.options.sources, set(one.files.known.sources)) for one in parts]
    if any(one != held[0] for one in held):  # what select() chose may be all that files share
        options = replace(options, sources=first.sources)
    paths = tuple(path for part in parts for path in part.files.paths)
    names = tuple(name for part in parts for name in part.files.names)
    with warnings.catch_warnings():  # each file warned about its axes when it was opened
        warnings.filterwarnings("ignore", ".* does not name every axis", LabeledWarning)
        files = Files(paths, options, names)
        _ = files.catalog  # scans them
    chosen = first.chosen if all(part.chosen == first.chosen for part in parts) else ()
    joined = replace(first, files=files, chosen=chosen)
    if all(part.selections is None for part in parts):
        return joined
    rows = {}
    for name in first.sources:
        each = [(one.selection(name), one.files.known.sources[name].n_rows) for one in parts]
        rows[name] = joined_rows(each)
    return replace(joined, selections=rows)


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
    theirs = asdict(other.files.options)
    for name, ours in asdict(first.files.options).items():
        if ours != theirs[name] and name != "sources":  # these are the same by now
            raise LoaderError(
                f"{cannot}: opened with {name}={theirs[name]!r}, not {name}={ours!r}; open both "
                "with the same (of groups in one file, group='*' opens several together)"
            )
