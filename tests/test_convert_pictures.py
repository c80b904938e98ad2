"""Pictures, records, digits and text: converted, and compared with what was written."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import labeled
from labeled.cli.main import main
from labeled.errors import ArrayError, FileFormatError


def invoke(*words: Any) -> Any:
    return CliRunner().invoke(main, ["convert", *map(str, words)])


def pictures(folder: Path, *, alike: bool = False) -> dict[str, np.ndarray]:
    """Write pictures by class; return them by path."""
    pillow = pytest.importorskip("PIL.Image")
    rng, out = np.random.default_rng(0), {}
    for number, name in enumerate(["b/2.png", "a/1.png", "a/deep/0.png", "b/1.png", "a/2.png"]):
        shape = (6, 7, 3) if alike else (6 + number % 3, 7, 3)
        out[name] = rng.integers(0, 256, shape, np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(out[name]).save(folder / name)
    return out


@pytest.mark.parametrize("alike", [False, True])
def test_a_folder_of_pictures_by_class(tmp_path: Path, alike: bool) -> None:
    expected = pictures(tmp_path / "in", alike=alike)
    (tmp_path / "in" / "b" / "all").symlink_to(tmp_path / "in")  # leads round in a circle
    path = labeled.convert(
        tmp_path / "in", tmp_path / "o.hdf5", split={"train": 0.6, "test": "rest"}, groups="paths"
    )
    ds = labeled.open_dataset(path)
    paths = ds["paths"].values.tolist()
    assert paths == ["a/1.png", "a/2.png", "a/deep/0.png", "b/1.png", "b/2.png"]
    assert ds["labels"].values.tolist() == [0, 0, 0, 1, 1]
    assert list(ds["labels"].attrs["class_names"]) == ["a", "b"]
    assert ds.dims["images"] == ("batch", "height", "width", "channel")
    assert isinstance(ds["images"], labeled.Ragged) == (not alike)
    for row, name in enumerate(paths):
        np.testing.assert_array_equal(ds["images"][row], expected[name])
    fixed = labeled.convert(
        tmp_path / "in", tmp_path / "f.hdf5", resize=4, shape=(4, 4), channels=1
    )
    assert labeled.open_dataset(fixed).shapes["images"] == (5, 4, 4, 1)


def test_the_names_of_a_single_class_are_a_list(tmp_path: Path) -> None:
    pictures(tmp_path / "in")
    shutil.rmtree(tmp_path / "in" / "b")
    path = labeled.convert(tmp_path / "in", tmp_path / "o.hdf5")
    assert labeled.open_dataset(path)["labels"].attrs["class_names"] == ["a"]


def test_a_folder_becomes_records_as_it_is_encoded(tmp_path: Path) -> None:
    expected = pictures(tmp_path / "in")
    path = labeled.convert(tmp_path / "in", tmp_path / "o.rec")
    assert os.path.getsize(path) > sum(p.stat().st_size for p in (tmp_path / "in").rglob("*.png"))
    ds = labeled.open_dataset(path)
    assert ds["labels"].values.tolist() == [0, 0, 0, 1, 1]
    for row, name in enumerate(sorted(expected)):
        np.testing.assert_array_equal(ds["images"][row], expected[name])
    fixed = labeled.open_dataset(
        labeled.convert(
            tmp_path / "in", tmp_path / "f.rec", resize=4, shape=(4, 4), sources=["images"]
        )
    )
    assert fixed["images"][0].shape == (4, 4, 3)
    (tmp_path / "in" / "a" / "9.png").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match=r"a/9\.png"):
        labeled.convert(tmp_path / "in", tmp_path / "no.rec")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.idx", "f.rec", "in", "o.idx", "o.rec"]


def test_folders_of_splits_and_bad_pictures(tmp_path: Path) -> None:
    expected = pictures(tmp_path / "in" / "train") | pictures(tmp_path / "in" / "val")
    ds = labeled.open_dataset(labeled.convert(tmp_path / "in", tmp_path / "o.hdf5"))
    assert {name: by["labels"] for name, by in ds.splits.items()} == {"train": 5, "valid": 5}
    assert ds.split("valid")["paths"].values[0] == "val/a/1.png"
    assert len(expected) == 5
    (tmp_path / "in" / "train" / "a" / "9.png").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match=r"row 2, .*train/a/9\.png"):
        labeled.convert(tmp_path / "in", tmp_path / "no.hdf5")
    (tmp_path / "in" / "train" / "loose.png").write_bytes(b"")
    with pytest.raises(FileFormatError, match="lies beside folders of classes"):
        labeled.convert(tmp_path / "in", tmp_path / "no.hdf5")
    with pytest.raises(TypeError, match="delimiter= means nothing for pictures"):
        labeled.convert(tmp_path / "in", tmp_path / "no.hdf5", delimiter=";")
    assert not (tmp_path / "no.hdf5").exists()


@pytest.mark.parametrize("ragged", [False, True])
def test_to_records_and_back_is_equal(tmp_path: Path, ragged: bool) -> None:
    pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    shapes = [(5 + i % 3 * ragged, 6, 3) for i in range(7)]
    images = [rng.integers(0, 256, shape, np.uint8) for shape in shapes]
    dims = ("batch", "height", "width", "channel")
    sources = {
        "images": labeled.Ragged.of(images, dims) if ragged else np.stack(images),
        "labels": rng.random((7, 2)).astype("f4"),
        "ids": np.arange(10, 17, dtype=np.uint64),
    }
    first = labeled.write(tmp_path / "a", sources, dims={} if ragged else {"images": dims})
    back = labeled.convert(labeled.convert(first, tmp_path / "a.rec"), tmp_path / "b")
    one, two = labeled.open_dataset(first), labeled.open_dataset(back)
    assert one.sources == two.sources
    for row, image in enumerate(images):
        np.testing.assert_array_equal(two["images"][row], image)
    for name in ("labels", "ids"):
        assert two[name].dtype == one[name].dtype
        np.testing.assert_array_equal(two[name], one[name])
    channels_first = labeled.write(
        tmp_path / "c", {"x": np.stack([i.transpose(2, 0, 1)[:, :5] for i in images])},
        dims={"x": ("batch", "channel", "height", "width")},
    )  # fmt: skip
    turned = labeled.open_dataset(labeled.convert(channels_first, tmp_path / "c.rec"))
    np.testing.assert_array_equal(turned["images"][0], images[0][:5])
    with pytest.raises(ArrayError, match="one source of pictures"):
        labeled.convert(first, tmp_path / "d.rec", sources=["labels"])


def test_notes_beside_pictures_are_left_out(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / "in" / name).mkdir(parents=True)
        image.new("RGB", (4, 3)).save(tmp_path / "in" / name / "1.png")
    (tmp_path / "in" / "labels.txt").write_text("cat\ndog\n")
    with pytest.warns(labeled.LabeledWarning, match=r"'labels.txt' beside the pictures"):
        made = labeled.convert(tmp_path / "in", tmp_path / "a.hdf5")
    assert labeled.open_dataset(made).shapes["images"] == (2, 3, 4, 3)


def test_pictures_beside_a_table_are_said_to_be_left_out(tmp_path: Path) -> None:
    for name in ("0.png", "1.PNG", "._2.png"):
        (tmp_path / name).touch()
    (tmp_path / "a.csv").write_text("u,v\n1,2\n3,4\n")
    said = r"^'0.png', '1.PNG' beside the delimited text of .* left out; .* convert takes the pict"
    with pytest.warns(labeled.LabeledWarning, match=said):
        assert labeled.open_dataset(tmp_path).n_rows == 2
    (tmp_path / "b.csv").write_text("u,v\n5,6\n")
    assert labeled.open_dataset(tmp_path).n_rows == 3  # no more pictures than tables


@pytest.mark.parametrize("target", ["o.hdf5", "o.rec"])
def test_frames_after_the_first_are_reported(tmp_path: Path, target: str) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "in").mkdir()
    frames = [image.new("RGB", (6, 5), colour) for colour in ("red", "green", "blue")]
    for name in ("a.gif", "b.tif", "c.webp", "d.png"):
        frames[0].save(tmp_path / "in" / name)
    labeled.convert(tmp_path / "in", tmp_path / target)
    for name in ("1.gif", "2.tif", "3.webp"):
        frames[0].save(tmp_path / "in" / name, save_all=True, append_images=frames[1:])
    said = r"^3 of the pictures, such as '1.gif', have several frames or pages: the first is taken"
    with pytest.warns(labeled.LabeledWarning, match=said) as warned:
        labeled.convert(tmp_path / "in", tmp_path / target, overwrite=True)
    assert [one.filename for one in warned] == [__file__]
    assert labeled.open_dataset(tmp_path / target).n_rows == 7


def test_no_pictures_make_an_empty_file_of_records(tmp_path: Path) -> None:
    none = {"images": np.zeros((0, 4, 4), "u1")}
    made = labeled.write(tmp_path / "a.hdf5", none, dims={"images": ("batch", "height", "width")})
    done = CliRunner().invoke(main, ["convert", made, str(tmp_path / "o.rec")])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("; no rows\n")
    assert not (tmp_path / "o.rec").stat().st_size


def test_what_becomes_no_record_names_the_target(tmp_path: Path) -> None:
    target, names = tmp_path / "it's.rec", {"images": ("batch", "height", "width")}
    images = np.zeros((3, 4, 4, 3), np.uint8)
    words = f"nothing was written to {str(target)!r}"
    with pytest.raises(labeled.errors.DimsError, match=re.escape(words)):
        labeled.convert({"images": images}, target, dims=names)
    assert not os.listdir(tmp_path)
