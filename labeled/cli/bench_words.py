"""What ``labeled bench`` says of a run: tables for people, and how to read them."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask.utils import format_bytes

from labeled.bench.cold import ORDERED, PLAIN, SHUFFLED
from labeled.bench.copies import Cell, permuted_source
from labeled.bench.digest import Figure, digest
from labeled.bench.own_file import Asked
from labeled.bench.planning import Figures
from labeled.bench.subject import Subject
from labeled.bench.table import HEAD, measured_rows, short
from labeled.bench.timing import Measured, paired_ratio
from labeled.bench.uneven import h5py_source
from labeled.loader.sizing.memory import size_words
from labeled.views.text import count_words, table

SMALL_BYTES = 8 << 20
WIDTH = 118
MOST_NAMES = 4
OUR_HEAD = tuple({"way": "loop", "ours / it": "labeled / it"}.get(name, name) for name in HEAD[:-1])

Rows = Sequence[Sequence[str]]


@dataclass
class Run:
    """What was asked for, and what was found so far."""

    asked: Asked
    missing: dict[str, str]
    cached: float
    """The share of the files that was brought into the page cache."""
    cold: dict[str, Any]
    cold_of: Subject
    default: str | None = None
    """The memory that would have been given, had it been enough."""
    parts: list[tuple[Subject, list[Measured]]] = field(default_factory=list)
    planned: Figures = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)

    def digest(self, subject: Subject, found: Sequence[Measured]) -> list[Figure]:
        """Return what a part of the run comes to."""
        return digest(found, self.cold if subject is self.cold_of else {})


def page(run: Run, how: bool) -> Iterator[str]:
    """Yield everything, line by line."""
    asked, first = run.asked, run.parts[0][0]
    yield (
        f"{asked.file}: {count_words(first.n_rows, 'row')}, batches of {asked.batch_rows:,}, "
        f"memory {asked.memory}"
        + f" ({run.default} is too little here)"
        * (run.default is not None)
    )
    for subject, found in run.parts:
        yield from ("", *about(subject), *tables(found, subject))
    yield from cold_lines(run)
    yield from copies_lines(run)
    yield from planning_lines(run.planned)
    for subject, found in run.parts:
        yield from digest_lines(run, subject, found)
    yield ""
    verdicts = [line for subject, found in run.parts for line in summary(subject, found)]
    for note in (*verdicts, *notes(run)):
        yield from textwrap.wrap(note, WIDTH, subsequent_indent="  ")
    if how:
        yield "\nhow each loop reads"
        every = dict.fromkeys(
            (shown(m.way.full_name), m.way.how) for _, ms in run.parts for m in ms
        )
        yield from (f"  {name}: {words}" for name, words in every)


def shown(name: str) -> str:
    """Call this library by its name.

    Examples
    --------
    >>> shown("ours, file order"), shown("h5py slices"), shown("the most (ours, 80 % list)")
    ('labeled, file order', 'h5py slices', 'the most (labeled, 80 % list)')
    """
    return name.replace("ours, ", "labeled, ")


def aligned(rows: Rows, head: bool = True) -> list[str]:
    """Draw a table whose figures end where they should; columns without any are left out."""
    columns = [c for c in zip(*rows, strict=True) if any(c[head:])]
    widths = [max(map(len, column)) for column in columns]
    kept = zip(*columns, strict=True)
    return table([(row[0], *map(str.rjust, row[1:], widths[1:])) for row in kept])


def named(subject: Subject) -> str:
    """Name what is read, if that is short."""
    names = subject.dataset.sources
    return ", ".join(names) if len(names) <= MOST_NAMES else count_words(len(names), "source")


def about(subject: Subject) -> Iterator[str]:
    """Say what a batch is made of, and how it is stored."""
    names = named(subject)
    what = {
        "numbers": f"{names}, read together: {count_words(subject.row_bytes, 'byte')} a row",
        "ragged": f"{names}, examples that differ in shape: {subject.row_bytes:,} bytes a row, "
        "the mean",
        "text": f"{names}, text: about {count_words(subject.row_bytes, 'byte')} a row",
    }[subject.form]
    yield what
    headers = [
        header
        for name in subject.dataset.sources
        for header in subject.dataset.files.catalog.sources[name].headers
    ]
    header = max(headers, key=lambda one: one.row_bytes)
    files = {one.file.path for one in headers}
    packed = ", ".join(step.words for step in header.filters)
    if header.storage == "chunked" and header.chunks is not None:
        laid = f"chunks of {count_words(header.chunks[0], 'row')}, {packed or 'no filter'}"
    elif header.dtype.hasobject and header.ragged is None:
        laid = "items of variable length"
    elif header.ragged is not None:
        laid = header.ragged
    else:
        laid = ", ".join(filter(None, (header.storage, packed)))
    if header.file.packed is not None:
        laid += ", in a gzip-compressed file"
    many = f"; {len(files)} files" if len(files) > 1 else ""
    of = f"{header.dtype} {header.row_shape} a row, " if subject.form == "numbers" else ""
    yield f"{header.name}: {of}{laid}{many}"


def tables(found: Sequence[Measured], subject: Subject) -> Iterator[str]:
    """Draw what was measured: loops in file order, then those in any other."""
    ran = [m for m in found if m.error is None and m.median is not None]
    lines = [(shown(line[0]), *line[1:-1]) for line in measured_rows(ran, subject.row_bytes)]
    for title, in_order in (("in file order", True), ("shuffled", False)):
        pairs = zip(lines, ran, strict=True)
        some = [line for line, m in pairs if (m.way.order == "file") == in_order]
        if some:
            yield f"\nthe same rows by each loop, {title}"
            yield from aligned([OUR_HEAD, *some])


def cold_lines(run: Run) -> Iterator[str]:
    """Say how fast the file comes from its storage."""
    yield "\nfrom a cold page cache: labeled against a plain loop over the same bytes"
    if "why" in run.cold:
        yield from textwrap.wrap(
            f"not measured: {run.cold['why']}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
        )
        return
    rates = run.cold["median"]
    head = ("loop", "MB/s as stored", "of a plain read")
    best = max(rates[name] for name in PLAIN)
    yield from aligned(
        [
            head,
            *(
                (shown(name), short(rates[name]), f"{short(rates[name] / best)} x")
                for name in (*PLAIN, ORDERED, SHUFFLED)
            ),
        ]
    )
    yield f"  {run.cold['mb']:,.0f} MB as stored" + "; labeled also decodes them" * _decoded(
        run.cold_of
    )
    yield "  below the page cache, storage may have a cache of its own, which serves all alike"


def _decoded(subject: Subject) -> bool:
    """Whether more has to be done than to read."""
    sources = subject.dataset.files.catalog.sources
    headers = [one for name in subject.dataset.sources for one in sources[name].headers]
    return subject.form != "numbers" or any(one.filters or one.file.packed for one in headers)


def copies_lines(run: Run) -> Iterator[str]:
    """Say what bringing the axes of a batch into other orders takes."""
    if not run.cells:
        return
    name, (n, *_), dtype = _permuted(run), run.cells[0]["shape"], run.cells[0]["dtype"]
    yield (
        f"\nother orders of axes: {n:,} rows of {name} ({dtype}) by labeled, against NumPy's copy "
        "and memcpy"
    )
    words = {"move": "as it is", "normalise": "scaled to float32", "gather": "rows picked"}
    rows: list[tuple[str, ...]] = [("to the order", "time", "x NumPy", "x memcpy")]
    for order in list(dict.fromkeys(cell["order"] for cell in run.cells))[:2]:
        rows += [_cell(order, words[c["kind"]], c) for c in run.cells if c["order"] == order]
    for kind in ("move", "normalise"):
        if some := [cell for cell in run.cells if cell["kind"] == kind]:
            worst = min(some, key=lambda cell: float(cell["x_numpy"]))
            middle = {
                key: statistics.median(float(cell[key]) for cell in some)
                for key in ("ours_s", "x_numpy", "of_memcpy")
            }
            rows.append(_cell(f"median of {count_words(len(some), 'order')}", words[kind], middle))
            rows.append(_cell(f"the least gained, {worst['order']}", words[kind], worst))
    yield from aligned(rows)


def _permuted(run: Run) -> str:
    return next(filter(None, (permuted_source(subject) for subject, _ in run.parts)), "")


def _cell(order: str, what: str, cell: Cell) -> tuple[str, ...]:
    return (
        f"{order}, {what}",
        f"{cell['ours_s'] * 1e3:.3f} ms",
        f"{short(cell['x_numpy'])} x",
        f"{short(cell['of_memcpy'])} x",
    )


def planning_lines(planned: Figures) -> Iterator[str]:
    """Say what happens before the first row."""
    yield "\nbefore the first row"
    rows: list[tuple[str, ...]] = []
    if "open_s" in planned:
        rows.append(("open, in a new process", f"{planned['open_s'] * 1e3:.1f} ms", ""))
    if "index_s" in planned:
        kept = format_bytes(int(planned["index_bytes"]))
        told = f"{count_words(int(planned['n_chunks']), 'chunk')}, {kept} kept"
        rows.append(("chunk index", f"{planned['index_s'] * 1e3:.1f} ms", told))
    if "graph_s" in planned:
        blocks = count_words(int(planned["graph_blocks"]), "block")
        layers = count_words(int(planned["graph_layers"]), "layer")
        rows.append(("lazy array", f"{planned['graph_s'] * 1e3:.1f} ms", f"{blocks}, {layers}"))
    rows += [
        ("plan of an epoch", f"{planned['plan_s'] * 1e3:.1f} ms", ""),
        ("going on in mid-epoch", f"{planned['seek_s'] * 1e3:.1f} ms", ""),
    ]
    yield from table(rows)


def digest_lines(run: Run, subject: Subject, found: Sequence[Measured]) -> Iterator[str]:
    """Say in ratios how this library compares with others and with itself."""
    if told := run.digest(subject, found):
        yield f"\nwhat it comes to for {named(subject)}: rates of labeled / of others"
        cells = [
            (shown(one.words), f"{short(one.value)} x" if one.unit else f"{one.value:.3f}")
            for one in told
        ]
        yield from aligned(cells, head=False)


def summary(subject: Subject, found: Sequence[Measured]) -> Iterator[str]:
    """Say in a line for each order how this library compares with the fastest of the others."""
    for title, in_order in (("in file order", True), ("shuffled", False)):
        some = [m for m in found if (m.way.order == "file") == in_order and m.median is not None]
        mine = [m for m in some if m.way.kind == "ours" and m.way.order != "list"]
        others = [m for m in some if m.way.kind == "peer"]
        if mine and others:
            best, rival = (max(group, key=lambda m: m.median or 0.0) for group in (mine, others))
            ratio, mixed = paired_ratio(best, rival), _mixed(best, rival)
            yield (
                f"{named(subject)}, {title}: {short(ratio or 0.0)} x "
                f"{rival.way.name}, the fastest of the others{mixed}."
            )


def _mixed(best: Measured, rival: Measured) -> str:
    if best.way.order == "file" or best.entropy is None or rival.entropy is None:
        return ""
    return f" (batch entropy {best.entropy:.3f} against {rival.entropy:.3f})"


def notes(run: Run) -> Iterator[str]:
    """Say what a reader of the tables must know."""
    every = [m for _, found in run.parts for m in found]
    yield f"Columns: {'; '.join(f'{name}: {words}' for name, words in columns(every))}."
    if any(not m.complete for m in every):
        yield "*: stopped before the end of an epoch; more --seconds measure more of it."
    labelled = [subject.labelled for subject, _ in run.parts if subject.labelled is not None]
    if labelled:
        yield (
            f"Entropy: of the {labelled[0]!r} in a batch, relative to a full shuffle; 1 is "
            "as good as it gets."
        )
    else:
        yield "Entropy: none of the sources measured holds classes, one whole number a row."
    for name, why in run.asked.left_out(subject for subject, _ in run.parts).items():
        yield f"Left out: {name}: {why}."
    for subject, found in run.parts:
        yield from _about_reading(run, subject, found)
    if run.cached < 1:
        yield (
            f"Only {run.cached:.0%} of the file was read beforehand: what was measured includes "
            "its storage."
        )
    failed = {shown(m.way.full_name): m.error for m in every if m.error is not None}
    for name, why in {**run.missing, **failed}.items():
        yield f"Not measured: {name}: {why}"


def columns(found: Sequence[Measured]) -> Iterator[tuple[str, str]]:
    """Say what the columns mean that stand in the tables."""
    yield "rows/s, MB/s", "medians over rounds, of rows in memory, in 10^6 bytes"
    if any(m.way.kind == "bare" for m in found):
        yield (
            "x bare",
            "as fast as the fastest loop written by hand for this layout and order, if any",
        )
    if any(m.way.kind == "ours" for m in found):
        yield "labeled / it", "how much faster labeled's fastest is in that order"
    if any(m.peak_bytes is not None for m in found):
        yield "peak MiB", "growth of memory after opening, in a process of its own"
    yield "first batch", "opening and imports included"
    if any(m.spread is not None for m in found):
        yield "spread", "half the distance between quartiles"


def _about_reading(run: Run, subject: Subject, found: Sequence[Measured]) -> Iterator[str]:
    """Say what the rates of a part do not tell."""
    names = named(subject)
    if any(m.kept for m in found):
        yield (
            f"{names}: the rows fit --memory {run.asked.memory!r}: labeled reads them once and "
            f"keeps them, and its rates are those of memory. {_measuring(subject)}"
        )
    if subject.form != "numbers" and h5py_source(subject) is None:
        yield f"{names}: h5py cannot read this layout, so no loop of its users stands beside."
    elif subject.form == "numbers" and not subject.by_others:
        yield (
            f"{names}: other loaders cannot read this layout by themselves (several files, text, "
            "records), and were left out or read it through labeled's lazy arrays."
        )


def _measuring(subject: Subject) -> str:
    """Say how reading the file itself is measured."""
    half = subject.n_rows * subject.row_bytes // 2
    if half < SMALL_BYTES:
        return "Reading a file as small as this one cannot be measured."
    return f"--memory {size_words(half)!r} measures the file."
