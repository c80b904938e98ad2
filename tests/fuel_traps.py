"""Where the old rules of Fuel and the native ones differ.

Each line of `docs/traps_fuel.md` is a pair of expressions with what they give;
`tests/test_compat_traps.py` evaluates every one of them.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
from traps import DOCS, Traps

import labeled
from labeled import samplers
from labeled.compat.fuel import datasets, schemes, streams, transformers, utils

Fuel = datasets.H5PYDataset


def write_dense(path: str) -> None:
    """Write x (12, 2), whose rows begin with their number, y (12,), and many splits."""
    with h5py.File(path, "w") as f:
        f["x"] = np.repeat(np.arange(12), 2).reshape(12, 2)
        f["y"] = 100 + np.arange(12)
        for name, labels in {"x": ("batch", "feature"), "y": ("batch",)}.items():
            for axis, label in enumerate(labels):
                f[name].dims[axis].label = label
        f["rows"] = np.array([6, 0, 6, 2])
        listed = (0, 0, f["rows"].ref)
        f.attrs["split"] = Fuel.create_split_array(
            {
                "train": {"x": (0, 5), "y": (0, 5)},
                "far": {"x": (8, 12), "y": (8, 12)},
                "listed": {"x": listed, "y": listed},
                "apart": {"x": (0, 3), "y": (4, 7)},
                "only x": {"x": (0, 3)},
                "only y": {"y": (0, 3)},
            }
        )


def write_ragged(path: str, *, labelled: bool) -> None:
    """Write a (2,) with shapes and b (2,) without, both of variable length."""
    with h5py.File(path, "w") as f:
        for name in "ab":
            f.create_dataset(name, (2,), h5py.vlen_dtype("u1"))
            f[name][0], f[name][1] = np.arange(6, dtype="u1"), np.arange(4, dtype="u1")
            f[name].dims[0].label = "batch"
        f["shapes of a"] = np.array([[2, 3], [2, 2]])
        f["shapes of a"].make_scale("shapes")
        f["a"].dims[0].attach_scale(f["shapes of a"])
        if labelled:
            f["labels of a"] = np.array([b"height", b"width"])
            f["labels of a"].make_scale("shape_labels")
            f["a"].dims[0].attach_scale(f["labels of a"])
        f.attrs["split"] = Fuel.create_split_array({"all": {"a": (0, 2), "b": (0, 2)}})


def write_ones(path: str) -> None:
    """Write a table whose numbers have the shape (1,)."""
    with h5py.File(path, "w") as f:
        f["x"] = np.zeros((6, 2))
        table = Fuel.create_split_array({"train": {"x": (0, 4)}})
        wide = [
            (n, t, (1,)) if n in ("start", "stop", "available") else (n, t)
            for n, t in table.dtype.descr
        ]
        wide[4] = ("indices", h5py.ref_dtype)
        other = np.empty(1, wide)
        for name in table.dtype.names:
            other[name] = table[name][:, None] if other[name].ndim > 1 else table[name]
        f.attrs["split"] = other


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; writes small files into `folder`."""
    path, ragged, unlabelled, ones = (
        str(Path(folder) / name) for name in ("dense.h5", "ragged.h5", "unlabelled.h5", "ones.h5")
    )
    write_dense(path)
    write_ragged(ragged, labelled=True)
    write_ragged(unlabelled, labelled=False)
    write_ones(ones)

    def h(*which_sets: str, **options: Any) -> Any:
        return Fuel(path, which_sets, sources=("x",), **options)

    def big_table(libver: Any) -> int:
        table = Fuel.create_split_array({f"split {n:05}": {"x": (0, 1)} for n in range(2000)})
        with h5py.File(Path(folder) / "big.h5", "w", libver=libver) as f:
            f.attrs["split"] = table
            return len(f.attrs["split"])

    def written(splits: dict[str, Any]) -> Any:
        new = Path(folder) / "new.h5"
        return labeled.write(new, {"x": np.eye(2)}, splits, overwrite=True)

    def stream(batch_size: int) -> Any:
        return streams.DataStream(
            h("train"), iteration_scheme=schemes.SequentialScheme(5, batch_size)
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        ds = labeled.open_dataset(path)
    old = SimpleNamespace()
    for module in (datasets, schemes, streams, transformers, utils):
        vars(old).update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    native = SimpleNamespace()
    vars(native).update({k: v for k, v in vars(samplers).items() if not k.startswith("_")})
    return {
        "np": np,
        "h5py": h5py,
        "pickle": pickle,
        "labeled": labeled,
        "old": old,
        "native": native,
        "path": path,
        "ragged": ragged,
        "unlabelled": unlabelled,
        "ones": ones,
        "ds": ds,
        "h": h,
        "big_table": big_table,
        "written": written,
        "stream": stream,
        "fresh": fresh,
        "tried": tried,
        "rows": lambda dataset: dataset.get_data(None, slice(None))[0][:, 0].tolist(),
        "native_rows": lambda d: d.select("x").load().loaded["x"][:, 0].tolist(),
    }


def fresh(dataset: Any) -> Any:
    """Forget all handles that earlier expressions left open."""
    for handle in Fuel._file_handles.values():
        handle.close()
    Fuel._file_handles.clear()
    Fuel._ref_counts.clear()
    return dataset


def tried(call: Any, *arguments: Any) -> None:
    """Call something that fails."""
    with contextlib.suppress(labeled.LabeledError):
        call(*arguments)


OLD_KINDS = (NotImplementedError, AttributeError, KeyError, IndexError, TypeError, ValueError)


FUEL = Traps(DOCS / "traps_fuel.md", range(1, 28), names, OLD_KINDS, lambda: fresh(None))
