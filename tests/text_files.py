"""Delimited text that several tests write."""

from __future__ import annotations

import gzip
from pathlib import Path

import labeled


def put(path, text):
    data = text if isinstance(text, bytes) else text.encode()
    Path(path).write_bytes(gzip.compress(data, 1) if str(path).endswith(".gz") else data)
    return str(path)


def values_of(path, **options):
    dataset = labeled.open_dataset(path, **options)
    return {name: dataset[name].values for name in dataset.sources}
