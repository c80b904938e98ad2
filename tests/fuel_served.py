"""What the processes of the tests of the data server run; few imports, as each pays for them."""

from __future__ import annotations

import time

import numpy as np

from labeled.compat.fuel.streams import ServerDataStream

N_ITEMS = 40


class Counting:
    """A stream of epochs: (epoch, number) again and again."""

    def __init__(self, n_items=N_ITEMS, n_epochs=10**9, pause_s=0.0, fails_at=None, nbytes=0):
        self.n_items, self.n_epochs, self.pause_s = n_items, n_epochs, pause_s
        self.fails_at = fails_at
        self.padding = np.zeros(nbytes, np.uint8)

    def iterate_epochs(self):
        for epoch in range(self.n_epochs):
            yield self.items(epoch)

    def items(self, epoch):
        for number in range(self.n_items):
            if (epoch, number) == self.fails_at:
                raise OSError("disk 7 is on fire")
            time.sleep(self.pause_s)
            yield np.array([epoch, number]), self.padding


class Reusing(Counting):
    """A stream that makes every item in the same memory."""

    def items(self, epoch):
        array = np.zeros(100_000, np.int64)
        for number in range(self.n_items):
            array[:] = number
            yield array, self.padding


class Objects(Counting):
    """A stream of what cannot be sent."""

    def items(self, epoch):
        yield (np.array([{"epoch": epoch}], object),)


def read_and_die(port, said):
    stream = ServerDataStream(("x", "p"), False, port=port)
    taken = [stream.get_data()[0].tolist() for _ in range(2)]
    time.sleep(0.5)  # what it says of them must not be lost with it, or they come again
    said.send(taken)
    time.sleep(60)
