"""Colour JPEGs as the published build of release 0.9.5 decoded them.

It held a libjpeg of the line 7 to 9, which enlarges the colours of a JPEG otherwise than
libjpeg-turbo: up to 32 levels apart at sharp edges, while grey pictures and the brightness of
colour pictures are equal. The library `jpeglib` has that line; it works through temporary files
and one setting for the whole process, so pictures take turns here.
"""

from __future__ import annotations

import importlib
import tempfile
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from labeled.compat.mxnet.opencv import Picture
from labeled.errors import how_to_install, warn

LINE = "8d"
"""Of the releases of that line: equal to the recordings in every value."""

_TURN = Lock()


def old_pixels(data: bytes | memoryview, decoded: Picture) -> Picture:
    """Return a colour JPEG as the old build decoded it.

    Parameters
    ----------
    data : bytes-like
        The encoded picture.
    decoded : uint8 array (height, width, 3)
        What libjpeg-turbo makes of it; returned where `jpeglib` is missing, with a warning, and
        where it makes something else of the picture (four inks, a damaged end).
    """
    library = _library()
    if library is None:
        return decoded
    with tempfile.TemporaryDirectory(prefix="labeled") as place, _TURN:
        path = Path(place) / "picture.jpg"
        path.write_bytes(data)
        try:
            with library.version(LINE):
                pixels = np.asarray(library.read_spatial(path).spatial)
        except (OSError, ValueError, RuntimeError):
            return decoded
    return pixels if pixels.shape == decoded.shape and pixels.dtype == np.uint8 else decoded


@cache
def _library() -> Any:
    try:
        return importlib.import_module("jpeglib")
    except ImportError:
        warn(
            "release 0.9.5 decoded colour JPEGs with another libjpeg; without the library "
            "jpeglib their colours differ at edges: " + how_to_install("jpeglib", "mxnet")
        )
        return None
