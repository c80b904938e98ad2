"""Series over time: windows of consecutive samples, and several series as one trace.

A series is a labelled array (or Dataset) along a time dim, or anything with numbered items.
Windows and traces are themselves numbered items, so that one goes into the other.

Series of different rates are brought together by timestamps: one of them gives the moments, and
:func:`synchronise` finds which sample of every series belongs to each, as labelled integers that
xarray selects by: ``camera.isel(time=chosen["camera"])``. Only moments are kept for which every
series is there: from the latest of their first timestamps to the earliest of their last, both
included, after `margin` is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array, check_arguments, check_fields, whole
from labeled.errors import PipelineError, SelectionError, UnknownNameError, did_you_mean
from labeled.samplers.permutation import explicit_permutation, key_of

Labelled = xr.DataArray | xr.Dataset
Times = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Method = Literal["nearest", "next", "previous"]

whole_of = partial(whole, most=(1 << 63) - 1, error=PipelineError)


def item_number(index: Any, n: int, item: str, total: str) -> int:
    """Return the number of an item, counted from the end where it is negative.

    Parameters
    ----------
    index : int
    n : int
        How many items there are.
    item, total : str
        What one of them is called, and all of them.

    Raises
    ------
    SelectionError
        If there is no such item, or several are asked for.

    Examples
    --------
    >>> item_number(-1, 5, "window", "the series")
    4
    """
    number = whole(item, index, error=SelectionError)
    if not -n <= number < n:
        raise SelectionError(f"there is no {item} {index}: {total} has {n} of them")
    return number % n


def n_samples(series: Any, dim: str) -> int:
    """Return how many samples a series has.

    Raises
    ------
    UnknownNameError
        If a labelled series has no such dim.
    PipelineError
        If one without labels has no length.
    """
    if not isinstance(series, Labelled):
        if not hasattr(series, "__len__"):
            raise PipelineError(
                f"a series of type {type(series).__name__} has no length; give a DataArray, a "
                "Dataset, or something with numbered items"
            )
        return len(series)
    if dim not in series.dims:
        hint = did_you_mean(dim, map(str, series.dims))
        raise UnknownNameError(f"the series has no dim {dim!r}; {hint}")
    return int(series.sizes[dim])


@dataclass(frozen=True)
class TimeWindow:
    """Each sample of a series together with those just before and after it.

    Window ``i`` belongs to sample ``first + i`` of the series, ``first`` being `past` where
    windows are cropped: only samples whose window is whole have one.

    Parameters
    ----------
    series : DataArray, Dataset, or anything with ``len`` and numbered items
        Windows of labelled series are slices along `dim`, without a copy; others are lists.
    past, future : int
        How many samples before and after.
    collate : callable, optional
        Makes of each window what is handed out.
    crop : bool
        Leave out samples whose window is not whole. Otherwise windows at both ends are short.
    dim : str
        The dim of a labelled series that is time.

    Raises
    ------
    PipelineError
        If `past` or `future` is not a whole number of at least 0, or the series has no length.
    UnknownNameError
        If a labelled series has no such dim.
    SelectionError
        When a window is asked for that is not there.

    Examples
    --------
    >>> steps = xr.DataArray([0.0, 1.0, 4.0, 9.0], dims="time", coords={"time": [0, 10, 20, 30]})
    >>> windows = TimeWindow(steps, past=1, future=1)
    >>> len(windows), windows[0].values, windows.centres["time"].values
    (2, array([0., 1., 4.]), array([10, 20]))
    >>> TimeWindow(steps, past=1).to_xarray().values
    array([[0., 1.], [1., 4.], [4., 9.]])
    """

    series: Any
    past: int = 0
    future: int = 0
    collate: Callable[[Any], Any] | None = None
    crop: bool = True
    dim: str = "time"

    def __post_init__(self) -> None:
        check_fields(self, PipelineError)
        for name in ("past", "future"):
            whole_of(name, getattr(self, name), least=0)
        n_samples(self.series, self.dim)

    @property
    def first(self) -> int:
        """Number of the sample that window 0 belongs to."""
        return self.past if self.crop else 0

    def _n_samples(self) -> int:
        return n_samples(self.series, self.dim)

    def __len__(self) -> int:
        n = self._n_samples()
        return max(0, n - self.past - self.future) if self.crop else n

    def __getitem__(self, index: int | np.integer[Any]) -> Any:
        centre = self.first + item_number(index, len(self), "window", "the series")
        start, stop = max(0, centre - self.past), min(self._n_samples(), centre + self.future + 1)
        if isinstance(self.series, Labelled):
            window: Any = self.series.isel({self.dim: slice(start, stop)})
        else:
            window = [self.series[number] for number in range(start, stop)]
        return window if self.collate is None else self.collate(window)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def centres(self) -> Any:
        """The samples that the windows belong to, labelled as they are."""
        self._check_labelled()
        return self.series.isel({self.dim: slice(self.first, self.first + len(self))})

    def to_xarray(self, dim: str = "step") -> Any:
        """Return all windows as one labelled array, lazy where the series is.

        Parameters
        ----------
        dim : str
            Name of the new last dim, along which a window runs; its coordinate counts samples
            from the one that the window belongs to.

        Raises
        ------
        PipelineError
            If the series has no labels, or windows are not cropped to whole ones.
        """
        self._check_labelled()
        if not self.crop:
            raise PipelineError("windows that are not cropped differ in length: leave crop=True")
        length = self.past + self.future + 1
        if not len(self):
            raise PipelineError(
                f"no window of {length} samples fits a series of {self._n_samples()}"
            )
        ends = self.series.rolling({self.dim: length}).construct({self.dim: dim}, keep_attrs=True)
        whole = ends.isel({self.dim: slice(length - 1, None)})
        if isinstance(whole, xr.DataArray):
            whole = whole.astype(self.series.dtype)  # rolling makes room for values that lack
        moved = self.centres.coords
        named = {n: c for n, c in moved.items() if self.dim in c.dims}
        return whole.assign_coords(named).assign_coords(
            {dim: np.arange(-self.past, self.future + 1)}
        )

    def _check_labelled(self) -> None:
        if not isinstance(self.series, Labelled):
            raise PipelineError(
                f"a series of type {type(self.series).__name__} has no labels; give a DataArray"
            )


class SeriesTrace:
    """Several series as one: item ``i`` holds, of each, the sample that belongs to moment ``i``.

    Parameters
    ----------
    series : mapping of str to DataArray, TimeWindow, or anything with numbered items
    chosen : xarray.Dataset or mapping of str to array
        Which sample of each series belongs to each moment; see
        :func:`labeled.transforms.synchronise`.
    dim : str
        The time dim of labelled series.

    Raises
    ------
    UnknownNameError
        If a series has no sample chosen, or a labelled one no such dim.
    PipelineError
        If the choices differ in length, are not integers, or a series has no such sample.

    Examples
    --------
    >>> from labeled.transforms import synchronise
    >>> slow = xr.DataArray([5, 6], dims="time")
    >>> chosen = synchronise({"slow": [0.0, 1.0], "fast": [0.0, 0.4, 0.9]}, "slow")
    >>> trace = SeriesTrace({"slow": slow, "fast": ["a", "b", "c"]}, chosen)
    >>> len(trace), trace[0]["slow"].item(), trace[0]["fast"], trace["fast"]
    (1, 5, 'a', ['a', 'b', 'c'])
    """

    def __init__(
        self,
        series: Mapping[str, Any],
        chosen: xr.Dataset | Mapping[str, npt.ArrayLike],
        *,
        dim: str = "time",
    ) -> None:
        for name in series:
            if name not in chosen:
                known = did_you_mean(str(name), map(str, chosen))
                raise UnknownNameError(f"no samples are chosen of series {name!r}; {known}")
        self.series = dict(series)
        self.dim = dim
        self._chosen = {name: self._checked(name, chosen[name]) for name in series}
        if len({len(one) for one in self._chosen.values()}) > 1:
            counts = {name: len(one) for name, one in self._chosen.items()}
            raise PipelineError(f"the choices differ in length: {counts}")

    def _checked(self, name: str, chosen: Any) -> npt.NDArray[np.int64]:
        """Return which samples of a series are chosen."""
        numbers, one = np.asarray(chosen), self.series[name]
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
            raise PipelineError(
                f"samples of {name!r} are chosen by {numbers.dtype} of shape {numbers.shape}; give "
                "an integer for each moment"
            )
        if numbers.size and (isinstance(one, Labelled) or hasattr(one, "__len__")):
            n = n_samples(one, self.dim)
            beyond = numbers[(numbers < -n) | (numbers >= n)]
            if len(beyond):
                raise PipelineError(
                    f"sample {beyond[0]} of {name!r} is chosen, which has {n} of them"
                )
        return numbers.astype(np.int64)

    def __len__(self) -> int:
        return len(next(iter(self._chosen.values()), ()))

    def __getitem__(self, index: int | np.integer[Any] | str) -> Any:
        if isinstance(index, str):
            if index not in self.series:
                raise UnknownNameError(f"no series {index!r}; {did_you_mean(index, self.series)}")
            return self.series[index]
        number = item_number(index, len(self), "moment", "the trace")
        return {name: self._item(name, int(self._chosen[name][number])) for name in self.series}

    def _item(self, name: str, number: int) -> Any:
        one = self.series[name]
        return one.isel({self.dim: number}) if isinstance(one, Labelled) else one[number]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def to_xarray(self) -> xr.Dataset:
        """Return the labelled series at the chosen samples, on one time dim; lazy if they are.

        The time coordinate of each becomes ``<name>_<dim>``, along the same dim.
        """
        made = []
        for name, one in self.series.items():
            if not isinstance(one, xr.DataArray):
                raise PipelineError(f"series {name!r} is not a DataArray, but {type(one).__name__}")
            taken = one.isel({self.dim: self._chosen[name]})
            along = {c: v.variable for c, v in taken.coords.items() if self.dim in v.dims}
            apart = {f"{name}_{c}": v.to_base_variable() for c, v in along.items()}
            made.append(taken.drop_vars(along).assign_coords(apart).rename(name))
        try:
            return xr.merge(made, compat="no_conflicts", join="exact")
        except ValueError as error:
            raise PipelineError(
                f"the series do not agree: {error}; drop_vars() or rename() what differs"
            ) from None


class Concatenated:
    """Numbered items of several traces, one after another.

    Parameters
    ----------
    parts : sequence of datasets
        Anything with ``len`` and numbered items; empty ones are passed over.

    Examples
    --------
    >>> both = Concatenated(["abc", "", "de"])
    >>> len(both), both[3], both[-1]
    (5, 'd', 'e')
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in self.parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int | np.integer[Any]) -> Any:
        number = item_number(index, len(self), "item", "the whole")
        part = int(np.searchsorted(self._ends, number, side="right"))
        return self.parts[part][number - (int(self._ends[part - 1]) if part else 0)]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


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
        Take every so manieth timestamp of the reference, counted from its first.
    dim : str
        Name of the dim that counts moments.

    Returns
    -------
    xarray.Dataset
        For each series an int64 variable of dims ``(dim,)``: numbers of its samples. The
        moments are the coordinate `dim`.

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
    series = _alike({str(name): _checked(str(name), given) for name, given in times.items()})
    if reference not in series:
        raise UnknownNameError(
            f"no series {reference!r} to take moments from; {did_you_mean(str(reference), series)}"
        )
    if method not in get_args(Method):
        raise PipelineError(f"method={method!r} must be one of {', '.join(get_args(Method))}")
    whole_of("every", every, least=1)
    if dim in series:
        raise PipelineError(f"a series is called {dim!r}, like the dim of moments; pass dim=")
    if tolerance is not None:
        _check_length("tolerance", tolerance, series[reference])
    numbers = _numbers_within(series, reference, margin)
    numbers = numbers[numbers % every == 0]
    moments = series[reference][numbers]
    found = {name: _matched(one, moments, method) for name, one in series.items()}
    found[reference] = numbers
    kept = np.ones(len(moments), bool)
    for name, one in found.items():
        inside = (one >= 0) & (one < len(series[name]))
        kept &= inside
        if tolerance is not None:
            clipped = np.clip(one, 0, len(series[name]) - 1)
            kept &= np.abs(series[name][clipped] - moments) <= tolerance
    variables = {name: ((dim,), one[kept]) for name, one in found.items()}
    return xr.Dataset(variables, coords={dim: moments[kept]})


@check_arguments(PipelineError)
def decimate(chosen: xr.Dataset, factor: int, *, start: int = 0, dim: str = "time") -> xr.Dataset:
    """Keep every so manieth moment of what :func:`synchronise` chose.

    Raises
    ------
    PipelineError
        If `factor` is not a whole number of at least 1, or `start` is negative.
    UnknownNameError
        If there is no such dim.
    """
    whole_of("factor", factor, least=1)
    whole_of("start", start, least=0)
    if dim not in chosen.dims:
        hint = did_you_mean(dim, map(str, chosen.dims))
        raise UnknownNameError(f"no dim {dim!r} counts the moments; {hint}")
    return chosen.isel({dim: slice(start, None, factor)})


def _checked(name: str, given: npt.ArrayLike) -> Times:
    try:
        times = np.asarray(given)
    except ValueError as error:
        raise PipelineError(f"the timestamps of {name!r} are not an array: {error}") from None
    if times.ndim != 1 or not len(times):
        raise PipelineError(
            f"the timestamps of {name!r} have shape {times.shape}; a series needs a list of them, "
            "and at least one"
        )
    if times.dtype.kind not in "iufMm":
        raise PipelineError(
            f"the timestamps of {name!r} are {times.dtype}: give numbers, or datetime64 or "
            "timedelta64 (of a time zone: in UTC)"
        )
    falls = np.flatnonzero(~(times[1:] >= times[:-1]))
    if len(falls) or times[0] != times[0]:
        at = int(falls[0]) + 1 if len(falls) else 0
        raise PipelineError(
            f"timestamp {at} of {name!r}, {times[at]}, is before the one before it or no time at "
            "all; sort the series"
        )
    return times


def _alike(series: dict[str, Times]) -> dict[str, Times]:
    """Return timestamps that can be compared; whole numbers stay whole if all of them are."""
    kinds = {
        name: "number" if t.dtype.kind in "iuf" else t.dtype.kind for name, t in series.items()
    }
    if len(set(kinds.values())) > 1:
        kinds_found = ", ".join(f"{t.dtype} of {name!r}" for name, t in series.items())
        raise PipelineError(f"timestamps of different kinds do not go together: {kinds_found}")
    if "number" not in kinds.values():
        return series
    whole = all(t.dtype.kind in "iu" and t[-1] <= np.iinfo(np.int64).max for t in series.values())
    return {name: t.astype(np.int64 if whole else np.float64) for name, t in series.items()}


def _check_length(what: str, value: Any, times: Times) -> None:
    """Raise :class:`PipelineError` for a length of time of another kind than timestamps."""
    numbers = times.dtype.kind in "iuf"
    kind = as_array(what, value, PipelineError).dtype.kind
    timed = isinstance(value, timedelta) or kind == "m"
    if np.ndim(value) or timed == numbers or not (timed or kind in "iuf") or value != value:
        wanted = (
            "a number, as timestamps are" if numbers else "a timedelta, since timestamps are dates"
        )
        raise PipelineError(f"{what} is {value!r}, and must be {wanted}")
    if value < value * 0:  # nothing, in its own unit
        raise PipelineError(f"{what} is {value!r}, and must not be negative")


def _numbers_within(series: Mapping[str, Times], reference: str, margin: Any) -> Indices:
    """Return the numbers of the reference's samples in the time that all series cover."""
    margins = margin if isinstance(margin, Mapping) else dict.fromkeys(series, margin)
    for name in margins:
        if name not in series:
            raise UnknownNameError(
                f"no series {name!r} to leave a margin of; {did_you_mean(str(name), series)}"
            )
    moments = series[reference]
    inside = np.ones(len(moments), bool)
    for name, times in series.items():
        pair = margins.get(name, (0, 0))
        try:
            start, end = pair
        except (TypeError, ValueError):
            raise PipelineError(
                f"the margin of {name!r}, {pair!r}, must be a pair (start, end)"
            ) from None
        first = _edge(name, times, start)
        last = len(times) - 1 - _edge(name, times[::-1], end)
        if last < first:
            return np.empty(0, np.int64)
        inside &= (moments >= times[first]) & (moments <= times[last])
    return np.flatnonzero(inside)


def _edge(name: str, times: Times, margin: Any) -> int:
    """Count the samples that a margin takes off the beginning of a series, or of its reverse."""
    if np.ndim(margin) == 0 and np.asarray(margin).dtype.kind in "iu":
        if margin < 0:
            raise PipelineError(f"the margin of {name!r} is {margin!r}, and must not be negative")
        return int(margin)
    _check_length(f"the margin of {name!r}", margin, times)
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


# some of many rows

How = Literal["low-discrepancy", "uniform", "random"]


@check_arguments(PipelineError, but=("size",))
def subsample(n_rows: int, size: float, how: How = "low-discrepancy", *, seed: int = 0) -> Indices:
    """Choose some rows, each at most once.

    Parameters
    ----------
    n_rows : int
        How many there are.
    size : int or float
        How many to choose: a whole number, or a float for a share of them (``1`` is one row,
        ``1.0`` all).
    how : {"low-discrepancy", "uniform", "random"}
        In steps of the golden ratio, so that any first few are spread evenly too; at equal
        distances from first to last row, in order; or any with equal chance.
    seed : int
        Where "low-discrepancy" begins, and what "random" draws from.

    Returns
    -------
    int64 array, lengths ``(size,)``

    Raises
    ------
    PipelineError
        If there are not so many rows, or `how` is unknown.

    Examples
    --------
    >>> subsample(20, 5), subsample(20, 0.25, "uniform")
    (array([ 0, 13,  5, 18, 10]), array([ 0,  5, 10, 14, 19]))
    """
    whole_of("n_rows", n_rows, least=0)
    count: Any = size
    if isinstance(count, float | np.floating) and 0 <= count <= 1:
        # as written: 0.29 of 100 rows are 29, though 0.29 * 100 is a little less
        count = int(Fraction(str(count)) * n_rows)
    known = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if not known or not 0 <= count <= n_rows:
        raise PipelineError(
            f"size={size!r} of {n_rows} rows: give a whole number up to {n_rows}, or a share of "
            "them between 0.0 and 1.0"
        )
    if how == "uniform":
        return np.rint(np.linspace(0, max(n_rows - 1, 0), count)).astype(np.int64)
    if how == "random":
        drawn = explicit_permutation(n_rows, key_of("subsample", seed))
        return drawn[:count].astype(np.int64)
    return _low_discrepancy(n_rows, int(count), seed)


def _low_discrepancy(n_rows: int, k: int, seed: int) -> Indices:
    """Step by one Fibonacci number modulo the next, which is not below `n_rows`; leave out others.

    No other step of whole numbers is as even at any length, and none comes back early.
    """
    step, modulus = 1, 1
    while modulus < n_rows:
        step, modulus = modulus, step + modulus
    start = seed % modulus
    found = np.empty(0, np.int64)
    tried = 0
    while len(found) < k:
        more = 2 * (k - len(found)) + 8
        wide = (tried + more) * step + start > np.iinfo(np.int64).max
        numbers = np.arange(tried, tried + more, dtype=object if wide else np.int64)
        rows = ((numbers * step + start) % modulus).astype(np.int64)
        found = np.append(found, rows[rows < n_rows])
        tried += more
    return found[:k]
