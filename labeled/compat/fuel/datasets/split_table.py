"""The split table by the old rules: how it was written, and what is read from it.

:func:`create_split_array` counts the width of texts in characters before they become
bytes, as it always did; :func:`labeled.formats.hdf5.fuel.split_array` is the native one,
which never cuts a name. Reading goes through the native reader, which takes every form
that such tables had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from labeled.compat.fuel.datasets.stored import rows_of
from labeled.compat.fuel.exceptions import OldKeyError, OldTypeError, OldValueError
from labeled.compat.fuel.utils.subset import Subset
from labeled.formats.hdf5.fuel import TABLE, Table, read_table

NO_COMMENT = "."


def create_split_array(split_dict: Mapping[str, Mapping[str, Sequence[Any]]]) -> Any:
    """Return the value of the root attribute ``split``.

    Parameters
    ----------
    split_dict : dict of split to dict of source to tuple
        ``(start, stop)``, then perhaps a reference to row numbers (or None), then perhaps
        a comment. What a split does not name is not available in it.

    Returns
    -------
    structured array (splits x sources,)
        Texts are as many *bytes* as the longest has *characters*, so that names beyond
        ASCII are cut.

    Raises
    ------
    OldValueError
        If nothing is named, or a tuple has less than two items.
    OldTypeError
        If a comment is None.
    """
    sources = sorted({source for pairs in split_dict.values() for source in pairs})
    if not sources:
        raise OldValueError("a split table needs a split with a source, found none")
    pairs = [pair for by_source in split_dict.values() for pair in by_source.values()]
    comments = [_comment(pair) for pair in pairs if len(pair) == 4]
    table = np.empty(
        len(split_dict) * len(sources),
        dtype=[
            ("split", f"S{_longest(split_dict)}"),
            ("source", f"S{_longest(sources)}"),
            ("start", np.int64),
            ("stop", np.int64),
            ("indices", h5py.ref_dtype),
            ("available", np.bool_),
            ("comment", f"S{_longest(comments)}"),
        ],
    )
    named = [(split, source) for split in split_dict for source in sources]
    for row, (split, source) in zip(table, named, strict=True):
        row["split"], row["source"] = split.encode(), source.encode()
        pair = split_dict[split].get(source)
        row["available"] = pair is not None
        start, stop, reference, comment = _items(split, source, (0, 0) if pair is None else pair)
        row["start"], row["stop"] = start, stop
        row["indices"] = h5py.Reference() if reference is None else reference
        row["comment"] = comment.encode()
    return table


def _longest(texts: Iterable[str]) -> int:
    return max(1, *map(len, texts), 1)


def _items(split: str, source: str, pair: Sequence[Any]) -> tuple[Any, Any, Any, str]:
    if len(pair) < 2:
        raise OldValueError(
            f"split {split!r} of source {source!r} is {pair!r}; expected (start, stop), then "
            "perhaps a reference and a comment"
        )
    return pair[0], pair[1], pair[2] if len(pair) > 2 else None, _comment(pair)


def _comment(pair: Sequence[Any]) -> str:
    comment = pair[3] if len(pair) > 3 else ""
    if comment is None:
        raise OldTypeError("a comment is None; leave it out, or give a text")
    text: str = comment or NO_COMMENT
    return text


def table_of(file: h5py.File) -> Table:
    """Return the split table of a file.

    Raises
    ------
    OldKeyError
        If it has none.
    """
    table = read_table(file)
    if table is None:
        raise OldKeyError(
            f"{file.filename!r} has no split table: set its root attribute {TABLE!r} to what "
            "H5PYDataset.create_split_array() returns"
        )
    return table


def provided_by(table: Table, split: str) -> tuple[str, ...]:
    """Return the sources that are available in a split, in the order of the table."""
    return tuple(row.source for row in table.rows if row.split == split and row.available)


def provided_by_all(table: Table, splits: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that all splits have, sorted.

    Where nothing is common so far, the next split begins anew: the old rule.
    """
    common: set[str] = set()
    for split in splits:
        here = set(provided_by(table, split))
        common = common & here if common else here
    return tuple(sorted(common))


def subsets_of(
    file: h5py.File, table: Table, splits: Iterable[str], sources: Iterable[str]
) -> list[Subset]:
    """Return the rows of each source in all splits together: sorted, each once.

    Raises
    ------
    OldValueError
        If a split and a source have no row in the table, or rows lie outside the source.
    """
    rows = {(row.split, row.source): row.rows for row in table.rows}
    splits = tuple(splits)
    made: dict[Any, Subset] = {}
    result = []
    for source in sources:
        n = rows_of(file, source)
        subset = Subset.empty_subset(n)
        for split in splits:
            if (split, source) not in rows:
                raise OldValueError(f"the split table has no row for {split!r} and {source!r}")
            subset = subset + _subset(file, rows[split, source], n, made)
        result.append(subset)
    return result


def _subset(
    file: h5py.File, rows: range | h5py.Reference, n: int, made: dict[Any, Subset]
) -> Subset:
    """Return one split's rows of one source; a list that several share is read once."""
    if isinstance(rows, range):
        return Subset(slice(rows.start, rows.stop), n)
    listed = file[rows]
    key = (h5py.h5o.get_info(listed.id).addr, n)
    if key not in made:
        made[key] = Subset(listed[...].tolist(), n)
    return made[key]
