"""Fuel and Pylearn2 by aliases: expressions beside the answers that their own suites fix.

Each file in ``recorded`` is a table: an expression, and below it what it gives. Arrays are
written with their dtype; an error is its built-in kind.
"""

from __future__ import annotations

import functools
import gzip
import re
import warnings
from itertools import islice
from pathlib import Path

import dask.array as da
import fuel_aliases
import h5py
import numpy as np
import pylearn2_aliases
import pytest
import scipy.sparse
from fuel.datasets import Dataset, H5PYDataset, IndexableDataset, IterableDataset
from fuel.schemes import SequentialExampleScheme, SequentialScheme
from fuel.streams import AbstractDataStream, DataStream
from fuel.transformers import (
    AgnosticSourcewiseTransformer,
    AgnosticTransformer,
    Rename,
    Transformer,
)
from pylearn2.datasets.dense_design_matrix import DenseDesignMatrix
from pylearn2.space import (
    CompositeSpace,
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
)
from pylearn2.utils.iteration import SubsetIterator

from labeled.errors import LabeledError

FOLDER = Path(__file__).parent / "recorded"
KINDS = (
    AssertionError, NotImplementedError, AttributeError, KeyError, IndexError, TypeError,
    ValueError, OSError, StopIteration,
)  # fmt: skip


def kind(call, *arguments, **options):
    """Return the built-in kind of the error that a call raises."""
    try:
        call(*arguments, **options)
    except Exception as error:  # whatever it is
        return next(k.__name__ for k in (*KINDS, Exception) if isinstance(error, k))
    return "no error"


def shown(value):
    """Return a value as text: arrays with their dtype, whatever holds them."""
    if scipy.sparse.issparse(value):
        return f"{value.format} {shown(value.toarray())}"
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"objects [{', '.join(map(shown, value))}]"
    if isinstance(value, np.ndarray):
        name = "" if type(value) is np.ndarray else f"{type(value).__name__} "
        return f"{name}{value.dtype.name} {value.tolist()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value.item() if isinstance(value, np.generic) else value)


def answer(expression, known):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = []
        error = kind(lambda: found.append(shown(eval(expression, dict(known)))))
    return found[0] if error == "no error" else f"raises {error}"


def public(aliases):
    names = {"np": np, "da": da, "kind": kind, "csr": scipy.sparse.csr_matrix, "islice": islice}
    for module in aliases.values():
        names |= {k: v for k, v in vars(module).items() if not k.startswith("_")}
    return names


# ---------------------------------------------------------------- Fuel
class Nothing(AbstractDataStream):
    """The least that a stream must have."""

    sources = ("data",)

    def reset(self):
        pass

    close = next_epoch = reset

    def get_data(self, request=None):
        return (request,)


class Bare(Dataset):
    provides_sources = ("a", "b", "c")

    def get_data(self, state=None, request=None):
        return (1, 2, 3)


class Settled(Bare):
    _sources = ("a",)
    _example_iteration_scheme = SequentialExampleScheme(3)


class Counting(IterableDataset):
    """Keeps its state over epochs."""

    def next_epoch(self, state):
        return iter([(99,)])


class Both(Transformer):
    def transform_example(self, example):
        return tuple(values + 1 for values in example)

    def transform_batch(self, batch):
        return tuple(values - 1 for values in batch)


class Doubled(AgnosticTransformer):
    def transform_any(self, data):
        return tuple(2 * values for values in data)


class Negated(AgnosticSourcewiseTransformer):
    def transform_any_source(self, source_data, _):
        return -source_data


LABELS = {"x": ("batch", "height", "width"), "y": ("batch", "index")}
RAGGED = [np.arange(n * (n - 1), dtype="u1").reshape(n, n - 1) for n in (2, 3, 4)]
WORDS = {"<UNK>": 0, "</S>": 1, "<S>": 2, "this": 3, "is": 4, "a": 5, "test": 6}


def in_memory(scheme, labels=LABELS):
    arrays = {"x": np.arange(32.0).reshape(8, 2, 2), "y": np.arange(8).reshape(8, 1)}
    return DataStream(IndexableDataset(arrays, axis_labels=labels), iteration_scheme=scheme)


def items(stream, **options):
    return list(stream.get_epoch_iterator(**options))


def objects(values):
    made = np.empty(len(values), object)
    made[:] = values
    return made


def sequences(named):
    stream = DataStream(IterableDataset(named))
    stream.produces_examples = False
    return stream


def behind(stream, transformers):
    for cls, arguments, options in transformers:
        stream = cls(stream, *arguments, **options)
    return stream


def begun(stream):
    stream.get_epoch_iterator()
    return stream


def fills(cached):
    return ((batch, cached.cache) for batch in cached.get_epoch_iterator())


def read(dataset, request):
    state = dataset.open()
    try:
        return dataset.get_data(state, request)
    finally:
        dataset.close(state)


def fill(f):
    """Write labelled features and targets, examples of variable length, and many splits."""
    f["features"] = np.arange(24, dtype="uint16").reshape(12, 2)
    f["targets"] = np.arange(6, dtype="uint8").reshape(6, 1)
    for name, labels in (("features", ("batch", "feature")), ("targets", ("batch", "index"))):
        for axis, label in enumerate(labels):
            f[name].dims[axis].label = label
    f["rows"] = np.array([4, 0, 2])
    listed = (-1, -1, f["rows"].ref, ".")
    f.attrs["split"] = H5PYDataset.create_split_array(
        {
            "train": {"features": (0, 4, None, "."), "targets": (0, 4)},
            "test": {"features": (4, 6, None, ""), "targets": (4, 6)},
            "unlabeled": {"features": (6, 12)},
            "listed": {"features": listed, "targets": listed},
            "uneven": {"features": (0, 4), "targets": (0, 3)},
        }
    )
    return f


def fill_ragged(f):
    f.create_dataset("features", (3,), dtype=h5py.vlen_dtype("u1"))
    for i, example in enumerate(RAGGED):
        f["features"][i] = example.ravel()
    f["features"].dims[0].label = "batch"
    scales = {
        "shapes": [example.shape for example in RAGGED],
        "shape_labels": [b"height", b"width"],
    }
    for name, values in scales.items():
        f[name] = np.array(values)
        f[name].make_scale(name)
        f["features"].dims[0].attach_scale(f[name])
    f["targets"] = np.arange(3).reshape(3, 1)
    pairs = {"features": (0, 3), "targets": (0, 3)}
    f.attrs["split"] = H5PYDataset.create_split_array({"train": pairs})
    return f


def names_of_fuel(folder, handles):
    (folder / "one.txt").write_text("This is a sentence\nThis another one\n")
    with gzip.open(folder / "two.txt.gz", "wt") as f:
        f.write("a test\nmore\n")
    where = {}
    for name, filling in (("dense", fill), ("ragged", fill_ragged)):
        if handles:  # of files in memory
            where[name] = filling(h5py.File(name, "w", driver="core", backing_store=False))
        else:
            where[name] = str(folder / f"{name}.h5")
            filling(h5py.File(where[name], "w")).close()
    return {
        **public(fuel_aliases.ALIASES), **globals(),
        "texts": [str(folder / "one.txt"), str(folder / "two.txt.gz")],
        "path": where["dense"],
        "h": lambda *splits, **options: H5PYDataset(where["dense"], splits, **options),
        "v": lambda **options: H5PYDataset(where["ragged"], ("train",), **options),
        "requests": lambda scheme: list(scheme.get_request_iterator()),
        "lines": lambda text: [line for (line,) in items(DataStream(text))],
        "sentences": lambda: DataStream(IterableDataset([[1, 2, 3, 4], [5], [6, 7, 8]])),
        "examples": lambda: in_memory(SequentialExampleScheme(8)),
        "batches": lambda **options: in_memory(SequentialScheme(8, 4), **options),
        "rows": lambda n, size: DataStream(
            IndexableDataset(np.arange(n)), iteration_scheme=SequentialScheme(n, size)
        ),
    }  # fmt: skip


# ---------------------------------------------------------------- Pylearn2
class Forgetful(VectorSpace):
    def __init__(self):
        self.dim = 2


class OnlyNext(SubsetIterator):
    def __init__(self):
        pass

    def next(self):
        return slice(0, 1)


MODES = [
    *("sequential", "shuffled_sequential", "batchwise_shuffled_sequential", "random_slice"),
    *("random_uniform", "even_sequential", "even_shuffled_sequential"),
    *("even_batchwise_shuffled_sequential", "even_sequences"),
]
X, Y, PIXEL = VectorSpace(3), VectorSpace(2), Conv2DSpace((1, 1), num_channels=3)
OWN = CompositeSpace((VectorSpace(2), VectorSpace(1)))
NESTED = (CompositeSpace([X, CompositeSpace([NullSpace(), Y, X])]), ("a", ("", "b", "a")))
F, T = "features", "targets"
SPECS = [
    (X, F),
    (CompositeSpace([X, Y]), (F, T)),
    (CompositeSpace([X, X]), (F, F)),
    (CompositeSpace([CompositeSpace([X, Y]), CompositeSpace([Y, X])]), ((F, T), (T, F))),
    (CompositeSpace([X, CompositeSpace([PIXEL, Y])]), (F, (F, T))),
    (CompositeSpace([NullSpace(), CompositeSpace([X, NullSpace()])]), ("", (F, ""))),
]
MATRIX = {
    "vector": VectorSpace(12),
    "sparse": VectorSpace(12, sparse=True),
    "images": Conv2DSpace((2, 2), channels=3),
    "index": IndexSpace(6, 2),
    "composite": CompositeSpace((VectorSpace(5), VectorSpace(7))),
    "null": NullSpace(),
    "vectors in time": VectorSequenceSpace(12),
    "labels in time": IndexSequenceSpace(6, 2),
}
vector = VectorSpace(12, dtype="float32")
images12 = Conv2DSpace((2, 2), channels=3, axes=("c", 0, 1, "b"))
NUMERIC = [
    VectorSpace(12, dtype="float64"),
    images12,
    CompositeSpace((VectorSpace(5), CompositeSpace((VectorSpace(3), VectorSpace(4))))),
]
LAZY = [*NUMERIC, Conv2DSpace((2, 2), channels=3, axes=("b", "c", 0, 1), dtype="float16")]


def targets_of(name):
    """Return spaces that fit by size: 12 numbers, or 12 indices for what comes from numbers."""
    numbers = name in ("vector", "sparse", "images", "composite")
    return {**MATRIX, "index": IndexSpace(6, 12 if numbers else 2)}


def outcome_of(source, target):
    """Return what a conversion gives, in two letters."""
    batch = None
    if isinstance(source, VectorSequenceSpace | IndexSequenceSpace):
        batch = np.ones((3, source.dim), int)
    elif not isinstance(source, NullSpace):
        batch = source.get_origin_batch(3)
    error = kind(lambda: target.np_validate(source.np_format_as(batch, target)))
    return "ok" if error == "no error" else "".join(re.findall("[A-Z]", error))[:2]


def leaves(batch):
    return [x for part in batch for x in leaves(part)] if isinstance(batch, tuple) else [batch]


def lazily(batch):
    return tuple(map(lazily, batch)) if isinstance(batch, tuple) else da.from_array(batch, chunks=2)


def same_lazily(source, target):
    """Return whether lazy batches come out as numeric ones, or the kind of error of both."""
    batch = VectorSpace(12).np_format_as(np.arange(60.0).reshape(5, 12), source)
    error = kind(source.np_format_as, batch, target)
    if error != "no error":
        return error == kind(source.format_as, lazily(batch), target) and error
    made, expected = source.format_as(lazily(batch), target), source.np_format_as(batch, target)
    target.validate(made)
    pairs = zip(leaves(made), leaves(expected), strict=True)
    return all((x.compute() == y).all() and x.dtype == y.dtype for x, y in pairs)


def topo(axes):
    shape = [{"b": 5, 0: 2, 1: 3, "c": 4}[axis] for axis in axes]
    return np.arange(120.0).reshape(shape)


def dense():
    return DenseDesignMatrix(X=np.arange(12.0).reshape(6, 2), y=np.arange(6)[:, None], y_labels=6)


def names_of_pylearn2(folder, handles):
    path = str(folder / "examples.h5")
    with h5py.File(path, "w") as f:
        f["X"] = np.arange(40.0).reshape(20, 2)
        f["more/y"] = np.arange(20)[:, None]
        f["images"] = np.arange(20 * 24).reshape(20, 2, 3, 4)
    return {
        **public(pylearn2_aliases.ALIASES), **globals(),
        "path": path,
        "pair": dense(),
        "mixed": CompositeSpace((VectorSpace(1, dtype="float32"), VectorSpace(1))),
        "triple": CompositeSpace((VectorSpace(1), VectorSpace(2), VectorSpace(3))),
        "images": Conv2DSpace((2, 3), 4, axes=("c", 0, 1, "b")),
    }  # fmt: skip


# ---------------------------------------------------------------- the tables
def table(name):
    """Return the expressions of a file and their answers."""
    lines = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    return list(zip(kept[::2], [line.removeprefix("    → ") for line in kept[1::2]], strict=True))


BUILDERS = {"fuel": names_of_fuel, "pylearn2": names_of_pylearn2}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Return the names that the expressions of a system use, made once."""
    return functools.cache(
        lambda system, handles: BUILDERS[system](tmp_path_factory.mktemp(system), handles)
    )


@pytest.mark.parametrize(
    ("system", "number"), [(name, i) for name in BUILDERS for i in range(len(table(name)))]
)
def test_old_code_gives_what_it_gave(system, number, known):
    expression, recorded = table(system)[number]
    for handles in (False, True) if re.search(r"\b[hv]\(", expression) else (False,):
        assert answer(expression, known(system, handles)) == recorded


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: Rename(in_memory(None), {"no": "x"}), KeyError),
        (lambda: in_memory(None).dataset.nothing, AttributeError),
        (lambda: Conv2DSpace((2, 3)), AssertionError),
        (lambda: VectorSpace(3, dtype="text"), TypeError),
        (lambda: VectorSpace(3).np_format_as(np.zeros((1, 3)), VectorSpace(2)), ValueError),
        (lambda: NullSpace().get_total_dimension(), NotImplementedError),
    ],
)
def test_errors_are_of_one_old_kind_and_of_this_library(call, kind):
    with pytest.raises(kind) as caught:
        call()
    builtin = [base for base in type(caught.value).__mro__ if base.__module__ == "builtins"]
    assert isinstance(caught.value, LabeledError)
    assert set(builtin) <= {*kind.__mro__}
