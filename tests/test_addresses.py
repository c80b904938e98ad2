"""Files that lie elsewhere: what fsspec reaches opens and is read as a local copy is."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import FileChangedError, FileFormatError

N_ROWS = 90


def elsewhere(path: str, name: str = "memory://examples.h5") -> str:
    fsspec.filesystem("memory").pipe_file(name.partition("://")[2], Path(path).read_bytes())
    return name


def written(folder: Path, **options: Any) -> str:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 9, (N_ROWS, 3, 4), np.uint8)
    words = [rng.integers(0, 9, int(k)) for k in rng.integers(0, 5, N_ROWS)]
    sources = {"images": images, "texts": np.array([f"é{i}" for i in range(N_ROWS)], object)}
    splits = {"train": (0, 60), "test": rng.permutation(30) + 60}
    return labeled.write(folder / "x", {**sources, "words": words}, splits, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": {"images": "gzip"}, "chunks": {"images": 16}}, {"ragged": "fuel"}],
)
def test_an_address_is_read_as_a_local_copy_is(tmp_path: Path, options: Any) -> None:
    path = written(tmp_path, **options)
    here, there = labeled.open_dataset(path), labeled.open_dataset(elsewhere(path))

    assert there.sources == here.sources
    assert there.dims == here.dims
    assert labeled.verify("memory://examples.h5").sound
    for ds in (there, pickle.loads(pickle.dumps(there)), there.split("test")):
        local = here.split("test") if ds.n_rows < N_ROWS else here
        np.testing.assert_array_equal(ds["images"], local["images"])
        asked: dict[str, Any] = {"shuffle": "window", "seed": 5, "ragged": "pad"}
        for got, wanted in zip(ds.batches(16, **asked), local.batches(16, **asked), strict=True):
            np.testing.assert_array_equal(got.rows, wanted.rows)
            for name in ("images", "texts", "words", "words_mask"):
                np.testing.assert_array_equal(got[name], wanted[name])


def test_a_file_elsewhere_is_written_again_here(tmp_path: Path) -> None:
    path = written(tmp_path)
    new = labeled.repack(elsewhere(path), tmp_path / "new.h5", layout="contiguous")
    here, there = labeled.open_dataset(path), labeled.open_dataset(new)
    np.testing.assert_array_equal(there["images"], here["images"])
    np.testing.assert_array_equal(there.split("test")["texts"], here.split("test")["texts"])


def test_rows_elsewhere_are_not_asked_for_one_by_one(tmp_path: Path) -> None:
    path = written(tmp_path)
    here, there = labeled.open_dataset(path), labeled.open_dataset(elsewhere(path))
    for name in ("images", "words"):
        modes = [ds[[name]].batches(8, shuffle=True, seed=1).explain().mode for ds in (here, there)]
        assert modes == ["full", "window"]


def test_xarray_and_lists_take_addresses_too(tmp_path: Path) -> None:
    path = written(tmp_path)
    name = elsewhere(path)
    found = xr.open_dataset(name, engine="labeled", sources=["images"])
    np.testing.assert_array_equal(found["images"], labeled.open_dataset(path)["images"])
    assert labeled.open_dataset([path, name]).n_rows == 2 * N_ROWS


def test_what_is_wrong_elsewhere_is_reported(tmp_path: Path) -> None:
    ds = labeled.open_dataset(elsewhere(written(tmp_path)))
    for more in (b"", b"?"):  # of the same size it is another file all the same
        data = Path(tmp_path / "x").read_bytes() + more
        fsspec.filesystem("memory").pipe_file("examples.h5", data)
        with pytest.raises(FileChangedError, match=r"'memory://examples.h5' (has )?changed since"):
            ds.load()
    with pytest.raises(FileFormatError, match=r"cannot open 'memory://gone\.h5'"):
        labeled.open_dataset("memory://gone.h5")
    fsspec.filesystem("memory").pipe_file("bad.h5", b"not HDF5")
    with pytest.raises(FileFormatError, match=r"'memory://bad.h5' is not an HDF5 file"):
        labeled.open_dataset("memory://bad.h5", format="hdf5")
