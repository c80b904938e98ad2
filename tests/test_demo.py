"""The demo: its file is what plain h5py says it is, and its figures are within what it promises."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

import labeled
from labeled.cli.demo import Softmax
from labeled.cli.digits import (
    N_DIGITS,
    bundled_digits,
    write_digits,
)
from labeled.cli.main import main
from labeled.errors import MissingExtraError
from make_files import ragged_file

MIB = 1 << 20


def run_demo(*words: Any) -> Result:
    result = CliRunner().invoke(main, ["demo", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def figure(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern!r} is not in:\n{text}"
    return float(found[1].replace(",", ""))


# the file


def test_the_file_holds_every_digit_as_plain_h5py_reads_it(tmp_path: Path) -> None:
    digits = bundled_digits()
    path = tmp_path / "digits.hdf5"
    write_digits(path, digits, N_DIGITS)
    with h5py.File(path) as f:
        images, targets, table = f["image_features"], f["targets"], f.attrs["split"]
        np.testing.assert_array_equal(images[:], digits.images)
        np.testing.assert_array_equal(targets[:], digits.targets)
        assert (images.compression, images.shuffle, targets.chunks) == ("gzip", True, None)
        assert [d.label for d in images.dims] == ["batch", "channel", "height", "width"]
        names = ("split", "source", "start", "stop", "indices", "available", "comment")
        assert table.dtype.names == names
        ends = {row["split"]: (row["start"], row["stop"]) for row in table}
        assert ends[b"train"] == (0, digits.n_train)
        assert ends[b"test"] == (digits.n_train, N_DIGITS)
        sevens = f[table["indices"][table["split"] == b"sevens"][0]][:]
        np.testing.assert_array_equal(sevens, np.flatnonzero(digits.targets[:, 0] == 7))


def test_every_digit_of_scikit_learn_is_there_once() -> None:
    from sklearn.datasets import load_digits

    original, labels = load_digits(return_X_y=True)
    digits = bundled_digits()
    ours = np.c_[digits.images.reshape(-1, 64), digits.targets]
    theirs = np.c_[original, labels]
    np.testing.assert_array_equal(np.sort(ours, axis=0), np.sort(theirs, axis=0))
    assert sorted(map(bytes, ours)) == sorted(map(bytes, theirs.astype(np.uint8)))


def test_a_larger_file_repeats_digits_on_their_own_side(tmp_path: Path) -> None:
    digits = bundled_digits()
    path, n_rows = tmp_path / "digits.hdf5", 70_000
    told: list[int] = []
    write_digits(path, digits, n_rows, told.append)
    assert sum(told) == n_rows
    ds = labeled.open_dataset(path)
    for split, originals in (
        ("train", slice(0, digits.n_train)),
        ("test", slice(-digits.n_test, None)),
    ):
        part = ds.split(split)
        images = part["image_features"].values
        np.testing.assert_array_equal(images, np.resize(digits.images[originals], images.shape))
        np.testing.assert_array_equal(
            part["targets"].values, np.resize(digits.targets[originals], (len(images), 1))
        )
    stored = path.stat().st_size / n_rows
    assert digits.stored_row_bytes == pytest.approx(stored, rel=0.15)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install scikit-learn"):
        bundled_digits()
    assert re.match(r"Error: .*pip install -e '\.\[demo\]'", run_demo().stderr)


# the classifier


def test_the_classifier_follows_the_gradient_of_its_loss() -> None:
    """Against a difference quotient of the mean cross-entropy, in double precision."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(6, 4)), np.eye(3)[rng.integers(0, 3, 6)]
    model = Softmax(rng.normal(size=(4, 3)), np.zeros(3))
    before = model.weights.copy()

    def loss(weights: np.ndarray[Any, Any]) -> float:
        scores = x @ weights
        return float((np.log(np.exp(scores).sum(axis=1)) - (scores * y).sum(axis=1)).mean())

    slope = np.zeros_like(before)
    for at in np.ndindex(before.shape):
        nudge = np.zeros_like(before)
        nudge[at] = 1e-6
        slope[at] = (loss(before + nudge) - loss(before - nudge)) / 2e-6
    model.learn(x, y, rate=0.25)
    np.testing.assert_allclose(before - model.weights, 0.25 * slope, atol=1e-7)


# the command


def test_the_demo_learns_real_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = run_demo()
    assert (shown.exit_code, shown.stderr) == (0, "")
    text = shown.stdout
    assert "image_features" in text
    assert "('c', 0, 1, 'b')" in text
    assert "first batch: (1, 8, 8, 256) uint8" in text
    assert figure(r"([\d,]+) rows in batches", text) == N_DIGITS
    assert figure(r"([\d,]+) rows/s", text) > 0
    assert figure(r"accuracy .*: ([\d.]+)%", text) > 90
    assert list(tmp_path.iterdir()) == []


def test_a_file_larger_than_memory_is_iterated_within_it(tmp_path: Path) -> None:
    path = tmp_path / "large.hdf5"
    shown = run_demo("--file", path, "--memory", "8 MiB", "--keep")
    assert shown.exit_code == 0
    text = shown.stdout
    assert path.stat().st_size >= 4 * 8 * MIB
    assert figure(r"is ([\d.]+) times that memory", text) >= 4
    assert figure(r"accuracy .*: ([\d.]+)%", text) > 90
    if sys.platform == "linux":
        if not re.search(r"peak memory: [\d.]+ (B|kiB) ", text):  # what writing left was enough
            assert figure(r"peak memory: ([\d.]+) MiB", text) <= 8


def test_rows_and_keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = run_demo("--rows", 5_000, "--keep")
    assert shown.exit_code == 0
    (kept,) = tmp_path.rglob("*.hdf5")
    assert f"The file stays: {kept}" in shown.stdout
    assert labeled.open_dataset(kept).n_rows == 5_000


def test_a_mistyped_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "typo.h5"
    shown = run_demo("--file", path)
    assert shown.exit_code == 1
    assert "does not exist" in shown.stderr
    assert "--keep" in shown.stderr
    assert not path.exists()


def test_a_file_of_ones_own_is_iterated_whole(tmp_path: Path) -> None:
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as f:
        for name, shape in {"x": (300, 4), "y": (300,), "other": (7, 2)}.items():
            f[name] = np.ones(shape, np.float32)
            for axis in range(len(shape)):
                f[name].dims[axis].label = ("batch", f"{name}_axis")[axis]
    shown = run_demo("--file", path)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "Left out: other (7 rows, not 300)" in shown.stdout
    assert figure(r"([\d,]+) rows in batches", shown.stdout) == 300


def test_a_ragged_source_of_ones_own_is_left_out(tmp_path: Path) -> None:
    images = [np.zeros((3, 4 + i, 5), np.uint8) for i in range(4)]
    path = ragged_file(tmp_path / "ragged.hdf5", images, np.arange(4)[:, None])
    shown = run_demo("--file", path)
    assert shown.exit_code == 0
    assert "Left out: image_features" in shown.stdout
    assert figure(r"([\d,]+) rows in batches", shown.stdout) == 4


def test_a_file_without_rows_is_said_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / "empty.h5"
    with h5py.File(path, "w") as f:
        f["x"] = np.zeros((0, 3))
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "feature"
    assert "no row to iterate" in run_demo("--file", path).stdout
