"""A window on its way: the message between whoever reads and whoever deals batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.loader.reading.slots import Slot
from labeled.samplers.content import Content


@dataclass(eq=False, slots=True)
class Filled:
    """A window on its way, then filled: places ``start .. stop`` of the epoch."""

    start: int
    stop: int
    content: Content
    slot: Slot
    arrays: dict[str, Any]
    """Rows of each source: an array, or :class:`~.dealt.DealtExamples`."""
    pending: int = 0
    ready: bool = False
    error: BaseException | None = None
    unread: bool = False
    """Something of it could not be read, and the loader is to leave that out."""
    lost: npt.NDArray[np.bool_] | None = None
    """Which places hold no row, once that was found out."""
