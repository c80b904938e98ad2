"""What the names of IDX files say: which source a file holds, and of which split.

``train-images-idx3-ubyte`` and ``t10k-labels.idx1-ubyte.gz`` are how the MNIST files and
their relatives are named; ``images-idx3-ubyte`` does without a split. Anything else is one
source, "data".
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

SPLITS = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "test": "test",
    "t10k": "test",
}
"""Words in names, and the splits they mean."""

ORDER = ("train", "valid", "test")

SOURCES = {
    "images": "images",
    "image": "images",
    "labels": "labels",
    "label": "labels",
    "targets": "targets",
    "features": "features",
}
"""Words in names, and the sources they mean."""

DEFAULT = "data"

_ENDING = re.compile(r"[-._]idx(\d+)?([-._][a-z]+\d*)?(\.gz)?$")


class Named(NamedTuple):
    """What a name says."""

    group: str
    """The same in all files that belong together."""
    split: str | None
    source: str


def is_named_idx(path: str) -> bool:
    """Whether a name is that of an IDX file; a bare ``.idx`` may be an index of something else.

    Examples
    --------
    >>> is_named_idx("t10k-images.idx3-ubyte.gz"), is_named_idx("cifar.idx")
    (True, False)
    """
    found = _ENDING.search(os.path.basename(path).lower())
    return found is not None and found[1] is not None


def what_is_in(path: str) -> Named:
    """Return what the name of a file says.

    Examples
    --------
    >>> what_is_in("/data/emnist-digits-train-images-idx3-ubyte.gz")
    Named(group='emnist-digits', split='train', source='images')
    >>> what_is_in("labels-idx1-ubyte"), what_is_in("faces.idx")
    (Named(group='', split=None, source='labels'), Named(group='', split=None, source='data'))
    """
    stem = _ENDING.sub("", os.path.basename(path).lower())
    words = re.split(r"[-._ ]+", stem.removesuffix(".gz"))
    source = next((SOURCES[word] for word in reversed(words) if word in SOURCES), DEFAULT)
    split = next((SPLITS[word] for word in words if word in SPLITS), None)
    if source == DEFAULT and split is None:
        return Named("", None, DEFAULT)
    group = "-".join(word for word in words if word not in SOURCES and word not in SPLITS)
    return Named(group, split, source)


def in_order(path: str) -> tuple[int, str]:
    """Return what sorts the files of a folder: train before test, then by name."""
    split = what_is_in(path).split
    return (len(ORDER) if split is None else ORDER.index(split), path)
