"""Splits by rule: every row at most once, shares hold, classes are even, groups whole, seeded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import SplitError, SplitTypeError
from labeled.writing.splits import rules_of_words, splits_by_rules

shares = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(
    lambda parts: [part / sum(parts) for part in parts]
)
counts = st.integers(0, 300)
seeds = st.integers(0, 99)


def drawn(found: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.asarray(rows, np.int64) for rows in found.values()])


def rules_for(parts: list[float]) -> dict[str, float]:
    return {f"s{i}": part for i, part in enumerate(parts)}


@given(n=counts, parts=shares, seed=seeds, in_order=st.booleans())
def test_shares_take_every_row_once(n: int, parts: list[float], seed: int, in_order: bool) -> None:
    found = splits_by_rules(rules_for(parts), n, seed=seed, in_order=in_order)
    assert sorted(drawn(found).tolist()) == list(range(n))
    for part, rows in zip(parts, found.values(), strict=True):
        assert abs(len(rows) - part * n) < 1 + 1e-6
        assert (np.diff(np.asarray(rows)) > 0).all()
    if in_order:
        assert (np.diff(drawn(found)) == 1).all()
    again = splits_by_rules(rules_for(parts), n, seed=seed, in_order=in_order)
    assert all(np.array_equal(found[name], again[name]) for name in found)


@given(labels=st.lists(st.integers(0, 4), max_size=200), parts=shares, seed=seeds)
def test_stratified_splits_have_their_share_of_every_class(
    labels: list[int], parts: list[float], seed: int
) -> None:
    classes = np.array(labels, np.int64)
    found = splits_by_rules(rules_for(parts), len(classes), seed=seed, classes=classes)
    assert sorted(drawn(found).tolist()) == list(range(len(classes)))
    for part, rows in zip(parts, found.values(), strict=True):
        of_split = classes[np.asarray(rows, np.int64)]
        for one in set(labels):
            assert abs((of_split == one).sum() - part * labels.count(one)) < 1 + 1e-6


@given(labels=st.lists(st.integers(0, 20), max_size=200), parts=shares, seed=seeds)
def test_groups_are_never_cut(labels: list[int], parts: list[float], seed: int) -> None:
    groups = np.array(labels, np.int64)
    found = splits_by_rules(rules_for(parts), len(groups), seed=seed, groups=groups)
    assert sorted(drawn(found).tolist()) == list(range(len(groups)))
    owners = [set(groups[np.asarray(rows, np.int64)].tolist()) for rows in found.values()]
    assert sum(map(len, owners)) == len(set(labels))
    most = max((labels.count(one) for one in set(labels)), default=0)
    for part, rows in zip(parts, found.values(), strict=True):
        assert abs(len(rows) - part * len(groups)) <= most + 1e-6


def test_seeds_and_texts_as_classes() -> None:
    texts = np.array(["cat", "dog"] * 50, object)
    one = splits_by_rules({"a": 0.5, "b": "rest"}, 100, seed=1, classes=texts)
    two = splits_by_rules({"a": 0.5, "b": "rest"}, 100, seed=2, classes=texts)
    assert not np.array_equal(one["a"], two["a"])
    for found in (one, two):
        assert (texts[np.asarray(found["a"])] == "cat").sum() == 25


def test_stretches_come_first_and_the_rest_is_drawn() -> None:
    found = splits_by_rules(
        {"test": "80:", "train": "75%", "valid": "rest", "odd": "1:10:2"}, 100, seed=3
    )
    assert (found["test"], found["odd"]) == (range(80, 100), range(1, 10, 2))
    assert (len(found["train"]), len(found["valid"])) == (56, 19)
    assert set(drawn({k: found[k] for k in ("train", "valid")})) == set(range(80)) - set(
        range(1, 10, 2)
    )
    assert splits_by_rules({"a": "10", "b": 5}, 100)["b"].shape == (5,)
    assert splits_by_rules({"a": 0.5, "b": 0.5}, 10, in_order=True) == {
        "a": range(5),
        "b": range(5, 10),
    }
    given_rows = splits_by_rules({"a": (0, 4), "b": [4, 6], "c": "rest"}, 8)
    assert given_rows["c"].tolist() == [5, 7]


@pytest.mark.parametrize(
    ("rules", "options", "words"),
    [
        ({"a": "0:11"}, {}, "rows 0:11, but there are 10"),
        ({"a": 0.7, "b": 0.4}, {}, "ask for 1.1 of the 10 rows"),
        ({"a": "11"}, {}, "asks for 11 rows"),
        ({"a": "x"}, {}, "has the rule 'x'"),
        ({"a": "120%"}, {}, "share is from 0 to 1"),
        ({"a": "rest", "b": "rest"}, {}, "more than one split takes the rest"),
        ({"a": "0:5"}, {"classes": np.zeros(10)}, "stratify needs splits by share"),
        ({"a": 0.5}, {"classes": np.zeros(10), "groups": np.zeros(10)}, "do not go together"),
        ({"a": "::0"}, {}, "step is not 0"),
    ],
)
def test_rules_that_cannot_be_followed(rules: Any, options: Any, words: str) -> None:
    with pytest.raises(SplitError, match=words):
        splits_by_rules(rules, 10, **options)


def test_words() -> None:
    assert rules_of_words(["train=0.8 test=0.2", "x=rest"]) == {
        "train": "0.8",
        "test": "0.2",
        "x": "rest",
    }
    with pytest.raises(SplitError, match="is not a split"):
        rules_of_words(["train"])
    with pytest.raises(SplitError, match="given twice"):
        rules_of_words(["a=1", "a=2"])
    with pytest.raises(SplitTypeError, match="True"):
        splits_by_rules({"a": True}, 3)


@settings(max_examples=5)
@given(seed=seeds)
def test_many_rows_are_shared_out(seed: int) -> None:
    found = splits_by_rules({"a": 0.9, "b": 0.1}, 100_000, seed=seed)
    assert (len(found["a"]), len(found["b"])) == (90_000, 10_000)
