"""What holds for every family of spaces, as tests: for the native ones, and for others' names."""

from __future__ import annotations

import itertools
import pickle
from typing import Any, ClassVar

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from labeled.testing.loader import law

DIM_OF_AXIS = {"b": "batch", "c": "channel", 0: "height", 1: "width"}
AXES = st.sampled_from(list(itertools.permutations(DIM_OF_AXIS)))
IMAGES, ROWS = st.tuples(*[st.integers(1, 4)] * 3), st.integers(1, 4)
NUMBERS = st.sampled_from(["uint8", "int32", "float32", "float64"])


class SpaceTests:
    """Laws of spaces: there and back, axes by name, sizes, dtypes, errors, lazy batches.

    Attributes
    ----------
    spaces : module or object
        Has the classes `VectorSpace`, `IndexSpace`, `Conv2DSpace` and `CompositeSpace`, which take
        the arguments of :mod:`labeled.spaces`.

    Examples
    --------
    >>> import labeled.testing
    >>> class TestSpaces(labeled.testing.SpaceTests):
    ...     spaces = labeled.spaces
    """

    spaces: ClassVar[Any]

    def images(self, size: tuple[int, int, int], axes: Any, dtype: Any = None) -> Any:
        """Return the space of images of (rows, columns, channels)."""
        return self.spaces.Conv2DSpace(size[:2], channels=size[2], axes=axes, dtype=dtype)

    def vector(self, dim: int, dtype: Any = None) -> Any:
        """Return the space of rows of `dim` numbers, of any dtype."""
        return self.spaces.VectorSpace(dim, dtype=dtype)

    @law
    @given(size=IMAGES, n=ROWS, source=AXES, target=AXES)
    def test_moving_axes_is_xarrays_transpose(
        self, size: Any, n: int, source: Any, target: Any
    ) -> None:
        here, there = self.images(size, source), self.images(size, target)
        batch = counted(shape_of(size, n, source))
        moved = here.np_format_as(batch, there)
        expected = named(batch, source).transpose(*[DIM_OF_AXIS[axis] for axis in target])
        np.testing.assert_array_equal(moved, expected)
        np.testing.assert_array_equal(here.undo_np_format_as(moved, there), batch)
        np.testing.assert_array_equal(there.np_format_as(moved, here), batch)
        assert np.shares_memory(moved, batch)

    @law
    @given(size=IMAGES, n=ROWS, source=AXES, target=AXES)
    def test_flattening_is_xarrays_stack_in_one_order_for_all_axes(
        self, size: Any, n: int, source: Any, target: Any
    ) -> None:
        here, there = self.images(size, source), self.images(size, target)
        rows = self.vector(int(np.prod(size)))
        batch = counted(shape_of(size, n, source))
        flat = here.np_format_as(batch, rows)
        stacked = named(batch, source).stack(feature=["height", "width", "channel"])
        np.testing.assert_array_equal(flat, stacked.transpose("batch", "feature"))
        np.testing.assert_array_equal(here.undo_np_format_as(flat, rows), batch)
        through = rows.np_format_as(flat, there)
        np.testing.assert_array_equal(through, here.np_format_as(batch, there))

    @law
    @given(size=IMAGES, n=ROWS, axes=AXES, width=st.integers(1, 3))
    def test_components_are_columns_from_left_to_right(
        self, size: Any, n: int, axes: Any, width: int
    ) -> None:
        images, rows = self.images(size, axes), self.vector(width)
        composite = self.spaces.CompositeSpace
        tree = composite((rows, composite((images, rows))))
        whole = self.vector(tree.get_total_dimension())
        batch = counted((n, 2 * width + int(np.prod(size))))
        cut = whole.np_format_as(batch, tree)
        np.testing.assert_array_equal(cut[0], batch[:, :width])
        np.testing.assert_array_equal(cut[1][1], batch[:, -width:])
        flat = images.np_format_as(cut[1][0], self.vector(int(np.prod(size))))
        np.testing.assert_array_equal(flat, batch[:, width:-width])
        np.testing.assert_array_equal(tree.np_format_as(cut, whole), batch)
        assert tree.np_batch_size(cut) == n

    @law
    @given(n=ROWS, k=st.integers(1, 3), n_labels=st.integers(4, 6), data=st.data())
    def test_labels_become_rows_of_the_identity(
        self, n: int, k: int, n_labels: int, data: st.DataObject
    ) -> None:
        drawn = data.draw(st.lists(st.integers(0, n_labels - 1), min_size=n * k, max_size=n * k))
        labels = np.array(drawn, np.int64).reshape(n, k)
        space, hot = self.spaces.IndexSpace(n_labels, k), np.eye(n_labels)[labels]
        side_by_side = space.np_format_as(labels, self.vector(k * n_labels))
        np.testing.assert_array_equal(side_by_side, hot.reshape(n, k * n_labels))
        merged = space.np_format_as(labels, self.vector(n_labels, "float32"))
        np.testing.assert_array_equal(merged, hot.max(axis=1))
        assert merged.dtype == np.float32

    @law
    @given(size=IMAGES, n=ROWS, axes=AXES, dtype=NUMBERS)
    def test_sizes_are_those_of_a_batch(self, size: Any, n: int, axes: Any, dtype: str) -> None:
        images, labels = self.images(size, axes, dtype), self.spaces.IndexSpace(5, 2)
        shapes = {
            images: shape_of(size, n, axes),
            labels: (n, 2),
            self.vector(3, dtype): (n, 3),
        }
        for space, shape in shapes.items():
            origin = space.get_origin_batch(n)
            space.np_validate(origin)
            assert (origin.shape, space.sizes(n)) == (shape, shape)
            assert (space.np_batch_size(origin), space.get_batch_axis()) == (
                n,
                axes.index("b") if space == images else 0,
            )
            assert space.get_total_dimension() == np.prod(shape) // n
            assert not origin.any()
            assert space is labels or origin.dtype == np.dtype(dtype)

    @law
    @given(size=IMAGES, axes=AXES, dtype=NUMBERS, wanted=NUMBERS)
    def test_the_target_says_the_dtype_or_keeps_it(
        self, size: Any, axes: Any, dtype: str, wanted: str
    ) -> None:
        batch = counted(shape_of(size, 2, axes)).astype(dtype)
        here, rows = self.images(size, axes), int(np.prod(size))
        assert here.np_format_as(batch, here) is batch
        assert here.np_format_as(batch, self.vector(rows)).dtype == dtype
        if np.can_cast(dtype, wanted, "same_kind") or "float" in wanted:
            for target in (self.vector(rows, wanted), self.images(size, axes, wanted)):
                made = here.np_format_as(batch, target)
                target.np_validate(made)
                assert made.dtype == wanted

    @law
    @given(size=IMAGES, n=ROWS, source=AXES, target=AXES, chunk=st.integers(1, 3))
    def test_lazy_batches_are_laid_out_alike(
        self, size: Any, n: int, source: Any, target: Any, chunk: int
    ) -> None:
        here, there = self.images(size, source), self.images(size, target, "float32")
        rows = self.vector(int(np.prod(size)), "float64")
        batch = counted(shape_of(size, n, source))
        lazy = da.from_array(batch, chunks=chunk)
        for space in (there, rows):
            made, expected = here.format_as(lazy, space), here.np_format_as(batch, space)
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made.compute(), expected)

    @law
    @given(size=IMAGES, source=AXES, target=AXES)
    def test_spaces_are_equal_by_value(self, size: Any, source: Any, target: Any) -> None:
        here, there = self.images(size, source), self.images(size, target)
        assert (here == there) == (source == target)
        assert here != self.vector(int(np.prod(size)))
        assert here != self.images(size, source, "float32")
        pair = self.spaces.CompositeSpace((here, there))
        for space in (here, pair):
            again = pickle.loads(pickle.dumps(space))
            assert (again, hash(again), str(again)) == (space, hash(space), str(space))
        assert (pair.restrict([1]), pair.restrict([0])) == (there, here)

    def test_what_does_not_fit_is_refused(self) -> None:
        """Raise an error of the built-in kind, and leave the batch alone."""
        rows, images = self.vector(12), self.images((2, 2, 3), ("b", 0, 1, "c"))
        pair = self.spaces.CompositeSpace((self.vector(5), self.vector(7)))
        good = counted((2, 12))
        for space, batch in [
            (rows, counted((2, 13))),
            (rows, counted((12,))),
            (images, counted((2, 3, 2, 2))),
            (images, good),
            (pair, (good[:, :5],)),
            (pair, (good[:, :5], good[:, :5])),
        ]:
            with pytest.raises(ValueError):
                space.np_validate(batch)
        for space, thing in [(rows, "rows"), (rows, (good,)), (pair, good), (images, None)]:
            with pytest.raises((TypeError, AttributeError)):
                space.np_validate(thing)
        with pytest.raises(TypeError):
            self.spaces.IndexSpace(3, 12).np_validate(good.astype(np.float64))
        pictures = good.reshape(2, 2, 2, 3)
        for source, batch, target in [
            (rows, good, self.vector(13)),
            (images, pictures, self.vector(11)),
            (rows, good, self.spaces.CompositeSpace((self.vector(5), self.vector(8)))),
        ]:
            with pytest.raises(ValueError):
                source.np_format_as(batch, target)
        with pytest.raises(NotImplementedError):
            images.np_format_as(pictures, pair)
        np.testing.assert_array_equal(good, counted((2, 12)))


def counted(shape: tuple[int, ...]) -> Any:
    """Return values that all differ, so that no two places can be mistaken for each other."""
    return np.arange(np.prod(shape)).reshape(shape)


def shape_of(size: tuple[int, int, int], n: int, axes: Any) -> tuple[int, ...]:
    """Return the shape of `n` images of (rows, columns, channels) in an order of axes."""
    rows, columns, channels = size
    return tuple({"b": n, 0: rows, 1: columns, "c": channels}[axis] for axis in axes)


def named(batch: Any, axes: Any) -> xr.DataArray:
    """Return a batch of images with its dims named, for xarray to move."""
    return xr.DataArray(batch, dims=[DIM_OF_AXIS[axis] for axis in axes])
