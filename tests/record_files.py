"""Small record files of pictures, made with what the tests do not test: Pillow and ``struct``."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def pictures(n=12, height=24, width=30, channels=3, seed=0):
    """Return smooth coloured pictures, each another one."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, height // 3, width // 3, channels), dtype=np.uint8)
    return coarse.repeat(3, axis=1).repeat(3, axis=2)


def png(picture):
    """Return a picture encoded."""
    buffer = io.BytesIO()
    Image.fromarray(picture.squeeze(-1) if picture.shape[-1] == 1 else picture).save(buffer, "PNG")
    return buffer.getvalue()


def record(payload, *, magic=0xCED7230A):
    """Return a payload as a record of one part."""
    padding = b"\0" * (-len(payload) % 4)
    return struct.pack("<II", magic, len(payload)) + payload + padding


def header(labels, id):
    """Return what stands before a picture; one label, or several."""
    if np.ndim(labels) == 0:
        return struct.pack("<IfQQ", 0, labels, id, 0)
    values = np.asarray(labels, "<f4")
    return struct.pack("<IfQQ", len(values), 0, id, 0) + values.tobytes()


def write_records(path, images, labels, ids=None):
    """Write pictures with labels and ids 10, 20, ...; and an index beside them."""
    ids = [10 * (i + 1) for i in range(len(images))] if ids is None else ids
    at, lines = 0, []
    with open(path, "wb") as out:
        for number, (image, label, id) in enumerate(zip(images, labels, ids, strict=True)):
            encoded = image if isinstance(image, bytes) else png(image)
            stored = record(header(label, id) + encoded)
            lines.append(f"{number}\t{at}\n")
            at += out.write(stored)
    Path(path).with_suffix(".idx").write_text("".join(lines))
    return str(path)


def write_list(path, ids, labels, paths):
    """Write a list of examples; labels as exactly as float32 holds them."""
    listed = np.asarray(labels, np.float32).reshape(len(paths), -1)
    lines = zip(np.asarray(ids, np.uint64).tolist(), listed, paths, strict=True)
    text = "".join("\t".join([str(id), *map(str, row), name]) + "\n" for id, row, name in lines)
    Path(path).write_text(text, encoding="utf-8", newline="\n")
