"""What is asked of CuPy, held against what CuPy 14.2 takes; no GPU and no CuPy is needed."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import labeled
from labeled import device, permute
from labeled.device import cuda_device
from labeled.errors import ArrayError, LoaderError

TAKEN = {
    **dict.fromkeys(("max", "min"), "(a, axis=None, out=None, keepdims=False)"),
    "RawModule": "(code=None, *, path=None, options=(), backend='nvrtc', translate_cucomplex=False,"
    " enable_cooperative_groups=False, name_expressions=None, jitify=None)",
    "any": "(a, axis=None, out=None, keepdims=False)",
    "arange": "(start, stop=None, step=1, dtype=None)",
    "asarray": "(a, dtype=None, order=None, *, copy=None, blocking=False)",
    "asnumpy": "(a, stream=None, order='C', out=None, *, blocking=True)",
    "astype": "(x, dtype, /, *, copy=True)",
    "empty": "(shape, dtype=float, order='C')",
    "from_dlpack": "(array, *, device=None, copy=None)",
    "full": "(shape, fill_value, dtype=None, order='C')",
    "get_default_memory_pool": "()",
    "ndarray": "(shape, dtype=float, memptr=None, strides=None, order='C')",
    "permute_dims": "(a, axes=None)",
    "reshape": "(a, newshape, order='C', *, copy=None)",
    "take": "(a, indices, axis=None, out=None)",
    "zeros": "(shape, dtype=float, order='C')",
}
"""What functions of CuPy's take that are called here."""

MODULES, MAKERS = {"cupy", "xp"}, {"cupy_module", "namespace"}
NAMED = re.compile(rf"\b({'|'.join(sorted(MODULES | MAKERS))})\b")


def signature_of(name):
    names = {"float": float}
    exec(f"def found{TAKEN[name]}: pass", names)  # a line of the table above
    return inspect.signature(names["found"])


def calls():
    """Yield every call of a function of an array's own library: where, and the call."""
    for path in Path(labeled.__file__).parent.rglob("*.py"):
        text = path.read_text()
        tree = ast.parse(text if NAMED.search(text) else "")  # a few files of many are looked at
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            called = owner.func if isinstance(owner, ast.Call) else None
            if getattr(owner, "id", None) in MODULES or getattr(called, "id", None) in MAKERS:
                yield f"{path.name}:{node.lineno}", node


def test_cupy_takes_what_it_is_given():
    found = list(calls())
    assert {node.func.attr for _, node in found} - {"concat", "concatenate"} == TAKEN.keys()
    for where, node in found:
        keywords = {one.arg: None for one in node.keywords if one.arg}
        try:
            signature_of(node.func.attr).bind(*[None] * len(node.args), **keywords)
        except TypeError as error:
            pytest.fail(f"{where}: {ast.unparse(node)}: {error}")


def test_the_table_is_true_of_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for name in TAKEN:
        try:
            theirs = inspect.signature(getattr(cupy, name))
        except (TypeError, ValueError):  # compiled ones tell theirs in words
            continue
        if name != "ndarray":
            assert [*theirs.parameters] == [*signature_of(name).parameters], name


@pytest.fixture
def cupy(monkeypatch):
    """Return a stand-in that refuses what CuPy refuses, in the place of CuPy."""
    path = Path(__file__).parent / "stand_in" / "cupy.py"
    made = importlib.util.module_from_spec(importlib.util.spec_from_file_location("cupy", path))
    monkeypatch.setitem(sys.modules, "cupy", made)
    made.__spec__.loader.exec_module(made)
    return made


VALUES = np.random.default_rng(0).normal(size=(6, 3, 4, 5))
CHANGES = [
    {"dtype": "float16"},
    {"dtype": "float16", "scale": 0.5, "shift": np.arange(3.0)[:, None, None]},
]
"""Casts that no kernel of ours does, so that CuPy's own functions have to."""


@pytest.mark.parametrize("change", CHANGES, ids=["cast", "scaled"])
@pytest.mark.parametrize("what", ["copy", "gather"])
def test_arrays_of_cupys_are_copied_by_its_own_functions(cupy, what, change):
    rows, axes = [4, 0, -1, 4], (0, 2, 3, 1)

    def made(array):
        if what == "copy":
            return permute.copy(array, axes, **change)
        return permute.gather(array, rows, axes, **change)

    found = made(cupy.asarray(VALUES))
    assert device.is_cupy(found)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(cupy.asnumpy(found), made(VALUES))


def test_kernels_run_where_the_array_is(cupy, monkeypatch):
    monkeypatch.setattr(cupy.ndarray, "device", property(lambda _: cupy.cuda.Device(3)))
    there = cupy.asarray(VALUES)
    permute.copy(there, (3, 2, 1, 0), dtype="float16")
    assert set(cupy.entered) == {3}


def test_a_copy_of_cupys_is_nobody_elses(cupy):
    there = cupy.asarray(VALUES.astype(np.complex128))
    made = permute.copy(there, (0, 1, 2, 3), dtype="complex64")
    there[...] = 0
    np.testing.assert_array_equal(cupy.asnumpy(made), VALUES.astype(np.complex64))


@pytest.fixture
def current(cupy, monkeypatch):
    """Return numbers of devices, the current one last; arrays are on device 3."""
    numbers = [0]

    @contextmanager
    def on(number):
        numbers.append(number)
        yield
        numbers.pop()

    monkeypatch.setattr(cupy.cuda, "Device", on)
    monkeypatch.setattr(cupy.ndarray, "device", property(lambda _: on(3)))
    return numbers


@pytest.fixture
def noted(current, monkeypatch):
    """Return what makes a function note which device it is called on, and those notes."""
    notes = []

    def note(owner, name, does):
        def call(*given, **options):
            notes.append((name, current[-1]))
            return does(*given, **options)

        monkeypatch.setattr(owner, name, call, raising=False)

    return note, notes


def test_arrays_are_copied_and_looked_at_where_they_are(cupy, noted):
    note, notes = noted
    note(cupy.ndarray, "copy", lambda x: cupy.ndarray(x._values.copy()))
    note(cupy.ndarray, "__setitem__", cupy.ndarray.__setitem__)
    note(cupy, "min", lambda x: x._values.min())
    note(cupy, "max", lambda x: x._values.max())
    wide, narrow = cupy.asarray(np.arange(3)), cupy.asarray(np.zeros(3, np.int8))
    device.copy_into(narrow, device.owned_copy(wide))
    np.testing.assert_array_equal(cupy.asnumpy(narrow), np.arange(3))
    assert notes == [("copy", 3), ("min", 3), ("max", 3), ("__setitem__", 3)]


def test_arrays_are_sent_to_the_device_asked_for(cupy, noted):
    note, notes = noted
    note(cupy, "asarray", cupy.asarray)
    assert device.is_cupy(device.to_device(np.arange(3), "cuda:2"))
    assert device.is_cupy(device.HandOff("cupy")(np.arange(3)))
    assert notes == [("asarray", 2), ("asarray", 0)]


def test_devices_that_are_not_there_are_reported(cupy, monkeypatch):
    with pytest.raises(LoaderError, match=r"'cuda:4': there are 4 GPUs"):
        device.to_device(np.arange(3), "cuda:4")
    monkeypatch.setattr(cupy.cuda, "is_available", lambda: False)
    for send in (
        lambda: device.to_device(np.arange(3), "cuda"),
        lambda: device.adopted(Lent(2, 0)),
        lambda: cuda_device("cuda"),
    ):
        with pytest.raises(LoaderError, match=r"'cuda:0': CuPy finds no GPU and driver here"):
            send()


class Lent:
    """An array of a library that speaks DLPack."""

    def __init__(self, kind, number):
        self.values, self.place = np.arange(3), (kind, number)

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.place


def test_arrays_of_a_gpu_come_to_cupy_on_theirs_and_pinned_ones_to_numpy(cupy, noted):
    note, notes = noted
    note(cupy, "from_dlpack", lambda x: cupy.asarray(x.values))
    for kind in (2, 13):  # a GPU's own memory, and managed memory, as dlpack.h numbers them
        assert device.is_cupy(device.adopted(Lent(kind, 1)))
    assert notes == [("from_dlpack", 1)] * 2
    pinned = Lent(3, 0)
    assert np.shares_memory(device.adopted(pinned), pinned.values)


def test_tensors_are_made_on_their_device_and_those_of_the_host_are_pinned(
    cupy, noted, monkeypatch
):
    note, notes = noted
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    there = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    here = SimpleNamespace(
        device=SimpleNamespace(type="cpu"), is_pinned=lambda: False, pin_memory=lambda: "pinned"
    )
    note(torch, "from_dlpack", lambda x: there if device.is_cupy(x) else here)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert device.HandOff("torch", pinned=True)(cupy.asarray(VALUES)) is there
    assert device.HandOff("torch", pinned=True)(VALUES) == "pinned"
    assert device.HandOff("torch")(VALUES) is here
    here.is_pinned = lambda: True
    assert device.HandOff("torch", pinned=True)(VALUES) is here
    assert notes == [("from_dlpack", 3)] + [("from_dlpack", 0)] * 3


def test_what_is_not_an_array_is_named():
    with pytest.raises(ArrayError, match="memoryview is not an array"):
        permute.gather(memoryview(b"abc"), [0], (0,))
