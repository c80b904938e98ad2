"""The old datasets."""
