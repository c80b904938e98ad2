"""Names of axes written into a file: a label for every axis, and scales for netCDF readers.

Labels are all that the Fuel layout knows. A netCDF reader finds dims by dimension scales:
one with values where there are coordinates along a dim, else an empty one that takes no
space and is no variable. Where sources give one name several lengths (or coordinates), the
scales of the later ones are called ``<source>_<dim>``, since netCDF has one length a name;
labels stay as they are, and go first when this library reads.

A coordinate not called like its dim is, in a file without splits, a netCDF variable that
the attribute `coordinates` of its sources names. In a file with splits it is one more scale
of the axis, because only datasets that belong to a source exist there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import h5py

from labeled.formats.hdf5.fuel import free_name
from labeled.formats.hdf5.labels import NOT_A_VARIABLE
from labeled.formats.hdf5.own import OWN
from labeled.formats.hdf5.safety import to_bytes
from labeled.formats.hdf5.writing import file_dtype, set_attrs, set_label
from labeled.formats.region import Array


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate:
    """Values along one dim of a source."""

    name: str
    dim: str
    values: Array
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Any:
        """Something that is equal for coordinates that are the same."""
        values = self.values
        content = repr(values.tolist()) if values.dtype.kind == "O" else values.tobytes()
        return self.name, self.dim, values.dtype.str, len(values), content


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """The names of a source's axes, and the coordinates along them."""

    dims: tuple[str, ...]
    coords: tuple[Coordinate, ...] = ()


class ScaleWriter:
    """Names the axes of the sources of one open file, sharing scales where they are equal.

    Parameters
    ----------
    file : h5py.File
        Open for writing; its sources are there.
    empty : bool
        Give dims without coordinates an empty scale.
    with_table : bool
        Whether the file has splits.
    """

    def __init__(self, file: h5py.File, *, empty: bool = True, with_table: bool) -> None:
        self._file = file
        self._empty = empty
        self._with_table = with_table
        self._made: dict[Any, h5py.Dataset] = {}

    def name_axes(self, source: str, names: Names) -> None:
        """Write labels and scales of one source."""
        dataset = self._file[source]
        variables: list[str] = []
        for axis, dim in enumerate(names.dims):
            set_label(dataset, axis, dim)
            along = [coord for coord in names.coords if coord.dim == dim]
            scale = self._scale(source, dim, dataset.shape[axis], along)
            for coord in along:
                if coord.name == dim:
                    continue
                if self._with_table or scale is None:
                    dataset.dims[axis].attach_scale(self._coordinate(source, coord))
                else:
                    variables.append(self._variable(source, coord, scale))
            if scale is not None:  # last: netCDF readers take the last scale for the dim
                dataset.dims[axis].attach_scale(scale)
        if variables:
            dataset.attrs["coordinates"] = " ".join(variables)

    def _scale(
        self, source: str, dim: str, length: int, along: Sequence[Coordinate]
    ) -> h5py.Dataset | None:
        """Return the scale that stands for a dim itself; None where there shall be none."""
        for coord in along:
            if coord.name == dim:
                return self._coordinate(source, coord)
        return self._plain(source, dim, length) if self._empty else None

    def _plain(self, source: str, dim: str, length: int) -> h5py.Dataset:
        """Return the empty scale of a dim."""
        key = (dim, length)
        if key not in self._made:
            # netCDF's own way: four-byte floats that are never allocated
            scale = self._file.create_dataset(self._name(source, dim), (length,), ">f4")
            scale.make_scale(f"{NOT_A_VARIABLE}.{length:10d}")
            self._made[key] = scale
        return self._made[key]

    def _coordinate(self, source: str, coord: Coordinate) -> h5py.Dataset:
        """Return a scale with values."""
        key = coord.key
        if key not in self._made:
            scale = self._values(source, coord)
            scale.make_scale(scale.name.rsplit("/", 1)[-1])
            self._made[key] = scale
        return self._made[key]

    def _variable(self, source: str, coord: Coordinate, scale: h5py.Dataset) -> str:
        """Write a coordinate as a netCDF variable along a scale; return its name."""
        key = (scale.name, *coord.key)
        if key not in self._made:
            variable = self._values(source, coord)
            set_label(variable, 0, coord.dim)
            variable.dims[0].attach_scale(scale)
            self._made[key] = variable
        return str(self._made[key].name).lstrip("/")

    def _values(self, source: str, coord: Coordinate) -> h5py.Dataset:
        dataset = self._file.create_dataset(
            self._name(source, coord.name),
            coord.values.shape,
            file_dtype(coord.values.dtype),
        )
        if coord.values.size:
            dataset[...] = coord.values
        set_attrs(dataset, coord.attrs)
        return dataset

    def _name(self, source: str, wanted: str) -> str:
        wanted = to_bytes(wanted).decode(errors="replace")  # netCDF has names of valid text alone
        plain = wanted.replace("/", "_")
        return (
            plain
            if plain != OWN and plain not in self._file
            else free_name(self._file, f"{source}_{wanted}")
        )
