"""The options of ``batches``, for type checkers and editors, and for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import numpy.typing as npt

from labeled.device import Device, Library
from labeled.errors import LoaderTypeError, did_you_mean
from labeled.loader.plan import ReaderKind
from labeled.loader.ragged import RaggedLayout
from labeled.samplers.parts import Last
from labeled.samplers.requests import Sampler

Shuffle = bool | Literal["full", "window"]


class BatchOptions(TypedDict, total=False):
    """Options of ``batches``, told in :func:`labeled.loader.build.make_loader`."""

    specs: Any
    shuffle: Shuffle
    seed: int | None
    epoch: int
    last: Last
    memory: int | str
    window_rows: int | None
    part: tuple[int, int]
    sticky_parts: bool
    balance: str | None
    weights: npt.ArrayLike | None
    sampler: Sampler | Iterable[Any] | None
    dtype: Any
    scale: Any
    shift: Any
    pad_value: Any
    ragged: RaggedLayout
    bucket: bool | str
    threads: int | None
    prefetch: int | None
    reader: ReaderKind
    errors: Literal["raise", "skip"]
    max_lost: int | float | None
    pipeline: Any
    device: str | Device
    as_: Library | None
    pinned: bool


OPTIONS = ("batch_size", *BatchOptions.__annotations__)
"""What a caller of ``batches`` may name."""


HABITS = {
    "drop_last": "say last='drop'",
    "num_workers": "reading runs in threads= of this process; worker processes are made by "
    "labeled.torch.data_loader",
    "pin_memory": "say pinned=True, with as_='torch'",
    "random_state": "say seed=",
    "sources": "choose them first: ds.select(...).batches(...)",
    "split": "choose it first: ds.split(...).batches(...)",
}
"""What is said here for options of other libraries."""


def check_options(options: Iterable[str]) -> None:
    """Raise :class:`LoaderTypeError` where an option has a name that there is none of."""
    for name in options:
        if name not in OPTIONS:
            hint = HABITS.get(name) or did_you_mean(name, OPTIONS, limit=99)
            raise LoaderTypeError(f"batches() has no option {name!r}; {hint}")
