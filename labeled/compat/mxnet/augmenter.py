"""What the old image iterators did to a decoded picture, until it was numbers.

One call takes one picture through the steps of its version, in their order: shorter edge
resized, affine step, padding, one of three crops, colour jitter, shifts of hue, lightness and
saturation, noise along the principal colours. Every step that draws takes its numbers from the
`Twister` handed in, as many and in the same order as the old programs did; which twister, and
how it is seeded, the iterators know.

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
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet import opencv
from labeled.compat.mxnet.opencv import Picture
from labeled.compat.mxnet.parameters import NO_LIMIT, Rules
from labeled.compat.mxnet.twister import F32, Twister
from labeled.errors import AugmentError
from labeled.transforms.pictures import check_size

FloatArray = npt.NDArray[np.float32]

TRIES = 10

AUTO, RANDOM = 9, 10
INTERPOLATIONS = (0, 1, 2, 3, 4, AUTO, RANDOM)
"""Nearest, bilinear, bicubic, area, Lanczos; by what happens; one of the first five, drawn."""

EIGENVALUES = (55.46, 4.794, 1.148)
EIGENVECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)
"""One row a channel: R, G, B."""
SWAPPED_GREY = (1868, 9617, 4899)
"""14-bit weights of R, G and B: the old jitter took red for blue when it made grey."""


class Augmenter:
    """The augmentation of one iterator.

    Parameters
    ----------
    rules : {"seed", "0.9.5", "1.9.1 v1", "1.9.1"}
        Whose rules.
    p : namespace
        Every parameter, with its old meaning: angles of 0 and below do nothing; `crop_y_start` and
        `crop_x_start` count with rules "seed" alone; both of `min_crop_size` and `max_crop_size`
        are given. What comes behind the colours is for :class:`Output`.

    Raises
    ------
    AugmentError
        If parameters exclude one another.
    """

    def __init__(self, rules: Rules, p: SimpleNamespace) -> None:
        self.rules, self.p = rules, p
        self._shape: tuple[int, int] = p.data_shape[1:]
        self._newest = rules in ("1.9.1 v1", "1.9.1")
        if p.min_aspect_ratio is not None:
            self._aspects = p.min_aspect_ratio, p.max_aspect_ratio
        else:
            most = F32(p.max_aspect_ratio)
            self._aspects = float(F32(1) - most), float(F32(1) + most)
        self._areas = p.min_random_area, p.max_random_area
        scales = not p.max_random_scale == p.min_random_scale == 1
        self._squares = not p.max_crop_size == p.min_crop_size == -1
        stretched = {*self._aspects} != {1.0} and not p.random_resized_crop
        turned = p.max_rotate_angle > 0 or p.rotate > 0 or len(p.rotate_list) > 0
        limited = p.max_img_size != NO_LIMIT or p.min_img_size != 0
        self._warps = turned or scales or stretched or limited or p.max_shear_ratio > 0
        (low, high), (narrow, wide), resized = self._areas, self._aspects, p.random_resized_crop
        for refused, why in (
            (p.inter_method not in INTERPOLATIONS,
             f"inter_method={p.inter_method} is none of 0 to 4, 9 and 10"),
            (self._warps and p.inter_method == opencv.NEAREST and rules != "seed",
             "inter_method=0 does not go with turning, scaling or shearing"),
            (self._squares and not 1 <= p.min_crop_size <= p.max_crop_size,
             f"min_crop_size={p.min_crop_size} and max_crop_size={p.max_crop_size} go together: "
             "give both, from 1 on, the first at most the second"),
            (resized and (p.rand_crop or self._squares or scales),
             "random_resized_crop takes neither rand_crop, min/max_crop_size nor "
             "min/max_random_scale"),
            (resized and not 0 <= low <= high,
             f"min_random_area={low} and max_random_area={high}: the first is at least 0 and at "
             "most the second"),
            (resized and not 0 < narrow <= wide,
             f"random_resized_crop draws aspect ratios from {narrow:.3g} to {wide:.3g}; give a "
             "min_aspect_ratio above 0 and at most max_aspect_ratio"),
        ):  # fmt: skip
            if refused:
                raise AugmentError(why)

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
        if self.p.resize != -1:
            picture = self._shorter_edge(picture, draws)
        if self._warps:
            picture = self._warped(picture, draws)
        if self.p.pad > 0:
            picture = self._padded(picture)
        picture = self._cropped(picture, draws)
        if self.p.brightness > 0 or self.p.contrast > 0 or self.p.saturation > 0:
            picture = self._jittered(picture, draws)
        if self.p.random_h or self.p.random_s or self.p.random_l:
            picture = self._shifted(picture, draws)
        if self.p.pca_noise > 0:
            picture = self._noisy(picture, draws)
        return picture

    # -- size and place

    def _shorter_edge(self, picture: Picture, draws: Twister) -> Picture:
        height, width = picture.shape[:2]
        if height > width:
            new_height, new_width = self.p.resize * height // width, self.p.resize
        else:
            new_height, new_width = self.p.resize, self.p.resize * width // height
        how = self._interpolation(draws, (height, width), (new_height, new_width))
        return opencv.resize(picture, new_height, new_width, how)

    def _warped(self, picture: Picture, draws: Twister) -> Picture:
        height, width = picture.shape[:2]
        shear = F32(draws.unit() * F32(2 * self.p.max_shear_ratio) - F32(self.p.max_shear_ratio))
        most = int(self.p.max_rotate_angle)
        angle: float = draws.whole(-most, most)
        if self.p.rotate > 0:
            angle = self.p.rotate
        if self.p.rotate_list:
            angle = self.p.rotate_list[draws.whole(0, len(self.p.rotate_list) - 1)]
        scale = ratio = F32(1)
        if not self.p.random_resized_crop:
            scale = draws.uniform(self.p.min_random_scale, self.p.max_random_scale)
            ratio = draws.uniform(*self._aspects)
        new_height, new_width = (self._limited(scale * F32(n)) for n in (height, width))
        matrix = _affine(shear, angle, scale, ratio)
        matrix[:, 2] = (
            (new_width - (matrix[0, 0] * F32(width) + matrix[0, 1] * F32(height))) / F32(2),
            (new_height - (matrix[1, 0] * F32(width) + matrix[1, 1] * F32(height))) / F32(2),
        )
        size = int(new_height), int(new_width)
        how = self._interpolation(draws, (height, width), size)
        return opencv.warp(picture, matrix, *size, how, int(self.p.fill_value))

    def _limited(self, side: np.float32) -> np.float32:
        return max(F32(self.p.min_img_size), min(F32(self.p.max_img_size), side))

    def _padded(self, picture: Picture) -> Picture:
        height, width, channels = picture.shape
        check_size(height + 2 * self.p.pad, width + 2 * self.p.pad)
        out = np.zeros((height + 2 * self.p.pad, width + 2 * self.p.pad, channels), np.uint8)
        out[..., :3] = min(max(int(self.p.fill_value), 0), 255)
        out[self.p.pad : self.p.pad + height, self.p.pad : self.p.pad + width] = picture
        return out

    # -- crops

    def _cropped(self, picture: Picture, draws: Twister) -> Picture:
        if self.p.random_resized_crop:
            found = self._resized_crop(picture, draws)
            if found is not None:
                return found
        elif self._squares:
            return self._square_crop(picture, draws)
        return self._plain_crop(picture, draws)

    def _resized_crop(self, picture: Picture, draws: Twister) -> Picture | None:
        """Cut out a random share of the picture; None where no try fits."""
        if {*self._areas, *self._aspects} == {1.0}:
            return None
        height, width = picture.shape[:2]
        for _ in range(TRIES):
            area = F32(F32(height * width) * draws.uniform(*self._areas))
            ratio = draws.uniform(*self._aspects)
            down, across = _rounded(np.sqrt(area / ratio)), _rounded(np.sqrt(area * ratio))
            if draws.unit() > F32(0.5):
                down, across = across, down
            if down <= height and across <= width:
                top, left = draws.whole(0, height - down), draws.whole(0, width - across)
                return self._resized_to_shape(picture, top, left, (down, across), draws)
        return None

    def _square_crop(self, picture: Picture, draws: Twister) -> Picture:
        height, width = picture.shape[:2]
        if min(height, width) < self.p.max_crop_size:
            raise AugmentError(f"a picture of {height} x {width} is smaller than max_crop_size")
        edge = draws.whole(self.p.min_crop_size, self.p.max_crop_size)
        top, left = self._place(height - edge, width - edge, draws)
        return self._resized_to_shape(picture, top, left, (edge, edge), draws)

    def _resized_to_shape(
        self, picture: Picture, top: int, left: int, size: tuple[int, int], draws: Twister
    ) -> Picture:
        how = self._interpolation(draws, size, self._shape)
        cut = picture[top : top + size[0], left : left + size[1]]
        return opencv.resize(cut, *self._shape, how)

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
            if step == 0:
                picture = _levels(factor, F32(0))[picture]
            elif step == 1:
                mean = float(_grey(picture).mean(dtype=np.float64))
                picture = _levels(factor, F32(float(one - factor) * mean))[picture]
            else:
                grey = _grey(picture).astype(np.float32)[..., np.newaxis]
                mixed = picture.astype(np.float32) * factor + grey * F32(one - factor)
                picture = _byte(mixed)
        return picture

    def _shifted(self, picture: Picture, draws: Twister) -> Picture:
        _check_colours(picture, "random_h, random_s and random_l")
        hue, saturation, lightness = (
            self._shift(most, draws) for most in (self.p.random_h, self.p.random_s, self.p.random_l)
        )
        return opencv.shift_hls(picture, hue, lightness, saturation)

    def _shift(self, most: float, draws: Twister) -> int:
        unit = draws.unit()
        if self._newest:
            unit = F32(F32(unit + F32(4) * draws.unit()) / F32(5))
        return int(F32(F32(unit * F32(most)) * F32(2)) - F32(most))

    def _noisy(self, picture: Picture, draws: Twister) -> Picture:
        _check_colours(picture, "pca_noise")
        alphas = draws.normals(3, self.p.pca_noise)
        out = np.empty_like(picture)
        for channel, weights in enumerate(EIGENVECTORS):
            offset = F32(0)
            for weight, value, alpha in zip(weights, EIGENVALUES, alphas, strict=True):
                offset = F32(offset + F32(F32(weight) * F32(value)) * alpha)
            levels = np.arange(256, dtype=np.float32) + offset
            out[..., channel] = np.clip(np.trunc(levels), 0, 255).astype(np.uint8)[
                picture[..., channel]
            ]
        return out

    def _interpolation(self, draws: Twister, old: tuple[int, ...], new: tuple[int, ...]) -> int:
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


def _affine(
    shear: np.float32, angle: float, scale: np.float32, ratio: np.float32
) -> npt.NDArray[np.float32]:
    """Return the linear part of the map from pixels of the picture to those of the result."""
    cos, sin = (F32(turn(angle / 180 * math.pi)) for turn in (math.cos, math.sin))
    along_x = F32(F32(F32(2) * scale) / F32(F32(1) + ratio))
    along_y = F32(ratio * along_x)
    matrix = np.zeros((2, 3), np.float32)
    matrix[0, 0] = along_x * cos - shear * sin * along_y
    matrix[0, 1] = along_x * sin + shear * cos * along_y
    matrix[1, 0] = -sin * along_y
    matrix[1, 1] = cos * along_y
    return matrix


def _rounded(value: np.float32) -> int:
    """Round half away from zero."""
    return math.floor(float(value) + 0.5)


def _levels(factor: np.float32, offset: np.float32) -> Picture:
    """Return what each of the 256 levels becomes, scaled and shifted."""
    return _byte(np.arange(256, dtype=np.float32) * factor + offset)


def _byte(values: npt.NDArray[np.float32]) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _grey(picture: Picture) -> npt.NDArray[np.int64]:
    red, green, blue = SWAPPED_GREY
    wide = picture.astype(np.int64)
    return (wide[..., 0] * red + wide[..., 1] * green + wide[..., 2] * blue + (1 << 13)) >> 14


def _check_colours(picture: Picture, why: str) -> None:
    if picture.shape[2] != 3:
        raise AugmentError(f"{why} need 3 channels, pictures have {picture.shape[2]}")


# -- numbers


class Output:
    """The last step of one iterator.

    Parameters
    ----------
    rules : {"seed", "0.9.5", "1.9.1 v1", "1.9.1"}
        Whose rules.
    p : namespace
        `dtype`, and the parameters from `mirror` on. Types other than "float32" are for rules
        "1.9.1" only: raw values, and the rounded mean subtracted.
    mean_img : float32 array (channels, height, width), optional
        The mean image itself; the iterators load or compute it.
    """

    def __init__(
        self, rules: Rules, p: SimpleNamespace, mean_img: FloatArray | None = None
    ) -> None:
        self.rules, self.p, self.mean_img = rules, p, mean_img
        if p.dtype not in ("float32", "uint8", "int8"):
            raise AugmentError(f"dtype={p.dtype!r} must be 'float32', 'uint8' or 'int8'")
        means, stds = ([getattr(p, f"{name}_{c}") for c in "rgba"] for name in ("mean", "std"))
        self._std = np.array(stds, np.float32).reshape(-1, 1, 1)
        self._mean = np.array(means, np.float32).reshape(-1, 1, 1)
        old = rules in ("seed", "0.9.5")
        self._centres = not old or max(means) > 0 or mean_img is not None
        self._by_channel = mean_img is None or (old and max(means) > 0)

    def __call__(self, picture: Picture, draws: Twister) -> npt.NDArray[Any]:
        """Return a picture (height, width, channels) as new planes (channels, height, width)."""
        values = picture.transpose(2, 0, 1)
        if self.mean_img is not None and self.mean_img.shape != values.shape:
            wrong = self.mean_img.shape
            raise AugmentError(f"the mean image has shape {wrong}, pictures have {values.shape}")
        # the newest version draws for mirroring first, and nothing else for raw bytes
        newest = self.rules == "1.9.1"
        mirrored = newest and self._coin(draws)
        contrast, illumination = F32(1), F32(0)
        if not newest or self.p.dtype != "uint8":
            contrast = self._around_zero(self.p.max_random_contrast, draws) + F32(1)
            illumination = self._around_zero(self.p.max_random_illumination, draws)
        mirrored = mirrored if newest else self._coin(draws)
        out = self._normalised(values, contrast, illumination)
        return np.ascontiguousarray(out[:, :, ::-1] if mirrored else out)

    def _around_zero(self, most: float, draws: Twister) -> np.float32:
        return F32(draws.unit() * F32(most) * F32(2) - F32(most))

    def _coin(self, draws: Twister) -> bool:
        tossed = self.p.rand_mirror and draws.coin()
        return tossed or bool(self.p.mirror)

    def _normalised(
        self, values: npt.NDArray[np.uint8], contrast: np.float32, illumination: np.float32
    ) -> npt.NDArray[Any]:
        if self.p.dtype == "uint8":
            return values
        n, scale = len(values), F32(self.p.scale)
        std = self._std[:n]
        mean = self._mean[:n] if self.mean_img is None or self._by_channel else self.mean_img
        x = values.astype(np.float32)
        if self.p.dtype == "int8":
            whole = np.trunc(mean + np.copysign(F32(0.5), mean))  # half away from zero
            return np.clip(x - whole, -128, 127).astype(np.int8)
        if not self._centres:
            return x * scale
        x -= mean
        if self.rules == "1.9.1":
            made: FloatArray = x * (contrast * scale / std) + illumination * scale / std
        else:
            made = (x * contrast + illumination) * scale
        return made / std if self.rules == "1.9.1 v1" else made
