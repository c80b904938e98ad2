"""Which sources a consumer asks for, and in which spaces: ``(space, source)`` pairs.

A space says how data should look, a source which data; both have the same structure:
a name for an elementary space, a tuple with one source per component for a composite,
the empty name for a `NullSpace`. Only structures are compared here. Whether a file has such a
source, of such a width, is found in :mod:`labeled.spaces.compiled`.

Consumers ask in any nesting, and the same pair may stand in many places. A
`DataSpecsMapping` numbers the distinct pairs in order of first appearance, flattens anything
of the specs' structure to them, and nests flat data back, handing the same object to every
place that asked for it. `combine` does so for several consumers at once. What stands at the
leaves is opaque here: spaces, names, arrays alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from labeled.display.text import count_words
from labeled.errors import SpecsError
from labeled.spaces.arrays import is_sparse
from labeled.spaces.base import Space
from labeled.spaces.kinds import CompositeSpace, NullSpace

Source = Any
"""A name, or a tuple (or list) of sources."""

Specs = tuple[Space, Source]

Tree = Any
"""The number of a pair, None for a null position, or a tuple of trees."""


def as_specs(specs: Any) -> Specs:
    """Return `specs` as a checked ``(space, source)`` pair, its source in tuples.

    Raises
    ------
    SpecsError
        If it is not a pair, or space and source differ in structure; names the branch.

    Examples
    --------
    >>> from labeled.spaces import VectorSpace
    >>> as_specs((CompositeSpace((VectorSpace(3), VectorSpace(2))), ["x", "y"]))[1]
    ('x', 'y')
    >>> as_specs((CompositeSpace((VectorSpace(3), VectorSpace(2))), "x"))
    Traceback (most recent call last):
    labeled.errors.SpecsError: at the top of the specs: the space has 2 components
    (CompositeSpace(VectorSpace(dim=3), VectorSpace(dim=2))), the source is the single name 'x';
    expected a tuple of 2 sources, one per component, such as ('x', 'x')
    """
    if not isinstance(specs, tuple | list) or len(specs) != 2:
        raise SpecsError(f"specs are a pair (space, source), found {specs!r}")
    space, source = specs
    if not isinstance(space, Space):
        swapped = "; the two are swapped" if isinstance(source, Space) else ""
        raise SpecsError(f"specs are (space, source), but {space!r} is not a space{swapped}")
    return space, _checked(space, source, "")


def leaves(space: Space, source: Source) -> Iterator[tuple[Space, str]]:
    """Yield the elementary ``(space, name)`` pairs of checked specs, left to right, no nulls."""
    if isinstance(space, CompositeSpace):
        for part, name in zip(space.components, source, strict=True):
            yield from leaves(part, name)
    elif not isinstance(space, NullSpace):
        yield space, source


def is_flat_space(space: Space) -> bool:
    """Whether `space` is elementary, or a composite of elementary spaces.

    Raises
    ------
    SpecsError
        If it is not a space.
    """
    if not isinstance(space, Space):
        raise SpecsError(f"expected a space, found {space!r}")
    if not isinstance(space, CompositeSpace):
        return True
    return not any(isinstance(part, CompositeSpace) for part in space.components)


def is_flat_source(source: Source) -> bool:
    """Whether `source` is a name, or a tuple or list of names.

    Raises
    ------
    SpecsError
        If it is, or holds, anything but names, tuples and lists.
    """
    if isinstance(source, str):
        return True
    if not isinstance(source, tuple | list):
        raise SpecsError(f"a source is a name or a tuple of sources, found {source!r}")
    for part in source:
        if not isinstance(part, str | tuple | list):
            raise SpecsError(f"a source is a name or a tuple of sources, found {part!r}")
    return all(isinstance(part, str) for part in source)


def is_flat_specs(specs: Any) -> bool:
    """Whether space and source are flat and of the same length.

    Examples
    --------
    >>> from labeled.spaces import VectorSpace
    >>> pair = CompositeSpace((VectorSpace(3), VectorSpace(2)))
    >>> is_flat_specs((pair, ("x", "y"))), is_flat_specs((pair, ("x", "y", "z")))
    (True, False)
    """
    if not isinstance(specs, tuple | list) or len(specs) != 2:
        raise SpecsError(f"specs are a pair (space, source), found {specs!r}")
    space, source = specs
    if not (is_flat_space(space) and is_flat_source(source)):
        return False
    if isinstance(space, CompositeSpace):
        return not isinstance(source, str) and len(source) == len(space.components)
    return isinstance(source, str)


# ---------------------------------------------------------------- structure, branch by branch
def _checked(space: Space, source: Source, branch: str) -> Source:
    """Return `source` in tuples, after checking that it is built as `space` is."""
    if isinstance(space, CompositeSpace):
        n = len(space.components)
        wanted = f"the space has {count_words(n, 'component')} ({space}), the source"
        if not isinstance(source, tuple | list):
            one = f"the single name {source!r}" if isinstance(source, str) else repr(source)
            example = f", such as {(source,) * n}" if isinstance(source, str) and source else ""
            text = f"a tuple of {count_words(n, 'source')}, one per component{example}"
            _differ(branch, f"{wanted} is {one}; expected {text}")
        if len(source) != n:
            text = "expected one source per component, nested as the space is"
            _differ(branch, f"{wanted} has {len(source)} {_shown(source)}; {text}")
        parts = enumerate(zip(space.components, source, strict=True))
        return tuple([_checked(part, name, f"{branch}[{i}]") for i, (part, name) in parts])
    if isinstance(space, NullSpace):
        if not isinstance(source, str) or source:
            _differ(branch, f"a NullSpace has the source '', found {source!r}")
    elif isinstance(source, tuple | list):
        found = f"a tuple of {count_words(len(source), 'source')} {_shown(source)}"
        text = f"the space is elementary ({space}), the source is {found}; expected a name"
        _differ(branch, text)
    elif not isinstance(source, str):
        _differ(branch, f"a source is a name, found {source!r} for {space}")
    elif not source:
        _differ(branch, f"the empty name belongs to NullSpace, found it for {space}")
    return source


def _differ(branch: str, text: str) -> NoReturn:
    raise SpecsError(f"{place(branch)}: {text}")


def place(branch: str) -> str:
    """Return how a message names a branch of the specs.

    Examples
    --------
    >>> place(""), place("[1][0]")
    ('at the top of the specs', 'at component [1][0] of the specs')
    """
    return f"at component {branch} of the specs" if branch else "at the top of the specs"


def _shown(source: Source) -> str:
    text = repr(tuple(source))
    return text if len(text) <= 120 else text[:117] + "..."


# ---------------------------------------------------------------- each pair once
@dataclass(frozen=True, init=False, eq=False)
class DataSpecsMapping:
    """The way between specs of any nesting and their distinct ``(space, source)`` pairs.

    Parameters
    ----------
    specs : (space, source)
        Any well-formed pair.

    Attributes
    ----------
    specs_to_index : dict
        Each distinct pair and its number.
    n_unique_specs : int
        How many there are.
    spec_mapping : int, None or nested tuple
        The structure of the specs, with the number of the pair at each place and None
        for a `NullSpace`.

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
    """

    specs_to_index: Mapping[tuple[Space, str], int]
    n_unique_specs: int
    spec_mapping: Tree
    specs: Specs = field(repr=False)

    def __init__(self, specs: Specs) -> None:
        checked = as_specs(specs)
        index: dict[tuple[Space, str], int] = {}
        tree = _number(*checked, index)
        object.__setattr__(self, "specs_to_index", index)
        object.__setattr__(self, "n_unique_specs", len(index))
        object.__setattr__(self, "spec_mapping", tree)
        object.__setattr__(self, "specs", checked)

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
            If the structure differs, or places of one pair hold different things.
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
        n, of_spaces = self.n_unique_specs, isinstance(flat, Space)
        entries = flat.components if isinstance(flat, CompositeSpace) else flat
        if not isinstance(entries, tuple | list):
            entries = () if n == 0 and _is_nothing(flat) else (flat,)
        if len(entries) != n:
            raise SpecsError(f"expected {n} entries, one per distinct pair, found {len(entries)}")
        return _nested(self.spec_mapping, entries, of_spaces)


def _number(space: Space, source: Any, index: dict[tuple[Space, str], int]) -> Tree:
    if isinstance(space, CompositeSpace):
        pairs = zip(space.components, source, strict=True)
        return tuple(_number(part, name, index) for part, name in pairs)
    if isinstance(space, NullSpace):
        return None
    return index.setdefault((space, source), len(index))


def branch_of(tree: Tree, number: int, branch: str = "") -> str | None:
    """Return the first branch at which a pair of this number stands, None if it does not.

    Examples
    --------
    >>> branch_of((0, (None, 1)), 1)
    '[1][1]'
    """
    if not isinstance(tree, tuple):
        return branch if tree == number else None
    found = (branch_of(part, number, f"{branch}[{i}]") for i, part in enumerate(tree))
    return next((one for one in found if one is not None), None)


def _gather(tree: Tree, nested: Any, branch: str, flat: dict[int, Any]) -> None:
    if isinstance(tree, tuple):
        for i, (part, item) in enumerate(zip(tree, _items(tree, nested, branch), strict=True)):
            _gather(part, item, f"{branch}[{i}]", flat)
    elif isinstance(nested, tuple | list | CompositeSpace) and tree is not None:
        raise SpecsError(f"{place(branch)}: expected one entry, found {_kind(nested)}")
    elif tree is None:
        if not _is_nothing(nested):
            raise SpecsError(f"{place(branch)}: a null position holds None, found {_kind(nested)}")
    elif tree not in flat:
        flat[tree] = nested
    elif not _same(flat[tree], nested):
        raise SpecsError(
            f"{place(branch)}: the same (space, source) pair holds {_kind(nested)} here and "
            f"a different {_kind(flat[tree])} before"
        )


def _items(tree: tuple[Tree, ...], nested: Any, branch: str) -> tuple[Any, ...]:
    items = nested.components if isinstance(nested, CompositeSpace) else nested
    found = f"{len(items)} parts" if isinstance(items, tuple | list) else f"{_kind(nested)} alone"
    if not isinstance(items, tuple | list) or len(items) != len(tree):
        raise SpecsError(f"{place(branch)}: expected {len(tree)} parts, found {found}")
    return tuple(items)


def _kind(item: Any) -> str:
    return f"{type(item).__name__} of {len(item)}" if isinstance(item, tuple | list) else repr(item)


def _is_nothing(item: Any) -> bool:
    if item is None or isinstance(item, NullSpace):
        return True
    return isinstance(item, str | tuple | list) and len(item) == 0


def _same(first: Any, second: Any) -> bool:
    """Whether two entries are equal: arrays by dtype and values, NaN for NaN."""
    if first is second:
        return True
    if hasattr(first, "__dask_graph__") or hasattr(second, "__dask_graph__"):
        return bool(getattr(first, "name", first) == getattr(second, "name", second))
    if not hasattr(first, "shape") and not hasattr(second, "shape"):
        return bool(first == second)
    dtype = getattr(first, "dtype", None)
    if dtype != getattr(second, "dtype", None) or is_sparse(first) != is_sparse(second):
        return False
    if is_sparse(first):
        return first.shape == second.shape and not (first.tocsr() != second.tocsr()).nnz
    floats = isinstance(dtype, np.dtype) and dtype.kind in "fc"
    return bool(np.array_equal(first, second, equal_nan=floats))


def _nested(tree: Tree, entries: Any, of_spaces: bool) -> Any:
    if isinstance(tree, tuple):
        parts = tuple([_nested(part, entries, of_spaces) for part in tree])
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
    """Serve several consumers from one iteration: flatten, iterate once, nest back to each.

    Parameters
    ----------
    requests : mapping from a consumer's name to its (space, source)
        In the order given; a consumer that needs no data asks for ``(NullSpace(), "")``.

    Returns
    -------
    CombinedSpecs
        ``.specs`` to iterate, ``.nest(batch)`` to hand out.

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
    if not isinstance(requests, Mapping):
        raise SpecsError(
            f"requests map a consumer's name to its specs, as in {{'model': (space, source)}}; "
            f"found {requests!r}"
        )
    for name, specs in requests.items():
        try:
            as_specs(specs)
        except SpecsError as error:
            raise SpecsError(f"the specs of {name!r}: {error}") from error
    space = CompositeSpace(tuple(space for space, _ in requests.values()))
    source = tuple(source for _, source in requests.values())
    return CombinedSpecs(tuple(requests), DataSpecsMapping((space, source)))
