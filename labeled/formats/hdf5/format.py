"""HDF5 as one format among others."""

from __future__ import annotations

from labeled.formats.format import Format
from labeled.formats.hdf5.own import read_statistics
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader, read_scalar
from labeled.formats.hdf5.safety import check_claim, stored_bytes
from labeled.formats.hdf5.scan import recognises, scan_files

FORMAT = Format(
    name="hdf5",
    title="HDF5",
    suffixes=(".hdf5", ".h5", ".hdf", ".he5", ".nc", ".nc4"),
    recognises=recognises,
    scan=scan_files,
    open_reader=open_reader,
    kinds={
        "fuel": "splits in a Fuel table",
        "netcdf": "netCDF-style dimension scales",
        "plain": "plain HDF5, no splits of its own",
    },
    accepts=frozenset({"group", "examples", "decode_cf", "allow_external"}),
    open_ragged=open_ragged,
    read_scalar=read_scalar,
    check_claim=check_claim,
    stored_bytes=stored_bytes,
    statistics=read_statistics,
    remote=True,
)
