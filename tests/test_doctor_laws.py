"""Whatever a file is like, the doctor's command runs, keeps its rows, and mends what it names."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.cli.main import main
from labeled.compat.fuel.datasets import H5PYDataset

CODECS: list[dict[str, Any]] = [
    {},
    {"compression": "gzip", "compression_opts": 1},
    {"compression": "gzip", "compression_opts": 1, "shuffle": True},
    {"compression": "lzf"},
    {"fletcher32": True},
]


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Draw how the sources of a file are stored, what is named, and its splits."""
    n = draw(st.integers(2, 60))
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
    chunks = tuple(draw(st.integers(1, length)) for length in (n, *shape))
    return {
        "n": n,
        "shape": shape,
        "dtype": draw(st.sampled_from(["u1", ">i2", "<f4", "<f8", "?"])),
        "noise": draw(st.booleans()),
        "chunks": draw(st.sampled_from([None, chunks, (1, *shape)])),
        "codec": draw(st.sampled_from(CODECS)),
        "named": draw(st.booleans()),
        "uneven": draw(st.booleans()),
        "splits": draw(st.sampled_from(["none", "stretches", "lists", "sorted", "overlapping"])),
        "seed": draw(st.integers(0, 99)),
    }


def write(path: Path, drawn: dict[str, Any]) -> None:
    n, shape = drawn["n"], drawn["shape"]
    rng = np.random.default_rng(drawn["seed"])
    values = rng.integers(0, 250 if drawn["noise"] else 2, (n, *shape)).astype(drawn["dtype"])
    chunked = drawn["chunks"] is not None
    with h5py.File(path, "w") as file:
        codec = drawn["codec"] if chunked else {}
        file.create_dataset("x", data=values, chunks=drawn["chunks"], **codec)
        file["y y"] = np.arange(n)
        if drawn["uneven"]:
            words = file.create_dataset("words", (n,), h5py.vlen_dtype("i4"))
            for row in range(n):
                words[row] = np.arange(row % 5)
        names = [name for name in ("x", "y y", "words") if name in file]
        for name in names:
            file[name].dims[0].label = "batch"
        for axis in range(1, values.ndim if drawn["named"] else 0):
            file["x"].dims[axis].label = f"axis {axis}"
        cut = n // 2
        pairs: dict[str, Any] = {}
        if drawn["splits"] == "stretches":
            pairs = {"one": (0, cut), "two": (cut, n)}
        elif drawn["splits"] != "none":
            perm = rng.permutation(n)
            halves = perm[:cut], perm[cut:]
            for name, rows in zip(("one", "two"), halves, strict=True):
                file[f"{name} rows"] = np.sort(rows) if drawn["splits"] == "sorted" else rows
                pairs[name] = (0, 0, file[f"{name} rows"].ref)
            if drawn["splits"] == "overlapping":
                pairs["two"] = (0, n)
        if pairs:
            table = {split: dict.fromkeys(names, pair) for split, pair in pairs.items()}
            file.attrs["split"] = H5PYDataset.create_split_array(table)


def rows_of(path: Any, split: str | None, *, in_order: bool) -> dict[str, list[Any]]:
    """Return the rows of every source: as they come, or by the numbers in `y y`."""
    dataset = labeled.open_dataset(path)
    dataset = dataset if split is None else dataset.split(split)
    order = np.arange(dataset.n_rows) if in_order else np.argsort(dataset["y y"].values)
    found = {}
    for name in dataset.sources:
        value = dataset[name]
        rows = value.to_objects() if isinstance(value, labeled.Ragged) else value.values
        found[name] = [row.tolist() for row in rows[order]]
    return found


def check_rows(fixed: Any, path: Any, split: str | None) -> None:
    """A list that does not ascend keeps its sequence; all else means a set of rows."""
    before = rows_of(path, split, in_order=True)
    in_order = sorted(before["y y"]) != before["y y"]
    assert rows_of(fixed, split, in_order=in_order) == before


def kinds(found: labeled.Diagnosis) -> set[tuple[str, str]]:
    return {(each.where, each.kind) for each in found.findings if each.fix}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
@settings(max_examples=settings.default.max_examples // 4)  # each writes two files
@given(drawn=files())
def test_the_command_of_the_doctor_runs_and_fixes(drawn: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a file's.hdf5"
        write(path, drawn)
        found = labeled.doctor(path, seconds=0.0001)
        assert (found.command is None) == (not found.findings)
        if found.command is None:
            return
        program, *words = shlex.split(found.command)
        assert program == "labeled"

        done = CliRunner().invoke(main, words)

        assert done.exit_code == 0, (done.output, found.command)
        fixed = words[2]
        again = labeled.doctor(fixed, seconds=0)
        assert not kinds(again) & kinds(found), (found.command, str(again))
        for split in [None] if drawn["splits"] == "none" else [None, "one", "two"]:
            check_rows(fixed, path, split)
