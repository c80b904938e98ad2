"""Files, splits and selections as lazy labelled arrays: what lies between bytes and users.

`files` knows which files are open, and joins them (`alike` says whether that can be, `named` puts
files of one source each side by side). `source` and `ragged` are one named source; `region` is
what ``isel`` leaves of its rows, `layout` how they lie in storage. `blocks` makes a source of a
dask-backed variable.

Readers over the readers of formats: `joined` (of many files), `decoding` (each file by its own
conventions), `memory` (of loaded rows); `piecewise` holds what they do alike. `loading` turns rows
into reads; `lazy` makes dask arrays, in blocks that `chunking` decides on.
"""
