"""Windows decoded on a device: compressed bytes cross the bus, and rows are made of them there.

A window whose chunks can be decoded there, and fit, is read as it is stored into the memory that
its decoded rows would take. Its bytes go to the device by one copy. On the stream for copies,
in this order: frames are decoded by one call, bytes of elements that were shuffled are brought
together, chunks that lie beside one another are joined, and rows are picked for the window. So
the memory beside the windows is used by one of them after another, and is there once.

What the device found out of each frame, and the checksums that zlib wrote, come back as one
number a source: how many do not agree. It is looked at before a batch is made of the window.

A source whose chunks no device decodes is decoded on the host, and so is a window that touches
too many chunks for its rows; orders and values are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from labeled import permute
from labeled.device import Array, Decoder, adler32, namespace, to_host
from labeled.device.decoding import SUM_BYTES
from labeled.device.streams import Device, HostArray, Stream
from labeled.errors import LabeledError, LoaderError
from labeled.formats.coded import NO_SUM, CodedWindow, Coding, Found, coded_of
from labeled.loader.reading.lanes import Lane
from labeled.loader.reading.slots import Layout
from labeled.loader.sizing.sizes import Sizes

Decode = Literal["auto", "host", "device"]
CHOICES: tuple[str, ...] = ("auto", "host", "device")

MORE_BANDS = 2, 3
"""Chunks a window may touch, for each that its rows would fill: 3 for 2, and two for its ends."""

FRAME_BYTES, ROW_BYTES = 64, 8
"""What is sent along for each chunk and for each row."""


@dataclass(frozen=True, eq=False)
class DecodePlan:
    """Which sources a device decodes, and what that takes there.

    Parameters
    ----------
    name : str
        Of the decoder.
    most_bands : mapping of str to int
        For each source that is decoded there: bands of chunks that a window may touch.
    stays : mapping of str to str
        Why other sources with filters are decoded on the host.
    device_bytes : int
        Memory beside the windows.
    """

    name: str
    most_bands: Mapping[str, int]
    stays: Mapping[str, str]
    device_bytes: int


def check_decode(decode: Any, device: Device | None, *, piped: bool) -> bool:
    """Return whether a device is to decode.

    Raises
    ------
    LoaderError
        If `decode` is no choice, or nothing is made on a device.
    """
    if decode != "device":
        return False
    if device is None:
        raise LoaderError("decode='device' needs a device: device='cuda'")
    if piped:
        raise LoaderError(
            "decode='device' does not go with a pipeline that works on the host; leave one of them "
            "out, or give the pipeline a batch stage only"
        )
    return True


def decode_plan(device: Device, layout: Layout, lanes: Sequence[Lane], sizes: Sizes) -> DecodePlan:
    """Find out which sources the device can decode; those lanes read chunks as they are stored.

    Parameters
    ----------
    layout : mapping of str to (row shape, dtype)
        The sources that go to the device as they are stored.
    """
    if sizes.blocks is not None:
        why = "batches of a staggered order are gathered on the host"
        return DecodePlan("", {}, dict.fromkeys(_coded_names(lanes), why), 0)
    most_bands: dict[str, int] = {}
    stays: dict[str, str] = {}
    packed, beside = [0], [0]
    try:
        decoder = device.decoder()
    except LabeledError as error:
        return DecodePlan("", {}, dict.fromkeys(_coded_names(lanes), str(error)), 0)
    for lane in lanes:
        if not lane.source.layout.dear:
            continue
        coded = _why_here(lane, layout) or coded_of(lane.reader)
        if not isinstance(coded, str):
            coded = decoder.why_not(coded.coding.codec, coded.coding.chunk_bytes) or coded
        if isinstance(coded, str):
            stays[lane.name] = coded
            continue
        most = -(-sizes.job_rows * MORE_BANDS[1] // (MORE_BANDS[0] * coded.coding.chunk_rows)) + 2
        most_bands[lane.name] = lane.most_bands = most
        lane.coded = coded
        packed.append(sizes.job_rows * lane.row_bytes)
        beside.append(memory_beside(coded.coding, most, 0, decoder))
    return DecodePlan(decoder.name, most_bands, stays, max(packed) + max(beside))


def _coded_names(lanes: Sequence[Lane]) -> list[str]:
    return [lane.name for lane in lanes if lane.source.layout.dear]


def _why_here(lane: Lane, layout: Layout) -> str | None:
    """Say why rows of a source are made on the host, whatever its chunks are like."""
    if lane.keep:
        return "its rows are kept in memory, decoded once"
    if lane.name not in layout:
        return "its rows are laid out on the host"
    return None


def memory_beside(coding: Coding, bands: int, packed_bytes: int, decoder: Decoder) -> int:
    """Return the memory for packed and decoded chunks of a window, and what is made of them."""
    decoded, n = bands * coding.band_bytes, bands * coding.per_band
    passes = 1 + (coding.item > 1) + 2 * _reshaped(coding)
    temp = decoder.temp_bytes(coding.codec, n, coding.chunk_bytes)
    sums = min(SUM_BYTES, 4 * decoded) if coding.codec == "deflate" else 0
    tables = n * FRAME_BYTES + bands * coding.chunk_rows * ROW_BYTES
    return packed_bytes + passes * decoded + temp + sums + tables


def _reshaped(coding: Coding) -> bool:
    """Whether rows are other than chunks one after another."""
    return coding.per_band > 1 or coding.chunks[1:] != coding.row_shape


@dataclass(eq=False)
class Verdict:
    """What a device found of the chunks of a window; to be looked at once it is done."""

    window: CodedWindow
    found: Found
    lengths: Array
    sums: Array | None
    n_bad: HostArray

    def check(self) -> None:
        """Raise :class:`~labeled.errors.ReadError` for the first chunk that is damaged."""
        if not self.n_bad[0]:
            return
        frames, wanted = self.found.frames, self.found.sums
        lengths = to_host(self.lengths)
        for k in np.flatnonzero(lengths != frames.lengths).tolist():
            what = f"it does not decode to {frames.lengths[k]} bytes (found {lengths[k]})"
            raise self.window.damaged(int(self.found.chunks[k]), what)
        assert self.sums is not None
        sums = to_host(self.sums)
        chunk = int(np.flatnonzero((sums != wanted) & (wanted != NO_SUM))[0])
        raise self.window.damaged(
            chunk, f"its checksum is {wanted[chunk]:#010x}, its bytes give {sums[chunk]:#010x}"
        )


class DeviceDecoding:
    """Decodes one window after another, on the stream for copies.

    Parameters
    ----------
    device : Device
    stream : Stream
    memory : dict of str to array
        Of the device, beside its windows: made here, and used again in every epoch.
    """

    def __init__(self, device: Device, stream: Stream, memory: dict[str, Array]) -> None:
        self._device = device
        self._stream = stream
        self._decoder = device.decoder()
        self._memory = memory

    def upload(self, memory: HostArray, most: int) -> Array:
        """Begin the copy of a window's stored bytes, of which there are `most` in any window.

        `memory` must stay until it is done.
        """
        packed = self._scratch("packed", most, len(memory))
        self._stream.upload(memory, packed)
        return packed

    def decode(
        self, packed: Array, window: CodedWindow, most_bands: int, target: Array, n_bad: HostArray
    ) -> Verdict:
        """Ask for the rows of a window, whose copy was asked for.

        Parameters
        ----------
        target : array
            Of the device: receives the rows.
        n_bad : int64 array of one element
            Of pinned memory: receives how many frames and checksums do not agree.
        """
        coding = window.coding
        area = self._scratch(
            "decoded", most_bands * coding.band_bytes, window.n_bands * coding.band_bytes
        )
        found = window.found()
        work = partial(self._made, packed, area, window, found, target)
        lengths, sums, bad = self._stream.run(work, [packed], [area, target])
        self._stream.download(bad, n_bad)
        return Verdict(window, found, lengths, sums, n_bad)

    def _scratch(self, use: str, most: int, nbytes: int) -> Array:
        """Return memory of the device that one window after another uses."""
        held = self._memory.get(use)
        if held is None or len(held) < nbytes:
            self._memory.pop(use, None)
            shape = (max(most, nbytes),)

            def memory() -> Array:
                return self._device.empty(shape, np.dtype(np.uint8))

            held = self._memory[use] = self._stream.run(memory, ())
        return held[:nbytes]

    def _made(
        self, packed: Array, area: Array, window: CodedWindow, found: Found, target: Array
    ) -> tuple[Array, Array | None, Array]:
        """Run the kernels; return the lengths and checksums they found, and how many are bad."""
        coding, frames, xp = window.coding, found.frames, namespace(area)
        lengths = self._decoder.decode(coding.codec, packed, frames, area)
        for start, size, place in found.plain:
            area[place : place + size] = packed[start : start + size]
        bad = (lengths != xp.asarray(frames.lengths)).sum().reshape(1)
        chunks = area.reshape(-1, coding.chunk_bytes)
        sums = None
        if (found.sums != NO_SUM).any():
            sums, wanted = adler32(chunks), xp.asarray(found.sums)
            bad = bad + ((sums != wanted) & (wanted != NO_SUM)).sum()
        rows = rows_of_chunks(chunks, packed, coding, found)
        rows.take(xp.asarray(window.rows), 0, target)
        return lengths, sums, bad.astype(np.int64)


def rows_of_chunks(chunks: Array, packed: Array, coding: Coding, found: Found) -> Array:
    """Make rows of decompressed chunks.

    Parameters
    ----------
    chunks : uint8 array, lengths ``(n, chunk bytes)``
        Numbered band by band.
    packed : uint8 array
        Holds those chunks that were decoded before.

    Returns
    -------
    array, lengths ``(rows of all bands, *row_shape)``
    """
    n = len(chunks)
    if coding.item > 1:
        planes = chunks.reshape(n, coding.item, -1)
        chunks = permute.copy(planes, (0, 2, 1)).reshape(n, -1)
    for number, start in found.ready:
        chunks[number] = packed[start : start + coding.chunk_bytes]
    values = chunks.reshape(-1).view(coding.dtype).reshape(n, *coding.chunks)
    for number in found.missing:
        values[number] = coding.fill_value
    if coding.per_band > 1:
        values = _joined_tiles(values, coding)
    rows = values.reshape(-1, *values.shape[values.ndim - len(coding.row_shape) :])
    return rows[(slice(None), *(slice(0, length) for length in coding.row_shape))]


def _joined_tiles(values: Array, coding: Coding) -> Array:
    """Join the chunks of each band: ``(bands, rows, *lengths of the grid)``."""
    inner = len(coding.grid)
    apart = values.reshape(-1, *coding.grid, *coding.chunks)
    pairs = [axis for k in range(inner) for axis in (1 + k, 2 + inner + k)]
    together = permute.copy(apart, (0, 1 + inner, *pairs))
    lengths = [g * c for g, c in zip(coding.grid, coding.chunks[1:], strict=True)]
    return together.reshape(len(apart), coding.chunk_rows, *lengths)
