"""What the processes of the tests of the data server run; few imports, as each pays for them."""

from __future__ import annotations

import numpy as np

N_ITEMS = 40


class Counting:
    """A stream of epochs of items (epoch, number), made in the same memory again and again."""

    def __init__(self, n_epochs=10**9, fails_at=None, dtype=np.int64):
        self.n_epochs, self.fails_at, self.dtype = n_epochs, fails_at, dtype

    def iterate_epochs(self):
        return (self.items(epoch) for epoch in range(self.n_epochs))

    def items(self, epoch):
        made = np.zeros(2, self.dtype)
        for number in range(N_ITEMS):
            if (epoch, number) == self.fails_at:
                raise OSError("disk 7 is on fire")
            made[:] = epoch, number
            yield (made,)
