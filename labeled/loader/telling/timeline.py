"""How far an epoch was at what time: a few hundred points, however long it is."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_POINTS = 513
"""Odd, so that the last of so many stays where every other one goes."""


@dataclass
class Timeline:
    """Points (seconds, rows, bytes) so far: every batch, or every so many of a long epoch.

    Where points grow too many every other one is let go of, and half as many are taken from
    then on.
    """

    points: list[tuple[float, int, int]] = field(default_factory=list)
    step: int = 1
    _unseen: int = 0

    def note(self, seconds: float, n_rows: int, n_bytes: int) -> None:
        """Take a point, if it is time for one."""
        self._unseen += 1
        if self._unseen < self.step and self.points:
            return
        self._unseen = 0
        self.points.append((seconds, n_rows, n_bytes))
        if len(self.points) >= MOST_POINTS:
            del self.points[1::2]
            self.step *= 2
