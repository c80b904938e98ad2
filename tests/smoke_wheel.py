"""Build wheel and sdist, install one after the other in an empty environment, try them there.

Run by ``make wheel``. The environment sees neither this tree nor the one it runs in: what
works is what a user gets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent

TRIED = """
import sys, warnings
warnings.simplefilter("error")
import xarray
import labeled
optional = {"torch", "matplotlib", "numba", "cv2", "PIL", "sklearn", "scipy", "cupy", "distributed"}
loaded = sorted(optional & set(sys.modules))
assert not loaded, f"import labeled loads {loaded}"
assert "site-packages" in labeled.__file__, labeled.__file__
import importlib.metadata as metadata
assert metadata.version("labeled") == labeled.__version__
import numpy as np
path = labeled.write("x.hdf5", {"x": np.arange(100)}, {"train": (0, 80), "test": (80, 100)})
train = labeled.open_dataset(path).split("train")
rows = np.concatenate([b["x"].values for b in train.batches(16, shuffle=True, seed=7)])
assert sorted(rows) == list(range(80))
assert "labeled" in xarray.backends.list_engines()
opened = xarray.open_dataset(path, engine="labeled", which_sets=("test",))
assert opened["x"].values.tolist() == list(range(80, 100))
from pathlib import Path
inside = Path(labeled.__path__[0])
assert all((inside / name).exists() for name in ("py.typed", "permute/permute.cu"))
"""

TIMED = """
import time
began = time.process_time()
import xarray
theirs = time.process_time()
import labeled
print(theirs - began, time.process_time() - theirs)
"""

LONGEST_IMPORT = 1.05
"""Processor time beyond xarray's own import, as a share of that: the best of a few runs. In seconds
one machine took 0.38 and 0.57 within minutes; the share stayed at 0.8."""


def main() -> None:
    """Build, install and try; the first thing that fails ends it."""
    with tempfile.TemporaryDirectory(prefix="labeled-wheel-") as folder:
        run(sys.executable, "-m", "build", "--outdir", folder, str(ROOT))
        place = Path(folder) / "environment"
        venv.create(place, with_pip=True)
        (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
        try_package(wheel, place)
        try_package(sdist, place, "--force-reinstall", "--no-deps")


def try_package(package: Path, place: Path, *options: str) -> None:
    """Install a package in an environment and try it."""
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = (str(python), "-m", "pip", "-q", "--disable-pip-version-check", "install")
    run(*pip, *options, str(package))
    (place / "x.hdf5").unlink(missing_ok=True)
    run(str(python), "-c", TRIED, cwd=place)
    timed = [run(str(python), "-W", "error", "-c", TIMED, cwd=place).split() for _ in range(5)]
    share, seconds = min((float(ours) / float(theirs), ours) for theirs, ours in timed)
    print(f"import beyond xarray: {float(seconds):.2f} s of processor time, {share:.2f} of its own")
    if share > LONGEST_IMPORT:
        sys.exit(f"import labeled takes longer than {LONGEST_IMPORT} of what xarray takes")
    for arguments in (("--help",), ("info", "x.hdf5"), ("head", "x.hdf5"), ("verify", "x.hdf5")):
        run(str(python.with_name("labeled")), *arguments, cwd=place)
    print(f"{package.name}: works")


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command and return what it printed; end with everything it said where it fails."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=cwd or ROOT, env=clean, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} ... failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
