"""Batches as another library's arrays: the same memory, or told why not."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.device import HandOff, adopted
from labeled.errors import ArrayError, DimsError, LoaderError, MissingExtraError
from labeled.transforms import Stages, whole
from make_files import DIGIT_LABELS, digits, plain_file

N = 70
DATA = digits(N)


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = plain_file(tmp_path_factory.mktemp("data") / "d.hdf5", DATA, DIGIT_LABELS)
    return labeled.open_dataset(path)


def test_numpy_batches_are_plain_dicts(ds):
    for plain, batch in zip(ds.batches(16), ds.batches(16, output="numpy"), strict=True):
        assert type(batch) is dict
        for name, array in batch.items():
            assert type(array) is np.ndarray
            np.testing.assert_array_equal(array, plain.arrays[name])


@pytest.mark.parametrize("change", [lambda y: y.values + 1, whole(lambda y: y.values + 1)])
def test_what_a_pipeline_leaves_alone_is_handed_over_too(ds, change):
    """A batch half of which a transform had made plain kept the other half labelled."""
    for batch in ds.batches(32, output="numpy", pipeline={"targets": change}):
        assert {name: type(array) for name, array in batch.items()} == dict.fromkeys(
            DATA, np.ndarray
        )


def test_rows_come_along(ds):
    for batch, rows, count in ds.batches(32, output="numpy", last="pad").with_rows():
        np.testing.assert_array_equal(batch["targets"][:count], DATA["targets"][rows[:count]])


def test_what_cannot_be_handed_over_is_refused(ds, monkeypatch):
    with pytest.raises(LoaderError, match=r"output='trch' must be .*; did you mean 'torch'"):
        ds.batches(8, output="trch")
    with pytest.raises(LoaderError, match="not output='numpy'"):
        ds.batches(8, output="numpy", pinned=True)
    monkeypatch.setattr(importlib, "import_module", lambda name: exec("raise ImportError(name)"))
    for library in ("torch", "jax", "tensorflow"):
        with pytest.raises(MissingExtraError, match=f"pip install {library}"):
            ds.batches(8, output=library)


def test_memory_of_batches_starts_where_other_libraries_want_it(ds):
    for shuffle in (False, "full", "window"):
        for batch in ds.batches(64, output="numpy", shuffle=shuffle, seed=0):
            assert all(array.ctypes.data % 64 == 0 for array in batch.values())


JAX = """
import sys, warnings
import jax, numpy as np, labeled
from labeled import permute
from labeled.device import HandOff
from labeled.spaces import VectorSpace

ds = labeled.open_dataset(sys.argv[1])
options = {"dtype": "float32", "output": "jax", "memory": "4 MiB", "shuffle": True}
loader = ds.batches(32, specs=(VectorSpace(105), "features"), **options)
batches = list(loader)
assert all(isinstance(batch, jax.Array) for batch in batches)
then = [np.array(batch) for batch in batches]
for _ in loader:
    pass
assert all(np.array_equal(a, b) for a, b in zip(batches, then, strict=True))

x = permute.empty((1 << 16, 16), np.dtype("f4"))[:4]  # large ones start at a cache line
assert HandOff("jax")(x).unsafe_buffer_pointer() == x.ctypes.data

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ds.batches(8, output="jax")
assert "jax makes int32 of source 'targets', which is int64" in str(told[0].message)
narrow = ds.batches(8, output="jax", dtype={"targets": "int32"})
assert next(iter(narrow))["targets"].shape == (8, 1)
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax_shares_what_is_aligned_keeps_it_and_says_where_it_narrows(ds):
    """In a process of its own: others fork, and JAX has threads."""
    command = [sys.executable, "-W", "error", "-c", JAX, ds.files.paths[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


TENSORFLOW = """
import sys
import numpy as np, tensorflow, labeled
from labeled import permute
from labeled.device import HandOff
from labeled.errors import ArrayError
from labeled.spaces import Conv2DSpace, VectorSpace

ds = labeled.open_dataset(sys.argv[1])
options = {"dtype": "float32", "output": "tensorflow", "memory": "4 MiB", "shuffle": True}
loader = ds.batches(32, specs=(VectorSpace(105), "features"), **options)
batches = list(loader)
assert all(isinstance(batch, tensorflow.Tensor) for batch in batches)
then = [np.array(batch) for batch in batches]
for _ in loader:
    pass
assert all(np.array_equal(a, b) for a, b in zip(batches, then, strict=True))
options |= {"output": "numpy", "seed": loader.seed}
plain = ds.batches(32, specs=(VectorSpace(105), "features"), **options)
assert all(np.array_equal(a, b) for a, b in zip(batches, plain, strict=True))

x = permute.empty((1 << 16, 16), np.dtype("f4"))[:4]  # large ones start at a cache line
x[...] = 1
made = HandOff("tensorflow")(x)
x[0] = 2  # nobody does so; it tells whose memory it is
assert float(made[0, 0]) == 2
for odd in (x.reshape(-1)[1:], np.broadcast_to(x[:1], (3, 16)), x[:0]):
    assert np.array_equal(HandOff("tensorflow")(odd) * 1, odd)
for kind in ("?", "u1", "i8", "f2", "f8", "c16"):
    assert HandOff("tensorflow").dtype(np.dtype(kind)) == kind

try:
    labeled.batches({"x": tensorflow.constant(["a", "b"])}, 2)
    raise AssertionError("texts were taken")
except ArrayError as error:
    assert "give x.numpy()" in str(error)
made = next(iter(ds.batches(4, dtype={"features": tensorflow.float16}, output="tensorflow")))
assert made["features"].dtype == tensorflow.float16
"""


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_tensorflow_shares_what_is_aligned_and_copies_the_rest(ds):
    """It ends the process over memory that is not aligned."""
    command = [sys.executable, "-c", TENSORFLOW, ds.files.paths[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr


class Lent:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, values, device=(1, 0)):
        self.values, self.device = values, device

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def torch_of(values):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.from_numpy(values)


@pytest.mark.parametrize("lent", [Lent, torch_of])
def test_arrays_that_speak_dlpack_are_written_and_served_without_a_copy(lent, tmp_path):
    x, y = DATA["features"].copy(), np.arange(N)
    assert np.shares_memory(adopted(lent(x)), x)
    sources = {"x": lent(x), "y": lent(y), "uneven": [lent(y[: i % 3]) for i in range(N)]}
    written = labeled.open_dataset(labeled.write(tmp_path / "x.hdf5", sources))
    np.testing.assert_array_equal(written["x"], x)
    assert [len(one) for one in written["uneven"].load()] == [i % 3 for i in range(N)]
    in_batches = labeled.write(tmp_path / "b.hdf5", [{"x": lent(x[:9])}, {"x": lent(x[9:])}])
    np.testing.assert_array_equal(labeled.open_dataset(in_batches)["x"], x)

    options = {"shuffle": "full", "seed": 3}
    loader = labeled.batches({"x": lent(x), "y": lent(y)}, 16, **options)
    y += 100  # still the same memory
    for batch in loader:
        np.testing.assert_array_equal(batch["y"], batch.rows + 100)
        np.testing.assert_array_equal(batch["x"], x[batch.rows])
        assert batch["x"].dims == ("batch", "x_axis_1", "x_axis_2", "x_axis_3")
    assert [len(batch["data"]) for batch in labeled.batches(lent(y), 50)] == [50, N - 50]


def test_arrays_that_cannot_come_over_say_why(tmp_path, monkeypatch):
    with pytest.raises(ArrayError, match=r"test_handoff's Lent lives on a device of .* kind 8"):
        labeled.batches(Lent(np.arange(3), (8, 0)), 2)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtraError, match="CuPy"):
        labeled.batches(Lent(np.arange(3), (2, 0)), 2)
    with pytest.raises(ArrayError, match="'x' is str; batches are made of arrays"):
        labeled.batches({"x": "abc"}, 2)
    with pytest.raises(DimsError, match=r"different numbers of rows .*'x': 3, 'y': 4"):
        labeled.batches({"x": np.arange(3), "y": np.arange(4)}, 2)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(ArrayError, match=r"torch's Tensor does not come over .*detach\(\)"):
        labeled.batches(torch.ones(3, requires_grad=True), 2)
    with pytest.raises(ArrayError, match=r"cast it to numbers that NumPy has"):
        labeled.write(tmp_path / "x.hdf5", {"x": torch.ones(3, dtype=torch.bfloat16)})


class Texts:
    """Stands for a tensor of texts, of which TensorFlow ends the process if DLPack is asked."""

    dtype = SimpleNamespace(name="string")

    def __dlpack__(self, **options):
        raise AssertionError("this ends the process")

    def __dlpack_device__(self):
        raise AssertionError("this ends the process, too")


Texts.__module__ = "tensorflow.python.framework.ops"


class Odd(Lent):
    """An array of a library that has errors of its own."""

    def __dlpack__(self, **options):
        raise ZeroDivisionError("no such numbers")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Texts(), r"tensorflow's Texts of string is not .*x\.numpy\(\)"),
        (Odd(np.ones(3)), "no such num"),
    ],
)
def test_what_dlpack_must_not_be_asked_for_is_refused(given, words, tmp_path):
    with pytest.raises(ArrayError, match=words):
        labeled.batches({"x": given}, 2)
    with pytest.raises(ArrayError, match=words):
        labeled.write(tmp_path / "x.hdf5", {"x": given})


def test_dtypes_of_tensorflow_are_known(ds):
    """They tell NumPy's."""
    theirs = SimpleNamespace(as_numpy_dtype=np.float32)
    batch = next(iter(ds.batches(4, dtype={"features": theirs}, output="numpy")))
    np.testing.assert_array_equal(batch["features"], DATA["features"][:4].astype("f4"))
    assert batch["features"].dtype == "f4"
    specs = (ds.spaces["features"], "features")
    rows = next(iter(ds.batches(4, specs=specs, dtype=theirs, output="numpy")))
    np.testing.assert_array_equal(rows, batch["features"])
    assert rows.dtype == "f4"


@pytest.mark.parametrize("library", ["torch", "jax", "tensorflow"])
def test_numbers_that_numpy_does_not_hand_over_are_refused(ds, library):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    pytest.importorskip(library, reason=f"{library} is not installed")
    with pytest.raises(
        LoaderError, match=r"'features' is bfloat16, of which .*dtype= such as 'float32'"
    ):
        ds.batches(4, dtype={"features": ml_dtypes.bfloat16, "targets": "i4"}, output=library)


def test_a_table_of_pandas_is_served_by_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [3, 1, 2], "t": list("abc")})
    (batch,) = labeled.batches(frame, 3)
    assert batch["n"].values.tolist() == [3, 1, 2]
    assert batch["t"].values.tolist() == ["a", "b", "c"]


def test_columns_that_xarray_took_over_from_pandas_are_served_and_written_as_in_the_table(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(["a", "b", "a"]),
            "count": pd.array([2**60 + 1, 2, 3], dtype="Int64"),
            "gaps": pd.array([1, None, 3], dtype="Int64"),
            "flag": pd.array([True, False, True], dtype="boolean"),
        }
    )
    taken = frame.to_xarray()
    assert not any(isinstance(array.dtype, np.dtype) for array in taken.values())
    (table,), (batch,) = labeled.batches(frame, 3), taken.labeled.batches(3, dim="index")
    for name in frame:
        np.testing.assert_array_equal(batch[name].values, table[name].values)
        assert batch[name].dtype == table[name].dtype
    ways = {"frame": frame, "xarray": taken, "arrays": {name: taken[name] for name in frame}}
    for way, given in ways.items():
        written = labeled.open_dataset(labeled.write(tmp_path / f"{way}.h5", given)).to_xarray()
        for name in frame:
            np.testing.assert_array_equal(written[name].values, table[name].values)
    missing = xr.Dataset({"flag": ("batch", pd.array([True, None], dtype="boolean"))})
    with pytest.raises(ArrayError, match=r"column 'flag', row 1 holds <NA>.*fillna"):
        labeled.batches(missing, 2)


@pytest.mark.parametrize("lazy", [False, True])
def test_texts_of_xarray_come_along(lazy):
    texts = xr.DataArray(np.array(list("abcde"), object), dims="time")
    both = xr.Dataset({"t": texts, "n": ("time", np.arange(5))})
    loader = labeled.batches(both.chunk(time=2) if lazy else both, 2, dim="time", shuffle=True)
    for batch in loader:
        assert batch["t"].values.tolist() == ["abcde"[row] for row in batch["n"].values]


def test_the_dim_of_examples_is_asked_for():
    array = xr.DataArray(np.zeros((3, 2)), dims=("time", "lat"), name="x")
    with pytest.raises(
        DimsError, match=r"no variable has a dim 'batch' .*say dim=, one of \['time'"
    ):
        labeled.batches(array, 2)
    with pytest.raises(DimsError, match=r"'tme' .*did you mean 'time'"):
        labeled.batches(array, 2, dim="tme")


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_memory_that_is_read_only_is_handed_over_as_a_copy(library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    here = np.arange(64, dtype=np.float32)
    here.flags.writeable = False
    there = HandOff(library)(here)
    np.testing.assert_array_equal(np.asarray(there), np.arange(64))
    if library == "torch":
        there[0] = 7
    assert here[0] == 0


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_cupy_that_is_missing_is_named_when_it_is_asked_for():
    with pytest.raises(MissingExtraError, match="need CuPy"):
        HandOff("cupy")


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("kind", [np.float32, np.array])
def test_single_numbers_that_a_pipeline_makes_have_no_axis(ds, library, kind):
    pytest.importorskip(library, reason=f"{library} is not installed")
    pipeline = Stages(batch=lambda batch: {"n": kind(batch.count)})
    for batch in ds.batches(32, output=library, pipeline=pipeline):
        assert batch["n"].shape == ()
        assert not isinstance(batch["n"], np.generic | np.ndarray)
        assert batch["n"].item() in (32, N % 32)


def test_numbers_of_the_other_byte_order_are_handed_to_torch_as_its_own():
    pytest.importorskip("torch", reason="torch is not installed")
    made = HandOff("torch")(np.arange(3, dtype=">i4"))
    assert made.tolist() == [0, 1, 2]
