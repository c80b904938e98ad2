"""Laws that every writer of files of examples keeps, as a class of tests to inherit.

They use the public API alone: whoever writes files in a way of their own says how, and inherits
the laws that what was written is found again, and that a write that was cut short changes nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeled.dataset.dataset import Dataset
from labeled.dataset.opening import open_dataset
from labeled.testing.loader import law
from labeled.testing.readers import same

Array = npt.NDArray[Any]

TEXTS = ("", "a", "bé", "日本 x", "longer than all the others")


class WriterTests:
    """Laws of writing: what is opened is what was written, and a file is whole or untouched.

    Define :meth:`write`. A writer that cannot hold examples of different shapes, or splits,
    says so.

    Attributes
    ----------
    dtypes : sequence of str
        Of the sources that are written; "U" are texts.
    ragged, splits : bool
        Whether files hold examples of different shapes, and splits.

    Examples
    --------
    >>> import labeled
    >>> class TestCompressed(labeled.testing.WriterTests):
    ...     def write(self, path, sources, splits=None):
    ...         labeled.write(path, sources, splits, compression="gzip", overwrite=True)
    """

    dtypes: Sequence[str] = ("u1", "<i2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c8", "?", "S3", "U")
    ragged: bool = True
    splits: bool = True

    def write(
        self, path: Path, sources: Mapping[str, Any], splits: Mapping[str, Any] | None = None
    ) -> None:
        """Write a file, in the place of one that is there already.

        Parameters
        ----------
        sources : mapping of name to array, or to a list of arrays of different shapes
        splits : mapping of split to slice or list of rows, optional
        """
        raise NotImplementedError

    def change(self, path: Path, sources: Mapping[str, Any]) -> None:
        """Change a file that :meth:`write` has made; by default it is written anew."""
        self.write(path, sources)

    def open(self, path: Path) -> Dataset:
        """Open what was written."""
        return open_dataset(path)

    def check(self, path: Path, sources: Mapping[str, Any]) -> Dataset:
        """Compare a file with what was written, and return it opened."""
        dataset = self.open(path)
        assert set(dataset.sources) == set(sources)
        for name, values in sources.items():
            if isinstance(values, list):
                found = dataset[name].to_objects()
                assert [one.shape for one in found] == [one.shape for one in values]
                same(np.concatenate([np.empty(0, values[0].dtype), *map(np.ravel, found)]),
                     np.concatenate([one.reshape(-1) for one in values]))  # fmt: skip
            else:
                same(dataset[name].values, values)
        return dataset

    # found again

    @law
    @given(data=st.data(), n_rows=st.integers(0, 40))
    def test_written_then_opened_is_equal(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, n_rows: int
    ) -> None:
        path = tmp_path_factory.mktemp("written") / "x.hdf5"
        names = data.draw(st.sampled_from([("x",), ("b", "a"), ("é", "c/d")]))
        sources = {name: data.draw(arrays(self.dtypes, n_rows)) for name in names}
        self.write(path, sources)
        self.check(path, sources)

    def test_rows_of_many_blocks_and_chunks_are_joined(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        sources: dict[str, Any] = {
            "x": rng.integers(0, 9, (2000, 30, 100), np.uint8),
            "t": rng.choice(np.array(TEXTS, object), 2000),
        }
        if self.ragged:
            sources["r"] = [np.full((n % 9, 10), n, "i4") for n in range(2000)]
        self.write(tmp_path / "x.hdf5", sources)
        self.check(tmp_path / "x.hdf5", sources)

    @law
    @given(data=st.data(), n_rows=st.integers(1, 20), n_axes=st.integers(1, 3))
    def test_examples_of_different_shapes_keep_them(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        data: st.DataObject,
        n_rows: int,
        n_axes: int,
    ) -> None:
        if not self.ragged:
            pytest.skip("it writes no examples of different shapes")
        path = tmp_path_factory.mktemp("ragged") / "x.hdf5"
        dtype = data.draw(st.sampled_from(["u1", "<i4", "<f4", "<f8"]))
        lengths = st.lists(st.integers(0, 5), min_size=n_axes, max_size=n_axes)
        shapes = data.draw(st.lists(lengths, min_size=n_rows, max_size=n_rows))
        shapes += [[1] * n_axes, [2] * n_axes]  # not all are alike
        sources = {
            "r": [np.arange(np.prod(shape)).astype(dtype).reshape(shape) for shape in shapes],
            "y": np.arange(len(shapes)),
        }
        self.write(path, sources)
        self.check(path, sources)

    @law
    @given(data=st.data(), n_rows=st.integers(1, 40))
    def test_splits_are_the_rows_that_were_named(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, n_rows: int
    ) -> None:
        if not self.splits:
            pytest.skip("it writes no splits")
        path = tmp_path_factory.mktemp("splits") / "x.hdf5"
        cut = data.draw(st.integers(0, n_rows))
        rest = data.draw(st.permutations(range(cut, n_rows)))
        splits: dict[str, Any] = {"train": slice(0, cut), "tést": rest}
        sources = {name: data.draw(arrays(self.dtypes, n_rows)) for name in ("x", "y")}
        self.write(path, sources, splits)
        dataset = self.check(path, sources)
        assert set(dataset.splits) == set(splits)
        for split, rows in splits.items():
            for name, values in sources.items():
                part = values[rows] if len(np.arange(n_rows)[rows]) else values[:0]
                same(dataset.split(split).read_rows(name, 0, len(part)), part)

    # whole or untouched

    def test_what_was_there_is_replaced(self, tmp_path: Path) -> None:
        for first in (0, 5):
            sources = {"x": np.arange(first, 90)}
            self.write(tmp_path / "x.hdf5", sources)
            self.check(tmp_path / "x.hdf5", sources)
        assert os.listdir(tmp_path) == ["x.hdf5"]

    @pytest.mark.parametrize("error", [OSError, MemoryError, KeyboardInterrupt])
    def test_a_write_that_fails_leaves_the_old_file(
        self, tmp_path: Path, error: type[BaseException]
    ) -> None:
        path = tmp_path / "x.hdf5"
        sources = {"x": np.arange(200).reshape(100, 2)}
        self.write(path, sources)
        before = path.read_bytes()
        with pytest.raises(BaseException, match="cut short"):
            self.change(path, {"x": Breaking(sources["x"], error)})
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["x.hdf5"]

    def test_a_writer_that_is_killed_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "x.hdf5"
        sources = {"x": np.arange(200).reshape(100, 2)}
        self.write(path, sources)
        before = path.read_bytes()
        broken = {"x": Breaking(sources["x"], None)}
        # a fork of a server that has the libraries starts faster; Windows has none
        known = multiprocessing.get_all_start_methods()
        method = "forkserver" if "forkserver" in known else "spawn"
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=self.change, args=(path, broken))
        process.start()
        process.join()
        assert process.exitcode == KILLED
        assert path.read_bytes() == before
        self.check(path, sources)
        self.write(path, sources)
        self.check(path, sources)


KILLED = 77


class Breaking:
    """An array whose last rows cannot be read: an error is raised, or the process ends."""

    def __init__(self, values: Array, error: type[BaseException] | None) -> None:
        self.values, self.error = values, error
        self.dtype, self.shape = values.dtype, values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Array:
        if len(range(*rows.indices(len(self)))) == 0 or rows.indices(len(self))[1] < len(self):
            return self.values[rows]
        if self.error is None:
            os._exit(KILLED)
        raise self.error("cut short")


@st.composite
def arrays(draw: Callable[..., Any], dtypes: Sequence[str], n_rows: int) -> Array:
    """Draw an array of one of some dtypes, of up to four axes."""
    dtype = draw(st.sampled_from(dtypes))
    shape = (n_rows, *draw(st.lists(st.integers(0, 5), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if dtype == "U":
        return rng.choice(np.array(TEXTS, object), shape)
    if dtype[0] == "S":
        return rng.choice([b"a", b"bcd", b""], shape).astype(dtype)
    return (rng.standard_normal(shape) * 50).astype(dtype)
