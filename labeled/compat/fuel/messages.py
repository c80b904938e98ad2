"""What a data server and its clients say to each other: arrays in frames of bytes.

A message is a JSON header, one entry an array with its dtype, shape and order, then one
frame of bytes an array; at the end of an epoch it is ``{"stop": true}`` alone, and
``{"error": "..."}`` where no more will come. Nothing is unpickled, and a frame that does
not fit its header is refused before an array is made.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from labeled.compat.fuel.exceptions import OldTypeError, OldValueError, ServerError
from labeled.later import extra_module

MOST_ARRAYS = 1024
MOST_BYTES = 1 << 32
"""The largest frame that is taken."""

MOST_TEXT = 10_000
"""The longest error that is told, in characters."""


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


def header_of(frame: Any) -> Any:
    """Return what a frame of JSON holds.

    Raises
    ------
    OldValueError
        If it is none.
    """
    try:
        return json.loads(bytes(frame))
    except (ValueError, RecursionError) as error:
        raise OldValueError(f"a message begins with something that is no JSON: {error}") from None


def error_of(text: str) -> list[bytes]:
    """Return the frames that tell of an error.

    Examples
    --------
    >>> error_of("no more")
    [b'{"error": "no more"}']
    """
    return [json.dumps({"error": text[:MOST_TEXT]}).encode()]


def message_of(arrays: Iterable[Any]) -> list[Any]:
    """Return the frames that carry arrays.

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
    headers, frames = [], []
    for array in map(np.asarray, arrays):
        if not _is_plain(array.dtype):
            raise OldTypeError(f"arrays of {array.dtype} cannot be sent; send numbers or bytes")
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        headers.append(
            {"descr": array.dtype.str, "fortran_order": fortran, "shape": list(array.shape)}
        )
        values = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
        frames.append(values.view(np.uint8).data)  # times have no buffer of their own
    return [json.dumps(headers).encode(), *frames]


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype are bytes that mean the same elsewhere, as many each."""
    single = dtype.names is None and dtype.subdtype is None and dtype.itemsize > 0
    return single and not dtype.hasobject


STOP = [json.dumps({"stop": True}).encode()]


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
    headers = header_of(message[0] if message else b"")
    if isinstance(headers, dict) and len(message) == 1:
        if headers.get("stop") is True:
            raise StopIteration
        if isinstance(headers.get("error"), str):
            raise ServerError(headers["error"][:MOST_TEXT])
    if not isinstance(headers, list) or len(headers) > MOST_ARRAYS:
        raise OldValueError("a message begins with something that is no list of arrays")
    if len(headers) != len(message) - 1:
        raise OldValueError(f"a message has {len(message) - 1} frames for {len(headers)} arrays")
    return tuple(_array(*pair) for pair in zip(headers, message[1:], strict=True))


def _array(header: Any, frame: Any) -> Any:
    if not isinstance(header, dict) or not isinstance(header.get("descr"), str):
        raise OldValueError(f"an array is described by {header!r}; expected descr, shape and order")
    shape = header.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise OldValueError(f"an array has the impossible shape {shape!r}")
    try:
        dtype = np.dtype(header["descr"])
    except (TypeError, ValueError, SyntaxError):
        raise OldValueError(f"an array has the unknown dtype {header['descr']!r}") from None
    sizes = tuple(shape)
    data = memoryview(frame)
    if not _is_plain(dtype):
        raise OldValueError(f"an array of {dtype} is not taken")
    if math.prod(sizes) * dtype.itemsize != data.nbytes:
        raise OldValueError(
            f"an array of {dtype} {sizes} takes {math.prod(sizes) * dtype.itemsize} bytes, but its "
            f"frame has {data.nbytes}"
        )
    values = np.frombuffer(data, dtype)
    if dtype.kind == "U" and values.view(f"{dtype.str[0]}u4").max(initial=0) > sys.maxunicode:
        raise OldValueError(f"an array of {dtype} holds something that is no character")
    try:
        return values.reshape(sizes, order="F" if header.get("fortran_order") is True else "C")
    except ValueError as error:
        raise OldValueError(f"an array has the impossible shape {shape!r:.200}: {error}") from None
