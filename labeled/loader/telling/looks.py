"""A loader at a glance, as text and as HTML: what it serves, in which order, within what.

Takes a plan and a place in it; asks readers nothing, so that a file may be gone.
"""

from __future__ import annotations

from dask.utils import format_bytes

from labeled.loader.plan import LoaderPlan
from labeled.samplers.order import asked_as
from labeled.samplers.sampled import AnyPlan
from labeled.views import html
from labeled.views.text import count_words, sizes_words, table


def loader_text(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> str:
    """Tell of a loader as text: its order, then a line a source."""
    lines = [f"<labeled.Loader {_order_words(plan, epoch_plan, first_batch)}>"]
    return "\n".join([*lines, *table(_sources(plan))])


def loader_html(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> str:
    """Tell of a loader as HTML."""
    sizes = plan.sizes
    promised, given = format_bytes(sizes.promised_bytes), format_bytes(sizes.memory_bytes)
    told = {
        "order": _order_words(plan, epoch_plan, first_batch),
        "batches": _batch_words(plan),
        "memory": f"at most {promised} of {given}",
        "threads": count_words(sizes.threads, "background thread"),
        "more": "explain() tells what an epoch reads, before it reads anything; stats() afterwards "
        "where the time went",
    }
    head = ("source", "a row", "dtype in the file", "rows are")
    rows = [(html.bold(name), dims, html.code(dt), how) for name, dims, dt, how in _sources(plan)]
    return html.page("labeled.Loader", html.facts(told), html.table(head, rows))


def _order_words(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> str:
    order, part = epoch_plan.order, plan.epoch_plan.part
    words = [
        f"{epoch_plan.n_batches:,} batches of {plan.batch_rows:,} rows",
        asked_as(plan.epoch_plan.order.mode),
        f"seed={order.seed}",
        f"epoch={order.epoch}",
    ]
    if part[1] > 1:
        words.append(f"part={part}")
    if first_batch:
        words.append(f"going on at batch {first_batch:,}")
    return ", ".join(words)


def _batch_words(plan: LoaderPlan) -> str:
    """Say what is handed out, and what became of it on the way."""
    finish = plan.finish
    if finish.specs is not None:
        words = [f"arrays as {finish.specs.specs} says"]
    else:
        words = ["a mapping of source to DataArray"]
    for name, change in finish.changes.items():
        cast = "" if change.dtype is None else f" as {change.dtype}"
        words.append(f"{name}{cast}{' scaled' if change.scaled else ''}")
    if plan.line is not None:
        words.append("through a pipeline")
    if plan.device is not None:
        words.append(f"on {plan.device.name}")
    if plan.hand is not None:
        words.append(f"handed over to {plan.hand.to.library}")
    return ", ".join(words)


def _sources(plan: LoaderPlan) -> list[tuple[str, str, str, str]]:
    """Each source in words."""
    return [
        (
            lane.name,
            sizes_words(lane.source.dims[1:], lane.source.row_shape),
            str(lane.source.dtype),
            "kept in memory" if lane.keep or lane.source.loaded is not None else "read ahead",
        )
        for lane in plan.lanes
    ]
