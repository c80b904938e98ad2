"""From specs to work: what to read, and one pass over memory for each distinct pair.

`compile_specs` meets a request with the sources a file has, before anything is read:
unknown names, widths that cannot fit, dtypes that would lose values are refused here.
What is left is a list of steps in positions (reshape, axis order, dtype, factors),
each run as one copy, or one expansion of labels, per batch.

The compiled request sees arrays by source name; how they were read is not its
business. Names become positions once, so that the per-batch part looks nothing up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from labeled import permute
from labeled.device import dtype_of, own_dtype, reshape
from labeled.errors import SpaceError, SpecsError, did_you_mean
from labeled.permute.arguments import result_dtype
from labeled.spaces.arrays import (
    as_dtype,
    canonical_axes,
    check_fits,
    csr,
    order_of,
    value_for,
    why_not_cast,
)
from labeled.spaces.base import ArraySpace, Space, told
from labeled.spaces.kinds import CompositeSpace, ConvNDSpace, IndexSpace, VectorSpace
from labeled.spaces.specs import DataSpecsMapping, Specs, branch_of, place

Array = np.ndarray[Any, np.dtype[Any]]
Called = tuple[tuple[int, ...], Any]


@dataclass(frozen=True)
class SourceInfo:
    """What is known of a source before it is read.

    Attributes
    ----------
    name : str
    dims : tuple of str
        The example dim first.
    shape : tuple of int
        Of one row: without the example dim.
    dtype : dtype
        As in the file.
    space : Space
        The source's own space: what its numbers mean.
    mask : bool
        Its values tell where those of another source are.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    space: Space
    mask: bool = False


class ArraySpec(NamedTuple):
    """Shape and dtype of an array that is not there yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array of this shape and dtype."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Step:
    """How one source becomes one space: everything in positions."""

    source: str
    target: ArraySpace
    row_shape: tuple[int, ...]  # of the file
    view: tuple[int, ...]  # the same row with one axis per axis name
    order: tuple[int, ...]  # axes of (batch, *view) in the order of the result
    labels: IndexSpace | None  # the source's space, where it holds labels
    dtype: np.dtype[Any]  # of the result
    scale: Array | None = field(default=None, repr=False)
    shift: Array | None = field(default=None, repr=False)

    @property
    def batch_axis(self) -> int:
        """Which axis of the result counts examples."""
        return self.target.get_batch_axis()

    def spec(self, n: int) -> ArraySpec:
        """Return shape and dtype of the result for `n` rows."""
        return ArraySpec(self.target.sizes(n), self.dtype)

    def __call__(self, rows: Array) -> Any:
        """Return new C-contiguous memory with `rows` laid out for the target."""
        x = reshape(rows, (rows.shape[0], *self.view))
        if self.labels is not None:
            made = told(f"source {self.source!r}", "", self.labels.np_format_as, x, self.target)
            kept = isinstance(self.target, IndexSpace) and dtype_of(made) == dtype_of(x)
            return permute.copy(made, (0, 1)) if kept else made
        if self.scale is None and self.shift is None:
            told(f"source {self.source!r}", "", check_fits, x, self.dtype)
        wanted = own_dtype(x, self.dtype)
        y = permute.copy(x, self.order, dtype=wanted, scale=self.scale, shift=self.shift)
        laid_out = reshape(y, self.target.sizes(x.shape[0]))
        return csr(laid_out) if self.target.sparse else laid_out


@dataclass(frozen=True, eq=False)
class CompiledSpecs:
    """A request that fits its sources, ready to lay out batch after batch.

    Attributes
    ----------
    specs : (space, source)
        What was asked for.
    sources : tuple of str
        The sources to read, each once, in order of first appearance.
    steps : tuple of Step
        One per distinct (space, source) pair.
    mapping : DataSpecsMapping
        Between the pairs and the nesting asked for.
    called : tuple
        What the spaces' callbacks are called with: the way to a part of the batch, and they.
    """

    specs: Specs
    sources: tuple[str, ...]
    steps: tuple[Step, ...]
    mapping: DataSpecsMapping = field(repr=False)
    called: tuple[Called, ...] = field(default=(), repr=False)

    def __call__(self, arrays: Mapping[str, Array]) -> Any:
        """Lay out one batch.

        Parameters
        ----------
        arrays : mapping from source to array (batch, *row shape)
            As read from the file, examples along axis 0; all of the same length.

        Returns
        -------
        array, None or nested tuple
            Nested as the specs are, C-contiguous, in new memory. A pair asked for in
            several places is laid out once; all of them get the same object.

        Raises
        ------
        SpecsError
            If a source is missing or its shape is not what was promised.
        SpaceError
            If labels or integers do not fit; names source, value and row.
        """
        entries: list[Any] = []
        n_rows: dict[str, int] = {}
        for step in self.steps:
            if step.source not in arrays:
                known = did_you_mean(step.source, arrays)
                raise SpecsError(f"the batch has no source {step.source!r}: {known}")
            rows = arrays[step.source]
            if not rows.shape or rows.shape[1:] != step.row_shape:
                found = f"rows have shape {rows.shape[1:]}, expected {step.row_shape}"
                raise SpecsError(f"source {step.source!r}: {found}")
            n_rows[step.source] = rows.shape[0]
            if len({*n_rows.values()}) > 1:
                raise SpecsError(f"the sources of a batch differ in rows: {n_rows}")
            entries.append(step(rows))
        made = self.mapping.nest(entries)
        for path, callbacks in self.called:
            part = made
            for number in path:
                part = part[number]
            for callback in callbacks:
                callback(part)
        return made

    def out_specs(self, n: int) -> Any:
        """Return the `ArraySpec` of every array of a batch of `n` rows, nested as the specs."""
        return self.mapping.nest(tuple(step.spec(n) for step in self.steps))

    @property
    def batch_axes(self) -> Any:
        """Which axis of every array counts examples, nested as the specs; None where nothing is."""
        return self.mapping.nest(tuple(step.batch_axis for step in self.steps))

    @property
    def sparse(self) -> bool:
        """Whether some arrays of a batch are sparse."""
        return any(step.target.sparse for step in self.steps)

    def out_bytes(self, n: int) -> int:
        """Return the bytes of all arrays of a batch of `n` rows, each distinct pair once."""
        return sum(step.spec(n).nbytes for step in self.steps)


def compile_specs(
    specs: Specs,
    sources: Mapping[str, SourceInfo],
    *,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
    scale: Any = None,
    shift: Any = None,
) -> CompiledSpecs:
    """Meet a request with the sources there are; refuse now what cannot work later.

    Parameters
    ----------
    specs : (space, source)
        Nested in any way.
    sources : mapping from name to SourceInfo
        What the dataset has.
    dtype : dtype or mapping per source, optional
        For spaces that have none of their own. A single one is not for labels that are
        asked for as labels (`IndexSpace`).
    scale, shift : scalar, 1-D array per channel, or mapping per source, optional
        The result is ``source * scale + shift``. Per channel: one number per channel of
        an image, per feature of a vector. Single ones are not for labels and masks.

    Returns
    -------
    CompiledSpecs

    Raises
    ------
    SpecsError
        If the specs are malformed, name an unknown source, ask for a space that the
        source cannot be laid out for, or for a cast that would lose values.

    Examples
    --------
    >>> from labeled.spaces import CompositeSpace, Conv2DSpace, NullSpace
    >>> own = Conv2DSpace((8, 8), channels=3, axes=("b", "c", 0, 1))
    >>> dims = ("batch", "channel", "height", "width")
    >>> sources = {
    ...     "images": SourceInfo("images", dims, (3, 8, 8), np.dtype("u1"), own),
    ...     "targets": SourceInfo("targets", ("batch",), (), np.dtype("i8"), IndexSpace(10, 1)),
    ... }
    >>> wanted = CompositeSpace((own.with_axes(("c", 0, 1, "b")), VectorSpace(10), NullSpace()))
    >>> compiled = compile_specs(
    ...     (wanted, ("images", "targets", "")), sources, dtype="float32", scale=1 / 255
    ... )
    >>> compiled.sources, compiled.out_specs(64)[0]
    (('images', 'targets'), ArraySpec(shape=(3, 8, 8, 64), dtype=dtype('float32')))
    >>> images, targets, nothing = compiled(
    ...     {"images": np.full((2, 3, 8, 8), 255, "u1"), "targets": np.array([3, 1])}
    ... )
    >>> images.shape, float(images.max()), targets.argmax(axis=1), nothing
    ((3, 8, 8, 2), 1.0, array([3, 1]), None)
    """
    mapping = DataSpecsMapping(specs)
    options = {"dtype": dtype, "scale": scale, "shift": shift}
    for name, option in options.items():
        for source in option if isinstance(option, Mapping) else ():
            if source not in sources:
                known = did_you_mean(source, sources)
                raise SpecsError(f"{name}= names no source {source!r}: {known}")
    steps: list[Step] = []
    for (space, source), number in mapping.specs_to_index.items():
        try:
            if source not in sources:
                raise SpecsError(f"there is no source {source!r}: {did_you_mean(source, sources)}")
            steps.append(_step(space, sources[source], options))
        except (SpaceError, SpecsError) as error:
            branch = branch_of(mapping.spec_mapping, number)
            where = f"{place(branch)}: " if branch else ""
            named = f"source {source!r}: " if isinstance(error, SpaceError) else ""
            raise SpecsError(f"{where}{named}{error}") from error
    read = tuple(dict.fromkeys(step.source for step in steps))
    called = tuple(_callbacks_of(mapping.specs[0]))
    return CompiledSpecs(mapping.specs, read, tuple(steps), mapping, called)


def _callbacks_of(space: Space, path: tuple[int, ...] = ()) -> Iterator[Called]:
    """Yield the callbacks of every space, with the way to its batch; the outer ones first."""
    if space.np_validate_callbacks:
        yield path, space.np_validate_callbacks
    parts = space.components if isinstance(space, CompositeSpace) else ()
    for number, part in enumerate(parts):
        yield from _callbacks_of(part, (*path, number))


# ---------------------------------------------------------------- one pair
def _step(space: Space, info: SourceInfo, options: Mapping[str, Any]) -> Step:
    own = row_space(info)
    if not isinstance(space, VectorSpace | ConvNDSpace | IndexSpace):
        raise SpecsError(f"source {info.name!r}: batches are not made as {space}")
    _check_fit(own, space, info)
    if isinstance(own, IndexSpace):
        return _label_step(own, space, info, options)
    view, order = _positions(own, space)
    scale = _factor("scale", options["scale"], info, view, own, space)
    shift = _factor("shift", options["shift"], info, view, own, space)
    scaled = scale is not None or shift is not None
    wanted = _wanted_dtype(space, info.name, options["dtype"])
    reason = why_not_cast(info.dtype, wanted, scaled=scaled)
    if reason is not None:
        raise SpecsError(f"source {info.name!r}: {reason}")
    made = result_dtype(info.dtype.newbyteorder("="), wanted, scaled)
    return Step(info.name, space, info.shape, view, order, None, made, scale, shift)


def row_space(info: SourceInfo) -> ArraySpace:
    """Return the source's own space with the batch axis first, as rows of a file have it.

    Raises
    ------
    SpecsError
        If rows of the source are not rows of its space.
    """
    own = info.space
    if isinstance(own, ConvNDSpace):
        own = own.with_axes(("b", *(axis for axis in own.axes if axis != "b")))
    if not isinstance(own, VectorSpace | ConvNDSpace | IndexSpace):
        raise SpecsError(f"source {info.name!r}: its own space {own} is not one of batches")
    if info.dtype.kind == "O":
        raise SpecsError(
            f"source {info.name!r} has rows of different lengths; no space holds a batch of them"
        )
    found = math.prod(info.shape)
    if found != own.get_total_dimension():
        raise SpecsError(
            f"source {info.name!r}: a row of shape {info.shape} holds {found} values, "
            f"its own space {own} says {own.get_total_dimension()}"
        )
    if isinstance(own, IndexSpace) and info.dtype.kind not in "iu":
        raise SpecsError(f"source {info.name!r}: labels must be integers, found {info.dtype}")
    return own


def _check_fit(own: ArraySpace, space: ArraySpace, info: SourceInfo) -> None:
    reason = own.with_dtype(None).why_not_format_as(space.with_dtype(None))
    if reason is None:
        return
    hint = ""
    if info.dtype.kind in "iu" and isinstance(own, VectorSpace) and len(info.shape) <= 1:
        labels = f"{info.name}=IndexSpace(max_labels, {own.dim})"
        hint = f". If its integers are labels, say so: with_spaces({labels})"
    shape = f"rows of shape {info.shape} and dtype {info.dtype}"
    raise SpecsError(f"source {info.name!r} ({shape}) does not fit {space}: {reason}{hint}")


def _positions(own: ArraySpace, space: ArraySpace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the row shape that has one axis per name, and the order of the result's axes."""
    if isinstance(own, ConvNDSpace):
        to = space.axes if isinstance(space, ConvNDSpace) else canonical_axes(len(own.shape))
        return own.sizes(0)[1:], order_of(own.axes, to)
    if isinstance(space, ConvNDSpace):
        canonical = canonical_axes(len(space.shape))
        return (*space.shape, space.channels), order_of(canonical, space.axes)
    return own.sizes(0)[1:], (0, 1)


def _label_step(
    own: IndexSpace, space: ArraySpace, info: SourceInfo, options: Mapping[str, Any]
) -> Step:
    for name in ("scale", "shift"):
        if isinstance(options[name], Mapping) and options[name].get(info.name) is not None:
            raise SpecsError(f"source {info.name!r} holds labels, which take no {name}")
    own = own.with_dtype(None)
    asked = options["dtype"]
    if isinstance(space, IndexSpace) and not isinstance(asked, Mapping):
        asked = None
    wanted = _wanted_dtype(space, info.name, asked)
    stored = info.dtype.newbyteorder("=")
    expanded = np.dtype(np.float64) if isinstance(space, VectorSpace) else stored
    made = expanded if wanted is None else wanted
    target = space.with_dtype(made).without_callbacks()  # called once, for the whole batch
    return Step(info.name, target, info.shape, (own.dim,), (0, 1), own, made)


# ---------------------------------------------------------------- dtype, scale, shift
def _wanted_dtype(space: ArraySpace, source: str, asked: Any) -> np.dtype[Any] | None:
    """Return the space's dtype, else the one asked for; both only where they agree."""
    given = as_dtype(value_for(source, asked))
    if space.dtype is None:
        return given
    if isinstance(asked, Mapping) and given is not None and given != space.dtype:
        raise SpecsError(f"source {source!r}: dtype={given} contradicts {space}")
    own: np.dtype[Any] = space.dtype
    return own


def _factor(
    name: str,
    option: Any,
    info: SourceInfo,
    view: tuple[int, ...],
    own: ArraySpace,
    space: ArraySpace,
) -> Array | None:
    """Return one factor so that it broadcasts against (batch, *view)."""
    value = value_for(info.name, option)
    if value is None or (info.mask and not isinstance(option, Mapping)):
        return None  # a single factor is not for masks
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "biuf" or numbers.ndim > 1:
        text = f"{name} must be a number or a 1-D array per channel"
        raise SpecsError(f"source {info.name!r}: {text}")
    if numbers.ndim == 0:
        return numbers
    axis = len(space.shape) if isinstance(space, ConvNDSpace) else 0
    if isinstance(own, ConvNDSpace):
        axis = own.axes.index("c") - 1
    if len(numbers) != view[axis]:
        raise SpecsError(
            f"source {info.name!r}: {name} has {len(numbers)} numbers, expected {view[axis]}, "
            f"one per {'feature' if len(view) == 1 else 'channel'}"
        )
    return numbers.reshape([-1 if i == axis + 1 else 1 for i in range(len(view) + 1)])
