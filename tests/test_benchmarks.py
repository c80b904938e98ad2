"""The benchmarks: every way delivers the rows it should, and copies are checked and timed.

No rate is tested: only what is read, from where, and in what order.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks import bare, copies, ours, peers, table
from benchmarks.files import FileSpec, make, numbers_of
from benchmarks.subject import Subject
from benchmarks.timing import Effort, Measured, Run, Way, measure

N_ROWS, BATCH, MEMORY = 1000, 32, "8 MiB"
SPECS = {
    "contiguous": FileSpec("contiguous", N_ROWS, (3, 4, 8)),
    "chunked": FileSpec("chunked", N_ROWS, (3, 4, 8), chunk_rows=64),
    "gzip": FileSpec("gzip", N_ROWS, (3, 4, 8), chunk_rows=64, codec="gzip", byte_shuffle=True),
}
ORDERS = ("file", "shuffled")


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    folder = tmp_path_factory.mktemp("benchmarks")
    return {name: make(spec, folder).subject(BATCH, MEMORY) for name, spec in SPECS.items()}


def check(way: Way) -> None:
    """Consume an epoch: which rows came, in what order."""
    batches = list(way.make()())
    if way.name == "bare decode":
        assert sum(batches) == N_ROWS  # type: ignore[arg-type]
        return
    batches = list(map(_copied, way.make()()))
    rows = np.concatenate([numbers_of(batch) for batch in batches])
    expected = np.arange(N_ROWS)
    if way.order == "list" or way.name == "xbatcher":  # some of the rows
        assert 0 < len(rows) < N_ROWS
        assert set(rows) <= set(expected)
        return
    np.testing.assert_array_equal(np.sort(rows), expected, way.full_name)
    if way.order == "file" and "2 workers" not in way.name:  # workers hand out theirs in turn
        np.testing.assert_array_equal(rows, expected)


def _copied(batch: Any) -> Any:
    return tuple(np.array(one) for one in batch)


@pytest.mark.parametrize("layout", SPECS)
def test_own_and_bare_ways_deliver_their_rows(subjects: dict[str, Subject], layout: str) -> None:
    subject = subjects[layout]
    mine = [ours.in_order(subject), ours.window(subject), ours.full(subject)]
    loops = [way for order in ORDERS for way in bare.ways(subject, order)]
    expected = {"contiguous": {"bare pread", "bare copy", "bare take"}, "chunked": {"bare pread"}}
    assert {way.name for way in loops} == expected.get(layout, {"bare decode"})
    for way in [*mine, *loops, ours.chosen(subject, shuffle=True)]:
        check(way)


@pytest.mark.parametrize("peer", peers.PEERS)
def test_peers_deliver_their_rows(subjects: dict[str, Subject], peer: str) -> None:
    for needed in importlib.import_module(f"benchmarks.peers.{peer}").NEEDS:
        pytest.importorskip(needed)
    for layout, order in itertools.product(("contiguous", "gzip"), ORDERS):
        for way in peers.peer_ways(subjects[layout], order, {}, peer):
            if "2 workers" not in way.name:  # processes beside the threads of this one
                check(way)


def test_a_missing_peer_is_named(
    subjects: dict[str, Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing: dict[str, str] = {}
    found = peers.peer_ways(subjects["gzip"], "file", missing)
    assert {way.name for way in found} == {"h5py slices", "xarray+dask"}
    assert "pip install torch (the extra 'bench'" in missing["torch DataLoader"]
    assert set(missing) == {"torch DataLoader", "xbatcher", "Grain", "scDataset", "pyfive"}


def test_entropy_is_of_the_labels_in_a_batch(subjects: dict[str, Subject]) -> None:
    subject = subjects["contiguous"]
    ways = [ours.in_order(subject), ours.full(subject)]
    in_order, mixed = measure(ways, subject, Effort(5, 0.01, 1))
    assert in_order.entropy == pytest.approx(0, abs=0.1)
    assert mixed.entropy == pytest.approx(1, abs=0.05)
    assert mixed.predicted == 1


def test_a_wrong_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    src = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    monkeypatch.setattr(copies.permute, "copy", lambda src, axes, out, **_: out.fill(0))
    with pytest.raises(RuntimeError, match="wrong result: move"):
        copies.moved(src, (2, 1, 0), copies.Effort(3, 0.0), scaled=False)


def measured(name: str, kind: str, rates: list[int]) -> Measured:
    runs = [Run(n_rows=rate, n_batches=1, seconds=1.0, complete=True) for rate in rates]
    return Measured(Way(name, kind, "file", "", lambda: lambda: iter(())), runs=runs)


def test_ratios_are_medians_of_those_within_a_round() -> None:
    found = [
        measured("bare copy", "bare", [10, 30]),
        measured("ours, file order", "ours", [20, 30]),
        measured("h5py slices", "peer", [5, 10]),
    ]
    by_name = {row["way"]: row for row in table.plain_rows(found, 1000)}
    assert by_name["h5py slices"]["ours_over_it"] == 3.5
    assert by_name["ours, file order"]["x_bare"] == 1.5
    assert by_name["bare copy"]["mb_per_s"] == 20 * 1000 / 1e6
