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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import parse_qsl

import numpy as np

from labeled._validation import check_keywords
from labeled.errors import FileFormatError, LoaderError

Version = Literal["seed", "0.9.5", "1.9.1"]
VERSIONS: tuple[Version, ...] = ("seed", "0.9.5", "1.9.1")

# the iterators of images, by age: `"1.9.1 v1"` is `ImageRecordIter_v1` of that version
Rules = Literal["seed", "0.9.5", "1.9.1 v1", "1.9.1"]
RULES: tuple[Rules, ...] = ("seed", "0.9.5", "1.9.1 v1", "1.9.1")

REQUIRED = object()  # marks a parameter without a default


# how text is read


def integer_of(text: str) -> int:
    """Read a whole number of 32 bits, as every version kept them."""
    return int(np.int32(text))


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
    """How the text of one parameter is read, its default, and the first rules that knew it."""

    read: Callable[[str], Any]
    default: Any = REQUIRED
    since: Rules = "seed"


# how parameters are read, by the type of their default
READERS: Mapping[type, Callable[[str], Any]] = {
    bool: flag_of, int: integer_of, float: number_of, str: str,
}  # fmt: skip

ONE_OR_MORE = ("batch_size", "label_width", "preprocess_threads", "num_parts")
# least values, by name
LEAST = {**dict.fromkeys(ONE_OR_MORE, 1), "part_index": 0, "shuffle_chunk_size": 0}


def each_of(since: Rules = "seed", **defaults: Any) -> dict[str, Parameter]:
    """Return parameters by name and default."""
    return {name: Parameter(READERS[type(one)], one, since) for name, one in defaults.items()}


# parameters of every iterator
NAMES = {
    **each_of(data_name="data", label_name="softmax_label", prefetch_buffer=4),
    "batch_size": Parameter(integer_of),
}

NO_LIMIT = 1e10
NEVER = -1  # stands for a size, place or angle that is not asked for

# the parameters of each iterator
TABLES: Mapping[str, Mapping[str, Parameter]] = {
    "CSVIter": {
        **NAMES,
        "data_csv": Parameter(str),
        "data_shape": Parameter(shape_of),
        "label_shape": Parameter(shape_of, (1,)),
        **each_of(label_csv="NULL", dtype="float32", round_batch=True),
    },
    "MNISTIter": {
        **NAMES,
        **each_of(image="./train-images-idx3-ubyte", label="./train-labels-idx1-ubyte"),
        **each_of(dtype="float32", shuffle=True, flat=False, silent=False, seed=0),
        **each_of(batch_size=128, num_parts=1, part_index=0),
    },
    "ImageRecordIter": {
        **NAMES,
        "data_shape": Parameter(shape_of),
        "rotate_list": Parameter(integers_of, ()),
        **each_of(path_imgrec="./data/imgrec.rec", path_imglist="", mean_img="", label_width=1),
        **each_of(round_batch=True, shuffle=False, seed=0, num_parts=1, part_index=0),
        **each_of(verbose=True, preprocess_threads=4, fill_value=255, inter_method=1),
        **each_of(rand_crop=False, crop_y_start=NEVER, crop_x_start=NEVER),
        **each_of(min_crop_size=NEVER, max_crop_size=NEVER, max_rotate_angle=0, rotate=NEVER),
        **each_of(min_img_size=0.0, max_img_size=NO_LIMIT),
        **each_of(max_shear_ratio=0.0, max_aspect_ratio=0.0),
        **each_of(min_random_scale=1.0, max_random_scale=1.0, random_h=0, random_s=0, random_l=0),
        **each_of(mirror=False, rand_mirror=False, mean_r=0.0, mean_g=0.0, mean_b=0.0, mean_a=0.0),
        **each_of(max_random_contrast=0.0, max_random_illumination=0.0, scale=1.0),
        **each_of("0.9.5", resize=NEVER, pad=0),
        **each_of("1.9.1 v1", shuffle_chunk_size=0, shuffle_chunk_seed=0, aug_seq="aug_default"),
        **each_of("1.9.1 v1", random_resized_crop=False, min_random_area=1.0, max_random_area=1.0),
        "min_aspect_ratio": Parameter(number_of, None, "1.9.1 v1"),
        **each_of("1.9.1 v1", brightness=0.0, contrast=0.0, saturation=0.0, pca_noise=0.0),
        **each_of("1.9.1 v1", std_r=1.0, std_g=1.0, std_b=1.0, std_a=1.0),
        **each_of("1.9.1", path_imgidx="", dtype="float32", ctx="gpu", device_id=0),
        "seed_aug": Parameter(integer_of, None, "1.9.1"),
    },
}


def read_parameters(
    iterator: str, given: Mapping[str, Any], version: Version, strict: bool, rules: Rules = "1.9.1"
) -> SimpleNamespace:
    """Return the value of every parameter; those that came after `rules` have their default.

    Raises
    ------
    LoaderError
        If a value cannot be read, is too small, or one that is required is missing; if there is
        no such version.
    OptionError
        With `strict`: if a word is unknown.
    """
    if version not in VERSIONS:
        raise LoaderError(f"version={version!r} is none of {', '.join(map(repr, VERSIONS))}")
    table, age = TABLES[iterator], RULES.index(rules)
    known = [name for name, one in table.items() if RULES.index(one.since) <= age]
    if strict:
        check_keywords(iterator, given, known)
    found = {name: one.default for name, one in table.items()}
    for name in known:
        value = given.get(name)
        if value is None:
            if name == "label_name" and name in given:  # None means none here, else the default
                found[name] = None
            elif found[name] is REQUIRED or (name == "path_imgrec" and version == "1.9.1"):
                raise LoaderError(f"{iterator}: the parameter {name} is required and was not given")
            continue
        read = table[name].read
        try:
            found[name] = read(str(value))
        except ValueError:
            kind = read.__name__.removesuffix("_of")
            raise LoaderError(f"{iterator}: {name}={value!r} is not a valid {kind}") from None
        except OverflowError:
            raise LoaderError(f"{iterator}: {name}={value!r} is too large for 32 bits") from None
        if name in LEAST and found[name] < LEAST[name]:
            raise LoaderError(f"{iterator}: {name}={value!r} must be at least {LEAST[name]}")
    return SimpleNamespace(**found)


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


def _files(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    folder, pattern = (path, ".*") if os.path.isdir(path) else os.path.split(path)
    try:
        fits, inside = re.compile(pattern, re.DOTALL).fullmatch, os.listdir(folder or ".")
    except (re.error, OSError):  # a name, and neither a pattern nor in a folder
        return []
    files = [os.path.join(folder, name) for name in inside if fits(name)]
    return [file for file in files if os.path.isfile(file)]
