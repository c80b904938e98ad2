"""What a file says about a source besides its array: class names, dims of one example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ClassNames = Mapping[int, str] | Sequence[str]


@dataclass(frozen=True)
class ExampleInfo:
    """What a file says about a source that is lost in a plain array of a batch.

    Parameters
    ----------
    class_names : mapping
        From label to name; empty if the file has none.
    example_dims : tuple of str
        Dims of one example, if examples differ in shape.
    batch_axis : int
        The axis of its arrays that counts examples.
    """

    class_names: Mapping[int, str] = field(default_factory=dict)
    example_dims: tuple[str, ...] = ()
    batch_axis: int = 0


def class_names_of(attrs: Mapping[str, Any]) -> dict[int, str]:
    """Return the name of each class; empty if the attributes name none.

    Either a list ``class_names`` (class 0, 1, ...), or the CF pair ``flag_values`` and
    ``flag_meanings``.

    Examples
    --------
    >>> class_names_of({"class_names": ["cat", b"dog"]})
    {0: 'cat', 1: 'dog'}
    >>> class_names_of({"flag_values": np.array([2, 5]), "flag_meanings": "clear cloudy"})
    {2: 'clear', 5: 'cloudy'}
    >>> class_names_of({"units": "m"})
    {}
    """
    if "class_names" in attrs:
        return dict(
            enumerate(map(as_text, np.atleast_1d(np.asarray(attrs["class_names"], object))))
        )
    if "flag_values" in attrs and "flag_meanings" in attrs:
        values = np.atleast_1d(attrs["flag_values"]).tolist()
        return dict(zip(map(int, values), as_text(attrs["flag_meanings"]).split(), strict=False))
    return {}


def as_text(value: Any) -> str:
    """Return a text that a file holds as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
