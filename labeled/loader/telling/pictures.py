"""Pictures of a loader: what an epoch reads, and how fast it went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from labeled.errors import LoaderError
from labeled.loader.telling.explanation import Explanation
from labeled.loader.telling.stats import Stats
from labeled.samplers.order import asked_as
from labeled.views.figures import Axes, draw_rate, draw_reads
from labeled.views.text import count_words


@dataclass(frozen=True, repr=False)
class LoaderPlots:
    """What ``loader.plot`` offers. Each picture returns its axes and takes ``ax=``."""

    explain: Callable[..., Explanation]
    stats: Callable[[], Stats]

    def __call__(self, **options: Any) -> Axes:
        """Draw the plan; the same as :meth:`plan`."""
        return self.plan(**options)

    def __repr__(self) -> str:
        return "<plots of a loader: plot(), plot.plan(), plot.throughput()>"

    def plan(self, labels: npt.ArrayLike | str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw where the first windows of the coming epoch read in the file; reads no rows.

        Parameters
        ----------
        labels : array, lengths ``(n_rows,)``, or str, optional
            Classes, for the shuffle quality in the title; see :meth:`labeled.Loader.explain`.
        ax : matplotlib axes, optional

        Returns
        -------
        matplotlib axes
            Rows that are wanted, dark; with them the rest of the chunks that must be decoded.

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        LoaderError
            If the epoch has no rows.
        """
        told = self.explain(labels)
        if told.reads is None:
            raise LoaderError("there is no plan to draw: the epoch has no rows")
        title = f"{count_words(told.n_rows, 'row')}, {asked_as(told.mode)}"
        if told.quality is not None:
            title += f", {told.quality:.2f} of a full shuffle"
        return draw_reads(told.reads, title, ax)

    def throughput(self, *, ax: Axes | None = None) -> Axes:
        """Draw rows a second over the time of the current or last epoch.

        Raises
        ------
        LoaderError
            If nothing has been handed out yet.
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        points = self.stats().timeline.points
        if len(points) < 2:
            raise LoaderError("nothing has been handed out yet; iterate first, then look")
        begin = points[0][0]
        return draw_rate([(at - begin, rows, n) for at, rows, n in points], "throughput", ax)
