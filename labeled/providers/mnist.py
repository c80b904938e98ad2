"""Pictures and labels in two IDX files as a provider."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import replace
from typing import Any

from labeled._validation import check_arguments
from labeled.catalog.source import Source
from labeled.device import Device
from labeled.errors import FileFormatError, LoaderError
from labeled.loader.request.options import Shuffle
from labeled.providers.batch import BatchAxis
from labeled.providers.files import checked, open_sources, rows_of, serving_of_files
from labeled.providers.served import Feed, LoaderProvider

Path = str | os.PathLike[str]

log = logging.getLogger(__name__)


class MNISTProvider(LoaderProvider):
    """Batches of the hand-written digits, or of other IDX files; a ``DataProvider``.

    Values come as they are stored, bytes as a rule; `dtype` and `scale` change them on the way.

    Parameters
    ----------
    image, label : path
        IDX files, plain or gzip-compressed.
    batch_size : int
    shuffle : bool, "full" or "window"
        Another order every epoch.
    flat : bool
        Pictures as rows of values rather than (1, height, width).
    seed : int, optional
        Of the order; drawn once with None.
    silent : bool
        Log nothing of what is read.
    num_parts, part_index : int
        How many shares of every epoch there are, and which of them this is.
    prefetch_buffer : int, optional
        Windows read ahead.
    data_name, label_name : str
        ``label_name=None`` provides no labels, and opens no file of them.
    data_padding, label_padding, roll_over, axes, memory, device
        As for :class:`ArrayDataProvider`.
    dtype, scale, shift
        Of the pictures; as for :meth:`labeled.Dataset.batches`.

    Raises
    ------
    FileFormatError
        If a file is missing or no IDX file, or the two do not belong together.
    LoaderError
        If a parameter is unknown or impossible.
    """

    @check_arguments(LoaderError)
    def __init__(
        self,
        image: Path = "./train-images-idx3-ubyte",
        label: Path = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        *,
        shuffle: Shuffle = True,
        flat: bool = False,
        seed: int | None = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        prefetch_buffer: int | None = 4,
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        data_padding: float = 0,
        label_padding: float = 0,
        roll_over: bool = False,
        axes: BatchAxis = "first",
        memory: float | str | None = None,
        device: str | Device = "cpu",
        dtype: Any = None,
        scale: Any = None,
        shift: Any = None,
    ) -> None:
        given = checked(locals())
        images = _one(image, "images")
        shape = images.row_shape
        laid_out = (math.prod(shape),) if flat else (1, *shape)
        dims = ("batch", "feature") if flat else ("batch", "channel", *images.dims[1:])
        feeds = [Feed(data_name, "images", shape=laid_out, dims=dims)]
        sources = {"images": images}
        if label_name is not None:
            sources["labels"] = labels = _one(label, "labels")
            if labels.row_shape or labels.n_rows != images.n_rows:
                raise FileFormatError(
                    f"{os.fspath(label)!r} holds an array {(labels.n_rows, *labels.row_shape)}, "
                    f"where the {images.n_rows} pictures in {os.fspath(image)!r} need one label "
                    "each"
                )
            feeds.append(Feed(label_name, "labels", is_label=True))
        serving = serving_of_files(
            given,
            dtype=None if dtype is None else {"images": dtype},
            scale=None if scale is None else {"images": scale},
            shift=None if shift is None else {"images": shift},
        )
        super().__init__(sources, rows_of(sources), feeds, serving)
        if not silent:
            log.info("%d pictures for %r", self.n_samples, self)


def _one(path: Path, name: str) -> Source:
    """Return the one array of an IDX file."""
    (source,) = open_sources(path, "idx").values()
    assert isinstance(source, Source)
    return replace(source, name=name)
