"""Series over time: synchronised and in windows, against what loops make of them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import PipelineError, UnknownNameError
from labeled.transforms import synchronise, time_windows

times = st.lists(st.integers(0, 60), min_size=1, max_size=10).map(
    lambda ticks: np.array(sorted(ticks)) / 8  # exact, so that equally near is equally near
)
series = st.fixed_dictionaries({"a": times, "b": times})
margins = st.sampled_from([0, 1, 2, 0.25, 0.5])
SERIES = xr.DataArray([1, 2, 3], dims="time")
DAYS = np.arange("2026-01-01", "2026-01-04", dtype="datetime64[D]")


def inside(one, margin):
    """Timestamps of a series that a margin leaves, one by one."""
    left, right = margin
    kept = []
    for i, t in enumerate(one):
        early = i < left if isinstance(left, int) else t - one[0] < left
        late = len(one) - 1 - i < right if isinstance(right, int) else one[-1] - t < right
        if not (early or late):
            kept.append(t)
    return kept


def chosen_by_hand(given, reference, method, tolerance, margin, every):
    """What belongs together, moment by moment."""
    ranges = [inside(one, margin) for one in given.values()]
    found = []
    for number, moment in enumerate(given[reference]):
        if number % every or not all(ranges):
            continue
        if not max(one[0] for one in ranges) <= moment <= min(one[-1] for one in ranges):
            continue
        row = {}
        for name, one in given.items():
            after = [i for i, t in enumerate(one) if t >= moment]
            before = [i for i, t in enumerate(one) if t <= moment]
            nearest = min(range(len(one)), key=lambda i, one=one: abs(one[i] - moment))
            row[name] = {"next": after[:1], "previous": before[-1:], "nearest": [nearest]}[method]
        row[reference] = [number]
        if all(row.values()):
            row = {name: i for name, (i,) in row.items()}
            gaps = [abs(given[name][i] - moment) for name, i in row.items()]
            if tolerance is None or max(gaps) <= tolerance:
                found.append((moment, row))
    return found


@given(
    series,
    st.sampled_from("ab"),
    st.sampled_from(["nearest", "next", "previous"]),
    st.sampled_from([None, 0, 0.25, 1.0]),
    st.tuples(margins, margins),
    st.integers(1, 3),
)
def test_synchronised_is_what_a_loop_finds(given, reference, method, tolerance, margin, every):
    options = {"tolerance": tolerance, "margin": margin, "every": every}
    found = synchronise(given, reference, method, **options)
    wanted = chosen_by_hand(given, reference, method, *options.values())
    np.testing.assert_array_equal(found["time"], [moment for moment, _ in wanted])
    for name in given:
        assert found[name].dtype == np.int64
        np.testing.assert_array_equal(found[name], [row[name] for _, row in wanted])


def test_dates_and_margins_by_name():
    day = np.datetime64("2026-01-01", "ns")
    hours = {
        name: day + np.arange(n) * np.timedelta64(m, "m")
        for name, n, m in (("a", 5, 60), ("b", 25, 10))
    }
    found = synchronise(
        hours,
        "a",
        tolerance=np.timedelta64(1, "m"),
        margin={"b": (np.timedelta64(90, "m"), 0)},
    )
    np.testing.assert_array_equal(found["b"], [12, 18, 24])
    np.testing.assert_array_equal(found["time"], hours["a"][2:])


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_whole_numbers_are_compared_exactly(dtype):
    start = 1_700_000_000 * 10**9  # nanoseconds, of which float64 tells one in 256
    stamps = {"a": start + np.array([1, 3, 6]), "b": start + np.array([0, 2, 4, 5, 6])}
    found = synchronise({n: t.astype(dtype) for n, t in stamps.items()}, "a", tolerance=0.5)
    np.testing.assert_array_equal(found["b"], [4])
    np.testing.assert_array_equal(found["time"], [start + 6])
    np.testing.assert_array_equal(synchronise(stamps, "a", "previous")["b"], [0, 1, 4])


@pytest.mark.parametrize(
    ("act", "kind", "message"),
    [
        (
            lambda t: synchronise(t, "c"),
            UnknownNameError,
            "names 'c', which is not a series.*'a', 'b'",
        ),
        (lambda t: synchronise(t, "a", "nearby"), PipelineError, "'nearby' must be 'nearest'"),
        (lambda t: synchronise(t, "a", margin=(-1, 0)), PipelineError, "at least 0"),
        (
            lambda t: synchronise(t, "a", margin={"q": (1, 1)}),
            UnknownNameError,
            "names 'q', which is not a series",
        ),
        (
            lambda t: synchronise({**t, "c": []}, "a"),
            PipelineError,
            r"'c' are .* shape \(0,\)",
        ),
        (lambda t: synchronise({**t, "c": [1, 0]}, "a"), PipelineError, "timestamp 1 of 'c', 0"),
        (
            lambda t: synchronise({**t, "c": ["x"]}, "a"),
            PipelineError,
            "numbers, datetime64",
        ),
        (lambda t: synchronise({**t, "c": DAYS}, "a"), PipelineError, r"float64 of 'a'.* of 'c'"),
        (lambda t: synchronise(t, "a", tolerance=-1.0), PipelineError, "0 or more"),
        (
            lambda t: synchronise({"c": DAYS}, "c", tolerance=1.0),
            PipelineError,
            "a timedelta, since",
        ),
        (lambda t: synchronise({**t, "time": [1.0]}, "a"), PipelineError, "called 'time'.*dim="),
        (
            lambda t: time_windows(SERIES, dim="t"),
            UnknownNameError,
            "'t', which is not a dim of the series",
        ),
        (lambda t: time_windows(SERIES, past=3), PipelineError, "no window of 4 .* series of 3"),
        (lambda t: time_windows([1]), PipelineError, "not list"),
        (
            lambda t: time_windows(SERIES.expand_dims(step=2), past=1),
            PipelineError,
            "has a dim or variable 'step' already; .* with step=",
        ),
        (lambda t: time_windows(SERIES, past=1, step="time"), PipelineError, "'time' already"),
        (
            lambda t: time_windows(SERIES.to_dataset(name="step"), past=1),
            PipelineError,
            "variable 'step' already",
        ),
        (lambda t: synchronise(t, "a", tolerance=np.nan), PipelineError, "tolerance is nan"),
        (lambda t: synchronise([[0.0]], "a"), PipelineError, "times are list: give them by name"),
        (lambda t: synchronise({"a": [[0], [1, 2]]}, "a"), PipelineError, "of 'a'.* form no array"),
    ],
)
def test_mistakes_are_explained(act, kind, message):
    with pytest.raises(kind, match=message):
        act({"a": np.arange(3.0), "b": np.arange(3.0)})


# windows


@given(st.integers(1, 9), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_windows_are_slices_around_each_sample(n, past, future, lazy):
    series = xr.DataArray(
        np.arange(n) * 10, dims="t", coords={"t": np.arange(n) + 100}, attrs={"unit": "m"}
    )
    if past + future >= n:
        with pytest.raises(PipelineError, match="no window"):
            time_windows(series, past, future, dim="t")
        return
    given = series.chunk(t=3) if lazy else series
    windows = time_windows(given, past, future, dim="t", step="lag")
    assert (windows.chunks is not None) == lazy
    assert (windows.dims, windows.dtype, windows.attrs) == (
        ("t", "lag"),
        series.dtype,
        {"unit": "m"},
    )
    np.testing.assert_array_equal(windows["t"], np.arange(past, n - future) + 100)
    for lag in range(-past, future + 1):
        wanted = (np.arange(past, n - future) + lag) * 10
        np.testing.assert_array_equal(windows.sel(lag=lag), wanted)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", ["i8", "u8", "u1", "?", "f2", "c8", "M8[ns]", "m8[s]", "U3", "O"])
def test_windows_hold_the_very_values(dtype, lazy):
    values = (np.arange(7) + (2**53 + 1 if dtype[1:] == "8" else 0)).astype(dtype)
    series = xr.Dataset(
        {"x": ("time", values, {"unit": "m"}), "still": ("lat", [1, 2])},
        coords={"number": ("time", np.arange(7))},
        attrs={"title": "t"},
    )
    given = series.chunk(time=3) if lazy else series
    both = time_windows(given, 1, 2), time_windows(given["x"], 1, 2)
    for windows in (both[0]["x"], both[1]):
        assert windows.dtype == values.dtype
        assert windows.attrs == {"unit": "m"}
        assert (windows.chunks is not None) == lazy
        np.testing.assert_array_equal(windows["number"], [1, 2, 3, 4])
        np.testing.assert_array_equal(windows, np.stack([values[i : i + 4] for i in range(4)]))
    assert both[0].attrs == {"title": "t"}
    np.testing.assert_array_equal(both[0]["still"], [1, 2])


def test_windows_and_series_at_their_moments_go_into_a_loader():
    slow = xr.DataArray(np.arange(3.0) + 10, [("time", [1, 3, 5])], name="slow")
    fast = xr.DataArray(np.arange(20.0), [("time", np.arange(20) / 2)], name="fast").chunk(time=6)
    windows = time_windows(fast, past=2)
    made = list(
        labeled.batches(windows, 5, dim="time", pipeline={"fast": lambda w: w.mean("step")})
    )
    np.testing.assert_allclose(
        np.concatenate([batch["fast"] for batch in made]), np.arange(1.0, 19)
    )
    chosen = synchronise({"fast": fast.time, "slow": slow.time}, "slow")
    together = xr.Dataset({one.name: one.isel(time=chosen[one.name]).drop_vars("time")
                           for one in (fast, slow)})  # fmt: skip
    (batch,) = labeled.batches(together, 3, dim="time")
    np.testing.assert_array_equal(batch["fast"], [2, 6, 10])
