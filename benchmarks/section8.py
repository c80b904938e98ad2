"""The table of speeds that the design promises, judged row by row from one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import permute
from benchmarks.timing import Measured, paired_ratio

QUALITY_SLACK = 0.015
"""How far below a peer's batch entropy ours may lie and still count as equal."""

PREDICTION_SLACK = 0.01


@dataclass(frozen=True)
class Check:
    """One promise: a figure and its bound; a figure of None was not measured."""

    row: str
    words: str
    figure: float | None
    bound: float
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        if self.figure is None:
            return None
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound


@dataclass
class Results:
    """Everything that a run found out."""

    measured: dict[str, list[Measured]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    """Compression ratio of the file of each workload."""
    row_bytes: dict[str, int] = field(default_factory=dict)
    cold: list[dict[str, Any]] = field(default_factory=list)
    chunks: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, float] = field(default_factory=dict)
    records: Mapping[str, float] = field(default_factory=dict)
    plain_files: Mapping[str, float] = field(default_factory=dict)
    cells: list[dict[str, Any]] = field(default_factory=list)
    gpu: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def way(self, workload: str, name: str) -> Measured | None:
        return next((m for m in self.measured.get(workload, []) if m.way.name == name), None)

    def ratio(self, workload: str, above: str, below: str) -> float | None:
        return paired_ratio(self.way(workload, above), self.way(workload, below))


def checks(results: Results) -> list[Check]:
    """Judge every promise that was measured."""
    found = [
        *_contiguous(results),
        *_chunked(results),
        *_packed(results),
        *_shuffled_packed(results),
        *_lists(results),
        *_peers(results),
        *_cold(results),
        *_copies(results),
        *_planning(results),
        *_records(results),
        *_plain_files(results),
        *_memory(results),
    ]
    return [check for check in found if check.figure is not None]


def _contiguous(r: Results) -> Iterator[Check]:
    row, work, ours = "contiguous, file order", "contiguous-order", "ours, file order"
    yield Check(row, "of a loop of few lines", r.ratio(work, ours, "few lines"), 1.0)
    labels_us = _later_by_us(r, work, "ours, file order, labelled", "few lines")
    yield Check(row, "labelled: a batch later than a loop of few lines", labels_us, 10, False, "us")
    yield Check(row, "of the h5py slicing loop", r.ratio(work, ours, "h5py slices"), 1.25)
    yield Check(row, "of xarray+dask", r.ratio(work, ours, "xarray+dask"), 60)
    value = r.ratio("contiguous-4096", ours, "bare copy")
    yield Check(row, "batches of 4,096 rows: of the bare mapped copy", value, 1.0)
    row, work, ours = "contiguous, full shuffle", "contiguous-full", "ours, full shuffle"
    yield Check(row, "of bare np.take", r.ratio(work, ours, "bare take"), 1.2)
    yield Check(row, "of h5py sorted lists", r.ratio(work, ours, "h5py sorted lists"), 30)
    yield Check(row, "of xarray+dask", r.ratio(work, ours, "xarray+dask"), 1000)


def _later_by_us(r: Results, work: str, one: str, other: str) -> float | None:
    """Return how much longer a batch of 256 rows takes one way than another, in microseconds."""
    first, second = r.way(work, one), r.way(work, other)
    if first is None or second is None or not first.median or not second.median:
        return None
    return 256e6 / first.median - 256e6 / second.median


def _chunked(r: Results) -> Iterator[Check]:
    value = r.ratio("chunked", "ours, window shuffle", "ours, file order")
    yield Check("chunked, no filter, window shuffle", "of its own file order", value, 0.6)


def _packed(r: Results) -> Iterator[Check]:
    for work in ("gzip-noisy", "gzip-digits", "gzip-floats"):
        row = f"gzip, file order: {work[5:]}"
        value = r.ratio(work, "ours, file order", "bare decode")
        yield Check(row, "of the bare decode loop", value, 0.95)
        words = f"of the h5py slicing loop ({r.ratios.get(work, 1.0):.1f}:1)"
        yield Check(row, words, r.ratio(work, "ours, file order", "h5py slices"), 2.8)


def _shuffled_packed(r: Results) -> Iterator[Check]:
    ours = "ours, window shuffle"
    for work in ("gzip-noisy", "gzip-digits", "gzip-floats"):
        row = f"gzip, window shuffle in 64 MiB: {work[5:]}"
        value = r.ratio(work, ours, "ours, file order")
        yield Check(row, "of its own file order", value, 0.9)
        mixed = r.way(work, ours)
        if mixed is not None and mixed.entropy is not None:
            yield Check(row, "batch entropy of a full shuffle", mixed.entropy, 0.95, unit="")
            if mixed.predicted is not None:
                off = abs(mixed.predicted - mixed.entropy)
                words = f"explain() predicted {mixed.predicted:.3f}: off by"
                yield Check(row, words, off, PREDICTION_SLACK, False, "")


def _lists(r: Results) -> Iterator[Check]:
    for work, words in (("list-contiguous", "contiguous"), ("list-gzip", "gzip")):
        value = r.ratio(work, "ours, 80 % list", "ours, whole range")
        yield Check(
            "a random 80 % index list, shuffled", f"of the whole range, {words}", value, 0.75
        )


def _peers(r: Results) -> Iterator[Check]:
    row = "against peers, equal or better shuffle quality"
    lines = (
        ("contiguous-order", "ours, file order"),
        ("contiguous-full", "ours, full shuffle"),
        ("gzip-noisy", "ours, file order"),
        ("gzip-shuffled", "ours, window shuffle"),
    )
    for work, name in lines:
        ours, rivals = r.way(work, name), []
        for peer in r.measured.get(work, []):
            ratio = paired_ratio(ours, peer) if peer.way.kind == "peer" else None
            if ours is not None and ratio is not None:
                better = (peer.entropy or 0.0) - (ours.entropy or 0.0)
                mixed = ours.way.order != "file" and better > QUALITY_SLACK
                rivals.append((ratio, peer.way.name, mixed))
        for mixed in (False, True):
            some = [rival for rival in rivals if rival[2] == mixed]
            if some:
                ratio, peer_name, _ = min(some)
                note = ", which mixes better than ours" if mixed else ""
                words = f"{work}: of the fastest of {len(some)}, {peer_name}{note}"
                yield Check(row, words, ratio, 1.0)


def _cold(r: Results) -> Iterator[Check]:
    for found in r.cold:
        row = f"cold page cache: {found['file']}"
        for words, ratio in found["ratios"].items():
            yield Check(row, words, ratio, 0.9)


def _copies(r: Results) -> Iterator[Check]:
    row, cells = "permuting copy, extra fast", r.cells
    if not cells:
        return
    wanted = (("c01b", "u1", 8), ("c01b", "f4", 4), ("01bc", "", 0), ("b01c", "u1", 10))
    for order, dtype, bound in (*wanted, ("b01c", "f4", 4)):
        if not dtype:
            continue
        name = "uint8" if dtype == "u1" else "float32"
        value = permute.least(cells, kind="move", order=order, dtype=name)
        yield Check(row, f"bc01->{order} {dtype}, of NumPy's copy, the least shape", value, bound)
    gathered = permute.least(cells, kind="gather", channels=3)
    yield Check(row, "gather and permute in one pass, of two passes, the least shape", gathered, 3)
    gathered = permute.least(cells, kind="gather", channels=1)
    yield Check(row, "the same of a single channel, which NumPy copies fast", gathered, 0.95)
    yield Check(row, "worst order of any shape, of NumPy", permute.least(cells, kind="move"), 0.95)


def _planning(r: Results) -> Iterator[Check]:
    found, row = r.chunks, "open; index of chunks; graph"
    if found:
        n = f"{int(found['n_chunks']):,} chunks"
        yield Check(row, f"open, {n}", found["open_s"] * 1e3, 50, False, "ms")
        yield Check(row, f"graph over {n}", found["graph_s"] * 1e3, 100, False, "ms")
        yield Check(row, f"index of {n}", found["index_s"], 1.5, False, "s")
        yield Check(row, f"index of {n}, kept", found["index_bytes"] / 2**20, 16, False, "MiB")
    found, row = r.rows, "split, subset, shard, seek"
    if found:
        n = f"{int(found['n_rows']):,} rows"
        yield Check(row, f"graph over {n}", found["graph_auto_s"] * 1e3, 100, False, "ms")
        words = f"graph of {int(found['graph_blocks']):,} blocks, split"
        yield Check(row, words, found["graph_s"] * 1e3, 100, False, "ms")
        yield Check(row, "layers of that graph", found["graph_layers"], 1, False, "")
        yield Check(row, f"plan, {n}", found["plan_s"] * 1e3, 50, False, "ms")
        yield Check(row, f"plan, {n}, held", found["plan_bytes"] / 1e6, 20, False, "MB")
        yield Check(row, "compose, each step", found["compose_s"] * 1e6, 100, False, "us")
        yield Check(row, "seek to a block of 64k", found["seek_s"] * 1e3, 5, False, "ms")
        words = "seek to a window of 64k"
        yield Check(row, words, found["seek_window_s"] * 1e3, 5, False, "ms")
        words = f"plan over a list of {int(found['list_rows']):,}, of one stable sort"
        yield Check(row, words, found["list_plan_s"] / found["sort_s"], 6, False)


def _records(r: Results) -> Iterator[Check]:
    for name in ("96x96", "224x224", "mixed"):
        row = f"records of JPEGs to batches: {name}"
        for way in ("ours", "ours, shuffled"):
            value = r.records.get(f"{name}: {way} / bare")
            yield Check(row, f"{way}: of the bare decode loop", value, 0.9)
        value = r.records.get(f"{name}: ours / torch DataLoader")
        yield Check(row, "of torch DataLoader", value, 1.0)


def _plain_files(r: Results) -> Iterator[Check]:
    for name in ("idx, u8 images", "idx, f8 big-endian", "idx, u8 images, gz"):
        value = r.plain_files.get(f"{name}: ours / bare")
        yield Check("IDX, file order", f"of the bare reading loop: {name}", value, 0.9)
    value = r.plain_files.get("csv: ours / bare")
    yield Check("delimited text, file order", "of pyarrow's parser, the fastest way", value, 0.9)


def _memory(r: Results) -> Iterator[Check]:
    row, found = "peak memory", []
    for work, all_ways in r.measured.items():
        for m in all_ways:
            if m.way.kind == "ours" and m.peak_bytes is not None and m.promised_bytes:
                words = f"of the {m.promised_bytes / 2**20:.0f} MiB promised: {m.way.name}, {work}"
                found.append((m.peak_bytes / m.promised_bytes, words))
    if found:
        (least, of_least), (most, of_most) = min(found), max(found)
        yield Check(row, f"the most, {of_most}", most, 1.0, False)
        yield Check(row, f"the least, {of_least}", least, 0.5)
