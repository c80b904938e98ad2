"""Ragged sources: what was written with plain h5py comes back, whatever the layout and rows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from peak_memory import traced
from ragged_files import LAYOUTS, examples, ragged_path, same, write_flat

import labeled
from labeled import Ragged
from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledWarning,
    SelectionError,
    UnsafeFileError,
)

STORED = ({}, {"chunks": (3,)}, {"chunks": (2,), "compression": "gzip", "shuffle": True})
LAYOUT = st.sampled_from(LAYOUTS)
ROWS = st.one_of(
    st.slices(12),
    st.lists(st.integers(0, 11)),
    st.lists(st.booleans(), min_size=12, max_size=12).map(np.array),
)


def images(n: int = 9, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, (n, 2))
    return [rng.integers(1, 255, (3, h, w), dtype=np.uint8) for h, w in sizes]


def asked(rows: Any, n: int) -> Any:
    """Fit a request for up to 12 rows to n rows."""
    if isinstance(rows, slice):
        return rows
    if isinstance(rows, list):
        return [row for row in rows if row < n]
    return rows[:n]


@given(LAYOUT, examples(), st.sampled_from(STORED), ROWS)
def test_any_rows_of_any_layout_are_what_was_written(
    tmp_path_factory: Any, layout: str, arrays: Any, stored: dict[str, Any], rows: Any
) -> None:
    if layout == "vlen":
        arrays = [array.reshape(-1) for array in arrays]
    path = ragged_path(tmp_path_factory.mktemp("r") / "x.h5", layout, arrays, options=stored)
    rows = asked(rows, len(arrays))

    ragged = labeled.open_dataset(path)["x"]

    expected = [arrays[i] for i in np.arange(len(arrays), dtype=int)[rows]]
    chosen = ragged[rows]
    same(chosen.to_objects(), expected)
    same(list(chosen), expected)
    same(pickle.loads(pickle.dumps(chosen)).load().to_objects(), expected)
    same(chosen.load()[::-1].to_objects(), expected[::-1])
    assert chosen.shapes.tolist() == [list(array.shape) for array in expected]
    flat = chosen.flat()
    assert flat.values.tolist() == [v for array in expected for v in array.reshape(-1).tolist()]
    for i, array in enumerate(expected):
        same([chosen[i]], [array])


@pytest.mark.parametrize("layout", ["flat", "fuel"])
def test_examples_have_the_dims_of_the_file(tmp_path: Path, layout: str) -> None:
    ds = labeled.open_dataset(ragged_path(tmp_path / "x.h5", layout, images()))

    assert ds.dims["x"] == ("batch", "channel", "height", "width")
    assert ds["x"].dims == ds.dims["x"]
    assert ds["x"][-1].dims == ("channel", "height", "width")
    assert ds["x"][-1].name == "x"
    assert ds.shapes["x"] == (9,)
    assert ds.dtypes["x"] == np.uint8
    assert list(ds.spaces) == ["targets"]
    assert "(batch: 9, channel: *, height: *, width: *)" in repr(ds)
    assert "ragged" in repr(ds)
    assert "height: *" in ds._repr_html_()


def test_files_are_joined(tmp_path: Path) -> None:
    arrays = images()
    for layout in LAYOUTS:
        flat = [array.reshape(-1) for array in arrays] if layout == "vlen" else arrays
        paths = [
            ragged_path(tmp_path / f"{layout}{i}.h5", layout, flat[a:b])
            for i, (a, b) in enumerate(((0, 4), (4, 4), (4, 9)))
            if b > a
        ]
        ragged = labeled.open_dataset(paths)["x"]
        same(ragged.to_objects(), flat)
        same(ragged[[8, 0, 4, 8]].to_objects(), [flat[i] for i in (8, 0, 4, 8)])
        assert ragged.shapes.tolist() == [list(a.shape) for a in flat]


def test_netcdf_libraries_open_the_flat_layout_with_the_same_dims(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as f:
        write_flat(f, "x", images(), dims=("batch", "channel", "height", "width"))
        f["y"] = np.arange(9.0)
        f["y"].dims[0].attach_scale(f["batch"])
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        assert opened["x"].dims == ("x_value",)
        assert opened["x_shapes"].dims == ("batch", "x_axis")
        assert opened["y"].dims == ("batch",)
        np.testing.assert_array_equal(opened["x_shapes"], [a.shape for a in images()])

    ds = labeled.open_dataset(path)
    assert ds.sources == ("x", "y")
    same(ds["x"].to_objects(), images())
    assert not ds["x"].attrs


# what cannot be done


def test_inner_dims_cannot_be_cut_and_xarray_has_no_place(tmp_path: Path) -> None:
    ds = labeled.open_dataset(ragged_path(tmp_path / "x.h5", "fuel", images()))
    with pytest.raises(DimsError, match=r"dim 'height' of source 'x' .* another length in every"):
        ds.isel(height=slice(2))
    same(ds.isel(batch=[1])["x"].to_objects(), images()[1:2])
    with pytest.warns(LabeledWarning, match=r"ragged sources \['x'\] .* left out"):
        assert list(ds.to_xarray()) == ["targets"]
    with pytest.raises(SelectionError, match="row 9 is out of range"):
        ds["x"][9]
    with pytest.raises(SelectionError, match="row 12 is out of range"):
        ds["x"][[12]]


# bad files


def damage(path: Path, layout: str, name: str, change: Any) -> Ragged:
    """Write images, change a dataset of the file, open it again."""
    ragged_path(path, layout, images())
    with h5py.File(path, "a") as f:
        change(f[name])
    opened: Ragged = labeled.open_dataset(path)["x"]
    return opened


def put(place: Any, value: Any) -> Any:
    def change(dataset: h5py.Dataset) -> None:
        dataset[place] = value

    return change


@pytest.mark.parametrize(
    ("layout", "name", "change", "words"),
    [
        ("flat", "x_offsets", put(3, 1), r"row 2: its offsets \d+ to 1 run backwards"),
        ("flat", "x_offsets", put(9, 10**6), r"row 8: its offsets \d+ to 1000000 lie outside"),
        ("flat", "x_offsets", put(0, -1), r"row 0: its offsets -1 to \d+ lie outside"),
        ("flat", "x_shapes", put((4, 1), -2), r"row 4: its shape \(3, -2, \d\) has a negative"),
        ("flat", "x_shapes", put(4, [2**40] * 3), r"row 4: .* more elements than memory"),
        ("flat", "x_shapes", put((4, 0), 2), r"row 4: its shape .* does not fit the \d+ values"),
        ("fuel", "x_shapes", put((4, 1), -2), r"row 4: its shape \(3, -2, \d\) has a negative"),
        ("fuel", "x_shapes", put(4, [2**30] * 3), r"row 4: .* more elements than memory"),
        ("fuel", "x_shapes", put((4, 0), 2), r"row 4: its shape .* does not fit the \d+ values"),
        ("fuel", "x", put(4, np.zeros(1, "u1")), r"row 4: its shape .* does not fit the 1 values"),
    ],
)
def test_damage_names_file_source_and_row(
    tmp_path: Path, layout: str, name: str, change: Any, words: str
) -> None:
    ragged = damage(tmp_path / "bad.h5", layout, name, change)
    for read in (ragged.flat, ragged.pad, lambda: list(ragged), lambda: ragged[::-1].load()):
        with pytest.raises(FileFormatError, match=rf"source 'x' in '.*bad.h5', {words}"):
            read()
    same(ragged[1:2].to_objects(), images()[1:2])  # other rows can still be read


def test_shapes_with_another_number_of_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.h5"
    ragged_path(path, "fuel", images())
    with h5py.File(path, "a") as f:
        f["x"].dims[0].detach_scale(f["x_shapes"])
        f["few"] = f["x_shapes"][:5]
        f["few"].make_scale("shapes")
        f["x"].dims[0].attach_scale(f["few"])
    ds = labeled.open_dataset(path)
    assert ds["targets"].shape == (9, 1)
    with pytest.raises(FileFormatError, match=r"has 9 rows, but its scale 'shapes' is \(5, "):
        ds["x"]


def without_labels(path: Path) -> Path:
    """Take the names of examples' axes away from a file."""
    ragged_path(path, "fuel", images())
    with h5py.File(path, "a") as f:
        f["x"].dims[0].detach_scale(f["x_labels"])
    return path


def test_missing_shape_labels_are_refused_until_dims_name_the_axes(tmp_path: Path) -> None:
    path = without_labels(tmp_path / "x.h5")
    words = (
        r"source 'x' of file '.*x.h5' .*3 axes .*no scale 'shape_labels' .*dims=\{'x': \('batch'"
    )
    for dims in (None, {"x": ("batch", "a", None, "c")}):
        with pytest.raises(DimsError, match=words):
            labeled.open_dataset(path, dims=dims)

    names = ("batch", "channel", "height", "width")
    ds = labeled.open_dataset(path, dims={"x": names})
    assert ds["x"].dims == names
    same(ds["x"].to_objects(), images())
    assert labeled.open_dataset(path, sources=["targets"]).sources == ("targets",)


def test_lengths_beyond_the_file_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bad.h5"
    ragged_path(path, "vlen", [np.arange(5, dtype="u1")] * 4)
    with h5py.File(path) as f:
        at = f["x"].id.get_offset()
    with open(path, "r+b") as raw:
        raw.seek(at + 16 * 2)
        raw.write((2**31).to_bytes(4, "little"))
    ragged = labeled.open_dataset(path)["x"]
    with pytest.raises(FileFormatError, match="row 2: it claims 2147483648 values"):
        ragged.flat()
    with pytest.raises(FileFormatError, match="row 2"):
        ragged.shapes  # noqa: B018  reading them is the point


def test_values_that_are_claimed_but_not_stored_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as f:
        x = write_flat(
            f, "x", [np.arange(3)], dims=("batch", "time"), chunks=(8,), maxshape=(None,)
        )
        x.resize((2**40,))
        f["x_offsets"][1] = 2**40
    with pytest.raises(UnsafeFileError, match="claims shape"):
        labeled.open_dataset(path)["x"].flat()


def test_a_claim_is_judged_by_what_is_stored(tmp_path: Path, monkeypatch: Any) -> None:
    """Deflate makes a thousandth of zeros: decoding them into eight times as much is no claim."""
    monkeypatch.setattr("labeled.formats.hdf5.safety.FREE_BYTES", 1 << 16)
    path = tmp_path / "zeros.h5"
    with h5py.File(path, "w") as f:
        arrays, stored = [np.zeros(n, "i1") for n in (500_000, 500_001)], {"chunks": (1 << 18,)}
        x = write_flat(f, "x", arrays, dims=("batch", "time"), compression=9, **stored)
        x.attrs["scale_factor"] = 0.5
    assert labeled.open_dataset(path)["x"].flat().values.dtype == float


def test_packed_examples_are_decoded_a_part_at_a_time(tmp_path: Path) -> None:
    examples = [np.full(990 + n % 20, n % 7, "i2") for n in range(1000)]
    attrs = {"x": {"scale_factor": 0.5}}
    ragged = labeled.open_dataset(
        labeled.write(tmp_path / "x.h5", {"x": examples}, source_attrs=attrs)
    )["x"]
    ragged[:2].flat()
    values, peak_bytes = traced(lambda: ragged.flat().values)
    np.testing.assert_array_equal(values, np.concatenate(examples) * 0.5)
    assert peak_bytes < 1.7 * values.nbytes  # with what is stored, a quarter of it


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("ragged_offsets", "nowhere", "the offsets of ragged source 'x' are missing .*'nowhere'"),
        ("ragged_shapes", "nowhere", "the shapes of ragged source 'x' are missing .*'nowhere'"),
        ("ragged_offsets", "x_shapes", r"source 'x' is made of .*'offsets': \(\(9, 3\)"),
        ("ragged_shapes", "x_offsets", r"source 'x' is made of .*'shapes': \(\(10,\)"),
        ("ragged_offsets", np.arange(3), "names no dataset"),
    ],
)
def test_flat_layouts_that_do_not_belong_together_are_refused(
    tmp_path: Path, attribute: str, value: Any, words: str
) -> None:
    path = ragged_path(tmp_path / "x.h5", "flat", images())
    with h5py.File(path, "a") as f:
        f["x"].attrs[attribute] = value
    for table in (True, False):
        with pytest.raises(FileFormatError, match=rf"file '.*x.h5': .*{words}.* sources="):
            labeled.open_dataset(path)
        assert labeled.open_dataset(path, sources="targets").sources == ("targets",)
        with h5py.File(path, "a") as f:
            if table:
                del f.attrs["split"]
