"""Pictures: a folder of them as sources, and a source of them as records.

``cat/1.jpg``, ``dog/2.png`` become sources ``images``, ``labels`` (the number of the class, by
name) and ``paths``; the names of the classes are an attribute of ``labels``. Folders
called train, test, valid and the like that have class folders in them are splits.
Pictures without folders have no labels.

Pictures are decoded where they are written, by several threads. They are of one shape where
all are so stored, or are cut to one; else they make a ragged source.

Records hold pictures, labels and ids; what they have no place for is said or refused, never
dropped in silence.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from dask.delayed import delayed

from labeled.dims import role_of
from labeled.display.progress import progress_bar
from labeled.errors import (
    ArrayError,
    FileFormatError,
    LoaderError,
    OptionError,
    did_you_mean,
    warn,
)
from labeled.formats.pictures import PictureError, picture_head
from labeled.formats.recordio import Decoding
from labeled.formats.recordio.writing import write_records
from labeled.formats.region import Array
from labeled.formats.replacing import check_target
from labeled.ragged import Ragged
from labeled.ragged.flat import AnyRows, Flat, Rows, block_cuts, elements_of, offsets_of
from labeled.selection import Selection
from labeled.writing.layouts import Storage
from labeled.writing.packing import COUNTED_BYTES
from labeled.writing.source import BLOCK_BYTES
from labeled.writing.write import checked_effort, own_splits

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test",
          "val": "valid", "valid": "valid", "validation": "valid"}  # fmt: skip
HEAD_BYTES = 64 << 10
PIXEL = np.dtype(np.uint8)
DIMS = ("batch", "height", "width", "channel")


@dataclass(frozen=True, slots=True)
class PictureFiles:
    """The pictures of a folder, in the order in which they are written."""

    folder: str
    paths: tuple[str, ...]
    """Relative to the folder."""
    classes: tuple[str, ...]
    """Their names; empty where pictures lie in no folders."""
    labels: tuple[int, ...]
    splits: dict[str, tuple[int, int]]


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


@dataclass(frozen=True)
class Pictures:
    """Files of pictures, decoded as they are read: the reader of a ragged source."""

    folder: str
    paths: tuple[str, ...]
    decoding: Decoding
    kind: str = "pictures"
    why: str = "decoded from files of their own"
    chunk_rows: int = 1
    n_axes: int = 3
    dtype: np.dtype[Any] = PIXEL

    @property
    def n_rows(self) -> int:
        return len(self.paths)

    @property
    def where(self) -> str:
        return f"pictures in {self.folder!r}"

    @cached_property
    def all_shapes(self) -> Rows:
        """The shape of every picture once decoded; reads their heads, where it must."""
        if self.decoding.row_shape is not None:
            return np.tile(np.array(self.decoding.row_shape, np.int64), (self.n_rows, 1))
        heads = map(self._head, range(self.n_rows))
        sizes = [(each.height, each.width, each.channels, each.orientation) for each in heads]
        return self.decoding.shapes(np.array(sizes, np.int32).reshape(-1, 4))

    def _head(self, row: int) -> Any:
        try:
            return picture_head(self._bytes(row, HEAD_BYTES))
        except PictureError:  # more may stand before what it tells
            return self._tried(row, picture_head)

    def _bytes(self, row: int, most: int = -1) -> bytes:
        try:
            with open(os.path.join(self.folder, self.paths[row]), "rb") as file:
                return file.read(most)
        except OSError as error:
            raise self._bad(row, error) from error

    def _tried(self, row: int, use: Callable[[bytes], Any]) -> Any:
        data = self._bytes(row)
        try:
            return use(data)
        except PictureError as error:
            raise self._bad(row, error) from error

    def _bad(self, row: int, error: Exception) -> FileFormatError:
        path = os.path.join(self.folder, self.paths[row])
        return FileFormatError(f"row {row}, {path!r}: {error}; fix it or move it away")

    def encoded(self, advance: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the files as they are; each must be a picture."""
        for row in range(self.n_rows):
            self._head(row)
            data = self._bytes(row)
            yield data
            advance(len(data))

    def stacked(self, start: int, stop: int) -> Array:
        """Decode consecutive pictures of one shape."""
        return np.stack([self._tried(row, self.decoding) for row in range(start, stop)])

    def shapes(self, rows: AnyRows) -> Rows:
        found: Rows = self.all_shapes[np.asarray(rows, np.int64)]
        return found

    def sizes(self, rows: AnyRows) -> Rows:
        return elements_of(self.shapes(rows))

    def read_flat(self, rows: AnyRows) -> Flat:
        shapes = self.shapes(rows)
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), np.uint8)
        for place, row in enumerate(np.asarray(rows, np.int64).tolist()):
            image = self._tried(row, self.decoding)
            if image.shape != tuple(shapes[place].tolist()):
                error = PictureError(f"it has shape {image.shape} where its head says another")
                raise self._bad(row, error)
            out[offsets[place] : offsets[place + 1]] = image.reshape(-1)
        return Flat(out, offsets, shapes)


def decoding_of(options: Mapping[str, Any]) -> Decoding:
    """Return how pictures in a folder are decoded: by the options of record files.

    Raises
    ------
    OptionError
        If an option is of something else.
    """
    known = [one.name for one in fields(Decoding)]
    for name in options:
        if name not in known:
            raise OptionError(
                f"{name}= means nothing for pictures in a folder; {did_you_mean(name, known)}"
            )
    return Decoding(**{"channels": 3, **options})


def picture_sources(found: PictureFiles, decoding: Decoding) -> dict[str, Any]:
    """Return the sources of a folder: pictures, their paths, and the numbers of their classes."""
    pictures = Pictures(found.folder, found.paths, decoding)
    images: Any = Ragged(pictures, Selection.all(pictures.n_rows), DIMS, "images")
    shapes = np.unique(pictures.all_shapes, axis=0)
    if len(shapes) == 1:
        row_shape = tuple(shapes[0].tolist())
        n = max(BLOCK_BYTES // max(math.prod(row_shape), 1), 1)
        blocks = [
            da.from_delayed(delayed(pictures.stacked, pure=False)(a, b), (b - a, *row_shape), PIXEL)
            for a, b in pairwise([*range(0, pictures.n_rows, n), pictures.n_rows])
        ]
        images = xr.DataArray(da.concatenate(blocks), dims=DIMS)
    sources = {"paths": np.array(found.paths, object), "images": images}
    if found.classes:
        attrs = {"class_names": list(found.classes)}
        sources["labels"] = xr.DataArray(np.array(found.labels), dims=DIMS[:1], attrs=attrs)
    return sources


# records


HELD_PICTURES = 5
"""How often the largest picture is held: it is encoded besides."""

STRETCHES = 8
"""What reading, loading and handing out a stretch of rows takes, in stretches."""


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
    if options.memory is not None:
        _check_memory(dataset, images, options.memory, budget)
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
        encoded = Pictures(found.folder, found.paths, Decoding()).encoded(advance)
        labels = found.labels or [0] * len(found.paths)
        write_records(path, encoded, labels, overwrite=options.overwrite)
    return path


def _check_memory(dataset: Any, name: str, memory: float | str, budget: int) -> None:
    row_bytes = int(_row_bytes(dataset, name).max(initial=0))
    needed = row_bytes * HELD_PICTURES
    if needed > max(budget, COUNTED_BYTES):
        raise LoaderError(
            f"memory={memory!r} is too small for source {name!r}: its largest row takes "
            f"{row_bytes:,} bytes, and .rec needs {needed:,}, as it is read and as it is "
            f"written; give memory='{-(-needed >> 20)} MiB'"
        )


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
