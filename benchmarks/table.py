"""What was measured as a table for people, and as plain values for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.timing import Measured, paired_ratio

HEAD = (
    "way",
    "rows/s",
    "MB/s",
    "x bare",
    "ours / it",
    "entropy",
    "peak MiB",
    "first batch",
    "spread",
    "best rows/s",
)


def measured_rows(found: Sequence[Measured], row_bytes: int) -> list[tuple[str, ...]]:
    """Return the table of one workload, without its head."""
    out = []
    for each in found:
        ours, bare = fastest_like(found, each, "ours"), fastest_like(found, each, "bare")
        if each.error is not None or each.median is None:
            out.append((each.way.name, "failed", *[""] * (len(HEAD) - 2)))
            continue
        name = each.way.name if each.complete else each.way.name + " *"
        out.append(
            (
                name,
                f"{each.median:,.0f}",
                short(each.median * row_bytes / 1e6),
                _times(paired_ratio(each, bare)),
                _times(paired_ratio(ours, each)) if ours is not each else "",
                "" if each.entropy is None else f"{each.entropy:.3f}",
                "" if each.peak_bytes is None else f"{each.peak_bytes / 2**20:.0f}",
                f"{each.first_batch_s * 1e3:.0f} ms",
                "" if each.spread is None else f"{each.spread:.0%}",
                f"{each.best:,.0f}",
            )
        )
    return out


def fastest_like(found: Iterable[Measured], each: Measured, kind: str) -> Measured | None:
    """Return the fastest of a kind in the order of another way: file order, or shuffled."""
    in_order = each.way.order == "file"
    some = [m for m in found if m.way.kind == kind and m.median is not None]
    like = [m for m in some if (m.way.order == "file") == in_order] or some
    return max(like, key=lambda m: m.median or 0.0, default=None)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{short(ratio)} x"


def short(value: float) -> str:
    """Write a figure with three digits that count, and without an exponent.

    Examples
    --------
    >>> short(12345.6), short(123.4), short(1.2345), short(0.01234), short(0.00001)
    ('12,346', '123', '1.23', '0.0123', '<0.001')
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or not value else "<0.001"


def plain_rows(found: Sequence[Measured], row_bytes: int) -> list[dict[str, Any]]:
    """Return the same table as values that fit JSON: each way with its ratios."""
    out = []
    for each in found:
        ours, bare = fastest_like(found, each, "ours"), fastest_like(found, each, "bare")
        out.append(
            {
                **plain(each),
                "mb_per_s": None if each.median is None else each.median * row_bytes / 1e6,
                "x_bare": paired_ratio(each, bare),
                "ours_over_it": paired_ratio(ours, each) if ours is not each else None,
            }
        )
    return out


def plain(m: Measured) -> dict[str, Any]:
    """Return what was found out about a way as values that fit JSON."""
    return {
        "way": m.way.name,
        "kind": m.way.kind,
        "order": m.way.order,
        "how": m.way.how,
        "rows_per_s": [round(rate) for rate in m.rates],
        "median": m.median,
        "best": m.best,
        "spread": m.spread,
        "complete": m.complete,
        "mode": m.mode,
        "first_batch_s": m.first_batch_s,
        "entropy": m.entropy,
        "predicted_entropy": m.predicted,
        "holds_each_row_once": m.holds_each_row_once,
        "peak_bytes": m.peak_bytes,
        "promised_bytes": m.promised_bytes,
        "error": m.error,
    }
