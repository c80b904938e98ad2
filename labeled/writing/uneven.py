"""Statistics of examples of different shapes, measured while they pass by as flat values.

Examples are measured like rows: for the source, and for every split, whether that is a
stretch or a list. Where a dim means channels they are kept apart by it, as long as every
example has as many; where examples differ in that, channels are put together.

Examples are taken some at a time, so that their values stay in a core's cache. Small ones
that differ in shape are sorted by channel, large ones are measured one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from labeled.formats.region import Array
from labeled.ragged.flat import Rows, block_cuts, copy_segments, elements_of, offsets_of
from labeled.writing.statistics import (
    MOST_CHANNELS,
    PIECE_VALUES,
    Moments,
    Part,
    moments_of,
)


def measured_examples(
    values: Array, shapes: Rows, parts: Sequence[Part], channel_axis: int | None
) -> list[tuple[tuple[str, ...], Moments]]:
    """Measure the parts of a block of examples, each once.

    Parameters
    ----------
    values : array (n_values,)
        The examples, one after another.
    shapes : int64 array (n, axes of an example)
    parts : sequence of (splits, rows)
        Which of the n examples each is.
    channel_axis : int, optional
        The dim of channels: 1 is the first axis of an example.
    """
    edges, rows = offsets_of(elements_of(shapes)), np.arange(len(shapes))
    return [
        (names, _moments_of(values, edges, shapes, rows[which], channel_axis))
        for names, which in parts
    ]


def _moments_of(
    values: Array, edges: Rows, shapes: Rows, rows: Rows, channel_axis: int | None
) -> Moments:
    """Measure some examples; rows may repeat."""
    sizes = np.diff(edges)
    held = rows[sizes[rows] > 0]
    total = Moments.none(0)
    for a, b in pairwise(block_cuts(sizes[held], PIECE_VALUES)):
        some = held[a:b]
        piece = _picked(values, edges, some)
        if channel_axis is None:
            found = moments_of(piece)
        else:
            found = _by_channel(piece, shapes[some], channel_axis)
        total = total.merge(found)
    total.n_rows = len(rows)
    return total


def _picked(values: Array, edges: Rows, rows: Rows) -> Array:
    """Return the values of some examples, without a copy where they follow one another."""
    if (np.diff(rows) == 1).all():
        return values[edges[rows[0]] : edges[rows[-1] + 1]]
    sizes = edges[rows + 1] - edges[rows]
    places = offsets_of(sizes)
    out = np.empty(int(places[-1]), values.dtype)
    copy_segments(out, places[:-1], values, edges[rows], sizes)
    return out


def _by_channel(values: Array, shapes: Rows, axis: int) -> Moments:
    """Measure examples that are not empty, channel by channel if all have as many."""
    channels = int(shapes[0, axis - 1])
    if channels > MOST_CHANNELS or (shapes[:, axis - 1] != channels).any():
        found = moments_of(values)
        found.mixed = True
        return found
    if len(shapes) > 1 and (shapes != shapes[0]).any():
        return moments_of(_channels_last(values, shapes, channels, axis), 1)
    if axis > 1:
        return moments_of(values.reshape(len(shapes), *shapes[0].tolist()), axis)
    apart = np.moveaxis(values.reshape(len(shapes), channels, -1), 1, 2)
    return moments_of(apart.reshape(-1, channels) if len(shapes) > 1 else apart[0], 1)


def _channels_last(values: Array, shapes: Rows, channels: int, axis: int) -> Array:
    """Sort the values of small examples by channel: (values of each, channels)."""
    sizes = elements_of(shapes)
    step = np.arange(len(values)) - np.repeat(offsets_of(sizes)[:-1], sizes)
    after = np.repeat(elements_of(shapes[:, axis:]), sizes)
    channel = (step // after % channels).astype(np.uint16)
    by_channel: Array = values[np.argsort(channel, kind="stable")]
    return by_channel.reshape(channels, -1).T
