"""Record files of pictures, made with what the tests do not test: Pillow and ``struct``."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image

MAGIC = struct.pack("<I", 0xCED7230A)
RNG = np.random.default_rng(5)
N = 60
SIZES = [
    (int(h), int(w), (1, 3)[i % 5 > 0]) for i, (h, w) in enumerate(RNG.integers(5, 30, (N, 2)))
]
PICTURES = [RNG.integers(0, 256, size, np.uint8) for size in SIZES]
ALIKE = RNG.integers(0, 256, (N, 8, 6, 3), np.uint8)
IDS = np.arange(N) * 3 + 100


def pictures(n=12, height=24, width=30, channels=3, seed=0):
    """Return smooth coloured pictures, each another one."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, height // 3, width // 3, channels), dtype=np.uint8)
    return coarse.repeat(3, axis=1).repeat(3, axis=2)


def encoded(picture, format="PNG", **options):
    """Return an array or a picture of Pillow encoded."""
    buffer = io.BytesIO()
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture.squeeze(-1) if picture.shape[-1] == 1 else picture)
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def png(picture):
    """Return a picture encoded without loss."""
    return encoded(picture)


def exif(orientation):
    """Return EXIF data that tell how a picture lies."""
    made = Image.Exif()
    made[0x010F] = "a maker, so that the orientation is not the first entry"
    made[0x0112] = orientation
    return made


def record(payload, *, magic=MAGIC):
    """Return a payload as a record of one part."""
    padding = b"\0" * (-len(payload) % 4)
    return magic + struct.pack("<I", len(payload)) + payload + padding


def record_of_words(payload):
    """Return a payload as a record, word by word, as the format is described."""
    parts, part = [], b""
    for word in (payload[i : i + 4] for i in range(0, len(payload), 4)):
        if word == MAGIC:
            parts.append(part)
            part = b""
        else:
            part += word
    parts.append(part)
    kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    out = b""
    for kind, one in zip(kinds, parts, strict=True):
        out += MAGIC + struct.pack("<I", kind << 29 | len(one)) + one + b"\0" * (-len(one) % 4)
    return out


def header(labels, id):
    """Return what stands before a picture; one label, or several."""
    if np.ndim(labels) == 0:
        return struct.pack("<IfQQ", 0, labels, id, 0)
    values = np.asarray(labels, "<f4")
    return struct.pack("<IfQQ", len(values), 0, id, 0) + values.tobytes()


def write_records(path, images, labels=None, ids=None, *, index=True):
    """Write pictures with labels and ids 10, 20, ...; and an index beside them."""
    n = len(images)
    labels = np.zeros(n) if labels is None else labels
    ids = [10 * (i + 1) for i in range(n)] if ids is None else ids
    at, lines = 0, []
    with open(path, "wb") as out:
        for number, (image, label, id) in enumerate(zip(images, labels, ids, strict=True)):
            stored = record(header(label, id) + (image if isinstance(image, bytes) else png(image)))
            lines.append(f"{number}\t{at}\n")
            at += out.write(stored)
    if index:
        Path(path).with_suffix(".idx").write_text("".join(lines))
    return str(path)


def picture_records(path):
    """Files of pictures without loss: of many sizes, all alike, with several labels."""
    write_records(path / "mixed.rec", PICTURES, np.arange(N) / 2, IDS)
    write_records(path / "alike.rec", ALIKE, np.arange(N) % 7, IDS)
    several = [np.arange(4) + i for i in range(N)]
    write_records(path / "several.rec", ALIKE, several, IDS, index=False)
    write_records(path / "differing.rec", ALIKE, [np.arange(i % 4) + i for i in range(N)], IDS)
    (path / "bytes.rec").write_bytes(b"".join(record(bytes([i]) * i) for i in range(N)))
    return path
