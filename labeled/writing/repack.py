"""``labeled.repack``: the same rows in other chunks, another codec, another order.

Values go from file to file as they are stored, with their names, coordinates, attributes,
splits and provenance, and so does whatever else the file holds. What is not asked for stays
as it is. Before the new file takes its
name its rows are read back and compared with those of the original.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled._validation import check_arguments
from labeled.errors import ArrayError, SplitError, WriteError, warn
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.others import Carrier, others_of
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.scan import noted, scan
from labeled.formats.hdf5.writing import storable
from labeled.formats.header import FileHeader, SourceHeader
from labeled.formats.region import Array
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_target
from labeled.ragged.flat import Flat, Rows, block_cuts
from labeled.writing.endings import check_ending
from labeled.writing.given import slices, text_blocks
from labeled.writing.layouts import AS_IT_IS, KEEP, Chunks, PerSource, expanded, wishes
from labeled.writing.ordering import ORDERS, Kept, moved, order_of
from labeled.writing.progress import progress_bar
from labeled.writing.ragged import RaggedAs
from labeled.writing.rewriting import Rewriting, packed_texts
from labeled.writing.splits import Splits
from labeled.writing.streaming import Plan, fitting, recipe_for
from labeled.writing.write import Planned, checked_effort, tallies_for

PROVENANCE = "labeled_provenance"

Hashes = npt.NDArray[np.uint64]

STRETCHES = 1024
PIECE_ROWS = 1 << 15

_SEED = 0x9E3779B97F4A7C15


@check_arguments(but=("path",))
def repack(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    layout: PerSource[str] = KEEP,
    compression: PerSource[str | None] = KEEP,
    level: PerSource[int | None] = None,
    chunks: PerSource[Chunks] = KEEP,
    ragged: RaggedAs | None = None,
    order: str = "keep",
    seed: int = 0,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    allow_external: bool = False,
    overwrite: bool = False,
    verify: bool = True,
    progress: bool | None = None,
    memory: float | str | None = None,
    threads: int | None = None,
) -> str:
    """Write a file of examples again, stored differently.

    Parameters
    ----------
    path, target : path
        An HDF5 file, and where the new one goes; the same path replaces the file, with
        `overwrite`.
    layout, compression, level, chunks
        As for :func:`labeled.write`, for all sources or by source, also by patterns such as
        ``data/demo_*/x``. What is not given stays as it is, but for codecs that cannot be
        written here: gzip takes their place.
    ragged : {"flat", "fuel"}, optional
        How examples of different shapes are stored.
    order : {"keep", "splits", "shuffle"}
        "splits" puts the rows of each split together, in its own order, so that lists of rows
        become stretches. "shuffle" also shuffles rows, but only among those that are in the
        same splits. Both need two passes over the rows and, beside the target, disk space
        for the largest source.
    seed : int
        Of a shuffle; the same seed gives the same file.
    dims : mapping of source to names, optional
        Names of all axes, in place of those in the file; also by patterns.
    allow_external : bool
        Read what the file has in other files, and put it into the new one; only for files that
        you trust.
    overwrite : bool
        Replace a file that is at `target`.
    verify : bool
        Read both files once more, and compare them, before the new one takes its name.
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the new file.

    Raises
    ------
    ArrayError, SplitError, UnknownNameError
        If the options do not fit the file; before anything is written.
    WriteError
        If the file cannot be written, or differs from the original; nothing is left behind.
    NotYetError
        If the file holds what cannot be carried over (references, data in other files, sources
        of its split table that cannot be opened); the message names it.

    Warns
    -----
    LabeledWarning
        If rows change places, and datasets that belong to no source are as long, or programs
        that read the old file will not read the new one: those of pandas, PyTables and netCDF.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(6)}, {"a": [5, 0], "b": [1, 2, 3]}, chunks=1)
    >>> path = labeled.repack(path, path, layout="contiguous", order="splits", overwrite=True)
    >>> labeled.open_dataset(path)["x"].values
    array([5, 0, 1, 2, 3, 4])
    """
    if order not in ORDERS:
        raise ArrayError(f"order={order!r} must be one of {ORDERS}")
    check_hdf5(path, "repacking")
    check_ending(target)
    dims = _dims_by_name(path, dims or {}, allow_external)
    header = scan(path, dims=dims, decode_cf=False, allow_external=allow_external)
    budget, threads = checked_effort(memory, threads)
    others = others_of(header)
    table = None if header.kind != "fuel" else header.splits
    moves = order_of(order, table or {}, _n_rows(header, order), seed)
    wished = wishes(list(header.sources), layout, compression, level, chunks, AS_IT_IS)
    found = check_target(target, overwrite=overwrite)
    _warn_of_readers(header, found)
    with ExitStack() as stack:
        made = Rewriting(header, moves, wished, ragged, budget // 6, found, stack)
        inputs = made.inputs
        splits = None if table is None else moved(table, moves)
        recipes = {n: recipe_for(g, made.layouts[n], True) for n, g in inputs.sources.items()}
        plan = Plan(recipes, tallies_for(inputs, splits, True), budget, threads)
        plan = fitting(plan, inputs, memory)
        plan = replace(plan, budget=plan.aside + max(plan.budget - plan.aside, 0) // 3)
        passes = 1 + 2 * verify + (not isinstance(moves, Kept))
        n_bytes = passes * (inputs.n_bytes or 0)
        with progress_bar(progress, n_bytes, f"repack {os.path.basename(found)}") as told:
            made.told = told
            attrs = storable("the file", _attrs(header, order, seed))
            moving = None if isinstance(moves, Kept) else moves.old
            carrier = Carrier(header, others, moving, budget // 4)
            new = Planned(inputs, plan, splits, attrs, header.kind != "plain", carrier=carrier)
            check = partial(_check, made, splits, verify)
            new.create(found, told, overwrite=overwrite, check=check)
    return found


def _dims_by_name(
    path: str | os.PathLike[str],
    dims: Mapping[str, Sequence[str | None]],
    allow_external: bool,
) -> dict[str, Sequence[str | None]] | None:
    """Return names of axes by source, where they are given by patterns; None without any."""
    if not any("*" in name for name in dims):
        return dict(dims) or None
    ((header, _),) = noted(path, decode_cf=False, allow_external=allow_external)
    return expanded("dims", dims, header.sources)


def _warn_of_readers(header: FileHeader, target: str) -> None:
    """Tell which programs will not read the new file, though they read the old one."""
    ragged = [name for name, source in header.sources.items() if source.ragged is not None]
    if "PYTABLES_FORMAT_VERSION" in header.attrs:
        warn(
            f"{header.stamp.path!r} is a file of PyTables or pandas, which will not read all of "
            f"{target!r}: columns of tables are datasets of their own there, axes have names; keep "
            f"the original for them"
        )
    elif ragged and header.stamp.path.endswith((".nc", ".nc4")):
        warn(
            f"the netCDF library will not open {target!r}: it does not know how {ragged} with "
            f"examples of different shapes are kept there; h5py and labeled do"
        )


def _n_rows(header: FileHeader, order: str) -> int:
    counts = {name: source.n_rows for name, source in header.sources.items()}
    if order != "keep" and len(set(counts.values())) > 1:
        raise SplitError(
            f"the sources of {header.stamp.path!r} have different numbers of rows: {counts}; "
            f"another order needs them to agree"
        )
    return next(iter(counts.values()), 0)


def _attrs(header: FileHeader, order: str, seed: int) -> dict[str, Any]:
    """Return the attributes of the file; a new order is added to where the data comes from."""
    attrs = dict(header.attrs)
    if order == "keep":
        return attrs
    try:
        told = json.loads(str(attrs.get(PROVENANCE, "{}")))
    except ValueError:
        told = {"before": str(attrs[PROVENANCE])}
    done = {"order": order} | ({"seed": seed} if order == "shuffle" else {})
    told["repacked"] = [*told.get("repacked", []), done]
    return {**attrs, PROVENANCE: json.dumps(told, sort_keys=True)}


# the new file against the old one


def _check(made: Rewriting, splits: Splits | None, rows_too: bool, part: str) -> None:
    """Compare the new file with the original, before it takes its name.

    Raises
    ------
    WriteError
        If they differ; names source and rows.
    FileChangedError
        If somebody changed the original meanwhile.
    """
    old = made.header
    check_same(old.stamp, "repack it again")
    new = scan(part, decode_cf=False)
    for name, source in old.sources.items():
        there = new.sources.get(name)
        if there is None or _looks(there) != _looks(source):
            raise WriteError(
                f"source {name!r} of {made.target!r} would be {there and _looks(there)} in place "
                f"of {_looks(source)}; the original is untouched"
            )
        if rows_too:
            _check_rows(made, source, there)
    if splits is not None:
        _check_splits(made, splits, new)


def _looks(source: SourceHeader) -> tuple[Any, ...]:
    dtype = open_ragged(source).dtype if source.ragged is not None else source.dtype
    return source.dims, source.shape, dtype.str


def _check_splits(made: Rewriting, splits: Splits, new: FileHeader) -> None:
    for split, by_source in splits.items():
        for name, rows in by_source.items():
            found = new.splits.get(split, {}).get(name, range(0))
            if not np.array_equal(np.asarray(found), np.asarray(rows)):
                raise WriteError(
                    f"split {split!r} of source {name!r} did not arrive in {made.target!r}; the "
                    f"original is untouched"
                )


def _check_rows(made: Rewriting, old: SourceHeader, new: SourceHeader) -> None:
    one, two = Fingerprint(old.n_rows), Fingerprint(old.n_rows)
    for start, hashes in _hashes(made, old):
        one.add(hashes, made.order.new(np.arange(start, start + len(hashes))))
    for start, hashes in _hashes(made, new):
        two.add(hashes, np.arange(start, start + len(hashes)))
    found = one.first_difference(two)
    if found is not None:
        raise WriteError(
            f"source {old.name!r} of {made.target!r} differs from the original within rows "
            f"{found[0]} to {found[1] - 1}; the disk or memory may be damaged, and the original "
            f"is untouched"
        )


def _hashes(made: Rewriting, source: SourceHeader) -> Iterator[tuple[int, Any]]:
    """Yield the number of every row, stretch by stretch in the order of the file."""
    if source.ragged is not None:
        reader = open_ragged(source)
        sizes = reader.sizes(range(source.n_rows)) * reader.dtype.itemsize
        cuts = block_cuts(np.maximum(sizes, 64), made.block_bytes)
        for start, stop in pairwise(cuts):
            flat = reader.read_flat(range(start, stop))
            yield start, hashes_of_examples(flat)
            made.told(flat.values.nbytes)
        return
    stretch = made.reader_of(source)
    step = max(made.block_bytes // max(source.row_bytes, 1), 1)
    step = -(-step // stretch.step) * stretch.step
    texts = source.dtype.kind == "O"
    if texts:
        blocks = text_blocks(stretch.read, source.n_rows, 1, made.block_bytes, step=stretch.step)
    else:
        blocks = slices(stretch.read, source.n_rows, step)
    for block in blocks:
        assert block.read is not None
        rows = block.read()
        yield block.start, hashes_of_texts(rows) if texts else hashes_of_rows(rows)
        made.told(rows.nbytes)


# Every row becomes a 64-bit number; with the position it is expected at it is mixed once more, and
# the results are added up for each of many stretches of positions. Two files agree where all sums
# do. That takes one pass over each file in whatever order suits it, and no memory that grows with
# the rows. Chance alone lets two different stretches agree once in 2**60 or so; nobody's malice is
# guarded against.


class Fingerprint:
    """Sums over the rows of one source, one a stretch of positions.

    Parameters
    ----------
    n_rows : int
    """

    def __init__(self, n_rows: int) -> None:
        self.stretch_rows = max(-(-n_rows // STRETCHES), 1)
        self._n_rows = n_rows
        self._sums = np.zeros(-(-n_rows // self.stretch_rows), np.uint64)

    def add(self, hashes: Hashes, positions: Rows) -> None:
        """Count rows in, each at its position."""
        mixed = _mixed(hashes + _mixed(positions.astype(np.uint64)))
        np.add.at(self._sums, positions // self.stretch_rows, mixed)  # modulo 2**64

    def first_difference(self, other: Fingerprint) -> tuple[int, int] | None:
        """Return the first stretch of positions that differs; None where all agree."""
        different = np.flatnonzero(self._sums != other._sums)
        if not len(different):
            return None
        start = int(different[0]) * self.stretch_rows
        return start, min(start + self.stretch_rows, self._n_rows)


def _mixed(values: Hashes) -> Hashes:
    """Scatter the bits of 64-bit numbers (the finaliser of SplitMix64)."""
    out = values + np.uint64(_SEED)
    out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = out ^ (out >> np.uint64(31))
    return mixed


def hashes_of_rows(rows: Array) -> Hashes:
    """Return a number for every row of one shape: a sum of its words, each times its own.

    Examples
    --------
    >>> one, two, three = hashes_of_rows(np.array([[1, 2], [2, 1], [1, 2]])).tolist()
    >>> one == three, one == two
    (True, False)
    """
    out = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), PIECE_ROWS):
        some = np.ascontiguousarray(rows[start : start + PIECE_ROWS])
        raw = some.reshape(len(some), -1).view(np.uint8) if some.size else None
        out[start : start + len(some)] = 0 if raw is None else _words(raw) @ _factors(raw.shape[1])
    return out


def _words(raw: Array) -> Hashes:
    """Return rows of bytes as 64-bit words, the last one filled up with zeros."""
    n_rows, n_bytes = raw.shape
    if n_bytes % 8:
        padded = np.zeros((n_rows, -(-n_bytes // 8) * 8), np.uint8)
        padded[:, :n_bytes] = raw
        raw = padded
    words: Hashes = raw.view(np.uint64)
    return words


def _factors(n_bytes: int) -> Hashes:
    """Return the odd number that each word of a row is multiplied by."""
    return _mixed(np.arange(-(-n_bytes // 8), dtype=np.uint64)) | np.uint64(1)


def hashes_of_texts(rows: Array) -> Hashes:
    """Return a number for every row of texts."""
    return _numbers(packed_texts, rows)


def hashes_of_examples(flat: Flat) -> Hashes:
    """Return a number for every example: of its values and its shape."""
    values = flat.examples()
    shapes = [tuple(shape) for shape in flat.shapes.tolist()]
    return _numbers(
        lambda one: repr(one[1]).encode() + np.ascontiguousarray(one[0]).tobytes(),
        list(zip(values, shapes, strict=True)),
    )


def _numbers(raw_of: Callable[[Any], bytes], rows: Any) -> Hashes:
    numbers = [zlib.crc32(raw) << 32 | zlib.adler32(raw) for raw in map(raw_of, rows)]
    return np.array(numbers, np.uint64)
