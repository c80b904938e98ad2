"""What can still be read of a window when something of it cannot.

Only used with ``errors="skip"``, after a read failed: every stored chunk of the window is
read again by itself, so that no row is given up that is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import ReadError, warn
from labeled.loader.reading.lanes import Lane
from labeled.samplers.content import Content, rows_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def rescue(
    lanes: Sequence[Lane], content: Content, group: Rows | None, arrays: dict[str, Array]
) -> Mask:
    """Read a window again, chunk by chunk, and warn of what is lost.

    Parameters
    ----------
    lanes : sequence of Lane
    content, group
        Of the window, as for :meth:`Lane.tasks`.
    arrays : mapping of str to array, lengths ``(n, *row_shape)``
        Receive what can be read.

    Returns
    -------
    bool array, lengths ``(n,)``
        Places of rows of which at least one source could not be read.
    """
    lost = np.zeros(len(content.rows), bool)
    for lane in lanes:
        if lane.is_loaded:
            continue
        for rows, places in _by_chunk(lane, content, group):
            lost[_unreadable(lane, rows, places, arrays[lane.name])] = True
    return lost


def _unreadable(lane: Lane, rows: Rows, places: Rows, out: Array) -> Rows:
    """Read the rows of a chunk again, without those at fault; return the places of these."""
    lost = [places[:0]]
    while len(rows):
        try:
            lane.read_again(rows, places, out)
            break
        except ReadError as error:
            bad = rows == error.row if error.row in rows else np.ones(len(rows), bool)
            warn(f"{np.count_nonzero(bad)} rows are left out of this epoch: {error}")
            lost.append(places[bad])
            rows, places = rows[~bad], places[~bad]
    return np.concatenate(lost)


def _by_chunk(lane: Lane, content: Content, group: Rows | None) -> Iterator[tuple[Rows, Rows]]:
    """Yield the file rows of each stored chunk of a window, and their places."""
    read = lane.read(content, group)
    if read.listed is not None:
        rows = read.listed
    elif read.run is not None:
        rows = np.arange(*read.run, dtype=np.int64)
    else:
        assert read.runs is not None
        rows = rows_of(read.runs)
    places = np.arange(len(rows)) if read.dest is None else read.dest
    chunk = rows // max(1, lane.reader.chunk_rows)
    order = np.argsort(chunk, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1):
        yield rows[mine], places[mine]
