"""``labeled.verify``: are the rows of a file still those that were written?

The CRC-32 of every stretch of rows was stored when the file was written; here rows are
read once more and compared. A stretch that differs, or cannot be read any more, is named
by source and rows. What is not a row (names, attributes, splits) is not covered; damage
there shows when the file is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from labeled._threads import in_threads
from labeled._validation import check_arguments
from labeled.display.progress import Advance, progress_bar
from labeled.errors import FileFormatError, LabeledError
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.metadata import Checksums, checksum, datasets_of, read_checksums
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.header import FileHeader, SourceHeader, vlen_base
from labeled.formats.reader import read_rows
from labeled.formats.region import Array
from labeled.formats.registry import check_hdf5
from labeled.writing.layouts import checked_threads

READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows `start` to `stop` of a source, and what is wrong with them."""

    source: str
    start: int
    stop: int
    problem: str

    def __str__(self) -> str:
        return f"source {self.source!r}, rows {self.start} to {self.stop - 1}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What :func:`verify` found.

    Attributes
    ----------
    n_rows : dict
        Rows compared, by dataset: a source in the flat layout is several of them, its values and
        where examples begin.
    without : tuple of str
        Sources that have no checksums, and so were not compared.
    """

    path: str
    n_rows: dict[str, int]
    differences: tuple[Difference, ...]
    without: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether every row that has a checksum agrees with it."""
        return not self.differences


@check_arguments(but=("path",))
def verify(
    path: str | os.PathLike[str],
    *,
    sources: Sequence[str] | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    allow_external: bool = False,
) -> Verified:
    """Compare the rows of a file with the checksums stored when it was written.

    Parameters
    ----------
    path : path
        A file written by :func:`labeled.write`.
    sources : sequence of str, optional
        Compare only these.
    threads : int, optional
        How many read at a time. Default: one a core, at most 8.
    progress : bool, optional
        Show a bar. Default: on a terminal, after two seconds.
    allow_external : bool
        Read data that lies in other files, too.

    Returns
    -------
    Verified
        ``.sound``, and ``.differences``: source and rows of each stretch that differs.

    Raises
    ------
    FileFormatError
        If the file cannot be opened, or has no checksums of anything that is asked for.
    UnknownNameError
        If `sources` names what is not there.
    """
    check_hdf5(path, "comparing with checksums")
    options: Any = {"decode_cf": False, "name_all": True, "quiet": True}
    options["allow_external"] = allow_external
    header = scan(path, sources=sources, **options)
    known = read_checksums(header.stamp.path)
    stored = stored_datasets(header)
    unseen = [name for name in known if name not in stored] if sources is None else []
    if unseen:  # what was written, and is not a source now: gone, out of reach, or another name
        stored |= stored_datasets(scan(path, sources=unseen, **options))
    compared = {name: known[name].n_rows for name in stored if name in known}
    if not compared:
        words = "" if sources is None else f" of {list(sources)}"
        raise FileFormatError(
            f"file {header.stamp.path!r} has no checksums{words}; labeled.repack makes a copy with "
            f"some"
        )
    n_bytes = sum(stored[name].row_bytes * n for name, n in compared.items())
    title = f"verify {os.path.basename(header.stamp.path)}"
    with progress_bar(progress, n_bytes, title) as advance:
        found = differences_of(stored, known, checked_threads(threads), advance)
    without = tuple(name for name in stored if name not in known)
    return Verified(header.stamp.path, compared, found, without)


def differences_of(
    stored: Mapping[str, SourceHeader],
    known: Mapping[str, Checksums],
    threads: int,
    advance: Advance,
    most: int = READ_BYTES,
) -> tuple[Difference, ...]:
    """Compare datasets with their checksums, reading at most `most` bytes at a time."""
    found: list[Difference] = []
    for name in [name for name in stored if name in known]:
        source, sums = stored[name], known[name]
        check = partial(_differences, source, sums, reader_of(source))
        step, several = max(most // max(source.row_bytes * sums.rows, 1), 1), threads
        if source.dtype.kind == "O":  # rows of any length, read within HDF5's lock
            step = several = 1
        numbers, left = range(len(sums.values)), min(sums.n_rows, source.n_rows)
        stretches = [numbers[i : i + step] for i in numbers[::step]]
        for differences in in_threads(check, stretches, several):
            found += differences
            advance(source.row_bytes * min(left, sums.rows * step))
            left -= min(left, sums.rows * step)
        if sums.n_rows != source.n_rows:
            few, many = sorted((sums.n_rows, source.n_rows))
            words = f"the file has {source.n_rows} rows, but {sums.n_rows} were written"
            found.append(Difference(name, few, many, words))
    out: list[Difference] = []  # neighbours with the same problem are one
    for each in found:
        if out and out[-1].stop == each.start and out[-1].problem == each.problem:
            out[-1] = replace(out[-1], stop=each.stop)
        else:
            out.append(each)
    return tuple(out)


def _differences(
    source: SourceHeader, sums: Checksums, read: Callable[[range], Array], numbers: range
) -> list[Difference]:
    """Read the rows of some checksums; if they cannot be read together, one by one."""
    most = min(sums.n_rows, source.n_rows)
    edges = [min(at * sums.rows, most) for at in range(numbers.start, numbers.stop + 1)]
    start, stop = edges[0], edges[-1]
    try:
        rows = read(range(start, stop))
    except LabeledError as error:
        if len(numbers) == 1:
            return [Difference(source.name, start, stop, f"cannot be read: {error}")]
        alone = (range(number, number + 1) for number in numbers)
        return [each for one in alone for each in _differences(source, sums, read, one)]
    if rows.dtype.kind != "O":
        rows = rows.astype(source.dtype, copy=False)  # as stored: its byte order counts
    return [
        Difference(source.name, a, b, "differ from what was written")
        for number, (a, b) in zip(numbers, pairwise(edges), strict=True)
        if checksum(rows[a - start : b - start]) != int(sums.values[number])
    ]


def reader_of(source: SourceHeader) -> Callable[[range], Array]:
    """Return what reads stretches of stored rows; those of any length as arrays in an array."""
    base = vlen_base(source.dtype)
    if base is None:
        return partial(read_rows, open_reader(source))
    reader = open_ragged(source)

    def read(rows: range) -> Array:
        flat = reader.read_flat(rows)
        return flat._replace(values=flat.values.astype(base, copy=False)).examples()

    return read


def stored_datasets(header: FileHeader) -> dict[str, SourceHeader]:
    """Return the datasets of all sources: of one in the flat layout, all that it is made of."""
    parts = [datasets_of(source) for source in header.sources.values()]
    return {name: each for one in parts for name, each in one.items()}
