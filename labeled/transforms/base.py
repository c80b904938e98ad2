"""What every transform of pictures shares, and several of them as one.

A transform is a small frozen value. Called with pictures it returns changed ones; what it draws
depends on (seed, epoch, row) and on its place in an `Augment`, never on the batch a row is in.
Its parameter ``rows`` makes a loader's pipeline hand it whole batches with their rows, seed and
epoch: ``batches(pipeline={"images": Augment(...)})``.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.dims import Axis, find_axes
from labeled.errors import AugmentError, DimsError
from labeled.forms import RowForm, extremes
from labeled.transforms.chances import Chances
from labeled.transforms.groups import Stage, groups_of, work_bytes
from labeled.transforms.labels import opened
from labeled.transforms.pictures import Pictures, all_at_once, check_values, in_dtype, in_floats

PictureSize = tuple[int, int]
"""Height and width."""

PICTURE_DIMS = ("channel", "height", "width")


class PictureTransform:
    """A change of pictures, one by one or in batches; the base of those of this package."""

    @property
    def noted(self) -> bool:
        """Whether it is noted down, so that no values are made before the copy at the end."""
        return False

    def __call__(
        self,
        images: Any,
        *,
        rows: npt.ArrayLike | None = None,
        seed: int = 0,
        epoch: int = 0,
        dims: Sequence[Hashable] | None = None,
    ) -> Any:
        """Return changed pictures.

        Parameters
        ----------
        images : DataArray, array, or list of either
            One picture or a batch; NumPy, CuPy or another array library. Integers stay
            integers, rounded and clipped, but where a transform says it makes floats.
        rows : int or array of int, optional
            The row of every picture; 0, 1, ... when not given.
        seed, epoch : int
            What is drawn for a row is a function of these, the row and the transform's place.
        dims : sequence of names, optional
            The dims of a plain array; those of each picture, for a list. Pictures of different
            sizes that come from a loader tell their own.

        Returns
        -------
        Of the kind that was given; pictures of different sizes as a list. A batch of a loader
        whose pictures may differ stays one, whatever it holds, unless the transforms make all
        pictures one size.

        Raises
        ------
        AugmentError
            If pictures cannot be changed so: too small, without colours, no numbers.
        DimsError
            If it is not told which axis is which.
        """
        return run((self,), images, rows, seed, epoch, dims)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        """Return changed pictures, or pictures with a change noted down."""
        raise NotImplementedError

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        """Return the size that all pictures have afterwards, if they all had one before.

        Parameters
        ----------
        before : (height, width), optional
            None for pictures of any sizes, as for what is returned.
        """
        return before

    def largest_size(self, before: PictureSize) -> PictureSize:
        """Return the largest size that a picture of some size may have afterwards."""
        return self.common_size(before) or before

    def dtype_after(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype that values have afterwards."""
        return before

    def form_after(self, row: RowForm | None) -> RowForm | None:
        """Return what is made of pictures; see :class:`labeled.transforms.StatesMemory`."""
        return _form_after((self,), row, None, None)

    def work_bytes(self, row: RowForm | None) -> int:
        """Return what a batch of pictures takes besides; see the same."""
        return _work_bytes((self,), row, None)


@dataclass(frozen=True)
class Augment(PictureTransform):
    """Transforms one after another, with as few passes over the values as can be.

    Crops, mirrors, factors, the cast and the order of the axes are carried out together, in one
    permuting copy.

    Parameters
    ----------
    transforms : sequence of transforms
        In order. The place of each is part of what it draws.
    axes : sequence, optional
        Order of the axes of the result in the words of spaces: ``("b", "c", 0, 1)``. As given
        otherwise.
    dtype : dtype, optional
        Of the result. Integers are rounded and clipped to what it holds.
    dims : sequence of names, optional
        Of plain arrays and lists of them, where a call does not say.

    Examples
    --------
    >>> from labeled.transforms import Mirror, Normalize, RandomCrop
    >>> augment = Augment([RandomCrop(24), Mirror(0.5), Normalize(128, 64)], axes=("b", "c", 0, 1))
    >>> images = np.zeros((8, 32, 32, 3), np.uint8)
    >>> made = augment(images, seed=7, dims=("batch", "height", "width", "channel"))
    >>> made.shape, made.dtype
    ((8, 3, 24, 24), dtype('float32'))
    """

    transforms: Sequence[PictureTransform]
    axes: Sequence[Axis] | None = None
    dtype: npt.DTypeLike | None = None
    dims: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", tuple(self.transforms))
        for transform in self.transforms:
            if not isinstance(transform, PictureTransform):
                raise AugmentError(
                    f"{transform!r} is no transform of labeled.transforms; put other callables "
                    "beside an Augment into a pipeline"
                )
        check_inner(self.transforms)

    def __call__(
        self,
        images: Any,
        *,
        rows: npt.ArrayLike | None = None,
        seed: int = 0,
        epoch: int = 0,
        dims: Sequence[Hashable] | None = None,
    ) -> Any:
        """Return changed pictures; see :meth:`PictureTransform.__call__`."""
        given = self.dims if dims is None else dims
        steps = tuple(self.transforms)
        return run(steps, images, rows, seed, epoch, given, self.axes, self.dtype)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        """Apply all transforms, each with draws of its own."""
        for step, transform in enumerate(self.transforms):
            pictures = transform.change(pictures, chances.within(step))
        return pictures

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        return _common_size(self.transforms, before)

    @property
    def noted(self) -> bool:
        return all(transform.noted for transform in self.transforms)

    def largest_size(self, before: PictureSize) -> PictureSize:
        for transform in self.transforms:
            before = transform.largest_size(before)
        return before

    def dtype_after(self, before: np.dtype[Any]) -> np.dtype[Any]:
        for transform in self.transforms:
            before = transform.dtype_after(before)
        return before if self.dtype is None else np.dtype(self.dtype)

    def form_after(self, row: RowForm | None) -> RowForm | None:
        return _form_after(self.transforms, row, self.dims, self.dtype)

    def work_bytes(self, row: RowForm | None) -> int:
        before = None if row is None else row.dtype
        return _work_bytes(_rounding(self.transforms, before, self.dtype), row, self.dims)


@dataclass(frozen=True)
class _Rounded(PictureTransform):
    """Make integers of values that may be others."""

    dtype: np.dtype[Any]

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        return all_at_once(pictures, lambda x, _: in_dtype(in_floats(x), self.dtype))

    def dtype_after(self, before: np.dtype[Any]) -> np.dtype[Any]:
        return self.dtype


def _rounding(
    transforms: Sequence[PictureTransform],
    before: np.dtype[Any] | None,
    dtype: npt.DTypeLike | None,
) -> Sequence[PictureTransform]:
    """Return transforms, and behind them what rounds to a dtype that does not hold their values."""
    if before is None or dtype is None or np.dtype(dtype).kind not in "iu":
        return transforms
    for transform in transforms:
        before = transform.dtype_after(before)
    return transforms if np.can_cast(before, dtype) else (*transforms, _Rounded(np.dtype(dtype)))


def check_inner(transforms: Sequence[PictureTransform]) -> None:
    """Raise :class:`AugmentError` where a transform within another says how results come out."""
    for inner in transforms:
        said = [n for n in ("axes", "dtype", "dims") if getattr(inner, n, None) is not None]
        if isinstance(inner, Augment) and said:
            raise AugmentError(
                f"an Augment within another transform has no {' and no '.join(said)} of its own; "
                "give that to the outermost Augment"
            )


def _common_size(
    transforms: Sequence[PictureTransform], before: PictureSize | None
) -> PictureSize | None:
    for transform in transforms:
        before = transform.common_size(before)
    return before


def run(
    transforms: Sequence[PictureTransform],
    images: Any,
    rows: npt.ArrayLike | None,
    seed: int,
    epoch: int,
    dims: Sequence[Hashable] | None,
    axes: Sequence[Axis] | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Any:
    """Open pictures, apply transforms, and close them again."""
    if isinstance(images, xr.DataArray) and images.dtype == object and not images.size:
        return images  # of a batch whose pictures of any sizes were all left out
    several = rows is not None and np.ndim(rows) == 1
    pictures, labels = opened(images, dims, batch=several)
    numbers = np.arange(len(pictures)) if rows is None else np.atleast_1d(np.asarray(rows))
    if numbers.shape != (len(pictures),) or numbers.dtype.kind not in "iu":
        raise AugmentError(
            f"rows are {len(pictures)} whole numbers, one a picture; found {numbers.dtype} of "
            f"shape {numbers.shape}"
        )
    if not len(pictures):  # what comes of none has the shape of what comes of one
        made = run(transforms, labels.blank(), [0], seed, epoch, dims, axes, dtype)
        return labels.none_of(made, axes)
    transforms = _rounding(transforms, pictures.dtype, dtype)
    seeds = operator.index(seed), operator.index(epoch)
    final = None if dtype is None else np.dtype(dtype)
    alike = _common_size(transforms, None) is not None
    pieces = _pieces(transforms, pictures, numbers.astype(np.int64), seeds, labels.joins(alike))
    return labels.named(labels.values(pieces, len(pictures), axes, final, alike=alike), axes)


def _pieces(
    transforms: Sequence[PictureTransform],
    pictures: Pictures,
    rows: npt.NDArray[np.int64],
    seeds: tuple[int, int],
    joins: bool,
) -> Iterator[tuple[slice, Pictures]]:
    """Apply transforms to a few pictures at a time, so that what is made on the way stays small.

    All together where results may not fit one another: `joins` tells that those of any size do.
    """
    lengths = np.stack([pictures.heights, pictures.widths], axis=1)
    sizes = [(height, width) for height, width in extremes(lengths)]
    together = joins or _common_size(transforms, pictures.size) is not None
    stage = _largest_stage(transforms, sizes, pictures.n_channels, pictures.dtype)
    n_made = 0
    for group in groups_of(pictures, stage if together else None):
        some = pictures.part(group)
        for step, transform in enumerate(transforms):
            some = transform.change(some, Chances(rows[group], *seeds, (step,)))
        n_made += int((some.heights * some.widths).sum()) * some.n_channels
        check_values(n_made, group.stop, some, len(pictures))
        yield group, some


def _largest_stage(
    transforms: Sequence[PictureTransform],
    sizes: Sequence[PictureSize],
    n_channels: int,
    dtype: np.dtype[Any],
) -> Stage | None:
    """Return the most values that a picture has on its way; None where none are made on it."""
    made = [t for t in transforms if not t.noted]
    if not made or not sizes:
        return None
    most = 0
    for size in sizes:
        for transform in transforms:
            before, size = size, transform.largest_size(size)
            if not transform.noted:
                most = max(most, before[0] * before[1], size[0] * size[1])
    return Stage(most * n_channels, dtype)


def _pictured(
    row: RowForm, dims: Sequence[Hashable] | None
) -> tuple[list[PictureSize], int] | None:
    """Return the sizes of pictures, and their channels; None where dims are no picture's."""
    names: Sequence[Hashable] = row.dims
    if dims is not None:
        found = find_axes(dims, 2)
        names = [dim for dim in dims if dim != found.dim_of_axis.get("b")]
    try:
        axis_of = {dim: axis for axis, dim in find_axes(names, 2).dim_of_axis.items()}
        axes = [axis_of[dim] for dim in names]
    except (DimsError, KeyError):
        return None
    if not {0, 1} <= set(axes) or any(len(shape) != len(axes) for shape in row.shapes):
        return None
    lengths = [dict(zip(axes, shape, strict=True)) for shape in row.shapes]
    n_channels = max((one.get("c", 1) for one in lengths), default=1)
    return [(one[0], one[1]) for one in lengths], n_channels


def _form_after(
    transforms: Sequence[PictureTransform],
    row: RowForm | None,
    dims: Sequence[Hashable] | None,
    dtype: npt.DTypeLike | None,
) -> RowForm | None:
    found = None if row is None else _pictured(row, dims)
    if row is None or found is None:
        return None
    sizes, n_channels = found
    final = row.dtype
    for transform in transforms:
        sizes = [transform.largest_size(size) for size in sizes]
        final = transform.dtype_after(final)
    shapes = tuple(dict.fromkeys((n_channels, *size) for size in sizes))
    return RowForm(PICTURE_DIMS, shapes, final if dtype is None else np.dtype(dtype))


def _work_bytes(
    transforms: Sequence[PictureTransform], row: RowForm | None, dims: Sequence[Hashable] | None
) -> int:
    found = None if row is None else _pictured(row, dims)
    if row is None or found is None:
        return 0
    return work_bytes(_largest_stage(transforms, *found, row.dtype))
