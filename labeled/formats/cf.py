"""CF attributes of a variable: packed numbers, fill values and times, as xarray decodes them.

:func:`cf_of` turns attributes into a :class:`CF`, a plain list of steps; :func:`decode`
takes the steps on a NumPy array. Values and dtypes are those of xarray's own decoding, bit
for bit; that is why scale, offset and fill values keep the dtype they have in the file.

Left raw on purpose, with a warning: times in calendars that ``datetime64`` cannot hold,
and units that only look like times. Strings are never decoded. Times come out as
``datetime64[ns]`` always, so that every batch of a source has the same dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from labeled.errors import ReadError
from labeled.formats.header import CF
from labeled.formats.reader import ByteRanges, Reader, Rows, count
from labeled.formats.region import Array, Ints

PACKED = ("scale_factor", "add_offset")
FILLS = ("missing_value", "_FillValue")
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
        What cannot be decoded is told here.

    Returns
    -------
    cf : CF or None
        None when nothing is to be done.
    used : names
        Attributes that no longer describe the decoded values.
    """
    if dtype.kind not in "iuf":
        return None, frozenset()
    said = {key: _single(value) for key, value in attrs.items()}
    if not _numbers(name, said, odd):
        return None, frozenset()
    kind = _time_kind(name, said, odd)
    final, times, used = _outcome(said, kind)
    view, base, fills, filled = _view_and_fills(dtype, said)
    packed = any(key in said for key in PACKED)
    masked = _masked_dtype(base, said, kind, packed) if fills else None
    after = base if masked is None else masked
    scaled = None
    if packed:
        scaled = after if filled and kind is None else _float_for(after, said)
        after = scaled
    cf = CF(
        dtype=after.newbyteorder("=") if final is None else final,
        scale=said.get("scale_factor"),
        offset=said.get("add_offset"),
        fills=fills,
        times=times,
        calendar=said.get("calendar") if kind == "datetime" else None,
        view=view,
        masked=masked,
        scaled=scaled,
    )
    return (None if cf == CF(dtype) else cf), used


def _outcome(
    said: Mapping[str, Any], kind: str | None
) -> tuple[np.dtype[Any] | None, str | None, frozenset[str]]:
    """Return the dtype of times and booleans, the units of times, and the attributes used up."""
    used = {key for key in (*PACKED, *FILLS, "_Unsigned") if key in said}
    named = str(said.get("dtype", ""))
    if kind == "datetime":
        used |= {"units", "calendar"} & set(said)
        return np.dtype("datetime64[ns]"), str(said["units"]), frozenset(used)
    if kind == "timedelta" and named.startswith("timedelta64"):
        return _timedelta_dtype(named), str(said["units"]), frozenset(used | {"units", "dtype"})
    if named == "bool":
        return np.dtype(bool), None, frozenset(used | {"dtype"})
    return None, None, frozenset(used)


def time_attrs(kind: str) -> dict[str, Any]:
    """Return the attributes of times (kind "M") or durations ("m") that are stored by us."""
    fill = {"_FillValue": np.int64(_NOT_A_TIME)}
    if kind == "m":
        return {"units": "nanoseconds", "dtype": "timedelta64[ns]", **fill}
    calendar = "proleptic_gregorian"
    return {"units": "nanoseconds since 1970-01-01", "calendar": calendar, **fill}


def encoding_of(cf: CF | None, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return how decoded values are stored, as xarray's `encoding` says it.

    Examples
    --------
    >>> cf, used = cf_of("t2m", np.dtype("i2"), {"scale_factor": 0.5, "_FillValue": -1}, [])
    >>> {key: str(value) for key, value in encoding_of(cf, np.dtype("i2")).items()}
    {'dtype': 'int16', 'scale_factor': '0.5', '_FillValue': '-1'}
    """
    if cf is None or cf.view is not None or len(cf.fills) > 1:
        return {}
    fill = cf.fills[0] if cf.fills else None
    units = cf.times if cf.dtype.kind == "M" else None
    said = {
        "dtype": dtype,
        "scale_factor": cf.scale,
        "add_offset": cf.offset,
        "_FillValue": fill,
        "units": units,
        "calendar": cf.calendar,
    }
    packed = any(value is not None for key, value in said.items() if key != "dtype")
    return {k: v for k, v in said.items() if v is not None} if packed else {}


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
        New memory.

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
    values = raw if cf.view is None else raw.astype(cf.view)
    if cf.masked is not None:
        values = _mask(values, cf)
    if cf.scaled is not None:
        values = values.astype(cf.scaled, copy=True)
        if cf.scale is not None:
            values *= cf.scale
        if cf.offset is not None:
            values += cf.offset
    if cf.times is not None:
        return _decode_times(values, cf)
    return values.astype(cf.dtype, copy=values is raw)


def _mask(values: np.ndarray[Any, Any], cf: CF) -> np.ndarray[Any, Any]:
    masked = np.array(values, dtype=cf.masked, copy=True)
    hidden = np.zeros(masked.shape, dtype=bool)
    for fill in cf.fills:
        hidden |= masked == fill
    masked[hidden] = _NOT_A_TIME if masked.dtype.kind == "i" else np.nan
    return masked


def _decode_times(values: np.ndarray[Any, Any], cf: CF) -> np.ndarray[Any, Any]:
    if values.dtype.kind == "f" and values.dtype.itemsize < 4:
        values = values.astype(np.float64)  # half floats overflow in xarray's range check
    dims = tuple(f"axis_{i}" for i in range(values.ndim))
    attrs = {"units": cf.times}
    coder: Any = xr.coders.CFDatetimeCoder(use_cftime=False)
    if cf.dtype.kind == "m":
        attrs["dtype"] = cf.dtype.name
        coder = xr.coders.CFTimedeltaCoder()
    elif cf.calendar is not None:
        attrs["calendar"] = cf.calendar
    try:
        decoded: np.ndarray[Any, Any] = coder.decode(xr.Variable(dims, values, attrs)).values
    except (ValueError, OverflowError) as error:
        raise ReadError(
            f"times in {cf.times!r} do not fit {cf.dtype} ({error}); open the file with "
            f"decode_cf=False to read the plain numbers"
        ) from error
    return decoded.astype(cf.dtype, copy=False)


def with_bounds_units(attrs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return attributes of variables where bounds of a time carry the time's units.

    CF lets ``time_bnds`` leave out `units` and `calendar` when ``time`` names it in `bounds`.
    """
    mended = {name: dict(values) for name, values in attrs.items()}
    for values in attrs.values():
        bounds, units = values.get("bounds"), values.get("units")
        if isinstance(units, str) and "since" in units and bounds in mended:
            for key in {"units", "calendar"} & set(values):
                mended[bounds].setdefault(key, values[key])
    return mended


def named_coordinates(attrs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the variables that `coordinates` attributes name."""
    texts = (values.get("coordinates") for values in attrs)
    return frozenset(name for text in texts if isinstance(text, str) for name in text.split())


def _single(value: Any) -> Any:
    if isinstance(value, np.ndarray | list) and np.size(value) == 1:
        return np.reshape(value, -1)[0]
    return value


def _numbers(name: str, said: Mapping[str, Any], odd: list[str]) -> bool:
    for key in PACKED:
        value = said.get(key)
        if value is not None and (np.ndim(value) > 0 or np.asarray(value).dtype.kind not in "biuf"):
            odd.append(f"{name!r} is left as stored: its {key} {value!r} is not a number")
            return False
    for key in FILLS:
        value = said.get(key)
        if value is not None and np.asarray(value).dtype.kind not in "biuf":
            odd.append(f"{name!r} is left as stored: its {key} {value!r} is not a number")
            return False
    return True


def _view_and_fills(
    dtype: np.dtype[Any], said: Mapping[str, Any]
) -> tuple[np.dtype[Any] | None, np.dtype[Any], tuple[Any, ...], bool]:
    """Return the dtype to read integers as, the dtype then, fill values, whether any is named."""
    fills: dict[Any, None] = {}
    filled = False
    for key in FILLS:
        if key in said:
            real = [value for value in np.ravel(said[key]) if not np.isnan(value)]
            # NaN as the fill value of integers means nothing
            filled = filled or bool(real) or dtype.kind not in "iu"
            fills.update(dict.fromkeys(real))
    unsigned = said.get("_Unsigned")
    if (dtype.kind, unsigned) not in (("i", "true"), ("u", "false")):
        return None, dtype, tuple(fills), filled
    view = np.dtype(f"{'u' if dtype.kind == 'i' else 'i'}{dtype.itemsize}")
    raw_fill = _single(said.get("_FillValue"))
    if raw_fill is not None and raw_fill in fills:
        del fills[raw_fill]
        fills[np.asarray(raw_fill).astype(dtype).astype(view)[()]] = None
    return view, view, tuple(fills), filled


def _masked_dtype(
    base: np.dtype[Any], said: Mapping[str, Any], kind: str | None, scaled: bool
) -> np.dtype[Any]:
    """Return the dtype that can hold the values and "missing"."""
    if scaled:
        wanted = _float_for(base, said)
        return wanted if wanted.kind == "f" else np.dtype(np.float64)  # integers have no NaN
    if kind is not None and base.kind in "iu":
        return np.dtype(np.int64)
    if base.kind == "f":
        return base
    return np.dtype(np.float32 if base.itemsize <= 2 else np.float64)


def _float_for(dtype: np.dtype[Any], said: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the floating dtype in which packed values are unpacked, as xarray chooses it."""
    scale, offset = said.get("scale_factor"), said.get("add_offset")
    scale_dtype = None if scale is None else np.dtype(type(scale))
    if offset is None:
        return np.dtype(np.float64) if scale_dtype is None else scale_dtype
    conforming = scale_dtype is not None and scale_dtype == np.dtype(type(offset))
    if conforming and scale_dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        wide = dtype.itemsize == 4 and dtype.kind in "iu"
        return np.dtype(np.float64) if wide or scale_dtype is None else scale_dtype
    return np.dtype(np.float64)


def _time_kind(name: str, said: Mapping[str, Any], odd: list[str]) -> str | None:
    """Return "datetime" or "timedelta" for units of time that can be decoded, else None."""
    units = said.get("units")
    if not isinstance(units, str):
        return None
    if "since" not in units:
        return "timedelta" if units in DURATIONS else None
    calendar = said.get("calendar", "standard")
    if str(calendar).lower() not in STANDARD_CALENDARS:
        odd.append(
            f"{name!r} is left as numbers: calendar {calendar!r} does not fit datetime64; decode "
            f"it with xarray and cftime"
        )
        return None
    probe = CF(np.dtype("datetime64[ns]"), times=units, calendar=str(calendar))
    try:
        _decode_times(np.zeros(1, np.int64), probe)
    except ReadError:
        odd.append(f"{name!r} is left as numbers: its units {units!r} are not understood")
        return None
    return "datetime"


def _timedelta_dtype(text: str) -> np.dtype[Any]:
    """Return the resolution that a `dtype` attribute names, kept between seconds and ns."""
    unit = np.datetime_data(np.dtype(text))[0]
    return np.dtype(f"timedelta64[{unit if unit in ('s', 'ms', 'us', 'ns') else 'ns'}]")


@dataclass(frozen=True, eq=False)
class DecodingReader:
    """Rows of one file decoded by its own conventions; a :class:`~labeled.formats.reader.Reader`.

    Normally values stay as stored until the end. Where the files of a source are packed each in
    their own way there is no such end, so that each is decoded as it is read, at the price of one
    copy.
    """

    stored: Reader
    cf: CF
    kind: str = "decoded"

    @property
    def n_rows(self) -> int:
        return self.stored.n_rows

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.stored.row_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.cf.dtype

    @property
    def why(self) -> str:
        return f"each file is decoded by its own conventions ({self.stored.why})"

    @property
    def chunk_rows(self) -> int:
        return self.stored.chunk_rows

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Read and decode rows; see :class:`~labeled.formats.reader.Reader`."""
        n = count(rows)
        raw = np.empty((n, *self.row_shape), self.stored.dtype)
        self.stored.read(rows, raw)
        out[slice(n) if places is None else places] = decode(raw, self.cf)

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched; see :class:`~labeled.formats.reader.Reader`."""
        return self.stored.byte_ranges(rows)
