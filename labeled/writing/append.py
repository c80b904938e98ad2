"""``labeled.append``: more rows for a file, safely by default, in place if asked.

By default the file is copied, the copy grows, and then takes the file's place. Where the
file system copies by reference (XFS, Btrfs, APFS-like) that costs only what is new;
elsewhere it costs the whole file once more, in time and, for a while, in space. A file
whose sources are contiguous, or ragged, cannot grow at all: it is written anew, row by row.

``in_place=True`` needs chunked sources and costs only what is new anywhere. New rows that break
off are taken back; what is cut short after them leaves a file marked as incomplete, which nobody
opens by accident.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from labeled._validation import check_arguments
from labeled.display.classes import as_text, class_names_of
from labeled.display.progress import progress_bar
from labeled.errors import (
    ArrayError,
    DimsError,
    NotYetError,
    SplitError,
    WriteError,
)
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.extras import extras_of
from labeled.formats.hdf5.filters import Layout, can_encode
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.fuel import remove_table, write_table
from labeled.formats.hdf5.metadata import (
    Checksums,
    datasets_of,
    read_checksums,
    read_statistics,
    write_own,
)
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.writing import (
    Names,
    SourceWriter,
    changed_file,
    check_growable,
    grow_file,
    growable_sources,
    storable,
)
from labeled.formats.header import FileHeader, Rows, SourceHeader, vlen_base
from labeled.formats.reader import read_rows
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_changeable, check_target, clone, replacing
from labeled.writing.inputs import Inputs, inputs_of
from labeled.writing.layouts import RaggedAs
from labeled.writing.packing import (
    Before,
    Joiner,
    Plan,
    fitting,
    put,
    store,
    tally_for,
    units_of,
)
from labeled.writing.ragged import (
    Examples,
    RaggedToWrite,
    joined_examples,
    ragged_to_write,
)
from labeled.writing.repack import StoredSources, coordinates_of
from labeled.writing.source import Block, SourceToWrite
from labeled.writing.splits import Splits, as_splits, check_split_name, warn_of_overlaps
from labeled.writing.write import Planned, checked_effort, naming

_NO_END = np.iinfo(np.int64).max


@check_arguments(but=("path",))
def append(
    path: str | os.PathLike[str],
    sources: Any,
    *,
    split: str | None = None,
    in_place: bool = False,
    progress: bool | None = None,
    memory: float | str | None = None,
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
        the file carries the attribute `labeled_incomplete`, and is refused by readers. If the new
        rows break off (an error, Ctrl-C), its rows are those that it had. If its tables are cut
        short after that, it cannot be undone, or the process is killed, it stays refused, and other
        programs may not be able to open it either: have a copy.
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the file.

    Notes
    -----
    Without `in_place` a copy grows and then takes the file's place. Copies by reference (XFS,
    Btrfs) cost what is new; elsewhere the whole file is written once more, and for that while
    takes its space twice. Contiguous and ragged sources cannot grow: they are always written
    anew.

    Raises
    ------
    ArrayError, DimsError, SplitError
        If the rows do not fit the sources of the file; before anything is written.
    WriteError
        If the file cannot be written. Without `in_place` it is as it was before.
    NotYetError
        If the file has coordinates along its example dim, or, being contiguous or ragged, holds
        what cannot be carried over (references, data in other files).

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(3.0)}, {"train": (0, 3)}, chunks=2)
    >>> path = labeled.append(path, {"x": np.arange(2.0)}, split="train")
    >>> labeled.open_dataset(path).split("train")["x"].values
    array([0., 1., 2., 0., 1.])
    """
    effort = checked_effort(memory, threads)
    check_hdf5(path, "adding rows")
    header = scan(path, decode_cf=False)
    with naming(f"rows were to be added to {header.stamp.path!r}"):
        if in_place:
            target = check_changeable(header.stamp.path)
        else:
            target = check_target(header.stamp.path, overwrite=True)
        old = _Old.of(header)
        inputs = _fitting(inputs_of(_as_ragged(sources, header)), header)
        table = _new_table(header, split, _count(inputs))
        growing = _can_grow(header, target, inputs, in_place=in_place)
        if not growing:
            inputs = _old_then_new(StoredSources(header, target, effort[0]), inputs)
        plan = fitting(old.plan(inputs, table, effort, split if growing else None, growing), memory)
        with progress_bar(
            progress, inputs.n_bytes, f"append to {os.path.basename(target)}"
        ) as advance:
            if not growing:
                attrs = storable("the file", header.attrs)
                extras = extras_of(header)
                new = Planned(plan, table, attrs, header.kind != "plain", extras=extras)
                new.create(target, advance, overwrite=True)
            elif in_place:
                packed = any(recipe.layout.filters for recipe in plan.recipes.values())
                check_changeable(target, n_bytes=0 if packed else inputs.n_bytes or 0)
                _grow(target, old, plan, split, advance, mark=True)
            else:
                with replacing(target) as part:
                    clone(target, part)
                    _grow(part, old, plan, split, advance, mark=False)
                    check_same(header.stamp, "append again")
    return os.path.realpath(header.stamp.path)


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
        n_rows = next(iter(counts.values()))
        stored = {k: v for s in header.sources.values() for k, v in datasets_of(s).items()}
        sums = {
            name: each
            for name, each in read_checksums(where).items()
            if name in stored and each.n_rows == stored[name].n_rows
        }
        return cls(header, n_rows, sums, read_statistics(where))

    def plan(
        self,
        inputs: Inputs,
        table: Splits | None,
        effort: tuple[int, int],
        split: str | None,
        growing: bool,
    ) -> Plan:
        """Plan rows that are stored as the old ones were.

        In a file that grows, checksums and statistics go on where those of the old rows end.
        """
        layouts = {
            name: Layout(stored.chunks, stored.filters)
            if can_encode(stored.filters)
            else Layout()  # HDF5 encodes
            for source in self.header.sources.values()
            for name, stored in datasets_of(source).items()
        }
        plan = Plan.of(inputs, layouts, table, effort, statistics=bool(self.statistics))
        recipes, tallies = dict(plan.recipes), dict(plan.tallies)
        for name, recipe in recipes.items():
            sums, known = self.checksums.get(name), self.statistics.get(name)
            recipes[name] = replace(recipe, checksums=sums is not None)
            if not growing:
                continue
            if sums is not None:
                recipes[name] = replace(recipe, unit_rows=sums.rows)
            fresh: Splits = {} if split is None else {split: {name: range(self.n_rows, _NO_END)}}
            tallies[name] = None
            if known is not None:
                tallies[name] = tally = tally_for(inputs.sources[name], fresh)
                if tally is not None:
                    tally.go_on(known)
        return replace(plan, recipes=recipes, tallies=tallies)

    def before(self, name: str, unit_rows: int, *, checksums: bool) -> Before:
        """Return the whole units of a source, and its rows after the last of them."""
        source = self.header.sources[name]
        whole = self.n_rows // unit_rows
        rows = read_rows(open_reader(source), range(whole * unit_rows, self.n_rows))
        known = self.checksums[name].values[:whole].tolist() if checksums else []
        kept = rows if rows.dtype.kind == "O" else rows.astype(source.dtype, copy=False)
        return Before(whole * unit_rows, known, kept)


def _as_ragged(sources: Any, header: FileHeader) -> Any:
    """Take lists of examples of one shape as ragged, where the source of the file is."""
    if not isinstance(sources, Mapping):
        return sources
    out = dict(sources)
    for name, source in header.sources.items():
        given = out.get(name)
        if source.ragged is None or not isinstance(given, list | tuple):
            continue
        if given and all(np.ndim(one) == len(source.dims) - 1 > 0 for one in given):
            out[name] = np.empty(len(given), object)
            for row, one in enumerate(given):
                out[name][row] = one
    return out


def _fitting(inputs: Inputs, header: FileHeader) -> Inputs:
    """Return inputs as the dtypes of the file; refuse what does not fit its sources."""
    where = header.stamp.path
    counts = inputs.n_rows
    if set(counts) != set(header.sources):
        raise ArrayError(
            f"rows to append have sources {sorted(counts)}, but file {where!r} has "
            f"{sorted(header.sources)}; pass rows of every source"
        )
    if len(set(counts.values())) > 1:
        raise ArrayError(f"rows to append differ in number: {counts}; they must agree")
    fitted = dict(inputs.sources)
    for name, source in header.sources.items():
        if (source.ragged is not None) != (name in inputs.ragged):
            raise ArrayError(
                f"source {name!r} of file {where!r} holds examples of "
                f"{'different shapes' if source.ragged else 'one shape'}, those to append are of "
                f"{'one shape' if source.ragged else 'different shapes'}; give a labeled.Ragged "
                f"(or an object array of arrays) for the former, an array for the latter"
            )
        given: RaggedToWrite | SourceToWrite = inputs.ragged.get(name) or inputs.sources[name]
        dims = given.dims if isinstance(given, RaggedToWrite) else given.names.dims
        _check_order(f"source {name!r} of file {where!r}", dims[1:], source.dims[1:])
        if isinstance(given, SourceToWrite):
            _check_positions(f"source {name!r} of file {where!r}", given, header, source)
        if source.ragged is None:
            fitted[name] = _fitted(inputs.sources[name], source, where)
    return replace(inputs, sources=fitted)


def _check_order(what: str, given: Sequence[str], dims: Sequence[str]) -> None:
    """Refuse rows whose axes have the names of those in the file, in another order."""
    if tuple(given) != tuple(dims) and sorted(given) == sorted(dims):
        raise DimsError(
            f"{what} has rows with dims {tuple(dims)}, those to append have {tuple(given)}; "
            f"transpose them"
        )


def _check_positions(
    what: str, given: SourceToWrite, header: FileHeader, source: SourceHeader
) -> None:
    """Refuse rows whose columns or channels have other names than in the file."""
    called = {one.name: one for one in given.names.coords if one.values.dtype.kind in "OSU"}
    if not called:
        return
    for mine in coordinates_of(header, source):
        theirs = called.get(mine.name)
        if theirs is None or mine.dim != theirs.dim or mine.dim == source.dims[0]:
            continue
        pairs = zip(mine.values.tolist(), theirs.values.tolist(), strict=False)
        odd = next((i for i, (a, b) in enumerate(pairs) if as_text(a) != as_text(b)), None)
        if odd is not None:
            raise ArrayError(
                f"{what} calls position {odd} of dim {mine.dim!r} {as_text(mine.values[odd])!r}, "
                f"those to append call it {as_text(theirs.values[odd])!r}; bring them into the "
                f"order of the file, with .sel({mine.name}=[...])"
            )


def _fitted(given: SourceToWrite, source: SourceHeader, where: str) -> SourceToWrite:
    what = f"source {given.name!r} of file {where!r}"
    if given.row_shape != source.row_shape:
        raise ArrayError(
            f"{what} has rows of shape {source.row_shape}, but rows to append have shape "
            f"{given.row_shape}"
        )
    mine, theirs = source.attrs.get("units"), given.attrs.get("units")
    if given.encode is None and None not in (mine, theirs) and as_text(mine) != as_text(theirs):
        raise ArrayError(f"{what} is in {mine!r}, rows to append are in {theirs!r}; convert them")
    if given.encode is not None and mine != theirs:
        raise ArrayError(
            f"{what} holds {source.dtype} in units {mine!r}; cast times to "
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
    classes, others = class_names_of(source.attrs), class_names_of(given.attrs)
    odd = sorted(n for n in classes.keys() & others.keys() if classes[n] != others[n])
    if odd:
        raise ArrayError(
            f"{what} calls class {odd[0]} {classes[odd[0]]!r}, those to append call it "
            f"{others[odd[0]]!r}; give them the numbers of the file"
        )
    dtype = np.dtype(object) if texts[1] else source.dtype
    return replace(given, dtype=dtype, names=Names(source.dims), attrs=source.attrs)


def _count(inputs: Inputs) -> int | None:
    return next(iter(inputs.n_rows.values()))


def _can_grow(header: FileHeader, target: str, inputs: Inputs, *, in_place: bool) -> bool:
    """Return whether every source can grow in place; else the file is written anew."""
    where, sources = header.stamp.path, header.sources.values()
    along = sorted(
        name
        for name, variable in header.variables.items()
        if variable.dims and any(variable.dims[0] == source.dims[0] for source in sources)
    )
    if along:
        raise NotYetError(
            f"file {where!r} has coordinates {along} along its example dim, which append cannot "
            f"make longer yet; write the file again with all rows"
        )
    growable = growable_sources(target, [source.name for source in sources if not source.ragged])
    fixed = sorted(source.name for source in sources if not growable.get(source.name))
    if not fixed:
        check_growable(where, list(header.sources))
        return True
    if in_place:
        raise WriteError(
            f"sources {fixed} of file {where!r} are contiguous or ragged and cannot grow in "
            f"place; leave in_place=True out, or write the file with layout='chunked'"
        )
    if inputs.batches is not None:
        raise ArrayError(
            f"sources {fixed} of file {where!r} are contiguous or ragged, and rows must be counted "
            f"before they are written anew; give arrays in place of batches"
        )
    return False


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
    if split is not None:
        check_split_name(split)
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


def _grow(
    path: str,
    old: _Old,
    plan: Plan,
    split: str | None,
    advance: Callable[[int], None],
    *,
    mark: bool,
) -> None:
    """Let a file grow where it lies."""
    before = {
        name: old.before(name, recipe.unit_rows, checksums=recipe.checksums)
        for name, recipe in plan.recipes.items()
    }
    joiners: dict[str, Joiner] = {}

    def undo(file: Any) -> None:
        if joiners:
            raise WriteError("its new rows are there, but not all of its tables")
        for name, each in before.items():
            file[name].resize(each.n_rows, axis=0)
            writer = SourceWriter(file[name], growing=True)
            if len(each.rows):
                put(writer, units_of(each.rows, each.n_rows, plan.recipes[name]))

    with changed_file(path, undo=undo if mark else None) as file:
        writers = {name: SourceWriter(file[name], growing=True) for name in plan.recipes}
        done = store(plan, writers, advance, old.n_rows, before)
        counts = {name: joiner.n_rows for name, joiner in done.items()}
        if len(set(counts.values())) > 1:
            raise ArrayError(f"rows to append differ in number: {counts}; they must agree")
        joiners |= done
        n_new = next(iter(counts.values())) - old.n_rows
        grow_file(
            file,
            list(plan.recipes),
            _new_table(old.header, split, n_new),
            plan.statistics(),
            plan.checksums(joiners),
        )


def _old_then_new(stored: StoredSources, new: Inputs) -> Inputs:
    """Return all rows that the file will have, as they are written anew."""
    given: dict[str, SourceToWrite] = {}
    raggeds: dict[str, RaggedToWrite] = {}
    for name, source in stored.header.sources.items():
        if source.ragged is None:
            given[name] = _followed(stored.dense(source), new.sources[name])
            continue
        examples = _joined(source, stored.examples(source), new.ragged[name])
        kind: RaggedAs = "flat" if "values" in source.parts else "fuel"
        raggeds[name], datasets = ragged_to_write(name, examples, None, kind)
        given |= datasets
    return Inputs(given, ragged=raggeds)


def _followed(old: SourceToWrite, new: SourceToWrite) -> SourceToWrite:
    """Return the rows of a file, then new ones; stored times as times, if these are such."""
    n_old = int(old.shape[0] or 0)

    def blocks(rows: int) -> Iterator[Block]:
        for block in old.blocks(rows):
            yield block if new.encode is None else replace(block, read=partial(_as_times, block))
        for block in new.blocks(rows):
            yield replace(block, start=block.start + n_old, stop=block.stop + n_old)

    def _as_times(block: Block) -> Any:
        assert block.read is not None
        kind = "m" if old.attrs.get("units") == "nanoseconds" else "M"
        return block.read().astype(np.int64).view(f"{kind}8[ns]")

    shape = (n_old + int(new.shape[0] or 0), *old.shape[1:])
    return replace(new, shape=shape, names=old.names, attrs=old.attrs, blocks=blocks)


def _joined(source: SourceHeader, old: Examples, new: RaggedToWrite) -> Examples:
    what = f"source {source.name!r} of file {source.file.path!r}"
    stored = datasets_of(source)[source.name].dtype
    dtype = vlen_base(stored) or stored
    assert new.examples is not None
    units = source.attrs.get("units")
    if new.units != units and new.examples.are_times:
        raise ArrayError(
            f"{what} holds {dtype} in units {units!r}; cast times to these before you append them"
        )
    if len(new.dims) != len(source.dims):
        raise ArrayError(
            f"{what} has examples of {len(source.dims) - 1} axes, those to append have "
            f"{len(new.dims) - 1}"
        )
    if not np.can_cast(new.examples.dtype, dtype, "same_kind"):
        raise ArrayError(
            f"{what} has dtype {dtype}, rows to append have {new.examples.dtype}; cast them"
        )
    return joined_examples(old, new.examples, dtype, what)


# splits of a file whose rows stay as they are


@check_arguments(but=("path",))
def write_splits(
    path: str | os.PathLike[str], splits: Mapping[str, Any], *, overwrite: bool = False
) -> str:
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
        If the file cannot be written, or would be read otherwise with a split table. It is as
        it was before.

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
    table = as_splits(splits, {name: source.n_rows for name, source in header.sources.items()})
    old = header.splits if header.kind == "fuel" else {}
    both = sorted(old.keys() & table.keys())
    if both and not overwrite:
        raise SplitError(
            f"file {where!r} has splits {both} already; give others, or pass overwrite=True to "
            f"replace these"
        )
    table = {**{split: dict(by_source) for split, by_source in old.items()}, **table}
    warn_of_overlaps(table)
    statistics = read_statistics(where)
    for known in statistics.values():
        for split in both:
            known.get("splits", {}).pop(split, None)
    target = check_target(where, overwrite=True)
    with replacing(target, overwrite=True) as part:
        clone(target, part)
        with changed_file(part) as file:
            scales = any(len(file[source.key].dims[0]) for source in header.sources.values())
            comments = remove_table(file["/"]) if header.kind == "fuel" else None
            write_table(file["/"], table, list(header.sources), comments=comments, scales=scales)
            write_own(file, statistics, read_checksums(where))
        _check_same(header, scan(part))
    return target


def _check_same(old: FileHeader, new: FileHeader) -> None:
    """Refuse a file whose sources are others with a split table, or that was changed meanwhile."""
    check_same(old.stamp, "try again")
    for name, source in old.sources.items():
        there = new.sources.get(name)
        if there is None or (there.dims, there.shape, there.dtype, there.cf, there.coords) != (
            (source.dims, source.shape, source.dtype, source.cf, source.coords)
        ):
            raise WriteError(
                f"source {name!r} of {old.stamp.path!r} would be read otherwise beside splits, as "
                f"files of other programs are; make a new file with labeled.convert(..., split=)"
            )
