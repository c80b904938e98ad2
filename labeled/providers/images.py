"""Pictures in record files as a provider: the old parameters, doing what their text says.

Parameters become transforms of :mod:`labeled.augment`, in this order: the shorter edge is resized;
pictures are turned, sheared, scaled and stretched; padded; cropped; their colours are jittered,
shifted and made noisy; they are mirrored; means are subtracted, contrast and illumination changed,
and the rest is scaled. All that is drawn is a function of (seed, epoch, row).

Unlike in the programs that the parameters come from, `crop_y_start` and `crop_x_start` say where
the crop is, negative angles turn the other way, `scale` comes last with a mean image too, and one
`seed` governs everything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled.augment import (
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
    PrincipalNoise,
    RandomCrop,
    RandomResizedCrop,
    RandomSizedCrop,
    Resize,
    ShiftHSL,
    Transform,
    mean_image,
    read_mean_file,
    write_mean_file,
)
from labeled.augment.resizing import Method, Sampling
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource, Source
from labeled.errors import LoaderError
from labeled.loader.arguments import integer
from labeled.loader.build import make_loader
from labeled.loader.sizes import DEFAULT_MEMORY
from labeled.providers.batch import BatchAxis
from labeled.providers.files import open_sources, rows_of
from labeled.providers.keywords import check_keywords, keywords_of
from labeled.providers.served import Feed, LoaderProvider, Serving
from labeled.samplers.permutation import key_of
from labeled.selection import Selection

METHODS: tuple[Method, ...] = ("nearest", "bilinear", "bicubic", "area", "lanczos")
"""By the number that `inter_method` gives them."""
AUTO, RANDOM = 9, 10

DEGREES_OF_HUE = 2
LARGEST = 255
NO_LIMIT = 1e10
LARGEST_SIDE = 1e5

SEEDS = 1 << 63
MEAN_ROWS = 64
"""Pictures of a batch that a mean image is made of."""

PICTURE_DIMS = ("height", "width", "channel")
BATCH_DIMS = ("batch", "channel", "height", "width")
DTYPES = ("float32", "float64", "float16", "uint8")

FloatArray = npt.NDArray[np.float32]

log = logging.getLogger(__name__)


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

    def __post_init__(self) -> None:
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
        steps = (*self._placed(shape[1:]), *self._coloured(), *self._mirrored())
        return _augment((*steps, *self._numbers(shape[0], dtype, mean)), dtype)

    def still(self, size: tuple[int, int]) -> Augment:
        """Return what shapes pictures with nothing drawn: what a mean image is made of."""
        steps = [Resize(shorter=self.resize)] if self.resize != -1 else []
        return _augment((*steps, Resize(least=size), Crop(size)), "uint8")

    # where pixels go

    def _placed(self, size: tuple[int, int]) -> list[Transform]:
        steps: list[Transform] = []
        if self.resize != -1:
            steps.append(self._chosen(lambda how: Resize(shorter=self.resize, method=how)))
        if self._warps:
            steps.append(self._warped())
        if self.pad:
            steps.append(Pad(self.pad, self.fill_value))
        return [*steps, *self._cropped(size)]

    def _chosen(self, make: Callable[[Method], Transform]) -> Transform:
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

    def _warped(self) -> Transform:
        return self._chosen(lambda how: self._turned("bilinear" if how == "area" else how))

    def _turned(self, method: Sampling) -> Transform:
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

    def _cropped(self, size: tuple[int, int]) -> list[Transform]:
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

    def _coloured(self) -> list[Transform]:
        steps: list[Transform] = []
        if self.brightness or self.contrast or self.saturation:
            steps.append(Jitter(self.brightness, self.contrast, self.saturation))
        if self.random_h or self.random_s or self.random_l:
            shares = self.random_s / LARGEST, self.random_l / LARGEST
            steps.append(ShiftHSL(DEGREES_OF_HUE * self.random_h, *shares))
        if self.pca_noise:
            steps.append(PrincipalNoise(self.pca_noise))
        return steps

    def _mirrored(self) -> list[Transform]:
        if self.mirror:
            return [Mirror(1.0)]
        return [Mirror(0.5)] if self.rand_mirror else []

    def _numbers(
        self, n_channels: int, dtype: str, mean_image: FloatArray | None
    ) -> list[Transform]:
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
        steps: list[Transform] = [Normalize(mean)]
        if self.max_random_contrast:
            steps.append(Contrast(self.max_random_contrast, about=0))
        if self.max_random_illumination:
            steps.append(Illumination(self.max_random_illumination))
        return [*steps, Normalize(0, stds[:n_channels], self.scale)]


def _augment(steps: Sequence[Transform], dtype: str) -> Augment:
    return Augment(steps, axes=("b", "c", 0, 1), dtype=dtype, dims=PICTURE_DIMS)


@dataclass(frozen=True)
class _Seeded:
    """An augmentation that may have a seed of its own, whatever the order is drawn from."""

    augment: Augment
    own_seed: int | None

    def __call__(self, images: Any, rows: npt.NDArray[np.int64], seed: int, epoch: int) -> Any:
        drawn_from = seed if self.own_seed is None else self.own_seed
        return self.augment(images, rows=rows, seed=drawn_from, epoch=epoch)


class ImageRecordProvider(LoaderProvider):
    """Batches of pictures in record files; a :class:`~labeled.providers.DataProvider`.

    Parameters
    ----------
    path_imgrec : path, list of paths, glob or folder
        Record files.
    data_shape : (channels, height, width)
        Of the pictures handed out; 1, 3 or 4 channels (grey; red, green, blue; and alpha).
    batch_size : int
    path_imglist : path, optional
        A list whose labels, by id, take the place of those in the records.
    path_imgidx : path, optional
        Where records begin; the ``.idx`` beside a file is found by itself.
    label_width : int
        Labels of a picture; of one label, batches have the shape (batch_size,).
    data_name, label_name : str
        ``label_name=None`` provides no labels, and reads none.
    shuffle : bool
        Another order every epoch.
    seed : int, optional
        Of the order and of all that is drawn; drawn once with None.
    seed_aug : int, optional
        Of what is drawn for pictures, apart from the order.
    shuffle_chunk_size : int
        Shuffle within windows of about so many MiB of records rather than all over the files.
    shuffle_chunk_seed : int
        Joins `seed`.
    num_parts, part_index : int
        How many shares of every epoch there are, and which of them this is.
    round_batch : bool
        Fill the last batch with the first pictures of the same epoch; else with
        `data_padding` and `label_padding`. ``count_samples`` tells the real ones.
    preprocess_threads : int, optional
        Threads that decode and change pictures.
    prefetch_buffer : int, optional
        Windows read ahead.
    verbose : bool
        Log what is read.
    mean_img : path, optional
        A mean image to subtract. Where there is no such file it is computed, over all pictures
        with nothing drawn, and written.
    dtype : {"float32", "float64", "float16", "uint8"}
        Bytes go without means and other arithmetic.
    errors : {"raise", "skip"}
        What becomes of pictures that cannot be decoded: an error, or, without `round_batch`,
        batches that lack them, with a warning.
    max_lost : int or float, optional
        How many pictures, or which share of them, may be left out in an epoch.
    data_padding, label_padding, axes, memory
        As for :class:`ArrayDataProvider`.
    **look
        What becomes of the pictures: the parameters of :class:`Look`.

    Raises
    ------
    FileFormatError
        If a file is missing or damaged.
    LoaderError, AugmentError
        If parameters are unknown, impossible, or exclude one another; before a picture is read.
    """

    def __init__(
        self,
        path_imgrec: Any = "./data/imgrec.rec",
        *,
        data_shape: tuple[int, int, int],
        batch_size: int,
        path_imglist: Any = None,
        path_imgidx: Any = None,
        label_width: int = 1,
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        shuffle: bool = False,
        seed: int | None = 0,
        seed_aug: int | None = None,
        shuffle_chunk_size: int = 0,
        shuffle_chunk_seed: int = 0,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        preprocess_threads: int | None = 4,
        prefetch_buffer: int | None = 4,
        verbose: bool = True,
        mean_img: Any = None,
        dtype: str = "float32",
        errors: Literal["raise", "skip"] = "raise",
        max_lost: int | float | None = None,
        data_padding: float = 0,
        label_padding: float = 0,
        axes: BatchAxis = "first",
        memory: int | str = DEFAULT_MEMORY,
        **look: Any,
    ) -> None:
        own = keywords_of(type(self).__init__)
        check_keywords(type(self).__name__, look, own, [one.name for one in fields(Look)])
        shape = _checked_shape(data_shape)
        if dtype not in DTYPES:
            raise LoaderError(f"dtype={dtype!r} must be one of {', '.join(map(repr, DTYPES))}")
        made = Look(**look)
        made.augment(shape, dtype)  # complain now
        feeds = [Feed(data_name, "images", shape=shape, dims=BATCH_DIMS, made=True)]
        if label_name is not None:
            wide = () if label_width == 1 else (integer("label_width", label_width, least=1),)
            feeds.append(Feed(label_name, "labels", is_label=True, shape=wide))
        lists = {"label_list": path_imglist, "label_width": label_width} if path_imglist else {}
        sources = open_sources(
            path_imgrec,
            "recordio",
            sources=[feed.source for feed in feeds],
            content="images",
            channels=shape[0],
            index=path_imgidx or "auto",
            **lists,
        )
        mean = _mean_image(mean_img, made, sources["images"], shape, memory)
        window = _window_rows(shuffle_chunk_size, sources["images"])
        if shuffle_chunk_seed and seed is not None:
            seed = key_of(seed, shuffle_chunk_seed) % SEEDS
        serving = Serving(
            batch_size=integer("batch_size", batch_size, least=1),
            shuffle=bool(shuffle) if window is None else "window",
            seed=seed,
            part=(part_index, num_parts),
            window_rows=window,
            data_padding=data_padding,
            label_padding=label_padding,
            roll_over=round_batch,
            axes=axes,
            memory=memory,
            threads=preprocess_threads,
            prefetch=prefetch_buffer,
            errors=errors,
            max_lost=max_lost,
            pipeline={"images": _Seeded(made.augment(shape, dtype, mean), seed_aug)},
        )
        super().__init__(sources, rows_of(sources), feeds, serving)
        if verbose:
            log.info("%d pictures for %r", self.n_samples, self)


def _checked_shape(shape: Any) -> tuple[int, int, int]:
    lengths = tuple(shape) if isinstance(shape, list | tuple) else ()
    if len(lengths) != 3 or any(integer("data_shape", n, least=1) < 1 for n in lengths):
        raise LoaderError(f"data_shape={shape!r} must be (channels, height, width)")
    if lengths[0] not in (1, 3, 4):
        raise LoaderError(f"data_shape={shape!r}: pictures have 1, 3 or 4 channels")
    return int(lengths[0]), int(lengths[1]), int(lengths[2])


def _mean_image(
    path: Any, look: Look, source: AnySource, shape: tuple[int, int, int], memory: int | str
) -> FloatArray | None:
    """Return the mean image that a file holds, computed and written first if there is no file."""
    if not path:
        return None
    if not os.path.exists(path):
        log.info("computing the mean image %s", path)
        everything = {"images": Selection.all(source.n_rows)}
        loader = make_loader(
            {"images": source},
            everything,
            {},
            source.n_rows,
            MEAN_ROWS,
            memory=memory,
            pipeline={"images": look.still(shape[1:])},
        )
        made = mean_image((batch.arrays["images"] for batch in loader), dims=BATCH_DIMS)
        write_mean_file(path, made.values)
    mean = read_mean_file(path)
    if mean.shape != shape:
        raise LoaderError(
            f"the mean image {os.fspath(path)!r} has shape {mean.shape}, data_shape is {shape}; "
            "name another file, and it will be computed"
        )
    return mean


def _window_rows(megabytes: Any, source: AnySource) -> int | None:
    """Return how many rows take about so many MiB of the files, if a window is asked for."""
    size = integer("shuffle_chunk_size", megabytes, least=0) << 20
    if not size:
        return None
    assert isinstance(source, Source | RaggedSource)
    n_bytes = sum(header.file.size for header in source.headers)
    return max(1, source.n_rows * size // max(1, n_bytes))
