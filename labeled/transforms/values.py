"""Values of pictures: normalisation, contrast, illumination, colours.

`Normalize`, `Contrast` and `Illumination` are ``value * scale + shift``. For
floats these are carried out together, in the copy that makes the batch; integers are rounded and
clipped at once, except by `Normalize`, which makes floats of them.

The mean of many pictures is computed with some rows in memory at a time. In files, as MXNet saves
them, all numbers are little-endian: a list of arrays, and a list of their names. An array comes in
three forms, distinguished by its first word.

Channels of colours are R, G, B. `peak` is the value of white: the largest of an integer dtype and 1
for floats when not given. OpenCV converts colours, those of hue in float32.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array
from labeled.dims import find_axes
from labeled.errors import ArrayError, AugmentError, FileFormatError
from labeled.formats.pictures import opencv
from labeled.formats.replacing import check_target, replacing
from labeled.permute.arguments import result_dtype
from labeled.transforms.augment import (
    PictureTransform,
    above_zero,
    not_negative,
    number_of,
    open_pictures,
)
from labeled.transforms.pictures import (
    Array,
    FloatArray,
    PicturePlan,
    RowRandom,
    by_opencv,
    check_channels,
    in_dtype,
    linear,
)

PerChannel = float | Sequence[float]

GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True, eq=False)
class Normalize(PictureTransform):
    """Make floats: ``(value - mean) / std * scale``.

    Computed as one product and one sum, float32 for integers of up to 32 bits.

    Parameters
    ----------
    mean : float, one a channel, mean image or path
        A mean image is an array (channel, height, width) of the size that pictures have by
        then, or a DataArray, or a file that :func:`read_mean_file` reads.
    std : float, or one a channel
    scale : float

    Examples
    --------
    >>> image = np.array([[[0, 255]]], np.uint8)
    >>> Normalize(127.5, 127.5)(image, dims=("channel", "height", "width")).tolist()
    [[[-1.0, 1.0]]]
    """

    mean: PerChannel | npt.NDArray[Any] | xr.DataArray | str | os.PathLike[str] = 0.0
    std: PerChannel = 1.0
    scale: float = 1.0

    checks: ClassVar = {"scale": number_of}

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self._factors[1] == 0).any():
            raise AugmentError("std holds a 0; leave out the channels that never change")

    @cached_property
    def _factors(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation; a file is read once, when the transform is made."""
        return _mean_of(self.mean), _per_channel("std", self.std)

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        mean, std = self._factors
        _check_factors(plan, mean, std)
        scale = self.scale / std
        shift = -mean * scale
        if mean.ndim == 1:
            plan.map(scale[np.newaxis], shift[np.newaxis])
        else:  # one value for each pixel
            dtype = result_dtype(plan.dtype, None, scaled=True)
            plan.change(lambda x, _: linear(x, scale, shift).astype(dtype), dtype=dtype)


@dataclass(frozen=True)
class Contrast(PictureTransform):
    """Stretch values about a level by a random factor.

    Parameters
    ----------
    most : float
        Factors are drawn from [1 - most, 1 + most].
    about : float or None
        The level that stays; None for the mean of each picture.
    """

    most: float
    about: float | None = None

    checks: ClassVar = {"most": not_negative, "about": number_of}

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        factors = random.uniform("factor", 1 - self.most, 1 + self.most)
        if self.about is not None:
            plan.scale(factors[:, np.newaxis], (1 - factors[:, np.newaxis]) * self.about)
        else:
            plan.change(lambda x, at: stretched(x, float(factors[at]), float(x.mean(dtype=float))))


@dataclass(frozen=True)
class Illumination(PictureTransform):
    """Add a random amount to all values of a picture.

    Parameters
    ----------
    most : float
        Amounts are drawn from [-most, most].
    """

    most: float

    checks: ClassVar = {"most": not_negative}

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        amounts = random.uniform("amount", -self.most, self.most)[:, np.newaxis]
        plan.scale(np.ones_like(amounts), amounts)


@dataclass(frozen=True)
class Jitter(PictureTransform):
    """Change brightness, contrast and saturation by random factors, in random order.

    Parameters
    ----------
    brightness, contrast, saturation : float
        Factors are drawn from [1 - amount, 1 + amount], not below 0; 0 leaves one out.
        Contrast is about the mean grey of a picture, saturation about the grey of each pixel.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    checks: ClassVar = dict.fromkeys(("brightness", "contrast", "saturation"), not_negative)

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        amounts = {n: getattr(self, n) for n in ("brightness", "contrast", "saturation")}
        factors = {
            name: random.uniform(name, max(0.0, 1 - amount), 1 + amount).tolist()
            for name, amount in amounts.items()
            if amount > 0
        }
        if "saturation" in factors:
            check_channels(plan, 3, "saturation")
        orders = list(permutations(factors))
        order = random.integers("order", np.full(len(plan), len(orders))).tolist()

        def jittered(x: Array, at: int) -> Array:
            for name in orders[order[at]]:
                x = _JITTERS[name](x, factors[name][at])
            return x

        if factors:
            plan.change(jittered)


@dataclass(frozen=True)
class ShiftHSL(PictureTransform):
    """Add random amounts to hue, saturation and lightness.

    Parameters
    ----------
    hue : float
        Degrees, at most; hues go round.
    saturation, lightness : float
        Shares of their range, at most; clipped.
    peak : float, optional
        Value of white.
    """

    hue: float = 0.0
    saturation: float = 0.0
    lightness: float = 0.0
    peak: float | None = None

    checks: ClassVar = {
        "hue": not_negative,
        "saturation": not_negative,
        "lightness": not_negative,
        "peak": above_zero,
    }

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        check_channels(plan, 3, "ShiftHSL")
        white, cv2 = 1.0 if plan.dtype.kind == "f" else float(np.iinfo(plan.dtype).max), opencv()
        peak = np.float32(white if self.peak is None else self.peak)
        hue, lightness, saturation = (
            random.uniform(name, -getattr(self, name), getattr(self, name))
            for name in ("hue", "lightness", "saturation")
        )

        def shifted(x: Array, at: int) -> Array:
            hls = cv2.cvtColor(np.divide(x, peak, dtype=np.float32), cv2.COLOR_RGB2HLS)
            hls += np.array([hue[at], lightness[at], saturation[at]], np.float32)
            hls[..., 0] %= 360
            np.clip(hls[..., 1:], 0, 1, out=hls[..., 1:])
            return in_dtype(cv2.cvtColor(hls, cv2.COLOR_HLS2RGB) * peak, x.dtype)

        plan.change(shifted)


def _mean_of(mean: Any) -> FloatArray:
    """Return a mean image (height, width, channel), or numbers (channel or 1)."""
    if isinstance(mean, str | os.PathLike):
        mean = read_mean_file(mean)
    if isinstance(mean, xr.DataArray):
        axes = find_axes(mean.dims, 2).dim_of_axis
        if set(axes) != {"c", 0, 1}:
            raise AugmentError(f"a mean image has channel, height and width; found {mean.dims}")
        mean = mean.transpose(axes["c"], axes[0], axes[1]).to_numpy()
    found = as_array("mean", mean, AugmentError)
    if found.ndim == 3:
        return found.astype(np.float64).transpose(1, 2, 0)
    return _per_channel("mean", mean)


def _per_channel(name: str, values: Any) -> FloatArray:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim > 1 or not np.isfinite(found).all():
        raise AugmentError(f"{name}={values!r} must be a finite number, or one a channel")
    return found.reshape(-1)


def _check_factors(plan: PicturePlan, mean: FloatArray, std: FloatArray) -> None:
    for name, factor in (("mean", mean), ("std", std)):
        if factor.shape[-1] not in (1, plan.n_channels):
            plan.refuse(f"{name} has {factor.shape[-1]} channels, pictures have {plan.n_channels}")
    if mean.ndim == 3 and mean.shape[:2] != plan.size:
        plan.refuse(
            f"the mean image is {mean.shape[0]} x {mean.shape[1]}, pictures are "
            f"{plan.size or 'of different sizes'} by then; crop or resize them to its size "
            "before Normalize"
        )


def stretched(x: Array, factor: float, centre: float) -> Array:
    """Return values moved away from a centre: ``centre + (x - centre) * factor``."""
    add = opencv().addWeighted
    return by_opencv(x, lambda values: add(values, factor, values, 0, centre * (1 - factor)))


def _contrasted(x: Array, factor: float) -> Array:
    means = x.mean(axis=(0, 1), dtype=np.float64)
    return stretched(x, factor, float(means @ np.array(GREY) if len(means) == 3 else means.mean()))


def _saturated(x: Array, factor: float) -> Array:
    mixed = factor * np.eye(3) + (1 - factor) * np.array(GREY)
    return by_opencv(x, lambda values: opencv().transform(values, mixed))


_JITTERS: dict[str, Callable[[Array, float], Array]] = {
    "brightness": lambda x, factor: stretched(x, factor, 0.0),
    "contrast": _contrasted,
    "saturation": _saturated,
}


# the mean of many pictures, and the files that hold it

BLOCK_BYTES = 1 << 24

LIST_MAGIC = 0x112
NEWEST_MAGIC = 0xF993FAC9
V1_MAGIC = 0xF993FAC8
CPU = 1
DTYPES = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")
"""Type flags, by number."""

MAX_AXES = 32


def mean_image(pictures: xr.DataArray) -> xr.DataArray:
    """Compute the mean picture of a source, out of core.

    Parameters
    ----------
    pictures : DataArray
        The first dim counts pictures. A lazy one is read some rows at a time.

    Returns
    -------
    DataArray (channel, height, width), float32
        Summed up in float64. :func:`write_mean_file` saves it, ``Normalize(mean=...)`` takes it.

    Raises
    ------
    AugmentError
        If there is no picture, or they have different sizes.

    Examples
    --------
    >>> images = xr.DataArray(np.arange(8.0).reshape(2, 1, 2, 2), dims=("b", "c", "y", "x"))
    >>> mean_image(images).values.tolist()
    [[[2.0, 3.0], [4.0, 5.0]]]
    """
    n = len(pictures)
    if not n:
        raise AugmentError("there is no picture, and so no mean")
    step = max(1, BLOCK_BYTES // max(1, pictures.nbytes // n))
    total: Any = 0
    shapes = set[tuple[int, ...]]()
    for start in range(0, n, step):
        some = open_pictures(pictures[start : start + step].load(), None).pictures
        shapes |= {one.shape for one in some}
        if len(shapes) > 1:
            raise AugmentError(
                f"pictures of sizes {sorted(shapes)} have no mean; crop or resize them"
            )
        total = total + np.sum(some, axis=0, dtype=np.float64)
    mean = xr.DataArray((total / n).astype(np.float32), dims=("height", "width", "channel"))
    return mean.transpose("channel", "height", "width")


def read_mean_file(path: str | os.PathLike[str]) -> npt.NDArray[np.float32]:
    """Return the first array of a file, a mean image as a rule.

    Parameters
    ----------
    path : path
        Written by MXNet, of any age, or by :func:`write_mean_file`.

    Returns
    -------
    float32 array
        Of a mean image: (channel, height, width), planes R, G, B.

    Raises
    ------
    FileFormatError
        If the file is missing, cut off, or of another kind.
    """
    name = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"{name!r} cannot be read: {error}") from error
    try:
        return _first_array(content)
    except struct.error:
        found = f"ends at byte {len(content)}, in the middle of a header"
    except ValueError as fault:
        found = str(fault)
    raise FileFormatError(
        f"{name!r} {found}; a mean image written by MXNet or by write_mean_file was expected"
    )


def _first_array(content: bytes) -> npt.NDArray[np.float32]:
    magic, _, n_arrays, form = struct.unpack_from("<QQQI", content)
    if magic != LIST_MAGIC or n_arrays < 1:
        raise ValueError(f"begins with {magic:#x} and holds {n_arrays} arrays")
    at, n_axes, kind = struct.calcsize("<QQQI"), form, "I"
    if form == NEWEST_MAGIC:
        storage, n_axes = struct.unpack_from("<ii", content, at)
        at, kind = at + 8, "q"
        if storage != 0:
            raise ValueError(f"holds an array of storage type {storage}, not a dense one")
    elif form == V1_MAGIC:
        (n_axes,) = struct.unpack_from("<i", content, at)
        at, kind = at + 4, "q"
    if not 1 <= n_axes <= MAX_AXES:
        raise ValueError(f"holds an array of {n_axes} axes")
    head = f"<{n_axes}{kind}iii"
    *shape, _, _, flag = struct.unpack_from(head, content, at)
    at += struct.calcsize(head)
    if not 0 <= flag < len(DTYPES):
        raise ValueError(f"holds an array of unknown type {flag}")
    dtype, size = np.dtype(DTYPES[flag]), math.prod(shape)
    if min(shape) < 0 or at + size * dtype.itemsize > len(content):
        raise ValueError(f"says it holds an array of shape {shape}, {dtype}, and ends before")
    return np.frombuffer(content, dtype, size, at).reshape(shape).astype(np.float32)


def write_mean_file(
    path: str | os.PathLike[str],
    mean: npt.ArrayLike,
    *,
    form: Literal["newest", "oldest"] = "newest",
) -> None:
    """Write one array so that MXNet reads it.

    Parameters
    ----------
    path : path
        Replaced in one step if it is there.
    mean : array (channel, height, width)
        Stored as float32.
    form : {"newest", "oldest"}
        "oldest" is what releases before 1.0 read.

    Raises
    ------
    ArrayError
        If `form` is neither.
    WriteError
        If the file cannot be written; what was there before is untouched.
    """
    array = np.ascontiguousarray(mean, "<f4")
    shape64, tail = struct.pack(f"<{array.ndim}q", *array.shape), struct.pack("<iii", CPU, 0, 0)
    if form == "newest":
        head = struct.pack("<Iii", NEWEST_MAGIC, 0, array.ndim) + shape64
    elif form == "oldest":
        head = struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape)
    else:
        raise ArrayError(f"form={form!r} must be 'newest' or 'oldest'")
    name = b"mean_img"
    pieces = (
        struct.pack("<QQQ", LIST_MAGIC, 0, 1), head, tail, array.tobytes(),
        struct.pack("<QQ", 1, len(name)), name,
    )  # fmt: skip
    with replacing(check_target(path, overwrite=True)) as part:
        Path(part).write_bytes(b"".join(pieces))
