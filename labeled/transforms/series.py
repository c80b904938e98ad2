"""Series over time: windows of consecutive samples, and series of different rates.

Series of different rates are brought together by timestamps: one of them gives the moments, and
:func:`synchronise` finds which sample of every series belongs to each, as labelled integers that
xarray selects by: ``camera.isel(time=chosen["camera"])``. Only moments are kept for which every
series is there: from the latest of their first timestamps to the earliest of their last, both
included, after `margin` is taken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array, check_arguments, integer
from labeled.errors import PipelineError, check_known

Times = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Method = Literal["nearest", "next", "previous"]

whole_of = partial(integer, most=(1 << 63) - 1, error=PipelineError)


@check_arguments(PipelineError, but=("series",))
def time_windows(
    series: xr.DataArray | xr.Dataset,
    past: int = 0,
    future: int = 0,
    *,
    dim: str = "time",
    step: str = "step",
) -> Any:
    """Return each sample of a series together with those just before and after it.

    Parameters
    ----------
    series : DataArray or Dataset
        Windows of a lazy one are lazy.
    past, future : int
        How many samples before and after; only samples whose window is whole have one.
    dim : str
        The dim of the series that is time.
    step : str
        Name of the new last dim, along which a window runs; its coordinate counts samples from
        the one that the window belongs to.

    Returns
    -------
    DataArray or Dataset
        Coordinates along `dim` are those of the samples that windows belong to.

    Raises
    ------
    PipelineError
        If `past` or `future` is negative, no window fits the series, or the series has a dim or
        variable called `step`.
    UnknownNameError
        If the series has no such dim.

    Examples
    --------
    >>> series = xr.DataArray([0.0, 1.0, 4.0, 9.0], dims="time", coords={"time": [0, 10, 20, 30]})
    >>> windows = time_windows(series, past=1, future=1)
    >>> windows.values.tolist(), windows["time"].values.tolist()
    ([[0.0, 1.0, 4.0], [1.0, 4.0, 9.0]], [10, 20])
    """
    if not isinstance(series, xr.DataArray | xr.Dataset):
        raise PipelineError(f"a series is a DataArray or Dataset, not {type(series).__name__}")
    check_known("dim= names", [dim], map(str, series.dims), "a dim of the series")
    length = 1 + whole_of("past", past, least=0) + whole_of("future", future, least=0)
    if step in series.dims or step in getattr(series, "data_vars", ()):
        remedy = "give the dim of windows another name with step="
        raise PipelineError(f"the series has a dim or variable {step!r} already; {remedy}")
    n = series.sizes[dim]
    if length > n:
        raise PipelineError(f"no window of {length} samples fits a series of {n}")
    centres = series.isel({dim: slice(past, n - future)})

    def ending(array: xr.DataArray) -> xr.DataArray:
        lacking = np.zeros((), array.dtype)[()]  # NaN would make floats of integers
        rolling = array.rolling({dim: length})
        return rolling.construct({dim: step}, fill_value=lacking, keep_attrs=True)

    if isinstance(series, xr.DataArray):
        ends: Any = ending(series)
    else:
        along = [name for name, one in series.data_vars.items() if dim in one.dims]
        ends = series.assign({name: ending(series[name]) for name in along})
    made = ends.isel({dim: slice(length - 1, None)})
    moved = {name: coord for name, coord in centres.coords.items() if dim in coord.dims}
    return made.assign_coords(moved).assign_coords({step: np.arange(-past, future + 1)})


@check_arguments(PipelineError, but=("times", "margin"))
def synchronise(
    times: Mapping[str, npt.ArrayLike],
    reference: str,
    method: Method = "nearest",
    *,
    tolerance: Any = None,
    margin: Mapping[str, tuple[Any, Any]] | tuple[Any, Any] = (0, 0),
    every: int = 1,
    dim: str = "time",
) -> xr.Dataset:
    """Say which sample of each series goes with the moments of one of them.

    Parameters
    ----------
    times : mapping of str to array, lengths ``(n,)``
        Timestamps of each series, which never fall: all numbers (of seconds, or any unit;
        whole ones are compared exactly), all datetime64, or all timedelta64.
    reference : str
        The series whose timestamps are the moments.
    method : {"nearest", "next", "previous"}
        The sample nearest to the moment (the earlier of two equally near), the first at or
        after it, or the last at or before it.
    tolerance : number or timedelta, optional
        Moments that a series has no sample within this distance of are left out; a number, in
        the same unit, where timestamps are numbers.
    margin : (start, end), or mapping of str to such a pair
        How much of the beginning and end of every series, or of those named, is left alone:
        whole numbers are samples, others a time.
    every : int
        Take one timestamp of the reference out of so many, counted from its first.
    dim : str
        Name of the dim that counts moments.

    Returns
    -------
    xarray.Dataset
        For each series an int64 variable of dims ``(dim,)``: numbers of its samples. The
        moments are the coordinate `dim`: those between the latest of all first timestamps and
        the earliest of all last ones, so that every series is there.

    Raises
    ------
    UnknownNameError
        If `reference`, or a series that `margin` names, is not there.
    PipelineError
        If a series is empty or its timestamps fall, timestamps are of different kinds, or an
        option has no meaning.

    Examples
    --------
    >>> times = {"camera": [0.0, 0.1, 0.2, 0.3], "lidar": [0.04, 0.14, 0.29]}
    >>> chosen = synchronise(times, "lidar")
    >>> chosen["camera"].values, chosen["time"].values
    (array([0, 1, 3]), array([0.04, 0.14, 0.29]))
    """
    if not isinstance(times, Mapping):
        raise PipelineError(f"times are {type(times).__name__}: give them by name of their series")
    series = {str(name): _timestamps(str(name), one) for name, one in times.items()}
    if len({one.dtype.kind in "mM" and one.dtype.kind for one in series.values()}) > 1:
        kinds = ", ".join(f"{t.dtype} of {name!r}" for name, t in series.items())
        raise PipelineError(f"timestamps of different kinds do not go together: {kinds}")
    common = np.result_type(*series.values())
    series = {name: one.astype(common) for name, one in series.items()}
    margins = margin if isinstance(margin, Mapping) else dict.fromkeys(series, margin)
    check_known("reference= or margin= names", (reference, *margins), series, "a series")
    whole_of("every", every, least=1)
    if dim in series:
        raise PipelineError(f"a series is called {dim!r}, like the dim of moments; pass dim=")
    if tolerance is not None:
        _check_span("tolerance", tolerance, series[reference])
    moments, found = series[reference], dict[str, Indices]()
    numbers = np.arange(len(moments))
    kept = numbers % every == 0
    for name, one in series.items():
        pair: Any = margins.get(name, (0, 0))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise PipelineError(f"the margin of {name!r}, {pair!r}, must be a pair (start, end)")
        first, last = _edge(name, one, pair[0]), len(one) - 1 - _edge(name, one[::-1], pair[1])
        kept &= first <= last and (moments >= one[first]) & (moments <= one[last])
        at = numbers if name == reference else _matched(one, moments, method)
        kept &= (at >= 0) & (at < len(one))
        if tolerance is not None:
            with np.errstate(invalid="ignore"):  # of moments without end
                kept &= np.abs(one[np.clip(at, 0, len(one) - 1)] - moments) <= tolerance
        found[name] = at
    variables = {name: ((dim,), at[kept]) for name, at in found.items()}
    return xr.Dataset(variables, coords={dim: moments[kept]})


def _timestamps(name: str, given: npt.ArrayLike) -> Times:
    times = as_array(f"the timestamps of {name!r}", given, PipelineError)
    if times.ndim != 1 or not len(times) or times.dtype.kind not in "iufMm":
        wrong = f"the timestamps of {name!r} are {times.dtype} of shape {times.shape}"
        remedy = "numbers, datetime64 or timedelta64 (convert time zones to UTC), and at least one"
        raise PipelineError(f"{wrong}: give a list of {remedy}")
    falls = np.flatnonzero(~(times == times) | np.insert(times[1:] < times[:-1], 0, False))
    if len(falls):
        wrong = f"timestamp {falls[0]} of {name!r}, {times[falls[0]]}, is NaT or falls"
        raise PipelineError(f"{wrong}; sort the series")
    return times.astype(np.int64) if times.dtype.kind in "iu" else times


def _check_span(what: str, value: Any, times: Times) -> None:
    """Raise :class:`PipelineError` for a length of time of another kind than timestamps."""
    kind = "m" if isinstance(value, timedelta) else np.asarray(value).dtype.kind
    numbers = times.dtype.kind in "iuf"
    if np.ndim(value) or kind not in ("iuf" if numbers else "m") or not value >= value * 0:
        words = "a number" if numbers else "a timedelta, since timestamps are dates"
        raise PipelineError(f"{what} is {value!r}, and must be {words}, 0 or more")


def _edge(name: str, times: Times, margin: Any) -> int:
    """Count the samples that a margin takes off the beginning of a series, or of its reverse."""
    what = f"the margin of {name!r}"
    if np.ndim(margin) == 0 and np.asarray(margin).dtype.kind in "iu":
        return min(whole_of(what, int(margin), least=0), len(times))
    _check_span(what, margin, times)
    return int((np.abs(times - times[0]) < margin).sum())


def _matched(times: Times, moments: Times, method: Method) -> Indices:
    after = np.searchsorted(times, moments, side="left")
    if method == "next":
        return after
    if method == "previous":
        return np.searchsorted(times, moments, side="right") - 1
    later = np.clip(after, 0, len(times) - 1)
    value = times[np.clip(after - 1, 0, len(times) - 1)]
    earlier = np.searchsorted(times, value, side="left")  # the first of equal ones
    with np.errstate(invalid="ignore"):  # of moments without end
        nearer = np.abs(moments - value) <= np.abs(times[later] - moments)
    return np.where(nearer | (moments == value), earlier, later)
