"""Named arrays, whatever lies behind them: what batches are read from.

`source` is the one `Source`, of files, in memory or lazy, dense or ragged, and turns rows of it
into reads; `readers` has those that stand for several files or blocks.
"""
