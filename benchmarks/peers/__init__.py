"""Other ways to get batches out of the same files, one module a peer.

Each module offers ``ways(file, batch_rows, order)`` with `order` "file" or "shuffled" and is
imported only when it is measured, so a peer that is not installed is reported and the others
go on. Peers are used as their own documentation advises; each way says how.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.files import BenchFile
from benchmarks.measure import Way

PEERS = (
    "h5py_loops",
    "xarray_dask",
    "fuel_pattern",
    "torch_loaders",
    "xbatcher_batches",
    "grain_dataset",
    "scdataset_blocks",
    "pyfive_reads",
)


def peer_ways(
    file: BenchFile, batch_rows: int, order: str, missing: dict[str, str], only: str = ""
) -> list[Way]:
    """Return the ways of all peers for an order; what is not installed goes into `missing`."""
    found: list[Way] = []
    for name in PEERS:
        if only and only not in name:
            continue
        try:
            module = import_module(f"benchmarks.peers.{name}")
        except ImportError as error:
            missing[name] = str(error)
            continue
        found += module.ways(file, batch_rows, order)
    return found
