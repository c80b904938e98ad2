"""What a data server and its clients say to each other: arrays in frames of bytes.

A message is a JSON header, one entry an array with its dtype, shape and order, then one
frame of bytes an array; at the end of an epoch it is ``{"stop": true}`` alone, and
``{"error": "..."}`` where no more will come. Nothing is unpickled, and a frame that does
not fit its header is refused before an array is made.

On the wire a stamp of fixed size (see :class:`Stamp`) stands before the header; alone, it is
the sign that a server lives. What a client tells has a fixed size, too (:class:`Told`).
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from labeled.compat.fuel.exceptions import OldTypeError, OldValueError, ServerError
from labeled.later import extra_module

MOST_ARRAYS = 1024
MOST_BYTES = 1 << 32
"""The largest frame that is taken."""

MOST_TEXT = 10_000
"""The longest error that is told, in characters."""

KNOWN_HEADERS, KNOWN_BYTES = 64, 1 << 12
"""So many headers are remembered, none larger than that: the items of a stream look alike."""


NOBODY = bytes(16)
"""The name of a server that is not known yet."""

_STAMP, _TOLD = struct.Struct("<16sqd"), struct.Struct("<q16sq?")


class Stamp(NamedTuple):
    """What stands before every message of a server."""

    server: bytes
    number: int
    idle_s: float
    """For how long its stream has given nothing."""

    def packed(self) -> bytes:
        return _STAMP.pack(*self)


def stamp_of(frame: bytes) -> tuple[Stamp, bytes]:
    """Return the stamp that a frame begins with, and the rest of the frame.

    Raises
    ------
    OldValueError
        If there is none.
    """
    if len(frame) < _STAMP.size:
        raise OldValueError(f"a message begins with {len(frame)} bytes: no data server sends that")
    return Stamp(*_STAMP.unpack_from(frame)), frame[_STAMP.size :]


class Told(NamedTuple):
    """What a client tells."""

    room: int
    """How many items it holds at most."""
    server: bytes
    """Of which server the last message came that it handed out, and its number."""
    number: int
    asks: bool
    """Whether it wants an answer."""

    def packed(self) -> bytes:
        return _TOLD.pack(*self)


def told_of(frame: bytes) -> Told | None:
    """Return what a client tells; None if it makes no sense."""
    return Told(*_TOLD.unpack(frame)) if len(frame) == _TOLD.size else None


def zeromq() -> Any:
    """Return the module `zmq`.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    return extra_module("zmq", "serving batches needs pyzmq", "pyzmq", "server")


def checked_hwm(hwm: Any) -> int:
    """Return how many items are held at most.

    Raises
    ------
    OldValueError
        If that is not at least one.
    """
    if not isinstance(hwm, int) or hwm < 1:
        raise OldValueError(
            f"hwm={hwm!r} items cannot be held; expected 1 or more (0 would be no limit, and a "
            "server never ends)"
        )
    return hwm


def error_of(text: str) -> list[bytes]:
    """Return the frames that tell of an error.

    Examples
    --------
    >>> error_of("no more")
    [b'{"error": "no more"}']
    """
    return [json.dumps({"error": text[:MOST_TEXT]}).encode()]


def message_of(arrays: Iterable[Any]) -> list[Any]:
    """Return the frames that carry arrays; a single value travels as an array of one.

    Raises
    ------
    OldTypeError
        If one holds objects.

    Examples
    --------
    >>> [found] = arrays_of([bytes(frame) for frame in message_of([np.arange(3)])])
    >>> found
    array([0, 1, 2])
    """
    entries, frames = [], []
    for array in map(np.atleast_1d, arrays):
        if not _is_plain(array.dtype):
            raise OldTypeError(f"arrays of {array.dtype} cannot be sent; send numbers or bytes")
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        entries.append((array.dtype.str, fortran, array.shape))
        values = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
        frames.append(values.view(np.uint8).data)  # times have no buffer of their own
    return [_header_of(tuple(entries)), *frames]


@lru_cache(KNOWN_HEADERS)
def _header_of(entries: tuple[tuple[str, bool, tuple[int, ...]], ...]) -> bytes:
    names = ("descr", "fortran_order", "shape")
    return json.dumps([dict(zip(names, entry, strict=True)) for entry in entries]).encode()


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype are bytes that mean the same elsewhere, as many each."""
    single = dtype.names is None and dtype.subdtype is None and dtype.itemsize > 0
    return single and not dtype.hasobject


STOP = [json.dumps({"stop": True}).encode()]


class _Form(NamedTuple):
    """What an array is to be made of its bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["F", "C"]
    nbytes: int


def arrays_of(message: list[Any]) -> tuple[Any, ...]:
    """Return the arrays of a message, read-only views of its frames.

    Raises
    ------
    OldValueError
        If the message is none, or its frames do not fit its header.
    StopIteration
        If it says that an epoch is over.
    ServerError
        If it says that the server has ended, and why.
    """
    header = bytes(message[0]) if message else b""
    forms = (_known_forms if len(header) <= KNOWN_BYTES else _forms_of)(header)
    if isinstance(forms, dict) and len(message) == 1:
        if forms.get("stop") is True:
            raise StopIteration
        if isinstance(forms.get("error"), str):
            raise ServerError(forms["error"][:MOST_TEXT])
    if not isinstance(forms, tuple):
        raise OldValueError("a message begins with something that is no list of arrays")
    if len(forms) != len(message) - 1:
        raise OldValueError(f"a message has {len(message) - 1} frames for {len(forms)} arrays")
    return tuple(map(_array, forms, message[1:]))


def _forms_of(header: bytes) -> tuple[_Form, ...] | dict[str, Any] | None:
    """Return the forms of the arrays that a header tells of, or the words it holds instead."""
    try:
        entries = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise OldValueError(f"a message begins with something that is no JSON: {error}") from None
    if not isinstance(entries, list) or len(entries) > MOST_ARRAYS:
        return entries if isinstance(entries, dict) else None
    return tuple(map(_form, entries))


_known_forms = lru_cache(KNOWN_HEADERS)(_forms_of)


def _form(entry: Any) -> _Form:
    if not isinstance(entry, dict) or not isinstance(entry.get("descr"), str):
        raise OldValueError(f"an array is described by {entry!r}; expected descr, shape and order")
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise OldValueError(f"an array has the impossible shape {shape!r}")
    try:
        dtype = np.dtype(entry["descr"])
    except (TypeError, ValueError, SyntaxError):
        raise OldValueError(f"an array has the unknown dtype {entry['descr']!r}") from None
    if not _is_plain(dtype):
        raise OldValueError(f"an array of {dtype} is not taken")
    order: Literal["F", "C"] = "F" if entry.get("fortran_order") is True else "C"
    return _Form(dtype, tuple(shape), order, math.prod(shape) * dtype.itemsize)


def _array(form: _Form, frame: Any) -> Any:
    dtype, shape, order, nbytes = form
    data = memoryview(frame).toreadonly()
    if nbytes != data.nbytes:
        raise OldValueError(
            f"an array of {dtype} {shape} takes {nbytes} bytes, but its frame has {data.nbytes}"
        )
    values = np.frombuffer(data, dtype)
    if dtype.kind == "U" and values.view(f"{dtype.str[0]}u4").max(initial=0) > sys.maxunicode:
        raise OldValueError(f"an array of {dtype} holds something that is no character")
    try:
        return values.reshape(shape, order=order)
    except ValueError as error:
        raise OldValueError(f"an array has the impossible shape {shape!r:.200}: {error}") from None
