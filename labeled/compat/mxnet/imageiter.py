"""``ImageRecordIter`` and ``ImageRecordIter_v1``: pictures in record files, decoded and changed.

Files are one stream of bytes. Without an index a part is a stretch of that stream, in chunks that
end at the head of a record; with one it is a number of records, read in any order. Chunks are
read and decoded together, in file order, then shuffled, then put into batches. The two iterators
differ in where random numbers come from: the newest one draws everything for a picture from the
engine of the thread that decodes it; the others draw mirroring and light in the order of the
output, from an engine of their own. Pictures are decoded side by side, but changed one after
another, by one engine: of several decoding threads the old programs had one each, and let the race
among them decide, or the place in the file.
"""

from __future__ import annotations

import logging
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, takewhile
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled._threads import workers
from labeled.compat.mxnet.augmenter import Augmenter
from labeled.compat.mxnet.iterators import AHEAD, FloatArray, MXDataProvider, Row
from labeled.compat.mxnet.opencv import Picture, grey_of, old_pixels
from labeled.compat.mxnet.parameters import Rules, Version, files_of, read_parameters
from labeled.compat.mxnet.twister import F32, Twister
from labeled.errors import AugmentError, FileFormatError, LoaderError
from labeled.formats.bytesource import bytes_of, stamp_of
from labeled.formats.pictures import PictureError, decode, kind_of
from labeled.formats.recordio.records import HEADER, HEADER_BYTES, HeaderError, RecordFile, unpack
from labeled.transforms import read_mean_file, write_mean_file

Payloads = list[memoryview]  # the payloads of a chunk, in file order

MIB = 1 << 20
CHUNK_BYTES = 8 * MIB
HEAD_BYTES = 8
SOME_RECORDS = 64  # read before the first of them is needed, where there is an index
PER_THREAD = 16  # pictures that each thread decodes before the first of them is needed

ENGINE_SEED = 111
PIECE_SEED = 666  # what the seed of the order of pieces began with
SLACK = 1.1  # pieces were made somewhat smaller than asked for

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

    _newest_rules: Rules = "1.9.1"

    def __init__(self, *, version: Version = "1.9.1", strict: bool = False, **parameters: Any):
        rules = self._rules = self._newest_rules if version == "1.9.1" else version
        asked = read_parameters("ImageRecordIter", parameters, version, strict, rules)
        _check_parameters(asked, rules)
        self._asked, self._newest = asked, rules == "1.9.1"
        files = files_of(asked.path_imgrec)
        if asked.verbose:
            log.info("reading %s", ", ".join(files))
        self._augmenter = Augmenter(rules, asked)
        self._n_times = len([name for name in asked.aug_seq.split(",") if name])
        self._listed = _read_labels(asked.path_imglist, asked.label_width)
        self._engine = Twister(ENGINE_SEED)
        self._light = self._engine if self._newest else Twister(asked.seed)
        self._shuffler = Twister(ENGINE_SEED + asked.seed)
        self._threads = min(asked.preprocess_threads, os.cpu_count() or 1)
        self._pool = workers(self._threads)
        self._begin_pass = passes_of(asked, Records(files))
        self._ahead = 0 if asked.ctx == "cpu" else AHEAD
        self._tells_pad = asked.round_batch or not self._newest
        super().__init__(version, asked)

    def _mean_image(self, path: str) -> FloatArray:
        """Load the mean image, or make it of a whole pass and save it: summed up in float32."""
        if os.path.exists(path):
            return read_mean_file(path)
        total: Any = F32(0)
        count = 0
        for chunk in self._begin_pass():
            for row in self._rows_of(chunk, in_order=self._newest):
                total, count = total + row.data.astype(np.float32), count + 1
        if not count:
            raise AugmentError("there is no picture, so there is no mean image; check the path")
        mean = total * (F32(1) / F32(count))
        old = self._rules in ("seed", "0.9.5")
        write_mean_file(path, mean, form="oldest" if old else "newest")
        return np.asarray(mean, np.float32)

    def _pass(self) -> Iterator[Row]:
        path = self._asked.mean_img
        if path and self._augmenter.mean_img is None:
            self._augmenter.mean_img = self._mean_image(path)
        return chain.from_iterable(map(self._rows_of, self._begin_pass()))

    def _rows_of(self, chunk: Payloads, *, in_order: bool = False) -> Iterable[Row]:
        """Return the rows of a chunk: the older iterators shuffle before light is drawn."""
        indexed = bool(self._asked.path_imgidx) and not in_order
        shuffled = self._asked.shuffle and not in_order and not indexed
        first_slot = self._asked.batch_size if shuffled or in_order else len(self._taken)
        changed: Iterable[Row] = self._changed(chunk, None if indexed else first_slot)
        if self._newest:
            changed = map(self._numbers, changed)
        if shuffled:
            held = list(changed)
            changed = [held[i] for i in self._shuffler.shuffled(len(held))]
        return changed if self._newest else map(self._numbers, changed)

    def _numbers(self, row: Row) -> Row:
        return row._replace(data=self._augmenter.numbers(row.data, self._light))

    def _changed(self, chunk: Payloads, first_slot: int | None) -> Iterator[Row]:
        """Yield augmented pictures; without a first slot, theirs is their place in the batch."""
        at_once, seed = PER_THREAD * self._threads, self._asked.seed_aug
        groups = (chunk[first : first + at_once] for first in range(0, len(chunk), at_once))
        decoded = chain.from_iterable(self._pool.map(self._decoded, group) for group in groups)
        for place, row in enumerate(decoded):
            if seed is not None:
                slot = len(self._taken) if first_slot is None else first_slot + place
                self._engine.reseed(slot + seed + ENGINE_SEED)
            picture = row.data
            for _ in range(self._n_times):
                picture = self._augmenter(picture, self._engine)
            yield row._replace(data=picture)

    def _decoded(self, payload: memoryview) -> Row:
        """Return id, picture, and label or labels of a record."""
        try:
            _, label, id, _ = HEADER.unpack_from(payload)
            labels, encoded = np.array([label], np.float32), payload[HEADER_BYTES:]
            if self._rules != "seed":
                one = unpack(payload)
                labels, encoded = one.labels, one.payload
        except (HeaderError, struct.error) as fault:
            raise FileFormatError(f"a record has no header of labels and ids: {fault}") from None
        width = self._asked.label_width
        if self._listed is not None:
            if id not in self._listed:
                raise FileFormatError(f"fail to find imagelabel for id {id} in path_imglist")
            labels = self._listed[id]
        elif len(labels) != width:
            raise FileFormatError(f"record with id {id} has {len(labels)} labels, not {width}")
        number = 0 if self._newest else id  # which the newest version did not report
        return Row(number, self._picture(id, encoded), labels if width > 1 else labels[0])

    def _picture(self, id: int, encoded: memoryview) -> Picture:
        n, jpeg = self._asked.data_shape[0], kind_of(encoded) == "jpeg"
        wanted = None if self._rules == "seed" or n == 4 else n
        upright = jpeg and n != 4 and self._rules in ("1.9.1 v1", "1.9.1")
        try:
            to_grey = wanted == 1 and not jpeg
            picture = decode(encoded, 3 if to_grey else wanted, upright=upright, whole=False)
        except PictureError as fault:
            raise FileFormatError(f"the picture with id {id} cannot be decoded: {fault}") from None
        if to_grey:
            picture = grey_of(encoded, picture)
        if self._rules == "0.9.5" and wanted == 3 and jpeg:
            picture = old_pixels(encoded, picture)
        if n == 4 and self._rules != "seed" and picture.shape[2] != 4:
            raise FileFormatError(f"picture {id} has {picture.shape[2]} channels, not 4")
        return picture


class ImageRecordIter_v1(ImageRecordIter):
    """The same, by the rules of the older of the two."""

    _newest_rules = "1.9.1 v1"


def _check_parameters(asked: SimpleNamespace, rules: Rules) -> None:
    shape = asked.data_shape
    if len(shape) != 3 or min(shape) < 1:
        raise LoaderError(f"data_shape={shape} must be (channels, height, width)")
    if rules != "seed" and shape[0] not in (1, 3, 4):
        raise LoaderError(f"data_shape: pictures of {shape[0]} channels are not read")
    if rules == "seed" and not asked.path_imglist:
        asked.label_width = 1  # records had one label each, whatever was asked for
    unknown = {*asked.aug_seq.split(",")} - {"aug_default", ""}
    if unknown:
        raise LoaderError(f"aug_seq names {min(unknown)!r}; only 'aug_default' is known")
    if not 0 <= asked.part_index < asked.num_parts:
        raise LoaderError(f"part_index={asked.part_index} is none of num_parts={asked.num_parts}")


# labels

LEADING_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _read_labels(path: str, width: int) -> dict[int, FloatArray] | None:
    """Return labels by id from a list: as many of each line as asked for, whatever follows.

    A word counts as the number that it begins with, or else as 0.
    """
    if not path:
        return None
    listed = {}
    for number, line in enumerate(bytes_of(path).decode(errors="replace").split("\n"), 1):
        id, *words = line.split() or [""]
        if not id:
            continue
        if len(words) < width or not id.isdigit():
            raise FileFormatError(f"Bad ImageList format: line {number} of {path!r}")
        found = map(LEADING_NUMBER.match, words[:width])
        listed[int(id)] = np.array([float(one[0]) if one else 0.0 for one in found], np.float32)
    return listed


# records, in the order in which they were read


class Records:
    """Record files one after another, as one stretch of bytes."""

    def __init__(self, files: list[str]) -> None:
        self._files = [RecordFile(stamp_of(file)) for file in files]
        self._bounds = [0, *accumulate(file.n_rows for file in self._files)]
        begins = [0, *accumulate(file.stamp.size for file in self._files)]
        heads = [one.offsets[:-1] + at for one, at in zip(self._files, begins, strict=False)]
        # where records begin, and the end of the last
        self.heads = np.append(np.concatenate(heads), begins[-1])

    def payloads(self, first: int, stop: int) -> Payloads:
        """Return the payloads of some neighbours."""
        found: Payloads = []
        for file, begin in zip(self._files, self._bounds, strict=False):
            rows = range(max(first - begin, 0), min(stop - begin, file.n_rows))
            found += [payload for _, payload in file.payloads(rows)] if rows else []
        return found

    def part(self, index: int, count: int) -> tuple[int, int]:
        """Return the records of part `index` of `count`: those that begin in equal shares."""
        step = -(-int(self.heads[-1]) // count)
        step += -step % 4
        first, stop = np.searchsorted(self.heads[:-1], [index * step, (index + 1) * step])
        return int(first), int(stop)

    def chunks(self, first: int, stop: int, chunk_bytes: int) -> Iterator[Payloads]:
        """Cut some records into chunks; each ends before the last head in its bytes."""
        while first < stop:
            end, size = first, chunk_bytes
            while end == first:
                whole = self.heads[stop] - self.heads[first] < size
                last_head = self.heads[first] + size - HEAD_BYTES
                end = stop if whole else int(np.searchsorted(self.heads, last_head, "right")) - 1
                size *= 2
            yield self.payloads(first, end)
            first = end


def passes_of(asked: SimpleNamespace, records: Records) -> Callable[[], Iterator[Payloads]]:
    """Return the function by which an iterator with these parameters begins a pass."""
    part, parts = asked.part_index, asked.num_parts
    if asked.path_imgidx:
        return _indexed(asked, records)
    spans, at_once, draws = [records.part(part, parts)], CHUNK_BYTES, None
    if asked.shuffle_chunk_size:  # pieces, in an order that is shuffled further before every pass
        size = asked.shuffle_chunk_size * MIB
        n = math.ceil(SLACK * int(records.heads[-1]) / (parts * size))
        draws = Twister(PIECE_SEED + part + parts + n + asked.shuffle_chunk_seed)
        spans = [records.part(part * n + piece, parts * n) for piece in range(n)]
        at_once = max(size // 8, CHUNK_BYTES)

    def begin() -> Iterator[Payloads]:
        if draws is not None:
            spans[:] = [spans[at] for at in draws.shuffled(len(spans))]
        return chain.from_iterable(records.chunks(*span, at_once) for span in spans)

    return begin


def _indexed(asked: SimpleNamespace, records: Records) -> Callable[[], Iterator[Payloads]]:
    """Read records by their offsets, some at a time; shuffled all together before every pass.

    An index lists numbers, and every second one is an offset; other words end it.
    """
    path = asked.path_imgidx
    offsets = sorted(map(int, [*takewhile(bytes.isdigit, bytes_of(path).split())][1::2]))
    row_of = {head: row for row, head in enumerate(records.heads.tolist()[:-1])}
    for offset in offsets:
        if offset not in row_of:
            raise FileFormatError(f"{path!r} lists a record at byte {offset:,}, where none begins")
    bounds = [*map(row_of.__getitem__, offsets), len(records.heads) - 1]
    n, parts = len(offsets), asked.num_parts
    step = -(-n // parts)
    mine = np.arange(asked.part_index * step, min((asked.part_index + 1) * step, n))
    if not len(mine):
        raise LoaderError(f"part {asked.part_index} of {parts} holds none of the {n} records")
    draws = Twister(ENGINE_SEED + asked.seed) if asked.shuffle else None

    def chunks(order: npt.NDArray[np.int64]) -> Iterator[Payloads]:
        for first in range(0, len(order), SOME_RECORDS):
            some = order[first : first + SOME_RECORDS].tolist()
            yield [one for at in some for one in records.payloads(bounds[at], bounds[at + 1])]

    return lambda: chunks(mine if draws is None else mine[draws.shuffled(len(mine))])
