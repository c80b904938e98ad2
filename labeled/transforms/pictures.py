"""What happens to the pictures of a batch: planned for all of them, then done one by one.

Transforms first add to a :class:`PicturePlan`: sizes and random numbers, for all rows at once,
before a pixel is made. So a picture that is too small, or a batch that would not fit into memory,
is refused before any work. Then each picture goes through its changes by itself, which makes it
the same in any batch, and keeps no more than one picture on its way in memory.

A picture is a NumPy array (height, width, channel), as OpenCV has it. Crops and mirrors are views;
factors such as those of `Normalize` are carried out in the copy that makes the batch, together
with the cast and the order of the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled.errors import AugmentError, UnfitPictureError
from labeled.formats.pictures import faster, opencv
from labeled.permute.plan import result_dtype
from labeled.samplers.permutation import key_of

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Change = Callable[[Array, int], Array]  # makes another picture of one, given its position

MAX_PIXELS = 1 << 28  # of one picture that a transform makes, as of one that is decoded

MAX_VALUES = 1 << 31  # of a batch that a transform makes

# of the pictures that are collected before they are copied into the batch: what caches hold
GROUP_BYTES = 1 << 20

VALUE_BYTES = 32  # what a change takes for each value of a picture, at most; twice that in float64

OPENCV_DTYPES = frozenset(map(np.dtype, ("u1", "u2", "i2", "f4", "f8")))


@dataclass(eq=False)
class PicturePlan:
    """What happens to the pictures of a batch, random numbers drawn.

    Parameters
    ----------
    rows : int64 array (n,)
    sizes : int64 array (n, 2)
        Height and width of the pictures after the changes so far.
    n_channels : int
    dtype : dtype
        Of their values after the changes so far.
    only_sizes : bool
        Nothing will be carried out, so pictures that do not fit are no errors.
    """

    rows: IntArray
    sizes: IntArray
    n_channels: int
    dtype: np.dtype[Any]
    only_sizes: bool = False
    most_pixels: int = 0  # of a picture at any time
    _changes: list[Change] = field(default_factory=list)
    _factors: tuple[FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        self._resized(self.sizes)

    def __len__(self) -> int:
        return len(self.rows)

    def _resized(self, sizes: Any) -> None:
        self.sizes = np.broadcast_to(np.asarray(sizes, np.int64), (len(self), 2))
        self.most_pixels = max(self.most_pixels, int(self.sizes.prod(axis=1).max(initial=0)))

    def refuse(self, message: str, error: type[AugmentError] = AugmentError) -> None:
        """Raise an error, unless nothing will be carried out."""
        if not self.only_sizes:
            raise error(message)

    def check_colours(self, why: str) -> None:
        """Refuse pictures without the three channels R, G and B."""
        if self.n_channels != 3:
            wrong = f"{why} needs 3 channels, R, G and B, found {self.n_channels}"
            self.refuse(f"{wrong}; leave it out, or name the dims so that the channels are found")

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width, where all pictures have the same."""
        height, width = self.sizes[0].tolist()
        return (height, width) if (self.sizes == self.sizes[0]).all() else None

    def name_first(self, which: Any) -> str:
        """Describe the first of some pictures: its size and its row."""
        at = int(which.argmax())
        height, width = self.sizes[at]
        return f"a picture of {height} x {width} (row {self.rows[at]})"

    # -- planning

    def crop(self, corners: IntArray, sizes: Any) -> None:
        """Keep a window of each picture.

        Parameters
        ----------
        corners : int64 array (n, 2)
            First row and column.
        sizes : int64 array (n, 2), or (height, width)
        """
        self._resized(sizes)
        edges = np.hstack([corners, corners + self.sizes]).tolist()
        windows = [(slice(y, bottom), slice(x, right)) for y, x, bottom, right in edges]
        self._changes.append(lambda x, at: x[windows[at]])

    def mirror(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Turn some of the pictures left to right."""
        turned = chosen.tolist()
        self._changes.append(lambda x, at: _mirrored(x) if turned[at] else x)

    def map(self, scale: FloatArray, shift: FloatArray) -> None:
        """Make floats of all values: ``value * scale + shift``.

        Parameters
        ----------
        scale, shift : float64 arrays (n or 1, channel or 1)
        """
        old_scale, old_shift = self._factors or (np.ones((1, 1)), np.zeros((1, 1)))
        self._factors = old_scale * scale, old_shift * scale + shift
        self.dtype = result_dtype(self.dtype, None, scaled=True)

    def scale(self, scale: FloatArray, shift: FloatArray) -> None:
        """Scale and shift values as :meth:`map` does, but round integers to what they hold."""
        if self.dtype.kind == "f":
            self.map(scale, shift)
        else:
            self.change(lambda x, at: in_dtype(linear(x, scale[at], shift[at]), x.dtype))

    def change(self, change: Change, sizes: Any = None, dtype: np.dtype[Any] | None = None) -> None:
        """Make new pixels from old ones.

        Parameters
        ----------
        sizes : int64 array (n, 2), optional
            Of the new pictures.
        dtype : dtype, optional
            Of the new values.

        Raises
        ------
        UnfitPictureError
            If a picture would become larger than any that is made.
        """
        self.settle()
        if sizes is not None:
            self._resized(sizes)
            check_size(*self.sizes[self.sizes.prod(axis=1).argmax()].tolist())
        self.dtype = self.dtype if dtype is None else dtype
        self._changes.append(change)

    def settle(self) -> None:
        """Carry factors out in the pictures rather than in the copy that makes the batch."""
        if self._factors is None:
            return
        dtype, n = self.dtype, len(self)
        scales, shifts = (np.broadcast_to(one, (n, one.shape[1])) for one in self._factors)
        self._factors = None
        self._changes.append(lambda x, at: linear(x, scales[at], shifts[at]).astype(dtype))

    def finish(self, dtype: np.dtype[Any] | None) -> None:
        """Say the dtype of the result, if it is another one, and check the size of the batch.

        Values are rounded where `dtype` does not hold them.

        Raises
        ------
        AugmentError
            If the batch would not fit into memory.
        """
        if dtype is not None and dtype.kind in "iu" and not np.can_cast(self.dtype, dtype):
            self.change(lambda x, at: in_dtype(in_floats(x), dtype))
        self.dtype = self.dtype if dtype is None else dtype
        n_values = int(self.sizes.prod(axis=1).sum()) * self.n_channels
        if n_values > MAX_VALUES:
            height, width = self.sizes[-1]
            made = f"{len(self):,} pictures would become {height:,} x {width:,} pixels"
            most = f"more than the {MAX_VALUES:,} made at once; use smaller sizes or batches"
            raise AugmentError(f"{made}, {n_values:,} values, {most}")

    def work_bytes(self, given: np.dtype[Any]) -> int:
        """Return what carrying this out takes besides, for pictures of this dtype."""
        wide = 2 if float_dtype(given).itemsize > 4 else 1
        return GROUP_BYTES + self.most_pixels * self.n_channels * VALUE_BYTES * wide

    # -- carrying out

    def picture(self, x: Array, at: int) -> Array:
        """Take one picture through all its changes."""
        for change in self._changes:
            x = change(x, at)
        return x

    def copied(
        self,
        given: Sequence[Array] | Array,
        places: range,
        axes: Sequence[int],
        out: Array | None = None,
    ) -> Array:
        """Make some pictures, which have one size, as one array.

        Parameters
        ----------
        axes : sequence of int
            Order of the axes (picture, height, width, channel), of which the first stays first.
        """
        cut = slice(places.start, places.stop)
        factors = {
            name: (one if len(one) == 1 else one[cut])[:, None, None]
            for name, one in zip(("scale", "shift"), self._factors or (), strict=False)
        }
        made = _stacked((self.picture(given[at], at) for at in places), len(places))
        copied: Array = permute.copy(made, axes, out=out, dtype=self.dtype, threads=1, **factors)
        return copied

    def batch(self, given: Sequence[Array] | Array, order: Sequence[int]) -> Array:
        """Make all pictures, which have one size, as one array, axes in any order."""
        assert self.size is not None, "arrays hold pictures of one size"
        by_picture = (0, *(axis for axis in order if axis != 0))
        lengths = len(self), *self.size, self.n_channels
        out = permute.empty([lengths[axis] for axis in by_picture], self.dtype)
        step = max(1, GROUP_BYTES * len(self) // max(1, out.nbytes))
        for start in range(0, len(self), step):
            group = range(start, min(start + step, len(self)))
            self.copied(given, group, by_picture, out[start : group.stop])
        if by_picture == tuple(order):
            return out
        turned: Array = permute.copy(out, [by_picture.index(axis) for axis in order], threads=1)
        return turned


def _stacked(pictures: Iterator[Array], n: int) -> Array:
    """Return `n` pictures of one size as one array whose axes lie in memory as theirs do."""
    first = next(pictures)[np.newaxis]
    if n == 1:
        return first
    out = np.empty_like(first, shape=(n, *first.shape[1:]), subok=False)
    out[0] = first[0]
    for place, picture in zip(out[1:], pictures, strict=True):
        place[...] = picture
    return out


def _mirrored(x: Array) -> Array:
    """Turn a picture left to right: a view, but where OpenCV copies whole pixels.

    A batch of colour pictures then takes half (32 x 32) to a sixth (224 x 224) of the time.
    """
    interleaved = 1 < x.shape[2] <= 4 and x.strides[2] == x.itemsize and x.strides[1] > 0
    cv2 = faster("cv2") if interleaved and x.dtype in OPENCV_DTYPES and x.size else None
    turned: Array = x[:, ::-1] if cv2 is None else cv2.flip(x, 1)
    return turned


def by_opencv(x: Array, change: Callable[[Array], Any]) -> Array:
    """Return what a function of OpenCV makes of a picture, in the dtype of the picture.

    Raises
    ------
    MissingExtraError
        If OpenCV is not installed.
    UnfitPictureError
        If OpenCV cannot handle the picture.
    """
    cv2 = opencv()
    own = x.dtype.newbyteorder("=")
    values = np.ascontiguousarray(x, own if own in OPENCV_DTYPES else float_dtype(own))
    try:
        made = [change(values[..., n : n + 4]) for n in range(0, x.shape[2], 4)]
    except cv2.error as error:
        raise UnfitPictureError(f"OpenCV cannot change a picture {x.shape}: {error}") from error
    parts = [one.reshape(*one.shape[:2], -1) for one in made]
    return in_dtype(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2), own)


def check_size(height: int, width: int) -> None:
    """Raise :class:`UnfitPictureError` for a picture that is too large to be made."""
    if height * width > MAX_PIXELS:
        made = f"{height:,} x {width:,} pixels, more than the {MAX_PIXELS:,} that are made"
        remedy = "use smaller sizes, or leave out pictures that are so long and narrow"
        raise UnfitPictureError(f"a picture would become {made}; {remedy}")


# -- values


def float_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: float32, or float64 where float32 would lose some."""
    wide = dtype.itemsize > (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float64 if wide else np.float32)


def in_floats(x: Array) -> Array:
    """Return values to compute with."""
    return x.astype(float_dtype(x.dtype), copy=False)


def linear(x: Array, scale: FloatArray, shift: FloatArray) -> Array:
    """Return ``x * scale + shift`` in floats."""
    values = in_floats(x)
    made: Array = values * scale.astype(values.dtype) + shift.astype(values.dtype)
    return made


def in_dtype(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return computed values in the dtype of pictures: integers are rounded and clipped."""
    if dtype.kind == "f" or x.dtype == dtype:
        return x.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    most = float(limits.max)
    if most > limits.max:  # of 64 bits: the next float is out of range
        most = np.nextafter(most, 0.0)
    return np.clip(np.rint(x), float(limits.min), most).astype(dtype)


# random numbers

LOW = (1 << 64) - 1
STRIDE = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64


@dataclass(frozen=True, eq=False)
class RowRandom:
    """Random numbers of one step of an augmentation for the rows of one batch.

    Parameters
    ----------
    rows : int64 array
        One for each picture.
    seed, epoch : int
        Hashed together.
    path : tuple of int
        Place of the transform in its augmentation.

    Examples
    --------
    >>> whole = RowRandom(np.arange(8), seed=7).uniform("scale", 0, 1)
    >>> part = RowRandom(np.array([5, 2]), seed=7).uniform("scale", 0, 1)
    >>> bool((part == whole[[5, 2]]).all())
    True
    """

    rows: IntArray
    seed: int = 0
    epoch: int = 0
    path: tuple[int, ...] = ()

    def within(self, step: int) -> RowRandom:
        """Return the numbers of a transform within this one."""
        return replace(self, path=(*self.path, step))

    def uniform(self, name: str, low: Any, high: Any) -> FloatArray:
        """Return a number from [low, high) for every row; bounds may differ by row."""
        unit = (self._words(name) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        drawn: FloatArray = low + unit * (np.asarray(high, np.float64) - low)
        return drawn

    def integers(self, name: str, high: Any) -> IntArray:
        """Return an integer from ``0 .. high - 1`` for every row."""
        below = np.asarray(high, np.int64)
        drawn: IntArray = np.floor(self.uniform(name, 0.0, below)).astype(np.int64)
        return np.minimum(drawn, below - 1)

    def coin(self, name: str, chance: float) -> npt.NDArray[np.bool_]:
        """Return True for a share of the rows."""
        return self.uniform(name, 0.0, 1.0) < chance

    def _words(self, name: str) -> Words:
        key = key_of("augment", self.seed, self.epoch, *self.path, name)
        low, high = np.uint64(key & LOW), np.uint64(key >> 64)
        words = _mixed(self.rows.astype(np.uint64) * STRIDE + low)
        return _mixed(words ^ high)


class LargestDraws(RowRandom):
    """Not random: the largest number that can be drawn."""

    def uniform(self, name: str, low: Any, high: Any) -> FloatArray:
        return np.broadcast_to(np.asarray(high, np.float64), self.rows.shape)


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
