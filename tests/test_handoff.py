"""Batches as another library's arrays: the same memory, or told why not."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError, MissingExtraError
from labeled.loader.slots import ALIGNED, Slot
from make_files import DIGIT_LABELS, digits, plain_file

N = 70
DATA = digits(N)


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = plain_file(tmp_path_factory.mktemp("data") / "d.hdf5", DATA, DIGIT_LABELS)
    return labeled.open_dataset(path)


def test_numpy_batches_are_plain_dicts(ds):
    for plain, batch in zip(ds.batches(16), ds.batches(16, as_="numpy"), strict=True):
        assert type(batch) is dict
        for name, array in batch.items():
            assert type(array) is np.ndarray
            np.testing.assert_array_equal(array, plain.arrays[name])


def test_rows_come_along(ds):
    for batch, rows, count in ds.batches(32, as_="numpy", last="pad").with_rows():
        np.testing.assert_array_equal(batch["targets"][:count], DATA["targets"][rows[:count]])


def test_what_cannot_be_handed_over_is_refused(ds, monkeypatch):
    with pytest.raises(LoaderError, match=r"as_='trch' is no library .* did you mean 'torch'"):
        ds.batches(8, as_="trch")
    with pytest.raises(LoaderError, match="not as_='numpy'"):
        ds.batches(8, as_="numpy", pinned=True)
    monkeypatch.setattr(importlib, "import_module", lambda name: exec("raise ImportError(name)"))
    for library in ("torch", "jax"):
        with pytest.raises(MissingExtraError, match=f"pip install {library}"):
            ds.batches(8, as_=library)


def test_memory_of_slots_starts_where_other_libraries_want_it():
    slot = Slot({"a": ((3,), np.dtype("u1")), "b": ((), np.dtype("M8[s]"))}, 5)
    assert all(array.ctypes.data % ALIGNED == 0 for array in slot.arrays.values())
    assert slot.unreferenced()
    view = slot.arrays["a"][1:3][:1]
    assert not slot.unreferenced()
    del view
    assert slot.unreferenced()


JAX = """
import sys, warnings
import jax, numpy as np, labeled
from labeled.device import HandOff
from labeled.loader.slots import Slot
from labeled.spaces import VectorSpace

ds = labeled.open_dataset(sys.argv[1])
options = {"dtype": "float32", "as_": "jax", "memory": "4 MiB", "shuffle": True}
loader = ds.batches(32, specs=(VectorSpace(105), "features"), **options)
batches = list(loader)
assert all(isinstance(batch, jax.Array) for batch in batches)
then = [np.array(batch) for batch in batches]
for _ in loader:
    pass
assert all(np.array_equal(a, b) for a, b in zip(batches, then, strict=True))

x = Slot({"x": ((16,), np.dtype("f4"))}, 4).arrays["x"]
assert HandOff("jax")(x).unsafe_buffer_pointer() == x.ctypes.data

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ds.batches(8, as_="jax")
assert "jax makes int32 of source 'targets', which is int64" in str(told[0].message)
assert next(iter(ds.batches(8, as_="jax", dtype={"targets": "int32"})))["targets"].shape == (8, 1)
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax_shares_what_is_aligned_keeps_it_and_says_where_it_narrows(ds):
    """In a process of its own: others fork, and JAX has threads."""
    command = [sys.executable, "-W", "error", "-c", JAX, ds.files.paths[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
