"""Files that lead outside themselves, claim too much, or are damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledWarning,
    MissingExtraError,
    UnsafeFileError,
)
from make_files import DIGIT_LABELS, digits, fuel_file, plain_file, scan, split_table

LABELS = {"x": ("batch", "index")}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a file that nobody asked to be read."""
    path = tmp_path / "outside.h5"
    plain_file(path, {"secret": np.arange(8.0).reshape(4, 2), "g/inner": np.ones((4, 2))})
    return path


def victim(tmp_path: Path, spoil: Callable[[h5py.File], None], name: str = "x") -> str:
    path = tmp_path / "victim.h5"
    with h5py.File(path, "w") as f:
        spoil(f)
        f["fine"] = np.zeros((4, 2))
        f["fine"].dims[0].label, f["fine"].dims[1].label = "batch", "index"
        f.attrs["split"] = split_table(f, {name: 0, "fine": 0}, {"train": (0, 4)})
    return str(path)


def untabled(path: str) -> str:
    with h5py.File(path, "a") as f:
        del f.attrs["split"]
    return path


# Every way out of a file, and the storage it has once it is allowed -----------------------------


def virtual(f: h5py.File, path: Path | str, name: str) -> None:
    layout = h5py.VirtualLayout((4, 2), "f8")
    layout[:] = h5py.VirtualSource(str(path), name, (4, 2))
    f.create_virtual_dataset("x", layout)


def through(f: h5py.File, links: dict[str, Any]) -> None:
    for name, link in links.items():
        f[name] = h5py.SoftLink(link) if isinstance(link, str) else h5py.ExternalLink(*link)


def stored_in(f: h5py.File, path: Path, name: str) -> None:
    f.create_dataset(name, (4, 2), "f8", external=[(str(path), 0, 64)])


WAYS_OUT: dict[str, Callable[[h5py.File, Path], Any]] = {
    "external link": lambda f, path: through(f, {"x": (path, "/secret")}),
    "external group": lambda f, path: through(f, {"g": (path, "/g"), "x": "/g/inner"}),
    "external, softly": lambda f, path: through(
        f, {"hop": (path, "/"), "mid": "hop", "x": "./mid/secret"}
    ),
    "external storage": lambda f, path: stored_in(f, path, "x"),
    "virtual": lambda f, path: virtual(f, path, "secret"),
    "virtual through a link": lambda f, path: (
        through(f, {"hop": (path, "/")}),
        virtual(f, ".", "/hop/secret"),
    ),
    "virtual over external storage": lambda f, path: (
        stored_in(f, path, "leak"),
        virtual(f, ".", "/leak"),
    ),
}


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize("with_table", [True, False])
@pytest.mark.filterwarnings("ignore::labeled.errors.LabeledWarning")
def test_data_outside_the_file_is_refused_unless_allowed(
    tmp_path: Path, outside: Path, way: str, with_table: bool
) -> None:
    path = victim(tmp_path, lambda f: WAYS_OUT[way](f, outside))
    if not with_table:
        untabled(path)

    if with_table:
        with pytest.raises(UnsafeFileError, match=r"victim\.h5.*allow_external=True"):
            scan(path)
    else:
        header = scan(path)
        assert "fine" in header.sources
        assert "x" not in header.sources
        assert any("allow_external=True" in reason for reason in header.not_opened.values())
    assert list(scan(path, sources=["fine"]).sources) == ["fine"]
    with pytest.raises(UnsafeFileError):
        scan(path, sources=["x"])

    allowed = scan(path, allow_external=True).sources["x"]
    assert allowed.shape == (4, 2)
    assert allowed.storage == way.split()[0].strip(",")
    assert allowed.offset is None


def test_a_scale_with_external_storage_is_refused(tmp_path: Path, outside: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", {"x": np.zeros((4, 2))}, {"a": (0, 4)}, LABELS)
    with h5py.File(path, "a") as f:
        f.create_dataset("ids", (4,), "f8", external=[(str(outside), 0, 32)])
        f["ids"].make_scale("ids")
        f["x"].dims[0].attach_scale(f["ids"])

    with pytest.raises(UnsafeFileError, match="external storage"):
        scan(path)


@pytest.mark.filterwarnings("ignore:.*does not name every axis:labeled.errors.LabeledWarning")
def test_a_link_to_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "master.h5"
    plain_file(path, {"x": np.zeros((4, 2))})
    with h5py.File(path, "a") as f:
        f["away"] = h5py.ExternalLink("gone.h5", "/entry/data")

    with pytest.warns(LabeledWarning, match=r"opens without 'away': .*gone\.h5"):
        header = scan(path, allow_external=True)

    assert list(header.sources) == ["x"]
    assert "'/entry/data' in file 'gone.h5', which is not there" in header.not_opened["away"]
    with pytest.raises(FileFormatError, match=r"gone\.h5"):
        scan(path, sources=["away"], allow_external=True)


def test_a_linked_file_that_grew_opens_with_all_its_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        f["x"] = h5py.ExternalLink("other.hdf5", "x")
    for n_rows in (10, 12):
        with h5py.File(tmp_path / "other.hdf5", "w") as f:
            f["x"] = np.arange(n_rows)
        ds = labeled.open_dataset(tmp_path / "x.hdf5", allow_external=True)
        assert ds["x"].values.tolist() == list(range(n_rows))


def test_virtual_datasets_inside_the_file_are_fine(tmp_path: Path) -> None:
    def spoil(f: h5py.File) -> None:
        f["a"] = np.arange(8.0).reshape(4, 2)
        layout = h5py.VirtualLayout((4, 2), "f8")
        layout[:] = h5py.VirtualSource(f["a"])
        f.create_virtual_dataset("x", layout)
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "index"

    source = scan(victim(tmp_path, spoil)).sources["x"]

    assert source.storage == "virtual"


def test_a_virtual_dataset_over_itself_is_refused(tmp_path: Path) -> None:
    def spoil(f: h5py.File) -> None:
        layout = h5py.VirtualLayout((4, 2), "f8")
        layout[:] = h5py.VirtualSource(".", "/x", (4, 2))
        f.create_virtual_dataset("x", layout)

    with pytest.raises(UnsafeFileError, match="over itself"):
        scan(victim(tmp_path, spoil))


def test_soft_links_inside_the_file_are_followed(tmp_path: Path) -> None:
    path = str(tmp_path / "s.h5")
    with h5py.File(path, "w") as f:
        f["g/h/x"] = np.arange(6)
        f["g/up"] = h5py.SoftLink("/g/h")
        f["g/rel"] = h5py.SoftLink("h/x")
        f["loop"], f["dangling"] = h5py.SoftLink("/loop"), h5py.SoftLink("/nowhere")
        f["a"], f["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        f["g/parent"] = f["/"]

    for name in ("g/up/x", "g/rel", "g/h/x", "g/parent/g/h/x"):
        group, _, last = name.rpartition("/")
        found = labeled.open_dataset(path, group=group)[last]
        np.testing.assert_array_equal(found, np.arange(6))
    header = scan(path)
    assert list(header.sources) == ["g/rel"]
    assert header.not_opened["g/h/x"] == "it is another name of 'g/rel'"
    assert "circle" in header.not_opened["loop"]
    assert "circle" in header.not_opened["a"]
    assert "nothing at" in header.not_opened["dangling"]


# Claims --------------------------------------------------------------------------------------


def test_a_dataset_that_claims_more_than_it_stores(tmp_path: Path) -> None:
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as f:
        for name, options in (
            ("packed", {"chunks": (1000, 2), "compression": "gzip"}),
            ("bare", {}),
        ):
            f.create_dataset(name, (10**11, 2), "f4", fillvalue=3, **options)
            f[name].dims[0].label, f[name].dims[1].label = "batch", "index"

    dataset = labeled.open_dataset(path)
    for name in ("packed", "bare"):
        assert (dataset.read_rows(name, 10**9, 10**9 + 3) == 3).all()
        with pytest.raises(UnsafeFileError, match=r"bomb\.h5.*only 0 bytes are stored.*at a time"):
            dataset[[name]].load()


# What cannot be opened -----------------------------------------------------------------------


def test_what_is_no_hdf5_file(tmp_path: Path) -> None:
    text, empty = tmp_path / "notes.h5", tmp_path / "empty.h5"
    text.write_text("no data here, only words " * 9)
    empty.touch()

    for path, match in (
        (tmp_path / "none.h5", "does not exist"),
        (text, "is not an HDF5 file"),
        (empty, "is empty"),
    ):
        with pytest.raises(FileFormatError, match=match) as caught:
            scan(path)
        assert str(path) in str(caught.value)
        assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("libver", [None, ("v110", "v114")])
def test_a_truncated_file(tmp_path: Path, libver: object) -> None:
    path = Path(fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, libver=libver))
    path.write_bytes(path.read_bytes()[:-200])

    with pytest.raises(FileFormatError, match=r"d\.h5' is truncated.*copy or download it again"):
        scan(path)


def test_a_file_open_for_writing_elsewhere(tmp_path: Path) -> None:
    path = fuel_file(tmp_path / "d.h5", digits(), {"a": (0, 9)}, DIGIT_LABELS)
    writer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import h5py, sys; f = h5py.File({path!r}, 'a'); print('open', flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "HDF5_USE_FILE_LOCKING"},
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        with pytest.raises(FileFormatError, match="open for writing"):
            scan(path)
    finally:
        writer.communicate("\n")
    assert scan(path).splits["a"]["features"] == range(9)


@pytest.mark.parametrize("kind", ["link", "virtual", "raw", "dims"])
def test_what_cannot_be_opened_leaves_the_others_to_be_read(tmp_path, kind):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["x"] = np.arange(4)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        if kind == "link":
            f["away"] = h5py.ExternalLink("nowhere.h5", "/x")
        elif kind == "raw":
            f.create_dataset("away", (4,), "i4", external=[("nowhere.raw", 0, 16)])
        elif kind == "dims":
            f["away"] = np.eye(4)
            f["away"].dims[0].label = f["away"].dims[1].label = "n"
        else:
            layout = h5py.VirtualLayout((4,), "i8")
            layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
            f.create_virtual_dataset("away", layout)
    why = r"has the dim 'n' twice" if kind == "dims" else "allow_external=True"
    refusal = DimsError if kind == "dims" else UnsafeFileError

    with pytest.raises(refusal, match=why):
        scan(tmp_path / "a.h5")  # there is nothing else
    with h5py.File(tmp_path / "a.h5", "a") as f:
        f["labels"] = np.arange(4)
    with pytest.warns(LabeledWarning, match=rf"a\.h5.* opens without 'away': .*{why}"):
        header = scan(tmp_path / "a.h5")

    assert list(header.sources) == ["labels"]
    assert why in header.not_opened["away"]
    with pytest.raises(refusal, match=why):
        scan(tmp_path / "a.h5", sources=["away"])
    assert list(scan(tmp_path / "a.h5", sources=["labels"]).sources) == ["labels"]


@pytest.mark.filterwarnings("ignore:.*does not name every axis:labeled.errors.LabeledWarning")
@pytest.mark.parametrize("name", ["below/part.h5", "{folder}/below/part.h5"])
def test_virtual_data_are_never_fill_values_for_files_that_are_gone(tmp_path, name):
    """HDF5 reads fill values where a file is missing, and says nothing."""
    (tmp_path / "below").mkdir()
    name = name.format(folder=tmp_path)
    for part in (name, name.replace("part", "other")):
        with h5py.File(tmp_path / part, "w") as f:
            f["x"] = np.arange(1, 5)
    layout = h5py.VirtualLayout((8,), "i8")
    layout[:4] = h5py.VirtualSource(name, "x", (4,))
    layout[4:] = h5py.VirtualSource(name.replace("part", "other"), "x", (4,))
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_virtual_dataset("x", layout)
        f["y"] = np.arange(8)

    ds = labeled.open_dataset(tmp_path / "a.h5", allow_external=True)
    np.testing.assert_array_equal(ds["x"], [1, 2, 3, 4] * 2)

    (tmp_path / "below" / "other.h5").rename(tmp_path / "gone.h5")
    again = (tmp_path / "a.h5").rename(tmp_path / "b.h5")
    with pytest.warns(LabeledWarning, match=r"opens without 'x': .*not all there.*other\.h5"):
        header = scan(again, allow_external=True)
    assert list(header.sources) == ["y"]
    with pytest.raises(FileFormatError, match=r"fill values.*other\.h5"):
        scan(again, allow_external=True, sources=["x"])


def test_a_filter_that_nothing_undoes_is_reported_when_the_file_is_opened(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["y"] = np.arange(10)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10,))
        plist.set_filter(32845, h5py.h5z.FLAG_OPTIONAL, (1,))
        kind, space = h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((10,))
        made = h5py.h5d.create(f.id, b"x", kind, space, plist)
        made.write_direct_chunk((0,), bytes(40))

    with pytest.warns(LabeledWarning, match=r"no row of 'x' can be read.*32845.*pip install"):
        ds = labeled.open_dataset(tmp_path / "a.h5")

    np.testing.assert_array_equal(ds["y"], np.arange(10))
    with pytest.raises(MissingExtraError, match="32845"):
        ds["x"].compute()
