"""What every transform of pictures shares, several of them as one, and decoding before them.

A transform is a small frozen value. Called with pictures it returns changed ones; what it draws
depends on (seed, epoch, row) and on its place in an `Augment`, never on the batch a row is in.
Its parameter ``rows`` makes a loader's pipeline pass it whole batches with their rows, seed and
epoch: ``batches(pipeline={"images": Augment(...)})``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_fields, integer
from labeled.dims import EXAMPLE_DIMS, Axis, FoundAxes, find_axes, name_of
from labeled.errors import AugmentError, DimsError, UnfitPictureError
from labeled.formats.pictures import Channels, PictureError, decode
from labeled.transforms.pictures import Array, LargestDraws, PicturePlan, RowRandom
from labeled.transforms.sample import RowSpec

# parameters, checked when a transform is made

whole_of = partial(integer, most=(1 << 31) - 1, error=AugmentError)  # as image libraries count

Size = int | tuple[int, int]
Range = float | tuple[float, float]  # a fixed value, or what it is drawn from: (least, most)


def size_of(name: str, value: Any, *, least: int = 1) -> tuple[int, int]:
    """Return (height, width); one number is both.

    Examples
    --------
    >>> size_of("size", 24), size_of("size", (24, 32))
    ((24, 24), (24, 32))
    """
    both = (value, value) if isinstance(value, str) or not np.iterable(value) else tuple(value)
    if len(both) != 2:
        raise AugmentError(f"{name}={value!r} must be one whole number or (height, width)")
    height, width = (whole_of(name, one, least=least) for one in both)
    return height, width


def number_of(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number within bounds."""
    if not abs(value) < 1 << 63 or not least <= value <= most:
        bounds = f" from {least:g} to {most:g}" if most < math.inf else f" of {least:g} or more"
        bounds = bounds if least > -math.inf else ""
        raise AugmentError(f"{name}={value!r} must be a finite number{bounds}")
    return float(value)


def range_of(
    name: str, value: Any, *, above: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Return (least, most); one number is both.

    Examples
    --------
    >>> range_of("rotate", 30), range_of("rotate", (-30, 30))
    ((30.0, 30.0), (-30.0, 30.0))
    """
    both = value if np.iterable(value) else (value, value)
    low, high = (number_of(name, one, least=above, most=most) for one in both)
    if low > high:
        raise AugmentError(f"{name}={value!r}: the least comes first")
    if low <= above:
        raise AugmentError(f"{name}={value!r} must be above {above:g}")
    return low, high


# what parameters have to be, by their names, besides of their types
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("size", "canvas", "least"), size_of),
    "width": partial(size_of, least=0),
    **dict.fromkeys(("y", "x"), partial(whole_of, least=0)),
    "shorter": partial(whole_of, least=1),
    "chance": partial(number_of, least=0, most=1),
    **dict.fromkeys(("fill", "about"), number_of),
    **dict.fromkeys(("most", "brightness", "contrast"), partial(number_of, least=0)),
    **dict.fromkeys(("hue", "saturation", "lightness"), partial(number_of, least=0)),
    **dict.fromkeys(("rotate", "shear"), range_of),
    **dict.fromkeys(("scale", "aspect", "peak"), partial(range_of, above=0)),
    "area": partial(range_of, above=0, most=1),
}


# names in, names out

Dims = Sequence[Hashable]
Names = dict[Axis, Hashable]

EVERY: tuple[Axis, ...] = ("b", 0, 1, "c")  # axes of pictures on their way


@dataclass(frozen=True, eq=False)
class Opened:
    """Pictures, and how what held them named their axes.

    Parameters
    ----------
    pictures : array (n, height, width, channel), or list of arrays (height, width, channel)
        Views of what was given; a list of what had objects.
    names : mapping
        The name of each axis, ``'b'``, ``'c'``, 0 or 1, in the order in which they were given;
        ``'b'`` comes first where pictures came one by one.
    source : DataArray, optional
        What was given, if it has labels.
    """

    pictures: Array | list[Array]
    names: Names
    source: xr.DataArray | None

    def made(self, plan: PicturePlan, axes: Sequence[Axis] | None, *, always_one: bool) -> Any:
        """Carry a plan out: return changed pictures as what was given, labels and all.

        Parameters
        ----------
        axes : sequence, optional
            Another order; may add ``'c'``.
        always_one : bool
            Whether pictures of any sizes would have come out as one array.
        """
        given = tuple(self.names)
        wanted = tuple(a for a in (axes or given) if a != "b" or "b" in given)
        if not set(given) <= set(wanted) <= {*given, "c"} or len(set(wanted)) != len(wanted):
            raise DimsError(f"axes={axes} are not an order of {given}")
        dims = {axis: self.names.get(axis, name_of(axis, 2)) for axis in wanted}
        left_out = [axis for axis in EVERY if axis not in wanted]
        order = [EVERY.index(axis) for axis in (*left_out, *wanted)]
        first = (0,) * len(left_out)
        if isinstance(self.pictures, list) and not always_one:
            assert self.source is not None, "objects have labels"
            one_by_one = (0, *(axis for axis in order if axis != 0))
            closed = self.source.copy(data=np.empty(len(plan), object))
            for at in range(len(plan)):
                one = plan.copied(self.pictures, range(at, at + 1), one_by_one)
                closed.values[at] = one[(0, *first)]
            of_one = tuple(dim for axis, dim in dims.items() if axis != "b")
            closed.encoding = {**closed.encoding, EXAMPLE_DIMS: of_one}
            return closed
        array = plan.batch(self.pictures, order)[first]
        if self.source is None:
            return array
        moved = {self.names[0], self.names[1]}
        sizes = dict(zip(dims.values(), array.shape, strict=True))
        coords = {  # those that are still true
            name: coord for name, coord in self.source.coords.items()
            if all(sizes.get(dim) == coord.sizes[dim] for dim in coord.dims)
            and not moved & set(coord.dims)
        }  # fmt: skip
        return xr.DataArray(array, coords, [*dims.values()], self.source.name, self.source.attrs)


def open_pictures(images: Any, dims: Dims | None, *, batch: bool = False) -> Opened:
    """Take pictures out of what holds them.

    Parameters
    ----------
    images : DataArray or array
        One picture or a batch. A DataArray of objects holds pictures of different sizes.
    dims : sequence of names, optional
        Of plain arrays; of the pictures of a DataArray of objects.
    batch : bool
        There are several, so that the one dim that means nothing else counts them, whatever its
        name.

    Raises
    ------
    DimsError
        If dims are missing, or are not those of pictures.
    AugmentError
        If the values are not numbers in this machine's memory.
    """
    source = images if isinstance(images, xr.DataArray) else None
    if source is None or source.dtype != object:
        if source is not None:
            images, dims = source.data, source.dims
        return Opened(*_view(images, dims, batch=batch), source)
    dims = source.encoding.get(EXAMPLE_DIMS) if dims is None else dims
    views = [_view(one, dims) for one in source.data]
    pictures = [view[0] for view, _ in views]
    kinds = sorted({f"{one.shape[2]} of {one.dtype}" for one in pictures})
    if len(kinds) > 1:
        wrong = f"pictures have channels {' and '.join(kinds)}; give all one dtype and the same"
        raise AugmentError(f"{wrong} number of channels, encoded ones when opened (channels=3)")
    return Opened(pictures, {"b": source.dims[0], **views[0][1]}, source)


def _view(array: Any, dims: Dims | None, *, batch: bool = False) -> tuple[Array, Names]:
    """Return pictures as (n, height, width, channel), and the name of each axis they have.

    In a `batch` a dim of any name may be the one of examples.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "uif":
        kind = "lazy" if hasattr(array, "dask") else getattr(array, "dtype", "")
        remedy = "load lazy ones (or use batches(pipeline=...)), copy others to the host, or cast"
        given = f"found {type(array).__name__} {kind}: {remedy} them"
        raise AugmentError(f"pictures must be numbers in NumPy arrays, or in a DataArray; {given}")
    if dims is None or len(dims) != array.ndim:
        wrong = f"dims={dims} do not name the axes of an array of shape {array.shape}"
        remedy = "pass dims=('batch', 'channel', 'height', 'width'), in its order, or a DataArray"
        raise DimsError(f"{wrong}; {remedy}")
    found = axes_of_pictures(dims)
    if batch and "b" not in found.dim_of_axis and len(found.others) == 1:
        found = find_axes(dims, 2, {"b": found.others[0]})
    axis_of = {dim: axis for axis, dim in found.dim_of_axis.items()}
    if found.others or not {0, 1} <= set(axis_of.values()) <= {*EVERY}:
        wanted = "height and width, and at most batch and channel"
        remedy = "rename the others, or select one of them"
        raise DimsError(f"dims {tuple(dims)} are not those of pictures: {wanted}; {remedy}")
    names = {axis_of[dim]: dim for dim in dims}
    axes = list(names)
    view = array.transpose([axes.index(axis) for axis in EVERY if axis in names])
    return np.expand_dims(view, [at for at, one in enumerate(EVERY) if one not in names]), names


def _put_back(made: Any, given: xr.DataArray, there: npt.NDArray[np.bool_]) -> Any:
    """Return what was made of some pictures of a batch, and nothing in the other places."""
    whole = made.isel({given.dims[0]: np.maximum(there.cumsum() - 1, 0)})
    if whole.dtype != object:
        whole[{given.dims[0]: ~there}] = 0
        return whole
    for place in np.flatnonzero(~there):
        whole.values[place] = given.values[place].astype(made.values[0].dtype)
    return whole


def axes_of_pictures(dims: Dims) -> FoundAxes:
    """Find the dim that plays each axis of pictures, by name."""
    try:
        return find_axes(dims, 2)
    except DimsError as error:  # which transforms take no mapping for
        wrong = str(error).partition("; say which")[0]
        raise DimsError(f"{wrong}; rename one, to 'batch' if it counts pictures") from None


# transforms


class PictureTransform:
    """A change of pictures, one by one or in batches; the base of those of this package."""

    axes: Sequence[Axis] | None = None
    dtype: npt.DTypeLike | None = None
    dims: Dims | None = None

    def __post_init__(self) -> None:
        check_fields(self, AugmentError, but=("size", "canvas"))
        for name, value in vars(self).items():
            if name in CHECKS and value is not None:
                CHECKS[name](name, value)

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
        images : DataArray or array
            One picture or a batch, in this machine's memory. Integers stay integers, rounded and
            clipped, except where a transform says that it makes floats.
        rows : int or array of int, optional
            The row of every picture; 0, 1, ... when not given.
        seed, epoch : int
            What is drawn for a row is a function of these, the row and the transform's place.
        dims : sequence of names, optional
            The dims of a plain array. Pictures of different sizes, which a loader hands out as
            objects, bring their own.

        Returns
        -------
        Of the kind that was given. A batch of a loader whose pictures may differ stays one,
        whatever it holds, unless the transforms make all pictures one size. Rows that pad such
        a batch stay empty pictures there, and are zeros in an array.

        Raises
        ------
        AugmentError
            If pictures cannot be changed so: too small, without colours, not numbers.
        DimsError
            If it is not known which axis is which.
        MissingExtraError
            If the transform needs OpenCV (the extra ``images``), and it is not installed.
        """
        several = rows is not None and np.ndim(rows) == 1
        if isinstance(images, xr.DataArray) and images.dtype == object:
            there, given = np.ones(images.shape, bool), np.asarray(rows)
            if given.shape == images.shape and given.dtype.kind == "i":
                # rows that pad a batch hold no picture
                there = (given >= 0) | [np.size(one) > 0 for one in images.data]
            if not there.any():
                return images
            if not there.all():
                own = self(images[there], rows=given[there], seed=seed, epoch=epoch, dims=dims)
                return _put_back(own, images, there)
        opened = open_pictures(images, self.dims if dims is None else dims, batch=several)
        n = len(opened.pictures)
        numbers = np.arange(n) if rows is None else np.atleast_1d(np.asarray(rows))
        if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
            raise AugmentError(f"rows must be {n} whole numbers; found {numbers!r:.60}")
        if not n:  # what becomes of one picture shows the shape of none
            blank = np.zeros_like(opened.pictures, shape=(1, *np.shape(opened.pictures)[1:]))
            opened, numbers = replace(opened, pictures=blank), np.zeros(1, np.int64)
        pictures, own = opened.pictures, opened.pictures[0].dtype.newbyteorder("=")
        sizes = np.array([one.shape[:2] for one in pictures], np.int64)
        plan = PicturePlan(numbers.astype(np.int64), sizes, int(pictures[0].shape[2]), own)
        self.draw(plan, RowRandom(plan.rows, operator.index(seed), operator.index(epoch)))
        plan.finish(None if self.dtype is None else np.dtype(self.dtype))
        sideways = [(1000, 1500), (1500, 1000)]  # come out alike where pictures of any sizes do
        alike = isinstance(pictures, list) and self._sizes_only(sideways, 3, own).size is not None
        made = opened.made(plan, self.axes, always_one=alike)
        if n:
            return made
        at = tuple(opened.names if self.axes is None else self.axes).index("b")
        return made[(*(slice(None),) * at, slice(0, 0))]

    def draw(self, plan: PicturePlan, random: RowRandom) -> None:
        """Add what happens to the pictures of a batch to a plan that is new."""
        self.add_to(plan, random.within(0))

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        """Draw random numbers for the pictures of a plan, and add what happens to them."""
        raise NotImplementedError

    def _sizes_only(self, sizes: Any, n_channels: int, dtype: np.dtype[Any]) -> PicturePlan:
        """Return a plan of the largest numbers that can be drawn, to look at sizes."""
        rows = np.zeros(len(sizes), np.int64)
        plan = PicturePlan(rows, np.maximum(sizes, 1), n_channels, dtype, only_sizes=True)
        self.draw(plan, LargestDraws(rows))
        return plan

    def memory_after(self, row: RowSpec | None) -> tuple[RowSpec | None, int]:
        """Return what is made of a picture, and the bytes that a batch takes besides."""
        if row is None or not row.shapes:
            return None, 0
        dims, blank = row.dims if self.dims is None else self.dims, np.zeros((), row.dtype)
        try:
            counts = find_axes(dims, 2).dim_of_axis.get("b")
            inner = [dim for dim in dims if dim != counts]
            views = [_view(np.broadcast_to(blank, one), inner)[0] for one in row.shapes]
        except (AugmentError, DimsError):  # rows are not pictures
            return None, 0
        n_channels = max(view.shape[3] for view in views)
        plan = self._sizes_only([view.shape[1:3] for view in views], n_channels, row.dtype)
        made = dict.fromkeys((n_channels, height, width) for height, width in plan.sizes.tolist())
        dtype = plan.dtype if self.dtype is None else np.dtype(self.dtype)
        after = RowSpec(("channel", "height", "width"), tuple(made), dtype)
        return after, plan.work_bytes(row.dtype)


@dataclass(frozen=True)
class Augment(PictureTransform):
    """Transforms one after another, with as few passes over the values as can be.

    Crops, mirrors, factors, the cast and the order of the axes cost one copy together.

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
        Of plain arrays, where a call does not name them.

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
    dims: Dims | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "transforms", tuple(self.transforms))
        inner = [given for one in self.transforms for given in (one.axes, one.dtype, one.dims)]
        if inner.count(None) < len(inner):
            raise AugmentError("axes, dtype and dims are for the outermost Augment alone")
        try:
            np.dtype(self.dtype)
        except (TypeError, ValueError) as error:
            raise AugmentError(f"dtype={self.dtype!r} is not a dtype: {error}") from None

    def draw(self, plan: PicturePlan, random: RowRandom) -> None:
        self.add_to(plan, random)

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        for number, step in enumerate(self.transforms):
            step.add_to(plan, random.within(number))


# encoded pictures

DECODED_DIMS = ("height", "width", "channel")


@dataclass(frozen=True)
class Decode:
    """Decode pictures that a source holds as rows of bytes: JPEG, PNG and what Pillow opens.

    It goes before an `Augment`, whose pictures may differ in size. Needs the extra
    ``labeled[images]``.

    Parameters
    ----------
    channels : {3, 1, 4, None}
        Colour, grey, colour with alpha, or as stored.
    upright : bool
        Turn pictures as their EXIF data say; a TIFF is turned either way, a PNG never.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 3), "red").save(file, "png")
    >>> picture = Decode()(np.frombuffer(file.getvalue(), np.uint8))
    >>> dict(picture.sizes), picture.values[0, 0].tolist()
    ({'height': 3, 'width': 4, 'channel': 3}, [255, 0, 0])
    """

    channels: Channels = 3
    upright: bool = True

    def __post_init__(self) -> None:
        check_fields(self, AugmentError)

    def __call__(self, encoded: Any, *, rows: npt.ArrayLike | None = None) -> Any:
        """Return the pixels.

        Parameters
        ----------
        encoded : DataArray or array
            The bytes of one picture, or a batch of them: each a vector of uint8.
        rows : int or array of int, optional
            The row of every picture, for messages.

        Returns
        -------
        DataArray, uint8
            One picture (height, width, channel), or a batch of them as a loader hands out
            examples of different shapes.

        Raises
        ------
        AugmentError
            If one is not a picture, or damaged; names its row.
        """
        given = encoded.data if isinstance(encoded, xr.DataArray) else encoded
        if isinstance(given, bytes) or (
            getattr(given, "dtype", None) == np.uint8 and given.ndim < 2
        ):
            return xr.DataArray(self._pixels(given, rows), dims=DECODED_DIMS)
        numbers = range(len(given)) if rows is None else np.atleast_1d(rows).tolist()
        made = np.empty(len(given), object)
        for place, (one, row) in enumerate(zip(given, numbers, strict=True)):
            pads = row < 0 and not np.size(one)
            empty = np.empty((0, 0, self.channels or 0), np.uint8)
            made[place] = empty if pads else self._pixels(one, row)
        dims: Sequence[Any] = encoded.dims if isinstance(encoded, xr.DataArray) else ("batch",)
        batch = xr.DataArray(made, dims=dims[:1])
        batch.encoding = {EXAMPLE_DIMS: DECODED_DIMS}
        return batch

    def _pixels(self, one: Any, row: Any) -> npt.NDArray[np.uint8]:
        data = one.data if isinstance(one, xr.DataArray) else one
        if not isinstance(data, bytes):
            data = np.asarray(data)
            if data.ndim != 1 or data.dtype != np.uint8:
                found = f"{data.dtype} of shape {data.shape}"
                remedy = "leave Decode out if these are pixels"
                raise AugmentError(f"encoded pictures are rows of uint8; found {found}: {remedy}")
            data = np.ascontiguousarray(data).data
        try:
            pixels: npt.NDArray[np.uint8] = decode(data, self.channels, upright=self.upright)
        except PictureError as error:
            at = "" if row is None else f" of row {row}"
            raise UnfitPictureError(f"the picture{at} cannot be decoded: {error}") from error
        return pixels
