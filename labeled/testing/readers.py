"""What holds for every reader of rows, as tests: for the formats of this library and for yours."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from labeled.errors import SelectionError
from labeled.formats.reader import Reader, Rows, advise, cost, is_cold, pieces, read_rows
from labeled.formats.region import Array, Ints


class ReaderTests:
    """Laws of a :class:`~labeled.formats.reader.Reader`, to be inherited by a test class.

    A subclass defines two fixtures: ``reader``, and ``values``, an array of all the rows that it
    has to read, found in another way. pytest then runs each ``test_...`` method below on them.

    Examples
    --------
    A reader of ``.npy`` files, and its tests:

    >>> import numpy as np
    >>> import pytest
    >>> from labeled.formats.reader import listed_rows
    >>> from labeled.testing import ReaderTests
    >>> class NpyReader:
    ...     kind, why, chunk_rows = "npy", "NumPy reads its own files", 1
    ...
    ...     def __init__(self, path):
    ...         self.path = path
    ...         array = np.load(path, mmap_mode="r")
    ...         self.n_rows, self.row_shape, self.dtype = len(array), array.shape[1:], array.dtype
    ...
    ...     def read(self, rows, out, places=None):
    ...         wanted = listed_rows(rows, self.n_rows)
    ...         place = slice(len(wanted)) if places is None else places
    ...         out[place] = np.load(self.path, mmap_mode="r")[wanted]
    ...
    ...     def byte_ranges(self, rows):
    ...         return ()  # unknown: nothing is read ahead, and reads cost nothing
    >>> class TestNpyReader(ReaderTests):
    ...     @pytest.fixture
    ...     def values(self):
    ...         return np.random.default_rng(0).random((100, 3, 2))
    ...
    ...     @pytest.fixture
    ...     def reader(self, tmp_path, values):
    ...         np.save(tmp_path / "x.npy", values)
    ...         return NpyReader(tmp_path / "x.npy")
    """

    def test_shape_and_dtype_are_those_of_the_values(self, reader: Reader, values: Array) -> None:
        """Say what rows look like before they are read, in native byte order."""
        assert (reader.n_rows, *reader.row_shape) == values.shape
        assert reader.dtype == values.dtype
        assert reader.dtype.isnative
        assert reader.kind
        assert reader.why
        assert reader.chunk_rows >= 1

    def test_rows_are_read_however_they_are_given(self, reader: Reader, values: Array) -> None:
        """Read stretches, with steps and backwards; runs that touch; lists in any order."""
        n = len(values)
        ranges = (range(n // 3, n - n // 3), range(n)[::-1], range(0, n, 3), range(0))
        for rows in (*ranges, *some_rows(n)):
            same(read_rows(reader, rows), values[one_by_one(rows)])

    def test_rows_go_to_their_places(self, reader: Reader, values: Array) -> None:
        """Store row number i in ``out[places[i]]``, and touch nothing else."""
        n = len(values)
        for rows in some_rows(n):
            listed = one_by_one(rows)
            places = np.random.default_rng(n).permutation(len(listed) + 3)[: len(listed)]
            out = np.zeros((len(listed) + 3, *values.shape[1:]), values.dtype)
            reader.read(rows, out, places)
            expected = np.zeros_like(out)
            expected[places] = values[listed]
            same(out, expected)

    def test_pieces_are_all_rows_once_in_any_order(self, reader: Reader, values: Array) -> None:
        """Give the same rows piece by piece, by several threads at once."""
        n = len(values)
        with ThreadPoolExecutor(3) as pool:
            for rows in (*some_rows(n), range(0, n, 3), range(n)[::-1]):
                listed = one_by_one(rows)
                out = np.zeros((len(listed), *values.shape[1:]), values.dtype)
                cut = pieces(reader, rows, max(1, values.nbytes // 5))
                parts = [(rows, out[which]) for rows, which in reversed(cut)]
                list(pool.map(lambda part: reader.read(*part), parts))
                same(out, values[listed])

    def test_a_pickle_reads_the_same(self, reader: Reader, values: Array) -> None:
        """Travel to another process, whether rows were read before or not."""
        again = pickle.loads(pickle.dumps(reader))
        same(read_rows(again, range(len(values))), values)
        last = np.arange(len(values))[-1:]
        same(read_rows(pickle.loads(pickle.dumps(again)), last), values[last])

    def test_rows_that_are_not_there_are_refused(self, reader: Reader, values: Array) -> None:
        """Raise SelectionError, and read nothing."""
        n = len(values)
        out = np.zeros((n + 2, *values.shape[1:]), values.dtype)
        bad: list[Rows] = [range(n, n + 1), np.array([0, n]), np.array([-1])]
        bad += [np.array([[0, n + 1]]), np.array([[-1, n]])]
        for rows in bad:
            with pytest.raises(SelectionError):
                reader.read(rows, out)
        same(out, np.zeros_like(out))

    def test_the_cost_of_a_read_is_predicted(self, reader: Reader, values: Array) -> None:
        """Tell bytes that can be announced and looked for, for any way rows are given."""
        n = len(values)
        for rows in some_rows(n):
            predicted = cost(reader, rows)
            assert predicted.bytes_used == values[one_by_one(rows)].nbytes
            for part in reader.byte_ranges(rows):
                assert len(part.starts) == len(part.lengths)
                assert (part.lengths >= 0).all()
            advise(reader, rows)
        assert not n or is_cold(reader, n - 1) in (True, False)


def same(found: Array, expected: Array) -> None:
    """Compare values, of any dtype but its byte order; NaN equals NaN."""
    assert found.dtype == expected.dtype.newbyteorder("=")
    if found.dtype.hasobject:
        assert found.shape == expected.shape
        for one, other in zip(found.reshape(-1), expected.reshape(-1), strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


def one_by_one(rows: Rows) -> Ints:
    """Return rows as a list."""
    if isinstance(rows, range) or rows.ndim == 1:
        return np.array(rows, np.int64)
    return np.concatenate([np.arange(a, b) for a, b in rows.tolist()] or [np.empty(0, np.int64)])


def some_runs(n_rows: int) -> list[Ints]:
    """Return runs of several kinds: all, none, ones that touch, far apart, single rows."""
    random = np.random.default_rng(n_rows)
    found = [np.empty((0, 2), np.int64), np.array([[0, n_rows]])]
    for k in (2, 8, 40):
        ends = np.sort(random.integers(0, n_rows + 1, 2 * k)).reshape(k, 2)
        found += [ends, np.stack((ends.reshape(-1)[:-1], ends.reshape(-1)[1:]), axis=1)]
    rows = np.arange(1, n_rows, 3)
    return [*found, np.stack((rows, rows + 1), axis=1)]


def some_lists(n_rows: int) -> list[Ints]:
    """Return lists of several kinds: none, shuffled, with repeats, ascending."""
    random = np.random.default_rng(n_rows)
    some = random.integers(0, n_rows, min(2 * n_rows, 50)) if n_rows else np.empty(0, np.int64)
    return [np.empty(0, np.int64), random.permutation(n_rows), some, np.sort(some), some[:1]]


def some_rows(n_rows: int) -> list[Rows]:
    """Return rows given in each of the three ways."""
    return [range(n_rows), range(n_rows // 4, n_rows), *some_runs(n_rows), *some_lists(n_rows)]
