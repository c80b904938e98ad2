"""CF attributes of a variable: packed numbers, fill values and times, decoded by xarray.

:func:`cf_of` decides from the attributes whether there is something to decode, and
:func:`decode` does it for a NumPy array: floats are made here as xarray makes them, but in a tenth
of its time where they are few; all else by xarray itself.

Left raw on purpose, with a warning: times in calendars that ``datetime64`` cannot hold,
and units that only look like times. Strings are never decoded. Times come out as
``datetime64[ns]`` always, so that every batch of a source has the same dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr

from labeled.errors import ReadError
from labeled.formats.header import CF
from labeled.formats.reader import ByteRanges, Reader, Rows, count
from labeled.formats.region import Array, Ints

PACKED = ("scale_factor", "add_offset")
FILLS = ("_FillValue", "missing_value")
STANDARD_CALENDARS = frozenset({"standard", "gregorian", "proleptic_gregorian"})
DURATIONS = frozenset(
    {"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"}
)
_NOT_A_TIME = np.iinfo(np.int64).min


def cf_of(
    name: str, dtype: np.dtype[Any], attrs: Mapping[str, Any], odd: list[str]
) -> tuple[CF | None, frozenset[str]]:
    """Return how to decode a variable, and the attributes which that uses up.

    Parameters
    ----------
    name : str
        For messages.
    dtype : numpy.dtype
        In the file; only integers and floats are decoded.
    attrs : mapping
        Of the variable; arrays of one value count as that value.
    odd : list of str
        Receives what cannot be decoded.

    Returns
    -------
    cf : CF or None
        None when nothing is to be done.
    used : names
        Attributes that no longer describe the decoded values.
    """
    if dtype.kind not in "iuf":
        return None, frozenset()
    found: dict[str, Any] = {}
    for key, value in attrs.items():
        if isinstance(value, list) and any(isinstance(row, list | np.ndarray) for row in value):
            continue  # rows of any lengths, which no convention means
        single = isinstance(value, np.ndarray | list) and np.size(value) == 1
        found[key] = np.reshape(value, -1)[0] if single else value
    for key in (*PACKED, *FILLS):
        value = found.get(key, 0)
        several = key in PACKED and np.ndim(value) > 0
        if several or np.asarray(value).dtype.kind not in "biuf":
            odd.append(f"{name!r} is left as stored: its {key} {value!r} is not a number")
            return None, frozenset()
    used = {key for key in (*PACKED, *FILLS, "_Unsigned") if key in found}
    kind = _time_kind(name, found, odd)
    final: np.dtype[Any] | None = None
    named = str(found.get("dtype", ""))
    if kind == "datetime":
        used |= {"units", "calendar"} & set(found)
        final = np.dtype("datetime64[ns]")
    elif kind == "timedelta" and named.startswith("timedelta64"):
        used |= {"units", "dtype"}
        unit = np.datetime_data(np.dtype(named))[0]
        final = np.dtype(f"timedelta64[{unit if unit in ('s', 'ms', 'us', 'ns') else 'ns'}]")
    elif named == "bool":
        used |= {"dtype"}
        final = np.dtype(bool)
    steps, fills = _steps(dtype, found, used)
    native = dtype.newbyteorder("=")
    if not steps:
        return (None if native == dtype else CF(native)), frozenset(used)
    if kind == "timedelta":
        steps["units"] = found["units"]  # integers with such units keep 64 bits where they hide
    if final is None:
        kinds = tuple(np.asarray(value).dtype.str for value in steps.values())
        final = _decoded_dtype(native, tuple(steps.items()), kinds)
    return CF(final, tuple(steps.items()), fills), frozenset(used)


def _steps(
    dtype: np.dtype[Any], found: Mapping[str, Any], used: set[str]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return attributes that xarray decodes as they are meant, and fill values as they are read.

    NaN as a fill value means nothing but the dtype of packed floats; ``_Unsigned`` means nothing
    where integers are unsigned anyway.
    """
    steps = {key: found[key] for key in found if key in used and key not in FILLS}
    if (dtype.kind, str(found.get("_Unsigned"))) not in (("i", "true"), ("u", "false")):
        steps.pop("_Unsigned", None)
    first: dict[str, Any] = {}  # the one for xarray: one that values can be
    fills: dict[Any, None] = {}  # as they are read
    native, flips = dtype.newbyteorder("="), "_Unsigned" in steps
    read_as = _reinterpreted(np.zeros(1, native)).dtype if flips else native
    for key in FILLS:
        for value in np.ravel(found.get(key, ())):
            if np.isnan(value):
                if dtype.kind == "f" and not used.isdisjoint(PACKED):
                    steps[key] = np.nan
                continue
            with np.errstate(all="ignore"):
                stored, read = value.astype(native), value.astype(read_as)
            given = {key: value}
            if flips and key == "_FillValue" and stored == value:  # the others are given as read
                read = value = _reinterpreted(stored)
            if not first or (not fills and read == value):
                first = given
            if read == value:
                fills.setdefault(value)
    if first:
        steps = {step: value for step, value in steps.items() if step not in FILLS} | first
    return steps, tuple(fills)


def _reinterpreted(values: Any) -> Any:
    """View integers as unsigned ones, and unsigned ones as signed."""
    return values.view(f"{'u' if values.dtype.kind == 'i' else 'i'}{values.itemsize}")


@lru_cache(maxsize=1024)
def _decoded_dtype(
    dtype: np.dtype[Any], attrs: tuple[tuple[str, Any], ...], kinds: tuple[str, ...]
) -> np.dtype[Any]:
    """Return the dtype that values have once xarray has decoded them; `kinds` tell numbers that
    are equal apart."""
    found: np.dtype[Any] = _by_xarray(np.zeros(1, dtype), CF(dtype, attrs)).dtype
    return found


def time_attrs(kind: str) -> dict[str, Any]:
    """Return the attributes of times (kind "M") or durations ("m") that are stored by us."""
    fill = {"_FillValue": np.int64(_NOT_A_TIME)}
    if kind == "m":
        return {"units": "nanoseconds", "dtype": "timedelta64[ns]", **fill}
    return {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian", **fill}


def encoding_of(cf: CF | None, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return how decoded values are stored, as xarray's `encoding` says it.

    Examples
    --------
    >>> cf, used = cf_of("t2m", np.dtype("i2"), {"scale_factor": 0.5, "_FillValue": -1}, [])
    >>> {key: str(value) for key, value in encoding_of(cf, np.dtype("i2")).items()}
    {'dtype': 'int16', 'scale_factor': '0.5', '_FillValue': '-1'}
    """
    attrs = {} if cf is None else dict(cf.attrs)
    if cf is None or len(cf.fills) > 1 or "_Unsigned" in attrs:
        return {}
    if cf.dtype.kind not in "mM":
        attrs.pop("units", None)
    fill = attrs.pop("missing_value", None)
    if fill is not None:
        attrs.setdefault("_FillValue", fill)
    attrs = {key: value for key, value in attrs.items() if key != "dtype" and value == value}
    return {"dtype": dtype, **attrs} if attrs else {}


def decode(raw: np.ndarray[Any, Any], cf: CF) -> np.ndarray[Any, Any]:
    """Return decoded values; `raw` is left as it is and never handed back.

    Parameters
    ----------
    raw : array of any shape
        Values in the file's dtype.
    cf : CF
        From :func:`cf_of`.

    Returns
    -------
    array of ``cf.dtype``, same shape
        New memory, which may be written to.

    Raises
    ------
    ReadError
        If a time does not fit ``datetime64[ns]``.

    Examples
    --------
    >>> cf, used = cf_of("t2m", np.dtype("i2"), {"scale_factor": 0.5, "_FillValue": -1}, [])
    >>> decode(np.array([-1, 0, 3], "i2"), cf)
    array([nan, 0. , 1.5])
    """
    attrs, stored = dict(cf.attrs), raw.astype(raw.dtype.newbyteorder("="), copy=False)
    values = _reinterpreted(stored) if "_Unsigned" in attrs else stored
    if values.dtype.kind == cf.dtype.kind == "f":  # xarray compares what is left of values
        values = values.astype(cf.dtype, copy=False)
    missing: Any = None
    for fill in cf.fills:
        found = values == fill
        missing = found if missing is None else missing | found
    if attrs and cf.dtype.kind != "f":
        plain = stored.copy()  # xarray changes some where they lie
        if len(cf.fills) > 1:
            plain[missing] = next(attrs[key] for key in FILLS if key in attrs)
        found = _by_xarray(plain, cf)
        out = found.astype(cf.dtype, copy=not found.flags.writeable)  # as pandas hands out
    else:
        out = values.astype(cf.dtype)
        if "scale_factor" in attrs:
            np.multiply(out, attrs["scale_factor"], out=out, casting="same_kind")
        if "add_offset" in attrs:
            np.add(out, attrs["add_offset"], out=out, casting="same_kind")
        if missing is not None:
            out[missing] = np.nan
    return out


def _by_xarray(values: np.ndarray[Any, Any], cf: CF) -> np.ndarray[Any, Any]:
    times: Any = cf.dtype.kind == "M" and xr.coders.CFDatetimeCoder(use_cftime=False)
    durations: Any = cf.dtype.kind != "M" and xr.coders.CFTimedeltaCoder()
    if cf.dtype.kind in "mM" and values.dtype.kind == "f" and values.itemsize < 4:
        values = values.astype(np.float64)  # half floats overflow in xarray's range check
    attrs = dict(cf.attrs)
    for key in PACKED if any(key in attrs and attrs[key] == attrs[key] for key in FILLS) else ():
        if key in attrs and np.asarray(attrs[key]).dtype.kind in "biu":
            attrs[key] = np.float64(attrs[key])  # integers could not hold NaN
    variable = xr.Variable([f"axis_{i}" for i in range(values.ndim)], values, attrs)
    try:
        decoded: np.ndarray[Any, Any] = xr.conventions.decode_cf_variable(
            None,
            variable,
            concat_characters=False,
            decode_times=times,
            decode_timedelta=durations,
            stack_char_dim=False,
        ).values
    except (ValueError, OverflowError) as error:
        raise ReadError(
            f"times in {attrs.get('units')!r} do not fit {cf.dtype} ({error}); open the "
            f"file with decode_cf=False to read the plain numbers"
        ) from error
    return decoded


def with_bounds_units(attrs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return attributes of variables where bounds of a time carry the time's units.

    CF lets ``time_bnds`` leave out `units` and `calendar` when ``time`` names it in `bounds`.
    """
    fixed = {name: dict(values) for name, values in attrs.items()}
    for values in attrs.values():
        bounds, units = values.get("bounds"), values.get("units")
        if isinstance(units, str) and "since" in units and bounds in fixed:
            for key in {"units", "calendar"} & set(values):
                fixed[bounds].setdefault(key, values[key])
    return fixed


def named_coordinates(attrs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the variables that `coordinates` attributes name."""
    texts = (values.get("coordinates") for values in attrs)
    return frozenset(name for text in texts if isinstance(text, str) for name in text.split())


def _time_kind(name: str, found: Mapping[str, Any], odd: list[str]) -> str | None:
    """Return "datetime" or "timedelta" for units of time that can be decoded, else None."""
    units = found.get("units")
    if not isinstance(units, str):
        return None
    if "since" not in units:
        return "timedelta" if units in DURATIONS else None
    calendar = found.get("calendar", "standard")
    if str(calendar).lower() not in STANDARD_CALENDARS:
        odd.append(
            f"{name!r} is left as numbers: calendar {calendar!r} does not fit datetime64; decode "
            f"it with xarray and cftime"
        )
        return None
    attrs = (("units", units), ("calendar", str(calendar)))
    try:
        _by_xarray(np.zeros(1, np.int64), CF(np.dtype("datetime64[ns]"), attrs))
    except ReadError:
        odd.append(  # cftime knows the years before 1582, and short names of units
            f"{name!r} is left as numbers: its units {units!r} cannot be decoded without cftime; "
            f"decode it with xarray and cftime, or correct the units"
        )
        return None
    return "datetime"


class DecodingReader:
    """Rows of one file decoded by its own conventions; a :class:`~labeled.formats.reader.Reader`.

    Normally values stay as stored until the end. Where the files of a source are packed each in
    their own way there is no such end, so that each is decoded as it is read, at the price of one
    copy.
    """

    kind = "decoded"

    def __init__(self, stored: Reader, cf: CF) -> None:
        self.stored, self.cf, self.dtype = stored, cf, cf.dtype
        self.n_rows, self.row_shape = stored.n_rows, stored.row_shape
        self.chunk_rows = stored.chunk_rows
        self.why = f"each file is decoded by its own conventions ({stored.why})"

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Read and decode rows; see :class:`~labeled.formats.reader.Reader`."""
        n = count(rows)
        raw = np.empty((n, *self.row_shape), self.stored.dtype)
        self.stored.read(rows, raw)
        out[slice(n) if places is None else places] = decode(raw, self.cf)

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched; see :class:`~labeled.formats.reader.Reader`."""
        return self.stored.byte_ranges(rows)
