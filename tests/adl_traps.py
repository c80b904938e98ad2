"""Where the old data loader's rules and the native ones differ: one table, tested and printed.

Each case is a pair of expressions with what they give. `tests/test_compat_traps.py`
evaluates every one of them; `docs/traps_abstract_dataloader.md` is printed from the same list
by running this module.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from traps import DOCS, Case, Traps

import labeled
from labeled import transforms
from labeled.compat.abstract_dataloader import abstract, generic
from labeled.compat.abstract_dataloader.ext import graph, sample


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; nothing of it is in files."""
    times = {"a": np.arange(10.0), "b": np.arange(0.5, 9.0, 0.5)}
    old = {**vars(abstract), **vars(generic), "graph": graph, "sample_ld": sample.sample_ld}
    return {
        "np": np,
        "times": times,
        "old": SimpleNamespace(**{k: v for k, v in old.items() if not k.startswith("_")}),
        "native": transforms,
    }


def outcome(expression: str, names: dict[str, Any], kinds: tuple[type, ...]) -> str:
    """Return what an expression gives; of an error its type."""
    try:
        return repr(eval(expression, dict(names)))
    except (labeled.LabeledError, TypeError, ValueError, KeyError, IndexError) as error:
        return f"raises {type(error).__name__}"


CASES = [
    Case(
        1,
        "A pipeline without a collate hands its list on; natively samples are stacked.",
        "old.Pipeline().collate([1, 2])",
        "[1, 2]",
        "native.Stages().collate([1, 2])",
        "array([1, 2])",
    ),
    Case(
        2,
        "Parts that no transform is named for are dropped; natively they are kept.",
        "old.ParallelTransforms(a=abs)({'a': -1, 'b': 2})",
        "{'a': 1}",
        "native.ParallelTransforms(a=abs)({'a': -1, 'b': 2})",
        "{'a': 1, 'b': 2}",
    ),
    Case(
        3,
        "Nothing is checked when transforms are put together: a collate among them is called.",
        "old.Transform([old.Collate(), sum])([1, 2])",
        "3",
        "native.SequentialTransforms(native.stack, sum)",
        "raises PipelineError",
    ),
    Case(
        4,
        "A graph of transforms changes the mapping that it is given; transforms by name do not.",
        "(lambda d: (old.graph.Transform(n=old.graph.Node(lambda x: -x, 'y', {'x': 'a'}))(d), d))"
        "({'a': 1})",
        "({'a': 1, 'y': -1}, {'a': 1, 'y': -1})",
        "(lambda d: (native.ParallelTransforms(a=lambda x: -x)(d), d))({'a': 1})",
        "({'a': -1}, {'a': 1})",
    ),
    Case(
        5,
        "A thinned reference is counted in the thinned series (frames 3 and 6 are meant).",
        "old.Decimate(old.Next('a'), 3, 'a')(times)['a'].tolist()",
        "[1, 2]",
        "native.synchronise(times, 'a', 'next', every=3)['a'].values.tolist()",
        "[3, 6]",
    ),
    Case(
        6,
        "What is exactly as far as the tolerance is left out; natively it is within it.",
        "old.Nearest('a', tol=0)(times)['a'].tolist()",
        "[]",
        "native.synchronise(times, 'a', tolerance=0)['a'].values.tolist()",
        "[1, 2, 3, 4, 5, 6, 7, 8]",
    ),
    Case(
        7,
        "Whole numbers of NumPy are seconds as a margin; natively they are samples, as any are.",
        "old.Next('a', (np.int64(1), 0))({'a': times['a'] / 2})['a'].tolist()[:2]",
        "[2, 3]",
        "native.synchronise({'a': times['a'] / 2}, 'a', margin=(np.int64(1), 0))['a']"
        ".values.tolist()[:2]",
        "[1, 2]",
    ),
    Case(
        8,
        "A negative margin counts from the end; natively it is refused.",
        "old.Next('a', (-2, 0))(times)['a'].tolist()",
        "[8]",
        "native.synchronise(times, 'a', margin=(-2, 0))",
        "raises PipelineError",
    ),
    Case(
        9,
        "Sequences of different lengths are cut to the shortest; natively only when asked.",
        "old.SequencePipeline(old.Pipeline()).collate([[1, 2], [3]])",
        "[(1, 3)]",
        "native.SequencePipeline(native.Stages()).collate([[1, 2], [3]])",
        "raises PipelineError",
    ),
    Case(
        10,
        "Timestamps that fall are not noticed.",
        "old.Next('a')({'a': np.array([0.0, 2.0, 1.0, 3.0])})['a'].tolist()",
        "[0, 3, 1, 3]",
        "native.synchronise({'a': np.array([0.0, 2.0, 1.0, 3.0])}, 'a', 'next')",
        "raises PipelineError",
    ),
    Case(
        11,
        "A dataset has no items from its end; natively it has.",
        "old.Dataset([[1, 2], [3]])[-1]",
        "raises IndexError",
        "native.Concatenated([[1, 2], [3]])[-1]",
        "3",
    ),
    Case(
        12,
        "One row of one cannot be sampled, nor two of six; natively any number can.",
        "old.sample_ld(6, 2)",
        "raises ValueError",
        "native.subsample(1, 1).tolist(), len(native.subsample(6, 2))",
        "([0], 2)",
    ),
]

HEAD = """# Traps: the old abstract data loader and the native one side by side

Every line is a test: both expressions are evaluated, and give what stands below them. `old` is
`labeled.compat.abstract_dataloader`, `native` is `labeled.transforms`. This page is printed from
the tests' own table by `python tests/adl_traps.py`.

| | trap | `labeled.compat.abstract_dataloader` | `labeled.transforms` |
| --- | --- | --- | --- |
"""

ADL = Traps(DOCS / "traps_abstract_dataloader.md", HEAD, CASES, range(1, 13), names, outcome, ())

if __name__ == "__main__":
    ADL.write()
