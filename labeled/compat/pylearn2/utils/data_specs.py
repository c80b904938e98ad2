"""Between nested and flat specs, as the old mapping did it, oddities included.

A str source is a sequence of characters; `flatten` of anything but tuples, lists and
spaces gives None; `nest` gives None at null positions, and cannot do so for spaces. The
native mapping is :class:`labeled.spaces.DataSpecsMapping`.
"""

from __future__ import annotations

from typing import Any

from labeled.compat.errors import OldTypeError, OldValueError, require
from labeled.compat.pylearn2.space import CompositeSpace, NullSpace, Space

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
        self.n_unique_specs = 0
        space, source = data_specs
        require(isinstance(space, Space), f"specs are (space, source), found {space!r} for a space")
        self.spec_mapping = self._numbered(space, source)

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
        if isinstance(source, tuple | list):
            if len(source) != 1:
                raise OldValueError(f"{space} is elementary, the source {source!r} is not")
            source = source[0]
        if (space, source) not in self.specs_to_index:
            self.specs_to_index[space, source] = self.n_unique_specs
            self.n_unique_specs += 1
        return self.specs_to_index[space, source]

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
            self._put(_unwrapped(nested), tree, found)

    @staticmethod
    def _put(item: Any, index: int, found: list[Any]) -> None:
        if found[index] is None:
            found[index] = item
        else:  # arrays fail here, for want of one truth value
            same = bool(found[index] == item)
            require(same, f"one pair holds two things: {found[index]!r} and {item!r}")

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
