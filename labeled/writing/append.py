"""``labeled.append`` and ``labeled.write_splits``: a file with more rows, or more splits.

The rows of the file and then the new ones are written into a new file, by the one path on which
:func:`labeled.repack` and :func:`labeled.write` write theirs; it takes the place of the old file
once it is complete. Splits are rewritten in a copy of the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from labeled._validation import check_arguments
from labeled.errors import ArrayError, NotYetError, SplitError, WriteError
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.fuel import TABLE, read_table, remove_table, write_table
from labeled.formats.hdf5.metadata import datasets_of, read_checksums, read_statistics, write_own
from labeled.formats.hdf5.safety import opened, to_bytes
from labeled.formats.hdf5.writing import open_to_write
from labeled.formats.header import FileHeader, Rows, vlen_base
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_target, clone, replacing
from labeled.selection import Selection
from labeled.writing.inputs import Inputs, check_alike, inputs_of
from labeled.writing.layouts import AS_STORED
from labeled.writing.repack import StoredSources, check_looks, rewrite, splits_of
from labeled.writing.source import SourceToWrite
from labeled.writing.splits import Splits, as_splits, check_split_name, warn_of_overlaps
from labeled.writing.write import Path, naming

NEW_FILE = "make a new file with labeled.convert(..., split=)"


@check_arguments(but=("path",))
def append(
    path: Path,
    sources: Any,
    *,
    split: str | None = None,
    progress: bool | None = None,
    memory: float | str | None = None,
    threads: int | None = None,
) -> str:
    """Add rows to every source of a file.

    The whole file is written once more, and takes the place of the old one when it is complete;
    meanwhile both need space. Many small batches are best given at once, as an iterable.

    Parameters
    ----------
    path : path
        A file of examples that this process may replace.
    sources : as for :func:`labeled.write`
        The same sources as in the file, with the same row shapes; dtypes are cast where
        nothing of their kind is lost. Integers for a packed source (``scale_factor``) are taken as
        they are stored. Batches need a file whose sources are chunked.
    split : str, optional
        The split that gets the new rows, old or new. Without it they are in none (a file
        without splits has them in ``"all"``).
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ArrayError, DimsError, SplitError
        If the rows do not fit the sources of the file; of arrays before anything is written.
    WriteError
        If the file cannot be written. It is as it was before.
    NotYetError
        If the file has coordinates along its example dim (the message tells how to join two files),
        or holds what cannot be carried over (references, data in other files).

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(3.0)}, {"train": (0, 3)})
    >>> path = labeled.append(path, {"x": np.arange(2.0)}, split="train")
    >>> labeled.open_dataset(path).split("train")["x"].values
    array([0., 1., 2., 0., 1.])
    """
    options = replace(AS_STORED, overwrite=True, progress=progress, memory=memory, threads=threads)
    budget, _ = options.effort()
    check_hdf5(path, "adding rows")
    header = scan(path, decode_cf=False)
    where = header.stamp.path
    with naming(f"rows were to be added to {where!r}"):
        target = check_target(where, overwrite=True)
        stored = StoredSources(header, target, budget // 6)
        old, counted = stored.inputs(), partial(_new_table, header, split)
        new = inputs_of(sources, before=old.sources)
        _check_fit(new, old, header)
        n_old = {name: source.n_rows for name, source in header.sources.items()}
        table = counted({name: n_old[name] + (n or 0) for name, n in new.n_rows.items()})
        inputs, growing = _old_then_new(old, new), None if new.batches is None else split

        def check(_: str) -> None:
            check_same(header.stamp, "Append again")

        rewrite(
            stored, inputs, table, options, check, "append to", counted=counted, growing=growing
        )
    return os.path.realpath(where)


def _check_fit(new: Inputs, old: Inputs, header: FileHeader) -> None:
    """Refuse rows that do not fit the sources of a file, and files that cannot take any."""
    where, sources = header.stamp.path, header.sources
    if len(set(old.n_rows.values())) != 1:
        raise ArrayError(f"sources of {where!r} differ in length, {old.n_rows}; make them agree")
    firsts = {source.dims[0] for source in sources.values()}
    along = sorted(n for n, each in header.variables.items() if {*each.dims[:1]} & firsts)
    if along:
        raise NotYetError(
            f"file {where!r} has coordinates {along} along its example dim, which append cannot "
            f"make longer yet; write the new rows with theirs to a second file, which open_dataset "
            f"joins if it is given both, and labeled.convert([path, second], target) makes one file"
        )
    for name, source in sources.items() if new.batches is not None else ():
        if datasets_of(source)[name].chunks is None:
            raise ArrayError(
                f"source {name!r} of file {where!r} is contiguous, and rows must be counted before "
                f"they are written into such a source; give arrays in place of batches"
            )
    check_alike("what is appended", new, f"file {where!r}", old)


def _new_table(header: FileHeader, split: str | None, counts: Mapping[str, int]) -> Splits | None:
    """Return the splits with the new rows in one of them; None for a file without splits.

    `counts` are the numbers of all rows, of batches as far as they are known.
    """
    n_old = next(iter(header.sources.values())).n_rows
    if len(set(counts.values())) > 1:
        more = {name: n - n_old for name, n in counts.items()}
        raise ArrayError(f"rows to append differ in number: {more}; they must agree")
    n_rows, table = next(iter(counts.values())), splits_of(header)
    if split is None:
        return table
    check_split_name(split)
    if table is None:
        words = f"file {header.stamp.path!r} has no splits, so its new rows cannot be in {split!r}"
        raise SplitError(f"{words}; leave split out, or write the file with splits")
    known = table.get(split) or dict.fromkeys(header.sources, range(n_old, n_old))
    # sources that share a list go on sharing it
    added, longer = Selection.of(range(n_old, n_rows)), dict[int, Rows]()
    for rows in known.values():
        longer[id(rows)] = Selection.concat([Selection.of(rows), added]).compact
    return {**table, split: {name: longer[id(rows)] for name, rows in known.items()}}


def _old_then_new(old: Inputs, new: Inputs) -> Inputs:
    """Return all rows that the file will have: its own are the first batch."""
    sources, n_new = dict[str, SourceToWrite](), next(iter(new.n_rows.values()))
    for name, given in old.sources.items():
        more = new.sources[name]
        one_each = given.is_part or vlen_base(given.dtype) is not None  # of examples
        length = None
        if n_new is not None:
            length = int(given.shape[0] or 0) + int((n_new if one_each else more.shape[0]) or 0)
        least = max(given.least_bytes, more.least_bytes)
        shape = length, *given.shape[1:]
        sources[name] = replace(given, shape=shape, least_bytes=least, batch_bytes=more.batch_bytes)
    every = chain([old], [new] if new.batches is None else new.batches)
    return Inputs(sources, {}, every, n_stored=next(iter(old.n_rows.values())))


# splits of a file whose rows stay as they are


@check_arguments(but=("path",))
def write_splits(path: Path, splits: Mapping[str, Any], *, overwrite: bool = False) -> str:
    """Add splits to a file of examples; its rows stay as they are.

    The file is copied (by reference, where the file system can), and the copy takes its place
    once it is complete.

    Parameters
    ----------
    path : path
        An HDF5 file of examples, with splits or without.
    splits : mapping of split to rows
        As for :func:`labeled.write`. Splits that the file has already stay.
    overwrite : bool
        Replace splits of the same names.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    SplitError
        If rows lie outside their source, sources of a split differ in length, or the file has a
        split of that name.
    UnknownNameError
        If a split names a source that the file does not have.
    WriteError
        If the file cannot be written, would be read otherwise with a split table, or holds what
        a new table would overwrite. It is as it was before.

    Warns
    -----
    LabeledWarning
        If splits overlap.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = labeled.write(os.path.join(tempfile.mkdtemp(), "x.hdf5"), {"x": np.arange(6)})
    >>> path = labeled.write_splits(path, {"train": (0, 4), "test": [5, 4]})
    >>> labeled.open_dataset(path).split("test")["x"].values
    array([5, 4])
    """
    check_hdf5(path, "adding splits")
    header = scan(path)
    where = header.stamp.path
    _check_takes_table(header)
    table = as_splits(splits, {name: source.n_rows for name, source in header.sources.items()})
    old = splits_of(header) or {}
    both = sorted(old.keys() & table.keys())
    if both and not overwrite:
        raise SplitError(f"{where!r} has splits {both} already; overwrite=True replaces them")
    table = {**old, **table}
    warn_of_overlaps(table)
    statistics = read_statistics(where)
    for known in statistics.values():
        for split in both:
            known.get("splits", {}).pop(split, None)
    target = check_target(where, overwrite=True)
    with replacing(target, overwrite=True) as part:
        clone(target, part)
        with open_to_write(part, "r+") as file:
            scales = any(
                len(file[to_bytes(source.key)].dims[0]) for source in header.sources.values()
            )
            comments = remove_table(file["/"]) if header.kind == "fuel" else None
            write_table(file["/"], table, list(header.sources), comments=comments, scales=scales)
            write_own(file, statistics, read_checksums(where))
        otherwise = f"beside splits, as files of other programs are; {NEW_FILE}"
        new = scan(part, quiet=True)
        check_looks(header, new, otherwise, coords=True)
        lost = sorted(header.variables.keys() - new.variables.keys())
        if lost:
            raise WriteError(
                f"variables {lost} of {where!r} would not be read beside splits; {NEW_FILE} (it "
                f"leaves them out)"
            )
    return target


def _check_takes_table(header: FileHeader) -> None:
    """Refuse a file that a new split table would take something from.

    A table names datasets only, and is written anew from the sources that can be opened.
    """
    where = header.stamp.path
    with opened(where) as file:
        table = read_table(file["/"])
        if table is None and TABLE in file.attrs:
            raise WriteError(
                f"{where!r} has an attribute {TABLE!r} that is not a split table, "
                "and writing one would overwrite it; rename it in the file"
            )
    rows = () if table is None else table.rows
    lost = sorted({row.source for row in rows if row.available} - header.sources.keys())
    if lost:
        raise WriteError(
            f"splits of {where!r} name {lost}, which cannot be opened and would lose their rows in "
            f"a new table; {NEW_FILE} (it leaves them out)"
        )
    for name, source in header.sources.items():
        if source.is_column or source.storage == "sparse":
            what = "a column of a table" if source.is_column else "a sparse matrix"
            raise WriteError(
                f"source {name!r} of {where!r} is {what}, and splits name datasets only; {NEW_FILE}"
            )
