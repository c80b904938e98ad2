"""Which sources a consumer asks for, and in which spaces: ``(space, source)`` pairs.

A space says how data should look, a source says which data; both have the same structure: a name
for an elementary space, a tuple with one source per component for a composite, the empty name for a
`NullSpace`. Only structures are compared at first.

Consumers ask in any nesting, and the same pair may stand in many branches. A
`DataSpecsMapping` numbers the distinct pairs in order of first appearance, flattens anything
of the specs' structure to them, and nests flat data back, handing the same object to every
place that asked for it. `combine` does so for several consumers at once. What stands at the
leaves is opaque here: spaces, names, arrays alike.

`compile_specs` meets a request with the sources a file has, before anything is read:
unknown names, widths that cannot fit, dtypes that would lose values are refused there.
What is left is a list of steps in positions (reshape, axis order, dtype, factors),
each run as one copy, or one expansion of labels, per batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labeled import permute
from labeled._validation import as_array
from labeled.device import dtype_of, own_dtype, reshape
from labeled.display.text import count_words
from labeled.errors import ArrayError, SpaceError, SpecsError, check_known, did_you_mean
from labeled.permute.plan import checked_factor, compute_dtype, result_dtype
from labeled.spaces import arrays
from labeled.spaces.arrays import as_dtype, canonical_axes, value_for, why_not_cast
from labeled.spaces.base import ArraySpace, Space, call_for, convert, route_between
from labeled.spaces.kinds import CompositeSpace, ConvNDSpace, IndexSpace, NullSpace, VectorSpace

Source = Any  # a name, or a tuple (or list) of sources

Specs = tuple[Space, Source]

Tree = Any  # the number of a pair, None for a null position, or a tuple of trees


# ---------------------------------------------------------------- each pair once
class DataSpecsMapping:
    """The way between specs of any nesting and their distinct ``(space, source)`` pairs.

    Parameters
    ----------
    specs : (space, source)
        Any well-formed pair; lists are as good as tuples for sources.

    Attributes
    ----------
    specs_to_index : dict
        Each distinct pair and its number.
    n_unique_specs : int
        How many there are.
    spec_mapping : int, None or nested tuple
        The structure of the specs, with the number of the pair at each place and None
        for a `NullSpace`.

    Raises
    ------
    SpecsError
        If it is not a pair, or space and source differ in structure; names the branch.

    Examples
    --------
    >>> from labeled.spaces import VectorSpace
    >>> x, y = VectorSpace(3), VectorSpace(2)
    >>> source = (("features", "targets"), "features")
    >>> mapping = DataSpecsMapping((CompositeSpace((CompositeSpace((x, y)), x)), source))
    >>> mapping.flatten(source)
    ('features', 'targets')
    >>> mapping.nest((1, 2))
    ((1, 2), 1)
    >>> DataSpecsMapping((CompositeSpace((x, y)), "x"))
    Traceback (most recent call last):
    labeled.errors.SpecsError: at the top of the specs: the space has 2 components
    (CompositeSpace(VectorSpace(dim=3), VectorSpace(dim=2))), the source is the single name 'x';
    expected a tuple of 2 sources, nested as the space is, such as ('x', 'x')
    """

    def __init__(self, specs: Any) -> None:
        if not isinstance(specs, tuple | list) or len(specs) != 2:
            raise SpecsError(f"specs are a pair (space, source), found {specs!r}")
        space, source = specs
        if not isinstance(space, Space):
            swapped = "; the two are swapped" if isinstance(source, Space) else ""
            raise SpecsError(f"specs are (space, source), but {space!r} is not a space{swapped}")
        self.specs, self.specs_to_index = (space, source), dict[tuple[Space, str], int]()
        self.branches: list[str] = []  # where each distinct pair stands first
        self.spec_mapping = self._number(space, source, "")
        self.n_unique_specs = len(self.branches)

    def _number(self, space: Space, source: Source, branch: str) -> Tree:
        """Number the pairs, after checking that the source is built as the space is."""
        listed, name = isinstance(source, tuple | list), isinstance(source, str) and source
        shown = f"has {len(source)} {tuple(source)!r:.120}" if listed else f"is {source!r}"
        if isinstance(space, CompositeSpace):
            n = len(space.components)
            if listed and len(source) == n:
                parts = enumerate(zip(space.components, source, strict=True))
                return tuple(self._number(*pair, f"{branch}[{i}]") for i, pair in parts)
            shown = f"is the single name {source!r}" if name else shown
            wrong = f"the space has {count_words(n, 'component')} ({space}), the source {shown}; "
            wrong += f"expected a tuple of {count_words(n, 'source')}, nested as the space is"
            wrong += f", such as {(source,) * n}" if name else ""
        elif isinstance(space, NullSpace):
            if source == "":
                return None
            wrong = f"a NullSpace has the source '', found {source!r}"
        elif name:
            number = self.specs_to_index.setdefault((space, source), len(self.branches))
            if number == len(self.branches):
                self.branches.append(branch)
            return number
        else:
            wrong = f"the space is elementary ({space}), the source {shown}; expected a name"
        raise SpecsError(f"{_place(branch)}: {wrong}")

    def flatten(self, nested: Any, return_tuple: bool = False) -> Any:
        """Return what `nested` holds for each distinct pair.

        Parameters
        ----------
        nested : anything of the specs' structure
            Tuples or lists (or a `CompositeSpace`) where the specs are composite; at a
            null position None, '' or a `NullSpace`.
        return_tuple : bool
            Always return a tuple, also for one entry or none.

        Returns
        -------
        tuple, CompositeSpace or a bare entry
            The bare entry if there is exactly one; a `CompositeSpace` for a space; None
            if there is none.

        Raises
        ------
        SpecsError
            If the structure differs, or branches of one pair hold different things.
        """
        flat: dict[int, Any] = {}
        _gather(self.spec_mapping, nested, "", flat)
        entries = tuple(flat[i] for i in range(self.n_unique_specs))
        if return_tuple:
            return entries
        if len(entries) == 1:
            return entries[0]
        if isinstance(nested, Space):
            return CompositeSpace(entries)
        return entries or None

    def nest(self, flat: Any) -> Any:
        """Return `flat`, one entry per distinct pair, in the structure of the specs.

        Parameters
        ----------
        flat : tuple, list, CompositeSpace, or a bare entry
            A bare entry only where there is exactly one distinct pair.

        Returns
        -------
        bare entry, None or nested tuple
            None at null positions. For spaces: a `CompositeSpace`, `NullSpace` at null
            positions.

        Raises
        ------
        SpecsError
            If the number of entries is not that of the distinct pairs.
        """
        n = self.n_unique_specs
        entries = flat.components if isinstance(flat, CompositeSpace) else flat
        if not isinstance(entries, tuple | list):
            entries = () if n == 0 and _is_nothing(flat) else (flat,)
        if len(entries) != n:
            raise SpecsError(f"expected {n} entries, one per distinct pair, found {len(entries)}")
        return _nested(self.spec_mapping, entries, isinstance(flat, Space))


def _place(branch: str) -> str:
    """Return how a message names a branch of the specs."""
    return f"at component {branch} of the specs" if branch else "at the top of the specs"


def _gather(tree: Tree, nested: Any, branch: str, flat: dict[int, Any]) -> None:
    items = nested.components if isinstance(nested, CompositeSpace) else nested
    listed = isinstance(items, tuple | list)
    if isinstance(tree, tuple):
        if listed and len(items) == len(tree):
            for i, (part, item) in enumerate(zip(tree, items, strict=True)):
                _gather(part, item, f"{branch}[{i}]", flat)
            return
        found = f"{len(items)} parts" if listed else f"{items!r} alone"
        wrong = f"expected {len(tree)} parts, found {found}"
    elif tree is None:
        if _is_nothing(nested):
            return
        wrong = f"a null position holds None, found {nested!r}"
    elif listed:
        wrong = f"expected one entry, found a {type(nested).__name__} of {len(items)}"
    elif _same(flat.setdefault(tree, nested), nested):
        return
    else:
        wrong = f"the same (space, source) pair holds {nested!r} here and a different "
        wrong += f"{flat[tree]!r} before"
    raise SpecsError(f"{_place(branch)}: {wrong}")


def _is_nothing(item: Any) -> bool:
    empty = isinstance(item, str | tuple | list) and not item
    return empty or item is None or isinstance(item, NullSpace)


def _same(first: Any, second: Any) -> bool:
    """Whether two entries are equal: NumPy's arrays by dtype and values, others by identity."""
    if first is second:
        return True
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        nan = first.dtype.kind in "fc"
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=nan)
    return not hasattr(first, "shape") and not hasattr(second, "shape") and bool(first == second)


def _nested(tree: Tree, entries: Any, of_spaces: bool = False) -> Any:
    if isinstance(tree, tuple):
        parts = tuple(map(_nested, tree, repeat(entries), repeat(of_spaces)))
        return CompositeSpace(parts) if of_spaces else parts
    if tree is None:
        return NullSpace() if of_spaces else None
    return entries[tree]


# ---------------------------------------------------------------- several consumers at once
@dataclass(frozen=True)
class CombinedSpecs:
    """What several consumers ask for, as one flat request and the way back.

    Attributes
    ----------
    names : tuple of str
        The consumers.
    mapping : DataSpecsMapping
        Of all their specs, in that order.
    """

    names: tuple[str, ...]
    mapping: DataSpecsMapping

    @property
    def specs(self) -> Specs:
        """The flat ``(CompositeSpace, sources)`` to iterate: each distinct pair once."""
        pairs = tuple(self.mapping.specs_to_index)
        return CompositeSpace(tuple(s for s, _ in pairs)), tuple(name for _, name in pairs)

    def nest(self, flat: tuple[Any, ...]) -> dict[str, Any]:
        """Return what each consumer asked for, from one batch of the flat :attr:`specs`.

        Raises
        ------
        SpecsError
            If `flat` has not one entry per distinct pair.
        """
        return dict(zip(self.names, self.mapping.nest(flat), strict=True))


def combine(requests: Mapping[str, Specs]) -> CombinedSpecs:
    """Serve several consumers from one iteration, each in the nesting it asked for.

    Parameters
    ----------
    requests : mapping from a consumer's name to its (space, source)
        In the order given; a consumer that needs no data asks for ``(NullSpace(), "")``.

    Returns
    -------
    CombinedSpecs
        Iterate with ``.specs``; ``.nest(batch)`` gives each consumer its part.

    Raises
    ------
    SpecsError
        If a request is malformed; names the consumer.

    Examples
    --------
    A model wants images, a supervised cost the same images and the targets, a weight
    penalty nothing, a monitor flat rows:

    >>> import numpy as np
    >>> from labeled.spaces import Conv2DSpace, VectorSpace
    >>> images, rows, targets = Conv2DSpace((2, 2), channels=1), VectorSpace(4), VectorSpace(3)
    >>> combined = combine({
    ...     "model": (images, "features"),
    ...     "cost": (CompositeSpace((images, targets)), ("features", "targets")),
    ...     "penalty": (NullSpace(), ""),
    ...     "monitor": (rows, "features"),
    ... })
    >>> combined.specs[1]
    ('features', 'targets', 'features')
    >>> batch = combined.specs[0].get_origin_batch(8)    # one step of an iteration
    >>> data = combined.nest(batch)
    >>> data["cost"][0] is data["model"], data["penalty"], data["monitor"].shape
    (True, None, (8, 4))
    """
    for name, specs in requests.items():
        try:
            DataSpecsMapping(specs)
        except SpecsError as error:
            raise SpecsError(f"the specs of {name!r}: {error}") from error
    space = CompositeSpace(tuple(space for space, _ in requests.values()))
    source = tuple(source for _, source in requests.values())
    return CombinedSpecs(tuple(requests), DataSpecsMapping((space, source)))


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
class Cast:
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
    cast: Cast  # of what holds no labels: its axes are those of (batch, *view)

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
        return _nested(self.mapping.spec_mapping, entries)

    @property
    def batch_axes(self) -> Any:
        """Which axis of every array counts examples, nested as the specs; None where nothing is."""
        axes = [step.target.get_batch_axis() for step in self.steps]
        return _nested(self.mapping.spec_mapping, axes)

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
            where = f"{_place(branch)}: " if branch else ""
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
    cast = Cast(None, scale, shift, order)
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
