"""HDF5: headers through h5py, payload by byte range.

`format` is what this folder offers to others, `door` opens files.

Headers: `scan` opens a file; `arrays` walks it and lists what lies there, `conventions` say what
that means (pandas, AnnData, scales), and `scan` makes sources of it; `fuel` does in a file with a
split table, `per_object` where examples are datasets or groups of their own. They use `sources`
(the header of one source), `labels` (names of axes), `dtypes`, `groups` (of one file, joined),
`flatlayout` (ragged sources), and `safety` (nothing outside the file, no more than it stores).

Rows: `reader` chooses the path, and reads through h5py what has no other. `chunked` reads chunks,
with filters or without, by `chunkindex` and `filters` (with `compiled` loops), `ragged` examples of
different shapes, `sparse` matrices of cells.

Writing: `writing`, `fuel` (splits), `scales` (names of axes), `encoding` (chunks made outside
HDF5), `undo` (what is undone where that fails), `others` (what is carried
over), `own` (what this library adds).
"""
