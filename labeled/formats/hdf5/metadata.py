"""What this library adds to HDF5: the flat layout of ragged examples, statistics and checksums.

A source ``x`` of n examples with k axes each is three datasets side by side:

========================  ==============  =====================================================
dataset                   shape           holds
========================  ==============  =====================================================
``x``                     (n_values,)     the elements of all examples, one example after
                                          another, each in row-major order; any dtype of fixed
                                          size, contiguous or chunked, any filter
``x_offsets``             (n + 1,) int    example i is ``x[x_offsets[i]:x_offsets[i + 1]]``;
                                          ascending, 0 first, at most n_values last
``x_shapes``              (n, k) int      lengths of the axes of each example; their product is
                                          the difference of its offsets. Left out where k is 1
========================  ==============  =====================================================

``x`` has the attributes ``ragged_offsets`` and ``ragged_shapes`` (names of those datasets,
relative to the group of ``x``) and ``ragged_dims`` (k + 1 names: the example dim, then one
an axis). Every axis has a dimension scale without values and the label of the same name
(``x_value``, ``x_offset``, the example dim, ``x_axis``), so that netCDF libraries open the
file too and see the same dims. In a split table only ``x`` is named; its rows are examples.

The trade-off against HDF5's own variable length: an example cannot be replaced by a longer
one in place, but any stretch of examples is one stretch of bytes, and filters compress it.

Statistics and checksums lie in the group ``_labeled`` of the root, which neither readers of the
Fuel layout nor netCDF readers enter, and which is not a source here:

- attribute ``statistics``: JSON, ``{source: {"rows": {...}, "splits": {name: {...}}}}``;
- dataset ``checksums/<source>``: uint32 (k,), the CRC-32 of each stretch of ``rows`` rows
  (an attribute) in the byte order of the file, ``n_rows`` (another) in all; a text counts
  as its length in 8 bytes and its UTF-8, a row of variable length as its own and its bytes.
  A source in the flat layout has one of each dataset that it is made of.
"""

from __future__ import annotations

import json
import posixpath
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import deflate
import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.hdf5.labels import MAX_EXAMPLE_AXES, attribute_texts
from labeled.formats.hdf5.safety import find, opened, to_bytes
from labeled.formats.header import SourceHeader
from labeled.formats.region import Array

OWN = "_labeled"
STATISTICS, CHECKSUMS = "statistics", "checksums"

Statistics = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Checksums:
    """CRC-32 of every stretch of `rows` rows of a source; the last may be shorter."""

    rows: int
    n_rows: int
    values: Array


def write_own(
    file: h5py.File, statistics: Statistics | None, checksums: Mapping[str, Checksums]
) -> None:
    """Write what is known of the sources, in place of what was there; nothing if it is empty."""
    if OWN in file:
        del file[OWN]
    if not statistics and not checksums:
        return
    group = file.create_group(OWN)
    if statistics:
        group.attrs[STATISTICS] = json.dumps(statistics, allow_nan=False)
    for name, each in sorted(checksums.items()):
        dataset = group.create_dataset(f"{CHECKSUMS}/{name}", data=each.values, dtype="<u4")
        dataset.attrs["rows"], dataset.attrs["n_rows"] = each.rows, each.n_rows


def read_statistics(path: str) -> Statistics:
    """Return the statistics stored in a file; empty where there are none.

    Raises
    ------
    FileFormatError
        If the file cannot be opened, or they are not what this library writes.
    """
    with opened(path) as file:
        if OWN not in file or STATISTICS not in file[OWN].attrs:
            return {}
        text = file[OWN].attrs[STATISTICS]
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise FileFormatError(
            f"the statistics in file {path!r} are not JSON ({error}); write the file again"
        ) from error
    return found if isinstance(found, dict) else {}


def read_checksums(path: str) -> dict[str, Checksums]:
    """Return the checksums stored in a file, by source; empty where there are none.

    Raises
    ------
    FileFormatError
        If the file cannot be opened, or they are not what this library writes.
    """
    found: dict[str, Checksums] = {}
    there: dict[str, Any] = {}
    with opened(path) as file:
        group = find(file["/"], f"{OWN}/{CHECKSUMS}").thing
        if isinstance(group, h5py.Group):
            group.visititems(there.__setitem__)
        for name, dataset in there.items():
            if isinstance(dataset, h5py.Group):
                continue
            rows, n_rows = int(dataset.attrs["rows"]), int(dataset.attrs["n_rows"])
            good = rows > 0 and n_rows >= 0 and dataset.dtype == np.dtype("<u4")
            if not good or dataset.shape != (-(-n_rows // rows),):
                raise FileFormatError(
                    f"the checksums of source {name!r} in file {path!r} do not fit {n_rows} rows "
                    f"in stretches of {rows}; write the file again"
                )
            found[name] = Checksums(rows, n_rows, dataset[()])
    return found


def checksum(rows: Array) -> int:
    """Return the CRC-32 of rows as they are in memory; texts count with their lengths.

    So do rows of variable length.

    Examples
    --------
    >>> hex(checksum(np.frombuffer(b"123456789", np.uint8)))
    '0xcbf43926'
    """
    if rows.dtype.kind == "O":
        texts = [to_bytes(v) if isinstance(v, str) else bytes(v) for v in rows.reshape(-1).tolist()]
        raw: Any = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    else:
        raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    return int(deflate.crc32(raw))


OFFSETS, SHAPES, DIMS = "ragged_offsets", "ragged_shapes", "ragged_dims"
ATTRIBUTES = (OFFSETS, SHAPES, DIMS)


def is_flat(dataset: h5py.Dataset) -> bool:
    """Whether a dataset holds the values of a source in the flat layout."""
    return bool(h5py.h5a.exists(dataset.id, OFFSETS.encode()))


def part_paths(dataset: h5py.Dataset, name: str) -> dict[str, str]:
    """Return where offsets and shapes are, by role; paths relative to where `name` is."""
    out = {}
    for role, key in (("offsets", OFFSETS), ("shapes", SHAPES)):
        for found in attribute_texts(dataset, key)[:1]:
            out[role] = posixpath.join(posixpath.dirname(name), found)
    return out


def example_dims(dataset: h5py.Dataset, n_axes: int) -> tuple[str, ...]:
    """Return the dims that a source in the flat layout names; ``""`` where it does not."""
    names = attribute_texts(dataset, DIMS)
    return names if len(names) == n_axes + 1 else ("",) * (n_axes + 1)


def check_parts(name: str, parts: Mapping[str, Any]) -> int:
    """Check what the datasets of a source are, not yet what they hold; return n_axes.

    Raises
    ------
    FileFormatError
        If one of them has the wrong number of axes, rows or kind of number.
    """
    shapes: dict[str, tuple[int, ...]] = {role: each.shape or () for role, each in parts.items()}
    offsets, table = shapes["offsets"], shapes.get("shapes")
    good = len(shapes["values"]) == len(offsets) == 1 and offsets[0] > 0
    good &= all(each.dtype.kind in "iu" for role, each in parts.items() if role != "values")
    if good and table is not None:
        good = len(table) == 2 and table[0] == offsets[0] - 1 and table[1] <= MAX_EXAMPLE_AXES
    if not good:
        found = {role: (shapes[role], str(each.dtype)) for role, each in parts.items()}
        raise FileFormatError(
            f"ragged source {name!r} is made of {found}; values must have one axis, offsets be "
            "integers, one more than examples, and shapes integers, a row for each example, in at "
            f"most {MAX_EXAMPLE_AXES} columns"
        )
    return 1 if table is None else table[1]


# writing


def member_names(name: str, n_axes: int) -> tuple[str, ...]:
    """Return the datasets that stand beside the values: offsets and, for several axes, shapes.

    Examples
    --------
    >>> member_names("x", 1), member_names("x", 3)
    (('x_offsets',), ('x_offsets', 'x_shapes'))
    """
    return (f"{name}_offsets", f"{name}_shapes")[: 1 if n_axes == 1 else 2]


def datasets_of(source: SourceHeader) -> dict[str, SourceHeader]:
    """Return the datasets that a source is stored as, by name: one, but for the flat layout."""
    if "values" not in source.parts:
        return {source.name: source}
    members = member_names(source.name, len(source.dims) - 1)
    parts = dict(zip(members, ("offsets", "shapes"), strict=False))
    return {source.name: source.parts["values"]} | {
        member: replace(source.parts[role], name=member) for member, role in parts.items()
    }


def ragged_attrs(name: str, dims: Sequence[str]) -> dict[str, Any]:
    """Return the attributes that make the dataset `name` the values of a ragged source.

    Parameters
    ----------
    dims : sequence of str
        The example dim, then one name an axis of examples.
    """
    last = name.rpartition("/")[2]
    members = dict(zip((OFFSETS, SHAPES), member_names(last, len(dims) - 1), strict=False))
    return {**members, DIMS: np.array([to_bytes(dim) for dim in dims], h5py.string_dtype())}
