"""What becomes of a picture: MXNet's parameters as transforms of :mod:`labeled.transforms`.

In this order: the shorter edge is resized; pictures are turned, sheared, scaled and stretched;
padded; cropped; their colours are jittered, shifted and made noisy; they are mirrored; means are
subtracted, contrast and illumination changed, and the rest is scaled. All that is drawn is a
function of (seed, epoch, row).

Unlike in the programs that the parameters come from, `crop_y_start` and `crop_x_start` say where
the crop is, negative angles turn the other way, and `scale` comes last with a mean image too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from labeled._validation import check_fields, number
from labeled.errors import AugmentError, LoaderError
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
from labeled.transforms.resizing import Method, Sampling

FloatArray = npt.NDArray[np.float32]

METHODS: tuple[Method, ...] = ("nearest", "bilinear", "bicubic", "area", "lanczos")
"""By the number that `inter_method` gives them."""
AUTO, RANDOM = 9, 10
INTERPOLATIONS = (*range(len(METHODS)), AUTO, RANDOM)

LARGEST = 255
NO_LIMIT = 1e10
LARGEST_SIDE = 1e5

AMOUNTS = (
    *("max_rotate_angle", "max_shear_ratio", "random_h", "random_s", "random_l", "pca_noise"),
    *("max_random_contrast", "max_random_illumination"),
)
"""The most that is drawn, either way."""


@dataclass(frozen=True)
class PictureParameters:
    """What becomes of a picture on its way out, by the names of MXNet's parameters.

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

    @property
    def aspects(self) -> tuple[float, float]:
        """Limits of width over height."""
        if self.min_aspect_ratio is None:
            return 1 - self.max_aspect_ratio, 1 + self.max_aspect_ratio
        return self.min_aspect_ratio, self.max_aspect_ratio

    @property
    def edges(self) -> tuple[int, int] | None:
        """Least and largest edge of a square crop, if one is asked for."""
        least, most = self.min_crop_size, self.max_crop_size
        if least == most == -1:
            return None
        return (most if least == -1 else least), (least if most == -1 else most)

    @property
    def warps(self) -> bool:
        """Whether pictures are turned, sheared, scaled or stretched."""
        turns = self.rotate != -1 or self.max_rotate_angle or len(self.rotate_list)
        scales = self.min_random_scale != 1 or self.max_random_scale != 1
        limits = self.min_img_size != 0 or self.max_img_size != NO_LIMIT
        stretches = not self.random_resized_crop and any(ratio != 1 for ratio in self.aspects)
        return bool(turns or scales or limits or stretches or self.max_shear_ratio)


def augment_of(
    p: PictureParameters, shape: tuple[int, int, int], dtype: str, mean: FloatArray | None = None
) -> Augment:
    """Return all that parameters ask for as one augmentation.

    Parameters
    ----------
    shape : (channels, height, width)
        Of what comes out.
    dtype : str
    mean : array of that shape, optional
        Subtracted from every picture.

    Raises
    ------
    LoaderError, AugmentError
        If parameters are impossible or exclude one another, with those that were given.
    """
    check_fields(p, AugmentError)
    for name in AMOUNTS:
        number(name, getattr(p, name), least=0, error=AugmentError)
    if p.inter_method not in INTERPOLATIONS:
        raise LoaderError(f"inter_method={p.inter_method!r} must be one of {INTERPOLATIONS}")
    _check_crops(p)
    try:
        steps = (*_placed(p, shape[1:]), *_coloured(p), *_numbers(p, shape[0], dtype, mean))
    except AugmentError as error:
        usual = {one.name: one.default for one in fields(p)}
        given = {name: getattr(p, name) for name in usual if getattr(p, name) != usual[name]}
        told = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise AugmentError(f"{told}: {error}") from None
    return _augment(*steps, dtype=dtype)


def still(p: PictureParameters, size: tuple[int, int]) -> Augment:
    """Return what shapes pictures with nothing drawn: what a mean image is made of."""
    shorter = [Resize(shorter=p.resize)] if p.resize != -1 else []
    return _augment(*shorter, Resize(least=size), Crop(size), dtype="uint8")


def _augment(*steps: PictureTransform, dtype: str) -> Augment:
    return Augment(steps, axes=("b", "c", 0, 1), dtype=dtype, dims=("height", "width", "channel"))


def _check_crops(p: PictureParameters) -> None:
    placed = p.crop_y_start != -1 or p.crop_x_start != -1
    ways = {
        "random_resized_crop": p.random_resized_crop,
        "min_crop_size or max_crop_size": p.edges is not None,
        "crop_y_start or crop_x_start": placed,
        "rand_crop": p.rand_crop and (placed or p.random_resized_crop),
    }
    given = [name for name, one in ways.items() if one]
    if len(given) > 1:
        raise LoaderError(f"{' and '.join(given)} are ways to crop that exclude one another")


def _by_method(
    p: PictureParameters, make: Callable[[Method], PictureTransform]
) -> PictureTransform:
    """Return a transform that takes new pixels from old ones as `inter_method` says."""
    if p.inter_method == RANDOM:
        return OneOf([make(method) for method in METHODS])
    return make("bicubic" if p.inter_method == AUTO else METHODS[p.inter_method])


# where pixels go


def _placed(p: PictureParameters, size: tuple[int, int]) -> list[PictureTransform]:
    steps: list[PictureTransform] = []
    if p.resize != -1:
        steps.append(_by_method(p, lambda how: Resize(shorter=p.resize, method=how)))
    if p.warps:
        steps.append(_by_method(p, lambda how: _turned(p, "bilinear" if how == "area" else how)))
    if p.pad:
        steps.append(Pad(p.pad, p.fill_value))
    if p.random_resized_crop:
        areas = p.min_random_area, p.max_random_area
        crop = partial(RandomResizedCrop, size, areas, p.aspects)
        return [*steps, _by_method(p, lambda how: crop(method=how))]
    if p.edges is not None:
        square = partial(RandomSizedCrop, size, p.edges, centred=not p.rand_crop)
        return [*steps, _by_method(p, lambda how: square(method=how))]
    steps.append(_by_method(p, lambda how: Resize(least=size, method=how)))
    if p.rand_crop:
        return [*steps, RandomCrop(size)]
    y, x = (None if n == -1 else n for n in (p.crop_y_start, p.crop_x_start))
    return [*steps, Crop(size, y, x)]


def _turned(p: PictureParameters, method: Sampling) -> PictureTransform:
    most = p.max_rotate_angle
    drawn = Affine(
        rotate=(-most, most) if p.rotate == -1 else p.rotate,
        shear=(-p.max_shear_ratio, p.max_shear_ratio),
        scale=(p.min_random_scale, p.max_random_scale),
        aspect=(1.0, 1.0) if p.random_resized_crop else p.aspects,
        canvas="scaled",
        limits=(max(1.0, p.min_img_size), min(LARGEST_SIDE, p.max_img_size)),
        fill=p.fill_value,
        method=method,
    )
    if p.rotate != -1 or not len(p.rotate_list):
        return drawn
    return OneOf([replace(drawn, rotate=float(angle)) for angle in p.rotate_list])


# what values become


def _coloured(p: PictureParameters) -> list[PictureTransform]:
    steps: list[PictureTransform] = []
    if p.brightness or p.contrast or p.saturation:
        steps.append(Jitter(p.brightness, p.contrast, p.saturation))
    if p.random_h or p.random_s or p.random_l:  # hue is counted in steps of two degrees
        steps.append(ShiftHSL(2 * p.random_h, p.random_s / LARGEST, p.random_l / LARGEST))
    if p.pca_noise:
        steps.append(PrincipalNoise(p.pca_noise))
    if p.mirror or p.rand_mirror:
        steps.append(Mirror(1.0 if p.mirror else 0.5))
    return steps


def _numbers(
    p: PictureParameters, n_channels: int, dtype: str, mean_image: FloatArray | None
) -> list[PictureTransform]:
    means, stds = (p.mean_r, p.mean_g, p.mean_b, p.mean_a), (p.std_r, p.std_g, p.std_b, p.std_a)
    if mean_image is not None and any(means):
        raise LoaderError("mean_img and means by channel exclude one another; give one of them")
    light = p.max_random_contrast or p.max_random_illumination
    changed = any(means) or set(stds) != {1} or p.scale != 1 or light or mean_image is not None
    if dtype == "uint8":
        if not changed:
            return []
        raise LoaderError(
            "dtype='uint8' hands out bytes as they are: leave out means, standard deviations, "
            "scale, contrast and illumination, or ask for a float dtype"
        )
    steps: list[PictureTransform] = [
        Normalize(means[:n_channels] if mean_image is None else mean_image)
    ]
    if p.max_random_contrast:
        steps.append(Contrast(p.max_random_contrast, about=0))
    if p.max_random_illumination:
        steps.append(Illumination(p.max_random_illumination))
    return [*steps, Normalize(0, stds[:n_channels], p.scale)]
