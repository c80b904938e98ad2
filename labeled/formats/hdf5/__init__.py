"""HDF5: headers through h5py, payload by byte range.

`format` is what this folder offers to others, and opens a file; `safety` opens it for the others
(nothing outside the file, no more than it stores).

Headers: `arrays` walks a file and lists what lies there, with what conventions say of it (pandas,
AnnData, scales; which groups are alike); in a file with a split table, `fuel` lists what that
names. `format` makes sources of either list, with `headers` (the header of one source, and its
coordinates), `labels` (names of axes, and attributes) and `dtypes`. `per_object` does if examples
are datasets or groups of their own.

Rows: `reader` chooses the path, finds and reads chunks and sparse matrices, and through h5py what
has no other; `filters` undoes filters of chunks, and makes chunks to write; `ragged` reads examples
of different shapes.

Writing: `writing`, `fuel` (splits), `extras` (what is copied from the old file), `metadata` (what
this library adds).
"""
