"""Batches as arrays of another library; what it cannot hold is refused before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from labeled.device import HandOff, dtype_of, is_array
from labeled.errors import LoaderError, warn
from labeled.loader.batch import Batch
from labeled.loader.finish import Finish


@dataclass(frozen=True)
class HandedOver:
    """Turns what a loader makes into the same nest of another library's arrays.

    Parameters
    ----------
    to : HandOff
    as_tuple : bool
        Make a tuple of a mapping from source to array.
    """

    to: HandOff
    as_tuple: bool = False

    def __call__(self, data: Any) -> Any:
        """Return a batch with arrays of the library."""
        made = self._converted(data)
        return tuple(made.values()) if self.as_tuple and isinstance(made, dict) else made

    def _converted(self, data: Any) -> Any:
        """Return the same nest with arrays of the library; what is no array of numbers stays.

        A pipeline that makes something else of one source leaves the others labelled.
        """
        if isinstance(data, Batch):
            data = data.arrays
        if isinstance(data, xr.DataArray):
            data = data.data
        if isinstance(data, Mapping):
            return {name: self._converted(part) for name, part in data.items()}
        if isinstance(data, tuple | list):
            return type(data)(map(self._converted, data)) if type(data) in (tuple, list) else data
        if not is_array(data) or self.to.library == "numpy":
            return data
        kind = dtype_of(data).kind
        if kind == "O":
            return [self._converted(example) for example in data]
        return self.to(data) if kind in "biufc" else data


def handed_over(
    output: Any, pinned: bool, finish: Finish | None, *, as_tuple: bool = False
) -> HandedOver | None:
    """Check that what `finish` makes can be handed to a library; None if nothing is asked.

    What a pipeline makes is not known before: without `finish` every array of numbers is
    handed over that is met.

    Raises
    ------
    LoaderError
        If the library has no dtype for a source, or no such arrays.

    Warns
    -----
    LabeledWarning
        If the library makes narrower numbers of a source, or nothing can be pinned.
    """
    if as_tuple and finish is not None and finish.specs is not None:
        raise LoaderError("as_tuple=True: batches are nested as specs= asks already; leave one out")
    if output is None:
        if pinned:
            raise LoaderError("pinned=True goes with output='torch'")
        if not as_tuple:
            return None
        output = "numpy"
    to = HandOff(output, pinned)
    if pinned and not to.pins:
        warn(
            "pinned=True: torch finds no CUDA device, so tensors stay in ordinary memory, which is "
            "all that the CPU needs; leave it out here, or install torch for CUDA"
        )
    if finish is None:
        return HandedOver(to, as_tuple)
    if finish.specs is not None and finish.specs.sparse and to.library != "numpy":
        raise LoaderError(
            f"output={output!r}: sparse batches are scipy's; ask for a dense VectorSpace"
        )
    for name, dtype in out_dtypes(finish).items():
        found = to.dtype(dtype)
        if found is None:
            raise LoaderError(f"source {name!r} is {_why_not(name, dtype, output)}")
        if found.itemsize < dtype.itemsize:
            warn(
                f"{output} makes {found} of source {name!r}, which is {dtype}, and does not look "
                f"whether values fit: give dtype={{{name!r}: {str(found)!r}}}, which does, or turn "
                "64 bits on there"
            )
    return HandedOver(to, as_tuple)


def _why_not(name: str, dtype: np.dtype[Any], output: Any) -> str:
    """Say what a source is that is not handed over, and what to do about it."""
    if dtype.kind == "V":  # of ml_dtypes, say, which JAX and TensorFlow bring
        return f"{dtype}, which NumPy does not hand over; take dtype='float32', and cast it there"
    what, remedy = str(dtype), "give a dtype= that it has"
    if dtype.kind in "OSU":
        what, remedy = "text", f"make numbers of it with pipeline={{{name!r}: ...}}"
    elif dtype.kind in "Mm":
        remedy = f"say pipeline={{{name!r}: lambda times: times.astype('int64')}}"
    return f"{what}, of which {output} makes no arrays; leave it out with select(), or {remedy}"


def out_dtypes(finish: Finish) -> Mapping[str, np.dtype[Any]]:
    """Return the dtype of each source as it is handed out."""
    if finish.specs is not None:
        return {step.source: step.dtype for step in finish.specs.steps}
    out: dict[str, np.dtype[Any]] = {}
    for name, source in finish.sources.items():
        ragged = finish.ragged.get(name)
        if ragged is not None:
            out[name] = ragged.out_dtype
            continue
        change = finish.changes.get(name)
        asked = None if change is None else change.dtype
        if asked is None and change is not None and change.scaled and source.dtype.kind != "f":
            asked = np.dtype(np.float64 if source.dtype.itemsize > 4 else np.float32)
        out[name] = source.dtype if asked is None else asked
    return out
