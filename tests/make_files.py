"""HDF5 files of every kind the tests open, written with nothing but h5py and NumPy.

The library's own writers take no part here, so what is read back is compared with
something independent. Every function returns the path as a string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import h5py
import numpy as np

import labeled

Rows = Any  # (start, stop) | a list or array of row numbers | None for "not available"


def fuel_file(
    path: str | PathLike[str],
    sources: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, Rows] | tuple[int, int]],
    labels: Mapping[str, Sequence[str]] | None = None,
    *,
    chunks: Any = None,
    compression: Any = None,
    shuffle: bool = False,
    seven_fields: bool = True,
    one_shaped: bool = False,
    text: str = "S",
    libver: Any = None,
    comment: str = ".",
    attrs: Mapping[str, Any] | None = None,
) -> str:
    """Write a file in the Fuel layout, as its original writer does.

    Parameters
    ----------
    sources : name -> array
        Nested names (``"camera/left"``) make groups. Every array becomes one dataset.
    splits : split -> rows, or split -> {source: rows}
        ``(start, stop)`` is a range; a list or an array becomes an index dataset with an
        object reference (the same object is written once and shared); None, or a source
        left out, is ``available=False``. A bare tuple stands for every source.
    labels : source -> one label an axis
        ``""`` leaves an axis without a label.
    chunks, compression, shuffle
        As h5py takes them; a mapping is looked up by source.
    seven_fields : bool
        False writes the older table without `indices`.
    one_shaped : bool
        Number fields of shape ``(1,)``, as the original writer makes them under NumPy 2.
    text : str
        ``"S"`` fixed bytes, ``"str"`` variable-length strings.
    """
    with h5py.File(path, "w", libver=libver) as f:
        for name, values in sources.items():
            dataset = _dataset(f, name, values, chunks, compression, shuffle)
            for axis, label in enumerate((labels or {}).get(name, ())):
                if label:
                    dataset.dims[axis].label = label
        table = split_table(
            f, sources, splits, seven_fields=seven_fields, one_shaped=one_shaped, text=text
        )
        if len(table):
            table["comment"] = comment if text == "str" else comment.encode()
        f.attrs["split"] = table
        f.attrs.update(attrs or {})
    return str(path)


def split_table(
    f: h5py.File,
    sources: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, Rows] | tuple[int, int]],
    *,
    seven_fields: bool = True,
    one_shaped: bool = False,
    text: str = "S",
) -> np.ndarray:
    """Return the structured array of the `split` attribute; writes its index datasets into `f`."""
    full = {
        s: r if isinstance(r, Mapping) else dict.fromkeys(sources, r) for s, r in splits.items()
    }
    names = sorted({n for rows in full.values() for n in rows} | set(sources))
    number: tuple[int, ...] = (1,) if one_shaped else ()

    def string(values: Any) -> Any:
        if text == "str":
            return h5py.string_dtype()
        return f"S{max([len(v.encode()) for v in values] + [1])}"

    fields: list[Any] = [
        ("split", string(full)),
        ("source", string(names)),
        ("start", np.int64, number),
        ("stop", np.int64, number),
        ("indices", h5py.ref_dtype),
        ("available", bool, number),
        ("comment", string(["." * 8])),
    ]
    table = np.zeros(
        len(full) * len(names),
        dtype=np.dtype([x for x in fields if seven_fields or x[0] != "indices"]),
    )
    written: dict[int, Any] = {}
    pairs = [(split, name) for split in full for name in names]
    for row, (split, name) in zip(table, pairs, strict=True):
        row["split"] = split if text == "str" else split.encode()
        row["source"] = name if text == "str" else name.encode()
        rows = full[split].get(name)
        if seven_fields:
            row["indices"] = h5py.Reference()
        if rows is None:
            continue
        row["available"] = True
        if isinstance(rows, tuple):
            row["start"], row["stop"] = rows
        elif id(rows) in written:
            row["indices"] = written[id(rows)]
        else:
            index_name = f"{split}_{name.replace('/', '_')}_indices"
            dataset = f.create_dataset(index_name, data=np.asarray(rows))
            row["indices"] = written[id(rows)] = dataset.ref
    return table


def plain_file(
    path: str | PathLike[str],
    sources: Mapping[str, Any],
    labels: Mapping[str, Sequence[str]] | None = None,
    *,
    chunks: Any = None,
    compression: Any = None,
    shuffle: bool = False,
    libver: Any = None,
) -> str:
    """Write datasets without any table; the keywords are those of :func:`fuel_file`."""
    with h5py.File(path, "w", libver=libver) as f:
        for name, values in sources.items():
            dataset = _dataset(f, name, values, chunks, compression, shuffle)
            for axis, label in enumerate((labels or {}).get(name, ())):
                if label:
                    dataset.dims[axis].label = label
    return str(path)


def ragged_file(
    path: str | PathLike[str],
    images: Sequence[np.ndarray],
    targets: Any,
    *,
    shape_labels: Sequence[str] = ("channel", "height", "width"),
) -> str:
    """Write images of different shapes as Fuel does: flat vlen rows and a `shapes` scale."""
    n = len(images)
    with h5py.File(path, "w") as f:
        kind = np.asarray(images[0]).dtype if n else np.dtype("uint8")
        flat = f.create_dataset("image_features", (n,), dtype=h5py.vlen_dtype(kind))
        for i, image in enumerate(images):
            flat[i] = image.reshape(-1)
        f["image_features_shapes"] = np.array([x.shape for x in images], dtype=np.int32)
        f["image_features_shape_labels"] = np.array([x.encode() for x in shape_labels])
        f["image_features_shapes"].make_scale("shapes")
        f["image_features_shape_labels"].make_scale("shape_labels")
        flat.dims[0].label = "batch"
        flat.dims[0].attach_scale(f["image_features_shapes"])
        flat.dims[0].attach_scale(f["image_features_shape_labels"])
        f["targets"] = np.asarray(targets)
        f["targets"].dims[0].label = "batch"
        f["targets"].dims[1].label = "index"
        sources = {"image_features": 0, "targets": 0}
        f.attrs["split"] = split_table(f, sources, {"train": (0, n)})
    return str(path)


def digits(n: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Return small images and labels whose values and lengths all differ."""
    rng = np.random.default_rng(seed)
    return {
        "features": rng.integers(0, 255, (n, 3, 5, 7), dtype=np.uint8),
        "targets": rng.integers(0, 10, (n, 1), dtype=np.int64),
    }


DIGIT_LABELS = {
    "features": ("batch", "channel", "height", "width"),
    "targets": ("batch", "index"),
}


def _dataset(
    f: h5py.File, name: str, values: Any, chunks: Any, compression: Any, shuffle: bool
) -> h5py.Dataset:
    def of(option: Any) -> Any:
        return option.get(name) if isinstance(option, Mapping) else option

    array = np.asarray(values)
    dtype = h5py.string_dtype() if array.dtype.kind in "UO" else array.dtype
    layout = of(chunks)
    if isinstance(layout, tuple):
        layout = tuple(min(c, max(n, 1)) for c, n in zip(layout, array.shape, strict=False))
        layout += tuple(max(n, 1) for n in array.shape[len(layout) :])
    packed = of(compression)
    options = {"shuffle": True} if shuffle and packed is not None else {}
    return f.create_dataset(
        name, data=array.astype(dtype), chunks=layout, compression=packed, **options
    )


def scan(path: str | PathLike[str], **options: Any) -> Any:
    """Return what opening one file tells."""
    (header,) = labeled.open_dataset(path, **options).files.catalog.headers
    return header
