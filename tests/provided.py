"""Providers of small files, and what an epoch of theirs holds."""

from __future__ import annotations

import numpy as np
from record_files import pictures

from labeled.providers import ImageRecordProvider

IMAGES = pictures()
LABELS = [i + 0.25 for i in range(12)]


def make(folder, **parameters):
    given = {
        "path_imgrec": folder / "a.rec",
        "data_shape": (3, 12, 16),
        "batch_size": 4,
        "preprocess_threads": 0,
        "verbose": False,
        **parameters,
    }
    return ImageRecordProvider(given.pop("path_imgrec"), **given)


def handed_out(provider):
    """Return all that an epoch holds."""
    out = [str(provider.provide_data), str(provider.provide_label)]
    for batch in provider:
        out += [*batch.data, *batch.label, batch.count_samples, batch.rows]
    return out


def same(a, b):
    return len(a) == len(b) and all(
        np.shape(x) == np.shape(y) and np.array_equal(x, y) for x, y in zip(a, b, strict=True)
    )
