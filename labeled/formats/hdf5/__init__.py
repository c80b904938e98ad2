"""HDF5: headers through h5py, payload by byte range.

`format` is what this folder offers to others, `door` opens files.

Headers: `scan` (one pass over a file) with `fuel` (the split table) or `tableless` (plain files,
netCDF; `contents` sorts what lies in them), `sources` (headers of sources), `labels` (names of
axes), `columns` (of tables), `groups` (of one file, joined), `sparse` (matrices of cells),
`frames` (of pandas), `flatlayout` (ragged sources), `layout` (where bytes are), `attributes`, and
`safety` (nothing outside the file, no more than it stores).

Rows: `payload` chooses the path. `stored` (chunks without filters), `tiled` (several of them a
row), `decoded` (with filters), `ragged` (examples of different shapes),
`fallback` (h5py). They use `chunkindex`, `tiles`, and `filters` with `inflate` and `compiled`.

Examples that are datasets, or groups, of their own: `each` finds and reads them, `eachheaders`
makes their headers.

Writing: `writing`, `tables` (splits), `scales` (names of axes), `encoding` (chunks made outside
HDF5), `room` (for values of variable length), `growing` (appending), `undo` (what is undone where
that fails), `others` (what is carried over), `own` (what this library adds).
"""
