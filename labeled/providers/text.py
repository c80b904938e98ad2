"""Numbers in delimited text, data and labels apart, as a provider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labeled._validation import check_arguments
from labeled.catalog.source import AnySource, Source
from labeled.device import Device
from labeled.errors import FileFormatError, LoaderError, ReadError
from labeled.loader.request.arguments import integer
from labeled.loader.request.options import Shuffle
from labeled.providers.arrays import source_of
from labeled.providers.batch import BatchAxis
from labeled.providers.files import checked, open_sources, rows_of, serving_of_files
from labeled.providers.served import Feed, LoaderProvider

NO_LABELS = "NULL"
"""The old word for no file of labels."""


class CSVProvider(LoaderProvider):
    """Batches of the numbers in text files, a line an example; a ``DataProvider``.

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
    round_batch : bool
        Fill the last batch with the first examples of the same epoch; else with
        `data_padding` and `label_padding`. ``count_samples`` tells the real ones.
    dtype : dtype
        Of data and labels.
    delimiter, header
        As for :func:`labeled.open_dataset`; found out when not given.
    shuffle, seed, num_parts, part_index, prefetch_buffer, data_name, label_name
        As for :class:`ImageRecordProvider`.
    data_padding, label_padding, axes, memory, device
        As for :class:`ArrayDataProvider`.

    Raises
    ------
    FileFormatError
        If a file is missing, or a line has too few or too many fields, or one that is no number.
    LoaderError
        If a parameter is unknown or impossible, a line has not the shape, or data and labels are
        not equally many.
    """

    @check_arguments(LoaderError)
    def __init__(
        self,
        data_csv: Any,
        *,
        data_shape: Sequence[int] | int,
        batch_size: int,
        label_csv: Any = None,
        label_shape: Sequence[int] | int = (1,),
        round_batch: bool = True,
        dtype: Any = "float32",
        delimiter: str | None = None,
        header: bool | None = None,
        shuffle: Shuffle = False,
        seed: int | None = 0,
        num_parts: int = 1,
        part_index: int = 0,
        prefetch_buffer: int | None = 4,
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        data_padding: float = 0,
        label_padding: float = 0,
        axes: BatchAxis = "first",
        memory: float | str | None = None,
        device: str | Device = "cpu",
    ) -> None:
        given = checked(locals())
        options = {"dtype": dtype, "delimiter": delimiter, "header": header}
        shape, wide = _lengths("data_shape", data_shape), _lengths("label_shape", label_shape)
        feeds = [Feed(data_name, "data", shape=shape)]
        sources: dict[str, AnySource] = {"data": _table(data_csv, "data", options)}
        if label_name is not None:
            feeds.append(Feed(label_name, "labels", True, () if wide == (1,) else wide))
            sources["labels"] = (
                source_of("labels", np.zeros((sources["data"].n_rows, *wide), dtype))
                if label_csv is None or label_csv == NO_LABELS
                else _table(label_csv, "labels", options)
            )
        serving = serving_of_files(given)
        super().__init__(sources, rows_of(sources), feeds, serving)


def _table(path: Any, name: str, options: dict[str, Any]) -> Source:
    """Return all columns of a file, side by side.

    Raises
    ------
    FileFormatError
        If samples of the file tell that a column holds something else than numbers.
    """
    found = list(open_sources(path, "csv", columns="matrix", **options).values())
    numeric = all(one.dtype.kind in "iuf" for one in found)
    if len(found) == 1 and numeric:
        assert isinstance(found[0], Source)
        return replace(found[0], name=name)
    source = _side_by_side(path, name, sum(map(_width, found)), options)
    if not numeric:
        _check_numbers(source)
    return source


def _width(source: AnySource) -> int:
    return math.prod(source.row_shape)


def _side_by_side(path: Any, name: str, n_columns: int, options: dict[str, Any]) -> Source:
    """Return all columns as numbers, whatever they look like."""
    own = {**options, "columns": {name: range(n_columns)}, "dtype": {name: options["dtype"]}}
    (source,) = open_sources(path, "csv", **own).values()
    assert isinstance(source, Source)
    return source


def _check_numbers(source: Source) -> None:
    """Read a file that seems to hold words up to the first one, which is an error."""
    reader, step = source.reader(), source.layout.chunk_rows or 1
    try:
        for start in range(0, source.n_rows, step):
            reader.read(range(start, min(start + step, source.n_rows)))
    except ReadError as error:
        raise FileFormatError(
            f"{error}; a provider of text takes every column, and numbers alone: of a file that "
            "has others, labeled.open_dataset(path, columns=...).as_provider() takes some"
        ) from None


def _lengths(name: str, shape: Any) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, int | np.integer) else shape
    if not isinstance(lengths, list | tuple):
        raise LoaderError(f"{name}={shape!r} must be a tuple of whole numbers")
    return tuple(integer(name, n, least=1) for n in lengths)
