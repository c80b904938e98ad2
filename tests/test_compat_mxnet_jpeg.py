"""Colour JPEGs of the old build: colours enlarged by their cosines."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from labeled.compat.mxnet import opencv as jpeg
from labeled.errors import LabeledWarning

jpeglib = pytest.importorskip("jpeglib", reason="jpeglib is not installed")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
fft = pytest.importorskip("scipy.fft", reason="SciPy is not installed")


def encoded(mode="RGB", **options):
    rng = np.random.default_rng(2)
    rough = rng.integers(0, 256, (6, 8, len(mode)), dtype=np.uint8)
    pixels = rough.repeat(8, axis=0).repeat(8, axis=1)[..., : len(mode)]
    held = io.BytesIO()
    image = pillow.fromarray(
        pixels[..., 0] if mode == "L" else pixels, mode if mode == "L" else None
    )
    image.save(held, "jpeg", quality=90, **options)
    data = held.getvalue()
    with pillow.open(io.BytesIO(data)) as image:
        return data, np.array(image.convert("RGB"))


def test_colours_are_enlarged_by_their_cosines(tmp_path):
    data, decoded = encoded(subsampling=2)
    (tmp_path / "x.jpg").write_bytes(data)
    stored = jpeglib.read_dct(tmp_path / "x.jpg")
    planes = []
    for blocks, table in ((stored.Y, 0), (stored.Cb, 1), (stored.Cr, 1)):
        values = blocks * stored.qt[table]
        side = 8 if table == 0 else 16
        spread = np.zeros((*values.shape[:2], side, side))
        spread[..., :8, :8] = values * (side / 8)
        pixels = fft.idctn(spread, axes=(2, 3), norm="ortho") + 128
        planes.append(pixels.transpose(0, 2, 1, 3).reshape(48, 64))
    y, cb, cr = np.clip(np.rint(planes), 0, 255)
    expected = np.stack(
        [
            y + 1.402 * (cr - 128),
            y - 0.344136 * (cb - 128) - 0.714136 * (cr - 128),
            y + 1.772 * (cb - 128),
        ],
        axis=2,
    )
    found = jpeg.old_pixels(data, decoded)
    assert found.dtype == np.uint8
    assert np.abs(found - np.clip(expected, 0, 255)).max() <= 3
    assert np.abs(found.astype(int) - decoded).max() > 10


def test_pictures_without_small_colours_are_as_ever():
    for options in ({"subsampling": 0}, {"mode": "L"}):
        data, decoded = encoded(**options)
        assert np.abs(jpeg.old_pixels(data, decoded).astype(int) - decoded).max() <= 1


def test_what_is_no_colour_jpeg_stays():
    data, decoded = encoded()
    for other in (data[:40], b"\xff\xd8\xff", data[: len(data) // 2]):
        assert jpeg.old_pixels(other, decoded).shape == decoded.shape
    grey = decoded[..., :1]
    assert jpeg.old_pixels(data, grey) is grey


def test_without_the_library_there_is_a_warning(monkeypatch):
    data, decoded = encoded()
    monkeypatch.setitem(sys.modules, "jpeglib", None)
    jpeg._jpeglib.cache_clear()
    try:
        with pytest.warns(LabeledWarning, match="the extra 'mxnet'"):
            assert_array_equal(jpeg.old_pixels(data, decoded), decoded)
    finally:
        jpeg._jpeglib.cache_clear()
