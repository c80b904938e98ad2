"""The old spaces of several batches, and of none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labeled.compat.pylearn2.errors import OldTypeError, OldValueError, require
from labeled.compat.pylearn2.space.base import Space


class NullSpace(Space):
    """The space of no data: its only batch is None. It has no total dimension."""

    def __str__(self) -> str:
        return "NullSpace"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def dtype(self) -> Any:
        return None

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if value is not None:
            raise OldTypeError(f"a NullSpace has no dtype, so it cannot be {value!r}")

    def make_theano_batch(
        self, name: str | None = None, dtype: Any = None, batch_size: int | None = None
    ) -> Any:
        return None

    def _check(self, batch: Any, numeric: bool) -> None:
        if batch is not None:
            raise OldTypeError(f"NullSpace: expected None, found {type(batch).__name__}")

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
        require(
            isinstance(components, list | tuple),
            f"CompositeSpace: components must be a list or tuple, found {components!r}",
        )
        for i, component in enumerate(components):
            if not isinstance(component, Space):
                raise OldTypeError(f"CompositeSpace: component {i} is no space: {component!r}")
        self.components = list(components)

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.components))})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return self.components == other.components

    def __hash__(self) -> int:
        return hash((type(self), *self.components))

    @property
    def dtype(self) -> Any:
        return tuple(component.dtype for component in self.components)

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if isinstance(value, tuple):
            if len(value) != len(self.components):
                raise OldValueError(f"{self}: {len(value)} dtypes for {len(self.components)} parts")
            for component, one in zip(self.components, value, strict=True):
                component.dtype = one
        elif value is None or isinstance(value, str):
            for component in self.components:
                if not isinstance(component, NullSpace):
                    component.dtype = value
        # anything else was ignored without a word

    def get_total_dimension(self) -> int:
        return sum(component.get_total_dimension() for component in self.components)

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        dtypes = self._dtypes(dtype)
        pairs = zip(self.components, dtypes, strict=True)
        return tuple(component.get_origin_batch(batch_size, one) for component, one in pairs)

    def make_theano_batch(
        self, name: str | None = None, dtype: Any = None, batch_size: int | None = None
    ) -> Any:
        made = []
        for i, (component, one) in enumerate(
            zip(self.components, self._dtypes(dtype), strict=True)
        ):
            own = None if name is None else f"{name}[{i}]"
            made.append(component.make_theano_batch(name=own, dtype=one, batch_size=batch_size))
        return tuple(made)

    def _dtypes(self, dtype: Any) -> tuple[Any, ...]:
        """Return one dtype a component."""
        if dtype is None or isinstance(dtype, str):
            return (dtype,) * len(self.components)
        if not isinstance(dtype, tuple) or len(dtype) != len(self.components):
            raise OldTypeError(
                f"{self}: dtype must be None, a str or a tuple of {len(self.components)}, "
                f"found {dtype!r}"
            )
        return dtype

    # ------------------------------------------------------------ parts
    def restrict(self, subset: Sequence[int]) -> Space:
        """Return the space of some components, in that order; the bare one for one."""
        chosen = [self.components[i] for i in subset]
        return chosen[0] if len(chosen) == 1 else CompositeSpace(chosen)

    def restrict_batch(self, batch: Any, subset: Sequence[int]) -> Any:
        """Return the parts of a lazy `batch` that belong to :meth:`restrict`."""
        self._require_symbolic(batch)
        self.validate(batch)
        chosen = tuple(batch[i] for i in subset)
        return chosen[0] if len(chosen) == 1 else chosen

    def _check(self, batch: Any, numeric: bool) -> None:
        if not isinstance(batch, tuple):
            raise OldTypeError(f"{self}: expected a tuple, found {type(batch).__name__}")
        if len(batch) != len(self.components):
            raise OldValueError(
                f"{self}: expected {len(self.components)} batches, found {len(batch)}"
            )
        for component, part in zip(self.components, batch, strict=True):
            component._checked(part, numeric=numeric)

    def _batch_size(self, batch: Any) -> int:
        pairs = zip(self.components, batch, strict=True)
        counts = [(component, component._batch_size(part)) for component, part in pairs]
        sizes = {n for component, n in counts if not _without_data(component)}
        empty = any(_without_data(component) for component, _ in counts)
        require(not (empty and sizes), f"{self}: a mixture of data and of none has no batch size")
        if len(sizes) > 1:
            raise OldValueError(f"{self}: the components hold {sorted(sizes)} examples")
        return sizes.pop() if sizes else 0


def _without_data(space: Space) -> bool:
    if isinstance(space, CompositeSpace):
        return all(map(_without_data, space.components))
    return isinstance(space, NullSpace)
