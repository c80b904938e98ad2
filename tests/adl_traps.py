"""Where the old data loader's rules and the native ones differ.

Each line of `docs/traps_abstract_dataloader.md` is a pair of expressions with what they give;
`tests/test_compat_traps.py` evaluates every one of them.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from traps import DOCS, Traps

from labeled import transforms
from labeled.compat.abstract_dataloader import abstract, ext, generic


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; nothing of it is in files."""
    times = {"a": np.arange(10.0), "b": np.arange(0.5, 9.0, 0.5)}
    old = {**vars(abstract), **vars(generic), "graph": ext, "sample_ld": ext.sample_ld}
    return {
        "np": np,
        "times": times,
        "old": SimpleNamespace(**{k: v for k, v in old.items() if not k.startswith("_")}),
        "native": transforms,
    }


ADL = Traps(DOCS / "traps_abstract_dataloader.md", range(1, 10), names)
