"""Permuting copies equal NumPy's own expression, whichever way they are made."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import warnings

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled import permute
from labeled.errors import ArrayError, DimsError, SelectionError, SelectionTypeError

DTYPES = ["u1", "i1", "u2", "i2", "f2", "f4", "f8", "i4", "i8", "?", "c8", "c16", ">f4", "g"]
NUMBERS = ["u1", "i1", "u2", "i2", "f2", "f4", "f8", "i4", "i8", "?"]
COMPILED = {"u1", "f4"}
"""Every pair of item types compiles kernels of its own: a few stand for all in random laws."""

LARGE = (4, 3, 160, 160)
"""Bytes enough to load the kernels."""

laws = settings(max_examples=25, deadline=None)


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def way(request, monkeypatch):
    """Run every law without and with the compiled kernels."""
    monkeypatch.setenv("LABELED_FAST", str(int(request.param == "compiled")))
    permute.forget()
    if request.param == "compiled":
        pytest.importorskip("numba", reason="the extra 'fast' is not installed")
        permute.copy(np.zeros(LARGE, "u1"), (1, 2, 3, 0))
        assert permute.describe() == "compiled kernels"
    yield request.param
    permute.forget()


def chosen(dtypes):
    """Return the dtypes to draw from: all of them where nothing is compiled."""
    return [d for d in dtypes if not permute.available() or d in COMPILED]


def guarded(shape, dtype, start=0):
    """Return memory that nobody could take for a result, and where it must stay as it is."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = permute.empty((n_bytes + (1 << 20),), np.uint8)
    memory[...] = 0xA5
    a = 64 + start
    return memory[a : a + n_bytes].view(dtype).reshape(shape), (memory[:a], memory[a + n_bytes :])


def assert_untouched(guards):
    assert all((guard == 0xA5).all() for guard in guards)


@st.composite
def problems(draw, dtypes=DTYPES, max_rank=5):
    """Draw a source with any strides, and an order for it."""
    rank = draw(st.integers(0, max_rank))
    longest = (1, 30_000, 200, 40, 14, 8)[rank]
    shape = draw(st.lists(st.integers(0, longest), min_size=rank, max_size=rank))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1, -3]), min_size=rank, max_size=rank))
    memory = draw(st.permutations(range(rank)))
    values = np.random.default_rng(draw(st.integers(0, 99)))
    laid = values.integers(0, 100, [shape[a] * abs(gaps[a]) for a in memory])
    laid = np.asarray(laid, draw(st.sampled_from(chosen(dtypes))))
    whole = laid.transpose(np.argsort(memory)) if rank else laid
    src = whole[tuple(slice(None, None, gap) for gap in gaps)]
    assert src.shape == tuple(shape)
    return src, draw(st.permutations(range(rank)))


def drawn_rows(data, src):
    n_rows = src.shape[0]
    count = data.draw(st.integers(0, 70 if n_rows else 0))
    return np.random.default_rng(count).integers(-n_rows, max(n_rows, 1), count)


@given(problems(), st.booleans())
@laws
def test_a_pure_move_equals_the_transpose(problem, given_out):
    src, axes = problem
    native = src.dtype.newbyteorder("=")
    out, guards = guarded(src.transpose(axes).shape, native)

    result = permute.copy(src, axes, out=out if given_out else None)

    assert (result is out) == given_out
    assert result.dtype == native
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, src.transpose(axes))
    assert_untouched(guards)


@given(problems(max_rank=4), st.data())
@laws
def test_a_gather_equals_the_copy_of_the_chosen_rows(problem, data):
    src, axes = problem
    if src.ndim == 0:
        return
    rows = drawn_rows(data, src)
    expected = src[rows].transpose(axes)
    out, guards = guarded(expected.shape, src.dtype.newbyteorder("="))
    permute.gather(src, rows, axes, out=out)
    np.testing.assert_array_equal(out, expected)
    assert_untouched(guards)


def factors(draw, shape):
    """Draw None, a scalar, or one value a step along any of the axes of `shape`."""
    kind = draw(st.sampled_from(["none", "scalar", "axis", "full"]))
    if kind == "none":
        return None
    if kind == "scalar" or not shape:
        return draw(st.sampled_from([1 / 255, 2, -0.5]))
    keep = range(len(shape)) if kind == "full" else {draw(st.integers(0, len(shape) - 1))}
    lengths = [n if axis in keep else 1 for axis, n in enumerate(shape)]
    return np.random.default_rng(5).uniform(-2, 2, lengths).astype(draw(st.sampled_from("fd")))


def expression(src, axes, dtype, scale, shift):
    """Say the same thing in NumPy: two rounded steps in the documented precision."""
    wide = src.dtype in ("f8", "i8", "u8") or np.dtype(dtype) in ("f8", "i8", "i4")
    compute = np.float64 if wide else np.float32
    value = src if scale is None and shift is None else src.astype(compute)
    if scale is not None:
        value = value * np.asarray(scale, compute)
    if shift is not None:
        value = value + np.asarray(shift, compute)
    return value.transpose(axes).astype(dtype)


@given(problems(NUMBERS, max_rank=4), st.data())
@laws
def test_a_cast_and_scaled_copy_equals_the_expression(problem, data):
    src, axes = problem
    scale, shift = factors(data.draw, src.shape), factors(data.draw, src.shape)
    plain = scale is None and shift is None
    dtype = data.draw(st.sampled_from(chosen(DTYPES if plain else ["f2", "f4", "f8"])))

    result = permute.copy(src, axes, dtype=dtype, scale=scale, shift=shift)

    np.testing.assert_array_equal(result, expression(src, axes, dtype, scale, shift))
    assert result.dtype == np.dtype(dtype)


@given(problems(["u1", "i2", "f4"], max_rank=4), st.data())
@laws
def test_a_scaled_gather_equals_the_expression_of_the_chosen_rows(problem, data):
    src, axes = problem
    if src.ndim == 0:
        return
    rows = drawn_rows(data, src)
    scale, shift = (factors(data.draw, (len(rows), *src.shape[1:])) for _ in range(2))
    result = permute.gather(src, rows, axes, dtype="f4", scale=scale, shift=shift)
    np.testing.assert_array_equal(result, expression(src[rows], axes, "f4", scale, shift))


IMAGES = [(70, 3, 16, 20), (33, 2, 28, 28), (260, 1, 9, 7), (5, 7, 64, 65), (70, 4, 30, 27)]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [*itertools.product(IMAGES, ["u1", "f4"]), (IMAGES[0], "u2"), (IMAGES[0], "c8")],
    ids=str,
)
def test_images_of_awkward_sizes_in_every_order(shape, dtype):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    rows = np.random.default_rng(1).integers(0, shape[0], shape[0] + 13)
    for axes in itertools.permutations(range(4)):
        np.testing.assert_array_equal(permute.copy(src, axes), src.transpose(axes))
        gathered = permute.gather(src, rows, axes)
        np.testing.assert_array_equal(gathered, src[rows].transpose(axes))


@pytest.mark.parametrize("shape", IMAGES, ids=str)
@pytest.mark.parametrize("per", ["scalar", "channel", "row", "column", "place"])
def test_images_normalised_in_every_order(shape, per):
    src = np.random.default_rng(0).integers(0, 256, shape).astype("u1")
    kept = {"scalar": (), "channel": (1,), "row": (0,), "column": (3,), "place": (0, 1, 2, 3)}[per]
    lengths = [n if axis in kept else 1 for axis, n in enumerate(shape)]
    scale = np.random.default_rng(1).uniform(0.001, 2, lengths).astype("f4")
    for axes in itertools.permutations(range(4)):
        result = permute.copy(src, axes, scale=scale, shift=-scale)
        np.testing.assert_array_equal(result, expression(src, axes, "f4", scale, -scale))


only_compiled = pytest.mark.parametrize("way", ["compiled"], indirect=True)
"""NumPy's copies are those expected: it looks at no cache, and at no address."""


# ten million bytes and more are written; 34, with which scaled planes go past the caches, too
@pytest.mark.parametrize(
    ("item", "final", "n"), [("u1", "u1", 256), ("f4", "f4", 96), ("u1", "f4", 208)]
)
@pytest.mark.parametrize("start", [0, 16, 56])
@only_compiled
def test_large_copies_write_their_destination_and_nothing_else(item, final, n, start):
    """On two threads, past the caches where that is possible, and wherever they begin."""
    src = np.random.default_rng(start).integers(0, 256, (n, 3, 107, 128), "u1").astype(item)
    changes = {} if item == final else {"dtype": final, "scale": 0.5, "shift": 1}
    for axes in ((1, 2, 3, 0), (0, 2, 3, 1), (1, 0, 2, 3)):
        out, guards = guarded([src.shape[axis] for axis in axes], final, start)
        permute.copy(src, axes, out=out, threads=2, **changes)
        expected = expression(src, axes, final, changes.get("scale"), changes.get("shift"))
        np.testing.assert_array_equal(out, expected)
        assert_untouched(guards)


@pytest.mark.parametrize(("item", "shape"), [("u1", (3, 2101, 2112, 3)), ("f8", (1, 528, 2101, 4))])
@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (3, 0, 1, 2), (0, 2, 3, 1)])
@only_compiled
def test_planes_and_pixels_too_large_for_a_cache_go_where_they_belong(item, shape, axes):
    n, height, width, channels = shape
    shape = (n, channels, height, width) if axes == (0, 2, 3, 1) else shape
    src = np.random.default_rng(1).integers(0, 256, shape, "u1").astype(item)
    out, guards = guarded([shape[axis] for axis in axes], item, 0)
    permute.copy(src, axes, out=out)
    np.testing.assert_array_equal(out, src.transpose(axes))
    assert_untouched(guards)


@pytest.mark.parametrize("item", ["u1", "f4"])
@pytest.mark.parametrize(("n", "run"), [(230, 16_400), (95, 40_001), (1, 9_000_011)])
@pytest.mark.parametrize("start", [0, 16])
@only_compiled
def test_long_runs_go_where_they_belong_in_whole_and_in_parts(item, n, run, start):
    """Moved and scaled, by one number, by plane and by place; more than fits in the caches."""
    src = np.random.default_rng(2).integers(0, 256, (n, 3, run) if n > 1 else (1, 1, run))
    src = src.astype(item)
    for lengths, axes in ((None, (1, 0, 2)), ((), (0, 1, 2)), ((1,), (1, 0, 2)), ((2,), (1, 0, 2))):
        factor = None
        if lengths is not None:
            shape = [size if axis in lengths else 1 for axis, size in enumerate(src.shape)]
            factor = np.random.default_rng(3).uniform(0.5, 2, shape).astype("f4")
        final = item if factor is None else "f4"
        out, guards = guarded([src.shape[axis] for axis in axes], final, start)
        permute.copy(src, axes, out=out, threads=2, scale=factor)
        expected = src.transpose(axes)
        if factor is not None:
            expected = expression(src, axes, final, factor, None)
        np.testing.assert_array_equal(out, expected)
        assert_untouched(guards)


@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_matrices_and_runs_of_every_width_go_where_they_belong(dtype):
    rng = np.random.default_rng(1)
    for n in (*range(1, 40), 63, 64, 65, 127, 128, 129, 300):
        src = rng.integers(0, 256, (40, n, 5 + n * 7 % 145)).astype(dtype)
        for axes in ((0, 2, 1), (1, 0, 2)):
            out, guards = guarded([src.shape[axis] for axis in axes], dtype)
            permute.copy(src, axes, out=out)
            np.testing.assert_array_equal(out, src.transpose(axes))
            assert_untouched(guards)


AT_THE_END_OF_MEMORY = """
import ctypes, itertools, mmap, sys
import numpy as np
from labeled import permute

def last_bytes(array):
    pages = -(-array.nbytes // mmap.PAGESIZE) + 1
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    behind = (pages - 1) * mmap.PAGESIZE
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(first + behind), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    stored = np.frombuffer(memory, np.uint8, array.nbytes, behind - array.nbytes)
    stored = stored.view(array.dtype).reshape(array.shape)
    stored[...] = array
    return stored

for shape in ((64, 28, 28), (64, 3, 28, 28), (64, 31, 17), (8, 5, 300)):
    for dtype, changes in (("u1", {}), ("u1", {"scale": 0.5}), ("f4", {}), ("f8", {})):
        array = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        stored, rows = last_bytes(array), np.array([shape[0] - 1, 0, 3])
        for axes in itertools.permutations(range(len(shape))):
            expected = array * changes["scale"] if changes else array
            made = permute.copy(stored, axes, **changes)
            np.testing.assert_array_equal(made, expected.transpose(axes))
            made = permute.gather(stored, rows, axes, **changes)
            np.testing.assert_array_equal(made, expected[rows].transpose(axes))
"""


@only_compiled
def test_nothing_is_read_behind_the_end_of_an_array(way):
    """A page that nobody may read lies there, as behind a mapped file."""
    subprocess.run([sys.executable, "-c", AT_THE_END_OF_MEMORY], check=True)


def test_refusals():
    src = np.arange(12, dtype="i2").reshape(3, 4)
    own = np.zeros((3, 3), "i2")
    for _ in range(2):  # also where such a copy was made before
        permute.copy(src, (1, 0))
        for error, message, request in [
            (DimsError, r"each of 0 \.\. 1 exactly once", lambda: permute.copy(src, (0, 0))),
            (DimsError, "rank 2", lambda: permute.copy(src, (0, 1, 2))),
            (DimsError, "no rows", lambda: permute.gather(np.zeros(()), [], ())),
            (SelectionError, "row 3 is not in an array of 3 rows",
             lambda: permute.gather(src, [0, 3], (0, 1))),
            (SelectionError, "row 18446744073709551615 is not in",
             lambda: permute.gather(src, np.array([0, 2**64 - 1], "u8"), (0, 1))),
            (SelectionTypeError, r"np\.flatnonzero",
             lambda: permute.gather(src, np.ones(3, bool), (0, 1))),
            (ArrayError, r"scale of shape \(5,\) does not broadcast",
             lambda: permute.copy(src, (1, 0), scale=np.ones(5))),
            (ArrayError, "threads=0", lambda: permute.copy(src, (1, 0), threads=0)),
            (ArrayError, "cannot be scaled",
             lambda: permute.copy(np.zeros(3, "M8[s]"), (0,), scale=2)),
            (ArrayError, "out has shape",
             lambda: permute.copy(src, (1, 0), out=np.empty((3, 4), "i2"))),
            (ArrayError, "dtype >i2",
             lambda: permute.copy(src, (1, 0), out=np.empty((4, 3), ">i2"))),
            (ArrayError, "not a writable C-contiguous",
             lambda: permute.copy(src, (1, 0), out=np.empty((3, 4), "i2").T)),
            (ArrayError, "shares memory", lambda: permute.copy(own, (1, 0), out=own)),
            (ArrayError, "shares memory",
             lambda: permute.copy(own[:2], (0, 1), out=own.reshape(9)[3:].reshape(2, 3))),
        ]:  # fmt: skip
            with pytest.raises(error, match=message):
                request()
    memory = np.zeros(200, "u1")
    permute.copy(memory[:100].reshape(10, 10), (1, 0), out=memory[100:].reshape(10, 10))


def test_results_are_native_floats_that_hold_scaled_integers():
    for item, final in (("u1", "f4"), ("i8", "f8"), ("f2", "f2"), ("c8", "c8")):
        assert permute.copy(np.ones((2, 2), item), (1, 0), scale=2).dtype == final
    big = np.arange(105).reshape(3, 5, 7).astype(">c8")
    assert permute.copy(big, (1, 2, 0)).dtype == np.dtype("c8")
    kept = permute.copy(big, (1, 2, 0), dtype=">c8")
    assert kept.dtype == np.dtype(">c8")
    np.testing.assert_array_equal(kept, big.transpose(1, 2, 0))


def test_negative_zero_survives_a_cast():
    src = np.full((100, 100), -0.0, np.float32)
    assert np.signbit(permute.copy(src, (1, 0), dtype="f8")).all()
    assert np.signbit(permute.copy(src, (1, 0), scale=2)).all()
    assert not np.signbit(permute.copy(src, (1, 0), shift=0.0)).any()


def test_shapes_are_remembered_and_nothing_else():
    """Not the dtype, the place or the values of an array, its rows or its factors."""
    rng = np.random.default_rng(0)
    for _ in range(2):
        for dtype in ("i8", "m8[s]", "M8[us]", ">i8", "f8"):
            values = rng.integers(-(2**52), 2**52, (64, 3, 16, 16)).astype("i8").view(dtype)
            rows = rng.permutation(64)
            for axes in ((0, 1, 2, 3), (1, 2, 3, 0), (0, 2, 3, 1), (2, 0, 1, 3)):
                found = permute.gather(values, rows, axes)
                np.testing.assert_array_equal(found, values[rows].transpose(axes))
        src = rng.uniform(size=(64, 3, 16, 16)).astype("f4")
        for factor in (rng.uniform(size=(3, 1, 1)).astype("f4") for _ in range(3)):
            found = permute.copy(src, (1, 2, 3, 0), scale=factor)
            np.testing.assert_array_equal(found, (src * factor).transpose(1, 2, 3, 0))


@given(problems(["u1", "f4", "f8", "i8"], max_rank=3), st.data())
@laws
def test_another_array_library_gives_the_same(problem, data):
    src, axes = problem
    scale, shift = factors(data.draw, src.shape), factors(data.draw, src.shape)
    dtype = data.draw(st.sampled_from([None, "float32", "float64"]))
    theirs = array_api_strict.asarray(src.copy())
    asked = None if dtype is None else getattr(array_api_strict, dtype)
    result = permute.copy(theirs, axes, dtype=asked, scale=scale, shift=shift)
    expected = permute.copy(src, axes, dtype=dtype, scale=scale, shift=shift)
    assert isinstance(result, type(theirs))
    np.testing.assert_array_equal(np.asarray(result), expected)
    if src.ndim:
        rows = drawn_rows(data, src)
        gathered = permute.gather(theirs, rows, axes)
        np.testing.assert_array_equal(np.asarray(gathered), src[rows].transpose(axes))


def test_rows_kept_in_memory_are_the_same_with_and_without_compiled_loops(tmp_path, way):
    """Of an array larger than the caches rows are picked, and scattered, by loops of their own."""
    path = tmp_path / "rows.hdf5"
    if way == "numpy":
        pytest.skip("this compares both")
    values = np.random.default_rng(0).integers(0, 256, (90_000, 1024), dtype=np.uint8)
    labeled.write(path, {"x": values})
    for options in ({"shuffle": True}, {"shuffle": "window", "memory": "32 MiB"}):
        with labeled.open_dataset(path) as ds:
            loader = ds.batches(batch_size=4096, seed=3, **options)
            for batch, rows, count in loader.with_rows():
                np.testing.assert_array_equal(batch["x"][:count], values[rows[:count]])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_copies_on_threads_of_its_own(way):
    src = np.zeros((256, 3, 107, 128), np.uint8)
    src[7, 1] = 3
    permute.copy(src, (1, 2, 3, 0), threads=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point
        child = os.fork()
    if child == 0:
        done = permute.copy(src, (1, 2, 3, 0), threads=2)
        alone = way != "numpy" and threading.active_count() == 1  # NumPy has one thread anyway
        os._exit(0 if not alone and (done == src.transpose(1, 2, 3, 0)).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_where_compiled_kernels_are_not_to_be_had_the_same_copies_are_made(monkeypatch, way):
    src = np.random.default_rng(0).integers(0, 256, LARGE, dtype=np.uint8)
    if way == "numpy":
        assert "LABELED_FAST=0" in permute.describe()
        monkeypatch.setenv("LABELED_FAST", "1")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        permute.forget()
    else:
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
        permute.forget()
        assert "NUMBA_DISABLE_JIT" in permute.describe()
        assert not permute.available()
    np.testing.assert_array_equal(permute.copy(src, (1, 2, 3, 0)), src.transpose(1, 2, 3, 0))


ALONE = """
import resource, signal, sys
import numpy as np
from labeled import permute
small = np.arange(16 * 3 * 16 * 16, dtype="u1").reshape(16, 3, 16, 16)
permute.copy(small, (1, 2, 3, 0)), permute.gather(small, [1, 2], (1, 2, 3, 0), scale=2)
print("numba" in sys.modules)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
large = np.tile(small, (8, 1, 2, 2))
print((permute.copy(large, (1, 2, 3, 0)) == large.transpose(1, 2, 3, 0)).all())
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits what a process may write")
def test_small_copies_do_not_import_numba_and_a_full_disk_does_not_end_a_large_one(tmp_path, way):
    if way == "numpy":
        pytest.skip("nothing is compiled")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept"), "LABELED_FAST": "1"}
    command = [sys.executable, "-c", ALONE]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("False\nTrue\n", 0), ran.stderr
