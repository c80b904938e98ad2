"""Files of compressed chunks, and batches of them."""

from __future__ import annotations

import h5py
import hdf5plugin

CODECS = {
    "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "zstd": {**hdf5plugin.Zstd(), "shuffle": True},
    "lz4": {**hdf5plugin.LZ4(nbytes=3000), "fletcher32": True},
}


def damaged(path, at, change, name="x"):
    """Change the stored bytes of chunk `at` in place."""
    with h5py.File(path, "r") as f:
        info = f[name].id.get_chunk_info(at)
    with open(path, "r+b") as file:
        file.seek(info.byte_offset)
        stored = bytearray(file.read(info.size))
        change(stored)
        file.seek(info.byte_offset)
        file.write(stored)
    return info.byte_offset


def flip(place):
    def change(stored):
        stored[place] ^= 0x55

    return change
