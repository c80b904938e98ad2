"""What the items of a dataset are: dtypes as HDF5 has them, and as NumPy can hold them.

Programs that write tables (PyTables, pandas' ``format="table"``, record arrays of NumPy) keep
a row's fields side by side. Here the columns `energy` and `position` of the table `events` are
the sources ``events/energy`` and ``events/position``; a field that is an array adds its axes.
A dataset whose whole type is an array is a source with these axes, too.

Tables with a field of varying length (text, rows of numbers) are left alone: where one thread
reads any column of such a type while another opens the file, h5py 3.16 ends the process.

The trade-off: HDF5 takes a column out of the rows, so the chunks of a compressed table are
undone once for each column that is read. What is read often belongs in datasets of its own
(``labeled repack`` makes them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from labeled.formats.header import is_text, vlen_base
from labeled.formats.region import Array

NUMBERS_AND_TEXT = "biufcSMm"  # kinds of dtypes that are read as they are

# in the metadata of a dtype that stands for a type NumPy lacks: h5py's message about it
UNKNOWN = "h5py"


@dataclass(frozen=True, slots=True)
class ItemPart:
    """Which part of each item of a dataset a source is: fields from the outside to the inside.

    Without fields it is the whole item, which is an array.
    """

    fields: tuple[str, ...] = ()

    def dtype_in(self, item: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of this part of items, with the axes that it adds."""
        for name in self.fields:
            item = item[name]
        return item

    def share_of(self, item: np.dtype[Any]) -> float:
        """Return the share of the bytes of an item that this part takes."""
        return self.dtype_in(item).itemsize / max(item.itemsize, 1)

    def read(self, dataset: h5py.Dataset, box: tuple[Any, ...]) -> Array:
        """Return this part of the items in a box, which may also count the axes added."""
        n_axes = len(dataset.shape)
        rows = box[:n_axes]
        if not self.fields:
            values = np.asarray(dataset[rows])
        else:  # one field alone: others beside it may be none that NumPy has
            item = np.dtype([(self.fields[0], item_of(dataset)[self.fields[0]])])
            steps = zip(rows, dataset.shape, strict=True)
            values = np.empty([len(range(*step.indices(n))) for step, n in steps], item)
            if values.size:
                dataset.read_direct(values, rows)
        for name in self.fields:
            values = values[name]
        return values[(slice(None),) * n_axes + box[n_axes:]]


def item_of(thing: Any) -> np.dtype[Any]:
    """Return the dtype of a dataset's items, or of an HDF5 type.

    A type that NumPy lacks is so many bytes of it, with h5py's message about it.
    """
    try:
        found: np.dtype[Any] = thing.dtype
    except (TypeError, ValueError) as error:
        kind = thing.id.get_type() if isinstance(thing, h5py.Dataset) else thing
        found = np.dtype((np.void, kind.get_size()), metadata={UNKNOWN: str(error)})
        if isinstance(kind, h5py.h5t.TypeCompoundID):
            members = range(kind.get_nmembers())
            fields: Any = {
                "names": [kind.get_member_name(i).decode() for i in members],
                "formats": [item_of(kind.get_member_type(i)) for i in members],
                "offsets": [kind.get_member_offset(i) for i in members],
                "itemsize": kind.get_size(),
            }
            found = np.dtype(fields)
    return found


def columns_of(dtype: np.dtype[Any], *above: str) -> Iterator[tuple[ItemPart, str | None]]:
    """Yield the innermost fields of a compound dtype, each with why it cannot be a source.

    Examples
    --------
    >>> row = np.dtype([("n", "i4"), ("at", [("x", "f4"), ("y", "f4", (2,))]), ("raw", "V3")])
    >>> for column, why_not in columns_of(row):
    ...     print(column.fields, why_not)
    ('n',) None
    ('at', 'x') None
    ('at', 'y') None
    ('raw',) opaque dtype |V3
    """
    for name in dtype.names or ():
        here = (*above, name)
        if dtype[name].names is not None:
            yield from columns_of(dtype[name], *here)
        else:
            yield ItemPart(here), _why_not(dtype[name].base)


def why_not_read(dtype: np.dtype[Any]) -> str | None:
    """Return why a dtype made by :func:`item_of` stands for a type NumPy lacks; None if not."""
    if dtype.metadata is None or UNKNOWN not in dtype.metadata:
        return None
    return f"NumPy has no dtype for its type ({dtype.metadata[UNKNOWN]})"


def varies(dtype: np.dtype[Any]) -> bool:
    """Whether a field of a compound dtype, however deep, holds values of varying length."""
    if dtype.names is not None:
        return any(varies(dtype[name].base) for name in dtype.names)
    return dtype.kind == "O" and h5py.check_ref_dtype(dtype) is None


def why_not_a_source(dataset: h5py.Dataset) -> str | None:
    """Return why a dataset cannot be a source, whatever its axes; None if it can."""
    if dataset.shape is None:
        return "it holds nothing, not even a shape (a null data space)"
    item = item_of(dataset)
    why_not = _why_not(item)
    if len(dataset.shape) > 1 and vlen_base(item) is not None:
        return f"rows of variable length along {len(dataset.shape)} axes; only one is read"
    if dataset.shape == () and why_not is not None and why_not.startswith("opaque"):
        return f"{why_not}; examples='PATTERN' opens many such values as examples"
    return why_not


def _why_not(dtype: np.dtype[Any]) -> str | None:
    """Return why items, or a field of them, cannot be a source; None if they can."""
    if dtype.kind in NUMBERS_AND_TEXT or is_text(dtype) or vlen_base(dtype) is not None:
        return None
    if h5py.check_ref_dtype(dtype) is not None:
        return "reference dtype"
    if dtype.kind == "O":
        return f"object dtype {dtype} that holds neither strings nor rows of numbers"
    if dtype.names is not None:
        fields = ", ".join(map(repr, dtype.names))
        texts = ", ".join(repr(name) for name in dtype.names if varies(dtype[name].base))
        some = f", of which {texts} of varying length" if texts else ""
        return f"compound dtype with fields {fields}{some}; write each as a dataset of its own"
    if dtype.subdtype is not None:
        return f"array dtype {dtype}"
    return why_not_read(dtype) or f"opaque dtype {dtype}"


def numbers_of(item: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which items are read, whose `shape` is that of each item.

    An enumeration is the integers it is made of. Variable-length strings keep h5py's own
    object dtype, by which h5py knows them.
    """
    is_enum = item.base.kind in "iu" and h5py.check_enum_dtype(item.base) is not None
    return np.dtype((item.base.str, item.shape)) if is_enum else item


def class_attrs(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the names of an enumeration's values as attributes tell names of classes.

    Examples
    --------
    >>> class_attrs(h5py.enum_dtype({"cat": 0, "dog": 1}))
    {'class_names': ['cat', 'dog']}
    >>> class_attrs(h5py.enum_dtype({"clear sky": 2, "fog": 5}))
    {'flag_values': [2, 5], 'flag_meanings': 'clear_sky fog'}
    >>> class_attrs(np.dtype(int))
    {}
    """
    values = h5py.check_enum_dtype(dtype.base)
    if not values or dtype.base.kind == "b":
        return {}
    names = sorted(values, key=values.__getitem__)
    numbers = [int(values[name]) for name in names]
    if numbers == list(range(len(numbers))):
        return {"class_names": names}
    meanings = " ".join(name.replace(" ", "_") for name in names)
    return {"flag_values": numbers, "flag_meanings": meanings}


def bytes_are_numpy(dtype: np.dtype[Any], in_file: Any) -> bool:
    """Whether the bytes in the file are those of the dtype; rows of objects never matter."""
    return dtype.kind == "O" or bool(in_file.equal(h5py.h5t.py_create(dtype, logical=True)))


def refers(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype refer to objects of a file."""
    if dtype.names is not None:
        return any(refers(dtype[name].base) for name in dtype.names)
    base = h5py.check_vlen_dtype(dtype)
    if isinstance(base, np.dtype):
        return refers(base)
    return h5py.check_ref_dtype(dtype.base) is not None
