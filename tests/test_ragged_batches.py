"""Ragged sources in batches: the rows of the plan, whatever order, part, layout and memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import test_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from ragged_files import LAYOUTS, ragged_path, same, write_flat

import labeled
from labeled.errors import LoaderError, SpecsError
from labeled.formats.recordio.writing import write_records
from labeled.loader.memory import WorstCase
from labeled.samplers.plan import EpochPlan
from labeled.samplers.units import ListedUnits, UniformUnits
from labeled.samplers.windows import Order
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


@given(st.lists(st.integers(0, N - 1), min_size=1, max_size=60), st.sampled_from(SHUFFLES))
def test_lists_with_repeats_and_loaded_rows(
    files: dict[str, str], rows: list[int], shuffle: Any
) -> None:
    ds = labeled.open_dataset(files["fuel"]).subset(rows)
    for source in (ds, ds.load()):
        found = []
        for batch in source.batches(7, shuffle=shuffle, seed=1):
            same(batch.arrays["x"], expected("fuel", np.array(rows)[batch.rows]))
            found += batch.rows.tolist()
        assert sorted(found) == list(range(len(rows)))


def test_draws_and_samplers_may_repeat_rows(files: dict[str, str]) -> None:
    ds = labeled.open_dataset(files["flat"])
    for batch in ds.batches(16, weights=np.arange(N) % 3, seed=1, window_rows=64):
        same(batch.arrays["x"], expected("flat", batch.rows))
        assert (batch.rows % 3 > 0).all()
    for batch in ds.batches(sampler=[[0, 0, 5], [299, 5]]):
        same(batch.arrays["x"], expected("flat", batch.rows))


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


def test_a_batch_stays_what_it_was(files: dict[str, str]) -> None:
    ds = labeled.open_dataset(files["flat"])
    for mode in MODES:
        held = list(ds.batches(8, shuffle="window", seed=2, window_rows=32, ragged=mode))
        for batch in held:
            check(batch, batch.rows, mode, "flat")
    first, second = (next(iter(ds.batches(8))) for _ in range(2))
    for array in first.arrays["x"]:
        array[...] = -1
    same(second.arrays["x"], ARRAYS[:8])
    same(next(iter(ds.batches(8))).arrays["x"], ARRAYS[:8])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shuffle", [False, "window"])
def test_an_example_that_is_held_keeps_its_batch_and_no_window(
    files: dict[str, str], layout: str, shuffle: Any
) -> None:
    loader = labeled.open_dataset(files[layout]).batches(8, shuffle=shuffle, seed=2, window_rows=50)
    for _ in range(2):  # a batch across two windows, and windows that were not finished
        for batch, _ in zip(loader, range(30), strict=False):
            examples = batch.arrays["x"]
            bases = {id(one.base): one.base for one in examples if one.base is not None}
            assert sum(b.nbytes for b in bases.values()) == sum(one.nbytes for one in examples)
    windows, joined = loader.pools()
    assert not any(slot.arrays["x"].dtype.hasobject for slot in windows.buffers)
    assert all(one is None for slot in joined.buffers for one in slot.arrays["x"])


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
    with pytest.raises(LoaderError, match="scale and shift of ragged examples are one number"):
        ds.batches(4, scale=[1.0, 2.0])


def test_explain_and_reprs_work(files: dict[str, str]) -> None:
    loader = labeled.open_dataset(files["gzip"]).batches(25, shuffle="window", ragged="pad")
    words = repr(loader.explain())
    assert "flat values, chunks decoded" in words
    assert "x_mask" in repr(next(iter(loader)))


def test_what_cannot_be_done_is_said_first(files: dict[str, str], tmp_path: Path) -> None:
    ds = labeled.open_dataset(files["flat"])
    with pytest.raises(LoaderError, match="ragged='dense' must be 'list', 'pad' or 'flat'"):
        ds.batches(4, ragged="dense")
    with pytest.raises(SpecsError, match=r"source 'x' in .* has no sizes for.*ragged='pad'"):
        ds.batches(4, specs=(VectorSpace(3), "x"))
    with pytest.raises(LoaderError, match="examples of different shapes"):
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


def test_little_memory_is_enough_for_a_small_file(tmp_path: Path) -> None:
    path = labeled.write(
        tmp_path / "x.h5", {"x": labeled.Ragged.of([np.arange(9)] * 300)}, compression="gzip"
    )
    found = labeled.open_dataset(path).batches(32, errors="skip", threads=2, memory="4 MiB")
    assert sum(batch.count for batch in found) == 300  # nothing is kept where rows may be lost
    with pytest.raises(
        LoaderError, match=r"2 jobs of 32 rows .* together 1\.\d+ MiB; give"
    ) as told:
        labeled.open_dataset(path).batches(32, memory="1 MiB")
    terms = re.findall(r" ([\d.]+) (MiB|kiB)(?=[,;])", str(told.value).partition("too small:")[2])
    *parts, together = [float(n) * {"MiB": 1024, "kiB": 1}[unit] for n, unit in terms]
    assert together == pytest.approx(sum(parts), rel=0.02)


# the bound in bytes


@settings(max_examples=80)
@given(st.data())
def test_no_window_holds_more_than_the_worst(data: Any) -> None:
    sizes = np.array(data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=80)), np.int64)
    n = len(sizes)
    mode = data.draw(st.sampled_from(["file", "window", "full"]))
    cuts = data.draw(st.sets(st.integers(1, n)))
    listed = ListedUnits(np.array(sorted({0, n} | cuts)))
    units = data.draw(st.sampled_from([UniformUnits(n, 5, 3), listed]))
    if mode == "full":
        units = UniformUnits(n, 1, 1)
    order = Order(mode, units, data.draw(st.integers(1, n)), seed=data.draw(st.integers(0, 9)))
    count = data.draw(st.integers(1, 3))

    worst = WorstCase(sizes, mode, units)
    unit = 1 if mode == "full" else units.max_rows
    most = min(n, max(order.window_rows, unit))

    for index in range(count):
        for window in EpochPlan(order, (index, count), batch_rows=3).windows():
            assert sizes[window.content.rows].sum() <= worst.of(most)
    assert all(worst.of(k) <= worst.of(k + 1) for k in range(n))


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


@pytest.mark.skipif(sys.platform != "linux", reason="samples /proc/self/status")
def test_pictures_handed_out_as_they_were_read_count_once(tmp_path: Path) -> None:
    """Three windows and a batch: nobody copies pictures that have memory of their own each."""
    path, n, batch_bytes = tmp_path / "x.rec", 600, 128 * 128 * 160 * 3
    coarse = np.random.default_rng(0).integers(0, 256, (n, 8, 10, 3), np.uint8)
    fine = (np.kron(one, np.ones((16, 16, 1), np.uint8)) for one in coarse)
    write_records(path, (a.swapaxes(0, 1) if i % 2 else a for i, a in enumerate(fine)), range(n))
    options = {"batch_size": 128, "seed": 1, "memory": 64 << 20, "shuffle": "full"}

    found = grown(str(path), options)

    assert 1.5 * batch_bytes <= found["growth"] <= found["promised"] <= 6 * batch_bytes


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
