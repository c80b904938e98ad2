"""Small helpers, random number generators, and the mapping between nested and flat specs.

`DataSpecsMapping` is the old one, oddities included: a str source is a sequence of characters;
`flatten` of anything but tuples, lists and spaces gives None; `nest` gives None at null
positions, and cannot do so for spaces. The native mapping is
:class:`labeled.spaces.DataSpecsMapping`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.local import get_sync

from labeled.compat.errors import OldTypeError, OldValueError, require
from labeled.compat.pylearn2 import config
from labeled.compat.pylearn2.space import CompositeSpace, NullSpace, Space


def safe_zip(*sequences: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Zip sequences of one length.

    Raises
    ------
    OldValueError
        If their lengths differ.

    Examples
    --------
    >>> safe_zip((1, 2), "ab")
    [(1, 'a'), (2, 'b')]
    """
    lengths = [len(sequence) for sequence in sequences]
    if len(set(lengths)) > 1:
        raise OldValueError(f"sequences of lengths {lengths} are not zipped")
    return list(zip(*sequences, strict=True))


def safe_izip(*sequences: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The same as :func:`safe_zip`, one by one."""
    return iter(safe_zip(*sequences))


def as_floatX(x: Any) -> Any:
    """Return `x` in floatX."""
    return np.asarray(x).astype(config.floatX) if np.isscalar(x) else x.astype(config.floatX)


def function(inputs: Iterable[Any], outputs: Any, **ignored: Any) -> Callable[..., Any]:
    """Return a function from values of lazy batches to the value of what was built on them.

    Parameters
    ----------
    inputs : lazy batches
        As :meth:`~labeled.compat.pylearn2.space.Space.make_theano_batch` makes them: of
        one chunk each.
    outputs : dask array, or tuple or list of them
    **ignored
        Options of the old compiler (``on_unused_input``, ``name``, ...), without meaning.

    Returns
    -------
    function
        Takes one array an input, in order.

    Examples
    --------
    >>> from labeled.compat.pylearn2.space import Conv2DSpace, VectorSpace
    >>> rows, images = VectorSpace(4), Conv2DSpace((2, 2), channels=1)
    >>> x = rows.make_theano_batch()
    >>> function([x], rows.format_as(x, images))(np.zeros((3, 4))).shape
    (3, 2, 2, 1)
    """
    keys = [_only_key(x) for x in inputs]
    several = isinstance(outputs, tuple | list)
    wanted = [_only_key(y) for y in (outputs if several else [outputs])]
    graphs = [dict(y.__dask_graph__()) for y in (outputs if several else [outputs])]

    def call(*values: Any) -> Any:
        if len(values) != len(keys):
            raise OldTypeError(f"the function takes {len(keys)} batches, found {len(values)}")
        given = dict(zip(keys, values, strict=True))
        merged = {key: task for graph in graphs for key, task in graph.items()}
        results = list(get_sync({**merged, **given}, wanted))
        return results if several else results[0]

    return call


def _only_key(x: Any) -> tuple[Any, ...]:
    keys = x.__dask_keys__()
    while isinstance(keys, list):
        if len(keys) != 1:
            raise OldValueError(f"a function is built on batches of one chunk, found {x!r}")
        keys = keys[0]
    return tuple(keys)


# ---------------------------------------------------------------- random numbers
DEFAULT_SEED = 42


def permutation(state: np.random.RandomState, n: int) -> npt.NDArray[np.int64]:
    """Return a random order of ``range(n)``, drawn as the old code drew it.

    Shuffling a list, shuffling an array and permuting ``range(n)`` are one and the same order.
    """
    rows = np.arange(n, dtype=np.int64)
    state.shuffle(rows)
    return rows


def make_np_rng(
    rng_or_seed: Any = None, default_seed: Any = None, which_method: Any = None
) -> np.random.RandomState:
    """Return a ``RandomState``: the one given, or one made of a seed.

    Parameters
    ----------
    rng_or_seed : RandomState, int, sequence of int or None
        Anything with the methods of `which_method` is handed back as it is.
    default_seed : int or sequence of int, optional
        Where nothing is given; 42 without it.
    which_method : str or list of str, optional
        What tells a generator.

    Examples
    --------
    >>> int(make_np_rng(3).randint(100)) == int(np.random.RandomState(3).randint(100))
    True
    """
    names = [which_method] if isinstance(which_method, str) else (which_method or ["shuffle"])
    if rng_or_seed is not None and all(hasattr(rng_or_seed, name) for name in names):
        made: np.random.RandomState = rng_or_seed
        return made
    seed = default_seed if rng_or_seed is None else rng_or_seed
    return np.random.RandomState(DEFAULT_SEED if seed is None else seed)


# ---------------------------------------------------------------- specs
Tree = Any
"""An index, None for a null position, or a tuple of trees."""


class DataSpecsMapping:
    """The way between specs of any nesting and their distinct pairs.

    Parameters
    ----------
    data_specs : (Space, source)

    Attributes
    ----------
    specs_to_index : dict
        Each distinct ``(space, source)`` and its number.
    n_unique_specs : int
    spec_mapping : nested tuple, int or None

    Examples
    --------
    >>> from labeled.compat.pylearn2.space import VectorSpace
    >>> x = VectorSpace(3)
    >>> mapping = DataSpecsMapping((CompositeSpace((x, x)), ("features", "features")))
    >>> mapping.flatten(("features", "features")), mapping.nest(5)
    ('features', (5, 5))
    """

    def __init__(self, data_specs: tuple[Space, Any]) -> None:
        self.specs_to_index: dict[tuple[Space, Any], int] = {}
        space, source = data_specs
        require(isinstance(space, Space), f"specs are (space, source), found {space!r} for a space")
        self.spec_mapping = self._numbered(space, source)

    @property
    def n_unique_specs(self) -> int:
        return len(self.specs_to_index)

    def _numbered(self, space: Space, source: Any) -> Tree:
        if isinstance(space, NullSpace):
            require(source == "", f"the source of a NullSpace is '', found {source!r}")
            return None
        if isinstance(space, CompositeSpace):
            if len(source) != len(space.components):
                raise OldValueError(
                    f"{space} has {len(space.components)} components, the source {source!r} has "
                    f"{len(source)}"
                )
            pairs = zip(space.components, source, strict=True)
            return tuple(self._numbered(part, name) for part, name in pairs)
        return self.specs_to_index.setdefault((space, _unwrapped(source)), self.n_unique_specs)

    # ------------------------------------------------------------ nested to flat
    def flatten(self, nested: Any, return_tuple: bool = False) -> Any:
        """Return what `nested` holds for each distinct pair.

        Returns
        -------
        tuple, CompositeSpace, bare element or None
            A tuple where `return_tuple`; the bare element where there is one pair; else
            of the kind of `nested`, which is None for kinds that are neither tuple,
            list nor space.
        """
        found: list[Any] = [None] * self.n_unique_specs
        self._gather(nested, self.spec_mapping, found)
        missing = any(item is None for item in found)
        require(not missing, f"None among what is flattened: {nested!r}")
        if return_tuple:
            return tuple(found)
        if self.n_unique_specs == 1:
            return found[0]
        if isinstance(nested, tuple | list):
            return tuple(found)
        return CompositeSpace(found) if isinstance(nested, Space) else None

    def _gather(self, nested: Any, tree: Tree, found: list[Any]) -> None:
        if isinstance(tree, tuple):
            parts = nested.components if isinstance(nested, CompositeSpace) else nested
            if len(parts) != len(tree):
                raise OldValueError(f"expected {len(tree)} parts, found {len(parts)}")
            for part, branch in zip(parts, tree, strict=True):
                self._gather(part, branch, found)
        elif tree is None:
            nothing = isinstance(nested, NullSpace) or not nested
            require(nothing, f"a null position holds nothing, found {nested!r}")
        else:
            item = _unwrapped(nested)
            if found[tree] is None:
                found[tree] = item
            else:
                same = bool(found[tree] == item)  # arrays fail here, for want of one truth value
                require(same, f"one pair holds two things: {found[tree]!r} and {item!r}")

    # ------------------------------------------------------------ flat to nested
    def nest(self, flat: Any) -> Any:
        """Return `flat`, one element a distinct pair, nested as the specs are.

        Parameters
        ----------
        flat : Space, tuple, list, or a bare element
            A bare element only where there is one pair.
        """
        of_spaces = isinstance(flat, Space)
        if isinstance(flat, CompositeSpace):
            parts: list[Any] = flat.components
        else:
            parts = list(flat) if isinstance(flat, tuple | list) else [flat]
        n = self.n_unique_specs
        require(len(parts) == n, f"expected {n} elements, found {len(parts)}")
        return self._nested(parts, self.spec_mapping, of_spaces)

    def _nested(self, parts: list[Any], tree: Tree, of_spaces: bool) -> Any:
        if isinstance(tree, tuple):
            branches = [self._nested(parts, branch, of_spaces) for branch in tree]
            return CompositeSpace(branches) if of_spaces else tuple(branches)
        if tree is not None:
            return parts[tree]
        if of_spaces:
            raise OldTypeError("spaces are not nested around a NullSpace")
        return None


def _unwrapped(item: Any) -> Any:
    """Return the element of a tuple or list of one."""
    if not isinstance(item, tuple | list):
        return item
    if len(item) != 1:
        raise OldValueError(f"expected one element, found {len(item)}: {item!r}")
    return item[0]


def is_flat_space(space: Any) -> bool:
    """Whether `space` is elementary, or a composite of elementary spaces."""
    if not isinstance(space, Space):
        raise OldTypeError(f"expected a space, found {space!r}")
    if not isinstance(space, CompositeSpace):
        return True
    return not any(isinstance(part, CompositeSpace) for part in space.components)


def is_flat_source(source: Any) -> bool:
    """Whether `source` is a str, or a tuple or list that holds no tuple or list."""
    if isinstance(source, str):
        return True
    if not isinstance(source, tuple | list):
        raise OldTypeError(f"a source is a str, tuple or list, found {source!r}")
    return not any(isinstance(part, tuple | list) for part in source)


def is_flat_specs(data_specs: tuple[Any, Any]) -> bool:
    """Whether space and source are flat; their lengths are not compared."""
    return is_flat_space(data_specs[0]) and is_flat_source(data_specs[1])
