"""The client of a data server: what it tells the server, and what it makes of the answers.

A client says how many items it holds at most and which it has handed out; it says so again
every second that it waits, so that a server that was started later, or anew, knows it, and
answers. Hence silence means that the server is gone, however long its stream takes.
"""

from __future__ import annotations

import math
import time
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

from labeled.compat.fuel.exceptions import OldValueError, ServerError, ServerTimeoutError
from labeled.compat.fuel.messages import (
    MOST_BYTES,
    NOBODY,
    Stamp,
    Told,
    arrays_of,
    checked_hwm,
    stamp_of,
    zeromq,
)
from labeled.errors import warn

ASK_MS = 1000
"""How often a client that waits asks whether the server lives."""

CLOSE_MS = 1000
"""How long what was said last may take to reach a server after a client has closed."""

BROKEN = -1
"""The number of a message to a client that the server has given up."""


class _Sent(NamedTuple):
    """What a server sent: a message, or the mere sign that it lives."""

    stamp: Stamp
    message: list[Any]


class Connection:
    """A client's end of the line to a server.

    Parameters
    ----------
    host : str
    port : int
    hwm : int
        Items held at most.
    timeout_s : float or None
        How long the server may be silent.
    """

    def __init__(self, host: str, port: int, hwm: int, timeout_s: float | None) -> None:
        self._where = f"the server at {host}:{port}"
        self._room = checked_hwm(hwm)
        self._timeout_s = float("inf") if timeout_s is None else timeout_s
        zmq = self._zmq = zeromq()
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, uuid.uuid4().hex.encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        self._socket.connect(f"tcp://{host}:{port}")
        self._waits_ms = -1
        self._server = NOBODY
        self._number = 0
        self._n_items = 0
        """How many of this epoch were handed out here."""
        self._held: _Sent | None = None
        """What the next server said first."""
        self._tell(asks=False)

    @property
    def is_closed(self) -> bool:
        return bool(self._socket.closed)

    def close(self) -> None:
        """Disconnect; what was not handed out goes to other clients."""
        self._socket.close(0 if self._server == NOBODY else CLOSE_MS)

    def receive(self) -> tuple[Any, ...]:
        """Wait for an item and return its arrays; errors that leave it closed are the last.

        Raises
        ------
        StopIteration
            If the epoch is over.
        ServerError
            If the stream behind the server has failed or ended, or the server was replaced,
            or the connection broken, in the middle of an epoch.
        ServerTimeoutError
            If the server is silent for too long.
        OldValueError
            If what arrives is no item of arrays.
        """
        began = heard = time.monotonic()
        warned = False
        while True:
            sent = self._next(min(ASK_MS / 1000, heard + self._timeout_s - time.monotonic()))
            now = time.monotonic()
            if sent is None:
                if now - heard >= self._timeout_s:
                    raise ServerTimeoutError(self._silence(now - heard))
                self._tell(asks=True)
                continue
            heard = now
            self._follow(sent)
            if sent.message:
                return self._taken(sent)
            idle_s = sent.stamp.idle_s
            if not warned and min(idle_s, now - began) > self._timeout_s:
                warned = True
                warn(f"{self._where} lives, but its stream has given nothing for {idle_s:.0f} s")

    def _silence(self, silent_s: float) -> str:
        met = "was not reached" if self._server == NOBODY else "has said nothing"
        return (
            f"{self._where} {met} for {silent_s:.0f} s; see whether it runs, start it, and go on "
            "reading, or give timeout_s= more time (None: without end)"
        )

    def _next(self, wait_s: float) -> _Sent | None:
        """Return what arrives within so many seconds."""
        if self._held is not None:
            sent, self._held = self._held, None
            return sent
        wait_ms = max(0, math.ceil(1000 * wait_s))
        if wait_ms != self._waits_ms:
            self._socket.setsockopt(self._zmq.RCVTIMEO, wait_ms)
            self._waits_ms = wait_ms
        try:
            first, *frames = self._socket.recv_multipart(copy=False)
        except self._zmq.Again:
            return None
        try:
            stamp, header = stamp_of(first.bytes)
        except OldValueError as error:
            self.close()
            raise OldValueError(f"{self._where}: {error}") from None
        message = [header, *(frame.buffer for frame in frames)] if header or frames else []
        return _Sent(stamp, message)

    def _follow(self, sent: _Sent) -> None:
        """Check that nothing is missing between this message and the last."""
        server, number, _ = sent.stamp
        if server != self._server:
            n_items, known = self._n_items, self._server != NOBODY
            self._server, self._number, self._n_items = server, 0, 0
            if known and n_items:
                self._held = sent
                raise ServerError(
                    f"{self._where} was replaced by another in the middle of an epoch, of which "
                    f"{n_items} items came here; read on for the first epoch of the new one"
                )
        if number > self._number + bool(sent.message):
            self.close()
            raise ServerError(
                f"messages of {self._where} were lost, as the connection was broken; read on to "
                "connect again, in the middle of an epoch"
            )

    def _taken(self, sent: _Sent) -> tuple[Any, ...]:
        """Return the arrays of a message and tell the server that they are handed out."""
        if sent.stamp.number != BROKEN:
            self._number = sent.stamp.number
            self._tell(asks=False)
        try:
            arrays = arrays_of(sent.message)
        except StopIteration:
            self._n_items = 0
            raise
        except (OldValueError, ServerError):
            self.close()
            raise
        self._n_items += 1
        return arrays

    def _tell(self, *, asks: bool) -> None:
        """Say what there is room for and what was handed out; again, if nobody is there yet."""
        told = Told(self._room, self._server, self._number, asks)
        with suppress(self._zmq.Again):  # full of what nobody has heard yet
            self._socket.send(told.packed(), self._zmq.NOBLOCK)
