"""Files of AnnData and 10x Genomics, whose axes have names; files of other programs open too."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled

GENES = [f"gene {i}" for i in range(6)]


def texts_of_warnings(path: Path, **options: Any) -> tuple[labeled.Dataset, str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ds = labeled.open_dataset(path, **options)
    return ds, " ".join(str(one.message) for one in told)


def sparse(group: h5py.Group, dense: np.ndarray, kind: str = "csr") -> None:
    """Write a matrix by rows, or by columns, as AnnData does."""
    lines = dense if kind == "csr" else dense.T
    group.attrs["encoding-type"], group.attrs["shape"] = f"{kind}_matrix", dense.shape
    group["data"] = np.concatenate([line[line != 0] for line in lines])
    group["indices"] = np.concatenate([np.flatnonzero(line) for line in lines])
    group["indptr"] = np.cumsum([0, *(np.count_nonzero(line) for line in lines)])


@pytest.fixture
def counts() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 3, (20, 6)).astype("f4")


@pytest.fixture
def cells(tmp_path: Path, counts: np.ndarray) -> Path:
    with h5py.File(tmp_path / "cells.h5ad", "w") as f:
        f.attrs["encoding-type"] = "anndata"
        sparse(f.create_group("X"), counts)
        f["layers/scaled"] = counts / 2
        f["obs/_index"] = [f"cell {i}" for i in range(20)]
        f["obs/kind/codes"], f["obs/kind/categories"] = np.arange(20, dtype="i1") % 2, ["B", "T"]
        f["obs/kind"].attrs["encoding-type"] = "categorical"
        f["var/names"], f["var/length"] = GENES, np.arange(6)
        f["var"].attrs["_index"] = "names"
        f["obsm/X_pca"], f["varm/PCs"] = np.zeros((20, 3)), np.zeros((6, 3))
        f["obsp/near"] = np.zeros((20, 20))
        f["uns/colors"] = ["red", "blue"]
    return tmp_path / "cells.h5ad"


def test_cells_are_the_examples_of_anndata_and_genes_have_names(
    cells: Path, counts: np.ndarray
) -> None:
    ds, told = texts_of_warnings(cells)

    assert told == ""
    assert ds.dims == {
        "X": ("obs_names", "var_names"),
        "layers/scaled": ("obs_names", "var_names"),
        "obs/_index": ("obs_names",),
        "obs/kind/codes": ("obs_names",),
        "obsm/X_pca": ("obs_names", "X_pca_axis_1"),
        "obsp/near": ("obs_names", "obs_names_2"),
    }
    assert ds.n_rows == 20
    np.testing.assert_array_equal(ds["X"].sel(var_names="gene 4").values, counts[:, 4])
    np.testing.assert_array_equal(ds["var/length"].values, np.arange(6))
    assert ds["varm/PCs"].dims == ("var_names", "PCs_axis_1")
    batch = next(iter(ds.batches(4, shuffle=True, seed=0)))
    np.testing.assert_array_equal(batch["X"].values, counts[batch.rows])
    made = labeled.write(cells.with_name("new.h5"), {n: ds[n] for n in ds.sources})
    np.testing.assert_array_equal(labeled.open_dataset(made)["X"], counts)  # no name stands twice
    whole = texts_of_warnings(cells)[0].to_xarray()
    assert dict(whole.sizes) | {"obs_names": 20, "var_names": 6, "kind": 2} == dict(whole.sizes)
    assert whole["obs/kind/categories"].values.tolist() == ["B", "T"]


def test_names_of_genes_that_pandas_lets_be_missing_are_names(
    cells: Path, counts: np.ndarray
) -> None:
    with h5py.File(cells, "a") as f:
        del f["var/names"]
        f["var/names/values"], f["var/names/mask"] = GENES, np.zeros(6, bool)
    ds = texts_of_warnings(cells)[0]
    np.testing.assert_array_equal(ds["X"].sel(var_names="gene 4").values, counts[:, 4])


@pytest.mark.parametrize("place", ["raw/var/names", "raw/var/names/values"])
def test_genes_of_the_raw_matrix_have_names_of_their_own(cells: Path, place: str) -> None:
    raw, genes = np.arange(20.0 * 9).reshape(20, 9), [f"raw {i}" for i in range(9)]
    with h5py.File(cells, "a") as f:
        f["raw/X"], f[place], f["raw/var/length"] = raw, genes, np.arange(9)
        f["raw/var"].attrs["_index"] = "names"
    ds = texts_of_warnings(cells)[0]
    assert ds["raw/X"].dims == ("obs_names", "raw_var_names")
    assert ds["raw/X"].coords["raw_var_names"].values.tolist() == genes
    np.testing.assert_array_equal(ds["raw/X"].sel(raw_var_names="raw 7").values, raw[:, 7])
    assert ds["X"].coords["var_names"].values.tolist() == GENES
    assert ds["raw/var/length"].dims == ("raw_var_names",)


def test_no_link_is_followed_out_of_a_file_to_find_out_who_wrote_it(
    cells: Path, counts: np.ndarray
) -> None:
    with h5py.File(cells, "a") as f:
        f["obs"].attrs["_index"] = "_index"
    with h5py.File(cells.with_name("plain.h5"), "w") as f:
        f["X"] = counts
        f.create_group("var").attrs["_index"] = "_index"
        f["obs"] = h5py.ExternalLink(str(cells), "/obs")
    assert texts_of_warnings(cells.with_name("plain.h5"))[0].dims == {"X": ("batch", "X_axis_1")}


def test_what_is_not_as_long_as_there_are_cells_is_carried_along(cells: Path) -> None:
    """Names of categories, which older files keep below obs, would leave no common length."""
    with h5py.File(cells, "a") as f:
        f["obs/__categories/batch"], f["obs/odd"] = ["1", "2", "3"], np.arange(5)
        f["obsm/table/kind/codes"], f["obsm/table/kind/categories"] = np.zeros(20, "i1"), ["x"]
    ds = texts_of_warnings(cells)[0]
    assert ds.n_rows == 20
    assert ds["obs/__categories/batch"].dims == ("batch",)
    assert ds["obs/odd"].dims == ("odd_axis_0",)
    assert ds["obsm/table/kind/categories"].dims == ("kind",)


def test_what_is_asked_for_of_anndata_are_the_examples(cells: Path) -> None:
    genes = texts_of_warnings(cells, sources=["var/names", "var/length"])[0]
    assert genes.n_rows == 6
    assert genes["var/names"].values.tolist() == GENES
    assert genes.dims == {"var/names": ("var_names",), "var/length": ("var_names",)}
    both = texts_of_warnings(cells, sources=["X", "var/names"])[0]
    assert both.shapes == {"X": (20, 6), "var/names": (6,)}
    named = texts_of_warnings(cells, dims={"X": ("cell", "gene")})[0]
    assert named.dims["X"] == ("cell", "gene")
    assert "obs/kind/codes" in named.sources
    assert texts_of_warnings(cells, example_dim="var_names")[0].n_rows == 6


def test_a_matrix_by_columns_is_reported_with_the_remedy(cells: Path, counts: np.ndarray) -> None:
    with h5py.File(cells, "a") as f:
        del f["X"]
        sparse(f.create_group("X"), counts, "csc")
    ds, told = texts_of_warnings(cells)
    assert "sparse matrix 'X' is stored by columns (CSC)" in told
    assert "tocsr()" in told
    assert "X" not in ds.sources


@pytest.mark.parametrize("begin", ["matrix", "GRCh38"])
def test_barcodes_are_the_examples_of_10x_genomics(
    tmp_path: Path, counts: np.ndarray, begin: str
) -> None:
    kind, ids = ("feature", "features/id") if begin == "matrix" else ("gene", "genes")
    with h5py.File(tmp_path / "m.h5", "w") as f:
        group = f.create_group(begin)
        sparse(group, counts)  # barcodes are columns there, and stored by columns
        del group.attrs["encoding-type"], group.attrs["shape"]
        group["shape"], group["barcodes"] = [6, 20], [f"AAC{i}" for i in range(20)]
        group[ids] = GENES
        if kind == "feature":
            group["features/name"], group["features/_all_tag_keys"] = GENES, ["genome"]
    ds, told = texts_of_warnings(tmp_path / "m.h5")
    assert told == ""
    assert ds.dims == {begin: ("barcode", kind), f"{begin}/barcodes": ("barcode",)}
    np.testing.assert_array_equal(ds[begin].sel({kind: "gene 3"}).values, counts[:, 3])
    assert ds.batches(8).batch_size == 8


def test_what_pytables_keeps_for_its_indexes_is_put_aside(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "table.h5", "w") as f:
        f["table/rows"] = np.zeros(3, [("a", "f4"), ("b", "i4")])
        f["table/_i_table/index/bounds"] = np.zeros((9, 9))
    ds = labeled.open_dataset(tmp_path / "table.h5")
    assert ds.sources == ("table/rows/a", "table/rows/b")
    with pytest.raises(labeled.errors.UnknownNameError, match="part of an index of PyTables"):
        ds["table/_i_table/index/bounds"]


def test_an_empty_array_of_matlab_is_no_source(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as f:
        f["x"], f["none"] = np.arange(3), np.array([0, 0], "u8")
        f["none"].attrs["MATLAB_empty"], f["x"].attrs["MATLAB_empty"] = np.uint8([1, 0])
    ds = labeled.open_dataset(tmp_path / "x.mat")
    assert (ds.sources, ds.n_rows) == (("x",), 3)
    with pytest.raises(labeled.errors.UnknownNameError, match="it is an empty array of MATLAB"):
        ds["none"]


@pytest.mark.parametrize("soft", [True, False])
def test_a_dataset_with_several_names_is_shown_once(tmp_path: Path, soft: bool) -> None:
    path, other = tmp_path / "x.h5", "entry/instrument/detector/data"
    with h5py.File(path, "w") as f:
        f[other] = np.arange(24).reshape(6, 4)
        f[other].dims[0].label, f[other].dims[1].label = "theta", "energy"
        f["entry/data/counts"] = h5py.SoftLink(f"/{other}") if soft else f[other]

    ds = labeled.open_dataset(path)

    assert ds.sources == ("entry/data/counts",)
    assert ds["entry/data/counts"].dims == ("theta", "energy")
    with pytest.raises(
        labeled.errors.UnknownNameError, match="it is another name of 'entry/data/counts'"
    ):
        ds[other]
    both = labeled.open_dataset(path, sources=[other, "entry/data/counts"])
    assert both.sources == (other, "entry/data/counts")
    np.testing.assert_array_equal(both[other], both["entry/data/counts"])
    renamed = labeled.open_dataset(path, dims={other: ("scan", "channel")})
    assert renamed[other].dims == ("scan", "channel")
    new = labeled.repack(path, tmp_path / "new.h5", dims={other: ("scan", "channel")})
    assert labeled.open_dataset(new)["entry/data/counts"].dims == ("scan", "channel")
