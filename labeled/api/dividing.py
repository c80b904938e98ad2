"""Rows divided in two for ``train_test_split``: sizes as scikit-learn takes them, as rules."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from labeled._validation import as_array
from labeled.errors import SplitError
from labeled.ragged import Ragged
from labeled.selection import Request
from labeled.writing.sharing import splits_by_rules


def two_sides(
    n_rows: int,
    train_size: float | int | None,
    test_size: float | int | None,
    *,
    seed: int,
    in_order: bool,
    classes: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
) -> tuple[Request, Request]:
    """Return the rows for training and those for testing; a quarter is for testing by default.

    Raises
    ------
    SplitError
        If the sizes are impossible, or two rules are given at once.
    """
    given = [size for size in (train_size, test_size) if size is not None]
    if len(given) == 2 and all(isinstance(size, float) for size in given) and sum(given) > 1:
        raise SplitError(f"train_size={train_size} and test_size={test_size} are more than all")
    sizes = {"train": train_size, "test": test_size if given else 0.25}
    rules = {name: "rest" if size is None else size for name, size in sizes.items()}
    sides = splits_by_rules(
        rules, n_rows, seed=seed, in_order=in_order, classes=classes, groups=groups
    )
    return _request(sides["train"]), _request(sides["test"])


def one_value_a_row(option: str, given: Any, n_rows: int, where: str) -> npt.NDArray[Any]:
    """Return classes or groups as one value for each row; of ragged sources, the shapes.

    Raises
    ------
    SplitError
        If there are more or fewer.
    """
    values = as_array(option, given.shapes if isinstance(given, Ragged) else given, SplitError)
    if values.shape[:1] != (n_rows,) or values.size != n_rows:
        raise SplitError(
            f"{option}= has shape {values.shape}; it must be one value for each of the "
            f"{n_rows} rows of {where}"
        )
    return values.reshape(-1)


def _request(rows: Any) -> Request:
    """Return rows as a request: a slice where they follow one another."""
    request: Request = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
    return request
