"""RecordIO as one format among others, and what opening record files tells.

The records of every file are gone through once, by their heads; pictures are looked at until
two of them differ in shape, which is soon. Files that are joined are judged together: their
pictures are ragged, or their labels several, where those of any one are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labeled.errors import (
    DimsError,
    LoaderError,
    SplitError,
    UnknownNameError,
    did_you_mean,
)
from labeled.formats.bytesource import stamp_of
from labeled.formats.format import Format, Head, Options
from labeled.formats.header import (
    ALL,
    FileHeader,
    FileStamp,
    Filter,
    Rows,
    SourceHeader,
    fingerprint,
)
from labeled.formats.picture_heads import kind_of
from labeled.formats.recordio.framing import LABEL, MAGIC_BYTES, HeaderError, body_of
from labeled.formats.recordio.lists import SHOWN, list_of, listed_labels
from labeled.formats.recordio.options import Detail, RecordOptions
from labeled.formats.recordio.readers import open_ragged, open_reader
from labeled.formats.recordio.records import (
    READ_BYTES,
    SUFFIX,
    RecordFile,
    idx_stamp,
    sizes_by_blocks,
    table_of,
)

EXAMPLE = "batch"

DIMS = {
    "images": (EXAMPLE, "height", "width", "channel"),
    "labels": (EXAMPLE, "label"),
    "ids": (EXAMPLE,),
    "encoded": (EXAMPLE, "byte"),
    "records": (EXAMPLE, "byte"),
}
ON_REQUEST = {"encoded": "the bytes of payloads, undecoded; ask for it by name with sources="}
NAMES = {
    "images": ("ids", "images", "labels"),
    "labelled": ("encoded", "ids", "labels"),
    "raw": ("records",),
}

ENCODED = Filter(0, "decoded")
"""Pictures are expensive to read: they have to be decoded."""

PEEKED_ROWS = 8
"""Records of a file that are looked at for pictures."""

DECODED_TIMES = 24
"""How many times larger than its bytes a picture is taken to be while it is decoded."""


def scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Return what each file holds.

    Raises
    ------
    FileFormatError
        If a file is not a RecordIO file, is cut short, or does not fit its index or list.
    UnknownNameError
        If a source does not exist, or a record is not in the list.
    """
    own: RecordOptions = options.own
    files = tuple(map(RecordFile, map(stamp_of, paths), _indexes(paths, own.index)))
    content = _content(files) if own.content == "auto" else own.content
    _check_lists(content, files, own)
    names = _names(content, options.sources, paths[0])
    shared = {name: _row_shape(name, files, own) for name in names}
    dims = {name: tuple(given) for name, given in options.dims}
    headers = tuple(_header(file, content, names, shared, dims, own) for file in files)
    _check_splits(files, own)
    return headers


def _indexes(paths: tuple[str, ...], index: Any) -> Iterator[FileStamp | None]:
    if index is False:
        return iter([None] * len(paths))
    if index != "auto":
        if len(index) != len(paths):
            raise LoaderError(f"index= names {len(index)} files for {len(paths)} record files")
        return iter(index)
    beside = (str(Path(path).with_suffix(SUFFIX)) for path in paths)
    return (idx_stamp(one) if os.path.exists(one) else None for one in beside)


def _content(files: tuple[RecordFile, ...]) -> str:
    """Tell by the first records whether there are pictures; one of them may be damaged."""
    for file in files:
        for _, payload in file.payloads(range(min(PEEKED_ROWS, file.n_rows))):
            with contextlib.suppress(HeaderError):
                if kind_of(body_of(payload)) is not None:
                    return "images"
    return "raw"


def _names(content: str, asked: tuple[str, ...] | None, path: str) -> tuple[str, ...]:
    known = (*NAMES[content], *(ON_REQUEST if content == "images" else ()))
    for name in asked or ():
        if name not in known:
            raise UnknownNameError(f"no source {name!r} in {path!r}; {did_you_mean(name, known)}")
    return NAMES[content] if asked is None else asked


def _row_shape(
    name: str, files: tuple[RecordFile, ...], own: RecordOptions
) -> tuple[int, ...] | None:
    """Return the row shape of a source in all files; None where examples differ."""
    if name == "ids":
        return ()
    if name == "labels":
        return _label_shape(files, own)
    if name == "images":
        return own.decoding.row_shape or _common_shape(files, own)
    return None


def _label_shape(files: tuple[RecordFile, ...], own: RecordOptions) -> tuple[int, ...] | None:
    if own.label_list is not None:
        widths: set[int | None] = {list_of(own.label_list, own.label_width).labels.shape[1]}
    else:
        widths = {table_of(file).label_width for file in files if file.n_rows} or {1}
    width = widths.pop() if len(widths) == 1 else None
    if width is None:
        return None
    return () if width == 1 else (width,)


def _common_shape(files: tuple[RecordFile, ...], own: RecordOptions) -> tuple[int, ...] | None:
    """Return the shape that all decodable pictures have; stops at the first that differs."""
    found: tuple[int, ...] | None = None
    for file in files:
        for _, sizes in sizes_by_blocks(file):
            shapes = own.decoding.shapes(sizes)
            shapes = np.unique(shapes[shapes.any(axis=1)], axis=0)
            for shape in map(tuple, shapes.tolist()):
                if found is not None and shape != found:
                    return None
                found = shape
    return found


def _header(
    file: RecordFile,
    content: str,
    names: tuple[str, ...],
    shapes: dict[str, tuple[int, ...] | None],
    dims: dict[str, tuple[str, ...]],
    own: RecordOptions,
) -> FileHeader:
    listed = None if own.label_list is None else own.label_width
    detail = Detail(file, own.decoding, own.label_list, listed, raw=content == "raw")
    sources = {name: _source(name, detail, shapes[name], dims.get(name), own) for name in names}
    splits = _splits(file, sources, own)
    missing = {} if content != "images" else {n: w for n, w in ON_REQUEST.items() if n not in names}
    return FileHeader(
        stamp=file.stamp,
        fingerprint=fingerprint(sources, splits),
        attrs={},
        sources=sources,
        variables={},
        splits=splits,
        not_opened=missing,
        example_dim=EXAMPLE,
        kind=content,
        format="recordio",
    )


RAGGED = {
    "images": "every picture has its own shape",
    "labels": "records have different numbers of labels",
    "encoded": "every payload has its own length",
    "records": "every payload has its own length",
}


def _source(
    name: str,
    detail: Detail,
    row_shape: tuple[int, ...] | None,
    dims: tuple[str, ...] | None,
    own: RecordOptions,
) -> SourceHeader:
    file = detail.records
    dtype = {"ids": np.dtype(np.uint64), "labels": own.label_dtype}.get(name, np.dtype(np.uint8))
    known = DIMS[name] if row_shape is None else DIMS[name][: 1 + len(row_shape)]
    if dims is not None and len(dims) != len(known):
        raise DimsError(
            f"dims={{{name!r}: {dims}}}: source {name!r} in {file.stamp.path!r} has {len(known)} "
            f"axes, {known}; give one name for each"
        )
    decoded = DECODED_TIMES * file.largest if name == "images" and own.decoding.resizes else 0
    return SourceHeader(
        file=file.stamp,
        name=name,
        key=name,
        shape=(file.n_rows, *(row_shape or ())),
        dtype=dtype,
        dims=dims or known,
        storage="records",
        filters=(ENCODED,) if name == "images" else (),
        stored_bytes=_stored_bytes(name, file),
        ragged=RAGGED[name] if row_shape is None else None,
        format="recordio",
        detail=detail,
        scratch_bytes=READ_BYTES + file.largest + decoded,
    )


def _stored_bytes(name: str, file: RecordFile) -> int:
    """Return the bytes of a file that a source takes: of ids and labels those in the headers."""
    if name == "ids":
        return 8 * file.n_rows
    if name == "labels":
        return LABEL.itemsize * int(table_of(file).widths.sum())
    return file.stamp.size


def _splits(
    file: RecordFile, sources: dict[str, SourceHeader], own: RecordOptions
) -> dict[str, dict[str, Rows]]:
    """Return the rows of each split: those whose ids its list names, in file order."""
    if not own.splits:
        return {ALL: {name: range(one.n_rows) for name, one in sources.items()}}
    ids = table_of(file).ids
    out: dict[str, dict[str, Rows]] = {}
    for split, stamp in own.splits:
        rows = np.flatnonzero(list_of(stamp).lines_of(ids) >= 0)
        out[split] = dict.fromkeys(sources, rows)
    return out


def _check_splits(files: tuple[RecordFile, ...], own: RecordOptions) -> None:
    """Refuse lists that name what no record is: rows of a split are never lost in silence."""
    known = [table_of(file).ids for file in files] if own.splits else []
    for split, stamp in own.splits:
        listed = list_of(stamp).ids
        lacking = listed[~np.isin(listed, np.concatenate(known))]
        if not len(lacking):
            continue
        if len(lacking) == len(listed):
            raise SplitError(
                f"split {split!r}: none of the {len(listed):,} ids in {stamp.path!r} is "
                f"that of a record of {_named(files)}; name the list of these records"
            )
        some = ", ".join(map(str, lacking[:SHOWN].tolist()))
        raise SplitError(
            f"split {split!r}: {len(lacking):,} of {len(listed):,} ids in {stamp.path!r} are those "
            f"of no record of {_named(files)}: {some}{', ...' if len(lacking) > SHOWN else ''}; "
            "open all files that the list is of, or take these lines out"
        )


def _named(files: tuple[RecordFile, ...]) -> str:
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{files[0].stamp.path!r}{more}"


def _check_lists(content: str, files: tuple[RecordFile, ...], own: RecordOptions) -> None:
    """Refuse lists where records have no ids, and records that a list lacks."""
    if content == "raw" and (own.splits or own.label_list is not None):
        raise LoaderError(
            f"{files[0].stamp.path!r} holds records without ids, so that no list of labels or of "
            "splits applies; if they have headers, open with content='labelled'"
        )
    if own.label_list is not None:
        for file in files:
            listed_labels(file, own.label_list, own.label_width)


def _recognises(head: Head) -> bool:
    return head.data.startswith(MAGIC_BYTES) and not head.packed


FORMAT = Format(
    name="recordio",
    title="RecordIO",
    suffixes=(".rec", ".recordio"),
    recognises=_recognises,
    scan=scan,
    open_reader=open_reader,
    kinds={
        "images": "pictures with labels and ids",
        "labelled": "bytes with labels and ids",
        "raw": "records of any bytes",
    },
    options=RecordOptions,
    open_ragged=open_ragged,
)
