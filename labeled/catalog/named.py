"""Files that hold one source each, put side by side under names given to them.

What a file calls its source, if anything, gives way to the name; then the files of all
names, taken in the order in which they were listed, make one dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from labeled.errors import FileFormatError, SplitError
from labeled.formats.format import Options
from labeled.formats.header import FileHeader, SourceHeader, fingerprint
from labeled.formats.naming import chosen_sources, dims_of

Scan = Callable[[tuple[str, ...], Options], tuple[FileHeader, ...]]


def scan_named(
    scan: Scan, paths: Sequence[str], names: Sequence[str], options: Options
) -> tuple[FileHeader, ...]:
    """Scan files by name; return one header for each set of files that stand side by side.

    Raises
    ------
    FileFormatError
        If a file holds several sources, or names have different numbers of files or rows.
    SplitError
        If files that stand side by side do not agree in their splits.
    """
    asked = replace(options, sources=None, dims=())
    by_name = {
        name: scan(tuple(p for p, n in zip(paths, names, strict=True) if n == name), asked)
        for name in dict.fromkeys(names)
    }
    counts = {name: len(headers) for name, headers in by_name.items()}
    if len(set(counts.values())) > 1:
        raise FileFormatError(f"each source needs as many files as the others, found {counts}")
    chosen = chosen_sources(by_name, options, repr(paths[0]))
    return tuple(
        _beside({name: by_name[name][number] for name in chosen}, options)
        for number in range(counts[chosen[0]])
    )


def _beside(headers: dict[str, FileHeader], options: Options) -> FileHeader:
    """Make one header of several files with one source each."""
    sources = {name: _renamed(name, header, options) for name, header in headers.items()}
    rows = {source.file.path: source.n_rows for source in sources.values()}
    if len(set(rows.values())) > 1:
        raise FileFormatError(f"files side by side hold different numbers of rows: {rows}")
    first = next(iter(headers.values()))
    for header in headers.values():
        if set(header.splits) != set(first.splits):
            raise SplitError(
                f"{header.stamp.path!r} has the splits {sorted(header.splits)}, but "
                f"{first.stamp.path!r}, which stands beside it, has {sorted(first.splits)}"
            )
    splits = {
        split: {name: next(iter(header.splits[split].values())) for name, header in headers.items()}
        for split in first.splits
    }
    return replace(
        first,
        sources=sources,
        splits=splits,
        variables={},
        fingerprint=fingerprint(sources, splits),
    )


def _renamed(name: str, header: FileHeader, options: Options) -> SourceHeader:
    if len(header.sources) != 1:
        raise FileFormatError(
            f"{header.stamp.path!r} was given as source {name!r}, but holds the sources "
            f"{sorted(header.sources)}; name files with one source each, or open it by itself"
        )
    (source,) = header.sources.values()
    dims = dims_of(name, source.dims, replace(options, example_dim=None), repr(source.file.path))
    return replace(source, name=name, dims=dims, coords=())
