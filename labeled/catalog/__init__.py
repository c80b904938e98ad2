"""Files, splits and selections as lazy labelled arrays: what lies between bytes and users.

`files` knows which files are open, and joins them (`alike` says whether that can be). `source`
and `ragged` are one named source; `region` is what ``isel`` leaves of its rows, `layout` how they
lie in storage, `readers` reads many files, decoded values and loaded rows. `blocks` makes a source
of an xarray variable.

`loading` turns rows into reads; `lazy` makes arrays for xarray and dask, in blocks that `chunking`
decides on.
"""
