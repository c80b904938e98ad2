"""What the old spaces share: kinds of batches, dtypes by name, checks, conversion by a table.

``np_`` methods take numeric batches, their namesakes lazy ones; both run the same checks
and conversions. A *numeric* batch is an ndarray, a scipy sparse matrix, None, or a tuple of
those; a *symbolic* one is a dask array, None, or a tuple of those. A list is an error anywhere.

A conversion checks the batch, then the sizes of the two spaces, then converts; what comes out
is not checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, count, product
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from labeled.compat.errors import check, old, require
from labeled.compat.pylearn2 import config
from labeled.compat.pylearn2.utils import csr_matrix
from labeled.spaces.arrays import is_dask, is_sparse

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
    return all(leaf is None or _is_numeric(leaf) for leaf in _leaves(batch))


def is_symbolic_batch(batch: Any) -> bool:
    """Whether `batch` is lazy: dask arrays, None, or tuples of those."""
    return all(leaf is None or is_dask(leaf) for leaf in _leaves(batch))


def _is_numeric(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) or (is_sparse(leaf) and not is_dask(leaf))


def _leaves(batch: Any) -> Iterator[Any]:
    require(not isinstance(batch, list), "a batch is an array or a tuple of batches, not a list")
    return chain.from_iterable(map(_leaves, batch) if isinstance(batch, tuple) else ((batch,),))


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


# ---------------------------------------------------------------- what spaces share
# who converts into whom, (batch, source, target) -> batch; filled by the module of the spaces
ROUTES: dict[tuple[type, type], Callable[[Any, Any, Any], Any]] = {}

Callbacks = list[Callable[[Any], None]] | None

# what lazy results were made from, so that undoing finds the very objects: by the names of all
# arrays of the result, and the place among the arrays of the batch
_MADE_FROM: WeakValueDictionary[tuple[tuple[str, ...], int], Any] = WeakValueDictionary()


def _names(batch: Any) -> tuple[Any, ...]:
    return tuple(getattr(leaf, "name", None) for leaf in _leaves(batch))


class Space:
    """A way in which a batch can look.

    Parameters
    ----------
    validate_callbacks, np_validate_callbacks : list of functions, optional
        Called with the batch before the space's own checks.
    """

    # what two spaces of one class are compared by, and what is shown; callbacks apart
    _fields: ClassVar[tuple[str, ...]] = ()

    # whether a conversion begins with the total dimensions; else it compares dims and labels
    _compares_sizes = True

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
    get_total_dimension: Callable[..., int] = _missing  # how many numbers one example holds

    get_origin: Callable[..., Any] = _missing  # one example of zeros

    # a batch of zeros; `dtype` instead of the space's own
    get_origin_batch: Callable[..., Any] = _missing

    get_batch: Callable[..., Any] = _missing  # not implemented by any space, as it never was

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
        if (names := _names(result)) != _names(batch):
            _MADE_FROM.update({(names, i): leaf for i, leaf in enumerate(_leaves(batch))})
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
        """Bring a lazy batch of `space` back: the very objects that were laid out, if they live."""
        names = _names(batch)
        origin = self._nested(_MADE_FROM.get((names, i)) for i in count())
        if any(leaf is None for leaf in _leaves(origin)):
            return space.format_as(batch, self)
        self.validate(origin)
        return origin

    def _nested(self, leaves: Iterator[Any]) -> Any:
        """Return the arrays of a batch, given one by one, as this space nests them."""
        return next(leaves)


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
        import dask.array as da

        shape, made = self.sizes(batch_size or 0), self._zeros_dtype(dtype)
        zeros = da.zeros(shape, dtype=made, chunks=-1)
        if batch_size is None:  # a length that is not known
            axis = self.get_batch_axis()
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
