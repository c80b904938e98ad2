"""Sparse matrices, as AnnData and 10x Genomics store them: rows come dense, in any order."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import LabeledWarning, NotYetError, ReadError

pytestmark = pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")


def dense_of(n_rows: int, n_columns: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return a matrix with few values; some rows have none."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 100, (n_rows, n_columns)).astype(dtype)
    values[rng.random(values.shape) > 0.2] = 0
    values[1::5] = 0
    return values


def write_csr(group: h5py.Group, dense: np.ndarray, **storage: Any) -> None:
    rows, columns = np.nonzero(dense)
    begins = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
    group.create_dataset("data", data=dense[rows, columns], **storage)
    group.create_dataset("indices", data=columns.astype("i4"), **storage)
    group.create_dataset("indptr", data=begins.astype("i8"))


def write_anndata(path: Path, dense: np.ndarray, **storage: Any) -> Path:
    with h5py.File(path, "w") as f:
        f.attrs["encoding-type"] = "anndata"
        group = f.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", dense.shape
        write_csr(group, dense, **storage)
        f["obs/batch"] = np.arange(len(dense)) % 3
        f["var/_index"] = [f"gene {i}" for i in range(dense.shape[1])]
    return path


@pytest.fixture(params=[{}, {"chunks": (37,), "compression": "gzip"}, {"chunks": (1000,)}])
def cells(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, np.ndarray]:
    dense = dense_of(211, 30, "f4")
    return write_anndata(tmp_path / "cells.h5ad", dense, **request.param), dense


@pytest.mark.parametrize("shuffle", [False, "full", "window", True])
def test_rows_of_an_anndata_matrix_come_dense(cells, shuffle):
    path, dense = cells

    ds = labeled.open_dataset(path).select("X", "obs/batch")

    assert ds["X"].dtype == dense.dtype
    np.testing.assert_array_equal(ds["X"].values, dense)
    loader = pickle.loads(pickle.dumps(ds)).batches(32, shuffle=shuffle, seed=1, memory="4 MiB")
    seen = []
    for batch in loader:
        np.testing.assert_array_equal(batch["X"].values, dense[batch.rows])
        np.testing.assert_array_equal(batch["obs/batch"].values, batch.rows % 3)
        seen += batch.rows.tolist()
    assert sorted(seen) == list(range(len(dense)))
    assert "sparse" in str(loader.explain())
    assert "sparse" in repr(ds)


def test_a_matrix_in_a_linked_file_is_read_from_there(cells, tmp_path):
    path, dense = cells
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["other"], f["X"] = np.zeros(50_000), h5py.ExternalLink(path.name, "/X")
    ds = labeled.open_dataset(tmp_path / "x.h5", sources=["X"], allow_external=True)
    np.testing.assert_array_equal(ds["X"].values, dense)


@settings(max_examples=25)
@given(data=st.data())
def test_rows_and_columns_are_those_of_numpy(tmp_path_factory, data):
    dtype = data.draw(st.sampled_from(["f8", ">f4", "i2", "?"]))
    shape = data.draw(st.tuples(st.integers(0, 9), st.integers(1, 6)))
    dense = dense_of(*shape, dtype, seed=data.draw(st.integers(0, 9)))
    path = write_anndata(tmp_path_factory.mktemp("sparse") / "x.h5ad", dense)
    column = st.integers(-shape[1], shape[1] - 1)
    columns = data.draw(st.one_of(column, st.lists(column, min_size=1, max_size=8)))

    ds = labeled.open_dataset(path, dims={"X": ("cell", "gene")}).select("X").isel(gene=columns)

    np.testing.assert_array_equal(ds["X"].values, dense[:, columns])
    if len(dense):
        rows = data.draw(st.lists(st.integers(0, len(dense) - 1), min_size=1, max_size=12))
        np.testing.assert_array_equal(ds.subset(rows)["X"].values, dense[rows][:, columns])


@pytest.mark.parametrize("dtype", ["i4", "u8"])
def test_values_that_come_twice_add_up(tmp_path, dtype):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        group = f.create_group("X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = b"csr", (2, 3)
        group["data"], group["indices"] = np.array([1.0, 2, 4]), np.array([1, 1, 0], dtype)
        group["indptr"] = np.array([0, 2, 3], dtype)

    found = labeled.open_dataset(tmp_path / "x.h5")["X"].values

    np.testing.assert_array_equal(found, [[0, 3, 0], [4, 0, 0]])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("indptr", 10**6, "rows end at value 1000000"),
        ("indices", 99, "a value lies in column 99 of 10"),
        ("indices", -1, "a value lies in column -1 of 10"),
    ],
)
def test_damage_is_named(tmp_path, name, value, words):
    path = write_anndata(tmp_path / "x.h5ad", dense_of(40, 10, "f4"))
    with h5py.File(path, "a") as f:
        f["X"][name][-1] = value

    with pytest.raises(ReadError, match=rf"'X' in .*x\.h5ad.*{words}"):
        labeled.open_dataset(path)["X"].compute()


@pytest.mark.parametrize("change", ["by columns", "shape", "soft link"])
def test_what_is_no_matrix_by_rows_stays_three_arrays(tmp_path, change):
    path = write_anndata(tmp_path / "x.h5ad", dense_of(40, 10, "f4"))
    indices = "elsewhere" if change == "soft link" else "X/indices"
    with h5py.File(path, "a") as f:
        if change == "by columns":
            f["X"].attrs["encoding-type"] = "csc_matrix"
        elif change == "shape":
            f["X"].attrs["shape"] = (41, 10)
        else:
            f.move("X/indices", indices)
            f["X/indices"] = h5py.SoftLink(f"/{indices}")

    ds = labeled.open_dataset(path)
    assert "X" not in ds.sources
    with h5py.File(path) as f:
        for part in ("X/data", indices, "X/indptr"):
            np.testing.assert_array_equal(ds[part].values, f[part])
            assert labeled.open_dataset(path, sources=[part]).n_rows == len(f[part])


def test_repack_does_not_make_matrices_dense_unasked(tmp_path):
    path = write_anndata(tmp_path / "x.h5ad", dense_of(40, 10, "f4"))

    with pytest.raises(NotYetError, match=r"sparse matrices \('X'\).*labeled\.convert"):
        labeled.repack(path, tmp_path / "new.h5")
    with h5py.File(path, "a") as f:
        f["uns/note"] = "text"
    with pytest.warns(
        LabeledWarning, match=r"^'uns/note' of .* are left out; what could be opened"
    ):
        labeled.convert(path, tmp_path / "all.h5")  # 'X/data' and so on are in it, as 'X'
    made = labeled.convert(path, tmp_path / "new.h5", sources=["X", "obs/batch"])
    np.testing.assert_array_equal(labeled.open_dataset(made)["X"], dense_of(40, 10, "f4"))


@pytest.mark.parametrize("n_classes", [3, 300])
def test_a_categorical_of_anndata_names_its_classes(tmp_path, n_classes):
    names = [f"kind {n}" for n in range(n_classes)]
    with h5py.File(tmp_path / "c.h5ad", "w") as f:
        for encoding in ("categorical", "something"):
            group = f.create_group(f"obs/{encoding}")
            group.attrs["encoding-type"] = encoding
            group["codes"], group["categories"] = np.arange(20) % 3, names
    ds = labeled.open_dataset(tmp_path / "c.h5ad").select("obs/categorical/codes")
    found = ds["obs/categorical/codes"].attrs
    assert found == ({"class_names": names} if n_classes == 3 else {})
    assert labeled.open_dataset(tmp_path / "c.h5ad")["obs/something/codes"].attrs == {}


def test_categoricals_that_count_otherwise_are_reported_where_files_are_joined(tmp_path):
    """Cells of one kind had the number of another kind in the second file, without a word."""
    for name, categories in {"a": ["B", "NK", "T"], "b": ["B", "T"], "c": ["B", "NK"]}.items():
        with h5py.File(tmp_path / f"{name}.h5ad", "w") as f:
            group = f.create_group("obs/kind")
            group.attrs["encoding-type"] = "categorical"
            group["codes"], group["categories"] = np.array([0, 1, 1, 0]), categories
    paths = {name: tmp_path / f"{name}.h5ad" for name in "abc"}
    words = r"codes' names class 1 'T' in .*b\.h5ad.*, but 'NK' in .*a\.h5ad"
    with pytest.warns(labeled.LabeledWarning, match=words):
        labeled.open_dataset([paths["a"], paths["b"]], sources=["obs/kind/codes"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        labeled.open_dataset([paths["a"], paths["c"]], sources=["obs/kind/codes"])
    assert not any("classes" in str(one.message) for one in told)
