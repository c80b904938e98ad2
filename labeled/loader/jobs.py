"""Cutting windows into jobs: what is read ahead at once where the order allows any cut.

A shuffled window is one job. File order and full shuffle come in long blocks that may be cut
anywhere; they are cut where batches end and, over stored chunks, where chunks do. A shuffled
window is cut, too, where its rows are picked one by one; then the disk is told of the window after
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from labeled.loader.lanes import Lane
from labeled.loader.memory import Sizes
from labeled.samplers.listed import AnyPlan
from labeled.samplers.windows import Window, WindowRows

Job = tuple[int, int, WindowRows]


class Cutting(Protocol):
    """What decides where an epoch is cut."""

    @property
    def sizes(self) -> Sizes: ...
    @property
    def job_offset(self) -> int | None: ...
    @property
    def lanes(self) -> Sequence[Lane]: ...


def jobs_of(epoch_plan: AnyPlan, first_batch: int, recipe: Cutting) -> Iterator[Job]:
    """Cut an epoch into jobs, from a batch on."""
    sizes = recipe.sizes
    windows = epoch_plan.windows(first_batch)
    if sizes.whole is not None:
        return picked_jobs(windows, sizes.job_rows)
    return cut_jobs(windows, sizes.job_rows, recipe.job_offset)


def cut_jobs(windows: Iterable[Window], job_rows: int, offset: int | None) -> Iterator[Job]:
    """Cut windows into jobs of `job_rows` rows.

    Parameters
    ----------
    windows : iterable of Window
    job_rows : int
        Rows of a job. Windows that hold more are in order, or in memory already.
    offset : int, optional
        Cut the rows of runs at ``offset + k * job_rows``, so that no stored chunk is
        read twice; places are cut (at multiples of `job_rows`) when None.
    """
    for window in windows:
        content = window.content
        if window.stop - window.start <= job_rows and offset is None:
            yield window
        elif content.run is not None:
            yield from _run_jobs(window, content.run[0], job_rows, offset)
        else:
            yield from _listed_jobs(window, job_rows)


def picked_jobs(windows: Iterable[Window], job_rows: int) -> Iterator[Job]:
    """Cut shuffled windows into jobs of `job_rows` rows; the first tells which windows follow."""
    several = iter(windows)
    window, told = next(several, None), False
    while window is not None:
        following = next(several, None)
        soon = [one for one in (None if told else window, following) if one is not None]
        yield from _listed_jobs(window, job_rows, soon)
        window, told = following, True


def _listed_jobs(
    window: Window, job_rows: int, ahead: Sequence[Window] | None = None
) -> Iterator[Job]:
    rows, start, soon = window.content.rows, window.start, None
    if ahead is not None:
        runs = [following.content.runs for following in ahead]
        soon = tuple(one for one in runs if one is not None)
    for a, b in _cuts(start, window.stop, job_rows, 0):
        yield a, b, WindowRows(listed=rows[a - start : b - start], soon=soon)
        soon = None if soon is None else ()


def _run_jobs(window: Window, first: int, job_rows: int, offset: int | None) -> Iterator[Job]:
    a, shift = window.start, first - window.start
    at = 0 if offset is None else offset - shift
    b = a + job_rows - (a - at) % job_rows
    while b < window.stop:
        yield a, b, WindowRows(run=(a + shift, b + shift))
        a, b = b, b + job_rows
    yield a, window.stop, WindowRows(run=(a + shift, window.stop + shift))


def _cuts(start: int, stop: int, step: int, offset: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = min(stop, start + step - (start - offset) % step)
        yield start, end
        start = end


def n_cuts(start: int, stop: int, step: int) -> int:
    """Return how many jobs places ``start .. stop`` are cut into, at multiples of `step`.

    Examples
    --------
    >>> n_cuts(3, 8, 4), n_cuts(4, 8, 4)
    (2, 1)
    """
    return -(-stop // step) - start // step
