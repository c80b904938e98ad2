"""One source to be written: dtype, shape, names, and rows block by block.

Values are cast to the dtype of a file, which earlier rows have fixed: numbers of one kind may be
rounded (float64 becomes float32), but no value may become another. An integer that wraps around,
a text that is cut, a number that overflows to infinity, a time before or after what nanoseconds
can count is an error that names it.

Examples of different shapes are stored as several datasets, each written like any other source:
flat values with offsets and shapes (:mod:`labeled.formats.hdf5.metadata`), or, as Fuel has them,
rows of variable length with two scales. They are cut into blocks at the borders of examples. The
flat layout is the default: it reads many times faster, is compressed, has checksums and statistics,
and netCDF libraries open it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.device import adopted, has_dlpack
from labeled.errors import ArrayError, DimsError
from labeled.formats.cf import FILLS, time_attrs
from labeled.formats.format import TO_WRITE, name_dims
from labeled.formats.hdf5.metadata import member_names, ragged_attrs
from labeled.formats.hdf5.writing import Coordinate, storable, storable_text, vlen_dtype
from labeled.formats.memory import FIRST_TEXTS, TEXT_BYTES, text_row_bytes, text_sizes
from labeled.formats.region import Array
from labeled.ragged import Ragged
from labeled.ragged.flat import (
    Flat,
    Rows,
    block_cuts,
    dtype_and_shapes,
    dtypes_of,
    elements_of,
    offsets_of,
)
from labeled.writing.layouts import RaggedAs, Shape

BLOCK_BYTES = 4 << 20  # of an array that are read at a time, by default
_LABELLED = (xr.DataArray, xr.Variable)
_ARRAYS = (np.ndarray, *_LABELLED, list, tuple)
NUMBERS = "those of different shapes hold numbers or times"
KINDS = "biufcSO"  # of dtypes that are stored as they are

DType = np.dtype[Any]
Read = Callable[[int, int], Any]  # returns rows start to stop
Encode = Callable[[Array], Array]  # turns times into the numbers that are stored


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some consecutive rows: read by a call, or computed by dask.

    Parameters
    ----------
    shapes : int array (n, axes of an example), optional
        Of the examples in it, where these have different shapes.
    first : int, optional
        The number of its first example, where rows are no examples but their values.
    n_bytes : int, optional
        Of its rows in memory, if measured.
    passing : bool
        Whether what `read` reads may change as soon as another batch is asked for.
    """

    start: int
    stop: int
    read: Callable[[], Any] | None = None
    delayed: Any = None
    shapes: Array | None = None
    first: int | None = None
    n_bytes: int | None = None
    passing: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SourceToWrite:
    """A dataset to be written: a source as it was given, or part of a ragged one.

    Parameters
    ----------
    dtype : dtype
        As stored; object for texts.
    shape : Shape
    axes : tuple of str
        Names of the axes of the dataset; `dims` are those of the source.
    blocks : callable
        Cuts it into blocks of about so many rows, or where its own pieces end.
    encode : callable, optional
        Turns times into the numbers that are stored.
    mean_bytes : int, optional
        What a row takes, where rows differ in length.
    least_bytes : int
        Of the most that comes in one piece: a block of dask's, an example.
    batch_bytes : int
        Of the first batch, where rows come in batches that are made as they are asked for.
    examples : Examples, optional
        Those of different shapes whose values these are.
    is_part : bool
        Whether these are the offsets or shapes of a ragged source, and no source themselves.
    """

    name: str
    dtype: DType
    shape: Shape
    axes: tuple[str, ...]
    attrs: Mapping[str, Any]
    blocks: Callable[[int], Iterator[Block]]
    encode: Encode | None = None
    mean_bytes: int | None = None
    least_bytes: int = 0
    batch_bytes: int = 0
    coords: tuple[Coordinate, ...] = ()
    examples: Examples | None = None
    is_part: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        return self.axes if self.examples is None else self.examples.dims

    @property
    def n_rows(self) -> int | None:
        """Number of examples; None if it is not known yet."""
        if self.examples is None or self.shape[0] is None:
            return self.shape[0]
        return len(self.examples.shapes)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(int(n or 0) for n in self.shape[1:])

    @property
    def row_bytes(self) -> int:
        if self.mean_bytes is not None:
            return self.mean_bytes
        each = TEXT_BYTES if self.dtype.kind == "O" else self.dtype.itemsize
        return math.prod(self.row_shape) * each


def read_by(source: SourceToWrite, read: Read, n_rows: int, step: int = 1) -> SourceToWrite:
    """Return a source whose rows are read by ``read(start, stop)``, by multiples of `step`."""
    if source.dtype.kind != "O":
        return replace(source, blocks=partial(slices, read, n_rows, step=step))
    mean = text_row_bytes(read, n_rows)
    return replace(source, mean_bytes=mean, blocks=partial(_text_blocks, read, n_rows, mean, step))


def _text_blocks(read: Read, n_rows: int, mean: int, step: int, rows: int) -> Iterator[Block]:
    """Yield blocks of texts, whose length is known only once they are read.

    They are read while blocks are handed out, by multiples of `step` rows, as many as would
    take what `rows` rows of `mean` bytes do if they were like those before them.
    """
    most, start, count = rows * mean, 0, FIRST_TEXTS
    while start < n_rows:
        stop = min(start + -(-count // step) * step, n_rows)
        values = np.asarray(read(start, stop))
        sizes = text_sizes(values)
        for a, b in pairwise(block_cuts(sizes, most)):
            got = partial(np.asarray, values[a:b])
            yield Block(start + a, start + b, got, n_bytes=int(sizes[a:b].sum()))
        count = min(2 * count, max(most * len(sizes) // max(int(sizes.sum()), 1), 1))
        start = stop


def rows_of(array: Any, start: int, stop: int) -> Any:
    """Read consecutive rows of something that is not a dask array."""
    return array[start:stop]


def slices(read: Read, n_rows: int, rows: int, *, step: int = 1) -> Iterator[Block]:
    """Yield blocks of about `rows` rows, by multiples of `step`, read by ``read(start, stop)``."""
    rows = max(rows // step, 1) * step
    for start in range(0, n_rows, rows):
        stop = min(start + rows, n_rows)
        yield Block(start, stop, partial(read, start, stop))


# values in the dtype of a file


def stored_as(where: str, dtype: DType) -> tuple[DType, Encode | None, dict[str, Any]]:
    """Return the dtype in the file, what encodes values as it, and the attributes that say so.

    Raises
    ------
    ArrayError
        If a file cannot hold such values.
    """
    if dtype.kind in "UT":
        return np.dtype(object), None, {}
    if dtype.kind in "Mm":
        encode = partial(times, kind=dtype.kind, where=where)
        return np.dtype(np.int64), encode, time_attrs(dtype.kind)
    if dtype.kind in KINDS and dtype.names is None:
        return dtype, None, {}
    how = "cast it to numbers or texts"
    if dtype.names:
        how = f"write its fields as sources of their own, with array[{dtype.names[0]!r}]"
    raise ArrayError(f"{where} has dtype {dtype}, which cannot be stored; {how}")


def without_mask(where: str, array: np.ma.MaskedArray[Any, Any]) -> Array:
    """Return the values of an array none of which is masked.

    Raises
    ------
    ArrayError
        If one is: there is no place for a mask.
    """
    if np.ma.is_masked(array):
        raise ArrayError(
            f"{where} is a masked array, and a file cannot store its mask; fill it in with "
            f".filled(value), or write the mask as a source of its own"
        )
    return np.asarray(array.data)


def with_fills(attrs: Mapping[str, Any], dtype: DType) -> dict[str, Any]:
    """Return attributes whose fill values have the dtype of the values, where they fit it.

    Examples
    --------
    >>> with_fills({"_FillValue": -1, "missing_value": 0.5}, np.dtype("i2"))
    {'_FillValue': np.int16(-1), 'missing_value': 0.5}
    """
    out = dict(attrs)
    for name in FILLS:
        given = np.asarray(attrs.get(name))
        if given.dtype.kind in "iuf" and dtype.kind in "iuf" and not given.shape:
            with np.errstate(invalid="ignore", over="ignore"):
                fill = given.astype(dtype.newbyteorder("="))
            if np.array_equal(fill, given, equal_nan=True):
                out[name] = fill[()]
    return out


def check_integers(where: str, dtypes: Collection[DType]) -> None:
    """Refuse arrays of integers which only float64 holds together, rounded.

    Raises
    ------
    ArrayError
    """
    integers = all(dtype.kind in "iu" for dtype in dtypes)
    if dtypes and integers and np.result_type(*dtypes).kind == "f":
        raise ArrayError(
            f"{where} has arrays of {', '.join(sorted(map(str, dtypes)))}, which only float64 "
            "holds together, rounded; give all of them one dtype, such as int64, with .astype"
        )


def cast(values: Array, dtype: DType, where: str, first: int | None = None) -> Array:
    """Return values as another dtype of their kind.

    Parameters
    ----------
    values : array (n, ...)
    dtype : dtype
    where : str
        How messages name the source.
    first : int, optional
        The number of row 0, for messages; None where rows are no examples.

    Returns
    -------
    array
        `values` themselves where they have the dtype.

    Raises
    ------
    ArrayError
        If the kinds differ, or a value does not fit.

    Examples
    --------
    >>> cast(np.array([1, 300]), np.dtype("i2"), "source 'x'")
    array([  1, 300], dtype=int16)
    >>> cast(np.array([1, 300]), np.dtype("i1"), "source 'x'", 10)
    Traceback (most recent call last):
    labeled.errors.ArrayError: source 'x', row 11: 300 does not fit int8; give earlier rows a \
wider one
    """
    if values.dtype == dtype:
        return values
    times = "mM"
    alike = np.can_cast(values.dtype, dtype, "same_kind")
    if not alike or (dtype.kind in times and values.dtype.kind != dtype.kind):
        how = f"cast with .astype({str(dtype)!r}) if that loses nothing"
        words = f"{where} gave a block of {values.dtype} where {dtype} was announced"
        raise ArrayError(f"{words}; give every block one dtype, {how}")
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            out = values.astype(dtype)
        except OverflowError:  # for times NumPy 2.5 and newer raise, and do not name the value
            out = np.full(values.shape, "NaT", dtype)
            for place, value in np.ndenumerate(values):
                with suppress(OverflowError):
                    out[place] = value
        wrong = _changed(values, out)
    if wrong.any():
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        row = "" if first is None else f", row {first + int(at[0])}"
        how = "give earlier rows a wider one"
        if dtype.kind in times:
            how = "store numbers in another unit, with .astype('int64') and an attribute"
        raise ArrayError(f"{where}{row}: {values[at]!s:.60} does not fit {dtype}; {how}")
    return out


def _changed(values: Array, out: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that casting changed; rounded floats do not count."""
    old, new = values.dtype, out.dtype
    if old.kind in "mM":
        return np.asarray((out.astype(old) != values) & ~np.isnat(values))
    if old.kind in "fc":
        return np.asarray(np.isfinite(values) & ~np.isfinite(out))
    if old.kind in "iu" and new.kind in "iu":
        bounds = np.iinfo(new)
        return np.asarray((values < bounds.min) | (values > bounds.max))
    back = out.real if new.kind == "c" else out
    wrong = back.astype(old) != values
    if old.kind in "iu":  # casting the next power of two back is undefined
        wrong |= back.astype(np.float64) >= float(np.iinfo(old).max + 1)
    return np.asarray(wrong)


def texts(rows: Array, where: str, first: int = 0) -> Array:
    """Return texts as they are stored; messages count rows from `first`.

    Raises
    ------
    ArrayError
        If a value is not text, or is text that a file cannot hold.
    """
    out = rows.astype(object, order="C")
    flat = out.reshape(-1)
    for place, value in enumerate(flat.tolist()):
        if isinstance(value, str) and value.isascii() and "\0" not in value:
            continue
        try:
            if not isinstance(value, str | bytes):
                raise ValueError(
                    f"{type(value).__name__} {value!r:.60} among its texts; give texts only, "
                    f"arrays only, or numbers with a dtype of their own"
                )
            flat[place] = storable_text(value)
        except ValueError as error:
            row = first + place // (len(flat) // len(out))
            raise ArrayError(f"{where}, row {row} holds {error}") from None
    return out


def times(values: Array, kind: str, where: str) -> Array:
    """Return times (kind "M") or durations ("m") as the nanoseconds that are stored.

    Years 1677 to 2262 fit; others are refused, as by :func:`cast`.
    """
    return cast(values, np.dtype(f"{kind}8[ns]"), where).view(np.int64)


# examples of different shapes


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Examples of different shapes, wherever they are.

    Parameters
    ----------
    dtype : dtype
        As stored.
    shapes : int64 (n, axes of an example)
    dims : tuple of str
        The example dim, then one an axis; ``""`` for an axis without a name.
    opened : callable
        Returns what reads the elements of examples start to stop, end to end; called once, when
        they are written.
    encode : callable, optional
        Turns times into the numbers that are stored.
    """

    dtype: DType
    shapes: Rows
    dims: tuple[str, ...]
    attrs: Mapping[str, Any]
    opened: Callable[[], Read]
    encode: Encode | None = None


def is_ragged(value: Any) -> bool:
    """Whether a value is examples of different shapes: a Ragged, or a list of arrays.

    Examples
    --------
    >>> is_ragged([[1, 2], [3]]), is_ragged([[1, 2], [3, 4]]), is_ragged(["a", "bc"])
    (True, False, False)
    """
    if isinstance(value, np.ndarray | xr.DataArray):
        if value.dtype != object or value.ndim != 1:
            return False
        # to compute all of dask's texts to find out would cost too much
        some = value[:1] if getattr(value, "chunks", None) else value
        return _holds_arrays(some.values if isinstance(some, xr.DataArray) else some)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return isinstance(value, Ragged)
    shapes = map(np.shape, map(_taken, value if _holds_arrays(value) else ()))
    try:
        first = next(shapes, None)
        return any(shape != first for shape in shapes)
    except ValueError:  # an example that is not an array itself: named when it is written
        return True


def _taken(one: Any) -> Any:
    """Return an example; of another library by its memory."""
    return adopted(one) if has_dlpack(one) else one


def _holds_arrays(values: Any) -> bool:
    return len(values) > 0 and all(isinstance(one, _ARRAYS) or has_dlpack(one) for one in values)


def examples_of(name: str, value: Any, dims: Sequence[str | None] | None) -> Examples:
    """Return the examples of a ragged source, checked; `dims` go before their own.

    Raises
    ------
    ArrayError
        If an example is not an array of numbers, or has another number of axes; names the row.
    DimsError
        If labelled examples have different dims, or `dims` do not fit.
    """
    where = f"source {name!r}"
    if isinstance(value, Ragged):
        found, own = value.dims, name.rpartition("/")[2]
        if not value.name:  # axes without names are called after their source
            found = tuple(dim.replace("example_axis_", f"{own}_axis_") for dim in found)

        def flat_values(start: int, stop: int) -> Any:
            return value[start:stop].flat(threads=1).values

        made = Examples(value.dtype, value.shapes, found, value.attrs, lambda: flat_values)
    else:
        made = _listed(where, value)
    dtype, encode, decoding = stored_as(where, made.dtype)
    if dtype.kind == "O":
        raise ArrayError(f"{where} has examples of {made.dtype}; {NUMBERS}")
    names, _ = name_dims(TO_WRITE, name, made.dims, dims)
    return replace(made, dtype=dtype, dims=names, attrs={**made.attrs, **decoding}, encode=encode)


def _listed(where: str, value: Any) -> Examples:
    """Return the examples of a list or an object array."""
    outer, attrs = "", {}
    if isinstance(value, xr.DataArray):
        outer, attrs, value = str(value.dims[0]), dict(value.attrs), value.values
    arrays = [_example(f"{where}, row {row}", one) for row, one in enumerate(value)]
    dtypes = dtypes_of(value, arrays)
    check_integers(where, dtypes)
    dtype, shapes = dtype_and_shapes(arrays, dtypes, f"{where}, row")
    labelled = {tuple(map(str, one.dims)) for one in value if isinstance(one, _LABELLED)}
    if len(labelled) > 1:
        raise DimsError(f"{where} has examples with dims {sorted(labelled)}; transpose them alike")
    inner = labelled.pop() if labelled else ("",) * shapes.shape[1]

    def values(start: int, stop: int) -> Array:
        pieces = [array.reshape(-1) for array in arrays[start:stop]]
        return np.concatenate(pieces, dtype=dtype, casting="unsafe")

    return Examples(dtype, shapes, (outer, *inner), attrs, lambda: values)


def _example(where: str, one: Any) -> Array:
    if isinstance(one, np.ma.MaskedArray):
        one = without_mask(where, one)
    try:
        array = np.asarray(_taken(one))
    except ValueError as error:
        raise ArrayError(f"{where}: no array ({error}); correct it") from None
    if array.dtype.kind not in "biufcmM":
        raise ArrayError(f"{where}: an example of {array.dtype}; {NUMBERS}")
    if not array.ndim:
        raise ArrayError(f"{where}: a single number; give it an axis: [{array.item()!r}]")
    return array


def ragged_datasets(
    name: str, examples: Examples, kind: RaggedAs, done: Mapping[str, int] | None = None
) -> dict[str, SourceToWrite]:
    """Return the datasets that examples become.

    Flat, these are values, offsets and, for several axes, shapes; `done` are the rows that each has
    of earlier examples. Only the first offsets begin with where example 0 does.
    """
    sizes, done, itemsize = elements_of(examples.shapes), done or {}, examples.dtype.itemsize
    edges, attrs = offsets_of(sizes), storable(f"source {name!r}", examples.attrs)
    dtype, shape, axes = examples.dtype, (int(edges[-1]),), examples.dims[:1]
    rest: Any = {"least_bytes": int(sizes.max(initial=0)) * itemsize, "examples": examples}
    if kind == "fuel":
        if examples.encode is not None or dtype.kind == "S":
            what = "times" if examples.encode is not None else "texts"
            raise ArrayError(
                f"source {name!r} has examples of {what}, and Fuel's rows of variable length hold "
                f"numbers; store them flat, with ragged='flat'"
            )
        mean, shape = 16 + shape[0] * itemsize // max(len(sizes), 1), (len(sizes),)
        dtype, blocks = vlen_dtype(dtype), partial(_row_blocks, examples, sizes * itemsize)
        return {name: SourceToWrite(name, dtype, shape, axes, attrs, blocks, None, mean, **rest)}
    members, own = member_names(name, len(examples.dims) - 1), ragged_attrs(name, examples.dims)
    n_offsets = done.get(members[0], 0)
    blocks = partial(_value_blocks, examples, edges, max(n_offsets - 1, 0))
    axes, attrs, rest["encode"] = (f"{name}_value",), {**attrs, **own}, examples.encode
    made = SourceToWrite(name, dtype, shape, axes, attrs, blocks, **rest)
    out, offsets = {name: made}, (edges + done.get(name, 0))[1 if n_offsets else 0 :]
    parts = (offsets, (f"{name}_offset",)), (examples.shapes, (examples.dims[0], f"{name}_axis"))
    for member, (array, dims) in zip(members, parts, strict=False):
        blocks, shape = partial(slices, partial(rows_of, array), len(array)), array.shape
        out[member] = SourceToWrite(member, array.dtype, shape, dims, {}, blocks, is_part=True)
    return out


def _value_blocks(examples: Examples, edges: Rows, n_before: int, rows: int) -> Iterator[Block]:
    """Cut values where examples end; one long example may exceed `rows` values."""
    values = examples.opened()
    for a, b in pairwise(block_cuts(np.diff(edges), rows)):
        read = partial(values, a, b)
        yield Block(int(edges[a]), int(edges[b]), read, None, examples.shapes[a:b], n_before + a)


def _row_blocks(examples: Examples, n_bytes: Rows, rows: int) -> Iterator[Block]:
    """Cut rows of variable length."""
    values, sizes = examples.opened(), elements_of(examples.shapes)

    def read(start: int, stop: int) -> Array:
        some = sizes[start:stop]
        return Flat(values(start, stop), offsets_of(some), some[:, None]).examples()

    for a, b in pairwise(block_cuts(np.maximum(n_bytes, -(-BLOCK_BYTES // rows)), BLOCK_BYTES)):
        yield Block(a, b, partial(read, a, b), None, examples.shapes[a:b])
