"""Files of examples are written here: whole, or not at all.

`inputs` makes everything that can be written a `source`, columns of tables with `tables`.
`layouts` says how each is stored, `splits` which rows splits have. `packing` brings rows into
chunks, with `statistics` on the way.

The ends of that one path: `write` (new files), `append` (more rows, more splits), `repack`
(the sources of a file once more). `pictures` are what ``labeled.convert`` takes besides tables and
files that open. `verify` compares with checksums, `doctor` finds and measures what reads slowly.
"""
