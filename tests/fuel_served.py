"""What the processes of the tests of the data server run; few imports, as each pays for them."""

from __future__ import annotations

import numpy as np

N_ITEMS = 40


class Counting:
    """A stream of epochs of items (epoch, number), made in the same memory again and again."""

    def iterate_epochs(self):
        return map(self.items, range(10**9))

    def items(self, epoch):
        made = np.zeros(2, np.int64)
        for number in range(N_ITEMS):
            made[:] = epoch, number
            yield (made,)
