"""What this library adds to a file it writes: statistics, and checksums of the rows.

Both lie in the group ``_labeled`` of the root, which neither readers of the Fuel layout nor
netCDF readers enter, and which is no source here:

- attribute ``statistics``: JSON, ``{source: {"rows": {...}, "splits": {name: {...}}}}``;
- dataset ``checksums/<source>``: uint32 (k,), the CRC-32 of each stretch of ``rows`` rows
  (an attribute) in the byte order of the file, ``n_rows`` (another) in all; a text counts
  as its length in 8 bytes and its UTF-8, a row of variable length as its own and its bytes.
  A source in the flat layout has one of each dataset that it is made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.hdf5.door import opened
from labeled.formats.hdf5.safety import NotThereError, resolve, to_text
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
        group.attrs[STATISTICS] = json.dumps(statistics, sort_keys=True, allow_nan=False)
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
        found = json.loads(text, object_pairs_hook=_by_number)
    except (TypeError, ValueError) as error:
        raise FileFormatError(
            f"the statistics in file {path!r} are not JSON ({error}); write the file again"
        ) from error
    return found if isinstance(found, dict) else {}


def _by_number(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Put classes in the order of their numbers; as keys of JSON, 10 comes before 2."""
    if all(key.removeprefix("-").isdecimal() for key, _ in pairs):
        pairs = sorted(pairs, key=lambda pair: int(pair[0]))
    return dict(pairs)


def read_checksums(path: str) -> dict[str, Checksums]:
    """Return the checksums stored in a file, by source; empty where there are none.

    Raises
    ------
    FileFormatError
        If the file cannot be opened, or they are not what this library writes.
    """
    found: dict[str, Checksums] = {}
    with opened(path) as file:
        try:
            group = resolve(file["/"], f"{OWN}/{CHECKSUMS}").thing
        except NotThereError:
            return found
        pending = [("", group)]
        while pending:
            prefix, group = pending.pop()
            for raw in group.id:
                name = to_text(raw)
                thing = resolve(group, name).thing
                if isinstance(thing, h5py.Group):
                    pending.append((f"{prefix}{name}/", thing))
                elif isinstance(thing, h5py.Dataset):
                    found[prefix + name] = _checked(path, prefix + name, thing)
    return found


def _checked(path: str, name: str, dataset: h5py.Dataset) -> Checksums:
    rows, n_rows = int(dataset.attrs["rows"]), int(dataset.attrs["n_rows"])
    good = rows > 0 and n_rows >= 0 and dataset.dtype == np.dtype("<u4")
    if not good or dataset.shape != (-(-n_rows // rows),):
        raise FileFormatError(
            f"the checksums of source {name!r} in file {path!r} do not fit {n_rows} rows in "
            f"stretches of {rows}; write the file again"
        )
    return Checksums(rows, n_rows, dataset[()])
