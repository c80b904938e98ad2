"""What is measured, in which order, and each part in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path

from benchmarks.gpu.bench import Bench, failed
from benchmarks.gpu.card import Figures

HERE = Path(__file__).resolve().parents[2]
NAN = float("nan")
PACKAGES = (
    "dask", "distributed", "xarray", "h5py", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda", "torch",
    "nvidia-libnvcomp-cu12", "nvidia-libnvcomp-cu13", "kvikio-cu12", "kvikio-cu13",
)  # fmt: skip


def environment(bench: Bench) -> Figures:
    """Return what measures, and what stands between here and the GPU."""
    known = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    packages = {name: known[name] for name in PACKAGES if name in known}
    return bench.card.describe() | {"file_bytes": bench.nbytes, "packages": packages}


PARTS: Mapping[str, str] = {
    "environment": "parts",
    "copies": "arrays",
    "right": "files",
    "files": "files",
    "permutes": "arrays",
    "overlap": "files",
    "tests": "checks",
    "decoding": "there",
    "torch": "files",
    "small": "files",
    "depths": "files",
    "crops": "arrays",
    "latency": "arrays",
    "cluster": "machines",
    "kvikio": "there",
}
"""Each part and the module that has it, in the order of their worth, should time end.

A module is imported by its own parts alone: what it needs may be missing.
"""

ALWAYS = ("environment", "copies")
OF_BOUND = {"files": "h2d", "permutes": "d2d", "crops": "d2d"}
"""Parts that are told in fractions of a rate that was measured before."""

PART_S = {"files": 100.0, "permutes": 120.0, "tests": 120.0, "decoding": 90.0, "cluster": 90.0}
USUAL_S = 60.0
"""What a part may take, if not said above."""


def part_of(name: str) -> Callable[..., Figures]:
    """Import a part."""
    part: Callable[..., Figures] = getattr(import_module(f"benchmarks.gpu.{PARTS[name]}"), name)
    return part


def measured(name: str, bench: Bench, bounds: Figures) -> Figures:
    """Return the figures of a part; or what it failed of."""
    bound = [bounds.get(OF_BOUND[name], NAN)] if name in OF_BOUND else []
    try:
        return part_of(name)(bench, *bound)
    except Exception as error:  # the other parts should not be lost
        return failed(error)


def measured_apart(
    name: str, arguments: list[str], bounds: Figures, limit_s: float, folder: Path
) -> Figures:
    """Return the figures of a part that runs in a process of its own; what there is of them."""
    if limit_s < 1:
        return {"failed": "no time was left for it"}
    into = folder / f"{name}.json"
    into.unlink(missing_ok=True)
    asked = [sys.executable, "-m", "benchmarks.gpu", "--part", name, "--out", str(into), *arguments]
    asked += ["--bounds", json.dumps(bounds)]
    fault = None
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            asked, cwd=HERE, stdout=said, stderr=said, start_new_session=True
        )  # fmt: skip
        try:
            if (ended := process.wait(limit_s)) != 0:
                said.seek(0)
                last = said.read().strip().splitlines()[-1:] or ["nothing"]
                fault = f"ended with {ended}, and said {last[0][:300]}"
        except subprocess.TimeoutExpired:
            fault = f"took longer than {limit_s:.0f} s"
        finally:  # with all that it started, which would disturb what comes next
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    figures: Figures = json.loads(into.read_text()) if into.exists() else {}
    return figures if fault is None else {**figures, "failed": fault}


def written(figures: Figures, path: Path) -> None:
    """Write JSON to a file, which is whole at any time."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(figures, indent=1, default=str) + "\n")
    part.replace(path)
