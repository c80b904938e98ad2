"""Names of files that promise another kind of file than is written: refused before any work.

What is written is HDF5, whatever its name ends in; but nobody who calls it ``x.json`` or
``x.zarr`` wants HDF5 there, and few programs would read it.
"""

from __future__ import annotations

import os

from labeled.errors import WriteError

RECORDS = ".rec"
"""What `convert` writes beside HDF5."""

XARRAY = frozenset({".npz", ".npy", ".parquet", ".csv", ".zarr"})
"""What NumPy, pandas and xarray write, of ``dataset.to_xarray()``."""

_FOREIGN = """
.arrow .avro .db .dcm .feather .fits .gz .jpeg .jpg .json .jsonl .lmdb .mat .orc .pickle .pkl
.png .pt .pth .safetensors .sqlite .tar .tfrecord .tfrecords .tif .tiff .tsv .txt .xlsx .xz
.zip .zst
"""

OTHERS = XARRAY.union(_FOREIGN.split(), [RECORDS])
"""Endings of files that are something else than HDF5."""


def check_ending(path: str | os.PathLike[str]) -> None:
    """Refuse to write HDF5 under a name that promises something else.

    Raises
    ------
    WriteError
        If it does, with another name.

    Examples
    --------
    >>> check_ending("a.hdf5"), check_ending("a"), check_ending("a.of_my_own")
    (None, None, None)
    >>> check_ending("a.json")
    Traceback (most recent call last):
    labeled.errors.WriteError: cannot write 'a.json': ... HDF5, which is not what ... 'a.hdf5'...
    """
    name = os.fsdecode(path)
    stem, ending = os.path.splitext(name)
    if ending.lower() in OTHERS:
        way = ""
        if ending.lower() == RECORDS:
            way = "; labeled.convert makes one of a labelled file"
        elif ending.lower() in XARRAY:
            way = "; open_dataset(...).to_xarray() has to_dataframe(), to_zarr() and to_netcdf()"
        raise WriteError(
            f"cannot write {name!r}: what is written is HDF5, which is not what a name "
            f"in {ending} promises; name it {stem + '.hdf5'!r}{way}"
        )
