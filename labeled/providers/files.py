"""Files as sources, by the name of their format: what file providers are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeled.catalog.files import Files, find_files
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource, Source
from labeled.errors import LoaderError
from labeled.formats.format import Options
from labeled.formats.registry import format_named, own_options
from labeled.loader.request.arguments import flag, integer, integer_or_none
from labeled.providers.served import Serving
from labeled.selection import Selection

SERVING = {
    **{name: name for name in ("shuffle", "seed", "roll_over", "data_padding", "label_padding")},
    **{name: name for name in ("axes", "memory", "device", "errors", "max_lost")},
    "round_batch": "roll_over",
    "prefetch_buffer": "prefetch",
    "preprocess_threads": "threads",
}
FLAGS = ("flat", "round_batch", "roll_over", "silent", "verbose")
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


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file provider; numbers, flags and parts are checked.

    Raises
    ------
    LoaderError
        If a number or a flag is none, or there is no such part.
    """
    integer("batch_size", given["batch_size"], least=1)
    for name in FLAGS:
        flag(name, given.get(name, False))
    for name in ("prefetch_buffer", "preprocess_threads"):
        integer_or_none(name, given.get(name), least=0)
    count = integer("num_parts", given["num_parts"], least=1)
    if integer("part_index", given["part_index"], least=0) >= count:
        raise LoaderError(f"part_index={given['part_index']} must be below num_parts={count}")
    return dict(given)


def serving_of_files(given: Mapping[str, Any], **own: Any) -> Serving:
    """Return what the parameters of a file provider say about serving.

    Parameters
    ----------
    given : mapping
        Parameters by name, checked; those that say nothing about it are left out.
    **own
        What the provider itself decides, by the names of :class:`Serving`.
    """
    said = {there: given[name] for name, there in SERVING.items() if name in given}
    said["batch_size"] = given["batch_size"]
    said["part"] = given["part_index"], given["num_parts"]
    return Serving(**{**said, **own})


def rows_of(sources: Mapping[str, AnySource]) -> dict[str, Selection]:
    """Return all rows of each source."""
    return {name: Selection.all(source.n_rows) for name, source in sources.items()}
