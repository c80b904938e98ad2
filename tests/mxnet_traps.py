"""Where the old iterators and the native providers differ.

Each line of `docs/traps_mxnet.md` is a pair of expressions with what they give;
`tests/test_compat_traps.py` evaluates every one of them.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from record_files import pictures, png, record, write_records
from traps import DOCS, Traps

import labeled
from labeled import providers
from labeled.compat import mxnet
from labeled.compat.mxnet.fileiters import float_of
from labeled.transforms import (
    Affine,
    Augment,
    Contrast,
    Crop,
    Normalize,
    PictureTransform,
    RandomCrop,
    mean_image,
)

IMAGES = pictures()


def write_files(folder: Path) -> SimpleNamespace:
    """Write twelve pictures, their list, ten digits, and numbers from 0 to 11."""
    at = SimpleNamespace(
        rec=str(folder / "a.rec"),
        multi=str(folder / "multi.rec"),
        lst=str(folder / "a.lst"),
        bad=str(folder / "bad.rec"),
        csv=str(folder / "a.csv"),
        image=str(folder / "i-idx3-ubyte"),
        label=str(folder / "l-idx1-ubyte"),
        folder=folder,
    )
    at.digits = {"images": at.image, "labels": at.label}
    write_records(at.rec, IMAGES, range(12))
    write_records(at.multi, IMAGES[:4], [[i, i + 1] for i in range(4)])
    Path(at.lst).write_text("".join(f"{10 * (i + 1)}\t{i}\tx.png\n" for i in range(12)))
    Path(at.bad).write_bytes(record(struct.pack("<IfQQ", 0, 0, 0, 0) + png(IMAGES[0])[:40]))
    Path(at.csv).write_text("".join(f"{i}\n" for i in range(12)))
    digits = np.arange(60, dtype=np.uint8).reshape(10, 2, 3)
    Path(at.image).write_bytes(struct.pack(">4I", 2051, 10, 2, 3) + digits.tobytes())
    Path(at.label).write_bytes(struct.pack(">2I", 2049, 10) + bytes(range(10)))
    return at


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; writes small files into `folder`."""
    at = write_files(Path(folder))

    def old(kind: str = "ImageRecordIter", **parameters: Any) -> Any:
        return getattr(mxnet, kind)(**_given(at, kind, parameters))

    def native(
        *transforms: PictureTransform, path: Any = at.rec, batch_size: int = 4, **options: Any
    ) -> Any:
        ds = labeled.open_dataset(path, sources=("images", "labels"))
        if not transforms:
            return ds.as_provider(batch_size, **options)
        loader = ds.batches(batch_size, pipeline={"images": Augment(transforms)}, **options)
        return providers.IteratorProvider(loader, label="labels")

    def epochs(made: Any, count: int = 2) -> list[list[list[int]]]:
        """The labels of the batches of some epochs."""
        found = []
        for _ in range(count):
            found.append([batch.label[0].astype(int).tolist() for batch in made])
            getattr(made, "reset", lambda: None)()
        return found

    def pixels(made: Any) -> Any:
        return next(iter(made)).data[0]

    def alike(one: Any, other: Any) -> bool:
        return bool(np.array_equal(pixels(one), pixels(other)))

    return {
        "np": np,
        "labeled": labeled,
        "mxnet": mxnet,
        "providers": providers,
        "at": at,
        "old": old,
        "native": native,
        "epochs": epochs,
        "pixels": pixels,
        "alike": alike,
        "float_of": float_of,
        "Affine": Affine,
        "Contrast": Contrast,
        "Crop": Crop,
        "Normalize": Normalize,
        "RandomCrop": RandomCrop,
        "mean_image": mean_image,
        "IMAGES": IMAGES,
    }


def _given(at: SimpleNamespace, kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    usual: dict[str, Any]
    if kind.startswith("MNIST"):
        usual = {"image": at.image, "label": at.label, "batch_size": 4, "silent": True}
    elif kind.startswith("CSV"):
        usual = {"data_csv": at.csv, "data_shape": (1,), "batch_size": 5}
    else:
        usual = {
            "path_imgrec": at.rec, "data_shape": (3, 12, 16), "batch_size": 4, "verbose": False,
        }  # fmt: skip
    return {**usual, **parameters}


OLD_KINDS = (TypeError, OSError, ValueError)
MXNET = Traps(DOCS / "traps_mxnet.md", range(1, 21), names, OLD_KINDS)
