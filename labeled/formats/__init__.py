"""Bytes of files: what is in them, where rows lie, and how they are read.

A folder for each format (`hdf5`, `idx`, `csv`, `recordio`), strangers to one another; here is what
they share. `registry` finds the format of a file, `format` is what one offers, `header` what
opening tells, `reader` what reading offers; `foreign` knows files that are not opened.

Reading: `bytesource` (bytes by position), `distance` (where memory for them lies well), `packed`
(bytes of gzip-compressed files), `rows` (requests, checked), `reading` (pieces of work), `region`
(parts of rows), `extents` (where rows lie), `extent_engine` (fetching them), `contiguous` (sources
in one piece), `values_engine` (rows in memory), `keeping` (decoded chunks that outlast a call),
`clock` (time spent decoding), `machine` (how much memory there is).

Values: `cf` (packed numbers and times), `objects` (text), `examples` (of different shapes),
`pictures` and `picture_heads`, `naming` (sources without names). Writing: `replacing` (whole files
or none), `parts` (files that are not complete yet).
"""
