"""A table of chunks kept as a B-tree (version 1), read level by level without HDF5.

HDF5 walks such a tree node by node and calls Python for each chunk. Here the nodes of a level
are read in batches, of which a disk is told before, and each batch is taken apart at once.

Format: *HDF5 File Format Specification Version 3.0*, III.A.1, node type 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from labeled.formats.bytesource import OpenFile
from labeled.formats.hdf5.objectheader import UNDEFINED, ChunkTable, UnknownLayoutError
from labeled.formats.region import Array

AT_ONCE = 1024
"""Nodes that are read together: some megabytes."""

MOST_LEVELS = 12


def tree_entries(file: OpenFile, table: ChunkTable, most: int) -> Iterator[Array]:
    """Yield the chunks of a tree in its order, some thousands at a time.

    Parameters
    ----------
    most : int
        Chunks that there can be.

    Yields
    ------
    structured array (n,)
        ``place`` (where the chunk begins, in elements along each axis, and 0), ``offset`` and
        ``size`` in bytes, ``mask``.

    Raises
    ------
    UnknownLayoutError
        If a node is not what its parent says, or there are more of them than chunks.
    EOFError
        If a node ends behind the file.
    """
    node = _node_of(table)
    nodes = np.array([table.address], np.uint64)[: table.address != UNDEFINED]
    level = int(_read(file, nodes, node)[0]["level"]) if len(nodes) else 0
    if level > MOST_LEVELS:
        raise UnknownLayoutError(f"a tree of {level} levels")
    for height in range(level, 0, -1):
        nodes = np.concatenate([found["offset"] for found in _level(file, nodes, node, height)])
        if len(nodes) > most:
            raise UnknownLayoutError("more nodes than chunks")
    yield from _level(file, nodes, node, 0)


def _node_of(table: ChunkTable) -> np.dtype[np.void]:
    """Return how a node lies in the file, the room for children that it does not have included."""
    key = [("size", "<u4"), ("mask", "<u4"), ("place", "<u8", (len(table.lengths),))]
    return np.dtype(
        [
            ("signature", "S4"),
            ("type", "u1"),
            ("level", "u1"),
            ("used", "<u2"),
            ("siblings", "<u8", (2,)),
            ("children", [*key, ("offset", "<u8")], (2 * table.rank,)),
            ("last", key),
        ]
    )


def _level(
    file: OpenFile, addresses: Array, node: np.dtype[np.void], level: int
) -> Iterator[Array]:
    """Yield what the nodes of a level have, a batch of nodes at a time."""
    room = np.arange(node["children"].shape[0])
    for first in range(0, len(addresses), AT_ONCE):
        found = _read(file, addresses[first : first + AT_ONCE], node)
        used = found["used"]
        right = (found["signature"] == b"TREE") & (found["type"] == 1)
        if not (right & (found["level"] == level) & (used <= len(room))).all():
            raise UnknownLayoutError(f"a node of level {level} is not one")
        yield found["children"][room < used[:, None]]


def _read(file: OpenFile, addresses: Array, node: np.dtype[np.void]) -> Array:
    """Read nodes; the disk is told of all of them before where the first is not in memory."""
    found = np.empty(len(addresses), node)
    places = addresses.tolist()
    if any(place > file.size for place in places):
        raise UnknownLayoutError("a node outside the file")
    if not file.holds(places[0]):
        for place in places:
            file.advise(place, node.itemsize)
    for number, place in enumerate(places):
        file.read_into(found[number : number + 1], place)
    return found
