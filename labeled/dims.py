"""The one table between dim names and the axes that spaces speak of.

Files and DataArrays name their dims (``batch``, ``channel``, ``height``, ``width``);
spaces speak of axes (``'b'``, ``'c'``, ``0``, ``1``). This module alone knows which is
which, and finds, by name, the dim that stands for every axis. It deals in names only:
it sees no array, no length and no space.

Spatial axes are counted from the slowest, so ``height`` is axis 0 of an image but
axis 1 of a volume. A name that the table lacks is given per call: ``dims={"b": "time"}``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from labeled.errors import DimsError

# 'b' (batch), 'c' (channel), a spatial axis 0, 1, ..., 'feature' or 'index'
Axis = str | int

# entry of the encoding of a DataArray of objects: names of the axes of each of them
EXAMPLE_DIMS = "example_dims"

# every role and the dim names that play it; the first is the name given to new dims
ROLES: dict[str, tuple[str, ...]] = {
    "batch": ("batch", "b", "sample", "samples", "example", "examples"),
    "channel": ("channel", "channels", "c", "band", "bands"),
    "depth": ("depth", "z"),
    "height": ("height", "y", "row", "rows", "lat", "latitude"),
    "width": ("width", "x", "column", "columns", "lon", "longitude"),
    "feature": ("feature", "features"),
    "index": ("index",),
}

# spatial roles from slowest to fastest; with k spatial axes the last k are axes 0 to k-1
SPATIAL = ("depth", "height", "width")

_ROLE_OF_NAME = {name: role for role, names in ROLES.items() for name in names}


class FoundAxes(NamedTuple):
    """Which dim plays which axis, and which dims play none."""

    dim_of_axis: dict[Axis, Hashable]
    others: tuple[Hashable, ...]


def default_name(source: str, axis: int) -> str:
    """Return the name of an axis that has none in the file.

    Examples
    --------
    >>> default_name("features", 0), default_name("camera/left", 2)
    ('batch', 'left_axis_2')
    """
    return "batch" if axis == 0 else f"{source.rpartition('/')[2]}_axis_{axis}"


def role_of(name: Hashable) -> str | None:
    """Return the role that a dim of this name plays, or None if the table lacks it.

    Examples
    --------
    >>> role_of("channel"), role_of("lat"), role_of("time")
    ('channel', 'height', None)
    """
    return _ROLE_OF_NAME.get(name) if isinstance(name, str) else None


def image_dims(dims: Sequence[str]) -> dict[str, str] | None:
    """Return which dim of an example is its height, its width, and so on; None if not an image.

    Names count in any case. Dims without a role, such as a time or a level, stand in front.

    Returns
    -------
    dict or None
        Role to dim: dims without one by their names, then depth, height, width, channel, those
        that are there.

    Examples
    --------
    >>> image_dims(("band", "lat", "lon"))
    {'height': 'lat', 'width': 'lon', 'channel': 'band'}
    >>> image_dims(("level", "Y", "X"))
    {'level': 'level', 'height': 'Y', 'width': 'X'}
    >>> image_dims(("time", "feature")) is None
    True
    """
    roles = {role_of(dim.lower()) or dim: dim for dim in dims}
    order = (*SPATIAL, "channel")
    if len(roles) < len(dims) or not {"height", "width"} <= roles.keys():
        return None
    if not roles.keys().isdisjoint(("batch", "feature", "index")):
        return None
    others = [role for role in roles if role not in order]
    return {role: roles[role] for role in (*others, *order) if role in roles}


CHANNELS = (1, 3, 4)  # how many channels pictures have


def likely_image(lengths: Sequence[int]) -> tuple[str, ...] | None:
    """Return what the axes of an example are if it is a picture, where lengths look like it.

    Examples
    --------
    >>> likely_image((48, 64, 3)), likely_image((28, 28)), likely_image((100, 12))
    (('height', 'width', 'channel'), ('height', 'width'), None)
    """
    match tuple(lengths):
        case (_, _, channels) if channels in CHANNELS:
            return ("height", "width", "channel")
        case (channels, _, _) if channels in CHANNELS:
            return ("channel", "height", "width")
        case (height, width) if height == width:
            return ("height", "width")
    return None


def likely_axis(length: int | None, kind: str) -> str:
    """Return what the only axis of an example probably is; `length` is None if it varies.

    `kind` is that of its dtype: a single integer is a label.

    Examples
    --------
    >>> likely_axis(None, "f"), likely_axis(12, "f"), likely_axis(1, "i")
    ('time', 'feature', 'index')
    """
    if length is None:
        return "time"
    return "index" if length == 1 and kind in "iu" else "feature"


@cache
def axes_of_roles(n_spatial: int) -> Mapping[str, Axis]:
    """Return the axis that each role is; spatial ones have a role up to three of them.

    Examples
    --------
    >>> axes_of_roles(2)["height"], axes_of_roles(3)["height"], "height" in axes_of_roles(4)
    (0, 1, False)
    """
    spatial = SPATIAL[len(SPATIAL) - n_spatial :] if n_spatial <= len(SPATIAL) else ()
    others = {"batch": "b", "channel": "c", "feature": "feature", "index": "index"}
    return {**others, **{role: axis for axis, role in enumerate(spatial)}}


def name_of(axis: Axis, n_spatial: int) -> str:
    """Return the name that a new dim for `axis` gets: a name that plays no role is its own.

    Examples
    --------
    >>> [name_of(axis, 2) for axis in ("b", "c", 0, 1)], name_of(3, 4)
    (['batch', 'channel', 'height', 'width'], 'axis_3')
    """
    own = f"axis_{axis}" if isinstance(axis, int) else axis
    return next((role for role, a in axes_of_roles(n_spatial).items() if a == axis), own)


def find_axes(
    dims: Sequence[Hashable], n_spatial: int, given: Mapping[Axis, Hashable] | None = None
) -> FoundAxes:
    """Find the dim that plays each axis, by name.

    Parameters
    ----------
    dims : sequence of names
        The dims at hand.
    n_spatial : int
        How many spatial axes the space has; decides what ``height`` means.
    given : mapping from axis (or role) to dim name, optional
        Overrides and extends the table for this call, as in ``{"b": "time"}``.

    Returns
    -------
    FoundAxes
        The dim of every axis found, and the dims left over.

    Raises
    ------
    DimsError
        If `given` names a dim that is not there, or two dims play the same axis.

    Examples
    --------
    >>> find_axes(("time", "channel", "y", "x"), 2, {"b": "time"}).dim_of_axis
    {'b': 'time', 'c': 'channel', 0: 'y', 1: 'x'}
    """
    asked: dict[Axis, Hashable] = {}
    for key, dim in (given or {}).items():
        if dim not in dims:
            raise DimsError(
                f"dims={{{key!r}: {dim!r}}} names a dim that is not there; dims are {tuple(dims)}"
            )
        asked[_as_axis(key, n_spatial)] = dim
    if len(set(asked.values())) != len(asked):
        raise DimsError(f"dims={dict(given or {})} gives one dim to two axes")
    chosen, others = dict(asked), list[Hashable]()
    for dim in dims:
        if dim in asked.values():
            continue
        axis = axes_of_roles(n_spatial).get(role_of(dim) or "")
        if axis is None or axis in asked:
            others.append(dim)
        elif axis in chosen:
            raise DimsError(
                f"dims {tuple(dims)}: both {chosen[axis]!r} and {dim!r} mean axis {axis!r}; "
                f"say which with dims={{{axis!r}: {dim!r}}} and drop or rename the other"
            )
        else:
            chosen[axis] = dim
    return FoundAxes(chosen, tuple(others))


def _as_axis(key: Axis, n_spatial: int) -> Axis:
    known = axes_of_roles(n_spatial)
    if isinstance(key, str) and key in known:
        return known[key]
    if key in known.values() or (isinstance(key, int) and 0 <= key < n_spatial):
        return key
    axes = ("b", "c", "feature", "index", *range(n_spatial))
    raise DimsError(f"dims= has the key {key!r}, which is not an axis; axes here are {axes}")
