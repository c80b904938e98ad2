"""Parameters of the old iterators: everything is text, and unknown words were ignored.

Whatever is given is turned into the text that the old programs were handed, and read back by
their rules, so ``True``, ``"true"`` and ``1`` are the same flag and ``yes`` is none. A word that
an iterator does not know is passed over, as it was; ``strict=True`` refuses it instead.

A path is a file; several, joined by semicolons; a folder, whose files come in the order in which
the system lists them; or a pattern that the names in a folder match as a whole. Empty files are
passed over. What follows a ``?`` are options of the parser, what follows a ``#`` named a cache.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import parse_qsl

from labeled.errors import FileFormatError, LoaderError, OptionError, did_you_mean

Version = Literal["seed", "0.9.5", "1.9.1"]
VERSIONS: tuple[Version, ...] = ("seed", "0.9.5", "1.9.1")

Rules = Literal["seed", "0.9.5", "1.9.1 v1", "1.9.1"]
"""The iterators of images, by age: ``"1.9.1 v1"`` is ``ImageRecordIter_v1`` of that version."""
RULES: tuple[Rules, ...] = ("seed", "0.9.5", "1.9.1 v1", "1.9.1")

REQUIRED = object()
"""Marks a parameter without a default."""

SHAPE = re.compile(r"\s*[([]?\s*(-?\d+\s*(?:,\s*-?\d+\s*)*)?(,?)\s*([)\]]?)\s*")


@dataclass(frozen=True)
class Parameter:
    """One parameter: how its text is read, its default, and the least value it may have.

    A parameter that is `optional` stays None where None is given; others take their default.
    """

    read: Callable[[str], Any]
    default: Any = REQUIRED
    least: int | None = None
    optional: bool = False


def read_parameters(
    iterator: str, known: Mapping[str, Parameter], given: Mapping[str, Any], *, strict: bool
) -> dict[str, Any]:
    """Return the value of every known parameter.

    Raises
    ------
    LoaderError
        If a value cannot be read, is too small, or one that is required is missing.
    OptionError
        With `strict`: if a word is unknown.
    """
    for name in given:
        if strict and name not in known:
            hint = did_you_mean(name, known, limit=99)
            raise OptionError(f"{iterator} has no parameter {name!r}; {hint}")
    return {name: _value(iterator, name, one, given) for name, one in known.items()}


def _value(iterator: str, name: str, parameter: Parameter, given: Mapping[str, Any]) -> Any:
    value = given.get(name)
    if value is None:
        if parameter.optional and name in given:
            return None
        if parameter.default is REQUIRED:
            raise LoaderError(f"{iterator}: the parameter {name} is required and was not given")
        return parameter.default
    try:
        found = parameter.read(str(value))
    except ValueError:
        kind = parameter.read.__name__.removesuffix("_of")
        raise LoaderError(f"{iterator}: {name}={value!r} is not a valid {kind}") from None
    except OverflowError:
        raise LoaderError(f"{iterator}: {name}={value!r} is too large for 32 bits") from None
    if parameter.least is not None and found < parameter.least:
        raise LoaderError(f"{iterator}: {name}={value!r} must be at least {parameter.least}")
    return found


def checked_version(version: Any) -> Version:
    """Return the version whose rules are meant."""
    if version not in VERSIONS:
        raise LoaderError(f"version={version!r} is none of {', '.join(map(repr, VERSIONS))}")
    found: Version = version
    return found


def text_of(text: str) -> str:
    """Return a text as it is."""
    return text


def integer_of(text: str) -> int:
    """Read a whole number of 32 bits, as every version kept them."""
    found = int(text)
    if not -(1 << 31) <= found < 1 << 31:
        raise OverflowError(text)
    return found


def number_of(text: str) -> float:
    """Read a finite number."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def flag_of(text: str) -> bool:
    """Read a flag: true, false, 1 or 0, in letters of any case.

    Examples
    --------
    >>> flag_of("True"), flag_of("0")
    (True, False)
    """
    word = text.strip().lower()
    if word not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return word in ("true", "1")


def shape_of(text: str) -> tuple[int, ...]:
    """Read a shape, with brackets or, for a single length, without.

    Examples
    --------
    >>> shape_of("(3, 48, 64)"), shape_of("[4]"), shape_of("4"), shape_of("()")
    ((3, 48, 64), (4,), (4,), ())
    """
    found = SHAPE.fullmatch(text)
    opened = text.strip()[:1] in ("(", "[")
    if found is None or opened != bool(found[3]) or (not opened and found[2]):
        raise ValueError(text)
    numbers = found[1]
    if numbers is None and (found[2] or not opened):
        raise ValueError(text)
    return tuple(int(n) for n in numbers.split(",")) if numbers else ()


def integers_of(text: str) -> tuple[int, ...]:
    """Read a list of whole numbers, with or without brackets around it.

    Examples
    --------
    >>> integers_of("0,90,180"), integers_of("(0, 90)")
    ((0, 90, 180), (0, 90))
    """
    return tuple(int(n) for n in text.strip().strip("()[]").split(",") if n.strip())


# what the iterators of images know

NAMES = {
    "data_name": Parameter(text_of, "data"),
    "label_name": Parameter(text_of, "softmax_label", optional=True),
}
"""Parameters of every iterator."""

NO_LIMIT = 1e10


@dataclass(frozen=True)
class PictureParameters:
    """What an iterator of images does to a picture, by the names of its parameters.

    They are read by their annotations. A side, place or angle of -1 stands for none; what
    `inter_method` means is in :mod:`.augmenter`, what `mirror` and later ones mean in
    :class:`~.augmenter.Output`.
    """

    resize: int = -1
    rotate: int = -1
    max_rotate_angle: int = 0
    rotate_list: tuple[int, ...] = ()
    max_shear_ratio: float = 0
    max_aspect_ratio: float = 0
    min_aspect_ratio: float | None = None
    min_random_scale: float = 1
    max_random_scale: float = 1
    min_img_size: float = 0
    max_img_size: float = NO_LIMIT
    fill_value: int = 255
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
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
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


READERS = {"int": integer_of, "bool": flag_of, "tuple[int, ...]": integers_of}
OF_PICTURES = {
    one.name: Parameter(READERS.get(str(one.type), number_of), one.default)
    for one in fields(PictureParameters)
}
OF_IMAGES = {
    **NAMES,
    "path_imgrec": Parameter(text_of, "./data/imgrec.rec"),
    "path_imglist": Parameter(text_of, ""),
    "label_width": Parameter(integer_of, 1, least=1),
    "data_shape": Parameter(shape_of),
    "batch_size": Parameter(integer_of, least=1),
    "round_batch": Parameter(flag_of, True),
    "prefetch_buffer": Parameter(integer_of, 4),
    "preprocess_threads": Parameter(integer_of, 4, least=1),
    "verbose": Parameter(flag_of, True),
    "num_parts": Parameter(integer_of, 1, least=1),
    "part_index": Parameter(integer_of, 0),
    "shuffle": Parameter(flag_of, False),
    "seed": Parameter(integer_of, 0),
    "mean_img": Parameter(text_of, ""),
    **OF_PICTURES,
    "shuffle_chunk_size": Parameter(integer_of, 0, least=0),
    "shuffle_chunk_seed": Parameter(integer_of, 0),
    "aug_seq": Parameter(text_of, "aug_default"),
    "path_imgidx": Parameter(text_of, ""),
    "seed_aug": Parameter(integer_of, None),
    "dtype": Parameter(text_of, "float32"),
    "ctx": Parameter(text_of, "gpu"),
    "device_id": Parameter(integer_of, 0),
}
SINCE: dict[Rules, tuple[str, ...]] = {
    "0.9.5": ("resize", "pad"),
    "1.9.1 v1": (
        *("min_aspect_ratio", "random_resized_crop", "min_random_area", "max_random_area"),
        *("brightness", "contrast", "saturation", "pca_noise", "std_r", "std_g", "std_b", "std_a"),
        *("shuffle_chunk_size", "shuffle_chunk_seed", "aug_seq"),
    ),
    "1.9.1": ("path_imgidx", "seed_aug", "dtype", "ctx", "device_id"),
}
"""The parameters that came later than the seed; the others were there from the beginning."""


def image_parameters(rules: Rules) -> dict[str, Parameter]:
    """Return the parameters that an iterator of images knew.

    Examples
    --------
    >>> [name for name in SINCE["0.9.5"] if name in image_parameters("seed")]
    []
    """
    later = RULES[RULES.index(rules) + 1 :]
    unknown = {name for one in later for name in SINCE[one]}
    known = {name: one for name, one in OF_IMAGES.items() if name not in unknown}
    if rules in ("1.9.1 v1", "1.9.1"):
        known["path_imgrec"] = Parameter(text_of)
    return known


# paths


def files_of(uri: str) -> list[str]:
    """Return the files that a path means, empty ones left out.

    Raises
    ------
    FileFormatError
        If there is none.
    """
    paths = uri.split("#")[0].split("?")[0]
    found = [file for path in paths.split(";") if path for file in _files(path)]
    sized = [file for file in found if os.path.getsize(file)]
    if not sized:
        raise FileFormatError(f"no file with anything in it matches {uri!r}")
    return sized


def options_of(uri: str) -> dict[str, str]:
    """Return what follows the ``?`` of a path.

    Examples
    --------
    >>> options_of("a.csv?delimiter=;&label_column=0")
    {'delimiter': ';', 'label_column': '0'}
    """
    _, _, options = uri.split("#")[0].partition("?")
    return dict(parse_qsl(options, keep_blank_values=True, separator="&"))


def _files(path: str) -> Iterator[str]:
    path = path.removeprefix("file://")
    if os.path.isfile(path):
        yield path
        return
    folder, pattern = (path, None) if os.path.isdir(path) else os.path.split(path)
    if not os.path.isdir(folder or "."):
        return
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.is_file() and (pattern is None or _matches(pattern, entry.name)):
                yield os.path.join(folder, entry.name)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return False
