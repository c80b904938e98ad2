"""Bytes of files: what is in them, where rows lie, and how they are read.

A folder or module for each format (`hdf5`, `idx`, `csv`, `recordio`, `zarr`), strangers to one
another; here is what they share. `registry` finds the format of a file, `format` is what one
offers, `header` what opening returns, `reader` what reading offers.

Reading: `reader` (what readers offer, and what follows from it), `contiguous` (rows in one piece),
`region` (parts of rows), `bytesource` (bytes by position, those of gzip-compressed files
among them), `memory` (how much there is, and how rows move in it).

Values: `cf` (packed numbers and times), `pictures`. Writing: `replacing` (whole
files or none).
"""
