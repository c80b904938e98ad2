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
from dataclasses import replace
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu.bench import MAX_LINES, Bench, failed
from benchmarks.gpu.card import Figures
from labeled.loader.plan import device_of

HERE = Path(__file__).resolve().parents[2]
NAN = float("nan")
PACKAGES = (
    "dask", "distributed", "xarray", "h5py", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda", "torch",
)  # fmt: skip


def environment(bench: Bench) -> Figures:
    """Return what measures, what stands between here and the GPU, and what of it loads."""
    known = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    packages = {name: known[name] for name in PACKAGES if name in known}
    here = bench.card.describe() | {"file_bytes": bench.nbytes, "packages": packages}
    tells = replace(bench, tell=lambda rows: bench.tell(here | {"loads": rows}))
    return here | {"loads": tells.rows(loads(bench.card.device))}


def loads(device: Any) -> Mapping[str, Callable[[], object]]:
    """Return what tells of each library behind a device what it is, or why it does not load."""

    def told(name: Callable[[], str]) -> str:
        try:
            return name()
        except ImportError as error:
            return f"no: {error}"

    works: Mapping[str, Callable[[], str]] = {
        "device": lambda: there().name,
        "dask-cuda": lambda: str(import_module("dask_cuda").__version__),
    }
    there: Callable[[], Any] = partial(device_of, device)
    return {name: partial(told, work) for name, work in works.items()}


PARTS: Mapping[str, str] = {
    "environment": "parts",
    "copies": "arrays",
    "right": "files",
    "tests": "checks",
    "files": "files",
    "permutes": "arrays",
    "overlap": "files",
    "torch": "files",
    "small": "files",
    "depths": "files",
    "gathers": "arrays",
    "latency": "arrays",
    "cluster": "machines",
}
"""Each part and the module that has it, in the order of their worth, should time end.

A module is imported by its own parts alone: what it needs may be missing.
"""

ALWAYS = ("environment", "copies")
OF_BOUND = {"files": "h2d", "permutes": "d2d", "gathers": "d2d"}
"""Parts that are told in fractions of a rate that was measured before."""

PART_S = {"files": 100.0, "permutes": 120.0, "tests": 150.0, "cluster": 90.0}
USUAL_S = 60.0
"""What a part may take, if not said above."""

SAYS_S = 5.0
"""How long one that takes too long may take to say where it is."""


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
    asked = [sys.executable, "-X", "faulthandler", "-m", "benchmarks.gpu", "--part", name]
    asked += ["--out", str(into), *arguments, "--bounds", json.dumps(bounds)]
    fault, lines = None, []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            asked, cwd=HERE, stdout=said, stderr=said, start_new_session=True
        )  # fmt: skip
        try:
            if (ended := process.wait(limit_s)) != 0:
                fault = f"ended with {ended}"
        except subprocess.TimeoutExpired:
            fault = f"took longer than {limit_s:.0f} s"
            process.send_signal(signal.SIGABRT)  # it says where it is
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAYS_S)
        finally:  # with all that it started, which would disturb what comes next
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = last_lines(said)
    figures: Figures = json.loads(into.read_text()) if into.exists() else {}
    return figures if fault is None else {**figures, "failed": fault, "lines": lines}


def last_lines(said: IO[str]) -> list[str]:
    """Return the end of what a process said."""
    said.seek(0)
    return [line[:300] for line in said.read().strip().splitlines()[-MAX_LINES:]]


def written(figures: Figures, path: Path) -> None:
    """Write JSON to a file, which is whole at any time."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(figures, indent=1, default=str) + "\n")
    part.replace(path)
