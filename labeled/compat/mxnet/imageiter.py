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
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.augmenter import Augmenter, later_than
from labeled.compat.mxnet.batching import AHEAD, RoundBatches, Row
from labeled.compat.mxnet.inputs import files_of
from labeled.compat.mxnet.iterators import NAMES, DataBatch, MXDataProvider
from labeled.compat.mxnet.jpeg import old_pixels
from labeled.compat.mxnet.opencv import Picture
from labeled.compat.mxnet.output import Output, mean_of_outputs
from labeled.compat.mxnet.parameters import (
    Parameter,
    Version,
    checked_version,
    flag_of,
    integer_of,
    integers_of,
    number_of,
    read_parameters,
    shape_of,
    text_of,
)
from labeled.compat.mxnet.records import MIB, Chunk, Passes, passes_of
from labeled.compat.mxnet.twister import Twister
from labeled.errors import FileFormatError, LoaderError
from labeled.formats.picture_heads import PictureError, kind_of
from labeled.formats.pictures import decode
from labeled.formats.recordio.irheader import HEADER, HEADER_BYTES, HeaderError, unpack
from labeled.transforms.meanimage import read_mean_file, write_mean_file

FloatArray = npt.NDArray[np.float32]
_Changed = tuple[int, npt.NDArray[Any], Picture]

ENGINE_SEED = 111
CHUNK_BYTES = 8 * MIB
AHEAD_PER_THREAD = 2
"""Pictures that are decoded before they are needed."""

OF_RECORDS = {
    "path_imgrec": Parameter(text_of, "./data/imgrec.rec"),
    "path_imglist": Parameter(text_of, ""),
    "label_width": Parameter(integer_of, 1, least=1),
    "data_shape": Parameter(shape_of),
    "batch_size": Parameter(integer_of, least=1),
    "round_batch": Parameter(flag_of, True),
    "prefetch_buffer": Parameter(integer_of, 4),
    "preprocess_threads": Parameter(integer_of, 4, least=1),
    "verbose": Parameter(flag_of, True),
    "num_parts": Parameter(integer_of, 1, least=1),
    "part_index": Parameter(integer_of, 0),
    "shuffle": Parameter(flag_of, False),
    "seed": Parameter(integer_of, 0),
    "mean_img": Parameter(text_of, ""),
}
OF_PICTURES = {
    "rand_crop": Parameter(flag_of, False),
    "crop_y_start": Parameter(integer_of, -1),
    "crop_x_start": Parameter(integer_of, -1),
    "max_rotate_angle": Parameter(integer_of, 0),
    "rotate": Parameter(integer_of, -1),
    "rotate_list": Parameter(integers_of, ()),
    "max_aspect_ratio": Parameter(number_of, 0.0),
    "max_shear_ratio": Parameter(number_of, 0.0),
    "max_crop_size": Parameter(integer_of, -1),
    "min_crop_size": Parameter(integer_of, -1),
    "max_random_scale": Parameter(number_of, 1.0),
    "min_random_scale": Parameter(number_of, 1.0),
    "max_img_size": Parameter(number_of, 1e10),
    "min_img_size": Parameter(number_of, 0.0),
    "random_h": Parameter(integer_of, 0),
    "random_s": Parameter(integer_of, 0),
    "random_l": Parameter(integer_of, 0),
    "fill_value": Parameter(integer_of, 255),
    "inter_method": Parameter(integer_of, 1),
    "resize": Parameter(integer_of, -1),
    "pad": Parameter(integer_of, 0),
    "min_aspect_ratio": Parameter(number_of, None),
    "random_resized_crop": Parameter(flag_of, False),
    "min_random_area": Parameter(number_of, 1.0),
    "max_random_area": Parameter(number_of, 1.0),
    "brightness": Parameter(number_of, 0.0),
    "contrast": Parameter(number_of, 0.0),
    "saturation": Parameter(number_of, 0.0),
    "pca_noise": Parameter(number_of, 0.0),
}
OF_OUTPUT = {
    "mirror": Parameter(flag_of, False),
    "rand_mirror": Parameter(flag_of, False),
    **{f"mean_{colour}": Parameter(number_of, 0.0) for colour in "rgba"},
    "scale": Parameter(number_of, 1.0),
    "max_random_contrast": Parameter(number_of, 0.0),
    "max_random_illumination": Parameter(number_of, 0.0),
}
STD = {f"std_{colour}": Parameter(number_of, 1.0) for colour in "rgba"}
SINCE_191 = {
    "path_imgidx": Parameter(text_of, ""),
    "seed_aug": Parameter(integer_of, None),
    "shuffle_chunk_size": Parameter(integer_of, 0, least=0),
    "shuffle_chunk_seed": Parameter(integer_of, 0),
    "aug_seq": Parameter(text_of, "aug_default"),
    "dtype": Parameter(text_of, "float32"),
    "ctx": Parameter(text_of, "gpu"),
    "device_id": Parameter(integer_of, 0),
}
NEWEST_ONLY = ("path_imgidx", "seed_aug", "dtype", "ctx", "device_id")

log = logging.getLogger(__name__)


def known_parameters(version: Version, *, v1: bool) -> dict[str, Parameter]:
    """Return the parameters that an iterator of a version knew."""
    known = {**NAMES, **OF_RECORDS, **OF_PICTURES, **OF_OUTPUT}
    if version == "1.9.1":
        known |= {**STD, **SINCE_191, "path_imgrec": Parameter(text_of)}
    if version != "1.9.1" or v1:
        known = {name: one for name, one in known.items() if name not in NEWEST_ONLY}
    return {name: one for name, one in known.items() if name not in later_than(version)}


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

    _v1 = False

    def __init__(self, *, version: Version = "1.9.1", strict: bool = False, **parameters: Any):
        version = checked_version(version)
        v1 = self._v1 or version != "1.9.1"
        title = type(self).__name__
        known = known_parameters(version, v1=v1)
        asked = read_parameters(title, known, parameters, strict=strict)
        _check_shape(title, asked["data_shape"])
        if version == "seed" and not asked["path_imglist"]:
            asked["label_width"] = 1  # records had one label each, whatever was asked for
        batches = _batches(asked, version, v1=v1)
        super().__init__(batches, version, asked)


class ImageRecordIter_v1(ImageRecordIter):
    """The same, by the rules of the older of the two."""

    _v1 = True


def _check_shape(title: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or min(shape) < 1:
        raise LoaderError(
            f"{title}: data_shape={shape} has wrong dimensions; give (channels, height, width)"
        )


def _batches(asked: dict[str, Any], version: Version, *, v1: bool) -> _ImageBatches:
    files = files_of(asked["path_imgrec"])
    passes = passes_of(asked, files, CHUNK_BYTES)
    augmenter = Augmenter(
        version=version,
        **{name: asked[name] for name in (*OF_PICTURES, "data_shape") if name in asked},
    )
    names = [name for name in (*OF_OUTPUT, *STD, "dtype") if name in asked]
    output = Output(version=version, v1=v1, **{name: asked[name] for name in names})
    pictures = _Pictures(asked, version, augmenter, _read_labels(asked))
    made: _Images = (_OlderImages if v1 else _NewestImages)(asked, passes, pictures, output)
    if asked["mean_img"]:
        made.output = replace(output, mean_img=_mean_image(asked["mean_img"], made))
    ahead = 0 if asked.get("ctx") == "cpu" else AHEAD
    rows = RoundBatches(made.begin, asked["batch_size"], asked["round_batch"], ahead)
    made.rows = rows
    if asked["verbose"]:
        log.info("reading %s", ", ".join(files))
    return _ImageBatches(rows, tells_pad=v1 or asked["round_batch"], indexed=v1)


def _mean_image(path: str, images: _Images) -> FloatArray:
    """Load the mean image, or make it of a whole pass and save it."""
    if os.path.exists(path):
        return read_mean_file(path)
    mean = mean_of_outputs(row.data for row in images.begin_unshuffled())
    write_mean_file(path, mean, form="newest" if images.pictures.version == "1.9.1" else "oldest")
    return mean


@dataclass(eq=False)
class _ImageBatches:
    """Batches as they were handed out: flat labels, and pads and indices where these were told."""

    rows: RoundBatches
    tells_pad: bool
    indexed: bool

    def next(self) -> DataBatch | None:
        found = self.rows.next()
        if found is None:
            return None
        pad = found.pad if self.tells_pad else 0
        return replace(
            found, pad=pad, index=found.index if self.indexed else np.zeros_like(found.index)
        )

    def reset(self) -> None:
        self.rows.reset()


@dataclass(eq=False)
class _Pictures:
    """From a payload to an augmented picture with its id and labels."""

    asked: dict[str, Any]
    version: Version
    augmenter: Augmenter
    listed: dict[int, FloatArray] | None

    def __post_init__(self) -> None:
        self._n_channels = self.asked["data_shape"][0]
        if self.version != "seed" and self._n_channels not in (1, 3, 4):
            raise LoaderError(f"data_shape: pictures of {self._n_channels} channels are not read")
        steps = [name for name in self.asked.get("aug_seq", "aug_default").split(",") if name]
        unknown = set(steps) - {"aug_default"}
        if unknown:
            raise LoaderError(f"aug_seq names {sorted(unknown)[0]!r}; only 'aug_default' is known")
        self._times = len(steps)

    def read(self, payload: memoryview) -> _Changed:
        """Return id, labels and the decoded picture."""
        id, own, encoded = self._taken_apart(payload)
        labels = own if self.listed is None else self._label_of(id)
        if self.listed is None and len(labels) != self.asked["label_width"]:
            raise FileFormatError(
                f"record with id {id}: it has {len(labels)} labels, label_width is "
                f"{self.asked['label_width']}"
            )
        return (
            id,
            labels if self.asked["label_width"] > 1 else labels[0],
            self._decoded(id, encoded),
        )

    def _taken_apart(self, payload: memoryview) -> tuple[int, FloatArray, memoryview]:
        try:
            if self.version != "seed":
                one = unpack(payload)
                return one.id, one.labels.astype(np.float32), one.payload
            _, label, id, _ = HEADER.unpack_from(payload)
        except (HeaderError, struct.error) as fault:
            raise FileFormatError(f"a record has no header of labels and ids: {fault}") from None
        return id, np.array([label], np.float32), payload[HEADER_BYTES:]

    def _label_of(self, id: int) -> FloatArray:
        assert self.listed is not None
        try:
            return self.listed[id]
        except KeyError:
            raise FileFormatError(
                f"fail to find imagelabel for id {id} in {self.asked['path_imglist']!r}"
            ) from None

    def _decoded(self, id: int, encoded: memoryview) -> Picture:
        wanted = None if self.version == "seed" or self._n_channels == 4 else self._n_channels
        jpeg = kind_of(encoded) == "jpeg"
        upright = jpeg and self.version == "1.9.1" and self._n_channels != 4
        try:
            picture = decode(encoded, wanted, upright=upright, whole=False)
        except PictureError as fault:
            raise FileFormatError(f"the picture with id {id} cannot be decoded: {fault}") from None
        if self.version == "0.9.5" and wanted == 3 and jpeg:
            picture = old_pixels(encoded, picture)
        if self._n_channels == 4 and self.version != "seed" and picture.shape[2] != 4:
            raise FileFormatError(
                f"the picture with id {id} has {picture.shape[2]} channels, data_shape asks for 4"
            )
        return picture

    def changed(self, picture: Picture, draws: Twister) -> Picture:
        """Return a picture augmented."""
        for _ in range(self._times):
            picture = self.augmenter(picture, draws)
        return picture


@dataclass(eq=False)
class _Images:
    """The rows of one iterator, pass after pass."""

    asked: dict[str, Any]
    passes: Passes
    pictures: _Pictures
    output: Output
    rows: RoundBatches | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.engine = Twister(ENGINE_SEED)
        self.shuffler = Twister(ENGINE_SEED + self.asked["seed"])
        self._threads = min(self.asked["preprocess_threads"], os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self._threads, "decode") if self._threads > 1 else None

    def begin(self) -> Iterator[Row]:
        """Begin a pass."""
        return chain.from_iterable(map(self._rows_of, self.passes.begin()))

    def begin_unshuffled(self) -> Iterator[Row]:
        """Begin the pass that the mean image is made of."""
        raise NotImplementedError

    def _rows_of(self, chunk: Chunk) -> Iterator[Row]:
        raise NotImplementedError

    def _read(self, chunk: Chunk) -> Iterator[_Changed]:
        """Yield decoded pictures in file order; some are decoded ahead, side by side."""
        if self._pool is None:
            yield from map(self.pictures.read, chunk)
            return
        waiting: deque[Future[_Changed]] = deque()
        for payload in chunk:
            waiting.append(self._pool.submit(self.pictures.read, payload))
            if len(waiting) > AHEAD_PER_THREAD * self._threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _OlderImages(_Images):
    """One engine for what is done to pictures, one for light and mirroring."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.light = Twister(self.asked["seed"])

    def begin_unshuffled(self) -> Iterator[Row]:
        return self.begin()  # it was shuffled like any other

    def _rows_of(self, chunk: Chunk) -> Iterator[Row]:
        changed = self._changed(chunk)
        if self.asked["shuffle"]:
            held = list(changed)
            changed = iter([held[i] for i in self.shuffler.shuffled(len(held))])
        for id, labels, picture in changed:
            yield Row(id, self.output(picture, self.light), labels)

    def _changed(self, chunk: Chunk) -> Iterator[_Changed]:
        for id, labels, picture in self._read(chunk):
            yield id, labels, self.pictures.changed(picture, self.engine)


class _NewestImages(_Images):
    """One engine for everything."""

    def begin_unshuffled(self) -> Iterator[Row]:
        size = self.asked["batch_size"]
        return chain.from_iterable(
            self._in_file_order(chunk, size) for chunk in self.passes.begin()
        )

    def _rows_of(self, chunk: Chunk) -> Iterator[Row]:
        assert self.rows is not None
        if self.asked["path_imgidx"]:
            return self._in_file_order(chunk, None)
        if not self.asked["shuffle"]:
            return self._in_file_order(chunk, self.rows.n_filled)
        held = list(self._in_file_order(chunk, self.asked["batch_size"]))
        return (held[i] for i in self.shuffler.shuffled(len(held)))

    def _in_file_order(self, chunk: Chunk, first_slot: int | None) -> Iterator[Row]:
        """Yield the rows of a chunk; without a first slot, theirs is their place in the batch."""
        for place, (id, labels, picture) in enumerate(self._read(chunk)):
            if self.asked["seed_aug"] is not None:
                slot = self._filled if first_slot is None else first_slot + place
                self.engine.reseed(slot + self.asked["seed_aug"] + ENGINE_SEED)
            changed = self.pictures.changed(picture, self.engine)
            yield Row(id, self.output(changed, self.engine), labels)

    @property
    def _filled(self) -> int:
        assert self.rows is not None
        return self.rows.n_filled


LEADING_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _read_labels(asked: dict[str, Any]) -> dict[int, FloatArray] | None:
    """Return labels by id from a list: as many of each line as asked for, whatever follows."""
    path, width = asked["path_imglist"], asked["label_width"]
    if not path:
        return None
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
