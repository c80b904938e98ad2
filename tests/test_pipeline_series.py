"""Series over time: synchronised, in windows, and thinned, against what loops make of them."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.compat.abstract_dataloader import spec
from labeled.errors import PipelineError, SelectionError, UnknownNameError
from labeled.transforms import (
    Concatenated,
    SeriesTrace,
    TimeWindow,
    decimate,
    stack,
    subsample,
    synchronise,
)

times = st.lists(st.integers(0, 60), min_size=1, max_size=10).map(
    lambda ticks: np.array(sorted(ticks)) / 8  # exact, so that equally near is equally near
)
series = st.fixed_dictionaries({"a": times, "b": times})
margins = st.sampled_from([0, 1, 2, 0.25, 0.5])
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


@given(series, st.integers(1, 4), st.integers(0, 3))
def test_decimated_moments_are_every_so_manieth(given, factor, start):
    found = synchronise(given, "a")
    thinned = decimate(found, factor, start=start)
    np.testing.assert_array_equal(thinned["b"], found["b"].values[start::factor])
    np.testing.assert_array_equal(thinned["time"], found["time"].values[start::factor])


def test_a_thinned_reference_still_counts_its_own_samples():
    steps = {"a": np.arange(10.0), "b": np.arange(0.5, 9, 0.5)}
    found = synchronise(steps, "a", "next", every=3)
    np.testing.assert_array_equal(found["a"], [3, 6, 9] if steps["b"][-1] >= 9 else [3, 6])
    np.testing.assert_array_equal(steps["b"][found["b"]], found["time"])


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


def test_a_moment_without_end_goes_with_its_like():
    found = synchronise({"a": [0.0, 1.0, np.inf], "b": [0.0, 5.0, np.inf]}, "a")
    np.testing.assert_array_equal(found["b"], [0, 0, 2])


def test_lengths_of_time_are_synchronised_too():
    leads = {"a": np.array([0, 6, 12], "m8[h]"), "b": np.array([0, 350, 721], "m8[m]")}
    found = synchronise(leads, "a", tolerance=timedelta(minutes=15), margin=(timedelta(hours=1), 0))
    np.testing.assert_array_equal(found["b"], [1, 2])
    np.testing.assert_array_equal(found["time"], leads["a"][1:])


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
        (lambda t: synchronise(t, "c"), UnknownNameError, "no series 'c'.*'a', 'b'"),
        (lambda t: synchronise(t, "a", "nearby"), PipelineError, "'nearby' must be 'nearest'"),
        (lambda t: synchronise(t, "a", every=0), PipelineError, "every=0"),
        (lambda t: synchronise(t, "a", margin=(1,)), PipelineError, r"\(1,\), must be a pair"),
        (lambda t: synchronise(t, "a", margin=(-1, 0)), PipelineError, "must not be negative"),
        (lambda t: synchronise(t, "a", margin={"q": (1, 1)}), UnknownNameError, "no series 'q'"),
        (lambda t: synchronise({**t, "c": []}, "a"), PipelineError, "'c' have shape"),
        (lambda t: synchronise({**t, "c": [1, 0]}, "a"), PipelineError, "timestamp 1 of 'c', 0"),
        (lambda t: synchronise({**t, "c": [np.nan]}, "a"), PipelineError, "timestamp 0 of 'c'"),
        (
            lambda t: synchronise({**t, "c": ["x"]}, "a"),
            PipelineError,
            "give numbers, or datetime64",
        ),
        (lambda t: synchronise({**t, "c": DAYS}, "a"), PipelineError, r"float64 of 'a'.* of 'c'"),
        (
            lambda t: synchronise(t, "a", tolerance=np.timedelta64(1, "s")),
            PipelineError,
            "a number",
        ),
        (lambda t: synchronise(t, "a", tolerance=-1.0), PipelineError, "must not be negative"),
        (
            lambda t: synchronise({"c": DAYS}, "c", tolerance=1.0),
            PipelineError,
            "a timedelta, since",
        ),
        (
            lambda t: synchronise({"c": DAYS}, "c", margin=(0.5, 0)),
            PipelineError,
            "margin of 'c'.*0.5",
        ),
        (lambda t: synchronise({**t, "time": [1.0]}, "a"), PipelineError, "called 'time'.*dim="),
        (lambda t: decimate(synchronise(t, "a"), 2, dim="t"), UnknownNameError, "no dim 't'"),
        (lambda t: decimate(synchronise(t, "a"), 0), PipelineError, "factor=0"),
        (lambda t: synchronise(t, "a", tolerance=np.nan), PipelineError, "tolerance is nan"),
        (lambda t: synchronise(t, "a", tolerance=[1.0, 2.0]), PipelineError, "tolerance is"),
        (lambda t: synchronise(t, "a", margin=(np.nan, 0)), PipelineError, "margin of 'a' is nan"),
        (lambda t: synchronise(t, "a", margin=([1], 0)), PipelineError, r"margin of 'a' is \[1\]"),
        (
            lambda t: synchronise({"c": DAYS}, "c", tolerance=np.timedelta64("NaT", "s")),
            PipelineError,
            "a timedelta, since",
        ),
        (lambda t: synchronise([[0.0]], "a"), PipelineError, "times are list: give them by name"),
        (lambda t: synchronise({"a": [[0], [1, 2]]}, "a"), PipelineError, "'a' are not an array"),
    ],
)
def test_mistakes_are_explained(act, kind, message):
    with pytest.raises(kind, match=message):
        act({"a": np.arange(3.0), "b": np.arange(3.0)})


# windows


@given(st.integers(0, 9), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_windows_are_slices_around_each_sample(n, past, future, crop):
    steps = xr.DataArray(np.arange(n) * 10, dims="time", coords={"time": np.arange(n) + 100})
    windows = TimeWindow(steps, past, future, crop=crop)
    lists = TimeWindow(list(range(n)), past, future, crop=crop, collate=tuple)
    wanted = [
        range(max(0, i - past), min(n, i + future + 1))
        for i in range(n)
        if not crop or (i >= past and i + future < n)
    ]
    assert len(windows) == len(lists) == len(wanted)
    assert list(lists) == [tuple(one) for one in wanted]
    for window, numbers in zip(windows, wanted, strict=True):
        np.testing.assert_array_equal(window, np.array(numbers) * 10)
        np.testing.assert_array_equal(window["time"], np.array(numbers) + 100)
    for index in (len(wanted), -len(wanted) - 1):
        with pytest.raises(SelectionError, match="no window"):
            windows[index]
    if wanted:
        assert windows[np.int64(-1)].equals(windows[len(wanted) - 1])
    if crop and wanted:
        together = windows.to_xarray()
        np.testing.assert_array_equal(together, [np.array(one) * 10 for one in wanted])
        assert together.dtype == steps.dtype
        np.testing.assert_array_equal(together["time"], windows.centres["time"])
        np.testing.assert_array_equal(together["step"], np.arange(-past, future + 1))


def test_windows_go_lazily_into_a_loader():
    steps = xr.DataArray(np.arange(20.0), dims="time", name="x").chunk(time=6)
    windows = TimeWindow(steps, past=2).to_xarray()
    assert windows.chunks is not None
    made = list(labeled.batches(windows, 5, dim="time", pipeline={"x": lambda w: w.mean("step")}))
    np.testing.assert_allclose(np.concatenate([batch["x"] for batch in made]), np.arange(1.0, 19))


def test_windows_that_cannot_be():
    with pytest.raises(PipelineError, match="past=-1"):
        TimeWindow([1], past=-1)
    with pytest.raises(UnknownNameError, match="no dim 'time'"):
        TimeWindow(xr.DataArray([1], dims="t"))
    with pytest.raises(PipelineError, match="no window of 3 samples fits a series of 1"):
        TimeWindow(xr.DataArray([1], dims="time"), past=2).to_xarray()
    with pytest.raises(PipelineError, match="differ in length"):
        TimeWindow(xr.DataArray([1], dims="time"), crop=False).to_xarray()
    with pytest.raises(PipelineError, match="type generator has no length"):
        TimeWindow(i for i in range(3))
    with pytest.raises(PipelineError, match="collate=3 must be a function"):
        TimeWindow([1], collate=3)
    with pytest.raises(PipelineError, match="type list has no labels"):
        TimeWindow([1]).to_xarray()


# traces


def trace_of_two():
    steps = {"fast": np.arange(0, 2, 0.1), "slow": np.arange(0.05, 2, 0.5)}
    arrays = {name: xr.DataArray(np.arange(len(t)), [("time", t)]) for name, t in steps.items()}
    return arrays, SeriesTrace(arrays, synchronise(steps, "slow"))


def test_a_trace_is_its_series_at_the_moments_chosen():
    arrays, trace = trace_of_two()
    assert isinstance(trace, spec.Trace)
    assert isinstance(trace, spec.Dataset)
    assert trace["fast"] is arrays["fast"]
    chosen = [(one["fast"].item(), one["slow"].item()) for one in trace]
    assert [slow for _, slow in chosen] == list(range(4))
    for fast, slow in chosen:
        assert abs(arrays["fast"].time[fast] - arrays["slow"].time[slow]) < 0.0501
    together = trace.to_xarray()
    assert {name: one.dims for name, one in together.variables.items()} == dict.fromkeys(
        ("fast", "slow", "fast_time", "slow_time"), ("time",)
    )
    batch = next(iter(labeled.batches(together, 3, dim="time")))
    np.testing.assert_array_equal(batch["fast"], [fast for fast, _ in chosen[:3]])
    np.testing.assert_array_equal(together["fast"], [fast for fast, _ in chosen])
    np.testing.assert_array_equal(together["slow_time"], arrays["slow"]["time"])
    assert stack([trace[0], trace[1]])["fast"].dims == ("batch",)
    with pytest.raises(SelectionError, match="no moment 9"):
        trace[9]
    with pytest.raises(UnknownNameError, match="did you mean 'slow'"):
        trace["slov"]
    for items in (trace, TimeWindow([1, 2]), Concatenated(["ab"])):
        for several in (slice(0, 1), 0.5):
            with pytest.raises(SelectionError, match="must be a whole number"):
                items[several]


def test_time_has_the_name_that_it_has():
    a = xr.DataArray(np.arange(6.0), [("t", np.arange(6))], name="a")
    b = xr.DataArray(np.arange(3.0) + 10, [("t", np.array([1, 3, 5]))], name="b")
    found = synchronise({"a": a.t, "b": b.t}, "b", dim="t")
    assert found["a"].dims == found["t"].dims == ("t",)
    np.testing.assert_array_equal(decimate(found, 2, dim="t")["a"], [1, 5])
    trace = SeriesTrace({"a": a, "b": b}, found, dim="t")
    assert (trace[1]["a"].item(), trace[1]["b"].item()) == (3, 11)
    assert trace.to_xarray()["a_t"].dims == ("t",)
    windows = TimeWindow(a, past=1, dim="t")
    np.testing.assert_array_equal(windows[0], [0, 1])
    together = windows.to_xarray(dim="lag")
    assert together.dims == ("t", "lag")
    np.testing.assert_array_equal(together.sel(lag=-1), a[:-1])


def test_traces_that_cannot_be():
    with pytest.raises(UnknownNameError, match="no samples are chosen of series 'b'"):
        SeriesTrace({"b": [1]}, {"a": [0]})
    with pytest.raises(PipelineError, match=r"differ in length: \{'a': 1, 'b': 2\}"):
        SeriesTrace({"a": [1], "b": [1, 2]}, {"a": [0], "b": [0, 1]})
    wrong = [([0, 3], "sample 3 of 'b'"), ([-4], "sample -4"), ([0.5], "by float64")]
    for bad, words in [*wrong, ([[0]], r"of shape \(1, 1\)"), (0, r"of shape \(\)")]:
        with pytest.raises(PipelineError, match=words):
            SeriesTrace({"b": [1, 2, 3]}, {"b": bad})
    with pytest.raises(UnknownNameError, match="no dim 'time'"):
        SeriesTrace({"a": xr.DataArray([1], dims="t")}, {"a": [0]})
    apart = {name: xr.DataArray([1], dims="time", coords={"place": name}) for name in "ab"}
    with pytest.raises(PipelineError, match=r"do not agree.*'place'.*drop_vars"):
        SeriesTrace(apart, {"a": [0], "b": [0]}).to_xarray()
    with pytest.raises(PipelineError, match="'a' is not a DataArray"):
        SeriesTrace({"a": [1]}, {"a": [0]}).to_xarray()


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_traces_one_after_another(parts):
    both, flat = Concatenated(parts), [item for part in parts for item in part]
    assert list(both) == flat
    assert len(both) == len(flat)
    for i in range(-len(flat), len(flat)):
        assert both[np.int64(i)] == flat[i]
    with pytest.raises(SelectionError, match="no item"):
        both[len(flat)]


# some of many


@given(st.integers(0, 300), st.data(), st.integers(0, 9))
def test_rows_are_chosen_at_most_once(n, data, seed):
    k = data.draw(st.integers(0, n))
    for how in ("low-discrepancy", "uniform", "random"):
        rows = subsample(n, k, how, seed=seed)
        assert (rows.dtype, len(rows), len(set(rows.tolist()))) == (np.int64, k, k)
        assert k == 0 or (rows.min() >= 0 and rows.max() < n)
    most = subsample(n, n, seed=seed)
    np.testing.assert_array_equal(subsample(n, k, seed=seed), most[:k])


def test_a_share_is_taken_as_it_is_written():
    for percent in range(101):
        assert len(subsample(100, percent / 100)) == percent
        assert len(subsample(1000, np.float32(percent / 100))) == percent * 10
    assert len(subsample(7, 0.5)) == 3
    assert len(subsample(10**6, 1e-6)) == 1


def test_first_few_of_low_discrepancy_are_spread_evenly():
    for n in (1000, 987, 1024, 997):
        rows = subsample(n, n, seed=3)
        for k in (5, 13, 55, 144):
            some = np.sort(rows[:k])
            gaps = np.diff(np.append(some, some[0] + n))
            assert gaps.max() <= 2 * n / k + 1
    rows = subsample(2**62, 5).tolist()  # products that do not fit 64 bits
    assert len(set(rows)) == 5
    gaps = np.diff(np.array(sorted([*rows, rows[0] + 2**62]), dtype=float))
    assert gaps.max() <= 2 * 2**62 / 5 + 1


@pytest.mark.parametrize("how", ["low-discrepancy", "uniform", "random"])
@pytest.mark.parametrize("seed", [-(2**70), -5, 2**63, 2**70])
def test_any_whole_number_is_a_seed(how, seed):
    assert sorted(subsample(10, 10, how, seed=seed)) == list(range(10))


def test_uniform_and_random():
    np.testing.assert_array_equal(subsample(101, 5, "uniform"), [0, 25, 50, 75, 100])
    drawn = [subsample(50, 10, "random", seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert set(drawn[0]) != set(drawn[2])
    counts = np.bincount(np.concatenate([subsample(10, 3, "random", seed=s) for s in range(500)]))
    assert counts.min() > 100
    assert [len(subsample(20, size)) for size in (1, 1.0, 0.33)] == [1, 20, 6]


@pytest.mark.parametrize("size", [11, -1, 1.5, True, "all"])
def test_sizes_that_cannot_be(size):
    with pytest.raises(PipelineError, match="of 10 rows"):
        subsample(10, size)
    for how in ("ld", ["ld"]):
        with pytest.raises(PipelineError, match=r"how=.*'ld'.* must be 'low-discrepancy'"):
            subsample(10, 1, how)
    with pytest.raises(PipelineError, match="n_rows=-3 must be at least 0"):
        subsample(-3, 0)
    with pytest.raises(PipelineError, match=r"seed=0\.5 must be a whole number"):
        subsample(10, 1, seed=0.5)
