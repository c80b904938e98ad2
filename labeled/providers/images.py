"""Pictures in record files as a provider: the old parameters, doing what their text says.

What they make of pictures stands in :mod:`.look`; here are the files, the order, and the mean
image, which is computed over all pictures with nothing drawn. One seed governs everything.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_keywords, keywords_of
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource, Source
from labeled.device import Device
from labeled.errors import LoaderError
from labeled.formats.replacing import check_target
from labeled.loader.build import make_loader
from labeled.loader.request.arguments import flag, integer
from labeled.providers.batch import BatchAxis
from labeled.providers.files import checked, open_sources, rows_of, serving_of_files
from labeled.providers.look import DTYPES, FloatArray, Look
from labeled.providers.served import Feed, LoaderProvider
from labeled.samplers.permutation import key_of
from labeled.selection import Selection
from labeled.transforms import Augment, mean_image, read_mean_file, write_mean_file

SEEDS = 1 << 63
MEAN_ROWS = 64
"""Pictures of a batch that a mean image is made of."""

AUG_DEFAULT = "aug_default"

BATCH_DIMS = ("batch", "channel", "height", "width")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seeded:
    """An augmentation that may have a seed of its own, whatever the order is drawn from."""

    augment: Augment
    own_seed: int | None
    shape: tuple[int, int, int]

    def __call__(self, images: Any, rows: npt.NDArray[np.int64], seed: int, epoch: int) -> Any:
        if not len(rows):  # all of them were left out
            return xr.DataArray(np.empty((0, *self.shape), self.augment.dtype), dims=BATCH_DIMS)
        drawn_from = seed if self.own_seed is None else self.own_seed
        return self.augment(images, rows=rows, seed=drawn_from, epoch=epoch)


class ImageRecordProvider(LoaderProvider):
    """Batches of pictures in record files; a :class:`~labeled.providers.DataProvider`.

    Parameters
    ----------
    path_imgrec : path, list of paths, glob or folder
        Record files.
    data_shape : (channels, height, width)
        Of the pictures handed out; 1, 3 or 4 channels (grey; red, green, blue; and alpha).
    batch_size : int
    path_imglist : path, optional
        A list whose labels, by id, take the place of those in the records.
    path_imgidx : path, optional
        Where records begin; the ``.idx`` beside a file is found by itself.
    label_width : int
        Labels of a picture; of one label, batches have the shape (batch_size,).
    data_name, label_name : str
        ``label_name=None`` provides no labels, and reads none.
    shuffle : bool
        Another order every epoch.
    seed : int, optional
        Of the order and of all that is drawn; drawn once with None.
    seed_aug : int, optional
        Of what is drawn for pictures, apart from the order.
    shuffle_chunk_size : int
        Shuffle within windows of about so many MiB of records rather than all over the files.
    shuffle_chunk_seed : int
        Joins `seed`.
    num_parts, part_index : int
        How many shares of every epoch there are, and which of them this is.
    round_batch : bool
        Fill the last batch with the first pictures of the same epoch; else with
        `data_padding` and `label_padding`. ``count_samples`` tells the real ones.
    preprocess_threads : int, optional
        Threads that decode and change pictures.
    prefetch_buffer : int, optional
        Windows read ahead.
    verbose : bool
        Log what is read.
    mean_img : path, optional
        A mean image to subtract. Where there is no such file it is computed, over all pictures
        with nothing drawn, and written.
    dtype : {"float32", "float64", "float16", "uint8", "int8"}
        Bytes (uint8) go without means and other arithmetic; int8 has what comes of it rounded, and
        clipped to -128 to 127.
    errors : {"raise", "skip"}
        What becomes of pictures that cannot be decoded: an error, or, without `round_batch`,
        batches that lack them, with a warning. A batch that lacks all of them is left out.
    max_lost : int or float, optional
        How many pictures, or which share of them, may be left out in an epoch.
    data_padding, label_padding, axes, memory, device
        As for :class:`ArrayDataProvider`.
    ctx : {"cpu", "gpu"}, optional
        The same as ``device="cpu"`` or ``device="cuda:<device_id>"``.
    device_id : int
        Number of the GPU, with ``ctx="gpu"``.
    aug_seq : str or list of str
        What is done to pictures before they are mirrored and become numbers, by name and in
        order: "aug_default" is all that parameters ask for, and may come several times; with none
        of it pictures are only cut to `data_shape`.
    **look
        What becomes of the pictures: the parameters of :class:`Look`.

    Raises
    ------
    FileFormatError
        If a file is missing or damaged.
    LoaderError, AugmentError
        If parameters are unknown, impossible, or exclude one another; before a picture is read.
    WriteError
        If a mean image is to be computed, and cannot be written there; likewise.
    """

    def __init__(
        self,
        path_imgrec: Any = "./data/imgrec.rec",
        *,
        data_shape: tuple[int, int, int],
        batch_size: int,
        path_imglist: Any = None,
        path_imgidx: Any = None,
        label_width: int = 1,
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        shuffle: bool = False,
        seed: int | None = 0,
        seed_aug: int | None = None,
        shuffle_chunk_size: int = 0,
        shuffle_chunk_seed: int = 0,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        preprocess_threads: int | None = 4,
        prefetch_buffer: int | None = 4,
        verbose: bool = True,
        mean_img: Any = None,
        dtype: Any = "float32",
        errors: Literal["raise", "skip"] = "raise",
        max_lost: int | float | None = None,
        data_padding: float = 0,
        label_padding: float = 0,
        axes: BatchAxis = "first",
        memory: float | str | None = None,
        device: str | Device = "cpu",
        ctx: Literal["cpu", "gpu"] | None = None,
        device_id: int = 0,
        aug_seq: str | Sequence[str] = AUG_DEFAULT,
        **look: Any,
    ) -> None:
        given = checked(locals()) | {"device": _device(device, ctx, device_id)}
        own = keywords_of(type(self).__init__)
        check_keywords(
            type(self).__name__,
            look,
            own,
            [one.name for one in fields(Look) if one.name != "times"],
        )
        shape, shuffled = _checked_shape(data_shape), flag("shuffle", shuffle)
        dtype = _checked_dtype(dtype)
        if seed_aug is not None:
            integer("seed_aug", seed_aug)
        made = Look(**look, times=_times(aug_seq))
        nothing = np.zeros(shape, np.float32) if mean_img else None
        made.augment(shape, dtype, nothing)  # complain now
        feeds = [Feed(data_name, "images", shape=shape, dims=BATCH_DIMS, made=np.dtype(dtype))]
        if label_name is not None:
            wide = () if label_width == 1 else (integer("label_width", label_width, least=1),)
            feeds.append(Feed(label_name, "labels", is_label=True, shape=wide))
        lists = {"label_list": path_imglist, "label_width": label_width} if path_imglist else {}
        sources = open_sources(
            path_imgrec,
            "recordio",
            sources=[feed.source for feed in feeds],
            content="images",
            channels=shape[0],
            index=path_imgidx or "auto",
            **lists,
        )
        if label_name is not None:
            _check_width(sources["labels"], label_width)
        window = _window_rows(shuffle_chunk_size, sources["images"])
        if integer("shuffle_chunk_seed", shuffle_chunk_seed) and seed is not None:
            seed = key_of(seed, shuffle_chunk_seed) % SEEDS
        mean = _mean_image(mean_img, made, sources["images"], shape, memory)
        serving = serving_of_files(
            given,
            shuffle=shuffled if window is None else "window",
            seed=seed,
            window_rows=window,
            pipeline={"images": _Seeded(made.augment(shape, dtype, mean), seed_aug, shape)},
        )
        super().__init__(sources, rows_of(sources), feeds, serving)
        if verbose:
            log.info("%d pictures for %r", self.n_samples, self)


def _checked_shape(shape: Any) -> tuple[int, int, int]:
    lengths = tuple(shape) if isinstance(shape, list | tuple) else ()
    if len(lengths) != 3 or any(integer("data_shape", n, least=1) < 1 for n in lengths):
        raise LoaderError(f"data_shape={shape!r} must be (channels, height, width)")
    if lengths[0] not in (1, 3, 4):
        last = lengths[-1]
        first = f"; those come first: ({last}, height, width)" if last in (1, 3, 4) else ""
        raise LoaderError(f"data_shape={shape!r}: pictures have 1, 3 or 4 channels{first}")
    return int(lengths[0]), int(lengths[1]), int(lengths[2])


def _device(device: str | Device, ctx: Any, device_id: Any) -> str | Device:
    """Return where batches go, whichever way that is said."""
    number = integer("device_id", device_id, least=0)
    if ctx not in (None, "cpu", "gpu"):
        raise LoaderError(f"ctx={ctx!r} must be 'cpu' or 'gpu'")
    if number and ctx != "gpu":
        raise LoaderError(f"device_id={number} is the number of a GPU: say ctx='gpu', too")
    if ctx is None:
        return device
    if device != "cpu":
        raise LoaderError(f"ctx={ctx!r} and device={device!r} say the same; give one of them")
    return "cpu" if ctx == "cpu" else f"cuda:{number}"


def _times(names: Any) -> int:
    """Return how often augmentations are applied, by their names in order."""
    if not isinstance(names, str | Sequence):
        raise LoaderError(f"aug_seq={names!r} must be names of augmenters, as one str or a list")
    listed = names.split(",") if isinstance(names, str) else names
    steps = [name for name in (str(one).strip() for one in listed) if name]
    unknown = next((name for name in steps if name != AUG_DEFAULT), None)
    if unknown is not None:
        raise LoaderError(
            f"aug_seq names {unknown!r}, and only {AUG_DEFAULT!r} is known; other transforms go "
            "into labeled.transforms.Augment([...]), for dataset.batches(pipeline={'images': ...})"
        )
    return len(steps)


def _checked_dtype(dtype: Any) -> str:
    for name in DTYPES:
        if dtype is not None and dtype == np.dtype(name):
            return name
    raise LoaderError(f"dtype={dtype!r} must be one of {', '.join(map(repr, DTYPES))}")


def _check_width(labels: AnySource, width: int) -> None:
    if isinstance(labels, RaggedSource):
        return  # refused with the words for it
    held = math.prod(labels.row_shape)
    if held != width:
        raise LoaderError(
            f"{labels.where}: records hold {held} labels each, not label_width={width}; pass "
            f"label_width={held}, or label_name=None for none"
        )


def _mean_image(
    path: Any,
    look: Look,
    source: AnySource,
    shape: tuple[int, int, int],
    memory: float | str | None,
) -> FloatArray | None:
    """Return the mean image that a file holds, computed and written first if there is no file."""
    if not path:
        return None
    if not os.path.exists(path):
        check_target(path, overwrite=False)  # before it is computed
        log.info("computing the mean image %s", path)
        everything = {"images": Selection.all(source.n_rows)}
        loader = make_loader(
            {"images": source},
            everything,
            {},
            source.n_rows,
            MEAN_ROWS,
            memory=memory,
            pipeline={"images": look.still(shape[1:])},
        )
        made = mean_image((batch.arrays["images"] for batch in loader), dims=BATCH_DIMS)
        write_mean_file(path, made.values)
    mean = read_mean_file(path)
    if mean.shape != shape:
        raise LoaderError(
            f"the mean image {os.fspath(path)!r} has shape {mean.shape}, data_shape is {shape}; "
            "name another file, and it will be computed"
        )
    return mean


def _window_rows(megabytes: Any, source: AnySource) -> int | None:
    """Return how many rows take about so many MiB of the files, if a window is asked for."""
    size = integer("shuffle_chunk_size", megabytes, least=0) << 20
    if not size:
        return None
    assert isinstance(source, Source | RaggedSource)
    n_bytes = sum(header.file.size for header in source.headers)
    return max(1, source.n_rows * size // max(1, n_bytes))
