"""Batches of one process for others, over ZeroMQ: arrays in, arrays out.

The stream runs in the thread that calls :func:`start_server`; another deals its items to
the clients in turns, and knows of each what it has not yet handed out. So a client that
is slow holds up nobody, items that one left behind go to the others, the end of an epoch
and an error of the stream reach every client, and one that waits is told that the server
lives.

Only the thread that deals touches the sockets: an interrupt, which comes in the stream's
thread, breaks no message off. Each call of ZeroMQ hands Python's lock over, so there are few
of them for an item, and the stream's thread is woken for several items at a time.

There is no encryption and no password: servers listen on this machine only, unless told
otherwise.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from labeled.compat.fuel.exceptions import ServerError
from labeled.compat.fuel.messages import (
    STOP,
    Stamp,
    arrays_of,
    checked_hwm,
    error_of,
    message_of,
    told_of,
    zeromq,
)
from labeled.errors import warn

DEFAULT_PORT = 5557
LOOPBACK = "127.0.0.1"
GRACE_S = 5.0
"""How long a server that ends waits for its clients to read what they were sent."""

LOOK_MS = 100
"""How often the thread that deals looks whether the server ends."""

PROBE_S = 10.0
"""How often a client that reads nothing is looked for, at the end of an epoch."""

MOST_TOLD_BYTES = 1024
"""The largest message that is taken from a client."""

Message = list[Any]
"""A header as bytes, and frames of ZeroMQ."""


class _Feed:
    """Messages on their way from the stream's thread to the one that deals, `room` at most."""

    def __init__(self, room: int) -> None:
        self.given_at = time.monotonic()
        """When the stream last gave something."""
        self._messages: deque[Message] = deque()
        self._room = threading.Semaphore(room)
        self._woken_for, self._n_taken = max(1, room // 2), 0
        self.ear, self._bell = socket.socketpair()
        self.ear.setblocking(False)
        self._asleep = False

    def __enter__(self) -> _Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.ear.close()
        self._bell.close()

    # of the stream's thread

    def put(self, message: Message, timeout_s: float) -> bool:
        """Give a message; False if there is no room for so long."""
        if not self._room.acquire(timeout=timeout_s):
            return False
        self._messages.append(message)
        self.given_at = time.monotonic()
        self.ring()
        return True

    def ring(self) -> None:
        """Wake who waits for a message."""
        if self._asleep:
            self._asleep = False
            self._bell.send(b"!")

    # of the thread that deals

    def __len__(self) -> int:
        return len(self._messages)

    def take(self) -> Message:
        self._n_taken += 1
        if self._n_taken == self._woken_for:
            self._n_taken = 0
            self._room.release(self._woken_for)
        return self._messages.popleft()

    def falls_asleep(self) -> bool:
        """Have the ear rung by the next message from now on; False if there is one already."""
        self._asleep = True
        return not self._messages

    def wakes_up(self) -> None:
        """Have the ear rung no more, and forget that it was."""
        self._asleep = False
        with suppress(BlockingIOError):
            self.ear.recv(64)


@dataclass(eq=False)
class _Client:
    """What is known of a client: its room, and what it was sent and has not handed out."""

    room: int
    sent: int = 0
    unread: deque[tuple[int, int, Message]] = field(default_factory=deque)
    """(number, epoch, message)"""
    seen_at: float = field(default_factory=time.monotonic)

    @property
    def is_told(self) -> bool:
        """Whether the last that it has to read is the end of an epoch."""
        return bool(self.unread) and self.unread[-1][2] is STOP


@dataclass(eq=False)
class _Dealer:
    """Deals the messages of `feed` to the clients at `router`."""

    zmq: Any
    router: Any
    feed: _Feed
    room: int
    name: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    clients: dict[bytes, _Client] = field(default_factory=dict)
    """Who is served next stands first."""
    waiting: deque[Message] = field(default_factory=deque)
    """Messages for whoever has room next."""
    epoch: int = 0
    last_words: Message | None = None
    """What every client is told before the server ends."""
    deadline: float = 0.0

    def __post_init__(self) -> None:
        self._at_once = int(self.zmq.NOBLOCK)  # adding flags up takes longer than a call
        self._more = self._at_once | int(self.zmq.SNDMORE)
        self._clients_only, self._both = self.zmq.Poller(), self.zmq.Poller()
        for poller in (self._clients_only, self._both):
            poller.register(self.router, self.zmq.POLLIN)
        self._both.register(self.feed.ear, self.zmq.POLLIN)

    def run(self) -> None:
        """Deal until there are last words, and until those were read or no time is left."""
        with self.router:
            while self.last_words is None or self._is_dealing():
                self._listen()
                self._deal()
            self._take_leave()

    def _take_leave(self) -> None:
        """Tell the last words to every client, one that comes yet if there was none."""
        told: set[bytes] = set()
        while True:
            for identity in self.clients.keys() - told:
                self._send(identity, self.last_words or STOP)
                told.add(identity)
            is_read = told and not any(client.unread for client in self.clients.values())
            if is_read or not self._has_time():
                return
            self._listen()

    def end(self, words: Message, grace_s: float) -> None:
        """Make `run` end, from another thread, in so many seconds at most."""
        self.deadline = time.monotonic() + grace_s
        self.last_words = words
        self.feed.ring()

    def _is_dealing(self) -> bool:
        return self._has_time() and bool(self.waiting or self.feed)

    def _has_time(self) -> bool:
        return time.monotonic() < self.deadline

    def _listen(self) -> None:
        """Wait for a client, or for the stream if a client has room for what it gives."""
        if self.waiting or self._free() is None:
            ready = self._clients_only.poll(LOOK_MS)
        else:
            ready = self._both.poll(LOOK_MS if self.feed.falls_asleep() else 0)
            self.feed.wakes_up()
        if any(whom is self.router for whom, _ in ready):
            self._hear_all()

    def _hear_all(self, *, answers: bool = True) -> None:
        with suppress(self.zmq.Again):
            while True:
                self._hear(*self.router.recv_multipart(self._at_once), answers=answers)

    def _hear(self, identity: bytes, *frames: bytes, answers: bool) -> None:
        """Note what a client tells, and answer; what makes no sense is passed over."""
        told = told_of(frames[0]) if frames else None
        if told is None:
            return
        client, is_known = self.clients.get(identity), told.server == self.name
        if client is None and is_known:
            if answers:
                self._reach(identity, -1, error_of("the connection to the server was broken"))
            return
        if client is None:
            client = self.clients[identity] = _Client(max(1, min(told.room, self.room)))
        while is_known and client.unread and client.unread[0][0] <= told.number:
            client.unread.popleft()
        client.seen_at = time.monotonic()
        if told.asks and answers:
            self._reach(identity, client.sent, [b""])

    def _free(self) -> bytes | None:
        """Return the next client with room."""
        free = (name for name, client in self.clients.items() if len(client.unread) < client.room)
        return next(free, None)

    def _deal(self) -> None:
        """Give away what there is, as far as clients have room."""
        while True:
            identity = self._free()
            if identity is not None and not self.waiting and self.feed:
                self.waiting.append(self.feed.take())
            if not self.waiting:
                return
            if self.waiting[0] is STOP:
                self._end_epoch()
            elif identity is None:
                return
            elif self._send(identity, self.waiting[0]):
                self.waiting.popleft()
                self.clients[identity] = self.clients.pop(identity)  # it is the last now

    def _end_epoch(self) -> None:
        """Tell every client that the epoch is over, unless one left items of it behind."""
        now = time.monotonic()
        for identity, client in list(self.clients.items()):
            if client.unread and (not client.is_told or now - client.seen_at > PROBE_S):
                client.seen_at = now
                self._reach(identity, client.sent, [b""])
        if self.waiting[0] is not STOP:
            return
        self.waiting.popleft()
        for identity, client in list(self.clients.items()):
            if not client.is_told:
                self._send(identity, STOP)
        self.epoch += 1

    def _send(self, identity: bytes, message: Message) -> bool:
        client = self.clients[identity]
        if not self._reach(identity, client.sent + 1, message):
            return False
        client.sent += 1
        client.unread.append((client.sent, self.epoch, message))
        return True

    def _reach(self, identity: bytes, number: int, message: Message) -> bool:
        """Send a client something, or find that it has left."""
        stamp = Stamp(self.name, number, time.monotonic() - self.feed.given_at)
        frames = [identity, stamp.packed() + message[0], *message[1:]]
        try:
            for frame in frames[:-1]:
                self.router.send(frame, self._more)
            self.router.send(frames[-1], self._at_once)
        except self.zmq.ZMQError:
            self._part_with(identity)
            return False
        return True

    def _part_with(self, identity: bytes) -> None:
        """Take back what a client that left has not handed out, by what it said last."""
        if identity not in self.clients:
            return
        self._hear_all(answers=False)  # others ask again; answering here would lead back here
        client = self.clients.pop(identity)
        items = [(e, m) for _, e, m in client.unread if m is not STOP and m is not self.last_words]
        back = [message for epoch, message in items if epoch == self.epoch]
        self.waiting.extendleft(reversed(back))
        if len(back) < len(items):
            n_lost = len(items) - len(back)
            warn(f"a client left with {n_lost} items of an epoch that is over: nobody has them")


def send_arrays(socket: Any, arrays: Iterable[Any], stop: bool = False) -> None:
    """Send arrays over a socket of ZeroMQ, or the end of an epoch, in the words of Fuel.

    Programs of one's own speak so, with the original as well; the servers here say more, see
    :mod:`.messages`.

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
        If what arrives is no message of arrays.
    """
    frames = socket.recv_multipart(copy=False)
    return list(arrays_of([frame.buffer for frame in frames]))


def start_server(
    data_stream: Any, port: int = DEFAULT_PORT, hwm: int = 10, host: str = LOOPBACK
) -> None:
    """Send the items of a stream to whoever connects, epoch after epoch, without end.

    Clients share the items of an epoch, each takes the next when it has room, and the end
    of an epoch reaches them all. What a client that is killed or closed has not handed out
    goes to the others, as long as the epoch lasts. Without clients the server waits.

    Parameters
    ----------
    data_stream : AbstractDataStream
    port : int
    hwm : int
        Items held at most: as many for each client, and as many ahead of them.
    host : str
        The address to listen on: this machine only, unless another is given.

    Raises
    ------
    OldValueError
        If `hwm` is not at least 1.
    zmq.ZMQError
        If the address is taken, or none of this machine.
    Exception
        Whatever the stream raises, after the clients were told: each raises a ServerError
        of the same words, behind the items that were made before.

    Notes
    -----
    A server that ends gives its clients five seconds to read on, or to come if there is
    none; one that is interrupted, no time.
    """
    zmq, room = zeromq(), checked_hwm(hwm)
    with _dealing(zmq, host, port, room) as put:
        for epoch in data_stream.iterate_epochs():
            for item in epoch:
                header, *frames = message_of(item)
                put([header, *(zmq.Frame(frame, copy=True) for frame in frames)])
            put(STOP)


def _router(zmq: Any, context: Any, host: str, port: int) -> Any:
    """Return a socket that knows its clients apart, and whether they are there."""
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.ROUTER_HANDOVER, 1)
    router.setsockopt(zmq.TCP_KEEPALIVE, 1)
    router.setsockopt(zmq.LINGER, 1000)
    router.setsockopt(zmq.MAXMSGSIZE, MOST_TOLD_BYTES)
    router.setsockopt(zmq.SNDHWM, 0)  # the room of each client is the limit
    try:
        router.bind(f"tcp://{host}:{port}")
    except zmq.ZMQError:
        router.close()
        raise
    return router


@contextmanager
def _dealing(zmq: Any, host: str, port: int, room: int) -> Iterator[Any]:
    """Let a thread deal what is put, and tell the clients how it ended."""
    where = f"the stream served at {host}:{port}"
    with zmq.Context() as context, _Feed(room) as feed:
        dealer = _Dealer(zmq, _router(zmq, context, host, port), feed, room)
        thread = threading.Thread(target=dealer.run, name="labeled-server", daemon=True)
        thread.start()

        def put(message: Message) -> None:
            while thread.is_alive():
                if feed.put(message, LOOK_MS / 1000):
                    return
            raise ServerError(f"{where} can be dealt no more: its thread has ended")

        try:
            yield put
            dealer.end(error_of(f"{where} has no more epochs"), GRACE_S)
        except BaseException as error:
            grace_s = GRACE_S if isinstance(error, Exception) else 0.0
            dealer.end(error_of(f"{where} raised {type(error).__name__}: {error}"), grace_s)
            raise
        finally:
            thread.join()
