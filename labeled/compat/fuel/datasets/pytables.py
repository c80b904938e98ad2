"""`PytablesDataset`: a window of the arrays in one group of an HDF5 file.

PyTables is not needed: its arrays are datasets like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from labeled.compat.fuel.datasets.base import Dataset
from labeled.compat.fuel.datasets.stored import StoredRows, stored_rows
from labeled.compat.fuel.exceptions import OldValueError
from labeled.compat.fuel.schemes import SequentialExampleScheme
from labeled.compat.fuel.utils import do_not_pickle_attributes


@do_not_pickle_attributes("nodes", "h5file")
class PytablesDataset(Dataset):
    """Rows ``[start, stop)`` of arrays below a group.

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

    nodes: Any
    h5file: Any

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
        self.stop: int = -1 if stop is None else stop
        self.load()
        if stop is None:
            self.stop = self.nodes[0].shape[0]
        self.num_examples = self.stop - self.start
        self.example_iteration_scheme = SequentialExampleScheme(self.num_examples)

    def load(self) -> None:
        """Open the file and find the arrays."""
        self.h5file = h5py.File(self.path, "r")
        group = "/" + self.data_node.strip("/")
        self.nodes = [stored_rows(self.h5file, f"{group}/{name}") for name in self.sources_in_file]

    def close_file(self) -> None:
        """Close the file; it is opened again when rows are asked for."""
        self.h5file.close()
        for name in ("_h5file", "_nodes"):
            self.__dict__.pop(name, None)

    def get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        """Return rows of the window: a slice or a list of int."""
        nodes: list[StoredRows] = self.nodes
        if isinstance(request, slice):
            stop = self.stop if request.stop is None else request.stop + self.start
            rows = slice((request.start or 0) + self.start, stop, request.step)
            return tuple(node[rows] for node in nodes)
        if isinstance(request, list):
            return tuple(self._listed(node, request) for node in nodes)
        raise OldValueError(f"rows are asked for by a slice or a list, found {request!r}")

    def _listed(self, node: StoredRows, request: list[int]) -> Any:
        return node.take_rows(np.asarray(request, np.int64) + self.start)
