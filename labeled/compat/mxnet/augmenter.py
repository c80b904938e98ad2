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
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet import opencv
from labeled.compat.mxnet.opencv import Picture
from labeled.compat.mxnet.parameters import NO_LIMIT, PictureParameters, Rules
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


@dataclass(frozen=True)
class Augmenter:
    """The augmentation of one iterator.

    Parameters
    ----------
    data_shape : (channels, height, width)
        Of the pictures that come out.
    rules : {"seed", "0.9.5", "1.9.1 v1", "1.9.1"}
        Whose rules.
    p : PictureParameters
        With their old meaning: angles of 0 and below do nothing; `crop_y_start` and `crop_x_start`
        count with rules "seed" alone; both of `min_crop_size` and `max_crop_size` are given.
        What comes behind the colours, from `mirror` on, is for :class:`Output`.

    Raises
    ------
    AugmentError
        If parameters exclude one another.

    Examples
    --------
    >>> picture = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    >>> Augmenter((3, 4, 4))(picture, Twister(111))[0, 0].tolist()
    [30, 31, 32]
    >>> drawn = PictureParameters(rand_crop=True)
    >>> Augmenter((3, 4, 4), p=drawn)(picture, Twister(111))[0, 0].tolist()
    [24, 25, 26]
    """

    data_shape: tuple[int, int, int]
    rules: Rules = "1.9.1"
    p: PictureParameters = field(default_factory=PictureParameters)

    def __post_init__(self) -> None:
        if self.p.inter_method not in INTERPOLATIONS:
            raise AugmentError(f"inter_method={self.p.inter_method} is none of 0 to 4, 9 and 10")
        if self._warps and self.p.inter_method == opencv.NEAREST and self.rules != "seed":
            raise AugmentError("inter_method=0 does not go with turning, scaling or shearing")
        self._check_crops()

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
        areas, aspects = (self.p.min_random_area, self.p.max_random_area), self._aspects
        if {*areas, *aspects} == {1.0}:
            return None
        height, width = picture.shape[:2]
        for _ in range(TRIES):
            area = F32(F32(height * width) * draws.uniform(*areas))
            ratio = draws.uniform(*aspects)
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
            raise AugmentError(
                f"a picture of {height} x {width} is smaller than max_crop_size="
                f"{self.p.max_crop_size}; use resize, or a smaller crop"
            )
        edge = draws.whole(self.p.min_crop_size, self.p.max_crop_size)
        top, left = self._place(height - edge, width - edge, draws)
        return self._resized_to_shape(picture, top, left, (edge, edge), draws)

    def _resized_to_shape(
        self, picture: Picture, top: int, left: int, size: tuple[int, int], draws: Twister
    ) -> Picture:
        how = self._interpolation(draws, size, self.data_shape[1:])
        cut = picture[top : top + size[0], left : left + size[1]]
        return opencv.resize(cut, *self.data_shape[1:], how)

    def _plain_crop(self, picture: Picture, draws: Twister) -> Picture:
        down, across = self.data_shape[1:]
        if self._newest:
            picture = self._enlarged(picture, draws)
        height, width = picture.shape[:2]
        if height < down or width < across:
            raise AugmentError(
                f"a picture of {height} x {width} is smaller than data_shape={self.data_shape}; "
                f"version {self.rules!r} does not enlarge it"
            )
        top, left = self._place(height - down, width - across, draws)
        return picture[top : top + down, left : left + across]

    def _enlarged(self, picture: Picture, draws: Twister) -> Picture:
        """Enlarge a picture too small for the crop, keeping its proportions."""
        down, across = self.data_shape[1:]
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
            raise AugmentError(
                f"{name}={start} leaves too little of a picture; this crop begins at {slack} "
                "at most"
            )
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

    # -- what is asked

    @property
    def _newest(self) -> bool:
        return self.rules in ("1.9.1 v1", "1.9.1")

    @cached_property
    def _aspects(self) -> tuple[float, float]:
        if self.p.min_aspect_ratio is not None:
            return self.p.min_aspect_ratio, self.p.max_aspect_ratio
        most = F32(self.p.max_aspect_ratio)
        return float(F32(1) - most), float(F32(1) + most)

    @property
    def _scales(self) -> bool:
        return not self.p.max_random_scale == self.p.min_random_scale == 1

    @property
    def _squares(self) -> bool:
        return not self.p.max_crop_size == self.p.min_crop_size == -1

    @cached_property
    def _warps(self) -> bool:
        """Whether there is an affine step."""
        stretched = {*self._aspects} != {1.0} and not self.p.random_resized_crop
        turned = self.p.max_rotate_angle > 0 or self.p.rotate > 0 or len(self.p.rotate_list) > 0
        limited = self.p.max_img_size != NO_LIMIT or self.p.min_img_size != 0
        return turned or self._scales or stretched or limited or self.p.max_shear_ratio > 0

    def _interpolation(self, draws: Twister, old: tuple[int, ...], new: tuple[int, ...]) -> int:
        if self.p.inter_method == RANDOM:
            return draws.whole(0, 4)
        if self.p.inter_method != AUTO:
            return self.p.inter_method
        if all(after > before for before, after in zip(old, new, strict=True)):
            return opencv.CUBIC
        if all(after < before for before, after in zip(old, new, strict=True)):
            return opencv.AREA
        return opencv.LINEAR

    def _check_crops(self) -> None:
        square = self._squares
        if self.p.random_resized_crop and (self.p.rand_crop or square or self._scales):
            raise AugmentError(
                "random_resized_crop takes neither rand_crop, min/max_crop_size nor "
                "min/max_random_scale"
            )
        areas, aspects = (self.p.min_random_area, self.p.max_random_area), self._aspects
        if self.p.random_resized_crop and not 0 <= areas[0] <= areas[1]:
            raise AugmentError(
                f"min_random_area={areas[0]} and max_random_area={areas[1]}: the first is at least "
                "0 and at most the second"
            )
        if self.p.random_resized_crop and not 0 < aspects[0] <= aspects[1]:
            raise AugmentError(
                f"random_resized_crop draws aspect ratios from {aspects[0]:.3g} to "
                f"{aspects[1]:.3g}; give a min_aspect_ratio above 0 and at most max_aspect_ratio"
            )
        if square and not 1 <= self.p.min_crop_size <= self.p.max_crop_size:
            raise AugmentError(
                f"min_crop_size={self.p.min_crop_size} and max_crop_size={self.p.max_crop_size} go "
                "together: give both, from 1 on, the first at most the second"
            )


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
        raise AugmentError(
            f"{why} changes colours: pictures need 3 channels, found {picture.shape[2]}"
        )


# -- numbers


@dataclass(frozen=True, eq=False)
class Output:
    """The last step of one iterator.

    Parameters
    ----------
    rules : {"seed", "0.9.5", "1.9.1 v1", "1.9.1"}
        Whose rules.
    p : PictureParameters
        Those from `mirror` on count here, with their old meaning.
    dtype : {"float32", "uint8", "int8"}
        The small ones with rules "1.9.1" only: raw values, and the rounded mean subtracted.
    mean_img : float32 array (channels, height, width), optional
        The mean image itself; the iterators load or compute it.

    Examples
    --------
    >>> picture = np.full((1, 2, 3), 100, np.uint8)
    >>> asked = PictureParameters(mean_r=90, scale=0.5)
    >>> Output(p=asked)(picture, Twister(111))[:, 0, 0].tolist()
    [5.0, 50.0, 50.0]
    """

    rules: Rules = "1.9.1"
    p: PictureParameters = field(default_factory=PictureParameters)
    dtype: str = "float32"
    mean_img: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "uint8", "int8"):
            raise AugmentError(f"dtype={self.dtype!r} must be 'float32', 'uint8' or 'int8'")

    def __call__(self, picture: Picture, draws: Twister) -> npt.NDArray[Any]:
        """Return a picture (height, width, channels) as new planes (channels, height, width)."""
        values = picture.transpose(2, 0, 1)
        if self.mean_img is not None and self.mean_img.shape != values.shape:
            raise AugmentError(
                f"the mean image has shape {self.mean_img.shape}, pictures have {values.shape}; "
                "let the iterator compute another one, or load one of this data_shape"
            )
        # the newest version draws for mirroring first, and nothing else for raw bytes
        first = self.rules == "1.9.1" and self._coin(draws)
        raw = self.dtype == "uint8" and self.rules == "1.9.1"
        contrast, illumination = (F32(1), F32(0)) if raw else self._light(draws)
        mirrored = first if self.rules == "1.9.1" else self._coin(draws)
        out = self._normalised(values, contrast, illumination)
        return np.ascontiguousarray(out[:, :, ::-1] if mirrored else out)

    def _coin(self, draws: Twister) -> bool:
        tossed = self.p.rand_mirror and draws.coin()
        return tossed or self.p.mirror

    def _light(self, draws: Twister) -> tuple[np.float32, np.float32]:
        contrast, illumination = (
            F32(self.p.max_random_contrast),
            F32(self.p.max_random_illumination),
        )
        factor = draws.unit() * contrast * F32(2) - contrast + F32(1)
        return factor, draws.unit() * illumination * F32(2) - illumination

    def _normalised(
        self, values: npt.NDArray[np.uint8], contrast: np.float32, illumination: np.float32
    ) -> npt.NDArray[Any]:
        scale, std = F32(self.p.scale), self._stds[: len(values)]
        if self.dtype == "uint8":
            return values
        if self.dtype == "int8":
            mean = self._mean(len(values))
            whole = np.trunc(mean + np.copysign(F32(0.5), mean))  # half away from zero
            return np.clip(values.astype(np.float32) - whole, -128, 127).astype(np.int8)
        if self.rules == "1.9.1":
            centred = values.astype(np.float32) - self._mean(len(values))
            scaled: FloatArray = centred * (contrast * scale / std) + illumination * scale / std
            return scaled
        if self.rules == "1.9.1 v1":
            centred = values.astype(np.float32) - self._mean(len(values))
            return (centred * contrast + illumination) * scale / std
        if not self._has_means and self.mean_img is None:
            return values.astype(np.float32) * scale
        centred = values.astype(np.float32) - self._mean(len(values))
        return (centred * contrast + illumination) * scale

    def _mean(self, n_channels: int) -> FloatArray:
        """Return what is subtracted, with lengths that go with (channels, height, width)."""
        channels_win = self.rules in ("seed", "0.9.5") and self._has_means
        if self.mean_img is not None and not channels_win:
            return self.mean_img
        return self._means[:n_channels]

    @property
    def _has_means(self) -> bool:
        return bool((self._means > 0).any())

    @cached_property
    def _means(self) -> FloatArray:
        return _column(self.p.mean_r, self.p.mean_g, self.p.mean_b, self.p.mean_a)

    @cached_property
    def _stds(self) -> FloatArray:
        return _column(self.p.std_r, self.p.std_g, self.p.std_b, self.p.std_a)


def mean_of_outputs(outputs: Iterable[FloatArray]) -> FloatArray:
    """Return the mean image that the old iterators made of one pass: summed up in float32.

    Parameters
    ----------
    outputs : iterable of float32 arrays (channels, height, width)
        What came out of `Output` without a mean image, crops, mirrors and scale included.

    Examples
    --------
    >>> mean_of_outputs([np.zeros((1, 1, 2), np.float32), np.ones((1, 1, 2), np.float32)]).tolist()
    [[[0.5, 0.5]]]
    """
    total, count = None, 0
    for output in outputs:
        total = output.astype(np.float32) if total is None else total + output
        count += 1
    if total is None:
        raise AugmentError("no picture came out, so there is no mean image; check path and part")
    return total * (F32(1) / F32(count))


def _column(*values: float) -> FloatArray:
    return np.array(values, np.float32).reshape(-1, 1, 1)
