"""How the examples of ragged sources are laid out in a batch: as a list, padded, or flat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled.errors import LoaderError
from labeled.loader.arguments import can_hold, check_change, check_factor, checked_dtype
from labeled.loader.buffers import RaggedRows
from labeled.loader.options import RaggedLayout
from labeled.ragged import Flat
from labeled.ragged.flat import comes_one_by_one, flat_of_views
from labeled.ragged.padding import padded
from labeled.sources.ragged import RaggedSource
from labeled.spaces.arrays import check_fits, value_for
from labeled.spaces.base import told

Array = npt.NDArray[Any]


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
    apart : bool
        Examples come in memory of their own each, so that a list needs no copy of them.
    """

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    layout: RaggedLayout
    value: Any = 0
    change: tuple[Any, Any, Any] | None = None
    lengths: tuple[int, ...] | None = None
    apart: bool = False

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

    @property
    def as_read(self) -> bool:
        """Whether examples are handed out where they were read, and none is made anew."""
        return self.layout == "list" and self.change is None and self.apart

    def __call__(self, array: Array | RaggedRows, count: int) -> dict[str, Array]:
        """Lay out examples of which the first `count` are real.

        Places of objects are left empty: nothing but the batch is to keep them in memory.
        """
        if isinstance(array, RaggedRows):
            passing = self.change is not None or self.layout == "pad"
            flat = self._changed(array.flat() if passing else array.own_flat())
        else:
            examples = array.copy()
            array[:] = None
            if self.as_read and count == len(array):
                return {self.name: examples}
            flat = self._changed(self._flat(examples, count))
            del examples
        if self.layout == "list":
            return {self.name: flat.examples()}
        if self.layout == "flat":
            return dict(zip(self.out_dims, flat, strict=True))
        lengths = self.lengths or flat.shapes.max(axis=0, initial=0).tolist()
        dense, inside = padded(flat, lengths, self.value, mask=True)
        assert inside is not None
        return {self.name: dense, f"{self.name}_mask": inside}

    def _flat(self, array: Array, count: int) -> Flat:
        n_axes = len(self.dims) - 1
        for place in range(count, len(array)):
            array[place] = np.empty((0,) * n_axes, self.dtype)
        return flat_of_views(array, n_axes, self.dtype)

    def _changed(self, flat: Flat) -> Flat:
        if self.change is None:
            return flat
        dtype, scale, shift = self.change
        if scale is None and shift is None:
            told(f"source {self.name!r}", "", check_fits, flat.values, dtype)
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
    out = {}
    for name, source in sources.items():
        if not isinstance(source, RaggedSource):
            continue
        to = checked_dtype(value_for(name, dtype), source)
        change = (to, value_for(name, scale), value_for(name, shift))
        if any(np.ndim(factor) for factor in change[1:] if factor is not None):
            raise LoaderError(f"{source.where}: scale and shift of ragged examples are one number")
        check_change(source, change[0], scaled=change[1:] != (None, None))
        for option, factor in zip(("scale", "shift"), change[1:], strict=True):
            check_factor(source, change[0], option, factor)
        asked = any(one is not None for one in change)
        out[name] = made = RaggedFinish(
            name,
            source.dims,
            source.dtype,
            layout,
            padding[name],
            change if asked else None,
            apart=comes_one_by_one(source.examples()),
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


def dense_only(option: Any, ragged: Mapping[str, Any]) -> Any:
    """Return an option by source without the ragged ones, which take care of their own."""
    if isinstance(option, Mapping):
        return {name: value for name, value in option.items() if name not in ragged}
    return option
