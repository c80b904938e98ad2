"""Statistics gathered while writing, against NumPy."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import labeled


def stored(path: Any, name: str) -> dict[str, Any]:
    """Return the statistics that a file carries."""
    with h5py.File(path) as file:
        return dict(json.loads(file["_labeled"].attrs["statistics"])[name])


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([(0,), (7,), (200, 1), (9, 3, 40), (5, 2, 3, 3), (300, 300)]),
    dtype=st.sampled_from(["u1", "i1", "?", "<i4", ">u2", "<f2", "<f4", "<f8", "<i8", ">u8"]),
    offset=st.sampled_from([0, 1e8]),
    odd=st.sampled_from([(), (np.nan,), (np.inf, -np.inf, np.nan)]),
    seed=st.integers(0, 9),
    cut=st.integers(0, 300),
)
def test_stored_statistics_agree_with_numpy(
    tmp_path_factory: pytest.TempPathFactory,
    shape: Any,
    dtype: str,
    offset: float,
    odd: Any,
    seed: int,
    cut: int,
) -> None:
    rng = np.random.default_rng(seed)
    kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
    values = rng.standard_normal(shape) * 100
    values = np.abs(values) % 127 if kind in "biu" else values
    values += offset * (size >= 4)
    if kind == "f" and values.size > 4:
        values.reshape(-1)[: len(odd)] = odd
    array = values.astype(dtype)
    cut = min(cut, len(array))
    dims = {"x": ("batch", "channel", "height", "width")[: len(shape)]}
    path = tmp_path_factory.mktemp("statistics") / "x.h5"
    labeled.write(path, {"x": array[:cut]}, {"a": (0, cut)}, dims=dims, chunks=16)
    labeled.append(path, {"x": array[cut:]}, split="b")

    found = stored(path, "x")

    for told, rows in (
        (found["rows"], array),
        (found["splits"]["a"], array[:cut]),
        (found["splits"]["b"], array[cut:]),
        (labeled.open_dataset(path).statistics("x"), array),
        (labeled.open_dataset(path).subset(range(cut // 2)).statistics("x"), array[: cut // 2]),
    ):
        check_moments(told, rows)


def check_moments(told: dict[str, Any], rows: Any) -> None:
    """Compare the statistics of rows of one shape with NumPy, in as many digits as it has."""
    assert told["n_rows"] == len(rows)
    by_channel = rows.ndim > 1 and rows.size > 0
    assert told.get("by") == ("channel" if by_channel else None)
    columns = {k: v if by_channel else [v] for k, v in told.items() if k not in ("by", "classes")}
    channels = np.moveaxis(rows, 1, 0) if by_channel else rows[None]
    for place, channel in enumerate(channels.astype(np.longdouble).reshape(len(channels), -1)):
        finite = channel[np.isfinite(channel)]
        one = {name: column[place] for name, column in columns.items() if name != "n_rows"}
        assert (one["n_values"], one["not_finite"]) == (finite.size, channel.size - finite.size)
        if not finite.size:
            assert {one[name] for name in ("mean", "std", "min", "max")} == {None}
            continue
        assert one["mean"] == pytest.approx(float(finite.mean()), rel=1e-12)
        assert one["std"] == pytest.approx(float(finite.std()), rel=1e-8, abs=1e-6)
        assert (one["min"], one["max"]) == (float(finite.min()), float(finite.max()))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [0, 2**32 - 1, 2**40, 2**53 - 3, 2**60, 2**63 - 10_000, -(2**63), 2**64 - 10_000]
    ),
    st.lists(st.integers(0, 9_000), min_size=2, max_size=60),
    st.integers(1, 59),
    st.booleans(),
)
@example(2**53 - 3, [0, 1], 1, False)
@example(2**53 - 3, [0, 1, 5], 1, True)
def test_large_integers_have_the_deviation_of_their_differences(
    tmp_path_factory: pytest.TempPathFactory, base: int, steps: list[int], cut: int, swapped: bool
) -> None:
    dtype = np.dtype(np.int64 if base < 2**63 - 10_000 else np.uint64)
    values = np.array([base + step for step in steps], dtype)
    values = values.astype(dtype.newbyteorder(">")) if swapped else values
    path = tmp_path_factory.mktemp("large") / "x.h5"
    parts = [part for part in (values[:cut], values[cut:]) if len(part)]
    labeled.write(path, ({"x": part} for part in parts), chunks=4)
    for found in (stored(path, "x")["rows"], labeled.open_dataset(path).statistics("x")):
        assert found["std"] == pytest.approx(np.std(steps), rel=1e-9, abs=1e-9)
        assert found["mean"] == pytest.approx(base + np.mean(steps), rel=1e-15)
        assert (found["min"], found["max"]) == (float(values.min()), float(values.max()))


def test_statistics_of_bytes_and_labels_do_not_depend_on_where_blocks_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = {"x": rng.integers(0, 256, (9000, 3, 100), "u1"), "y": rng.integers(0, 10, 9000)}
    batches = ({name: values[a : a + 777] for name, values in rows.items()}
               for a in range(0, 9000, 777))  # fmt: skip
    ways: list[tuple[Any, dict[str, Any]]] = [
        (rows, {"memory": "6 MiB", "threads": 1}),
        (rows, {"memory": "64 MiB", "threads": 2}),
        (batches, {}),
    ]
    found = []
    for sources, options in ways:
        path = labeled.write(tmp_path / "x.hdf5", sources, overwrite=True, **options)
        dataset = labeled.open_dataset(path, dims={"x": ("batch", "channel", "value")})
        found.append([dataset.statistics(name) for name in rows])
    assert found[0] == found[1] == found[2]


def test_integers_of_the_whole_range_and_floats_near_its_end(tmp_path: Path) -> None:
    sources = {
        "signed": np.array([-(2**63), 2**63 - 1]),
        "unsigned": np.array([0, 2**64 - 1], np.uint64),
        "floats": np.array([1e308, -1e308]),
    }
    path = labeled.write(tmp_path / "x.h5", sources)
    found = {name: stored(path, name)["rows"] for name in sources}
    assert found["signed"]["std"] == pytest.approx(2.0**63)
    assert found["unsigned"]["std"] == pytest.approx(2.0**63)
    assert (found["floats"]["min"], found["floats"]["max"]) == (-1e308, 1e308)
    assert found["floats"]["std"] is None  # no float64 holds its square
    gaps = np.tile([np.finfo(float).min, 3.0], (9, 1))  # what GIS programs put where nothing is
    path = labeled.write(tmp_path / "y.h5", ({"x": row[None]} for row in gaps))  # warnings: errors
    assert stored(path, "x")["rows"]["min"] == np.finfo(float).min


SHAPES = {
    "no axis of channels": (("batch", "time"), lambda i: (i * 37 % 90,)),
    "channels first": (("batch", "channel", "height", "width"), lambda i: (3, i % 4 * 9, i % 5)),
    "channels last": (("batch", "height", "width", "channel"), lambda i: (i % 4, 40 + i % 3, 3)),
    "channels between": (("batch", "time", "channel", "feature"), lambda i: (i % 4, 2, 7 + i % 2)),
    "one shape": (("batch", "channel", "time"), lambda i: (2, 6)),
    "large": (("batch", "channel", "time"), lambda i: (2, 40_000 + i)),
    "channels differ": (("batch", "channel", "time"), lambda i: (1 + i % 3, 5)),
    "channels differ late": (("batch", "channel", "time"), lambda i: (1 + i // 20, 5)),
    "nothing in them": (("batch", "channel", "time"), lambda i: (3, 0)),
}


@pytest.mark.parametrize("kind", ["flat", "fuel"])
@pytest.mark.parametrize("given_as", ["list", "batches", "append", "repack", "convert"])
@pytest.mark.parametrize("case", SHAPES)
def test_examples_of_different_shapes_are_measured_by_split_and_channel(
    tmp_path: Path, case: str, given_as: str, kind: Any
) -> None:
    dims, shape_of = SHAPES[case]
    rng = np.random.default_rng(0)
    n = 6 if case == "large" else 25
    arrays = [rng.integers(0, 256, shape_of(i), np.uint8) for i in range(n)]
    splits = {"train": range(n - 5), "few": np.array([n - 1, 1, 2, 2, n - 2]), "none": range(0)}
    names = {"x": dims}
    options = {"dims": names, "ragged": kind}
    path = tmp_path / "x.h5"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "splits overlap", labeled.LabeledWarning)
        if given_as == "batches":
            batches = [{"x": objects_of(arrays[i : i + 4])} for i in range(0, n, 4)]
            labeled.write(path, iter(batches), splits, **options)
        elif given_as == "append":
            first = objects_of(arrays[:-2])
            partial = {"train": range(n - 5), "few": np.array([1, 2, 2]), "none": range(0)}
            labeled.write(path, {"x": first}, partial, **options)
            labeled.append(path, {"x": objects_of(arrays[-2:])}, split="few")
            splits["few"] = np.array([1, 2, 2, n - 2, n - 1])
        else:
            labeled.write(path, {"x": objects_of(arrays)}, splits, **options)
        if given_as == "repack":
            other = "fuel" if kind == "flat" else "flat"
            path = labeled.repack(path, tmp_path / "y.h5", ragged=other)
        if given_as == "convert":
            path = labeled.convert(path, tmp_path / "y.h5", ragged=kind)
    found = stored(path, "x")
    for split, rows in {"": range(n), **splits}.items():
        told = found["splits"][split] if split else found["rows"]
        check_measured(told, [arrays[row] for row in rows], dims)
    ds = labeled.open_dataset(path)
    assert ds.split("train").statistics("x") == found["splits"]["train"]  # as stored
    check_measured(ds.subset([3, 1, 3]).statistics("x"), [arrays[row] for row in (3, 1, 3)], dims)


def objects_of(arrays: list[Any]) -> Any:
    out = np.empty(len(arrays), object)
    out[:] = arrays
    if len({array.shape for array in arrays}) == 1:  # NumPy fills in their values
        for i, array in enumerate(arrays):
            out[i] = array
    return out


def check_measured(told: dict[str, Any], arrays: list[Any], dims: tuple[str, ...]) -> None:
    """Compare with NumPy."""
    assert told["n_rows"] == len(arrays)
    assert "classes" not in told
    held = [array for array in arrays if array.size]
    axis = dims.index("channel") - 1 if "channel" in dims else None
    if axis is None or len({array.shape[axis] for array in held}) != 1:
        assert "by" not in told
        told = {key: [value] for key, value in told.items()}
        channels = [np.concatenate([array.reshape(-1) for array in held] or [np.empty(0)])]
    else:
        assert told["by"] == "channel"
        apart = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in held]
        channels = list(np.concatenate(apart, axis=1))
    assert told["n_values"] == [len(values) for values in channels]
    for key in ("mean", "std", "min", "max"):
        wanted = [getattr(np, key)(values) if len(values) else None for values in channels]
        assert told[key] == ([None] if wanted == [None] else pytest.approx(wanted, abs=1e-9))
