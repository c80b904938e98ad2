"""What a loader refuses when it is made, in words, and what it makes of extremes."""

from __future__ import annotations

import math
import re
import threading
import time

import dask.array
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import LoaderError, ReadError
from labeled.formats.recordio.writing import write_records
from labeled.transforms import whole
from make_files import fuel_file

N = 1003
VALUES = np.random.default_rng(1).integers(-5, 300, (N, 8), dtype=np.int32)
REALS = (VALUES / 3).astype(np.float32)
SMALL = VALUES[:, :3].astype(np.uint8)


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    return labeled.open_dataset(
        fuel_file(
            tmp_path_factory.mktemp("refusals") / "d.hdf5",
            {"a": VALUES, "r": REALS, "u": SMALL, "n": np.full(N, -1.0)},
            {"all": (0, N)},
            {"a": ("batch", "x"), "r": ("batch", "x"), "u": ("batch", "c"), "n": ("batch",)},
            chunks=(64,),
            compression="gzip",
        )
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard": (0, 2), "shuffle": True}, "same seed= to every shard"),
        ({"shard": (0, 2), "weights": np.ones(N)}, "same seed= to every shard"),
        ({"shard": (0, 0)}, "shard count=0 must be at least 1"),
        ({"dtype": {"r": "u1"}}, "'r'.*float32 is not cast to uint8"),
        ({"dtype": {"u": "u1"}, "scale": {"u": 0.5}}, "'u'.*scaled result is not cast to uint8"),
        ({"dtype": {"u": bool}}, "'u'.*not cast to bool"),
        ({"dtype": {"a": "U2"}}, "'a'.*int32 is not cast to <U2"),  # 101 became '10'
        ({"dtype": {"a": str}}, "'a'.*int32 is not cast to <U0; give it a length"),
        ({"dtype": {"a": "V4"}}, "'a'.*int32 is not cast to |V4"),
        ({"dtype": "foo"}, "dtype='foo' is not a dtype"),
        ({"threads": 2000, "memory": "6 MiB"}, "too small.*2,000 threads.*fewer threads"),
        ({"threads": 1.5}, "threads=1.5 must be a whole number"),
        ({"prefetch": -3}, "prefetch=-3 must be at least 0"),
        ({"window_rows": 2.5, "shuffle": "full"}, "window_rows=2.5 must be a whole number"),
        ({"epoch": -1}, "epoch=-1 must be at least 0"),
        ({"weights": np.ones(N), "shuffle": True}, "leave shuffle out"),
        ({"weights": np.ones(N), "last": "pad"}, "leave last out"),
        ({"weights": np.ones(3)}, rf"weights has shape \(3,\), but there are {N} rows"),
        ({"weights": np.ones(N, "m8[s]")}, r"weights of timedelta64\[s\] are not numbers"),
        ({"weights": np.full(N, "1")}, "weights of <U1 are not numbers"),
        ({"weights": np.ones(N) + 1j}, "weights of complex128 are not numbers"),
        ({"weights": np.ma.masked_less(np.arange(N), 3)}, "weights has masked values"),
        ({"weights": "aa"}, "weights='aa' is not a source of one value a row"),
        ({"weights": "n"}, "weights='n' must be finite and not negative.*row 0 has -1"),
        ({"memory": "64 KiB"}, r"too small: \d+ jobs.*give memory='\d+ MiB', or smaller batches$"),
        (
            {"last": "pad", "pad_value": {"u": 300}},
            "'u'.*pad_value=300 is not a value of dtype uint8",
        ),
        ({"last": "pad", "pad_value": float("nan")}, "'a'.*pad_value=nan is not a value.*int32"),
        ({"sticky_shards": "no"}, "sticky_shards='no' must be True or False"),
        ({"balance": ["a"]}, r"balance=\['a'\] must be text"),
        ({"memory": float("inf")}, "memory=inf is not a size"),
        ({"memory": True}, "memory=True must be a number, text"),
        ({"scale": "1/255"}, "scale='1/255' cannot be: scale has dtype"),
        ({"scale": math.nan}, "scale=nan cannot be: values are computed in float32, where"),
        ({"scale": 1e300}, r"scale=1e\+300 cannot be: .* where it is not finite"),
        ({"shift": [math.inf] * 8}, "shift=.*inf.* cannot be: .* it is not finite"),
        ({"shift": {"r": 1j}}, "'r'.*shift=1j cannot be"),
        ({"dtype": "(2,)f4"}, "is not a dtype: it is of several values"),
        (
            {"last": "pad", "pad_value": {"a": 300}, "dtype": {"a": "u1"}},
            "'a'.*pad_value=300 is not a value of dtype uint8",
        ),
    ],
)
def test_refused_before_any_row_is_read(ds, options, words):
    with pytest.raises(LoaderError, match=words):
        ds.batches(3, **options)


def test_choices_are_taken_as_any_kind_of_text(ds):
    chosen = {"shuffle": "full", "last": "pad", "errors": "skip", "output": "numpy"}
    loader = ds.batches(3, seed=1, **chosen)
    same = ds.batches(3, seed=1, **{option: np.str_(value) for option, value in chosen.items()})
    for (_, rows, _), (_, others, _) in zip(loader.with_rows(), same.with_rows(), strict=True):
        np.testing.assert_array_equal(rows, others)
    same.load_state_dict(loader.state_dict())
    with pytest.raises(LoaderError, match="errors='ignore' must be 'raise' or 'skip'"):
        ds.batches(3, errors="ignore")


def test_a_name_is_not_suggested_in_its_own_place(ds):
    with pytest.raises(LoaderError, match=r"weights='a' is not .* a row; there are: none$"):
        ds.select("a", "r").batches(3, weights="a")


def test_a_batch_larger_than_the_data_is_the_data(ds):
    began = time.perf_counter()
    loader = ds.batches(10**9)
    assert loader.explain().promised_bytes < 256 << 20
    (batch,) = loader
    assert time.perf_counter() - began < 5
    np.testing.assert_array_equal(batch.arrays["a"], VALUES)
    for shuffle in ("window", "full"):
        (batch,) = ds.batches(10**9, shuffle=shuffle, seed=1, memory="8 MiB")
        assert sorted(batch.rows) == list(range(N))
    with pytest.raises(LoaderError, match="too small"):
        ds.batches(10**9, last="pad")


def test_threads_may_share_an_iterator(ds):
    loader = ds.batches(2, shuffle="window", seed=1, memory="8 MiB", threads=2)
    shared, found = iter(loader), []

    def take():
        found.extend(batch.rows for batch in shared)

    run_together(take, 4)
    assert sorted(np.concatenate(found)) == list(range(N))


def test_the_advised_memory_is_enough_and_mixes_well(tmp_path):
    rows = np.random.default_rng(0).integers(0, 9, (50_000, 300), np.uint8)
    name = fuel_file(
        tmp_path / "wide.hdf5",
        {"x": rows},
        {"all": (0, 50_000)},
        {"x": ("batch", "feature")},
        chunks=(64, 300),
        compression=1,
    )
    wide = labeled.open_dataset(name)
    options = {"shuffle": "window", "seed": 1}
    told = wide.batches(256, memory="8 MiB", **options).explain()
    assert told.quality < 0.94
    advised = {
        "memory": told.memory_for_quality,
        "window_rows": told.window_rows_for_quality,
    }
    assert f"memory='{advised['memory'] >> 20} MiB'" in repr(told)
    assert wide.batches(256, **advised, **options).explain().quality >= 0.94


def test_what_is_kept_costs_nothing_once_it_is_there(ds):
    loader = ds.batches(100, shuffle="window", seed=1)
    assert sum(source.bytes_read for source in loader.explain().sources) > 0
    list(loader)
    stats = loader.stats()
    assert stats.load_s > 0
    assert all(source.kept for source in loader.explain().sources)
    assert sum(source.bytes_read + source.n_reads for source in loader.explain().sources) == 0
    assert stats.rows_per_s == N / (stats.wall_s + stats.consumer_s)
    assert "1,003 rows in 11 batches" in repr(stats)


@pytest.mark.parametrize("shuffle", [False, "window", "full"])
def test_the_rest_of_an_epoch_is_explained(ds, shuffle):
    options = {"shuffle": shuffle, "seed": 1, "window_rows": 200, "errors": "skip"}
    first = ds.batches(100, threads=0, **options)
    epoch = iter(first)
    for _ in range(6):
        next(epoch)
    loader = ds.batches(100, threads=0, **options)
    whole = loader.explain()
    loader.load_state_dict(first.state_dict())
    rest = loader.explain()
    assert (rest.n_rows, rest.n_batches) == (N - 600, 5)
    assert 0 < rest.n_windows <= whole.n_windows
    assert rest.sources[0].bytes_used < whole.sources[0].bytes_used


def run_together(work, count):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("options", [{"shuffle": False}, {"shuffle": "window"}])
def test_a_long_epoch_is_predicted_from_some_of_its_jobs(tmp_path, options):
    n = 12_000_000
    with h5py.File(tmp_path / "long.hdf5", "w") as f:
        f.create_dataset("x", (n, 64), "u1")[-1] = 1
    data = labeled.open_dataset(tmp_path / "long.hdf5", dims={"x": ("batch", "index")})
    loader = data.batches(100, seed=0, memory="8 MiB", **options)
    told = loader.explain()
    assert not told.exact
    assert told.sources[0].bytes_used == pytest.approx(64 * n, rel=0.02)


def follow(make, memory):
    """Give the memory that the refusal asks for, once."""
    try:
        return make(memory)
    except LoaderError as error:
        told = str(error)
    (enough,) = re.findall(r"too small: .*give memory='(\d+ MiB)'", told)
    return make(enough)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Pictures of several sizes as records, and lists, texts and dense rows in one file."""
    folder, random = tmp_path_factory.mktemp("uneven"), np.random.default_rng(0)
    shapes = random.integers(8, 700, (300, 2)) // np.array([1, 3])
    pictures = [np.full((*shape, 3), 7, np.uint8) for shape in shapes.tolist()]
    write_records(folder / "p.rec", pictures, np.arange(300.0), format=".png")
    lists = [np.zeros(n, "f4") for n in random.integers(0, 40_000, 300)]
    texts = ["x" * n for n in random.integers(0, 9_000, 300).tolist()]
    dense = np.zeros((300, 5000), "f4")
    labeled.write(folder / "l.h5", {"lists": lists, "texts": texts, "dense": dense})
    return folder


@settings(max_examples=40)
@given(
    name=st.sampled_from(["p.rec", "l.h5"]),
    batch=st.sampled_from([1, 7, 64, 300]),
    shuffle=st.sampled_from([False, True, "window", "full"]),
    ragged=st.sampled_from(["list", "pad", "flat"]),
    memory=st.integers(1, 64),
    piped=st.booleans(),
    threads=st.sampled_from([None, 0, 3]),
    window=st.sampled_from([None, 128]),
)
def test_the_memory_asked_for_is_enough(
    uneven, name, batch, shuffle, ragged, memory, piped, threads, window
):
    ds = labeled.open_dataset(uneven / name)
    options = {"shuffle": shuffle, "ragged": ragged, "threads": threads, "window_rows": window}
    options["pipeline"] = whole(lambda batch: batch) if piped else None
    loader = follow(lambda given: ds.batches(batch, memory=given, **options), f"{memory} MiB")
    assert loader.explain().promised_bytes <= loader.explain().memory_bytes


def test_a_block_that_cannot_be_computed_is_named_with_its_variable():
    def divided(block, block_info=None):
        if block_info and block_info[0]["chunk-location"] == (3,):
            raise ZeroDivisionError("no block 3")
        return block

    lazy = dask.array.arange(50, chunks=10).map_blocks(divided, dtype="i8", meta=np.empty(0))
    loader = labeled.batches(xr.Dataset({"lazy": ("batch", lazy)}), 10)
    with pytest.raises(ReadError, match="variable 'lazy': computing rows 30 to 39 failed: no bl"):
        list(loader)
