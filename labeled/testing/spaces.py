"""What holds for every family of spaces, as tests: for the native ones, and for others' names."""

from __future__ import annotations

import itertools
import pickle
from types import SimpleNamespace
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
NUMBERS = st.sampled_from(["uint8", "int32", "float32", "float64"])
CASES = st.builds(
    SimpleNamespace,
    size=st.tuples(*[st.integers(1, 4)] * 3),  # rows, columns, channels
    n=st.integers(1, 4),
    source=AXES,
    target=AXES,
    dtype=NUMBERS,
    wanted=NUMBERS,
    few=st.integers(1, 3),
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=12),
)


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

    def vector(self, dim: Any, dtype: Any = None) -> Any:
        """Return the space of rows of `dim` numbers, of any dtype."""
        return self.spaces.VectorSpace(int(dim), dtype=dtype)

    def both(self, case: Any, dtype: Any = None) -> tuple[Any, Any, Any]:
        """Return images in an order of axes, a space with another order, and their rows."""
        here = self.images(case.size, case.source)
        there = self.images(case.size, case.target, dtype)
        return counted(shape_of(case.size, case.n, case.source)), here, there

    @law
    @given(case=CASES)
    def test_moving_axes_is_xarrays_transpose(self, case: Any) -> None:
        batch, here, there = self.both(case)
        moved = here.np_format_as(batch, there)
        expected = named(batch, case.source).transpose(*[DIM_OF_AXIS[axis] for axis in case.target])
        np.testing.assert_array_equal(moved, expected)
        np.testing.assert_array_equal(here.undo_np_format_as(moved, there), batch)
        np.testing.assert_array_equal(there.np_format_as(moved, here), batch)
        assert np.shares_memory(moved, batch)

    @law
    @given(case=CASES)
    def test_flattening_is_xarrays_stack_in_one_order_for_all_axes(self, case: Any) -> None:
        (batch, here, there), rows = self.both(case), self.vector(np.prod(case.size))
        flat = here.np_format_as(batch, rows)
        stacked = named(batch, case.source).stack(feature=["height", "width", "channel"])
        np.testing.assert_array_equal(flat, stacked.transpose("batch", "feature"))
        np.testing.assert_array_equal(here.undo_np_format_as(flat, rows), batch)
        through = rows.np_format_as(flat, there)
        np.testing.assert_array_equal(through, here.np_format_as(batch, there))

    @law
    @given(case=CASES)
    def test_components_are_columns_from_left_to_right(self, case: Any) -> None:
        width, n_values = case.few, int(np.prod(case.size))
        images, rows = self.images(case.size, case.source), self.vector(width)
        composite = self.spaces.CompositeSpace
        tree = composite((rows, composite((images, rows))))
        whole = self.vector(tree.get_total_dimension())
        batch = counted((case.n, 2 * width + n_values))
        cut = whole.np_format_as(batch, tree)
        np.testing.assert_array_equal(cut[0], batch[:, :width])
        np.testing.assert_array_equal(cut[1][1], batch[:, -width:])
        flat = images.np_format_as(cut[1][0], self.vector(n_values))
        np.testing.assert_array_equal(flat, batch[:, width:-width])
        np.testing.assert_array_equal(tree.np_format_as(cut, whole), batch)
        assert tree.np_batch_size(cut) == case.n

    @law
    @given(case=CASES)
    def test_labels_become_rows_of_the_identity(self, case: Any) -> None:
        n, k, n_labels = case.n, case.few, max(case.labels) + 1 + case.n % 2
        labels = np.array(case.labels, np.int64)[: n * k].reshape(n, k)
        space, hot = self.spaces.IndexSpace(n_labels, k), np.eye(n_labels)[labels]
        side_by_side = space.np_format_as(labels, self.vector(k * n_labels))
        np.testing.assert_array_equal(side_by_side, hot.reshape(n, k * n_labels))
        merged = space.np_format_as(labels, self.vector(n_labels, "float32"))
        np.testing.assert_array_equal(merged, hot.max(axis=1))
        assert merged.dtype == np.float32

    @law
    @given(case=CASES)
    def test_sizes_are_those_of_a_batch(self, case: Any) -> None:
        n, axes, dtype = case.n, case.source, case.dtype
        images, labels = self.images(case.size, axes, dtype), self.spaces.IndexSpace(5, 2)
        shape = shape_of(case.size, n, axes)
        shapes = {images: shape, labels: (n, 2), self.vector(3, dtype): (n, 3)}
        for space, shape in shapes.items():
            origin = space.get_origin_batch(n)
            space.np_validate(origin)
            assert (origin.shape, space.sizes(n), space.np_batch_size(origin)) == (shape, shape, n)
            assert space.get_batch_axis() == (axes.index("b") if space == images else 0)
            assert space.get_total_dimension() == np.prod(shape) // n
            assert not origin.any()
            assert space is labels or origin.dtype == np.dtype(dtype)

    @law
    @given(case=CASES)
    def test_the_target_says_the_dtype_or_keeps_it(self, case: Any) -> None:
        (batch, here, there), n_values, wanted = self.both(case), np.prod(case.size), case.wanted
        batch = batch.astype(case.dtype)
        assert here.np_format_as(batch, here) is batch
        for target in (self.vector(n_values), there):
            assert here.np_format_as(batch, target).dtype == case.dtype
        if np.can_cast(case.dtype, wanted, "same_kind") or "float" in wanted:
            for target in (self.vector(n_values, wanted), self.both(case, wanted)[2]):
                made = here.np_format_as(batch, target)
                target.np_validate(made)
                assert made.dtype == wanted

    @law
    @given(case=CASES)
    def test_lazy_batches_are_laid_out_alike(self, case: Any) -> None:
        batch, here, there = self.both(case, "float32")
        lazy = da.from_array(batch, chunks=case.few)
        for space in (there, self.vector(np.prod(case.size), "float64")):
            made, expected = here.format_as(lazy, space), here.np_format_as(batch, space)
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made.compute(), expected)

    @law
    @given(case=CASES)
    def test_spaces_are_equal_by_value(self, case: Any) -> None:
        _, here, there = self.both(case)
        assert (here == there) == (case.source == case.target)
        assert here != self.vector(np.prod(case.size))
        assert here != self.images(case.size, case.source, "float32")
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
