"""Where the old rules and the native ones differ, or surprise.

Each line of `docs/traps_pylearn2.md` is a pair of expressions with what they give;
`tests/test_compat_traps.py` evaluates every one of them.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
from traps import DOCS, Traps

import labeled
from labeled import samplers, spaces
from labeled.compat.pylearn2 import datasets, iteration, utils
from labeled.compat.pylearn2 import space as old_space


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; writes a small file into `folder`."""
    path = Path(folder) / "digits.h5"
    with h5py.File(path, "w") as f:
        f["X"] = np.arange(8.0)[:, None]
        f["y"] = np.arange(8) % 3
        for name, labels in {"X": ("batch", "feature"), "y": ("batch",)}.items():
            for axis, label in enumerate(labels):
                f[name].dims[axis].label = label
    old = [old_space, utils, iteration, datasets]
    native = [spaces, samplers]
    return {
        "np": np,
        "path": str(path),
        "labeled": labeled,
        "old": _joined(old),
        "native": _joined(native),
    }


def _joined(modules: list[Any]) -> SimpleNamespace:
    found: dict[str, Any] = {}
    for module in modules:
        found.update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    return SimpleNamespace(**found)


OLD_KINDS = (
    AssertionError,
    NotImplementedError,
    AttributeError,
    IndexError,
    TypeError,
    ValueError,
)


PYLEARN2 = Traps(DOCS / "traps_pylearn2.md", range(28, 51), names, OLD_KINDS)
