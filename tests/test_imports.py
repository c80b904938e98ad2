"""What ``import labeled`` loads, and what it leaves for later."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LOADED = """
import json, sys
import xarray
before = set(sys.modules)
import labeled
print(json.dumps(sorted(set(sys.modules) - before)))
"""

OPTIONAL = [
    "torch", "jax", "tensorflow", "cupy", "numba", "llvmlite", "numcodecs", "imagecodecs",
    "hdf5plugin", "sklearn", "zmq", "PIL", "cv2", "simplejpeg", "jpeglib", "pyarrow", "zarr",
    "matplotlib", "scipy", "dask_cuda", "fsspec", "h5netcdf", "netCDF4", "IPython",
    "ipywidgets",
]  # fmt: skip
"""What an extra brings or someone else may have installed."""

LATER = [
    "dask.array", "dask.dataframe", "dask.bag", "distributed", "asyncio", "unittest",
    "tqdm.notebook", "labeled.cli", "labeled.compat", "labeled.cluster", "labeled.torch",
    "click",
]  # fmt: skip
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
    apart = ("labeled.writing.", "labeled.providers", "labeled.formats.csv.")
    assert [name for name in own if name.startswith(apart)] == []


ADVISE = ("extra_module", "how_to_install")


def advice():
    """What each message of a missing library names: (file, libraries, extra)."""
    for path in sorted((ROOT / "labeled").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text if any(one in text for one in ADVISE) else "")):
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if called in ADVISE and path.name != "_optional.py":
                named = [word for word in node.args[-2:] if isinstance(word, ast.Constant)]
                if len(named) == 2:  # others are put together from what is missing
                    yield path.name, *(word.value for word in named)


def test_what_messages_advise_is_what_the_extras_bring():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = extras["optional-dependencies"]
    found = list(advice())
    assert len(found) >= 14
    for file, libraries, extra in found:
        brought = {re.split("[<>=;]", line)[0].strip().lower() for line in extras[extra]}
        assert set(libraries.split()) <= brought, (file, extra)


def test_a_library_that_does_not_load_says_why(tmp_path):
    (tmp_path / "matplotlib.py").write_text("from os import no_such_thing")
    code = (
        "import labeled, numpy as np\n"
        f"path = labeled.write({str(tmp_path / 'made.h5')!r}, {{'x': np.zeros((4, 2))}})\n"
        "labeled.open_dataset(path).plot()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        check=False,
    )
    assert re.search(
        r"MissingExtraError.*does not load here \(cannot import .*: pip inst", done.stderr
    )


PUBLIC = re.compile(
    r"labeled(\.(errors|spaces|transforms|providers|torch|cluster|device|permute|cli\.main"
    r"|formats\.recordio\.writing"
    r"|(compat|samplers|testing)(\.\w+)*))?"
)
"""What docs describe, and so what tests may import: the rooms behind it can be rebuilt."""


def modules_of_ours(path: Path):
    """Name the modules of this library that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            within = [f"{node.module}.{one.name}" for one in node.names]
            places = [(name, ROOT / name.replace(".", "/")) for name in within]
            names = [
                node.module,
                *(name for name, at in places if at.is_dir() or at.with_suffix(".py").is_file()),
            ]
        yield from (name for name in names if name.partition(".")[0] == "labeled")


def test_tests_import_what_docs_describe():
    inside = {
        path.stem
        for path in (ROOT / "tests").glob("*.py")
        if not all(PUBLIC.fullmatch(name) for name in modules_of_ours(path))
    }
    assert inside == set(), "these import what docs do not describe"


def test_one_module_starts_the_threads():
    starts = re.compile(r"\b(ThreadPoolExecutor|Thread)\(|start_new_thread")
    library = ROOT / "labeled"
    files = [path for path in library.rglob("*.py") if starts.search(path.read_text())]
    found = {path.relative_to(library).as_posix() for path in files}
    # the bare loop that `labeled bench` compares with, and several readers at once
    assert found == {"_threads.py", "cli/bench.py", "testing/readers.py"}
