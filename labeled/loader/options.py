"""The options of ``batches``, for type checkers and editors, and for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import numpy.typing as npt

from labeled._validation import check_keywords
from labeled.device import Device, Library
from labeled.loader.ragged_finish import RaggedLayout
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
    memory: float | str | None
    window_rows: int | None
    shard: tuple[int, int]
    sticky_shards: bool
    balance: str | None
    weights: npt.ArrayLike | str | None
    sampler: Sampler | Iterable[Any] | None
    dtype: Any
    scale: Any
    shift: Any
    pad_value: Any
    ragged: RaggedLayout
    bucket: bool | str
    threads: int | None
    prefetch: int | None
    errors: Literal["raise", "skip"]
    max_lost: int | float | None
    pipeline: Any
    device: str | Device
    output: Library | None
    pinned: bool
    as_tuple: bool


OPTIONS = ("batch_size", *BatchOptions.__annotations__)
"""What a caller of ``batches`` may name."""


def check_options(options: Iterable[str]) -> None:
    """Raise :class:`labeled.errors.OptionError` for an option that does not exist."""
    check_keywords("batches", options, OPTIONS)
