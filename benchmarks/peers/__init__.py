"""Other ways to get batches out of the same files, one module a peer.

Each module offers ``ways(subject, order)`` with `order` "file" or "shuffled", its `NAME`, and
`NEEDS`: the libraries that it imports when a way is opened. A peer that is not installed is
reported and the others go on. Peers are used as their own documentation advises; each way
says how.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from importlib import import_module

from benchmarks.subject import Subject
from benchmarks.timing import Way
from labeled.errors import how_to_install

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


def peer_ways(subject: Subject, order: str, missing: dict[str, str], only: str = "") -> list[Way]:
    """Return the ways of all peers for an order; what is not installed goes into `missing`."""
    found: list[Way] = []
    for name in PEERS:
        if only and only not in name:
            continue
        module = import_module(f"benchmarks.peers.{name}")
        gone = [needed for needed in module.NEEDS if importlib.util.find_spec(needed) is None]
        if gone:
            missing[module.NAME] = how_to_install(" ".join(gone), "bench")
        else:
            found += [replace(way, needs=module.NEEDS) for way in module.ways(subject, order)]
    return found
