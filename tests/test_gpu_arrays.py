"""Arrays on a GPU against NumPy's: every dtype and order, none at all, and beyond 32 bits."""

from __future__ import annotations

import itertools

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
from on_gpu import cupy_or_skip, values

import labeled
from labeled import permute
from labeled.spaces import Conv2DSpace, VectorSpace

pytestmark = pytest.mark.gpu

ITEMS = ["u1", "i1", "?", "f2", "f4", "c8"]
SOURCE = Conv2DSpace((6, 10), 3, axes=("b", "c", 0, 1))
TARGETS = [SOURCE.with_axes(axes) for axes in itertools.permutations(("b", "c", 0, 1))]
AXES = list(itertools.permutations(range(4)))
DIMS = ("batch", "channel", "height", "width")


@pytest.fixture(scope="module")
def cupy():
    return cupy_or_skip()


def check(cupy, found, wanted):
    assert isinstance(found, cupy.ndarray)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(cupy.asnumpy(found), wanted)


# ---------------------------------------------------------------- spaces
@pytest.mark.parametrize("rows", [0, 1, 37])
@pytest.mark.parametrize("item", ITEMS)
def test_spaces_lay_out_device_arrays(cupy, item, rows):
    here = values((rows, 3, 6, 10), item)
    there = cupy.asarray(here)
    for target in (*TARGETS, VectorSpace(180)):
        check(cupy, SOURCE.format_as(there, target), SOURCE.np_format_as(here, target))
        wide = target.with_dtype("c8" if item == "c8" else "f4")
        check(cupy, SOURCE.format_as(there, wide), SOURCE.np_format_as(here, wide))


@pytest.mark.parametrize("rows", [0, 37])
@pytest.mark.parametrize("item", ITEMS)
def test_spaces_lay_out_lazy_device_arrays(cupy, item, rows):
    here = values((rows, 3, 6, 10), item)
    lazy = da.from_array(cupy.asarray(here), chunks=(10, 3, 6, 10), asarray=False, name=False)
    for target in (*TARGETS, VectorSpace(180)):
        found = SOURCE.format_as(lazy, target)
        assert isinstance(found._meta, cupy.ndarray)
        check(cupy, found.compute(), SOURCE.np_format_as(here, target))
        labelled = xr.DataArray(lazy, dims=DIMS).labeled.format_as(target)
        check(cupy, labelled.compute().data, SOURCE.np_format_as(here, target))


# ---------------------------------------------------------------- copies
VIEWS = {
    "whole": lambda x: x,
    "every second row": lambda x: x[::2],
    "back to front": lambda x: x[:, :, ::-1],
    "moved": lambda x: x.transpose(2, 0, 3, 1),
    "from an odd place": lambda x: x[1:, :, :, 1:],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("item", [*ITEMS, "i8", "c16"])
def test_views_are_copied_as_numpy_does(cupy, item, view):
    for rows in (0, 1, 65):
        here = values((rows, 3, 24, 40), item)
        there, seen = VIEWS[view](cupy.asarray(here)), VIEWS[view](here)
        for axes in AXES:
            check(cupy, permute.copy(there, axes), seen.transpose(axes))


def test_one_item_and_one_axis(cupy):
    here = values((1000,), "u1")
    check(cupy, permute.copy(cupy.asarray(here)[::3], (0,)), here[::3])
    check(cupy, permute.copy(cupy.asarray(here[:1].reshape(1, 1)), (1, 0)), here[:1].reshape(1, 1))
    check(cupy, permute.copy(cupy.asarray(here)[4], ()), here[4])


@pytest.mark.parametrize("factor", [(3,), (37, 1, 1, 3)], ids=str)
def test_channels_that_lie_last_are_scaled_as_on_the_host(cupy, factor):
    here = values((37, 24, 40, 3), "u1")
    scale = np.random.default_rng(4).uniform(-2, 2, factor).astype("f4")
    for axes in AXES:
        changes = {"dtype": "f4", "scale": scale, "shift": 1}
        found = permute.copy(cupy.asarray(here), axes, **changes)
        check(cupy, found, permute.copy(here, axes, **changes))


@pytest.mark.parametrize("item", ["f2", "f4", "c8", "c16"])
def test_items_between_their_places_are_copied(cupy, item):
    here = values((5, 6, 7), item)
    memory = cupy.asarray(np.frombuffer(b"?" + here.tobytes(), np.uint8))
    there = memory[1:].view(item).reshape(here.shape)
    check(cupy, permute.copy(there, (2, 0, 1)), here.transpose(2, 0, 1))
    check(cupy, permute.gather(there, [3, 0], (1, 0, 2)), here[[3, 0]].transpose(1, 0, 2))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize("item", [*ITEMS, "i8"])
def test_casts_are_those_of_numpy(cupy, item, dtype):
    dtype = "c16" if item == "c8" else dtype
    here = values((33, 3, 17, 20), item)
    for axes in AXES:
        check(
            cupy,
            permute.copy(cupy.asarray(here), axes, dtype=dtype),
            permute.copy(here, axes, dtype=dtype),
        )


# ---------------------------------------------------------------- rows
N = 90
ROWS = {
    "unordered": np.random.default_rng(1).permutation(N),
    "repeated": np.random.default_rng(2).integers(0, N, 131),
    "one again and again": np.full(70, N - 1),
    "from the end": np.arange(-1, -40, -1),
    "one": np.array([7]),
    "none": np.array([], np.int64),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("item", [*ITEMS, "i8", "c16"])
def test_rows_are_gathered_as_numpy_does(cupy, item, rows):
    here = values((N, 3, 14, 20), item)
    there = cupy.asarray(here)
    for axes in AXES:
        found = permute.gather(there, ROWS[rows], axes)
        check(cupy, found, here[ROWS[rows]].transpose(axes))


FACTORS = {
    "one": ((), ()),
    "few": ((3, 1, 1), ()),
    "both few": ((3, 1, 1), (3, 1, 1)),
    "just few": ((), (1, 1, 64)),
    "many": ((3, 1, 64), ()),
    "both many": ((1, 9, 64), (3, 1, 1)),
    "of each item": ((3, 9, 64), (3, 9, 64)),
}


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("item", [*ITEMS, "i2", "i8", "f8"])
def test_gathered_rows_are_scaled_as_on_the_host(cupy, item, factors):
    rng, here = np.random.default_rng(3), values((N, 3, 9, 64), item)
    scale, shift = (rng.uniform(-2, 2, shape) for shape in FACTORS[factors])
    dtypes = [None] if item == "c8" else [None, "f4", "f2", "f8"]
    for dtype, axes in itertools.product(dtypes, AXES[::5]):
        for given in ({"scale": scale}, {"shift": shift}, {"scale": scale, "shift": shift}):
            there = permute.gather(cupy.asarray(here), ROWS["repeated"], axes, dtype=dtype, **given)
            wanted = permute.gather(here, ROWS["repeated"], axes, dtype=dtype, **given)
            check(cupy, there, wanted)


# ---------------------------------------------------------------- beyond 32 bits
ROW = (3, 64, 64)
ROW_ITEMS = 3 * 64 * 64
N_BIG = -(-((1 << 31) + (1 << 20)) // ROW_ITEMS)
EDGE = (1 << 31) // ROW_ITEMS
"""The row that 31 bits end in."""
PIECE = 1 << 27


def pattern(xp, start, stop):
    """Return numbers that tell where they stand, also from those 4 GiB away."""
    places = xp.arange(start, stop, dtype=np.uint64)
    return ((places * np.uint64(2654435761)) >> np.uint64(15)).astype(np.uint8)


@pytest.fixture(scope="module")
def big(cupy):
    free, _ = cupy.cuda.runtime.memGetInfo()
    if free < 12 << 30:
        pytest.skip("there is too little memory")
    made = cupy.empty(N_BIG * ROW_ITEMS, np.uint8)
    for start in range(0, made.size, PIECE):
        stop = min(start + PIECE, made.size)
        made[start:stop] = pattern(cupy, start, stop)
    yield made
    del made
    cupy.get_default_memory_pool().free_all_blocks()


def check_pieces(found, wanted):
    """Compare on the device, in pieces that 32 bits are enough for."""
    assert found.shape == wanted.shape
    step = max(1, PIECE * found.shape[0] // found.size)
    for start in range(0, found.shape[0], step):
        part = slice(start, start + step)
        assert bool((found[part] == wanted[part]).all()), part


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (1, 2, 3, 0), (3, 1, 0, 2), (0, 1, 3, 2)], ids=str)
def test_more_items_than_32_bits_count_move(cupy, big, axes):
    src = big.reshape(N_BIG, *ROW)
    found = permute.copy(src, axes)
    check_pieces(found, src.transpose(axes))
    cupy.get_default_memory_pool().free_all_blocks()


def test_a_matrix_of_more_items_than_32_bits_count_is_transposed(cupy, big):
    for src in (big.reshape(N_BIG, ROW_ITEMS), big.reshape(ROW_ITEMS, N_BIG)):
        found = permute.copy(src, (1, 0))
        assert found.flags.c_contiguous
        check_pieces(found, cupy.ascontiguousarray(src.T))
        del found


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_more_items_than_32_bits_count_are_scaled(cupy, big, dtype):
    src = big.reshape(N_BIG, *ROW)
    found = permute.copy(src, (0, 2, 3, 1), dtype=dtype, scale=0.25, shift=-1.0)
    for start in range(0, N_BIG, N_BIG // 20):
        part = slice(start, start + N_BIG // 20)
        wanted = src[part].transpose(0, 2, 3, 1).astype("f4") * np.float32(0.25) - np.float32(1)
        assert bool((found[part] == wanted.astype(dtype)).all()), part
    del found
    cupy.get_default_memory_pool().free_all_blocks()


def row_of(number):
    return pattern(np, number * ROW_ITEMS, (number + 1) * ROW_ITEMS).reshape(ROW)


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0)], ids=str)
def test_rows_beyond_32_bits_are_gathered(cupy, big, axes):
    src = big.reshape(N_BIG, *ROW)
    rows = [N_BIG - 1, 0, EDGE, EDGE + 1, N_BIG - 1, EDGE - 1, 5, *range(EDGE, N_BIG, 7)]
    here = np.stack([row_of(number) for number in rows])
    check(cupy, permute.gather(src, rows, axes), here.transpose(axes))
    scaled = {"dtype": "f4", "scale": 0.5, "shift": 1.0}
    check(cupy, permute.gather(src, rows, axes, **scaled), permute.copy(here, axes, **scaled))


def test_more_gathered_items_than_32_bits_count(cupy, big):
    src = big.reshape(N_BIG, *ROW)
    rows = np.random.default_rng(0).permutation(N_BIG)
    found, there = permute.gather(src, rows, (0, 2, 3, 1)), cupy.asarray(rows)
    for start in range(0, N_BIG, N_BIG // 20):
        part = slice(start, start + N_BIG // 20)
        assert bool((found[part] == src[there[part]].transpose(0, 2, 3, 1)).all()), part
    del found
    cupy.get_default_memory_pool().free_all_blocks()


# ---------------------------------------------------------------- xarray and dask
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("item", [*ITEMS, "i8", "f8", ">i2", ">u4", ">f4", ">f8", ">c8"])
def test_arrays_go_there_and_back(cupy, item, lazy):
    x = xr.DataArray(values((20, 3, 6, 10), item), dims=DIMS, coords={"batch": np.arange(20)})
    x = x.chunk(batch=7) if lazy else x
    there = x.labeled.to_device("cuda")
    assert there.labeled.device == "cuda:0"
    assert there.dtype == np.dtype(item).newbyteorder("=")
    assert isinstance(there.compute().data, cupy.ndarray)
    back = there.labeled.to_device("cpu")
    assert back.labeled.device == "cpu"
    xr.testing.assert_identical(back.compute(), x.compute().astype(there.dtype))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A file whose numbers lie the other way round."""
    path = tmp_path_factory.mktemp("data") / "big_endian.hdf5"
    with h5py.File(path, "w") as f:
        for name, item in (("features", ">f4"), ("depth", ">i2"), ("wide", ">f8")):
            f.create_dataset(name, data=values((300, 3, 6, 10), item))
            for axis, dim in enumerate(DIMS):
                f[name].dims[axis].label = dim
    return labeled.open_dataset(path, chunks={"batch": 64})


def test_big_endian_files_go_there(cupy, stored):
    for name in stored.sources:
        there = stored[name].labeled.to_device("cuda").compute()
        np.testing.assert_array_equal(cupy.asnumpy(there.data), stored[name].values)


@pytest.mark.parametrize("shuffle", [False, "window", "full"])
@pytest.mark.parametrize("kept", [False, True])
def test_batches_of_big_endian_files_are_those_of_the_host(cupy, stored, shuffle, kept):
    options = {"shuffle": shuffle, "seed": 1, "last": "pad", "dtype": {"depth": "float32"}}
    there, here = (stored.load(device=where) if kept else stored for where in ("cuda", "cpu"))
    held = list(there.batches(64, device="cuda", **options))
    for ours, theirs in zip(held, here.batches(64, **options), strict=True):
        for name in theirs:
            check(cupy, ours.arrays[name], np.asarray(theirs.arrays[name]))


WORK = {
    "sum": lambda x: x.sum("batch"),
    "sum of all": lambda x: x.sum(),
    "max": lambda x: x.max(("height", "width")),
    "mean": lambda x: x.astype("f4").mean("batch"),
    "std": lambda x: x.astype("f4").std(("batch", "channel")),
    "steps": lambda x: x[3::7].isel(channel=1),
    "rows": lambda x: x.isel(batch=[30, 1, 1, 2]),
    "mask": lambda x: x.isel(batch=np.arange(80) % 3 == 0),
    "where": lambda x: x.where(x > 3, x - x),  # CuPy takes no 0 of NumPy's from dask
    "moved": lambda x: x.transpose("channel", ..., "batch"),
    "joined": lambda x: xr.concat([x[:10], x[50:]], "batch"),
    "arithmetic": lambda x: (x.astype("f4") - 3) * 2,
    "vectors": lambda x: x.labeled.format_as(VectorSpace(180, dtype="float32")),
    "round trip": lambda x: x.labeled.format_as(TARGETS[-1]).labeled.undo_format_as(),
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("work", WORK)
def test_xarray_works_on_the_device(cupy, work, lazy):
    x = xr.DataArray(values((80, 3, 6, 10), "u1"), dims=DIMS)
    x = x.chunk(batch=16) if lazy else x
    found = WORK[work](x.labeled.to_device("cuda"))
    found = found.compute()
    assert found.labeled.device == "cuda:0"
    assert isinstance(found.data, cupy.ndarray)
    wanted = WORK[work](x).compute()
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.labeled.to_device("cpu"), wanted, rtol=1e-5, atol=1e-5)
