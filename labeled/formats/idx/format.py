"""IDX as one format among others: files that belong together open as one dataset.

Names of files say which source a file holds, and of which split: ``train-images-idx3-ubyte`` and
``t10k-labels.idx1-ubyte.gz`` are how the MNIST files and their relatives are named;
``images-idx3-ubyte`` does without a split. Anything else is one source, "data".
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from labeled.errors import FileFormatError
from labeled.formats.contiguous import ContiguousReader, PackedReader
from labeled.formats.format import Format, Head, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import FileHeader, Filter, Rows, SourceHeader, fingerprint
from labeled.formats.idx.header import IdxHeader, is_idx, read_header
from labeled.formats.reader import Io, Reader
from labeled.formats.region import Region

SPLITS = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "test": "test",
    "t10k": "test",
}
"""Words in names, and the splits they mean."""

ORDER = ("train", "valid", "test")

SOURCES = {
    "images": "images",
    "image": "images",
    "labels": "labels",
    "label": "labels",
    "targets": "targets",
    "features": "features",
}
"""Words in names, and the sources they mean."""

DEFAULT = "data"

_ENDING = re.compile(r"[-._]idx(\d+)?([-._][a-z]+\d*)?(\.gz)?$")


class Named(NamedTuple):
    """What a name says."""

    group: str
    """The same in all files that belong together."""
    split: str | None
    source: str


def is_named_idx(path: str) -> bool:
    """Whether a name is that of an IDX file; a bare ``.idx`` may be an index of something else.

    Examples
    --------
    >>> is_named_idx("t10k-images.idx3-ubyte.gz"), is_named_idx("cifar.idx")
    (True, False)
    """
    found = _ENDING.search(os.path.basename(path).lower())
    return found is not None and found[1] is not None


def what_is_in(path: str) -> Named:
    """Return what the name of a file says.

    Examples
    --------
    >>> what_is_in("/data/emnist-digits-train-images-idx3-ubyte.gz")
    Named(group='emnist-digits', split='train', source='images')
    >>> what_is_in("labels-idx1-ubyte"), what_is_in("faces.idx")
    (Named(group='', split=None, source='labels'), Named(group='', split=None, source='data'))
    """
    stem = _ENDING.sub("", os.path.basename(path).lower())
    words = re.split(r"[-._ ]+", stem.removesuffix(".gz"))
    source = next((SOURCES[word] for word in reversed(words) if word in SOURCES), DEFAULT)
    split = next((SPLITS[word] for word in words if word in SPLITS), None)
    if source == DEFAULT and split is None:
        return Named("", None, DEFAULT)
    group = "-".join(word for word in words if word not in SOURCES and word not in SPLITS)
    return Named(group, split, source)


def in_order(path: str) -> tuple[int, str]:
    """Return what sorts the files of a folder: train before test, then by name."""
    split = what_is_in(path).split
    return (len(ORDER) if split is None else ORDER.index(split), path)


_CHANNELS = (1, 3, 4)


def _recognises(head: Head) -> bool:
    return is_idx(head.data)


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Return one header for each set of files that belong together, in the order of the first."""
    units = _units(paths)
    found = [split for split, _ in units if split is not None]
    return tuple(_unit_header(unit, split, found, options) for split, unit in units)


def _units(paths: Sequence[str]) -> list[tuple[str | None, dict[str, str]]]:
    """Put files that differ only in their source together: (split, source -> path)."""
    groups: dict[tuple[str, str | None], list[dict[str, str]]] = {}
    units: list[tuple[str | None, dict[str, str]]] = []
    for path in paths:
        group, split, source = what_is_in(path)
        there = groups.setdefault((group, split), [])
        unit = next((one for one in there if source not in one), None)
        if unit is None:
            unit = {}
            there.append(unit)
            units.append((split, unit))
        unit[source] = path
    return units


def _unit_header(
    unit: dict[str, str], split: str | None, splits: Sequence[str], options: Options
) -> FileHeader:
    where = next(iter(unit.values()))
    names = chosen_sources(unit, options, repr(where))
    sources = {name: _source(name, read_header(unit[name]), options) for name in names}
    _check_counts(sources)
    rows: dict[str, dict[str, Rows]] = {
        each: {n: range(s.n_rows if each == split else 0) for n, s in sources.items()}
        for each in dict.fromkeys(splits)
    }
    rows = rows or all_rows(sources)
    return FileHeader(
        stamp=next(iter(sources.values())).file,
        fingerprint=fingerprint(sources, rows),
        attrs={},
        sources=sources,
        variables={},
        splits=rows,
        not_opened={},
        kind="idx",
        format="idx",
    )


def _source(name: str, header: IdxHeader, options: Options) -> SourceHeader:
    where, span = repr(header.stamp.path), header.span_rows
    return SourceHeader(
        file=header.stamp,
        name=name,
        key="",
        shape=header.shape,
        dtype=header.dtype,
        dims=dims_of(name, default_dims(header.shape), options, where),
        offset=header.offset,
        chunks=None if span is None else (span, *header.shape[1:]),
        filters=() if span is None else (Filter(1, "gzip"),),
        storage="contiguous" if span is None else "chunked",
        stored_bytes=header.stamp.size,
        format="idx",
    )


def default_dims(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Name axes by their number; of four, a last one as long as colours is the channel.

    Examples
    --------
    >>> default_dims((60000, 28, 28)), default_dims((10, 32, 32, 3))
    (('batch', 'height', 'width'), ('batch', 'height', 'width', 'channel'))
    """
    inner: tuple[str, ...]
    if len(shape) == 4:
        last = shape[3] in _CHANNELS and shape[1] not in _CHANNELS
        inner = ("height", "width", "channel") if last else ("channel", "height", "width")
    else:
        known = {1: (), 2: ("feature",), 3: ("height", "width")}
        inner = known.get(len(shape), tuple(f"axis_{axis}" for axis in range(1, len(shape))))
    return ("batch", *inner)


def _check_counts(sources: dict[str, SourceHeader]) -> None:
    counts = {source.file.path: source.n_rows for source in sources.values()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{n} in {path!r}" for path, n in counts.items())
        raise FileFormatError(
            f"files that belong together hold different numbers of rows: {told}; name those that "
            "fit, or open them apart"
        )


def _open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> Reader:
    packed = source.file.packed is not None and source.chunks is not None
    return (PackedReader if packed else ContiguousReader)(source, region, io)


FORMAT = Format(
    name="idx",
    title="IDX",
    suffixes=("-idx1-ubyte", "-idx3-ubyte", ".idx3-ubyte", "-idx3-ubyte.gz", "..."),
    recognises=_recognises,
    scan=_scan,
    open_reader=_open_reader,
    kinds={"idx": "IDX, one array a file"},
    named=is_named_idx,
    order=in_order,
)
