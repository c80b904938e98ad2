"""The demo: its file is what plain h5py says it is, and its figures are within what it promises."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_cli import run

MIB = 1 << 20


def figure(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern!r} is not in:\n{text}"
    return float(found[1].replace(",", ""))


def check_digits(path: Path) -> None:
    """Rows beyond the digits of scikit-learn repeat them, those for testing among the test rows."""
    from sklearn.datasets import load_digits

    original, labels = load_digits(return_X_y=True)
    tested = np.arange(len(labels)) % 5 == 4
    with h5py.File(path) as f:
        images, targets, table = f["image_features"], f["targets"], f.attrs["split"]
        n_rows = len(images)
        assert len(targets) == n_rows
        assert [d.label for d in images.dims] == ["batch", "channel", "height", "width"]
        names = ("split", "source", "start", "stop", "indices", "available", "comment")
        assert table.dtype.names == names
        ends = {row["split"]: slice(row["start"], row["stop"]) for row in table}
        assert ends[b"train"] == slice(0, ends[b"test"].start)
        assert ends[b"test"].stop == n_rows
        assert (n_rows - ends[b"test"].start) / n_rows == pytest.approx(tested.mean(), abs=1e-3)
        for split, chosen in ((b"train", ~tested), (b"test", tested)):
            part = images[ends[split]]
            wanted = np.resize(original[chosen].reshape(-1, 1, 8, 8), part.shape)
            np.testing.assert_array_equal(part, wanted)
            part = targets[ends[split]]
            np.testing.assert_array_equal(part, np.resize(labels[chosen, None], part.shape))


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert re.match(
        r"Error: .*pip install scikit-learn.*pip install -e '\.\[demo\]'", run("demo").stderr
    )


def test_the_demo_learns_real_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = run("demo")
    assert (shown.exit_code, shown.stderr) == (0, "")
    text = shown.stdout
    assert "image_features" in text
    assert "'channel height width batch'" in text
    assert "first batch: (1, 8, 8, 256) uint8" in text
    assert figure(r"([\d,]+) rows in batches", text) == 1_797
    assert figure(r"([\d,]+) rows/s", text) > 0
    assert figure(r"accuracy .*: ([\d.]+)%", text) > 90
    assert list(tmp_path.iterdir()) == []


def test_a_file_larger_than_memory_is_iterated_within_it(tmp_path: Path) -> None:
    path = tmp_path / "large.hdf5"
    shown = run("demo", "--keep", path, "--memory", "8 MiB")
    assert shown.exit_code == 0
    text = shown.stdout
    assert path.stat().st_size >= 4 * 8 * MIB
    assert figure(r"is ([\d.]+) times that memory", text) >= 4
    assert figure(r"accuracy .*: ([\d.]+)%", text) > 90
    assert figure(r"peak memory of arrays and objects: ([\d.]+) MiB", text) <= 8
    check_digits(path)
