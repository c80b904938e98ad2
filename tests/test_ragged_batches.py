"""Ragged sources in batches: the rows of the plan, whatever order, part, layout and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import test_memory
from ragged_files import LAYOUTS, ragged_path, same, write_flat

import labeled
from labeled.errors import FileFormatError, LoaderError, SpaceError, SpecsError
from labeled.spaces import VectorSpace

N = 300
MODES = ("list", "pad", "flat")
SHUFFLES = (False, True, "window", "full")


def pictures(n: int = N) -> list[np.ndarray[Any, Any]]:
    """Images of 0 to 40 rows whose values tell their row number."""
    rng = np.random.default_rng(5)
    sizes = np.minimum(rng.geometric(0.15, (n, 2)) - 1, 40)
    return [np.full((2, h, w), i, np.int16) for i, (h, w) in enumerate(sizes)]


ARRAYS = pictures()


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("ragged")
    out = {
        layout: ragged_path(
            folder / f"{layout}.h5",
            layout,
            [a.reshape(-1) for a in ARRAYS] if layout == "vlen" else ARRAYS,
        )
        for layout in LAYOUTS
    }
    packed = {"chunks": (500,), "compression": "gzip", "shuffle": True}
    out["gzip"] = ragged_path(folder / "gzip.h5", "flat", ARRAYS, options=packed)
    return out


def expected(layout: str, rows: Any) -> list[np.ndarray[Any, Any]]:
    return [ARRAYS[i].reshape(-1) if layout == "vlen" else ARRAYS[i] for i in rows]


def check(batch: Any, rows: Any, mode: str, layout: str, count: int | None = None) -> None:
    """Compare a batch with the examples of its rows, laid out by hand."""
    count = len(rows) if count is None else count
    examples = expected(layout, rows[:count])
    if mode == "list":
        same(batch.arrays["x"][:count], examples)
        assert all(not a.size for a in batch.arrays["x"][count:])
        assert batch["x"].dims == ("batch",)
    elif mode == "pad":
        dense, inside = batch["x"], batch["x_mask"]
        assert dense.dims == inside.dims
        assert dense.shape[0] == len(rows)
        longest = np.max([a.shape for a in examples], axis=0) if examples else 0
        assert (np.array(dense.shape[1:]) == longest).all()
        for place, where, example in zip(dense.values, inside.values, examples, strict=False):
            np.testing.assert_array_equal(place[where].reshape(example.shape), example)
            assert (place[~where] == 0).all()
        assert not inside.values[count:].any()
    else:
        values, offsets = batch.arrays["x"], batch.arrays["x_offsets"]
        shapes = batch.arrays["x_shapes"]
        found = [
            values[a:b].reshape(s)
            for a, b, s in zip(offsets[:-1], offsets[1:], shapes, strict=True)
        ]
        same(found[:count], examples)
        assert len(found) == len(rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("last", ["keep", "pad"])
def test_what_cannot_be_read_is_left_out(tmp_path: Path, mode: str, last: Any) -> None:
    packed = {"chunks": (500,), "compression": "gzip"}
    path = ragged_path(tmp_path / "x.h5", "flat", ARRAYS, options=packed)
    with h5py.File(path) as f:
        chunk = f["x"].id.get_chunk_info(3)
    with open(path, "r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(b"\xff" * chunk.size)
    first = chunk.chunk_offset[0]
    ends = np.cumsum([a.size for a in ARRAYS])
    within = [
        i for i, (a, b) in enumerate(zip(ends - [x.size for x in ARRAYS], ends, strict=True))
        if a < first + 500 and b > first and b > a
    ]  # fmt: skip
    options = {"shuffle": "window", "seed": 1, "window_rows": 40, "last": last}
    loader = labeled.open_dataset(path).batches(7, ragged=mode, errors="skip", **options)

    with pytest.warns(UserWarning, match="left out of this epoch"):
        served = list(loader.with_rows())

    seen: list[int] = []
    for data, rows, count in served:
        check(data, rows, mode, "flat", count)
        seen += rows[:count].tolist()
    assert within
    assert sorted(seen) == [i for i in range(N) if i not in within]


def test_a_dense_source_behind_a_ragged_one_is_padded_with_it(tmp_path: Path) -> None:
    examples = [np.full(1 + n % 5, n) for n in range(400)]
    path = labeled.write(tmp_path / "x.h5", {"a": examples, "b": np.arange(400)}, ragged="flat")
    *_, last = labeled.open_dataset(path).batches(32, ragged="list", last="pad")
    assert last.count == 16
    assert last.arrays["b"].tolist() == [*range(384, 400), *[0] * 16]
    assert [x[0] for x in last.arrays["a"][:16]] == [*range(384, 400)]


def test_casts_and_fill_values(files: dict[str, str]) -> None:
    ds = labeled.open_dataset(files["flat"]).subset(slice(30, 40)).select("x")
    for mode in MODES:
        loader = ds.batches(4, ragged=mode, dtype="float32", scale={"x": 0.5}, pad_value=-1)
        for batch in loader:
            halves = [(a * 0.5).astype("f4") for a in expected("flat", batch.rows + 30)]
            if mode == "list":
                same(batch.arrays["x"], halves)
            elif mode == "flat":
                flat = np.concatenate([h.reshape(-1) for h in halves])
                np.testing.assert_array_equal(batch.arrays["x"], flat)
            else:
                dense, inside = batch.arrays["x"], batch.arrays["x_mask"]
                assert dense.dtype == np.float32
                assert (dense[~inside] == -1).all()
    with pytest.raises(LoaderError, match="2 factors do not fit"):
        ds.batches(4, scale=[1.0, 2.0])


def test_what_cannot_be_done_is_said_first(files: dict[str, str], tmp_path: Path) -> None:
    ds = labeled.open_dataset(files["flat"])
    with pytest.raises(LoaderError, match="ragged='dense' must be 'list', 'pad' or 'flat'"):
        ds.batches(4, ragged="dense")
    with pytest.raises(SpecsError, match=r"source 'x' in .* different shapes.*without specs"):
        ds.batches(4, specs=(VectorSpace(3), "x"))
    with pytest.raises(LoaderError, match="balance='x' is not a source of one value a row"):
        ds.batches(4, balance="x")
    taken = tmp_path / "taken.h5"
    with h5py.File(taken, "w") as f:
        write_flat(f, "x", [np.arange(3)], dims=("batch", "time"))
        f["x_mask"] = np.zeros(1)
        f["x_mask"].dims[0].label = "batch"
    with pytest.raises(LoaderError, match="'x_mask', which is a source"):
        labeled.open_dataset(taken).batches(1, ragged="pad")


def test_memory_too_small_for_the_largest_examples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        arrays = [np.zeros(10, "u1")] * 500 + [np.zeros(8 << 20, "u1")]
        write_flat(f, "x", arrays, dims=("batch", "time"))
    ds = labeled.open_dataset(path)
    with pytest.raises(LoaderError, match="too small"):
        ds.batches(16, memory="16 MiB")
    assert len(ds.batches(16, memory="160 MiB")) == 32
    with pytest.raises(LoaderError, match="too small"):
        ds.batches(16, memory="160 MiB", ragged="pad")  # one long example pads all others


# the bound in bytes


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="samples /proc/self/status")
@pytest.mark.parametrize(
    ("mode", "shuffle", "memory"),
    [
        ("list", False, 40 << 20),
        ("list", "window", 40 << 20),
        ("flat", False, 40 << 20),
        ("pad", "window", 56 << 20),
    ],
)
def test_growth_stays_within_the_memory(heavy: str, mode: str, shuffle: Any, memory: int) -> None:
    options = {"batch_size": 32, "seed": 1, "memory": memory, "shuffle": shuffle, "ragged": mode}

    found = grown(heavy, options)

    assert found["total"] > 0
    assert found["growth"] <= found["promised"] <= memory


def grown(path: str, options: dict[str, Any]) -> dict[str, int]:
    """Iterate in a process of its own; return how it grew, and what was promised."""
    script = test_memory.SCRIPT.replace(
        "for array in batch.arrays.values():",
        "for array in [a for b in batch.arrays.values() for a in (b if b.dtype == 'O' else [b])]:",
    )
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, path, json.dumps(options)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, int] = json.loads(out.stdout)
    return found


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: Any) -> str:
    """60 MiB of examples of very different sizes, in gzip chunks."""
    path = tmp_path_factory.mktemp("heavy") / "x.h5"
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.pareto(1.5, 8_000) * 5_000 + 100, 100_000).astype(int)
    with h5py.File(path, "w", libver=("v110", "v114")) as f:
        values = np.resize(rng.integers(0, 16, 1 << 20, dtype=np.uint8), int(sizes.sum()))
        write_flat(
            f,
            "x",
            values=values,
            offsets=np.cumsum([0, *sizes]),
            shapes=sizes[:, None],
            dims=("batch", "time"),
            chunks=(1 << 17,),
            compression=1,
        )
    return str(path)


@pytest.mark.parametrize("n_files", [1, 2])
def test_packed_examples_are_decoded_in_batches(tmp_path: Path, n_files: int) -> None:
    examples = [np.full(997 * n, n, "i2") for n in range(100)]  # more than memory keeps
    paths = []
    for number in range(n_files):
        paths.append(labeled.write(tmp_path / f"{number}.hdf5", {"x": labeled.Ragged.of(examples)}))
        with h5py.File(paths[-1], "r+") as file:
            file["x"].attrs["scale_factor"] = np.float32(0.5)
    ds = labeled.open_dataset(paths)
    for batch in ds.batches(3, shuffle="window", seed=2, ragged="list", memory="18 MiB"):
        for row, found in zip(batch.rows, batch["x"].values.tolist(), strict=True):
            wanted = examples[row % 100] * np.float32(0.5)
            np.testing.assert_array_equal(found, wanted, strict=True)


def test_an_example_of_another_size_is_named_by_its_own_file(tmp_path: Path) -> None:
    examples = [np.zeros(2000 + n % 2) for n in range(400)]  # more than memory keeps
    paths = [labeled.write(tmp_path / f"{name}.h5", {"x": examples}) for name in "ab"]
    batches = iter(labeled.open_dataset(paths).batches(2, memory="12 MiB"))
    next(batches)
    before = os.stat(paths[1])
    with h5py.File(paths[1], "r+") as file:
        file["x_offsets"][300] -= 1
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nobody had written
    with pytest.raises(FileFormatError, match=r"'x' in '[^']*b\.h5', row 299: it has 2000 values"):
        list(batches)


def test_padded_sources_that_share_a_dim_go_to_xarray(tmp_path: Path) -> None:
    words = [np.arange(n) for n in (1, 3, 2, 5)]
    tones = [np.arange(n) for n in (2, 7, 2, 5)]
    dims = ("batch", "time")
    arrays = {"t": np.zeros((4, 9)), "words": labeled.Ragged.of(words, dims)}
    arrays["tones"] = labeled.Ragged.of(tones, dims)
    path = labeled.write(tmp_path / "x.hdf5", arrays, dims={"t": ("batch", "step")})
    for batch in labeled.open_dataset(path).batches(2, ragged="pad"):  # the last are equally long
        made = batch.to_xarray()
        for name in ("words", "words_mask"):
            assert made[name].dims == ("batch", "words_time")
        for name in ("t", "tones", "tones_mask"):
            assert made[name].dims == batch[name].dims
        for name in made:
            np.testing.assert_array_equal(made[name], batch[name])


def test_sources_whose_dims_differ_in_length_go_to_xarray(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((4, 2)), "y": np.ones((4, 3))}
    dims = dict.fromkeys(arrays, ("batch", "step"))
    (batch,) = labeled.open_dataset(labeled.write(tmp_path / "x.hdf5", arrays, dims=dims)).batches(
        4
    )
    assert dict(batch.to_xarray().sizes) == {"batch": 4, "step": 2, "y_step": 3}


@pytest.mark.parametrize("how", [{"last": "pad"}, {"last": "wrap", "shuffle": "full", "seed": 1}])
def test_every_batch_has_its_sources_in_one_order(tmp_path, how):
    audio = [np.full(1 + row % 5, row, "i4") for row in range(100)]
    path = labeled.write(tmp_path / "r.hdf5", {"audio": audio, "label": np.arange(100)})
    for batch in labeled.open_dataset(path, sources=("audio", "label")).batches(64, **how):
        assert list(batch) == ["audio", "label"]


@pytest.mark.parametrize("ragged", MODES)
@pytest.mark.parametrize("bad", [0, 2])
def test_a_value_that_does_not_fit_is_named_by_its_example(tmp_path, ragged, bad):
    arrays = [np.arange(1 + 2 * row) for row in range(4)]
    arrays[bad][-1] = 300
    path = labeled.write(tmp_path / "r.hdf5", {"x": labeled.Ragged.of(arrays, ("batch", "time"))})
    loader = labeled.open_dataset(path).batches(4, dtype={"x": "u1"}, ragged=ragged)
    with pytest.raises(SpaceError, match=rf"300 in row {bad} of .*row {bad} of the dataset"):
        list(loader)


def test_examples_that_are_kept_fit_beside_rows_that_are_picked(tmp_path):
    """A job of picked rows may hold the longest examples of its window, and no others."""
    n = 2450
    lengths = np.where(np.arange(n) % 4, 1, 6000)
    arrays = [np.full(length, row % 256, "u1") for row, length in enumerate(lengths)]
    images = np.zeros((n, 32768), "u1")
    path = labeled.write(
        tmp_path / "r.hdf5",
        {"images": images, "x": labeled.Ragged.of(arrays, ("batch", "time"))},
        dims={"images": ("batch", "pixel")},
    )
    loader = labeled.open_dataset(path).batches(32, shuffle="window", seed=1, memory="64 MiB")
    for batch in loader:
        for one, row in zip(batch.arrays["x"], batch.rows, strict=True):
            np.testing.assert_array_equal(one, arrays[row])
