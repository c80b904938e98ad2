"""How record files are opened, checked when it is said; what of it a source needs to know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from labeled.errors import LoaderError
from labeled.formats.bytesource import stamp_of
from labeled.formats.header import FileStamp
from labeled.formats.pictures import MAX_PIXELS, Channels
from labeled.formats.recordio.decoding import Decoding
from labeled.formats.recordio.index import idx_stamp
from labeled.formats.recordio.reading import RecordFile

Content = Literal["auto", "images", "labelled", "raw"]
CONTENTS = ("auto", "images", "labelled", "raw")
CHANNELS = (None, 1, 3, 4)


@dataclass(frozen=True)
class RecordOptions:
    """What :func:`labeled.open_dataset` takes for record files alone.

    Parameters
    ----------
    content : {"auto", "images", "labelled", "raw"}
        What records hold: pictures behind a header of labels and ids, any bytes behind such a
        header, or any bytes. By default the first records tell pictures from the rest, which
        is "raw".
    index : "auto", path, list of paths or False
        Where records begin: from the ``.idx`` of the same name, if there is one; from these
        files, one for each; or by going through all records.
    channels : {1, 3, 4}, optional
        Decode pictures to grey, colour (red, green, blue), or colour with alpha; else they
        keep what they have.
    resize : int, optional
        Resize pictures so that their shorter edge is so long.
    shape : (height, width), optional
        Cut so much out of the middle, after `resize`.
    upright : bool
        Turn pictures as their EXIF data say; a TIFF is turned either way.
    max_pixels : int
        Refuse larger ones by what their header claims.
    label_list : path, optional
        A ``.lst`` whose labels, by id, take the place of those in the records.
    label_width : int, optional
        Labels a line of the list; more are left out.
    label_dtype : dtype
        Of labels; those that it cannot hold exactly are refused.
    splits : mapping of str to path, optional
        A ``.lst`` a split: its rows are those whose ids are listed, in file order. A warning
        tells of ids that no record has.
    """

    content: Content = "auto"
    index: Any = "auto"
    channels: Channels = None
    resize: int | None = None
    shape: tuple[int, int] | None = None
    upright: bool = True
    max_pixels: int = MAX_PIXELS
    label_list: Any = None
    label_width: int | None = None
    label_dtype: Any = "float32"
    splits: Any = ()

    def __post_init__(self) -> None:
        if self.content not in CONTENTS:
            raise LoaderError(f"content={self.content!r} must be one of {_listed(CONTENTS)}")
        if self.channels not in CHANNELS:
            raise LoaderError(f"channels={self.channels!r} must be one of {_listed(CHANNELS)}")
        for name in ("resize", "label_width", "max_pixels"):
            _check_positive(name, getattr(self, name))
        if self.label_width is not None and self.label_list is None:
            raise LoaderError(
                f"label_width={self.label_width} counts the labels of a list: pass label_list=, or "
                "leave it out (records tell how many labels they have)"
            )
        changed = {
            "shape": _checked_shape(self.shape),
            "index": _checked_index(self.index),
            "label_list": None if self.label_list is None else stamp_of(self.label_list),
            "label_dtype": _checked_dtype(self.label_dtype),
            "splits": _checked_splits(self.splits),
        }
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.channels, self.resize, self.shape, self.upright, self.max_pixels)


def _listed(values: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, values))


def _check_positive(name: str, value: Any) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and not (whole and value >= 1):
        raise LoaderError(f"{name}={value!r} must be a whole number from 1 on")


def _checked_shape(shape: Any) -> tuple[int, int] | None:
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise LoaderError(f"shape={shape!r} must be a pair (height, width)")
    for side in shape:
        _check_positive("shape, a side of", side)
    return int(shape[0]), int(shape[1])


def _checked_index(index: Any) -> Any:
    if index is False or index == "auto":
        return index
    if index is None or index is True:
        raise LoaderError(f"index={index!r} must be 'auto', False, or the path of an .idx file")
    paths = [index] if isinstance(index, str | os.PathLike) else list(index)
    return tuple(idx_stamp(path) for path in paths)


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise LoaderError(f"label_dtype={dtype!r} is no dtype: {error}") from None
    if found.kind not in "iuf":
        raise LoaderError(f"label_dtype={dtype!r}: labels are numbers; give an int or a float")
    return found


def _checked_splits(splits: Any) -> tuple[tuple[str, FileStamp], ...]:
    if isinstance(splits, tuple) and not splits:
        return ()
    if not isinstance(splits, Mapping):
        raise LoaderError(f"splits={splits!r} is no mapping; give {{name of a split: its .lst}}")
    return tuple((str(name), stamp_of(path)) for name, path in splits.items())


@dataclass(frozen=True)
class Detail:
    """What readers of one source of a record file need to know.

    Parameters
    ----------
    records : RecordFile
    decoding : Decoding
        Of pictures.
    label_list : FileStamp, optional
    label_width : int, optional
    raw : bool
        Records have no headers.
    """

    records: RecordFile
    decoding: Decoding = field(default_factory=Decoding)
    label_list: FileStamp | None = None
    label_width: int | None = None
    raw: bool = False
