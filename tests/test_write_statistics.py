"""Statistics gathered while writing, against NumPy."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.formats.hdf5.own import read_statistics
from labeled.writing import streaming
from labeled.writing.statistics import Tally, measured, moments_of, plain


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


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), max_size=15),
    st.integers(1, 9),
)
def test_stretches_are_measured_whatever_the_blocks(sizes: Any, rows: Any, block: int) -> None:
    edges = np.cumsum([0, *sizes])
    values = np.random.default_rng(0).normal(size=edges[-1])
    wanted = np.array([row for row in rows if row < len(sizes)], np.int64)
    tally = Tally({"some": np.stack((edges[wanted], edges[wanted + 1]), axis=1)})
    for start in range(0, len(values), block):
        some = values[start : start + block]
        parts = tally.parts(start, start + len(some))
        tally.add(measured(some, parts, None, count_classes=False))

    chosen = [values[edges[row] : edges[row + 1]] for row in wanted]
    found = tally.result()["splits"]["some"]
    assert found["n_values"] == sum(map(len, chosen))
    if found["n_values"]:
        assert found["mean"] == pytest.approx(np.concatenate(chosen).mean())
        assert found["std"] == pytest.approx(np.concatenate(chosen).std(), abs=1e-12)
