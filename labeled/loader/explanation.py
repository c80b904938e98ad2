"""What is told of a loader, as text and as HTML: at a glance, and its plan of an epoch in figures.

A loader at a glance takes a plan and a place in it, and asks readers nothing, so that a file may
be gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dask.utils import format_bytes

from labeled.display.figures import Reads
from labeled.display.summary import Summary, Table
from labeled.display.text import count_words, sizes_words
from labeled.formats.memory import machine_bytes, room_bytes
from labeled.loader.memory import room_words, size_words
from labeled.loader.plan import LoaderPlan
from labeled.samplers.listed import AnyPlan
from labeled.samplers.windows import shuffle_argument

GOOD_QUALITY = 0.95
"""Below this share of the entropy of a full shuffle, more memory is recommended."""


@dataclass(frozen=True)
class LaneExplained:
    """One source: the path its bytes take and what an epoch costs."""

    name: str
    path: str
    why: str
    kept: bool
    chunk_rows: int
    bytes_read: int
    bytes_used: int
    n_reads: int
    chunks_decoded: int
    chunks_needed: int
    """Stored chunks that hold a wanted row: each decoded once is the least there can be."""

    @property
    def amplification(self) -> float:
        """How often a chunk is decoded in an epoch, on average."""
        return self.chunks_decoded / self.chunks_needed if self.chunks_needed else 1.0

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its line of the table."""
        decoded = f"{self.chunks_decoded:,} ({self.amplification:.2f} x)"
        return (
            self.name,
            self.path + (" (kept)" if self.kept else ""),
            f"{self.n_reads:,}",
            format_bytes(self.bytes_read),
            format_bytes(self.bytes_used),
            decoded if self.chunks_decoded else "-",
            self.why,
        )


@dataclass(frozen=True)
class Explanation:
    """A plan in figures; see :meth:`labeled.Loader.explain`.

    Attributes
    ----------
    quality : float or None
        Expected entropy of the labels of a batch, relative to a full shuffle.
    window_rows_for_quality : int or None
        Rows a window must have to reach 0.95, where this plan does not.
    padding : (float, float), optional
        With `bucket`: the share of padding in batches padded to their longest example, and
        what it would be without.
    mapped_bytes : int
        Bytes of files whose pages may be mapped while rows are gathered from them: the
        system's own cache, not counted in `promised_bytes`, let go of again and again.
    workers, in_flight : int
        Threads of a pipeline, and the batches in it at a time; 0 where there is none.
    uncounted : tuple of str
        Steps of it that do not say how much memory they take.
    device : str
        Where batches are made.
    pinned_bytes : int
        Of host memory from which windows are copied to a device; counted in `promised_bytes`.
    device_windows, device_bytes : int
        Windows on the device, and the most that these and batches on their way take there.
        Batches that the consumer keeps are not counted.
    amplification : float
        With draws: how many rows are read for each that is handed out.
    exact : bool
        False where costs were scaled up from some of the windows.
    """

    mode: str
    n_rows: int
    n_batches: int
    batch_rows: int
    n_windows: int
    window_rows: int
    n_jobs: int
    job_rows: int
    slots: int
    threads: int
    workers: int
    in_flight: int
    uncounted: tuple[str, ...]
    memory_bytes: int
    promised_bytes: int
    kept_bytes: int
    quality: float | None
    window_rows_for_quality: int | None
    memory_for_quality: int | None
    padding: tuple[float, float] | None
    mapped_bytes: int
    device: str
    pinned_bytes: int
    device_windows: int
    device_bytes: int
    amplification: float
    exact: bool
    kernels: str
    lanes: tuple[LaneExplained, ...]
    reads: Reads | None
    """What the largest source reads for the first windows, for a picture."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()

    def _summary(self) -> Summary:
        title, *words = self._words()
        head = ("source", "path", "reads", "read", "used", "chunks decoded", "why")
        lanes = Table(head, [lane.cells for lane in self.lanes])
        return Summary(title, "", [*words, lanes])

    def _words(self) -> list[str]:
        return [
            f"Plan of an epoch: {count_words(self.n_rows, 'row')} in "
            f"{count_words(self.n_batches, 'batch')} of {self.batch_rows:,}, "
            f"{shuffle_argument(self.mode)}",
            *self._read_words(),
            *self._device_words(),
            *self._uncounted_words(),
            *self._order_words(),
        ]

    def _read_words(self) -> Iterator[str]:
        about = "" if self.exact else "about "
        read = sum(lane.bytes_read for lane in self.lanes)
        used = format_bytes(sum(lane.bytes_used for lane in self.lanes))
        yield (
            f"reads {about}{format_bytes(read)} for {used} of rows; "
            f"{about}{count_words(self.n_jobs, 'job')} of up to {self.job_rows:,} rows, "
            f"{count_words(self.threads, 'background thread')}"
        )
        kept = f", {format_bytes(self.kept_bytes)} kept for later epochs" if self.kept_bytes else ""
        yield (
            f"memory: at most {format_bytes(self.promised_bytes)} of "
            f"{format_bytes(self.memory_bytes)} ({self.slots} slots{kept})"
        )
        if self.promised_bytes > (room := room_bytes()):
            yield f"more than there is: {room_words(room)}"

    def _device_words(self) -> Iterator[str]:
        if self.device == "cpu":
            return
        if self.in_flight:
            yield f"device {self.device!r}: batches go there out of the pipeline"
            return
        yield (
            f"device {self.device!r}: at most {format_bytes(self.device_bytes)} there "
            f"({count_words(self.device_windows, 'window')}, and batches on their way), copied "
            f"from {format_bytes(self.pinned_bytes)} of pinned memory"
        )

    def _uncounted_words(self) -> Iterator[str]:
        if self.mapped_bytes:
            yield (
                f"not counted: pages of files in the system's cache, mapped while rows are picked "
                f"from them, of {format_bytes(self.mapped_bytes)}"
            )
        if self.mode == "full" and self.mapped_bytes > (memory := machine_bytes()):
            yield (
                f"more than the {format_bytes(int(memory))} of memory there may be: most rows are "
                "a read of their own from storage; shuffle='window' reads many together"
            )
        if self.kernels.startswith("compiled"):
            yield "not counted: compiled kernels, about 50 MiB once a process, if needed"
        if self.in_flight:
            who = f"{self.workers} threads" if self.workers else "the caller"
            unsaid = ", ".join(self.uncounted)
            rest = f"; not counted: what {unsaid} makes" if unsaid else ""
            yield f"a pipeline: up to {self.in_flight} batches at a time in {who}{rest}"

    def _order_words(self) -> Iterator[str]:
        if self.mode == "window":
            yield f"{count_words(self.n_windows, 'window')} of about {self.window_rows:,} rows"
        if self.quality is not None:
            yield f"shuffle quality: {self.quality:.3f} of a full shuffle" + self._remedy()
        if self.padding is not None:
            yield "buckets: {:.1%} padding (without them {:.1%})".format(*self.padding)
        if self.amplification > 1.005:
            yield f"draws read {self.amplification:.2f} rows for each one handed out"

    def _remedy(self) -> str:
        if self.window_rows_for_quality is None or self.memory_for_quality is None:
            return ""
        return (
            f" (for {GOOD_QUALITY}: window_rows={self.window_rows_for_quality:,}, "
            f"memory={size_words(self.memory_for_quality)!r})"
        )


def loader_summary(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> Summary:
    """Summarize a loader: its order, then a line a source."""
    sizes = plan.sizes
    promised, given = format_bytes(sizes.promised_bytes), format_bytes(sizes.memory_bytes)
    head = ("source", "a row", "dtype in the file", "rows are")
    more = (
        f"batches: {_batch_words(plan)}",
        f"memory: at most {promised} of {given}, {count_words(sizes.threads, 'background thread')}",
        "explain() shows what an epoch reads, before it reads; stats() where the time went",
    )
    words = _order_words(plan, epoch_plan, first_batch)
    return Summary("labeled.Loader", words, (Table(head, _sources(plan)),), more)


def _order_words(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> str:
    order, shard = epoch_plan.order, plan.epoch_plan.shard
    words = [
        f"{epoch_plan.n_batches:,} batches of {plan.batch_rows:,} rows",
        shuffle_argument(plan.epoch_plan.order.mode),
        f"seed={order.seed}",
        f"epoch={order.epoch}",
    ]
    if shard[1] > 1:
        words.append(f"shard={shard}")
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
    for name, change in finish.casts.items():
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
