"""What a loader hands out when no specs are given: labelled arrays by source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import xarray as xr
from dask.utils import format_bytes

from labeled.device import Event, permute_dims
from labeled.dims import EXAMPLE_DIMS
from labeled.display.plots import Axes
from labeled.display.text import ClassNames, ExampleInfo, Summary, Table, Viewed, sizes_words
from labeled.errors import UnknownNameError, did_you_mean
from labeled.sources.source import Array, Rows
from labeled.transforms.sample import data_array


class Batch(Viewed, Mapping[str, xr.DataArray]):
    """Rows handed out together: a mapping from source to DataArray.

    ``batch["x"]`` is a DataArray, ``batch.arrays["x"]`` the plain array behind it.
    ``batch.count`` is the number of rows and ``batch.rows`` says which rows they are;
    ``len(batch)`` and ``list(batch)`` are about sources: ``for x, y in loader`` gives names, and
    arrays only with ``batches(..., as_tuple=True)``. A batch never changes while it, or one of its
    arrays, is in use.

    Parameters
    ----------
    arrays : mapping of str to array
        By source; the example axis comes first, unless `info` has another.
    dims : mapping of str to tuple of str
    rows : callable or array
        The row numbers, or a function that computes them when needed.
    count : int
        Number of real rows; less than the length only if the batch was padded.
    info : mapping of str to ExampleInfo, optional
        Class names and dims of examples, as stored in the file; used by plots.

    Attributes
    ----------
    arrays : mapping of str to array
        The plain arrays by source, without dims.
    event : Event or None
        On a device: done once the arrays are complete. Work on the stream that was current when
        the batch was handed out need not wait for it.
    """

    __slots__ = ("_dims", "_rows", "arrays", "count", "event", "info")

    def __init__(
        self,
        arrays: Mapping[str, Array],
        dims: Mapping[str, tuple[str, ...]],
        rows: Callable[[], Rows] | Rows,
        count: int,
        info: Mapping[str, ExampleInfo] | None = None,
    ) -> None:
        self.arrays = arrays
        self.info = info or {}
        self._dims = dims
        self._rows = rows
        self.count = count
        self.event: Event | None = None

    def with_arrays(self, arrays: Mapping[str, Array]) -> Batch:
        """Return the same rows with their values held elsewhere."""
        return Batch(arrays, self._dims, self._rows, self.count, self.info)

    def part(self, places: Rows) -> Batch:
        """Return some of the rows, by their places in this batch."""
        arrays = {}
        for name, array in self.arrays.items():
            axis = self.info[name].batch_axis if name in self.info else 0
            along: tuple[Any, ...] = (slice(None),) * axis
            arrays[name] = array[(*along, places)]
        count = int((places < self.count).sum())
        return Batch(arrays, self._dims, self.rows[places], count, self.info)

    def examples_first(self) -> Batch:
        """Return the same batch with the example axis of each array first; no value is copied."""
        arrays, dims, known = dict(self.arrays), dict(self._dims), dict(self.info)
        for name, info in self.info.items():
            if info.batch_axis and name in arrays:
                own, axis = dims[name], info.batch_axis
                order = (axis, *(at for at in range(len(own)) if at != axis))
                arrays[name] = permute_dims(arrays[name], order)
                dims[name] = tuple(own[at] for at in order)
                known[name] = replace(info, batch_axis=0)
        return Batch(arrays, dims, self._rows, self.count, known)

    @property
    def rows(self) -> Rows:
        """Row numbers in the dataset that ``batches`` was called on; -1 for padded rows."""
        if callable(self._rows):
            self._rows = self._rows()
        return self._rows

    def __getitem__(self, name: str) -> xr.DataArray:
        try:
            array = self.arrays[name]
        except KeyError:
            hint = did_you_mean(str(name), self.arrays)
            if name != str(name):
                hint = f"{hint}. A batch takes names: batch['x'][0] is the first row of source 'x'"
            raise UnknownNameError(f"no source {name!r} in this batch; {hint}") from None
        labelled = data_array(array, self._dims[name], name)
        info = self.info.get(name)
        if info is not None and info.example_dims and array.dtype == object:
            labelled.encoding = {EXAMPLE_DIMS: info.example_dims}
        return labelled

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows themselves, not how they are worked out, once nothing is on its way."""
        if self.event is not None:
            self.event.wait()
        return Batch, (dict(self.arrays), dict(self._dims), self.rows, self.count, self.info)

    def to_xarray(self) -> xr.Dataset:
        """Return the batch as an xarray.Dataset in memory; nothing is copied.

        A dim becomes ``<source>_<dim>`` where it is longer or shorter than in a source before, or
        where examples of either are padded: these lengths change from batch to batch.
        """
        variables, lengths = {}, dict[str, tuple[str, int]]()
        for name, array in self.arrays.items():
            source, dims = name.removesuffix("_mask"), list[str]()
            source = source if source in self.arrays else name
            for axis, dim in enumerate(self._dims[name]):
                padded = source if axis and f"{source}_mask" in self.arrays else ""
                length = padded, array.shape[axis]
                alike = lengths.setdefault(dim, length) == length
                dims.append(dim if alike else f"{source}_{dim}")
            variables[name] = dims, array
        return xr.Dataset(variables)

    def plot(
        self,
        source: str | None = None,
        *,
        n: int | None = None,
        class_names: ClassNames | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw a source: images as a grid, sequences as lines, labels and values as histograms.

        Parameters
        ----------
        source : str, optional
            By default the first of images, sequences, labels that there are.
        n : int, optional
            How many rows to draw: 16 images or 8 sequences by default.
        class_names : list or mapping, optional
            Names of the classes, instead of those in the file (the attribute ``class_names`` of
            the labels, or CF's ``flag_meanings``).
        ax : matplotlib axes, optional
            Axes to draw into; new ones by default.

        Returns
        -------
        matplotlib axes

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        UnknownNameError, ArrayError
            If the source does not exist, or does not hold numbers.
        """
        from labeled.display.plots import Drawn, draw_batch

        first = self.examples_first()
        drawn = Drawn(first.arrays, first._dims, self.count, self.info)
        return draw_batch(drawn, source, lambda: self.rows, n, class_names, ax)

    def _summary(self) -> Summary:
        rows, n_padded = self.rows, len(self.rows) - self.count
        about = f"count={self.count}" + (f" and {n_padded:,} of padding" if n_padded > 0 else "")
        if self.count:
            shown = ", ".join(map(str, rows[: min(4, self.count)].tolist()))
            about += f": rows {shown}" + (", ..." if self.count > 4 else "")
        lines = []
        for name, array in self.arrays.items():
            dims, dtype, nbytes = self._dims[name], str(array.dtype), array.nbytes
            if array.dtype.kind == "O":  # examples of different shapes, or text
                dims = (*dims, *self.info.get(name, ExampleInfo()).example_dims)
                dtype = str(getattr(array[0], "dtype", "text")) if len(array) else "object"
                nbytes = sum(getattr(one, "nbytes", len(str(one))) for one in array)
            words = sizes_words(dims, array.shape)
            lines.append((name, words, dtype, format_bytes(nbytes)))
        table = Table(("source", "dims", "dtype", "size"), lines)
        return Summary("labeled.Batch", about, (table,))

    def _names(self) -> Iterable[str]:
        return self.arrays
