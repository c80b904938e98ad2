"""The options of ``batches``, for type checkers and editors, and for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import numpy.typing as npt

from labeled.device import Device, Library
from labeled.errors import LoaderTypeError, did_you_mean
from labeled.loader.batches.ragged_finish import RaggedLayout
from labeled.loader.devices.decoding import Decode
from labeled.loader.plan import ReaderKind
from labeled.samplers.parts import Last
from labeled.samplers.requests import Sampler

Shuffle = bool | Literal["full", "window", "staggered"]


class BatchOptions(TypedDict, total=False):
    """Options of ``batches``, told in :func:`labeled.loader.build.make_loader`."""

    specs: Any
    shuffle: Shuffle
    seed: int | None
    epoch: int
    last: Last
    memory: float | str | None
    window_rows: int | None
    part: tuple[int, int]
    sticky_parts: bool
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
    reader: ReaderKind
    errors: Literal["raise", "skip"]
    max_lost: int | float | None
    pipeline: Any
    device: str | Device
    decode: Decode
    as_: Library | None
    pinned: bool


OPTIONS = ("batch_size", *BatchOptions.__annotations__)
"""What a caller of ``batches`` may name."""


NORMALIZE = (
    "say dtype='float32', scale={'images': 1 / std}, shift={'images': -mean / std}: a number each, "
    "or one a channel"
)
RANK = "say part=(rank, world_size), and the same seed= everywhere"
WORKERS = (
    "reading runs in threads= of this process; worker processes are made by "
    "labeled.torch.data_loader"
)

LENGTHS = (
    "bucket=True gives examples of about equal length a batch; batches of about equal numbers of "
    "values are a sampler's: sampler= takes lists of rows"
)
CUT = "cut examples in pipeline={'tokens': lambda tokens: tokens[:512]}"

ORDER = (
    "a space tells the order of axes: specs=(Conv2DSpace((32, 32), num_channels=3, "
    "axes=('b', 'c', 0, 1)), 'images')"
)

HABITS = {
    "axes": ORDER,
    "data_format": ORDER,
    "channels_last": ORDER,
    "max_tokens": LENGTHS,
    "max_length": CUT,
    "truncate": CUT,
    "truncation": CUT,
    "bucket_boundaries": LENGTHS,
    "bucket_by_length": LENGTHS,
    "group_by_length": LENGTHS,
    "packing": "ragged='flat' puts examples one after another, with <source>_offsets",
    "padding": "say ragged='pad', pad_value=",
    "pad_to_multiple_of": "say ragged='pad'; lengths are those of the longest of a batch",
    "class_weight": "balance='y' draws classes evenly; weights= takes a number a row",
    "sample_weight": "weights= draws rows in proportion; to weigh losses, serve the source as any",
    "stratify": "balance='y' draws classes evenly; ds.train_test_split knows stratify=",
    "buffer_size": "rows are shuffled in windows as large as memory= allows, or window_rows=",
    "shuffle_buffer": "rows are shuffled in windows as large as memory= allows, or window_rows=",
    "drop_remainder": "say last='drop'",
    "n_jobs": "say threads=",
    "output": "say as_='torch'",
    "framework": "say as_='torch'",
    "epochs": "each loop over the loader is the next epoch",
    "columns": "choose sources first: ds.select(...).batches(...)",
    "batch_sampler": "say sampler=",
    "collate_fn": "say pipeline=; rows are put together here, as ragged= and specs= tell",
    "drop_last": "say last='drop'",
    "generator": "say seed=, a whole number",
    "normalize": NORMALIZE,
    "mean": NORMALIZE,
    "std": NORMALIZE,
    "num_replicas": RANK,
    "num_workers": WORKERS,
    "pin_memory": "say pinned=True, with as_='torch'",
    "num_samples": "an epoch of draws has n_rows // batch_size batches; end it sooner, or go on "
    "with the next one",
    "persistent_workers": WORKERS,
    "prefetch_factor": "say prefetch=, jobs read ahead; memory= bounds it",
    "random_state": "say seed=",
    "rank": RANK,
    "sources": "choose them first: ds.select(...).batches(...)",
    "split": "choose it first: ds.split(...).batches(...)",
    "transform": "say pipeline=: {'images': function} for examples, or a function with a parameter "
    "rows for whole batches",
    "world_size": RANK,
}
"""What is said here for options of other libraries."""


def check_options(options: Iterable[str]) -> None:
    """Raise :class:`LoaderTypeError` where an option has a name that there is none of."""
    for name in options:
        if name not in OPTIONS:
            hint = HABITS.get(name) or did_you_mean(name, OPTIONS, limit=99)
            raise LoaderTypeError(f"batches() has no option {name!r}; {hint}")
