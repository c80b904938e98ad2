"""Batches of one process for others, over ZeroMQ: arrays in, arrays out, nothing unpickled.

A message is a JSON header, one entry an array with its dtype, shape and order, then one
frame of bytes an array; at the end of an epoch it is ``{"stop": true}`` alone, and
``{"error": "..."}`` where no more will come. A frame that does not fit its header is
refused before an array is made.

A client asks for one item with each request and keeps `hwm` requests under way; the server
answers them in the order of arrival. A request names the epoch that the client reads, so
the server keeps no list of clients: a request for an epoch that is over is answered by its
end. What a client that is killed had received already is lost.

There is no encryption and no password: servers listen on this machine only, unless another
address is given.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from labeled._optional import extra_module
from labeled.compat.errors import OldTypeError, OldValueError
from labeled.compat.fuel.exceptions import ServerError

DEFAULT_PORT = 5557
LOOPBACK = "127.0.0.1"
GRACE_S = 2.0
"""How long a server that ends goes on telling its clients why."""

MAX_BYTES = 1 << 32
"""The largest frame that is accepted."""

CURRENT = -1
"""The epoch that a client asks for which does not know where the server is."""

EPOCH = struct.Struct("<q")
STOP = [b'{"stop": true}']


def zeromq() -> Any:
    """Return the module `zmq`; raises MissingExtraError where it is not installed."""
    return extra_module("zmq", "serving batches needs pyzmq", "pyzmq", "server")


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
        entries.append(
            {"descr": array.dtype.str, "fortran_order": fortran, "shape": list(array.shape)}
        )
        values = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
        frames.append(values.view(np.uint8).data)  # times have no buffer of their own
    return [json.dumps(entries).encode(), *frames]


def arrays_of(message: list[Any]) -> tuple[Any, ...]:
    """Return the arrays of a message, read-only views of its frames.

    Raises
    ------
    OldValueError
        If it is not a message, or its frames do not fit its header.
    StopIteration
        If it is the end of an epoch.
    ServerError
        If the server has ended; with its reason.
    """
    try:
        header = json.loads(bytes(message[0]))
        if not isinstance(header, dict):
            pairs = zip(header, message[1:], strict=True)
            return tuple(_array(frame, **entry) for entry, frame in pairs)
    except (TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise OldValueError(f"a message is not a list of arrays: {str(error)[:200]}") from None
    if header == {"stop": True} and len(message) == 1:
        raise StopIteration
    if isinstance(header.get("error"), str):
        raise ServerError(header["error"])
    raise OldValueError("a message has a header that is neither arrays, an end nor an error")


def _array(frame: Any, descr: Any, shape: list[int], fortran_order: bool) -> Any:
    if not isinstance(descr, str) or not _is_plain(np.dtype(descr)):
        raise ValueError(f"an array of {descr!r} is not accepted")
    dtype = np.dtype(descr)
    values = np.frombuffer(memoryview(frame).toreadonly(), dtype)
    if dtype.kind == "U" and values.view(f"{dtype.str[0]}u4").max(initial=0) > sys.maxunicode:
        raise ValueError(f"an array of {dtype} holds something that is not a character")
    if min(shape, default=0) < 0:
        raise ValueError(f"an array has the impossible shape {shape}")
    return values.reshape(shape, order="F" if fortran_order else "C")


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype are bytes that mean the same elsewhere, as many each."""
    single = dtype.names is None and dtype.subdtype is None and dtype.itemsize > 0
    return single and not dtype.hasobject


def send_arrays(socket: Any, arrays: Iterable[Any], stop: bool = False) -> None:
    """Send arrays over a socket of ZeroMQ, or the end of an epoch, as Fuel does.

    Parameters
    ----------
    socket : zmq.Socket
    arrays : iterable of arrays
    stop : bool
        Send the end of an epoch in their place.

    Raises
    ------
    OldTypeError
        If one holds objects.
    """
    socket.send_multipart(STOP if stop else message_of(arrays))


def recv_arrays(socket: Any) -> list[Any]:
    """Wait for the arrays that :func:`send_arrays` sends; they are read-only.

    Raises
    ------
    StopIteration
        If the epoch is over.
    OldValueError
        If what arrives is not a message of arrays.
    """
    frames = socket.recv_multipart(copy=False)
    return list(arrays_of([frame.buffer for frame in frames]))


def start_server(
    data_stream: Any, port: int = DEFAULT_PORT, hwm: int = 10, host: str = LOOPBACK
) -> None:
    """Send the items of a stream to whoever connects, epoch after epoch, without end.

    Clients share the items of an epoch, each takes the next when it asks, and the end of an
    epoch reaches them all. Without clients the server waits.

    Parameters
    ----------
    data_stream : AbstractDataStream
    port : int
    hwm : int
        Without effect here, as each client says what it holds; old code passes it.
    host : str
        The address to listen on: this machine only, unless another is given.

    Raises
    ------
    zmq.ZMQError
        If the address is in use, or not one of this machine.
    Exception
        Whatever the stream raises; each client that waits raises a ServerError with the same
        words, behind the items that were made before.
    """
    zmq = zeromq()
    where = f"the stream served at {host}:{port}"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an error where a client has left
        router.setsockopt(zmq.LINGER, int(1000 * GRACE_S))
        router.setsockopt(zmq.MAXMSGSIZE, 1024)
        router.setsockopt(zmq.SNDHWM, 0)  # the requests of each client are the limit
        router.bind(f"tcp://{host}:{port}")
        try:
            for number, epoch in enumerate(data_stream.iterate_epochs()):
                for item in epoch:
                    message = message_of(item)
                    while not _answer(zmq, router, number, message):
                        pass
            _end(zmq, router, CURRENT, f"{where} has no more epochs", GRACE_S)
        except BaseException as error:
            grace_s = GRACE_S if isinstance(error, Exception) else 0.0
            _end(zmq, router, None, f"{where} raised {type(error).__name__}: {error}", grace_s)
            raise


def _answer(zmq: Any, router: Any, epoch: int | None, message: list[Any]) -> bool:
    """Wait for a request and answer it: with the message, or that its epoch is over.

    Parameters
    ----------
    epoch : int or None
        Whose item the message is; None: it answers requests for any epoch.

    Returns
    -------
    bool
        Whether the message was sent.
    """
    client, *request = router.recv_multipart()
    if len(request) != 1 or len(request[0]) != EPOCH.size:
        return False  # not from one of our clients
    (asked,) = EPOCH.unpack(request[0])
    sent = epoch is None or asked in (CURRENT, epoch)
    if not sent:
        message = STOP
    stamp = EPOCH.pack(asked if epoch is None or not sent else epoch)
    try:
        router.send_multipart([client, stamp, *message])
    except zmq.ZMQError:  # the client has left
        return False
    return sent


def _end(zmq: Any, router: Any, epoch: int | None, reason: str, grace_s: float) -> None:
    """Tell the clients that wait, and those that ask soon, why there is no more."""
    error = json.dumps({"error": reason[:10_000]}).encode()
    deadline = time.monotonic() + grace_s
    while router.poll(max(0, int(1000 * (deadline - time.monotonic())))):
        _answer(zmq, router, epoch, [error])
