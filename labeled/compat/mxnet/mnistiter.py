"""``MNISTIter``: pictures and labels in the classic IDX files, whole batches only."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.iterators import DataBatch, MXDataProvider
from labeled.compat.mxnet.parameters import (
    NAMES,
    Parameter,
    Version,
    checked_version,
    each_of,
    flag_of,
    integer_of,
    read_parameters,
)
from labeled.compat.mxnet.twister import Twister
from labeled.errors import FileFormatError, LoaderError

PARAMETERS = {
    **NAMES,
    **each_of(str, image="./train-images-idx3-ubyte", label="./train-labels-idx1-ubyte"),
    **each_of(str, dtype="float32"),
    **each_of(flag_of, shuffle=True, flat=False, silent=False),
    **each_of(integer_of, seed=0),
    "batch_size": Parameter(integer_of, 128, least=1),
    "num_parts": Parameter(integer_of, 1, least=1),
    "part_index": Parameter(integer_of, 0, least=0),
}

log = logging.getLogger(__name__)


class MNISTIter(MXDataProvider):
    """Batches of pictures, each value 1/256 of its byte, and of their labels.

    A last batch that would be short is left out; the order is drawn once, not every epoch. The
    files' magic numbers are not checked, nor that there are no more labels than pictures.

    Parameters
    ----------
    version : {"seed", "0.9.5", "1.9.1"}
        With "seed" a loop begins a new epoch; otherwise all have the same rules.
    strict : bool
        Refuse words that are no parameters, rather than pass them over as it was.
    **parameters
        `image`, `label`, `batch_size`, `shuffle`, `flat`, `seed`, `silent`, `num_parts`,
        `part_index`, `data_name`, `label_name`, and `prefetch_buffer`, which changes nothing.

    Raises
    ------
    FileFormatError
        If a file is missing or shorter than its header says, or there are too few labels.
    LoaderError
        If a parameter cannot be read, or there is not one whole batch.
    """

    def __init__(self, *, version: Version = "1.9.1", strict: bool = False, **parameters: Any):
        version = checked_version(version)
        asked = read_parameters("MNISTIter", PARAMETERS, parameters, strict=strict)
        part, parts, size = asked.part_index, asked.num_parts, asked.batch_size
        if part >= parts:
            raise LoaderError(f"MNISTIter: part_index={part} must be below num_parts={parts}")
        if asked.dtype != "float32":
            raise LoaderError(f"MNISTIter: dtype={asked.dtype!r} must be float32")
        images, labels = (
            values[int(len(values) / parts * part) : int(len(values) / parts * (part + 1))]
            for values in (_read(asked.image, 2), _read(asked.label, 0))
        )
        if len(labels) < len(images):
            raise FileFormatError(
                f"{asked.label!r} holds {len(labels)} labels for the {len(images)} pictures of "
                f"{asked.image!r} (part {part} of {parts}); name files that belong together"
            )
        if asked.shuffle:
            order = Twister(asked.seed).shuffled(len(images))
            images, labels = images[order], labels[order]
        shape = images.shape[1:]
        images = images.reshape(len(images), *([math.prod(shape)] if asked.flat else [1, *shape]))
        if not asked.silent:
            log.info(
                "MNISTIter: load %d images, shuffle=%d, shape=%s",
                len(images), asked.shuffle, (size, *images.shape[1:]),
            )  # fmt: skip

        def batches() -> Iterator[DataBatch]:
            for stop in range(size, len(images) + 1, size):
                data = images[stop - size : stop].astype(np.float32) * np.float32(1 / 256)
                label = labels[stop - size : stop].astype(np.float32)
                yield DataBatch([data], [label], 0, np.zeros(size, np.uint64))

        super().__init__(batches, version, asked)


def _read(path: str, n_lengths: int) -> npt.NDArray[np.uint8]:
    """Return the array that the header of an IDX file claims."""
    begin = 4 * (2 + n_lengths)
    try:
        found = np.fromfile(path, np.uint8)
    except OSError as error:
        raise FileFormatError(
            f"{path!r} cannot be read: {error.strerror}; check the path"
        ) from error
    if len(found) < begin:
        raise FileFormatError(f"{path!r} ends in its header of {begin} bytes")
    lengths = found[4:begin].view(">u4").tolist()
    claimed = math.prod(lengths)
    if len(found) < begin + claimed or not claimed:
        raise FileFormatError(
            f"{path!r} claims an array of {lengths} and holds {len(found) - begin} values; it is "
            "cut off, or not an IDX file of bytes"
        )
    return found[begin : begin + claimed].reshape(lengths)
