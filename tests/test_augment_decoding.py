"""Pictures that an HDF5 file keeps as rows of bytes: pixels are those that were encoded."""

from __future__ import annotations

import io

import h5py
import numpy as np
import pytest
from PIL import Image

import labeled
from labeled.errors import AugmentError
from labeled.transforms import Augment, Crop, Decode, Mirror

SIZES = [(9 + n % 4, 12 + n % 3) for n in range(30)]


def png(pixels: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, 3), np.uint8) for h, w in SIZES]


@pytest.fixture
def ds(tmp_path, pictures):
    with h5py.File(tmp_path / "p.h5", "w") as f:
        encoded = f.create_dataset("images", (len(pictures),), h5py.vlen_dtype("u1"))
        for number, pixels in enumerate(pictures):
            encoded[number] = png(pixels)
        f["labels"] = np.arange(len(pictures))
        f["images"].dims[0].label = "batch"
    return labeled.open_dataset(tmp_path / "p.h5", dims={"images": ("batch", "byte")})


@pytest.mark.parametrize("threads", [0, 2])
def test_a_loader_decodes_them(ds, pictures, threads):
    seen = []
    for batch in ds.batches(
        8, shuffle=True, seed=1, threads=threads, pipeline={"images": Decode()}
    ):
        assert (
            "images  (batch: 8, height: *, width: *, channel: *)" in repr(batch) or len(seen) == 24
        )
        for row, pixels in zip(batch.rows, batch["images"].values, strict=True):
            np.testing.assert_array_equal(pixels, pictures[row])
            seen.append(row)
    assert sorted(seen) == list(range(30))


def test_an_augment_goes_on_with_them(ds, pictures):
    steps = [{"images": Decode()}, {"images": Augment([Crop((8, 10)), Mirror(1.0)])}]
    (batch,) = ds.batches(30, pipeline=steps, output="numpy")
    for pixels, whole in zip(batch["images"], pictures, strict=True):
        top, left = (whole.shape[0] - 8) // 2, (whole.shape[1] - 10) // 2
        np.testing.assert_array_equal(pixels, whole[top : top + 8, left : left + 10][:, ::-1])


def test_one_picture_and_a_list(ds, pictures):
    one = Decode()(ds[4]["images"])
    assert one.dims == ("height", "width", "channel")
    np.testing.assert_array_equal(one, pictures[4])
    some = Decode()([png(pictures[2]).tobytes(), png(pictures[0])])
    np.testing.assert_array_equal(some.values[0], pictures[2])
    np.testing.assert_array_equal(some.values[1], pictures[0])
    assert Decode(channels=4)(png(pictures[0])).values[..., 3].min() == 255


def test_what_is_no_picture_names_its_row(ds):
    with pytest.raises(AugmentError, match="row 17 cannot be decoded: Pillow does not open it"):
        Decode()([png(np.zeros((2, 2, 3), np.uint8)), np.zeros(9, np.uint8)], rows=[3, 17])
    with pytest.raises(AugmentError, match="rows of uint8; found int64 of shape"):
        next(iter(ds.batches(8, pipeline={"labels": Decode()})))
