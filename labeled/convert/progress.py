"""A bar for long work: bytes done, bytes a second, time left; quiet where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

DELAY_S = 2.0
"""Work that takes less shows no bar of its own accord."""


@contextmanager
def progress_bar(
    wanted: bool | None, n_bytes: int | None, title: str
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many bytes were done since it was last called.

    Parameters
    ----------
    wanted : bool, optional
        None shows a bar on a terminal, after two seconds.
    n_bytes : int, optional
        All there is to do, if known.
    """
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda _: None
        return
    delay = DELAY_S if wanted is None else 0.0
    with tqdm(
        total=n_bytes, desc=title, unit="B", unit_scale=True, unit_divisor=1024, delay=delay
    ) as bar:
        yield lambda done: bar.update(done) and None
