"""Which rows are read together, and in what order they are handed out: integers only.

`permutation` makes keyed bijections, `units` says what is read together at the least, `order`
arranges an epoch (`buckets` batches of equal sizes), `content` holds the rows of a window and
their places, `parts` shares an epoch out, and `plan` puts these together into the windows and
batches that a loader walks through. `state` saves a place and finds it again, `draws` samples with
replacement, and `quality` foretells how well batches are mixed.

`modes` and `schemes` hold the older ways to walk through an epoch, as lists of batches, and
`stretches` lists sequences of consecutive rows;
`requests` says what such a batch is, `cuts` how long it is, `streams` where their random
numbers come from, and `sampled` makes a plan of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labeled.later import names_in

if TYPE_CHECKING:
    from labeled.samplers.modes import batch_sampler, even_sequences
    from labeled.samplers.requests import ListedBatches
    from labeled.samplers.schemes import (
        concatenated,
        cross_validation,
        sequential,
        shuffled,
    )
    from labeled.samplers.stretches import row_sequences
else:
    __getattr__ = names_in(
        [
            "labeled.samplers.modes",
            "labeled.samplers.requests",
            "labeled.samplers.schemes",
            "labeled.samplers.stretches",
        ]
    )

__all__ = [
    "ListedBatches",
    "batch_sampler",
    "concatenated",
    "cross_validation",
    "even_sequences",
    "row_sequences",
    "sequential",
    "shuffled",
]


def __dir__() -> list[str]:
    return __all__
