"""Zarr stores. All of it is in `format`."""
