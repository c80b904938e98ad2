"""What all old spaces share: callbacks, the order of checks, and dtypes.

``np_`` methods take numeric batches, their namesakes lazy ones; both run the same checks
and conversions. A conversion checks the batch, then the sizes of the two spaces, then
converts; what comes out is not checked. Who converts into whom is written down in
:mod:`labeled.compat.pylearn2.space.routes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn
from weakref import WeakValueDictionary

import numpy as np

from labeled.compat.pylearn2.errors import (
    OldAttributeError,
    OldNotImplementedError,
    OldTypeError,
    OldValueError,
)
from labeled.compat.pylearn2.space.batches import (
    as_dtype_name,
    is_numeric_batch,
    is_symbolic_batch,
    why_not_dtype,
)
from labeled.compat.pylearn2.sparse import csr_matrix
from labeled.spaces.arrays import is_dask, is_sparse, lazy_zeros

Callbacks = list[Callable[[Any], None]]
Converter = Callable[[Any, Any, Any], Any]

_MADE_FROM: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""The lazy batch that each lazy result was made from, so that undoing finds the very object."""


class Space:
    """A way in which a batch can look.

    Parameters
    ----------
    validate_callbacks, np_validate_callbacks : list of functions, optional
        Called with the batch before the space's own checks.
    """

    converter: ClassVar[Converter]  # set by routes: (batch, space, target) -> batch

    def __init__(
        self,
        validate_callbacks: Callbacks | None = None,
        np_validate_callbacks: Callbacks | None = None,
    ) -> None:
        self.validate_callbacks = [] if validate_callbacks is None else validate_callbacks
        self.np_validate_callbacks = [] if np_validate_callbacks is None else np_validate_callbacks

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return str(self)

    def _missing(self, what: str) -> NoReturn:
        raise OldNotImplementedError(f"{type(self).__name__} has no {what}")

    # ------------------------------------------------------------ what a space is
    @property
    def dtype(self) -> Any:
        """Name of the dtype, None for any; nested for composites. Settable."""
        self._missing("dtype")

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._missing("dtype to set")

    def get_total_dimension(self) -> int:
        """Return how many numbers one example holds."""
        self._missing("total dimension")

    def get_batch_axis(self) -> int:
        """Return the position of the batch axis."""
        return 0

    def get_origin(self) -> Any:
        """Return one example of zeros."""
        self._missing("origin")

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        """Return a batch of zeros; `dtype` instead of the space's own."""
        self._missing("origin batch")

    def get_batch(self, data: Any, start: int, end: int) -> Any:
        """Not implemented by any space, as it never was."""
        self._missing("get_batch")

    def make_theano_batch(
        self, name: str | None = None, dtype: Any = None, batch_size: int | None = None
    ) -> Any:
        """Return a lazy batch of zeros, of unknown length unless `batch_size` is given."""
        return self._lazy_batch(dtype, batch_size)

    make_batch_theano = get_theano_batch = make_theano_batch

    def make_shared_batch(self, batch_size: int, name: str | None = None, dtype: Any = None) -> Any:
        """Return a lazy batch of zeros of a given length."""
        return self._lazy_batch(dtype, batch_size)

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        self._missing("lazy batch")

    # ------------------------------------------------------------ does a batch fit
    def np_validate(self, batch: Any) -> None:
        """Raise unless `batch` is a numeric batch of this space."""
        self._require_numeric(batch)
        self._checked(batch, numeric=True)

    def validate(self, batch: Any) -> None:
        """Raise unless `batch` is one of this space: a lazy one as far as can be known."""
        numeric = is_numeric_batch(batch) and not is_symbolic_batch(batch)
        if not numeric:
            self._require_symbolic(batch)
        self._checked(batch, numeric=numeric)

    def _require_numeric(self, batch: Any) -> None:
        if not is_numeric_batch(batch):
            raise OldTypeError(f"{self}: expected a numeric batch, found {type(batch).__name__}")

    def _require_symbolic(self, batch: Any) -> None:
        if not is_symbolic_batch(batch):
            raise OldTypeError(f"{self}: expected a lazy batch, found {type(batch).__name__}")

    def _checked(self, batch: Any, *, numeric: bool) -> None:
        """Run callbacks, then the class's own checks."""
        callbacks = getattr(
            self, "np_validate_callbacks" if numeric else "validate_callbacks", None
        )
        if callbacks is None:
            raise OldTypeError(f"{type(self).__name__}.__init__ did not call Space.__init__")
        for callback in callbacks:
            callback(batch)
        self._check(batch, numeric)

    def _check(self, batch: Any, numeric: bool) -> None:
        self._missing("validation")

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
        self._require_numeric(batch)
        self._checked(batch, numeric=True)
        return self._formatted(batch, space)

    def format_as(self, batch: Any, space: Space) -> Any:
        """Lay a lazy batch out for another space, lazily."""
        self._require_symbolic(batch)
        self._checked(batch, numeric=False)
        result = self._formatted(batch, space)
        if is_dask(result) and is_dask(batch) and result is not batch:
            _MADE_FROM[result.name] = batch
        return result

    def _formatted(self, batch: Any, space: Space) -> Any:
        self._check_sizes(space)
        return Space.converter(batch, self, space)

    def _check_sizes(self, space: Space) -> None:
        found, wanted = self.get_total_dimension(), space.get_total_dimension()
        if found != wanted:
            raise OldValueError(f"{self} has total dimension {found}, {space} has {wanted}")

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
    """What two spaces of one class are compared by, and what is shown; callbacks apart."""

    sparse = False

    def __init__(self, dtype: Any = "floatX", **callbacks: Any) -> None:
        super().__init__(**callbacks)
        self._dtype = self._clean_dtype_arg(dtype)

    def _clean_dtype_arg(self, dtype: Any) -> str | None:
        return as_dtype_name(dtype)

    @property
    def dtype(self) -> Any:
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._dtype = self._clean_dtype_arg(value)

    @dtype.deleter
    def dtype(self) -> None:
        raise OldAttributeError(f"the dtype of {self} can be set, not deleted")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_dtype" not in state:  # pickled before spaces had dtypes
            self._dtype = as_dtype_name("floatX")

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __str__(self) -> str:
        shown = zip(self._fields, self._key(), strict=True)
        listed = ", ".join(f"{name}={value}" for name, value in shown if value is not False)
        return f"{type(self).__name__}({listed})"

    # ------------------------------------------------------------ shapes
    def sizes(self, batch_size: int) -> tuple[int, ...]:
        """Return the shape of a batch."""
        raise NotImplementedError

    def get_total_dimension(self) -> int:
        return math.prod(self.sizes(1))

    def get_origin(self) -> Any:
        axis, sizes = self.get_batch_axis(), self.sizes(1)
        return np.zeros(sizes[:axis] + sizes[axis + 1 :])

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        zeros = np.zeros(self.sizes(batch_size), self._zeros_dtype(dtype))
        return csr_matrix(zeros) if self.sparse else zeros

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        made = self._zeros_dtype(dtype)
        zeros = lazy_zeros(self.sizes, batch_size, self.get_batch_axis(), made)
        return zeros.map_blocks(csr_matrix, dtype=zeros.dtype) if self.sparse else zeros

    def _zeros_dtype(self, dtype: Any) -> np.dtype[Any]:
        asked = self.dtype if dtype is None else as_dtype_name(dtype)
        return np.dtype("float64" if asked is None else asked)

    def _check(self, batch: Any, numeric: bool) -> None:
        if isinstance(batch, tuple):
            raise OldTypeError(f"{self}: expected one array, found a tuple of {len(batch)}")
        if batch is None:
            raise OldAttributeError(f"{self}: None has no dtype; expected an array")
        reason = why_not_dtype(batch.dtype, self.dtype)
        if reason is not None:
            raise OldTypeError(f"{self}: {reason}")
        if is_sparse(batch._meta if is_dask(batch) else batch) != self.sparse:
            kinds = ("sparse", "dense") if self.sparse else ("dense", "sparse")
            raise OldTypeError(f"{self}: expected a {kinds[0]} batch, found a {kinds[1]} one")
        expected = self.sizes(0)
        if batch.ndim != len(expected):
            raise OldValueError(
                f"{self}: expected {len(expected)} axes, found {batch.ndim}: {batch.shape}"
            )
        for axis, (found, wanted) in enumerate(zip(batch.shape, expected, strict=True)):
            if axis != self.get_batch_axis() and found != wanted and found == found:
                raise OldValueError(
                    f"{self}: axis {axis} has length {found}, expected {wanted}; the batch has "
                    f"shape {batch.shape}"
                )
