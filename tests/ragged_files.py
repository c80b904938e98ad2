"""Files of ragged examples in every layout, written with plain h5py but for the flat one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st

from make_files import split_table

LAYOUTS = ("flat", "fuel", "vlen")
DTYPES = ("u1", ">i4", "f4", "i8", "?", "c8")


@st.composite
def examples(draw: Any, n_axes: int | None = None) -> list[np.ndarray[Any, Any]]:
    """Examples of random shapes (zero lengths included), all values different where they can."""
    k = draw(st.integers(1, 3)) if n_axes is None else n_axes
    shape = st.tuples(*[st.integers(0, 4)] * k)
    shapes = draw(st.lists(shape, max_size=12))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    first, out = 1, []
    for one in shapes:
        size = int(np.prod(one))
        out.append(np.arange(first, first + size).astype(dtype).reshape(one))
        first += size
    return out


def ragged_path(
    path: Path,
    layout: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    *,
    name: str = "x",
    k: int | None = None,
    dtype: Any = None,
    options: dict[str, Any] | None = None,
) -> str:
    """Write arrays as source ``x`` and their row numbers as ``targets``; splits all and tail."""
    n, k = len(arrays), arrays[0].ndim if arrays else (k or 1)
    dims = ("batch", "channel", "height", "width")[: k + 1]
    dtype = np.dtype(dtype or (arrays[0].dtype if arrays else "u1"))
    if min(n, sum(a.size for a in arrays)) < 8:
        options = None  # h5py makes no chunks larger than what there is
    with h5py.File(path, "w") as f:
        if layout == "flat":
            flat = np.concatenate([a.reshape(-1) for a in arrays]) if n else np.empty(0, dtype)
            write_flat(
                f,
                name,
                values=flat,
                offsets=np.cumsum([0, *(a.size for a in arrays)]),
                shapes=np.array([a.shape for a in arrays], np.int64).reshape(n, k),
                dims=dims,
                **(options or {}),
            )
        else:
            _write_vlen(f, name, arrays, dtype, dims, layout == "fuel", options or {})
        f["targets"] = np.arange(n)[:, None]
        f["targets"].dims[0].label = "batch"
        f["targets"].dims[1].label = "index"
        f.attrs["split"] = split_table(
            f, {name: 0, "targets": 0}, {"all": (0, n), "tail": (n // 2, n)}
        )
    return str(path)


def write_flat(
    group: h5py.Group,
    name: str,
    arrays: Sequence[np.ndarray[Any, Any]] = (),
    *,
    values: Any = None,
    offsets: Any = None,
    shapes: Any = None,
    dims: Sequence[str],
    **options: Any,
) -> h5py.Dataset:
    """Write a source in the flat layout with plain h5py, as the format is described."""
    if values is None:
        values = np.concatenate([array.reshape(-1) for array in arrays])
        offsets = np.cumsum([0, *(array.size for array in arrays)])
        shapes = np.array([array.shape for array in arrays])
    last = name.rpartition("/")[2]
    dataset = group.create_dataset(name, data=values, **options)
    group[f"{name}_offsets"] = offsets
    _label(group, name, (f"{name}_value",))
    _label(group, f"{name}_offsets", (f"{name}_offset",))
    dataset.attrs["ragged_offsets"] = f"{last}_offsets"
    if len(dims) > 2:
        group[f"{name}_shapes"] = shapes
        _label(group, f"{name}_shapes", (dims[0], f"{name}_axis"))
        dataset.attrs["ragged_shapes"] = f"{last}_shapes"
    dataset.attrs["ragged_dims"] = list(dims)
    return dataset


def _label(group: h5py.Group, name: str, dims: Sequence[str]) -> None:
    for axis, (dim, length) in enumerate(zip(dims, group[name].shape, strict=True)):
        if dim not in group:
            group.create_dataset(dim, (length,), dtype=">f4")
            group[dim].make_scale(
                f"This is a netCDF dimension but not a netCDF variable.{length:>10}"
            )
        group[name].dims[axis].label = dim
        group[name].dims[axis].attach_scale(group[dim])


def _write_vlen(
    f: h5py.File,
    name: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    dtype: np.dtype[Any],
    dims: tuple[str, ...],
    shaped: bool,
    options: dict[str, Any],
) -> None:
    rows = f.create_dataset(name, (len(arrays),), h5py.vlen_dtype(dtype), **options)
    for i, array in enumerate(arrays):
        rows[i] = array.reshape(-1)
    rows.dims[0].label = dims[0]
    if not shaped:
        return
    shapes = np.array([a.shape for a in arrays], np.int32).reshape(len(arrays), len(dims) - 1)
    f[f"{name}_shapes"] = shapes
    f[f"{name}_shapes"].make_scale("shapes")
    rows.dims[0].attach_scale(f[f"{name}_shapes"])
    f[f"{name}_labels"] = np.array([dim.encode() for dim in dims[1:]])
    f[f"{name}_labels"].make_scale("shape_labels")
    rows.dims[0].attach_scale(f[f"{name}_labels"])


def same(found: Any, expected: Sequence[np.ndarray[Any, Any]]) -> None:
    """Check that examples have equal values, shapes and native dtypes."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype.newbyteorder("=")
        np.testing.assert_array_equal(one, other)
