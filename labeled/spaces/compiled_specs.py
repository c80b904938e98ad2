"""From specs to work: a request meets the sources a file has, before anything is read.

Unknown names, widths that cannot fit, dtypes that would lose values are refused by `compile_specs`.
What is left is a list of steps in positions (reshape, axis order, dtype, factors),
each run as one copy, or one expansion of labels, per batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labeled import permute
from labeled._validation import as_array
from labeled.device import dtype_of, own_dtype, reshape
from labeled.errors import ArrayError, SpaceError, SpecsError, check_known, did_you_mean
from labeled.permute.plan import checked_factor, compute_dtype, result_dtype
from labeled.spaces import arrays
from labeled.spaces.arrays import as_dtype, canonical_axes, value_for, why_not_cast
from labeled.spaces.base import ArraySpace, Space, call_for, convert, route_between
from labeled.spaces.kinds import ConvNDSpace, IndexSpace, VectorSpace
from labeled.spaces.specs import DataSpecsMapping, Specs, nested, place_of


# ---------------------------------------------------------------- what is known of a source
@dataclass(frozen=True)
class SourceInfo:
    """What is known of a source before it is read.

    Attributes
    ----------
    name : str
    shape : tuple of int
        Of one row: without the example dim.
    dtype : dtype
        As in the file.
    space : Space
        The source's own space: what its numbers mean.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    space: Space


def row_space(info: SourceInfo) -> ArraySpace:
    """Return the source's own space with the batch axis first, as rows of a file have it.

    Raises
    ------
    SpecsError
        If rows of the source are not rows of its space.
    """
    own, wrong, found = info.space, None, math.prod(info.shape)
    if isinstance(own, ConvNDSpace) and own.get_batch_axis():
        own = own.with_axes(("b", *[axis for axis in own.axes if axis != "b"]))
    if not isinstance(own, VectorSpace | ConvNDSpace | IndexSpace):
        raise SpecsError(f"source {info.name!r}: its own space {own} is not one of batches")
    if info.dtype.kind == "O":
        wrong = "it has rows of different lengths; no space holds a batch of them"
    elif found != own.get_total_dimension():
        said = f"its own space {own} says {own.get_total_dimension()}"
        wrong = f"a row of shape {info.shape} holds {found} values, {said}"
    elif isinstance(own, IndexSpace) and info.dtype.kind not in "iu":
        wrong = f"labels must be integers, found {info.dtype}"
    if wrong is not None:
        raise SpecsError(f"source {info.name!r}: {wrong}")
    return own


# ---------------------------------------------------------------- from specs to work
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class ValueCast:
    """What becomes of the values of one source; None where nothing is asked.

    Parameters
    ----------
    dtype, scale, shift
        The result is ``values * scale + shift`` in `dtype`.
    axes : tuple of int, optional
        Axis ``k`` of a batch is axis ``axes[k]`` of the stored rows.
    n_classes : int, optional
        Labels become rows of as many zeros with a one in each.
    """

    dtype: np.dtype[Any] | None = None
    scale: Any = None
    shift: Any = None
    axes: tuple[int, ...] | None = None
    n_classes: int | None = None

    @property
    def scaled(self) -> bool:
        """Whether values are multiplied or moved."""
        return self.scale is not None or self.shift is not None

    @property
    def batch_axis(self) -> int:
        """Which axis of a batch counts its rows."""
        return 0 if self.axes is None else self.axes.index(0)

    def __call__(self, array: Any, where: str) -> Any:
        """Return a changed copy; an integer or label that does not fit is an error at `where`."""
        if self.n_classes is not None:
            array = array.gathered() if isinstance(array, permute.Taken) else array
            labels = reshape(array, (len(array), 1))
            return call_for(where, arrays.one_hot, labels, self.n_classes, "merge", self.dtype)
        if not self.scaled:
            call_for(where, arrays.check_fits, array, self.dtype)
        axes = range(array.ndim) if self.axes is None else self.axes
        wanted = None if self.dtype is None else own_dtype(array, self.dtype)
        return permute.copy(array, axes, dtype=wanted, scale=self.scale, shift=self.shift)


def check_factor(
    option: str, value: Any, found: np.dtype[Any], wanted: np.dtype[Any] | None
) -> None:
    """Raise ArrayError for a scale or shift that is not finite where values are computed."""
    try:
        computed = compute_dtype(found, result_dtype(found, wanted, True))
        with np.errstate(over="ignore"):  # reported below
            factor = checked_factor(option, value, computed)
        if factor is not None and not np.isfinite(factor).all():
            raise ArrayError(f"values are computed in {computed}, where it is not finite")
    except ArrayError as error:
        raise ArrayError(f"{option}={value!r} cannot be: {error}") from None


@dataclass(frozen=True, eq=False)
class SpecStep:
    """How one source becomes one space: everything in positions."""

    source: str
    target: ArraySpace
    row_shape: tuple[int, ...]  # of the file
    view: tuple[int, ...]  # the same row with one axis per axis name
    labels: IndexSpace | None  # the source's space, where it holds labels
    dtype: np.dtype[Any]  # of the result
    cast: ValueCast  # of what holds no labels: its axes are those of (batch, *view)

    def __call__(self, rows: Any) -> Any:
        """Return new C-contiguous memory with `rows` laid out for the target."""
        who, labels = f"source {self.source!r}", self.labels
        if isinstance(rows, permute.Taken) and labels is not None:
            rows = rows.gathered()
        x = reshape(rows, (rows.shape[0], *self.view))
        if labels is not None:
            made = call_for(who, convert, x, labels, self.target)
            kept = isinstance(self.target, IndexSpace) and dtype_of(made) == dtype_of(x)
            return permute.copy(made, (0, 1)) if kept else made
        laid_out = reshape(self.cast(x, who), self.target.sizes(x.shape[0]))
        return arrays.csr(laid_out) if self.target.sparse else laid_out


@dataclass(frozen=True, eq=False)
class CompiledSpecs:
    """A request that fits its sources, ready to lay out batch after batch.

    Attributes
    ----------
    specs : (space, source)
        What was asked for.
    sources : tuple of str
        The sources to read, each once, in order of first appearance.
    steps : tuple of SpecStep
        One per distinct (space, source) pair.
    mapping : DataSpecsMapping
        Between the pairs and the nesting asked for.
    """

    specs: Specs
    sources: tuple[str, ...]
    steps: tuple[SpecStep, ...]
    mapping: DataSpecsMapping = field(repr=False)

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
            several branches is laid out once; all of them get the same object.

        Raises
        ------
        SpecsError
            If a source is missing or its shape is not what was promised.
        SpaceError
            If labels or integers do not fit; names source, value and row.
        """
        n_rows: dict[str, int] = {}
        for step in self.steps:
            found, *row_shape = arrays[step.source].shape
            n_rows[step.source] = found
            if tuple(row_shape) != step.row_shape:
                wrong = f"rows have shape {tuple(row_shape)}, expected {step.row_shape}"
                raise SpecsError(f"source {step.source!r}: {wrong}")
        if len({*n_rows.values()}) > 1:
            raise SpecsError(f"the sources of a batch differ in rows: {n_rows}")
        entries = [step(arrays[step.source]) for step in self.steps]
        return nested(self.mapping.spec_mapping, entries)

    @property
    def batch_axes(self) -> Any:
        """Which axis of every array counts examples, nested as the specs; None where nothing is."""
        axes = [step.target.get_batch_axis() for step in self.steps]
        return nested(self.mapping.spec_mapping, axes)

    @property
    def sparse(self) -> bool:
        """Whether some arrays of a batch are sparse."""
        return any(step.target.sparse for step in self.steps)

    def out_bytes(self, n: int) -> int:
        """Return the bytes of all arrays of a batch of `n` rows, each distinct pair once."""
        return sum(math.prod(step.target.sizes(n)) * step.dtype.itemsize for step in self.steps)


def compile_specs(
    specs: Specs,
    sources: Mapping[str, SourceInfo],
    *,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
    scale: Any = None,
    shift: Any = None,
) -> CompiledSpecs:
    """Match specs with the sources of a dataset; what cannot work later is an error now.

    Parameters
    ----------
    specs : (space, source)
        Nested in any way.
    sources : mapping from name to SourceInfo
        What the dataset has.
    dtype : dtype or mapping per source, optional
        For spaces that have none of their own. A single one does not apply to labels that are
        requested as labels (`IndexSpace`).
    scale, shift : scalar, 1-D array per channel, or mapping per source, optional
        The result is ``source * scale + shift``. Per channel: one number per channel of
        an image, per feature of a vector. Single values do not apply to labels.

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
    >>> sources = {
    ...     "images": SourceInfo("images", (3, 8, 8), np.dtype("u1"), own),
    ...     "targets": SourceInfo("targets", (), np.dtype("i8"), IndexSpace(10, 1)),
    ... }
    >>> wanted = CompositeSpace((own.with_axes(("c", 0, 1, "b")), VectorSpace(10), NullSpace()))
    >>> compiled = compile_specs(
    ...     (wanted, ("images", "targets", "")), sources, dtype="float32", scale=1 / 255
    ... )
    >>> compiled.sources, compiled.out_bytes(64)
    (('images', 'targets'), 51712)
    >>> images, targets, nothing = compiled(
    ...     {"images": np.full((2, 3, 8, 8), 255, "u1"), "targets": np.array([3, 1])}
    ... )
    >>> images.shape, float(images.max()), targets.argmax(axis=1), nothing
    ((3, 8, 8, 2), 1.0, array([3, 1]), None)
    """
    mapping = DataSpecsMapping(specs)
    options = {"dtype": dtype, "scale": scale, "shift": shift}
    for name, option in options.items():
        asked = option if isinstance(option, Mapping) else ()
        check_known(f"{name}= names", asked, sources, "a source", SpecsError)
    steps: list[SpecStep] = []
    for (space, source), number in mapping.specs_to_index.items():
        try:
            if source not in sources:
                raise SpecsError(f"{source!r} is not a source; {did_you_mean(source, sources)}")
            steps.append(_step(space, sources[source], options))
        except (ArrayError, SpaceError, SpecsError) as error:
            named = "" if isinstance(error, SpecsError) else f"source {source!r}: "
            branch = mapping.branches[number]
            where = f"{place_of(branch)}: " if branch else ""
            raise SpecsError(f"{where}{named}{error}") from error
    read = dict.fromkeys(source for _, source in mapping.specs_to_index)
    return CompiledSpecs(mapping.specs, tuple(read), tuple(steps), mapping)


# ---------------------------------------------------------------- one pair
def _step(space: Space, info: SourceInfo, options: Mapping[str, Any]) -> SpecStep:
    own = row_space(info)
    if not isinstance(space, VectorSpace | ConvNDSpace | IndexSpace):
        raise SpaceError(f"batches are not made as {space}")
    try:
        route_between(own.with_dtype(None), space.with_dtype(None))
    except SpaceError as error:
        wrong = f"rows of shape {info.shape} and dtype {info.dtype} do not fit {space}: {error}"
        if info.dtype.kind in "iu" and isinstance(own, VectorSpace) and len(info.shape) < 2:
            labels = f"with_spaces({info.name}=IndexSpace(max_labels, {own.dim}))"
            wrong += f". If its integers are labels, say so: {labels}"
        raise SpaceError(wrong) from error
    if isinstance(space, ConvNDSpace) and not isinstance(own, ConvNDSpace):
        own = ConvNDSpace(space.shape, space.channels)  # in the order in which rows are flattened
    axes = to = own.axis_names()
    if isinstance(own, ConvNDSpace):
        to = space.axes if isinstance(space, ConvNDSpace) else canonical_axes(len(own.shape))
    order = tuple(map(axes.index, to))  # axes of the result
    view = own.sizes(0)[1:]  # a row with one axis per name
    channel = axes.index("c" if "c" in axes else axes[-1]) - 1
    held = own.with_dtype(None) if isinstance(own, IndexSpace) else None
    asked, stored = options["dtype"], info.dtype.newbyteorder("=")
    wanted = _wanted_dtype(space, info.name, asked) if held is None else None
    scale = _factor("scale", options, info, wanted, view, channel)
    shift = _factor("shift", options, info, wanted, view, channel)
    cast = ValueCast(None, scale, shift, order)
    if held is not None:
        if cast.scaled:
            raise SpaceError("it holds labels, which take no scale or shift")
        as_labels = isinstance(space, IndexSpace)
        asked = None if as_labels and not isinstance(asked, Mapping) else asked
        made = _wanted_dtype(space, info.name, asked)
        if made is None:
            made = stored if as_labels else np.dtype(np.float64)
        space = space.with_dtype(made)
    else:
        reason = why_not_cast(info.dtype, wanted, scaled=cast.scaled)
        if reason is not None:
            raise SpaceError(reason)
        made = result_dtype(stored, wanted, cast.scaled)
    return SpecStep(info.name, space, info.shape, view, held, made, replace(cast, dtype=made))


# ---------------------------------------------------------------- dtype, scale, shift
def _wanted_dtype(space: ArraySpace, source: str, asked: Any) -> np.dtype[Any] | None:
    """Return the space's dtype, else the one asked for; both only where they agree."""
    given = as_dtype(value_for(source, asked))
    own: np.dtype[Any] | None = space.dtype
    if given is None or own is None:
        return given if own is None else own
    if given != own and isinstance(asked, Mapping):
        raise SpaceError(f"dtype={given} contradicts {space}")
    return own


def _factor(
    name: str, options: Any, info: SourceInfo, wanted: Any, view: tuple[int, ...], channel: int
) -> Array | None:
    """Return one factor so that it broadcasts against (batch, *view)."""
    value = value_for(info.name, options[name])
    is_single = not isinstance(options[name], Mapping)
    if value is None or (is_single and isinstance(info.space, IndexSpace)):
        return None  # a single factor is not for labels
    numbers = as_array(name, value, ArrayError)
    if numbers.dtype.kind not in "biuf" or numbers.ndim > 1:
        raise SpaceError(f"{name} must be a number or a 1-D array per channel")
    check_factor(name, value, info.dtype, wanted)
    if not numbers.ndim:
        return numbers
    if len(numbers) != view[channel]:
        each = f"expected {view[channel]}, one per {'feature' if len(view) == 1 else 'channel'}"
        raise SpaceError(f"{name} has {len(numbers)} numbers, {each}")
    return numbers.reshape(-1, *(1,) * (len(view) - 1 - channel))
