"""Windows that a device reads itself: bytes of files go past the memory of this process.

Where rows lie in a file as they are handed out, whole runs of a window are read straight into
memory of the device. In file order that is the window itself; in other orders runs land side by
side in memory beside it, and one kernel on the stream for copies puts rows in their places.

Such reads are on no stream. So they are begun only when nothing reads or writes their memory any
more, which a thread waits for where it must, and nothing is asked for that reads it before they
have arrived. A read that fails is told with file and rows, before a batch is made of its window.

Sources that do not lie so, are kept in memory, or are decoded, come by way of the host as ever;
order and values are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from labeled.device import Array, Arrival, Arrived, DirectFile, namespace
from labeled.device.streams import Device, Stream
from labeled.errors import FileFormatError, LabeledError, LoaderError
from labeled.formats.bytesource import MAX_OPEN_FILES, check_open
from labeled.formats.header import FileStamp
from labeled.formats.reading import UNSTORED
from labeled.formats.straight import StraightPart, StraightWindow, straight_of
from labeled.loader.reading.lanes import Lane
from labeled.loader.reading.slots import Layout
from labeled.loader.sizing.sizes import Sizes
from labeled.samplers.order import Mode

PLACE_BYTES = 8
"""What is sent along for each row whose place is not that of its run."""

ALONE_BYTES = 1 << 16
"""Rows of this size are worth a read of their own."""

REMEDY = "leave reader='threads'"


@dataclass(frozen=True, eq=False)
class DirectPlan:
    """Which sources a device reads itself, and what that takes there.

    Parameters
    ----------
    name : str
        Of what reads.
    read_there : tuple of str
    stays : mapping of str to str
        Why other sources are read on the host.
    landing : mapping of str to (row shape, dtype)
        Those whose runs are read beside a window first.
    landing_bytes : int
        Memory beside each window.
    """

    name: str
    read_there: tuple[str, ...]
    stays: Mapping[str, str]
    landing: Layout
    landing_bytes: int


def check_direct(device: Device | None, *, piped: bool) -> None:
    """Raise :class:`LoaderError` where no device makes windows that it could read."""
    if device is None:
        raise LoaderError(f"reader='device' needs a device: device='cuda'; or {REMEDY}")
    if piped:
        raise LoaderError(
            "reader='device' does not go with a pipeline that works on the host; leave one of them "
            "out, or give the pipeline a batch stage only"
        )


def direct_plan(
    device: Device, layout: Layout, lanes: Sequence[Lane], sizes: Sizes, mode: Mode
) -> DirectPlan:
    """Find out which sources the device can read; those lanes tell where rows lie.

    Parameters
    ----------
    layout : mapping of str to (row shape, dtype)
        The sources that go to the device as they are stored.

    Raises
    ------
    LoaderError
        If it can read none of them, nor is one kept in memory; says why.
    MissingExtraError
        If what reads is not installed; names the extras.
    """
    reader = device.direct_reader()
    found: list[Lane] = []
    stays: dict[str, str] = {}
    for lane in lanes:
        straight = _why_here(lane, layout, sizes, mode) or straight_of(lane.reader)
        if isinstance(straight, str):
            stays[lane.name] = straight
        else:
            lane.read_there = True
            found.append(lane)
    if not found and not any(lane.keep for lane in lanes):
        told = "; ".join(f"{name!r}: {why}" for name, why in stays.items())
        raise LoaderError(
            f"reader='device': there is nothing that the device can read itself ({told}); {REMEDY}"
        )
    landing = {lane.name: layout[lane.name] for lane in found if not _in_order(lane, mode)}
    places = PLACE_BYTES if landing else 0
    row_bytes = sum(lane.row_bytes + places for lane in found if lane.name in landing)
    names = tuple(lane.name for lane in found)
    return DirectPlan(reader.name, names, stays, landing, sizes.job_rows * row_bytes)


def _why_here(lane: Lane, layout: Layout, sizes: Sizes, mode: Mode) -> str | None:
    """Say why rows of a source are read on the host, wherever they lie."""
    if lane.keep:
        return "its rows are kept in memory, read once"
    if lane.name not in layout:
        return "its rows are laid out on the host"
    if lane.coded is not None:
        return "its chunks are decoded there"
    if sizes.blocks is not None:
        return "batches of a staggered order are gathered on the host (shuffle='window' is not)"
    if mode == "full" and lane.row_bytes < ALONE_BYTES:
        return "small rows in any order would be a read each (shuffle='window' reads runs)"
    return None


def _in_order(lane: Lane, mode: Mode) -> bool:
    """Whether the rows of every window are one run of the file."""
    return mode == "file" and lane.selection.stretch is not None


@dataclass(eq=False)
class Landing:
    """The rows of a source for a window, on their way."""

    window: StraightWindow
    target: Array
    landed: Array
    """Where runs are read to: `target` itself, where they are in order."""
    arrivals: list[tuple[Arrival, StraightPart, int, int]] = field(default_factory=list)
    """What was asked for: of which part, and which of its rows."""

    @property
    def n_bytes(self) -> int:
        """What was asked for."""
        n_rows = sum(n for _, _, _, n in self.arrivals)
        return int(self.landed.nbytes) // max(1, len(self.landed)) * n_rows

    def wait(self) -> None:
        """Wait for all of it.

        Raises
        ------
        ReadError
            If something does not come; names file and rows.
        """
        for arrival, part, first, n in self.arrivals:
            try:
                arrival.check()
            except LabeledError:
                raise
            except (OSError, EOFError) as fault:
                raise part.failed(first, n, fault) from fault

    @property
    def needs_kernels(self) -> bool:
        """Whether anything is left to do once all has arrived."""
        return self.window.rows is not None or any(True for _ in self._missing())

    def _missing(self) -> Iterator[tuple[int, int, object]]:
        """Yield the stretches that were never stored, and what they read as."""
        start = 0
        for part in self.window.parts:
            for at, first, n in part.extents.tolist():
                if at == UNSTORED:
                    yield start + first, start + first + n, part.source.fill_value
            start += part.n_rows

    def arrange(self) -> None:
        """Do it: kernels, on the stream that is current."""
        for start, stop, value in self._missing():
            self.landed[start:stop] = value
        if self.window.rows is not None:
            rows = namespace(self.landed).asarray(self.window.rows)
            self.landed.take(rows, 0, self.target)


class DirectReading:
    """Begins the reads of one window after another.

    Parameters
    ----------
    device : Device
    stream : Stream
        For what is left to do once rows are there.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._reader = device.direct_reader()
        self._stream = stream
        self._files: OrderedDict[FileStamp, DirectFile] = OrderedDict()

    def begin(self, window: StraightWindow, target: Array, landed: Array) -> Landing:
        """Begin to read the rows of a window; nobody reads or writes either memory.

        Parameters
        ----------
        target, landed : array, lengths ``(n, *row_shape)``
            Of the device: what receives the rows, and where they are read to.
        """
        landing = Landing(window, target, landed)
        room = landed.reshape(-1).view(np.uint8)
        row_bytes = room.nbytes // max(1, len(landed))
        start = 0
        for part in window.parts:
            for at, first, n in part.extents.tolist():
                if at != UNSTORED:
                    place = (start + first) * row_bytes
                    memory = room[place : place + n * row_bytes]
                    landing.arrivals.append((self._begun(part, memory, at), part, first, n))
            start += part.n_rows
        return landing

    def _begun(self, part: StraightPart, memory: Array, at: int) -> Arrival:
        """Begin one read; what goes wrong is told when its window's turn has come."""
        try:
            return self._file(part.source.file).begin(memory, at)
        except (OSError, LabeledError) as fault:
            return Arrived(fault)

    def _file(self, stamp: FileStamp) -> DirectFile:
        """Return an open file, after a look whether it is still the same one."""
        file = self._files.get(stamp)
        if file is None:
            try:
                file = self._files[stamp] = self._reader.open(stamp.path)
            except OSError as fault:
                raise FileFormatError(f"cannot open {stamp.path!r}: {fault}") from fault
        self._files.move_to_end(stamp)
        if len(self._files) > MAX_OPEN_FILES:
            self._files.popitem(last=False)  # closed once nothing of it is on its way
        check_open(stamp, file.fileno())
        return file

    def arrange(self, landings: Sequence[Landing]) -> None:
        """Put rows that have arrived in their places, on the stream for copies."""
        for landing in landings:
            if landing.needs_kernels:
                self._stream.run(landing.arrange, [landing.landed], [landing.target])
