"""Every kind of pictures: labels, dtypes, sizes, encoded ones, mean images, and mistakes."""

from __future__ import annotations

import io
import struct

import array_api_strict
import h5py
import numpy as np
import pytest
import xarray as xr
from augment_cases import ALL, BYTES, DIMS, LAST, ROWS, H, N, W, batch_of, plain
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

import labeled
from labeled import transforms as tf
from labeled.errors import ArrayError, AugmentError, DimsError, FileFormatError, WriteError

# -- mean images


def test_the_mean_of_a_source():
    images = xr.DataArray(BYTES, dims=DIMS)
    objects = batch_of(BYTES)
    for given_ in (images, images.chunk(batch=2), objects):
        found = tf.mean_image(given_)
        assert found.dims == DIMS[1:]
        assert found.dtype == np.float32
        assert_allclose(found, plain.mean(axis=0), rtol=1e-6)
    objects.values[0] = BYTES[0, :, 1:]
    for given_, words in ((images[:0], "no picture"), (objects, "sizes")):
        with pytest.raises(AugmentError, match=words):
            tf.mean_image(given_)


def test_a_mean_is_one_of_pictures_wherever_the_dim_that_counts_them_stands(monkeypatch):
    monkeypatch.setattr("labeled.transforms.means.BLOCK_BYTES", 2 * BYTES[0].nbytes)
    pictures = xr.DataArray(BYTES, dims=DIMS)
    wanted = BYTES.mean(axis=0).astype("f4")
    for name in ("batch", "visit"):
        moved = pictures.rename(batch=name).transpose("channel", "height", name, "width")
        np.testing.assert_array_equal(tf.mean_image(moved), wanted)
    with pytest.raises(AugmentError, match="counts pictures; expand_dims"):
        tf.mean_image(pictures[0])


@pytest.mark.parametrize("step", [tf.Mirror(), tf.mean_image])
def test_two_dims_that_mean_one_axis_are_to_be_renamed(step):
    pictures = xr.DataArray(BYTES, dims=("row", *DIMS[1:]))
    with pytest.raises(DimsError, match="'row' and 'height' mean axis 0; rename one, to 'batch'"):
        step(pictures)
    step(pictures.rename(row="batch"))


def test_mean_images_are_subtracted(tmp_path):
    mean = tf.mean_image(xr.DataArray(BYTES, dims=DIMS))
    tf.write_mean_file(tmp_path / "mean.bin", mean)
    expected = plain - mean.values
    for given_ in (mean, mean.values, str(tmp_path / "mean.bin"), mean.transpose(..., "channel")):
        found = tf.Normalize(given_)(BYTES, dims=DIMS)
        assert_allclose(found, expected, atol=1e-4)
    steps = tf.Augment(
        [tf.Mirror(1), tf.Normalize(mean, scale=2), tf.Mirror(1), tf.Contrast(0.3, about=0)]
    )
    pad = tf.Augment([tf.Pad(0), tf.Pad(0), tf.Pad(0), tf.Contrast(0.3, about=0)])
    factors = pad(np.ones((N, 1, 1, 1)), dims=DIMS)  # as the step in its place draws
    wanted = (plain[..., ::-1] - mean.values)[..., ::-1] * 2 * factors
    assert_allclose(steps(BYTES, dims=DIMS), wanted, atol=1e-3)
    with pytest.raises(AugmentError, match="mean image is 20 x 26"):
        tf.Augment([tf.Crop(5), tf.Normalize(mean)])(BYTES, dims=DIMS)
    with pytest.raises(FileFormatError, match="cannot be read"):
        tf.Normalize(tmp_path / "none.bin")


# -- kinds of pictures


def test_labels_come_back():
    images = xr.DataArray(
        BYTES, dims=DIMS, name="faces", attrs={"unit": "none"},
        coords={"batch": ROWS, "channel": list("rgb"), "width": np.arange(W), "who": 3},
    )  # fmt: skip
    found = tf.Crop(5)(images)
    assert found.name == "faces"
    assert found.attrs == {"unit": "none"}
    assert set(found.coords) == {"batch", "channel", "who"}
    assert_array_equal(found, BYTES[:, :, 7:12, 10:15])
    assert "width" not in tf.Mirror(1)(images).coords  # of the same length, and no longer true
    turned = tf.Augment([tf.Crop(5)], axes=(0, "c", 1, "b"))(images)
    assert turned.dims == ("height", "channel", "width", "batch")
    assert_array_equal(turned.transpose(*DIMS), found)


def test_grey_pictures_need_no_channel():
    grey = BYTES[:, 0]
    found = tf.Augment([tf.Crop(5), tf.Normalize(1)])(grey, dims=("batch", "height", "width"))
    assert_array_equal(found, grey[:, 7:12, 10:15] - np.float32(1))
    added = tf.Augment([tf.Crop(5)], axes=("b", "c", 0, 1))(grey, dims=("batch", "height", "width"))
    assert added.shape == (N, 1, 5, 5)
    one = tf.Crop(5)(grey[0], dims=("height", "width"))
    assert_array_equal(one, grey[0, 7:12, 10:15])


@pytest.mark.parametrize("dtype", ["u1", ">i2", "f4"])
def test_borders_are_those_of_numpy_wherever_the_channels_lie(dtype):
    images = np.random.default_rng(1).integers(0, 99, (5, 6, 7, 3)).astype(dtype)[:, ::-1]
    expected = np.pad(images, ((0, 0), (2, 2), (1, 1), (0, 0)), constant_values=9)
    for order in ((0, 1, 2, 3), (0, 3, 1, 2), (3, 0, 2, 1)):
        dims = [LAST[axis] for axis in order]
        padded = tf.Pad((2, 1), fill=9)(images.transpose(order), dims=dims)
        assert_array_equal(padded, expected.transpose(order), strict=dtype != ">i2")


MORE = [
    tf.Affine(rotate=(0, 9), canvas=(7, 8)),
    tf.Augment([tf.Resize(shorter=14), tf.Pad(2)]),
    tf.Augment([tf.Crop(8), tf.Affine(scale=(0.5, 1.5))]),
]


@pytest.mark.parametrize("transform", [*ALL, *MORE], ids=lambda t: type(t).__name__)
def test_a_ragged_batch_stays_one_unless_all_pictures_come_out_alike(transform):
    images = [np.resize(BYTES, (H + k, W + 2 * k, 3)) for k in range(4)]
    alone = [transform(batch_of([one], LAST[1:])) for one in images]
    together = transform(batch_of(images), rows=[0] * 4, dims=LAST[1:])
    (ragged,) = {one.dtype == object for one in [*alone, together]}
    for one, found in zip(alone, together, strict=True):
        one, found = (x.item() if ragged else x.values for x in (one[0], found))
        assert_array_equal(one, found)


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (tf.Pad(10**6), r"2,000,020 x 2,000,026 pixels, more than the 268,435,456"),
        (tf.Resize(10**6), r"1,000,000 x 1,000,000 pixels"),
        (tf.Resize(least=10**6), r"1,000,000 x 1,300,000 pixels"),
        (tf.RandomResizedCrop(10**6), r"1,000,000 x 1,000,000 pixels"),
    ],
)
def test_pictures_without_end_are_refused_before_they_are_made(transform, words):
    for images in (xr.DataArray(BYTES, dims=DIMS), batch_of(BYTES)):
        with pytest.raises(AugmentError, match=words):
            transform(images)


# -- what cannot be


@pytest.mark.parametrize(
    ("images", "options", "error", "words"),
    [
        (BYTES, {}, DimsError, "pass dims="),
        (BYTES, {"dims": DIMS[1:]}, DimsError, "do not name the axes"),
        (BYTES, {"dims": ("batch", "channel", "height", "time")}, DimsError, "not those of"),
        (BYTES, {"dims": DIMS, "rows": [1, 2]}, AugmentError, "rows must be 6"),
        (BYTES, {"dims": DIMS, "rows": [0.5] * 6}, AugmentError, "whole numbers"),
        (BYTES.astype(str), {"dims": DIMS}, AugmentError, "found ndarray <U"),
        (xr.DataArray(BYTES, dims=DIMS).chunk(), {}, AugmentError, "lazy"),
        ([BYTES[0]], {"dims": DIMS}, AugmentError, "found list"),
        (batch_of([BYTES[0], BYTES[0, :2]]), {}, AugmentError, "2 of uint8 and 3 of uint8"),
        ("picture", {"dims": DIMS}, AugmentError, "str"),
        (array_api_strict.asarray(BYTES), {"dims": DIMS}, AugmentError, "copy others to the host"),
    ],
)
def test_pictures_that_are_none(images, options, error, words):
    with pytest.raises(error, match=words):
        tf.Mirror()(images, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tf.Crop((1, 2, 3)), "height, width"),
        (lambda: tf.Crop(2, y=-1), "y=-1"),
        (lambda: tf.Mirror(1.5), "chance=1.5"),
        (lambda: tf.Resize(), "found none"),
        (lambda: tf.Resize(3, shorter=3), "size"),
        (lambda: tf.Resize(3, method="cubic"), "did you mean 'bicubic'"),
        (lambda: tf.RandomResizedCrop(3, area=(0.1, 1.1)), "area"),
        (lambda: tf.Affine(rotate=(3, 2)), "least comes first"),
        (lambda: tf.Affine(scale=0), "above 0"),
        (lambda: tf.Affine(rotate=float("nan")), "finite"),
        (lambda: tf.Jitter(brightness=-1), "0 or more"),
        (lambda: tf.Normalize(std=[1, 0, 1]), "holds a 0"),
        (lambda: tf.ShiftHSL(peak=0), "peak"),
        (lambda: tf.Augment([abs]), "a sequence of PictureTransform"),
        (lambda: tf.Augment([], axes=("b", "c", 0))(BYTES, dims=DIMS), "not an order"),
        (
            lambda: tf.Resize((600, 500))(np.broadcast_to(BYTES[:1], (5000, 3, H, W)), dims=DIMS),
            r"5,000 pictures would become 600 x 500 .* 4,500,0",
        ),
        (lambda: tf.Augment([tf.Augment([], dtype="f4")]), "for the outermost"),
        (
            lambda: tf.Augment([tf.Crop(3), tf.Augment([tf.Crop(3)], dims=DIMS)]),
            "for the outermost",
        ),
        (lambda: tf.Normalize([1, 2])(BYTES, dims=DIMS), "has 2 channels"),
        (lambda: tf.ShiftHSL(3)(BYTES[:, :2], dims=DIMS), "3 channels"),
        (lambda: tf.Jitter(saturation=0.3)(BYTES[:, :1], dims=DIMS), "3 channels"),
    ],
)
def test_parameters_that_do_not_fit(make, words):
    with pytest.raises((AugmentError, DimsError), match=words):
        make()


# -- encoded pictures

SIZES = [(9 + n % 4, 12 + n % 3) for n in range(30)]


def png_of(pixels: np.ndarray) -> np.ndarray:
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
            encoded[number] = png_of(pixels)
        f["labels"] = np.arange(len(pictures))
        f["images"].dims[0].label = "batch"
    return labeled.open_dataset(tmp_path / "p.h5", dims={"images": ("batch", "byte")})


@pytest.mark.parametrize("threads", [0, 2])
def test_a_loader_decodes_them(ds, pictures, threads):
    seen = []
    for batch in ds.batches(
        8, shuffle=True, seed=1, threads=threads, pipeline={"images": tf.Decode()}
    ):
        assert (
            "images  (batch: 8, height: *, width: *, channel: *)" in repr(batch) or len(seen) == 24
        )
        for row, pixels in zip(batch.rows, batch["images"].values, strict=True):
            np.testing.assert_array_equal(pixels, pictures[row])
            seen.append(row)
    assert sorted(seen) == list(range(30))


def test_an_augment_goes_on_with_them(ds, pictures):
    steps = [{"images": tf.Decode()}, {"images": tf.Augment([tf.Crop((8, 10)), tf.Mirror(1.0)])}]
    (batch,) = ds.batches(30, pipeline=steps, output="numpy")
    for pixels, whole in zip(batch["images"], pictures, strict=True):
        top, left = (whole.shape[0] - 8) // 2, (whole.shape[1] - 10) // 2
        np.testing.assert_array_equal(pixels, whole[top : top + 8, left : left + 10][:, ::-1])


def test_encoded_pictures_padded_to_one_length_are_decoded():
    picture = BYTES[0].transpose(1, 2, 0)
    data = np.frombuffer(png_of(picture), np.uint8)
    table = xr.Dataset({"x": (("batch", "byte"), np.stack([np.pad(data, (0, 2))] * 3))})
    for given_ in (table["x"], table["x"].values):
        assert_array_equal(np.stack(list(tf.Decode()(given_).values)), [picture] * 3)
    (batch,) = labeled.batches(table, 3, pipeline={"x": tf.Decode()})
    assert_array_equal(batch["x"].values[2], picture)
    with pytest.raises(AugmentError, match=r"found uint8 of shape .*leave Decode out if these are"):
        tf.Decode()(BYTES)


def test_what_is_no_picture_names_its_row(ds):
    with pytest.raises(AugmentError, match="row 17 cannot be decoded: Pillow does not open it"):
        tf.Decode()([png_of(np.zeros((2, 2, 3), np.uint8)), np.zeros(9, np.uint8)], rows=[3, 17])
    with pytest.raises(AugmentError, match="rows of uint8; found int64"):
        next(iter(ds.batches(8, pipeline={"labels": tf.Decode()})))


# -- mean images in files

FORMS = ("newest", "oldest")
means = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))


@given(means, st.sampled_from(FORMS))
def test_written_then_read_is_equal(tmp_path_factory, mean, form):
    path = tmp_path_factory.mktemp("means") / "mean.bin"
    tf.write_mean_file(path, mean, form=form)
    found = tf.read_mean_file(path)
    assert found.dtype == np.float32
    assert_array_equal(found, mean)


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(WriteError, match=r"folder .*no' does not exist"):
        tf.write_mean_file(tmp_path / "no" / "mean.bin", np.zeros((1, 2, 2)))


def test_bytes_of_the_forms(tmp_path):
    mean = np.array([[1.5, 2.0, 3.0]], np.float32)
    head, tail = struct.pack("<QQQ", 0x112, 0, 1), struct.pack("<QQ", 1, 8) + b"mean_img"
    context, values = struct.pack("<iii", 1, 0, 0), struct.pack("<fff", 1.5, 2, 3)
    arrays = {
        "newest": struct.pack("<Iiiqq", 0xF993FAC9, 0, 2, 1, 3),
        "v1": struct.pack("<Iiqq", 0xF993FAC8, 2, 1, 3),
        "oldest": struct.pack("<III", 2, 1, 3),
    }
    path = tmp_path / "mean.bin"
    for form, array in arrays.items():
        path.write_bytes(head + array + context + values + tail)
        assert_array_equal(tf.read_mean_file(path), mean)
        if form in FORMS:
            tf.write_mean_file(path, mean, form=form)
            assert path.read_bytes() == head + array + context + values + tail
    assert list(tmp_path.iterdir()) == [path]  # no drafts are left


def test_other_types_become_float32(tmp_path):
    path = tmp_path / "mean.bin"
    array = struct.pack("<Iiiq", 0xF993FAC9, 0, 1, 2) + struct.pack("<iii", 1, 0, 1)
    path.write_bytes(struct.pack("<QQQ", 0x112, 0, 1) + array + struct.pack("<dd", 1.5, -2))
    assert_array_equal(tf.read_mean_file(path), np.array([1.5, -2], np.float32))


@pytest.mark.parametrize("form", FORMS)
def test_files_cut_off_are_refused(tmp_path, form):
    path = tmp_path / "mean.bin"
    tf.write_mean_file(path, np.ones((3, 2, 2), np.float32), form=form)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 24, 5):  # the name at the end is not needed
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"mean\.bin"):
            tf.read_mean_file(path)


def test_headers_that_claim_too_much_are_refused(tmp_path):
    path = tmp_path / "mean.bin"
    head = struct.pack("<QQQ", 0x112, 0, 1)
    dense = struct.pack("<Ii", 0xF993FAC9, 0)
    for array, words in [
        (dense + struct.pack("<iqqiii", 2, 2**40, 2**40, 1, 0, 0), "ends before"),
        (dense + struct.pack("<iqiii", 1, -4, 1, 0, 0), "ends before"),
        (dense + struct.pack("<i", 2**30), "axes"),
        (dense + struct.pack("<iqiii", 1, 1, 1, 0, 77), "type 77"),
        (struct.pack("<Ii", 0xF993FAC9, 2), "storage type 2"),
        (struct.pack("<I", 0xF0000000), "axes"),
    ]:
        path.write_bytes(head + array + bytes(64))
        with pytest.raises(FileFormatError, match=words):
            tf.read_mean_file(path)


def test_what_is_no_mean_image(tmp_path):
    path = tmp_path / "mean.bin"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    with pytest.raises(FileFormatError, match="begins with"):
        tf.read_mean_file(path)
    with pytest.raises(FileFormatError, match="cannot be read"):
        tf.read_mean_file(tmp_path / "none.bin")
    with pytest.raises(ArrayError, match="form="):
        tf.write_mean_file(path, np.ones(3), form="new")
