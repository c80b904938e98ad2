"""Where the old rules of Fuel and the native ones differ: one table, tested and printed.

Each case is a pair of expressions with what they give. `tests/test_compat_traps.py`
evaluates every one of them; `docs/traps_fuel.md` is printed from the same list by running
this module.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
from traps import DOCS, Case, Traps

import labeled
from labeled import selection
from labeled.compat.fuel import datasets, schemes, streams, transformers, utils
from labeled.formats.hdf5 import tables
from labeled.samplers import schemes as native_schemes

Fuel = datasets.H5PYDataset


def write_dense(path: str) -> None:
    """Write x (12, 2), whose rows begin with their number, y (12,), and many splits."""
    with h5py.File(path, "w") as f:
        f["x"] = np.repeat(np.arange(12), 2).reshape(12, 2)
        f["y"] = 100 + np.arange(12)
        for name, labels in {"x": ("batch", "feature"), "y": ("batch",)}.items():
            for axis, label in enumerate(labels):
                f[name].dims[axis].label = label
        f["rows"] = np.array([6, 0, 6, 2])
        listed = (0, 0, f["rows"].ref)
        f.attrs["split"] = Fuel.create_split_array(
            {
                "train": {"x": (0, 5), "y": (0, 5)},
                "far": {"x": (8, 12), "y": (8, 12)},
                "listed": {"x": listed, "y": listed},
                "apart": {"x": (0, 3), "y": (4, 7)},
                "only x": {"x": (0, 3)},
                "only y": {"y": (0, 3)},
            }
        )


def write_ragged(path: str, *, labelled: bool) -> None:
    """Write a (2,) with shapes and b (2,) without, both of variable length."""
    with h5py.File(path, "w") as f:
        for name in "ab":
            f.create_dataset(name, (2,), h5py.vlen_dtype("u1"))
            f[name][0], f[name][1] = np.arange(6, dtype="u1"), np.arange(4, dtype="u1")
            f[name].dims[0].label = "batch"
        f["shapes of a"] = np.array([[2, 3], [2, 2]])
        f["shapes of a"].make_scale("shapes")
        f["a"].dims[0].attach_scale(f["shapes of a"])
        if labelled:
            f["labels of a"] = np.array([b"height", b"width"])
            f["labels of a"].make_scale("shape_labels")
            f["a"].dims[0].attach_scale(f["labels of a"])
        f.attrs["split"] = Fuel.create_split_array({"all": {"a": (0, 2), "b": (0, 2)}})


def write_ones(path: str) -> None:
    """Write a table whose numbers have the shape (1,)."""
    with h5py.File(path, "w") as f:
        f["x"] = np.zeros((6, 2))
        table = Fuel.create_split_array({"train": {"x": (0, 4)}})
        wide = [
            (n, t, (1,)) if n in ("start", "stop", "available") else (n, t)
            for n, t in table.dtype.descr
        ]
        wide[4] = ("indices", h5py.ref_dtype)
        other = np.empty(1, wide)
        for name in table.dtype.names:
            other[name] = table[name][:, None] if other[name].ndim > 1 else table[name]
        f.attrs["split"] = other


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; writes small files into `folder`."""
    path, ragged, unlabelled, ones = (
        str(Path(folder) / name) for name in ("dense.h5", "ragged.h5", "unlabelled.h5", "ones.h5")
    )
    write_dense(path)
    write_ragged(ragged, labelled=True)
    write_ragged(unlabelled, labelled=False)
    write_ones(ones)

    def h(*which_sets: str, **options: Any) -> Any:
        return Fuel(path, which_sets, sources=("x",), **options)

    def big_table(libver: Any) -> int:
        table = tables.split_array({f"split {n:05}": {"x": (0, 1)} for n in range(2000)})
        with h5py.File(Path(folder) / "big.h5", "w", libver=libver) as f:
            f.attrs["split"] = table
            return len(f.attrs["split"])

    def stream(batch_size: int) -> Any:
        return streams.DataStream(
            h("train"), iteration_scheme=schemes.SequentialScheme(5, batch_size)
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        ds = labeled.open_dataset(path)
    old = SimpleNamespace()
    for module in (datasets, schemes, streams, transformers, utils):
        vars(old).update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    native = SimpleNamespace()
    for module in (selection, tables, native_schemes):
        vars(native).update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    return {
        "np": np,
        "h5py": h5py,
        "pickle": pickle,
        "labeled": labeled,
        "old": old,
        "native": native,
        "path": path,
        "ragged": ragged,
        "unlabelled": unlabelled,
        "ones": ones,
        "ds": ds,
        "h": h,
        "big_table": big_table,
        "stream": stream,
        "fresh": fresh,
        "tried": tried,
        "rows": lambda dataset: dataset.get_data(None, slice(None))[0][:, 0].tolist(),
        "native_rows": lambda d: d.select("x").load().loaded["x"][:, 0].tolist(),
    }


def fresh(dataset: Any) -> Any:
    """Forget all handles that earlier expressions left open."""
    for handle in Fuel._file_handles.values():
        handle.close()
    Fuel._file_handles.clear()
    Fuel._ref_counts.clear()
    return dataset


def tried(call: Any, *arguments: Any) -> None:
    """Call something that fails."""
    with contextlib.suppress(labeled.LabeledError):
        call(*arguments)


def outcome(expression: str, known: dict[str, Any], kinds: tuple[type, ...]) -> str:
    """Return what an expression gives; of an error, the first of `kinds` that it is."""
    fresh(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        try:
            return repr(eval(expression, dict(known)))
        except labeled.LabeledError as error:
            kind = next((k for k in kinds if isinstance(error, k)), type(error))
            return f"raises {kind.__name__}"
        except (TypeError, ValueError, KeyError, OSError) as error:  # of Python, NumPy, h5py
            return f"raises {type(error).__name__}"
        finally:
            fresh(None)


OLD_KINDS = (NotImplementedError, AttributeError, KeyError, IndexError, TypeError, ValueError)

CASES = [
    Case(
        1,
        "The order of splits does not matter: rows come in file order. Natively splits "
        "follow each other as named ...",
        "rows(h('far', 'train'))",
        "[0, 1, 2, 3, 4, 8, 9, 10, 11]",
        "native_rows(ds.split('far', 'train'))",
        "[8, 9, 10, 11, 0, 1, 2, 3, 4]",
    ),
    Case(
        1,
        "... and what splits share, or a split named twice, counts once. Natively "
        "every row that is asked for is there.",
        "rows(h('train', 'train'))",
        "[0, 1, 2, 3, 4]",
        "native_rows(ds.split('train', 'train'))",
        "[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]",
    ),
    Case(
        2,
        "Index splits are sorted and lose their repeats ...",
        "rows(h('listed'))",
        "[0, 2, 6]",
        "native_rows(ds.split('listed'))",
        "[6, 0, 6, 2]",
    ),
    Case(
        2,
        "... and so do subsets ...",
        "rows(h('train', subset=[4, 0, 0]))",
        "[0, 4]",
        "native_rows(ds.split('train').subset([4, 0, 0]))",
        "[4, 0, 0]",
    ),
    Case(
        2,
        "... but not requests.",
        "h('train').get_data(None, [4, 0, 2])[0][:, 0].tolist()",
        "[4, 0, 2]",
        "native_rows(ds.split('train').subset([4, 0, 2]))",
        "[4, 0, 2]",
    ),
    Case(
        3,
        "An empty list of rows means all of them ...",
        "h('train', subset=[]).num_examples",
        "5",
        "len(ds.split('train').subset([]))",
        "0",
    ),
    Case(
        3,
        "... an empty slice is an error ...",
        "h('train', subset=slice(2, 2)).num_examples",
        "raises ValueError",
        "len(ds.split('train').subset(slice(2, 2)))",
        "0",
    ),
    Case(
        3,
        "... and arrays are refused.",
        "h('train', subset=np.array([0, 2])).num_examples",
        "raises ValueError",
        "len(ds.split('train').subset(np.array([0, 2])))",
        "2",
    ),
    Case(
        4,
        "A slice with a step is refused of a contiguous split ...",
        "h('train', subset=slice(0, 4, 2)).num_examples",
        "raises ValueError",
        "native_rows(ds.split('train').subset(slice(0, 4, 2)))",
        "[0, 2]",
    ),
    Case(
        4,
        "... and taken of a listed one.",
        "rows(h('listed', subset=slice(0, 3, 2)))",
        "[0, 6]",
        "native_rows(ds.split('listed').subset(slice(0, 3, 2)))",
        "[6, 6]",
    ),
    Case(
        5,
        "A row cannot be asked for twice out of memory ...",
        "h('train').get_data(None, [1, 1])",
        "raises TypeError",
        "native_rows(ds.split('train').subset([1, 1]))",
        "[1, 1]",
    ),
    Case(
        5,
        "... but in memory it can.",
        "h('train', load_in_memory=True).get_data(None, [1, 1])[0][:, 0].tolist()",
        "[1, 1]",
        "native_rows(ds.split('train').load().subset([1, 1]))",
        "[1, 1]",
    ),
    Case(
        6,
        "Tuples, ranges and arrays are refused out of memory ...",
        "h('train').get_data(None, (0, 2))",
        "raises ValueError",
        "native_rows(ds.split('train').subset((0, 2)))",
        "[0, 2]",
    ),
    Case(
        6,
        "... tuples and ranges are taken in memory ...",
        "h('train', load_in_memory=True).get_data(None, range(1, 3))[0][:, 0].tolist()",
        "[1, 2]",
        "native_rows(ds.split('train').load().subset(range(1, 3)))",
        "[1, 2]",
    ),
    Case(
        6,
        "... and True is row 1; natively it is part of a mask.",
        "h('train').get_data(None, [False, True])[0][:, 0].tolist()",
        "[0, 1]",
        "native_rows(ds.split('train').subset([False, True, False, False, False]))",
        "[1]",
    ),
    Case(
        7,
        "Negative rows do not count from the end ...",
        "h('train').get_data(None, [-1])",
        "raises ValueError",
        "native_rows(ds.split('train').subset([-1]))",
        "[4]",
    ),
    Case(
        7,
        "... and slices are not cut to fit.",
        "h('train').get_data(None, slice(3, 100))",
        "raises ValueError",
        "native_rows(ds.split('train').subset(slice(3, 100)))",
        "[3, 4]",
    ),
    Case(
        8,
        "A single row comes without its axis; a list of one keeps it. Natively rows "
        "are always rows.",
        "[h('train').get_data(None, one)[0].shape for one in (1, [1])]",
        "[(2,), (1, 2)]",
        "[ds.split('train').subset(one).shapes['x'] for one in ([1], slice(1, 2))]",
        "[(1, 2), (1, 2)]",
    ),
    Case(
        9,
        "Sources are sorted by name; those that are named keep their order and their container.",
        "[old.H5PYDataset(path, ('train',), **kw).sources for kw in ({}, {'sources': ['y', 'x']})]",
        "[('x', 'y'), ['y', 'x']]",
        "[labeled.open_dataset(path, **kw).sources for kw in ({}, {'sources': ['y', 'x']})]",
        "[('x', 'y'), ('y', 'x')]",
    ),
    Case(
        9,
        "Labels are given for all sources of the file, whatever was asked for.",
        "sorted(h('train').axis_labels)",
        "['x', 'y']",
        "sorted(labeled.open_dataset(path, sources=['x']).dims)",
        "['x']",
    ),
    Case(
        10,
        "Where splits share no source so far, the next one begins anew: 'x' is not in "
        "'only y'. Natively that is an error.",
        "old.H5PYDataset(path, ('only y', 'only x', 'only y')).provides_sources",
        "('y',)",
        "ds.split('only y', 'only x', 'only y').sources",
        "raises SplitError",
    ),
    Case(
        10,
        "What a split does not have counts as no rows of it.",
        "old.H5PYDataset.get_subsets(h5py.File(path), ('only y',), ('x',))[0].num_examples",
        "0",
        "ds.split('only y').select('x')",
        "raises UnknownNameError",
    ),
    Case(
        11,
        "An empty range is fine within a file ...",
        "old.Subset(slice(3, 3), 12).num_examples",
        "0",
        "len(ds.subset(slice(3, 3)))",
        "0",
    ),
    Case(
        11,
        "... but not at its end ...",
        "old.Subset(slice(12, 12), 12).num_examples",
        "raises ValueError",
        "len(ds.subset(slice(12, 12)))",
        "0",
    ),
    Case(
        11,
        "... and not beside rows that it does not touch.",
        "(old.Subset(slice(8, 12), 12) + old.Subset(slice(3, 3), 12)).num_examples",
        "raises ValueError",
        "len(native.Selection.concat([native.Selection.of(range(8, 12)), "
        "native.Selection.of(range(3, 3))]))",
        "4",
    ),
    Case(
        12,
        "Sources of a split may use different rows: only their number is compared.",
        "old.H5PYDataset(path, ('apart',)).get_data(None, 0)[0][0], old.H5PYDataset("
        "path, ('apart',)).get_data(None, 0)[1].item()",
        "(np.int64(0), 104)",
        "[ds.split('apart').selection(name).describe() for name in ('x', 'y')]",
        "['rows 0:3', 'rows 4:7']",
    ),
    Case(
        13,
        "Examples have shapes of their own where a scale is called 'shapes', whatever "
        "the type in the file ...",
        "[old.H5PYDataset(ragged, ('all',)).get_data(None, [0])[0][0].shape, "
        "old.H5PYDataset(ragged, ('all',)).vlen_sources]",
        "[(2, 3), ['a']]",
        "[labeled.open_dataset(ragged)['a'][0].shape, labeled.open_dataset(ragged)['b'][0].shape]",
        "[(2, 3), (6,)]",
    ),
    Case(
        13,
        "... and without 'shape_labels' the file cannot be opened. Natively it can once "
        "the names are given.",
        "old.H5PYDataset(unlabelled, ('all',))",
        "raises KeyError",
        "labeled.open_dataset(unlabelled, dims={'a': ('batch', 'x', 'y')}).dims['a']",
        "('batch', 'x', 'y')",
    ),
    Case(
        14,
        "In memory a slice is a view of what is held; natively rows that are chosen are a copy ...",
        "(lambda d: np.shares_memory(d.get_data(None, slice(0, 2))[0], "
        "d.data_sources[0]))(h('train', load_in_memory=True))",
        "True",
        "(lambda d: np.shares_memory(d.subset(slice(0, 2)).loaded['x'], "
        "d.loaded['x']))(ds.split('train').load())",
        "False",
    ),
    Case(
        14,
        "... and a list is a copy in both.",
        "(lambda d: np.shares_memory(d.get_data(None, [0, 1])[0], d.data_sources[0]))("
        "h('train', load_in_memory=True))",
        "False",
        "(lambda d: np.shares_memory(d.subset([0, 3]).loaded['x'], d.loaded['x']))("
        "ds.split('train').load())",
        "False",
    ),
    Case(
        15,
        "open() gives None, and a state is ignored out of memory. Natively there is "
        "nothing to open ...",
        "(h('train').open(), h('train').get_data('state', [0])[0].tolist())",
        "(None, [[0, 0]])",
        "hasattr(ds, 'open')",
        "False",
    ),
    Case(
        15,
        "... and what is closed is read all the same. In memory a state is refused.",
        "h('train', load_in_memory=True).get_data('state', [0])",
        "raises ValueError",
        "(ds.close(), ds['x'][:1].values.shape[0])",
        "(None, 1)",
    ),
    Case(
        16,
        "Datasets of one file share one handle, which they count ...",
        "(lambda a, b: (a.open(), b.open(), len(old.H5PYDataset._file_handles), "
        "old.H5PYDataset._ref_counts[path])[2:])(fresh(h('train')), h('far'))",
        "(1, 2)",
        "[name for name in vars(ds) if 'handle' in name]",
        "[]",
    ),
    Case(
        16,
        "... and a close() too many leaves it open for good. Natively nothing is open "
        "between reads.",
        "(lambda d: (d.close(None), d.open(), d.close(None), path in "
        "d._file_handles)[-1])(fresh(h('train')))",
        "True",
        "(labeled.open_dataset(ones).load(), h5py.File(ones, 'r+').close())[1]",
        "None",
    ),
    Case(
        16,
        "What cannot be made leaves its file open as well.",
        "(tried(h, 'nothing'), path in old.H5PYDataset._file_handles)[1]",
        "True",
        "(tried(labeled.open_dataset(ones).split, 'nothing'), h5py.File(ones, 'r+').close())[1]",
        "None",
    ),
    Case(
        17,
        "A handle that its owner closed is replaced by one of the dataset's own, without a word.",
        "(lambda f: (lambda d: (f.close(), d.get_data(None, [2])[0].tolist())[-1])("
        "old.H5PYDataset(f, ('train',), sources=('x',))))(h5py.File(path))",
        "[[2, 2]]",
        "labeled.open_dataset(h5py.File(path))",
        "raises FileFormatError",
    ),
    Case(
        18,
        "Pickles hold no rows, but read them again, also on Python 3.11 and later ...",
        "(lambda d: (len(pickle.dumps(d)) < 1000, pickle.loads(pickle.dumps("
        "d)).data_sources[0].shape))(h('train', load_in_memory=True))",
        "(True, (5, 2))",
        "(lambda d: (len(pickle.dumps(d)) < 4000, len(pickle.loads(pickle.dumps(d)))))("
        "ds.split('train'))",
        "(True, 5)",
    ),
    Case(
        19,
        "The width of names counts characters: 'é' needs two bytes, so it is cut ...",
        "old.H5PYDataset.create_split_array({'é': {'x': (0, 1)}})['split'][0]",
        "np.bytes_(b'\\xc3')",
        "native.split_array({'é': {'x': (0, 1)}})['split'][0].decode()",
        "'é'",
    ),
    Case(
        19,
        "... and an empty comment is a full stop.",
        "old.H5PYDataset.create_split_array({'a': {'x': (0, 1, None, '')}})['comment'][0]",
        "np.bytes_(b'.')",
        "native.split_array({'a': {'x': (0, 1, None, '')}})['comment'][0]",
        "np.bytes_(b'.')",
    ),
    Case(
        20,
        "Numbers of a table may have the shape (1,), as some writers left them.",
        "old.H5PYDataset(ones, ('train',)).num_examples",
        "4",
        "len(labeled.open_dataset(ones).split('train'))",
        "4",
    ),
    Case(
        21,
        "A table beyond 64 KiB does not fit into a file of the oldest format; natively "
        "files are written in a newer one.",
        "big_table(libver='earliest')",
        "raises OSError",
        "big_table(libver=('v110', 'v114'))",
        "2000",
    ),
    Case(
        22,
        "Sequential schemes ask by lists. Reading finds out that they are runs; "
        "natively they are slices.",
        "list(old.SequentialScheme(5, 3).get_request_iterator())",
        "[[0, 1, 2], [3, 4]]",
        "list(native.sequential(5, 3))",
        "[slice(0, 3, None), slice(3, 5, None)]",
    ),
    Case(
        23,
        "Shuffles are those of RandomState(1), going on from epoch to epoch; natively "
        "an epoch is asked for by number.",
        "(lambda s: [list(s.get_request_iterator()) for epoch in range(2)])("
        "old.ShuffledScheme(4, 4))",
        "[[[3, 2, 0, 1]], [[0, 2, 1, 3]]]",
        "[[rows.tolist() for rows in native.shuffled(4, 4, legacy=True, epoch=epoch)] "
        "for epoch in range(2)]",
        "[[[3, 2, 0, 1]], [[0, 2, 1, 3]]]",
    ),
    Case(
        24,
        "For 0 examples a constant scheme never ends ...",
        "next(old.ConstantScheme(3, num_examples=0).get_request_iterator())",
        "3",
        "list(native.constant(3, n_rows=0))",
        "[]",
    ),
    Case(
        24,
        "... and unequal folds are refused only when the first is asked for.",
        "type(old.cross_validation(old.SequentialScheme, 10, 3, batch_size=2)).__name__",
        "'generator'",
        "native.cross_validation(native.sequential, 10, 3, batch_rows=2)",
        "raises LoaderError",
    ),
    Case(
        25,
        "A cache gives less than was asked for where one batch does not fill it ...",
        "len(next(old.Cache(stream(2), old.ConstantScheme(5)).get_epoch_iterator())[0])",
        "2",
        "next(iter(ds.split('train').batches(5)))['x'].shape[0]",
        "5",
    ),
    Case(
        25,
        "... and FilterSources makes lists of tuples.",
        "type(next(old.FilterSources(stream(2), ('x',)).get_epoch_iterator())).__name__",
        "'list'",
        "type(next(iter(ds.select('x').batches(2)))).__name__",
        "'Batch'",
    ),
    Case(
        25,
        "Filter gives tuples where dicts were asked for ...",
        "type(next(old.Filter(stream(2), lambda data: True).get_epoch_iterator("
        "as_dict=True))).__name__",
        "'tuple'",
        "type(next(iter(ds.batches(2)))).__name__",
        "'Batch'",
    ),
    Case(
        25,
        "... and Mapping forgets what axes are called.",
        "old.Mapping(stream(2), lambda data: data).axis_labels",
        "None",
        "next(iter(ds.batches(2)))['x'].dims",
        "('batch', 'feature')",
    ),
    Case(
        26,
        "Start and stop of arrays in memory apply twice.",
        "old.IndexableDataset(np.arange(10), start=2, stop=5).num_examples",
        "raises ValueError",
        "len(ds.subset(slice(2, 5)))",
        "3",
    ),
    Case(
        27,
        "Without sorting, unsorted rows are a TypeError, as h5py had it.",
        "h('train', sort_indices=False).get_data(None, [4, 0])",
        "raises TypeError",
        "native_rows(ds.split('train').subset([4, 0]))",
        "[4, 0]",
    ),
    Case(
        27,
        "Old tests reach for private parts, which are there.",
        "[hasattr(old.H5PYDataset, name) for name in ('_out_of_memory_open', "
        "'_in_memory_get_data', '_file_handle')]",
        "[True, True, True]",
        "hasattr(ds, '_file_handle')",
        "False",
    ),
]

HEAD = """# Traps: the old rules of Fuel and the native ones side by side

Every line is a test: both expressions are evaluated, and give what stands below them. `old` is
`labeled.compat.fuel`, `h(*splits)` its `H5PYDataset` of a small file, of which `ds` is the native
dataset; `rows` and `native_rows` are the numbers of their rows. Lines of one number belong
together. This page is printed from the tests' own table by `python tests/fuel_traps.py`.

| | trap | `labeled.compat.fuel` | `labeled` |
| --- | --- | --- | --- |
"""


FUEL = Traps(DOCS / "traps_fuel.md", HEAD, CASES, range(1, 28), names, outcome, OLD_KINDS)

if __name__ == "__main__":
    FUEL.write()
