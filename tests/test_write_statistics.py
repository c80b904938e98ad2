"""Statistics gathered while writing, against NumPy."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import labeled
from labeled.cli.main import main
from labeled.formats.hdf5.own import read_statistics
from labeled.writing import ragged as ragged_writing
from labeled.writing import streaming, uneven
from labeled.writing.statistics import moments_of, plain


@settings(max_examples=60)
@given(
    shape=st.sampled_from([(0,), (7,), (200, 1), (9, 3, 40), (5, 2, 3, 3), (300, 300)]),
    axis=st.sampled_from([None, 1]),
    dtype=st.sampled_from(["u1", "i1", "?", "<i4", ">u2", "<f4", "<f8", "<i8"]),
    offset=st.sampled_from([0, 1e8]),
    seed=st.integers(0, 9),
    cuts=st.lists(st.integers(0, 300), max_size=3),
)
def test_moments_agree_with_numpy(
    shape: Any, axis: Any, dtype: str, offset: float, seed: int, cuts: list[int]
) -> None:
    axis = axis if len(shape) > 1 else None
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    values = rng.standard_normal(shape) * 100
    if kind == "f" or dtype in ("<i4", "<i8"):
        values += offset
    array = (np.abs(values) % 127 if kind in "biu" and offset == 0 else values).astype(dtype)
    bounds = [0, *sorted(min(c, len(array)) for c in cuts), len(array)]

    merged = moments_of(array[:0], axis)
    for a, b in pairwise(bounds):
        merged = merged.merge(moments_of(array[a:b], axis))
    found = plain(merged, "channel")

    flat = np.moveaxis(array, axis, 0) if axis is not None else array[None]
    flat = flat.reshape(len(flat), -1).astype(np.longdouble)
    assert found["n_rows"] == len(array)
    assert found["n_values"] == [flat.shape[1]] * len(flat)
    if flat.size:
        np.testing.assert_allclose(found["mean"], flat.mean(1).astype(float), rtol=1e-12)
        np.testing.assert_allclose(
            found["std"], flat.std(1).astype(float), rtol=1e-9, atol=1e-7 * bool(offset)
        )
        assert found["min"] == flat.min(1).astype(float).tolist()
        assert found["max"] == flat.max(1).astype(float).tolist()
    else:
        assert set(found["mean"]) == {None}


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(
        [0, 2**32 - 1, 2**40, 2**53 - 3, 2**60, 2**63 - 10_000, -(2**63), 2**64 - 10_000]
    ),
    st.lists(st.integers(0, 9_000), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
@example(2**53 - 3, [0, 1], [])
@example(2**53 - 3, [0, 1, 5], [1])
def test_large_integers_have_the_deviation_of_their_differences(
    base: int, steps: list[int], cuts: list[int]
) -> None:
    values = np.array([base + step for step in steps], np.int64 if base < 2**63 - 1 else np.uint64)
    total = moments_of(values[:0])
    for a, b in pairwise(sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})):
        total = total.merge(moments_of(values[a:b]))
    found = plain(total, None)
    assert found["std"] == pytest.approx(np.std(steps), rel=1e-9, abs=1e-9)
    assert found["mean"] == pytest.approx(base + np.mean(steps), rel=1e-15)
    assert (found["min"], found["max"]) == (float(values.min()), float(values.max()))


def test_channels_of_large_integers_and_of_the_whole_range() -> None:
    steps = np.random.default_rng(0).integers(0, 1000, (300, 2, 5))
    for dtype in ("<i8", ">i8", ">u8"):
        found = plain(moments_of((steps + 2**60).astype(dtype), 1), "channel")
        np.testing.assert_allclose(found["std"], steps.std(axis=(0, 2)), rtol=1e-12)
        both = moments_of((steps + 2**60).astype(dtype), 1).together()
        assert plain(both, None)["std"] == pytest.approx(steps.std(), rel=1e-12)
    ends = np.array([-(2**63), 2**63 - 1])
    assert plain(moments_of(ends), None)["std"] == pytest.approx(2.0**63)
    assert plain(moments_of(np.array([0, 2**64 - 1], np.uint64)), None)["std"] == 2.0**63


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    found = plain(moments_of(np.array([1.0, np.nan, 3.0, np.inf, -np.inf])), None)
    assert (found["n_values"], found["not_finite"]) == (2, 3)
    assert (found["mean"], found["std"], found["min"], found["max"]) == (2.0, 1.0, 1.0, 3.0)
    huge = plain(moments_of(np.array([1e308, 1e308, -1e308])), None)
    assert (huge["min"], huge["max"]) == (-1e308, 1e308)


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": 16}])
def test_statistics_by_split_and_channel(
    tmp_path: Path, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(streaming, "UNIT_BYTES", 10_000)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3000, 3, 8, 8), np.uint8)
    targets = rng.integers(0, 10, (3000, 1))
    listed = np.array([2999, 2500, 2500, 2001])
    path = labeled.write(
        tmp_path / "x",
        {"images": images, "targets": targets},
        {"train": (0, 1700), "test": (1700, 2000), "few": listed},
        dims={"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")},
        **options,
    )
    found = read_statistics(path)
    splits = {"train": slice(0, 1700), "test": slice(1700, 2000), "few": listed}
    for split, rows in splits.items():
        of_images = found["images"]["splits"][split]
        assert of_images["by"] == "channel"
        np.testing.assert_allclose(of_images["mean"], images[rows].mean((0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(of_images["std"], images[rows].std((0, 2, 3)), rtol=1e-12)
        values, counts = np.unique(targets[rows], return_counts=True)
        classes = dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))
        assert found["targets"]["splits"][split]["classes"] == classes
    assert found["targets"]["rows"]["mean"] == pytest.approx(targets.mean(), rel=1e-14)
    assert found["targets"]["rows"]["n_rows"] == 3000


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
    tmp_path: Path, case: str, given_as: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(streaming, "UNIT_BYTES", 1000)
    monkeypatch.setattr(ragged_writing, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(uneven, "PIECE_VALUES", 200)
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
    found = read_statistics(path)["x"]
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


def test_info_shows_the_channels_of_ragged_pictures(tmp_path: Path) -> None:
    pictures = [np.full((3, 2 + i, 4), [[[1]], [[2]], [[3]]], np.uint8) for i in range(3)]
    dims = {"x": ("batch", "channel", "height", "width")}
    path = labeled.write(tmp_path / "x.h5", {"x": pictures}, dims=dims, ragged="fuel")
    done = CliRunner().invoke(main, ["info", path])
    assert "1 2 3" in done.output


def test_classes_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x.hdf5", {"y": np.arange(24) % 12 - 1})
    found = labeled.open_dataset(path).statistics("y")["classes"]
    assert list(found) == [str(number) for number in range(-1, 11)]
