"""What the library tells through ``logging``, and whose line its warnings name."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import LabeledWarning


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "x.hdf5"
    labeled.write(found, {"x": np.arange(4096.0).reshape(512, 8)})
    return found


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if r.levelno == level)


def test_nothing_is_printed_unless_someone_listens(path: Path) -> None:
    code = "import sys, labeled; list(labeled.open_dataset(sys.argv[1]).batches(64))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_loader_tells_its_windows_and_what_it_keeps(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "labeled")
    options = {"shuffle": "window", "seed": 1, "window_rows": 128}
    loader = labeled.open_dataset(path).batches(64, **options)
    told = messages(caplog)
    assert "512 rows, shuffle='window', windows of 128;" in told
    assert f"at most {loader.explain().promised_bytes} bytes" in told
    assert "kept" not in told
    next(iter(loader))
    assert "'x': 512 rows are read and kept in memory" in messages(caplog)


def test_reading_through_h5py_is_reported_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = h5py.h5s.create_simple((4, 2))
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.COMPACT)
    with h5py.File(tmp_path / "compact.hdf5", "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, settings)
        for axis, label in enumerate(("batch", "index")):
            file["x"].dims[axis].label = label
    caplog.set_level(logging.INFO, "labeled")
    labeled.open_dataset(tmp_path / "compact.hdf5")["x"].compute()
    (told,) = caplog.messages
    assert "'x'" in told
    assert "is read through h5py: compact storage" in told


def test_warnings_name_the_line_of_the_caller(tmp_path: Path) -> None:
    x = np.arange(20)
    with pytest.warns(LabeledWarning, match="splits overlap") as told:
        labeled.write(tmp_path / "o.hdf5", {"x": x}, {"train": (0, 15), "test": (10, 20)})
    assert [warning.filename for warning in told] == [__file__]
    array = xr.DataArray(x, dims="batch", coords={"when": 3})
    with pytest.warns(LabeledWarning, match="are not written") as told:
        labeled.write(tmp_path / "c.hdf5", {"x": array})
    assert [warning.filename for warning in told] == [__file__]
