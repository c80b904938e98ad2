"""How each source is stored: contiguous or in chunks, how large, through which codec.

Chosen for reading in shuffled batches: without compression rows lie one after another, so
any row may be read alone at full speed. With compression, and where a source will grow,
chunks hold whole rows and 128 to 256 KiB of them once decoded (a power of two of rows):
enough for a codec, few enough that a window of them mixes well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar

import numpy as np

from labeled._threads import processors
from labeled._validation import integer, memory_of
from labeled.errors import ArrayError, LoaderError, check_known
from labeled.formats.hdf5.filters import CODECS, NAMES, Layout, can_encode, filters_for
from labeled.formats.header import FLETCHER32, SHUFFLE, FilterInfo, SourceHeader

LAYOUTS = ("auto", "contiguous", "chunked")
MAX_CHUNK_BYTES = 256 * 1024
HDF5_CHUNK_BYTES = (1 << 32) - 1
TEXT_BYTES = 64  # what a text takes, roughly: a reference to where it lies, and what lies there
USUAL_BYTES = 128 << 20  # of memory used by default
COUNTED_BYTES = 1 << 20  # needs below this are never refused: Python grows by as much at a time
KEEP = "keep"  # the value of an option that stays as it is in the file

T = TypeVar("T")
PerSource: TypeAlias = T | Mapping[str, T]  # one value for all sources, or one by source or pattern

Chunks: TypeAlias = int | str | Sequence[int] | None
# the first length is None where rows come in batches whose number is not known
Shape = tuple[int | None, ...]
RaggedAs = Literal["flat", "fuel"]


class StorageKeywords(TypedDict, total=False):
    """The fields of :class:`Storage`, as keywords of :func:`labeled.repack`."""

    layout: PerSource[str]
    compression: PerSource[str | None]
    level: PerSource[int | None]
    chunks: PerSource[Chunks]
    overwrite: bool
    progress: bool | None
    memory: float | str | None
    threads: int | None


@dataclass(frozen=True, eq=False)
class Storage:
    """How a file is stored and made; :func:`labeled.write` tells what each option means."""

    layout: PerSource[str] = "auto"
    compression: PerSource[str | None] = None
    level: PerSource[int | None] = None
    chunks: PerSource[Chunks] = None
    overwrite: bool = False
    progress: bool | None = None
    memory: float | str | None = None
    threads: int | None = None

    def effort(self) -> tuple[int, int]:
        """Return the bytes of memory and the number of threads.

        Raises
        ------
        LoaderError
            If either is not a positive number.
        """
        budget = USUAL_BYTES if self.memory is None else memory_of(self.memory)
        return budget, checked_threads(self.threads)


def fits(
    memory: float | str | None, budget: int, needed: int, source: str, what: str, or_else: str = ""
) -> bool:
    """Whether so many bytes are within the budget; refuse a budget that was given as `memory`.

    Raises
    ------
    LoaderError
        Says what is needed, to do `what` with which source.
    """
    if needed > max(budget, COUNTED_BYTES) and memory is not None:
        raise LoaderError(
            f"memory={memory!r} is too small for source {source!r}: to {what} takes {needed:,} "
            f"bytes; give memory='{-(-needed >> 20)} MiB'{or_else}"
        )
    return needed <= max(budget, COUNTED_BYTES)


def checked_threads(threads: int | None) -> int:
    """Return how many blocks are worked on at a time; one a core by default, at most 8."""
    usual = processors(8)
    return usual if threads is None else integer("threads", threads, least=1)


AS_STORED = Storage(KEEP, KEEP, None, KEEP)


class Wish(NamedTuple):
    """What a caller asked for, of one source."""

    layout: str = "auto"
    compression: str | None = None
    level: int | None = None
    chunks: Chunks = None


AS_IT_IS = Wish(KEEP, KEEP, None, KEEP)


def layouts_of(
    datasets: Mapping[str, Any],
    names: Sequence[str],
    storage: Storage,
    stored: Mapping[str, SourceHeader] | None,
) -> dict[str, Layout]:
    """Choose how each dataset is stored.

    Parameters
    ----------
    datasets : mapping
        With `shape`, whose first length is None where it is not known yet, and `dtype`.
    names : sequence of str
        Of the sources: options may be given for all, by source or by pattern.
    stored : mapping, optional
        How datasets of an existing file are stored, whose layout stays where nothing is asked for;
        those that are left out are new.

    Raises
    ------
    ArrayError
        If options do not fit a source.
    UnknownNameError
        If an option names no source.
    """
    usual, asked = Wish() if stored is None else AS_IT_IS, {}
    for option in Wish._fields:
        value = getattr(storage, option)
        by_name = isinstance(value, Mapping)
        asked[option] = expanded(option, value, names) if by_name else dict.fromkeys(names, value)
    out = {}
    for name, one in datasets.items():
        given = {option: by[name] for option, by in asked.items() if name in by}
        wish, old = usual._replace(**given), (stored or {}).get(name)
        now = Layout() if old is None else _as_stored(old, one.shape, one.dtype)
        fixed = now.chunks is None and one.shape[0] is None  # rows must be counted first
        if wish != AS_IT_IS or fixed or not can_encode(now.filters):
            wish = wish if stored is None else _resolved(wish, now)
            now = layout_for(name, one.shape, one.dtype, wish)
        if old is not None and one.dtype.kind not in "OS":  # h5py damages fill values that are text
            now = replace(now, fill=old.fill_value)
        out[name] = now
    return out


def _as_stored(old: SourceHeader, shape: Shape, dtype: np.dtype[Any]) -> Layout:
    """Return the layout of a source for rows of this shape and dtype, in a dataset of their own.

    Chunks may be longer than an axis that could grow. Of a table whole rows were shuffled, of
    arrays as elements whole arrays.
    """
    if old.chunks is None:
        return Layout()
    lengths = (max(n or 0, 1) for n in shape[1:])
    filters = old.filters
    if dtype.kind != "O":
        item = (dtype.itemsize,)
        filters = tuple(replace(f, options=item) if f.id == SHUFFLE else f for f in filters)
    return Layout((old.chunks[0], *map(min, old.chunks[1:], lengths)), filters)


def layout_for(name: str, shape: Shape, dtype: np.dtype[Any], wish: Wish) -> Layout:
    """Choose how a source is stored.

    Parameters
    ----------
    shape : Shape

    Raises
    ------
    ArrayError
        If an option is none of those there are, chunks do not fit the shape, or a contiguous source
        has no known number of rows.

    Examples
    --------
    >>> layout_for("x", (50000, 3, 32, 32), np.dtype("u1"), Wish(compression="gzip")).chunks
    (64, 3, 32, 32)
    >>> layout_for("x", (50000, 3, 32, 32), np.dtype("u1"), Wish())
    Layout(chunks=None, filters=(), fill=0)
    """
    layout, codec, level, asked = wish
    source, growing, text, why = f"source {name!r}", shape[0] is None, dtype.kind == "O", None
    low, high, _ = CODECS[codec].levels if codec in CODECS else (0, 0, 0)
    plain = codec is None and asked is None
    if layout not in LAYOUTS:
        why = f"layout of {source} is {layout!r}; it must be one of {LAYOUTS}"
    elif codec is not None and codec not in CODECS:
        why = f"compression of {source} is {codec!r}; it must be None or one of {tuple(CODECS)}"
    elif level is not None and (codec is None or not low <= level <= high):
        remedy = "give it a compression=, or make level= a mapping of the sources that have one"
        remedy = remedy if codec is None else f"levels are {low} to {high}"
        why = f"level={level!r} does not fit compression={codec!r} of {source}; {remedy}"
    elif layout == "contiguous" and not plain:
        why = f"{source} cannot be contiguous and compressed or chunked; leave layout= out"
    elif layout == "contiguous" and growing:
        why = f"{source} comes in batches of an unknown number of rows, and a contiguous one "
        why += "cannot grow; use layout='chunked', or give arrays"
    if why is not None:
        raise ArrayError(why)
    if plain and not growing and layout != "chunked":
        return Layout()
    itemsize = TEXT_BYTES if text else dtype.itemsize
    chunks = _chunks(name, shape, itemsize, asked)
    codec = None if text else codec  # HDF5 compresses references to texts only
    return Layout(chunks, filters_for(codec, level, itemsize))


def _resolved(wish: Wish, now: Layout) -> Wish:
    """Return what is asked for, with the layout of now in place of "keep"."""
    layout, compression, level, chunks = wish
    if compression == KEEP:
        compression, usual = (None, None) if layout == "contiguous" else codec_of(now.filters)
        level = usual if level is None else level
    if isinstance(chunks, str):
        layout = "chunked" if chunks == "auto" and layout == KEEP else layout
        chunks = now.chunks if chunks == KEEP and layout != "contiguous" else None
    if layout == KEEP:
        layout = "auto" if chunks is None else "chunked"
    return Wish(layout, compression, level, chunks)


def codec_of(filters: tuple[FilterInfo, ...]) -> tuple[str | None, int | None]:
    """Return the codec that stands for a filter pipeline here, and its level.

    Examples
    --------
    >>> codec_of((FilterInfo(2, "shuffle", (4,)), FilterInfo(1, "deflate", (9,))))
    ('gzip', 9)
    >>> codec_of((FilterInfo(32000, "lzf"),)), codec_of(())
    (('gzip', None), (None, None))
    """
    packers = [step for step in filters if step.id not in (SHUFFLE, FLETCHER32)]
    if not packers:
        return None, None
    known = NAMES.get(packers[0].id, "gzip")
    if packers[0].id not in NAMES or CODECS[known].option is not None or not packers[0].options:
        return known, None
    low, high, _ = CODECS[known].levels
    return known, min(max(packers[0].options[0], low), high)


def _chunks(name: str, shape: Shape, itemsize: int, asked: Any) -> tuple[int, ...]:
    n_rows, *rest = shape
    row_shape = tuple(max(int(n or 0), 1) for n in rest)
    row_bytes = max(math.prod(row_shape) * itemsize, 1)
    if asked is None:
        rows = 1 << max((MAX_CHUNK_BYTES // row_bytes).bit_length() - 1, 0)
        asked = rows if not n_rows else min(rows, 1 << max(n_rows - 1, 0).bit_length())
    chunks: tuple[Any, ...] = tuple(asked) if isinstance(asked, Iterable) else (asked, *row_shape)
    limits = zip(chunks, (HDF5_CHUNK_BYTES, *row_shape), strict=False)
    whole_numbers = all(isinstance(c, int | np.integer) for c in chunks)
    fits = whole_numbers and all(1 <= c <= most for c, most in limits)
    if len(chunks) != len(shape) or not fits:
        raise ArrayError(
            f"chunks={asked!r} does not fit source {name!r} of shape {shape}; give a number of "
            f"rows, or one length from 1 to that of the axis for every axis"
        )
    if math.prod(chunks) * itemsize > HDF5_CHUNK_BYTES:
        raise ArrayError(f"a chunk {chunks} of {name!r} exceeds HDF5's 4 GiB; pass smaller chunks=")
    return tuple(int(c) for c in chunks)


# names of many sources at once: "data/demo_*/actions" means those of all demos; "*" stands for any
# text, also across groups, and a source that is really called so is only itself


def matching(pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that a pattern means.

    Examples
    --------
    >>> matching("demo_*/x", ["demo_1/x", "demo_2/x", "demo_2/y"]), matching("x", ["x", "xy"])
    (['demo_1/x', 'demo_2/x'], ['x'])
    """
    if "*" not in pattern or pattern in names:
        return [pattern] if pattern in names else []
    form = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return [name for name in names if form.fullmatch(name)]


def expanded(option: str, values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what is said of sources by patterns, by their names.

    Raises
    ------
    UnknownNameError
        If a name or a pattern means no source.
    """
    out: dict[str, Any] = {}
    for pattern in sorted(values, key=lambda said: said in names):
        found = matching(pattern, names)
        check_known(f"{option}= names", [] if found else [pattern], names, "a source")
        out.update(dict.fromkeys(found, values[pattern]))
    return out


def by_patterns(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the same by patterns, where names that differ by digits alone have the same value.

    `names` are those of all sources: a pattern must mean no others.

    Examples
    --------
    >>> by_patterns({"a1/x": 4, "a2/x": 4, "b1/x": 4}, ["a1/x", "a2/x", "b1/x", "b2/x"])
    {'a*/x': 4, 'b1/x': 4}
    """
    patterns = {name: re.sub("[0-9]+", "*", name) for name in values}
    alike: dict[str, bool] = {}
    for pattern in set(patterns.values()):
        said = [values.get(name, patterns) for name in matching(pattern, names)]
        alike[pattern] = len(said) > 1 and all(one == said[0] for one in said)
    return {p if alike[p] else name: values[name] for name, p in patterns.items()}
