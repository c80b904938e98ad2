"""``labeled.doctor``: what reads badly in a file, what it costs here, and what fixes it.

Findings come from :mod:`labeled.writing.doctor`. Of the largest sources that have some, a sample of
rows is written as the printed command would, and read in shuffled batches, turn by turn with the
same rows of the file. So short a measurement is good for factors, not for percents.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from labeled._validation import check_arguments
from labeled.dataset.dataset import Dataset
from labeled.dataset.opening import open_dataset
from labeled.errors import FileFormatError, LoaderError
from labeled.formats.header import SourceHeader
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import parts_of
from labeled.loader.loader import Loader
from labeled.writing.doctor import Diagnosis, Options, examine, merged
from labeled.writing.layouts import codec_of
from labeled.writing.write import write

SAMPLE_BYTES, WINDOW_BYTES = 16 << 20, 8 << 20
BATCH_ROWS, N_TURNS = 256, 3
MAX_MEASURED = 8  # sources that are measured: of more, the largest


@check_arguments(but=("path",))
def doctor(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    seconds: float = 0.3,
    allow_external: bool = False,
) -> Diagnosis:
    """Find what will read badly in a file, measure what it costs, and return what fixes it.

    What writers of the file left behind beside it when they were killed is found as well, and
    removed if they are known to be gone.

    Parameters
    ----------
    path : path
        An HDF5 file.
    target : str, optional
        The file that the command writes; a free name beside the file if not given.
    seconds : float
        How long each measurement takes, at least; 0 measures nothing. Samples of up to 16 MiB
        are written to the folder for temporary files and removed again. Of more than 8 sources
        the largest are measured.
    allow_external : bool
        Follow links and storage out of the file; only for files that you trust.

    Returns
    -------
    Diagnosis

    Raises
    ------
    FileFormatError
        If the file cannot be opened.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> names = {"x": ("batch", "feature")}
    >>> path = labeled.write(path, {"x": np.zeros((5000, 9), "u1")}, dims=names, chunks=1)
    >>> [finding.kind for finding in labeled.doctor(path).findings]
    ['one-row chunks']
    """
    try:
        check_hdf5(path, "the doctor")
    except FileFormatError:  # of a file that is gone, parts may be left
        if not parts_of(os.path.realpath(os.path.expanduser(str(path)))):
            raise
    found = examine(os.path.expanduser(os.fspath(path)), target, allow_external)
    if not seconds or found.command is None or "examples" in found.options:
        return found
    dataset = open_dataset(
        found.path,
        dims=dict(found.options.get("dims", {})) or None,
        decode_cf=False,
        allow_external=allow_external,
    )
    headers = {name: one.headers[0] for name, one in dataset.files.catalog.sources.items()}
    fixes: dict[str, Options] = {}
    for name in headers:
        options = merged([one for one in found.findings if one.source == name])
        if set(options) - {"dims"} and headers[name].n_rows > 1:
            fixes[name] = options
    largest = sorted(fixes, key=lambda name: -headers[name].n_rows * headers[name].row_bytes)
    rates = {}
    with tempfile.TemporaryDirectory(prefix="labeled-doctor-") as folder:
        for name in largest[:MAX_MEASURED]:
            options = _as_fixed(headers[name], fixes[name])
            rates[name] = _rates(dataset.select(name), headers[name], options, folder, seconds)
    findings = []
    for one in found.findings:
        if one.source in rates and set(one.fix) - {"dims"}:
            now, then = rates[one.source]
            one = replace(one, rows_per_s=now, fixed_rows_per_s=then)
        findings.append(one)
    return replace(found, findings=tuple(findings))


def _as_fixed(header: SourceHeader, fix: Mapping[str, Any]) -> Options:
    """Return the options that store a source alone as the command would."""
    if header.ragged is not None:
        return {"ragged": fix["ragged"]}
    if "layout" in fix:
        return {"layout": "contiguous"}
    codec, level = codec_of(header.filters)
    if "compression" in fix:
        codec, level = fix["compression"][header.name], None
    return {"layout": "chunked", "compression": codec, "level": level}


def _rates(
    source: Dataset, header: SourceHeader, options: Options, folder: str, seconds: float
) -> tuple[float, float]:
    """Return rows a second of a source as it is and stored otherwise: the best of some turns.

    Its first rows are read: whole chunks, of about SAMPLE_BYTES.
    """
    row_bytes = max(int(source[source.sources[0]].nbytes) // source.n_rows, 1)
    step = 1 if header.chunks is None else header.chunks[0]
    sample = source.subset(slice(-(-max(SAMPLE_BYTES // row_bytes, 2) // step) * step))
    path = os.path.join(folder, "sample.hdf5")
    write(path, sample, overwrite=True, statistics=False, checksums=False, **options)
    best = [0.0, 0.0]
    for turn in range(N_TURNS):
        for place, rows in enumerate((sample, open_dataset(path, decode_cf=False))):
            n_rows, began = 0, perf_counter()
            while perf_counter() - began < seconds / N_TURNS:
                for batch in _shuffled(rows, turn):
                    n_rows += batch.count
                    if perf_counter() - began >= seconds / N_TURNS:
                        break
            best[place] = max(best[place], n_rows / (perf_counter() - began))
    return best[0], best[1]


def _shuffled(rows: Dataset, seed: int) -> Loader:
    """Return shuffled batches, in windows as small to the sample as usual ones to a file."""
    try:
        return rows.batches(BATCH_ROWS, shuffle=True, seed=seed, ragged="flat", memory=WINDOW_BYTES)
    except LoaderError:  # its chunks are too large for that
        return rows.batches(BATCH_ROWS, shuffle=True, seed=seed, ragged="flat")
