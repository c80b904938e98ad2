"""Several spaces at once, and none at all.

A `CompositeSpace` batch is a tuple with one batch per component, nested likewise; all
its parts have the same number of rows. A `NullSpace` batch is None: what a consumer
asks for that needs no data. A null component counts no columns and no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from labeled._validation import check_arguments
from labeled.display.text import count_words
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces.base import Space
from labeled.spaces.checks import (
    Batch,
    fault,
    has_names,
    is_lazy,
    named_batches,
    rows_asked,
    whole,
)


@dataclass(frozen=True, init=False, repr=False)
class NullSpace(Space):
    """The space of no data: its only batch is None.

    Examples
    --------
    >>> NullSpace().np_validate(None)
    >>> NullSpace() == NullSpace(), NullSpace().get_total_dimension()
    (True, 0)
    """

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        self._set_callbacks(validate_callbacks, np_validate_callbacks)

    def __repr__(self) -> str:
        return "NullSpace()"

    @property
    def dtype(self) -> None:
        """Always None: there is nothing to have one."""
        return None

    def sizes(self, n: int) -> None:
        return None

    def get_total_dimension(self) -> int:
        return 0

    def with_dtype(self, dtype: Any) -> Self:
        return self

    def get_origin(self) -> None:
        return None

    def get_origin_batch(self, n: int, dtype: Any = None) -> None:
        rows_asked(self, n)

    def check(self, batch: Batch, branch: str = "") -> None:
        if batch is not None:
            text = f"expected None, found {type(batch).__qualname__}"
            fault(SpaceTypeError, self, branch, text)

    def _make_batch(self, n: int | None, dtype: Any, chunks: Any, dims: Any) -> None:
        return None

    def batch_rows(self, batch: Batch) -> int:
        return 0


@dataclass(frozen=True, init=False, repr=False)
class CompositeSpace(Space):
    """Tuples of batches, one per component, all of the same number of rows.

    Parameters
    ----------
    components : sequence of Space
        May be composites themselves.

    Examples
    --------
    >>> from labeled.spaces import IndexSpace, VectorSpace
    >>> pair = CompositeSpace((VectorSpace(3), IndexSpace(10, 1)))
    >>> pair.sizes(8), pair.get_total_dimension()
    (((8, 3), (8, 1)), 4)
    >>> pair.restrict([1])
    IndexSpace(max_labels=10, dim=1)
    """

    components: tuple[Space, ...] = ()

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        components: Sequence[Space],
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        self._set_callbacks(validate_callbacks, np_validate_callbacks)
        if not isinstance(components, list | tuple):
            raise SpaceTypeError(
                f"CompositeSpace: components must be a list or tuple of spaces, "
                f"found {components!r}"
            )
        for i, component in enumerate(components):
            if not isinstance(component, Space):
                raise SpaceTypeError(
                    f"CompositeSpace: component [{i}] must be a space, found {component!r}"
                )
        self._set(components=tuple(components))

    def __repr__(self) -> str:
        return f"CompositeSpace({', '.join(map(str, self.components))})"

    @property
    def dtype(self) -> tuple[Any, ...]:
        """The dtypes of the components, nested as they are."""
        return tuple(component.dtype for component in self.components)

    def sizes(self, n: int) -> tuple[Any, ...]:
        return tuple(component.sizes(n) for component in self.components)

    def get_total_dimension(self) -> int:
        return sum(component.get_total_dimension() for component in self.components)

    def get_batch_axis(self) -> int:
        data = [part for part in self.components if not isinstance(part, NullSpace)]
        axes = [part.get_batch_axis() for part in data]
        if len(set(axes)) > 1:
            fault(SpaceError, self, "", f"the components have the batch axis at {tuple(axes)}")
        return axes[0] if axes else 0

    def axis_rows(self) -> list[tuple[str, ...]]:
        rows = []
        for i, component in enumerate(self.components):
            inner = component.axis_rows() or [(type(component).__name__, "", "")]
            rows += [(f"[{i}] {where}", *axis) for where, *axis in inner]
        return rows

    def about(self) -> list[str]:
        return [count_words(len(self.components), "component")]

    def with_dtype(self, dtype: Any) -> Self:
        dtypes = self._per_component(dtype)
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        pairs = zip(self.components, dtypes, strict=True)
        changed._set(components=tuple(component.with_dtype(one) for component, one in pairs))
        return changed

    def _per_component(self, dtype: Any) -> tuple[Any, ...]:
        if not isinstance(dtype, tuple):
            return (dtype,) * len(self.components)
        if len(dtype) != len(self.components):
            text = f"{len(dtype)} dtypes for {len(self.components)} components: {dtype}"
            fault(SpaceError, self, "", text)
        return dtype

    def get_origin(self) -> tuple[Any, ...]:
        return tuple(component.get_origin() for component in self.components)

    def get_origin_batch(self, n: int, dtype: Any = None) -> tuple[Any, ...]:
        pairs = zip(self.components, self._per_component(dtype), strict=True)
        return tuple(component.get_origin_batch(n, one) for component, one in pairs)

    def _make_batch(self, n: int | None, dtype: Any, chunks: Any, dims: Any) -> tuple[Any, ...]:
        pairs = zip(self.components, self._per_component(dtype), strict=True)
        return tuple(
            component.make_batch(n, dtype=one, chunks=chunks, dims=dims) for component, one in pairs
        )

    def restrict(self, indices: Sequence[int]) -> Space:
        """Return the space of some components, in that order; the bare one for one index."""
        chosen = tuple(self._component(i) for i in self._indices(indices))
        return chosen[0] if len(chosen) == 1 else CompositeSpace(chosen)

    def restrict_batch(self, batch: Batch, indices: Sequence[int]) -> Batch:
        """Return the parts of `batch` for :meth:`restrict` of the same `indices`."""
        self.validate(batch)
        numbers = self._indices(indices)
        for i in numbers:
            self._component(i)
        chosen = tuple(batch[i] for i in numbers)
        return chosen[0] if len(chosen) == 1 else chosen

    def _indices(self, indices: Any) -> tuple[int, ...]:
        if not isinstance(indices, Iterable) or isinstance(indices, str):
            text = f"components are chosen by a list of numbers, found {indices!r}"
            fault(SpaceTypeError, self, "", text)
        return tuple(indices)

    def _component(self, i: int) -> Space:
        number = whole(i, f"{self}: a component")
        if not 0 <= number < len(self.components):
            fault(SpaceError, self, "", f"no component {i}, there are {len(self.components)}")
        return self.components[number]

    def check(self, batch: Batch, branch: str = "") -> None:
        self._check_container(batch, branch)
        sizes: list[tuple[str, float]] = []
        for i, (component, part) in enumerate(zip(self.components, batch, strict=True)):
            where = f"{branch}[{i}]"
            self._callbacks(component, part)
            component.check(part, where)
            if not isinstance(component, NullSpace):
                sizes.append((where, _rows(component, part)))
        self._check_agreement(sizes, branch)

    def _callbacks(self, component: Space, part: Batch) -> None:
        chosen = component.validate_callbacks if is_lazy(part) else component.np_validate_callbacks
        for callback in chosen:
            callback(part)

    def _check_container(self, batch: Batch, branch: str) -> None:
        if not isinstance(batch, tuple):
            hint = "; a list is not a batch, make it a tuple" if isinstance(batch, list) else ""
            text = f"expected a tuple of {len(self.components)} batches, found "
            fault(SpaceTypeError, self, branch, f"{text}{type(batch).__qualname__}{hint}")
        if len(batch) != len(self.components):
            text = f"expected {len(self.components)} batches, found {len(batch)}"
            fault(SpaceError, self, branch, text)

    def _check_agreement(self, sizes: list[tuple[str, float]], branch: str) -> None:
        known = [(where, n) for where, n in sizes if n == n]
        if len({n for _, n in known}) > 1:
            shown = ", ".join(f"{where} has {n}" for where, n in known)
            fault(SpaceError, self, branch, f"the components differ in rows: {shown}")

    def batch_rows(self, batch: Batch) -> int:
        for component, part in zip(self.components, batch, strict=True):
            rows = component.batch_rows(part)
            if rows:
                return rows
        return 0


def _rows(space: Space, batch: Batch) -> float:
    """Rows of one valid part; NaN where not known yet."""
    if isinstance(space, CompositeSpace):
        pairs = zip(space.components, batch, strict=True)
        counts = (_rows(c, part) for c, part in pairs if part is not None)
        return next((n for n in counts if n == n), float("nan"))
    if has_names(batch):
        batch = named_batches().data_of(batch, space, "")
    n = batch.shape[space.get_batch_axis()]
    return float("nan") if n != n else space.batch_rows(batch)
