"""Named arrays, whatever lies behind them: what batches are read from.

`source` is the one `Source`, of files, in memory or lazy, dense or ragged; `readers` has those that
stand for several files or blocks. `loading` turns rows into reads.
"""
