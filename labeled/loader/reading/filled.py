"""A window on its way: the message between whoever reads and whoever deals batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.formats.coded import CodedWindow
from labeled.formats.straight import StraightWindow
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
    coded: dict[str, CodedWindow] = field(default_factory=dict)
    """Sources whose memory holds chunks as they are stored, for a device to decode."""
    straight: dict[str, StraightWindow] = field(default_factory=dict)
    """Sources that are not read here, but by a device."""
