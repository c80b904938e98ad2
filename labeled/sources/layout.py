"""How rows lie in storage, as far as the order and the cost of reading depend on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class RowLayout:
    """What is stored, and so read, together.

    Parameters
    ----------
    chunk_rows : int or None
        Rows of a stored chunk; None where any row can be read alone.
    edges : int64 array, optional
        Rows at which chunks begin (and the end of the last), where they are not the
        multiples of `chunk_rows`.
    scratch_bytes : int
        What a thread needs besides the destination while it reads a piece.
    dear : bool
        A chunk costs more than its bytes: filters are undone, or a graph computed.
    direct : bool
        Stretches of rows are read straight to where they go.
    random : bool
        Rows read one by one cost about what they cost in stretches.
    picked : bool
        Rows in any order are copied one by one out of stored chunks, and nothing else is.
    mapped : bool
        Every row lies in one piece, in memory or in a file that may be mapped there.
    held_bytes : int
        What readers keep between reads, and take while they decode it, whoever reads: a stored
        chunk may then be cut, and is decoded once all the same. 0 where they keep nothing.
    """

    chunk_rows: int | None
    edges: npt.NDArray[np.int64] | None = None
    scratch_bytes: int = 1 << 16
    dear: bool = False
    direct: bool = False
    random: bool = True
    picked: bool = False
    mapped: bool = False
    held_bytes: int = 0
