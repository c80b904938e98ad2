"""What becomes of a picture: the old parameters as transforms of :mod:`labeled.transforms`.

In this order: the shorter edge is resized; pictures are turned, sheared, scaled and stretched;
padded; cropped; their colours are jittered, shifted and made noisy; they are mirrored; means are
subtracted, contrast and illumination changed, and the rest is scaled. All that is drawn is a
function of (seed, epoch, row).

Unlike in the programs that the parameters come from, `crop_y_start` and `crop_x_start` say where
the crop is, negative angles turn the other way, and `scale` comes last with a mean image too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import AugmentError, LoaderError
from labeled.loader.request.arguments import flag
from labeled.transforms import (
    Affine,
    Augment,
    Contrast,
    Crop,
    Illumination,
    Jitter,
    Mirror,
    Normalize,
    OneOf,
    Pad,
    PictureTransform,
    PrincipalNoise,
    RandomCrop,
    RandomResizedCrop,
    RandomSizedCrop,
    Resize,
    ShiftHSL,
)
from labeled.transforms.parameters import number_of
from labeled.transforms.resizing import Method, Sampling

FloatArray = npt.NDArray[np.float32]

SAID_TWICE = re.compile(r"=([^,:]+): \w+=\1 must")
"""A parameter that a transform has by another name."""

METHODS: tuple[Method, ...] = ("nearest", "bilinear", "bicubic", "area", "lanczos")
"""By the number that `inter_method` gives them."""
AUTO, RANDOM = 9, 10

DEGREES_OF_HUE = 2
LARGEST = 255
NO_LIMIT = 1e10
LARGEST_SIDE = 1e5

WARPS = (
    *("rotate", "max_rotate_angle", "rotate_list", "max_shear_ratio", "max_aspect_ratio"),
    *("min_aspect_ratio", "min_random_scale", "max_random_scale", "min_img_size", "max_img_size"),
    *("fill_value", "inter_method"),
)
CROPS = (
    *("crop_y_start", "crop_x_start", "min_crop_size", "max_crop_size"),
    *("min_random_area", "max_random_area", "min_aspect_ratio", "max_aspect_ratio"),
)
NUMBERS = (
    *(f"{what}_{colour}" for what in ("mean", "std") for colour in "rgba"),
    *("scale", "max_random_contrast", "max_random_illumination"),
)
"""Parameters that go to transforms together, under other names."""
AMOUNTS = (
    *("max_rotate_angle", "max_shear_ratio", "random_h", "random_s", "random_l", "pca_noise"),
    *("max_random_contrast", "max_random_illumination"),
)
"""The most that is drawn, either way."""

PICTURE_DIMS = ("height", "width", "channel")
DTYPES = ("float32", "float64", "float16", "uint8", "int8")


@dataclass(frozen=True)
class Look:
    """What becomes of a picture on its way out; parameters by their old names.

    Parameters
    ----------
    resize : int
        What the shorter edge becomes; -1 leaves it.
    rotate, max_rotate_angle, rotate_list : float, float, sequence of float
        Degrees, counter-clockwise: always the first, unless it is -1; else one of the third, if
        there are any; else drawn from plus or minus the second.
    max_shear_ratio, max_aspect_ratio, min_aspect_ratio : float
        Shears are drawn from plus or minus the first; width over height from
        [1 - max_aspect_ratio, 1 + max_aspect_ratio], or [min_aspect_ratio, max_aspect_ratio].
    min_random_scale, max_random_scale : float
    min_img_size, max_img_size : float
        Limits of the sides of a turned or scaled picture.
    fill_value : float
        Around turned and padded pictures.
    pad : int
        Border on all sides.
    inter_method : int
        0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos; 9 by what happens: bicubic, and
        averaging where pictures shrink; 10 one of the first five, drawn. Turned pictures take
        bilinear means with 3.
    rand_crop : bool
        Crop at a random place rather than in the middle. Too small pictures are enlarged.
    crop_y_start, crop_x_start : int
        First row and column of the crop; -1 for the middle.
    min_crop_size, max_crop_size : int
        Crop squares of an edge drawn from these, then resize them; one alone is both.
    random_resized_crop, min_random_area, max_random_area : bool, float, float
        Crop windows of random area and of proportions as above, then resize them.
    brightness, contrast, saturation, pca_noise : float
    random_h, random_s, random_l : float
        Most that is added to hue (of 180), saturation and lightness (of 255).
    mirror, rand_mirror : bool
        Always, or every other picture.
    mean_r, mean_g, mean_b, mean_a, std_r, std_g, std_b, std_a, scale : float
        ``((value - mean) * contrast + illumination) * scale / std``.
    max_random_contrast, max_random_illumination : float
        Contrast is drawn from 1 plus or minus the first, illumination from plus or minus the
        second.
    times : int
        How often all that comes before mirroring is done; pictures are cut to their size anyhow.
    """

    resize: int = -1
    rotate: float = -1
    max_rotate_angle: float = 0
    rotate_list: Sequence[float] = ()
    max_shear_ratio: float = 0
    max_aspect_ratio: float = 0
    min_aspect_ratio: float | None = None
    min_random_scale: float = 1
    max_random_scale: float = 1
    min_img_size: float = 0
    max_img_size: float = NO_LIMIT
    fill_value: float = 255
    pad: int = 0
    inter_method: int = 1
    rand_crop: bool = False
    crop_y_start: int = -1
    crop_x_start: int = -1
    min_crop_size: int = -1
    max_crop_size: int = -1
    random_resized_crop: bool = False
    min_random_area: float = 1
    max_random_area: float = 1
    brightness: float = 0
    contrast: float = 0
    saturation: float = 0
    pca_noise: float = 0
    random_h: float = 0
    random_s: float = 0
    random_l: float = 0
    mirror: bool = False
    rand_mirror: bool = False
    mean_r: float = 0
    mean_g: float = 0
    mean_b: float = 0
    mean_a: float = 0
    std_r: float = 1
    std_g: float = 1
    std_b: float = 1
    std_a: float = 1
    scale: float = 1
    max_random_contrast: float = 0
    max_random_illumination: float = 0
    times: int = 1

    def __post_init__(self) -> None:
        for name in ("rand_crop", "random_resized_crop", "mirror", "rand_mirror"):
            flag(name, getattr(self, name))
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type in ("int", "float") or (one.type == "float | None" and value is not None):
                number_of(one.name, value, least=0 if one.name in AMOUNTS else -math.inf)
        angles: Any = self.rotate_list
        if isinstance(angles, str) or not np.iterable(angles):
            raise AugmentError(f"rotate_list={angles!r} must be a list of degrees")
        for angle in angles:
            number_of("an angle of rotate_list", angle)
        if self.inter_method not in (*range(len(METHODS)), AUTO, RANDOM):
            raise LoaderError(f"inter_method={self.inter_method!r} is none of 0 to 4, 9 and 10")
        ways = {
            "random_resized_crop": self.random_resized_crop,
            "min_crop_size or max_crop_size": self._edges is not None,
            "crop_y_start or crop_x_start": (self.crop_y_start, self.crop_x_start) != (-1, -1),
        }
        given = [name for name, one in ways.items() if one]
        placed = "crop_y_start or crop_x_start" in given and self.rand_crop
        if len(given) > 1 or placed or (self.random_resized_crop and self.rand_crop):
            raise LoaderError(
                f"{' and '.join([*given, *(['rand_crop'] if self.rand_crop else [])])} are ways to "
                "crop that exclude one another"
            )

    def augment(
        self, shape: tuple[int, int, int], dtype: str, mean: FloatArray | None = None
    ) -> Augment:
        """Return all of it as one augmentation.

        Parameters
        ----------
        shape : (channels, height, width)
            Of what comes out.
        dtype : str
        mean : array of that shape, optional
            Subtracted from every picture.
        """
        changed = (*self._placed(shape[1:]), *self._coloured())
        steps = changed * self.times if self.times else (Crop(shape[1:]),)
        numbers = self._numbers(shape[0], dtype, mean)
        return _augment((*steps, *self._mirrored(), *numbers), dtype)

    def still(self, size: tuple[int, int]) -> Augment:
        """Return what shapes pictures with nothing drawn: what a mean image is made of."""
        steps = [Resize(shorter=self.resize)] if self.resize != -1 else []
        return _augment((*steps, Resize(least=size), Crop(size)), "uint8")

    # where pixels go

    def _placed(self, size: tuple[int, int]) -> list[PictureTransform]:
        steps: list[PictureTransform] = []
        if self.resize != -1:
            with self._told("resize"):
                steps.append(self._chosen(lambda how: Resize(shorter=self.resize, method=how)))
        if self._warps:
            with self._told(*WARPS):
                steps.append(self._warped())
        if self.pad:
            with self._told("pad", "fill_value"):
                steps.append(Pad(self.pad, self.fill_value))
        with self._told(*CROPS):
            return [*steps, *self._cropped(size)]

    @contextmanager
    def _told(self, *names: str) -> Iterator[None]:
        """Put before an error which parameters were given."""
        try:
            yield
        except AugmentError as error:
            usual = {one.name: one.default for one in fields(self)}
            given = {name: getattr(self, name) for name in names}
            told = [f"{name}={v!r}" for name, v in given.items() if v != usual[name]]
            words = f"{', '.join(told) or 'pictures'}: {error}"
            raise AugmentError(SAID_TWICE.sub(r"=\1 must", words)) from None

    def _chosen(self, make: Callable[[Method], PictureTransform]) -> PictureTransform:
        """Return a transform that takes new pixels from old ones as `inter_method` says."""
        if self.inter_method == RANDOM:
            return OneOf([make(method) for method in METHODS])
        return make("bicubic" if self.inter_method == AUTO else METHODS[self.inter_method])

    @property
    def _warps(self) -> bool:
        turns = self.rotate != -1 or self.max_rotate_angle or len(self.rotate_list)
        scales = self.min_random_scale != 1 or self.max_random_scale != 1
        limits = self.min_img_size != 0 or self.max_img_size != NO_LIMIT
        stretches = not self.random_resized_crop and any(ratio != 1 for ratio in self._aspect)
        return bool(turns or scales or limits or stretches or self.max_shear_ratio)

    @property
    def _aspect(self) -> tuple[float, float]:
        if self.min_aspect_ratio is None:
            return 1 - self.max_aspect_ratio, 1 + self.max_aspect_ratio
        return self.min_aspect_ratio, self.max_aspect_ratio

    def _warped(self) -> PictureTransform:
        return self._chosen(lambda how: self._turned("bilinear" if how == "area" else how))

    def _turned(self, method: Sampling) -> PictureTransform:
        most = self.max_rotate_angle
        angle = (-most, most) if self.rotate == -1 else self.rotate
        drawn = Affine(
            rotate=angle,
            shear=(-self.max_shear_ratio, self.max_shear_ratio),
            scale=(self.min_random_scale, self.max_random_scale),
            aspect=(1.0, 1.0) if self.random_resized_crop else self._aspect,
            canvas="scaled",
            limits=(max(1.0, self.min_img_size), min(LARGEST_SIDE, self.max_img_size)),
            fill=self.fill_value,
            method=method,
        )
        if self.rotate != -1 or not len(self.rotate_list):
            return drawn
        return OneOf([replace(drawn, rotate=float(angle)) for angle in self.rotate_list])

    def _cropped(self, size: tuple[int, int]) -> list[PictureTransform]:
        if self.random_resized_crop:
            areas = self.min_random_area, self.max_random_area
            crop = partial(RandomResizedCrop, size, areas, self._aspect)
            return [self._chosen(lambda how: crop(method=how))]
        if self._edges is not None:
            square = partial(RandomSizedCrop, size, self._edges, centred=not self.rand_crop)
            return [self._chosen(lambda how: square(method=how))]
        enlarged = self._chosen(lambda how: Resize(least=size, method=how))
        if self.rand_crop:
            return [enlarged, RandomCrop(size)]
        y, x = (None if n == -1 else n for n in (self.crop_y_start, self.crop_x_start))
        return [enlarged, Crop(size, y, x)]

    @property
    def _edges(self) -> tuple[int, int] | None:
        """Least and largest edge of a square crop."""
        least, most = self.min_crop_size, self.max_crop_size
        if least == most == -1:
            return None
        return (most if least == -1 else least), (least if most == -1 else most)

    # what values become

    def _coloured(self) -> list[PictureTransform]:
        steps: list[PictureTransform] = []
        if self.brightness or self.contrast or self.saturation:
            steps.append(Jitter(self.brightness, self.contrast, self.saturation))
        if self.random_h or self.random_s or self.random_l:
            with self._told("random_h", "random_s", "random_l"):
                shares = self.random_s / LARGEST, self.random_l / LARGEST
                steps.append(ShiftHSL(DEGREES_OF_HUE * self.random_h, *shares))
        if self.pca_noise:
            with self._told("pca_noise"):
                steps.append(PrincipalNoise(self.pca_noise))
        return steps

    def _mirrored(self) -> list[PictureTransform]:
        if self.mirror:
            return [Mirror(1.0)]
        return [Mirror(0.5)] if self.rand_mirror else []

    def _numbers(
        self, n_channels: int, dtype: str, mean_image: FloatArray | None
    ) -> list[PictureTransform]:
        means = (self.mean_r, self.mean_g, self.mean_b, self.mean_a)
        stds = (self.std_r, self.std_g, self.std_b, self.std_a)
        if mean_image is not None and any(means):
            raise LoaderError("mean_img and means by channel exclude one another; give one of them")
        changed = any(means) or any(std != 1 for std in stds) or self.scale != 1
        light = self.max_random_contrast or self.max_random_illumination
        if dtype == "uint8":
            if not (changed or light or mean_image is not None):
                return []
            raise LoaderError(
                "dtype='uint8' hands out bytes as they are: leave out means, standard deviations, "
                "scale, contrast and illumination, or ask for a float dtype"
            )
        mean = means[:n_channels] if mean_image is None else mean_image
        with self._told(*NUMBERS):
            steps: list[PictureTransform] = [Normalize(mean)]
            if self.max_random_contrast:
                steps.append(Contrast(self.max_random_contrast, about=0))
            if self.max_random_illumination:
                steps.append(Illumination(self.max_random_illumination))
            return [*steps, Normalize(0, stds[:n_channels], self.scale)]


def _augment(steps: Sequence[PictureTransform], dtype: str) -> Augment:
    return Augment(steps, axes=("b", "c", 0, 1), dtype=dtype, dims=PICTURE_DIMS)
