"""Files in which every dataset, or every group of datasets, is one example."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import labeled
from labeled.cli.main import main
from labeled.errors import (
    FileFormatError,
    LabeledWarning,
    OptionError,
    ReadError,
    UnknownNameError,
    UnsafeFileError,
)

pytestmark = pytest.mark.filterwarnings("ignore:.* have no names:labeled.LabeledWarning")

STORED = (
    {},
    {"chunks": True},
    {"chunks": True, "compression": "gzip", "shuffle": True},
    {"chunks": True, "fletcher32": True},
    {"chunks": "halves", "compression": "gzip"},
    {"chunks": "halves"},
)
DTYPES = ("u1", "<f4", ">i4", ">f8", "?", "<c8", "f2")


def put(group: h5py.Group, name: str, values: np.ndarray, how: dict) -> None:
    """Store a dataset; in chunks of about half of each axis where `how` says so."""
    if how.get("chunks") == "halves":
        how = {**how, "chunks": tuple((n + 1) // 2 for n in values.shape)}
    group.create_dataset(name, data=values, **(how if values.size and values.shape else {}))


@st.composite
def examples_of_one_shape(draw):
    """Return arrays of one shape and dtype, and how each is stored."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    n = draw(st.integers(1, 12))
    values = np.arange(n * int(np.prod(shape))).reshape(n, *shape) % 120
    return values.astype(dtype), draw(st.lists(st.sampled_from(STORED), min_size=n, max_size=n))


@settings(max_examples=40, deadline=None)
@given(made=examples_of_one_shape(), seed=st.integers(0, 99))
def test_datasets_of_one_shape_are_the_rows_of_a_source(tmp_path_factory, made, seed):
    values, stored = made
    path = tmp_path_factory.mktemp("each") / "x.h5"
    with h5py.File(path, "w") as f:
        for i in np.random.default_rng(seed).permutation(len(values)).tolist():
            put(f, f"data/e{i}", values[i], stored[i])

    ds = labeled.open_dataset(path, examples="data/*")
    array = ds["data"]
    assert (array.shape, array.dtype) == (values.shape, values.dtype.newbyteorder("="))
    np.testing.assert_array_equal(array, values)
    rows = np.random.default_rng(seed).integers(0, len(values), 9)
    np.testing.assert_array_equal(ds.subset(rows)["data"], values[rows])
    for batch in ds.batches(3, shuffle=True, seed=seed):
        np.testing.assert_array_equal(batch["data"], values[batch.rows])


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=9),
    how=st.sampled_from(STORED),
    dtype=st.sampled_from(DTYPES),
)
def test_groups_whose_datasets_differ_in_shape_are_ragged(tmp_path_factory, shapes, how, dtype):
    path = tmp_path_factory.mktemp("each") / "x.h5"
    wanted = [(np.arange(a * b).reshape(a, b) + i).astype(dtype) for i, (a, b) in enumerate(shapes)]
    with h5py.File(path, "w") as f:
        for i, one in enumerate(wanted):
            group = f.create_group(f"mol_{i}")
            put(group, "deep/positions", one, how)
            group["energy"] = float(i)
            group["name"] = f"molécule {i}"
            group["kind"] = np.bytes_("k" * (1 + i % 3))

    ds = labeled.open_dataset(path, examples="mol_*")
    assert ds.sources == ("deep/positions", "energy", "kind", "name")
    assert ds["kind"].values.tolist() == [b"k" * (1 + i % 3) for i in range(len(wanted))]
    np.testing.assert_array_equal(ds["energy"], np.arange(len(wanted), dtype=float))
    assert ds["name"].values.tolist() == [f"molécule {i}" for i in range(len(wanted))]
    if len(set(shapes)) == 1:
        np.testing.assert_array_equal(ds["deep/positions"], np.stack(wanted))
        return
    order = np.random.default_rng(0).permutation(len(wanted))
    for example, i in zip(ds["deep/positions"][order], order, strict=True):
        np.testing.assert_array_equal(example, wanted[i])
    for batch in ds.batches(2, shuffle=True, seed=1, ragged="list"):
        for example, row in zip(batch["deep/positions"].values, batch.rows, strict=True):
            np.testing.assert_array_equal(example, wanted[row])
    none = ds.select("deep/positions").subset([])
    assert len(none["deep/positions"].flat().values) == 0
    assert none["deep/positions"].pad().shape == (0, 0, 0)
    assert len(none.load()) == len(list(none.batches(2))) == 0


@pytest.fixture
def waves(tmp_path) -> tuple[Path, np.ndarray]:
    """A file of 30 waves of 40 samples by 3 channels, and what they are."""
    values = np.random.default_rng(0).normal(size=(30, 40, 3)).astype("f4")
    with h5py.File(tmp_path / "waves.h5", "w") as f:
        for i, one in enumerate(values):
            f[f"data/tr_{i}"] = one
            f[f"data/tr_{i}"].dims[0].label = "time"
    return tmp_path / "waves.h5", values


def test_rows_are_in_the_order_of_the_numbers_in_names_and_axes_keep_theirs(waves):
    path, values = waves
    ds = labeled.open_dataset(path, examples="data/tr_*")
    assert ds["data"].dims == ("batch", "time", "data_axis_2")
    np.testing.assert_array_equal(ds["data"].isel(time=slice(3, 30, 4)), values[:, 3:30:4])
    np.testing.assert_array_equal(ds.isel(time=[5, 2], data_axis_2=1)["data"], values[:, [5, 2], 1])
    named = labeled.open_dataset(path, examples="tr_*", group="data", dims={"data": tuple("abc")})
    assert named["data"].dims == ("a", "b", "c")


def test_converting_makes_sources_of_them(waves, tmp_path):
    path, values = waves
    with pytest.warns(LabeledWarning, match=r"'name' of .* attributes of examples are kept where"):
        new = labeled.convert(path, tmp_path / "a.h5", examples="data/*", split={"train": 0.8})
    assert labeled.open_dataset(new).split("train").n_rows == 24
    np.testing.assert_array_equal(labeled.open_dataset(new)["data"], values)

    words = ["--examples", "data/*", "--source", "data", "--source", "name"]
    run = CliRunner().invoke(main, ["convert", str(path), str(tmp_path / "b.h5"), *words])
    assert run.exit_code == 0, run.output
    made = labeled.open_dataset(tmp_path / "b.h5")
    np.testing.assert_array_equal(made["data"], values)
    assert made["name"].values.tolist() == [f"tr_{i}" for i in range(30)]


def test_what_not_all_groups_hold_is_left_out_with_the_reason(tmp_path):
    with h5py.File(tmp_path / "g.h5", "w") as f:
        for i in range(4):
            f[f"g{i}/x"] = np.full(3, i)
            f[f"g{i}/kind"] = np.zeros(2, "f4" if i % 2 else "f8")
            f[f"g{i}/axes"] = np.zeros((1,) * (1 + i % 2))
        f["g2/rare"] = 1
    ds = labeled.open_dataset(tmp_path / "g.h5", examples="g*")
    assert ds.sources == ("x",)
    wanted = {
        "name": "a value of each example; name it in sources= to read it",
        "rare": "only 1 of 4 groups have it",
        "kind": "it is float32 in 'g1', but not in 'g0'",
        "axes": "it has other axes in 'g1' than in 'g0'",
    }
    assert ds.files.catalog.headers[0].not_opened == wanted
    for name in ("rare", "kind", "axes"):
        with pytest.raises(UnknownNameError, match=f"'{name}' cannot be a source"):
            labeled.open_dataset(tmp_path / "g.h5", examples="g*", sources=[name])


def test_patterns_that_mean_no_examples_are_refused(tmp_path):
    path = tmp_path / "g.h5"
    with h5py.File(path, "w") as f:
        f["data/a/x"], f["data/b/x"], f["data/info"] = [1, 2], [3, 4], [5]
        f.create_group("empty/one")
    with pytest.raises(UnknownNameError, match=r"'nope/\*' matches neither groups nor datasets in"):
        labeled.open_dataset(path, examples="nope/*")
    with pytest.raises(FileFormatError, match=r"2 groups and 1 datasets \('data/info'\).*one kind"):
        labeled.open_dataset(path, examples="data/*")
    with pytest.raises(UnknownNameError, match=r"no dataset is the same in all 1 thi.*hold none"):
        labeled.open_dataset(path, examples="empty/*")
    with pytest.raises(UnknownNameError, match=r"sources= names 'y', which is not in the examples"):
        labeled.open_dataset(path, examples="data/[ab]", sources=["y"])
    np.save(tmp_path / "x.npy", np.arange(3))
    (tmp_path / "t.csv").write_text("1,2\n")
    with pytest.raises(OptionError, match="examples= means nothing"):
        labeled.open_dataset(tmp_path / "t.csv", examples="*")


def test_links_out_of_the_file_and_circles_are_refused(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["x"] = np.arange(3)
    with h5py.File(tmp_path / "g.h5", "w") as f:
        f["data/a"] = np.arange(3)
        f["data/b"] = h5py.SoftLink("/data/a")
        f["data/c"] = h5py.SoftLink("/nowhere")
        f["out/a"] = h5py.ExternalLink("other.h5", "/x")
        f["circle/a/x"] = np.arange(3)
        f["circle/a/again"] = f["circle"]
    path = tmp_path / "g.h5"
    np.testing.assert_array_equal(
        labeled.open_dataset(path, examples="data/*")["data"], [[0, 1, 2], [0, 1, 2]]
    )
    with pytest.raises(UnsafeFileError, match="external link"):
        labeled.open_dataset(path, examples="out/*")
    ds = labeled.open_dataset(path, examples="out/*", allow_external=True)
    np.testing.assert_array_equal(ds["out"], [[0, 1, 2]])
    with pytest.raises(FileFormatError, match="run in a circle"):
        labeled.open_dataset(path, examples="circle/*")


def test_examples_come_from_the_file_in_which_they_are(tmp_path):
    """Bytes at the same places of the file that links to them are others."""
    with h5py.File(tmp_path / "other.h5", "w") as f:
        for name in "ab":
            f[f"group/{name}/x"] = np.full(500, ord(name))
    path = tmp_path / "g.h5"
    with h5py.File(path, "w", userblock_size=512) as f:
        f["filling"] = np.arange(5000)
        f["all"] = h5py.ExternalLink("other.h5", "/group")
        for name in "ab":
            f[f"each/{name}"] = h5py.ExternalLink("other.h5", f"/group/{name}")
            f[f"inner/{name}/x"] = h5py.ExternalLink("other.h5", f"/group/{name}/x")
            f[f"own/{name}/x"] = np.full(500, ord(name))
            raw = [(tmp_path / f"{name}.raw", 0, 4000)]
            f.create_dataset(f"raw/{name}/x", (500,), "i8", external=raw)[:] = ord(name)
            compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            compact.set_layout(h5py.h5d.COMPACT)
            space, group = h5py.h5s.create_simple((500,)), f.create_group(f"compact/{name}")
            made = h5py.h5d.create(group.id, b"x", h5py.h5t.NATIVE_INT64, space, compact)
            h5py.Dataset(made)[:] = ord(name)
    for pattern in ("all/*", "each/*", "inner/*", "own/*", "raw/*", "compact/*"):
        ds = labeled.open_dataset(path, examples=pattern, allow_external=True)
        np.testing.assert_array_equal(ds["x"], [[97] * 500, [98] * 500], pattern)


def test_damage_names_the_example(waves):
    path, _ = waves
    with h5py.File(path, "a") as f:
        del f["data/tr_7"]
        f.create_dataset("data/tr_7", data=np.zeros((40, 3), "f4"), chunks=True, compression="gzip")
        place = f["data/tr_7"].id.get_chunk_info(0).byte_offset
    with open(path, "r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 8)
    ds = labeled.open_dataset(path, examples="data/*")
    assert ds.subset([6, 8])["data"].compute().shape == (2, 40, 3)
    with pytest.raises(ReadError, match=r"source 'data' in '.*waves.h5', rows 7 to 7: "):
        ds.subset([7])["data"].compute()


def test_names_and_attributes_are_sources_where_they_are_named(waves):
    path, values = waves
    with h5py.File(path, "a") as f:
        for i in range(30):
            f[f"data/tr_{i}"].attrs.update(
                {"p_arrival": 0.5 * i, "category": f"quake {i % 3}", "site": [i, 2 * i], "n": [i]}
            )
    assert labeled.open_dataset(path, examples="data/*").sources == ("data",)
    names = ["data", "name", "attrs/p_arrival", "attrs/category", "attrs/site", "attrs/n"]
    ds = labeled.open_dataset(path, examples="data/*", sources=names)
    rows = [7, 3, 21]
    some = ds.subset(rows)
    assert some["name"].values.tolist() == ["tr_7", "tr_3", "tr_21"]
    assert some["attrs/category"].values.tolist() == ["quake 1", "quake 0", "quake 0"]
    np.testing.assert_array_equal(some["attrs/p_arrival"], [3.5, 1.5, 10.5])
    np.testing.assert_array_equal(some["attrs/site"], [[7, 14], [3, 6], [21, 42]])
    np.testing.assert_array_equal(ds["attrs/n"], np.arange(30))
    for batch in ds.batches(8, shuffle=True, seed=2):
        np.testing.assert_array_equal(batch["attrs/p_arrival"], 0.5 * batch.rows)
        np.testing.assert_array_equal(batch["data"], values[batch.rows])

    with h5py.File(path, "a") as f:
        f["data/tr_4"].attrs["category"] = 4
        del f["data/tr_9"].attrs["p_arrival"]
    with pytest.raises(FileFormatError, match=r"'category' is .*4.* at 'data/tr_4' in file"):
        labeled.open_dataset(path, examples="data/*", sources=["attrs/category"])
    with pytest.raises(FileFormatError, match=r"'data/tr_9' in file .* has no attribute 'p_arriv"):
        labeled.open_dataset(path, examples="data/*", sources=["attrs/p_arrival"])
    with pytest.raises(UnknownNameError, match=r"did you mean 'attrs/p_arrival'"):
        labeled.open_dataset(path, examples="data/*", sources=["attrs/p_arival"])


def test_examples_that_were_never_stored_are_fill_values_or_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["d/0"] = np.arange(4.0)
        f.create_dataset("d/1", (4,), "f8", fillvalue=7)
        f["huge/0"] = np.arange(4.0)
        f.create_dataset("huge/1", (1 << 40,), "f8", chunks=(1 << 20,), compression="gzip")
    ds = labeled.open_dataset(tmp_path / "x.h5", examples="d/*")
    np.testing.assert_array_equal(ds["d"], [np.arange(4.0), np.full(4, 7.0)])
    huge = labeled.open_dataset(tmp_path / "x.h5", examples="huge/*")["huge"]
    np.testing.assert_array_equal(huge[0], np.arange(4.0))
    with pytest.raises(UnsafeFileError, match="claims shape"):
        huge[[1]].to_objects()


def test_texts_of_examples_are_read_in_any_order(tmp_path):
    words = [[f"{i}{k}" for k in "abc"] for i in range(6)]
    with h5py.File(tmp_path / "x.h5", "w") as f:
        for i, some in enumerate(words):
            f[f"d/{i}/words"] = some
    ds = labeled.open_dataset(tmp_path / "x.h5", examples="d/*")
    assert ds.subset([3, 1, 1])["words"].values.tolist() == [words[3], words[1], words[1]]


def test_texts_of_examples_are_shuffled_in_full(tmp_path):
    """Each is a dataset of its own, so windows would spare nothing."""
    with h5py.File(tmp_path / "x.h5", "w") as f:
        for i in range(200):
            f[f"d/{i}"] = f"{i:03}"
    loader = labeled.open_dataset(tmp_path / "x.h5", examples="d/*").batches(7, shuffle=True)
    assert "shuffle='full'" in str(loader.explain())
    rows = [text for batch in loader for text in batch["d"].values.tolist()]
    assert rows != sorted(rows) == [f"{i:03}" for i in range(200)]


@pytest.mark.parametrize("layout", ["list", "flat", "pad"])
def test_examples_of_short_texts_come_in_batches(tmp_path, layout):
    words = [np.array([b"ab", b"cdefg", b""][:n], "S5") for n in (1, 3, 2)]
    with h5py.File(tmp_path / "x.h5", "w") as f:
        for i, some in enumerate(words):
            f[f"d/{i}"] = some
    ds = labeled.open_dataset(tmp_path / "x.h5", examples="d/*", dims={"d": ("batch", "word")})
    (batch,) = ds.batches(3, shuffle=False, ragged=layout)
    padded = [[*some.tolist(), *[b""] * (3 - len(some))] for some in words]
    wanted = {"list": [some.tolist() for some in words], "flat": np.concatenate(words).tolist()}
    found = [np.asarray(one).tolist() for one in batch["d"].values]
    assert found == wanted.get(layout, padded)
