"""The laws of permuting copies, for every way of making them: equal to NumPy's own expression."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled import permute
from labeled.errors import ArrayError, DimsError, SelectionError, SelectionTypeError
from labeled.permute import blocked, compiled, layout

DTYPES = ["u1", "i1", "u2", "i2", "f2", "f4", "f8", "i4", "i8", "?", "c8", "c16", ">f4", "g"]
NUMBERS = ["u1", "i1", "u2", "i2", "f2", "f4", "f8", "i4", "i8", "?"]
COMPILED = {"u1", "f4"}
"""Every pair of item types compiles kernels of its own: a few stand for all in random laws."""

laws = settings(max_examples=60, deadline=None)


SMALL_TILES = {
    "TILE_BYTES": 512, "NEAR_BYTES": 64, "TILE_RUN": 32, "FAST_RUN": 16, "CAST_ITEMS": 60,
}  # fmt: skip


@pytest.fixture(autouse=True, params=["blocked", "tiles", "compiled"])
def way(request, monkeypatch):
    """Run every law without and with the compiled kernels, on arrays of any size."""
    if request.param == "compiled":
        pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    if request.param == "tiles":
        for name, value in SMALL_TILES.items():
            monkeypatch.setattr(layout, name, value)
    monkeypatch.setenv("LABELED_FAST", str(int(request.param == "compiled")))
    monkeypatch.setattr(compiled, "LOAD_BYTES", 0)
    monkeypatch.setattr(compiled, "USE_BYTES", 0)
    monkeypatch.setattr(compiled, "LONG_RUN_BYTES", 512)
    monkeypatch.setattr(compiled, "STREAM_BYTES", 4096)
    monkeypatch.setattr(compiled, "STREAM_RUN_BYTES", 4096)
    monkeypatch.setattr(compiled, "SHARE_BYTES", 8192)
    monkeypatch.setattr(blocked, "SMALL_BYTES", 0)
    permute.forget()
    yield
    permute.forget()


def chosen(dtypes):
    """Return the dtypes to draw from: all of them where nothing is compiled."""
    return [d for d in dtypes if not compiled.available() or d in COMPILED]


def random_array(shape, dtype, seed):
    """Return values of `dtype` that survive every cast made here."""
    values = np.random.default_rng(seed).integers(0, 100, shape)
    return values.astype(dtype)


def poisoned(shape, dtype):
    """Return memory that nobody could take for a result."""
    out = np.empty(shape, dtype)
    memory = out.reshape(-1).view(np.uint8)
    memory[:] = 0xA5
    return out


@st.composite
def problems(draw, dtypes=DTYPES, max_rank=6):
    """Draw a source with any strides, and an order for it."""
    rank = draw(st.integers(0, max_rank))
    longest = 80 if rank <= 2 else 40 if rank == 3 else 9 if rank == 4 else 5
    shape = draw(st.lists(st.integers(0, longest), min_size=rank, max_size=rank))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1, -3]), min_size=rank, max_size=rank))
    memory = draw(st.permutations(range(rank)))
    seed = draw(st.integers(0, 2**16))
    laid = random_array(
        [shape[a] * abs(gaps[a]) for a in memory], draw(st.sampled_from(chosen(dtypes))), seed
    )
    whole = laid.transpose(np.argsort(memory)) if rank else laid
    src = whole[tuple(slice(None, None, gap) for gap in gaps)]
    assert src.shape == tuple(shape)
    return src, draw(st.permutations(range(rank)))


@given(problems(), st.booleans(), st.sampled_from([None, 1, 2]))
@laws
def test_a_pure_move_equals_the_transpose(problem, given_out, threads):
    src, axes = problem
    expected = np.ascontiguousarray(src.transpose(axes)).reshape(src.transpose(axes).shape)
    native = src.dtype.newbyteorder("=")
    out = poisoned(expected.shape, native) if given_out else None

    result = permute.copy(src, axes, out=out, threads=threads)

    assert result.dtype == native
    assert result.flags.c_contiguous
    assert out is None or result is out
    np.testing.assert_array_equal(result, expected)
    assert not np.shares_memory(result, src) or src.size == 0


@given(problems(max_rank=4), st.data())
@laws
def test_a_gather_equals_the_copy_of_the_chosen_rows(problem, data):
    src, axes = problem
    if src.ndim == 0:
        return
    n_rows = src.shape[0]
    row = st.integers(-n_rows, n_rows - 1) if n_rows else st.nothing()
    rows = data.draw(st.lists(row, max_size=70) if n_rows else st.just([]))
    expected = src[np.asarray(rows, np.int64)].transpose(axes)
    out = poisoned(expected.shape, src.dtype.newbyteorder("="))

    permute.gather(src, rows, axes, out=out, threads=data.draw(st.sampled_from([1, 2])))

    np.testing.assert_array_equal(out, expected)


@given(problems(NUMBERS), st.data())
@laws
def test_a_plain_cast_equals_astype(problem, data):
    src, axes = problem
    dtype = data.draw(st.sampled_from(chosen(DTYPES)))
    result = permute.copy(src, axes, dtype=dtype)
    np.testing.assert_array_equal(result, src.transpose(axes).astype(dtype))
    assert result.dtype == np.dtype(dtype)


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
    value = src.astype(compute)
    if scale is not None:
        value = value * np.asarray(scale, compute)
    if shift is not None:
        value = value + np.asarray(shift, compute)
    return value.transpose(axes).astype(dtype)


@given(
    problems(NUMBERS, max_rank=4),
    st.data(),
)
@laws
def test_a_scaled_copy_equals_the_expression(problem, data):
    src, axes = problem
    dtype = data.draw(st.sampled_from(chosen(["f2", "f4", "f8"])))
    scale, shift = factors(data.draw, src.shape), factors(data.draw, src.shape)

    result = permute.copy(src, axes, dtype=dtype, scale=scale, shift=shift)

    expected = expression(src, axes, dtype, scale, shift)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == np.dtype(dtype)


@given(problems(["u1", "i2", "f4"], max_rank=4), st.data())
@laws
def test_a_scaled_gather_equals_the_expression_of_the_chosen_rows(problem, data):
    src, axes = problem
    if src.ndim == 0 or src.shape[0] == 0:
        return
    rows = data.draw(st.lists(st.integers(0, src.shape[0] - 1), max_size=40))
    taken = src[np.asarray(rows, np.int64)]
    scale, shift = factors(data.draw, taken.shape), factors(data.draw, taken.shape)

    result = permute.gather(src, rows, axes, dtype="f4", scale=scale, shift=shift)

    np.testing.assert_array_equal(result, expression(taken, axes, "f4", scale, shift))


IMAGES = [
    (70, 3, 16, 20),
    (33, 3, 28, 28),
    (260, 1, 9, 7),
    (5, 7, 64, 65),
    (600, 600),
    (4, 3, 90, 70),
]
ORDERS = [(1, 2, 3, 0), (0, 2, 3, 1), (3, 2, 1, 0), (0, 3, 2, 1), (2, 0, 1, 3), (1, 0, 2, 3)]


@pytest.mark.parametrize("shape", IMAGES, ids=str)
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "c8"])
def test_images_of_awkward_sizes_in_every_kind_of_order(shape, dtype):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    rows = np.random.default_rng(1).integers(0, shape[0], shape[0] + 13)
    one = rows[:1]
    for axes in ORDERS if len(shape) == 4 else [(1, 0), (0, 1)]:
        for threads in (1, 2):
            out = poisoned([shape[a] for a in axes], dtype)
            np.testing.assert_array_equal(
                permute.copy(src, axes, out=out, threads=threads), src.transpose(axes)
            )
            np.testing.assert_array_equal(
                permute.gather(src, rows, axes, threads=threads), src[rows].transpose(axes)
            )
            np.testing.assert_array_equal(
                permute.gather(src, one, axes, threads=threads), src[one].transpose(axes)
            )


@pytest.mark.parametrize("shape", IMAGES[:4], ids=str)
@pytest.mark.parametrize("per", ["scalar", "channel", "row"])
def test_images_normalised_in_every_kind_of_order(shape, per):
    src = np.random.default_rng(0).integers(0, 256, shape).astype("u1")
    lengths = {"scalar": (), "channel": (shape[1], 1, 1), "row": (shape[0], 1, 1, 1)}[per]
    scale = np.random.default_rng(1).uniform(0.001, 2, lengths)
    shift = np.random.default_rng(2).uniform(-2, 2, lengths)
    for axes in ORDERS:
        result = permute.copy(src, axes, scale=scale, shift=shift)
        np.testing.assert_array_equal(result, expression(src, axes, "f4", scale, shift))


def test_a_destination_that_overlaps_is_refused():
    memory = np.zeros(200, "u1")
    with pytest.raises(ArrayError, match="shares memory"):
        permute.copy(memory[:100].reshape(10, 10), (1, 0), out=memory[50:150].reshape(10, 10))
    permute.copy(memory[:100].reshape(10, 10), (1, 0), out=memory[100:].reshape(10, 10))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((3, 2), "f4"), r"out has shape \(3, 2\) and dtype float32.*dtype uint8"),
        (np.empty((2, 3), "u1"), r"result has shape \(3, 2\)"),
        (np.empty((2, 3), "u1").T, "not a writable C-contiguous"),
        ([0], "out has shape"),
    ],
)
def test_a_destination_that_does_not_fit_is_refused(out, message):
    with pytest.raises(ArrayError, match=message):
        permute.copy(np.zeros((2, 3), "u1"), (1, 0), out=out)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_a_plain_copy_is_checked_at_every_call(axes):
    """Copies left to NumPy are remembered, or seen at once to be whole; the rules stay."""
    src = np.arange(12, dtype="i2").reshape(3, 4)
    src.flags.writeable = False
    shape = tuple(src.shape[axis] for axis in axes)
    for _ in range(3):
        result = permute.copy(src, list(axes))
        np.testing.assert_array_equal(result, src.transpose(axes))
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert permute.copy(src.astype(">i2"), axes).dtype == np.dtype("i2")
        with pytest.raises(ArrayError, match="out has shape"):
            permute.copy(src, axes, out=np.empty((12,), "i2"))
        with pytest.raises(ArrayError, match="dtype >i2"):
            permute.copy(src, axes, out=np.empty(shape, ">i2"))
        with pytest.raises(ArrayError, match="not a writable C-contiguous"):
            permute.copy(src, axes, out=np.empty(shape[::-1], "i2").T)
        with pytest.raises(DimsError, match="exactly once"):
            permute.copy(src, (0, 0))
        with pytest.raises(ArrayError, match="threads=0"):
            permute.copy(src, axes, threads=0)
    own = np.zeros((3, 3), "i2")
    for out in (own, own.reshape(9)[:].reshape(3, 3)):
        with pytest.raises(ArrayError, match="shares memory"):
            permute.copy(own, axes, out=out)


def test_bad_requests_are_refused():
    src = np.zeros((4, 3), "u1")
    with pytest.raises(DimsError, match=r"each of 0 \.\. 1 exactly once"):
        permute.copy(src, (0, 0))
    with pytest.raises(DimsError, match="rank 2"):
        permute.copy(src, (0, 1, 2))
    with pytest.raises(SelectionError, match="row 4 is not in an array of 4 rows"):
        permute.gather(src, [0, 4], (0, 1))
    with pytest.raises(SelectionTypeError, match=r"np\.flatnonzero"):
        permute.gather(src, np.ones(4, bool), (0, 1))
    with pytest.raises(ArrayError, match=r"scale of shape \(5,\) does not broadcast"):
        permute.copy(src, (1, 0), scale=np.ones(5))
    with pytest.raises(ArrayError, match="threads=0"):
        permute.copy(src, (1, 0), threads=0)
    with pytest.raises(ArrayError, match="cannot be scaled"):
        permute.copy(np.zeros(3, "M8[s]"), (0,), scale=2)
    with pytest.raises(DimsError, match="no rows"):
        permute.gather(np.zeros(()), [], ())


def test_results_of_scaled_integers_are_floats_that_hold_them():
    assert permute.copy(np.ones((2, 2), "u1"), (1, 0), scale=2).dtype == np.float32
    assert permute.copy(np.ones((2, 2), "i8"), (1, 0), scale=2).dtype == np.float64
    assert permute.copy(np.ones((2, 2), "f2"), (1, 0), scale=2).dtype == np.float16
    assert permute.copy(np.ones((2, 2), "c8"), (1, 0), scale=2).dtype == np.complex64


@given(problems(["u1", "f4", "f8", "i8"], max_rank=4), st.data())
@settings(max_examples=25, deadline=None)
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


@pytest.mark.parametrize("shape", [(7, 11, 15), (36, 15), (897,), (33, 11, 5), (1, 14)])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "i8"])
@pytest.mark.parametrize("final", ["f4", "f8"])
def test_runs_of_any_length_are_cast_wherever_they_start(shape, dtype, final):
    values = np.arange(np.prod(shape) + 8) % 97
    for start in range(8):
        src = values[start : start + np.prod(shape)].astype(dtype).reshape(shape)
        for axes in (range(len(shape)), (*range(len(shape) - 1)[::-1], len(shape) - 1)):
            held = np.zeros(src.size + 64, final)[start : start + src.size]
            out = held.reshape([shape[axis] for axis in axes])
            for scale, shift in ((None, None), (-0.5, None), (-0.5, 3.0)):
                permute.copy(src, axes, scale=scale, shift=shift, dtype=final, out=out)
                expected = src.astype(final) * (scale or 1) + (shift or 0)
                np.testing.assert_array_equal(out, expected.transpose(*axes))


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (1, 2, 3, 0), (0, 1, 3, 2)])
def test_a_gather_of_a_known_shape_takes_the_rows_of_this_call(axes):
    src = np.random.default_rng(0).integers(0, 256, (64, 1, 28, 28), np.uint8)
    for rows in ([3, 1, 60], [9, 9, 0], [-1, 5, 7, 2], [5, 63, 1]):
        moved = permute.gather(src, rows, axes)
        np.testing.assert_array_equal(moved, src[rows].transpose(axes))


def test_another_array_library_gathers():
    src = array_api_strict.reshape(array_api_strict.arange(12), (4, 3))
    result = permute.gather(src, [3, -4, 3], (1, 0))
    np.testing.assert_array_equal(np.asarray(result), np.arange(12).reshape(4, 3)[[3, 0, 3]].T)


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">u2", ">c8"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (64, 3, 80, 80)])
def test_the_result_is_in_native_byte_order(dtype, shape):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    axes = (*range(1, len(shape)), 0)
    native = np.dtype(dtype).newbyteorder("=")
    made = permute.copy(values, axes)
    assert made.dtype == native
    np.testing.assert_array_equal(made, values.transpose(axes))
    out = permute.copy(values, axes, out=np.empty(made.shape, native))
    np.testing.assert_array_equal(out, made)
    gathered = permute.gather(values, [2, 0], axes)
    assert gathered.dtype == native
    np.testing.assert_array_equal(gathered, values[[2, 0]].transpose(axes))
    kept = permute.copy(values, axes, dtype=dtype)
    assert kept.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(kept, made)
