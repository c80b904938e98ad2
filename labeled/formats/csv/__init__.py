"""Delimited text (CSV, TSV, columns of numbers): indexed once, parsed block by block."""
