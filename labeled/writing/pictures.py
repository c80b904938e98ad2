"""Pictures: a folder of them as records, and a source of them as records.

``cat/1.jpg``, ``dog/2.png`` become sources ``images``, ``labels`` (the number of the class, by
name) and ``paths``; the names of the classes are an attribute of ``labels``. Folders
called train, test, valid and the like that have class folders in them are splits.
Pictures without folders have no labels.
With `tables` it is what `labeled.convert` takes besides the files that are opened as they are.

The files are copied into records as they are encoded, and read from there like any record file: of
one shape where all are so stored, or are cut to one; else they make a ragged source.

Records hold pictures, labels and ids; what they have no place for is said or refused, never
dropped in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from labeled.dims import role_of
from labeled.display.progress import Advance, progress_bar
from labeled.errors import ArrayError, FileFormatError, OptionError, ReadError, did_you_mean, warn
from labeled.formats.format import SPLITS
from labeled.formats.pictures import SUFFIXES, PictureError, has_more_frames, picture_head
from labeled.formats.recordio import Decoding
from labeled.formats.recordio.writing import write_records
from labeled.formats.region import Array
from labeled.formats.replacing import check_target
from labeled.ragged import Ragged
from labeled.ragged.flat import Rows, block_cuts
from labeled.writing.layouts import Storage, fits
from labeled.writing.write import own_splits


@dataclass(frozen=True, slots=True)
class PictureFiles:
    """The pictures of a folder, in the order in which they are written.

    Parameters
    ----------
    paths : tuple of str
        Relative to the folder.
    classes : tuple of str
        Their names; empty where pictures lie in no folders.
    """

    folder: str
    paths: tuple[str, ...]
    classes: tuple[str, ...]
    labels: tuple[int, ...]
    splits: dict[str, tuple[int, int]]

    def sources(self, images: Any) -> dict[str, Any]:
        """Return the sources of the folder: pictures, their paths, numbers of their classes."""
        sources = {"paths": np.array(self.paths, object), "images": images}
        if self.classes:
            attrs = {"class_names": list(self.classes)}
            sources["labels"] = xr.DataArray(np.array(self.labels), dims="batch", attrs=attrs)
        return sources

    def encoded(self, advance: Advance) -> Iterator[bytes]:
        """Yield the files as they are; each must be a picture, and more frames are reported."""
        more: list[str] = []
        for row, path in enumerate(self.paths):
            try:
                with open(os.path.join(self.folder, path), "rb") as file:
                    data = file.read()
                picture_head(data)
            except (OSError, PictureError) as error:
                raise self.bad(row, str(error)) from error
            more += [path] if has_more_frames(data) else []
            yield data
            advance(len(data))
        if more:
            words = f"{len(more):,} of the pictures, such as {more[0]!r}, have several frames or"
            warn(f"{words} pages: the first is taken; save the others as files of their own")

    def bad(self, row: int, why: str) -> FileFormatError:
        """Return an error that names a picture."""
        path = os.path.join(self.folder, self.paths[row])
        return FileFormatError(f"row {row}, {path!r}: {why}; fix it or move it away")

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name the file of a picture that cannot be decoded, in place of its copy."""
        try:
            yield
        except ReadError as error:
            found = re.search(r", row (\d+)[^:]*: (.*?)(;|$)", str(error))
            raise error if found is None else self.bad(int(found[1]), found[2]) from error


def picture_paths(folder: str) -> list[str]:
    """Return the pictures in a folder and below it, relative to it: files before folders.

    Raises
    ------
    FileFormatError
        If a folder cannot be read.
    """
    found: list[str] = []

    def refuse(error: OSError) -> None:
        raise FileFormatError(f"folder {folder!r} cannot be read: {error.strerror}") from error

    for top, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        here = os.path.join(os.path.realpath(top), "")
        for name in sorted(folders):
            there = os.path.join(os.path.realpath(os.path.join(top, name)), "")
            if name[0] == "." or here.startswith(there):  # by a link, to a folder above
                folders.remove(name)
        folders.sort()
        names = [n for n in sorted(files) if n[0] != "." and n.lower().endswith(SUFFIXES)]
        found += [os.path.relpath(os.path.join(top, name), folder) for name in names]
    return found


def list_pictures(folder: str, paths: Sequence[str]) -> PictureFiles:
    """Tell splits and classes of pictures by the folders they lie in.

    Raises
    ------
    FileFormatError
        If pictures lie both in folders and beside them.
    """
    parts = [path.split(os.sep) for path in paths]
    tops = sorted({part[0] for part in parts if len(part) > 1})
    deep = {part[0] for part in parts if len(part) > 2}
    by_split = bool(tops) and all(top.lower() in SPLITS and top in deep for top in tops)
    level = 1 if by_split else 0
    names = sorted({part[level] for part in parts if len(part) > level + 1})
    for path, part in zip(paths, parts, strict=True):
        if names and len(part) <= level + 1:
            words = f"picture {os.path.join(folder, path)!r} lies beside folders of classes"
            raise FileFormatError(f"{words}; move it into one of {names}, or away")
    numbers = {name: number for number, name in enumerate(names)}
    labels = tuple(numbers[part[level]] for part in parts) if names else ()
    splits: dict[str, tuple[int, int]] = {}
    for top in tops if by_split else ():
        rows = [row for row, part in enumerate(parts) if part[0] == top]
        splits[SPLITS[top.lower()]] = (rows[0], rows[-1] + 1)
    return PictureFiles(folder, tuple(paths), tuple(names), labels, splits)


def decoding_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the pictures of a folder are decoded: by options of record files, checked.

    Raises
    ------
    LoaderError, OptionError
        If a value does not fit, or an option is of something else.
    """
    known = [one.name for one in fields(Decoding)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise OptionError(f"{name}= means nothing for pictures in a folder; {hint}")
    return asdict(Decoding(**{"channels": 3, **options}))


# records


HELD_PICTURES = 5  # how often the largest picture is held: it is encoded besides
STRETCHES = 8  # what reading, loading and handing out a stretch of rows takes, in stretches


def write_pictures(dataset: Any, target: str | os.PathLike[str], options: Storage) -> str:
    """Write a source of pictures as records of PNG, which loses nothing, with labels and ids.

    Raises
    ------
    ArrayError
        If records cannot hold the sources.
    LoaderError
        If `memory` does not hold the largest picture, as often as it is held.
    WriteError
        If writing fails; nothing is left behind then.
    """
    budget, _ = replace(options, threads=None).effort()
    images = _pictures_of(dataset)
    row_bytes = int(_row_bytes(dataset, images).max(initial=0))
    needed = row_bytes * HELD_PICTURES
    fits(options.memory, budget, needed, images, "write its largest row to .rec")
    path = check_target(target, overwrite=options.overwrite)
    columns = {name: dataset[name].values for name in ("labels", "ids") if name in dataset.sources}
    columns = columns or {"ids": np.arange(dataset.n_rows)}  # without any there is no header
    for name, values in columns.items():
        if values.dtype.kind not in "biuf" or values.ndim > (2 if name == "labels" else 1):
            raise ArrayError(
                f"source {name!r} has dtype {values.dtype} and dims {dataset[name].dims}; .rec "
                f"holds numbers, one a row (or a row of them, of labels)"
            )
    lost = [name for name in dataset.sources if name not in (images, "labels", "ids")]
    if lost:
        warn(f".rec cannot hold the sources {lost}")
    if own_splits(dataset):
        warn(".rec cannot hold splits")
    n_bytes = int(dataset[images].nbytes)
    with progress_bar(options.progress, n_bytes, f"write {os.path.basename(path)}") as advance:
        how: Any = {"format": ".png", "ahead_bytes": budget // STRETCHES, **columns}
        examples = _each_picture(dataset.select(images), images, budget, advance)
        write_records(path, examples, overwrite=options.overwrite, **how)
    return path


def copy_pictures(found: PictureFiles, target: str | os.PathLike[str], options: Storage) -> str:
    """Write the pictures of a folder as records, as they are encoded, with their labels."""
    path = check_target(target, overwrite=options.overwrite)
    n_bytes = sum(os.path.getsize(os.path.join(found.folder, each)) for each in found.paths)
    with progress_bar(options.progress, n_bytes, f"write {os.path.basename(path)}") as advance:
        labels = found.labels or [0] * len(found.paths)
        write_records(path, found.encoded(advance), labels, overwrite=options.overwrite)
    return path


def _pictures_of(dataset: Any) -> str:
    """Return the one source that holds pictures of eight bits."""
    found: list[str] = []
    for name in dataset.sources:
        roles, plane = set(_roles(dataset, name)), {"height", "width"}
        if dataset[name].dtype == np.uint8 and plane <= roles <= plane | {"channel"}:
            found.append(name)
    if len(found) != 1:
        raise ArrayError(
            f".rec holds one source of pictures, uint8 with dims of height and width, and here "
            f"are {found or 'none'}; choose with sources=[...], or name the axes with dims="
        )
    return found[0]


def _row_bytes(dataset: Any, name: str) -> Rows:
    value = dataset[name]
    if isinstance(value, Ragged):
        return value.sizes
    return np.full(len(value), int(np.prod(value.shape[1:], dtype=np.int64)))


def _roles(dataset: Any, name: str) -> list[str]:
    return [role_of(dim) or str(dim) for dim in dataset[name].dims[1:]]


def _each_picture(one: Any, name: str, budget: int, advance: Advance) -> Iterator[Array]:
    """Yield pictures by height, width and channel."""
    roles = _roles(one, name)
    axes = [roles.index(role) for role in ("height", "width", "channel") if role in roles]
    for a, b in pairwise(block_cuts(_row_bytes(one, name), max(budget // STRETCHES, 1))):
        rows = one.subset(slice(a, b)).load().loaded[name]
        for row in rows.to_objects() if isinstance(rows, Ragged) else rows:
            image = row.transpose(axes)
            advance(image.nbytes)
            yield image if image.ndim == 3 else image[..., np.newaxis]
