"""``ImageRecordIter`` and ``ImageRecordIter_v1``: pictures in record files, decoded and changed.

Both read chunks, decode them in file order, shuffle, and put rows into batches. They differ in
where random numbers come from: the newest one draws everything for a picture from the engine of
the thread that decodes it; the others draw mirroring and light in the order of the output, from
an engine of their own. Pictures are decoded side by side, but changed one after another, by one
engine: of several decoding threads the old programs had one each, and let the race among them
decide, or the place in the file.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.augmenter import Augmenter, Output, mean_of_outputs
from labeled.compat.mxnet.iterators import AHEAD, MXDataProvider, RoundBatches, Row
from labeled.compat.mxnet.opencv import Picture, old_pixels
from labeled.compat.mxnet.parameters import (
    OF_PICTURES,
    PictureParameters,
    Rules,
    Version,
    checked_version,
    files_of,
    image_parameters,
    read_parameters,
)
from labeled.compat.mxnet.records import MIB, Chunk, passes_of
from labeled.compat.mxnet.twister import Twister
from labeled.errors import FileFormatError, LoaderError
from labeled.formats.picture_heads import PictureError, kind_of
from labeled.formats.pictures import decode
from labeled.formats.recordio.framing import HEADER, HEADER_BYTES, HeaderError, unpack
from labeled.transforms import read_mean_file, write_mean_file

FloatArray = npt.NDArray[np.float32]
_Changed = tuple[int, npt.NDArray[Any], Picture]

ENGINE_SEED = 111
CHUNK_BYTES = 8 * MIB
PER_THREAD = 16
"""Pictures that each thread decodes before the first of them is needed."""

log = logging.getLogger(__name__)


class ImageRecordIter(MXDataProvider):
    """Batches of pictures and their labels.

    Parameters
    ----------
    version : {"seed", "0.9.5", "1.9.1"}
        Whose rules. The earlier two have those of :class:`ImageRecordIter_v1`.
    strict : bool
        Refuse words that are no parameters of the version, rather than pass them over.
    **parameters
        Those of the version, by their old names and defaults. `prefetch_buffer`, `verbose` and
        `device_id` change nothing, and `preprocess_threads` nothing but the speed;
        `crop_y_start` and `crop_x_start` count with ``version="seed"`` alone, whose manual
        describes them.

    Raises
    ------
    FileFormatError
        If a file or picture cannot be read.
    LoaderError, AugmentError
        If parameters are missing, wrong, or exclude one another.
    """

    _rules: Rules = "1.9.1"

    def __init__(self, *, version: Version = "1.9.1", strict: bool = False, **parameters: Any):
        rules: Rules = self._rules if checked_version(version) == "1.9.1" else version
        title = type(self).__name__
        asked = read_parameters(title, image_parameters(rules), parameters, strict=strict)
        shape = asked["data_shape"]
        if len(shape) != 3 or min(shape) < 1:
            raise LoaderError(
                f"{title}: data_shape={shape} has wrong dimensions; give (channels, height, width)"
            )
        if rules == "seed" and not asked["path_imglist"]:
            asked["label_width"] = 1  # records had one label each, whatever was asked for
        self._tells_index = rules != "1.9.1"
        self._tells_pad = self._tells_index or asked["round_batch"]
        ahead = 0 if asked.get("ctx") == "cpu" else AHEAD
        rows = _Rows(asked, rules)
        rows.batches = RoundBatches(rows.begin, asked["batch_size"], asked["round_batch"], ahead)
        if asked["verbose"]:
            log.info("reading %s", ", ".join(files_of(asked["path_imgrec"])))
        super().__init__(rows.batches, version, asked)


class ImageRecordIter_v1(ImageRecordIter):
    """The same, by the rules of the older of the two."""

    _rules = "1.9.1 v1"


class _Rows:
    """The rows of one iterator, pass after pass."""

    batches: RoundBatches
    """Where the rows go: tells how many the batch under construction has."""

    def __init__(self, asked: dict[str, Any], rules: Rules) -> None:
        self._asked, self._rules = asked, rules
        self._begin_pass = passes_of(asked, files_of(asked["path_imgrec"]), CHUNK_BYTES)
        self._n_channels = asked["data_shape"][0]
        if rules != "seed" and self._n_channels not in (1, 3, 4):
            raise LoaderError(f"data_shape: pictures of {self._n_channels} channels are not read")
        steps = [name for name in asked.get("aug_seq", "aug_default").split(",") if name]
        if {*steps} - {"aug_default"}:
            raise LoaderError(
                f"aug_seq names {min({*steps} - {'aug_default'})!r}; only 'aug_default' is known"
            )
        p = PictureParameters(**{name: asked[name] for name in OF_PICTURES if name in asked})
        self._augmenters = [Augmenter(asked["data_shape"], rules, p)] * len(steps)
        path, width = asked["path_imglist"], asked["label_width"]
        self._listed = _read_labels(path, width) if path else None
        self._newest = rules == "1.9.1"
        self._engine = Twister(ENGINE_SEED)
        self._light = self._engine if self._newest else Twister(asked["seed"])
        self._shuffler = Twister(ENGINE_SEED + asked["seed"])
        self._threads = min(asked["preprocess_threads"], os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self._threads, "decode") if self._threads > 1 else None
        self._output = Output(rules, p, asked.get("dtype", "float32"))
        if asked["mean_img"]:
            mean = self._mean_image(asked["mean_img"])
            self._output = replace(self._output, mean_img=mean)

    def _mean_image(self, path: str) -> FloatArray:
        """Load the mean image, or make it of a whole pass and save it."""
        if os.path.exists(path):
            return read_mean_file(path)
        chunks = self._begin_pass()
        if self._newest:
            size = self._asked["batch_size"]
            rows = chain.from_iterable(self._in_file_order(chunk, size) for chunk in chunks)
        else:
            rows = chain.from_iterable(map(self._rows_of, chunks))  # shuffled like any other
        mean = mean_of_outputs(row.data for row in rows)
        old = self._rules in ("seed", "0.9.5")
        write_mean_file(path, mean, form="oldest" if old else "newest")
        return mean

    def begin(self) -> Iterator[Row]:
        """Begin a pass."""
        return chain.from_iterable(map(self._rows_of, self._begin_pass()))

    def _rows_of(self, chunk: Chunk) -> Iterator[Row]:
        """Yield the rows of a chunk: the older iterators shuffle before light is drawn."""
        shuffled, size = self._asked["shuffle"], self._asked["batch_size"]
        if not self._newest:
            changed: Iterable[_Changed] = self._changed(chunk, None)
            return map(self._row, self._shuffled(changed) if shuffled else changed)
        if self._asked["path_imgidx"]:
            return self._in_file_order(chunk, None)
        if shuffled:
            return iter(self._shuffled(self._in_file_order(chunk, size)))
        return self._in_file_order(chunk, self.batches.n_filled)

    def _in_file_order(self, chunk: Chunk, first_slot: int | None) -> Iterator[Row]:
        return map(self._row, self._changed(chunk, first_slot))

    def _shuffled(self, items: Iterable[Any]) -> list[Any]:
        held = list(items)
        return [held[i] for i in self._shuffler.shuffled(len(held))]

    def _row(self, changed: _Changed) -> Row:
        id, labels, picture = changed
        return Row(id, self._output(picture, self._light), labels)

    def _changed(self, chunk: Chunk, first_slot: int | None) -> Iterator[_Changed]:
        """Yield augmented pictures; without a first slot, theirs is their place in the batch."""
        seed = self._asked.get("seed_aug")
        for place, (id, labels, picture) in enumerate(self._read(chunk)):
            if seed is not None:
                slot = self.batches.n_filled if first_slot is None else first_slot + place
                self._engine.reseed(slot + seed + ENGINE_SEED)
            for augmenter in self._augmenters:
                picture = augmenter(picture, self._engine)
            yield id, labels, picture

    def _read(self, chunk: Chunk) -> Iterator[_Changed]:
        """Yield decoded pictures in file order; some are decoded ahead, side by side."""
        if self._pool is None:
            yield from map(self._decoded, chunk)
            return
        at_once = PER_THREAD * self._threads
        for first in range(0, len(chunk), at_once):
            yield from self._pool.map(self._decoded, chunk[first : first + at_once])

    def _decoded(self, payload: memoryview) -> _Changed:
        """Return id, labels and the decoded picture of a record."""
        id, labels, encoded = self._taken_apart(payload)
        width = self._asked["label_width"]
        if self._listed is not None:
            if id not in self._listed:
                raise FileFormatError(
                    f"fail to find imagelabel for id {id} in {self._asked['path_imglist']!r}"
                )
            labels = self._listed[id]
        elif len(labels) != width:
            raise FileFormatError(
                f"record with id {id}: it has {len(labels)} labels, label_width is {width}"
            )
        return id, labels if width > 1 else labels[0], self._picture(id, encoded)

    def _taken_apart(self, payload: memoryview) -> tuple[int, FloatArray, memoryview]:
        try:
            if self._rules != "seed":
                one = unpack(payload)
                return one.id, one.labels.astype(np.float32), one.payload
            _, label, id, _ = HEADER.unpack_from(payload)
        except (HeaderError, struct.error) as fault:
            raise FileFormatError(f"a record has no header of labels and ids: {fault}") from None
        return id, np.array([label], np.float32), payload[HEADER_BYTES:]

    def _picture(self, id: int, encoded: memoryview) -> Picture:
        n, jpeg = self._n_channels, kind_of(encoded) == "jpeg"
        wanted = None if self._rules == "seed" or n == 4 else n
        upright = jpeg and n != 4 and self._rules in ("1.9.1 v1", "1.9.1")
        try:
            picture = decode(encoded, wanted, upright=upright, whole=False)
        except PictureError as fault:
            raise FileFormatError(f"the picture with id {id} cannot be decoded: {fault}") from None
        if self._rules == "0.9.5" and wanted == 3 and jpeg:
            picture = old_pixels(encoded, picture)
        if n == 4 and self._rules != "seed" and picture.shape[2] != 4:
            raise FileFormatError(
                f"the picture with id {id} has {picture.shape[2]} channels, data_shape asks for 4"
            )
        return picture


LEADING_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _read_labels(path: str, width: int) -> dict[int, FloatArray]:
    """Return labels by id from a list: as many of each line as asked for, whatever follows."""
    listed = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                words = line.split()
                if not words:
                    continue
                if len(words) < 1 + width or not words[0].isdigit():
                    raise FileFormatError(
                        f"Bad ImageList format: line {number} of {path!r} has no id and {width} "
                        "labels"
                    )
                labels = [_leading_number(word) for word in words[1 : 1 + width]]
                listed[int(words[0])] = np.array(labels, np.float32)
    except OSError as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path!r} cannot be read: {error}") from error
    return listed


def _leading_number(word: str) -> float:
    """Read the number that a word begins with; 0 where it begins with none."""
    found = LEADING_NUMBER.match(word)
    return float(found[0]) if found is not None else 0.0
