"""Which format a file is of, and which options go with it."""

from __future__ import annotations

import gzip
import pickle
import re
import shlex
from functools import partial

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from record_files import pictures, write_records

import labeled
from labeled.cli.main import main
from labeled.errors import ArgumentError, FileFormatError, OptionError


def hdf5(path, **options):
    with h5py.File(path, "w", **options) as f:
        f["x"] = np.arange(6).reshape(3, 2)
        for axis, label in enumerate(("batch", "feature")):
            f["x"].dims[axis].label = label
    return path


@pytest.mark.parametrize("name", ["a.h5", "a.csv", "a", "a.unheard"])
@pytest.mark.parametrize("user_block", [0, 512, 4096])
def test_first_bytes_come_before_the_name(tmp_path, name, user_block):
    path = hdf5(tmp_path / name, userblock_size=user_block)
    assert labeled.open_dataset(path)["x"].values.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_name_decides_where_first_bytes_do_not(tmp_path):
    path = tmp_path / "damaged.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a" + b"not quite" * 20)
    with pytest.raises(FileFormatError, match=r"'.*damaged\.h5' is not an HDF5 file"):
        labeled.open_dataset(path)


def test_the_error_for_an_unknown_file_names_the_formats(tmp_path):
    path = tmp_path / "notes.unheard"
    path.write_bytes(b"\x00\x01\x02" * 100)
    with pytest.raises(FileFormatError, match=r"notes\.unheard.*pass format=.*'hdf5' \(\.hdf5"):
        labeled.open_dataset(path)
    with pytest.raises(FileFormatError, match="does not exist"):
        labeled.open_dataset(tmp_path / "none.unheard")
    with pytest.raises(ArgumentError, match=r"format='hdf' is not a format; did you mean 'hdf5'"):
        labeled.open_dataset(path, format="hdf")


FOREIGN = {
    "a.npy": (
        b"\x93NUMPY\x01\x00",
        r"a NumPy array; convert it to HDF5 first: labeled convert \S+a\.npy",
    ),
    "a.npz": (b"PK\x03\x04", r"a NumPy archive; convert it to HDF5 first: labeled convert"),
    "a.zip": (b"PK\x03\x04", "a zip archive; unpack it first"),
    "a.parquet": (b"PAR1\x15", "a parquet table; convert it to HDF5 first: labeled convert"),
    "part-0": (b"PAR1\x15", r"a parquet table; .* under a name that ends in \.parquet"),
    "a.nc": (b"CDF\x02", "netCDF-3, not netCDF-4, which xarray opens: labeled.batches"),
    "a.mat": (b"MATLAB 5.0 MAT-file", r"a MATLAB file before v7\.3; save it again .*'-v7\.3'"),
    "lfs.h5": (
        b"version https://git-lfs.github.com/spec/v1",
        "a pointer of Git LFS; `git lfs pull`",
    ),
    "page.h5": (b"<!DOCTYPE html><html>", "a web page; the download failed"),
    "a.png": (b"\x89PNG\r\n\x1a\n", "a picture; put pictures into a folder"),
    "a.pkl": (b"\x80\x05\x95", "a pickle, which may run any code; labeled.write"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_the_error_for_a_file_of_another_kind_names_the_next_step(tmp_path, name):
    head, words = FOREIGN[name]
    (tmp_path / name).write_bytes(head + b"\0" * 600)
    repack = partial(labeled.repack, target=tmp_path / "new.h5")
    for use in (labeled.open_dataset, labeled.verify, labeled.doctor, repack):
        with pytest.raises(FileFormatError, match=rf"{re.escape(name)}' is {words}"):
            use(tmp_path / name)


@pytest.mark.parametrize("names", ["CDF,x", "cdf,pdf", "PAR1,PAR2", "par1,x", "grib,x", "pk,x"])
def test_text_that_begins_like_another_kind_is_text(tmp_path, names):
    (tmp_path / "a.csv").write_text(f"{names}\n1,2\n3,4\n")
    opened = labeled.open_dataset(tmp_path / "a.csv")
    assert opened["features"].attrs["columns"] == names.split(",")


def test_the_error_for_a_folder_of_another_kind_names_the_next_step(tmp_path):
    (tmp_path / "cat.jpg").touch()
    with pytest.raises(FileFormatError, match=r"convert pictures, .*: labeled convert"):
        labeled.open_dataset(tmp_path)


def test_what_is_no_path_is_said_so(tmp_path):
    for path in ("", "a\0b"):
        with pytest.raises(FileFormatError, match="is not a path; pass a file"):
            labeled.open_dataset(path)
    with (
        hdf5(tmp_path / "a.h5").open("rb") as file,
        pytest.raises(FileFormatError, match=r"not BufferedReader; close it and pass its path, '"),
    ):
        labeled.open_dataset(file)


def test_a_packed_file_is_looked_into(tmp_path):
    path = tmp_path / "a.h5.gz"
    path.write_bytes(gzip.compress(hdf5(tmp_path / "a.h5").read_bytes()))
    with pytest.raises(FileFormatError, match=r"a\.h5\.gz' is gzip-compressed.*unpack it"):
        labeled.open_dataset(path)


def test_options_are_known_before_files_are_looked_at(tmp_path):
    with pytest.raises(OptionError, match=r"no option 'chnks'; did you mean 'chunks'"):
        labeled.open_dataset(tmp_path / "none.h5", chnks=3)


def test_headers_pickle_with_their_format(tmp_path):
    dataset = labeled.open_dataset(hdf5(tmp_path / "a.h5"))
    again = pickle.loads(pickle.dumps(dataset))
    assert again.files.options.format == "hdf5"
    assert again["x"].identical(dataset["x"])


def test_what_is_for_hdf5_alone_names_the_format_and_the_remedy(tmp_path):
    image = np.arange(12, dtype=np.uint8)
    (tmp_path / "i-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 12]) + image.tobytes())
    (tmp_path / "a b.csv").write_text("1,2\n3,4\n")
    write_records(tmp_path / "a.rec", pictures(2), [0, 1])
    titles = {"i-idx1-ubyte": "IDX", "a b.csv": "delimited text", "a.rec": "RecordIO"}
    acts = (
        labeled.verify,
        labeled.doctor,
        lambda path: labeled.repack(path, tmp_path / "new.hdf5"),
        lambda path: labeled.append(path, {"x": image}),
    )
    for name, title in titles.items():
        path = tmp_path / name
        for act in acts:
            with pytest.raises(FileFormatError, match=f"is {title}, and .* is for HDF5") as told:
                act(path)
        command = shlex.split(str(told.value).partition("labeled convert ")[2])
        assert not CliRunner().invoke(main, ["convert", *command]).exit_code
        labeled.verify(command[1])
    with pytest.raises(FileFormatError, match="does not exist"):
        labeled.verify(tmp_path / "none.rec")
