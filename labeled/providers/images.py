"""Pictures in record files as a provider: the old parameters, doing what their text says."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from labeled._validation import check_arguments
from labeled.catalog.source import AnySource, Source
from labeled.errors import LoaderError
from labeled.formats.replacing import check_target
from labeled.loader.arguments import integer
from labeled.loader.build import make_loader
from labeled.providers.files import least_one, log, open_sources, serving_of
from labeled.providers.pictures import FloatArray, PictureParameters, augment_of, still
from labeled.providers.provider import Feed, LoaderProvider
from labeled.selection import Selection
from labeled.transforms import mean_image, read_mean_file, write_mean_file

BATCH_DIMS = ("batch", "channel", "height", "width")
DTYPES = ("float32", "float64", "float16", "uint8", "int8")
MEAN_ROWS = 64
"""Pictures of a batch that a mean image is made of."""


@check_arguments(LoaderError)
def ImageRecordProvider(
    path_imgrec: Any = "./data/imgrec.rec",
    *,
    data_shape: Sequence[int],
    batch_size: int,
    path_imglist: Any = None,
    path_imgidx: Any = None,
    label_width: int = 1,
    mean_img: Any = None,
    dtype: Any = "float32",
    verbose: bool = True,
    **parameters: Any,
) -> LoaderProvider:
    """Provide pictures in record files, and their labels.

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
    mean_img : path, optional
        A mean image to subtract. Where there is no such file it is computed, over all pictures
        with nothing drawn, and written.
    dtype : {"float32", "float64", "float16", "uint8", "int8"}
        Bytes (uint8) go without means and other arithmetic; int8 has what comes of it rounded, and
        clipped to -128 to 127.
    verbose : bool
        Log what is read.
    **parameters
        Those of :class:`~labeled.providers.files.Serving` (`round_batch` is True if not given, and
        `seed` governs what is drawn for pictures, too), and those of
        :class:`~labeled.providers.pictures.PictureParameters`.

    Raises
    ------
    FileFormatError
        If a file is missing or damaged.
    LoaderError, AugmentError
        If parameters are unknown, impossible, or exclude one another; before a picture is read.
    WriteError
        If a mean image is to be computed, and cannot be written there; likewise.
    """
    names = [one.name for one in fields(PictureParameters)]
    given = {name: parameters.pop(name) for name in names if name in parameters}
    own = ["data_shape", "batch_size", "path_imglist", "path_imgidx", "label_width", "mean_img"]
    data_name, label_name, options = serving_of(
        "ImageRecordProvider",
        parameters,
        [*own, "dtype", "verbose", *names],
        round_batch=True,
        preprocess_threads=4,
    )
    shape, dtype, look = (
        _checked_shape(data_shape),
        _checked_dtype(dtype),
        PictureParameters(**given),
    )
    nothing = np.zeros(shape, np.float32) if mean_img else None
    augment_of(look, shape, dtype, nothing)  # complain now
    feeds = [Feed(data_name, "images", shape=shape, dims=BATCH_DIMS, made=np.dtype(dtype))]
    if label_name is not None:
        wide = () if label_width == 1 else (integer("label_width", label_width, least=1),)
        feeds.append(Feed(label_name, "labels", is_label=True, shape=wide))
    lists = {"label_list": path_imglist, "label_width": label_width} if path_imglist else {}
    index = path_imgidx or "auto"
    sources: dict[str, AnySource] = dict(
        open_sources(
            path_imgrec, "recordio", content="images", channels=shape[0], index=index, **lists
        )
    )
    if label_name is not None:
        _check_width(sources["labels"], label_width)
    mean = _mean_image(mean_img, look, sources["images"], shape, options.get("memory"))
    options |= {"pipeline": {"images": augment_of(look, shape, dtype, mean)}}
    made = LoaderProvider(sources, None, feeds, batch_size=least_one(batch_size), **options)
    if verbose:
        log.info("%d pictures for %r", made.n_samples, made)
    return made


def _checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    lengths = [integer("data_shape", n, least=1) for n in shape]
    if len(lengths) != 3:
        raise LoaderError(f"data_shape={shape!r} must be (channels, height, width)")
    if lengths[0] not in (1, 3, 4):
        raise LoaderError(
            f"data_shape={shape!r} must begin with the channels, 1, 3 or 4: (channels, height, "
            "width)"
        )
    return lengths[0], lengths[1], lengths[2]


def _checked_dtype(dtype: Any) -> str:
    for name in DTYPES:
        if dtype is not None and dtype == np.dtype(name):
            return name
    raise LoaderError(f"dtype={dtype!r} must be one of {', '.join(map(repr, DTYPES))}")


def _check_width(labels: AnySource, width: int) -> None:
    held = math.prod(labels.row_shape) if isinstance(labels, Source) else width
    if held != width:
        raise LoaderError(
            f"{labels.where}: records hold {held} labels each, not label_width={width}; pass "
            f"label_width={held}, or label_name=None for none"
        )


def _mean_image(
    path: Any, look: PictureParameters, source: AnySource, shape: tuple[int, ...], memory: Any
) -> FloatArray | None:
    """Return the mean image that a file holds, computed and written first if there is no file."""
    if not path:
        return None
    if not os.path.exists(path):
        check_target(path, overwrite=False)  # before it is computed
        log.info("computing the mean image %s", path)
        loader = make_loader(
            {"images": source},
            {"images": Selection.all(source.n_rows)},
            {},
            source.n_rows,
            MEAN_ROWS,
            memory=memory,
            pipeline={"images": still(look, (shape[1], shape[2]))},
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
