"""The dataset: sources, splits and rows of one or many files, as one immutable value.

A dataset is a recipe (files, names, selections, parts of axes); nothing is read until
an array is computed or a batch is asked for. Every method returns another dataset or
a lazy array. It pickles as its recipe and opens the files again where it arrives.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.api.labelled import Part, data_array, xarray_dataset
from labeled.catalog.files import Catalog, Files
from labeled.catalog.loading import load_rows
from labeled.catalog.source import Source
from labeled.errors import (
    DimsError,
    LabeledError,
    LoaderError,
    NotYetError,
    SelectionTypeError,
    SplitError,
    UnknownNameError,
    did_you_mean,
)
from labeled.loader.build import make_loader
from labeled.loader.loader import Loader
from labeled.selection import Request, Selection
from labeled.spaces import Space, space_of
from labeled.views.summary import SourceLine, Summary, summary_html, summary_text

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Sources of one or many files, restricted to some rows and parts of axes.

    Made by :func:`labeled.open_dataset`; never changed afterwards.

    Parameters
    ----------
    files : Files
        Paths and options, opened again where the dataset arrives.
    names : tuple of str, optional
        Sources and their order; every source, alphabetically, when None.
    selections : mapping of str to Selection, optional
        Rows of each source; every row when None.
    steps : tuple
        The ``isel`` calls so far.
    loaded : mapping of str to array, optional
        Decoded rows in memory, after :meth:`load`.
    chosen : tuple of str
        Names of the splits that were asked for.
    own_spaces : mapping of str to Space
        Spaces that :meth:`with_spaces` put in place of those found.
    """

    files: Files
    names: tuple[str, ...] | None = None
    selections: Mapping[str, Selection] | None = None
    steps: tuple[tuple[str, Any], ...] = ()
    loaded: Mapping[str, Array] | None = None
    chosen: tuple[str, ...] = ()
    own_spaces: Mapping[str, Space] = field(default_factory=dict)
    chunks: Any = "auto"

    # what is there

    @property
    def _catalog(self) -> Catalog:
        return self.files.catalog

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, in the order in which batches provide them."""
        if self.names is not None:
            return self.names
        given = self.selections if self.selections is not None else self._catalog.sources
        return tuple(sorted(given))

    @property
    def splits(self) -> dict[str, dict[str, int]]:
        """Rows of each source in each split of the files: split -> source -> count."""
        return {
            split: {name: len(rows) for name, rows in by_source.items()}
            for split, by_source in self._catalog.splits.items()
        }

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """Each source with its parts of axes taken, loaded or not."""
        catalog = self._catalog
        out = {}
        for name in self.sources:
            source = catalog.sources[name]
            for dim, request in self.steps:
                source = _narrowed(source, dim, request)
            if self.loaded is not None:
                dims = source.dims
                source = replace(
                    source,
                    loaded=self.loaded[name],
                    file_dims=dims,
                    region=tuple(slice(0, n, 1) for n in self.loaded[name].shape[1:]),
                )
            out[name] = source
        return out

    def selection(self, name: str) -> Selection:
        """Return which rows of a source this dataset holds, in order."""
        self._check_source(name)
        if self.loaded is not None:
            return Selection.all(len(self.loaded[name]))
        return self._file_rows(name)

    def _file_rows(self, name: str) -> Selection:
        """Rows as the files number them, also after :meth:`load`."""
        if self.selections is None:
            return Selection.all(self._catalog.sources[name].n_rows)
        return self.selections[name]

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of each source, the example dim first."""
        return {name: source.dims for name, source in self._sources.items()}

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Dtype of each source's values (after CF decoding)."""
        return {name: source.dtype for name, source in self._sources.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Lengths of each source's dims."""
        return {n: (len(self.selection(n)), *s.row_shape) for n, s in self._sources.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dim name.

        Raises
        ------
        DimsError
            If sources give one name several lengths; see `shapes` for all of them.
        """
        sizes: dict[str, int] = {}
        for name, shape in self.shapes.items():
            for dim, length in zip(self.dims[name], shape, strict=True):
                if sizes.setdefault(dim, length) != length:
                    raise DimsError(
                        f"dim {dim!r} has length {length} in source {name!r} but {sizes[dim]} in "
                        "another; use .shapes, or select() sources that agree"
                    )
        return sizes

    @property
    def spaces(self) -> dict[str, Space]:
        """The space of each source: what its dims and dtype say, or :meth:`with_spaces`."""
        return {
            name: self.own_spaces.get(name)
            or space_of(
                source.dims, (len(self.selection(name)), *source.row_shape), source.dtype, name=name
            )
            for name, source in self._sources.items()
        }

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file (of the first one, where there are several)."""
        return dict(self._catalog.attrs)

    @property
    def n_rows(self) -> int:
        """Number of examples.

        Raises
        ------
        SplitError
            If the sources hold different numbers of rows; the message lists them.
        """
        counts = {name: len(self.selection(name)) for name in self.sources}
        if len(set(counts.values())) > 1:
            raise SplitError(
                f"the sources of {self._where} hold different numbers of rows: {counts}; "
                "split() or select() sources that agree"
            )
        return next(iter(counts.values()), 0)

    def __len__(self) -> int:
        return self.n_rows

    def __bool__(self) -> bool:
        return True  # a dataset without rows is still a dataset

    # which rows, which sources

    def split(self, *names: str) -> Dataset:
        """Take the rows of one or several splits, one after another.

        Parameters
        ----------
        *names : str
            Splits of the file, in the order wanted.

        Returns
        -------
        Dataset
            Provides the sources that all these splits have.

        Raises
        ------
        UnknownNameError
            If the file has no such split.
        SplitError
            If no source is common to the splits, or a selection was already made.
        """
        known = self._catalog.splits
        if not names:
            raise SplitError(f"name a split; {self._where} has {sorted(known)}")
        if self.selections is not None or self.loaded is not None:
            raise SplitError("this dataset already holds chosen rows; split() first, then subset()")
        for name in names:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise UnknownNameError(f"no split {name!r} in {self._where}; {hint}")
        wanted = [s for s in self.sources if all(s in known[name] for name in names)]
        if not wanted:
            provided = {name: sorted(known[name]) for name in names}
            raise SplitError(f"splits {names} of {self._where} share no source: {provided}")
        selections = {s: Selection.concat(known[name][s] for name in names) for s in wanted}
        ordered = tuple(wanted) if self.names is not None else None
        chosen = tuple(map(str, names))
        return replace(self, names=ordered, selections=_shared(selections), chosen=chosen)

    def subset(self, rows: Request) -> Dataset:
        """Take some of the rows, counted from this dataset's first.

        Parameters
        ----------
        rows : slice, integers or boolean mask of full length
            Order and repeats are kept; an empty list takes nothing.

        Raises
        ------
        SelectionError
            If a row is out of range.
        """
        n = self.n_rows
        done: dict[str, Selection] = {}
        for name in self.sources:
            selection = self._file_rows(name)
            if selection.token not in done:
                done[selection.token] = selection[rows]
        chosen = {name: done[self._file_rows(name).token] for name in self.sources}
        loaded = self.loaded
        if loaded is not None:
            positions = Selection.all(n)[rows].rows
            loaded = {name: loaded[name][positions] for name in self.sources}
        return replace(self, selections=chosen, loaded=loaded)

    def isel(self, **axes: Any) -> Dataset:
        """Take part of axes by position; only the bytes needed will be read.

        Parameters
        ----------
        **axes : int, slice, list of int or boolean mask
            By dim name. An integer drops the dim. The example dim takes what
            :meth:`subset` takes.

        Raises
        ------
        UnknownNameError
            If no source has such a dim.
        SelectionError
            If a position is out of range.
        """
        out = self
        for dim, request in axes.items():
            out = out._isel_one(dim, request)
        return out

    def _isel_one(self, dim: str, request: Any) -> Dataset:
        examples = {source.dims[0] for source in self._sources.values()}
        inner = {d for source in self._sources.values() for d in source.dims[1:]}
        if dim in examples and dim not in inner:
            if np.ndim(request) == 0 and not isinstance(request, slice | range):
                raise SelectionTypeError(
                    f"{dim!r} is the example dim and stays: take row {request!r} as [{request!r}]"
                )
            return self.subset(request)
        if dim not in inner:
            raise UnknownNameError(
                f"no source has a dim {dim!r}; {did_you_mean(dim, inner | examples)}"
            )
        if isinstance(request, list | np.ndarray):
            request = tuple(np.asarray(request).tolist())
        for source in self._sources.values():
            _narrowed(source, dim, request)  # complain now, not at the first read
        if self.loaded is None:
            return replace(self, steps=(*self.steps, (dim, request)))
        narrowed = {name: _narrowed(s, dim, request) for name, s in self._sources.items()}
        loaded = {name: s.loaded for name, s in narrowed.items() if s.loaded is not None}
        return replace(self, steps=(*self.steps, (dim, request)), loaded=loaded)

    def select(self, *sources: str) -> Dataset:
        """Keep these sources, in this order."""
        for name in sources:
            self._check_source(name)
        if not sources:
            raise UnknownNameError(f"name a source; there are {list(self.sources)}")
        if len(set(sources)) < len(sources):
            raise UnknownNameError(f"a source is named twice in {sources}")
        return replace(self, names=tuple(sources))

    def with_spaces(self, **spaces: Space) -> Dataset:
        """Say which space a source is in, where dims and dtype do not tell."""
        for name in spaces:
            self._check_source(name)
        return replace(self, own_spaces={**self.own_spaces, **spaces})

    # what is in them

    def __getitem__(self, name: str) -> xr.DataArray:
        """Return a source as a lazy DataArray with its coordinates."""
        self._check_dense(name)
        return data_array(self._part(name))

    def to_xarray(self) -> xr.Dataset:
        """Return all sources, coordinates and carried variables as a lazy xarray.Dataset.

        A dim name that has two lengths becomes ``<source>_<name>``, with a warning.
        """
        for name in self.sources:
            self._check_dense(name)
        parts = {name: self._part(name) for name in self.sources}
        coords = {c for name in self._catalog.sources for c in self._coords_of(name)}
        carried = {n: v for n, v in self._catalog.variables.items() if n not in coords}
        return xarray_dataset(parts, carried, self.steps, self.attrs)

    def _part(self, name: str) -> Part:
        coords = {c: self._catalog.variables[c] for c in self._coords_of(name)}
        return Part(
            self._sources[name],
            self.selection(name),
            self._file_rows(name),
            coords,
            self.steps,
            self.chunks,
        )

    def _coords_of(self, name: str) -> tuple[str, ...]:
        return self._catalog.sources[name].headers[0].coords

    def load(self) -> Dataset:
        """Read the selected rows and parts into memory.

        Returns
        -------
        Dataset
            The same rows, held as NumPy arrays; nothing more is read from the files
            but headers.
        """
        loaded = {}
        for name, source in self._sources.items():
            self._check_dense(name)
            selection = self.selection(name)
            source.check_claim(len(selection))
            loaded[name] = source.decode(load_rows(source, selection, os.cpu_count() or 1))
        selections = {name: self._file_rows(name) for name in self.sources}
        return replace(self, names=self.sources, loaded=loaded, selections=_shared(selections))

    def batches(self, batch_size: int, **options: Any) -> Loader:
        """Iterate in batches; see :func:`labeled.loader.build.make_loader` for every option.

        Returns
        -------
        Loader
            Re-iterable; each iteration is the next epoch.
        """
        for name in self.sources:
            self._check_dense(name)
        try:
            n_rows = self.n_rows
        except SplitError as error:
            raise LoaderError(f"cannot make batches: {error}") from None
        selections = {name: self.selection(name) for name in self.sources}
        return make_loader(self._sources, selections, self.spaces, n_rows, batch_size, **options)

    # looks

    @property
    def _where(self) -> str:
        paths = self.files.paths
        more = f" and {len(paths) - 1} more files" if len(paths) > 1 else ""
        return f"{paths[0]!r}{more}"

    def _check_source(self, name: str) -> None:
        if name in self.sources:
            return
        reason = self._catalog.not_opened.get(name)
        if reason is not None:
            raise UnknownNameError(f"{name!r} in {self._where} is not a source: {reason}")
        if name in self._catalog.sources:
            raise UnknownNameError(
                f"source {name!r} of {self._where} is not in this dataset (not selected, or not "
                f"provided by {self.chosen or 'it'}); {did_you_mean(name, self.sources)}"
            )
        raise UnknownNameError(
            f"no source {name!r} in {self._where}; {did_you_mean(name, self.sources)}"
        )

    def _check_dense(self, name: str) -> None:
        self._check_source(name)
        source = self._sources[name]
        if source.ragged is not None:
            others = [n for n in self.sources if self._sources[n].ragged is None]
            raise NotYetError(
                f"{source.where} holds examples of different shapes ({source.ragged}), which "
                f"cannot be read yet; leave it out with .select({', '.join(map(repr, others))})"
            )

    def _summary(self) -> Summary:
        lines = []
        for name in self.sources:
            source, selection = self._sources[name], self.selection(name)
            lines.append(
                SourceLine(
                    name=name,
                    dims=source.dims,
                    shape=(len(selection), *source.row_shape),
                    dtype=str(source.dtype),
                    nbytes=math.prod((len(selection), *source.row_shape)) * source.dtype.itemsize,
                    stored=_stored_words(source),
                    rows=selection.describe(),
                    space=str(self.spaces[name]) if source.ragged is None else "ragged",
                )
            )
        title = " + ".join(self.chosen) if self.chosen else "all rows"
        return Summary(
            where=self._where,
            title=title if self.loaded is None else f"{title}, in memory",
            lines=tuple(lines),
            splits=self.splits if not self.chosen else {},
            not_opened=dict(self._catalog.not_opened),
            attrs=self.attrs,
        )

    def __repr__(self) -> str:
        try:
            return summary_text(self._summary())
        except LabeledError as error:  # a repr never fails: the file may be gone by now
            return f"<labeled.Dataset of {self._where}: {error}>"

    def _repr_html_(self) -> str:
        try:
            return summary_html(self._summary())
        except LabeledError:
            return f"<pre>{html.escape(repr(self))}</pre>"

    def _ipython_key_completions_(self) -> Sequence[str]:
        return list(self.sources)


def _narrowed(source: Source, dim: str, request: Any) -> Source:
    """Take part of one dim of a source; a source without the dim stays as it is."""
    if dim not in source.dims[1:]:
        return source
    request = list(request) if isinstance(request, tuple) else request
    return source.narrow({source.dims[1:].index(dim): request})


def _shared(selections: dict[str, Selection]) -> dict[str, Selection]:
    """Let sources with equal rows share one selection, so that pickles stay small."""
    seen: dict[str, Selection] = {}
    return {name: seen.setdefault(rows.token, rows) for name, rows in selections.items()}


def _stored_words(source: Source) -> str:
    """Say how a source is stored: chunks and filters."""
    if source.loaded is not None:
        return "memory"
    header = source.headers[0]
    if header.chunks is None:
        return header.storage
    codec = "+".join(step.name for step in header.filters) or "no filter"
    return f"chunks {header.chunks}, {codec}"
