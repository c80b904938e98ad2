"""Rows put behind those of a file: all of them, or the file as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from written_files import KINDS, rows, run

import labeled
from labeled.compat.fuel.datasets import H5PYDataset
from labeled.errors import ArrayError, FileFormatError, NotYetError, SplitError, WriteError


def check_rows(path: Any, expected: dict[str, np.ndarray]) -> None:
    ds = labeled.open_dataset(path)
    for name, array in expected.items():
        np.testing.assert_array_equal(ds[name], array)
    assert labeled.verify(path).sound


def test_too_little_space_in_place_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.arange(3, dtype=np.uint8)}, layout="chunked")
    claim = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 55,), (0,))
    with pytest.raises(WriteError, match="takes at least 36,028,797,018,963,968 bytes"):
        labeled.append(path, {"x": claim}, in_place=True)
    assert labeled.open_dataset(path)["x"].values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n_old", [0, 21, 24])
def test_append_keeps_old_rows(tmp_path: Path, options: Any, in_place: bool, n_old: int) -> None:
    data = rows(40)
    old = {name: a[:n_old] for name, a in data.items()}
    new = {name: a[n_old:] for name, a in data.items()}
    path = (
        labeled.write(
            tmp_path / "x", old, {"train": (0, n_old), "few": [0] * bool(n_old)}, **options
        )
        if n_old == 0
        else _with_few(tmp_path / "x", old, n_old, options)
    )
    if in_place and not options:
        with pytest.raises(WriteError, match="contiguous or ragged and cannot grow in place"):
            labeled.append(path, new, in_place=True)
        return

    labeled.append(path, new, split="train", in_place=in_place)

    check_rows(path, data)
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds.split("train")["t"], data["t"])
    assert ds.split("few").n_rows == min(n_old, 1)
    for each in (ds.statistics("x"), ds.split("train").statistics("x")):
        assert each["n_rows"] == 40
        assert each["std"] == pytest.approx(data["x"].std(), rel=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def _with_few(path: Path, old: dict[str, np.ndarray], n_old: int, options: Any) -> str:
    with pytest.warns(labeled.LabeledWarning, match="1 row "):
        return labeled.write(path, old, {"train": (0, n_old), "few": [0]}, **options)


def test_append_batches_to_a_list_of_rows(tmp_path: Path) -> None:
    data = rows(30)
    parts = [{name: a[i : i + 5] for name, a in data.items()} for i in range(0, 30, 5)]
    path = labeled.write(tmp_path / "x", iter(parts[:2]), {"train": [9, 0, 3]}, chunks=4)
    labeled.append(path, iter(parts[2:]), split="train", in_place=True)
    check_rows(path, data)
    found = labeled.open_dataset(path).split("train")["x"]
    np.testing.assert_array_equal(found, data["x"][[9, 0, 3, *range(10, 30)]])
    with h5py.File(path) as f:
        assert [name for name in f if name.endswith("indices")] == ["train_indices"]


@pytest.mark.parametrize("n_rows", [3, 5, 10, 12])
def test_rows_that_no_codec_makes_smaller_end_within_a_chunk(tmp_path: Path, n_rows: int) -> None:
    data = {"x": np.random.default_rng(0).normal(size=n_rows)}
    batches = ({"x": data["x"][i : i + 2]} for i in range(0, n_rows, 2))
    path = labeled.write(tmp_path / "x", batches, compression="gzip", chunks=4)
    check_rows(path, data)

    labeled.append(path, data, in_place=True)
    twice = {"x": np.tile(data["x"], 2)}
    check_rows(path, twice)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"], twice["x"])


def test_append_to_a_file_of_plain_h5py_keeps_its_codec_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(5.0), chunks=(2,), maxshape=(None,), compression="lzf")
        f["x"].dims[0].label = "batch"
        f["split"] = np.zeros(3)  # what is no source of the table stays
        f.attrs["split"] = H5PYDataset.create_split_array({"a": {"x": (0, 5, None, "said")}})
    labeled.append(path, {"x": np.arange(3, dtype="f4")}, split="a")
    assert labeled.open_dataset(path).split("a").n_rows == 8
    with h5py.File(path) as f:
        np.testing.assert_array_equal(f["x"], [0, 1, 2, 3, 4, 0, 1, 2])
        assert (f["x"].compression, f.attrs["split"]["stop"][0]) == ("lzf", 8)
        assert f.attrs["split"]["comment"].tolist() == [b"said"]
        assert "split" in f


@pytest.mark.parametrize(
    ("new", "options", "error", "words"),
    [
        ({"x": np.zeros((2, 9))}, {}, ArrayError, "have sources"),
        ({"x": np.zeros((2, 9)), "t": ["a", "b"]}, {}, ArrayError, "rows of shape"),
        ({"x": np.zeros((2, 3, 8)), "t": ["a", "b"]}, {}, ArrayError, "has dtype uint8"),
        ({"x": np.zeros((2, 3, 8), "u1"), "t": ["a"]}, {}, ArrayError, "differ in number"),
        (rows(2), {"split": "a"}, SplitError, "no splits"),
    ],
)
def test_append_refuses_rows_that_do_not_fit(
    tmp_path: Path, new: Any, options: Any, error: Any, words: str
) -> None:
    path = labeled.write(tmp_path / "x", rows(5), chunks=2)
    before = Path(path).read_bytes()
    with pytest.raises(error, match=words):
        labeled.append(path, new, in_place=True, **options)
    assert Path(path).read_bytes() == before


def test_append_refuses_coordinates_along_the_rows(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.zeros(3)}, coords={"batch": [5, 6, 7]}, chunks=2)
    with pytest.raises(NotYetError, match="'batch'"):
        labeled.append(path, {"x": np.zeros(3)})


def wide_rows(n: int) -> dict[str, Any]:
    """Rows of 9 kB, so that 29 of them are written together."""
    noise = np.random.default_rng(n).integers(0, 200, (n, 9_000), dtype=np.uint8)
    return {"x": noise, "t": np.array(["\u00e9" * (i % 5) for i in range(n)], object)}


@pytest.mark.parametrize("n_old", [0, 3, 60, 150])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_append_in_place_that_breaks_off_is_undone(
    tmp_path: Path, n_old: int, options: Any, error: Any
) -> None:
    old = wide_rows(n_old)
    path = labeled.write(tmp_path / "x", old, {"a": (0, n_old)}, chunks=4, **options)
    size = Path(path).stat().st_size
    sizes = []

    def batches() -> Any:
        for n in (1, 60, 0, 90, 1):
            yield wide_rows(n)
            sizes.append(Path(path).stat().st_size)
        raise error

    with pytest.raises(error):
        labeled.append(path, batches(), in_place=True, split="a", threads=1, memory="5 MiB")
    assert max(sizes) > size + 300_000
    check_rows(path, old)
    more = wide_rows(9)
    labeled.append(path, more, in_place=True, split="a")
    assert labeled.open_dataset(path).split("a").n_rows == n_old + 9
    check_rows(path, {name: np.concatenate([old[name], more[name]]) for name in old})


def test_a_killed_append_in_place_is_refused(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.arange(20)}, chunks=4)
    script = """
        import numpy as np, labeled, os, signal
        def batches():
            yield {"x": np.arange(50)}
            for i in range(100): yield {"x": np.arange(50)}
            os.kill(os.getpid(), signal.SIGKILL)
        labeled.append("x", batches(), in_place=True)
    """
    run(script, tmp_path).communicate()
    with pytest.raises(FileFormatError):
        labeled.open_dataset(path)
