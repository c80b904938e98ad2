"""Named arrays, whatever lies behind them: what batches are read from.

`source` and `ragged` are one array of one or several files, or in memory; `blocks` makes one of an
xarray variable. `loading` turns rows into reads.
"""
