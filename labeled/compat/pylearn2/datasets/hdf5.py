"""HDF5 files as datasets, by the names of sources and the spaces they are in.

The old class could not be made on Python 3. This one works, with its rules: aliases,
what `get` takes and gives. Iterators read all rows of a batch at once, in every mode.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.compat.errors import OldKeyError, require
from labeled.compat.pylearn2.datasets.dataset import Dataset
from labeled.compat.pylearn2.datasets.hdf5_deprecated import FileRows, HDF5DatasetDeprecated
from labeled.compat.pylearn2.datasets.vector_spaces_dataset import DEFAULT_RNG
from labeled.compat.pylearn2.space import CompositeSpace
from labeled.compat.pylearn2.utils.rng import make_np_rng

__all__ = ["HDF5Dataset", "HDF5DatasetDeprecated"]


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
        self.aliases = _aliases(sources, aliases)
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
        return tuple(self._of(name)[rows] for name in sources)

    def _of(self, name: str) -> FileRows:
        """Return what reads the source of a name or alias."""
        names = {alias: source for source, alias in self.aliases.items()}
        source = name if name in self._stored else names.get(name)
        if source is None:
            raise OldKeyError(
                f"no source {name!r}; there are {self.sources}, called {self.aliases}"
            )
        return self._stored[source]


def _aliases(sources: list[str], aliases: Any) -> dict[str, str]:
    if aliases is None:
        return {}
    if isinstance(aliases, dict):
        return {name: alias for name, alias in aliases.items() if alias is not None}
    require(len(aliases) == len(sources), f"{len(aliases)} aliases for {len(sources)} sources")
    pairs = zip(sources, aliases, strict=True)
    return {name: alias for name, alias in pairs if alias is not None}
