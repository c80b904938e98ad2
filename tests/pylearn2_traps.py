"""Where the old rules and the native ones differ, or surprise: one table, tested and printed.

Each case is a pair of expressions with what they give. `tests/test_compat_traps.py`
evaluates every one of them; `docs/traps_pylearn2.md` is printed from the same list by
running this module.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
from traps import DOCS, Case, Traps

import labeled
from labeled import samplers, spaces
from labeled.compat.pylearn2 import space as old_space
from labeled.compat.pylearn2.datasets import dense_design_matrix, hdf5, vector_spaces_dataset
from labeled.compat.pylearn2.utils import data_specs as old_specs
from labeled.compat.pylearn2.utils import iteration


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; writes a small file into `folder`."""
    path = Path(folder) / "digits.h5"
    with h5py.File(path, "w") as f:
        f["X"] = np.arange(8.0)[:, None]
        f["y"] = np.arange(8) % 3
        for name, labels in {"X": ("batch", "feature"), "y": ("batch",)}.items():
            for axis, label in enumerate(labels):
                f[name].dims[axis].label = label
    old = [old_space, old_specs, iteration, dense_design_matrix, hdf5, vector_spaces_dataset]
    native = [spaces, samplers]
    return {
        "np": np,
        "path": str(path),
        "labeled": labeled,
        "old": _joined(old),
        "native": _joined(native),
    }


def _joined(modules: list[Any]) -> SimpleNamespace:
    found: dict[str, Any] = {}
    for module in modules:
        found.update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    return SimpleNamespace(**found)


def outcome(expression: str, names: dict[str, Any], kinds: tuple[type, ...]) -> str:
    """Return what an expression gives; of an error, the first of `kinds` that it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        try:
            return repr(eval(expression, dict(names)))
        except labeled.LabeledError as error:
            kind = next((k for k in kinds if isinstance(error, k)), type(error))
            return f"raises {kind.__name__}"
        except (TypeError, ValueError) as error:  # what Python and NumPy themselves raise
            return f"raises {type(error).__name__}"


OLD_KINDS = (
    AssertionError,
    NotImplementedError,
    AttributeError,
    IndexError,
    TypeError,
    ValueError,
)

CASES = [
    Case(
        28,
        "Two orders of flattening: spaces use (0, 1, 'c') ...",
        "old.VectorSpace(6).np_format_as(np.arange(6.).reshape(1, 6), "
        "old.Conv2DSpace((1, 2), channels=3))[0, 0].tolist()",
        "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]",
        "native.VectorSpace(6).np_format_as(np.arange(6.).reshape(1, 6), "
        "native.Conv2DSpace((1, 2), channels=3))[0, 0].tolist()",
        "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]",
    ),
    Case(
        28,
        "... rows of a design matrix use ('c', 0, 1). Natively a source says which axes it has.",
        "old.DefaultViewConverter((1, 2, 3)).design_mat_to_topo_view("
        "np.arange(6.).reshape(1, 6))[0, 0].tolist()",
        "[[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]",
        "native.Conv2DSpace((1, 2), channels=3, axes=('b', 'c', 0, 1)).np_format_as("
        "np.arange(6.).reshape(1, 3, 1, 2), native.Conv2DSpace((1, 2), channels=3))[0, 0].tolist()",
        "[[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]",
    ),
    Case(
        29,
        "Flattening never follows a space's own axes.",
        "old.Conv2DSpace((1, 2), channels=3, axes=('b', 'c', 0, 1)).np_format_as("
        "np.arange(6.).reshape(1, 3, 1, 2), old.VectorSpace(6)).tolist()",
        "[[0.0, 2.0, 4.0, 1.0, 3.0, 5.0]]",
        "native.Conv2DSpace((1, 2), channels=3, axes=('b', 'c', 0, 1)).np_format_as("
        "np.arange(6.).reshape(1, 3, 1, 2), native.VectorSpace(6)).tolist()",
        "[[0.0, 2.0, 4.0, 1.0, 3.0, 5.0]]",
    ),
    Case(
        30,
        "Images of another shape but as many values passed, in the wrong shape.",
        "old.Conv2DSpace((2, 3), 1).np_format_as(np.zeros((1, 2, 3, 1)), "
        "old.Conv2DSpace((3, 2), 1)).shape",
        "(1, 2, 3, 1)",
        "native.Conv2DSpace((2, 3), 1).np_format_as(np.zeros((1, 2, 3, 1)), "
        "native.Conv2DSpace((3, 2), 1)).shape",
        "raises SpaceError",
    ),
    Case(
        31,
        "The total dimension of labels is their number in a row ...",
        "old.IndexSpace(10, 2).get_total_dimension()",
        "2",
        "native.IndexSpace(10, 2).get_total_dimension()",
        "2",
    ),
    Case(
        31,
        "... so that one-hot worked alone, but not inside a composite.",
        "old.CompositeSpace((old.IndexSpace(3, 1),)).np_format_as("
        "(np.array([[2]]),), old.CompositeSpace((old.VectorSpace(3),)))[0].tolist()",
        "raises ValueError",
        "native.CompositeSpace((native.IndexSpace(3, 1),)).np_format_as("
        "(np.array([[2]]),), native.CompositeSpace((native.VectorSpace(3),)))[0].tolist()",
        "[[0.0, 0.0, 1.0]]",
    ),
    Case(
        32,
        "Merging is preferred where the target has max_labels columns; "
        "dense, a repeated label counts once ...",
        "old.IndexSpace(3, 2).np_format_as(np.array([[1, 1]]), old.VectorSpace(3)).tolist()",
        "[[0.0, 1.0, 0.0]]",
        "native.IndexSpace(3, 2).np_format_as(np.array([[1, 1]]), native.VectorSpace(3)).tolist()",
        "[[0.0, 1.0, 0.0]]",
    ),
    Case(
        32,
        "... sparse, it used to add up.",
        "old.IndexSpace(3, 2).np_format_as(np.array([[1, 1]]), "
        "old.VectorSpace(3, sparse=True)).toarray().tolist()",
        "[[0.0, 2.0, 0.0]]",
        "native.IndexSpace(3, 2).np_format_as(np.array([[1, 1]]), "
        "native.VectorSpace(3, sparse=True)).toarray().tolist()",
        "[[0.0, 1.0, 0.0]]",
    ),
    Case(
        32,
        "A label out of range: an IndexError when dense ...",
        "old.IndexSpace(3, 2).np_format_as(np.array([[3, 0]]), old.VectorSpace(6)).tolist()",
        "raises IndexError",
        "native.IndexSpace(3, 2).np_format_as(np.array([[3, 0]]), native.VectorSpace(6)).tolist()",
        "raises SpaceError",
    ),
    Case(
        32,
        "... another label's column when sparse ...",
        "old.IndexSpace(3, 2).np_format_as(np.array([[3, 1]]), "
        "old.VectorSpace(6, sparse=True)).toarray().tolist()",
        "[[0.0, 0.0, 0.0, 1.0, 1.0, 0.0]]",
        "native.IndexSpace(3, 2).np_format_as(np.array([[3, 1]]), "
        "native.VectorSpace(6, sparse=True)).toarray().tolist()",
        "raises SpaceError",
    ),
    Case(
        32,
        "... a ValueError when sparse and merged.",
        "old.IndexSpace(3, 2).np_format_as(np.array([[3, 1]]), old.VectorSpace(3, sparse=True))",
        "raises ValueError",
        "native.IndexSpace(3, 2).np_format_as(np.array([[3, 1]]), "
        "native.VectorSpace(3, sparse=True))",
        "raises SpaceError",
    ),
    Case(
        32,
        "A negative label counted from the end.",
        "old.IndexSpace(3, 1).np_format_as(np.array([[-1]]), old.VectorSpace(3)).tolist()",
        "[[0.0, 0.0, 1.0]]",
        "native.IndexSpace(3, 1).np_format_as(np.array([[-1]]), native.VectorSpace(3)).tolist()",
        "raises SpaceError",
    ),
    Case(
        33,
        "A NullSpace could not be measured ...",
        "old.NullSpace().get_total_dimension()",
        "raises NotImplementedError",
        "native.NullSpace().get_total_dimension()",
        "0",
    ),
    Case(
        33,
        "... converted ...",
        "old.NullSpace().np_format_as(None, old.NullSpace())",
        "raises NotImplementedError",
        "native.NullSpace().np_format_as(None, native.NullSpace())",
        "None",
    ),
    Case(
        33,
        "... or counted beside data.",
        "old.CompositeSpace((old.VectorSpace(2), old.NullSpace())).np_batch_size("
        "(np.zeros((4, 2)), None))",
        "raises AssertionError",
        "native.CompositeSpace((native.VectorSpace(2), native.NullSpace())).np_batch_size("
        "(np.zeros((4, 2)), None))",
        "4",
    ),
    Case(
        34,
        "bool was no dtype of a space ...",
        "old.VectorSpace(2, dtype='bool').dtype",
        "raises TypeError",
        "native.VectorSpace(2, dtype='bool').dtype.name",
        "'bool'",
    ),
    Case(
        34,
        "... and no integer.",
        "old.VectorSpace(1, dtype='int64').np_validate(np.zeros((1, 1), bool))",
        "raises TypeError",
        "native.VectorSpace(1, dtype='int64').np_validate(np.zeros((1, 1), bool))",
        "None",
    ),
    Case(
        34,
        "Integers were narrowed without a word.",
        "old.VectorSpace(1, dtype='int64').np_format_as("
        "np.array([[300]]), old.VectorSpace(1, dtype='uint8')).tolist()",
        "[[44]]",
        "native.VectorSpace(1, dtype='int64').np_format_as("
        "np.array([[300]]), native.VectorSpace(1, dtype='uint8')).tolist()",
        "raises SpaceError",
    ),
    Case(
        34,
        "Floats became integers by cutting.",
        "old.VectorSpace(1).np_format_as("
        "np.array([[1.7]]), old.VectorSpace(1, dtype='int64')).tolist()",
        "[[1]]",
        "native.VectorSpace(1).np_format_as("
        "np.array([[1.7]]), native.VectorSpace(1, dtype='int64')).tolist()",
        "raises SpaceTypeError",
    ),
    Case(
        35,
        "Spaces cast to floatX unless asked otherwise, images of uint8 included ...",
        "old.VectorSpace(2).np_format_as(np.zeros((1, 2), 'u1'), old.VectorSpace(2)).dtype.name",
        "'float64'",
        "native.VectorSpace(2).np_format_as(np.zeros((1, 2), 'u1'), "
        "native.VectorSpace(2)).dtype.name",
        "'uint8'",
    ),
    Case(
        35,
        "... and kept the dtype with dtype=None, which is the native default.",
        "old.VectorSpace(2).np_format_as(np.zeros((1, 2), 'u1'), "
        "old.VectorSpace(2, dtype=None)).dtype.name",
        "'uint8'",
        "native.VectorSpace(2).np_format_as(np.zeros((1, 2), 'u1'), "
        "native.VectorSpace(2, dtype='float64')).dtype.name",
        "'float64'",
    ),
    Case(
        36,
        "Equality includes dtype and axes: one source in two dtypes is two entries.",
        "old.DataSpecsMapping((old.CompositeSpace((old.VectorSpace(2, dtype='float32'), "
        "old.VectorSpace(2, dtype='float64'))), ('x', 'x'))).n_unique_specs",
        "2",
        "native.DataSpecsMapping((native.CompositeSpace((native.VectorSpace(2, dtype='float32'), "
        "native.VectorSpace(2, dtype='float64'))), ('x', 'x'))).n_unique_specs",
        "2",
    ),
    Case(
        37,
        "Spaces of sequences could not be hashed, nor stand in a mapping.",
        "old.DataSpecsMapping((old.VectorSequenceSpace(3), 'x')).n_unique_specs",
        "raises TypeError",
        "native.DataSpecsMapping((native.VectorSequenceSpace(3), 'x')).n_unique_specs",
        "1",
    ),
    Case(
        38,
        "A str is a sequence: its characters passed for names.",
        "list(old.DataSpecsMapping((old.CompositeSpace((old.VectorSpace(1), old.VectorSpace(2))), "
        "'xy')).specs_to_index.values())",
        "[0, 1]",
        "native.DataSpecsMapping((native.CompositeSpace((native.VectorSpace(1), "
        "native.VectorSpace(2))), 'xy'))",
        "raises SpecsError",
    ),
    Case(
        39,
        "flatten() of what it does not know gave None ...",
        "old.DataSpecsMapping((old.CompositeSpace((old.VectorSpace(1), old.VectorSpace(2))), "
        "('x', 'y'))).flatten('ab')",
        "None",
        "native.DataSpecsMapping((native.CompositeSpace((native.VectorSpace(1), "
        "native.VectorSpace(2))), ('x', 'y'))).flatten('ab')",
        "raises SpecsError",
    ),
    Case(
        39,
        "... and of equal arrays in two places of one pair failed on their truth value.",
        "old.DataSpecsMapping((old.CompositeSpace((old.VectorSpace(2), old.VectorSpace(2))), "
        "('x', 'x'))).flatten((np.zeros(2), np.zeros(2))).tolist()",
        "raises ValueError",
        "native.DataSpecsMapping((native.CompositeSpace((native.VectorSpace(2), "
        "native.VectorSpace(2))), ('x', 'x'))).flatten((np.zeros(2), np.zeros(2))).tolist()",
        "[0.0, 0.0]",
    ),
    Case(
        40,
        "nest() gives None at null positions ...",
        "old.DataSpecsMapping((old.CompositeSpace((old.VectorSpace(1), old.NullSpace())), "
        "('x', ''))).nest((5,))",
        "(5, None)",
        "native.DataSpecsMapping((native.CompositeSpace((native.VectorSpace(1), "
        "native.NullSpace())), ('x', ''))).nest((5,))",
        "(5, None)",
    ),
    Case(
        40,
        "... but failed for spaces.",
        "old.DataSpecsMapping((old.CompositeSpace((old.VectorSpace(1), old.NullSpace())), "
        "('x', ''))).nest(old.VectorSpace(1))",
        "raises TypeError",
        "native.DataSpecsMapping((native.CompositeSpace((native.VectorSpace(1), "
        "native.NullSpace())), ('x', ''))).nest(native.VectorSpace(1))",
        "CompositeSpace(VectorSpace(dim=1), NullSpace())",
    ),
    Case(
        41,
        "Batches must be tuples: a list is refused, natively with a hint ...",
        "old.CompositeSpace((old.VectorSpace(1),)).np_validate([np.zeros((2, 1))])",
        "raises AssertionError",
        "native.CompositeSpace((native.VectorSpace(1),)).np_validate([np.zeros((2, 1))])",
        "raises SpaceTypeError",
    ),
    Case(
        41,
        "... components may be a list ...",
        "len(old.CompositeSpace([old.VectorSpace(1), old.VectorSpace(2)]).components)",
        "2",
        "len(native.CompositeSpace([native.VectorSpace(1), native.VectorSpace(2)]).components)",
        "2",
    ),
    Case(
        41,
        "... sources of an iterator could not.",
        "old.FiniteDatasetIterator(old.DenseDesignMatrix(X=np.zeros((4, 2)), y=np.zeros((4, 1))), "
        "old.SequentialSubsetIterator(4, 2), data_specs=(old.CompositeSpace((old.VectorSpace(2), "
        "old.VectorSpace(1))), ['features', 'targets']))",
        "raises AssertionError",
        "native.as_specs((native.CompositeSpace((native.VectorSpace(2), native.VectorSpace(1))), "
        "['features', 'targets']))[1]",
        "('features', 'targets')",
    ),
    Case(
        42,
        "is_flat_specs() did not compare lengths.",
        "old.is_flat_specs((old.CompositeSpace((old.VectorSpace(1), old.VectorSpace(2))), "
        "('x', 'y', 'z')))",
        "True",
        "native.is_flat_specs((native.CompositeSpace((native.VectorSpace(1), "
        "native.VectorSpace(2))), ('x', 'y', 'z')))",
        "False",
    ),
    Case(
        43,
        "Sparse results are csr where they come from vectors ...",
        "old.VectorSpace(2).np_format_as(np.eye(2), old.VectorSpace(2, sparse=True)).format",
        "'csr'",
        "native.VectorSpace(2).np_format_as(np.eye(2), native.VectorSpace(2, sparse=True)).format",
        "'csr'",
    ),
    Case(
        43,
        "... were coo where they came from composites ...",
        "old.CompositeSpace((old.VectorSpace(1), old.VectorSpace(1))).np_format_as("
        "(np.ones((2, 1)),) * 2, old.VectorSpace(2, sparse=True)).format",
        "'coo'",
        "native.CompositeSpace((native.VectorSpace(1), native.VectorSpace(1))).np_format_as("
        "(np.ones((2, 1)),) * 2, native.VectorSpace(2, sparse=True)).format",
        "'csr'",
    ),
    Case(
        43,
        "... and a numpy matrix where sparse became dense without a dtype.",
        "type(old.VectorSpace(2, sparse=True).np_format_as(old.VectorSpace(2, sparse=True)"
        ".get_origin_batch(1), old.VectorSpace(2, dtype=None))).__name__",
        "'matrix'",
        "type(native.VectorSpace(2, sparse=True).np_format_as(native.VectorSpace(2, sparse=True)"
        ".get_origin_batch(1), native.VectorSpace(2))).__name__",
        "'ndarray'",
    ),
    Case(
        44,
        "Views are handed out wherever NumPy allows: np_format_as never protects the batch.",
        "(lambda x: np.shares_memory(x, old.VectorSpace(4).np_format_as(x, "
        "old.Conv2DSpace((2, 2), channels=1, axes=('c', 0, 1, 'b')))))(np.zeros((3, 4)))",
        "True",
        "(lambda x: np.shares_memory(x, native.VectorSpace(4).np_format_as(x, "
        "native.Conv2DSpace((2, 2), channels=1, axes=('c', 0, 1, 'b')))))(np.zeros((3, 4)))",
        "True",
    ),
    Case(
        45,
        "The number of batches could be a float ...",
        "old.SequentialSubsetIterator(8, 3).num_batches",
        "3.0",
        "len(labeled.open_dataset(path).batches(3))",
        "3",
    ),
    Case(
        45,
        "... and random modes did not say whether batches differ in length.",
        "old.RandomSliceSubsetIterator(10, 3, 2).uneven",
        "raises NotImplementedError",
        "[batch.count for batch in labeled.open_dataset(path).batches(3, balance='y', seed=7)]",
        "[3, 3]",
    ),
    Case(
        46,
        "With a number of batches alone, even modes round their size down; natively a size is "
        "given, and last='drop' leaves out what fills no batch ...",
        "old.as_even(old.SequentialSubsetIterator)(8, None, 3).batch_size",
        "2",
        "[batch.count for batch in labeled.open_dataset(path).batches(3, last='drop')]",
        "[3, 3]",
    ),
    Case(
        46,
        "... plain modes up.",
        "old.SequentialSubsetIterator(8, None, 3).batch_size",
        "3",
        "[batch.count for batch in labeled.open_dataset(path).batches(3)]",
        "[3, 3, 2]",
    ),
    Case(
        46,
        "A number that cannot be reached was promised all the same.",
        "(lambda it: (it.num_batches, len(list(it))))(old.SequentialSubsetIterator(10, None, 6))",
        "(6, 5)",
        "(lambda loader: (len(loader), len(list(loader))))(labeled.open_dataset(path).batches(3))",
        "(3, 3)",
    ),
    Case(
        47,
        "shuffled_sequential is a shuffle by RandomState(42), natively another one ...",
        "next(old.ShuffledSequentialSubsetIterator(5, 5)).tolist()",
        "[1, 4, 2, 0, 3]",
        "next(iter(native.shuffled(5, 5, seed=42))).tolist()",
        "[2, 1, 3, 4, 0]",
    ),
    Case(
        47,
        "... where a dataset passes its own (17, 2, 946), going on from epoch to epoch; "
        "natively the order is another one, asked for by epoch ...",
        "(lambda d: [next(d.iterator('shuffled_sequential', 4))[:, 0].tolist() for epoch in "
        "range(2)])(old.DenseDesignMatrix(X=np.arange(4.)[:, None]))",
        "[[0.0, 2.0, 1.0, 3.0], [3.0, 2.0, 1.0, 0.0]]",
        "[next(iter(native.shuffled(4, 4, seed=(17, 2, 946), epoch=epoch))).tolist() "
        "for epoch in range(2)]",
        "[[0, 3, 2, 1], [2, 3, 1, 0]]",
    ),
    Case(
        47,
        "... and shards need a common seed.",
        "next(old.ShuffledSequentialSubsetIterator(5, 5, rng=3)).tolist()",
        "[3, 4, 1, 0, 2]",
        "labeled.open_dataset(path).batches(4, shuffle=True, shard=(0, 2))",
        "raises LoaderError",
    ),
    Case(
        48,
        "The older HDF5 dataset put the rows of a shuffled batch back into file order.",
        "(lambda rows: rows == sorted(rows))(next(old.HDF5Dataset(path, X='X')"
        ".iterator('shuffled_sequential', 8))[:, 0].tolist())",
        "True",
        "(lambda rows: rows == sorted(rows))(next(iter(labeled.open_dataset(path)"
        ".batches(8, shuffle='full', seed=7))).rows.tolist())",
        "False",
    ),
    Case(
        49,
        "A dataset of arrays counted axis 0 as examples, whatever the axes.",
        "old.VectorSpacesDataset((np.zeros((3, 2, 2, 8)),), (old.CompositeSpace(("
        "old.Conv2DSpace((2, 2), channels=3, axes=('c', 0, 1, 'b')),)), ('x',)))"
        ".get_num_examples()",
        "3",
        "native.Conv2DSpace((2, 2), channels=3, axes=('c', 0, 1, 'b')).np_batch_size("
        "np.zeros((3, 2, 2, 8)))",
        "8",
    ),
    Case(
        50,
        "Targets with one axis were described with two ...",
        "old.DenseDesignMatrix(X=np.zeros((4, 2)), y=np.zeros(4)).get_data_specs()[0]"
        ".components[1]",
        "VectorSpace(dim=1, dtype=float64)",
        "labeled.open_dataset(path).spaces['y']",
        "IndexSpace(max_labels=None, dim=1)",
    ),
    Case(
        50,
        "... and could not be iterated.",
        "next(old.DenseDesignMatrix(X=np.zeros((4, 2)), y=np.zeros(4)).iterator("
        "'sequential', 4, data_specs=(old.VectorSpace(1), 'targets')))",
        "raises ValueError",
        "next(iter(labeled.open_dataset(path).batches(4, specs=(native.IndexSpace(3, 1), 'y'))))"
        ".tolist()",
        "[[0], [1], [2], [0]]",
    ),
]

HEAD = """# Traps: the old rules and the native ones side by side

Every line is a test: both expressions are evaluated, and give what stands below them. `old` is
`labeled.compat.pylearn2`, `native` is `labeled`; lines of one number belong together. This page
is printed from the tests' own table by `python tests/pylearn2_traps.py`.

| | trap | `labeled.compat.pylearn2` | `labeled` |
| --- | --- | --- | --- |
"""


PYLEARN2 = Traps(DOCS / "traps_pylearn2.md", HEAD, CASES, range(28, 51), names, outcome, OLD_KINDS)

if __name__ == "__main__":
    PYLEARN2.write()
