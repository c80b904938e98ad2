"""Pictures on their way through an augmentation: changes noted down, carried out as late as can be.

A crop is an offset, a mirror a sign, a normalisation two factors. They are kept beside the
pictures and carried out in one permuting copy, together with the cast and the order of the
axes, once something needs the values themselves or all is done. Every other transform asks for
settled pictures and makes new ones.

Inside an augmentation axes are always (channel, height, width), with the pictures in front where
all have one size. Arrays stay where they are: NumPy, CuPy or any library of the array-API
standard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled.device import astype, concat, dtype_of, namespace, own_dtype, reshape
from labeled.errors import AugmentError, UnfitPictureError
from labeled.permute.arguments import compute_dtype, result_dtype
from labeled.transforms.fast import loops_for

Array = Any
IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Factor = npt.NDArray[np.float64]

FEW_ITEMS = 1 << 14
"""Pictures of so many values are copied by NumPy itself: planning costs more than it saves."""

GROUP_ITEMS = 1 << 17
"""Values that are computed with together by NumPy: with their floats they fit a cache."""

MOVED_ITEMS = 1 << 20
"""The same where values are moved as they are: fewer pieces have to be joined."""

LOOPED = frozenset({"|u1", "|i1", "<i2", "<f4", "<f8"})
"""Dtypes whose values a compiled loop multiplies in the dtype of the result; those of "<u2", for
one, it would multiply in float64."""

MOST_PIXELS = 1 << 28
"""Of one picture that a transform makes, as of one that is decoded."""

MOST_VALUES = 1 << 31
"""That a transform makes of a batch."""

ORDER = (0, 1, 2)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures, and what is still to be done to them.

    Parameters
    ----------
    stored : array (n, channel, height, width), or list of arrays (channel, height, width)
    top, left, heights, widths : int64 arrays (n,)
        The window of each picture that is kept.
    mirrored : bool array (n,)
        Whether that window is turned left to right.
    scale, shift : float64 arrays, optional
        Values become ``value * scale + shift``. Lengths (n or 1, channel or 1, 1, 1); a shift
        may also run along height and width, of the window as it comes out.
    """

    stored: Array | list[Array]
    top: IntArray
    left: IntArray
    heights: IntArray
    widths: IntArray
    mirrored: Mask
    scale: Factor | None = None
    shift: Factor | None = None

    def __len__(self) -> int:
        return len(self.top)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values, once everything is carried out."""
        found = dtype_of(self.first)
        if self.scale is None and self.shift is None:
            return found
        return result_dtype(found, None, scaled=True)

    @property
    def first(self) -> Array:
        """An array that tells the library, the dtype and the channels."""
        return self.stored[0] if isinstance(self.stored, list) else self.stored

    @property
    def n_channels(self) -> int:
        return int(self.first.shape[-3])

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width, where all pictures have the same."""
        if len(self) == 0:
            return int(self.first.shape[-2]), int(self.first.shape[-1])
        same = (self.heights == self.heights[0]).all() and (self.widths == self.widths[0]).all()
        return (int(self.heights[0]), int(self.widths[0])) if same else None

    def part(self, some: slice) -> Pictures:
        """Return some of the pictures, without a copy of their values."""
        if some == slice(0, len(self)):
            return self
        scale, shift = (
            one if one is None or len(one) == 1 else one[some] for one in (self.scale, self.shift)
        )
        return Pictures(
            self.stored[some],
            self.top[some],
            self.left[some],
            self.heights[some],
            self.widths[some],
            self.mirrored[some],
            scale,
            shift,
        )

    # -- noted down

    def cropped(self, top: IntArray, left: IntArray, size: tuple[Any, Any]) -> Pictures:
        """Keep a window of each picture, as it looks by now."""
        if self._shifted_by_pixel:
            return self.settled().cropped(top, left, size)
        heights, widths = (np.broadcast_to(np.asarray(n, np.int64), len(self)) for n in size)
        across = np.where(self.mirrored, self.widths - left - widths, left)
        return replace(
            self, top=self.top + top, left=self.left + across, heights=heights, widths=widths
        )

    def turned(self, mirrored: Mask) -> Pictures:
        """Turn some of the pictures left to right."""
        if self._shifted_by_pixel:
            return self.settled().turned(mirrored)
        return replace(self, mirrored=self.mirrored ^ mirrored)

    def mapped(self, scale: Any, shift: Any) -> Pictures:
        """Make of every value ``value * scale + shift``, in floats."""
        factor, offset = np.asarray(scale, np.float64), np.asarray(shift, np.float64)
        if self._shifted_by_pixel and len(factor) > 1:  # a mean image for every picture
            return self.settled().mapped(scale, shift)
        old_scale = 1.0 if self.scale is None else self.scale
        old_shift = 0.0 if self.shift is None else self.shift
        return replace(
            self,
            scale=_four_axes(old_scale * factor),
            shift=_four_axes(old_shift * factor + offset),
        )

    @property
    def _shifted_by_pixel(self) -> bool:
        return self.shift is not None and self.shift.shape[2:] != (1, 1)

    # -- carried out

    def settled(self) -> Pictures:
        """Return pictures with nothing left to be done."""
        if self.size is None:
            return pictures_of([self._one(number, ORDER, None) for number in range(len(self))])
        if self._untouched:
            return self
        return pictures_of(self.array((0, 1, 2, 3)))

    def array(self, order: tuple[int, ...], dtype: Any = None, out: Array = None) -> Array:
        """Carry everything out: all pictures in one array, its axes in any order.

        Parameters
        ----------
        order : tuple of int
            Of the axes (picture, channel, height, width).
        dtype : dtype, optional
        out : ndarray, optional
            Where to, C-contiguous, of the dtype of the result, the pictures first.

        Raises
        ------
        AugmentError
            If they have different sizes.
        """
        if self.size is None:
            sizes = sorted({*zip(self.heights.tolist(), self.widths.tolist(), strict=True)})
            raise AugmentError(
                f"pictures of different sizes, {sizes[:3]} ..., make no one array; end with a "
                "Crop or a Resize to one size"
            )
        whole = self._as_one()
        if whole is not None:
            return _copied(whole, order, dtype, self.scale, self.shift, out)
        if isinstance(self.first, np.ndarray):
            looped = self._looped(order, dtype, out)
            if looped is not None:
                return looped
            if order[0] == 0:
                return self._filled(order[1:], dtype, out)
            return _copied(self._filled((1, 2, 3), dtype), order, None, None, None)
        pieces = [self._one(number, ORDER, dtype) for number in range(len(self))]
        stacked = namespace(pieces[0]).stack(pieces)
        return _copied(stacked, order, dtype, None, None)

    def arrays(self, order: tuple[int, ...], dtype: Any = None) -> list[Array]:
        """Carry everything out, picture by picture, axes (channel, height, width) in any order."""
        return [self._one(number, order, dtype) for number in range(len(self))]

    def views(self) -> list[Array]:
        """Return pictures as they are stored, one by one."""
        return [self._whole(number) for number in range(len(self))]

    @property
    def _untouched(self) -> bool:
        """Whether the pictures in store are what is wanted, in one array."""
        plain = self.scale is None and self.shift is None and not isinstance(self.stored, list)
        return plain and not self.mirrored.any() and self._whole_windows

    @property
    def _whole_windows(self) -> bool:
        return not (self.top.any() or self.left.any()) and self.size == self.first.shape[-2:]

    def _as_one(self) -> Array | None:
        """Return a view of all pictures; None where they were cut in different ways."""
        if isinstance(self.stored, list):
            return None
        if len(self) == 0:
            return self.stored
        noted = (self.top, self.left, self.mirrored)
        if any((column != column[0]).any() for column in noted):
            return None
        return self.stored[(slice(None), *self._window(0))]

    def _whole(self, number: int) -> Array:
        """Return a picture as it is stored."""
        return self.stored[number] if isinstance(self.stored, list) else self.stored[number, ...]

    def _window(self, number: int) -> tuple[slice, slice, slice]:
        top, left = int(self.top[number]), int(self.left[number])
        height, width = int(self.heights[number]), int(self.widths[number])
        across = slice(left, left + width)
        if self.mirrored[number]:
            across = slice(left + width - 1, left - 1 if left else None, -1)
        return slice(None), slice(top, top + height), across

    def _one(self, number: int, order: tuple[int, ...], dtype: Any) -> Array:
        view = self._whole(number)[self._window(number)]
        return _copied(view, order, dtype, *self._factors_of(number))

    def _factors_of(self, number: int) -> tuple[Factor | None, Factor | None]:
        """Return scale and shift of one picture, over its three axes."""
        scale, shift = (
            None if factor is None else factor[number if len(factor) > 1 else 0]
            for factor in (self.scale, self.shift)
        )
        return scale, shift

    def _looped(self, order: tuple[int, ...], dtype: Any, out: Array = None) -> Array | None:
        """Copy all windows of many small pictures by one compiled loop; None where it is no use."""
        assert self.size is not None
        shape = (len(self), self.n_channels, *self.size)
        if isinstance(self.stored, list) or math.prod(shape[1:]) > FEW_ITEMS:
            return None
        source, final = self.stored.dtype, np.dtype(self.dtype if dtype is None else dtype)
        mapped = self.scale is not None
        same = final == (compute_dtype(source, final) if mapped else source)
        loops = loops_for(self.stored, math.prod(shape)) if same else None
        if loops is None or source.str not in LOOPED or self._shifted_by_pixel:
            return None
        if out is None:
            out = permute.empty(tuple(shape[axis] for axis in order), final)
        places = (self.stored, self.top, self.left, self.mirrored)
        by_axes = out.transpose(np.argsort(order))
        if self.scale is None or self.shift is None:
            loops.windows(*places, by_axes)
            return out
        factors = (
            np.ascontiguousarray(np.broadcast_to(one, (*shape[:2], 1, 1))[..., 0, 0], final)
            for one in (self.scale, self.shift)
        )
        loops.mapped_windows(*places, *factors, by_axes)
        return out

    def _filled(self, order: tuple[int, ...], dtype: Any, out: Array = None) -> Array:
        """Copy window after window to its place: the one pass over the values."""
        assert self.size is not None
        shape = (len(self), self.n_channels, *self.size)
        final = np.dtype(self.dtype if dtype is None else dtype)
        if out is None:
            out = permute.empty((len(self), *(shape[axis] for axis in order)), final)
        within = tuple(axis - 1 for axis in order)
        for number in range(len(self)):
            view = self._whole(number)[self._window(number)]
            _copy_into(out[number], view, within, *self._factors_of(number))
        return out


def pictures_of(stored: Array | list[Array]) -> Pictures:
    """Return pictures as they are stored, whole."""
    if isinstance(stored, list) and len({one.shape for one in stored}) == 1:
        stored = namespace(stored[0]).stack(stored)
    if isinstance(stored, list):
        heights, widths = (np.array([one.shape[a] for one in stored], np.int64) for a in (1, 2))
    else:
        n = stored.shape[0]
        heights, widths = (np.full(n, stored.shape[a], np.int64) for a in (2, 3))
    zeros = np.zeros(len(heights), np.int64)
    return Pictures(stored, zeros, zeros, heights, widths, zeros.astype(bool))


def each(pictures: Pictures, change: Callable[[Array, int], Array]) -> Pictures:
    """Return what `change` makes of each picture (channel, height, width) and its number."""
    views = pictures.settled().views()
    made, room = list[Array](), _Room(len(views))
    for number, view in enumerate(views):
        made.append(room.checked(change(_packed(view), number), number + 1))
    return pictures_of(made)


def all_at_once(
    pictures: Pictures,
    change: Callable[[Array, slice], Array],
    n_made: int = 0,
    *,
    moves: bool = False,
) -> Pictures:
    """Return what `change` makes of arrays (picture, channel, height, width).

    It is told which pictures they are: as many as a cache holds, or all where another library
    computes; one by one where they differ in size.

    Parameters
    ----------
    n_made : int
        Values that a picture becomes, where those are more.
    moves : bool
        Whether values only go elsewhere: in whatever order they lie, and more of them together.
    """
    settled = pictures.settled()
    stored = settled.stored
    if isinstance(stored, list):
        return each(settled, lambda x, n: change(x[None, ...], slice(n, n + 1))[0, ...])
    step = int(stored.shape[0])
    if isinstance(stored, np.ndarray):
        n_items = MOVED_ITEMS if moves else GROUP_ITEMS
        step = max(1, n_items // max(1, math.prod(stored.shape[1:]), n_made))
    pieces, room = list[Array](), _Room(len(settled))
    for start in range(0, len(settled), step):
        group = slice(start, start + step)
        some = stored[group, ...]
        made = change(some if moves else _packed(some), group)
        pieces.append(room.checked(made, start + int(made.shape[0])))
    return pictures_of(pieces[0] if len(pieces) == 1 else concat(pieces, 0))


def check_size(height: int, width: int, most: int = MOST_PIXELS) -> None:
    """Raise :class:`UnfitPictureError` before a picture is made for which there is no room."""
    if height * width > most:
        raise UnfitPictureError(
            f"a picture would become {height:,} x {width:,} pixels, more than the {most:,} that "
            "are made; give smaller sizes, or leave out what is so long and narrow"
        )


def check_values(n_values: int, n_done: int, made: Pictures, n_pictures: int) -> None:
    """Raise :class:`AugmentError` once a batch of which so much is made would leave no room.

    Parameters
    ----------
    n_values, n_done : int
        What was made by now, of how many pictures.
    made : Pictures
        The last of them.
    """
    if n_values * n_pictures > MOST_VALUES * n_done:
        height, width = int(made.heights[-1]), int(made.widths[-1])
        raise AugmentError(
            f"{n_pictures:,} pictures would become {height:,} x {width:,} pixels, about "
            f"{n_values * n_pictures // n_done:,} values, more than the "
            f"{MOST_VALUES:,} that are made at once; give smaller sizes, or smaller batches"
        )


class _Room:
    """Counts the values that a transform makes of a batch, and stops it before memory ends."""

    def __init__(self, n_pictures: int) -> None:
        self._n_pictures = n_pictures
        self._n_values = 0

    def checked(self, made: Array, n_done: int) -> Array:
        """Count what was made of the next pictures, `n_done` of them by now."""
        self._n_values += math.prod(made.shape)
        last = made if made.ndim == 4 else made[None, ...]
        check_values(self._n_values, n_done, pictures_of(last), self._n_pictures)
        return made


def _packed(x: Array) -> Array:
    """Return an array whose values lie together, so that sums add them in one order."""
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x


# -- values


def in_floats(x: Array) -> Array:
    """Return values to compute with: float32, or float64 where float32 would lose some."""
    dtype = dtype_of(x)
    wide = dtype.itemsize > (4 if dtype.kind == "f" else 2)
    return astype(x, np.float64 if wide else np.float32)


def in_dtype(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return computed values as they were before: whole numbers are rounded and clipped."""
    if dtype.kind == "f":
        return astype(x, dtype)
    xp, limits = namespace(x), np.iinfo(dtype)
    own = own_dtype(x, dtype_of(x))
    most = float(limits.max)
    if most > limits.max:  # of 64 bits: the next float is no such number any more
        most = math.nextafter(most, 0.0)
    low, high = (xp.asarray(n, dtype=own) for n in (float(limits.min), most))
    return astype(xp.minimum(xp.maximum(xp.round(x), low), high), dtype)


def held(value: float, dtype: np.dtype[Any]) -> Any:
    """Return a number as pictures of a dtype hold it: for whole numbers rounded and clipped."""
    return in_dtype(np.asarray(value, np.float64), dtype).item()


def along(x: Array, values: Any, axis: int = 0) -> Array:
    """Return `values`, one for each step along an axis of `x`, shaped to go with it."""
    shape = [1] * x.ndim
    shape[axis] = -1
    given = namespace(x).asarray(np.ascontiguousarray(values, dtype_of(x)))
    return reshape(given, tuple(shape))


def check_channels(pictures: Pictures, wanted: int, why: str) -> None:
    """Raise :class:`AugmentError` where pictures have another number of channels."""
    if pictures.n_channels != wanted:
        raise AugmentError(
            f"{why} needs {wanted} channels, R, G and B, found {pictures.n_channels}; leave it "
            "out, or name the dims so that the channels are found"
        )


def _four_axes(values: Any) -> Factor:
    found: Factor = np.asarray(values, np.float64)
    return found.reshape((1,) * (4 - found.ndim) + found.shape)


def _copied(
    view: Array,
    order: Sequence[int],
    dtype: Any,
    scale: Factor | None,
    shift: Factor | None,
    out: Array = None,
) -> Array:
    """Return a copy in another order of its axes, mapped and cast."""
    if isinstance(view, np.ndarray) and (out is not None or view.size <= FEW_ITEMS):
        if out is None:
            final = result_dtype(view.dtype, dtype, scale is not None)
            out = np.empty([view.shape[axis] for axis in order], final)
        _copy_into(out, view, order, scale, shift)
        return out
    return permute.copy(view, order, dtype=dtype, scale=scale, shift=shift, threads=1)


def _copy_into(
    out: Array, view: Array, order: Sequence[int], scale: Factor | None, shift: Factor | None
) -> None:
    """Copy a NumPy array to its place; NumPy does it where there is little to copy."""
    if view.size > FEW_ITEMS:
        view = _turned_pixels(view) if order[-1] == 0 else view
        permute.copy(view, order, out=out, dtype=out.dtype, scale=scale, shift=shift, threads=1)
        return
    if scale is not None and shift is not None:
        compute = compute_dtype(view.dtype, out.dtype)
        view = view.astype(compute) * scale.astype(compute) + shift.astype(compute)
    np.copyto(out, view.transpose(order), casting="unsafe")


def _turned_pixels(view: Array) -> Array:
    """Turn interleaved pixels as whole pixels: three times as fast as value by value."""
    if view.ndim != 3 or view.strides[2] >= 0 or abs(view.strides[0]) >= -view.strides[2]:
        return view
    pixels = view[..., ::-1].transpose(1, 2, 0)
    return pixels.take(np.arange(pixels.shape[1] - 1, -1, -1), axis=1).transpose(2, 0, 1)
