"""Batches of one process for others, over ZeroMQ: arrays in, arrays out, nothing unpickled.

A message is a JSON header, one entry an array with its dtype, shape and order, then one
frame of bytes an array; at the end of an epoch it is ``{"stop": true}`` alone. A frame that does
not fit its header is refused before an array is made.

The sockets are PUSH and PULL, as Fuel's: clients share the items of an epoch, and its end
reaches one of them. What a client that is killed had received already is lost.

There is no encryption and no password: servers listen on this machine only, unless another
address is given.

It is a module of its own because it was one: old code imports it by name, as ``fuel.server``.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.lib.format import header_data_from_array_1_0

from labeled._optional import extra_module
from labeled.compat.errors import old

DEFAULT_PORT = 5557
LOOPBACK = "127.0.0.1"
GRACE_S = 2.0  # how long a server that fails goes on sending what it has

MAX_BYTES = 1 << 32  # the largest frame that is accepted

STOP = [b'{"stop": true}']


def zeromq() -> Any:
    """Return the module `zmq`; raises MissingExtraError where it is not installed."""
    return extra_module("zmq", "serving batches needs pyzmq", "pyzmq", "server")


def message_of(arrays: Iterable[Any]) -> list[Any]:
    """Return the frames that carry arrays; a single value travels as an array of one.

    Raises
    ------
    TypeError
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
            raise old(TypeError, f"arrays of {array.dtype} cannot be sent; send numbers or bytes")
        entry = header_data_from_array_1_0(array)
        values = array.ravel("F" if entry["fortran_order"] else "C")
        entries.append(entry)
        frames.append(values.view(np.uint8).data)  # times have no buffer of their own
    return [json.dumps(entries).encode(), *frames]


def arrays_of(message: list[Any]) -> tuple[Any, ...]:
    """Return the arrays of a message, read-only views of its frames.

    Raises
    ------
    ValueError
        If it is not a message, or its frames do not fit its header.
    StopIteration
        If it is the end of an epoch.
    """
    try:
        header = json.loads(bytes(message[0]))
        if not isinstance(header, dict):
            pairs = zip(header, message[1:], strict=True)
            return tuple(_array(frame, **entry) for entry, frame in pairs)
    except (TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise old(ValueError, f"a message is not a list of arrays: {str(error)[:200]}") from None
    if header == {"stop": True} and len(message) == 1:
        raise StopIteration
    raise old(ValueError, "a message has a header that is neither of arrays nor of an end")


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


def send_arrays(socket: Any, arrays: Any, stop: bool = False) -> None:
    """Send arrays over a socket of ZeroMQ, or the end of an epoch, as Fuel does.

    Parameters
    ----------
    socket : zmq.Socket
    arrays : iterable of arrays
    stop : bool
        Send the end of an epoch in their place.

    Raises
    ------
    TypeError
        If one holds objects.
    """
    socket.send_multipart(STOP if stop else message_of(arrays))


def recv_arrays(socket: Any) -> list[Any]:
    """Wait for the arrays that :func:`send_arrays` sends; they are read-only.

    Raises
    ------
    StopIteration
        If the epoch is over.
    ValueError
        If what arrives is not a message of arrays.
    """
    return list(arrays_of([frame.buffer for frame in socket.recv_multipart(copy=False)]))


def start_server(
    data_stream: Any, port: int = DEFAULT_PORT, hwm: int = 10, host: str = LOOPBACK
) -> None:
    """Send the items of a stream to whoever connects, epoch after epoch, without end.

    Clients share the items of an epoch; without clients the server waits.

    Parameters
    ----------
    data_stream : AbstractDataStream
    port : int
    hwm : int
        Items held for each client at most.
    host : str
        The address to listen on: this machine only, unless another is given.

    Raises
    ------
    zmq.ZMQError
        If the address is in use, or not one of this machine.
    Exception
        Whatever the stream raises; a client gets the items that were made before.
    """
    zmq = zeromq()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.set_hwm(hwm)
        socket.setsockopt(zmq.LINGER, int(1000 * GRACE_S))
        socket.bind(f"tcp://{host}:{port}")
        for epoch in data_stream.iterate_epochs():
            for item in epoch:
                send_arrays(socket, item)
            send_arrays(socket, None, stop=True)


# ---------------------------------------------------------------- one producer, one consumer
def producer_consumer(
    producer: Callable[[Any], Any],
    consumer: Callable[[Any], Any],
    addr: str = f"tcp://{LOOPBACK}",
    port: int | None = None,
    context: Any = None,
) -> Any:
    """Run `producer` in a process of its own, and return what `consumer` makes of it.

    Parameters
    ----------
    producer : callable (socket)
        Sends into a PUSH socket. It must be a function of a module where processes are
        not forked.
    consumer : callable (socket)
        Receives from a PULL socket, in this process.
    addr : str
        This machine only, unless another address is given.
    port : int, optional
        A free one if not given.
    context : zmq.Context, optional

    Raises
    ------
    MissingExtraError
        If pyzmq is not installed.
    """
    zmq = zeromq()
    own = zmq.Context() if context is None else nullcontext(context)
    with own as opened, opened.socket(zmq.PULL) as socket:
        if port is None:
            port = socket.bind_to_random_port(addr)
        else:
            socket.bind(f"{addr}:{port}")
        place = f"{addr}:{port}"
        process = multiprocessing.Process(target=_produce, args=(producer, place), daemon=True)
        process.start()
        try:
            return consumer(socket)
        finally:
            process.terminate()
            process.join()


def _produce(producer: Callable[[Any], Any], address: str) -> None:
    zmq = zeromq()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        producer(socket)
