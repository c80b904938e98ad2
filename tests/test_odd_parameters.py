"""Parameters of the wrong type or size: refused in words, whatever the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_parameters import ODD, Call, calls, cases, complaint, fault

from labeled import open_dataset, transforms
from labeled.errors import ArgumentError, AugmentError, LoaderError

Table = dict[str, Call]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with chdir(tmp_path_factory.mktemp("odd")):
        yield calls()


@pytest.mark.slow
def test_every_parameter_of_another_type_is_refused(table: Table) -> None:
    wrong = [
        f"{title}({name}={value!r}): {found}"
        for title, name, value in cases(table)
        if (found := fault(table[title], name, value)) is not None
    ]
    assert not wrong


@given(data=st.data())
def test_several_odd_parameters_raise_our_errors_only(table: Table, data: st.DataObject) -> None:
    title = data.draw(st.sampled_from(sorted(table)))
    names = st.sampled_from(sorted(table[title].parameters))
    given = data.draw(st.dictionaries(names, st.sampled_from(ODD), min_size=1, max_size=4))
    assert not complaint(table[title], given)


def test_messages_say_what_is_asked_for(table: Table) -> None:
    ds = open_dataset("in.hdf5")
    with pytest.raises(LoaderError, match="batch_size='64' must be a whole number or None"):
        ds.batches("64")  # type: ignore[arg-type]
    with pytest.raises(LoaderError, match=r"last='droop' must be .*; did you mean 'drop'\?"):
        ds.batches(4, last="droop")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="decode_cf=1 must be True or False"):
        open_dataset("in.hdf5", decode_cf=1)  # type: ignore[arg-type]
    with pytest.raises(AugmentError, match="std='3' must be a number"):
        transforms.Normalize(std="3")  # type: ignore[arg-type]
    with pytest.raises(AugmentError, match=r"aspect=1\.5 must be"):
        transforms.RandomResizedCrop(4, aspect=1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="sources=3 must be a sequence of text or None"):
        open_dataset("in.hdf5", sources=3)  # type: ignore[arg-type]
