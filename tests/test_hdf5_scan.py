"""What opening a file tells: plain HDF5, names of axes, where bytes are, and how long it takes."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import (
    DimsError,
    FileChangedError,
    FileFormatError,
    LabeledWarning,
    UnknownNameError,
)
from labeled.formats.hdf5 import format as scan_module
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.labels import name_dims
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.safety import stored_bytes
from labeled.formats.reader import read_rows
from make_files import DIGIT_LABELS, digits, fuel_file, plain_file

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


def test_sources_may_differ_in_length(tmp_path: Path) -> None:
    path = plain_file(
        tmp_path / "p.h5", {"a": np.zeros(3), "b": np.zeros(5)}, {"a": ("n",), "b": ("n",)}
    )

    assert scan(path).splits == {"all": {"a": range(3), "b": range(5)}}


def test_group_opens_below_a_group(tmp_path: Path) -> None:
    path = plain_file(
        tmp_path / "p.h5", {"g/h/a": np.zeros(3), "b": np.zeros(5)}, {"g/h/a": ("n",), "b": ("n",)}
    )

    header = scan(path, group="/g")

    assert {n: s.key for n, s in header.sources.items()} == {"h/a": "/g/h/a"}
    with pytest.raises(UnknownNameError, match=r"'b' in .* is a dataset, not a group"):
        scan(path, group="b")


def test_unknown_names_are_guessed(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "p.h5", {"features": np.zeros(3)}, {"features": ("n",)})

    for options in ({"sources": ["feature"]}, {"dims": {"feature": ("n",)}}):
        with pytest.raises(UnknownNameError, match=r"p\.h5.*did you mean 'features'"):
            scan(path, **options)
    with pytest.raises(UnknownNameError, match="example_dim='m' is not a dim"):
        scan(path, example_dim="m")


def test_example_dim_of_a_labelled_plain_file(tmp_path: Path) -> None:
    path = plain_file(
        tmp_path / "p.h5",
        {"a": np.zeros((3, 2)), "b": np.zeros(2), "c": np.zeros((2, 3))},
        {"a": ("n", "k"), "b": ("k",), "c": ("k", "n")},
    )

    header = scan(path, example_dim="n")

    assert (list(header.sources), list(header.variables)) == (["a"], ["b"])
    assert "axis 1, not axis 0" in header.not_opened["c"]


# Names of axes -------------------------------------------------------------------------------

found_names = st.lists(st.sampled_from(["", "", "a", "b", "c", "batch", "x_axis_1"]), max_size=5)


@settings(deadline=None)
@given(found_names, st.data())
def test_names_of_axes(found: list[str], data: st.DataObject) -> None:
    given_names = data.draw(
        st.none()
        | st.lists(
            st.none() | st.sampled_from(["p", "q", "r", "s", "t", "a"]),
            min_size=len(found),
            max_size=len(found),
        )
    )
    oracle = []
    for axis, name in enumerate(found):
        asked = given_names[axis] if given_names is not None else None
        default = "batch" if axis == 0 else f"x_axis_{axis}"
        oracle.append(asked if asked is not None else name or default)

    if len(set(oracle)) < len(oracle):
        with pytest.raises(DimsError, match="twice"):
            name_dims("f.h5", "x", found, given_names)
        return
    dims, unnamed = name_dims("f.h5", "x", found, given_names)
    assert dims == tuple(oracle)
    assert all(dims[axis] in ("batch", f"x_axis_{axis}") for axis in unnamed)


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
    assert caught[0].filename == __file__


def test_equally_long_axes_stay_apart(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "p.h5", {"x": np.zeros((3, 3, 3))})

    with pytest.warns(LabeledWarning):
        assert scan(path).sources["x"].dims == ("batch", "x_axis_1", "x_axis_2")


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


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    dtype=st.sampled_from(["u1", ">i2", "f4", "c8", "?", "S3"]),
    n=st.integers(1, 20),
    chunked=st.booleans(),
    userblock=st.sampled_from([0, 512]),
)
def test_contiguous_bytes_are_where_the_header_says(
    tmp_path: Path, dtype: str, n: int, chunked: bool, userblock: int
) -> None:
    path = tmp_path / "b.h5"
    values = np.arange(n * 3).reshape(n, 3).astype(dtype)
    with h5py.File(path, "w", userblock_size=userblock) as f:
        f.create_dataset("x", data=values, chunks=(min(2, n), 3) if chunked else None)
        f["x"].dims[0].label, f["x"].dims[1].label = "n", "k"

    source = scan(path).sources["x"]

    assert source.row_bytes * n == values.nbytes
    assert stored_bytes([source])[0] == (
        -(-n // 2) * min(2, n) * 3 * values.itemsize if chunked else values.nbytes
    )
    if chunked:
        assert (source.storage, source.offset, source.stored_bytes) == ("chunked", None, None)
        assert source.chunks == (min(2, n), 3)
    else:
        raw = path.read_bytes()[source.offset :][: values.nbytes]
        np.testing.assert_array_equal(np.frombuffer(raw, source.dtype).reshape(n, 3), values)


def test_filters_fill_values_and_unusual_storage(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset(
            "packed",
            (8, 2),
            "i4",
            chunks=(4, 2),
            compression=6,
            shuffle=True,
            fletcher32=True,
            fillvalue=-7,
        )
        f.create_dataset("unallocated", (8, 2), "f4", fillvalue=np.nan)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(f.id, b"compact", h5py.h5t.NATIVE_INT32, space, dcpl=plist)
        twelve_bits = h5py.h5t.STD_I16LE.copy()
        twelve_bits.set_precision(12)
        odd = h5py.Dataset(h5py.h5d.create(f.id, b"twelve", twelve_bits, space))
        odd[:] = [1, -2, 3, -4]
        padded = h5py.h5t.C_S1.copy()
        padded.set_size(4)
        padded.set_strpad(h5py.h5t.STR_SPACEPAD)
        text = h5py.Dataset(h5py.h5d.create(f.id, b"padded", padded, space))
        text[:] = np.array([b"a", b"bb", b"", b"dddd"])

    with pytest.warns(LabeledWarning, match="does not name every axis"):
        sources = scan(path).sources

    assert [(x.id, x.name) for x in sources["packed"].filters] == [
        (2, "shuffle"),
        (1, "deflate"),
        (3, "fletcher32"),
    ]
    assert sources["packed"].filters[1].options == (6,)
    assert sources["packed"].fill_value == -7
    assert sources["unallocated"].storage == "empty"
    assert np.isnan(sources["unallocated"].fill_value)
    assert sources["compact"].storage == "compact"
    assert sources["twelve"].storage == "foreign"
    assert sources["padded"].storage == "foreign"


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


def test_headers_pickle_small(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9), "b": (9, 60)}, DIGIT_LABELS)
    header = scan(path)

    data = pickle.dumps(header)

    assert len(data) < 2000
    assert pickle.loads(data) == header


def test_fingerprint_tells_files_apart(tmp_path: Path) -> None:
    def of(splits: dict[str, object], n: int = 60, labels: object = DIGIT_LABELS) -> str:
        path = fuel_file(tmp_path / "d.h5", digits(n), splits, labels)
        return scan(path).fingerprint

    base = of({"a": (0, 9)})
    others = [
        of({"a": (0, 8)}),
        of({"b": (0, 9)}),
        of({"a": (0, 9)}, n=61),
        of({"a": dict.fromkeys(digits(), np.arange(9))}),
        of({"a": dict.fromkeys(digits(), np.arange(9)[::-1].copy())}),
        of({"a": (0, 9)}, labels={**DIGIT_LABELS, "targets": ("batch", "other")}),
    ]

    assert len({base, *others}) == 7
    assert base == of({"a": (0, 9)})


def test_a_thousand_openings_leak_nothing(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)
    scan(path)
    objects = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    for _ in range(1000):
        scan(path)

    assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL) == objects
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
    real = scan_module.read_table

    def touching(base: h5py.Group) -> object:
        os.utime(path, ns=(1, 1))
        return real(base)

    monkeypatch.setattr(scan_module, "read_table", touching)
    with pytest.raises(FileChangedError, match="changed while it was opened"):
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
        header = scan(path)
        took.append(time.perf_counter() - began)

    assert min(took) < 0.05
    assert header.sources["x"].stored_bytes is None
    assert stored_bytes([header.sources["x"]])[0] == 80_000


def test_an_unreadable_attribute_costs_only_itself(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "p.h5", {"x": np.zeros(3)}, {"x": ("n",)})
    with h5py.File(path, "a") as f:
        f["x"].attrs["good"] = 1
        odd = h5py.h5t.STD_I32LE.copy()
        time_type = h5py.h5t.UNIX_D32LE
        h5py.h5a.create(f["x"].id, b"when", time_type, h5py.h5s.create(h5py.h5s.SCALAR))
        assert odd is not None

    with pytest.warns(LabeledWarning, match="attributes of 'x' cannot be read: 'when'"):
        header = scan(path)
    assert header.sources["x"].attrs == {"good": 1}


def test_no_warning_for_a_file_in_order(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan(path)
    with pytest.raises(FileFormatError):
        scan(path + "x")


def test_unallocated_data_behind_a_user_block_are_fill_values(tmp_path):
    path = str(tmp_path / "block.h5")
    with h5py.File(path, "w", userblock_size=512) as f:
        f.create_dataset("x", (6, 3), "i4", fillvalue=7)
        f["y"] = np.arange(6)
        for name in f:
            for axis, label in enumerate(("batch", "feature")[: f[name].ndim]):
                f[name].dims[axis].label = label
    header = scan(path).sources["x"]
    assert (header.storage, header.offset) == ("empty", None)
    assert (read_rows(open_reader(header), range(6)) == 7).all()


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


def test_the_warning_and_the_doctor_call_a_single_axis_alike(tmp_path):
    path = tmp_path / "plain.hdf5"
    with h5py.File(path, "w") as f:
        signal = f.create_dataset("signal", (6,), h5py.vlen_dtype("f4"))
        for row in range(6):
            signal[row] = np.zeros(row + 1)
        f["labels"] = np.zeros((6, 1), "i8")
    with pytest.warns(LabeledWarning, match="does not name every axis") as told:
        labeled.open_dataset(path)
    (words,) = re.findall(r"or pass dims=(\{.*\}) when opening it$", str(told[0].message))
    remedy = ast.literal_eval(words)
    assert remedy == {"signal": ("batch", "time"), "labels": ("batch", "index")}
    assert labeled.doctor(path).options["dims"] == remedy


def test_a_single_axis_counts_examples_whoever_names_it(tmp_path):
    with h5py.File(tmp_path / "columns.hdf5", "w") as f:
        f["energy"], f["targets"] = np.zeros(6), np.arange(6)
    ds = labeled.open_dataset(tmp_path / "columns.hdf5")  # a warning would be an error here
    assert ds.dims == {"energy": ("batch",), "targets": ("batch",)}


def test_names_that_are_there_stay_in_those_that_are_suggested(tmp_path):
    path = tmp_path / "scaled.hdf5"
    with h5py.File(path, "w") as f:
        f["images"] = np.zeros((6, 3, 4, 5))
        f["time"] = np.arange(6.0)
        f["time"].make_scale("time")
        f["images"].dims[0].attach_scale(f["time"])
    with pytest.warns(LabeledWarning, match=r"'images': \('time', 'channel', 'height', 'width'\)"):
        labeled.open_dataset(path)


def test_files_that_are_alike_are_warned_of_once(tmp_path):
    for number in range(5):
        with h5py.File(tmp_path / f"{number}.hdf5", "w") as f:
            f["x"] = np.zeros((number + 1, 3))
    with pytest.warns(LabeledWarning) as told:
        labeled.open_dataset(tmp_path)
    (words,) = map(str, (each.message for each in told))
    assert re.search(r"0\.hdf5' \(like 4 of the others\) does not name every axis", words)


def test_a_warning_lists_some_of_many_sources(tmp_path):
    path = tmp_path / "many.hdf5"
    kinds = ["u1", "i2", "f4"]  # so that no kind looks like one array an example
    with h5py.File(path, "w") as f:
        for number in range(500):
            f[f"x{number:03}"] = np.zeros((2, 3), kinds[number % 3])
    with pytest.warns(LabeledWarning, match=r"\.\.\. \(500 sources in all\)") as told:
        labeled.open_dataset(path)
    assert len(str(told[0].message)) < 1500


def test_a_file_without_sources_says_so(tmp_path):
    with h5py.File(tmp_path / "none.h5", "w") as f:
        f["entry/title"] = "nothing yet"
    told = repr(labeled.open_dataset(tmp_path / "none.h5"))
    assert "no sources: it holds no array" in told
    assert "entry/title  it is a single value" in told
