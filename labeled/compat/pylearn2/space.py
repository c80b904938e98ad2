"""The old spaces: vectors, labels, sequences, images; several at once, and none.

``np_`` methods take numeric batches, their namesakes lazy ones; both run the same checks
and conversions. A *numeric* batch is an ndarray, a scipy sparse matrix, None, or a tuple of
those; a *symbolic* one is a dask array, None, or a tuple of those. A list is an error anywhere.

A conversion checks the batch, then the sizes of the two spaces, then converts; what comes out
is not checked. Who converts into whom says the table at the end. Label values are not compared
with ``max_labels`` here; conversions do that, each in its own way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from labeled.compat.errors import check, old, require
from labeled.compat.pylearn2 import config
from labeled.compat.pylearn2.utils import csr_matrix, one_hot
from labeled.spaces import ConvNDSpace as NativeImages
from labeled.spaces import VectorSpace as NativeVectors
from labeled.spaces.arrays import da, is_dask, is_sparse, move_axes
from labeled.spaces.kinds import convert as native_convert
from labeled.spaces.routes import one_hot_layout, side_by_side

Axes = tuple[str | int, ...]

DTYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


def is_numeric_batch(batch: Any) -> bool:
    """Whether `batch` holds values: arrays, sparse matrices, None, or tuples of those.

    Raises
    ------
    AssertionError
        If it is a list, or holds one.

    Examples
    --------
    >>> is_numeric_batch((np.zeros((2, 3)), None)), is_numeric_batch("rows")
    (True, False)
    """
    return _all_are(_is_numeric, batch)


def is_symbolic_batch(batch: Any) -> bool:
    """Whether `batch` is lazy: dask arrays, None, or tuples of those."""
    return _all_are(is_dask, batch)


def _is_numeric(batch: Any) -> bool:
    return isinstance(batch, np.ndarray) or (is_sparse(batch) and not is_dask(batch))


def _all_are(kind: Any, batch: Any) -> bool:
    require(not isinstance(batch, list), "a batch is an array or a tuple of batches, not a list")
    if isinstance(batch, tuple):
        return all(_all_are(kind, part) for part in batch)
    return batch is None or bool(kind(batch))


def as_dtype_name(dtype: Any) -> str | None:
    """Return `dtype` as the old spaces kept it: a name, or None for any.

    Raises
    ------
    TypeError
        If it is none of None, 'floatX', a dtype instance or a known name. Types such as
        ``numpy.float32``, and ``'bool'``, are refused.

    Examples
    --------
    >>> as_dtype_name("floatX"), as_dtype_name(np.dtype("u1")), as_dtype_name(None)
    ('float64', 'uint8', None)
    """
    if dtype is None:
        return None
    name = str(dtype) if isinstance(dtype, str | np.dtype) else ""
    name = config.floatX if name == "floatX" else name
    wanted = f"None, 'floatX', a numpy dtype instance, or one of {', '.join(DTYPES)}"
    check(name in DTYPES, f"dtype must be {wanted}; found {dtype!r}", TypeError)
    return name


def cast(x: Any, dtype: str | None) -> Any:
    """Return `x` in `dtype`, cut and wrapped around as C does; `x` itself where it is so.

    Examples
    --------
    >>> cast(np.array([300, 1]), "uint8"), cast(np.array([1.7]), "int32")
    (array([44,  1], dtype=uint8), array([1], dtype=int32))
    """
    if dtype is None or (x.dtype == dtype and not isinstance(x, np.matrix)):
        return x
    with np.errstate(invalid="ignore", over="ignore"):
        if is_dask(x) or is_sparse(x):
            return x.astype(dtype)
        return np.asarray(x).astype(dtype, copy=False)


# ---------------------------------------------------------------- spaces
Callbacks = list[Callable[[Any], None]] | None

_MADE_FROM: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""The lazy batch that each lazy result was made from, so that undoing finds the very object."""


class Space:
    """A way in which a batch can look.

    Parameters
    ----------
    validate_callbacks, np_validate_callbacks : list of functions, optional
        Called with the batch before the space's own checks.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    """What two spaces of one class are compared by, and what is shown; callbacks apart."""

    _compares_sizes = True
    """Whether a conversion begins with the total dimensions; else it compares dims and labels."""

    def __init__(
        self, validate_callbacks: Callbacks = None, np_validate_callbacks: Callbacks = None
    ) -> None:
        self.validate_callbacks = [] if validate_callbacks is None else validate_callbacks
        self.np_validate_callbacks = [] if np_validate_callbacks is None else np_validate_callbacks

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        shown = zip(self._fields, self._key(), strict=True)
        listed = ", ".join(f"{name}={value}" for name, value in shown if value is not False)
        return f"{type(self).__name__}({listed})" if listed else type(self).__name__

    def _missing(self, *_: Any, **options: Any) -> Any:
        raise old(NotImplementedError, f"{type(self).__name__} has none of this")

    # ------------------------------------------------------------ what a space is
    get_total_dimension: Callable[..., int] = _missing
    """How many numbers one example holds."""

    get_origin: Callable[..., Any] = _missing
    """One example of zeros."""

    get_origin_batch: Callable[..., Any] = _missing
    """A batch of zeros; `dtype` instead of the space's own."""

    get_batch: Callable[..., Any] = _missing
    """Not implemented by any space, as it never was."""

    _lazy_batch: Callable[..., Any] = _missing
    _check: Callable[..., None] = _missing

    _clean_dtype_arg: Callable[..., Any] = _missing
    _dtype: Any = None

    @property
    def dtype(self) -> Any:
        """Name of the dtype, None for any; nested for composites. Settable."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._dtype = self._clean_dtype_arg(value)

    def get_batch_axis(self) -> int:
        """Return the position of the batch axis."""
        return 0

    def make_theano_batch(
        self, name: str | None = None, dtype: Any = None, batch_size: int | None = None
    ) -> Any:
        """Return a lazy batch of zeros, of unknown length unless `batch_size` is given."""
        return self._lazy_batch(dtype, batch_size)

    make_batch_theano = get_theano_batch = make_theano_batch

    def make_shared_batch(self, batch_size: int, name: str | None = None, dtype: Any = None) -> Any:
        """Return a lazy batch of zeros of a given length."""
        return self._lazy_batch(dtype, batch_size)

    # ------------------------------------------------------------ does a batch fit
    def np_validate(self, batch: Any) -> None:
        """Raise unless `batch` is a numeric batch of this space."""
        self._checked(batch, numeric=True)

    def validate(self, batch: Any) -> None:
        """Raise unless `batch` is one of this space: a lazy one as far as can be known."""
        self._checked(batch, numeric=is_numeric_batch(batch) and not is_symbolic_batch(batch))

    def _checked(self, batch: Any, *, numeric: bool) -> None:
        """Look at the kind of batch, run callbacks, then the class's own checks."""
        if not (is_numeric_batch(batch) if numeric else is_symbolic_batch(batch)):
            wanted, found = "numeric" if numeric else "lazy", type(batch).__name__
            raise old(TypeError, f"{self}: expected a {wanted} batch, found {found}")
        if not hasattr(self, "validate_callbacks"):
            raise old(TypeError, f"{type(self).__name__}.__init__ did not call Space.__init__")
        for callback in self.np_validate_callbacks if numeric else self.validate_callbacks:
            callback(batch)
        self._check(batch, numeric)

    # ------------------------------------------------------------ how many examples
    def np_batch_size(self, batch: Any) -> int:
        """Return how many examples a numeric batch holds, after checking it."""
        self.np_validate(batch)
        return self._batch_size(batch)

    def batch_size(self, batch: Any) -> int:
        """Return how many examples a lazy batch holds, NaN where that is not known."""
        self.validate(batch)
        return self._batch_size(batch)

    def _batch_size(self, batch: Any) -> int:
        n = batch.shape[self.get_batch_axis()]
        return int(n) if n == n else n

    # ------------------------------------------------------------ to another space
    def np_format_as(self, batch: Any, space: Space) -> Any:
        """Lay a numeric batch out for another space; the result is not checked."""
        self._checked(batch, numeric=True)
        return self._formatted(batch, space)

    def format_as(self, batch: Any, space: Space) -> Any:
        """Lay a lazy batch out for another space, lazily."""
        self._checked(batch, numeric=False)
        result = self._formatted(batch, space)
        if is_dask(result) and is_dask(batch) and result is not batch:
            _MADE_FROM[result.name] = batch
        return result

    def _formatted(self, batch: Any, space: Space) -> Any:
        if self._compares_sizes:
            found, wanted = self.get_total_dimension(), space.get_total_dimension()
            if found != wanted:
                raise old(ValueError, f"{self} has total dimension {found}, {space} has {wanted}")
        for pair in product(type(self).__mro__, type(space).__mro__):
            if pair in ROUTES:
                return ROUTES[pair](batch, self, space)
        kind = NotImplementedError if self._compares_sizes else ValueError
        raise old(kind, f"{self}: no conversion leads to {space}")

    def undo_np_format_as(self, batch: Any, space: Space) -> Any:
        """Bring a numeric batch of `space` back to this one."""
        return space.np_format_as(batch, self)

    def undo_format_as(self, batch: Any, space: Space) -> Any:
        """Bring a lazy batch of `space` back: the very object that was laid out, if it lives."""
        origin = _MADE_FROM.get(batch.name) if is_dask(batch) else None
        if origin is None:
            return space.format_as(batch, self)
        self.validate(origin)
        return origin


class SimplyTypedSpace(Space):
    """A space whose batch is one array of one dtype.

    Parameters
    ----------
    dtype : None, 'floatX', dtype instance or str
        None: any.
    """

    _fields: ClassVar[tuple[str, ...]] = ("dtype",)
    sparse = False
    dim: int

    def __init__(self, dtype: Any = "floatX", **callbacks: Any) -> None:
        super().__init__(**callbacks)
        self._dtype = self._clean_dtype_arg(dtype)

    def _clean_dtype_arg(self, dtype: Any) -> str | None:
        return as_dtype_name(dtype)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_dtype" not in state:  # pickled before spaces had dtypes
            self._dtype = as_dtype_name("floatX")

    # ------------------------------------------------------------ shapes
    def sizes(self, batch_size: int) -> tuple[int, ...]:
        """Return the shape of a batch."""
        return (batch_size, self.dim)

    def get_total_dimension(self) -> int:
        return math.prod(self.sizes(1))

    def get_origin(self) -> Any:
        return np.zeros(self.sizes(1)).squeeze(self.get_batch_axis())

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        zeros = np.zeros(self.sizes(batch_size), self._zeros_dtype(dtype))
        return csr_matrix(zeros) if self.sparse else zeros

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        made = self._zeros_dtype(dtype)
        axis, shape = self.get_batch_axis(), self.sizes(batch_size or 0)
        chunks = tuple("auto" if i == axis else -1 for i in range(len(shape)))
        zeros = da.zeros(shape, dtype=made, chunks=chunks)
        if batch_size is None:  # a length that is not known
            unknown = tuple((np.nan,) if i == axis else c for i, c in enumerate(zeros.chunks))
            zeros = da.Array(zeros.dask, zeros.name, unknown, meta=zeros._meta)
        return zeros.map_blocks(csr_matrix, dtype=zeros.dtype) if self.sparse else zeros

    def _zeros_dtype(self, dtype: Any) -> np.dtype[Any]:
        asked = self.dtype if dtype is None else as_dtype_name(dtype)
        return np.dtype("float64" if asked is None else asked)

    def _check(self, batch: Any, numeric: bool) -> None:
        if isinstance(batch, tuple):
            raise old(TypeError, f"{self}: expected one array, found a tuple of {len(batch)}")
        if batch is None:
            raise old(AttributeError, f"{self}: None has no dtype; expected an array")
        # Refused are complex values in a real space, and all but integers (bool is none) in one of
        # integers.
        kind, wanted = np.dtype(batch.dtype).kind, self.dtype or ""
        real = wanted and not wanted.startswith("complex")
        if (kind == "c" and real) or ("int" in wanted and kind not in "iu"):
            raise old(TypeError, f"{self}: a batch of dtype {batch.dtype} does not fit")
        if is_sparse(batch._meta if is_dask(batch) else batch) != self.sparse:
            kinds = ("sparse", "dense") if self.sparse else ("dense", "sparse")
            raise old(TypeError, f"{self}: expected a {kinds[0]} batch, found a {kinds[1]} one")
        axis, sizes = self.get_batch_axis(), self.sizes(0)
        pairs = enumerate(zip(batch.shape, sizes, strict=False))
        fits = [at == axis or found == wanted or found != found for at, (found, wanted) in pairs]
        if batch.ndim != len(sizes) or not all(fits):
            found = f"the batch has shape {batch.shape}"
            raise old(ValueError, f"{self}: {found}, expected {sizes}, axis {axis} of any length")


class VectorSpace(SimplyTypedSpace):
    """Batches of rows of numbers, (batch, dim).

    Parameters
    ----------
    dim : int
    sparse : bool
        Whether batches are scipy sparse matrices.
    dtype : None, 'floatX', dtype instance or str
    """

    _fields = ("dim", "sparse", "dtype")

    def __init__(self, dim: int, sparse: bool = False, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim, self.sparse = dim, sparse


class _Labels(SimplyTypedSpace):
    """Rows of `dim` labels below `max_labels`."""

    _fields = ("max_labels", "dim", "dtype")
    _compares_sizes = False

    def __init__(self, max_labels: int, dim: int, dtype: Any = "int64", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.max_labels, self.dim = max_labels, dim

    def _clean_dtype_arg(self, dtype: Any) -> str | None:
        wrong = f"{type(self).__name__}: dtype must be a str, of integers; found {dtype!r}"
        check(isinstance(dtype, str), wrong, TypeError)
        check("int" in dtype, wrong)
        return super()._clean_dtype_arg(dtype)


class IndexSpace(_Labels):
    """Batches of rows of labels, (batch, dim). Its total dimension counts indices."""

    def get_origin(self) -> Any:
        return np.zeros((1, self.dim))


class _Sequence(SimplyTypedSpace):
    """One sequence, of any length. Not hashable."""

    _compares_sizes = False

    get_total_dimension = get_origin = get_origin_batch = Space._missing

    def _batch_size(self, batch: Any) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]  # defining == alone took it away


class VectorSequenceSpace(_Sequence):
    """One sequence of rows of numbers, (time, dim)."""

    _fields = ("dim", "dtype")

    def __init__(self, dim: int, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim = dim


class IndexSequenceSpace(_Sequence, _Labels):
    """One sequence of rows of labels, (time, dim)."""


class Conv2DSpace(SimplyTypedSpace):
    """Batches of images, axes in any order; what `axes` holds is not checked.

    Parameters
    ----------
    shape : (rows, columns)
    channels, num_channels : int
        Exactly one of the two.
    axes : sequence of four, optional
        ``('b', 0, 1, 'c')`` if not given.
    dtype : None, 'floatX', dtype instance or str
    """

    default_axes: Axes = ("b", 0, 1, "c")
    _fields = ("shape", "num_channels", "axes", "dtype")

    def __init__(
        self,
        shape: Sequence[int],
        channels: int | None = None,
        num_channels: int | None = None,
        axes: Sequence[str | int] | None = None,
        dtype: Any = "floatX",
        **kw: Any,
    ) -> None:
        super().__init__(dtype, **kw)
        require((channels is None) != (num_channels is None), "give channels or num_channels")
        count = num_channels if channels is None else channels
        pair = hasattr(shape, "__len__") and len(shape) == 2
        check(pair, f"shape must be (rows, columns), found {shape!r}")
        for length in (*shape, count):
            whole = isinstance(length, int | np.integer) and length > 0
            require(whole, f"Conv2DSpace: lengths must be integers above 0, found {length!r}")
        self.shape = tuple(map(int, shape))  # lengths of few bits would overflow when multiplied
        self.num_channels = int(count)  # type: ignore[arg-type]  # one of the two is given
        self.axes: Axes = self.default_axes if axes is None else tuple(axes)
        require(len(self.axes) == 4, f"Conv2DSpace: axes must be four, found {self.axes}")

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        """Return the shape of a batch."""
        length = {"b": batch_size, "c": self.num_channels, 0: self.shape[0], 1: self.shape[1]}
        return tuple(length[axis] for axis in self.axes)

    def get_batch_axis(self) -> int:
        return self.axes.index("b")

    def get_origin(self) -> Any:
        return super().get_origin().astype(self._zeros_dtype(None))

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        whole = isinstance(batch_size, int | np.integer)
        check(whole, f"{self}: a batch size is an integer, found {batch_size!r}", TypeError)
        require(batch_size > 0, f"{self}: a batch size is above 0, found {batch_size}")
        return super().get_origin_batch(int(batch_size), dtype)

    def native(self) -> NativeImages:
        """The native space of the same images, which keeps any dtype."""
        return NativeImages(self.shape, self.num_channels, axes=self.axes)

    @staticmethod
    def convert(tensor: Any, src_axes: Sequence[str | int], dst_axes: Sequence[str | int]) -> Any:
        """Return `tensor` with its axes in another order; itself where that is the same."""
        src, dst = tuple(src_axes), tuple(dst_axes)
        require(len(src) == tensor.ndim, f"{len(src)} axes {src} for {tensor.ndim} of the array")
        require(set(src) == set(dst), f"axes {dst} are not an order of {src}")
        return move_axes(tensor, src, dst)

    convert_numpy = convert


class NullSpace(Space):
    """The space of no data: its only batch is None. It has no total dimension."""

    def _clean_dtype_arg(self, dtype: Any) -> None:
        check(dtype is None, f"a NullSpace has no dtype such as {dtype!r}", TypeError)

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        return None

    def _check(self, batch: Any, numeric: bool) -> None:
        found = type(batch).__name__
        check(batch is None, f"NullSpace: expected None, found {found}", TypeError)

    def _batch_size(self, batch: Any) -> int:
        return 0


class CompositeSpace(Space):
    """Tuples of batches, one per component.

    Parameters
    ----------
    components : list or tuple of Space
    """

    def __init__(self, components: Sequence[Space], **callbacks: Any) -> None:
        super().__init__(**callbacks)
        listed = isinstance(components, list | tuple)
        require(listed, f"components must be a list or tuple, found {components!r}")
        for component in components:
            is_space = isinstance(component, Space)
            check(is_space, f"a component is not a space: {component!r}", TypeError)
        self.components = list(components)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.components))})"

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.components)

    @property
    def dtype(self) -> Any:
        return tuple(component.dtype for component in self.components)

    @dtype.setter
    def dtype(self, value: Any) -> None:
        parts, values = self.components, value
        if value is None or isinstance(value, str):
            parts = [part for part in parts if not isinstance(part, NullSpace)]
            values = (value,) * len(parts)
        if isinstance(values, tuple):  # anything else was ignored without a word
            n = len(values)
            check(n == len(parts), f"{self}: {n} dtypes for {len(parts)} parts")
            for part, one in zip(parts, values, strict=True):
                part.dtype = one

    def get_total_dimension(self) -> int:
        return sum(component.get_total_dimension() for component in self.components)

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        pairs = zip(self.components, self._dtypes(dtype), strict=True)
        return tuple(component.get_origin_batch(batch_size, one) for component, one in pairs)

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        pairs = zip(self.components, self._dtypes(dtype), strict=True)
        return tuple(component._lazy_batch(one, batch_size) for component, one in pairs)

    def _dtypes(self, dtype: Any) -> tuple[Any, ...]:
        """Return one dtype a component."""
        n = len(self.components)
        if dtype is None or isinstance(dtype, str):
            return (dtype,) * n
        fits = isinstance(dtype, tuple) and len(dtype) == n
        check(fits, f"dtype must be None, a str or a tuple of {n}; found {dtype!r}", TypeError)
        return tuple(dtype)

    # ------------------------------------------------------------ parts
    def restrict(self, subset: Sequence[int]) -> Space:
        """Return the space of some components, in that order; the bare one for one."""
        chosen = [self.components[i] for i in subset]
        return chosen[0] if len(chosen) == 1 else CompositeSpace(chosen)

    def restrict_batch(self, batch: Any, subset: Sequence[int]) -> Any:
        """Return the parts of a lazy `batch` that belong to :meth:`restrict`."""
        self._checked(batch, numeric=False)
        chosen = tuple(batch[i] for i in subset)
        return chosen[0] if len(chosen) == 1 else chosen

    def _check(self, batch: Any, numeric: bool) -> None:
        n = len(self.components)
        if not isinstance(batch, tuple):
            raise old(TypeError, f"{self}: expected a tuple, found {type(batch).__name__}")
        if len(batch) != n:
            raise old(ValueError, f"{self}: expected {n} batches, found {len(batch)}")
        for component, part in zip(self.components, batch, strict=True):
            component._checked(part, numeric=numeric)

    def _batch_size(self, batch: Any) -> int:
        pairs = zip(self.components, batch, strict=True)
        counts = [(component, component._batch_size(part)) for component, part in pairs]
        sizes = {n for component, n in counts if not _without_data(component)}
        empty = any(_without_data(component) for component, _ in counts)
        require(not (empty and sizes), f"{self}: a mixture of data and of none has no batch size")
        check(len(sizes) < 2, f"{self}: the components hold {sizes} examples")
        return sizes.pop() if sizes else 0


def _without_data(space: Space) -> bool:
    if isinstance(space, CompositeSpace):
        return all(map(_without_data, space.components))
    return isinstance(space, NullSpace)


# ---------------------------------------------------------------- the old conversion matrix
# What moves numbers is native. What is old is what is not done: results are not checked, integers
# are cut without a word, labels may wrap around.
def _vector_to_vector(batch: Any, source: VectorSpace, target: VectorSpace) -> Any:
    if source.sparse and not target.sparse:
        batch = _matrix(batch)
    elif target.sparse and not source.sparse:
        batch = _as_csr(batch)
    return cast(batch, target.dtype)


def _matrix(batch: Any) -> Any:
    """Return a sparse batch as a ``numpy.matrix``, which a cast makes an array again."""
    if is_dask(batch):
        return batch.map_blocks(lambda block: block.toarray(), dtype=batch.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(batch.toarray())


def _as_csr(x: Any) -> Any:
    """Return a batch as csr, as a lazy one where it is lazy."""
    return x.map_blocks(csr_matrix, dtype=x.dtype) if is_dask(x) else csr_matrix(x)


def _vector_to_images(batch: Any, source: VectorSpace, target: Conv2DSpace) -> Any:
    wrong = f"{source}: sparse rows do not become images of {target}"
    check(not source.sparse, wrong, TypeError)
    made = native_convert(batch, NativeVectors(int(source.dim)), target.native())
    return cast(made, target.dtype)


def _images_to_vector(batch: Any, source: Conv2DSpace, target: VectorSpace) -> Any:
    rows = native_convert(batch, source.native(), NativeVectors(int(target.dim)))
    return cast(_as_csr(rows) if target.sparse else rows, target.dtype)


def _images_to_images(batch: Any, source: Conv2DSpace, target: Conv2DSpace) -> Any:
    return cast(Conv2DSpace.convert(batch, source.axes, target.axes), target.dtype)


# ---------------------------------------------------------------- labels and sequences
def _labels_to_vector(batch: Any, source: _Labels, target: Any) -> Any:
    mode, _ = one_hot_layout(source, target)
    made = one_hot(batch, source.max_labels, mode, sparse=bool(target.sparse))
    return cast(made, target.dtype)


def _to_the_same(batch: Any, source: Any, target: Any) -> Any:
    """Cast labels or sequences, of as many labels and as long rows."""
    fits = source._key()[:-1] == target._key()[:-1]
    check(fits, f"{source} is not {target}: all but the dtype must be equal")
    return cast(batch, target.dtype)


# ---------------------------------------------------------------- composites
def _vector_to_composite(batch: Any, source: VectorSpace, target: CompositeSpace) -> Any:
    rows = batch.tocsr() if is_sparse(batch) else batch
    parts, start = [], 0
    for component in target.components:
        width = component.get_total_dimension()
        piece = VectorSpace(width, source.sparse, source.dtype)
        parts.append(piece._formatted(rows[:, start : start + width], component))
        start += width
    return tuple(parts)


def _composite_to_composite(batch: Any, source: CompositeSpace, target: CompositeSpace) -> Any:
    wrong, parts = f"{source} and {target} are nested differently", []
    check(len(source.components) == len(target.components), wrong)
    for part, one, other in zip(batch, source.components, target.components, strict=True):
        alike = isinstance(one, CompositeSpace) == isinstance(other, CompositeSpace)
        check(alike, wrong, TypeError)
        parts.append(one._formatted(part, other))
    return tuple(parts)


def _composite_to_vector(batch: Any, source: CompositeSpace, target: VectorSpace) -> Any:
    pieces = []
    for part, component in zip(batch, source.components, strict=True):
        piece = VectorSpace(component.get_total_dimension(), target.sparse, target.dtype)
        pieces.append(component._formatted(part, piece))
    dtypes = {str(piece.dtype) for piece in pieces}
    alike = target.dtype is not None or len(dtypes) < 2
    check(alike, f"pieces of dtypes {dtypes} are not joined; give {target} one", TypeError)
    rows = side_by_side(pieces)
    if target.sparse and not is_dask(rows):
        rows = csr_matrix(rows).tocoo()
    return cast(rows, target.dtype)


Route = Callable[[Any, Any, Any], Any]
ROUTES: dict[tuple[type[Space], type[Space]], Route] = {
    (VectorSpace, VectorSpace): _vector_to_vector,
    (VectorSpace, Conv2DSpace): _vector_to_images,
    (VectorSpace, CompositeSpace): _vector_to_composite,
    (Conv2DSpace, VectorSpace): _images_to_vector,
    (Conv2DSpace, Conv2DSpace): _images_to_images,
    (IndexSpace, VectorSpace): _labels_to_vector,
    (IndexSpace, IndexSpace): _to_the_same,
    (VectorSequenceSpace, VectorSequenceSpace): _to_the_same,
    (IndexSequenceSpace, VectorSequenceSpace): _labels_to_vector,
    (IndexSequenceSpace, IndexSequenceSpace): _to_the_same,
    (CompositeSpace, CompositeSpace): _composite_to_composite,
    (CompositeSpace, VectorSpace): _composite_to_vector,
}
