"""The last step of a batch: stored values to what was asked for.

Without specs, source by source: CF decoding, padding, cast and scale, then labels.
With specs, the compiled specs lay the arrays out. Nothing is copied where nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled._validation import as_array
from labeled.display.batches import Told
from labeled.display.classes import class_names_of
from labeled.errors import LoaderError, SpaceError, UnknownNameError, did_you_mean
from labeled.loader.arguments import can_hold, check_change, check_factor, checked_dtype
from labeled.loader.batch import Batch
from labeled.loader.ragged_finish import RaggedFinish
from labeled.sources.source import AnySource
from labeled.spaces import CompiledSpecs, IndexSpace, Space
from labeled.spaces.arrays import check_fits
from labeled.spaces.base import told
from labeled.transforms.running import Form

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Change:
    """A cast, scale and shift of one source; None where nothing is asked."""

    dtype: np.dtype[Any] | None = None
    scale: Any = None
    shift: Any = None

    @property
    def nothing(self) -> bool:
        return self.dtype is None and not self.scaled

    @property
    def scaled(self) -> bool:
        return self.scale is not None or self.shift is not None

    def __call__(self, array: Array, source: str) -> Array:
        """Return a changed copy; an integer that does not fit is an error."""
        if not self.scaled:
            told(f"source {source!r}", "", check_fits, array, self.dtype)
        changed: Array = permute.copy(
            array, range(array.ndim), dtype=self.dtype, scale=self.scale, shift=self.shift
        )
        return changed


@dataclass(frozen=True, eq=False)
class Finish:
    """Turns the stored rows of a batch into what the consumer gets.

    Parameters
    ----------
    sources : mapping of str to Source
    padding : mapping of str to scalar
        Fills the rows that padding adds to a source.
    specs : CompiledSpecs, optional
        Lays arrays out; without it a :class:`Batch` is handed out.
    changes : mapping of str to Change
        Casts by source, where there are no specs (these carry their own).
    ragged : mapping of str to RaggedFinish
        How ragged sources are laid out.
    """

    sources: Mapping[str, AnySource]
    padding: Mapping[str, Any]
    specs: CompiledSpecs | None
    changes: Mapping[str, Change]
    ragged: Mapping[str, RaggedFinish] = field(default_factory=dict)

    @cached_property
    def _dims(self) -> dict[str, tuple[str, ...]]:
        dims: dict[str, tuple[str, ...]] = {}
        for name, source in self.sources.items():
            ragged = self.ragged.get(name)
            dims.update({name: source.dims} if ragged is None else ragged.out_dims)
        return dims

    @property
    def form(self) -> Form:
        """How a batch is taken apart into samples, and put together again."""
        if self.specs is not None:
            return Form(axes=self.specs.batch_axes)
        examples = {name: source.dims[0] for name, source in self.sources.items()}
        inner = {name: self.sources[name].dims[1:] for name in self.ragged}
        flat = any(ragged.layout == "flat" for ragged in self.ragged.values())
        return Form(next(iter(examples.values())), examples, inner, flat=flat)

    @cached_property
    def _decoded(self) -> tuple[str, ...]:
        return tuple(name for name, source in self.sources.items() if source.decodes)

    @cached_property
    def _told(self) -> dict[str, Told]:
        attrs = {name: getattr(source, "attrs", {}) for name, source in self.sources.items()}
        inner = {name: self.sources[name].dims[1:] for name in self.ragged}
        return {n: Told(class_names_of(attrs[n]), inner.get(n, ())) for n in self.sources}

    @cached_property
    def out_row_bytes(self) -> int:
        """Bytes of one row as handed out, where that takes memory of its own."""
        if self.specs is not None:
            return self.specs.out_bytes(1)
        total = 0
        for name, source in self.sources.items():
            change = self.changes.get(name)
            if change is not None or source.decodes:
                asked = source.dtype if change is None else change.dtype
                dtype = np.dtype(np.float64 if asked is None else asked)
                total += math.prod(source.row_shape) * dtype.itemsize
        return total

    @cached_property
    def placed_row_bytes(self) -> int:
        """Bytes of one row that are decoded where it was read, and handed out changed."""
        changed = [n for n in self._decoded if self.specs is not None or n in self.changes]
        sources = [self.sources[name] for name in changed]
        return sum(math.prod(one.row_shape) * one.dtype.itemsize for one in sources)

    @cached_property
    def copied(self) -> frozenset[str]:
        """Sources of which new memory is made in any case."""
        return frozenset(self.sources if self.specs is not None else self.changes)

    def __call__(
        self,
        arrays: dict[str, Array],
        rows: Callable[[], Rows],
        count: int,
        length: int,
        place: Callable[[dict[str, Array]], dict[str, Array]] = lambda arrays: arrays,
    ) -> Any:
        """Lay out `length` rows, of which `count` are real and the others padding.

        What is decoded or ragged is made where it was read, and goes to where batches are by
        `place`. A value that does not fit is named by its row of the dataset, too.
        """
        try:
            return self._made(arrays, rows, count, length, place)
        except SpaceError as error:
            if error.row is None:
                raise
            found = int(rows()[error.row])
            told = f"row {found} of the dataset" if found >= 0 else "padding"
            text = f"{error}. Row {error.row} of this batch is {told}"
            raise type(error)(text).at_row(found) from error

    def _made(
        self,
        arrays: dict[str, Array],
        rows: Callable[[], Rows],
        count: int,
        length: int,
        place: Callable[[dict[str, Array]], dict[str, Array]],
    ) -> Any:
        if self._decoded:
            for name in self._decoded:
                arrays[name] = self.sources[name].decode(arrays[name])
            arrays = place(arrays)
        if count < length:
            for name, array in arrays.items():
                if name not in self.ragged:
                    array[count:] = padding_of(array.dtype, self.padding[name])
        if self.specs is not None:
            return self.specs(place(self._laid_out(arrays, count)) if self.ragged else arrays)
        for name, change in self.changes.items():
            arrays[name] = change(arrays[name], name)
        if self.ragged:
            arrays = place(self._laid_out(arrays, count))
        return Batch(arrays, self._dims, rows, count, self._told)

    def _laid_out(self, arrays: dict[str, Array], count: int) -> dict[str, Array]:
        """Lay examples of different shapes out as they were asked for."""
        out: dict[str, Array] = {}
        for name, array in arrays.items():
            ragged = self.ragged.get(name)
            out.update({name: array} if ragged is None else ragged(array, count))
        return out


def padding_of(dtype: np.dtype[Any], value: Any) -> Any:
    """Return what fills padded rows: `value`, or for the default 0 what is empty of a kind."""
    if not isinstance(value, int) or value != 0:
        return value
    if dtype.kind in "mM":  # with their unit: NumPy 2.5 warns of times without one
        return np.array("NaT", dtype) if dtype.kind == "M" else np.zeros((), dtype)
    return {"S": b"", "U": "", "O": ""}.get(dtype.kind, value)


def padding_by_source(sources: Mapping[str, AnySource], value: Any) -> dict[str, Any]:
    """Return the padding of each source: 0 (among times NaT) where a mapping does not name it.

    Raises
    ------
    UnknownNameError
        If a mapping names a source that is not there.
    """
    if not isinstance(value, Mapping):
        return {name: _padding(source, value) for name, source in sources.items()}
    for name in value:
        if name not in sources:
            raise UnknownNameError(f"no source {name!r} to pad; {did_you_mean(name, sources)}")
    return {name: _padding(source, value.get(name, 0)) for name, source in sources.items()}


def _padding(source: AnySource, value: Any) -> Any:
    """Return a padding; the number 0 is no time, and stands for none there: NaT."""
    is_zero = isinstance(value, int | float) and value == 0
    return np.array("NaT", source.dtype)[()] if is_zero and source.dtype.kind in "mM" else value


def check_padding(
    sources: Mapping[str, AnySource], padding: Mapping[str, Any], changes: Mapping[str, Change]
) -> None:
    """Raise :class:`LoaderError` where rows of a source cannot be filled with its padding."""
    for name, source in sources.items():
        change = changes.get(name)
        made = source.dtype if change is None or change.scaled else change.dtype
        for dtype in (source.dtype, source.dtype if made is None else made):
            if not can_hold(dtype, padding[name]):
                raise LoaderError(
                    f"{source.where}: pad_value={padding[name]!r} is no value of dtype {dtype}; "
                    "give one that is, or a mapping from source to value"
                )


def changes_of(
    sources: Mapping[str, AnySource],
    spaces: Mapping[str, Space],
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
) -> dict[str, Change]:
    """Work out the cast of each source.

    A single value is meant for the numeric sources; sources of labels
    (:class:`~labeled.spaces.IndexSpace`) change only where a mapping names them.
    A scale or shift per channel runs along the ``channel`` dim, else the last one.

    Raises
    ------
    UnknownNameError
        If a mapping names a source that is not there.
    LoaderError
        If a factor does not fit, or a cast would lose values.
    """
    out = {}
    for option in (dtype, scale, shift):
        for name in option if isinstance(option, Mapping) else ():
            if name not in sources:
                raise UnknownNameError(f"no source {name!r} to cast; {did_you_mean(name, sources)}")
    for name, source in sources.items():
        label = isinstance(spaces.get(name), IndexSpace) or source.dtype.kind not in "biufc"
        change = Change(
            checked_dtype(_value(dtype, name, label), source),
            _along_channel(_value(scale, name, label), source),
            _along_channel(_value(shift, name, label), source),
        )
        check_change(source, change.dtype, scaled=change.scaled)
        check_factor(source, change.dtype, "scale", change.scale)
        check_factor(source, change.dtype, "shift", change.shift)
        if not change.nothing:
            out[name] = change
    return out


def _value(option: Any, name: str, label: bool) -> Any:
    if isinstance(option, Mapping):
        return option.get(name)
    return None if label else option


def _along_channel(value: Any, source: AnySource) -> Any:
    """Shape a list of factors so that it broadcasts along the channel dim."""
    if value is None:
        return None
    factors = as_array("scale or shift", value, LoaderError)
    if factors.ndim == 0:
        return value
    dims = source.dims
    axis = dims.index("channel") if "channel" in dims else len(dims) - 1
    shape = [1] * len(dims)
    shape[axis] = len(value)
    if axis == 0 or len(value) != source.row_shape[axis - 1]:
        raise LoaderError(
            f"{source.where}: {len(value)} factors do not fit its dims {dims} of row lengths "
            f"{source.row_shape}; give one number, or one a channel"
        )
    return factors.reshape(shape)
