"""The dataset: sources, splits and rows of one or many files, as one immutable value.

A dataset is a recipe (files, names, selections, parts of axes); nothing is read until
an array is computed or a batch is asked for. Every method returns another dataset or
a lazy array. It pickles as its recipe and opens the files again where it arrives.

What a method does that is long stands in the module of its name, which is imported when it is
called: `selecting` (splits, `sel`, `train_test_split`), `to_xarray`, `statistics`, `plots`, and
`summary` for the repr.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array, check_arguments
from labeled.dataset.files import Files
from labeled.device import Device, Library
from labeled.errors import (
    DimsError,
    LoaderError,
    NoLengthError,
    SelectionError,
    SelectionTypeError,
    SpaceTypeError,
    SplitError,
    UnknownNameError,
)
from labeled.formats.bytesource import close_files
from labeled.formats.format import check_once
from labeled.guesses import unknown_attribute
from labeled.loader.loader import Loader
from labeled.loader.options import Axes, BatchOptions, RaggedLayout, Shard, Shuffle
from labeled.loader.plan import plan_batches
from labeled.ragged import Ragged
from labeled.samplers.listed import Sampler
from labeled.samplers.plan import Last
from labeled.selection import Request, Selection
from labeled.sources.loading import enough_memory, load_rows
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource, Source
from labeled.spaces import SourceInfo, Space, row_space, space_of
from labeled.transforms.sample import Sample

if TYPE_CHECKING:  # imported by the methods that need them
    from labeled.dataset.plots import DatasetPlots
    from labeled.display.summary import Summary
    from labeled.providers.provider import LoaderProvider, Names

Array = npt.NDArray[Any]
Held = Source | RaggedSource
Rows = Array | Ragged
"""Rows in memory, decoded."""

TEXT_KINDS = "OSU"
"""Kinds of dtypes that no space holds."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Sources of one or many files, restricted to some rows and parts of axes.

    Made by :func:`labeled.open_dataset`; never changed afterwards. ``len(ds)`` is the number of
    rows, ``list(ds)`` the names of sources; :meth:`batches` iterates over rows.

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
    loaded : mapping of str to array or Ragged, optional
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
    loaded: Mapping[str, Rows] | None = None
    chosen: tuple[str, ...] = ()
    own_spaces: Mapping[str, Space] = field(default_factory=dict)
    chunks: Any = "auto"

    # what is there

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, in the order in which batches provide them."""
        if self.names is not None:
            return self.names
        given = self.selections if self.selections is not None else self.files.known.sources
        return tuple(sorted(given))

    @property
    def splits(self) -> dict[str, dict[str, int]]:
        """Rows of each source in each split of the files: split -> source -> count."""
        return {
            split: {name: len(rows) for name, rows in by_source.items()}
            for split, by_source in self.files.catalog.splits.items()
        }

    @cached_property
    def _sources(self) -> dict[str, Held]:
        """Each source with its parts of axes taken, loaded or not."""
        out: dict[str, Held] = {}
        there = self.files.catalog.sources
        for name in self.sources:
            source = there[name]
            for dim, request in self.steps:
                source = narrowed(source, dim, request)
            out[name] = source if self.loaded is None else source.in_memory(self.loaded[name])
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Travel without headers; see :class:`Files`."""
        return {name: value for name, value in self.__dict__.items() if name != "_sources"}

    def selection(self, name: str) -> Selection:
        """Return which rows of a source this dataset holds, in order."""
        self._check_source(name)
        if self.loaded is not None:
            return Selection.all(len(self.loaded[name]))
        return self._file_rows(name)

    @property
    def _rows(self) -> dict[str, Selection]:
        """Which rows of every source this dataset holds; all at once, for there may be many."""
        rows = {}
        for name in self.sources:
            loaded = None if self.loaded is None else self.loaded[name]
            rows[name] = self._file_rows(name) if loaded is None else Selection.all(len(loaded))
        return rows

    def _file_rows(self, name: str) -> Selection:
        """Rows as the files number them, also after :meth:`load`."""
        if self.selections is None:
            return Selection.all(self.files.known.sources[name].n_rows)
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
        """Lengths of each source's dims; of the example dim alone where examples differ."""
        rows = self._rows
        return {n: (len(rows[n]), *s.row_shape) for n, s in self._sources.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dim name.

        Raises
        ------
        DimsError
            If sources give one name several lengths; see `shapes` for all of them.
        """
        sizes: dict[str, int] = {}
        dims = self.dims
        for name, shape in self.shapes.items():
            for dim, length in zip(dims[name], shape, strict=False):
                if sizes.setdefault(dim, length) != length:
                    raise DimsError(
                        f"dim {dim!r} has length {length} in source {name!r} but {sizes[dim]} in "
                        "another; use ds.shapes, or select sources of equal lengths"
                    )
        return sizes

    @property
    def spaces(self) -> dict[str, Space]:
        """The space of each dense numeric source: what dims and dtype say, or `with_spaces`."""
        return spaces_of(self._sources, self._rows, self.own_spaces)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file (of the first one, where there are several)."""
        return dict(self.files.catalog.attrs)

    @property
    def n_rows(self) -> int:
        """Number of examples.

        Raises
        ------
        NoLengthError
            If the sources hold different numbers of rows; the message lists them.
        """
        lengths = set(map(len, self._rows.values()))
        if len(lengths) > 1:
            from labeled.dataset.selecting import lengths_differ

            raise NoLengthError(lengths_differ(self))
        return lengths.pop() if lengths else 0

    def __len__(self) -> int:
        return self.n_rows

    def __bool__(self) -> bool:
        return True  # a dataset without rows is still a dataset

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the sources; see `batches` for rows."""
        return iter(self.sources)

    def __contains__(self, name: object) -> bool:
        return name in self.sources

    def keys(self) -> tuple[str, ...]:
        """Return the names of the sources, so that ``dict(ds)`` holds its lazy arrays."""
        return self.sources

    # which rows, which sources

    @check_arguments()
    def split(self, *names: str | Sequence[str]) -> Dataset:
        """Take the rows of one or several splits, one after another.

        Parameters
        ----------
        *names : str
            Splits of the file, in the order wanted; one list of them does as well.

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
        from labeled.dataset.selecting import rows_of_splits

        rows = rows_of_splits(self, _names_of(names))
        ordered = tuple(rows) if self.names is not None else None
        chosen = tuple(map(str, _names_of(names)))
        return replace(self, names=ordered, selections=_shared(rows), chosen=chosen)

    @check_arguments()
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
        n_rows, chosen, loaded = self.n_rows, {}, self.loaded
        done: dict[str, Selection] = {}  # sources with equal rows share what comes out
        try:
            if loaded is not None or not self.sources:
                kept = Selection.all(n_rows)[rows].rows
            for name in self.sources:
                mine = self._file_rows(name)
                if mine.token not in done:
                    done[mine.token] = mine[rows]
                chosen[name] = done[mine.token]
        except (SelectionError, SelectionTypeError) as error:
            raise type(error)(f"{error} (selecting from {self.where})") from None
        if loaded is not None:
            loaded = {name: _taken(loaded[name], kept) for name in self.sources}
        return replace(self, selections=chosen, loaded=loaded)

    @check_arguments()
    def train_test_split(
        self,
        test_size: float | int | None = None,
        train_size: float | int | None = None,
        *,
        stratify: str | npt.ArrayLike | None = None,
        groups: str | npt.ArrayLike | None = None,
        shuffle: bool = True,
        seed: int | None = None,
        random_state: int | None = None,
    ) -> tuple[Dataset, Dataset]:
        """Divide the rows in two, lazily, by the names that scikit-learn uses.

        Rows keep their order in each; only which of them are in it is drawn.

        Parameters
        ----------
        test_size, train_size : float or int, optional
            A share between 0 and 1, or a number of rows. What is not given is the rest; a
            quarter is for testing where neither is.
        stratify, groups : str or array, lengths ``(n_rows,)``, optional
            Classes of which each side gets its share, or groups of rows that stay
            together: a source, which is read now, or one value a row.
        shuffle : bool
            Draw the rows; False takes the first for training and the last for testing.
        seed, random_state : int, optional
            The same seed, rows and sizes give the same two datasets; 0 when not given. Both names
            mean the same.

        Returns
        -------
        train, test : Dataset

        Raises
        ------
        SplitError
            If the sizes are impossible, or two rules are given at once.

        Examples
        --------
        >>> import numpy as np, os, tempfile, labeled
        >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
        >>> ds = labeled.open_dataset(labeled.write(path, {"x": np.arange(100)}))
        >>> train, test = ds.train_test_split(0.2, seed=1)
        >>> train.n_rows, test.n_rows, sorted({*train["x"].values} & {*test["x"].values})
        (80, 20, [])
        """
        from labeled.dataset.selecting import two_sides

        if seed is not None and random_state is not None:
            raise SplitError("give seed= or random_state=, which mean the same, not both")
        seed = next((one for one in (seed, random_state) if one is not None), 0)
        rules = {"stratify": stratify, "groups": groups}
        train, test = two_sides(self, train_size, test_size, rules, seed=seed, shuffle=shuffle)
        return self.subset(train), self.subset(test)

    def isel(self, indexers: Mapping[str, Any] | None = None, /, **axes: Any) -> Dataset:
        """Take part of axes by position; only the bytes needed will be read.

        Parameters
        ----------
        indexers : mapping of str to the same, optional
            For dims whose names are no keywords.
        **axes : int, slice, list of int or boolean mask
            By dim name. An integer drops the dim. The example dim takes what
            :meth:`subset` takes.

        Raises
        ------
        UnknownNameError
            If no source has such a dim.
        SelectionError
            If a position is out of range.
        DimsError
            If the dim is one of examples that differ in shape.
        """
        out = self
        for dim, request in {**({} if indexers is None else indexers), **axes}.items():
            out = out._isel_one(dim, request)
        return out

    def sel(
        self,
        indexers: Mapping[str, Any] | None = None,
        /,
        *,
        method: str | None = None,
        tolerance: Any = None,
        **labels: Any,
    ) -> Dataset:
        """Take part of axes by the values of their coordinates, as xarray's `sel` does.

        Parameters
        ----------
        indexers : mapping of str to the same, optional
            For dims whose names are no keywords.
        method : {"nearest", "pad", "backfill"}, optional
            For labels that are not there exactly.
        tolerance : number, optional
            How far such a label may be away.
        **labels : value, slice of values, or list of values
            By dim name; times as text, too. One value drops the dim, but the example dim
            stays. Of these only the coordinates are read.

        Raises
        ------
        UnknownNameError
            If no source has such a dim, or it has no coordinate.
        SelectionError
            If a label is not there.
        """
        from labeled.dataset.selecting import positions

        out = self
        for dim, label in {**({} if indexers is None else indexers), **labels}.items():
            out = out._isel_one(dim, positions(out, dim, label, method, tolerance))
        return out

    def _isel_one(self, dim: str, request: Any) -> Dataset:
        from labeled.dataset.selecting import is_example_dim

        if is_example_dim(dim, request, self.dims.values()):
            return self.subset(request)
        if isinstance(request, list | np.ndarray):
            request = tuple(as_array(dim, request, SelectionTypeError).tolist())
        # Narrowed now also where rows are in the files, to complain before the first read.
        parts = {name: narrowed(source, dim, request) for name, source in self._sources.items()}
        loaded = {name: part.loaded for name, part in parts.items() if part.loaded is not None}
        steps = (*self.steps, (dim, request))
        return replace(self, steps=steps, loaded=None if self.loaded is None else loaded)

    @check_arguments()
    def select(self, *sources: str | Sequence[str]) -> Dataset:
        """Keep these sources, in this order; one list of them does as well."""
        names = _names_of(sources)
        if not names:
            raise UnknownNameError(f"name a source; there are {list(self.sources)}")
        for name in names:
            self._check_source(name)
        check_once("select()", names)
        return replace(self, names=names)

    def with_spaces(self, **spaces: Space) -> Dataset:
        """Set the space of a source whose dims and dtype do not determine it.

        Raises
        ------
        UnknownNameError
            If there is no such source.
        SpecsError, SpaceTypeError
            If rows of the source are no rows of the space.

        Examples
        --------
        >>> import numpy as np, os, tempfile, labeled
        >>> from labeled.spaces import IndexSpace
        >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
        >>> ds = labeled.open_dataset(labeled.write(path, {"y": np.arange(100) % 10}))
        >>> ds.with_spaces(y=IndexSpace(max_labels=10, dim=1)).spaces
        {'y': IndexSpace(max_labels=10, dim=1)}
        """
        for name, space in spaces.items():
            self._check_source(name)
            source = self._sources[name]
            if not isinstance(space, Space):
                raise SpaceTypeError(
                    f"with_spaces({name}=...) takes a space, such as VectorSpace(3), not {space!r}"
                )
            if isinstance(source, RaggedSource) or source.dtype.kind in TEXT_KINDS:
                held = "text" if source.ragged is None else "examples of different shapes"
                raise SpaceTypeError(
                    f"{source.where} holds {held}, which has no space of its own; dense numbers "
                    "have"
                )
            row_space(SourceInfo(name, source.dims, source.row_shape, source.dtype, space))
        return replace(self, own_spaces={**self.own_spaces, **spaces})

    # what is in them

    def __getitem__(self, name: str | list[str] | int | np.integer[Any] | Request) -> Any:
        """Return a source as a lazy DataArray with its coordinates, or one example by its row.

        Where examples differ in shape it is a lazy :class:`labeled.Ragged`. Coordinates and
        variables that come along with sources are given by their names, too. A list of names
        gives a Dataset of these sources, and a slice, a mask or a list of row numbers one of
        these rows, as :meth:`subset` does. A whole number reads that row of every source, as a
        mapping of arrays in memory; :meth:`batches` reads many rows a thousand times faster.
        """
        from labeled.dataset.selecting import names_rows
        from labeled.dataset.to_xarray import data_array, variable

        if isinstance(name, int | np.integer):
            return self._example(name)
        if names_rows(name):
            return self.subset(name)
        if isinstance(name, list):
            return self.select(name)
        if name not in self.sources and name in self.files.catalog.variables:
            return variable(self, str(name))
        self._check_source(name)
        assert isinstance(name, str)
        source = self._sources[name]
        if isinstance(source, RaggedSource):
            return source.select(self.selection(name))
        return data_array(self, name)

    def _example(self, row: int | np.integer[Any]) -> Sample:
        """Read one row of every source."""
        one = self.subset([row]).load()
        assert one.loaded is not None
        arrays = {}
        for name, rows in one.loaded.items():
            first = rows[0]
            arrays[name] = first.values if isinstance(first, xr.DataArray) else np.asarray(first)
        dims = {name: source.dims[1:] for name, source in self._sources.items()}
        return Sample(arrays, dims, int(row) % self.n_rows)

    @check_arguments()
    def read_rows(self, name: str, start: int, stop: int) -> Array:
        """Read consecutive rows of a dense source, in the calling thread.

        Raises
        ------
        UnknownNameError
            If there is no such source.
        LoaderError
            If it is ragged.
        """
        from labeled.dataset.lazy import read_block

        self._check_source(name)
        source = self._sources[name]
        if isinstance(source, RaggedSource):
            source.reader()  # says so
        assert isinstance(source, Source)
        return read_block(source, self.selection(name)[start:stop])

    def chunk_rows(self, name: str) -> int:
        """Return how many rows of a dense source are stored, and so read, together.

        1 where any row can be read alone.

        Raises
        ------
        UnknownNameError
            If there is no such source.
        """
        self._check_source(name)
        return self._sources[name].layout.chunk_rows or 1

    def to_xarray(self) -> xr.Dataset:
        """Return all dense sources, coordinates and carried variables as a lazy xarray.Dataset.

        Blocks are cut at the same places along every dim: where the source with the largest
        rows has them.

        A dim name that has two lengths becomes ``<source>_<name>``, with a warning. Ragged
        sources have no place in it and are left out, with a warning.
        """
        from labeled.dataset.to_xarray import to_xarray

        return to_xarray(self)

    @check_arguments()
    def load(self, *, progress: bool | None = None) -> Dataset:
        """Read the selected rows and parts into memory.

        Parameters
        ----------
        progress : bool, optional
            Show how much is read. By default on a terminal and in a notebook, once it has taken
            two seconds.

        Returns
        -------
        Dataset
            The same rows, held as NumPy arrays (ragged ones flat); nothing more is read from
            the files but headers.

        Raises
        ------
        UnsafeFileError
            If a file claims far more than it stores; nothing is read then. Lazy arrays of such
            a file are checked block by block instead.
        """
        from labeled.display.progress import progress_bar

        rows, loaded, n_bytes = self._rows, {}, 0
        for name, source in self._sources.items():
            if isinstance(source, Source):
                source.check_claim(len(rows[name]))
            n_bytes += len(rows[name]) * source.row_bytes
        with progress_bar(progress, n_bytes, "load") as advance:
            for name, source in self._sources.items():
                loaded[name] = _loaded(source, rows[name], advance)
        in_files = {name: self._file_rows(name) for name in self.sources}
        return replace(self, names=self.sources, loaded=loaded, selections=_shared(in_files))

    @check_arguments(LoaderError)
    def batches(
        self,
        batch_size: int | None = None,
        *,
        shuffle: Shuffle = False,
        seed: int | None = None,
        epoch: int = 0,
        last: Last = "keep",
        drop_last: bool = False,
        layout: Axes | None = None,
        one_hot: Mapping[str, int] | None = None,
        normalize: Any = None,
        specs: Any = None,
        memory: float | str | None = None,
        window_rows: int | None = None,
        shard: Shard = (0, 1),
        sticky_shards: bool = False,
        balance: str | None = None,
        weights: npt.ArrayLike | str | None = None,
        sampler: Sampler | Iterable[Any] | None = None,
        dtype: Any = None,
        scale: Any = None,
        shift: Any = None,
        pad_value: Any = 0,
        ragged: RaggedLayout = "list",
        bucket: bool | str = False,
        threads: int | None = None,
        prefetch: int | None = None,
        errors: Literal["raise", "skip"] = "raise",
        max_lost: int | float | None = None,
        pipeline: Any = None,
        device: str | Device = "cpu",
        output: Library | None = None,
        pinned: bool = False,
        as_tuple: bool = False,
        progress: bool = False,
    ) -> Loader:
        """Iterate over rows in batches: in file order or shuffled, epoch after epoch.

        Parameters
        ----------
        batch_size : int
            Rows of every batch but, with ``last="keep"``, the last. Not given with `sampler`.
        shuffle : bool, "full" or "window"
            False: file order, or the order of a list. "full": any row may follow any row. "window":
            random stretches of the file fill a window, whose rows are shuffled; where rows lie in
            the file as they are, they are picked from there one by one. True: full where the layout
            makes random rows cheap, else window; where stored chunks are so large that a window
            holds too few to mix well, `explain` names the `memory` that is enough.
        seed : int, optional
            The order is a function of it and the epoch; drawn once, and kept in the state, when not
            given. Parts of a shuffled epoch need the same one.
        epoch : int
            The first epoch.
        last : {"keep", "drop", "pad", "wrap"}
            A short last batch is kept; left out; padded with `pad_value` (rows -1); or filled with
            rows that another batch has too. In file order "drop" leaves out the same rows in every
            epoch: the last ones of each shard.
        drop_last : bool
            True is short for ``last="drop"``.
        layout : mapping of source to names, optional
            The order of a source's axes in a batch, by name: ``{"images": "channel height width
            batch"}``, or a tuple of names. Arrays are C-contiguous in that order. In front of a
            pipeline the axis of examples stays first.
        one_hot : mapping of source to int, optional
            How many classes a source of labels has: each label becomes a row of zeros with a one in
            it, of float32 unless `dtype` says otherwise. A label that is out of range is an error.
        normalize : pair, or mapping of source to pair, optional
            ``(mean, std)``, each a number or one a channel: ``scale=1 / std, shift=-mean / std``. A
            single pair leaves sources of labels alone.
        dtype, scale, shift : value or mapping by source, optional
            Cast, factor and summand, fused into the copy that lays a batch out. A single value
            leaves sources of labels alone. Floats and scaled values are not cast to integers;
            integers that do not fit a narrower dtype are an error of their batch.
        output : {"numpy", "torch", "jax", "tensorflow", "cupy"}, optional
            Whose arrays batches hold, by DLPack: those of the specs, or without specs a plain dict
            from source to array. Nothing is copied, but JAX copies what does not start at 64 bytes
            and makes 32 bits of 64 unless its own settings differ. Examples of different shapes
            come as lists of arrays.
        as_tuple : bool
            Give each batch as a tuple of arrays, in the order of ``ds.select(...)``, so that ``for
            x, y in ds.select("images", "targets").batches(64, as_tuple=True)`` works. NumPy arrays,
            or those that `output` asks for. Without it, looping over a batch gives names.
        progress : bool
            Show a bar of tqdm's for each epoch.
        specs : (space, source) pair, optional
            What batches look like as spaces say it, in the place of `layout` and `one_hot`; arrays
            come nested as the specs are, C-contiguous in the axes of each space. Without specs a
            batch maps source -> DataArray.
        memory : size, optional
            The most that iterating adds to the memory of this process: 256 MiB when not given, or
            twice, four times, ... as much where batches need it, up to half of what the process may
            still take. Not counted: the compiled kernels of the extra ``fast``, about 50 MiB once a
            process, loaded by the first large copy or once a gibibyte of rows was read.
        window_rows : int, optional
            Rows shuffled together; from `memory` when not given.
        shard : (index, count) or "torch"
            Which of `count` shares of every epoch this loader serves; "torch" takes rank and world
            size from ``torch.distributed``.
        sticky_shards : bool
            Keep each shard to one stretch of the file in every epoch.
        balance : str, optional
            Name of a source of class labels: draw every class equally often, with replacement. All
            its labels are read while the loader is made.
        weights : array, lengths ``(n_rows,)``, or str, optional
            Draw rows in proportion, with replacement: a number a row, or the source that holds
            them. Draws, balanced or weighted, come in random order and in whole batches, ``n_rows
            // batch_size`` of them: they take neither `shuffle` nor `sticky_shards`, and of `last`
            no padding or wrapping.
        sampler : Sampler or iterable of requests, optional
            Batches listed by somebody else, in the place of `shuffle`: one of
            `labeled.samplers`, or slices and lists of rows, served as they are every epoch.
            Parts take its batches in turn. What a pipeline draws beside it comes from `seed`; when
            not given, from the sampler's own, if it has one.
        pad_value : scalar or mapping by source
            Fills padded rows, and what ragged examples lack that are padded. A value that a
            source's dtype cannot hold is refused. It counts as a value of the file, so that `scale`
            and `shift` change it as others; with ``ragged="pad"`` it is filled in after them.
        ragged : {"list", "pad", "flat"}
            What examples of different shapes become: an object array of arrays; one array, filled
            up to the longest of the batch with `pad_value`, with ``<source>_mask`` beside it; or
            flat values with ``<source>_offsets`` and ``<source>_shapes``.
        bucket : bool or str
            Let examples of about equal size share a batch, so that little is padded: those of this
            ragged source, or of the only one. Rows are arranged within their windows, so windows
            are shuffled (``shuffle=True`` is "window" then), and the lengths of all rows are read
            while the loader is made. `explain` reports the share of padding that is left.
        threads : int, optional
            Background threads; from the cores when not given, none where up to 32 MiB are kept in
            memory, and none in any case where memory holds one decoded chunk at a time. 0 reads in
            the caller.
        prefetch : int, optional
            Jobs read ahead of the one in use; from `memory` when not given.
        errors : {"raise", "skip"}
            What becomes of rows that cannot be read: an error in their turn, or batches that lack
            them, with a warning; rows of later batches stay where they are. A batch of which a
            pipeline has none left is left out.
        max_lost : int or fraction, optional
            How many rows of an epoch, or which part of them, ``errors="skip"`` may leave out; one
            more is an error. ``loader.stats().n_lost`` counts them.
        pipeline : pipeline, callable, mapping from source to callable, or list, optional
            What happens to batches on their way out; see `labeled.transforms`. Its `sample`
            and `collate` run in threads of their own (`threads` of them, as many as cores when not
            given, none with 0; several batches at a time), its `batch` where batches are handed
            out; with a `device` there can be only `batch`, and it gets the arrays of that. A
            callable, or callables by source, are transforms of samples: of labelled examples, one
            by one, or of whole batches where they have a parameter ``rows`` or are marked by
            `labeled.transforms.whole`. Samples that raise ReadError, and pictures that do not
            fit (UnfitPictureError: smaller than a crop, undecodable), are left out with
            ``errors="skip"``, whatever `last` says of lengths. Rows that pad a batch go through it
            too, as row -1.
            `memory` counts the rows that go into a pipeline, and what those transforms make that
            say how much it is: all of `labeled.transforms`, and functions marked by
            `labeled.transforms.takes`.
        device : "cpu", "cuda", "cuda:<n>" or Device
            Where batches are made. Windows go to a device as the file has them, by one copy each
            from pinned memory, while earlier ones are used; batches are cut, cast, scaled and laid
            out there, in memory of their own, on the consumer's current stream. Order and values
            are those of "cpu". Examples of different shapes and values to decode are laid out here
            first; texts stay here. **Not yet run on a GPU.** It needs CuPy.
        pinned : bool
            With ``output="torch"``: copy host tensors into pinned memory if torch finds a CUDA
            device; without one a warning says so and tensors stay in ordinary memory.

        Returns
        -------
        Loader
            Re-iterable; each iteration is the next epoch.

        Raises
        ------
        LoaderError
            If a size, shard, cast or option is impossible, or `memory` too small; no row is
            read but for the labels of `balance`.
        OptionError
            If an option does not exist.
        SpecsError
            If the specs do not fit the sources.
        """
        options = BatchOptions(**{name: one for name, one in locals().items() if name != "self"})
        if not self.sources:
            raise LoaderError(
                f"{self.where} has no source to make batches of; print(ds) shows what it holds, "
                "and why that is not opened"
            )
        try:
            n_rows = self.n_rows
        except SplitError as error:
            raise LoaderError(f"cannot make batches: {error}") from None
        spaces = self.spaces if options.lays_out else {}
        return Loader(plan_batches(self._sources, self._rows, spaces, n_rows, options))

    def as_provider(
        self,
        batch_size: int = 0,
        *,
        data: Names | None = None,
        label: Names | None = None,
        **options: Any,
    ) -> LoaderProvider:
        """Serve batches of data and labels; a :class:`~labeled.providers.DataProvider`.

        Parameters
        ----------
        batch_size : int
            0 takes all rows as one batch.
        data, label : str, sequence of str or mapping, optional
            Sources to provide; a mapping gives them other names (name -> source). Not given:
            sources called ``targets``, ``labels`` or the like are labels, the others data.
        **options
            `shuffle`, `seed`, `shard`, `window_rows`, `memory`, `threads`, `prefetch`, `dtype`,
            `scale`, `shift`, `errors`, `max_lost` and `device` as for :meth:`batches`;
            `data_padding`, `label_padding`, `roll_over` and `axes` as for
            :class:`labeled.providers.ArrayDataProvider`. What comes out of a pipeline is provided
            by :class:`labeled.providers.IteratorProvider` around its loader.

        Raises
        ------
        UnknownNameError
            If there is no such source.
        LoaderError
            If an option is unknown or impossible, or a source ragged.
        """
        from labeled.providers.provider import provider_of

        sizes = {"batch_size": batch_size, **options}
        return provider_of(self._sources, self._rows, data, label, sizes)

    @check_arguments()
    def statistics(self, source: str, *, progress: bool | None = None) -> dict[str, Any]:
        """Return count, mean, deviation and extremes of a source, and its class counts.

        Those that the file was written with where they are of exactly these rows; else every
        row is read, in 64 MiB.

        Parameters
        ----------
        source : str
        progress : bool, optional
            Show how far reading is. By default on a terminal and in a notebook, once it has
            taken two seconds.

        Returns
        -------
        dict
            ``n_rows``, ``n_values``, ``not_finite``, ``mean``, ``std``, ``min``, ``max``: lists
            by channel where a dim means channels, named ``by``; ``classes`` (counts by class)
            where there is one integer a row. Values that are not finite are left out.

        Raises
        ------
        ArrayError
            If the source holds no numbers.
        """
        from labeled.dataset.statistics import statistics_of

        self._check_source(source)
        return statistics_of(self, source, progress)

    # files, and what others call things

    def close(self) -> None:
        """Close what is kept open of files, of this dataset and of others.

        There is seldom a reason to: few files are kept open, and what is read later opens them
        again. ``with labeled.open_dataset(path) as ds:`` closes at its end.
        """
        close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # so that type checkers still refuse what is not there

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name, lambda: self.sources)

        def __array__(self, *_: Any, **options: Any) -> Any:
            # NumPy would make an array of the names that iterating gives.
            raise SelectionTypeError(
                f"{self.where} is not one array: np.asarray(ds['x']) reads one source, and "
                "ds.batches(256, output='numpy') gives all of them batch by batch"
            )

    # looks

    @property
    def plot(self) -> DatasetPlots:
        """Pictures: ``plot()`` of the first rows, ``plot.splits()``, ``plot.classes(source)``."""
        from labeled.dataset.plots import DatasetPlots

        return DatasetPlots(self)

    @property
    def where(self) -> str:
        """How messages name the files."""
        first, *others = self.files.paths
        more = f" and {len(others):,} more file{'s' * (len(others) > 1)}" if others else ""
        return f"{first!r}{more}"

    def _check_source(self, name: object) -> None:
        if not isinstance(name, str) or name not in self.sources:
            from labeled.dataset.selecting import why_no_source

            raise UnknownNameError(why_no_source(self, name))

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Summary:
        from labeled.dataset.summary import shown

        return shown(self)

    def _ipython_key_completions_(self) -> Sequence[str]:
        return list(self.sources)


def spaces_of(
    sources: Mapping[str, AnySource], rows: Mapping[str, Selection], given: Mapping[str, Space]
) -> dict[str, Space]:
    """Return the space of each dense numeric source: the one given, or what dims and dtype say."""
    spaces = {}
    for name, source in sources.items():
        if isinstance(source, RaggedSource):
            continue
        if name in given:
            spaces[name] = given[name]
        elif source.dtype.kind not in TEXT_KINDS:
            shape = (len(rows[name]), *source.row_shape)
            spaces[name] = space_of(source.dims, shape, source.dtype, name=name)
    return spaces


def narrowed(source: Held, dim: str, request: Any) -> Held:
    """Take part of one dim of a source; a source without the dim stays as it is."""
    if dim not in source.dims[1:]:
        return source
    if isinstance(source, RaggedSource):
        raise DimsError(
            f"dim {dim!r} of {source.where} has another length in every example ({source.ragged}), "
            f"so isel() cannot cut it; pad() the source, or leave it out with select()"
        )
    request = list(request) if isinstance(request, tuple) else request
    try:
        return source.narrow({source.dims[1:].index(dim): request})
    except (SelectionError, SelectionTypeError) as error:
        raise type(error)(f"{error} ({source.where})") from None


def _loaded(source: Held, rows: Selection, advance: Any) -> Rows:
    """Read rows into memory, decoded; ragged ones lie flat."""
    with enough_memory(source, rows):
        if isinstance(source, RaggedSource):
            examples = source.select(rows).load()
            advance(len(rows) * source.row_bytes)
            return examples
        return source.decode(load_rows(source, rows, os.cpu_count() or 1, advance))


def _taken(rows: Rows, positions: npt.NDArray[np.int64]) -> Rows:
    """Copy some rows out of those in memory."""
    return rows.take(positions).load() if isinstance(rows, Ragged) else rows[positions]


def _names_of(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return names given one by one, or all in one list."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given


def _shared(selections: Mapping[str, Selection]) -> dict[str, Selection]:
    """Let sources with equal rows share one selection, so that pickles stay small."""
    seen: dict[str, Selection] = {}
    return {name: seen.setdefault(rows.token, rows) for name, rows in selections.items()}


def shared_options(dataset: Dataset, options: Mapping[str, Any], deals: str) -> dict[str, Any]:
    """Check options of ``batches`` by making a loader of them, and fix the seed of all parts.

    Parameters
    ----------
    options : mapping
        But `shard`.
    deals : str
        What shares out parts, for messages.

    Raises
    ------
    LoaderError
        If an option is impossible, or `shard` is among them.
    """
    if "shard" in options:
        raise LoaderError(f"shard= is what {deals}")
    loader = dataset.batches(**options)
    line = loader.plan.line
    seeded = options.get("sampler") is None or (line is not None and line.draws)
    return {**options, **({"seed": loader.seed} if seeded else {})}
