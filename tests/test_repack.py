"""Repacking: the same rows, however they are stored and in whatever order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_files import run

import labeled
from labeled.cli.main import main
from labeled.errors import (
    ArrayError,
    LabeledWarning,
    NotYetError,
    SplitError,
    UnknownNameError,
    WriteError,
)


def rows(n: int, seed: int = 0) -> dict[str, Any]:
    """Sources of every kind; every row tells its number."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(0, 256, (n, 3, 5), np.uint8),
        "n": np.arange(n, dtype=">i4"),
        "t": np.array([f"row {i} é" for i in range(n)], object),
        "r": labeled.Ragged.of(
            [np.full((i % 4, 2), i, "i2") for i in range(n)], ("batch", "time", "xy")
        ),
    }


def check_rows(path: Any, data: dict[str, Any]) -> np.ndarray:
    """Check that rows stayed whole; return where each is now."""
    ds = labeled.open_dataset(path)
    order = ds["n"].values.astype(np.int64)
    assert sorted(order.tolist()) == list(range(len(data["n"])))
    np.testing.assert_array_equal(ds["x"].values, data["x"][order])
    np.testing.assert_array_equal(ds["t"].values, data["t"][order])
    expected = data["r"][order].flat() if len(order) else data["r"].flat()
    np.testing.assert_array_equal(ds["r"].flat().values, expected.values)
    np.testing.assert_array_equal(ds["r"].shapes, expected.shapes)
    assert labeled.verify(path).sound
    return order


def sequence(path: Any, split: str) -> list[int]:
    return labeled.open_dataset(path).split(split)["n"].values.tolist()


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"chunks": {"x": 1}, "compression": "gzip"},
    {"chunks": {"x": (7, 3, 2), "n": 5, "t": 3}},
    {"layout": "contiguous"},
    {"layout": {"x": "chunked"}, "compression": {"x": "gzip"}, "level": {"x": 1}},
]


@st.composite
def split_tables(draw: st.DrawFn, n: int) -> dict[str, Any] | None:
    kind = draw(st.sampled_from(["none", "ranges", "lists", "both"]))
    perm = np.random.default_rng(draw(st.integers(0, 99))).permutation(n)
    cut = draw(st.integers(0, n))
    lists = {"b": np.sort(perm[:cut]), "a": perm[cut:]}
    ranges = {"train": (0, cut), "test": (cut, n)}
    return {"none": None, "ranges": ranges, "lists": lists, "both": {**ranges, **lists}}[kind]


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), n=st.integers(1, 40), order=st.sampled_from(["keep", "splits", "shuffle"]))
@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
def test_rows_and_splits_arrive_whatever_the_layouts(
    tmp_path: Path, data: Any, n: int, order: str
) -> None:
    sources, splits = rows(n), data.draw(split_tables(n))
    before, after = data.draw(st.sampled_from(LAYOUTS)), data.draw(st.sampled_from(LAYOUTS))
    kind = data.draw(st.sampled_from(["flat", "fuel"]))
    old = labeled.write(tmp_path / "old", sources, splits, overwrite=True, ragged=kind, **before)
    new = labeled.repack(
        old,
        tmp_path / "new",
        order=order,
        memory=data.draw(st.sampled_from(["2 kiB", "1 MiB"])),
        ragged=data.draw(st.sampled_from([None, "flat", "fuel"])),
        overwrite=True,
        **after,
    )
    moves = check_rows(new, sources)
    if order == "keep":
        assert moves.tolist() == list(range(n))
    for split in labeled.open_dataset(old).splits:
        was, now = sequence(old, split), sequence(new, split)
        assert sorted(was) == sorted(now)
        ascending = was == sorted(was)
        if order == "keep" or not ascending:
            assert was == now or order != "keep"
        if order == "splits" and splits is not None and set(splits) == {"a", "b"}:
            assert was == now


def test_texts_that_change_places_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of them read nearly all of the file: a million texts took minutes."""
    texts = np.array([f"text {i} é" * (i % 5) for i in range(9000)], object).reshape(4500, 2)
    sources = {"x": texts, "i": np.arange(4500), "none": texts[:, :0]}
    old = labeled.write(tmp_path / "old", sources)
    read, plain = list[int](), h5py.Dataset.__getitem__

    def counted(dataset: h5py.Dataset, *args: Any) -> Any:
        got = plain(dataset, *args)
        read.append(len(got) if (dataset.name, dataset.file.filename) == ("/x", old) else 0)
        return got

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    new = labeled.open_dataset(labeled.repack(old, tmp_path / "new", order="shuffle"))
    assert len(texts) <= sum(read) < 2 * len(texts)
    np.testing.assert_array_equal(new["x"].values, texts[new["i"].values])
    assert not np.array_equal(new["x"].values, texts)
    assert new["none"].shape == (4500, 0)


def test_a_shuffle_is_seeded_and_keeps_ranges(tmp_path: Path) -> None:
    old = labeled.write(tmp_path / "old", rows(200), {"train": (0, 150), "test": (150, 200)})
    files = [
        labeled.repack(old, tmp_path / f"{i}", order="shuffle", seed=seed)
        for i, seed in enumerate([1, 1, 2])
    ]
    orders = [check_rows(path, rows(200)) for path in files]
    assert Path(files[0]).read_bytes() == Path(files[1]).read_bytes()
    assert not np.array_equal(orders[0], orders[2])
    for order in orders:
        assert set(order[:150].tolist()) == set(range(150))
        assert abs(np.corrcoef(order[:150], np.arange(150))[0, 1]) < 0.3
    assert sequence(files[0], "test") == orders[0][150:].tolist()


def test_what_is_not_asked_for_stays(tmp_path: Path) -> None:
    old = labeled.write(
        tmp_path / "old",
        {"x": np.arange(60.0).reshape(20, 3), "y": np.arange(20)},
        attrs={"title": "é"},
        source_attrs={"x": {"units": "m", "scale_factor": 0.5}},
        coords={"x_axis_1": [7, 8, 9], "id": ("batch", np.arange(20) * 10)},
        chunks={"x": 4},
        compression={"x": "gzip"},
        level={"x": 7},
        provenance={"from": "somewhere"},
    )
    for order in ("keep", "shuffle"):
        new = labeled.repack(old, tmp_path / order, order=order)
        here, there = (labeled.open_dataset(p, decode_cf=False) for p in (old, new))
        moves = there["y"].values
        np.testing.assert_array_equal(there["x"].values, here["x"].values[moves])
        np.testing.assert_array_equal(there["x"]["id"], here["x"]["id"].values[moves])
        np.testing.assert_array_equal(there["x"]["x_axis_1"], [7, 8, 9])
        assert there["x"].attrs["units"] == "m"
        assert (there.dims, there.attrs["title"]) == (here.dims, "é")
        assert json.loads(there.attrs["labeled_provenance"]) == {"from": "somewhere"}
        with h5py.File(new) as file:
            assert (file["x"].chunks, file["x"].compression_opts) == ((4, 3), 7)
            assert file["y"].chunks is None
    plain = labeled.repack(old, old, compression=None, overwrite=True, layout="contiguous")
    with h5py.File(plain) as file:
        assert file["x"].chunks is None


def test_files_of_others(tmp_path: Path) -> None:
    """Chunks across rows, a codec that is not written here, no labels, rows of variable length."""
    x = np.random.default_rng(0).integers(0, 9, (500, 6), np.int16)
    with h5py.File(tmp_path / "old", "w") as f:
        f.create_dataset("x", data=x, chunks=(500, 1), compression="lzf", shuffle=True)
        f.create_dataset("v", (500,), h5py.vlen_dtype("f4"))
        for i in range(500):
            f["v"][i] = np.arange(i % 3, dtype="f4")
        f.create_dataset("s", data=np.array([b"abc"] * 500, "S5"))
    with pytest.warns(labeled.LabeledWarning, match="does not name every axis"):
        new = labeled.repack(tmp_path / "old", tmp_path / "new", memory="16 kiB", ragged="flat")
    ds = labeled.open_dataset(new)
    np.testing.assert_array_equal(ds["x"], x)
    assert [len(one) for one in ds["v"]] == [i % 3 for i in range(500)]
    with h5py.File(new) as file:
        assert (file["x"].compression, file["x"].chunks) == ("gzip", (500, 1))
        assert file["s"].dtype == "S5"
    named = labeled.repack(
        tmp_path / "old",
        tmp_path / "named",
        dims={"x": ("batch", "feature"), "v": ("batch", "time"), "s": ("batch",)},
        chunks={"x": "auto"},
        compression={"x": None},
        order="shuffle",
        memory="16 kiB",
    )
    assert labeled.open_dataset(named).dims["x"] == ("batch", "feature")


def test_a_file_without_sources_says_so(tmp_path: Path) -> None:
    path = tmp_path / "numbers.h5"
    with h5py.File(path, "w") as file:
        file["temperature"] = 3.5
    with pytest.raises(ArrayError, match=r"'.*numbers.h5' has no source; labeled info says why"):
        labeled.repack(path, tmp_path / "new.h5")
    with pytest.raises(ArrayError, match=r"'.*numbers.h5' has no source; labeled info says why"):
        labeled.append(path, {"x": [1]})
    assert list(tmp_path.iterdir()) == [path]


def test_bad_wishes_leave_nothing(tmp_path: Path) -> None:
    with pytest.warns(LabeledWarning, match="'y' has 4"):
        old = labeled.write(tmp_path / "old", {"x": np.zeros((5, 2)), "y": np.zeros(4)})
    for options, error, words in (
        ({"order": "random"}, ArrayError, "order='random'"),
        ({"order": "shuffle"}, SplitError, "different numbers of rows"),
        ({"compression": "brotli"}, ArrayError, "'brotli'"),
        ({"chunks": {"z": 1}}, UnknownNameError, "not a source"),
        ({"chunks": {"x": (1, 3)}}, ArrayError, "does not fit"),
        ({"layout": {"x": "contiguous"}, "chunks": {"x": 2}}, ArrayError, "cannot be contiguous"),
        ({"memory": "lots"}, ValueError, "is not a size"),
    ):
        with pytest.raises(error, match=words):
            labeled.repack(old, tmp_path / "new", **options)
    with pytest.raises(WriteError, match="exists already"):
        labeled.repack(old, old)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old"]


@pytest.mark.parametrize("order", ["keep", "shuffle"])
@pytest.mark.parametrize("name", ["x", "t", "r"])
def test_a_file_that_differs_never_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, name: str
) -> None:
    """One value that goes wrong on the way to the disk is found, and named by source and rows."""
    old = labeled.write(tmp_path / "old", rows(50), layout="contiguous")
    close = h5py.File.close

    def damaged(file: h5py.File) -> None:
        if file and file.mode == "r+" and name in file:
            values = file[name][...]
            values.reshape(-1)[17] = b"other" if name == "t" else values.reshape(-1)[17] + 1
            file[name][...] = values
        close(file)

    monkeypatch.setattr(h5py.File, "close", damaged)
    words = rf"differs from the original \(source '{name}', rows"
    with pytest.raises(WriteError, match=words):
        labeled.repack(old, tmp_path / "new", order=order)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(64, 1024), (65_536, 4)])
def test_memory_stays_within_the_budget(tmp_path: Path, chunks: tuple[int, int]) -> None:
    """A shuffle of four times the budget, in a fresh process; also where chunks lie across rows."""
    n_rows = 65_536
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        x = file.create_dataset("x", (n_rows, 1024), "u1", chunks=chunks)
        if chunks[0] == n_rows:
            for i in range(0, 1024, 4):
                x[:, i : i + 4] = i % 251
        else:
            for i in range(0, n_rows, 4096):
                x[i : i + 4096] = i // 4096
        x.dims[0].label, x.dims[1].label = "batch", "feature"
    labeled.write(tmp_path / "small.hdf5", {"x": np.zeros((5000, 1024), np.uint8)})
    script = """
        import labeled
        from peak_memory import PeakMemory
        labeled.repack("small.hdf5", "s.hdf5", order="shuffle", memory="16 MiB", chunks=64)
        labeled.repack("s.hdf5", "t.hdf5", order="shuffle", memory="16 MiB", layout="contiguous")
        with PeakMemory() as memory:
            labeled.repack(
                "x.hdf5", "y.hdf5", order="shuffle", memory="16 MiB", layout="contiguous"
            )
        print(memory.peak_bytes)
    """
    done = run(script, tmp_path)
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert int(out) <= 16 << 20


def test_the_command(tmp_path: Path) -> None:
    data = rows(40)
    old = labeled.write(tmp_path / "old", data, {"a": [3, 1, 2], "b": [0, *range(4, 40)]})
    done = CliRunner().invoke(
        main,
        ["repack", old, str(tmp_path / "new"), "--chunks", "x=8", "--compression", "x=gzip",
         "--order", "splits", "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["verified"] is True
    assert check_rows(tmp_path / "new", data)[:3].tolist() == [3, 1, 2]
    done = CliRunner().invoke(
        main, ["repack", str(tmp_path / "new"), str(tmp_path / "new"), "--compression", "none",
               "--order", "shuffle", "--overwrite"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    with h5py.File(tmp_path / "new") as file:
        assert (file["x"].chunks, file["x"].compression) == ((8, 3, 5), None)
    wrong = CliRunner().invoke(main, ["repack", old, str(tmp_path / "z"), "--compression", "brr"])
    assert wrong.exit_code == 1
    assert wrong.stderr.count("\n") == 1


def test_dims_of_examples_are_no_datasets_that_keep_their_order(tmp_path: Path) -> None:
    examples = [np.zeros((0, 2)), np.ones((1, 2)), np.ones((2, 1))]
    path = labeled.write(tmp_path / "x", {"x": examples})
    labeled.repack(path, tmp_path / "y", order="shuffle")  # warnings are errors here
    found = [one.shape for one in labeled.open_dataset(tmp_path / "y")["x"]]
    assert sorted(found) == [(0, 2), (1, 2), (2, 1)]


def test_attributes_that_refer_to_objects_are_named(tmp_path: Path) -> None:
    old = labeled.write(tmp_path / "old", {"x": np.arange(3)}, {"train": [2, 0]})
    with h5py.File(old, "r+") as file:
        file["x"].attrs["mask"] = file["x"].ref
        file["x"].attrs["kept"] = 1
    with pytest.warns(labeled.LabeledWarning, match=r"\['mask'\] of '/x' .* hold references"):
        new = labeled.repack(old, tmp_path / "new")
    with h5py.File(new) as file:
        assert {"mask", "kept"} & file["x"].attrs.keys() == {"kept"}


def test_text_with_a_fill_value_is_copied_as_it_is(tmp_path: Path) -> None:
    """As netCDF writes texts; HDF5's own way of copying damages such fill values."""
    path = tmp_path / "stations.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("time", data=np.arange(4.0), maxshape=(None,)).make_scale("time")
        file.create_dataset("group/station", data=np.arange(3.0)).make_scale("station")
        file["x"] = np.arange(12).reshape(4, 3)
        file["x"].dims[0].attach_scale(file["time"])
        file["x"].dims[1].attach_scale(file["group/station"])
        text = h5py.string_dtype()
        names = file.create_dataset("group/name", (3,), text, fillvalue="none", chunks=(2,))
        names[...], names.attrs["long_name"] = ["Ulm", "a", "b"], "where it stands"
        names.dims[0].attach_scale(file["group/station"])

    target = labeled.repack(path, tmp_path / "new.nc")

    with h5py.File(path) as old, h5py.File(target) as new:
        one, two = old["group/name"], new["group/name"]
        assert two.asstr()[...].tolist() == ["Ulm", "a", "b"]
        assert (two.fillvalue, two.chunks, two.dtype) == (one.fillvalue, one.chunks, one.dtype)
        assert two.attrs["long_name"] == "where it stands"
        assert two.dims[0][0][...].tolist() == [0, 1, 2]


def test_text_of_fixed_width_keeps_its_character_set(tmp_path: Path) -> None:
    """Whether it is stored in one piece, which HDF5 writes, or in chunks."""
    path, utf8 = tmp_path / "places.h5", h5py.string_dtype("utf-8", 8)
    texts = np.array(["Köln".encode(), b"Ulm"] * 10).astype(utf8)
    with h5py.File(path, "w") as file:
        file["place"] = texts
    for layout in ("contiguous", "chunked"):
        target = labeled.repack(path, tmp_path / f"{layout}.h5", layout=layout)
        with h5py.File(target) as file:
            assert h5py.check_string_dtype(file["place"].dtype).encoding == "utf-8"
            assert file["place"].asstr()[...].tolist() == ["Köln", "Ulm"] * 10


@pytest.mark.parametrize("n_rows", [0, 5])
def test_chunks_longer_than_an_axis_that_could_grow(tmp_path: Path, n_rows: int) -> None:
    """As the netCDF library makes them where two dims are unlimited."""
    path, values = tmp_path / "grown.nc", np.arange(3.0 * n_rows).reshape(n_rows, 3)
    with h5py.File(path, "w") as file:
        made = {"chunks": (4, 8), "maxshape": (None, None), "compression": "gzip"}
        file.create_dataset("x", data=values, **made).dims[0].label = "time"
        file["x"].dims[1].label = "station"

    for options in ({}, {"compression": "gzip"}):
        target = labeled.repack(path, tmp_path / "new.nc", overwrite=True, **options)
        with h5py.File(target) as file:
            assert (file["x"].chunks, file["x"].compression) == ((4, 3), "gzip")
            assert np.array_equal(file["x"], values)
    labeled.append(path, {"x": np.ones((2, 3))})
    assert np.array_equal(labeled.open_dataset(path)["x"], np.r_[values, np.ones((2, 3))])


def test_what_warns_of_a_file_does_not_warn_of_its_copy_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "demos.h5"
    with h5py.File(path, "w") as file:
        for k in range(3):  # groups alike, with an axis that has no name
            file[f"demo_{k}/x"], file[f"demo_{k}/y"] = np.zeros((4, 2)), np.arange(4)
    for change in (
        lambda: labeled.repack(path, tmp_path / "new.h5"),
        lambda: labeled.write_splits(path, {"few": {"demo_0/x": (0, 2), "demo_0/y": (0, 2)}}),
    ):
        with pytest.warns(LabeledWarning) as warned:
            change()
        assert all(f"file {str(path)!r}" in str(each.message) for each in warned)


def test_lz4_with_blocks_of_the_usual_size_stays(tmp_path: Path) -> None:
    """Which hdf5plugin writes down as 0 bytes."""
    plugin = pytest.importorskip("hdf5plugin")
    path, values = tmp_path / "x.h5", np.arange(600).reshape(60, 10) % 7
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(7, 10), **plugin.LZ4())
    with pytest.warns(LabeledWarning, match="does not name every axis"):
        target = labeled.repack(path, tmp_path / "new.h5")
    with h5py.File(target) as file:
        plan = file["x"].id.get_create_plist()
        assert plan.get_filter(0)[0] == plugin.LZ4.filter_id
        assert np.array_equal(file["x"], values)
    assert np.array_equal(labeled.open_dataset(target, dims={"x": ("n", "k")})["x"], values)


@pytest.mark.parametrize("order", ["keep", "shuffle"])
def test_columns_and_arrays_are_shuffled_by_their_own_elements(tmp_path: Path, order: str) -> None:
    """HDF5 shuffles whole rows of a table, and whole arrays where those are the elements."""
    path, rows = (
        tmp_path / "table.h5",
        np.zeros(50, [("n", "i4"), ("pair", "f8", (2,)), ("on", "?")]),
    )
    rows["n"], rows["pair"], rows["on"] = np.arange(50), np.arange(100).reshape(50, 2), True
    arrays = np.arange(200).reshape(50, 2, 2).astype("f4")
    with h5py.File(path, "w") as file:
        how = {"chunks": (7,), "compression": "gzip", "shuffle": True}
        file.create_dataset("table", data=rows, **how)
        file.create_dataset("arrays", (50,), np.dtype("(2,2)f4"), **how)[...] = arrays
    expected = {f"table/{name}": rows[name] for name in rows.dtype.names} | {"arrays": arrays}
    dims = {"table/pair": ("n", "k"), "arrays": ("n", "i", "j")}

    target = labeled.repack(path, tmp_path / "new.h5", order=order, dims=dims)
    made = labeled.open_dataset(target)
    moved = made["table/n"].values if order == "shuffle" else np.arange(50)
    assert sorted(moved) == list(range(50))
    for name, values in expected.items():
        np.testing.assert_array_equal(made[name], values[moved])
    with h5py.File(target) as file:
        assert all(file[name].shuffle and file[name].compression == "gzip" for name in expected)

    with pytest.warns(LabeledWarning, match="does not name every axis"):
        labeled.append(path, {name: values[:3] for name, values in expected.items()})
    longer = labeled.open_dataset(path, dims=dims)
    for name, values in expected.items():
        np.testing.assert_array_equal(longer[name], np.concatenate([values, values[:3]]))


def test_tables_as_attributes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "scan.h5"
    text = h5py.string_dtype()
    axes = np.array([("row", 0.5), ("größe", 2.0)], [("name", text), ("step", "f8")])
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(6)
        for place in (file, file["x"]):
            place.attrs["axes"], place.attrs["first"] = axes, axes[0]
            place.attrs["range"] = np.array([(1, 2)], "i4,u2")
    target = labeled.repack(path, tmp_path / "new.h5")
    with h5py.File(path) as old, h5py.File(target) as new:
        for name, kept in (("/", new), ("x", new["x"])):
            for key, value in old[name].attrs.items():
                assert kept.attrs[key].dtype == value.dtype
                assert kept.attrs[key].tolist() == value.tolist()
    assert labeled.open_dataset(target)["x"].values.tolist() == list(range(6))


@pytest.mark.parametrize("order", ["keep", "shuffle"])
def test_fill_values_and_enumerations_stay(tmp_path: Path, order: str) -> None:
    kinds = {"mass": h5py.enum_dtype({"light": 2, "heavy": 5}, ">i2"), "yes": np.dtype(bool)}
    stored = {"x": np.arange(15.0).reshape(5, 3), "n": np.arange(5), "mass": [2, 5, 5, 2, 5]}
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, values in {**stored, "yes": [True, False, True, True, False]}.items():
            chunked = {"chunks": (2, 3), "maxshape": (None, 3)} if name == "x" else {}
            dtype, fill = kinds.get(name), {"x": -1.5, "n": 7}.get(name)
            file.create_dataset(name, data=values, dtype=dtype, fillvalue=fill, **chunked)
        texts = {"chunks": (4,), "maxshape": (None,), "fillvalue": b"q"}
        file.create_dataset("code", data=np.array([b"ab"] * 5), **texts)
        file.create_dataset("place", data=[5, 2, 2], dtype=kinds["mass"])
        file["place"].make_scale("place")
        file["x"].dims[1].attach_scale(file["place"])
    names = {"x": ("batch", "place")}
    copy = labeled.repack(tmp_path / "a.hdf5", tmp_path / "b.hdf5", order=order, dims=names)
    labeled.append(copy, {**stored, "yes": np.ones(5, bool), "code": np.array([b"cd"] * 5)})
    with h5py.File(tmp_path / "a.hdf5") as old, h5py.File(copy, "r+") as new:
        assert new["code"].fillvalue == b""  # h5py damages those of texts
        new["code"].resize(13, axis=0)
        assert new["code"][9:].tolist() == [b"cd", b"", b"", b""]
        for name in [*stored, "yes", "place"]:
            assert (new[name].dtype, new[name].fillvalue) == (old[name].dtype, old[name].fillvalue)
            enum = h5py.check_enum_dtype(old[name].dtype)
            assert h5py.check_enum_dtype(new[name].dtype) == enum
        new["x"].resize(13, axis=0)
        assert (new["x"][10:] == -1.5).all()
        np.testing.assert_array_equal(new["x"][5:10], stored["x"])
        np.testing.assert_array_equal(new["mass"][5:], stored["mass"])


@pytest.mark.parametrize("netcdf", [True, False])
def test_a_file_without_dimension_scales_gets_none(tmp_path: Path, netcdf: bool) -> None:
    data = {"x": np.arange(12.0).reshape(6, 2), "r": [[1, 2], [3], [], [4], [5], [6]]}
    splits = {"a": (0, 3), "b": [5, 3]}
    path = labeled.write(tmp_path / "a", data, splits, netcdf=netcdf, ragged="fuel")
    copy = labeled.repack(path, tmp_path / "b")
    labeled.append(copy, {name: values[:2] for name, values in data.items()})
    with h5py.File(path) as old, h5py.File(copy) as new:
        assert [*new] == [*old]
        assert [len(axis) for axis in new["x"].dims] == [int(netcdf)] * 2


def test_a_group_of_another_file_is_carried_with_what_is_read_there(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["g/y"], f["g/deep/z"], f["g"].attrs["unit"] = np.arange(4), np.arange(8.0)[::2], "m"
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"], f["ext"] = np.arange(4), h5py.ExternalLink("other.h5", "/g")
    path = labeled.repack(tmp_path / "a.h5", tmp_path / "b.h5", allow_external=True)
    (tmp_path / "other.h5").rename(tmp_path / "gone.h5")
    ds = labeled.open_dataset(path)
    assert ds["ext/y"].values.tolist() == [0, 1, 2, 3]
    assert ds["ext/deep/z"].values.tolist() == [0, 2, 4, 6]
    with h5py.File(path) as f:
        assert f["ext"].attrs["unit"] == "m"


@pytest.mark.filterwarnings("ignore:.* opens without:labeled.errors.LabeledWarning")
@pytest.mark.parametrize(
    ("target", "allowed", "words"),
    [
        ("/g", True, r"'ext/note': it lies in another file, and is not a source: it is a single"),
        ("/g/note", True, r"'ext': it leads out of the file: it is a single value"),
        ("/no", True, r"leads to '/no' in file 'other\.h5', which is not there"),
        ("/g", False, r"pass allow_external=True"),
    ],
)
def test_what_cannot_be_carried_from_another_file_is_named_with_the_reason(
    tmp_path, target, allowed, words
):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["g/y"], f["g/note"] = np.arange(4), "by hand"
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"], f["ext"] = np.arange(4), h5py.ExternalLink("other.h5", target)
    with pytest.raises(NotYetError, match=words) as found:
        labeled.repack(tmp_path / "a.h5", tmp_path / "b.h5", allow_external=allowed)
    assert ("allow_external" in str(found.value)) is not allowed
