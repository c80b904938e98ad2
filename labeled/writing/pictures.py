"""Pictures: a folder of them as records, and a source of them as records.

``cat/1.jpg``, ``dog/2.png`` become sources ``images``, ``labels`` (the number of the class, by
name) and ``paths``; the names of the classes are an attribute of ``labels``. Folders
called train, test, valid and the like that have class folders in them are splits.
Pictures without folders have no labels.

The files are copied into records as they are encoded, and read from there like any record file: of
one shape where all are so stored, or are cut to one; else they make a ragged source.

Records hold pictures, labels and ids; what they have no place for is said or refused, never
dropped in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import islice, pairwise
from typing import Any

import numpy as np
import xarray as xr

from labeled.dims import role_of
from labeled.display.progress import progress_bar
from labeled.errors import (
    ArrayError,
    FileFormatError,
    LoaderError,
    OptionError,
    ReadError,
    did_you_mean,
    warn,
)
from labeled.formats.pictures import PictureError, picture_head
from labeled.formats.recordio import Decoding
from labeled.formats.recordio.writing import write_records
from labeled.formats.region import Array
from labeled.formats.replacing import check_target
from labeled.ragged import Ragged
from labeled.ragged.flat import Rows, block_cuts
from labeled.writing.layouts import Storage
from labeled.writing.packing import COUNTED_BYTES
from labeled.writing.write import checked_effort, own_splits

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test",
          "val": "valid", "valid": "valid", "validation": "valid"}  # fmt: skip


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

    def encoded(self, advance: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the files as they are; each must be a picture."""
        for row, path in enumerate(self.paths):
            try:
                with open(os.path.join(self.folder, path), "rb") as file:
                    data = file.read()
                picture_head(data)
            except (OSError, PictureError) as error:
                raise self.bad(row, str(error)) from error
            yield data
            advance(len(data))

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


def more_pictures(folder: str, than: int) -> bool:
    """Whether a folder, and those below it, hold more than so many pictures."""
    return next(islice(_pictures(folder, ""), than, None), None) is not None


def list_pictures(folder: str) -> PictureFiles:
    """List the pictures of a folder, by split, class and name.

    Raises
    ------
    FileFormatError
        If pictures lie both in folders and beside them.
    """
    tops = _folders(folder, "")
    by_split = [top for top in tops if top.lower() in SPLITS and _folders(folder, top)]
    roots = by_split if by_split and len(by_split) == len(tops) else [""]
    names = sorted({cls for root in roots for cls in _folders(folder, root)})
    paths: list[str] = []
    labels: list[int] = []
    splits: dict[str, tuple[int, int]] = {}
    for root in roots:
        start = len(paths)
        for path in _loose(folder, root) if names else ():
            raise FileFormatError(
                f"picture {os.path.join(folder, path)!r} lies beside folders of classes; move it "
                f"into one of {names}, or away"
            )
        for number, name in enumerate(names):
            found = list(_pictures(folder, os.path.join(root, name)))
            paths += found
            labels += [number] * len(found)
        if root:
            splits[SPLITS[root.lower()]] = (start, len(paths))
    if not names:
        paths = list(_loose(folder, ""))
    return PictureFiles(folder, tuple(paths), tuple(names), tuple(labels), splits)


def _entries(folder: str, below: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.path.join(folder, below)) as entries:
            return sorted((e for e in entries if e.name[:1] != "."), key=lambda e: e.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise FileFormatError(f"folder {folder!r} cannot be read: {error.strerror}") from error


def _folders(folder: str, below: str) -> list[str]:
    """Return the folders that hold pictures, however deep."""
    found = [e.name for e in _entries(folder, below) if e.is_dir()]
    return [n for n in found if next(_pictures(folder, os.path.join(below, n)), None) is not None]


def _loose(folder: str, below: str) -> Iterator[str]:
    for entry in _entries(folder, below):
        if entry.is_file() and entry.name.lower().endswith(SUFFIXES):
            yield os.path.join(below, entry.name)


def _pictures(folder: str, below: str) -> Iterator[str]:
    yield from _loose(folder, below)
    for entry in _entries(folder, below):
        if entry.is_dir():
            yield from _pictures(folder, os.path.join(below, entry.name))


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
    budget, _ = checked_effort(options.memory, None)
    images = _pictures_of(dataset)
    row_bytes = int(_row_bytes(dataset, images).max(initial=0))
    needed = row_bytes * HELD_PICTURES
    if options.memory is not None and needed > max(budget, COUNTED_BYTES):
        raise LoaderError(
            f"memory={options.memory!r} is too small for source {images!r}: its largest row takes "
            f"{row_bytes:,} bytes, and .rec needs {needed:,}, as it is read and as it is written; "
            f"give memory='{-(-needed >> 20)} MiB'"
        )
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
        write_records(
            path,
            _each_picture(dataset.select(images), images, budget, advance),
            format=".png",
            ahead_bytes=budget // STRETCHES,
            overwrite=options.overwrite,
            **columns,
        )
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
    found: list[str] = [
        name
        for name in dataset.sources
        if dataset[name].dtype == np.uint8
        and {"height", "width"} <= set(_roles(dataset, name)) <= {"height", "width", "channel"}
    ]
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


def _each_picture(
    one: Any, name: str, budget: int, advance: Callable[[int], None]
) -> Iterator[Array]:
    """Yield pictures by height, width and channel."""
    roles = _roles(one, name)
    axes = [roles.index(role) for role in ("height", "width", "channel") if role in roles]
    for a, b in pairwise(block_cuts(_row_bytes(one, name), max(budget // STRETCHES, 1))):
        rows = one.subset(slice(a, b)).load().loaded[name]
        for row in rows.to_objects() if isinstance(rows, Ragged) else rows:
            image = row.transpose(axes)
            advance(image.nbytes)
            yield image if image.ndim == 3 else image[..., np.newaxis]
