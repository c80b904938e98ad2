"""Each trap of Fuel's rules, beside what the native rules do: the table of the docs, evaluated."""

from __future__ import annotations

import pytest
from fuel_traps import CASES, OLD_KINDS, PAGE, names, outcome, page


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return names(tmp_path_factory.mktemp("traps"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}-{case.text[:40]}")
def test_old_and_native_beside_each_other(case, known):
    assert outcome(case.old, known, OLD_KINDS) == case.old_gives
    assert outcome(case.native, known, ()) == case.native_gives


def test_every_trap_has_its_case():
    assert {case.number for case in CASES} == set(range(1, 28))


def test_the_page_shows_the_table_that_is_tested():
    assert PAGE.read_text() == page(), "run `python tests/fuel_traps.py`"
