"""What a dataset tells at a glance: sources and splits in words, from headers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dask.utils import format_bytes

from labeled.catalog.files import Catalog
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import Source
from labeled.formats.header import SourceHeader
from labeled.selection import Selection
from labeled.spaces import Space
from labeled.views.summary import SourceLine, SplitLine, Summary, VariableLine, attribute_words


def dataset_summary(
    where: str,
    catalog: Catalog,
    sources: Mapping[str, Source | RaggedSource],
    rows: Mapping[str, Selection],
    spaces: Mapping[str, Space],
    *,
    chosen: Sequence[str],
    in_memory: bool,
) -> Summary:
    """Put a dataset into words: each source with its rows, and the splits it may be cut into.

    Parameters
    ----------
    sources, rows, spaces : mapping by source
        As the dataset holds them.
    chosen : sequence of str
        Names of the splits that it was made of.
    """
    title = _title(catalog, rows, chosen)
    return Summary(
        where=where,
        title=f"{title}, in memory" if in_memory else title,
        lines=tuple(source_line(s, rows[name], spaces.get(name)) for name, s in sources.items()),
        splits=() if chosen else split_lines(catalog),
        variables=variable_lines(catalog),
        not_opened=dict(catalog.not_opened),
        attrs=dict(catalog.attrs),
    )


def _title(catalog: Catalog, rows: Mapping[str, Selection], chosen: Sequence[str]) -> str:
    """Say which rows a dataset holds: splits, all that there are, or how many of these."""
    there = {name: catalog.sources[name].n_rows for name in rows}
    if chosen:
        there = {n: sum(len(catalog.splits[split][n]) for split in chosen) for n in rows}
    whole = " + ".join(chosen) if chosen else "all rows"
    if all(len(held) == there[name] for name, held in rows.items()):
        return whole
    counts = {(len(held), there[name]) for name, held in rows.items()}
    if len(counts) > 1:
        return f"some rows of {whole}" if chosen else "some rows"
    ((n, of),) = counts
    return f"{n:,} of {of:,} rows" + (f" of {whole}" if chosen else "")


def source_line(
    source: Source | RaggedSource, selection: Selection, space: Space | None
) -> SourceLine:
    """Put a source into words.

    Parameters
    ----------
    selection : Selection
        Its rows in the dataset.
    space : Space, optional
        Its own; None where it has none: text, or examples of different shapes.
    """
    text = source.ragged is None and source.dtype.kind == "O"
    no_space = "text" if source.ragged is None else "ragged"
    return SourceLine(
        name=source.name,
        dims=source.dims,
        shape=(len(selection), *source.row_shape),
        dtype="text" if text else str(source.dtype),
        nbytes=_known_bytes(source, len(selection)),
        stored=_stored_words(source),
        rows=selection.describe(),
        space=no_space if space is None else str(space),
        more=_storage_facts(source),
    )


def split_lines(catalog: Catalog) -> tuple[SplitLine, ...]:
    """Put the splits of the files into words, with the places of their rows."""
    n_rows = {name: source.n_rows for name, source in catalog.sources.items()}
    out = []
    for split, by_source in catalog.splits.items():
        counts = {name: len(rows) for name, rows in by_source.items()}
        first = next(iter(by_source), None)
        lies = () if first is None else by_source[first].lies(n_rows[first])
        out.append(SplitLine(split, counts, lies, 0 if first is None else n_rows[first]))
    return tuple(out)


def variable_lines(catalog: Catalog) -> tuple[VariableLine, ...]:
    """Put what comes along with sources into words: coordinates, and what has no example dim."""
    variables = sorted(catalog.variables.items())
    return tuple((name, f"({', '.join(one.dims)})", str(one.dtype)) for name, one in variables)


def _known_bytes(source: Source | RaggedSource, n_rows: int) -> int | None:
    """Bytes of the rows in memory; None where only reading would tell."""
    if isinstance(source, RaggedSource):
        return None if source.loaded is None else source.loaded.nbytes
    if source.dtype.kind == "O":  # text
        return None
    return n_rows * math.prod(source.row_shape) * source.dtype.itemsize


def _stored_words(source: Source | RaggedSource) -> str:
    """Say how a source is stored: chunks and filters."""
    if source.loaded is not None:
        return "memory"
    header = source.headers[0]
    if isinstance(source, RaggedSource) and "values" not in header.parts:
        return "records" if header.storage == "records" else "rows of variable length"
    header = header.parts.get("values", header)
    whole = "column of a table, " if header.is_column else ""
    if header.storage == "sparse":
        whole = "sparse, "
    if header.chunks is None:
        return f"{whole}{header.storage}".removesuffix(", foreign").removeprefix("sparse, ")
    return f"{whole}chunks {header.chunks}, {_codec(header)}"


def _codec(header: SourceHeader) -> str:
    return "+".join(step.words for step in header.filters) or "no filter"


def _storage_facts(source: Source | RaggedSource) -> dict[str, str]:
    """Say how a source lies in its file, from headers alone."""
    out = {} if source.ragged is None else {"ragged": source.ragged}
    if source.loaded is None:
        header = source.headers[0].parts.get("values", source.headers[0])
        out["in the file"] = f"{header.key}: {header.dtype}, {header.storage}"
        if header.chunks is not None:
            each = math.prod(header.chunks) * header.dtype.itemsize
            n_chunks = sum(map(_n_chunks, (h.parts.get("values", h) for h in source.headers)))
            out["chunks"] = (
                f"{n_chunks:,} of {header.chunks} in the file, {format_bytes(each)} each"
            )
            out["codec"] = _codec(header)
        elif header.stored_bytes is not None:
            out["stored"] = format_bytes(sum(_stored_bytes(h) for h in source.headers))
        if len(source.headers) > 1:
            out["files"] = f"{len(source.headers):,}, joined along {source.dims[0]!r}"
    return {**out, **attribute_words(source.attrs)}


def _n_chunks(header: SourceHeader) -> int:
    if header.chunks is None:
        return 0
    return math.prod(-(-n // c) for n, c in zip(header.shape, header.chunks, strict=True))


def _stored_bytes(header: SourceHeader) -> int:
    return sum(h.stored_bytes or 0 for h in (header, *header.parts.values()))
