"""Pictures: what artists hold is what the data say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import (
    ArrayError,
    LabeledWarning,
    LoaderError,
    MissingExtraError,
    UnknownNameError,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

N = 300
RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 256, (N, 3, 4, 5), dtype=np.uint8)
TARGETS = RNG.integers(0, 3, (N, 1))
CURVES = RNG.normal(size=(N, 12)).astype("float32")
NAMES = ["cat", "dog", "$x_{$ <b>"]


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


@pytest.fixture
def path(tmp_path):
    return labeled.write(
        tmp_path / "a.hdf5",
        {
            "images": IMAGES,
            "targets": TARGETS,
            "curves": CURVES,
            "score": CURVES[:, 0],
            "names": np.array(["x"] * N),
        },
        splits={"train": (0, 200), "odd": list(range(201, N, 2))},
        dims={
            "images": ("batch", "channel", "height", "width"),
            "targets": ("batch", "index"),
            "curves": ("batch", "time"),
        },
        chunks={"images": 32},
        compression={"images": "gzip"},
        source_attrs={"targets": {"class_names": NAMES}},
    )


def drawn(ax):
    """Draw for real, warnings being errors; returns the axes."""
    ax.figure.canvas.draw()
    return ax


def bars(ax):
    names = [text.get_text() for text in ax.get_xticklabels()]
    return dict(zip(names, [patch.get_height() for patch in ax.patches], strict=True))


def test_a_batch_draws_its_images_with_the_names_of_their_classes(path):
    batch = next(iter(labeled.open_dataset(path).batches(32, shuffle=True, seed=1)))
    ax = drawn(batch.plot(n=6))
    assert len(ax.images) == 6
    for number, image in enumerate(ax.images):
        expected = IMAGES[batch.rows[number]].transpose(1, 2, 0)
        np.testing.assert_array_equal(image.get_array(), expected)
    captions = [text.get_text() for text in ax.texts]
    assert captions == [NAMES[TARGETS[row, 0]] for row in batch.rows[:6]]
    assert "6 of 32 rows" in ax.get_title(loc="left")
    boxes = [image.get_extent() for image in ax.images]
    assert all(left < right and top < bottom for left, right, bottom, top in boxes)
    assert all(a[1] < b[0] or a[2] < b[3] for a, b in pairwise(boxes))
    low, high = ax.get_ylim()
    assert low > high  # rows of an image run downwards
    (short,) = labeled.open_dataset(path).subset(slice(5)).batches(8, last="pad")
    _, axes = plt.subplots()
    assert short.plot(ax=axes) is axes
    assert len(drawn(axes).images) == 5


@pytest.mark.parametrize(
    ("dims", "shape", "index", "note"),
    [
        (("batch", "height", "width"), (4, 6, 5), np.s_[:, :, :], ""),
        (("batch", "height", "width", "channel"), (4, 6, 5, 1), np.s_[:, :, :, 0], ""),
        (("time", "band", "lat", "lon"), (4, 2, 6, 5), np.s_[:, 0], "band 0 of 2"),
        (("batch", "width", "height"), (4, 5, 6), np.s_[:, :, :], ""),
        (("batch", "depth", "y", "x"), (4, 7, 6, 5), np.s_[:, 3], "depth 3 of 7"),
    ],
)
def test_images_are_found_by_the_names_of_dims(dims, shape, index, note):
    array = RNG.normal(size=shape)
    batch = labeled.Batch({"x": array}, {"x": dims}, lambda: np.arange(shape[0]), shape[0])
    ax = drawn(batch.plot())
    expected = array[index]
    if dims == ("batch", "width", "height"):
        expected = expected.transpose(0, 2, 1)
    for image, one in zip(ax.images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), one)
    assert note in ax.get_title(loc="left")
    assert [text.get_text() for text in ax.texts] == [f"row {i}" for i in range(shape[0])]


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((6, 5, 3), "height, width, channel"),
        ((3, 6, 5), "channel, height, width"),
        ((6, 6), "height, width"),
    ],
)
def test_axes_without_names_are_drawn_as_pictures_where_they_look_like_it(tmp_path, shape, taken):
    """They were drawn as tangles of lines, and another source went before them."""
    pictures = RNG.integers(0, 256, (8, *shape), dtype=np.uint8)
    with h5py.File(tmp_path / "plain.h5", "w") as f:
        f["actions"], f["camera/front"] = np.zeros((8, 7)), pictures
    with pytest.warns(labeled.LabeledWarning, match="does not name every axis"):
        ax = labeled.open_dataset(tmp_path / "plain.h5").plot()
    expected = np.moveaxis(pictures, 1, -1) if taken.startswith("channel") else pictures
    for drawn, image in zip(ax.get_images(), expected, strict=True):
        np.testing.assert_array_equal(drawn.get_array(), image)
    assert ax.get_title(loc="left") == f"camera/front: 8 of 8 rows\naxes taken for {taken}"


def test_labels_are_counted_by_name(path):
    batch = next(iter(labeled.open_dataset(path).batches(64)))
    counts = dict(zip(NAMES, np.bincount(TARGETS[:64, 0], minlength=3).tolist(), strict=True))
    assert bars(drawn(batch.plot("targets"))) == counts
    renamed = bars(drawn(batch.plot("targets", class_names={0: "zero", 7: "none"})))
    assert renamed == {"zero": counts["cat"], "1": counts["dog"], "2": counts[NAMES[2]], "none": 0}
    ax = drawn(batch.plot("images", n=2, class_names=["A", "B", "C"]))
    assert [text.get_text() for text in ax.texts] == ["ABC"[i] for i in TARGETS[:2, 0]]


def test_sequences_are_lines_and_numbers_a_histogram(path):
    batch = next(iter(labeled.open_dataset(path).batches(40, last="pad")))
    ax = drawn(batch.plot("curves", n=3))
    for line, row in zip(ax.lines, CURVES[:3], strict=True):
        np.testing.assert_array_equal(line.get_ydata(), row)
    assert ax.get_xlabel() == "time"
    ax = drawn(batch.plot("score"))
    assert sum(patch.get_height() for patch in ax.patches) == 40


@pytest.mark.parametrize("layout", ["list", "pad"])
def test_steps_of_time_run_along_and_padding_is_cut_off(tmp_path, layout):
    examples = [RNG.normal(size=(2, n)).astype("f4") for n in (300, 400)]
    path = labeled.write(tmp_path / "r.hdf5", {"x": examples}, dims={"x": ("batch", "row", "time")})
    batch = next(iter(labeled.open_dataset(path).batches(2, ragged=layout)))
    ax = drawn(batch.plot())
    assert ax.get_xlabel() == "time"
    wanted = [line for example in examples for line in example]
    for line, expected in zip(ax.lines, wanted, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), expected)


@pytest.mark.parametrize("layout", ["list", "pad"])
def test_pictures_of_many_sizes_are_drawn_each_in_its_own(tmp_path, layout):
    pictures = [RNG.integers(0, 256, (3, h, w), dtype=np.uint8) for h, w in [(2, 5), (4, 3)]]
    dims = ("batch", "channel", "height", "width")
    path = labeled.write(tmp_path / "r.hdf5", {"x": pictures}, dims={"x": dims})
    batch = next(iter(labeled.open_dataset(path).batches(2, ragged=layout)))
    ax = drawn(batch.plot())
    for image, picture in zip(ax.images, pictures, strict=True):
        np.testing.assert_array_equal(image.get_array(), picture.transpose(1, 2, 0))
        left, right, bottom, top = image.get_extent()
        assert (bottom - top, right - left) == pytest.approx(picture.shape[1:])


def test_what_has_no_picture_is_refused(path):
    batch = next(iter(labeled.open_dataset(path).batches(8)))
    with pytest.raises(UnknownNameError, match="did you mean 'images'"):
        batch.plot("image")
    with pytest.raises(ArrayError, match=r"'names'.*holds text"):
        batch.plot("names")
    with pytest.raises(ArrayError, match="holds text"):
        next(iter(labeled.open_dataset(path).select("names").batches(8))).plot()


def test_splits_lie_where_their_rows_are(path):
    dataset = labeled.open_dataset(path)
    ax = drawn(dataset.plot.splits())
    train, odd = ([p.vertices[:, 0] for p in c.get_paths()] for c in ax.collections)
    assert [(p.min(), p.max()) for p in train] == [(0, 200)]
    assert [(p.min(), p.max()) for p in odd] == [(row, row + 1) for row in range(201, N, 2)]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["train", "odd"]
    assert [text.get_text() for text in ax.texts] == ["200 rows", "50 rows"]


@pytest.mark.parametrize("select", [("long",), ("short", "long"), ("short",)])
def test_splits_are_drawn_as_they_lie_in_the_longest_source_that_is_selected(tmp_path, select):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["a"], f["short"], f["long"] = np.zeros(90), np.zeros(4), np.zeros(30)
    ax = drawn(labeled.open_dataset(tmp_path / "a.h5").select(*select).plot.splits())
    (path,) = ax.collections[0].get_paths()
    assert path.vertices[:, 0].max() == ax.get_xlim()[1] == (30 if "long" in select else 4)


@pytest.mark.parametrize("chosen", ["odd", "part", "loaded"])
def test_statistics_are_those_of_the_rows(path, chosen):
    dataset = labeled.open_dataset(path)
    rows, images = slice(None), IMAGES
    if chosen == "odd":
        rows, dataset = slice(201, None, 2), dataset.split("odd")
    elif chosen == "part":
        dataset, images = dataset.isel(height=slice(1, 3)), IMAGES[:, :, 1:3]
    else:
        dataset = dataset.load()
    values = images[rows].astype(np.float64)
    found = dataset.statistics("images")
    assert (found["n_rows"], found["by"]) == (len(values), "channel")
    np.testing.assert_allclose(found["mean"], values.mean((0, 2, 3)))
    np.testing.assert_allclose(found["std"], values.std((0, 2, 3)))
    assert (found["min"], found["max"]) == (
        values.min((0, 2, 3)).tolist(),
        values.max((0, 2, 3)).tolist(),
    )


def test_stored_statistics_are_not_measured_again(path, monkeypatch):
    dataset = labeled.open_dataset(path)
    for name in ("pread", "preadv"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("rows were read"))
    for one in (dataset, dataset.split("train"), dataset.split("odd")):
        assert one.statistics("images")["n_rows"] == len(one)


def test_a_plan_draws_its_windows_and_chunks(path):
    dataset = labeled.open_dataset(path).select("images", "targets")
    options = {"memory": "8 MiB", "window_rows": 70, "errors": "skip"}  # keeps nothing in memory
    loader = dataset.batches(16, shuffle="window", seed=3, **options)
    reads = loader.explain().reads
    ax = drawn(loader.plot.plan())
    shown = [
        [[int(p.vertices[:, 0].min()), int(p.vertices[:, 0].max())] for p in c.get_paths()]
        for c in ax.collections
    ]
    assert shown == [stretches for layers in reads.lines.values() for stretches in layers]
    assert [line.get_xdata()[0] for line in ax.lines] == list(range(32, N, 32))
    assert "shuffle='window'" in ax.get_title(loc="left")
    with pytest.raises(LoaderError, match="no rows"):
        dataset.subset([]).batches(4).plot.plan()


def test_without_matplotlib_the_extra_is_named(path, monkeypatch):
    batch = next(iter(labeled.open_dataset(path).batches(16)))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"pip install matplotlib \(the extra 'plot'"):
        batch.plot()


def test_matplotlib_is_imported_only_when_used(path):
    code = (
        "import sys, json, labeled\n"
        f"ds = labeled.open_dataset({path!r}); b = next(iter(ds.batches(8)))\n"
        "ds._repr_html_(), b._repr_html_(), ds.plot, ds.batches(8).plot\n"
        "print(json.dumps([n for n in ('matplotlib', 'IPython') if n in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []


def test_a_dataset_of_many_lengths_draws_what_holds_most_or_what_is_asked_for(tmp_path):
    arrays = {"curves": CURVES, "score": CURVES[:7, 0], "targets": TARGETS[:7]}
    dims = {"curves": ("batch", "time"), "score": ("batch",), "targets": ("batch", "index")}
    with pytest.warns(LabeledWarning, match="7"):
        ds = labeled.open_dataset(labeled.write(tmp_path / "x.hdf5", arrays, dims=dims))
    drawn = [line.get_ydata() for line in ds.plot(n=3).get_lines()]
    np.testing.assert_array_equal(drawn, CURVES[:3])
    counted = [bar.get_height() for bar in ds.plot("targets").patches]
    np.testing.assert_array_equal(counted, np.bincount(TARGETS[:7, 0])[np.unique(TARGETS[:7, 0])])
    with pytest.raises(UnknownNameError, match="did you mean 'score'"):
        ds.plot("scor")
    with h5py.File(tmp_path / "none.h5", "w"):
        pass
    with pytest.raises(LoaderError, match=r"none\.h5' has no source"):
        labeled.open_dataset(tmp_path / "none.h5").plot()
