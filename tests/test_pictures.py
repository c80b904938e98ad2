"""Pictures: decoded as Pillow decodes them, turned upright, and refused before they explode."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from record_files import encoded, exif, write_records

import labeled
from labeled.errors import LabeledError
from labeled.transforms import Decode

REFERENCE = os.environ.get("LABELED_REFERENCE")

SOFT = np.linspace(0, 255, 24 * 37 * 4).reshape(24, 37, 4).astype(np.uint8)
COLOUR = Image.fromarray(SOFT[..., :3])
LOSSLESS = {"WEBP": {"lossless": True, "exact": True}}
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def decode(data, channels=None, **options):
    return Decode(channels, **options)(np.frombuffer(data, np.uint8)).values


def pixels(data: bytes, mode: str) -> np.ndarray:
    array = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert(mode))
    return array if array.ndim == 3 else array[:, :, None]


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize(
    ("format", "mode"),
    [("WEBP", m) for m in ("RGB", "L", "RGBA")] + [("TIFF", "RGB"), ("JPEG", "RGB"), ("JPEG", "L")],
)
def test_pictures_are_turned_upright_as_their_exif_says(tmp_path, format, mode, orientation):
    source = Image.fromarray(SOFT).convert(mode)
    data = encoded(source, format, exif=exif(orientation), **LOSSLESS.get(format, {}))

    np.testing.assert_array_equal(decode(data, 3), pixels(data, "RGBA")[..., :3])
    path = write_records(tmp_path / "a.rec", [data])
    found = labeled.open_dataset(path)["images"]
    assert found.shape == found.values.shape  # known from its head
    if format != "TIFF":  # which Pillow turns whatever it is told
        assert decode(data, 3, upright=False).shape == (24, 37, 3)
        assert labeled.open_dataset(path, upright=False)["images"].shape[1:3] == (24, 37)


@pytest.mark.parametrize("stored", ["L", "RGB", "RGBA", "P", "LA", "1"])
@pytest.mark.parametrize("channels", [1, 3, 4, None])
def test_png_of_any_mode_in_any_channels(stored, channels):
    source = Image.fromarray(SOFT[..., :3] if stored == "P" else SOFT)
    data = encoded(source.convert(stored), "PNG")
    own = {"L": 1, "1": 1, "RGB": 3, "P": 3, "RGBA": 4, "LA": 4}[stored]
    wanted = own if channels is None else channels

    found = decode(data, channels)

    assert found.shape == (24, 37, wanted)
    if (wanted, own) == (3, 4):  # alpha is left out, not laid over black
        np.testing.assert_array_equal(found, pixels(data, "RGBA")[..., :3])
    else:
        np.testing.assert_array_equal(found, pixels(data, MODES[wanted]))


def test_sixteen_bits_are_cut_to_eight():
    deep = (np.arange(24 * 37).reshape(24, 37) * 70).astype(np.uint16)
    for format in ("PNG", "TIFF"):
        data = encoded(Image.fromarray(deep), format)
        for channels in (None, 1):
            np.testing.assert_array_equal(decode(data, channels)[..., 0], deep >> 8)


@pytest.mark.parametrize("format", ["BMP", "TIFF", "WEBP", "GIF", "PPM"])
def test_other_kinds_of_pictures(tmp_path, format):
    source = COLOUR.quantize(32) if format == "GIF" else COLOUR
    data = encoded(source, format, **LOSSLESS.get(format, {}))
    np.testing.assert_array_equal(decode(data), pixels(data, "RGB"))
    ds = labeled.open_dataset(write_records(tmp_path / "a.rec", [data]))
    assert ds.shapes["images"] == (1, 24, 37, 3)
    alpha = encoded(Image.fromarray(SOFT), "TIFF", compression="tiff_lzw")
    np.testing.assert_array_equal(decode(alpha), SOFT)  # colours are not multiplied by alpha


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(24, 37), (1, 1), (17, 8), (33, 16)])
def test_a_jpeg_has_the_pixels_of_other_libraries(subsampling, progressive, size):
    image = np.random.default_rng(7).integers(0, 256, (*size, 3), np.uint8)
    data = encoded(image, "JPEG", quality=87, subsampling=subsampling, progressive=progressive)
    np.testing.assert_array_equal(decode(data), pixels(data, "RGB"))
    np.testing.assert_array_equal(decode(data, 4), pixels(data, "RGBA"))
    luma = Image.open(io.BytesIO(data))
    luma.draft("L", luma.size)
    np.testing.assert_array_equal(decode(data, 1)[..., 0], np.asarray(luma))


def test_a_jpeg_for_print_is_decoded_to_colour():
    assert decode(encoded(COLOUR.convert("CMYK"), "JPEG")).shape == (24, 37, 3)


def test_without_the_fast_library_jpegs_have_the_same_pixels(tmp_path):
    data = [encoded(np.roll(SOFT[..., :3], i, 0), "JPEG", exif=exif(i)) for i in range(9)]
    path = write_records(tmp_path / "a.rec", data)
    script = (
        "import sys; sys.modules['imagecodecs'] = None\n"
        "import labeled\n"
        "for channels in (1, 3):\n"
        "    for one in labeled.open_dataset(sys.argv[1], channels=channels)['images']:\n"
        "        sys.stdout.buffer.write(one.values.tobytes())"
    )
    slow = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=True)
    fast = [labeled.open_dataset(path, channels=channels)["images"] for channels in (1, 3)]
    assert slow.stdout == b"".join(one.values.tobytes() for images in fast for one in images)


def test_imagecodecs_without_its_codecs_is_done_without(tmp_path):
    data = [encoded(COLOUR, "JPEG"), encoded(COLOUR, "PNG")]
    path = write_records(tmp_path / "a.rec", data)
    script = (
        "import sys; sys.modules.update({'imagecodecs._jpeg8': None, 'imagecodecs._png': None})\n"
        "import labeled\n"
        "for one in labeled.open_dataset(sys.argv[1])['images']:\n"
        "    sys.stdout.buffer.write(one.values.tobytes())"
    )
    slow = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=True)
    assert slow.stdout == b"".join(decode(one).tobytes() for one in data)


def chunk(kind: bytes, body: bytes) -> bytes:
    """A part of a PNG."""
    whole = kind + body
    return struct.pack(">I", len(body)) + whole + struct.pack(">I", zlib.crc32(whole))


def interlaced(picture: np.ndarray) -> bytes:
    """A PNG in seven passes, each of which has some of the pixels."""
    height, width, channels = picture.shape
    passes = [
        (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]  # fmt: skip
    parts = [picture[y::down, x::right] for y, x, down, right in passes]
    lines = b"".join(b"\0" + line.tobytes() for part in parts for line in part)
    colours = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 1)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_interlaced_png_is_decoded_without_a_word(caplog, capfd, channels):
    picture = SOFT[..., :channels]
    np.testing.assert_array_equal(decode(interlaced(picture)), picture)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


# what is refused


def png_of(height: int, width: int) -> bytes:
    """A valid PNG whose header claims a size that its pixels do not have."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


SMALL = encoded(COLOUR, "JPEG")
BOMB = SMALL[: SMALL.index(b"\xff\xc0") + 5] + b"\xff" * 4 + SMALL[SMALL.index(b"\xff\xc0") + 9 :]
BMP, PPM = encoded(COLOUR, "BMP"), encoded(COLOUR, "PPM")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no bytes"),
        (b"no picture at all", "Pillow does not open it as a picture .17 bytes, beginning with"),
        (b"\xff\xd8\xff", "before it tells its size"),
        (b"\xff\xd8\xff\xd9" + bytes(8), "no frame before its pixels"),
        (b"\xff\xd8\xff\xe0\x00\x04ab" + bytes(9), "no marker at byte 8"),
        (SMALL[: len(SMALL) * 3 // 4], "cut short"),
        (b"\x89PNG\r\n\x1a\n", "within its header"),
        (png_of(0, 5), "0 x 5 pixels"),
        (png_of(5, 2**31), "5 x 2147483648 pixels"),
        (png_of(30, 30)[:50], "cannot be decoded"),
        (png_of(100_000, 100_000), "100,000 x 100,000 pixels, more than the 268,435,456"),
        (BOMB, "65,535 x 65,535"),
        (BMP[:18] + struct.pack("<2i", 99_999, 99_999) + BMP[26:], "more pixels than Pillow"),
        (PPM[:3] + b"99999 99999" + PPM[8:], "more pixels than Pillow decodes"),
    ],
)
def test_what_is_not_a_picture_or_too_large_is_refused(data, words):
    with pytest.raises(LabeledError, match=words):
        decode(data)


def test_a_png_with_a_part_whose_name_is_no_text_is_refused():
    sound = encoded(COLOUR, "PNG")
    with pytest.raises(LabeledError, match="cannot be decoded"):
        decode(sound.replace(b"IDAT", b"\x80\0\x90\xff"))


@pytest.mark.parametrize("part", [b"IDAT", b"IEND"])
def test_a_png_whose_parts_claim_too_much_takes_no_memory(part):
    resource = pytest.importorskip("resource")
    sound = encoded(COLOUR, "PNG")
    at = sound.index(part)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for claimed in (2**30, 2**32 - 1):
        with contextlib.suppress(LabeledError):
            found = decode(sound[: at - 4] + struct.pack(">I", claimed) + sound[at:])
            np.testing.assert_array_equal(found, SOFT[..., :3])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@given(st.data())
def test_damage_never_ends_in_anything_but_an_error_or_a_picture(data):
    stored = bytearray(encoded(COLOUR, data.draw(st.sampled_from(["JPEG", "PNG"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LabeledError):
        assert decode(bytes(stored)).dtype == np.uint8


@pytest.mark.skipif(REFERENCE is None, reason="LABELED_REFERENCE names no folder of pictures")
def test_genuine_photographs_are_decoded_as_pillow_does():
    assert REFERENCE is not None
    files = sorted((Path(REFERENCE) / "images").rglob("*.jpg"))
    assert len(files) == 14
    for file in files:
        data = file.read_bytes()
        np.testing.assert_array_equal(decode(data), pixels(data, Image.open(io.BytesIO(data)).mode))
