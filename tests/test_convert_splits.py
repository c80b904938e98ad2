"""Splits by rule: every row at most once, shares hold, classes are even, groups whole, seeded."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.cli.main import main
from labeled.errors import LabeledError, LabeledWarning, UnknownNameError

shares = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(
    lambda parts: {f"s{i}": part / sum(parts) for i, part in enumerate(parts)}
)
labels = st.lists(st.integers(0, 20), min_size=1, max_size=200).map(np.array)


def splits_of(folder: Any, rows: Any, rules: Any, **how: Any) -> dict[str, list[int]]:
    """Convert rows by some rules; return the numbers of the rows of every split."""
    sources = {"y": rows, "n": np.arange(len(rows)), "wide": np.zeros((len(rows), 2))}
    path = labeled.convert(sources, Path(folder) / "x.h5", split=rules, overwrite=True, **how)
    ds = labeled.open_dataset(path)
    parts = {name: ds.split(name) for name in ds.splits}
    return {name: part.read_rows("n", 0, len(part)).tolist() for name, part in parts.items()}


@given(rows=labels, rules=shares, seed=st.integers(0, 99), how=st.sampled_from(
    ["rows", "in order", "stratify", "groups"]))  # fmt: skip
def test_shares_take_every_row_once(
    tmp_path_factory: Any, rows: Any, rules: dict[str, float], seed: int, how: str
) -> None:
    options: dict[str, Any] = {"in order": {"in_order": True}, "rows": {}}.get(how, {how: "y"})
    folder = tmp_path_factory.getbasetemp()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", LabeledWarning)
        found = splits_of(folder, rows, rules, seed=seed, **options)
    empty = [name for name, part in found.items() if how == "groups" and not part]
    assert {str(one.message).partition(":")[0] for one in said} == {
        f"split {name!r} has no rows" for name in empty
    }
    drawn = [row for part in found.values() for row in part]
    assert sorted(drawn) == list(range(len(rows)))
    assert all(part == sorted(part) for part in found.values())
    if how == "in order":
        assert drawn == sorted(drawn)
    if how == "groups":  # none is cut, so shares hold as nearly as the groups allow
        assert sum(len(set(rows[part])) for part in found.values()) == len(set(rows))
    most = np.bincount(rows).max() if how == "groups" else 1
    for split, share in rules.items():
        for one in set(rows) if how == "stratify" else [None]:
            part = rows[found[split]]
            n, of = (len(part), len(rows)) if one is None else (sum(part == one), sum(rows == one))
            assert abs(n - share * of) <= most + 1e-6


def test_stretches_come_first_and_the_rest_is_drawn(tmp_path: Path) -> None:
    rules = {"test": "80:", "train": "75%", "valid": "rest", "odd": "1:10:2"}
    found = splits_of(tmp_path, np.zeros(100, int), rules, seed=3)
    assert (found["test"], found["odd"]) == ([*range(80, 100)], [*range(1, 10, 2)])
    assert (len(found["train"]), len(found["valid"])) == (56, 19)
    assert {*found["train"], *found["valid"]} == set(range(80)) - set(range(1, 10, 2))
    rows = splits_of(tmp_path, np.zeros(8), {"a": (0, 4), "b": [4, 6], "c": "rest", "d": "0"})
    assert (rows["c"], rows["b"], rows["d"]) == ([5, 7], [4, 6], [])


def test_texts_are_classes_and_seeds_differ(tmp_path: Path) -> None:
    texts = np.array(["cat", "dog"] * 50, object)
    rules = {"a": 0.5, "b": "rest"}
    one, two, again = (splits_of(tmp_path, texts, rules, seed=s, stratify="y") for s in (1, 2, 1))
    assert one != two
    assert one == again
    assert [sum(texts[each["a"]] == "cat") for each in (one, two)] == [25, 25]


@pytest.mark.parametrize(
    "options", [{}, {"in_order": True}, {"stratify": "y"}, {"groups": "y"}], ids=str
)
def test_the_same_seed_draws_the_same_rows(tmp_path: Path, options: Any) -> None:
    labels = np.random.default_rng(0).integers(0, 20, 150)
    rules = {"a": 0.4, "b": 0.25, "c": "rest"}
    found = [splits_of(tmp_path, labels, rules, seed=7, **options) for _ in range(2)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("rules", "options", "words"),
    [
        ({"a": "0:11"}, {}, r"slice\(0, 11, None\), but there are 10 rows"),
        ({"a": 0.7, "b": 0.4}, {}, "ask for 1.1 of the 10 rows"),
        ({"a": "11"}, {}, "asks for 11 rows"),
        ({"a": "0:10", "b": 1}, {}, "of the 0 rows that are left to share out"),
        ({"a": "x"}, {}, "has the rule 'x'"),
        ({"a": "-:5"}, {}, "has the rule '-:5'"),
        ({"a": "120%"}, {}, "share is from 0 to 1"),
        ({"a": True}, {}, "True"),
        ({"a": "rest", "b": "rest"}, {}, "more than one split takes the rest"),
        ({"a": "0:5"}, {"stratify": "y"}, "stratify= needs splits by share"),
        ({"a": 0.5}, {"stratify": "y", "groups": "y"}, "do not go together"),
        ({"a": "::0"}, {}, "step is not 0"),
        ({"a": 0.5}, {"stratify": "z"}, "stratify='z' is not a source.*there are: .*'y'"),
        ({"a": 0.5}, {"stratify": np.zeros((10, 2))}, "one value for each of 10 rows"),
        ({"a": 0.5}, {"stratify": np.full(10, np.nan)}, "NaN in 10 rows, which is not a class"),
        ({"a": 0.5}, {"groups": 3}, r"groups has shape \(\); .* one value for each of 10 rows"),
        ({"a": 0.5}, {"groups": "wide"}, r"groups='wide' has shape \(10, 2\); it must be one"),
        (None, {"stratify": "y"}, "stratify=, groups= and in_order= need split="),
    ],
)
def test_rules_that_cannot_be_followed(
    tmp_path: Path, rules: Any, options: Any, words: str
) -> None:
    with pytest.raises(LabeledError, match=words):
        splits_of(tmp_path, np.arange(10) // 2, rules, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["stratify", "groups"])
def test_a_column_of_a_table_says_how_rows_are_split(tmp_path: Path, option: str) -> None:
    rng = np.random.default_rng(1)
    kind = rng.permutation(np.repeat([3, 5, 8], 30))
    table = pd.DataFrame({"height": rng.random(90), "kind": kind, "name": kind.astype(str)})
    table.to_csv(tmp_path / "t.csv", index=False)
    halves, target = {"a": 0.5, "b": 0.5}, tmp_path / "t.hdf5"
    ds = labeled.open_dataset(
        labeled.convert(tmp_path / "t.csv", target, split=halves, **{option: "kind"})
    )
    parts = [ds.split(name)["features"].values[:, 1].tolist() for name in halves]
    counts = [[part.count(one) for one in (3, 5, 8)] for part in parts]
    if option == "stratify":
        assert counts == [[15] * 3] * 2
    else:
        assert all(sorted(both) == [0, 30] for both in zip(*counts, strict=True))
    with pytest.raises(UnknownNameError, match="did you mean 'kind'"):
        labeled.convert(tmp_path / "t.csv", tmp_path / "u", split=halves, **{option: "kid"})


def test_the_only_column_of_a_source_is_known_by_name_after_a_copy(tmp_path: Path) -> None:
    """Attributes of one value come out of HDF5 files as that value."""
    (tmp_path / "t.csv").write_text("kind,name\n" + "0,x\n1,y\n" * 6)
    copy = labeled.convert(tmp_path / "t.csv", tmp_path / "t.hdf5")
    halves = {"a": 0.5, "b": 0.5}
    ds = labeled.open_dataset(labeled.convert(copy, tmp_path / "u", split=halves, stratify="kind"))
    assert [ds.split(name)["features"].values.sum() for name in halves] == [3, 3]
    with pytest.raises(UnknownNameError, match=r"'k' is not a source"):
        labeled.convert(copy, tmp_path / "v", split=halves, stratify="k")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--split", "train=0.8 test=0.2", "x=rest"], None),
        (["--split", "train"], "is not a split"),
        (["--split", "a=1", "--split", "a=2"], "given twice"),
        (["--split", "a=7x"], "has the rule '7x'"),
    ],
)
def test_rules_as_words(tmp_path: Path, words: list[str], said: str | None) -> None:
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(10)})
    done = CliRunner().invoke(main, ["convert", path, str(tmp_path / "y.h5"), *words])
    assert (done.exit_code, done.stderr.count("\n")) == ((1, 1) if said else (0, 0)), done.output
    if said:
        assert said in done.stderr
    else:
        splits = labeled.open_dataset(tmp_path / "y.h5").splits
        assert {name: by["x"] for name, by in splits.items()} == {"train": 8, "test": 2, "x": 0}


def test_a_split_may_lack_every_source_that_is_written(tmp_path: Path) -> None:
    splits = {"train": (0, 4), "unlabeled": {"x": (4, 6)}}
    sources = {"x": np.arange(6.0), "y": np.arange(6)}
    path = labeled.write(tmp_path / "all.hdf5", sources, splits)
    one = labeled.open_dataset(path).select("y")
    copies = [
        labeled.convert(path, tmp_path / "converted.hdf5", sources=["y"]),
        labeled.write(tmp_path / "written.hdf5", one),
    ]
    for copy in copies:
        ds = labeled.open_dataset(copy)
        np.testing.assert_array_equal(ds["y"], np.arange(6))
        assert ds.splits["train"] == {"y": 4}
    pytest.importorskip("matplotlib")
    one.plot.splits()
