"""A bar for long work: how much is done, how fast, time left; quiet where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

DELAY_S = 2.0
"""Work that takes less shows no bar of its own accord."""


@contextmanager
def progress_bar(
    wanted: bool | None, total: int | None, title: str, unit: str = "B"
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much was done since it was last called.

    Parameters
    ----------
    wanted : bool, optional
        None shows a bar on a terminal, after two seconds.
    total : int, optional
        All there is to do, if known.
    unit : str
        What is counted: bytes, or ``"rows"`` and the like.
    """
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda _: None
        return
    delay = DELAY_S if wanted is None else 0.0
    divisor = 1024 if unit == "B" else 1000
    with tqdm(
        total=total, desc=title, unit=unit, unit_scale=True, unit_divisor=divisor, delay=delay
    ) as bar:
        yield lambda done: bar.update(done) and None
