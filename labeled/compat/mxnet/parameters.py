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
from dataclasses import dataclass
from types import SimpleNamespace
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


# how text is read


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
    text = text.strip()
    if text[:1] + text[-1:] not in ("()", "[]"):
        return tuple(map(int, text.split(",")))
    lengths = text[1:-1].strip().removesuffix(",")
    return tuple(map(int, lengths.split(","))) if lengths else ()


def integers_of(text: str) -> tuple[int, ...]:
    """Read a list of whole numbers, with or without brackets around it.

    Examples
    --------
    >>> integers_of("0,90,180"), integers_of("(0, 90)")
    ((0, 90, 180), (0, 90))
    """
    return tuple(int(n) for n in text.strip().strip("()[]").split(",") if n.strip())


@dataclass(frozen=True)
class Parameter:
    """One parameter: how its text is read, its default, the least value, and who knew it.

    A parameter that is `optional` stays None where None is given; others take their default.
    """

    read: Callable[[str], Any]
    default: Any = REQUIRED
    least: int | None = None
    optional: bool = False
    since: Rules = "seed"


def each_of(
    read: Callable[[str], Any], since: Rules = "seed", **defaults: Any
) -> dict[str, Parameter]:
    """Return parameters of one kind, by name and default."""
    return {name: Parameter(read, default, since=since) for name, default in defaults.items()}


NAMES = {
    "data_name": Parameter(str, "data"),
    "label_name": Parameter(str, "softmax_label", optional=True),
    "prefetch_buffer": Parameter(integer_of, 4),
}
"""Parameters of every iterator."""

NO_LIMIT = 1e10
NEVER = -1
"""Stands for a size, place or angle that is not asked for."""

IMAGES = {
    **NAMES,
    "data_shape": Parameter(shape_of),
    "batch_size": Parameter(integer_of, least=1),
    "label_width": Parameter(integer_of, 1, least=1),
    "preprocess_threads": Parameter(integer_of, 4, least=1),
    "num_parts": Parameter(integer_of, 1, least=1),
    "rotate_list": Parameter(integers_of, ()),
    **each_of(str, path_imgrec="./data/imgrec.rec", path_imglist="", mean_img=""),
    **each_of(flag_of, round_batch=True, verbose=True, shuffle=False),
    **each_of(flag_of, rand_crop=False, mirror=False, rand_mirror=False),
    **each_of(integer_of, part_index=0, seed=0, fill_value=255, inter_method=1),
    **each_of(integer_of, max_rotate_angle=0, rotate=NEVER, random_h=0, random_s=0, random_l=0),
    **each_of(integer_of, crop_y_start=NEVER, crop_x_start=NEVER),
    **each_of(integer_of, min_crop_size=NEVER, max_crop_size=NEVER),
    **each_of(number_of, max_shear_ratio=0, max_aspect_ratio=0),
    **each_of(number_of, min_random_scale=1, max_random_scale=1),
    **each_of(number_of, min_img_size=0, max_img_size=NO_LIMIT),
    **each_of(number_of, mean_r=0, mean_g=0, mean_b=0, mean_a=0, scale=1),
    **each_of(number_of, max_random_contrast=0, max_random_illumination=0),
    **each_of(integer_of, "0.9.5", resize=NEVER, pad=0),
    "shuffle_chunk_size": Parameter(integer_of, 0, least=0, since="1.9.1 v1"),
    **each_of(integer_of, "1.9.1 v1", shuffle_chunk_seed=0),
    **each_of(str, "1.9.1 v1", aug_seq="aug_default"),
    **each_of(flag_of, "1.9.1 v1", random_resized_crop=False),
    **each_of(number_of, "1.9.1 v1", min_random_area=1, max_random_area=1, min_aspect_ratio=None),
    **each_of(number_of, "1.9.1 v1", brightness=0, contrast=0, saturation=0, pca_noise=0),
    **each_of(number_of, "1.9.1 v1", std_r=1, std_g=1, std_b=1, std_a=1),
    **each_of(str, "1.9.1", path_imgidx="", dtype="float32", ctx="gpu"),
    **each_of(integer_of, "1.9.1", seed_aug=None, device_id=0),
}


def checked_version(version: Any) -> Version:
    """Return the version whose rules are meant."""
    if version not in VERSIONS:
        raise LoaderError(f"version={version!r} is none of {', '.join(map(repr, VERSIONS))}")
    found: Version = version
    return found


def read_parameters(
    iterator: str,
    table: Mapping[str, Parameter],
    given: Mapping[str, Any],
    *,
    strict: bool,
    rules: Rules = "1.9.1",
) -> SimpleNamespace:
    """Return the value of every parameter; those that came after `rules` have their default.

    Raises
    ------
    LoaderError
        If a value cannot be read, is too small, or one that is required is missing.
    OptionError
        With `strict`: if a word is unknown.
    """
    age = RULES.index(rules)
    known = [name for name, one in table.items() if RULES.index(one.since) <= age]
    for name in given:
        if strict and name not in known:
            hint = did_you_mean(name, known, limit=99)
            raise OptionError(f"{iterator} has no parameter {name!r}; {hint}")
    found = {
        name: _value(iterator, name, one, given) if name in known else one.default
        for name, one in table.items()
    }
    return SimpleNamespace(**found)


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


# paths


def files_of(uri: str) -> list[str]:
    """Return the files that a path means, empty ones left out.

    Raises
    ------
    FileFormatError
        If there is none.
    """
    paths = uri.split("#")[0].split("?")[0].split(";")
    found = [file for path in paths if path for file in _files(path.removeprefix("file://"))]
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
    if os.path.isfile(path):
        yield path
        return
    folder, pattern = (path, ".*") if os.path.isdir(path) else os.path.split(path)
    try:
        fits = re.compile(pattern, re.DOTALL).fullmatch
    except re.error:  # a name, and no pattern
        return
    if os.path.isdir(folder or "."):
        with os.scandir(folder or ".") as entries:
            for one in entries:
                if one.is_file() and fits(one.name):
                    yield os.path.join(folder, one.name)
