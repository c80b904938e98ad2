"""The way out: rows of a dataset as ``.npz``, ``.npy``, parquet or CSV.

Rows are read in stretches of bounded size. What a format has no place for is said or
refused, never dropped in silence; ``.npz`` and parquet carry dims, splits and attributes
beside the rows, so converting back gives the same dataset.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from hashlib import blake2b
from typing import Any

import numpy as np
import xarray as xr

from labeled.dims import role_of
from labeled.errors import ArrayError, LoaderError, warn
from labeled.formats.recordio.writing import write_records
from labeled.formats.region import Array
from labeled.formats.replacing import check_target, replacing
from labeled.ragged import Ragged
from labeled.ragged.flat import Flat
from labeled.writing.folders import Pictures
from labeled.writing.numpyfiles import OWN, new_npz, put_array, put_member, put_note
from labeled.writing.progress import progress_bar
from labeled.writing.streaming import COUNTED_BYTES
from labeled.writing.stretches import STRETCHES, Opened, largest_row, rows_of, stretches
from labeled.writing.tables import ParquetWriter
from labeled.writing.write import checked_effort, own_splits

Told = Callable[[int], None]

VALUE_BYTES = 16
"""What a value takes at least on its way into a table: an object, or with its place in a list."""

HELD_ROWS = 3
"""How often a row is held that takes more than its part of the memory ..."""

HELD_PICTURES = 5
"""... and a picture, which is encoded besides."""

MOST_LISTED = 10_000_000
"""Rows of splits that are noted one by one in a parquet file."""


def export(
    dataset: Opened,
    target: str | os.PathLike[str],
    *,
    overwrite: bool,
    memory: int | str | None,
    progress: bool | None,
) -> str:
    """Write the rows of a dataset to a file of another kind, told by its suffix.

    Parameters
    ----------
    target : path
    overwrite : bool
        Replace a file that is there.
    memory : int or str, optional
    progress : bool, optional
        Both as for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ArrayError
        If the format cannot hold the sources.
    LoaderError
        If `memory` does not hold the largest row, as often as it is held.
    WriteError
        If writing fails; nothing is left behind then.
    """
    suffix = os.path.splitext(os.fspath(target))[1].lower()
    budget, _ = checked_effort(memory, None)
    if memory is not None and dataset.sources:
        _check_memory(dataset, suffix, memory, budget)
    if suffix == ".rec":
        return _to_records(dataset, target, overwrite, budget, progress)
    if suffix != ".npz":
        _check_shapes(dataset, suffix)
    path = check_target(target, overwrite=overwrite)
    n_bytes = sum(int(dataset[name].nbytes) for name in dataset.sources)
    bar = progress_bar(progress, n_bytes, f"write {os.path.basename(path)}")
    with bar as told, replacing(path, overwrite=overwrite) as part:
        EXPORTERS[suffix](dataset, part, budget, told)
    return path


def _check_memory(dataset: Opened, suffix: str, memory: int | str, budget: int) -> None:
    row_bytes, name = largest_row(dataset)
    needed = row_bytes * (HELD_PICTURES if suffix == ".rec" else HELD_ROWS)
    if needed > max(budget, COUNTED_BYTES):
        raise LoaderError(
            f"memory={memory!r} is too small for source {name!r}: its largest row takes "
            f"{row_bytes:,} bytes, and {suffix} needs {needed:,}, as it is read and as it is "
            f"written; give memory='{-(-needed >> 20)} MiB'"
        )


def _check_shapes(dataset: Opened, suffix: str) -> None:
    """Refuse what a format cannot hold, before anything is written."""
    most = {".npy": 64, ".csv": 2}.get(suffix, 2)
    if suffix == ".npy" and len(dataset.sources) != 1:
        raise ArrayError(
            f"a .npy file holds one array, not {list(dataset.sources)}; choose one with "
            f"sources=[...], or write .npz"
        )
    for name in dataset.sources:
        value = dataset[name]
        if isinstance(value, Ragged) and (suffix != ".parquet" or len(value.dims) > 2):
            raise ArrayError(
                f"source {name!r} holds examples of different shapes, for which {suffix} has no "
                f"place; write .npz, or leave it out with sources=[...]"
            )
        if len(value.dims) > most:
            raise ArrayError(
                f"source {name!r} has dims {value.dims}; {suffix} holds one or two axes, so write "
                f".npz, or leave it out with sources=[...]"
            )
        if not isinstance(value, Ragged) and 0 in value.shape[1:] and suffix != ".npy":
            raise ArrayError(
                f"source {name!r} has rows without values, for which {suffix} has no place; write "
                f".npz, or leave it out with sources=[...]"
            )
        if value.dtype.kind == "f" and value.dtype.itemsize > 8 and suffix == ".parquet":
            raise ArrayError(
                f"source {name!r} is {value.dtype}, for which {suffix} has no place; write .npz, "
                f"or leave it out with sources=[...]"
            )
        if value.dtype.kind == "c" and suffix != ".npy":
            raise ArrayError(
                f"source {name!r} holds complex numbers, for which {suffix} has no place; write "
                f".npz, or leave it out with sources=[...]"
            )


def _counted(values: Array, told: Told) -> Array:
    told(values.nbytes)
    return values


# NumPy's files


def _to_npz(dataset: Opened, part: str, budget: int, told: Told) -> None:
    note: dict[str, Any] = {
        "dims": {name: [str(dim) for dim in dataset[name].dims] for name in dataset.sources},
        "attrs": plain(dataset.attrs),
        "source_attrs": {name: plain(dataset[name].attrs) for name in dataset.sources},
        "ragged": [name for name in dataset.sources if isinstance(dataset[name], Ragged)],
        "splits": {},
    }
    with new_npz(part) as archive:
        for name in dataset.sources:
            one = dataset.select(name)
            if name in note["ragged"]:
                _ragged_members(archive, one, name, budget, told)
            else:
                dtype = _numpy_dtype(one, name, budget)
                blocks = _blocks(one, name, dtype, budget, told)
                put_member(archive, name, dtype, one[name].shape, blocks)
        written: dict[bytes, str] = {}
        for split, by_source in (own_splits(dataset) or {}).items():
            noted: dict[str, Any] = {}
            note["splits"][split] = noted
            for name, rows in by_source.items():
                if isinstance(rows, range):
                    noted[name] = [rows.start, rows.stop]
                    continue
                listed = np.asarray(rows, np.int64)
                own = f"{OWN}/{split}/{name}"
                noted[name] = written.setdefault(blake2b(listed.data).digest(), own)
                if noted[name] == own:  # sources that share a list go on sharing it
                    put_member(archive, own, listed.dtype, listed.shape, [listed])
        put_note(archive, note)


def _ragged_members(archive: Any, one: Opened, name: str, budget: int, told: Told) -> None:
    ragged = one[name]
    shapes, sizes = ragged.shapes, ragged.sizes
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    put_member(archive, f"{OWN}/{name}/offsets", offsets.dtype, offsets.shape, [offsets])
    put_member(archive, f"{OWN}/{name}/shapes", shapes.dtype, shapes.shape, [shapes])
    blocks = (
        _counted(rows_of(some, name).flat(threads=1).values, told)
        for some in stretches(one, budget)
    )
    put_member(archive, name, ragged.dtype, (int(offsets[-1]),), blocks)


def _blocks(
    one: Opened, name: str, dtype: np.dtype[Any], budget: int, told: Told
) -> Iterator[Array]:
    """Yield rows to be stored as `dtype`, in which every text is as wide as the longest."""
    made_bytes = dtype.itemsize * int(np.prod(one[name].shape[1:], dtype=np.int64))
    made_bytes = made_bytes if one[name].dtype.kind == "O" else 0
    for some in stretches(one, budget, made_bytes=made_bytes):
        yield _counted(rows_of(some, name), told)


def _numpy_dtype(one: Opened, name: str, budget: int) -> np.dtype[Any]:
    """Return the dtype of a source in a ``.npy``: texts get the width of the longest one."""
    array = one[name]
    if array.dtype.kind != "O":
        kept: np.dtype[Any] = array.dtype
        return kept
    longest = 1
    for some in stretches(one, budget):
        texts = rows_of(some, name).reshape(-1).tolist()
        longest = max([longest, *map(len, texts)])
        ending = next((text for text in texts if text[-1:] in ("\0", b"\0")), None)
        if ending is not None:
            raise ArrayError(
                f"source {name!r} has the text {ending!r:.60}, and NumPy cuts the NUL at its end; "
                f"write .parquet, or leave it out with sources=[...]"
            )
    dtype: np.dtype[Any] = np.dtype(f"U{longest}")
    return dtype


def _to_npy(dataset: Opened, part: str, budget: int, told: Told) -> None:
    (name,) = dataset.sources
    dtype = _numpy_dtype(dataset, name, budget)
    with open(part, "wb") as file:
        blocks = _blocks(dataset, name, dtype, budget, told)
        put_array(file, dtype, dataset[name].shape, blocks)
    _say_lost(dataset, ".npy")


# tables


def _to_parquet(dataset: Opened, part: str, budget: int, told: Told) -> None:
    splits = own_splits(dataset) or {}
    listed = sum(
        len(rows)
        for by_source in splits.values()
        for rows in by_source.values()
        if not isinstance(rows, range)
    )
    if listed > MOST_LISTED:
        raise ArrayError(
            f"the splits list {listed:,} rows one by one, too many to be noted in a parquet file; "
            f"write .npz, or make the splits stretches with labeled repack --order splits"
        )
    note = {
        "dims": {name: [str(dim) for dim in dataset[name].dims] for name in dataset.sources},
        "attrs": plain(dataset.attrs),
        "source_attrs": {name: plain(dataset[name].attrs) for name in dataset.sources},
        "splits": {
            split: {
                name: [rows.start, rows.stop]
                if isinstance(rows, range)
                else [np.asarray(rows).tolist()]
                for name, rows in by_source.items()
            }
            for split, by_source in splits.items()
        },
    }
    with closing(ParquetWriter(part, note)) as writer:
        for some in _at_least_one(dataset, budget):
            columns = {name: _column(rows_of(some, name)) for name in some.sources}
            writer.put(columns)
            told(
                sum(
                    each.values.nbytes if isinstance(each, Flat) else each.nbytes
                    for each in columns.values()
                )
            )


def _at_least_one(dataset: Opened, budget: int) -> Iterator[Opened]:
    """Yield stretches; an empty one where there are no rows, so that columns are known."""
    if dataset.n_rows:
        yield from stretches(dataset, budget, value_bytes=VALUE_BYTES)
    else:
        yield dataset.load()


def _column(value: Any) -> Any:
    return value.flat(threads=1) if isinstance(value, Ragged) else value


def _to_csv(dataset: Opened, part: str, budget: int, told: Told) -> None:
    head = [title for name in dataset.sources for title in _titles(dataset[name], name)]
    with open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for some in stretches(dataset, budget, value_bytes=VALUE_BYTES):
            columns: list[Any] = []
            for name in some.sources:
                values = _counted(rows_of(some, name), told)
                columns += [_cells(column) for column in values.reshape(len(values), -1).T]
            writer.writerows(zip(*columns, strict=True))
    _say_lost(dataset, ".csv")


def _titles(array: xr.DataArray, name: str) -> list[str]:
    if array.ndim == 1:
        return [name]
    return [f"{name}_{place}" for place in range(array.shape[1])]


def _cells(column: Array) -> list[Any]:
    """Return values as CSV has them: the shortest text that reads back as the same number."""
    kind = column.dtype.kind
    if kind == "f" and column.dtype.itemsize < 8:
        return list(map(str, column))
    if kind == "M":
        return list(np.datetime_as_string(column))
    if kind == "S":
        return [text.decode("utf-8", "backslashreplace") for text in column.tolist()]
    numbers = column.astype(np.uint8) if kind == "b" else column
    return list((numbers.astype(np.int64) if kind == "m" else numbers).tolist())


def _say_lost(dataset: Opened, suffix: str) -> None:
    lost = [word for word, there in (("splits", own_splits(dataset)),) if there]
    if lost:
        warn(f"{suffix} has no place for {' and '.join(lost)}; .npz keeps them")


def plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them; those of this library, and odd ones, are left out."""
    out: dict[str, Any] = {}
    for name, value in attrs.items():
        value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        if not str(name).startswith("labeled_") and _is_plain(value):
            out[str(name)] = value
    return out


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, str | bool | int | float)


# records


def _to_records(
    dataset: Opened,
    target: str | os.PathLike[str],
    overwrite: bool,
    budget: int,
    progress: bool | None,
) -> str:
    """Write pictures as PNG, which loses nothing, with their labels and ids."""
    images = _pictures_of(dataset)
    path = check_target(target, overwrite=overwrite)
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
        warn(f".rec has no place for the sources {lost}; .npz keeps them")
    _say_lost(dataset, ".rec")
    n_bytes = int(dataset[images].nbytes)
    with progress_bar(progress, n_bytes, f"write {os.path.basename(path)}") as told:
        examples = _pictures(dataset.select(images), images, budget, told)
        write_records(
            path,
            examples,
            format=".png",
            ahead_bytes=budget // STRETCHES,
            overwrite=overwrite,
            **columns,
        )
    return path


def pass_on(
    sources: Mapping[str, Any],
    target: str | os.PathLike[str],
    *,
    overwrite: bool,
    progress: bool | None,
) -> str:
    """Write the pictures of a folder as records, as they are encoded, with their labels."""
    images = sources["images"]
    pictures = images.reader if isinstance(images, Ragged) else images
    assert isinstance(pictures, Pictures)
    path = check_target(target, overwrite=overwrite)
    labels = sources.get("labels")
    with progress_bar(progress, pictures.n_bytes, f"write {os.path.basename(path)}") as told:
        write_records(
            path,
            pictures.encoded(told),
            labels=[0] * len(pictures) if labels is None else labels,
            overwrite=overwrite,
        )
    return path


def _pictures_of(dataset: Opened) -> str:
    """Return the one source that holds pictures of eight bits."""
    found = [
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


def _roles(dataset: Opened, name: str) -> list[str]:
    return [role_of(dim) or str(dim) for dim in dataset[name].dims[1:]]


def _pictures(one: Opened, name: str, budget: int, told: Told) -> Iterator[Array]:
    """Yield pictures by height, width and channel."""
    roles = _roles(one, name)
    axes = [roles.index(role) for role in ("height", "width", "channel") if role in roles]
    for some in stretches(one, budget):
        rows = rows_of(some, name)
        for row in rows.to_objects() if isinstance(rows, Ragged) else rows:
            image = row.transpose(axes)
            told(image.nbytes)
            yield image if image.ndim == 3 else image[..., np.newaxis]


EXPORTERS: dict[str, Callable[[Opened, str, int, Told], None]] = {
    ".npz": _to_npz,
    ".npy": _to_npy,
    ".parquet": _to_parquet,
    ".csv": _to_csv,
}

SUFFIXES = (*EXPORTERS, ".rec")
"""Targets that are no labelled file."""
