"""Whether a ``(space, source)`` pair is well formed, and what it asks for.

A space says how data should look, a source which data; both have the same structure:
a name for an elementary space, a tuple with one source per component for a composite,
the empty name for a `NullSpace`. This module compares structures only. Whether a file
has such a source, of such a width, is found in :mod:`labeled.specs.compiled`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from labeled.display.text import count_words
from labeled.errors import SpecsError
from labeled.spaces import CompositeSpace, NullSpace, Space

Source = Any
"""A name, or a tuple (or list) of sources."""

Specs = tuple[Space, Source]


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
    if isinstance(space, CompositeSpace):
        return _checked_composite(space, source, branch)
    if isinstance(space, NullSpace):
        if not isinstance(source, str) or source:
            _differ(branch, f"a NullSpace has the source '', found {source!r}")
        return source
    if isinstance(source, tuple | list):
        count = f"a tuple of {count_words(len(source), 'source')} {_shown(source)}"
        _differ(
            branch, f"the space is elementary ({space}), the source is {count}; expected a name"
        )
    if not isinstance(source, str):
        _differ(branch, f"a source is a name, found {source!r} for {space}")
    if not source:
        _differ(branch, f"the empty name belongs to NullSpace, found it for {space}")
    return source


def _checked_composite(space: CompositeSpace, source: Source, branch: str) -> Source:
    n = len(space.components)
    if not isinstance(source, tuple | list):
        one = f"the single name {source!r}" if isinstance(source, str) else repr(source)
        written = f", such as {(source,) * n}" if isinstance(source, str) and source else ""
        _differ(
            branch,
            f"the space has {count_words(n, 'component')} ({space}), the source is {one}; "
            f"expected a tuple of {count_words(n, 'source')}, one per component{written}",
        )
    if len(source) != n:
        _differ(
            branch,
            f"the space has {count_words(n, 'component')} ({space}), the source has "
            f"{len(source)} {_shown(source)}; expected one source per component, nested as the "
            "space is",
        )
    pairs = enumerate(zip(space.components, source, strict=True))
    return tuple(_checked(part, name, f"{branch}[{i}]") for i, (part, name) in pairs)


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
