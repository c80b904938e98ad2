"""The old datasets: arrays in spaces of their own, rows of a matrix, and HDF5 files as both.

Rows may be images, channel after channel: the order ``('c', 0, 1)``. This is not the order in
which spaces flatten, ``(0, 1, 'c')``; both stood side by side in the old code, and so they do
here. Iterators apply the view converter to the source ``'features'`` alone; everything else is
laid out by spaces.

`HDF5Dataset` could not be made of lists of sources and spaces on Python 3, and is not here, either:
:func:`labeled.open_dataset` is for such files. The older class reads the rows of a batch through a
mask over axis 0. So shuffled batches come back in file order and repeats collapse, whatever the
mode promised; and a mask as long as an epoch has examples does not fit a file of another length, as
in random modes.
"""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from labeled.compat.errors import check, old, require
from labeled.compat.pylearn2 import config, iteration
from labeled.compat.pylearn2.space import CompositeSpace, Conv2DSpace, IndexSpace, VectorSpace
from labeled.compat.pylearn2.utils import OneHotFormatter, make_np_rng
from labeled.dataset.opening import open_dataset
from labeled.errors import LabeledWarning

DEFAULT_RNG = (17, 2, 946)  # what every dataset drew from when no generator was given


class Dataset:
    """A dataset that makes iterators; the base of the others.

    Attributes
    ----------
    _iter_subset_class, _iter_batch_size, _iter_num_batches, _iter_data_specs
        What :meth:`iterator` takes where it is given nothing; may be missing.
    """

    def _missing(self) -> Any:
        raise old(NotImplementedError, f"{type(self).__name__} has none of this")

    # the flat `(space, source)` of everything there is
    get_data_specs: Callable[..., Any] = _missing

    get_data: Callable[..., Any] = _missing  # all data, an array or a tuple of arrays

    get_num_examples: Callable[..., int] = _missing  # how many examples there are

    def has_targets(self) -> bool:
        """Whether there are targets."""
        return "targets" in [name for _, name in iteration.flat_pairs(self.get_data_specs())]

    def __iter__(self) -> iteration.FiniteDatasetIterator:
        return self.iterator()

    def iterator(
        self,
        mode: Any = None,
        batch_size: int | None = None,
        num_batches: int | None = None,
        rng: Any = None,
        data_specs: Any = None,
        return_tuple: bool = False,
    ) -> iteration.FiniteDatasetIterator:
        """Return an iterator over the batches of one epoch.

        Parameters
        ----------
        mode : str or SubsetIterator class
        batch_size, num_batches : int, optional
        rng : seed or RandomState, optional
            The dataset's own generator where nothing is given and one is needed, so
            that epochs differ.
        data_specs : (Space, source)
            Flat.
        return_tuple : bool

        Raises
        ------
        ValueError
            If there is no mode or there are no specs, given or by default.
        """

        def given(value: Any, name: str) -> Any:
            return getattr(self, name, None) if value is None else value

        chosen, specs = given(mode, "_iter_subset_class"), given(data_specs, "_iter_data_specs")
        check(chosen is not None and specs is not None, "give a mode and data_specs")
        walk = iteration.resolve_iterator_class(chosen)
        sizes = given(batch_size, "_iter_batch_size"), given(num_batches, "_iter_num_batches")
        own = self.rng if rng is None and walk.stochastic else rng
        subset = walk(self.get_num_examples(), *sizes, own)
        return self._batches(self, subset, specs, return_tuple, self._conversions(specs))

    rng: Any
    _batches = iteration.FiniteDatasetIterator

    def _conversions(self, data_specs: Any) -> Sequence[iteration.Convert | None] | None:
        """Return what formats each source, None where the spaces do."""
        return None


class VectorSpacesDataset(Dataset):
    """Arrays in memory, one a source; axis 0 counts examples whatever the space says.

    Parameters
    ----------
    data : array or tuple of arrays
        Without a tuple, the number of examples comes out as the length of the first row.
    data_specs : (Space, source)
        Flat, with distinct sources.
    rng : seed or RandomState
    """

    def __init__(self, data: Any, data_specs: Any, rng: Any = DEFAULT_RNG) -> None:
        names = [name for _, name in iteration.flat_pairs(data_specs)]
        require(len(set(names)) == len(names), f"a source is named twice in {names}")
        self.set_data(data, data_specs)
        lengths = {array.shape[0] for array in self._arrays}
        require(len(lengths) == 1, f"the arrays hold {sorted(lengths)} examples along axis 0")
        self.rng = make_np_rng(rng, which_method=["randint"])

    def get_data_specs(self) -> Any:
        return self.data_specs

    def get_data(self) -> Any:
        return self.data

    def set_data(self, data: Any, data_specs: Any) -> None:
        """Put other data in place of what there is."""
        data_specs[0].np_validate(data)
        self.data, self.data_specs, self._iter_data_specs = data, data_specs, data_specs
        self._arrays = data if isinstance(data, tuple) else (data,)

    def get_num_examples(self) -> int:
        return int(np.shape(self.data[0])[0])

    def get(self, sources: Sequence[str], indexes: Any) -> tuple[Any, ...]:
        """Return the rows of some sources."""
        names = [name for _, name in iteration.flat_pairs(self.data_specs)]
        return tuple(self._arrays[names.index(name)][indexes] for name in sources)


# ---------------------------------------------------------------- rows of a matrix
Axes = tuple[str | int, ...]
ROW_AXES: Axes = ("b", "c", 0, 1)
WEIGHTS_AXES: Axes = ("b", 0, 1, "c")


class DefaultViewConverter:
    """Between rows of a design matrix and images in `axes`.

    Parameters
    ----------
    shape : (rows, columns, channels)
    axes : sequence of four
        Of the images.

    Examples
    --------
    >>> converter = DefaultViewConverter((1, 2, 3))
    >>> converter.design_mat_to_topo_view(np.arange(6).reshape(1, 6))[0, 0]
    array([[0, 2, 4],
           [1, 3, 5]])
    """

    def __init__(self, shape: Sequence[int], axes: Sequence[str | int] = WEIGHTS_AXES) -> None:
        self.shape = list(shape)
        check(len(self.shape) == 3, f"shape is (rows, columns, channels), found {self.shape}")
        self.pixels_per_channel = math.prod(self.shape[:-1])
        self.set_axes(axes)

    def view_shape(self) -> list[int]:
        """Return (rows, columns, channels)."""
        return self.shape

    weights_view_shape = view_shape

    def set_axes(self, axes: Sequence[str | int]) -> None:
        """Take another axis order for images."""
        rows, columns, channels = self.shape
        self.topo_space = Conv2DSpace((rows, columns), channels, axes=axes, dtype=None)
        self.axes: Axes = tuple(axes)

    def design_mat_to_topo_view(self, design_matrix: Any) -> Any:
        """Return rows (batch, feature) as images in :attr:`axes`: a view where that is possible."""
        rows, columns, channels = self.shape
        fits = design_matrix.shape[1:] == (math.prod(self.shape),)
        check(fits, f"rows {design_matrix.shape} do not become images of {self.shape}")
        images = design_matrix.reshape(design_matrix.shape[0], channels, rows, columns)
        return Conv2DSpace.convert(images, ROW_AXES, self.axes)

    def design_mat_to_weights_view(self, design_matrix: Any) -> Any:
        """Return rows as images in ``('b', 0, 1, 'c')``, whatever :attr:`axes` says."""
        images = self.design_mat_to_topo_view(design_matrix)
        return Conv2DSpace.convert(images, self.axes, WEIGHTS_AXES)

    def topo_view_to_design_mat(self, topo_array: Any) -> Any:
        """Return images in :attr:`axes` as rows: a view where that is possible."""
        images = Conv2DSpace.convert(topo_array, self.axes, ROW_AXES)
        rows, columns, channels = self.shape
        fits = images.shape[1:] == (channels, rows, columns)
        check(fits, f"{topo_array.shape} are no images of {self.shape} in {self.axes}")
        return images.reshape(images.shape[0], math.prod(self.shape))

    def get_formatted_batch(self, batch: Any, dspace: Any) -> Any:
        """Return rows laid out for a `VectorSpace` or a `Conv2DSpace`."""
        if isinstance(dspace, VectorSpace):
            return VectorSpace(batch.shape[1], dtype=None).np_format_as(batch, dspace)
        check(isinstance(dspace, Conv2DSpace), f"rows become vectors or images, not {dspace}")
        return self.topo_space.np_format_as(self.design_mat_to_topo_view(batch), dspace)


def converter_for(topo_view: Any, axes: Sequence[str | int]) -> DefaultViewConverter:
    """Return the converter of images in `axes`, their lengths taken from `topo_view`."""
    order, ndim = tuple(axes), np.ndim(topo_view)
    check(ndim == len(order), f"a topological view has the axes {order}, found {ndim} axes")
    lengths = [int(np.shape(topo_view)[order.index(axis)]) for axis in (0, 1, "c")]
    return DefaultViewConverter(lengths, order)


class DenseDesignMatrix(Dataset):
    """Examples as rows of a matrix, with or without targets.

    Parameters
    ----------
    X : array (n, features), optional
    topo_view : array of images in `axes`, optional
        Instead of `X`; must hold no NaN.
    y : array (n, targets), optional
        With one axis it is described as (n, 1), and iterating over it fails.
    view_converter : object, optional
        Says what images the rows of `X` are.
    axes : sequence of four
        Of `topo_view`.
    rng : seed or RandomState
        What default epochs draw from; kept from epoch to epoch.
    preprocessor, fit_preprocessor
        Something with ``apply(dataset, can_fit)``.
    X_labels, y_labels : int, optional
        How many labels there are, where values are labels.
    """

    def __init__(
        self,
        X: Any = None,
        topo_view: Any = None,
        y: Any = None,
        view_converter: Any = None,
        axes: Sequence[str | int] = ("b", 0, 1, "c"),
        rng: Any = DEFAULT_RNG,
        preprocessor: Any = None,
        fit_preprocessor: bool = False,
        X_labels: int | None = None,
        y_labels: int | None = None,
    ) -> None:
        self.X, self.y, self.view_converter = X, y, view_converter
        self.X_labels, self.y_labels = X_labels, y_labels
        if topo_view is not None:
            require(view_converter is None, "give topo_view or view_converter, not both")
            self.set_topological_view(topo_view, axes)
        require(self.X is not None, "give X or topo_view")
        self._make_specs()
        self.rng = make_np_rng(rng, which_method=["randint", "shuffle"])
        if preprocessor is not None:
            self.apply_preprocessor(preprocessor, can_fit=fit_preprocessor)
        self.preprocessor = preprocessor

    def apply_preprocessor(self, preprocessor: Any, can_fit: bool = False) -> None:
        """Let a preprocessor change the examples, in place."""
        preprocessor.apply(self, can_fit)

    # ------------------------------------------------------------ specs
    def _make_specs(self) -> None:
        self.X_space = _space_of(self.X, self.X_labels)
        self._iter_data_specs = (self.X_space, "features")
        self.data_specs: Any = self._iter_data_specs
        if self.y is not None:
            both = CompositeSpace((self.X_space, _space_of(self.y, self.y_labels)))
            self.data_specs = (both, ("features", "targets"))

    def get_data_specs(self) -> Any:
        return self.data_specs

    def get_data(self) -> Any:
        return self.X if self.y is None else (self.X, self.y)

    def get_num_examples(self) -> int:
        return int(self.X.shape[0])

    num_examples = property(get_num_examples)

    def get_targets(self) -> Any:
        """Return the targets, None if there are none."""
        return self.y

    def _conversions(self, data_specs: Any) -> Sequence[iteration.Convert | None]:
        view = None if self.view_converter is None else self.view_converter.get_formatted_batch
        return [
            partial(view, dspace=space) if view is not None and name == "features" else None
            for space, name in iteration.flat_pairs(data_specs)
        ]

    # ------------------------------------------------------------ images
    def set_topological_view(self, V: Any, axes: Sequence[str | int] = ("b", 0, 1, "c")) -> None:
        """Take images as the examples."""
        require(not _has_nan(V), "topo_view holds NaN")
        self.view_converter = converter_for(V, axes)
        self.X = self.view_converter.topo_view_to_design_mat(V)
        self._make_specs()

    def _converter(self) -> Any:
        converter = self.view_converter
        check(converter, "there is no view converter: rows are not images", AttributeError)
        return converter

    def get_topological_view(self, mat: Any = None) -> Any:
        """Return rows (all of them by default) as images."""
        return self._converter().design_mat_to_topo_view(self.X[:] if mat is None else mat)

    def get_design_matrix(self, topo: Any = None) -> Any:
        """Return images as rows; all rows by default."""
        return self.X if topo is None else self._converter().topo_view_to_design_mat(topo)

    def set_design_matrix(self, X: Any) -> None:
        """Take other rows as the examples; what describes them stays as it was."""
        require(X.ndim == 2 and not _has_nan(X), "a design matrix has two axes, and no NaN")
        self.X = X

    def view_shape(self) -> Any:
        """Return (rows, columns, channels) of the images."""
        return self._converter().view_shape()

    weights_view_shape = view_shape

    def get_formatted_view(self, mat: Any, dspace: Any) -> Any:
        """Return rows laid out for a space."""
        self.X_space.np_validate(mat)
        return self._converter().get_formatted_batch(mat, dspace)

    def get_weights_view(self, mat: Any) -> Any:
        """Return rows as images in ``('b', 0, 1, 'c')``."""
        return self._converter().design_mat_to_weights_view(mat)

    def get_topo_batch_axis(self) -> int:
        """Return where ``'b'`` stands in the axes of images."""
        return tuple(self._converter().axes).index("b")

    def set_view_converter_axes(self, axes: Sequence[str | int]) -> None:
        """Take another axis order for images."""
        self._converter().set_axes(axes)

    def adjust_for_viewer(self, X: Any) -> Any:
        """Return values scaled to -1..1."""
        return X / np.abs(X).max()

    def adjust_to_be_viewed_with(self, X: Any, ref: Any, per_example: Any = None) -> Any:
        """Return values scaled as those of `ref` would be, and cut to -1..1."""
        return np.clip(X / np.abs(ref).max(), -1.0, 1.0)

    # ------------------------------------------------------------ random blocks
    def get_stream_position(self) -> Any:
        """Return where the generator stands."""
        return copy.deepcopy(self.rng)  # a shallow copy shares its state

    def set_stream_position(self, pos: Any) -> None:
        """Put the generator where it stood."""
        self.rng = copy.deepcopy(pos)

    def reset_RNG(self) -> None:
        """Put the generator to the beginning of the default seed."""
        self.rng = make_np_rng(DEFAULT_RNG)

    restart_stream = reset_RNG

    def get_batch_design(self, batch_size: int, include_labels: bool = False) -> Any:
        """Return a random block of rows; in floatX unless labels are asked for too."""
        rows = self._block(batch_size)
        if include_labels:
            return self.X[rows], None if self.y is None else self.y[rows]
        return self.X[rows].astype(config.floatX)

    def get_batch_topo(self, batch_size: int, include_labels: bool = False) -> Any:
        """Return a random block of images."""
        found = self.get_batch_design(batch_size, include_labels)
        if include_labels:
            return self.get_topological_view(found[0]), found[1]
        return self.get_topological_view(found)

    def _block(self, n: int) -> slice:
        found = self.X.shape[0]
        check(n <= found, f"a block of {n} rows is not cut from {found}")
        start = int(self.rng.randint(found - n + 1))
        return slice(start, start + n)

    # ------------------------------------------------------------ parts
    def restrict(self, start: Any, stop: Any) -> None:
        """Keep the rows ``[start, stop)``, in place; needs targets. None and None keep all."""
        if start is None and stop is None:
            return
        n = self.X.shape[0]
        require(None not in (start, stop), "give start and stop, or neither")
        require(0 <= start < stop <= n, f"rows {start} to {stop} are none of {n}")
        check(self.y is not None, "there are no targets to restrict", AttributeError)
        self.X, self.y = self.X[start:stop], self.y[start:stop]

    def split_dataset_nfolds(self, nfolds: int = 0) -> list[Any]:
        """Return the features of k folds, in order; the last may be smaller."""
        return self._folds("sequential", nfolds)

    def split_dataset_holdout(self, train_size: int = 0, train_prop: float = 0) -> tuple[Any, Any]:
        """Return the features to train on, and of the others; the larger part comes first."""
        size = self._train_size(train_size, train_prop)
        larger = max(size, self.num_examples - size)
        parts = self.X[:larger], self.X[larger:]
        return parts if larger == size else parts[::-1]

    def bootstrap_nfolds(self, nfolds: int) -> list[Any]:
        """Return the features of k random blocks of an equal share each."""
        return self._folds("random_slice", nfolds)

    def bootstrap_holdout(self, train_size: int = 0, train_prop: float = 0) -> tuple[Any, Any]:
        """Return the features of two random blocks of the sizes of a holdout."""
        size = self._train_size(train_size, train_prop)
        return self.X[self._block(size)], self.X[self._block(self.num_examples - size)]

    def _folds(self, mode: str, nfolds: int) -> list[Any]:
        require(nfolds > 0, "give a number of folds above 0")
        size = None if mode == "sequential" else math.ceil(self.num_examples / nfolds)
        return list(self.iterator(mode, size, nfolds, data_specs=(self.X_space, "features")))

    def _train_size(self, train_size: int, train_prop: float) -> int:
        check(train_size or train_prop, "give train_size or train_prop")
        n, size = self.num_examples, train_size or math.ceil(self.num_examples * train_prop)
        check(0 < size < n, f"{size} of {n} examples are not a holdout")
        return int(size)

    # ------------------------------------------------------------ targets
    def convert_to_one_hot(self, min_class: int = 0) -> None:
        """Write the integer targets as indicator rows, in place."""
        check(self.y is not None, "there are no targets")
        labels = np.asarray(self.y)
        fits = labels.dtype.kind in "iu" and labels.size == len(labels)
        check(fits, f"targets are one integer each, found {labels.dtype} {labels.shape}")
        classes = labels.reshape(-1).astype(np.int64) - min_class
        check((classes >= 0).all(), f"there are classes below {min_class}; give min_class=")
        self.y = OneHotFormatter(int(classes.max()) + 1).format(classes)
        self.y_labels = None
        self._make_specs()


def _space_of(values: Any, labels: int | None) -> Any:
    dim = int(values.shape[-1]) if values.ndim > 1 else 1
    if labels is None:
        return VectorSpace(dim)
    require(values.ndim <= 2, f"labels have 1 or 2 axes, found {values.ndim}")
    high = values[:].max(initial=0)
    require(high < labels, f"there is the label {high}, which is not below {labels}")
    return IndexSpace(labels, dim)


def _has_nan(values: Any) -> bool:
    return bool(values.dtype.kind in "fc" and np.isnan(values).any())


# ---------------------------------------------------------------- from one to another
def from_dataset(dataset: DenseDesignMatrix, num_examples: int) -> DenseDesignMatrix:
    """Return a dataset of a random block of another's examples."""
    start = dataset._block(num_examples).start
    return dataset_range(dataset, start, start + num_examples)


def dataset_range(dataset: DenseDesignMatrix, start: int, stop: int) -> DenseDesignMatrix:
    """Return a dataset of the examples ``[start, stop)`` of another."""
    made = copy.copy(dataset)
    made.X = dataset.X[start:stop].copy()
    made.y = None if dataset.y is None else dataset.y[start:stop].copy()
    made.rng = make_np_rng(DEFAULT_RNG)
    return made


def set_axes(dataset: DenseDesignMatrix, axes: Sequence[str | int]) -> DenseDesignMatrix:
    """Take another axis order for the images of a dataset; returns the dataset."""
    dataset.set_view_converter_axes(axes)
    return dataset


# ---------------------------------------------------------------- HDF5 files
class FileRows:
    """One source of a file, its rows read when they are asked for.

    Files need no labels, splits or attributes: every dataset is a source, named by its path,
    and axis 0 counts examples.

    Parameters
    ----------
    filename : path
    name : str
        Path of the dataset in the file.
    in_memory : bool
        Read everything at once.
    """

    def __init__(self, filename: str | os.PathLike[str], name: str, in_memory: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LabeledWarning)  # old files name no axes
            opened = open_dataset(filename)
        source = self._source = name.strip("/")
        chosen = opened.select(source)
        self._dataset = chosen.load() if in_memory else chosen
        self.shape, self.dtype = chosen.shapes[source], chosen.dtypes[source]
        self.ndim = len(self.shape)
        self._converter: DefaultViewConverter | None = None

    def as_images(self, axes: Sequence[str | int]) -> DefaultViewConverter:
        """Flatten stored images batch by batch, channel by channel; return what does it."""
        self._converter = converter_for(self, axes)
        self.shape, self.ndim = (self.shape[0],) * 2, 2  # as wide as long: the old rule
        return self._converter

    def __getitem__(self, rows: Any) -> Any:
        """Return rows in the order asked for: an int gives one row without its axis."""
        single = isinstance(rows, int | np.integer)
        loaded = self._dataset.subset([rows] if single else rows).load().loaded
        assert loaded is not None, "it was loaded just now"
        found = loaded[self._source][0] if single else loaded[self._source]
        return found if self._converter is None else self._converter.topo_view_to_design_mat(found)


class MaskedBatches(iteration.FiniteDatasetIterator):
    """Batches whose rows are read through a mask."""

    def _read(self, rows: Any) -> list[Any]:
        dataset = self._dataset
        mask, n = np.zeros(int(self.num_examples), bool), dataset.get_num_examples()
        check(mask.size == n, f"a mask of {mask.size} rows does not fit {n} rows", IndexError)
        mask[rows] = True
        listed = np.flatnonzero(mask)
        found = [(dataset.X if name == "features" else dataset.y)[listed] for name in self._source]
        for values in found:
            require(not _has_nan(values), f"rows {listed[:1]} and on hold NaN")
        return found


class HDF5DatasetDeprecated(DenseDesignMatrix):
    """A design matrix, or images, and targets in an HDF5 file.

    Parameters
    ----------
    filename : path
    X, topo_view, y : str
        Paths of datasets in the file; `X` or `topo_view`.
    load_all : bool
        Read everything into memory first.
    cache_size
        Without meaning here.
    axes : sequence of four
        Of the stored images; the batch axis first.
    **options
        Of `DenseDesignMatrix`.
    """

    _batches = MaskedBatches

    def __init__(
        self,
        filename: str | os.PathLike[str],
        X: str | None = None,
        topo_view: str | None = None,
        y: str | None = None,
        load_all: bool = False,
        cache_size: int | None = None,
        axes: Sequence[str | int] = ("b", 0, 1, "c"),
        **options: Any,
    ) -> None:
        require((X is None) != (topo_view is None), "give X or topo_view")
        rows = FileRows(filename, str(X or topo_view), load_all)
        targets = None if y is None else FileRows(filename, y, load_all)
        if topo_view is not None:
            options["view_converter"] = rows.as_images(axes)
        super().__init__(X=rows, y=targets, **options)


# what the newer class, which takes lists of sources, made of `X`, `topo_view` and `y`
HDF5Dataset = HDF5DatasetDeprecated
