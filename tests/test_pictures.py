"""Pictures: decoded as Pillow decodes them, turned upright, and refused before they explode."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from labeled.errors import ArrayError
from labeled.formats import pictures
from labeled.formats.picture_heads import HEAD_BYTES, PictureError, ShortHeadError, head_of, kind_of
from labeled.formats.pictures import decode, decode_plain, encode, picture_head

REFERENCE = os.environ.get("LABELED_REFERENCE")

SOFT = np.linspace(0, 255, 24 * 37 * 4).reshape(24, 37, 4).astype(np.uint8)


def saved(image: Image.Image, format: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


LOSSLESS = {"WEBP": {"lossless": True, "exact": True}}


def pixels(data: bytes, mode: str) -> np.ndarray:
    array = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert(mode))
    return array if array.ndim == 3 else array[:, :, None]


def exif(orientation: int) -> Image.Exif:
    made = Image.Exif()
    made[0x010F] = "a maker, so that the orientation is not the first entry"
    made[0x0112] = orientation
    return made


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize(
    ("format", "mode"),
    [(f, m) for f in ("PNG", "WEBP") for m in ("RGB", "L", "RGBA")] + [("TIFF", "RGB")],
)
def test_other_kinds_are_turned_upright_as_their_exif_says(format, mode, orientation):
    source = Image.fromarray(SOFT).convert(mode)
    data = saved(source, format, exif=exif(orientation), **LOSSLESS.get(format, {}))

    upright = decode(data, 3)

    np.testing.assert_array_equal(upright, pixels(data, "RGBA")[..., :3])
    assert picture_head(data).shape()[:2] == upright.shape[:2]
    if format != "TIFF":  # which Pillow and OpenCV turn whatever they are told
        assert decode(data, 3, upright=False).shape == (24, 37, 3)
        assert picture_head(data).shape(upright=False)[:2] == (24, 37)


def test_a_png_cut_before_its_pixels_asks_for_more():
    data = saved(Image.fromarray(SOFT), "PNG", exif=exif(6), icc_profile=bytes(range(256)) * 20)
    with pytest.raises(ShortHeadError, match="before its pixels"):
        head_of(data[:200])
    assert head_of(data).orientation == 6


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_jpeg_is_turned_upright_as_its_exif_says(orientation, mode):
    data = saved(Image.fromarray(SOFT[..., :3]).convert(mode), "JPEG", exif=exif(orientation))

    upright = decode(data)

    np.testing.assert_array_equal(upright, pixels(data, mode))
    assert picture_head(data).shape() == upright.shape
    as_stored = decode(data, upright=False)
    assert as_stored.shape == picture_head(data).shape(upright=False) == (24, 37, len(mode))


def test_exif_of_the_other_byte_order():
    body = struct.pack(">2sHIHHHIHH", b"MM", 42, 8, 1, 0x0112, 3, 1, 6, 0) + bytes(4)
    plain = saved(Image.fromarray(SOFT[..., :3]), "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 8) + b"Exif\0\0" + body
    data = plain[:2] + segment + plain[2:]
    assert decode(data).shape == (37, 24, 3)
    np.testing.assert_array_equal(decode(data), pixels(data, "RGB"))


@given(st.binary(max_size=60))
def test_damaged_exif_is_no_orientation(body):
    plain = saved(Image.fromarray(SOFT[..., :3]), "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 10) + b"Exif\0\0II" + body
    assert 1 <= picture_head(plain[:2] + segment + plain[2:]).orientation <= 8


MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@pytest.mark.parametrize("stored", ["L", "RGB", "RGBA", "P", "LA", "1"])
@pytest.mark.parametrize("channels", [1, 3, 4, None])
def test_png_of_any_mode_in_any_channels(stored, channels):
    source = Image.fromarray(SOFT[..., :3] if stored == "P" else SOFT)
    data = saved(source.convert(stored), "PNG")
    own = {"L": 1, "1": 1, "RGB": 3, "P": 3, "RGBA": 4, "LA": 4}[stored]
    wanted = own if channels is None else channels

    found = decode(data, channels)

    assert found.shape == (24, 37, wanted)
    assert picture_head(data).channels == own
    if wanted == 1 and own != 1:  # weights of red, green and blue differ a little
        assert np.abs(found.astype(int) - pixels(data, "L")).max() <= 2
    elif (wanted, own) == (3, 4):  # alpha is left out, not laid over black
        np.testing.assert_array_equal(found, pixels(data, "RGBA")[..., :3])
    else:
        np.testing.assert_array_equal(found, pixels(data, MODES[wanted]))


def test_sixteen_bits_are_cut_to_eight():
    deep = (np.arange(24 * 37).reshape(24, 37) * 70).astype(np.uint16)
    data = saved(Image.fromarray(deep), "PNG")
    for channels in (None, 1):
        np.testing.assert_array_equal(decode(data, channels)[..., 0], deep >> 8)


@pytest.mark.parametrize("packed", [None, "tiff_lzw"])
def test_colours_of_a_tiff_are_not_multiplied_by_alpha(packed):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 4), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF", compression=packed)
    image = decode(file.getvalue())
    np.testing.assert_array_equal(image, pixels)
    assert image.flags.writeable
    np.testing.assert_array_equal(decode(file.getvalue(), 3), pixels[..., :3])


@pytest.mark.parametrize("format", ["BMP", "TIFF", "WEBP", "GIF", "PPM"])
def test_other_kinds_of_pictures(format):
    lossless = {"lossless": True} if format == "WEBP" else {}
    source = Image.fromarray(SOFT[..., :3])
    data = saved(source.quantize(32) if format == "GIF" else source, format, **lossless)
    found = decode(data)
    assert found.shape == picture_head(data).shape() == (24, 37, 3)
    np.testing.assert_array_equal(found, pixels(data, "RGB"))


def test_a_jpeg_for_print_is_decoded_to_colour():
    data = saved(Image.fromarray(SOFT[..., :3]).convert("CMYK"), "JPEG")
    assert decode(data).shape == (24, 37, 3)


def test_grey_of_a_colour_jpeg_is_its_luma_plane():
    data = saved(Image.fromarray(SOFT[..., :3]), "JPEG", quality=80)
    luma = Image.open(io.BytesIO(data))
    luma.draft("L", luma.size)
    np.testing.assert_array_equal(decode(data, 1)[..., 0], np.asarray(luma))


# what is refused


def png_of(height: int, width: int) -> bytes:
    """A valid PNG whose header claims a size that its pixels do not have."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        whole = kind + body
        return struct.pack(">I", len(body)) + whole + struct.pack(">I", zlib.crc32(whole))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(100))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def test_a_huge_picture_is_refused_by_its_header():
    with pytest.raises(PictureError, match="100,000 x 100,000 pixels, more than the 268,435,456"):
        decode(png_of(100_000, 100_000))
    small = saved(Image.fromarray(SOFT[..., :3]), "JPEG")
    with pytest.raises(PictureError, match="24 x 37 pixels, more than the 500"):
        decode(small, max_pixels=500)
    at = small.index(b"\xff\xc0")
    bomb = small[: at + 5] + b"\xff\xff\xff\xff" + small[at + 9 :]
    with pytest.raises(PictureError, match="65,535 x 65,535"):
        decode(bomb)
    for kind, at in {"BMP": 18, "PPM": 3}.items():
        plain = saved(Image.fromarray(SOFT[..., :3]), kind)
        size = struct.pack("<2i", 100_000, 100_000) if kind == "BMP" else b"99999 99999"
        with pytest.raises(PictureError, match="more pixels than Pillow decodes"):
            decode(plain[:at] + size + plain[at + (8 if kind == "BMP" else 5) :])


@pytest.mark.parametrize("part", [b"IDAT", b"IEND"])
def test_a_png_whose_parts_claim_too_much_is_refused_before_memory_is_taken(part, monkeypatch):
    sound = saved(Image.fromarray(SOFT[..., :3]), "PNG")
    assert decode(sound).shape == (24, 37, 3)
    monkeypatch.setattr(pictures, "opencv", lambda: pytest.fail("decoded"))
    at = sound.index(part)
    for claimed in (len(sound) - at, 2**30, 2**32 - 1):
        damaged = sound[: at - 4] + struct.pack(">I", claimed) + sound[at:]
        with pytest.raises(PictureError, match=f"{part.decode()}' claims {claimed:,} bytes, where"):
            decode(damaged)


def test_a_jpeg_that_is_cut_short_is_refused_or_grey():
    data = saved(Image.fromarray(np.tile(SOFT[..., :3], (8, 8, 1))), "JPEG", exif=exif(1))
    cut = data[: len(data) * 3 // 4]
    with pytest.raises(PictureError, match="cut short"):
        decode(cut)
    found = decode(cut, whole=False)
    np.testing.assert_array_equal(found[:96], decode(data)[:96])
    assert len(np.unique(found[-8:])) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no bytes"),
        (
            b"no picture at all",
            "Pillow does not open it as a picture .17 bytes, beginning with b'no pictu'",
        ),
        (b"\xff\xd8\xff", "before it tells its size"),
        (b"\xff\xd8\xff\xd9" + bytes(8), "no frame before its pixels"),
        (b"\xff\xd8\xff\xe0\x00\x04ab" + bytes(9), "no marker at byte 8"),
        (b"\x89PNG\r\n\x1a\n", "within its header"),
        (png_of(0, 5), "0 x 5 pixels"),
        (png_of(5, 2**31), "5 x 2147483648 pixels"),
        (png_of(30, 30)[:50], "is damaged"),
    ],
)
def test_what_is_no_picture_is_reported(data, words):
    with pytest.raises(PictureError, match=words):
        decode(data)


@given(st.data())
def test_damage_never_ends_in_anything_but_an_error_or_a_picture(data):
    stored = bytearray(
        saved(Image.fromarray(SOFT[..., :3]), data.draw(st.sampled_from(["JPEG", "PNG"])))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PictureError):
        assert decode(bytes(stored), max_pixels=10**6).dtype == np.uint8


@given(st.integers(0, 900))
def test_the_size_is_known_from_the_beginning_or_more_is_asked_for(n):
    data = saved(Image.fromarray(SOFT[..., :3]), "JPEG", exif=exif(8))
    try:
        assert head_of(data[:n]) in (picture_head(data), None)
    except ShortHeadError:
        assert n < HEAD_BYTES


def test_kinds_by_their_magic_bytes():
    image = Image.fromarray(SOFT[..., :3])
    for format in ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP"):
        assert kind_of(saved(image, format)) == format.lower()
    assert kind_of(saved(image, "PPM")) == "pnm"
    assert kind_of(b"P5x") is None


# encoding


@given(st.sampled_from([(), (1,), (3,), (4,)]), st.integers(1, 9), st.integers(1, 9))
def test_what_is_encoded_without_loss_comes_back(channels, height, width):
    image = np.random.default_rng(height).integers(0, 256, (height, width, *channels), np.uint8)
    found = decode(encode(image, ".png", quality=1))
    np.testing.assert_array_equal(found, image.reshape(height, width, -1))
    if channels == (3,):
        np.testing.assert_array_equal(pixels(encode(image, ".bmp"), "RGB"), image)


def test_quality_makes_jpegs_smaller():
    image = SOFT[..., :3]
    assert len(encode(image, quality=10)) < len(encode(image)) == len(encode(image, quality=95))


@pytest.mark.parametrize(
    ("image", "format", "words"),
    [
        (np.zeros((2, 2), np.float32), ".jpg", "float32"),
        (np.zeros((2, 2, 2), np.uint8), ".jpg", "is not a picture"),
        (np.zeros((0, 2), np.uint8), ".jpg", "is not a picture"),
        (np.zeros((2, 2), np.uint8), ".exe", "must be one of '.jpg'"),
    ],
)
def test_what_cannot_be_encoded_is_reported(image, format, words):
    with pytest.raises(ArrayError, match=words):
        encode(image, format)


@pytest.mark.parametrize(
    ("format", "quality", "words"),
    [
        (".jpg", 101, "quality=101: of .jpg it is a whole number, 1 to 100"),
        (".webp", 0, "1 to 100"),
        (".png", 10, "0 to 9"),
        (".jpeg", 50.5, "whole"),
        (".jpg", True, "whole"),
    ],
)
def test_a_quality_that_there_is_none_of_is_refused(format, quality, words, capfd):
    with pytest.raises(ArrayError, match=words):
        encode(SOFT[..., :3], format, quality)
    assert capfd.readouterr().err == ""
    encode(SOFT[..., :3], ".jpg", np.int64(100))


def test_threads_decode_side_by_side():
    data = [saved(Image.fromarray(np.roll(SOFT[..., :3], i, 0)), "JPEG") for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for one, found in zip(data, pool.map(decode, data), strict=True):
            np.testing.assert_array_equal(found, pixels(one, "RGB"))


@pytest.mark.skipif(REFERENCE is None, reason="LABELED_REFERENCE names no folder of pictures")
def test_genuine_photographs_are_decoded_as_pillow_does():
    assert REFERENCE is not None
    files = sorted((Path(REFERENCE) / "images").rglob("*.jpg"))
    assert len(files) == 14
    for file in files:
        data = file.read_bytes()
        mode = Image.open(io.BytesIO(data)).mode
        np.testing.assert_array_equal(decode(data), pixels(data, mode))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(24, 37), (1, 1), (17, 8), (33, 16)])
def test_every_library_gives_the_same_pixels_of_a_jpeg(subsampling, progressive, size, monkeypatch):
    image = np.random.default_rng(7).integers(0, 256, (*size, 3), np.uint8)
    options = {"quality": 87, "subsampling": subsampling, "progressive": progressive}
    data = saved(Image.fromarray(image), "JPEG", **options)
    fast = [decode(data, channels) for channels in (None, 1, 3, 4)]
    monkeypatch.setattr(pictures, "_simplejpeg", lambda: None)
    slow = [decode(data, channels) for channels in (None, 1, 3, 4)]
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(fast[0], pixels(data, "RGB"))


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


COLOUR, GREY = Image.fromarray(SOFT[..., :3]), Image.fromarray(SOFT[..., 0])
MADE = {
    "jpeg": saved(COLOUR, "JPEG"),
    "another jpeg": saved(Image.fromarray(SOFT[::-1, :, 2::-1].copy()), "JPEG"),
    "other tables": saved(COLOUR, "JPEG", quality=20),
    "grey": saved(GREY, "JPEG"),
    "lying": saved(COLOUR, "JPEG", exif=exif(6)),
    "narrow": saved(COLOUR.resize((36, 24)), "JPEG"),
    "for print": saved(COLOUR.convert("CMYK"), "JPEG"),
    "png": saved(COLOUR, "PNG"),
    "cut short": cut_short(saved(COLOUR, "JPEG")),
    "none": b"no picture at all",
    "empty": b"",
}


@given(
    names=st.lists(st.sampled_from(sorted(MADE)), max_size=8),
    channels=st.sampled_from([None, 1, 3, 4]),
    upright=st.booleans(),
    few=st.booleans(),
)
def test_plain_jpegs_go_where_they_are_wanted_and_the_others_are_named(
    names, channels, upright, few
):
    pictures = [memoryview(MADE[name]) for name in names]
    outs = [np.zeros((24, 37, channels or 3), np.uint8) for _ in names]
    most = 24 * 37 - few
    others = decode_plain(pictures, outs, channels, upright=upright, max_pixels=most)
    plain = {"jpeg", "another jpeg", "other tables", "for print"}
    plain |= set() if channels is None else {"grey"}
    plain |= set() if upright else {"lying"}
    done = [number for number, name in enumerate(names) if name in plain and not few]
    assert others == [number for number in range(len(names)) if number not in done]
    for number in done:
        wanted = decode(pictures[number], channels, upright=upright)
        np.testing.assert_array_equal(outs[number], wanted)
