"""Fuel's split table, in every form it was ever written, and every way it can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledWarning,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
)
from make_files import DIGIT_LABELS, digits, fuel_file, ragged_file, scan, split_table

N = 60


@pytest.mark.parametrize("one_shaped", [False, True])
@pytest.mark.parametrize("text", ["S", "str"])
@pytest.mark.parametrize("seven_fields", [False, True])
def test_every_form_of_the_table(
    tmp_path: Path, one_shaped: bool, text: str, seven_fields: bool
) -> None:
    splits = {"train": (0, 40), "test": (40, 60), "few": {"targets": (3, 9)}, "none": (N, N)}
    path = fuel_file(
        tmp_path / "d.h5",
        digits(N),
        splits,
        DIGIT_LABELS,
        one_shaped=one_shaped,
        text=text,
        seven_fields=seven_fields,
    )

    header = scan(path)

    assert header.kind == "fuel"
    assert list(header.sources) == ["features", "targets"]
    assert header.sources["features"].dims == DIGIT_LABELS["features"]
    assert header.splits == {
        "train": {"features": range(40), "targets": range(40)},
        "test": {"features": range(40, 60), "targets": range(40, 60)},
        "few": {"targets": range(3, 9)},
        "none": {"features": range(N, N), "targets": range(N, N)},
    }
    assert header.attrs == {}


rows = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(5, 9)),
    st.lists(st.integers(0, 8), max_size=12),
    st.none(),
)
names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    table=st.dictionaries(names, rows, min_size=1, max_size=5),
    dtype=st.sampled_from(["i8", "i2", "u1", "u8", ">i4"]),
)
def test_splits_are_what_was_written(tmp_path: Path, table: dict[str, Any], dtype: str) -> None:
    wanted = {k: np.array(v, dtype) if isinstance(v, list) else v for k, v in table.items()}
    splits = {split: {"x": rows} for split, rows in wanted.items()}
    path = fuel_file(tmp_path / "t.h5", {"x": np.arange(9)}, splits, {"x": ("batch",)})

    found = scan(path).splits

    assert list(found) == list(splits)
    for split, asked in wanted.items():
        if asked is None:
            assert found[split] == {}
        elif isinstance(asked, tuple):
            assert found[split]["x"] == range(*asked)
        else:
            assert found[split]["x"].dtype == np.int64
            np.testing.assert_array_equal(found[split]["x"], asked)


def test_nested_sources_and_a_table_in_a_group(tmp_path: Path) -> None:
    path = tmp_path / "n.h5"
    sources = {"camera/left": np.zeros((4, 2)), "camera/right": np.ones((4, 2))}
    labels = dict.fromkeys(sources, ("batch", "index"))
    fuel_file(path, sources, {"train": (0, 3)}, labels)
    with h5py.File(path, "a") as f:
        inner = f.create_group("inner")
        inner["x"] = np.arange(4)
        inner["x"].dims[0].label = "sample"
        inner.attrs["split"] = split_table(f, {"x": 0}, {"all of it": (0, 4)})

    header, inner_header = scan(path), scan(path, group="inner")

    assert list(header.sources) == ["camera/left", "camera/right"]
    assert header.splits["train"]["camera/left"] == range(3)
    assert inner_header.sources["x"].key == "/inner/x"
    assert inner_header.splits == {"all of it": {"x": range(4)}}
    with pytest.raises(UnknownNameError, match="did you mean 'inner'"):
        scan(path, group="iner")


def test_sources_choose_and_order(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(N), {"train": (0, 9)}, DIGIT_LABELS)

    header = scan(path, sources=["targets", "features"])

    assert list(header.sources) == ["targets", "features"]
    assert list(scan(path, sources=["targets"]).splits["train"]) == ["targets"]
    with pytest.raises(UnknownNameError, match="did you mean 'targets'"):
        scan(path, sources=["target"])
    with pytest.raises(UnknownNameError, match="twice"):
        scan(path, sources=["targets", "targets"])


def test_a_source_that_is_missing(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(N), {"train": (0, 9)}, DIGIT_LABELS)
    with h5py.File(path, "a") as f:
        f.move("features", "feature")

    with pytest.raises(SplitError, match=r"names source 'features', but there is no such dataset"):
        scan(path)
    with pytest.raises(SplitError, match="did you mean 'feature'"):
        scan(path)
    assert list(scan(path, sources=["targets"]).sources) == ["targets"]


def test_a_source_that_is_a_group_or_compound(tmp_path: Path) -> None:
    path = str(tmp_path / "d.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("table", (4,), dtype=[("a", "i4")])
        f["x"], f["one"] = np.arange(4), 3
        f["x"].dims[0].label = "batch"
        f.attrs["split"] = split_table(f, {"table": 0, "x": 0, "one": 0}, {"train": (0, 4)})

    header = scan(path)

    assert "compound" in header.not_opened["table"]
    assert "single value" in header.not_opened["one"]
    assert header.splits == {"train": {"x": range(4)}}
    with pytest.raises(FileFormatError, match=r"'table'.*cannot be a source: compound"):
        scan(path, sources=["table"])
    with h5py.File(path, "a") as f:
        del f["x"]
        f.create_group("x")
    with pytest.raises(SplitError, match="group or a type"):
        scan(path)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ((0, N + 1), r"'train', source 'features'.*rows 0 to 61, but the source has 60 rows"),
        ((9, 3), "rows 9 to 3"),
        ((-1, 3), "rows -1 to 3"),
        (np.array([0.0, 1.0]), "'/train_features_indices'.*float64; row numbers must be 1-D"),
        (np.array([[0, 1]]), r"shape \(1, 2\)"),
        (np.array([3, N, 4]), "lists row 60 .at position 1 .*rows 0 to 59"),
        (np.array([3, -1]), "lists row -1"),
        (np.array([2**64 - 1], "u8"), "row 18446744073709551615 is out of range"),
        (np.array([True, False]), "bool; row numbers must be 1-D integers"),
    ],
)
def test_rows_that_do_not_fit(tmp_path: Path, rows: Any, match: str) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(N), {"train": {"features": rows}}, DIGIT_LABELS)

    with pytest.raises(SplitError, match=match) as caught:
        scan(path)
    assert "d.h5" in str(caught.value)


def test_pairs_that_disagree_or_come_twice(tmp_path: Path) -> None:
    splits = {"train": {"features": (0, 40), "targets": (0, 39)}}
    path = fuel_file(tmp_path / "d.h5", digits(N), splits, DIGIT_LABELS)

    with pytest.raises(SplitError, match="40 rows of source 'features' but 39 of source 'targets'"):
        scan(path)
    assert scan(path, sources=["features"]).splits["train"]["features"] == range(40)

    with h5py.File(fuel_file(path, digits(N), {"a": (0, 4), "b": (0, 4)}, DIGIT_LABELS), "a") as f:
        table = f.attrs["split"]
        table["split"] = b"a"
        f.attrs["split"] = table
    with pytest.raises(SplitError, match="'a' of source 'features' twice, in rows 0 and 2"):
        scan(path)


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (np.zeros(2, [("split", "S3"), ("source", "S3")]), "lacks 'start', 'stop'"),
        (
            np.zeros(1, [("split", "S3"), ("source", "S3"), ("start", "f4"), ("stop", "i8")]),
            "'start'.*float32; row numbers must be integers",
        ),
        (
            np.zeros((2, 2), [("split", "S3"), ("source", "S3"), ("start", "i4"), ("stop", "i8")]),
            r"shape \(2, 2\)",
        ),
        (
            np.zeros(2, [("split", "S3"), ("source", "S3"), ("start", "i4", 2), ("stop", "i8")]),
            "expected one",
        ),
    ],
)
def test_tables_that_are_none(tmp_path: Path, table: np.ndarray, match: str) -> None:
    path = tmp_path / "d.h5"
    with h5py.File(path, "w") as f:
        f.attrs["split"] = table

    with pytest.raises(SplitError, match=match):
        scan(path)


def test_an_attribute_called_split_may_be_something_else(tmp_path: Path) -> None:
    path = tmp_path / "d.h5"
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(3)
        f["x"].dims[0].label = "batch"
        f.attrs["split"] = "train"

    header = scan(path)

    assert header.kind == "plain"
    assert header.attrs == {"split": "train"}


def test_references_to_nothing_and_to_groups(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(N), {"a": (0, 4)}, DIGIT_LABELS)
    with h5py.File(path, "a") as f:
        group, gone = f.create_group("g"), f.create_dataset("gone", data=[1])
        table = f.attrs["split"]
        table["indices"] = group.ref
        f.attrs["split"] = table
        f.attrs["other"] = gone.ref
        address = h5py.h5o.get_info(gone.id).addr.to_bytes(8, "little")
        del f["gone"]
    with pytest.raises(SplitError, match="not a dataset"):
        scan(path)
    with h5py.File(path, "a") as f:
        table["indices"] = f.attrs["other"]
        f.attrs["split"] = table
    data = Path(path).read_bytes()
    assert address in data
    Path(path).write_bytes(data.replace(address, b"\x00\x00\x00\x10\x00\x00\x00\x00"))
    with pytest.raises(SplitError, match="index dataset that is not there"):
        scan(path)


def test_index_datasets_are_safe(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(np.arange(4).tobytes())
    path = fuel_file(tmp_path / "d.h5", {"x": np.arange(9)}, {"a": (0, 4)}, {"x": ("batch",)})
    with h5py.File(path, "a") as f:
        leak = f.create_dataset(
            "rows", (4,), "i8", external=[(str(tmp_path / "secret.bin"), 0, 32)]
        )
        bomb = f.create_dataset("bomb", (10**12,), "i8", chunks=(1000,), compression=9)
        table = f.attrs["split"]
        table["indices"] = leak.ref
        f.attrs["split"] = table

    with pytest.raises(UnsafeFileError, match="external storage"):
        scan(path)
    np.testing.assert_array_equal(scan(path, allow_external=True).splits["a"]["x"], [0, 1, 2, 3])
    with h5py.File(path, "a") as f:
        table["indices"] = f["bomb"].ref
        f.attrs["split"] = table
    with pytest.raises(UnsafeFileError, match="only 0 bytes are stored"):
        scan(path)
    assert bomb is not None


def test_ragged_sources_open_with_the_reason(tmp_path: Path) -> None:
    images = [np.zeros((1, 2 + i, 3), np.uint8) for i in range(4)]
    path = ragged_file(tmp_path / "r.h5", images, np.arange(4)[:, None])

    header = scan(path)

    source = header.sources["image_features"]
    assert "shapes" in source.ragged
    assert source.dims == ("batch", "channel", "height", "width")
    assert source.shape == (4,)
    assert source.parts["shapes"].key == "/image_features_shapes"
    assert header.variables == {}
    assert source.coords == ()
    assert header.sources["targets"].ragged is None


@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c", "d"], []])
def test_shape_labels_of_another_number_are_refused(tmp_path: Path, labels: list[str]) -> None:
    images = [np.zeros((1, 2, 3), np.uint8)] * 2
    path = ragged_file(tmp_path / "r.h5", images, [[1], [2]], shape_labels=labels or ["a"])
    if not labels:
        with h5py.File(path, "a") as f:
            f["image_features"].dims[0].detach_scale(f["image_features_shape_labels"])

    found = f"names {len(labels)}" if labels else "no scale 'shape_labels'"
    words = rf"source 'image_features' of file '.*r.h5' .* 3 axes .*{found}"
    with pytest.raises(DimsError, match=words):
        scan(path)

    names = ("batch", "channel", "height", "width")
    assert scan(path, dims={"image_features": names}).sources["image_features"].dims == names
    assert list(scan(path, sources=["targets"]).sources) == ["targets"]


def test_scales_become_coordinates(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(N), {"train": (0, 9)}, DIGIT_LABELS)
    with h5py.File(path, "a") as f:
        for name, data, source, axis in (
            ("ids", np.arange(N), "features", 0),
            ("when", np.arange(N, dtype="f4"), "features", 0),
            ("height", np.arange(5), "features", 2),
            ("width", np.arange(5), "features", 2),
            ("wrong", np.arange(4), "features", 3),
            ("flat", np.zeros((7, 2)), "features", 3),
            ("single", np.array(3), "features", 3),
            ("null", h5py.Empty("f4"), "features", 3),
        ):
            f[f"scale_{name}"] = data
            f[f"scale_{name}"].make_scale(name)
            f[source].dims[axis].attach_scale(f[f"scale_{name}"])
        f["targets"].dims[0].attach_scale(f["scale_ids"])
        f["other"] = np.arange(N)
        f["other"].make_scale("when")
        f["targets"].dims[0].attach_scale(f["other"])

    with pytest.warns(LabeledWarning, match="a null data space") as caught:
        header = scan(path)

    assert len(caught) == 1
    assert all(
        word in str(caught[0].message)
        for word in ("shape () for", "shape (7, 2) for", "shape (4,) for 7")
    )
    assert header.sources["features"].dims == DIGIT_LABELS["features"]
    assert header.sources["features"].coords == ("ids", "when", "height", "features_width")
    assert header.sources["targets"].coords == ("ids", "targets_when")
    assert header.variables["ids"].dims == ("batch",)
    assert header.variables["features_width"].dims == ("height",)
    assert header.variables["features_width"].key == "/scale_width"
