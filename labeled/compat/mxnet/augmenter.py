"""What the old image iterators did to a decoded picture, until it was numbers.

One call takes one picture through the steps of its version, in their order: shorter edge
resized, affine step, padding, one of three crops, colour jitter, shifts of hue, lightness and
saturation, noise along the principal colours. Every step that draws takes its numbers from the
`Twister` handed in, as many and in the same order as the old programs did; which twister, and
how it is seeded, the iterators know. They read files and parameters, this knows one picture.

Arithmetic is float32 wherever it was, 8-bit colours are rounded after every step as they were.
Where the old programs called OpenCV, so does this, but for steps that later versions of it
round otherwise: these are computed here. Steps that wrote where no pixel of their kind was
(colours of pictures that have one channel, or four) are refused.

The last step makes the numbers that were handed out: mirroring, mean, contrast, illumination,
scale and standard deviation, in the order of float32 operations that each iterator had; planes R,
G, B (, A). Three families differ:

* ``"seed"`` and ``"0.9.5"``: contrast and illumination count only where a mean above zero or a
  mean image is set; means by channel win over the mean image.
* ``"1.9.1 v1"``: they always count; the mean image wins.
* ``"1.9.1"``: likewise, with the factors multiplied beforehand; output in bytes keeps raw values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet import opencv
from labeled.compat.mxnet.opencv import FloatArray, Picture
from labeled.compat.mxnet.parameters import NEVER, NO_LIMIT, Rules
from labeled.compat.mxnet.twister import F32, Twister
from labeled.errors import AugmentError
from labeled.transforms.pictures import check_size

TRIES = 10

AUTO, RANDOM = 9, 10
# nearest, bilinear, bicubic, area, Lanczos; by what happens; one of the first five, drawn
INTERPOLATIONS = (0, 1, 2, 3, 4, AUTO, RANDOM)

EIGENVALUES = np.array([55.46, 4.794, 1.148], np.float32)
# one row a channel: R, G, B
EIGENVECTORS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]], np.float32
)
# 14-bit weights of R, G and B: the old jitter took red for blue when it made grey
SWAPPED_GREY = np.array([1868, 9617, 4899])


class Augmenter:
    """What one iterator does to its pictures.

    Parameters
    ----------
    rules : {"seed", "0.9.5", "1.9.1 v1", "1.9.1"}
        Whose rules.
    p : namespace
        Every parameter, with its old meaning: angles of 0 and below do nothing; `crop_y_start` and
        `crop_x_start` count with rules "seed" alone; both of `min_crop_size` and `max_crop_size`
        are given. A `dtype` other than "float32" is for rules "1.9.1" only: raw values, and the
        rounded mean subtracted.

    Attributes
    ----------
    mean_img : float32 array (channels, height, width), optional
        The mean image itself, once an iterator has loaded or computed it.

    Raises
    ------
    AugmentError
        If parameters exclude one another.
    """

    mean_img: FloatArray | None = None

    def __init__(self, rules: Rules, p: SimpleNamespace) -> None:
        self.rules, self.p = rules, p
        self._shape: tuple[int, int] = p.data_shape[1:]
        self._newest = rules in ("1.9.1 v1", "1.9.1")
        if p.min_aspect_ratio is not None:
            self._aspects = p.min_aspect_ratio, p.max_aspect_ratio
        else:
            most = F32(p.max_aspect_ratio)
            self._aspects = float(F32(1) - most), float(F32(1) + most)
        self._mean, self._std = (
            np.array([getattr(p, f"{name}_{c}") for c in "rgba"], np.float32).reshape(-1, 1, 1)
            for name in ("mean", "std")
        )
        self._areas = p.min_random_area, p.max_random_area
        self._squares = not p.max_crop_size == p.min_crop_size == NEVER
        (low, high), (narrow, wide), resized = self._areas, self._aspects, p.random_resized_crop
        scales = not p.max_random_scale == p.min_random_scale == 1
        stretched = {narrow, wide} != {1.0} and not resized
        turned = p.max_rotate_angle > 0 or p.rotate > 0 or len(p.rotate_list) > 0
        limited = p.max_img_size != NO_LIMIT or p.min_img_size != 0
        warps = turned or scales or stretched or limited or p.max_shear_ratio > 0
        for refused, why in (
            (p.inter_method not in INTERPOLATIONS,
             f"inter_method={p.inter_method} is none of 0 to 4, 9 and 10"),
            (warps and p.inter_method == opencv.NEAREST and rules != "seed",
             "inter_method=0 does not go with turning, scaling or shearing"),
            (self._squares and not 1 <= p.min_crop_size <= p.max_crop_size,
             f"min_crop_size={p.min_crop_size} and max_crop_size={p.max_crop_size} go together: "
             "give both, from 1 on, the first at most the second"),
            (resized and (p.rand_crop or self._squares or scales),
             "random_resized_crop takes neither rand_crop, min/max_crop_size nor "
             "min/max_random_scale"),
            (resized and not 0 <= low <= high,
             f"min_random_area={low:g} and max_random_area={high:g}: the first is at least 0 and "
             "at most the second"),
            (resized and not 0 < narrow <= wide,
             f"random_resized_crop draws aspect ratios from {narrow:.3g} to {wide:.3g}; give a "
             "min_aspect_ratio above 0 and at most max_aspect_ratio"),
            (p.dtype not in ("float32", "uint8", "int8"),
             f"dtype={p.dtype!r} must be 'float32', 'uint8' or 'int8'"),
        ):  # fmt: skip
            if refused:
                raise AugmentError(why)
        self._steps = [
            step for asked, step in (
                (p.resize != NEVER, self._shorter_edge),
                (warps, self._warped),
                (p.pad > 0, self._padded),
                (True, self._cropped),
                (p.brightness > 0 or p.contrast > 0 or p.saturation > 0, self._jittered),
                (p.random_h or p.random_s or p.random_l, self._shifted),
                (p.pca_noise > 0, self._noisy),
            ) if asked
        ]  # fmt: skip

    def __call__(self, picture: Picture, draws: Twister) -> Picture:
        """Return the augmented picture.

        Parameters
        ----------
        picture : uint8, lengths (height, width, channels)
            R, G, B (, A), or grey; not changed.
        draws : Twister
            Advanced by what this picture takes.

        Raises
        ------
        AugmentError
            If the picture is smaller than what is to be cut out of it, or has no colours to
            change.
        """
        for step in self._steps:
            picture = step(picture, draws)
        return picture

    # -- size and place

    def _shorter_edge(self, picture: Picture, draws: Twister) -> Picture:
        height, width = picture.shape[:2]
        down, across = (self.p.resize * n // min(height, width) for n in (height, width))
        how = self._interpolation(draws, (height, width), (down, across))
        return opencv.resize(picture, down, across, how)

    def _warped(self, picture: Picture, draws: Twister) -> Picture:
        height, width = picture.shape[:2]
        p, most = self.p, int(self.p.max_rotate_angle)
        shear = F32(draws.unit() * F32(2 * p.max_shear_ratio) - F32(p.max_shear_ratio))
        angle: float = draws.whole(-most, most)
        if p.rotate > 0:
            angle = p.rotate
        if p.rotate_list:
            angle = p.rotate_list[draws.whole(0, len(p.rotate_list) - 1)]
        scale = ratio = F32(1)
        if not p.random_resized_crop:
            scale = draws.uniform(p.min_random_scale, p.max_random_scale)
            ratio = draws.uniform(*self._aspects)
        least, limit = F32(p.min_img_size), F32(p.max_img_size)
        new_width, new_height = (max(least, min(limit, scale * F32(n))) for n in (width, height))
        linear = _linear(shear, angle, scale, ratio)
        reached = linear[:, 0] * F32(width) + linear[:, 1] * F32(height)
        moved = (np.array([new_width, new_height]) - reached) / F32(2)
        matrix, size = np.column_stack([linear, moved]), (int(new_height), int(new_width))
        how = self._interpolation(draws, (height, width), size)
        return opencv.warp(picture, matrix, *size, how, int(p.fill_value))

    def _padded(self, picture: Picture, draws: Twister) -> Picture:
        height, width, channels = picture.shape
        pad = self.p.pad
        check_size(height + 2 * pad, width + 2 * pad)
        out = np.zeros((height + 2 * pad, width + 2 * pad, channels), np.uint8)
        out[..., :3] = min(max(int(self.p.fill_value), 0), 255)
        out[pad : pad + height, pad : pad + width] = picture
        return out

    # -- crops

    def _cropped(self, picture: Picture, draws: Twister) -> Picture:
        height, width = picture.shape[:2]
        window = None
        if self.p.random_resized_crop:
            window = self._random_window(height, width, draws)
        elif self._squares:
            if min(height, width) < self.p.max_crop_size:
                raise AugmentError(f"a picture of {height} x {width} is smaller than max_crop_size")
            edge = draws.whole(self.p.min_crop_size, self.p.max_crop_size)
            window = *self._place(height - edge, width - edge, draws), edge, edge
        if window is None:
            return self._plain_crop(picture, draws)
        top, left, *size = window
        cut = picture[top : top + size[0], left : left + size[1]]
        return opencv.resize(cut, *self._shape, self._interpolation(draws, size, self._shape))

    def _random_window(self, height: int, width: int, draws: Twister) -> tuple[int, ...] | None:
        """Draw place and size of a random share of the picture; None where no try fits."""
        if {*self._areas, *self._aspects} == {1.0}:
            return None
        for _ in range(TRIES):
            area = F32(F32(height * width) * draws.uniform(*self._areas))
            ratio = draws.uniform(*self._aspects)
            sides = np.sqrt(area / ratio), np.sqrt(area * ratio)
            down, across = (math.floor(float(side) + 0.5) for side in sides)
            if draws.unit() > F32(0.5):
                down, across = across, down
            if down <= height and across <= width:
                top, left = draws.whole(0, height - down), draws.whole(0, width - across)
                return top, left, down, across
        return None

    def _plain_crop(self, picture: Picture, draws: Twister) -> Picture:
        down, across = self._shape
        if self._newest:
            picture = self._enlarged(picture, draws)
        height, width = picture.shape[:2]
        if height < down or width < across:
            raise AugmentError(f"a picture of {height} x {width} is smaller than data_shape")
        top, left = self._place(height - down, width - across, draws)
        return picture[top : top + down, left : left + across]

    def _enlarged(self, picture: Picture, draws: Twister) -> Picture:
        """Enlarge a picture too small for the crop, keeping its proportions."""
        down, across = self._shape
        how = self._interpolation(draws, picture.shape[:2], (down, across))
        if picture.shape[0] < down:
            new = F32(F32(down) / F32(picture.shape[0])) * F32(picture.shape[1])
            picture = opencv.resize(picture, down, int(new), how)
        if picture.shape[1] < across:
            new = F32(F32(across) / F32(picture.shape[1])) * F32(picture.shape[0])
            picture = opencv.resize(picture, int(new), across, how)
        return picture

    def _place(self, down: int, across: int, draws: Twister) -> tuple[int, int]:
        """Choose the upper left corner of a crop with so much slack."""
        if self.p.rand_crop:
            return draws.whole(0, down), draws.whole(0, across)
        if self.rules != "seed":
            return down // 2, across // 2
        return self._start("crop_y_start", down), self._start("crop_x_start", across)

    def _start(self, name: str, slack: int) -> int:
        start: int = getattr(self.p, name)
        if start > slack:
            raise AugmentError(f"{name}={start} is too large: this crop begins at {slack} at most")
        return slack // 2 if start < 0 else start

    # -- colours

    def _jittered(self, picture: Picture, draws: Twister) -> Picture:
        _check_colours(picture, "brightness, contrast and saturation")
        one = F32(1)
        amounts = (self.p.brightness, self.p.contrast, self.p.saturation)
        factors = [F32(one + draws.uniform(-most, most)) for most in amounts]
        for step in draws.shuffled(3):
            factor = factors[step]
            rest = F32(one - factor)
            if step == 2:
                grey = _grey(picture).astype(np.float32)[..., np.newaxis]
                picture = _byte(picture.astype(np.float32) * factor + grey * rest)
            else:
                mean = float(_grey(picture).mean(dtype=np.float64)) if step == 1 else 0.0
                levels = np.arange(256, dtype=np.float32) * factor + F32(float(rest) * mean)
                picture = _byte(levels)[picture]
        return picture

    def _shifted(self, picture: Picture, draws: Twister) -> Picture:
        _check_colours(picture, "random_h, random_s and random_l")
        shifts = []
        for most in (self.p.random_h, self.p.random_s, self.p.random_l):
            unit = draws.unit()
            if self._newest:
                unit = F32(F32(unit + F32(4) * draws.unit()) / F32(5))
            shifts.append(int(F32(F32(unit * F32(most)) * F32(2)) - F32(most)))
        hue, saturation, lightness = shifts
        return opencv.shift_hls(picture, hue, lightness, saturation)

    def _noisy(self, picture: Picture, draws: Twister) -> Picture:
        _check_colours(picture, "pca_noise")
        alphas = np.array(draws.normals(3, self.p.pca_noise), np.float32)
        first, second, third = (EIGENVECTORS * EIGENVALUES * alphas).T
        levels = np.arange(256, dtype=np.float32)[:, np.newaxis] + (first + second + third)
        table = np.clip(np.trunc(levels), 0, 255).astype(np.uint8)
        changed: Picture = table[picture, [0, 1, 2]]
        return changed

    def _interpolation(self, draws: Twister, old: Sequence[int], new: Sequence[int]) -> int:
        method: int = self.p.inter_method
        if method == RANDOM:
            return draws.whole(0, 4)
        if method != AUTO:
            return method
        if all(after > before for before, after in zip(old, new, strict=True)):
            return opencv.CUBIC
        if all(after < before for before, after in zip(old, new, strict=True)):
            return opencv.AREA
        return opencv.LINEAR

    # -- numbers

    def numbers(self, picture: Picture, draws: Twister) -> npt.NDArray[Any]:
        """Return a picture (height, width, channels) as new planes (channels, height, width)."""
        p, values = self.p, picture.transpose(2, 0, 1)
        if self.mean_img is not None and self.mean_img.shape != values.shape:
            wrong = self.mean_img.shape
            raise AugmentError(f"the mean image has shape {wrong}, pictures have {values.shape}")
        # the newest version draws for mirroring first, and nothing else for raw bytes
        mirrored, first = bool(p.mirror), self.rules == "1.9.1"
        if p.rand_mirror and first:
            mirrored |= draws.coin()
        contrast, illumination = F32(1), F32(0)
        if p.dtype != "uint8":
            contrast, illumination = (
                F32(draws.unit() * F32(most) * F32(2) - F32(most))
                for most in (p.max_random_contrast, p.max_random_illumination)
            )
            contrast += F32(1)
        if p.rand_mirror and not first:
            mirrored |= draws.coin()
        out = self._normalised(values, contrast, illumination)
        return np.ascontiguousarray(out[:, :, ::-1] if mirrored else out)

    def _normalised(self, values: Picture, contrast: F32, illumination: F32) -> npt.NDArray[Any]:
        p, mean_img, scale = self.p, self.mean_img, F32(self.p.scale)
        if p.dtype == "uint8":
            return values
        above_zero = not self._newest and self._mean.max() > 0
        mean, std = self._mean[: len(values)], self._std[: len(values)]
        if mean_img is not None and not above_zero:
            mean = mean_img
        x = values.astype(np.float32)
        if p.dtype == "int8":
            whole = np.trunc(mean + np.copysign(F32(0.5), mean))  # half away from zero
            return np.clip(x - whole, -128, 127).astype(np.int8)
        if not (self._newest or above_zero or mean_img is not None):
            return x * scale
        x -= mean
        if self.rules == "1.9.1":
            made: FloatArray = x * (contrast * scale / std) + illumination * scale / std
        else:
            made = (x * contrast + illumination) * scale
        return made / std if self.rules == "1.9.1 v1" else made


def _linear(shear: F32, angle: float, scale: F32, ratio: F32) -> FloatArray:
    """Return the linear part of the map from pixels of the picture to those of the result."""
    cos, sin = (F32(turn(angle / 180 * math.pi)) for turn in (math.cos, math.sin))
    along_x = F32(F32(F32(2) * scale) / F32(F32(1) + ratio))
    along_y = F32(ratio * along_x)
    across = along_x * cos - shear * sin * along_y, along_x * sin + shear * cos * along_y
    return np.array([across, (-sin * along_y, cos * along_y)], np.float32)


def _byte(values: FloatArray) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _grey(picture: Picture) -> Any:
    return (picture.astype(np.int64) @ SWAPPED_GREY + (1 << 13)) >> 14


def _check_colours(picture: Picture, why: str) -> None:
    if picture.shape[2] != 3:
        raise AugmentError(f"{why} need 3 channels, pictures have {picture.shape[2]}")
