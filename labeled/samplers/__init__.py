"""Which rows are read together, and in what order they are handed out: integers only.

`permutation` makes keyed bijections, `units` defines the smallest runs of rows that are read
together, `listed` has samplers, which list batches themselves, `windows` orders an epoch (file
order, full shuffle, windows, buckets, draws with replacement, listed rows), and `plan` shares an
epoch out and walks through its windows and batches.
`state` saves a place and finds it again; `quality` predicts how well batches are mixed.
"""

from __future__ import annotations

from labeled.samplers.listed import ListedBatches, row_sequences, shuffled

__all__ = ["ListedBatches", "row_sequences", "shuffled"]
