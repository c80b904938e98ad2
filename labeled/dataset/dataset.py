"""The dataset: sources, splits and rows of one or many files, as one immutable value.

A dataset is a recipe (files, names, selections, parts of axes); nothing is read until
an array is computed or a batch is asked for. Every method returns another dataset or
a lazy array. It pickles as its recipe and opens the files again where it arrives.

What a method does that is long stands in the module of its name, which is imported when it is
called: `selecting` (splits, `sel`, `train_test_split`), `to_xarray`, and `summary` for
statistics, the repr and plots.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array, check_arguments
from labeled.dataset.files import Files
from labeled.device import AnyDevice, Resident
from labeled.display.text import Summary, Viewed
from labeled.errors import (
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
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions, takes_fields_of
from labeled.loader.plan import LoaderPlan, device_of
from labeled.ragged import Ragged
from labeled.selection import Request, Selection
from labeled.sources.source import Source, enough_memory, load_rows
from labeled.spaces import SourceInfo, Space, row_space, space_of
from labeled.transforms.sample import Sample

if TYPE_CHECKING:  # imported by the methods that need them
    from labeled.dataset.summary import DatasetPlots
    from labeled.providers import LoaderProvider, Names

Array = npt.NDArray[Any]
Rows = Array | Ragged  # rows in memory, decoded

Steps = tuple[tuple[str, Any], ...]  # dims, and what of each is taken, one after another

TEXT_KINDS = "OSU"  # kinds of dtypes that no space holds


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Viewed):
    """Sources of one or many files, restricted to some rows and parts of axes.

    Made by :func:`labeled.open_dataset`; immutable, and small to pickle. ``ds["x"]`` is a lazy
    DataArray, ``ds[:10]`` a dataset of ten rows. ``len(ds)`` is the number of rows, ``list(ds)``
    the names of the sources; :meth:`batches` iterates over rows.

    Parameters
    ----------
    files : Files
        Paths and options; the files are opened again where a pickled dataset arrives.
    sources : tuple of str
        Names of the sources, in the order in which batches provide them.
    selections : mapping of str to Selection, optional
        Rows of each source; every row when None.
    steps : tuple
        The ``isel`` calls so far.
    loaded : mapping of str to array or Ragged, optional
        Decoded rows in memory, after :meth:`load`.
    chosen : tuple of str
        Names of the selected splits.
    own_spaces : mapping of str to Space
        Spaces set by :meth:`with_spaces`.
    """

    files: Files
    sources: tuple[str, ...] = ()
    selections: Mapping[str, Selection] | None = None
    steps: Steps = ()
    loaded: Mapping[str, Rows] | None = None
    chosen: tuple[str, ...] = ()
    own_spaces: Mapping[str, Space] = field(default_factory=dict)
    chunks: Any = "auto"
    resident: Resident | None = None  # the device on which loaded rows are kept, too

    # what is there

    @property
    def splits(self) -> dict[str, dict[str, int]]:
        """Rows of each source in each split of the files: split -> source -> count."""
        return {
            split: {name: len(rows) for name, rows in by_source.items()}
            for split, by_source in self.files.catalog.splits.items()
        }

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """Each source with its parts of axes taken, loaded or not."""
        out: dict[str, Source] = {}
        there = self.files.catalog.sources
        for name in self.sources:
            source = there[name]
            for dim, request in self.steps:
                source = source.isel(dim, request)
            out[name] = source if self.loaded is None else source.in_memory(self.loaded[name])
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Travel without headers; see :class:`Files`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def selection(self, name: str) -> Selection:
        """Return which rows of a source this dataset holds, in order."""
        self._check_source(name)
        return self._rows[name]

    @cached_property
    def _rows(self) -> dict[str, Selection]:
        """Which rows of every source this dataset holds."""
        rows = {}
        for name in self.sources:
            if self.loaded is not None:
                rows[name] = Selection.all(len(self.loaded[name]))
            elif self.selections is not None:
                rows[name] = self.selections[name]
            else:
                rows[name] = Selection((range(self.files.known.sources[name].n_rows),))
        return rows

    @property
    def _file_rows(self) -> Mapping[str, Selection]:
        """Rows as the files number them, also after :meth:`load`."""
        return self._rows if self.selections is None else self.selections

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of each source, the example dim first."""
        return {name: source.dims for name, source in self._sources.items()}

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Dtype of each source's values, after CF decoding."""
        return {name: source.dtype for name, source in self._sources.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each source; only the number of rows if examples differ in shape."""
        rows = self._rows
        return {n: (len(rows[n]), *s.row_shape) for n, s in self._sources.items()}

    @property
    def spaces(self) -> dict[str, Space]:
        """Space of each dense numeric source, from its dims and dtype or from `with_spaces`."""
        return spaces_of(self._sources, self._rows, self.own_spaces)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file, or of the first of several files."""
        return dict(self.files.catalog.headers[0].attrs)

    @property
    def n_rows(self) -> int:
        """Number of examples.

        Raises
        ------
        NoLengthError
            If the sources have different numbers of rows; the message lists them.
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
        """Iterate over the names of the sources; :meth:`batches` iterates over rows."""
        return iter(self.sources)

    def __contains__(self, name: object) -> bool:
        return name in self.sources

    def keys(self) -> tuple[str, ...]:
        """Return the names of the sources, so that ``dict(ds)`` holds its lazy arrays."""
        return self.sources

    # which rows, which sources

    @check_arguments()
    def split(self, *names: str | Sequence[str]) -> Dataset:
        """Select the rows of one or more splits, in the order named; nothing is read.

        Parameters
        ----------
        *names : str
            Splits of the file, or one list of them.

        Returns
        -------
        Dataset
            With the sources that all these splits have.

        Raises
        ------
        UnknownNameError
            If the file has no such split.
        SplitError
            If the splits have no source in common, or rows were selected before.
        """
        from labeled.dataset.selecting import rows_of_splits

        chosen = _names_of(names)
        rows = rows_of_splits(self, chosen)
        return replace(self, sources=tuple(rows), selections=rows, chosen=tuple(map(str, chosen)))

    @check_arguments()
    def subset(self, rows: Request) -> Dataset:
        """Select some of the rows, counted from the first of this dataset; nothing is read.

        Parameters
        ----------
        rows : slice, integers or boolean mask of full length
            Order and repeats are kept; an empty list selects nothing.

        Raises
        ------
        SelectionError
            If a row is out of range, or a mask has another length.
        SelectionTypeError
            If `rows` does not name rows; select a single row ``r`` by ``[r]``.

        Examples
        --------
        >>> import numpy as np, os, tempfile, labeled
        >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
        >>> ds = labeled.open_dataset(labeled.write(path, {"x": np.arange(10)}))
        >>> ds.subset([7, 2, 2]).subset(slice(1, None))["x"].values
        array([2, 2])
        """
        n_rows, loaded = self.n_rows, self.loaded
        in_files = self._rows if self.selections is None else self.selections
        chosen, taken = {}, dict[str, Selection]()  # sources with equal rows share what comes out
        try:
            if loaded is not None or not self.sources:
                kept = Selection.all(n_rows)[rows].rows
            for name in self.sources:
                mine = in_files[name]
                if mine.token not in taken:
                    taken[mine.token] = mine[rows]
                chosen[name] = taken[mine.token]
        except (SelectionError, SelectionTypeError) as error:
            raise type(error)(f"{error} (selecting from {self.where})") from None
        if loaded is not None:
            held = {name: loaded[name][kept] for name in self.sources}
            loaded = {n: x.load() if isinstance(x, Ragged) else x for n, x in held.items()}
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
        """Split the rows in two, lazily, with scikit-learn's arguments.

        Rows keep their order on both sides.

        Parameters
        ----------
        test_size, train_size : float or int, optional
            A share between 0 and 1, or a number of rows. The size that is not given is the rest;
            by default a quarter is for testing.
        stratify, groups : str or array, lengths ``(n_rows,)``, optional
            Classes to divide in equal proportion, or groups of rows to keep together: a source,
            which is read now, or one value per row.
        shuffle : bool
            Draw rows at random; False takes the first for training, the next for testing.
        seed, random_state : int, optional
            The same seed, rows and sizes give the same datasets; 0 by default. Two names for one
            thing.

        Returns
        -------
        train, test : Dataset

        Raises
        ------
        SplitError
            If the sizes are impossible, or both `stratify` and `groups` are given.

        Examples
        --------
        >>> import numpy as np, os, tempfile, labeled
        >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
        >>> ds = labeled.open_dataset(labeled.write(path, {"x": np.arange(100)}))
        >>> train, test = ds.train_test_split(0.2, seed=1)
        >>> train.n_rows, test.n_rows, sorted({*train["x"].values} & {*test["x"].values})
        (80, 20, [])
        """
        from labeled.dataset.selecting import split_rows

        if seed is not None and random_state is not None:
            raise SplitError("give seed= or random_state=, which mean the same, not both")
        seed = next((one for one in (seed, random_state) if one is not None), 0)
        sizes = {"train": train_size, "test": test_size}
        rules = {"stratify": stratify, "groups": groups}
        train, test = split_rows(self, sizes, rules, seed=seed, shuffle=shuffle)
        return self.subset(train), self.subset(test)

    @check_arguments()
    def isel(self, indexers: Mapping[str, Any] | None = None, /, **axes: Any) -> Dataset:
        """Select positions along axes, as xarray's `isel`; only the bytes needed are read.

        Parameters
        ----------
        indexers : mapping of str to the same, optional
            For dims whose names are not valid keywords.
        **axes : int, slice, list of int or boolean mask
            By dim name. An integer drops the dim. Along the example dim, what :meth:`subset`
            takes.

        Raises
        ------
        UnknownNameError
            If no source has such a dim.
        SelectionError
            If a position is out of range.
        DimsError
            If examples differ in length along the dim.
        """
        from labeled.dataset.selecting import is_example_dim

        out = self
        for dim, request in {**({} if indexers is None else indexers), **axes}.items():
            if is_example_dim(dim, request, out.dims.values()):
                out = out.subset(request)
                continue
            if not isinstance(request, int | slice | range | tuple):  # of NumPy, xarray, pandas
                values = as_array(dim, request, SelectionTypeError).tolist()
                request = tuple(values) if isinstance(values, list) else values
            # Narrowed now also where rows are in the files, to complain before the first read.
            parts = {name: source.isel(dim, request) for name, source in out._sources.items()}
            loaded = None if out.loaded is None else {name: p.loaded for name, p in parts.items()}
            out = replace(out, steps=(*out.steps, (dim, request)), loaded=loaded)
            counted = [name for name, part in parts.items() if part.dims[0] == dim]
            if counted:  # the axis of some sources along which others count examples
                rows = [request] if isinstance(request, int) else request
                some = out.select(*counted).subset(list(rows) if isinstance(rows, tuple) else rows)
                selections = {**out._file_rows, **(some.selections or {})}
                loaded = None if loaded is None else {**loaded, **(some.loaded or {})}
                out = replace(out, selections=selections, loaded=loaded)
        return out

    @check_arguments()
    def sel(
        self,
        indexers: Mapping[str, Any] | None = None,
        /,
        *,
        method: str | None = None,
        tolerance: Any = None,
        **labels: Any,
    ) -> Dataset:
        """Select along axes by coordinate values, as xarray's `sel`.

        Parameters
        ----------
        indexers : mapping of str to the same, optional
            For dims whose names are not valid keywords.
        method : {"nearest", "pad", "backfill"}, optional
            How to match values that are not in the coordinate.
        tolerance : number, optional
            The largest distance of such a match.
        **labels : value, slice of values, or list of values
            By dim name; times may be text. A single value drops the dim, except the example
            dim. Only coordinates are read.

        Raises
        ------
        UnknownNameError
            If no source has such a dim, or it has no coordinate.
        SelectionError
            If a value is not in the coordinate.
        """
        from labeled.dataset.selecting import positions

        out = self
        for dim, label in {**({} if indexers is None else indexers), **labels}.items():
            out = out.isel({dim: positions(out, dim, label, method, tolerance)})
        return out

    @check_arguments()
    def select(self, *sources: str | Sequence[str]) -> Dataset:
        """Keep these sources, in this order.

        Parameters
        ----------
        *sources : str
            Names of sources, or one list of them. For rows see :meth:`subset`.

        Raises
        ------
        UnknownNameError
            If a source does not exist.
        """
        names = _names_of(sources)
        if not names:
            raise UnknownNameError(f"name a source; there are {list(self.sources)}")
        for name in names:
            self._check_source(name)
        check_once("select()", names)
        return replace(self, sources=names)

    def with_spaces(self, **spaces: Space) -> Dataset:
        """Set the space of a source whose dims and dtype do not determine it.

        Raises
        ------
        UnknownNameError
            If the source does not exist.
        SpecsError, SpaceTypeError
            If rows of the source do not fit the space.

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
            if name not in self.spaces:
                raise SpaceTypeError(f"{source.where} has no space; only dense numbers have one")
            row_space(SourceInfo(name, source.row_shape, source.dtype, space))
        return replace(self, own_spaces={**self.own_spaces, **spaces})

    # what is in them

    def __getitem__(self, name: str | list[str] | int | np.integer[Any] | Request) -> Any:
        """Return a source, a dataset of some sources or rows, or one example.

        ``ds["x"]`` is a lazy DataArray with its coordinates, or a lazy :class:`labeled.Ragged` if
        examples differ in shape; coordinates and other variables have names, too.
        ``ds[["x", "y"]]`` is a dataset of these sources, as of :meth:`select`. A slice, a mask or a
        list of row numbers, an empty one too, gives a dataset of these rows, as of :meth:`subset`.
        ``ds[3]`` reads row 3 of every source into memory; :meth:`batches` reads many rows a
        thousand times faster.
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
        if source.ragged is not None:
            return source.select(self.selection(name))
        return data_array(self, name)

    def _example(self, row: int | np.integer[Any]) -> Sample:
        """Read one row of every source."""
        arrays, one = {}, self.subset([row]).load().loaded or {}
        for name, rows in one.items():
            (first,) = rows.flat().examples() if isinstance(rows, Ragged) else rows
            arrays[name] = np.asarray(first)
        dims = {name: source.dims[1:] for name, source in self._sources.items()}
        return Sample(arrays, dims, int(row) % self.n_rows)

    @check_arguments()
    def read_rows(self, name: str, start: int, stop: int) -> Array:
        """Read consecutive rows of a dense source, in the calling thread.

        Raises
        ------
        UnknownNameError
            If the source does not exist.
        LoaderError
            If it is ragged.
        """
        from labeled.dataset.to_xarray import read_block

        rows = self.selection(name)[start:stop]  # refuses an unknown name
        return read_block(self._sources[name], rows)

    def chunk_rows(self, name: str) -> int:
        """Return how many rows of a dense source are stored, and so read, together.

        1 if any row can be read on its own.

        Raises
        ------
        UnknownNameError
            If the source does not exist.
        """
        self._check_source(name)
        return self._sources[name].layout.chunk_rows or 1

    def to_xarray(self) -> xr.Dataset:
        """Return dense sources, coordinates and other variables as a lazy xarray.Dataset.

        All variables have the blocks of the source with the largest rows. A dim that is longer
        or shorter than in a source before becomes ``<source>_<dim>``, and ragged sources are left
        out, both with a warning.

        Sources in groups are called by their paths. netCDF refuses the ``/`` in their names, and
        zarr makes groups of it: before `to_netcdf` or `to_zarr`, rename them, as in
        ``x.rename({name: name.replace("/", "_") for name in x.variables})``.
        """
        from labeled.dataset.to_xarray import to_xarray

        return to_xarray(self)

    @check_arguments()
    def load(self, *, device: AnyDevice = "cpu", progress: bool | None = None) -> Dataset:
        """Read the selected rows and parts into memory, and keep them on a GPU, too, if asked.

        Parameters
        ----------
        device : "cpu", "cuda", "cuda:<n>" or Device
            Where :meth:`batches` of these rows are made unless they ask for another device. The
            numbers go to a GPU as a whole when the first of them begins, and stay there as long
            as this dataset is held; then batches are gathered, laid out and cast there, and only
            row numbers go there.
        progress : bool, optional
            Show a progress bar. By default on a terminal and in a notebook, after two seconds.

        Returns
        -------
        Dataset
            The same rows as NumPy arrays in memory; later reads come from there.

        Raises
        ------
        UnsafeFileError
            If a file claims far more data than it stores; nothing is read then.
        LoaderError
            If there is no such device, or examples differ in shape; nothing is read then.
        """
        from labeled.display.progress import progress_bar

        there, rows, n_bytes = device_of(device), self._rows, 0
        for name, source in self._sources.items():
            if there is not None and source.ragged is not None:
                raise LoaderError(
                    f"load(device=): examples of {name!r} in {self.where} differ in shape, and "
                    "are not kept on a device; select() the other sources, or leave device out"
                )
            source.check_claim(len(rows[name]))
            n_bytes += len(rows[name]) * source.row_bytes
        loaded: dict[str, Rows] = {}
        with progress_bar(progress, n_bytes, "load") as advance:
            for name, source in self._sources.items():
                with enough_memory(source, rows[name]):
                    if source.ragged is None:
                        stored = load_rows(source, rows[name], os.cpu_count() or 1, advance)
                        loaded[name] = source.decode(stored)
                    else:
                        loaded[name] = source.select(rows[name]).load()
                        advance(len(rows[name]) * source.row_bytes)
        resident = None if there is None else Resident(there)
        return replace(self, selections=self._file_rows, loaded=loaded, resident=resident)

    @takes_fields_of(BatchOptions)
    def batches(self, options: BatchOptions) -> Loader:
        """Make a loader that iterates over the rows in batches, epoch after epoch.

        Parameters
        ----------
        batch_size : int
            Rows per batch. Only the last batch may have fewer, see `last`. Leave it out with
            `sampler`.
        shuffle : bool, "full" or "window"
            False keeps file order, or the order of an index list. "full": any row may follow any
            row. "window": random stretches of the file fill a window, whose rows are shuffled
            together. True takes "full" where the layout makes random rows cheap, else "window". If
            stored chunks are so large that a window mixes badly, `explain` names the `memory` that
            is enough.
        seed : int, optional
            With the same file and options, the order depends only on it and the epoch. If not
            given, a seed is drawn once and kept in ``loader.seed`` and in the state. All shards of
            a shuffled epoch need the same seed.
        epoch : int
            The first epoch.
        last : {"keep", "drop", "pad", "wrap"}
            What becomes of a last batch that is too short: keep it, drop it, pad it with
            `pad_value` (its rows are -1), or fill it by repeating rows of other batches. In file
            order "drop" leaves out the same rows in every epoch: the last ones of each shard.
        drop_last : bool
            True is short for ``last="drop"``.
        layout : mapping of source to names, optional
            The order of a source's axes in a batch, by name: ``{"images": "channel height width
            batch"}``, or a tuple of names. Arrays are C-contiguous in that order. If there is a
            pipeline, the example axis must be first.
        one_hot : mapping of source to int, optional
            The number of classes of a source of labels. Each label becomes a row of zeros with a
            single one, float32 unless `dtype` says otherwise. A label out of range is an error.
        normalize : pair, or mapping of source to pair, optional
            ``(mean, std)``, each a number or one per channel; the same as ``scale=1 / std,
            shift=-mean / std``. A single pair leaves sources of labels alone. float64 stays
            float64, int64 becomes it: pass ``dtype="float32"`` too where a model wants that.
        dtype, scale, shift : value or mapping by source, optional
            Cast to `dtype`, multiply by `scale`, add `shift`, in the one copy that makes a batch. A
            single value leaves sources of labels alone. Floats and scaled values are never cast to
            integers; an integer that does not fit a narrower dtype is an error of its batch.
        output : {"numpy", "torch", "jax", "tensorflow", "cupy"}, optional
            The library whose arrays batches hold, handed over by DLPack without a copy. Without
            `specs` a batch is a plain dict from source to array. JAX copies arrays that are not
            aligned to 64 bytes, and turns 64-bit values into 32-bit ones unless configured
            otherwise. Examples of different shapes come as lists of arrays.
        as_tuple : bool
            Return each batch as a tuple of arrays in the order of ``ds.select(...)``, so that ``for
            x, y in ds.select("images", "targets").batches(64, as_tuple=True)`` works. Otherwise
            looping over a batch gives the names of its sources: ``x`` and ``y`` would be text. With
            ``ragged="pad"`` or ``"flat"`` masks or offsets and shapes come right after their
            source: ``for x, mask, y in ...``.
        progress : bool
            Show a tqdm progress bar for each epoch.
        specs : (space, source) pair, optional
            Nested or unusual layouts as spaces, instead of `layout` and `one_hot`. Arrays are
            nested like the specs and C-contiguous in the axes of each space.
        memory : size, optional
            The most that iterating adds to the memory of this process, as bytes or text such as
            "512 MiB". By default 256 MiB, doubled as often as batches need it, up to half of what
            the process may still take. The compiled kernels of the extra ``fast`` come on top:
            about 50 MiB once per process, at the first large copy or after one gibibyte of rows.
        window_rows : int, optional
            Rows that are shuffled together; by default as many as `memory` holds, so that the order
            stays the same with another `memory` only where this is given.
        shard : (index, count) or "torch"
            Which of `count` shares of every epoch this loader serves. "torch" takes rank and world
            size from ``torch.distributed``. One may have a batch more than another, for which
            ranks that wait for each other would wait for ever: ``last="drop"``, ``"pad"`` and
            ``"wrap"`` give all shards the same number of batches.
        sticky_shards : bool
            Give each shard the same stretch of the file in every epoch.
        balance : str, optional
            A source of class labels: draw every class equally often, with replacement. All labels
            are read when the loader is made.
        weights : array, lengths ``(n_rows,)``, or str, optional
            Draw rows in proportion to a weight per row, with replacement; an array, or a source
            that holds the weights. Balanced and weighted draws come in random order and in whole
            batches, ``n_rows // batch_size`` per epoch; `shuffle`, `sticky_shards` and padding or
            wrapping by `last` do not apply.
        sampler : Sampler or iterable of requests, optional
            Batches listed elsewhere, instead of `shuffle`: one of `labeled.samplers`, or slices
            and lists of rows, which are served as they are in every epoch. Shards take batches in
            turn. Random steps of a pipeline use `seed`, or else the sampler's own seed.
        pad_value : scalar or mapping by source
            Fills padded rows, and the missing values of padded ragged examples. It must fit the
            source's dtype. `scale` and `shift` apply to it as to values of the file, except with
            ``ragged="pad"``, where it is filled in after them.
        ragged : {"list", "pad", "flat"}
            What examples of different shapes become. "list": an object array of arrays. "pad": one
            array, filled up to the longest example of the batch, with ``<source>_mask`` beside it.
            "flat": flat values, with ``<source>_offsets`` and ``<source>_shapes``.
        bucket : bool or str
            Put examples of similar size into one batch, so that little is padded; True for the only
            ragged source, else its name. Rows are sorted within their windows, so ``shuffle=True``
            means "window". All lengths are read when the loader is made.
        threads : int, optional
            Background threads; 0 reads in the caller. By default one fewer than cores (with a
            `pipeline`, as many), at most 16; in file order at most 8, and 4 for small batches,
            where all sources lie in one piece in local files; none if all rows fit in 32 MiB and
            nothing transforms them.
        prefetch : int, optional
            How many jobs are read ahead, within `memory`. By default one where a job is a whole
            window, else up to seven of the smaller ones that other orders are cut into.
        errors : {"raise", "skip"}
            What to do about rows that cannot be read. "raise": an error in their place. "skip": a
            warning, and batches without them; later batches keep their rows. A batch that loses all
            rows in a pipeline is left out.
        max_lost : int or fraction, optional
            How many rows of an epoch, or which fraction, ``errors="skip"`` may leave out before it
            raises. ``loader.stats().n_lost`` counts them.
        pipeline : pipeline, callable, mapping from source to callable, or list, optional
            Transforms; see `labeled.transforms`. A callable, or a mapping of them, transforms
            labelled examples one by one, or whole batches if it has a parameter ``rows`` or is
            marked by `labeled.transforms.whole`. Steps of samples and collation run in `threads`
            threads of their own, several batches at a time; the ``batch`` step runs where batches
            are handed out. With a `device`, steps of samples still run on the host, and the
            ``batch`` step on device arrays. With ``errors="skip"``, samples that raise ReadError or
            UnfitPictureError (smaller than a crop, undecodable) are left out. Padded rows pass
            through it as row -1. `memory` counts what goes in, and what is made by
            `labeled.transforms` and by functions marked with `labeled.transforms.takes`.
        device : "cpu", "cuda", "cuda:<n>" or Device
            Where batches are made. Windows are copied to the device from pinned memory in the
            file's dtype; batches are cut, cast, scaled and laid out there, on the consumer's
            current stream. Order and values equal those of "cpu". Ragged examples and values to
            decode are prepared on the host; text stays there. Needs CuPy.
        pinned : bool
            With ``output="torch"``: copy host tensors into pinned memory if torch finds a CUDA
            device; without one a warning says so and tensors stay in ordinary memory.

        Returns
        -------
        Loader
            Re-iterable: each ``for`` is the next epoch.

        Raises
        ------
        LoaderError
            If a size, shard, cast or option is impossible, or `memory` is too small. Nothing is
            read before, except the labels of `balance`.
        OptionError
            If an option does not exist.
        SpecsError
            If the specs do not fit the sources.

        Examples
        --------
        >>> import numpy as np, os, tempfile, labeled
        >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
        >>> arrays = {"x": np.arange(20.0).reshape(10, 2), "y": np.arange(10) % 2}
        >>> ds = labeled.open_dataset(labeled.write(path, arrays))
        >>> loader = ds.batches(4, shuffle=True, seed=7)
        >>> [batch.count for batch in loader]
        [4, 4, 2]
        >>> x, y = next(iter(ds.batches(4, as_tuple=True, one_hot={"y": 2})))
        >>> x.shape, y.shape
        ((4, 2), (4, 2))
        """
        if self.resident is not None and options.device in ("cpu", self.resident.name):
            options = options.on(self.resident)
        if not self.sources:
            raise LoaderError(f"{self.where} has no source to make batches of; print(ds) shows why")
        for source in self._sources.values():
            if "batch" in source.dims[1:]:
                raise LoaderError(
                    f"axis {source.dims.index('batch')} of {source.where} is called 'batch', but "
                    "rows are counted along axis 0; labeled.batches(ds.to_xarray(), 64, "
                    "dim='batch') takes any axis"
                )
        try:
            n_rows = self.n_rows
        except SplitError as error:
            raise LoaderError(f"cannot make batches: {error}") from None
        spaces = self.spaces if options.lays_out else {}
        return Loader(LoaderPlan(self._sources, self._rows, spaces, n_rows, options))

    def as_provider(
        self,
        batch_size: int = 0,
        *,
        data: Names | None = None,
        label: Names | None = None,
        **options: Any,
    ) -> LoaderProvider:
        """Return a :class:`~labeled.providers.DataProvider` of batches of data and labels.

        Parameters
        ----------
        batch_size : int
            Rows per batch; 0 makes one batch of all rows.
        data, label : str, sequence of str or mapping, optional
            Sources to provide; a mapping renames them (name -> source). By default sources called
            ``targets``, ``labels`` or similar are labels, the others data.
        **options
            `shuffle`, `seed`, `shard`, `window_rows`, `memory`, `threads`, `prefetch`, `dtype`,
            `scale`, `shift`, `errors`, `max_lost` and `device` as for :meth:`batches`;
            `data_padding`, `label_padding`, `roll_over` and `axes` as for
            :class:`labeled.providers.ArrayDataProvider`. What comes out of a pipeline is provided
            by :class:`labeled.providers.IteratorProvider` around its loader.

        Raises
        ------
        UnknownNameError
            If the source does not exist.
        LoaderError
            If an option is unknown or impossible, or a source ragged.
        """
        from labeled.providers import provider_of

        def served(used: list[str], size: int, **loading: Any) -> Loader:
            for source in map(self._sources.__getitem__, used):
                if source.ragged is not None:
                    raise LoaderError(
                        f"{source.where}: {source.ragged}; a provider has one shape for all: give "
                        "batches() a pipeline that makes it, and its loader to IteratorProvider"
                    )
            return self.select(*used).batches(size, **loading)

        return provider_of(served, self.shapes, (data, label), batch_size=batch_size, **options)

    @check_arguments()
    def statistics(self, source: str, *, progress: bool | None = None) -> dict[str, Any]:
        """Return count, mean, standard deviation, extremes and class counts of a source.

        They come from the file if it stores them for exactly these rows; otherwise every row is
        read, within 64 MiB of memory (examples of different shapes: what batches of them take).

        Parameters
        ----------
        source : str
        progress : bool, optional
            Show a progress bar. By default on a terminal and in a notebook, after two seconds.

        Returns
        -------
        dict
            ``n_rows``, ``n_values``, ``not_finite``, ``mean``, ``std``, ``min``, ``max``: lists
            per channel if a dim, named ``by``, means channels. ``classes`` (counts by class) if
            rows are single integers. Values that are not finite are left out.

        Raises
        ------
        ArrayError
            If the source holds no numbers.
        """
        from labeled.dataset.summary import statistics_of

        self._check_source(source)
        return statistics_of(self, source, progress)

    # files, and what others call things

    def close(self) -> None:
        """Close all files that the library keeps open, also those of other datasets.

        Seldom needed: few files are kept open, and later reads open them again. ``with
        labeled.open_dataset(path) as ds:`` closes them at its end.
        """
        close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # so that type checkers still refuse what is not there

        def __array__(self, *_: Any, **options: Any) -> Any:
            # NumPy would make an array of the names that iterating gives.
            raise SelectionTypeError(
                f"{self.where} is not one array: np.asarray(ds['x']) reads one source, and "
                "ds.batches(256, output='numpy') gives all of them batch by batch"
            )

    # looks

    @property
    def plot(self) -> DatasetPlots:
        """Plots: ``plot()`` of the first rows, ``plot.splits()``."""
        from labeled.dataset.summary import DatasetPlots

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

    def _summary(self) -> Summary:
        from labeled.dataset.summary import summary_of

        return summary_of(self)

    def _names(self) -> Iterable[str]:
        return self.sources


def spaces_of(
    sources: Mapping[str, Source], rows: Mapping[str, Selection], given: Mapping[str, Space]
) -> dict[str, Space]:
    """Return the space of each dense numeric source: the one given, or what dims and dtype say."""
    spaces = {}
    for name, source in sources.items():
        if source.ragged is not None:
            continue
        if name in given:
            spaces[name] = given[name]
        elif source.dtype.kind not in TEXT_KINDS:
            shape = (len(rows[name]), *source.row_shape)
            spaces[name] = space_of(source.dims, shape, source.dtype, name=name)
    return spaces


def _names_of(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return names given one by one, or all in one list."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given


def shared_options(dataset: Dataset, options: Mapping[str, Any], deals: str) -> dict[str, Any]:
    """Check options of ``batches`` by making a loader of them, and fix what all parts share.

    That is the seed, and the batches of a sampler, which may list others when it is asked again.

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
    sampler, pipeline = loader.plan.options.sampler, loader.plan.pipeline
    listed = {} if sampler is None else {"sampler": sampler}
    seeded = sampler is None or (pipeline is not None and pipeline.draws)
    return {**options, **listed, **({"seed": loader.seed} if seeded else {})}
