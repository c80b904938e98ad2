"""Axes that AnnData, 10x, loom, HDF-EOS5, openPMD, H5MD, Imaris, NWB name by where arrays are."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import FileFormatError, LabeledError, LoaderError, NotYetError

ENDS = [2, 4, 4, 8, 12]
"""Where lists of spikes end; the third is empty."""

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


def test_a_matrix_by_columns_is_told_with_the_remedy(cells: Path, counts: np.ndarray) -> None:
    with h5py.File(cells, "a") as f:
        del f["X"]
        sparse(f.create_group("X"), counts, "csc")
    ds, told = texts_of_warnings(cells)
    assert "sparse matrix 'X' is stored by columns (CSC)" in told
    assert "tocsr()" in told
    assert "X" not in ds.sources


def test_the_groups_of_mudata_are_told(cells: Path) -> None:
    with h5py.File(cells, "a") as f:
        for name in [*f]:
            f.move(name, f"mod/rna/{name}")
        f["mod/rna"].attrs["encoding-type"] = "anndata"
        f["obs/_index"], f["var/_index"] = ["a"] * 20, GENES
        f.attrs["encoding-type"] = "MuData"
    assert "group='mod/NAME'" in texts_of_warnings(cells)[1]
    ds, told = texts_of_warnings(cells, group="mod/rna")
    assert told == ""
    assert ds["X"].sel(var_names="gene 2").dims == ("obs_names",)


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


EOS = """GROUP=SwathStructure
	GROUP=SWATH_1
		SwathName="Ozone Column"
		GROUP=Dimension
			OBJECT=Dimension_1
				DimensionName="nTimes"
				Size=7
			END_OBJECT=Dimension_1
		END_GROUP=Dimension
		GROUP=GeoField
			OBJECT=GeoField_1
				GeoFieldName="Latitude"
				DimList=("nTimes","nXtrack")
			END_OBJECT=GeoField_1
		END_GROUP=GeoField
		GROUP=DataField
			OBJECT=DataField_1
				DataFieldName="O3"
				DimList=("nTimes","nXtrack","nLevels")
			END_OBJECT=DataField_1
			OBJECT=DataField_2
				DataFieldName="Odd"
				DimList=("nTimes","nXtrack")
			END_OBJECT=DataField_2
		END_GROUP=DataField
	END_GROUP=SWATH_1
END_GROUP=SwathStructure
GROUP=GridStructure
	GROUP=GRID_1
		GridName="Month"
		GROUP=DataField
			OBJECT=DataField_1
				DataFieldName="Mean"
				DimList=("YDim","XDim")
			END_OBJECT=DataField_1
		END_GROUP=DataField
	END_GROUP=GRID_1
END_GROUP=GridStructure
END
"""


def test_loom_keeps_genes_by_cells_and_is_turned_as_the_note_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    matrix = np.arange(24.0).reshape(4, 6)
    with h5py.File("cells.loom", "w") as f:
        f["matrix"], f["layers/spliced"] = matrix, matrix
        f["row_attrs/Gene"], f["row_attrs/pca"] = list("abcd"), np.zeros((4, 2))
        f["col_attrs/CellID"], f["col_attrs/cluster"] = list("uvwxyz"), np.arange(6)
    ds, told = texts_of_warnings(Path("cells.loom"))
    assert {name: ds[name].dims for name in ds.sources} == {
        "matrix": ("gene", "cell"),
        "layers/spliced": ("gene", "cell"),
        "row_attrs/pca": ("gene", "pca_axis_1"),
        "col_attrs/cluster": ("cell",),
    }
    assert ds["matrix"].sel(gene="b").values.tolist() == matrix[1].tolist()
    exec(told[told.index("labeled.write(") :], {"labeled": labeled, "ds": ds})
    turned = labeled.open_dataset("cells.hdf5")["matrix"]
    assert turned.dims == ("cell", "gene")
    assert turned.sel(cell="v").values.tolist() == matrix[:, 1].tolist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_meshes_of_openpmd_have_the_axes_that_they_list(tmp_path: Path, order: str) -> None:
    labels = ["z", "y", "x"] if order == "C" else ["x", "y", "z"]
    for step in (0, 100):
        with h5py.File(tmp_path / f"data{step}.h5", "w") as f:
            f.attrs["openPMD"] = "1.1.0"
            f[f"data/{step}/meshes/E/x"] = np.full((2, 3, 4), step)
            f[f"data/{step}/meshes/rho"] = np.zeros((2, 3, 4))
            f[f"data/{step}/meshes/bare"] = np.zeros((2, 3, 4))
            for name in ("E", "rho"):
                f[f"data/{step}/meshes/{name}"].attrs["axisLabels"] = labels
                f[f"data/{step}/meshes/{name}"].attrs["dataOrder"] = order
            f[f"data/{step}/particles/e/position/x"] = np.arange(7.0)
    with pytest.raises(LabeledError, match=r"differ by a number: group='data/\*' joins"):
        texts_of_warnings(tmp_path)
    ds, told = texts_of_warnings(tmp_path, group="data/*")
    assert {name: ds[name].dims for name in ds.sources} == {
        "meshes/E/x": ("z", "y", "x"),
        "meshes/rho": ("z", "y", "x"),
        "meshes/bare": ("batch", "bare_axis_1", "bare_axis_2"),
        "particles/e/position/x": ("particle",),
    }
    assert "'meshes/bare' (axis 0, 1, 2)" in told
    assert ds["meshes/E/x"].values[:, 0, 0].tolist() == [0, 0, 100, 100]


def test_trajectories_of_h5md_are_times_by_particles(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "md.h5", "w") as f:
        f.create_group("h5md").attrs["version"] = [1, 1]
        for name in ("position", "velocity"):
            f[f"particles/all/{name}/value"] = np.zeros((6, 5, 3))
            f[f"particles/all/{name}/step"] = np.arange(6)
        f["particles/all/species"] = np.arange(5)
        f["particles/all/box/edges/value"] = np.ones((6, 3))
        f["observables/energy/value"] = np.arange(6.0)
    expected = {
        "position/value": ("time", "particle", "position_axis_2"),
        "position/step": ("time",),
        "velocity/value": ("time", "particle", "velocity_axis_2"),
        "velocity/step": ("time",),
        "species": ("particle",),
        "box/edges/value": ("time", "edges_axis_1"),
    }
    whole = texts_of_warnings(tmp_path / "md.h5")[0]
    energy = {"observables/energy/value": ("time",)}
    assert whole.dims == {f"particles/all/{n}": d for n, d in expected.items()} | energy
    assert texts_of_warnings(tmp_path / "md.h5", group="particles/all")[0].dims == expected


def test_the_structure_of_hdf_eos_names_axes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o.he5", "w") as f:
        f["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(EOS.encode().ljust(3000, b"\0"))
        swath = f.create_group("HDFEOS/SWATHS/Ozone Column")
        swath["Geolocation Fields/Latitude"] = np.zeros((7, 4))
        swath["Data Fields/O3"] = np.zeros((7, 4, 2))
        swath["Data Fields/Odd"] = np.zeros((7, 4, 3))  # its list of dims does not fit
        f["HDFEOS/GRIDS/Month/Data Fields/Mean"] = np.zeros((7, 9))
    ds = texts_of_warnings(tmp_path / "o.he5")[0]
    named = {name.rpartition("/")[2]: dims for name, dims in ds.dims.items()}
    assert named == {
        "Latitude": ("nTimes", "nXtrack"),
        "O3": ("nTimes", "nXtrack", "nLevels"),
        "Odd": ("batch", "Odd_axis_1", "Odd_axis_2"),
        "Mean": ("YDim", "XDim"),
    }
    below = texts_of_warnings(tmp_path / "o.he5", group="HDFEOS/SWATHS/Ozone Column")[0]
    assert below.dims["Data Fields/O3"] == ("nTimes", "nXtrack", "nLevels")


@pytest.mark.parametrize("filler", ["\n", "a=(\n", "(", 'a="'])
def test_texts_that_are_no_structure_take_no_time(tmp_path: Path, filler: str) -> None:
    """Looking for lines in a megabyte of line breaks took as many steps as their square."""
    text = np.bytes_((filler * (1_000_000 // len(filler))).encode())
    with h5py.File(tmp_path / "o.he5", "w") as f:
        f["HDFEOS INFORMATION/StructMetadata.0"], f["x"] = text, np.zeros((3, 2))
    begun = time.perf_counter()
    assert texts_of_warnings(tmp_path / "o.he5")[0].dims == {"x": ("batch", "x_axis_1")}
    assert time.perf_counter() - begun < 5


def test_pictures_of_imaris_are_slices_and_a_note_tells_how_to_join_times(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.ims", "w") as f:
        f.attrs["ImarisDataSet"] = np.array([b"I", b"m"])
        for n in range(4):
            place = f"DataSet/ResolutionLevel 0/TimePoint {n // 2}/Channel {n % 2}"
            f[f"{place}/Data"] = np.full((3, 8, 8), n, "u1")
            f[f"{place}/Histogram"] = np.zeros(256, "u8")
        f["Thumbnail/Data"] = np.zeros((16, 64), "u1")
    pattern = "DataSet/ResolutionLevel 0/TimePoint */Channel 0"
    assert f"group={pattern!r}" in texts_of_warnings(tmp_path / "a.ims")[1]
    ds, told = texts_of_warnings(tmp_path / "a.ims", group=pattern, sources=["Data"])
    assert told == ""
    assert ds.dims == {"Data": ("z", "y", "x")}
    assert ds["Data"].values[:, 0, 0].tolist() == [0, 0, 0, 2, 2, 2]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Path]:
    with h5py.File(tmp_path / "a.nwb", "w") as f:
        f.attrs["nwb_version"] = "2.8.0"
        lfp = f.create_group("acquisition/lfp")
        lfp.attrs["neurodata_type"] = "ElectricalSeries"
        lfp["data"], lfp["starting_time"] = np.arange(80, dtype="i2").reshape(40, 2), 0.0
        place = f.create_group("processing/place")
        place.attrs["neurodata_type"] = "LabNotesOfMine"
        place["data"], place["timestamps"] = np.zeros((9, 3)), np.arange(9.0)
        trials = f.create_group("intervals/trials")
        trials.attrs["colnames"] = ["start_time", "spikes"]
        trials["id"], trials["start_time"] = np.arange(5), np.arange(5.0)
        trials["spikes"], trials["spikes_index"] = np.arange(12.0), ENDS
    return tmp_path / "a.nwb"


def test_series_and_tables_of_nwb_name_axes(recording: Path) -> None:
    ds = texts_of_warnings(recording)[0]
    assert ds.dims == {
        "acquisition/lfp/data": ("time", "channel"),
        "intervals/trials/id": ("trials_id",),
        "intervals/trials/spikes": ("trials_id", "spikes_axis_1"),
        "intervals/trials/start_time": ("trials_id",),
        "processing/place/data": ("time", "data_axis_1"),
        "processing/place/timestamps": ("time",),
    }


ROWS = st.lists(st.integers(0, 4), max_size=7)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS | st.slices(5))
def test_lists_of_nwb_are_examples_of_their_own_length(recording: Path, rows: Any) -> None:
    """Values and ends were two sources of different lengths."""
    values = np.split(np.arange(12.0), ENDS[:-1])
    ds = texts_of_warnings(recording)[0].select("intervals/trials/spikes", "intervals/trials/id")
    numbers = np.arange(5)[rows]
    found = ds.subset(rows)["intervals/trials/spikes"].to_objects()
    assert [one.tolist() for one in found] == [values[i].tolist() for i in numbers]
    for batch in ds.subset(rows).batches(2, shuffle=True, seed=1, ragged="list"):
        ids = batch["intervals/trials/id"].values
        for one, i in zip(batch["intervals/trials/spikes"].values, ids, strict=True):
            assert np.asarray(one).tolist() == values[i].tolist()


def test_lists_of_nwb_are_repacked_and_not_appended_to(recording: Path) -> None:
    ds = texts_of_warnings(recording)[0]
    with h5py.File(recording, "a") as f:
        for name in ("acquisition", "processing"):
            del f[name]
    one = {"intervals/trials/id": [5], "intervals/trials/start_time": [5.0]}
    with pytest.raises(NotYetError, match=r"spikes'\] of file .*a\.nwb.* lists as NWB keeps them"):
        labeled.append(recording, {**one, "intervals/trials/spikes": [np.zeros(2)]})
    made = labeled.repack(recording, recording.with_name("new.h5"))
    again = labeled.append(made, {**one, "intervals/trials/spikes": [np.zeros(2)]})
    lists = labeled.open_dataset(again)["intervals/trials/spikes"].to_objects()
    assert [len(one) for one in lists] == [2, 2, 0, 4, 4, 2]
    assert ds.dims["intervals/trials/spikes"] == ("trials_id", "spikes_axis_1")


@pytest.mark.parametrize("ends", [[2, 4, 3, 8, 12], [2, 4, 4, 8, 13]])
def test_lists_of_nwb_that_end_nowhere_are_named(recording: Path, ends: list[int]) -> None:
    with h5py.File(recording, "a") as f:
        f["intervals/trials/spikes_index"][:] = ends
    source = texts_of_warnings(recording)[0]["intervals/trials/spikes"]
    with pytest.raises(FileFormatError, match=r"spikes' in .*a\.nwb.*, row [24]: its offsets"):
        source.to_objects()


def test_the_two_halves_of_lists_open_where_they_are_asked_for(recording: Path) -> None:
    names = ["intervals/trials/spikes", "intervals/trials/spikes_index"]
    ds = texts_of_warnings(recording, sources=names)[0]
    np.testing.assert_array_equal(ds[names[0]].values, np.arange(12))
    np.testing.assert_array_equal(ds[names[1]].values, ENDS)


def test_sources_that_hold_most_are_proposed_where_lengths_differ(recording: Path) -> None:
    """The table of trials was proposed, which has most sources, and next to nothing in them."""
    with pytest.raises(LoaderError, match=r"such as select\('processing/place/data', 'proc"):
        texts_of_warnings(recording)[0].batches(4)
