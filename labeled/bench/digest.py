"""What a run comes to: this library against the others and against itself, as a few ratios.

The same questions that the benchmarks of this library ask of files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labeled.bench.timing import Measured, paired_ratio


@dataclass(frozen=True)
class Figure:
    """One answer.

    Parameters
    ----------
    unit : str
        "x": times as fast. "": a share, or a difference of shares.
    """

    words: str
    value: float
    unit: str = "x"


def digest(found: Sequence[Measured], cold: Mapping[str, Any]) -> list[Figure]:
    """Return every answer that was measured.

    Parameters
    ----------
    found : sequence of Measured
        All ways to read one subject.
    cold : mapping
        What :func:`.cold.measure_cold` returned.
    """
    ran = [m for m in found if m.median is not None]
    answers = [*_in_order(ran), *_shuffled(ran), *_of_itself(ran), *_foretold(ran), *_memory(ran)]
    ratios = cold.get("ratios", {})
    return [*answers, *(Figure(f"cold page cache: {words}", x) for words, x in ratios.items())]


def fastest(found: Sequence[Measured], kind: str, *orders: str) -> Measured | None:
    """Return the fastest way of a kind, in one of some orders."""
    some = [m for m in found if m.way.kind == kind and m.way.order in orders]
    return max(some, key=lambda m: m.median or 0.0, default=None)


def _way(found: Sequence[Measured], name: str, order: str) -> Measured | None:
    return next((m for m in found if (m.way.name, m.way.order) == (name, order)), None)


def _figures(words: str, mine: Measured | None, *others: Measured | None) -> Iterator[Figure]:
    for other in {m.way.full_name: m for m in others if m is not None}.values():
        ratio = paired_ratio(mine, other)
        if ratio is not None:
            yield Figure(f"{words} / {other.way.name}", ratio)


def _in_order(ran: Sequence[Measured]) -> Iterator[Figure]:
    others = [
        fastest(ran, "bare", "file"),
        _way(ran, "h5py slices", "file"),
        _way(ran, "h5py, row by row", "file"),
        _way(ran, "xarray+dask", "file"),
        fastest(ran, "peer", "file"),
    ]
    yield from _figures("file order", fastest(ran, "ours", "file"), *others)


def _shuffled(ran: Sequence[Measured]) -> Iterator[Figure]:
    mine = fastest(ran, "ours", "full", "window")
    others = [
        fastest(ran, "bare", "full"),
        _way(ran, "h5py sorted lists", "full"),
        _way(ran, "h5py, row by row", "full"),
        _way(ran, "xarray+dask", "full"),
        fastest(ran, "peer", "full", "window"),
    ]
    if mine is not None:
        yield from _figures(f"{mine.way.order} shuffle", mine, *others)


def _of_itself(ran: Sequence[Measured]) -> Iterator[Figure]:
    window, listed = fastest(ran, "ours", "window"), fastest(ran, "ours", "list")
    ratio = paired_ratio(window, _way(ran, "ours, file order", "file"))
    if ratio is not None:
        yield Figure("window shuffle / its own file order", ratio)
    whole = None if listed is None else fastest(ran, "ours", str(listed.mode))
    ratio = paired_ratio(listed, whole)
    if ratio is not None:
        yield Figure("80 % list / all rows, shuffled alike", ratio)


def _foretold(ran: Sequence[Measured]) -> Iterator[Figure]:
    for m in ran:
        if m.entropy is not None and m.predicted is not None and m.way.order in ("full", "window"):
            words = f"batch entropy of the {m.way.order} shuffle"
            yield Figure(f"{words}, measured", m.entropy, "")
            yield Figure(f"{words}, foretold by explain()", m.predicted, "")


def _memory(ran: Sequence[Measured]) -> Iterator[Figure]:
    some = [m for m in ran if m.way.kind == "ours" and m.promised_bytes and m.peak_bytes]
    shares = {m.way.name: (m.peak_bytes or 0) / (m.promised_bytes or 1) for m in some}
    if shares:
        name = max(shares, key=shares.__getitem__)
        yield Figure(f"peak memory / promised, the most ({name})", shares[name], "")
