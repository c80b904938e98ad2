"""``labeled.repack``: the same rows in other chunks, another codec, another order.

Values go from file to file as they are stored, with their names, coordinates, attributes,
splits and provenance, and so does whatever else the file holds. What is not asked for stays
as it is. Before the new file takes its
name its rows are read back and compared with those of the original.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from labeled._validation import check_arguments
from labeled.display.progress import progress_bar
from labeled.errors import ArrayError, SplitError, WriteError, warn
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.encoding import Layout, checksum
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.others import Carrier, others_of
from labeled.formats.hdf5.own import datasets_of
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.writing import storable
from labeled.formats.header import FileHeader, SourceHeader
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_target
from labeled.writing.inputs import Inputs
from labeled.writing.layouts import (
    AS_IT_IS,
    AS_STORED,
    RaggedAs,
    StorageKeywords,
    Wish,
    expanded,
    kept_layout,
    wishes,
)
from labeled.writing.packing import Plan, fitting, recipe_for
from labeled.writing.rewriting import ORDERS, StoredSources, moved, order_of
from labeled.writing.splits import Splits
from labeled.writing.verify import reader_of
from labeled.writing.write import Planned, check_ending, checked_effort, tallies_for

PROVENANCE = "labeled_provenance"


@check_arguments(but=("path",), options=AS_STORED)
def repack(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ragged: RaggedAs | None = None,
    order: str = "keep",
    seed: int = 0,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    allow_external: bool = False,
    verify: bool = True,
    **options: Unpack[StorageKeywords],
) -> str:
    """Write a file of examples again, stored differently.

    Parameters
    ----------
    path, target : path
        An HDF5 file, and where the new one goes; the same path replaces the file, with
        `overwrite`.
    layout, compression, level, chunks
        As for :func:`labeled.write`, for all sources or by source, also by patterns such as
        ``data/demo_*/x``. What is not given stays as it is, but for codecs that cannot be
        written here: gzip takes their place.
    ragged : {"flat", "fuel"}, optional
        How examples of different shapes are stored.
    order : {"keep", "splits", "shuffle"}
        "splits" puts the rows of each split together, in its own order, so that lists of rows
        become stretches. "shuffle" also shuffles rows, but only among those that are in the
        same splits. Both need two passes over the rows and, beside the target, disk space
        for the largest source.
    seed : int
        Of a shuffle; the same seed gives the same file.
    dims : mapping of source to names, optional
        Names of all axes, in place of those in the file; also by patterns.
    allow_external : bool
        Read what the file has in other files, and put it into the new one; only for files that
        you trust.
    overwrite : bool
        Replace a file that is at `target`.
    verify : bool
        Read both files once more, and compare them, before the new one takes its name.
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the new file.

    Raises
    ------
    ArrayError, SplitError, UnknownNameError
        If the options do not fit the file; before anything is written.
    WriteError
        If the file cannot be written, or differs from the original; nothing is left behind.
    NotYetError
        If the file holds what cannot be carried over (references, data in other files, sources
        of its split table that cannot be opened); the message names it.

    Warns
    -----
    LabeledWarning
        If rows change places, and datasets that belong to no source are as long, or programs
        that read the old file will not read the new one: those of pandas, PyTables and netCDF.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(6)}, {"a": [5, 0], "b": [1, 2, 3]}, chunks=1)
    >>> path = labeled.repack(path, path, layout="contiguous", order="splits", overwrite=True)
    >>> labeled.open_dataset(path)["x"].values
    array([5, 0, 1, 2, 3, 4])
    """
    if order not in ORDERS:
        raise ArrayError(f"order={order!r} must be one of {ORDERS}")
    check_hdf5(path, "repacking")
    check_ending(target)
    storage = replace(AS_STORED, **options)
    dims = _dims_by_name(path, dims or {}, allow_external)
    header = scan(path, dims=dims, decode_cf=False, allow_external=allow_external)
    budget, threads = checked_effort(storage.memory, storage.threads)
    others = others_of(header)
    table = None if header.kind != "fuel" else header.splits
    moves = order_of(order, table or {}, _n_rows(header, order), seed)
    wished = wishes(list(header.sources), storage, AS_IT_IS)
    found = check_target(target, overwrite=storage.overwrite)
    _warn_of_readers(header, found)
    stored = StoredSources(header, found, budget // 6, moves)
    inputs = stored.inputs(ragged)
    layouts = _layouts(header, inputs, wished)
    splits = None if table is None else moved(table, moves)
    recipes = {n: recipe_for(g, layouts[n], True) for n, g in inputs.sources.items()}
    plan = Plan(recipes, tallies_for(inputs, splits, True), budget, threads)
    plan = fitting(plan, inputs, storage.memory)
    plan = replace(plan, budget=plan.aside + max(plan.budget - plan.aside, 0) // 3)
    n_bytes = (1 + verify) * (1 + (moves is not None)) * (inputs.n_bytes or 0)
    with progress_bar(storage.progress, n_bytes, f"repack {os.path.basename(found)}") as told:
        stored.told = told
        attrs = storable("the file", _attrs(header, order, seed))
        carrier = Carrier(header, others, None if moves is None else moves.old, budget // 4)
        new = Planned(inputs, plan, splits, attrs, header.kind != "plain", carrier=carrier)
        check = partial(_check, stored, ragged, splits, verify)
        new.create(found, told, overwrite=storage.overwrite, check=check)
    return found


def _layouts(header: FileHeader, inputs: Inputs, wished: Mapping[str, Wish]) -> dict[str, Layout]:
    """Return how every dataset will be stored."""
    stored = {
        name: dataset
        for source in header.sources.values()
        if source.ragged is None or "values" in source.parts
        for name, dataset in datasets_of(source).items()
    }
    return {
        name: kept_layout(
            name, given.shape, given.dtype, wished.get(name, AS_IT_IS), stored.get(name)
        )
        for name, given in inputs.sources.items()
    }


def _dims_by_name(
    path: str | os.PathLike[str],
    dims: Mapping[str, Sequence[str | None]],
    allow_external: bool,
) -> dict[str, Sequence[str | None]] | None:
    """Return names of axes by source, where they are given by patterns; None without any."""
    if not any("*" in name for name in dims):
        return dict(dims) or None
    header = scan(path, decode_cf=False, allow_external=allow_external, quiet=True)
    return expanded("dims", dims, header.sources)


def _warn_of_readers(header: FileHeader, target: str) -> None:
    """Tell which programs will not read the new file, though they read the old one."""
    ragged = [name for name, source in header.sources.items() if source.ragged is not None]
    if "PYTABLES_FORMAT_VERSION" in header.attrs:
        warn(
            f"{header.stamp.path!r} is a file of PyTables or pandas, which will not read all of "
            f"{target!r}: columns of tables are datasets of their own there, axes have names; keep "
            f"the original for them"
        )
    elif ragged and header.stamp.path.endswith((".nc", ".nc4")):
        warn(
            f"the netCDF library will not open {target!r}: it does not know how {ragged} with "
            f"examples of different shapes are kept there; h5py and labeled do"
        )


def _n_rows(header: FileHeader, order: str) -> int:
    counts = {name: source.n_rows for name, source in header.sources.items()}
    if order != "keep" and len(set(counts.values())) > 1:
        raise SplitError(
            f"the sources of {header.stamp.path!r} have different numbers of rows: {counts}; "
            f"another order needs them to agree"
        )
    return next(iter(counts.values()), 0)


def _attrs(header: FileHeader, order: str, seed: int) -> dict[str, Any]:
    """Return the attributes of the file; a new order is added to where the data comes from."""
    attrs = dict(header.attrs)
    if order == "keep":
        return attrs
    try:
        told = json.loads(str(attrs.get(PROVENANCE, "{}")))
    except ValueError:
        told = {"before": str(attrs[PROVENANCE])}
    done = {"order": order} | ({"seed": seed} if order == "shuffle" else {})
    told["repacked"] = [*told.get("repacked", []), done]
    return {**attrs, PROVENANCE: json.dumps(told, sort_keys=True)}


# the new file against the old one


def _check(
    stored: StoredSources, ragged: RaggedAs | None, splits: Splits | None, compare: bool, part: str
) -> None:
    """Compare the new file with the original, before it takes its name.

    Raises
    ------
    WriteError
        If they differ; names source and rows.
    FileChangedError
        If somebody changed the original meanwhile.
    """
    old = stored.header
    check_same(old.stamp, "repack it again")
    new = scan(part, decode_cf=False)
    for name, source in old.sources.items():
        there = new.sources.get(name)
        if there is None or _looks(there) != _looks(source):
            raise WriteError(
                f"source {name!r} of {stored.target!r} would be {there and _looks(there)} in place "
                f"of {_looks(source)}; the original is untouched"
            )
        if compare:
            _check_rows(stored, replace(old, sources={name: source}), ragged, datasets_of(there))
    for split, by_source in (splits or {}).items():
        for name, rows in by_source.items():
            found = new.splits.get(split, {}).get(name, range(0))
            if not np.array_equal(np.asarray(found), np.asarray(rows)):
                raise WriteError(
                    f"split {split!r} of source {name!r} did not arrive in {stored.target!r}; the "
                    f"original is untouched"
                )


def _check_rows(
    stored: StoredSources,
    header: FileHeader,
    ragged: RaggedAs | None,
    written: Mapping[str, SourceHeader],
) -> None:
    """Read a source once more, in the new order, and compare it with what was written."""
    for name, given in replace(stored, header=header).inputs(ragged).sources.items():
        read = reader_of(written[name])
        for block in given.blocks(max(stored.block_bytes // max(given.row_bytes, 1), 1)):
            assert block.read is not None
            rows, found = block.read(), read(range(block.start, block.stop))
            if rows.dtype.kind != "O":
                rows = rows.astype(found.dtype, copy=False)
            if checksum(rows) != checksum(found):
                raise WriteError(
                    f"source {name!r} of {stored.target!r} differs from the original within rows "
                    f"{block.start} to {block.stop - 1}; the disk or memory may be damaged, and "
                    f"the original is untouched"
                )
            stored.told(rows.nbytes)


def _looks(source: SourceHeader) -> tuple[Any, ...]:
    dtype = open_ragged(source).dtype if source.ragged is not None else source.dtype
    return source.dims, source.shape, dtype.str
