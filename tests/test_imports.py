"""What ``import labeled`` loads, and what it leaves for later."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from labeled._optional import LazyModule, extra_module
from labeled.errors import MissingExtraError

ROOT = Path(__file__).resolve().parent.parent

LOADED = """
import json, sys
import xarray
before = set(sys.modules)
import labeled
print(json.dumps(sorted(set(sys.modules) - before)))
"""

OPTIONAL = [
    "torch",
    "jax",
    "tensorflow",
    "cupy",
    "numba",
    "llvmlite",
    "numcodecs",
    "imagecodecs",
    "hdf5plugin",
    "sklearn",
    "zmq",
    "PIL",
    "cv2",
    "simplejpeg",
    "jpeglib",
    "pyarrow",
    "zarr",
    "matplotlib",
    "scipy",
    "awkward",
    "dask_cuda",
    "fsspec",
    "h5netcdf",
    "netCDF4",
    "IPython",
    "ipywidgets",
]
"""What an extra brings or someone else may have installed."""

LATER = [
    "dask.array",
    "dask.dataframe",
    "dask.bag",
    "distributed",
    "asyncio",
    "unittest",
    "tqdm.notebook",
    "labeled.cli",
    "labeled.compat",
    "labeled.cluster",
    "labeled.torch",
    "click",
]
"""What is always there but takes long, and is not needed to open a file."""

MAX_FOREIGN = 200
"""Modules of others beyond xarray's own: 180 with dask 2026.7.1, 416 with dask.array."""

MAX_OWN = 120
"""Modules of this library: what opens, orders and batches, and no writer, parser or transform."""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """Name the modules that ``import labeled`` loads beyond xarray's, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOADED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.mark.parametrize("name", OPTIONAL + LATER)
def test_importing_leaves_out(name: str, loaded: list[str]) -> None:
    assert [one for one in loaded if one == name or one.startswith(f"{name}.")] == []


def test_importing_loads_few_modules_of_others(loaded: list[str]) -> None:
    foreign = [name for name in loaded if name.partition(".")[0] != "labeled"]
    assert "h5py" in foreign  # the list is not empty for a wrong reason
    assert len(foreign) < MAX_FOREIGN


def test_importing_loads_what_opens_and_batches(loaded: list[str]) -> None:
    own = [name for name in loaded if name.partition(".")[0] == "labeled"]
    assert {"labeled.dataset.dataset", "labeled.loader.loader"} < {*own}
    assert len(own) <= MAX_OWN
    apart = ("labeled.writing.", "labeled.providers.", "labeled.formats.csv.")
    assert [name for name in own if name.startswith(apart)] == []


def test_a_later_module_is_imported_once_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    colours = LazyModule("colorsys")
    assert "colorsys" not in sys.modules
    assert colours.rgb_to_hsv(0, 0, 0) == (0, 0, 0)
    assert "colorsys" in sys.modules
    assert "rgb_to_hsv" in vars(colours)
    with pytest.raises(AttributeError, match="no_such"):
        _ = colours.no_such


def advice():
    """What each message of a missing library names: (file, libraries, extra)."""
    for path in sorted((ROOT / "labeled").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if called in ("extra_module", "how_to_install") and path.name != "_optional.py":
                named = [word for word in node.args[-2:] if isinstance(word, ast.Constant)]
                if len(named) == 2:  # others are put together from what is missing
                    yield path.name, *(word.value for word in named)


def test_what_messages_advise_is_what_the_extras_bring():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = extras["optional-dependencies"]
    found = list(advice())
    assert len(found) >= 15
    for file, libraries, extra in found:
        brought = {re.split("[<>=;]", line)[0].strip().lower() for line in extras[extra]}
        assert set(libraries.split()) <= brought, (file, extra)


def test_a_library_that_does_not_load_says_why(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("from os import no_such_thing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match=r"does not load here \(cannot import .*: pip inst"):
        extra_module("half_installed", "this needs it", "it", "plot")
