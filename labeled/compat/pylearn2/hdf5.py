"""HDF5 files as datasets: by the names of sources and their spaces, and as a design matrix.

`HDF5Dataset` could not be made on Python 3. This one works, with its rules: aliases,
what `get` takes and gives. Iterators read all rows of a batch at once, in every mode.

The older class reads the rows of a batch through a mask over axis 0. So shuffled batches come
back in file order and repeats collapse, whatever the mode promised; and a mask as long as an
epoch has examples does not fit a file of another length, as in random modes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from labeled.compat.errors import OldIndexError, OldKeyError, require
from labeled.compat.pylearn2.datasets import (
    DEFAULT_RNG,
    Dataset,
    DefaultViewConverter,
    DenseDesignMatrix,
    _has_nan,
    converter_for,
)
from labeled.compat.pylearn2.iteration import FiniteDatasetIterator
from labeled.compat.pylearn2.space import CompositeSpace
from labeled.compat.pylearn2.utils import make_np_rng
from labeled.dataset.opening import open_dataset
from labeled.errors import LabeledWarning


class HDF5Dataset(Dataset):
    """Sources of an HDF5 file, each in a space.

    Parameters
    ----------
    filename : path
    sources : list of str
        Paths of datasets in the file. Without a list, this makes the older
        `HDF5DatasetDeprecated`, as it used to.
    spaces : list of Space
        One a source.
    aliases : list of str or None, or dict, optional
        Other names for sources; in specs and iterators they replace the names.
    load_all : bool
        Read everything into memory first.
    cache_size, use_h5py
        Without meaning here.
    rng : seed or RandomState
        What default epochs draw from.
    """

    def __new__(cls, filename: Any, sources: Any = None, *args: Any, **options: Any) -> Any:
        if cls is HDF5Dataset and not isinstance(sources, list) and "spaces" not in options:
            given = () if sources is None else (sources,)
            return HDF5DatasetDeprecated(filename, *given, *args, **options)
        return super().__new__(cls)

    def __init__(
        self,
        filename: str | os.PathLike[str],
        sources: list[str],
        spaces: list[Any],
        aliases: Any = None,
        load_all: bool = False,
        cache_size: int | None = None,
        use_h5py: bool | str = "auto",
        rng: Any = DEFAULT_RNG,
    ) -> None:
        require(isinstance(sources, list), f"sources must be a list, found {sources!r}")
        require(isinstance(spaces, list), f"spaces must be a list, found {spaces!r}")
        require(len(sources) == len(spaces), f"{len(spaces)} spaces for {len(sources)} sources")
        self.spaces, self.sources = spaces, sources
        if aliases is not None and not isinstance(aliases, dict):
            require(len(aliases) == len(sources), f"{len(aliases)} aliases for {len(sources)}")
            aliases = dict(zip(sources, aliases, strict=True))
        named = ({} if aliases is None else aliases).items()
        self.aliases = {name: alias for name, alias in named if alias is not None}
        self.rng = make_np_rng(rng, which_method=["randint", "shuffle"])
        self._stored = {name: FileRows(filename, name, load_all) for name in sources}

    def __getnewargs__(self) -> tuple[Any, ...]:
        return ("", [], [])

    @property
    def _iter_data_specs(self) -> Any:
        return self.get_data_specs()

    def get_data_specs(self) -> Any:
        names = tuple(self.aliases.get(name, name) for name in self.sources)
        if len(names) == 1:
            return self.spaces[0], names[0]
        return CompositeSpace(self.spaces), names

    def get_num_examples(self) -> int:
        return len(self._stored[self.sources[0]])

    def get_data(self) -> Any:
        """Return every row of every source."""
        data = self._get_rows(self.sources, slice(None))
        return data if len(data) > 1 else data[0]

    def get(self, sources: Sequence[str], indexes: Any) -> tuple[Any, ...]:
        """Return rows of some sources.

        Parameters
        ----------
        sources : tuple of str
            By name or alias.
        indexes : int, slice, or list or tuple of int
            A list of several makes a list of rows.

        Raises
        ------
        OldAssertionError
            If `indexes` is an array, or empty.
        OldKeyError
            If there is no such source.
        """
        if isinstance(indexes, slice | int | np.integer):
            return self._get_rows(sources, indexes)
        require(isinstance(indexes, list | tuple), f"rows are listed in a list, found {indexes!r}")
        require(len(indexes) > 0, "no rows are asked for")
        found = self._get_rows(sources, list(indexes))
        return found if len(indexes) == 1 else tuple(map(list, found))

    def _get_rows(self, sources: Sequence[str], rows: Any) -> tuple[Any, ...]:
        """Return the rows of a batch, in order: what iterators use."""
        known = {self.aliases.get(name, name): stored for name, stored in self._stored.items()}
        known |= self._stored
        unknown = [name for name in sources if name not in known]
        if unknown:
            raise OldKeyError(f"no sources {unknown}; there are {list(known)}")
        return tuple(known[name][rows] for name in sources)


class FileRows:
    """One source of a file, its rows read when they are asked for.

    Files need no labels, splits or attributes: every dataset is a source, named by its path,
    and axis 0 counts examples.

    Parameters
    ----------
    filename : path
    name : str
        Path of the dataset in the file.
    in_memory : bool
        Read everything at once.
    """

    def __init__(self, filename: str | os.PathLike[str], name: str, in_memory: bool) -> None:
        self._source = name.strip("/")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LabeledWarning)  # old files name no axes
            opened = open_dataset(filename)
        if self._source not in opened.sources:
            raise OldKeyError(
                f"no source {name!r} in {os.fspath(filename)!r}; there are {list(opened.sources)}"
            )
        chosen = opened.select(self._source)
        self._dataset = chosen.load() if in_memory else chosen
        self.shape = chosen.shapes[self._source]
        self.ndim, self.dtype = len(self.shape), chosen.dtypes[self._source]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Return rows in the order asked for: an int gives one row without its axis."""
        single = isinstance(rows, int | np.integer)
        loaded = self._dataset.subset([rows] if single else rows).load().loaded
        assert loaded is not None, "it was loaded just now"
        array = loaded[self._source]
        return array[0] if single else array

    def max(self, initial: Any) -> Any:
        """Return the highest value of all rows."""
        return self[:].max(initial=initial)


class ImageRows:
    """Stored images as rows of a design matrix, flattened batch by batch, channel by channel."""

    def __init__(self, images: Any, converter: DefaultViewConverter) -> None:
        self.images, self.converter = images, converter
        self.shape = (int(images.shape[0]),) * 2  # as wide as there are examples, as was said
        self.ndim = 2
        self.dtype = images.dtype

    def __getitem__(self, rows: Any) -> Any:
        return self.converter.topo_view_to_design_mat(self.images[rows])


class HDF5DatasetDeprecated(DenseDesignMatrix):
    """A design matrix, or images, and targets in an HDF5 file.

    Parameters
    ----------
    filename : path
    X, topo_view, y : str
        Paths of datasets in the file; `X` or `topo_view`.
    load_all : bool
        Read everything into memory first.
    cache_size
        Without meaning here.
    axes : sequence of four
        Of the stored images; the batch axis first.
    **options
        Of `DenseDesignMatrix`.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        X: str | None = None,
        topo_view: str | None = None,
        y: str | None = None,
        load_all: bool = False,
        cache_size: int | None = None,
        axes: Sequence[str | int] = ("b", 0, 1, "c"),
        **options: Any,
    ) -> None:
        require((X is None) != (topo_view is None), "give X or topo_view")
        rows: Any = None if X is None else FileRows(filename, X, load_all)
        targets = None if y is None else FileRows(filename, y, load_all)
        if topo_view is not None:
            images = FileRows(filename, topo_view, load_all)
            options["view_converter"] = converter_for(images, axes)
            rows = ImageRows(images, options["view_converter"])
        super().__init__(X=rows, y=targets, **options)

    def get_topological_view(self, mat: Any = None) -> Any:
        return super().get_topological_view(self.X[:] if mat is None else mat)

    def iterator(self, *args: Any, **options: Any) -> FiniteDatasetIterator:
        made = super().iterator(*args, **options)
        made._read = partial(self._masked, made)  # type: ignore[method-assign]  # per iterator
        return made

    def _masked(self, batches: FiniteDatasetIterator, rows: Any) -> list[Any]:
        """Return the rows of a batch, read through a mask."""
        mask = np.zeros(int(batches.num_examples), bool)
        mask[rows] = True
        there_are = self.get_num_examples()
        if mask.size != there_are:
            raise OldIndexError(f"a mask of {mask.size} rows does not fit a file of {there_are}")
        listed = np.flatnonzero(mask)
        found = [(self.X if name == "features" else self.y)[listed] for name in batches._source]
        for values in found:
            require(not _has_nan(values), f"rows {listed[:1]} and on hold NaN")
        return found
