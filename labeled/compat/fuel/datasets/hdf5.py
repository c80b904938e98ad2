"""`H5PYDataset`: splits of an HDF5 file, by the old rules, read by this library.

What may be asked for, what is sorted and what is refused follows the old class in each
mode; so do the handles, which all datasets of a process share by path and count. How rows
get from the file to an array does not. What lies on a disk and is open for reading only is read by
byte range, outside HDF5; files in memory, or open for writing, are read through their handle.
Either way a list of rows is read in file order, each row once, and put into the order asked for.

Examples of different shapes come in three layouts: Fuel's own (rows of variable length with
a scale ``shapes``), plain rows of variable length, and this library's flat layout.
"""

from __future__ import annotations

import numbers
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import h5py
import numpy as np

from labeled.compat.errors import check, old
from labeled.compat.fuel.datasets.base import Dataset
from labeled.compat.fuel.schemes import SequentialExampleScheme
from labeled.compat.fuel.utils import Subset, cache_file, do_not_pickle_attributes
from labeled.errors import DimsError
from labeled.formats.bytesource import stamp_of
from labeled.formats.format import Options
from labeled.formats.hdf5.arrays import ArrayInfo, Opening
from labeled.formats.hdf5.fuel import TABLE, SplitTable, read_table, split_array
from labeled.formats.hdf5.headers import describe
from labeled.formats.hdf5.metadata import example_dims, is_flat, part_paths
from labeled.formats.hdf5.safety import resolve, to_bytes, to_text
from labeled.formats.reader import read_rows
from labeled.formats.region import Ints
from labeled.selection import Selection
from labeled.sources.source import Source, load_rows


@do_not_pickle_attributes(
    "data_sources",
    "external_file_handle",
    "source_shapes",
    "in_memory_subset",
    "subsets",
    "opened_rows",
)
class H5PYDataset(Dataset):
    """Some splits of a file that has a split table.

    Parameters
    ----------
    file_or_path : h5py.File or path
        A file that is open is used as it is, and never closed.
    which_sets : iterable of str
        Splits, joined in file order; rows that several have count once.
    subset : slice or list of int, optional
        Which of the joined rows; a list is sorted, and rows named twice count once.
        Anything that is false, an empty list as well, means all.
    load_in_memory : bool
        Read the rows now.
    driver : str, optional
        Of `h5py.File`.
    sort_indices : bool
        Whether a list of rows may be asked for in any order, out of memory.
    sources : container of str, optional
        Which sources, in the order wanted; all that the splits share if not given.
    axis_labels : dict, optional
        In the place of those in the file.

    Attributes
    ----------
    data_sources : tuple of arrays or None
        The rows in memory.
    source_shapes : tuple or None
        The shapes of examples in memory; None for sources that have one shape.
    subsets : list of Subset
        The rows of each source.
    vlen_sources : list of str
        Sources of the file whose examples have shapes of their own.

    Raises
    ------
    ValueError
        If a split or a source is unknown, rows lie outside a source, sources differ in
        their number of rows, or `which_sets` is a single text.
    TypeError
        If `which_sets` is empty.
    KeyError
        If the file has no split table, lacks a source that the table names, or has no
        labels for the axes of a source of variable length.
    OSError
        If the file cannot be opened.
    """

    interface_version = "0.3"
    _ref_counts: ClassVar[dict[str, int]] = defaultdict(int)
    _file_handles: ClassVar[dict[str, h5py.File]] = {}

    data_sources: Any
    source_shapes: Any

    def __init__(
        self,
        file_or_path: Any,
        which_sets: Iterable[str],
        subset: Any = None,
        load_in_memory: bool = False,
        driver: str | None = None,
        sort_indices: bool = True,
        **kwargs: Any,
    ) -> None:
        given = isinstance(file_or_path, h5py.File)
        self.external_file_handle = file_or_path if given else None
        self.path = file_or_path.filename if given else cache_file(os.fsdecode(file_or_path))
        named = not isinstance(which_sets, str) and all(isinstance(one, str) for one in which_sets)
        check(named, f"which_sets are names of splits, found {which_sets!r}")
        self.which_sets, self.sort_indices = which_sets, sort_indices
        self.user_given_subset = subset if subset else slice(None)
        self.load_in_memory, self.driver = load_in_memory, driver

        self._out_of_memory_open()
        file = self._file_handle
        table = _table_of(file)
        names = tuple(which_sets)
        check(names, "which_sets is empty; name at least one split", TypeError)
        unknown = [name for name in names if name not in table.splits]
        check(not unknown, f"there are the splits {table.splits}, not {unknown}")
        common: set[str] = set()
        for name in names:  # where nothing is common so far, the next split begins anew
            here = set(self.get_provided_sources(file, name))
            common = common & here if common else here
        self.provides_sources = tuple(sorted(common))
        self.vlen_sources = self.get_vlen_sources(file)
        self.default_axis_labels = self.get_axis_labels(file)
        self._out_of_memory_close()

        kwargs.setdefault("axis_labels", self.default_axis_labels)
        super().__init__(**kwargs)
        self.example_iteration_scheme = SequentialExampleScheme(self.num_examples)

    # ------------------------------------------------------------ what a file tells
    @staticmethod
    def create_split_array(split_dict: Mapping[str, Mapping[str, Sequence[Any]]]) -> Any:
        """Return the value of the root attribute ``split``.

        Parameters
        ----------
        split_dict : dict of split to dict of source to tuple
            ``(start, stop)``, then perhaps a reference to row numbers (or None), then perhaps
            a comment. What a split does not name is not available in it.

        Returns
        -------
        structured array (splits x sources,)
            Texts are as many *bytes* as the longest has *characters*, so that names beyond
            ASCII are cut; :func:`labeled.formats.hdf5.fuel.split_array` never cuts a name.

        Raises
        ------
        ValueError
            If nothing is named, or a tuple has less than two items.
        TypeError
            If a comment is None.
        """
        four = {
            split: {source: tuple(pair)[:4] for source, pair in by_source.items()}
            for split, by_source in split_dict.items()
        }
        table = split_array(four)
        given = [pair for by_source in split_dict.values() for pair in by_source.items()]
        texts = {
            "split": list(split_dict),
            "source": [source for source, _ in given],
            "comment": [pair[3] for _, pair in given if len(pair) == 4],  # not of longer ones
        }
        kinds = {name: f"S{max(1, *map(len, found), 1)}" for name, found in texts.items()}
        fields = [(name, kinds.get(name, table.dtype[name])) for name in table.dtype.names]
        return table.astype(fields)

    @staticmethod
    def get_all_splits(h5file: h5py.File) -> tuple[str, ...]:
        """Return the names of all splits."""
        return _table_of(h5file).splits

    @staticmethod
    def get_all_sources(h5file: h5py.File) -> tuple[str, ...]:
        """Return the names of all sources of the split table."""
        return _table_of(h5file).sources

    @staticmethod
    def get_provided_sources(h5file: h5py.File, split: str) -> tuple[str, ...]:
        """Return the sources that are available in a split, in the order of the table."""
        rows = _table_of(h5file).rows
        return tuple(row.source for row in rows if row.split == split and row.available)

    @staticmethod
    def get_vlen_sources(h5file: h5py.File) -> list[str]:
        """Return the sources whose examples have shapes of their own."""
        return [name for name in _table_of(h5file).sources if parts_of(h5file, name)]

    @staticmethod
    def get_axis_labels(h5file: h5py.File) -> dict[str, tuple[str, ...]]:
        """Return the names of the axes of all sources; a name that is not set is empty."""
        return {name: labels_of(h5file, name) for name in _table_of(h5file).sources}

    @staticmethod
    def get_subsets(
        h5file: h5py.File, splits: Iterable[str], sources: Iterable[str]
    ) -> list[Subset]:
        """Return the rows of each source in all splits together: sorted, each once.

        Raises
        ------
        ValueError
            If a split and a source have no row in the table, or rows lie outside the source.
        """
        table = {(row.split, row.source): row.rows for row in _table_of(h5file).rows}
        splits, result = tuple(splits), []
        for source in sources:
            n = rows_of(h5file, source)
            subset = Subset.empty_subset(n)
            for split in splits:
                check((split, source) in table, f"split {split!r} has no source {source!r}")
                rows = table[split, source]
                is_run = isinstance(rows, range)
                own = slice(rows.start, rows.stop) if is_run else h5file[rows][...].tolist()
                subset = subset + Subset(own, n)
            result.append(subset)
        return result

    # ------------------------------------------------------------ handles
    @property
    def _file_handle(self) -> h5py.File:
        if self.external_file_handle:
            return self.external_file_handle
        check(self.path in self._file_handles, f"{self.path!r} is closed: call open()", OSError)
        return self._file_handles[self.path]

    def _out_of_memory_open(self) -> None:
        if self.external_file_handle:
            return
        if self.path not in self._file_handles:
            self._file_handles[self.path] = h5py.File(self.path, mode="r", driver=self.driver)
        self._ref_counts[self.path] += 1

    def _out_of_memory_close(self) -> None:
        if self.external_file_handle:
            return
        self._ref_counts[self.path] -= 1
        if not self._ref_counts[self.path]:
            del self._ref_counts[self.path]
            self._file_handles.pop(self.path).close()

    def open(self) -> Any:
        """Open the file, or count one more user of it; nothing in memory."""
        if not self.load_in_memory:
            self._out_of_memory_open()

    def close(self, state: Any) -> None:
        """Count one user less; the file is closed with the last."""
        if not self.load_in_memory:
            self._out_of_memory_close()

    # ------------------------------------------------------------ rows
    def load(self) -> None:
        """Find the rows of all sources, and read them where they are to be in memory."""
        self.__dict__.setdefault("_external_file_handle", None)
        self._out_of_memory_open()
        file = self._file_handle
        joined = self.get_subsets(file, self.which_sets, self.sources)
        counts = [subset.num_examples for subset in joined]
        check(len(set(counts)) == 1, f"sources {self.sources} have different lengths: {counts}")
        self.subsets = [Subset.subset_of(subset, self.user_given_subset) for subset in joined]
        self.data_sources = self.source_shapes = None
        if self.load_in_memory:
            self.data_sources = self._indexed(self._rows_of(file), slice(None))
            self.source_shapes = tuple(
                np.array([one.shape for one in values]) if name in self.vlen_sources else None
                for name, values in zip(self.sources, self.data_sources, strict=True)
            )
        self._out_of_memory_close()
        self.in_memory_subset = Subset(slice(None), self.num_examples)

    @property
    def num_examples(self) -> int:
        return self.subsets[0].num_examples

    def get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        """Return the rows of a request, a tuple of arrays by source.

        Parameters
        ----------
        state : None
        request : int, slice or list of int
            An int gives one row without its axis; rows of a list come in the order asked.

        Raises
        ------
        ValueError
            If the request is none of these, empty, negative or out of range.
        TypeError
            If, out of memory, rows are repeated, or not ascending without `sort_indices`.
        """
        if self.load_in_memory:
            return self._in_memory_get_data(state, request)
        return self._out_of_memory_get_data(state, request)

    def _in_memory_get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        check(state is None and request is not None, "give a request, and no state")
        subset = self.in_memory_subset
        return tuple(subset.index_within_subset(values, request) for values in self.data_sources)

    def _out_of_memory_get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        if not isinstance(request, int | slice | list | numbers.Integral):
            raise old(ValueError, f"a request is an int, a slice or a list, not {request!r}")
        if not self.external_file_handle and self.path not in self._file_handles:
            self._out_of_memory_open()
        stored = self._rows_of(self._file_handle)
        request = _as_run(request) if isinstance(request, list) else request
        if isinstance(request, list):
            Subset._list_request_sanity_check(request, self.num_examples)
            _check_order(request, self.sort_indices)
        return self._indexed(stored, request)

    def _indexed(self, stored: list[StoredRows], request: Any) -> tuple[Any, ...]:
        pairs = zip(self.subsets, stored, strict=True)
        return tuple(subset.index_within_subset(rows, request) for subset, rows in pairs)

    def _rows_of(self, file: h5py.File) -> list[StoredRows]:
        """Return what reads each source; made once for each opening of the file."""
        opened, rows = self.__dict__.get("_opened_rows", (None, []))
        if opened is not file:
            rows = [StoredRows(file, name) for name in self.sources]
            self._opened_rows = (file, rows)
        return rows  # type: ignore[no-any-return]  # from __dict__


def _table_of(file: h5py.File) -> SplitTable:
    """Return the split table of a file.

    Raises
    ------
    KeyError
        If it has none.
    """
    table = read_table(file)
    if table is None:
        made = "H5PYDataset.create_split_array()"
        raise old(KeyError, f"{file.filename!r} has no attribute {TABLE!r}, which {made} returns")
    return table


def _as_run(request: list[Any]) -> list[Any] | slice:
    """Return a list of consecutive rows as a slice: how sequential schemes ask for them.

    Read as a list they take 1.6 times as long (128 rows of 3 KiB, contiguous or in chunks).
    """
    if len(request) < 2 or not isinstance(request[0], int) or not isinstance(request[-1], int):
        return request
    run = range(request[0], request[-1] + 1)
    same = len(run) == len(request) and request == list(run)
    return slice(run.start, run.stop) if same else request


def _check_order(request: list[Any], sort_indices: bool) -> None:
    """Refuse what h5py refuses: repeated rows, and unsorted ones where they are not sorted."""
    rows = np.asarray(request)
    check(rows.dtype.kind in "iub", f"rows are whole numbers, not {rows.dtype}", TypeError)
    rows = np.sort(rows) if sort_indices else rows
    check((rows[1:] > rows[:-1]).all(), "rows repeat, or descend without sort_indices", TypeError)


# ---------------------------------------------------------------- files of PyTables
@do_not_pickle_attributes("nodes", "h5file")
class PytablesDataset(Dataset):
    """Rows ``[start, stop)`` of arrays below a group; PyTables is not needed to read them.

    Parameters
    ----------
    path : path
    sources : sequence of str
    start, stop : int, optional
        The window; all rows if not given.
    data_node : str
        The group.
    sources_in_file : sequence of str, optional
        What the arrays are called in the file; as `sources` if not given.
    """

    def __init__(
        self,
        path: Any,
        sources: Sequence[str],
        start: int = 0,
        stop: int | None = None,
        data_node: str = "Data",
        sources_in_file: Sequence[str] | None = None,
    ) -> None:
        self.provides_sources = tuple(sources)
        self.sources_in_file = tuple(sources if sources_in_file is None else sources_in_file)
        super().__init__(self.provides_sources)
        self.path, self.data_node, self.start = path, data_node, start
        self.stop: int = len(self.nodes[0]) if stop is None else stop
        self.num_examples = self.stop - start
        self.example_iteration_scheme = SequentialExampleScheme(self.num_examples)

    def load(self) -> None:
        """Open the file and find the arrays."""
        self.h5file = h5py.File(self.path, "r")
        group = "/" + self.data_node.strip("/")
        self.nodes = [StoredRows(self.h5file, f"{group}/{name}") for name in self.sources_in_file]

    def close_file(self) -> None:
        """Close the file; it is opened again when rows are asked for."""
        self.h5file.close()
        for name in ("_h5file", "_nodes"):
            self.__dict__.pop(name, None)

    def get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        """Return rows of the window: a slice or a list of int."""
        check(isinstance(request, slice | list), f"ask by a slice or a list, not {request!r}")
        window = Subset(slice(self.start, self.stop), self.stop)
        return tuple(window.index_within_subset(node, request) for node in self.nodes)


# ---------------------------------------------------------------- rows of one source
SHARED_BYTES = 1 << 21  # from this size on, decoding is shared among threads


class StoredRows:
    """Rows of a source of an open file; indexed as old code indexed datasets.

    Parameters
    ----------
    file : h5py.File
        Rows are read by byte range where it is on a disk and open for reading only.
    name : str
    """

    def __init__(self, file: h5py.File, name: str) -> None:
        self.dataset, self.parts = file[to_bytes(name)], parts_of(file, name)
        self.shape: tuple[int, ...] = (rows_of(file, name), *self.dataset.shape[1:])
        self.dtype: np.dtype[Any] = self.dataset.dtype
        self.source = _source(file, name)
        wrong = f"{file.filename!r}: open it for reading, to read {name!r}"
        check(self.source is not None or "offsets" not in self.parts, wrong, OSError)
        if self.source is not None:
            ragged = self.source.ragged is not None
            self.reader: Any = self.source.examples() if ragged else self.source.reader()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, request: Any) -> Any:
        """Return the rows of a slice, or one row without its axis."""
        if isinstance(request, slice):
            return self.take_rows(range(*request.indices(len(self))))
        return self.take_rows(range(request, request + 1))[0]

    def take_rows(self, rows: Any) -> Any:
        """Return listed rows or those of a range, in any order and as often as they are listed."""
        rows = rows if isinstance(rows, range) else np.asarray(rows, np.int64)
        if self.source is None:
            found = _from_handle(self.dataset, rows)
            if "shapes" in self.parts:
                for place, shape in enumerate(_from_handle(self.parts["shapes"], rows).tolist()):
                    found[place] = found[place].reshape(shape)
            return found
        if self.source.ragged is not None:
            return self.reader.read_flat(rows).examples()
        if self.source.layout.expensive and len(rows) * self.source.row_bytes > SHARED_BYTES:
            values = load_rows(self.source, Selection.of(rows), min(4, os.cpu_count() or 1))
        else:
            values = read_rows(self.reader, rows)
        return values.astype(self.dtype, copy=False)


def _source(file: h5py.File, name: str) -> Source | None:
    """Return a source of a file on a disk; None where only HDF5 reads it.

    Raises
    ------
    UnsafeFileError
        If it lies outside the file, behind a link as well: its bytes are not where this file's are.
    """
    if file.mode != "r" or not _is_at_its_path(file):
        return None
    opening = Opening(file["/"], stamp_of(file.filename), Options(), name_all=True)
    try:
        header = describe(opening, ArrayInfo(name, name, resolve(opening.base, name).thing)).header
    except DimsError:  # axes of one name, which native sources have not
        return None
    plain = header.storage in ("contiguous", "chunked", "empty") and not header.dtype.hasobject
    return Source.of((header,)) if plain or header.ragged is not None else None


def _is_at_its_path(file: h5py.File) -> bool:
    """Whether a file is on a disk where its name says: another may have been put in its place."""
    try:
        held = os.fstat(file.id.get_vfd_handle()) if file.driver == "sec2" else None
        return held is not None and os.path.samestat(held, os.stat(file.filename))
    except OSError:
        return False


def _from_handle(dataset: h5py.Dataset, rows: range | Ints) -> Any:
    """Read rows through HDF5, listed ones in ascending order."""
    if isinstance(rows, range):
        return dataset[rows.start : rows.stop : rows.step]
    return Subset.sorted_fancy_indexing(dataset, rows)


def parts_of(file: h5py.File, name: str) -> dict[str, h5py.Dataset]:
    """Return the datasets that tell the shapes of a source's examples, by role; none if it is one.

    Raises
    ------
    ValueError
        If examples have shapes of their own, and the source more axes than one.
    """
    dataset, parts = file[to_bytes(name)], dict[str, h5py.Dataset]()
    if dataset.shape and is_flat(dataset):
        parts = {role: file[to_bytes(path)] for role, path in part_paths(dataset, name).items()}
    elif dataset.shape and "shapes" in [*dataset.dims[0].keys()]:
        parts = {"shapes": dataset.dims[0]["shapes"]}
    check(not parts or dataset.ndim == 1, f"examples of {name!r} lie along {dataset.ndim} axes")
    return parts


def rows_of(file: h5py.File, name: str) -> int:
    """Return how many examples a source has."""
    parts = parts_of(file, name)
    return len(parts["offsets"]) - 1 if "offsets" in parts else len(file[to_bytes(name)])


def labels_of(file: h5py.File, name: str) -> tuple[str, ...]:
    """Return the names of a source's axes; a name that is not set is empty."""
    dataset, parts = file[to_bytes(name)], parts_of(file, name)
    if "offsets" in parts:
        return example_dims(dataset, parts["shapes"].shape[1] if "shapes" in parts else 1)
    own = tuple(dim.label for dim in dataset.dims)
    if not parts:
        return own
    listed = dataset.dims[0]["shape_labels"][...].tolist()
    return (own[0], *(to_text(bytes(label)) for label in listed))
