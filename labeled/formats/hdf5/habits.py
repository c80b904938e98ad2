"""What MATLAB, PyTables and AnnData keep for themselves, or otherwise than it looks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import h5py

from labeled.errors import listed
from labeled.formats.hdf5.labels import short_attribute
from labeled.formats.header import SourceHeader

TURNED = (
    "MATLAB stores arrays with their axes in reverse order: what was the last one there is axis 0 "
    "here, and is taken to count examples; where that is wrong, write them again: "
    "labeled.write(NEW, {%s})"
)
MOST_NAMED = 4
"""Arrays that a remedy names."""


def kept_by_others(path: str) -> str | None:
    """Say what another writer keeps for itself; those datasets hold no examples.

    Examples
    --------
    >>> kept_by_others("#refs#/a"), kept_by_others("x")
    ('MATLAB keeps it for cells, structs and objects', None)
    """
    parts = path.split("/")
    if parts[0] in ("#refs#", "#subsystem#"):
        return "MATLAB keeps it for cells, structs and objects"
    if any(part.startswith("_i_") for part in parts[:-1]):
        return "it is part of an index of PyTables"
    return None


def why_no_numbers(dataset: h5py.Dataset) -> str | None:
    """Say what else MATLAB keeps in an array of numbers; None where they are numbers."""
    if h5py.h5a.exists(dataset.id, b"MATLAB_empty"):
        return "it is an empty array of MATLAB, which keeps its size there"
    if short_attribute(dataset, "MATLAB_class") == "char":
        return "it is text of MATLAB, which keeps the numbers of its characters there"
    return None


def told_of_turned(headers: Iterable[SourceHeader]) -> list[str]:
    """Return what to say where MATLAB wrote arrays of several axes."""
    turned = [one for one in headers if len(one.shape) > 1 and "MATLAB_class" in one.attrs]
    first = [f"{one.name!r}: f[{one.name!r}]{_as_in_matlab(one)}" for one in turned[:MOST_NAMED]]
    some = ["..."] if len(turned) > MOST_NAMED else []
    return [TURNED % ", ".join([*first, *some])] if turned else []


def _as_in_matlab(array: SourceHeader) -> str:
    """Return what makes of an array what it was; a column of numbers has one axis."""
    column = len(array.shape) == 2 and array.shape[0] == 1 < array.shape[1]
    return "[0]" if column else "[...].T"


def told_of_missing(base: h5py.Group, names: Collection[str]) -> list[str]:
    """Return what to say where AnnData keeps beside values which of them are missing."""
    masks = [name for name in names if name.endswith("/mask")]
    groups = [name.removesuffix("/mask") for name in masks]
    found = [one for one in groups if f"{one}/values" in names and _is_nullable(base.get(one))]
    if not found:
        return []
    return [
        f"values may be missing in {listed(found, MOST_NAMED)}: {found[0]}/values holds anything "
        f"where {found[0]}/mask is true, so read both"
    ]


def _is_nullable(group: object) -> bool:
    said = short_attribute(group, "encoding-type") if isinstance(group, h5py.Group) else ""
    return said.startswith("nullable-")
