"""Items a second from a data server to its client, against Fuel's pattern made anew here.

The old pattern is one PUSH socket that is given a header and then the bytes of each array,
and one PULL socket: what a client that dies was sent is lost, and nobody is told of errors.
Both sides serve the same array, which costs nothing to make, from a process of their own,
and every client sums a part of what arrives.

Run ``python -m benchmarks.serving [--times 5]``; it prints the median of several runs of
each, taken in turns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import zmq

from labeled.compat.fuel.server import start_server
from labeled.compat.fuel.streams import ServerDataStream

SIZES = {"3 MiB": (3 << 20, 600), "100 kB": (100_000, 4000), "10 kB": (10_000, 8000)}
HWM = 10


class Same:
    """A stream of epochs of the same item."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def iterate_epochs(self) -> Iterator[Iterator[Any]]:
        pixels = np.random.default_rng(0).integers(0, 256, self.nbytes, dtype=np.uint8)
        while True:
            yield iter(lambda: (pixels,), None)


# ---------------------------------------------------------------- the old way, made anew
def old_server(stream: Same, port: int) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as feed:
        feed.set_hwm(HWM)
        feed.bind(f"tcp://127.0.0.1:{port}")
        for epoch in stream.iterate_epochs():
            for item in epoch:
                arrays = [np.ascontiguousarray(array) for array in item]
                entries = [
                    {"descr": a.dtype.str, "fortran_order": False, "shape": a.shape} for a in arrays
                ]
                feed.send_json(entries, zmq.SNDMORE)
                for array in arrays[:-1]:
                    feed.send(array, zmq.SNDMORE)
                feed.send(arrays[-1])


def old_client(port: int) -> Iterator[Any]:
    with zmq.Context() as context, context.socket(zmq.PULL) as line:
        line.set_hwm(HWM)
        line.connect(f"tcp://127.0.0.1:{port}")
        while True:
            entries = json.loads(line.recv())
            yield [
                np.frombuffer(line.recv(copy=False).buffer, entry["descr"]).reshape(entry["shape"])
                for entry in entries
            ]


# ---------------------------------------------------------------- ours
def our_client(port: int) -> Iterator[Any]:
    stream = ServerDataStream(("x",), False, port=port, hwm=HWM)
    while True:
        yield stream.get_data()


WAYS: dict[str, tuple[Callable[..., Any], Callable[[int], Iterator[Any]]]] = {
    "old": (old_server, old_client),
    "ours": (start_server, our_client),
}


def items_a_second(way: str, nbytes: int, n_items: int) -> float:
    serve, read = WAYS[way]
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(Same(nbytes), port), daemon=True
    )
    server.start()
    items = read(port)
    for _ in range(n_items // 10):
        next(items)
    began = time.perf_counter()
    for _ in range(n_items):
        next(items)[0][::64].sum()
    rate = n_items / (time.perf_counter() - began)
    server.kill()
    server.join()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    print("| items of | old pattern, items/s | ours, items/s | ratio |\n| --- | --- | --- | --- |")
    for name, (nbytes, n_items) in SIZES.items():
        turns = [{way: items_a_second(way, nbytes, n_items) for way in WAYS} for _ in range(times)]
        old, ours = (median(turn[way] for turn in turns) for way in WAYS)
        print(f"| {name} | {old:,.0f} | {ours:,.0f} | {ours / old:.2f} |", flush=True)


if __name__ == "__main__":
    main()
