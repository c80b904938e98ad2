"""Laws that the batches of every dataset keep, as classes of tests to inherit.

They use the public API alone: whoever adds a format, or has files of a kind of their own, makes a
small file, says what its rows are, and inherits the laws of order, shards, resuming and memory.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeled.dataset.dataset import Dataset
from labeled.errors import LoaderError
from labeled.loader.batch import Batch
from labeled.loader.loader import Loader
from labeled.samplers.state import merge_states

Places = npt.NDArray[np.int64]
# an array; or for a ragged source a list of arrays of different shapes
Rows = npt.NDArray[Any] | list[npt.NDArray[Any]]

SHUFFLES = (False, True, "window", "full")
ORDERS = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from(SHUFFLES),
        "seed": st.integers(0, 5),
        "epoch": st.integers(0, 2),
        "window_rows": st.integers(16, 40),
    }
)
CASES = st.builds(
    SimpleNamespace,
    order=ORDERS,
    size=st.integers(1, 16),
    last=st.sampled_from(["keep", "pad", "drop", "wrap"]),
    count=st.integers(1, 4),  # of shards
    after=st.integers(1, 4),  # when their number has changed
    threads=st.integers(0, 3),
    prefetch=st.none() | st.integers(0, 3),
    number=st.integers(0, 1 << 30),  # for what a test chooses besides
)

# For laws that several classes inherit: Hypothesis would warn that each runs them anew.
law = settings(
    max_examples=max(10, settings().max_examples // 4),
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors],
)


class LoaderTests:
    """Laws of :meth:`labeled.Dataset.batches`: order, shards, resuming, ownership, memory.

    Define :meth:`make` and :meth:`expected`. A dataset of one to three hundred rows is enough. If
    its rows take a megabyte or more, the smaller of `memories` has them read anew in every epoch,
    and the larger keeps them in memory: both paths are tested.

    Attributes
    ----------
    memories : tuple of str
        Sizes for ``memory=`` that batches of 16 rows and windows of 40 fit into.

    Examples
    --------
    >>> import labeled, numpy as np
    >>> class TestNumbers(labeled.testing.LoaderTests):
    ...     numbers = np.arange(200)
    ...
    ...     def make(self, folder):
    ...         return labeled.open_dataset(labeled.write(folder / "n.h5", {"n": self.numbers}))
    ...
    ...     def expected(self):
    ...         return {"n": self.numbers}
    """

    memories: tuple[str, ...] = ("64 MiB", "12 MiB")

    def make(self, folder: Path) -> Dataset:
        """Write a file into an empty folder, and return the dataset to test."""
        raise NotImplementedError

    def expected(self) -> Mapping[str, Rows]:
        """Return the rows of each source, in the order of the dataset, as batches hold them."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def dataset(cls, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
        return cls().make(tmp_path_factory.mktemp(cls.__name__))

    def check(self, batch: Batch, rows: Places | None = None) -> None:
        """Compare the real rows of a batch with what is expected of them.

        Parameters
        ----------
        rows : integers, optional
            Where each row of the dataset that made the batch lies in the one of :meth:`make`.
        """
        real = batch.rows[: batch.count]
        assert (batch.rows[batch.count :] == -1).all()
        for name, values in self.expected().items():
            found, places = batch.arrays[name], real if rows is None else rows[real]
            if isinstance(values, np.ndarray):
                np.testing.assert_array_equal(found[: len(places)], values[places])
                continue
            pairs = [(one, values[row]) for one, row in zip(found, places, strict=False)]
            assert all(one.shape == other.shape for one, other in pairs)
            if pairs:  # one comparison for all examples
                ones, others = (
                    np.concatenate([*map(np.ravel, side)]) for side in zip(*pairs, strict=True)
                )
                np.testing.assert_array_equal(ones, others)

    def memory_of(self, case: Any) -> str:
        """Return one of the memories."""
        return self.memories[int(case.number) % len(self.memories)]

    # order

    def test_rows_come_in_file_order(self, dataset: Dataset) -> None:
        batches = list(dataset.batches(7))
        for batch in batches:
            self.check(batch)
        rows = np.concatenate([batch.rows for batch in batches])
        np.testing.assert_array_equal(rows, np.arange(dataset.n_rows))

    @law
    @given(case=CASES)
    def test_the_shards_of_an_epoch_hold_each_row_once(self, dataset: Dataset, case: Any) -> None:
        pads, seen = case.last in ("pad", "wrap"), []
        options: Any = {"memory": self.memory_of(case), "last": "pad" if pads else "keep"}
        for index in range(case.count):
            options |= {"shard": (index, case.count), "threads": index % 3}
            for batch in dataset.batches(case.size, **options, **case.order):
                self.check(batch)
                assert len(batch.rows) == (case.size if pads else batch.count)
                seen += batch.rows[: batch.count].tolist()
        assert sorted(seen) == list(range(dataset.n_rows))

    @law
    @given(case=CASES)
    def test_shards_have_as_many_full_batches_where_none_may_be_short(
        self, dataset: Dataset, case: Any
    ) -> None:
        last: Any = "drop" if case.last in ("drop", "keep") else "wrap"
        rows = []
        for index in range(case.count):
            shard = dataset.batches(case.size, last=last, shard=(index, case.count), **case.order)
            rows.append([batch.rows for batch in shard])
        assert len({len(batches) for batches in rows}) == 1
        assert {len(batch) for batches in rows for batch in batches} <= {case.size}
        seen = [row for batches in rows for batch in batches for row in batch.tolist()]
        if last == "wrap":
            assert set(seen) == set(range(dataset.n_rows))
        else:
            assert len(set(seen)) == len(seen)
            assert dataset.n_rows - len(seen) < case.size * case.count

    @law
    @given(case=CASES)
    def test_threads_prefetch_and_memory_change_no_order(self, dataset: Dataset, case: Any) -> None:
        plain = dataset.batches(case.size, threads=0, **case.order)
        options: Any = {"memory": self.memory_of(case), "output": [None, "numpy"][case.count % 2]}
        options |= {"threads": case.threads, "prefetch": case.prefetch, **case.order}
        other = dataset.batches(case.size, **options)
        for batch, (_, rows, _) in zip(plain, other.with_rows(), strict=True):
            np.testing.assert_array_equal(batch.rows, rows)

    def test_epochs_and_seeds_differ(self, dataset: Dataset) -> None:
        loader = dataset.batches(16, shuffle="window", seed=1)
        epochs = [_rows(loader), _rows(loader), _rows(dataset.batches(16, shuffle=True, seed=2))]
        assert len({str(epoch) for epoch in epochs}) == len(epochs)

    # selections

    @law
    @given(case=CASES, data=st.data())
    def test_rows_of_a_batch_are_positions_in_its_dataset(
        self, dataset: Dataset, case: Any, data: st.DataObject
    ) -> None:
        numbers = st.lists(st.integers(0, dataset.n_rows - 1), max_size=60)
        listed = np.array(data.draw(numbers), np.int64)
        seen = []
        for batch in dataset.subset(listed).batches(case.size, **case.order):
            self.check(batch, listed)
            seen += batch.rows.tolist()
        assert sorted(seen) == list(range(len(listed)))

    @pytest.mark.parametrize("shuffle", SHUFFLES)
    def test_no_rows_are_no_batches(self, dataset: Dataset, shuffle: Any) -> None:
        loader = dataset.subset([]).batches(4, shuffle=shuffle)
        assert len(loader) == 0
        assert list(loader) == []

    # state

    @law
    @given(case=CASES)
    def test_a_saved_place_is_found_again(self, dataset: Dataset, case: Any) -> None:
        whole = dataset.batches(11, last=case.last, **case.order)
        first, second = _rows(whole), _rows(whole)
        at = case.number % len(first)
        saved = dataset.batches(11, last=case.last, **case.order)
        with iter(saved) as epoch:
            for _ in range(at):
                next(epoch)
            state = json.loads(json.dumps(saved.state_dict()))

        options = {"last": case.last, "memory": self.memory_of(case), **case.order, "epoch": 7}
        other = pickle.loads(pickle.dumps(dataset)).batches(11, **options)
        other.load_state_dict(state)
        found = []
        for batch in other:
            self.check(batch)
            found.append(batch.rows[: batch.count].tolist())
        assert found == first[at:]
        assert _rows(other) == second

    @law
    @given(case=CASES)
    def test_another_number_of_shards_hands_out_what_is_left(
        self, dataset: Dataset, case: Any
    ) -> None:
        n, after, order = case.count, case.after, case.order
        shards = [dataset.batches(8, shard=(i, n), **order) for i in range(n)]
        step = case.number % min(map(len, shards))
        seen, states = [], []
        for shard in shards:
            with iter(shard) as epoch:
                seen += [row for _ in range(step) for row in next(epoch).rows.tolist()]
                states.append(shard.state_dict())
        for index in range(after):
            shard = dataset.batches(8, shard=(index, after), **order)
            shard.load_state_dict(merge_states(states))
            for batch in shard:
                self.check(batch)
                seen += batch.rows.tolist()
        assert sorted(seen) == list(range(dataset.n_rows))

    def test_a_loader_pickles_with_its_place(self, dataset: Dataset) -> None:
        loader = dataset.batches(9, shuffle="window", seed=4)
        with iter(loader) as epoch:
            next(epoch)
            other = pickle.loads(pickle.dumps(loader))
        assert other.state_dict() == loader.state_dict()
        assert _rows(other) == _rows(loader)

    # ownership, plan, memory

    @law
    @given(case=CASES)
    def test_a_batch_stays_what_it_was(self, dataset: Dataset, case: Any) -> None:
        loader = dataset.batches(case.size, memory=self.memory_of(case), **case.order)
        batches = [batch for _ in range(3) for batch in loader]
        for batch in batches:
            self.check(batch)

    def test_the_plan_says_how_much_there_is(self, dataset: Dataset) -> None:
        for size in (1, 7, 16):
            loader = dataset.batches(size, shuffle="window", seed=1)
            plan = loader.explain()
            assert (plan.n_rows, plan.n_batches) == (dataset.n_rows, -(-dataset.n_rows // size))
            assert len(loader) == plan.n_batches
            json.dumps(plan.to_dict())

    def test_too_little_memory_is_refused_before_anything_is_read(self, dataset: Dataset) -> None:
        with pytest.raises(LoaderError, match="memory="):
            dataset.batches(16, memory=1000)


class RaggedTests(LoaderTests):
    """The laws of :class:`LoaderTests`, and those of padded and flat batches.

    The sources of :meth:`expected` that are lists of arrays are the ragged ones; there must be one.
    """

    def ragged(self) -> dict[str, list[npt.NDArray[Any]]]:
        """Return what is expected of each ragged source."""
        expected = self.expected().items()
        return {name: rows for name, rows in expected if not isinstance(rows, np.ndarray)}

    @law
    @given(case=CASES)
    def test_padded_examples_fill_the_longest_of_the_batch(
        self, dataset: Dataset, case: Any
    ) -> None:
        last: Any = ["keep", "pad"][case.number % 2]
        for batch in dataset.batches(case.size, ragged="pad", last=last, **case.order):
            for name, values in self.ragged().items():
                examples = [values[row] for row in batch.rows[: batch.count]]
                padded, inside = batch.arrays[name], batch.arrays[f"{name}_mask"]
                longest = np.max([example.shape for example in examples], axis=0)
                assert padded.shape == inside.shape == (len(batch.rows), *longest)
                for place, held, example in zip(padded, inside, examples, strict=False):
                    np.testing.assert_array_equal(place[held].reshape(example.shape), example)
                    assert not place[~held].any()
                assert not inside[batch.count :].any()

    @law
    @given(case=CASES)
    def test_flat_values_are_cut_by_offsets(self, dataset: Dataset, case: Any) -> None:
        for batch in dataset.batches(case.size, ragged="flat", **case.order):
            for name, values in self.ragged().items():
                flat, offsets = batch.arrays[name], batch.arrays[f"{name}_offsets"]
                shapes = batch.arrays[f"{name}_shapes"]
                assert len(flat) == offsets[-1]
                for place, row in enumerate(batch.rows):
                    found = flat[offsets[place] : offsets[place + 1]].reshape(shapes[place])
                    np.testing.assert_array_equal(found, values[row])


def _rows(loader: Loader) -> list[list[int]]:
    """Run one epoch, and return the real rows of each batch."""
    return [rows[:count].tolist() for _, rows, count in loader.with_rows()]
