"""Files as providers, by the parameters of MXNet's iterators: numbers in text, and digits."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from labeled._validation import check_arguments, check_keywords
from labeled.catalog.files import Files, find_files
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource, Source
from labeled.device import Device
from labeled.errors import FileFormatError, LoaderError
from labeled.formats.format import Options
from labeled.formats.registry import format_named, own_options
from labeled.loader.arguments import flag, integer, integer_or_none
from labeled.loader.options import Shuffle
from labeled.providers.arrays import source_of
from labeled.providers.batch import BatchAxis
from labeled.providers.provider import Feed, LoaderProvider

log = logging.getLogger(__name__)


class Serving(TypedDict, total=False):
    """Parameters that all providers of files have.

    `num_parts`, `part_index`, `prefetch_buffer` and `preprocess_threads` are the old names of
    `part`, `prefetch` and `threads`; ``label_name=None`` provides no labels, and reads none. With
    `round_batch` the last batch is filled with the first samples of the same epoch, else with
    `data_padding` and `label_padding`; ``count_samples`` is the number of real ones either way.
    """

    shuffle: Shuffle
    seed: int | None
    num_parts: int
    part_index: int
    round_batch: bool
    preprocess_threads: int | None
    prefetch_buffer: int | None
    data_name: str
    label_name: str | None
    data_padding: float
    label_padding: float
    axes: BatchAxis
    memory: float | str | None
    window_rows: int | None
    errors: Literal["raise", "skip"]
    max_lost: int | float | None
    device: str | Device


def serving_of(
    title: str, given: Mapping[str, Any], others: Sequence[str], **usual: Any
) -> tuple[str, str | None, dict[str, Any]]:
    """Return the names of data and labels, and how to serve them, of the parameters of a provider.

    Parameters
    ----------
    title : str
        Name of the provider.
    given : mapping
        Parameters among those of :class:`Serving`; the rest take their defaults.
    others : sequence of str
        What else may be given, for the message of an unknown one.
    **usual
        Defaults of this provider.
    """
    check_keywords(title, given, Serving.__annotations__, others)
    options: dict[str, Any] = {
        "seed": 0,
        "round_batch": False,
        "num_parts": 1,
        "part_index": 0,
        "preprocess_threads": None,
        "prefetch_buffer": 4,
        "data_name": "data",
        "label_name": "softmax_label",
        **usual,
        **given,
    }
    names = options.pop("data_name"), options.pop("label_name")
    if names[1] is not None and not isinstance(names[1], str):
        raise LoaderError(f"label_name={names[1]!r} must be text or None")
    part, count = options.pop("part_index"), integer("num_parts", options.pop("num_parts"), least=1)
    if not 0 <= integer("part_index", part) < count:
        raise LoaderError(f"part_index={part} must be from 0 to num_parts - 1 ({count - 1})")
    threads, prefetch = (
        integer_or_none(name, options.pop(name), least=0)
        for name in ("preprocess_threads", "prefetch_buffer")
    )
    rolls_over = flag("round_batch", options.pop("round_batch"))
    return *names, {
        **options,
        "title": title,
        "part": (part, count),
        "threads": threads,
        "prefetch": prefetch,
        "roll_over": rolls_over,
    }


least_one = partial(integer, "batch_size", least=1)


def open_sources(path: Any, format: str, **own: Any) -> dict[str, Source | RaggedSource]:
    """Open files of a format, by its own options, and return their sources; reads headers only.

    Raises
    ------
    FileFormatError
        If a file is missing, damaged, or not of this format.
    """
    paths = find_files(path, format)
    found = own_options(format_named(format), paths[0], own, ())
    return dict(Files.open(paths, Options(format=format, own=found)).catalog.sources)


@check_arguments(LoaderError)
def CSVProvider(
    data_csv: Any,
    *,
    data_shape: Sequence[int] | int,
    batch_size: int,
    label_csv: Any = None,
    label_shape: Sequence[int] | int = (1,),
    dtype: Any = "float32",
    delimiter: str | None = None,
    header: bool | None = None,
    **serving: Unpack[Serving],
) -> LoaderProvider:
    """Provide the numbers in text files, a line an example.

    Numbers are rounded correctly. Files may be larger than memory, have a header, and be
    gzip-compressed.

    Parameters
    ----------
    data_csv : path, list of paths, glob or folder
    data_shape : tuple of int
        Of an example: the values of a line in C order.
    batch_size : int
    label_csv : path, list of paths, glob or folder, optional
        Without it (None or "NULL") every label is 0.
    label_shape : tuple of int
        Of a label; of one number, batches have the shape (batch_size,).
    dtype : dtype
        Of data and labels.
    delimiter, header
        As for :func:`labeled.open_dataset`; found out when not given.
    **serving
        Those of :class:`~labeled.providers.files.Serving`; `round_batch` is True if not given.

    Raises
    ------
    FileFormatError
        If a file is missing, or a line has too few or too many fields.
    LoaderError
        If a parameter is unknown or impossible, a line has not the shape, or data and labels are
        not equally many. A field that is not a number is an error of its batch.
    """
    own = ["data_shape", "batch_size", "label_csv", "label_shape", "dtype", "delimiter", "header"]
    data_name, label_name, options = serving_of("CSVProvider", serving, own, round_batch=True)
    reading = {"dtype": dtype, "delimiter": delimiter, "header": header}
    shape, wide = _lengths("data_shape", data_shape), _lengths("label_shape", label_shape)
    feeds = [Feed(data_name, "data", shape=shape)]
    sources: dict[str, AnySource] = {"data": _table(data_csv, "data", reading)}
    if label_name is not None:
        feeds.append(Feed(label_name, "labels", True, () if wide == (1,) else wide))
        sources["labels"] = (
            source_of("labels", np.zeros((sources["data"].n_rows, *wide), dtype))
            if label_csv is None or label_csv == "NULL"
            else _table(label_csv, "labels", reading)
        )
    return LoaderProvider(sources, None, feeds, batch_size=least_one(batch_size), **options)


def _table(path: Any, name: str, options: dict[str, Any]) -> Source:
    """Return all columns of a file, side by side, as numbers."""
    found = list(open_sources(path, "csv", columns="matrix", **options).values())
    if len(found) > 1 or found[0].dtype.kind not in "iuf":
        width = sum(math.prod(one.row_shape) for one in found)
        own = {"columns": {name: range(width)}, "dtype": {name: options["dtype"]}}
        found = list(open_sources(path, "csv", **{**options, **own}).values())
    assert isinstance(found[0], Source)
    return replace(found[0], name=name)


def _lengths(name: str, shape: Any) -> tuple[int, ...]:
    return tuple(integer(name, n, least=1) for n in ((shape,) if isinstance(shape, int) else shape))


Path = str | os.PathLike[str]


@check_arguments(LoaderError)
def MNISTProvider(
    image: Path = "./train-images-idx3-ubyte",
    label: Path = "./train-labels-idx1-ubyte",
    batch_size: int = 128,
    *,
    flat: bool = False,
    silent: bool = False,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    **serving: Unpack[Serving],
) -> LoaderProvider:
    """Provide the hand-written digits, or other pictures and labels in IDX files.

    Values come as they are stored, bytes as a rule; `dtype` and `scale` change them on the way.

    Parameters
    ----------
    image, label : path
        IDX files, plain or gzip-compressed.
    batch_size : int
    flat : bool
        Pictures as rows of values rather than (1, height, width).
    silent : bool
        Log nothing of what is read.
    dtype, scale, shift
        Of the pictures; as for :meth:`labeled.Dataset.batches`.
    **serving
        Those of :class:`~labeled.providers.files.Serving`; `shuffle` is True if not given.

    Raises
    ------
    FileFormatError
        If a file is missing or not an IDX file, or the two do not belong together.
    LoaderError
        If a parameter is unknown or impossible.
    """
    own = ["image", "label", "batch_size", "flat", "silent", "dtype", "scale", "shift"]
    data_name, label_name, options = serving_of("MNISTProvider", serving, own, shuffle=True)
    images = _one(image, "images")
    shape = (math.prod(images.row_shape),) if flat else (1, *images.row_shape)
    dims = ("batch", "feature") if flat else ("batch", "channel", *images.dims[1:])
    feeds = [Feed(data_name, "images", shape=shape, dims=dims)]
    sources = {"images": images}
    if label_name is not None:
        sources["labels"] = labels = _one(label, "labels")
        if labels.row_shape or labels.n_rows != images.n_rows:
            raise FileFormatError(
                f"{os.fspath(label)!r} holds an array {(labels.n_rows, *labels.row_shape)}, where "
                f"the {images.n_rows} pictures in {os.fspath(image)!r} need one label each"
            )
        feeds.append(Feed(label_name, "labels", is_label=True))
    changes = {"dtype": dtype, "scale": scale, "shift": shift}
    options |= {name: one if one is None else {"images": one} for name, one in changes.items()}
    made = LoaderProvider(sources, None, feeds, batch_size=least_one(batch_size), **options)
    if not silent:
        log.info("%d pictures for %r", made.n_samples, made)
    return made


def _one(path: Path, name: str) -> Source:
    """Return the one array of an IDX file."""
    (source,) = open_sources(path, "idx").values()
    assert isinstance(source, Source)
    return replace(source, name=name)
