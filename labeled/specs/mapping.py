"""Between nested specs and the flat specs that are actually read: each pair once.

Consumers ask in any nesting, and the same ``(space, source)`` pair may stand in many
places. A `DataSpecsMapping` numbers the distinct pairs in order of first appearance,
flattens anything of the specs' structure to them, and nests flat data back, handing
the same object to every place that asked for it. `combine` does so for several
consumers at once.

What stands at the leaves is opaque here: spaces, names, arrays alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeled.errors import SpecsError
from labeled.spaces import CompositeSpace, NullSpace, Space
from labeled.spaces.sparse import is_sparse
from labeled.specs.structure import Specs, as_specs, place

Tree = Any
"""An index, None for a null position, or a tuple of trees."""


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
        of_spaces = isinstance(flat, Space)
        entries = self._entries(flat)
        return _nested(self.spec_mapping, entries, of_spaces)

    def _entries(self, flat: Any) -> tuple[Any, ...]:
        n = self.n_unique_specs
        if isinstance(flat, CompositeSpace):
            entries = tuple(flat.components)
        elif isinstance(flat, tuple | list):
            entries = tuple(flat)
        elif n == 0 and (flat is None or isinstance(flat, NullSpace)):
            entries = ()
        else:
            entries = (flat,)
        if len(entries) != n:
            raise SpecsError(f"expected {n} entries, one per distinct pair, found {len(entries)}")
        return entries


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
    if isinstance(nested, CompositeSpace):
        items: tuple[Any, ...] = nested.components
    elif isinstance(nested, tuple | list):
        items = tuple(nested)
    else:
        raise SpecsError(
            f"{place(branch)}: expected {len(tree)} parts, found {_kind(nested)} alone"
        )
    if len(items) != len(tree):
        raise SpecsError(f"{place(branch)}: expected {len(tree)} parts, found {len(items)} parts")
    return items


def _kind(item: Any) -> str:
    if isinstance(item, str | Space) or item is None:
        return repr(item)
    return f"{type(item).__name__} of {len(item)}" if isinstance(item, tuple | list) else repr(item)


def _is_nothing(item: Any) -> bool:
    if item is None or isinstance(item, NullSpace):
        return True
    return isinstance(item, str | tuple | list) and len(item) == 0


def _same(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if hasattr(first, "__dask_graph__") or hasattr(second, "__dask_graph__"):
        return bool(getattr(first, "name", first) == getattr(second, "name", second))
    if hasattr(first, "shape") or hasattr(second, "shape"):
        return _alike(first, second)
    return bool(first == second)


def _alike(first: Any, second: Any) -> bool:
    """Whether two arrays hold the same, NaN for NaN."""
    if getattr(first, "dtype", None) != getattr(second, "dtype", None):
        return False
    if is_sparse(first) and is_sparse(second):
        differing = 0 if first.shape == second.shape else 1
        return not (differing or (first.tocsr() != second.tocsr()).nnz)
    if is_sparse(first) or is_sparse(second):
        return False
    floats = first.dtype.kind in "fc" if isinstance(first.dtype, np.dtype) else False
    return bool(np.array_equal(first, second, equal_nan=floats))


def _nested(tree: Tree, entries: tuple[Any, ...], of_spaces: bool) -> Any:
    if isinstance(tree, tuple):
        parts = tuple(_nested(part, entries, of_spaces) for part in tree)
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
