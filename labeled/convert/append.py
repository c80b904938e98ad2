"""``labeled.append``: more rows for a file, safely by default, in place if asked.

By default the file is copied, the copy grows, and then takes the file's place. Where the
file system copies by reference (XFS, Btrfs, APFS-like) that costs only what is new;
elsewhere it costs the whole file once more, in time and, for a while, in space. A file
whose sources are contiguous cannot grow at all: it is written anew, row by row.

``in_place=True`` needs chunked sources and costs only what is new anywhere, but a crash
in between leaves a file marked as incomplete, which nobody opens by accident.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from labeled.convert.blocks import Before
from labeled.convert.given import Block, Given
from labeled.convert.inputs import Inputs, inputs_of
from labeled.convert.progress import progress_bar
from labeled.convert.splits import Splits
from labeled.convert.statistics import Tally, moments_from
from labeled.convert.streaming import Plan, recipe_for, store, tally_for, works_of
from labeled.convert.write import checked_effort, create
from labeled.errors import ArrayError, FileChangedError, NotYetError, SplitError, WriteError
from labeled.formats.hdf5.door import stamp_of
from labeled.formats.hdf5.encoding import Layout, can_encode
from labeled.formats.hdf5.fuel import Rows
from labeled.formats.hdf5.growing import check_growable, grow_file, growable_sources
from labeled.formats.hdf5.header import FileHeader, SourceHeader
from labeled.formats.hdf5.own import Checksums, read_checksums, read_statistics
from labeled.formats.hdf5.payload import open_reader
from labeled.formats.hdf5.replacing import check_target, clone, replacing
from labeled.formats.hdf5.scales import Names
from labeled.formats.hdf5.scan import scan
from labeled.formats.hdf5.writing import SourceWriter, changed_file, storable

READ_BYTES = 4 << 20
"""Rows of the old file read at a time, where it is written anew."""

_NO_END = np.iinfo(np.int64).max


def append(
    path: str | os.PathLike[str],
    sources: Any,
    *,
    split: str | None = None,
    in_place: bool = False,
    progress: bool | None = None,
    memory: int | str = "128 MiB",
    threads: int | None = None,
) -> str:
    """Add rows to every source of a file.

    Parameters
    ----------
    path : path
        A file of examples that this process may write.
    sources : as for :func:`labeled.write`
        The same sources as in the file, with the same row shapes; dtypes are cast where
        nothing of their kind is lost.
    split : str, optional
        The split that gets the new rows, old or new. Without it they are in none (a file
        without splits has them in ``"all"``).
    in_place : bool
        Change the file itself. Only for files whose sources are chunked. Until it is done
        the file carries the attribute `labeled_incomplete`, and is refused by readers.
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ArrayError, SplitError
        If the rows do not fit the sources of the file; before anything is written.
    WriteError
        If the file cannot be written. Without `in_place` it is as it was before.
    NotYetError
        If the file has coordinates along its example dim, ragged sources, or, being
        contiguous, other things that writing it anew would lose.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(3.0)}, {"train": (0, 3)}, chunks=2)
    >>> path = labeled.append(path, {"x": np.arange(2.0)}, split="train")
    >>> labeled.open_dataset(path).split("train")["x"].values
    array([0., 1., 2., 0., 1.])
    """
    budget, threads = checked_effort(memory, threads)
    header = scan(path, decode_cf=False)
    target = check_target(header.stamp.path, overwrite=True)
    old = _Old.of(header)
    inputs = _fitting(inputs_of(sources), header)
    growable = growable_sources(target, list(header.sources))
    table = _new_table(header, split, _count(inputs))
    _check_possible(header, growable, inputs, in_place=in_place)
    plan = _plan(old, inputs, growable, split, budget, threads)
    rows = _count(inputs)
    n_bytes = None if rows is None else sum(g.row_bytes * rows for g in inputs.sources.values())
    with progress_bar(progress, n_bytes, f"append to {os.path.basename(target)}") as told:
        if not all(growable.values()):
            _write_anew(target, old, inputs, plan, table, told)
        elif in_place:
            _grow(target, old, inputs, plan, split, told, mark=True)
        else:
            with replacing(target) as part:
                clone(target, part)
                _grow(part, old, inputs, plan, split, told, mark=False)
                _check_same(header)
    return target


@dataclass(frozen=True, slots=True, eq=False)
class _Old:
    """What is in the file already."""

    header: FileHeader
    n_rows: int
    checksums: Mapping[str, Checksums]
    statistics: Mapping[str, Any]

    @classmethod
    def of(cls, header: FileHeader) -> _Old:
        counts = {name: source.n_rows for name, source in header.sources.items()}
        where = header.stamp.path
        if len(set(counts.values())) != 1:
            raise ArrayError(
                f"the sources of file {where!r} have different numbers of rows: {counts}; rows can "
                f"only be appended where they agree"
            )
        for name, source in header.sources.items():
            if source.ragged is not None:
                raise NotYetError(
                    f"source {name!r} of file {where!r} holds examples of different shapes, to "
                    f"which rows cannot be appended yet; write the file again with them"
                )
        n_rows = next(iter(counts.values()))
        sums = {name: each for name, each in read_checksums(where).items() if each.n_rows == n_rows}
        return cls(header, n_rows, sums, read_statistics(where))

    def before(self, name: str, unit_rows: int, *, checksums: bool) -> Before:
        """Return the whole units of a source, and its rows after the last of them."""
        source = self.header.sources[name]
        whole = self.n_rows // unit_rows
        rows = open_reader(source).read(range(whole * unit_rows, self.n_rows))
        known = self.checksums[name].values[:whole].tolist() if checksums else []
        kept = rows if rows.dtype.kind == "O" else rows.astype(source.dtype, copy=False)
        return Before(whole * unit_rows, known, kept)


def _fitting(inputs: Inputs, header: FileHeader) -> Inputs:
    """Return inputs as the dtypes of the file; refuse what does not fit its sources."""
    where = header.stamp.path
    if set(inputs.sources) != set(header.sources):
        raise ArrayError(
            f"rows to append have sources {sorted(inputs.sources)}, but file {where!r} has "
            f"{sorted(header.sources)}; give each of these"
        )
    counts = {name: given.shape[0] for name, given in inputs.sources.items()}
    if len(set(counts.values())) > 1:
        raise ArrayError(f"rows to append differ in number: {counts}; they must agree")
    fitted = {
        name: _fitted(inputs.sources[name], source, where)
        for name, source in header.sources.items()
    }
    return replace(inputs, sources=fitted)


def _fitted(given: Given, source: SourceHeader, where: str) -> Given:
    what = f"source {given.name!r} of file {where!r}"
    if given.row_shape != source.row_shape:
        raise ArrayError(
            f"{what} has rows of shape {source.row_shape}, those to append have {given.row_shape}"
        )
    if given.encode is not None and source.attrs.get("units") != given.attrs.get("units"):
        raise ArrayError(
            f"{what} holds {source.dtype} in units {source.attrs.get('units')!r}; cast times to "
            f"these before you append them"
        )
    texts = given.dtype.kind == "O", source.dtype.kind == "O"
    if texts[0] != texts[1] or not (
        texts[0] or np.can_cast(given.dtype, source.dtype, "same_kind")
    ):
        raise ArrayError(
            f"{what} has dtype {source.dtype}, rows to append have {given.dtype}; cast them with "
            f".astype({str(source.dtype)!r})"
        )
    dtype = np.dtype(object) if texts[1] else source.dtype
    return replace(given, dtype=dtype, names=Names(source.dims), attrs={})


def _count(inputs: Inputs) -> int | None:
    return next(iter(inputs.sources.values())).shape[0]


def _check_possible(
    header: FileHeader, growable: Mapping[str, bool], inputs: Inputs, *, in_place: bool
) -> None:
    where = header.stamp.path
    fixed = sorted(name for name, can in growable.items() if not can)
    along = sorted(
        name
        for name, variable in header.variables.items()
        if variable.dims and any(variable.dims[0] == s.dims[0] for s in header.sources.values())
    )
    if along:
        raise NotYetError(
            f"file {where!r} has coordinates {along} along its example dim, which append cannot "
            f"make longer yet; write the file again with all rows"
        )
    if not fixed:
        check_growable(where, list(header.sources))
        return
    if in_place:
        raise WriteError(
            f"sources {fixed} of file {where!r} are contiguous and cannot grow in place; leave "
            f"in_place out, or write the file with layout='chunked'"
        )
    if inputs.batches is not None:
        raise ArrayError(
            f"sources {fixed} of file {where!r} are contiguous, and their rows must be counted "
            f"before they are written anew; give arrays in place of batches"
        )
    if header.not_opened or header.variables:
        lost = sorted([*header.not_opened, *header.variables])
        raise NotYetError(
            f"file {where!r} is contiguous and would be written anew, without {lost}; write it "
            f"with layout='chunked', to which rows can be added"
        )


def _new_table(header: FileHeader, split: str | None, n_new: int | None) -> Splits | None:
    """Return the splits with the new rows in one of them; None for a file without splits."""
    if header.kind != "fuel":
        if split is not None:
            raise SplitError(
                f"file {header.stamp.path!r} has no splits, so its new rows cannot be in "
                f"{split!r}; leave split out, or write the file with splits"
            )
        return None
    table = {name: dict(by_source) for name, by_source in header.splits.items()}
    if split is None or n_new is None:
        return table
    by_source = table.setdefault(split, {})
    longer: dict[int, Rows] = {}
    for name in list(by_source) or list(header.sources):
        n_old = header.sources[name].n_rows
        fresh = range(n_old, n_old + n_new)
        rows = by_source.get(name, range(n_old, n_old))
        if isinstance(rows, range) and (rows.stop == n_old or len(rows) == 0):
            by_source[name] = range(rows.start if len(rows) else n_old, fresh.stop)
        else:
            if id(rows) not in longer:  # sources that share a list go on sharing it
                longer[id(rows)] = np.concatenate([np.asarray(rows, np.int64), np.array(fresh)])
            by_source[name] = longer[id(rows)]
    return table


def _plan(
    old: _Old,
    inputs: Inputs,
    growable: Mapping[str, bool],
    split: str | None,
    budget: int,
    threads: int,
) -> Plan:
    """Return how new rows are packed: as the old ones were."""
    anew = not all(growable.values())
    recipes, tallies = {}, {}
    for name, given in inputs.sources.items():
        source = old.header.sources[name]
        known = can_encode(source.filters)
        layout = Layout(source.chunks, source.filters) if known else Layout()  # else HDF5 encodes
        recipe = recipe_for(given, layout, name in old.checksums)
        if name in old.checksums:
            recipe = replace(recipe, unit_rows=old.checksums[name].rows)
        recipes[name] = recipe
        tallies[name] = None if anew else _tally(old, given, split)
    if anew:
        for name, given in inputs.sources.items():
            table = _new_table(old.header, split, _count(inputs))
            tallies[name] = tally_for(given, table, bool(old.statistics))
    return Plan(recipes, tallies, budget, threads)


def _tally(old: _Old, given: Given, split: str | None) -> Tally | None:
    """Return what goes on measuring where the old statistics ended."""
    known = old.statistics.get(given.name)
    if known is None:
        return None
    table: Splits = {} if split is None else {split: {given.name: range(old.n_rows, _NO_END)}}
    tally = tally_for(given, table, True)
    if tally is not None:
        tally.go_on(
            {
                "": moments_from(known["rows"]),
                **{s: moments_from(each) for s, each in known.get("splits", {}).items()},
            }
        )
    return tally


def _grow(
    path: str,
    old: _Old,
    inputs: Inputs,
    plan: Plan,
    split: str | None,
    told: Callable[[int], None],
    *,
    mark: bool,
) -> None:
    """Let a file grow where it lies."""
    before = {
        name: old.before(name, recipe.unit_rows, checksums=recipe.checksums)
        for name, recipe in plan.recipes.items()
    }
    with changed_file(path, mark=mark) as file:
        writers = {name: SourceWriter(file[name], growing=True) for name in inputs.sources}
        joiners = store(plan, works_of(plan, inputs, old.n_rows), writers, told, before)
        counts = {name: joiner.n_rows for name, joiner in joiners.items()}
        if len(set(counts.values())) > 1:
            raise ArrayError(f"rows to append differ in number: {counts}; they must agree")
        n_new = next(iter(counts.values())) - old.n_rows
        grow_file(
            file,
            list(inputs.sources),
            _new_table(old.header, split, n_new),
            plan.statistics(),
            plan.checksums(joiners),
        )


def _check_same(header: FileHeader) -> None:
    if stamp_of(header.stamp.path) != header.stamp:
        raise FileChangedError(
            f"file {header.stamp.path!r} was changed by somebody else meanwhile; append again"
        )


def _write_anew(
    target: str,
    old: _Old,
    inputs: Inputs,
    plan: Plan,
    table: Splits | None,
    told: Callable[[int], None],
) -> None:
    """Write a file with contiguous sources again: its rows, then the new ones."""
    given = {
        name: replace(
            each,
            shape=(old.n_rows + int(each.shape[0] or 0), *each.shape[1:]),
            attrs=storable(f"source {name!r}", old.header.sources[name].attrs),
            blocks=partial(_old_then_new, old.header.sources[name], each.blocks),
        )
        for name, each in inputs.sources.items()
    }
    create(
        target,
        Inputs(given),
        plan,
        table,
        storable("the file", old.header.attrs),
        netcdf=old.header.kind != "plain",
        told=told,
    )


def _old_then_new(
    source: SourceHeader, new: Callable[[int], Iterator[Block]], rows: int
) -> Iterator[Block]:
    reader = open_reader(source)
    for start in range(0, source.n_rows, rows):
        stop = min(start + rows, source.n_rows)
        yield Block(start, stop, partial(reader.read, range(start, stop)))
    for block in new(rows):
        yield replace(block, start=block.start + source.n_rows, stop=block.stop + source.n_rows)
