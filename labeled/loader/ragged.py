"""Ragged sources in batches: how they are read, bounded in bytes, and laid out.

Examples travel through windows as objects, one array each, in slots like any others: so
order, parts, resume and reading ahead are those of dense sources, and know nothing of
shapes. What differs is decided here. Tasks are cut by bytes. The bytes of a row are taken
to be so many that no window of the order can hold more than its rows times that
(:class:`Worst`): sizes are read once a plan, and a window stays within its memory
whichever examples meet in it. A batch is laid out as a list, padded, or flat.

The trade-off: an array object costs about a microsecond and 200 bytes an example, which
counts where examples are tiny; :meth:`labeled.Ragged.flat` has no such cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled.catalog.loading import Task, as_runs
from labeled.catalog.ragged import RaggedSource
from labeled.errors import LoaderError
from labeled.formats.reader import Cost
from labeled.loader.casts import can_hold, check_change, checked_dtype
from labeled.loader.lanes import Lane
from labeled.loader.sizes import Sizes
from labeled.loader.units import Grouping
from labeled.ragged import Flat, FlatRows, RaggedReader
from labeled.ragged.flat import block_cuts, flat_of, own_examples
from labeled.ragged.padding import padded
from labeled.samplers.content import Content, rows_of
from labeled.samplers.order import Mode
from labeled.samplers.units import Units
from labeled.selection import Selection
from labeled.specs.casts import check_values

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
RaggedLayout = Literal["list", "pad", "flat"]
LAYOUTS = ("list", "pad", "flat")

OBJECT_BYTES = 208
"""What an array object takes besides its values, and its place in a slot."""

TASK_BYTES = 1 << 20
"""What one task reads, unless one example is larger."""

DEAR_TASK_BYTES = 3 << 20
"""The same where examples are made one by one, so that none of it is a temporary copy."""

SHAPE_ROWS = 1 << 16
"""Shapes that are read together to find the longest."""

SLACK = 1.05
ROUNDS = 100


@dataclass(eq=False)
class RaggedLane(Lane):
    """A ragged source on its way into batches: every row becomes one array of its own.

    Parameters
    ----------
    bound : int
        No window of the order holds more than this many bytes a row.
    """

    source: RaggedSource
    reader: Any  # a RaggedReader
    bound: int = 0
    examples: RaggedReader | None = field(default=None, repr=False)
    """The rows themselves, by position, where they are kept."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "examples": None}

    @property
    def row_bytes(self) -> int:
        return self.bound or self.source.row_bytes + OBJECT_BYTES

    @property
    def nbytes(self) -> int:
        return int(self.position_bytes(None).sum())

    @property
    def is_loaded(self) -> bool:
        return self.examples is not None

    def load(self, threads: int) -> None:
        """Read the whole selection now, if it is to be kept and not yet here."""
        if self.keep and self.examples is None:
            self.examples = FlatRows(self.source.select(self.selection).flat())

    def tasks(self, content: Content, group: Rows | None, out: Array) -> Sequence[Task]:
        """Return what must be done so that `out` (objects) holds the rows as dealt."""
        out[:] = None  # what the slot held before is free before more is read
        reader, rows, places = self._wanted(content, group)
        cuts = block_cuts(self._bytes(rows), DEAR_TASK_BYTES if self._one_by_one else TASK_BYTES)
        return [partial(fill, reader, rows[a:b], places[a:b], out) for a, b in pairwise(cuts)]

    @property
    def _one_by_one(self) -> bool:
        return hasattr(self.reader, "read_examples") and self.examples is None

    def read_again(self, rows: Rows, places: Rows, out: Array) -> None:
        """Read some examples by themselves, in the caller, to their places in `out`."""
        fill(self.reader, rows, places, out)

    def _wanted(self, content: Content, group: Rows | None) -> tuple[RaggedReader, Rows, Rows]:
        """Return who reads, which of its rows in file order, and their places."""
        if self.examples is not None:
            positions = content.rows if group is None else group[content.rows]
            return self.examples, positions, np.arange(len(positions))
        read = self.read(content, group)
        if read.listed is None:
            rows = rows_of(as_runs(read))
            return self.reader, rows, np.arange(len(rows)) if read.dest is None else read.dest
        order = np.argsort(read.listed, kind="stable")
        return self.reader, read.listed[order], order

    def _bytes(self, rows: Rows) -> Rows:
        """Bytes of examples, kept or not: those of file rows, or of positions."""
        kept = self.examples
        sizes = self.source.sizes[rows] if kept is None else kept.sizes(rows)
        return sizes * self.source.dtype.itemsize + OBJECT_BYTES

    def position_bytes(self, group: Rows | None) -> Rows:
        """Bytes of the example at each grouped position."""
        rows = self.selection.rows if group is None else self.selection.take(group)
        return self.source.sizes[rows] * self.source.dtype.itemsize + OBJECT_BYTES

    def cost(self, content: Content, group: Rows | None) -> Cost:
        """Estimate what reading a window takes: values, and calls of about a mebibyte."""
        _, rows, _ = self._wanted(content, group)
        return self._cost(rows)

    def whole_cost(self) -> Cost:
        """Estimate what reading the whole selection once takes."""
        return self._cost(self.selection.rows)

    def _cost(self, rows: Rows) -> Cost:
        nbytes = int(self._bytes(rows).sum()) - OBJECT_BYTES * len(rows)
        stored_sizes = getattr(self.reader, "stored_sizes", None)
        stored = nbytes if stored_sizes is None else int(stored_sizes(rows).sum())
        return Cost(stored, nbytes, len(block_cuts(self._bytes(rows), TASK_BYTES)) - 1)


def fill(reader: RaggedReader, rows: Rows, places: Rows, out: Array) -> None:
    """Read examples and put each, as an array of its own memory, at its place."""
    for place, example in zip(places.tolist(), own_examples(reader, rows), strict=True):
        out[place] = example


def lane_of(source: Any, selection: Selection) -> Lane:
    """Make the lane of a source, ragged or dense."""
    if isinstance(source, RaggedSource):
        return RaggedLane(source, selection, source.examples())
    return Lane(source, selection, source.reader())


# how many bytes a window can hold


@dataclass(frozen=True, eq=False)
class Worst:
    """The most bytes that a window of at most `n` rows can have, whichever rows it gets.

    Parameters
    ----------
    sizes : int64 (n_rows,)
        Bytes by grouped position.
    mode : {"file", "window", "full"}
    units : Units
        What stays together in window mode.
    repeats : bool
        Rows may be drawn more than once.
    """

    sizes: Rows
    mode: Mode
    units: Units
    repeats: bool = False

    def of(self, n: int) -> int:
        """Return the bound for windows that hold up to `n` rows; it never falls."""
        sizes = self.sizes
        n = min(n, len(sizes)) if not self.repeats else n
        if not len(sizes) or not n:
            return 0
        if self.repeats:
            return n * int(sizes.max())
        if self.mode == "file":
            ends = np.concatenate([[0], np.cumsum(sizes)])
            return int((ends[n:] - ends[:-n]).max())
        if self.mode == "full":
            return int(np.partition(sizes, len(sizes) - n)[len(sizes) - n :].sum())
        return self._of_units(n)

    def _of_units(self, n: int) -> int:
        """Bytes of the densest units that hold `n` rows; windows are made of whole ones."""
        nbytes, rows = self._units
        order = np.argsort(-(nbytes / rows), kind="stable")
        taken = int(np.searchsorted(np.cumsum(rows[order]), n)) + 1
        return int(nbytes[order[:taken]].sum())

    @cached_property
    def _units(self) -> tuple[Rows, Rows]:
        """Bytes and rows of each unit."""
        starts = self.units.starts(np.arange(self.units.count)) - self.units.start
        rows = np.diff(np.append(starts, len(self.sizes)))
        return np.add.reduceat(self.sizes, starts), rows

    @property
    def largest(self) -> int:
        """No `n` rows have more than `n` times this."""
        if not len(self.sizes):
            return 0
        return int((self._units[0] if self.mode == "window" else self.sizes).max())


Bounds = Sequence[tuple["RaggedLane", Worst]]


def worst_of(lanes: Sequence[Lane], mode: Mode, grouping: Grouping, *, repeats: bool) -> Bounds:
    """Return what the ragged lanes can hold at worst, in the order that is planned."""
    return [
        (lane, Worst(lane.position_bytes(grouping.group), mode, grouping.units, repeats))
        for lane in lanes
        if isinstance(lane, RaggedLane)
    ]


def settled(bounds: Bounds, plan: Callable[[], Sizes]) -> Sizes:
    """Plan sizes again until no job can hold more bytes than were planned for it.

    Parameters
    ----------
    bounds : from :func:`worst_of`
    plan : callable
        Shares memory out by what the lanes say a row takes.
    """
    for lane, worst in bounds:
        lane.bound = max(1, -(-int(worst.sizes.sum()) // max(1, len(worst.sizes))))
    sizes = plan()
    for _ in range(ROUNDS if bounds else 0):
        rows, over = max(1, sizes.job_rows), False
        for lane, worst in bounds:
            most = worst.of(rows)
            if most > rows * lane.bound:
                lane.bound, over = int(SLACK * most / rows) + 1, True
        if not over:
            return sizes
        sizes = plan()
    for lane, worst in bounds:
        lane.bound = max(1, worst.largest)
    return plan()


# how batches are laid out


@dataclass(frozen=True, eq=False)
class RaggedFinish:
    """Turns the examples of a batch into what the consumer gets of one source.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The example dim, then those of an example.
    dtype : numpy.dtype
    layout : {"list", "pad", "flat"}
    value : scalar
        Fills what padding adds, within examples and beyond the last.
    change : (dtype, scale, shift), optional
        As for dense sources; single values only.
    lengths : tuple of int, optional
        What every example is padded to, instead of the longest of its batch.
    """

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    layout: RaggedLayout
    value: Any = 0
    change: tuple[Any, Any, Any] | None = None
    lengths: tuple[int, ...] | None = None

    @property
    def out_dims(self) -> dict[str, tuple[str, ...]]:
        """Names of what is handed out, and their dims."""
        name, example = self.name, self.dims[0]
        if self.layout == "list":
            return {name: (example,)}
        if self.layout == "pad":
            return {name: self.dims, f"{name}_mask": self.dims}
        return {
            name: (f"{name}_value",),
            f"{name}_offsets": (f"{name}_offset",),
            f"{name}_shapes": (example, f"{name}_axis"),
        }

    @property
    def out_dtype(self) -> np.dtype[Any]:
        if self.change is None:
            return self.dtype
        return np.dtype(np.float64 if self.change[0] is None else self.change[0])

    def __call__(self, array: Array, count: int) -> dict[str, Array]:
        """Lay out an object array of examples, of which the first `count` are real."""
        if self.layout == "list" and self.change is None and count == len(array):
            return {self.name: array.copy()}
        flat = self._changed(self._flat(array, count))
        if self.layout == "list":
            return {self.name: flat.examples()}
        if self.layout == "flat":
            return dict(zip(self.out_dims, flat, strict=True))
        lengths = self.lengths or flat.shapes.max(axis=0, initial=0).tolist()
        dense, inside = padded(flat, lengths, self.value, mask=True)
        assert inside is not None
        return {self.name: dense, f"{self.name}_mask": inside}

    def _flat(self, array: Array, count: int) -> Flat:
        empty = np.empty((0,) * (len(self.dims) - 1), self.dtype)
        return flat_of([*array[:count], *[empty] * (len(array) - count)], empty)

    def _changed(self, flat: Flat) -> Flat:
        if self.change is None:
            return flat
        dtype, scale, shift = self.change
        check_values(flat.values, dtype, scale is not None or shift is not None, self.name)
        return flat._replace(
            values=permute.copy(flat.values, (0,), dtype=dtype, scale=scale, shift=shift)
        )


def ragged_finishes(
    sources: Mapping[str, Any],
    layout: Any,
    padding: Mapping[str, Any],
    dtype: Any,
    scale: Any,
    shift: Any,
) -> dict[str, RaggedFinish]:
    """Decide how each ragged source is laid out.

    Raises
    ------
    LoaderError
        If `layout` is unknown, a name it would add is a source's, a scale is no number, a
        cast would lose values, or padding does not fit.
    """
    if layout not in LAYOUTS:
        raise LoaderError(f"ragged={layout!r} must be one of {', '.join(map(repr, LAYOUTS))}")
    out = {}
    for name, source in sources.items():
        if not isinstance(source, RaggedSource):
            continue
        change = (checked_dtype(_of(dtype, name), source), _of(scale, name), _of(shift, name))
        if any(np.ndim(factor) for factor in change[1:] if factor is not None):
            raise LoaderError(f"{source.where}: scale and shift of ragged examples are one number")
        check_change(source, change[0], scaled=change[1:] != (None, None))
        asked = any(one is not None for one in change)
        out[name] = made = RaggedFinish(
            name, source.dims, source.dtype, layout, padding[name], change if asked else None
        )
        if layout == "pad" and not can_hold(made.out_dtype, padding[name]):
            raise LoaderError(
                f"{source.where}: pad_value={padding[name]!r} is no value of dtype "
                f"{made.out_dtype}; give one that is, or a mapping from source to value"
            )
        taken = [added for added in out[name].out_dims if added != name and added in sources]
        if taken:
            raise LoaderError(
                f"ragged={layout!r} of {name!r} hands out {taken[0]!r}, which is a source of its "
                "own; leave it out with select()"
            )
    return out


def _of(option: Any, name: str) -> Any:
    return option.get(name) if isinstance(option, Mapping) else option


def dense_only(option: Any, ragged: Mapping[str, Any]) -> Any:
    """Return an option by source without the ragged ones, which take care of their own."""
    if isinstance(option, Mapping):
        return {name: value for name, value in option.items() if name not in ragged}
    return option


def batch_bytes(
    bounds: Bounds, finishes: Mapping[str, RaggedFinish], batch_rows: int
) -> list[tuple[RaggedLane, int]]:
    """Return the bytes a row of each ragged source as handed out, in the largest batch."""
    return [
        (lane, _out_bytes(lane, worst, finishes[lane.name], batch_rows))
        for lane, worst in bounds
        if lane.name in finishes
    ]


def _out_bytes(lane: RaggedLane, worst: Worst, finish: RaggedFinish, batch_rows: int) -> int:
    rows = max(1, min(batch_rows, len(worst.sizes)))
    wider = max(1.0, finish.out_dtype.itemsize / max(1, finish.dtype.itemsize))
    held = int(wider * worst.of(rows) / rows) + 1
    if finish.layout != "pad":
        return held
    longest = math.prod(finish.lengths or longest_of(lane))
    return held + longest * (finish.out_dtype.itemsize + 1)


def beyond_rows(handed_out: Sequence[tuple[RaggedLane, int]]) -> int:
    """Bytes a row that batches take beyond what the lanes say of a row."""
    return sum(max(0, nbytes - lane.row_bytes) for lane, nbytes in handed_out)


def longest_of(lane: RaggedLane) -> list[int]:
    """Return the longest length along each axis of the examples that are read."""
    longest = np.zeros(len(lane.source.dims) - 1, np.int64)
    reader = lane.source.examples()
    for first in range(0, len(lane.selection), SHAPE_ROWS):
        rows = lane.selection[first : first + SHAPE_ROWS].rows
        longest = np.maximum(longest, reader.shapes(rows).max(axis=0, initial=0))
    lengths: list[int] = longest.tolist()
    return lengths


def refuse_process(reader: Any, sources: Mapping[str, Any]) -> None:
    """Refuse to read ragged sources in another process: examples are objects of this one."""
    for source in sources.values():
        if reader == "process" and isinstance(source, RaggedSource):
            raise LoaderError(
                f"{source.where}: examples of different shapes cannot be read by "
                "reader='process'; leave reader='threads', or select() other sources"
            )


def bucket_source(
    asked: bool | str, sources: Mapping[str, Any], shuffle: Any, *, repeats: bool
) -> RaggedSource:
    """Find the source whose examples are measured for buckets.

    Raises
    ------
    LoaderError
        If it is none, several could be meant, or rows are not shuffled within windows.
    """
    if shuffle not in (True, "window") or repeats:
        raise LoaderError(
            f"bucket={asked!r} arranges rows within their windows: give shuffle='window' with it, "
            f"and neither balance, weights nor sampler"
        )
    ragged = [name for name, source in sources.items() if isinstance(source, RaggedSource)]
    name = ragged[0] if asked is True and len(ragged) == 1 else asked
    if name not in ragged:
        raise LoaderError(
            f"bucket={asked!r} must name the ragged source whose examples are measured; there are "
            f"{ragged or 'none'}"
        )
    found: RaggedSource = sources[name]
    return found


def selected_sizes(source: RaggedSource, selection: Selection, group: Rows | None) -> Rows:
    """Return how many elements the example at each grouped position has."""
    sizes: Rows = source.sizes[selection.rows]
    return sizes if group is None else sizes[group]
