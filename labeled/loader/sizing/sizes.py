"""What a loader allocates, and how it cuts an epoch, once that is decided (see `cutting`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from labeled.loader.sizing.budget import OVERHEAD_BYTES, also_kept
from labeled.loader.sizing.memory import rounded_up

BESIDE_ASKED = 32
"""The share of what is asked for that the allocator may keep besides: 1.8 % was seen."""


@dataclass(frozen=True)
class Sizes:
    """What a loader allocates, and how it cuts an epoch.

    Parameters
    ----------
    window_rows : int
        Rows shuffled together (orders depend on it, but for file order and full shuffle).
    job_rows : int
        Rows read ahead as one job; the window, in window mode.
    slots : int
        Jobs in memory at the same time, `slot_bytes` each with the row numbers they take.
    threads : int
        Background threads.
    """

    memory_bytes: int
    window_rows: int
    job_rows: int
    slots: int
    threads: int
    slot_bytes: int
    kept_bytes: int
    thread_bytes: int
    batch_bytes: int
    index_bytes: int = 0
    in_flight: int = 0
    """Batches in a pipeline at a time, the consumer's not counted; 0 where there is none."""
    workers: int = 0
    """Threads that take batches through it."""
    loaders: int = 1
    """Threads that read what is kept, before the first batch."""
    loading_bytes: int = 0
    """What they need besides; not all of it is given back."""
    laid_bytes: int = 0
    """Of the largest batch, what ragged examples take as they are laid out."""
    caller_first: bool = False
    """The caller reads by itself until that proves slow; threads are started only then."""
    whole: Sizes | None = None
    """What reading windows whole would take, where their rows are picked one by one instead."""

    @property
    def promised_bytes(self) -> int:
        """The most that iterating adds to the memory of the process."""
        asked = self.asked_bytes
        return max(asked, min(self.memory_bytes, asked + asked // BESIDE_ASKED))

    @property
    def asked_bytes(self) -> int:
        """What is asked of the allocator, which keeps a little beside it."""
        return (
            self.kept_bytes
            + self.slots * self.slot_bytes
            + (self.threads + 1) * self.thread_bytes
            + self.batch_bytes
            + self.index_bytes
            + self.loading_bytes
            + OVERHEAD_BYTES
        )

    def memory_for(self, window_rows: int, nbytes: Sequence[int]) -> int:
        """Return the `memory`, in whole MiB, with which windows of so many rows are made.

        Parameters
        ----------
        nbytes : sequence of int
            Of the sources that are not kept: those that more memory would keep count too.
        """
        if self.whole is not None:  # orders are the same
            return self.whole.memory_for(window_rows, nbytes)
        row_bytes = -(-self.slot_bytes // max(1, self.job_rows))
        larger = replace(self, threads=max(1, self.threads), slot_bytes=window_rows * row_bytes)
        asked = larger.asked_bytes
        return max(self.memory_bytes, rounded_up(asked + also_kept(asked, nbytes)))
