"""Each trap of the old rules beside the native ones: the tables of the docs, evaluated."""

from __future__ import annotations

import functools

import pytest
from adl_traps import ADL
from fuel_traps import FUEL
from mxnet_traps import MXNET
from pylearn2_traps import PYLEARN2

TABLES = [ADL, FUEL, MXNET, PYLEARN2]
tables = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.page.stem)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Return the names that a table's expressions use, made once."""
    return functools.cache(
        lambda number: TABLES[number].names(tmp_path_factory.mktemp(TABLES[number].page.stem))
    )


@pytest.mark.parametrize(
    ("number", "case"),
    [
        pytest.param(number, case, id=f"{case.number}-{case.text[:40]}")
        for number, table in enumerate(TABLES)
        for case in table.cases
    ],
)
def test_old_and_native_beside_each_other(number, case, known):
    found = TABLES[number].found(case, known(number))
    assert found == (case.old_gives, case.native_gives)


@tables
def test_every_trap_has_its_case(table):
    assert {case.number for case in table.cases} == set(table.numbers)
