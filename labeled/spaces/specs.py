"""Which sources a consumer asks for, and in which spaces: ``(space, source)`` pairs.

A space says how data should look, a source says which data; both have the same structure: a name
for an elementary space, a tuple with one source per component for a composite, the empty name for a
`NullSpace`. Only structures are compared at first.

Consumers ask in any nesting, and the same pair may stand in many branches. A
`DataSpecsMapping` numbers the distinct pairs in order of first appearance, flattens anything
of the specs' structure to them, and nests flat data back, handing the same object to every
place that asked for it. `combine` does so for several consumers at once. What stands at the
leaves is opaque here: spaces, names, arrays alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from labeled.display.text import count_words
from labeled.errors import SpecsError
from labeled.spaces.base import Space
from labeled.spaces.kinds import CompositeSpace, NullSpace

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
        raise SpecsError(f"{place_of(branch)}: {wrong}")

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
        return nested(self.spec_mapping, entries, isinstance(flat, Space))


def place_of(branch: str) -> str:
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
    raise SpecsError(f"{place_of(branch)}: {wrong}")


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


def nested(tree: Tree, entries: Any, of_spaces: bool = False) -> Any:
    if isinstance(tree, tuple):
        parts = tuple(map(nested, tree, repeat(entries), repeat(of_spaces)))
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
