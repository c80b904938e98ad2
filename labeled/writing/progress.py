"""A bar for long work: how much is done, how fast, time left; quiet where nobody looks.

A terminal gets a bar that moves, a notebook a bar of its own (of widgets where ipywidgets
are installed), and a log, if a bar was asked for, a line every ten seconds.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

DELAY_S = 2.0
"""Work that takes less shows no bar of its own accord."""

MANY = 10_000
"""Fewer rows than that are counted one by one, more by thousands."""

LOG_S = 10.0
"""Seconds between the lines of a log."""


@contextmanager
def progress_bar(
    wanted: bool | None, total: int | None, title: str, unit: str = "B"
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much was done since it was last called.

    That function raises KeyboardInterrupt where one of the user's was lost.

    Parameters
    ----------
    wanted : bool, optional
        None shows a bar on a terminal and in a notebook, after two seconds.
    total : int, optional
        All there is to do, if known.
    unit : str
        What is counted: bytes, or ``"rows"`` and the like.
    """
    seen = in_notebook() or sys.stderr.isatty()
    with _interruptible() as check:
        if wanted is False or (wanted is None and not seen):
            yield lambda _: check()
            return
        with _bar(_options(wanted, total, title, unit)) as bar:

            def told(done: int) -> None:
                check()
                bar.update(done)

            yield told


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Yield a function that raises an interrupt of the user's which got lost.

    One that arrives while HDF5 works is raised in the first Python code after it; where that
    cleans up after an object of h5py's, Python only prints it.
    """
    usual = signal.default_int_handler
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not usual:
        yield lambda: None
        return
    interrupted = False

    def note(*told: Any) -> None:
        nonlocal interrupted
        interrupted = True
        usual(*told)

    def check() -> None:
        if interrupted:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, usual)


def _options(wanted: bool | None, total: int | None, title: str, unit: str) -> dict[str, Any]:
    many = unit == "B" or total is None or total >= MANY
    return {
        "total": total,
        "desc": title,
        "unit": unit if unit == "B" else f" {unit}",
        "unit_scale": many,
        "unit_divisor": 1024 if unit == "B" else 1000,
        "delay": DELAY_S if wanted is None else 0.0,
    }


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel; imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _bar(options: dict[str, Any]) -> Any:
    if in_notebook():
        widgets = importlib.import_module("tqdm.notebook")
        if widgets.IProgress is not None:
            return widgets.tqdm(**options)
        line: Any = NotebookLine()
        return tqdm(file=line, ncols=90, ascii=False, **options)  # no ipywidgets
    if sys.stderr.isatty():
        return tqdm(**options)
    words = "{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {elapsed} elapsed, {remaining} left"
    if options["total"] is None:
        words = "{desc}: {n_fmt}, {rate_fmt}, {elapsed} elapsed"
    lines: Any = LogLines(sys.stderr)
    return tqdm(file=lines, mininterval=LOG_S, bar_format=words, **options)


class NotebookLine:
    """A stream for a bar in a notebook without widgets: one output, shown anew for every state.

    Bars of plain text move by going back to the line's beginning, of which a saved notebook
    makes a line each.
    """

    def __init__(self) -> None:
        self._display = importlib.import_module("IPython.display").display
        self._shown: Any = None

    def write(self, text: str) -> None:
        """Show what a bar shows, if anything, in the place of what it showed before."""
        line = text.strip("\r\n ")
        if not line:
            return
        if self._shown is None:
            self._shown = self._display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": line}, raw=True)

    def flush(self) -> None:
        """Nothing waits."""


class LogLines:
    """A stream for a bar in a log: every state becomes a line of its own.

    Examples
    --------
    >>> lines = LogLines(sys.stdout)
    >>> for text in ("\\rhalf", "\\rdone  ", "\\n"):
    ...     lines.write(text)
    half
    done
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write what a bar shows, if anything, without moving back to the line's beginning."""
        shown = text.strip("\r\n ")
        if shown:
            self._stream.write(shown + "\n")

    def flush(self) -> None:
        """Flush the stream behind."""
        self._stream.flush()
