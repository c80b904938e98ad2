"""What a file tells of examples that are objects of their own: their names, their attributes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from glob import has_magic
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.hdf5.attributes import attrs_of, plain_value
from labeled.formats.hdf5.eachplaces import KEPT_FILES, things_of
from labeled.formats.hdf5.handles import h5_of
from labeled.formats.hdf5.safety import to_bytes, to_text
from labeled.formats.header import FileStamp
from labeled.formats.objects import TEXT
from labeled.formats.region import Array

NAME, ATTRIBUTES = "name", "attrs/"
"""What the source of names is called, and how those of attributes begin."""


@dataclass(frozen=True, slots=True)
class Told:
    """What each example that a pattern matches is called, or an attribute that it has.

    Parameters
    ----------
    pattern : str
        From the root of the file.
    attribute : str, optional
        None for names.
    allow_external : bool
    """

    pattern: str
    attribute: str | None
    allow_external: bool = False

    @property
    def words(self) -> str:
        """What it is, for people."""
        return "names of examples" if self.attribute is None else "an attribute of examples"


@lru_cache(maxsize=KEPT_FILES)
def values_of(stamp: FileStamp, told: Told) -> Array:
    """Return the names, or the values of an attribute, of all examples: (n, ...).

    Raises
    ------
    FileFormatError
        If an example has no such attribute, or one of another kind or shape; names it.
    """
    names = things_of(stamp, told.pattern, told.allow_external).names
    if told.attribute is None:
        return np.array([_short(to_text(name), told.pattern) for name in names], object)
    with h5_of(stamp) as file:
        found = [_attribute(file, stamp, to_text(name), told.attribute) for name in names]
    first = np.asarray(found[0])
    for name, value in zip(names, found, strict=True):
        one = np.asarray(value)
        if one.shape != first.shape or (one.dtype.kind == "U") != (first.dtype.kind == "U"):
            raise FileFormatError(
                f"attribute {told.attribute!r} is {value!r} at {to_text(name)!r} in file "
                f"{stamp.path!r}, but {found[0]!r} at {to_text(names[0])!r}; write it again alike, "
                "or leave it out of sources="
            )
    return np.array(found, object if first.dtype.kind == "U" else None)


def dtype_of_values(values: Array) -> np.dtype[Any]:
    """Return how a header notes the dtype of :func:`values_of`."""
    return TEXT if values.dtype.kind == "O" else values.dtype


def attributes_of(file: h5py.File, path: str) -> tuple[str, ...]:
    """Return the attributes of an example that may be sources: numbers, and single texts."""
    values, _ = attrs_of(file[path])
    return tuple(sorted(key for key, value in values.items() if _is_plain(value)))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or np.asarray(value).dtype.kind in "biufc"


def _short(path: str, pattern: str) -> str:
    """Return the part of a path that a pattern leaves open."""
    parts = pattern.strip("/").split("/")
    known = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    return "/".join(path.split("/")[known:])


def _attribute(file: h5py.File, stamp: FileStamp, path: str, key: str) -> Any:
    value = file[path].attrs.get(to_bytes(key))
    if value is None:
        raise FileFormatError(
            f"{path!r} in file {stamp.path!r} has no attribute {key!r}, which other examples have; "
            "leave it out of sources=, or write it there"
        )
    return plain_value(value, scalars=True)
