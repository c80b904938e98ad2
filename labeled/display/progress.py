"""A bar for long work: how much is done, how fast, time left; quiet where nobody looks.

tqdm draws them: on a terminal, in a notebook (by widgets where ipywidgets are installed), and
in a log, if a bar was asked for, every ten seconds.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]  # takes how much was done since it was last called


@contextmanager
def progress_bar(
    wanted: bool | None, total: int | None, title: str, unit: str = "B"
) -> Iterator[Advance]:
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
    seen = in_notebook() or is_terminal(sys.stderr)
    with _interruptible() as check:
        if wanted is False or (wanted is None and not seen):
            yield lambda _: check()
            return
        with _bar(wanted, total, title, unit) as bar:

            def advance(done: int) -> None:
                check()
                bar.update(done)

            yield advance
            if total is not None:  # of texts and the like it was an estimate
                bar.update(total - bar.n)


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
    interrupts: list[Any] = []

    def note(*args: Any) -> None:
        interrupts.append(args)
        usual(*args)

    def check() -> None:
        if interrupts:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, usual)


def epoch_bar(epoch: int, done: int, total: int) -> Any:
    """Return tqdm's bar for the batches of an epoch, of which some may be done already."""
    return _bar(True, total, f"epoch {epoch}", "batches", initial=done)


def is_terminal(stream: Any) -> bool:
    """Whether somebody looks on; Python has None in place of a stream that is closed."""
    return stream is not None and bool(stream.isatty())


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel; imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _bar(wanted: bool | None, total: int | None, title: str, unit: str, initial: int = 0) -> Any:
    with warnings.catch_warnings():  # of ipywidgets that are not installed
        warnings.simplefilter("ignore")
        return importlib.import_module("tqdm.auto").tqdm(
            total=total,
            initial=initial,
            desc=title,
            unit=unit if unit == "B" else f" {unit}",
            unit_scale=unit == "B" or total is None or total >= 10_000,  # fewer: one by one
            unit_divisor=1024 if unit == "B" else 1000,
            delay=2.0 if wanted is None else 0.0,
            mininterval=0.1 if in_notebook() or is_terminal(sys.stderr) else 10.0,  # in a log
            disable=sys.stderr is None,
        )
