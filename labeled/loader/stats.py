"""Where the time of an epoch went: what ``loader.stats()`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from dask.utils import format_bytes

from labeled.display.summary import Summary
from labeled.display.text import count_words


@dataclass
class Stats:
    """Times of an epoch in seconds, and counts of what was done."""

    load_s: float = 0.0
    """Reading the sources that are kept in memory, before the first batch of the first epoch."""
    read_s: float = 0.0
    """Reading, summed over threads; also decoding where HDF5 itself does it."""
    decode_s: float = 0.0
    """Undoing filters, parsing text and decoding pictures, summed over threads."""
    plan_s: float = 0.0
    """Computing which rows come next."""
    wait_s: float = 0.0
    """The caller waiting for a thread."""
    help_s: float = 0.0
    """The caller reading in its own thread."""
    format_s: float = 0.0
    """Laying batches out: cutting, casting, permuting."""
    pipeline_s: float = 0.0
    """In a pipeline's transforms and collate, summed over threads."""
    consumer_s: float = 0.0
    """Between handing out a batch and being asked for the next."""
    n_windows: int = 0
    """Jobs that were read: windows, or pieces of them."""
    n_tasks: int = 0
    n_batches: int = 0
    n_rows: int = 0
    n_lost: int = 0
    """Rows left out because they could not be read."""
    n_bytes: int = 0
    bus_bytes: int = 0
    """Bytes of windows copied to a device."""
    wall_s: float = 0.0
    """In the loader, from being asked for a batch to handing it out."""

    @property
    def rows_per_s(self) -> float:
        """Rows per second, the consumer's own time included."""
        return self._rate(self.n_rows)

    @property
    def bytes_per_s(self) -> float:
        """Stored bytes of the rows handed out a second, the consumer's own time included."""
        return self._rate(self.n_bytes)

    def _rate(self, amount: int) -> float:
        elapsed_s = self.wall_s + self.consumer_s
        return amount / elapsed_s if elapsed_s else 0.0

    def __repr__(self) -> str:
        return "\n".join(self._words())

    def _repr_html_(self) -> str:
        title, *words = self._words()
        return Summary(title, parts=words).html()

    def _words(self) -> list[str]:
        lost = f", {self.n_lost:,} rows lost" if self.n_lost else ""
        there = [f"to the device: {format_bytes(self.bus_bytes)}"] if self.bus_bytes else []
        piped = f", pipeline {self.pipeline_s:.3f} s" if self.pipeline_s else ""
        return [
            f"{count_words(self.n_rows, 'row')} in {count_words(self.n_batches, 'batch')}{lost}: "
            f"{self.rows_per_s:,.0f} rows/s, {format_bytes(round(self.bytes_per_s))}/s",
            f"loader {self.wall_s:.3f} s: waiting {self.wait_s:.3f}, reading by itself "
            f"{self.help_s:.3f}, laying out {self.format_s:.3f}",
            f"consumer {self.consumer_s:.3f} s; loading what is kept {self.load_s:.3f} s",
            f"all threads: reading {self.read_s:.3f} s and decoding {self.decode_s:.3f} s in "
            f"{count_words(self.n_tasks, 'task')} of {count_words(self.n_windows, 'window')}, "
            f"planning {self.plan_s:.3f} s"
            f"{piped}",
            *there,
        ]
