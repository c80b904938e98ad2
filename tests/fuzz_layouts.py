"""Small files of every layout that is read, for `fuzz`."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import labeled

ROWS = 40
X = np.arange(ROWS * 12, dtype="i4").reshape(ROWS, 3, 4)
Y = np.arange(ROWS, dtype="u1") % 3
LATEST = {"libver": ("v110", "v114")}


def plain(name: str, options: dict[str, Any], how: dict[str, Any]) -> Callable[[Path], Path]:
    """Make a writer of a file with `x` and `y`, their axes named."""

    def write(folder: Path) -> Path:
        path = folder / f"{name}.h5"
        with h5py.File(path, "w", **how) as file:
            x = file.create_dataset("x", data=X, **options)
            y = file.create_dataset("y", data=Y)
            for dataset, dims in ((x, "bhw"), (y, "b")):
                for axis, dim in zip(dataset.dims, dims, strict=True):
                    axis.label = dim
        return path

    return write


def fuel(folder: Path) -> Path:
    splits = {"train": (0, 30), "test": [31, 35, 39]}
    sources = {"x": X.astype("f4"), "y": Y}
    dims = {"x": ("batch", "height", "width"), "y": ("batch",)}
    return Path(labeled.write(folder / "fuel.h5", sources, splits, dims=dims))


def ragged(how: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        examples = [np.arange(n % 7 + 1, dtype="i2") for n in range(ROWS)]
        path = folder / f"ragged-{how}.h5"
        return Path(labeled.write(path, {"x": examples, "y": Y}, ragged=how))

    return write


def texts(folder: Path) -> Path:
    path = folder / "texts.h5"
    with h5py.File(path, "w") as file:
        file["x"] = [f"word {n}" * (n % 4) for n in range(ROWS)]
        file["y"] = Y
        for name in "xy":
            file[name].dims[0].label = "b"
    return path


def compound(folder: Path) -> Path:
    path = folder / "compound.h5"
    table = np.zeros(ROWS, [("a", "f8"), ("b", "i4", (2,)), ("c", "S5")])
    table["a"], table["c"] = np.arange(ROWS), b"abc"
    with h5py.File(path, "w") as file:
        file["table"] = table
        file["table"].dims[0].label = "b"
    return path


def scales(folder: Path) -> Path:
    path = folder / "scales.h5"
    with h5py.File(path, "w") as file:
        for name, values in (("time", np.arange(ROWS, dtype="f8")), ("lat", np.arange(3.0))):
            file[name] = values
            file[name].make_scale(name)
        file.create_dataset("x", data=X[:, :, 0].astype("i2"), chunks=(8, 3), compression="gzip")
        file["x"].dims[0].attach_scale(file["time"])
        file["x"].dims[1].attach_scale(file["lat"])
        file["x"].attrs.update(scale_factor=0.1, add_offset=2.0, _FillValue=np.int16(-1))
        file["time"].attrs["units"] = "days since 2020-01-01"
    return path


def sparse(folder: Path) -> Path:
    path = folder / "sparse.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = [ROWS, 6]
        group["data"] = np.arange(2 * ROWS, dtype="f4")
        group["indices"] = np.tile([1, 4], ROWS).astype("i4")
        group["indptr"] = np.arange(0, 2 * ROWS + 1, 2)
    return path


def idx(zipped: bool) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        data = bytes([0, 0, 12, 3]) + struct.pack(">3I", *X.shape) + X.astype(">i4").tobytes()
        path = folder / ("a-idx3-int.gz" if zipped else "a-idx3-int")
        path.write_bytes(gzip.compress(data) if zipped else data)
        return path

    return write


def delimited(folder: Path) -> Path:
    path = folder / "a.csv"
    lines = [f'{n},{n / 7},"word, {n % 5}",2026-01-{n % 28 + 1:02}' for n in range(ROWS)]
    path.write_text("\n".join(["id,value,text,day", *lines]) + "\n")
    return path


def records(folder: Path) -> Path:
    path = folder / "a.rec"
    parts = []
    for n in range(ROWS):
        payload = struct.pack("<IfQQ", 0, float(n % 3), n, 0) + bytes(range(n % 5, 90))
        parts.append(struct.pack("<II", 0xCED7230A, len(payload)) + payload)
        parts.append(b"\0" * (-len(payload) % 4))
    path.write_bytes(b"".join(parts))
    return path


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "contiguous": plain("contiguous", {}, {}),
    "contiguous, latest": plain("latest", {}, LATEST),
    "tree, gzip": plain("tree", {"chunks": (3, 3, 2), "compression": "gzip", "shuffle": True}, {}),
    "tree, plain": plain("plain", {"chunks": (2, 3, 4)}, {"libver": "earliest"}),
    "tree of version 2": plain("v2", {"chunks": (3, 3, 4), "maxshape": (None, None, 4)}, LATEST),
    "fixed array, lzf": plain("fixed", {"chunks": (1, 3, 4), "compression": "lzf"}, LATEST),
    "extensible array": plain(
        "extensible", {"chunks": (2, 3, 4), "maxshape": (None, 3, 4), "fletcher32": True}, LATEST
    ),
    "fuel": fuel,
    "ragged, flat": ragged("flat"),
    "ragged, fuel": ragged("fuel"),
    "texts": texts,
    "compound": compound,
    "scales, packed": scales,
    "sparse": sparse,
    "idx": idx(zipped=False),
    "idx, gzip": idx(zipped=True),
    "csv": delimited,
    "records": records,
}
