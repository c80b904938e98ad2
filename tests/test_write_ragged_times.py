"""Times and durations of different numbers an example: written, read, padded, converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import labeled
from labeled.errors import ArrayError

DAYS = [
    np.array(["2001-02-03", "NaT", "1969-01-01"], "M8[D]"),
    np.array([], "M8[D]"),
    np.array(["2020-01-01"], "M8[D]"),
]


def same(ragged: Any, examples: list[Any]) -> bool:
    found = [one.values for one in ragged]
    return len(found) == len(examples) and all(
        a.dtype.kind == b.dtype.kind and np.array_equal(a, b, equal_nan=True)
        for a, b in zip(found, examples, strict=True)
    )


@settings(max_examples=10)
@given(data=st.data(), kind=st.sampled_from("mM"), n_axes=st.integers(1, 2))
def test_written_appended_repacked_and_converted_they_are_equal(
    tmp_path_factory: Any, data: Any, kind: str, n_axes: int
) -> None:
    folder = tmp_path_factory.mktemp("times")
    shapes = npst.array_shapes(min_dims=n_axes, max_dims=n_axes, min_side=0, max_side=3)
    whole = npst.arrays(np.int64, shapes, elements=st.integers(-(1 << 62), 1 << 62))
    numbers = data.draw(st.lists(whole, min_size=2, max_size=5))
    examples = [one.view(f"{kind}8[ns]") for one in numbers]
    ragged = labeled.Ragged.of(examples, ("batch", *"ab"[:n_axes]))
    options = data.draw(st.sampled_from([{}, {"compression": "gzip"}]))
    path = labeled.write(folder / "x", {"x": ragged}, {"a": (0, 1)}, **options)
    assert same(labeled.open_dataset(path)["x"], examples)
    labeled.append(path, {"x": ragged})
    labeled.repack(path, folder / "y", chunks=2, order="shuffle")
    labeled.convert(path, folder / "z")
    assert same(labeled.open_dataset(path)["x"], examples * 2)
    assert same(labeled.open_dataset(folder / "z")["x"], examples * 2)
    moved = [one.values.tolist() for one in labeled.open_dataset(folder / "y")["x"]]
    assert sorted(map(str, moved)) == sorted(str(one.tolist()) for one in examples * 2)
    assert labeled.verify(path).sound


def test_fuels_rows_refuse_times_also_from_a_file_and_take_packed_numbers_decoded(
    tmp_path: Path,
) -> None:
    """Nothing beside rows of variable length tells how their values are to be decoded."""
    path = labeled.write(tmp_path / "x", {"x": DAYS})
    with pytest.raises(ArrayError, match="'x' has examples of times"):
        labeled.convert(path, tmp_path / "y", ragged="fuel")
    packed = labeled.Ragged.of([np.array([1, 2], "i2"), np.array([3], "i2")])
    attrs = {"x": {"scale_factor": 0.5}}
    path = labeled.write(tmp_path / "p", {"x": packed}, source_attrs=attrs)
    for origin in (path, labeled.convert(path, tmp_path / "q", ragged="fuel")):
        assert same(labeled.open_dataset(origin)["x"], [np.array([0.5, 1.0]), np.array([1.5])])


def test_batches_of_them_and_lists(tmp_path: Path) -> None:
    one = labeled.write(tmp_path / "one", {"x": DAYS})
    two = labeled.write(tmp_path / "two", iter([{"x": DAYS[:2]}, {"x": DAYS[2:]}]))
    for path in (one, two):
        assert same(labeled.open_dataset(path)["x"], [day.astype("M8[ns]") for day in DAYS])


@pytest.mark.parametrize("kind", ["M", "m"])
def test_they_are_padded_with_no_time(tmp_path: Path, kind: str) -> None:
    rows = [day.view(np.int64).view(f"{kind}8[D]") for day in DAYS]
    dataset = labeled.open_dataset(labeled.write(tmp_path / "x", {"x": rows}))
    expected = np.full((3, 3), "NaT", f"{kind}8[ns]")
    for place, row in zip(expected, rows, strict=True):
        place[: len(row)] = row
    np.testing.assert_array_equal(dataset["x"].pad().values, expected)
    (batch,) = dataset.batches(3, ragged="pad")
    np.testing.assert_array_equal(batch.arrays["x"], expected)
    day = np.array(5, f"{kind}8[D]")[()]
    (batch,) = dataset.batches(3, ragged="pad", pad_value=day)
    assert batch.arrays["x"][1].tolist() == [day.astype(f"{kind}8[ns]").astype(int)] * 3


@pytest.mark.parametrize(
    ("examples", "options", "words"),
    [
        ([DAYS[0], np.arange(2)], {}, "times of one kind"),
        ([DAYS[0], DAYS[2].view("m8[D]")], {}, "times of one kind"),
        (DAYS, {"ragged": "fuel"}, "ragged='flat'"),
        ([DAYS[0], np.array(["9999-01-01"], "M8[D]")], {}, "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, examples: Any, options: Any, words: str
) -> None:
    with pytest.raises(ArrayError, match=words):
        labeled.write(tmp_path / "x", {"x": examples}, **options)
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_times_do_not_mix_in_a_file(tmp_path: Path) -> None:
    numbers = labeled.write(tmp_path / "x", {"x": [np.arange(2), np.arange(1)]})
    with pytest.raises(ArrayError, match=r"rows in 'nanoseconds since .* in 'None'; convert them"):
        labeled.append(numbers, {"x": DAYS})
    with pytest.raises(ArrayError, match=r"rows in 'None', .*; convert them"):
        labeled.write(tmp_path / "y", iter([{"x": DAYS}, {"x": [np.arange(2), np.arange(1)]}]))


def test_rows_of_variable_length_take_neither_times_nor_texts(tmp_path: Path) -> None:
    """Repacking made numbers of times, and texts failed with the name of an offset."""
    times = [np.arange(n).astype("M8[s]") for n in (0, 3, 2)]
    texts = [np.array([b"a", b"bc"][:n], "S2") for n in (0, 2, 1)]
    for examples, words in ((times, "examples of times"), (texts, "examples of texts")):
        given = {"x": labeled.Ragged.of(examples, dims=("batch", "k"))}
        path = labeled.write(tmp_path / "flat.h5", given, overwrite=True)
        with pytest.raises(ArrayError, match=words):
            labeled.repack(path, tmp_path / "rows.h5", ragged="fuel")
        with pytest.raises(ArrayError, match=words):
            labeled.write(tmp_path / "rows.h5", given, ragged="fuel")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["flat.h5"]
