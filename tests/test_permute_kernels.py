"""Which way a copy takes, what it may touch, and how threads share it."""

from __future__ import annotations

import importlib.util
import os
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled import permute
from labeled.errors import ArrayError
from labeled.permute import blocked, compiled, compiler, layout, workers
from labeled.permute.plan import Request, plan

IMAGES = (64, 3, 32, 32)


def planned(shape, axes, dtype="u1", **given):
    """Plan a copy of a C-contiguous array."""
    src = np.zeros(shape, dtype)
    lengths = {name: given.get(name) for name in ("scale_shape", "shift_shape", "n_rows")}
    return plan(Request(src.shape, src.strides, src.dtype, axes, given.get("final"), **lengths))


@pytest.fixture(autouse=True)
def nothing_known():
    """Decide anew in each test how shapes are copied."""
    permute.forget()
    yield
    permute.forget()


@pytest.fixture
def kernels(monkeypatch):
    """Use the compiled kernels for copies of any size."""
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    monkeypatch.setenv(compiled.SWITCH, "1")
    for name in ("LOAD_BYTES", "USE_BYTES"):
        monkeypatch.setattr(compiled, name, 0)


@pytest.mark.parametrize(
    ("shape", "axes", "kernel", "lengths"),
    [
        (IMAGES, (1, 2, 3, 0), "tiles", (3072, 64)),
        (IMAGES, (0, 2, 3, 1), "weaves", (64, 1024, 3)),
        ((64, 32, 32, 3), (0, 3, 1, 2), "unweaves", (64, 3, 1024)),
        ((64, 16, 7, 5), (3, 0, 2, 1), "tiles", (5, 64, 7, 16)),
    ],
)
def test_each_order_has_its_kernel(shape, axes, kernel, lengths):
    found = planned(shape, axes)
    assert found.cut is not None
    assert (found.cut.kernel, found.lengths) == (kernel, lengths)


def test_gathered_rows_stay_an_axis_of_their_own():
    found = planned(IMAGES, (0, 1, 2, 3), n_rows=5)
    assert found.lengths == (5, 3072)
    assert found.axis == 0


def test_factors_along_a_short_last_axis_are_repeated():
    """Pixels normalised in place would be runs of three items."""
    found = planned((8, 32, 32, 3), (0, 1, 2, 3), final="f4", scale_shape=(3,))
    assert found.repeat * 3 == found.lengths[-1]
    assert found.lengths[-1] > 100


def test_what_no_kernel_knows_has_none():
    assert planned(IMAGES, (1, 2, 3, 0), "c16").cut is None
    assert planned(IMAGES, (1, 2, 3, 0), "f2", final="f4").cut is None
    assert planned(IMAGES, (1, 2, 3, 0), "f4", final="u1").cut is None


@pytest.mark.parametrize("axes", [(1, 2, 3, 0), (0, 2, 3, 1), (2, 0, 1, 3), (3, 1, 2, 0)])
@pytest.mark.parametrize("final", [np.uint8, np.float32])
@pytest.mark.parametrize("stream_bytes", [0, 1 << 60])
def test_a_kernel_writes_its_destination_and_nothing_else(
    kernels, monkeypatch, axes, final, stream_bytes
):
    monkeypatch.setattr(compiled, "STREAM_BYTES", stream_bytes)
    monkeypatch.setattr(compiled, "STREAM_RUN_BYTES", stream_bytes)
    src = np.random.default_rng(0).integers(0, 256, (37, 3, 16, 19)).astype(np.uint8)
    expected = src.transpose(axes).astype(final)
    if final == np.uint8 and axes[-1] == 3:
        pytest.skip("runs that only move are left to NumPy")
    for start in (0, 1, 13, 60):
        memory = np.full(expected.size + 200, 77, final)
        out = memory[start : start + expected.size].reshape(expected.shape)

        found = plan(Request(src.shape, src.strides, src.dtype, axes, final, None, None, None))
        assert compiled.run(found, out, src, None, None, None, threads=1)

        np.testing.assert_array_equal(out, expected)
        assert (memory[:start] == 77).all()
        assert (memory[start + expected.size :] == 77).all()


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
def test_matrices_of_every_width_are_transposed(kernels, dtype):
    rng = np.random.default_rng(1)
    for n in range(5, 150):
        src = rng.integers(0, 256, (3, n, 5 + n * 7 % 145)).astype(dtype)
        memory = np.full(src.size + 2 * 64, 77, dtype)
        out = memory[64:-64].reshape(3, *src.shape[:0:-1])
        permute.copy(src, (0, 2, 1), out=out)
        np.testing.assert_array_equal(out, src.transpose(0, 2, 1), err_msg=str(src.shape))
        assert (np.delete(memory, np.s_[64:-64]) == 77).all(), src.shape


def test_small_matrices_are_left_to_numpy():
    assert planned((100, 8, 8), (0, 2, 1)).cut is None
    assert planned((100, 16, 16), (0, 2, 1)).cut.kernel == "tiles"
    assert planned((100, 8, 8), (0, 2, 1), scale_shape=()).cut.kernel == "tiles"


def test_runs_that_only_move_are_left_to_numpy():
    for axes in ((0, 1, 2, 3), (1, 0, 2, 3), (2, 0, 1, 3)):
        found = planned((256, 3, 224, 224), axes, "f4")
        assert found.cut is None
        assert compiled.left_to_numpy(found)
        assert planned((256, 3, 224, 224), axes, "u1", final="f4").cut.kernel == "runs"


@pytest.mark.parametrize("run", [*range(1, 40), 63, 64, 65, 112, 127, 128, 129, 300])
def test_runs_of_every_length_go_where_they_belong(kernels, run):
    src = np.random.default_rng(run).integers(0, 256, (61, 2, 5, run)).astype(np.uint8)
    for axes in ((1, 2, 0, 3), (2, 1, 0, 3), (2, 0, 1, 3)):
        memory = np.full(src.size + 256, 77, np.float32)
        out = memory[64:-192].reshape([src.shape[axis] for axis in axes])
        for threads in (1, 2):
            out[...] = 77
            permute.copy(src, axes, out=out, dtype="f4", threads=threads)
            np.testing.assert_array_equal(out, src.transpose(axes))
        assert (memory[:64] == 77).all()
        assert (memory[-192:] == 77).all()


@pytest.mark.parametrize("axes", [(1, 2, 0, 3), (2, 1, 0, 3), (2, 0, 1, 3), (1, 0, 2, 3)])
@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (1, 1, 5, 1), (1, 1, 1, 6), (50, 1, 1, 1)])
def test_factors_follow_runs(kernels, axes, shape):
    src = np.random.default_rng(1).integers(0, 256, (70, 2, 5, 6)).astype(np.uint8)
    scale = np.random.default_rng(2).uniform(0.5, 2, shape).astype("f4")
    rows = np.random.default_rng(3).integers(-70, 70, 50)
    found = permute.gather(src, rows, axes, dtype="f4", scale=scale, shift=-scale)
    expected = (src[rows].astype("f4") * scale - scale).transpose(axes)
    np.testing.assert_array_equal(found, expected)


def test_gathered_rows_of_any_size_are_remembered_apart():
    """Plans of whole rows are remembered by their number; other calls must not find them."""
    src = np.random.default_rng(0).integers(0, 256, (40, 1, 28, 28)).astype(np.uint8)
    for rows in ([3, 1, 1], [0], list(range(40)), [3, 1, 2], []):
        for axes in ((0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0), (2, 1, 0, 3)):
            for _ in range(2):
                found = permute.gather(src, rows, axes)
                expected = src[np.array(rows, int)].transpose(axes)
                np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="threads=0"):
        permute.gather(src, [3, 1, 1], (0, 1, 2, 3), threads=0)
    with pytest.raises(ValueError, match="out has shape"):
        permute.gather(src, [3, 1, 1], (0, 1, 2, 3), out=np.empty((2, 1, 28, 28), np.uint8))


def test_a_gather_of_tiles_makes_no_temporary(kernels, monkeypatch):
    monkeypatch.setattr(
        blocked, "run", lambda job, threads=1: pytest.fail("the blocked way was taken")
    )
    src = np.random.default_rng(0).integers(0, 256, IMAGES).astype(np.uint8)
    rows = np.array([5, 5, -1, 0])
    result = permute.gather(src, rows, (1, 2, 3, 0), dtype="f4", scale=np.float32(0.5))
    np.testing.assert_array_equal(result, src[rows].transpose(1, 2, 3, 0) * np.float32(0.5))


def test_negative_zero_survives_a_cast(kernels):
    src = np.full((64, 64), -0.0, np.float32)
    assert np.signbit(permute.copy(src, (1, 0), dtype="f8")).all()
    assert np.signbit(permute.copy(src, (1, 0), scale=2)).all()


def test_a_small_copy_does_not_import_the_kernels(monkeypatch):
    monkeypatch.setattr(compiled, "_kernels", None)
    monkeypatch.setattr(compiled, "_loaded", lambda: pytest.fail("the kernels were imported"))
    src = np.zeros((16, 3, 16, 16), np.uint8)
    permute.copy(src, (1, 2, 3, 0))
    permute.gather(src, [1, 2], (1, 2, 3, 0), scale=2)
    with pytest.raises(pytest.fail.Exception, match="were imported"):
        permute.copy(np.zeros((256, 3, 32, 32), np.uint8), (1, 2, 3, 0))


def test_without_numba_the_same_copies_are_made(monkeypatch):
    monkeypatch.setenv(compiled.SWITCH, "1")
    monkeypatch.setattr(compiled, "_kernels", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    src = np.random.default_rng(0).integers(0, 256, (256, 3, 32, 32)).astype(np.uint8)
    assert not permute.available()
    assert "pip install numba" in permute.describe()
    np.testing.assert_array_equal(permute.copy(src, (1, 2, 3, 0)), src.transpose(1, 2, 3, 0))


def test_numba_is_looked_for_once(monkeypatch):
    """Finding it takes longer than a small copy, and kernels are loaded for large ones only."""
    find, asked = importlib.util.find_spec, []
    monkeypatch.setenv(compiled.SWITCH, "1")
    monkeypatch.setattr(compiled, "_kernels", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: asked.append(name) or find(name))
    src = np.zeros((3, 96, 96), np.uint8)
    for _ in range(3):
        permute.copy(src[..., ::-1], (0, 1, 2), dtype=np.uint8)
        permute.available()
    assert asked == ["numba"]


@pytest.mark.parametrize("loaded", [False, True])
def test_where_numba_is_disabled_nothing_asks_it(monkeypatch, loaded):
    """Loops made of instructions fail there, and the others would take for ever."""
    monkeypatch.setenv(compiled.SWITCH, "1")
    if loaded:
        permute.copy(np.zeros((64, 3, 64, 64), np.float32), (1, 2, 3, 0))
    monkeypatch.setenv(compiler.OFF, "1")
    monkeypatch.setattr(compiled, "_loaded", lambda: pytest.fail("the kernels were asked"))
    assert not any((permute.available(), compiler.installed(), compiler.loaded()))
    assert compiler.OFF in permute.describe()
    src = np.random.default_rng(0).integers(0, 256, (256, 3, 32, 32)).astype(np.uint8)
    np.testing.assert_array_equal(permute.copy(src, (1, 2, 3, 0)), src.transpose(1, 2, 3, 0))


def test_a_numba_that_does_not_load_is_reported_and_left_alone(monkeypatch):
    monkeypatch.setenv(compiled.SWITCH, "1")
    monkeypatch.setattr(compiled, "_kernels", None)
    monkeypatch.setattr(compiled, "_failed", "")

    def refuse(name):
        raise ImportError("needs an older NumPy")

    monkeypatch.setattr(importlib, "import_module", refuse)
    src = np.random.default_rng(0).integers(0, 256, (256, 3, 32, 32)).astype(np.uint8)
    np.testing.assert_array_equal(permute.copy(src, (1, 2, 3, 0)), src.transpose(1, 2, 3, 0))
    assert "needs an older NumPy" in permute.describe()
    assert not permute.available()


def test_the_switch_turns_the_kernels_off(monkeypatch):
    monkeypatch.setenv(compiled.SWITCH, "0")
    assert not permute.available()
    assert "LABELED_FAST=0" in permute.describe()


@given(st.integers(0, 200), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_every_unit_is_worked_on_once(n_units, threads):
    claimed: list[tuple[int, int]] = []
    workers.share(lambda first, last: claimed.append((first, last)), n_units, threads)
    seen = sorted(unit for first, last in claimed for unit in range(first, last))
    assert seen == list(range(n_units))


def test_one_thread_never_starts_another(kernels, monkeypatch):
    monkeypatch.setattr(workers, "_helpers", lambda: pytest.fail("a thread was started"))
    monkeypatch.setattr(compiled, "SHARE_BYTES", 8192)
    src = np.zeros(IMAGES, np.uint8)
    permute.copy(src, (1, 2, 3, 0), threads=1)
    with pytest.raises(pytest.fail.Exception, match="was started"):
        permute.copy(src, (1, 2, 3, 0), threads=2)


def test_an_error_of_a_helper_reaches_the_caller():
    caller = threading.get_ident()
    helped = threading.Event()

    def work(first, last):
        if threading.get_ident() != caller:
            helped.set()
            raise ValueError("from a helper")
        helped.wait(5)

    with pytest.raises(ValueError, match="from a helper"):
        workers.share(work, 100, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_starts_threads_of_its_own():
    workers.share(lambda first, last: None, 10, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point
        child = os.fork()
    if child == 0:
        done: list[int] = []
        workers.share(lambda first, last: done.extend(range(first, last)), 10, 2)
        os._exit(0 if sorted(done) == list(range(10)) else 1)
    assert os.waitpid(child, 0)[1] == 0


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.data(),
)
@settings(max_examples=50, deadline=None)
def test_tiles_cover_an_index_space_once(shape, data):
    tile = [data.draw(st.integers(1, n + 1)) for n in shape]
    seen = np.zeros(shape, int)
    for block in layout.tiles(shape, tile):
        seen[block] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(
    ("item", "final"), [("u1", "u1"), ("u2", "u2"), ("f4", "f4"), ("f8", "f8"), ("u1", "f4")]
)
@pytest.mark.parametrize("start", [0, 16, 56])
def test_a_destination_begins_anywhere_in_memory(kernels, monkeypatch, item, final, start):
    monkeypatch.setattr(compiled, "STREAM_BYTES", 0)
    src = np.random.default_rng(start).integers(0, 256, (3, 128, 577)).astype(item)
    rows = np.random.default_rng(1).integers(0, 3, 2)
    given = {} if item == final else {"dtype": final, "scale": 0.5, "shift": 1}
    for chosen in (np.arange(3), rows):
        expected = src[chosen].transpose(0, 2, 1).astype(final)
        expected = expected * np.float32(0.5) + np.float32(1) if given else expected
        memory = permute.empty((expected.nbytes + (1 << 20),), np.uint8)
        memory[...] = 77
        inner = memory[64 + start : 64 + start + expected.nbytes]
        out = inner.view(final).reshape(expected.shape)
        permute.gather(src, chosen, (0, 2, 1), out=out, threads=1, **given)
        np.testing.assert_array_equal(out, expected)
        inner[...] = 77
        assert (memory == 77).all()


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (1, 2, 3, 0), (0, 2, 3, 1), (2, 0, 1, 3)])
def test_a_copy_known_from_before_is_made_of_what_is_there_now(kernels, axes):
    """Shapes are remembered, nothing else: not the dtype, the place or the values of an array."""
    values = np.random.default_rng(0).integers(-(2**62), 2**62, IMAGES)
    shape = tuple(IMAGES[axis] for axis in axes)
    memory = permute.empty((values.nbytes + 64,), np.uint8)
    rows = np.random.default_rng(1).permutation(len(values))
    for _ in range(2):
        for dtype in ("i8", "m8[s]", "u8", "M8[us]", ">i8"):
            src = values.astype("i8").view(dtype)
            src.flags.writeable = dtype != "u8"
            for place in (0, 8):
                out = memory[place : place + values.nbytes].view(src.dtype.newbyteorder("="))
                out = out.reshape(shape)
                for result, expected in (
                    (permute.copy(src, axes, out=out), src),
                    (permute.gather(src, rows, axes), src[rows]),
                ):
                    assert result.dtype == src.dtype.newbyteorder("=")
                    np.testing.assert_array_equal(result, expected.transpose(axes))
        values = values[::-1].copy()
    permute.copy(values, axes)
    readable = np.zeros(shape, "i8")
    readable.flags.writeable = False
    with pytest.raises(ArrayError, match="not a writable C-contiguous"):
        permute.copy(values, axes, out=readable)
    with pytest.raises(ArrayError, match="the result has shape"):
        permute.copy(values, axes, out=np.zeros((*shape, 1), "i8"))


def test_factors_known_from_before_are_distinguished_from_others_like_them(kernels):
    src = np.zeros(IMAGES, np.float32)
    src[0] = -0.0
    axes = (1, 2, 3, 0)
    scale = np.float32([1, 2, 3]).reshape(3, 1, 1)
    for _ in range(2):
        for shift in (0.0, -0.0, np.float32(-0.0), 0, 1.5):
            found = permute.copy(src, axes, shift=shift)
            expected = (src + np.float32(shift)).transpose(axes)
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
        for factor in (scale, scale[::-1], np.full((1, 1, 1, 1), 7, "f4")):
            found = permute.copy(src, axes, scale=factor, shift=1 + scale)
            np.testing.assert_array_equal(found, (src * factor + (1 + scale)).transpose(axes))
        scale += 1
