"""What people see: text and HTML that is well formed, escaped, and made without reading."""

from __future__ import annotations

import mmap
import os
import re
import warnings
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import LabeledError
from labeled.spaces import VectorSpace

N = 600
IMAGES = np.arange(N * 2 * 40 * 30).astype(np.uint16).reshape(N, 2, 40, 30)
HOSTILE = "<script>&\"'x</b>\x1b[31m\n"


@pytest.fixture
def path(tmp_path):
    return labeled.write(
        tmp_path / "a.hdf5",
        {"images": IMAGES, "targets": np.arange(N)[:, None] % 7, "names": np.array(["x"] * N)},
        splits={"train": (0, 400), "odd": list(range(401, N, 2))},
        dims={"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")},
        chunks={"images": 50},
        compression={"images": "gzip"},
    )


def tree_of(text: str) -> ElementTree.Element:
    """Parse as XML, which forgives nothing: HTML written this way is both."""
    assert "<script" not in text
    assert not re.search(r"(src|href|url)\s*[=(]", text)
    return ElementTree.fromstring(f"<root>{text}</root>")


def words_of(tree: ElementTree.Element) -> str:
    for style in tree.iter("style"):
        style.text = ""
    return " ".join(" ".join(tree.itertext()).split())


def test_every_view_is_well_formed_and_tells(path):
    dataset = labeled.open_dataset(path)
    train = dataset.split("train").select("images", "targets")
    loader = train.batches(32, shuffle="window", seed=3, memory="6 MiB", last="pad")
    batches = list(loader)
    ragged = labeled.Ragged.of([np.arange(3), np.arange(5)], name="words")
    views = {
        "dataset": (dataset, ("images", "channel: 2", "uint16", "gzip", "(50, 2, 40, 30)", "odd")),
        "subset": (train, ("train", "batch: 400", "rows 0:400", "Conv2DSpace")),
        "loader": (loader, ("13 batches of 32 rows", "shuffle='window'", "seed=3", "images")),
        "plan": (loader.explain(), ("400 rows", "chunks decoded")),
        "batch": (batches[-1], ("count=16 and 16 of padding", "width: 30", "uint16")),
        "stats": (loader.stats(), ("400 rows in 13 batches", "rows/s")),
        "ragged": (ragged, ("batch: 2", "not read yet", "words")),
    }
    for name, (view, expected) in views.items():
        words, text = words_of(tree_of(view._repr_html_())), repr(view)
        for word in expected:
            assert word in words, (name, word, words)
        assert "object at 0x" not in text
        assert all(len(line) < 240 for line in text.splitlines())


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": "full", "seed": 1},
        {"balance": "targets", "seed": 1},
        {"weights": np.arange(N), "seed": 1},
        {"sampler": [[5, 1], slice(3, 9), [2]]},
        {"shard": (1, 3), "seed": 4, "shuffle": True},
        {"specs": (VectorSpace(2400), "images"), "dtype": "float32", "scale": 0.5},
        {"pipeline": {"images": lambda image: image}},
        {"output": "numpy"},
        {"dtype": {"images": "float32"}, "scale": {"images": 2.0}, "last": "wrap"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_kind_of_loader_is_described(path, options):
    rows = {} if "sampler" in options else {"batch_size": 16}
    loader = labeled.open_dataset(path).select("images", "targets").batches(**rows, **options)
    for view in (loader, loader.explain()):
        assert "images" in repr(view)
        assert "images" in words_of(tree_of(view._repr_html_()))
    assert loader.explain().reads.lines
    next(iter(loader))
    assert "epoch=1" in repr(loader)


@pytest.fixture
def no_reads(monkeypatch):
    """Return a function after which bytes of rows cannot be had, by any way there is."""

    def refuse(*_, **__):
        raise AssertionError("a view asked for rows")

    def forbid():
        for owner, name in (
            (os, "pread"),
            (os, "preadv"),
            (mmap, "mmap"),
            (h5py.Dataset, "__getitem__"),
            (h5py.Dataset, "read_direct"),
        ):
            monkeypatch.setattr(owner, name, refuse)

    return forbid


def test_views_read_no_row(path, no_reads):
    dataset = labeled.open_dataset(path)
    train = dataset.split("train").select("images", "targets")
    loader = train.batches(32, shuffle="window", seed=3, memory="8 MiB")
    loader.explain()  # reads the index of chunks
    no_reads()
    views = (dataset, train, loader, loader.explain(), dataset["images"])
    for view in views:
        repr(view)
        view._repr_html_()
    with pytest.raises(AssertionError, match="asked for rows"):
        dataset["images"].load()


def broken_files(tmp_path):
    """Datasets whose file vanished, was cut short, was overwritten, or changed."""

    def fresh(name):
        path = labeled.write(tmp_path / name, {"x": np.arange(4000.0).reshape(1000, 4)})
        return tmp_path / name, labeled.open_dataset(path)

    gone, a = fresh("gone.hdf5")
    gone.unlink()
    cut, b = fresh("cut.hdf5")
    cut.write_bytes(cut.read_bytes()[:700])
    junk, c = fresh("junk.hdf5")
    junk.write_bytes(b"not a file of examples" * 100)
    other, d = fresh("other.hdf5")
    other.unlink()
    labeled.write(other, {"y": np.arange(3)})
    return [(gone, a), (cut, b), (junk, c), (other, d)]


def test_views_of_broken_files_say_what_is_wrong(tmp_path):
    for path, dataset in broken_files(tmp_path):
        with pytest.raises(LabeledError):
            dataset.load()
        for text in (repr(dataset), words_of(tree_of(dataset._repr_html_()))):
            assert path.name in text
            assert "labeled.Dataset" in text


def test_a_page_of_a_thousand_sources_stays_small(tmp_path):
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for i in range(1000):
            file.create_dataset(f"x{i:04d}", data=np.zeros((3, 2)))
            file[f"single{i:04d}"] = i
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        page = labeled.open_dataset(path)._repr_html_()
    assert page.count("<b>x0") == 400  # once more for how they are stored
    assert page.count("single0") == 200
    assert page.count("... and 800 more") == 3
    assert "sources (1000)" in page
    assert "not opened (1000)" in page


def test_hostile_names_are_text(tmp_path):
    name = HOSTILE.replace("/", "")
    with h5py.File(tmp_path / "evil.h5", "w") as f:
        f[name] = np.zeros((5, 2))
        f[name].dims[0].label, f[name].dims[1].label = "batch", name
        f[name].attrs[name] = HOSTILE
        f.attrs[name] = HOSTILE
        f[b"caf\xe9"] = np.zeros(5)
        f[b"caf\xe9"].dims[0].label = "batch"
    dataset = labeled.open_dataset(tmp_path / "evil.h5")
    loader = dataset.batches(2, memory="2 MiB")
    views = (dataset, loader, loader.explain(), next(iter(loader)))
    for view in views:
        text = view._repr_html_()
        text.encode("utf-8")
        tree_of(text)
        assert "\x1b" not in repr(view)
        repr(view).encode("utf-8")
    assert "&lt;script&gt;" in dataset._repr_html_()
