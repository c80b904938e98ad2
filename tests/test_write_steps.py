"""Whatever step of writing fails, the target is the old file or the whole new one, and alone."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import LabeledError

X = np.arange(40 * 6, dtype="i2").reshape(40, 6)
TEXTS = np.array([f"text {i} é" for i in range(40)], object)
SPLITS = {"train": (0, 30), "test": np.arange(30, 40)}
PICTURES = np.arange(40 * 12, dtype="u1").reshape(40, 2, 2, 3)

STEPS: list[tuple[Any, str]] = [
    (os, "open"),
    (os, "chmod"),
    (os, "fsync"),
    (os, "replace"),
    (os, "mkdir"),
    (h5py.File, "__init__"),
    (h5py.File, "flush"),
    (h5py.File, "close"),
    (h5py.Group, "create_dataset"),
    (h5py.AttributeManager, "__setitem__"),
    (h5py.Dataset, "__setitem__"),
    (h5py.Dataset, "resize"),
]


class Fault:
    """Fails the n-th of all calls that change something on a disk.

    By an error of the system before it has done anything, or by a Ctrl-C before or after.
    """

    def __init__(self, at: int, kind: str) -> None:
        self.left, self.after = at, kind == "Ctrl-C after"
        self.error = (
            KeyboardInterrupt() if "Ctrl-C" in kind else OSError(getattr(errno, kind), "no")
        )

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left:
                return call(*args, **kwargs)
            if self.after:
                call(*args, **kwargs)
            raise self.error

        return counted

    def spared(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call within which nothing fails: what clears away can only try once."""

        def uncounted(*args: Any, **kwargs: Any) -> Any:
            left, self.left = self.left, -1
            try:
                return call(*args, **kwargs)
            finally:
                self.left = left

        return uncounted

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in STEPS:
                patch.setattr(owner, name, self.wrapped(getattr(owner, name)))
            patch.setattr(shutil, "rmtree", self.spared(shutil.rmtree))
            yield


def begun(folder: Path, *, chunked: bool) -> Path:
    """Write the old file."""
    layout: dict[str, Any] = {"layout": "chunked", "chunks": 8} if chunked else {}
    sources = {"x": X[::-1].copy(), "t": TEXTS} if chunked else {"x": X[::-1].copy()}
    return Path(labeled.write(folder / "x.hdf5", sources, {"train": (0, 40)}, **layout))


def write(folder: Path) -> str:
    sources = {"x": X, "t": TEXTS}
    return labeled.write(folder / "x.hdf5", sources, SPLITS, overwrite=True, threads=1)


def write_batches(folder: Path) -> str:
    batches = ({"x": X[i : i + 10]} for i in range(0, 40, 10))
    return labeled.write(folder / "x.hdf5", batches, compression="gzip", overwrite=True, threads=1)


def append(folder: Path) -> str:
    return labeled.append(folder / "x.hdf5", {"x": X, "t": TEXTS}, threads=1)


def append_rows(folder: Path) -> str:
    return labeled.append(folder / "x.hdf5", {"x": X}, threads=1)


def repack(folder: Path) -> str:
    target = folder / "x.hdf5"
    return labeled.repack(target, target, order="shuffle", overwrite=True, threads=1)


JOBS: dict[str, tuple[Callable[[Path], str], bool]] = {
    "write": (write, False),
    "write batches": (write_batches, True),
    "append": (append, True),
    "append contiguous rows": (append_rows, False),
    "repack": (repack, True),
}


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file, by its name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rows_of(path: Path) -> dict[str, Any]:
    """Return what a file holds, as far as it does not change from one writing to the next."""
    if path.suffix != ".hdf5":
        return {"": path.read_bytes()}
    assert labeled.verify(path).sound
    with h5py.File(path) as f:
        return {name: f[name][...].tolist() for name in ("x", "t") if name in f}


BEFORE: dict[str, Path] = {}
"""By job, a folder as it is before ..."""

AFTER: dict[str, Any] = {}
"""... and what the target holds in the end."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Do every job once."""
    for name, (job, chunked) in JOBS.items():
        before = tmp_path_factory.mktemp("before")
        begun(before, chunked=chunked)
        after = tmp_path_factory.mktemp("after") / "x"
        shutil.copytree(before, after)
        BEFORE[name], AFTER[name] = before, rows_of(Path(job(after)))


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")  # of axes that could not be read
@given(
    name=st.sampled_from(sorted(JOBS)),
    at=st.integers(1, 70),
    kind=st.sampled_from(["ENOSPC", "EIO", "EACCES", "EINVAL", "Ctrl-C", "Ctrl-C after"]),
)
def test_whatever_step_fails_there_is_one_whole_file(
    folders: None, name: str, at: int, kind: str
) -> None:
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there) / "x"
        shutil.copytree(BEFORE[name], folder)
        old = content(folder)
        fault, raised = Fault(at, kind), None
        with fault.armed():
            try:
                JOBS[name][0](folder)
            except (LabeledError, KeyboardInterrupt) as error:
                raised = error
        found = content(folder)

        assert sorted(found) == sorted(old)
        (target,) = folder.glob("x.*")
        if raised is None:
            assert rows_of(target) == AFTER[name]
        elif "untouched" in str(raised) or "as it was before" in str(raised):
            assert found == old
        elif found != old:
            assert rows_of(target) == AFTER[name]
