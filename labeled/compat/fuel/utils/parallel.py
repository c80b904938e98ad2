"""A producer in another process, a consumer in this one, and a ZeroMQ socket between them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from labeled.compat.fuel.server import zeromq

LOOPBACK_ADDRESS = "tcp://127.0.0.1"


def producer_consumer(
    producer: Callable[[Any], Any],
    consumer: Callable[[Any], Any],
    addr: str = LOOPBACK_ADDRESS,
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
    own = zmq.Context() if context is None else context
    socket = own.socket(zmq.PULL)
    try:
        if port is None:
            port = socket.bind_to_random_port(addr)
        else:
            socket.bind(f"{addr}:{port}")
        process = multiprocessing.Process(
            target=_produce, args=(producer, f"{addr}:{port}"), daemon=True
        )
        process.start()
        try:
            return consumer(socket)
        finally:
            process.terminate()
            process.join()
    finally:
        socket.close(linger=0)
        if context is None:
            own.term()


def _produce(producer: Callable[[Any], Any], address: str) -> None:
    zmq = zeromq()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        producer(socket)
