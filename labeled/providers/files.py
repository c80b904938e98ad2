"""Files as sources, by the name of their format: what file providers are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeled.catalog.files import Files, find_files
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource, Source
from labeled.formats.format import Options
from labeled.formats.registry import format_named, own_options
from labeled.loader.request.arguments import integer
from labeled.providers.served import Serving
from labeled.selection import Selection

SERVING = {
    **{name: name for name in ("shuffle", "seed", "roll_over", "data_padding", "label_padding")},
    **{name: name for name in ("axes", "memory", "device", "errors", "max_lost")},
    "round_batch": "roll_over",
    "prefetch_buffer": "prefetch",
    "preprocess_threads": "threads",
}
"""Parameters of file providers that go to :class:`Serving` as they are, and their names there."""


def open_sources(
    path: Any, format: str, *, sources: Sequence[str] | None = None, **own: Any
) -> dict[str, Source | RaggedSource]:
    """Open files of a format and return their sources; reads headers only.

    Parameters
    ----------
    path : path, list of paths, glob or folder
    format : str
        Name of the format.
    sources : sequence of str, optional
        Which of the sources.
    **own
        Options that the format has.

    Raises
    ------
    FileFormatError
        If a file is missing, damaged, or not of this format.
    """
    chosen = format_named(format)
    paths = find_files(path, format)
    options = Options(
        sources=None if sources is None else tuple(sources),
        format=format,
        own=own_options(chosen, paths[0], own, ()),
    )
    return dict(Files.open(paths, options).catalog.sources)


def serving_of_files(given: Mapping[str, Any], **own: Any) -> Serving:
    """Return what the parameters of a file provider say about serving.

    Parameters
    ----------
    given : mapping
        Parameters by name; those that say nothing about it are left out.
    **own
        What the provider itself decides, by the names of :class:`Serving`.
    """
    said = {there: given[name] for name, there in SERVING.items() if name in given}
    said["batch_size"] = integer("batch_size", given["batch_size"], least=1)
    said["part"] = given["part_index"], given["num_parts"]
    return Serving(**{**said, **own})


def rows_of(sources: Mapping[str, AnySource]) -> dict[str, Selection]:
    """Return all rows of each source."""
    return {name: Selection.all(source.n_rows) for name, source in sources.items()}
