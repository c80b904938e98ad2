"""Named arrays, whatever lies behind them: what batches are read from.

`source` and `ragged` are one array of one or several files, or in memory; `blocks` makes one of an
xarray variable. `region` is what ``isel`` leaves of rows, `readers` reads many files, decoded
values and loaded rows. `loading` turns rows into reads.
"""
