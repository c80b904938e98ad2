"""Odd parameters: what any public call says to values of the wrong type or size.

Every parameter of every call in `CALLS` is given values that it may not be meant for, one at a
time, the others staying sensible. A call must work or raise a LabeledError; where the annotation
names plain types only (``int``, ``float | None``, ``bool``, ``str``, a ``Literal``), values of
other types must be refused. ``python tests/odd_parameters.py`` goes through all of them and lists
what is wrong.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import labeled
from labeled import samplers, spaces
from labeled.errors import LabeledError

SIMPLE = {"int": int, "float": float, "bool": bool, "str": str, "None": type(None)}
LITERAL = re.compile(r"Literal\[(.*?)\]")

ODD: tuple[Any, ...] = (
    True, False, 0, 1, -1, 3, 2.5, -0.5, math.nan, math.inf, 10**12, -(10**12), 2**70,
    "", "3", "yes", "no such", "8 bananas", b"x", None, (), [], (1, 2), [3], [[1], [2, 3]],
    {}, {"x": 1}, {"images": "1"}, {1: 2}, object(), np.int64(3), np.float32(2), np.bool_(True),
    np.array([1, 2]), np.array(["a"]), np.datetime64("2020-01-01"), range(3), len, float,
    Path("nowhere.hdf5"), 1j,
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Call:
    """A public call with parameters that work.

    Attributes
    ----------
    make : callable
        Called with the sensible parameters, one of them replaced.
    sensible : mapping
        Parameters that are needed.
    signature : callable, optional
        Whose annotations describe the parameters; those of `make` when not given.
    then : callable
        Uses what was made, since some values show late.
    leave : tuple of str
        Parameters that take anything (user functions, data), or the whole machine.
    """

    make: Callable[..., Any]
    sensible: Mapping[str, Any] = field(default_factory=dict)
    signature: Callable[..., Any] | None = None
    then: Callable[[Any], Any] = lambda made: made
    leave: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, str]:
        """Name and annotation of each parameter that odd values are given to."""
        found = inspect.signature(self.signature or self.make).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {
            one.name: str(one.annotation)
            for one in found
            if one.kind in named and one.name not in ("self", *self.leave)
        }


def pictures_file(path: str) -> None:
    """Write 12 small pictures with labels, and a split."""
    rng = np.random.default_rng(0)
    sources = {"images": rng.integers(0, 255, (12, 3, 8, 8), "u1"), "targets": np.arange(12) % 3}
    dims = {"images": ("batch", "channel", "height", "width"), "targets": ("batch",)}
    splits = {"train": (0, 8), "test": (8, 12)}
    labeled.write(path, sources, splits, dims=dims, overwrite=True)


def first_batch(loader: Any) -> Any:
    return next(iter(loader), None)


def calls() -> dict[str, Call]:
    """Make the table; the current folder is one to write in."""
    pictures_file("in.hdf5")
    ds = labeled.open_dataset("in.hdf5")
    return {
        "open_dataset": Call(
            labeled.open_dataset, {"path": "in.hdf5"}, then=lambda d: d.to_xarray()
        ),
        "batches": Call(
            ds.batches,
            {"batch_size": 4},
            then=first_batch,
            leave=("pipeline",),
        ),
        "batches shuffled": Call(
            lambda **more: ds.batches(**{"batch_size": 4, "shuffle": "window", "seed": 1, **more}),
            {},
            ds.batches,
            first_batch,
            leave=("pipeline",),
        ),
        "batches with errors='skip'": Call(
            lambda max_lost: ds.batches(4, errors="skip", max_lost=max_lost),
            {"max_lost": 1},
            then=first_batch,
        ),
        "split": Call(lambda names: ds.split(names), {"names": "train"}),
        "subset": Call(lambda rows: ds.subset(rows), {"rows": [1]}),
        "select": Call(lambda sources: ds.select(sources), {"sources": "images"}),
        "isel": Call(lambda channel: ds.isel(channel=channel)["images"].compute(), {"channel": 0}),
        "sel": Call(
            lambda channel, method=None, tolerance=None: ds.sel(
                channel=channel, method=method, tolerance=tolerance
            ),
            {"channel": 0},
        ),
        "train_test_split": Call(ds.train_test_split, {"test_size": 0.25}),
        "load": Call(ds.load),
        "statistics": Call(ds.statistics, {"source": "targets"}),
        "read_rows": Call(ds.read_rows, {"name": "images", "start": 0, "stop": 1}),
        "write": Call(
            labeled.write, {"path": "out.hdf5", "sources": {"x": np.arange(12)}, "overwrite": True}
        ),
        "append": Call(
            lambda **kw: (
                pictures_file("more.hdf5"),
                labeled.append(**{"path": "more.hdf5", **kw}),
            ),
            {"sources": {"images": np.zeros((2, 3, 8, 8), "u1"), "targets": np.arange(2)}},
            labeled.append,
        ),
        "repack": Call(
            labeled.repack, {"path": "in.hdf5", "target": "out.hdf5", "overwrite": True}
        ),
        "verify": Call(labeled.verify, {"path": "in.hdf5"}),
        "convert": Call(
            labeled.convert, {"origin": "in.hdf5", "target": "out.hdf5", "overwrite": True}
        ),
        "doctor": Call(labeled.doctor, {"path": "in.hdf5"}),
        "concat": Call(labeled.concat, {"datasets": ["in.hdf5", "in.hdf5"]}),
        "merge_states": Call(labeled.merge_states, {"states": [ds.batches(4).state_dict()]}),
        "load_state_dict": Call(
            ds.batches(4).load_state_dict, {"state": ds.batches(4).state_dict()}
        ),
        "set_epoch": Call(ds.batches(4).set_epoch, {"epoch": 1}),
        "shuffled": Call(
            samplers.shuffled, {"n_rows": 12, "batch_rows": 4, "seed": 1}, then=first_batch
        ),
        "row_sequences": Call(
            samplers.row_sequences,
            {"n_rows": 12, "length": 3, "batch_sequences": 2},
            then=first_batch,
        ),
        "Conv2DSpace": Call(spaces.Conv2DSpace, {"shape": (8, 8), "channels": 3}),
        "ConvNDSpace": Call(spaces.ConvNDSpace, {"shape": (8, 8, 8), "channels": 3}),
        "VectorSpace": Call(spaces.VectorSpace, {"dim": 3}),
        "VectorSequenceSpace": Call(spaces.VectorSequenceSpace, {"dim": 3}),
        "IndexSpace": Call(spaces.IndexSpace, {"max_labels": 3}),
        "IndexSequenceSpace": Call(spaces.IndexSequenceSpace, {"max_labels": 3}),
        "CompositeSpace": Call(spaces.CompositeSpace, {"components": [spaces.VectorSpace(3)]}),
    }


def refused(annotation: str, value: Any) -> bool:
    """Whether a value is none of the plain types that an annotation names."""
    literal = LITERAL.search(annotation)
    words = tuple(re.findall(r"'([^']*)'", literal.group(1))) if literal else ()
    names = [one.strip() for one in LITERAL.sub("str" if literal else "", annotation).split("|")]
    if not names or not set(names) <= set(SIMPLE):
        return False
    if literal and isinstance(value, str):
        return value not in words
    if isinstance(value, bool | np.bool_):
        return "bool" not in names
    if isinstance(value, int | np.integer):
        return not {"int", "float"} & set(names)
    if isinstance(value, float | np.floating):
        return "float" not in names
    return not isinstance(value, tuple(SIMPLE[name] for name in names))


def complaint(call: Call, odd: Mapping[str, Any]) -> str | None:
    """Make a call with odd values; return what it raises but our own errors, "" if nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.then(call.make(**{**call.sensible, **odd}))
    except LabeledError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return ""


def fault(call: Call, name: str, value: Any) -> str | None:
    """Say what is wrong with how a call takes an odd value; None if nothing is."""
    found = complaint(call, {name: value})
    if found == "":
        return "taken without a word" if refused(call.parameters[name], value) else None
    return found


def cases(table: Mapping[str, Call]) -> Iterator[tuple[str, str, Any]]:
    for title, call in table.items():
        for name in call.parameters:
            for value in ODD:
                yield title, name, value


def main(words: list[str]) -> int:
    """Try everything, or the calls that are named; print what is wrong."""
    os.environ.setdefault("LABELED_FAST", "0")
    n_cases = n_wrong = 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        table = calls()
        for title, name, value in cases(table):
            if words and title not in words:
                continue
            n_cases += 1
            wrong = fault(table[title], name, value)
            if wrong is not None:
                n_wrong += 1
                print(f"{title}({name}={value!r:.40}): {wrong}", flush=True)
    print(f"{n_cases} cases, {n_wrong} wrong")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
