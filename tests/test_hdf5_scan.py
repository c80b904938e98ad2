"""What opening a file tells: plain HDF5, names of axes, where bytes are, and how long it takes."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import (
    DimsError,
    FileChangedError,
    LabeledWarning,
    UnknownNameError,
)
from make_files import DIGIT_LABELS, digits, fuel_file, plain_file, scan

NO_WARNING_WANTED = "ignore::labeled.errors.LabeledWarning"


# Plain HDF5 ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings(NO_WARNING_WANTED)
def test_every_numeric_or_text_dataset_is_a_source(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    kinds = ["i1", "u8", "f2", "f4", ">f8", "c8", "c16", "?", "S5"]
    with h5py.File(path, "w") as f:
        for kind in kinds:
            f.create_dataset(f"of_{kind.replace('>', 'big_')}", (4, 2), kind)
        f.create_dataset("group/text", (4,), h5py.string_dtype())
        f.create_dataset("group/deeper/enum", (4,), h5py.enum_dtype({"a": 1, "b": 2}))
        f.create_dataset("rows", (4,), h5py.vlen_dtype("f4"))
        f.create_dataset("none", (0, 3), "f4")
        f.create_dataset("bad/compound", (4,), [("a", h5py.ref_dtype), ("b", "V4")])
        f.create_dataset("bad/reference", (4,), h5py.ref_dtype)
        f.create_dataset("bad/region", (4,), h5py.regionref_dtype)
        f.create_dataset("bad/opaque", (4,), "V7")
        f["bad/single"], f["bad/null"] = 3.0, h5py.Empty("f4")
        f["type"] = np.dtype("i4")

    header = scan(path)

    good = {"group/text", "group/deeper/enum", "rows", "none"}
    assert set(header.sources) == good | {f"of_{k.replace('>', 'big_')}" for k in kinds}
    assert header.kind == "plain"
    assert header.splits == {"all": {n: range(h.n_rows) for n, h in header.sources.items()}}
    assert header.splits["all"]["none"] == range(0)
    assert header.sources["of_big_f8"].dtype == np.dtype(">f8")
    assert header.sources["group/deeper/enum"].dtype == np.dtype("u1")
    assert h5py.check_string_dtype(header.sources["group/text"].dtype) is not None
    assert header.sources["rows"].ragged is not None
    reasons = {
        name: header.not_opened[f"bad/{name}"]
        for name in ("compound/a", "reference", "region", "opaque", "single", "null")
    }
    for name, word in (
        ("compound/a", "reference dtype"),
        ("reference", "reference dtype"),
        ("region", "reference dtype"),
        ("opaque", "opaque dtype"),
        ("single", "no axis"),
        ("null", "null"),
    ):
        assert word in reasons[name], name
    with h5py.File(path) as f:
        for name, source in header.sources.items():
            assert source.shape == f[name].shape
            assert f[source.key] == f[name]


def test_group_opens_below_a_group(tmp_path: Path) -> None:
    path = plain_file(
        tmp_path / "p.h5", {"g/h/a": np.zeros(3), "b": np.zeros(5)}, {"g/h/a": ("n",), "b": ("n",)}
    )

    header = scan(path, group="/g")

    assert {n: s.key for n, s in header.sources.items()} == {"h/a": "/g/h/a"}
    with pytest.raises(UnknownNameError, match=r"'b' in .* is a dataset, not a group"):
        scan(path, group="b")


# Names of axes -------------------------------------------------------------------------------


def test_axes_without_names_get_them_with_one_warning(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, {"features": ("batch", "", "h")})

    with pytest.warns(LabeledWarning) as caught:
        header = scan(path)

    assert header.sources["features"].dims == ("batch", "features_axis_1", "h", "features_axis_3")
    assert header.sources["targets"].dims == ("batch", "targets_axis_1")
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "'features' (axis 1, 3), 'targets' (axis 0, 1)" in text
    assert (
        "Set f['features'].dims[1].label in the file, or pass dims={'features': ('batch', " in text
    )


def test_names_given_by_the_user_go_first(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)

    dims = scan(path, dims={"features": ("n", None, "h", None)}).sources["features"].dims

    assert dims == ("n", "channel", "h", "width")
    for wrong, match in (
        (("n",), "has 4 axes; pass one name per axis"),
        ("nchw", "one name per axis"),
        (("n", 3, "h", "w"), "3 is not a name"),
    ):
        with pytest.raises(DimsError, match=match):
            scan(path, dims={"features": wrong})


def test_repeated_labels_are_refused_with_the_remedy(tmp_path: Path) -> None:
    labels = {"features": ("batch", "side", "side", "width"), "targets": ("batch", "index")}
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, labels)

    with pytest.raises(DimsError) as caught:
        scan(path)
    assert (
        f"source 'features' in {path!r} has the dim 'side' twice, as axis 1 and axis 2; its labels "
        "are ('batch', 'side', 'side', 'width'). Set f['features'].dims[2].label in the file, or "
        "pass dims={'features': ('batch', 'side', 'features_axis_2', 'width')} when opening it"
    ) == str(caught.value)
    proposed = {"features": ("batch", "side", "features_axis_2", "width")}
    assert scan(path, dims=proposed).sources["features"].dims == proposed["features"]


# Where the bytes are ---------------------------------------------------------------------------


# Attributes, headers, handles --------------------------------------------------------------------


def test_attributes_are_plain_values(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "p.h5", {"x": np.zeros(3)}, {"x": ("n",)})
    with h5py.File(path, "a") as f:
        for thing in (f, f["x"]):
            thing.attrs["text"], thing.attrs["bytes"] = "grüße", np.bytes_(b"abc")
            thing.attrs["names"] = np.array([b"a", b"bc"])
            thing.attrs["words"] = np.array(["u", "v"], dtype=h5py.string_dtype())
            thing.attrs["number"], thing.attrs["list"] = 3, np.arange(2.0)
            thing.attrs["ref"], thing.attrs["empty"] = f["x"].ref, h5py.Empty("f4")
            thing.attrs["refs"] = np.array([f["x"].ref], dtype=h5py.ref_dtype)

    header = scan(path)

    for attrs in (header.attrs, header.sources["x"].attrs):
        assert set(attrs) == {"text", "bytes", "names", "words", "number", "list", "empty"}
        assert (attrs["text"], attrs["bytes"], attrs["number"]) == ("grüße", "abc", 3)
        assert (attrs["names"], attrs["words"]) == (["a", "bc"], ["u", "v"])
        assert attrs["empty"] is None
        np.testing.assert_array_equal(attrs["list"], [0, 1])
        assert pickle.loads(pickle.dumps(attrs)).keys() == attrs.keys()


@pytest.mark.parametrize("ordered", [True, False])
def test_attributes_are_those_of_h5py_in_its_order(tmp_path: Path, ordered: bool) -> None:
    dtypes = ["i1", "u2", ">i4", "<u8", "f2", ">f4", "f8", "g", "?", "c8", "S3"]
    custom = h5py.h5t.IEEE_F32LE.copy()
    custom.set_ebias(42)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        x = f.create_dataset("x", (2,), "f4", track_order=ordered)
        for number, dtype in enumerate(dtypes):
            for shape in ((), (1,), (2, 3), (0,)):
                name = f"{'zyx'[number % 3]}{number}{len(shape)}{0 in shape}"
                x.attrs[name] = np.ones(shape, dtype)
        x.attrs["nothing"] = h5py.Empty("i4")
        x.attrs.create("enum", 1, dtype=h5py.enum_dtype({"no": 0, "yes": 1}))
        odd = h5py.h5a.create(x.id, b"odd", custom, h5py.h5s.create(h5py.h5s.SCALAR))
        odd.write(np.array(1.5, "f4"))

    found = scan(tmp_path / "a.h5").sources["x"].attrs

    with h5py.File(tmp_path / "a.h5") as f:
        assert [*found] == [*f["x"].attrs]
        for name, theirs in f["x"].attrs.items():
            if isinstance(theirs, np.ndarray | np.number | np.bool_) and theirs.dtype.kind != "S":
                assert found[name].dtype == theirs.dtype, name
                np.testing.assert_array_equal(found[name], theirs, err_msg=name, strict=True)
    assert found["nothing"] is None


def test_a_thousand_openings_leak_nothing(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)
    scan(path)
    objects = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    for _ in range(1000):
        scan(path)

    # what other tests of this process have left behind may be collected meanwhile
    assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL) <= objects
    if before:  # a few may come and go: threads of other tests end in this process
        assert len(os.listdir("/proc/self/fd")) < before + 100
    with h5py.File(path, "a") as f:  # nobody blocks a writer
        f.attrs["x"] = 1


@pytest.mark.parametrize("locking", ["best-effort", True, False])
def test_a_file_that_is_open_in_this_process(tmp_path: Path, locking: object) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)

    with h5py.File(path, "r", locking=locking) as f:
        assert list(scan(path).sources) == ["features", "targets"]
        assert f["features"].shape == (60, 3, 5, 7)  # the user's handle stays open


def test_a_file_that_changes_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)
    close = h5py.File.close

    def touching(self: h5py.File) -> None:
        os.utime(path, ns=(1, 1))
        close(self)

    monkeypatch.setattr(h5py.File, "close", touching)
    with pytest.raises(FileChangedError, match="has changed since it was opened"):
        scan(path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_datasets_in_chunks_take_no_memory_for_their_chunks(tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for i in range(1000):
            file.create_dataset(f"x{i}", data=np.zeros(2), chunks=(1,))
    script = """
import sys, labeled
peak = lambda: next(int(s.split()[1]) for s in open("/proc/self/status") if s.startswith("VmHWM"))
before = peak()
labeled.open_dataset(sys.argv[1])
print(peak() - before)
"""
    took = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(took.stdout) < 60_000  # KiB; 64 each would be kept for chunks


def test_opening_takes_no_time_at_any_chunk_count(tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w", libver=("v110", "v114")) as f:
        data = f.create_dataset("x", (20_000, 4), "u1", chunks=(1, 4), maxshape=(None, 4))
        data[:] = 1
        data.dims[0].label, data.dims[1].label = "batch", "index"

    took = []
    for _ in range(5):
        began = time.perf_counter()
        scan(path)
        took.append(time.perf_counter() - began)

    assert min(took) < 0.05


def test_an_unreadable_attribute_costs_only_itself(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "p.h5", {"x": np.zeros(3)}, {"x": ("n",)})
    with h5py.File(path, "a") as f:
        f["x"].attrs["good"] = 1
        odd = h5py.h5t.STD_I32LE.copy()
        time_type = h5py.h5t.UNIX_D32LE
        h5py.h5a.create(f["x"].id, b"when", time_type, h5py.h5s.create(h5py.h5s.SCALAR))
        assert odd is not None

    with pytest.warns(LabeledWarning, match="attribute 'when' of 'x' cannot be read"):
        header = scan(path)
    assert header.sources["x"].attrs == {"good": 1}


@pytest.mark.parametrize("key", ["note", "_FillValue", "units"])
def test_an_attribute_of_rows_of_different_lengths_is_lists(tmp_path: Path, key: str) -> None:
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(5)
        rows = np.array([np.arange(3), np.arange(2)], dtype=object)
        f["x"].attrs.create(key, rows, dtype=h5py.vlen_dtype("i4"))
    x = labeled.open_dataset(path)["x"]
    assert x.attrs == {key: [[0, 1, 2], [0, 1]]}
    assert x.values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("values", ["0, 1, 2", "0b 1b 2b", np.array([0, np.nan, 1])])
def test_values_of_flags_that_are_no_integers_name_no_classes(
    tmp_path: Path, values: object
) -> None:
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(3)
        f["x"].attrs["flag_values"], f["x"].attrs["flag_meanings"] = values, "land sea ice"
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds["x"].attrs["flag_values"], values)
    (batch,) = ds.batches(3)
    assert batch["x"].values.tolist() == [0, 1, 2]


def test_unallocated_data_behind_a_user_block_are_fill_values(tmp_path):
    path = str(tmp_path / "block.h5")
    with h5py.File(path, "w", userblock_size=512) as f:
        f.create_dataset("x", (6, 3), "i4", fillvalue=7)
        f["y"] = np.arange(6)
        for name in f:
            for axis, label in enumerate(("batch", "feature")[: f[name].ndim]):
                f[name].dims[axis].label = label
    assert (labeled.open_dataset(path)["x"].values == 7).all()


SHAPES = {
    "colour": ((6, 8, 9, 3), ("batch", "height", "width", "channel")),
    "planes": ((6, 1, 8, 9), ("batch", "channel", "height", "width")),
    "grey": ((6, 8, 8), ("batch", "height", "width")),
    "series": ((6, 8, 5), ("batch", "series_axis_1", "series_axis_2")),
    "columns": ((6, 12), ("batch", "feature")),
}


@pytest.mark.parametrize("source", SHAPES)
def test_the_warning_about_axes_gives_names_that_end_it(source, tmp_path):
    shape, dims = SHAPES[source]
    path = tmp_path / "plain.hdf5"
    with h5py.File(path, "w") as f:
        f[source] = np.zeros(shape)
        f["targets"] = np.zeros(6)
    with pytest.warns(LabeledWarning, match=r"does not name every axis") as told:
        labeled.open_dataset(path)
    (words,) = re.findall(r"dims=(\{.*\}) when opening it$", str(told[0].message))
    remedy = ast.literal_eval(words)
    assert remedy == {source: dims}
    assert labeled.open_dataset(path, dims=remedy)[source].dims == dims


def test_files_that_are_alike_are_warned_of_once(tmp_path):
    for number in range(5):
        with h5py.File(tmp_path / f"{number}.hdf5", "w") as f:
            f["x"] = np.zeros((number + 1, 3))
    with pytest.warns(LabeledWarning) as told:
        labeled.open_dataset(tmp_path)
    (words,) = map(str, (each.message for each in told))
    assert re.search(r"0\.hdf5' \(like 4 of the others\) does not name every axis", words)


def test_a_file_without_sources_says_so(tmp_path):
    with h5py.File(tmp_path / "none.h5", "w") as f:
        f["entry/title"] = "nothing yet"
    told = repr(labeled.open_dataset(tmp_path / "none.h5"))
    assert "no sources: it holds no array" in told
    assert "entry/title  it is a single value" in told
