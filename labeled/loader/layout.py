"""What batches look like: stored values to what a consumer asked for.

Without specs, source by source: CF decoding, padding, cast and scale, then labels. With specs, the
compiled specs lay the arrays out. Nothing is copied where nothing changes. Casts and paddings that
do not fit the sources are refused here, before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labeled._validation import as_array, integer
from labeled.display.text import ExampleInfo, class_names_of
from labeled.errors import ArrayError, LoaderError, SpaceError, SpecsError, check_known
from labeled.loader.batch import Batch
from labeled.loader.options import BatchOptions, Selections, Sources
from labeled.loader.reading import RaggedRows
from labeled.permute.plan import result_dtype
from labeled.ragged.value import fill_of, padded
from labeled.selection import Selection
from labeled.sources.source import Array, Rows, Source
from labeled.spaces import DataSpecsMapping, IndexSpace, SourceInfo, Space, compile_specs
from labeled.spaces.arrays import numpy_dtype, value_for, why_not_cast
from labeled.spaces.compiled_specs import CompiledSpecs, ValueCast, check_factor
from labeled.transforms.running import CompiledPipeline, Forms
from labeled.transforms.sample import RowSpec, Stack, extreme_shapes, part_of

Spaces = Mapping[str, Space]

SHAPE_ROWS = 1 << 16  # shapes of examples that are read together


# casts


def cast_of(options: BatchOptions, source: Source, space: Space | None) -> ValueCast | None:
    """Work out the change of a source; None where it has none.

    A single value is meant for the numeric sources; sources of labels
    (:class:`~labeled.spaces.IndexSpace`) change only where a mapping names them.
    A scale or shift per channel runs along the ``channel`` dim, else the last one.
    """
    n_classes, asked = value_for(source.name, options.one_hot), dict[str, Any]()
    labels = source.dtype.kind not in "biufc" or isinstance(space, IndexSpace)
    for argument in ("layout", "dtype", "scale", "shift"):
        option = getattr(options, argument)
        meant = isinstance(option, Mapping) or source.ragged is not None or not labels
        if meant or (n_classes and argument == "dtype"):
            option = value_for(source.name, option)
            if option is not None:
                asked[argument] = option
    if n_classes is not None:
        return _one_hot(source, n_classes, asked)
    dtype = _checked_dtype(asked.get("dtype"), source)
    scale = _factor(source, dtype, "scale", asked.get("scale"))
    shift = _factor(source, dtype, "shift", asked.get("shift"))
    cast = ValueCast(dtype, scale, shift, _axes(source, asked.get("layout")))
    reason = why_not_cast(source.dtype, dtype, scaled=cast.scaled)
    if dtype is not None and reason is not None:
        raise LoaderError(f"{source.where}: {reason}")
    return None if dtype is None and cast.axes is None and not cast.scaled else cast


def _axes(source: Source, layout: str | Sequence[str] | None) -> tuple[int, ...] | None:
    """Return the order of axes that a layout names; None where it is that of the file."""
    if layout is None:
        return None
    names = tuple(layout.split() if isinstance(layout, str) else layout)
    if source.ragged is not None:
        raise LoaderError(f"{source.where}: layout= orders no examples that differ in shape")
    if sorted(names) != sorted(source.dims):
        raise LoaderError(
            f"{source.where}: layout={layout!r} must name each of its dims once: "
            f"{' '.join(source.dims)}"
        )
    axes = tuple(source.dims.index(name) for name in names)
    return None if axes == tuple(range(len(axes))) else axes


def _one_hot(source: Source, n: int, asked: Mapping[str, Any]) -> ValueCast:
    """Return what makes rows of zeros and a one of labels, in float32 if no dtype is given."""
    n = integer(f"one_hot of {source.name!r}", n, least=1)
    for argument in asked.keys() - {"dtype"}:
        raise LoaderError(f"{source.where}: {argument}= does not go with one_hot=; leave one out")
    one_number = source.ragged is None and math.prod(source.row_shape) == 1
    if source.dtype.kind not in "iu" or not one_number:
        chosen, where_classes = "[int(y.item())]", ""
        if source.dtype.kind not in "biuf":
            chosen = "[[classes.index(one) for one in y.values.flat]].sum(0)"
            where_classes = ", where classes lists them"
        elif not one_number:  # a one for each number of a row
            chosen = "[y.values.astype(int).ravel()].sum(0)"
        raise LoaderError(
            f"{source.where}: one_hot= takes one whole number a row, and this is {source.dtype} "
            f"of dims ({', '.join(source.dims)}); without it, say "
            f"pipeline={{{source.name!r}: lambda y: np.eye({n}, dtype='f4'){chosen}}}"
            f"{where_classes}"
        )
    dtype = _checked_dtype(asked.get("dtype"), source) or np.dtype(np.float32)
    if dtype.kind not in "biufc":
        raise LoaderError(f"{source.where}: one_hot= makes numbers, not dtype={dtype}")
    return ValueCast(dtype, n_classes=n)


def _checked_dtype(value: Any, source: Source) -> np.dtype[Any] | None:
    """Return what was asked for as a dtype, None as None."""
    try:
        return None if value is None else numpy_dtype(value)
    except SpaceError as error:
        raise LoaderError(f"{source.where}: {error}") from None


def _factor(source: Source, dtype: np.dtype[Any] | None, option: str, value: Any) -> Any:
    """Check a scale or shift; shape a list of them so that it runs along the channel dim."""
    if value is None:
        return None
    shaped, factors, dims = value, as_array("scale or shift", value, LoaderError), source.dims
    if factors.ndim:
        axis = dims.index("channel") if "channel" in dims else len(dims) - 1
        if axis == 0 or source.ragged or len(value) != source.row_shape[axis - 1]:
            raise LoaderError(
                f"{source.where}: {len(value)} factors do not fit its dims {dims} of row lengths "
                f"{source.row_shape}; give one number, or one a channel"
            )
        shaped = factors.reshape([-1 if at == axis else 1 for at in range(len(dims))])
    try:
        check_factor(option, value, source.dtype, dtype)
    except ArrayError as error:
        raise LoaderError(f"{source.where}: {error}") from None
    return shaped


# padding


def padding_of(dtype: np.dtype[Any], value: Any) -> Any:
    """Return what fills padded rows: `value`, or for the default 0 what is empty of a kind."""
    if dtype.kind in "mMSU":
        return fill_of(value, dtype)
    is_default = isinstance(value, int | float) and value == 0
    return "" if is_default and dtype.kind == "O" else value


def can_hold(dtype: np.dtype[Any], value: Any) -> bool:
    """Whether an array of a dtype can be filled with a value; 0 stands for what is empty.

    Examples
    --------
    >>> [can_hold(np.dtype("u1"), value) for value in (255, 256, -1, float("nan"), {})]
    [True, False, False, False, False]
    >>> can_hold(np.dtype("f4"), float("nan")), can_hold(np.dtype("S3"), b"no")
    (True, True)
    >>> can_hold(np.dtype("f4"), 1e300), can_hold(np.dtype("f8"), 1e300)
    (False, True)
    """
    if dtype.kind == "O" or (isinstance(value, int) and value == 0):
        return np.ndim(value) == 0
    try:
        fill_of(value, dtype)
    except ArrayError:
        return False
    return True


def _check_padding(source: Source, value: Any, *dtypes: np.dtype[Any]) -> None:
    for dtype in dtypes:
        if not can_hold(dtype, value):
            raise LoaderError(
                f"{source.where}: pad_value={value!r} is not a value of dtype {dtype}; "
                "give one that is: as pad_value=, which may be a mapping from source to value, or "
                "as data_padding= or label_padding= of a provider"
            )


# examples of different shapes


class RaggedForm:
    """Turns the examples of a batch into what the consumer gets of one ragged source.

    Parameters
    ----------
    source : Source
        Its dims are the example dim, then those of an example.
    layout : {"list", "pad", "flat"}
    value : scalar
        Fills what padding adds, within examples and beyond the last.
    cast : ValueCast, optional
        As for dense sources; single values only.
    """

    def __init__(self, source: Source, layout: str, value: Any, cast: ValueCast | None) -> None:
        self.name, self.layout, self.value, self.cast = source.name, layout, value, cast
        numbers, name, example = np.empty(0, np.int64), source.name, source.dims[0]
        self.empty = RaggedRows.within(
            numbers.view("u1"), numbers, len(source.dims) - 1, source.dtype
        )
        self.out_dims: dict[str, tuple[str, ...]] = {name: (example,)}
        if layout == "pad":
            self.out_dims = {name: source.dims, f"{name}_mask": source.dims}
        elif layout == "flat":
            self.out_dims = {
                name: (f"{name}_value",),
                f"{name}_offsets": (f"{name}_offset",),
                f"{name}_shapes": (example, f"{name}_axis"),
            }

    def __call__(self, rows: RaggedRows) -> dict[str, Array]:
        """Lay out examples; those that are only a part of a job are not to keep all of it."""
        flat = rows.flat()
        if self.cast is not None:
            try:
                flat = flat._replace(values=self.cast(flat.values, f"source {self.name!r}"))
            except SpaceError as error:  # counts values
                if error.row is None:
                    raise
                row = int(flat.offsets.searchsorted(error.row, side="right")) - 1
                text = str(error).replace(f" in row {error.row} ", f" in row {row} ", 1)
                raise type(error)(text).at_row(row) from error
        elif self.layout != "pad" and len(flat.values) < len(rows.values):
            flat = flat._replace(values=flat.values.copy())
        if self.layout == "list":
            return {self.name: flat.examples()}
        if self.layout == "flat":
            return dict(zip(self.out_dims, flat, strict=True))
        lengths = flat.shapes.max(axis=0, initial=0).tolist()
        dense, inside = padded(flat, lengths, self.value, mask=True)
        assert inside is not None
        return {self.name: dense, f"{self.name}_mask": inside}


def shape_blocks(source: Source, selection: Selection) -> Iterator[Rows]:
    """Yield the shapes of the examples, some at a time; reads all shapes."""
    reader = source.examples()
    for first in range(0, len(selection), SHAPE_ROWS):
        yield reader.shapes(selection[first : first + SHAPE_ROWS].rows)


# the layout of batches


class BatchLayout:
    """Turns the stored rows of a batch into what the consumer gets.

    Raises
    ------
    LoaderError, UnknownNameError
        If an option does not fit the sources.
    SpecsError
        If specs do not fit the sources, or ragged examples their spaces (reads shapes).

    Attributes
    ----------
    sources : mapping of str to Source
        Those that batches are made of.
    padding : mapping of str to scalar
        Fills the rows that padding adds to a source.
    specs : CompiledSpecs, optional
        Lays arrays out; without it a :class:`Batch` is handed out.
    casts : mapping of str to ValueCast
        Of the sources that change, where there are no specs (these carry their own).
    row_sizes : mapping of str to mapping of str to int
        Dims and lengths of one row as handed out, without specs; of examples the first alone.
    ragged : mapping of str to RaggedForm
        How ragged sources are laid out.
    dims, info : mapping of str
        Of what is handed out without specs.
    out_dtypes : mapping of str to numpy.dtype
        Of each source as it is handed out.
    copied : set of str
        Sources of which new memory is made in any case.
    out_row_bytes : int
        Bytes of one row as handed out, where that takes memory of its own.
    placed_row_bytes : int
        Bytes of one row that are decoded where it was read, and handed out changed.
    """

    def __init__(self, options: BatchOptions, sources: Sources, spaces: Spaces, pads: bool) -> None:
        for argument in ("normalize", "dtype", "scale", "shift", "layout", "one_hot", "pad_value"):
            option = getattr(options, argument)
            if isinstance(option, Mapping):
                check_known(f"{argument}= names", option, sources, "a source")
        self.specs: CompiledSpecs | None = None
        self.padding, self.casts = dict[str, Any](), dict[str, ValueCast]()
        self.ragged, self.row_sizes = dict[str, RaggedForm](), dict[str, dict[str, int]]()
        self.dims, self.info = dict[str, tuple[str, ...]](), dict[str, ExampleInfo]()
        self.out_dtypes, self.out_row_bytes = dict[str, np.dtype[Any]](), 0
        if options.specs is not None:
            self.specs = compiled_specs(options, sources, spaces)
            sources = {name: sources[name] for name in self.specs.sources}
            self.out_dtypes = {step.source: step.dtype for step in self.specs.steps}
            self.out_row_bytes = self.specs.out_bytes(1)
        self.sources, self.decoded, self.placed_row_bytes = sources, list[str](), 0
        for name, source in sources.items():
            value = options.pad_value
            self.padding[name] = value.get(name, 0) if isinstance(value, Mapping) else value
            if self.specs is None:
                self._add(options, source, spaces.get(name))
            if source.decodes:
                self.decoded.append(name)
                if self.specs is not None or name in self.casts:
                    self.placed_row_bytes += math.prod(source.row_shape) * source.dtype.itemsize
            if pads and name not in self.ragged:
                cast, dtypes = self.casts.get(name), [source.dtype]
                if cast is not None and cast.dtype is not None and not cast.scaled:
                    dtypes.append(cast.dtype)
                _check_padding(source, self.padding[name], *dtypes)
        if pads:
            self._try_padding()
        self.copied = frozenset(sources if self.specs is not None else self.casts)

    def _try_padding(self) -> None:
        """Lay out a row of padding, lest the last batch finds that its value does not fit."""
        one_hot = {name: cast for name, cast in self.casts.items() if cast.n_classes is not None}
        rows = {}
        for name in self.sources if self.specs is not None else one_hot:
            source = self.sources[name]
            value = padding_of(source.dtype, self.padding[name])
            rows[name] = np.full((1, *source.row_shape), value, source.dtype)
        try:
            if self.specs is not None:
                self.specs(rows)
            for name, cast in one_hot.items():
                cast(rows[name], self.sources[name].where)
        except SpaceError as error:
            asked = "the specs" if self.specs is not None else "one_hot"
            raise LoaderError(f"pad_value={self.padding} does not fit {asked}: {error}") from None

    def _add(self, options: BatchOptions, source: Source, space: Space | None) -> None:
        """Settle what a source is handed out as, where there are no specs."""
        name, batch_axis = source.name, 0
        cast = cast_of(options, source, space) if options.lays_out else None
        lengths = dict(zip(source.dims, (1, *source.row_shape), strict=False))
        dtype, order = source.dtype, tuple(lengths)
        if cast is not None:
            self.casts[name], batch_axis = cast, cast.batch_axis
            dtype = result_dtype(dtype, cast.dtype, cast.scaled)
            if cast.axes is not None:
                order = tuple(source.dims[axis] for axis in cast.axes)
            if cast.n_classes is not None:
                order = (source.dims[0], f"{name}_class")
                lengths[order[1]] = cast.n_classes
        if batch_axis and options.compiled_pipeline is not None:
            raise LoaderError(
                f"{source.where}: a pipeline takes batches whose first axis counts examples; put "
                f"{source.dims[0]!r} first in layout="
            )
        self.out_dtypes[name], self.row_sizes[name] = dtype, dict[str, int]()
        for dim in order:
            self.row_sizes[name][dim] = lengths[dim]
        inner = source.dims[1:] if source.ragged else ()
        self.info[name] = ExampleInfo(class_names_of(source.attrs), inner, batch_axis)
        if source.ragged is None:
            self.dims[name] = order
            if cast is not None or source.decodes:
                made = math.prod(self.row_sizes[name].values()) * dtype.itemsize
                self.out_row_bytes += source.held_row_bytes if dtype.hasobject else made
            return
        self.ragged[name] = form = RaggedForm(source, options.ragged, self.padding[name], cast)
        if form.layout == "pad":
            _check_padding(source, form.value, dtype)
        for added in (form.out_dims.keys() & self.sources.keys()) - {name}:
            raise LoaderError(
                f"ragged={form.layout!r} of {name!r} hands out {added!r}, which is a source of its "
                "own; leave it out with select()"
            )
        self.dims.update(form.out_dims)

    def forms(self, selections: Selections) -> Forms:
        """Return what rows look like before a pipeline; reads shapes of ragged examples."""
        if self.specs is not None:
            axes, steps = self.specs.batch_axes, self.specs.steps
            if len(steps) != 1 or not isinstance(axes, int):
                return None
            shape, dtype = steps[0].target.sizes(1), steps[0].dtype
            return RowSpec((), ((*shape[:axes], *shape[axes + 1 :]),), dtype)
        forms = {}
        for name, source in self.sources.items():
            sizes = self.row_sizes[name]
            dims, shapes = tuple(sizes)[1:], [tuple(sizes.values())[1:]]
            if source.ragged is not None:
                found = list[tuple[int, ...]]()
                for block in shape_blocks(source, selections[name]):
                    found += extreme_shapes(block)
                several = np.array(found, np.int64).reshape(-1, len(source.dims) - 1)
                if self.ragged[name].layout == "pad":
                    several = several.max(axis=0, initial=0)[np.newaxis]
                dims, shapes = source.dims[1:], list(extreme_shapes(several))
            forms[name] = RowSpec(dims, tuple(shapes), self.out_dtypes[name])
        return forms

    def __call__(
        self,
        arrays: dict[str, Any],
        rows: Callable[[], Rows],
        count: int,
        length: int,
        place: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> Any:
        """Lay out `length` rows, of which `count` are real and the others padding.

        What is decoded or ragged is made where it was read, and goes to where batches are by
        `place`. A value that does not fit is named by its row of the dataset, too.
        """
        try:
            if self.decoded:
                for name in self.decoded:
                    if count < length:  # rows that nothing was read to are not to be decoded
                        stored = arrays[name]
                        stored[count:] = stored[:1] if count else padding_of(stored.dtype, 0)
                    arrays[name] = self.sources[name].decode(arrays[name])
                arrays = arrays if place is None else place(arrays)
            if count < length:
                for name, array in arrays.items():
                    if name not in self.ragged:
                        array[count:] = padding_of(array.dtype, self.padding[name])
            if self.specs is not None:
                return self.specs(arrays)
            for name, cast in self.casts.items():
                if name not in self.ragged:
                    arrays[name] = cast(arrays[name], self.sources[name].where)
            if self.ragged:
                out: dict[str, Any] = {}
                for name, array in arrays.items():
                    ragged = self.ragged.get(name)
                    out.update({name: array} if ragged is None else ragged(array))
                arrays = out if place is None else place(out)
            return Batch(arrays, self.dims, rows, count, self.info)
        except SpaceError as error:
            if error.row is None:
                raise
            found, here = int(rows()[error.row]), f" in row {error.row} "
            what = f"{here}of this batch (row {found} of the dataset) "
            text = str(error).replace(here, what, 1)
            raise type(error)(text).at_row(found) from error


def compiled_specs(options: BatchOptions, sources: Sources, spaces: Spaces) -> CompiledSpecs:
    """Compile the specs that were asked for.

    Raises
    ------
    SpecsError
        If they do not fit the sources.
    """
    infos = {}
    for name, one in sources.items():
        if name in spaces:
            infos[name] = SourceInfo(name, one.row_shape, one.dtype, spaces[name])
    for space, name in DataSpecsMapping(options.specs).specs_to_index:
        if name in sources and name not in infos:
            what = "no numbers" if sources[name].ragged is None else "examples of different shapes"
            raise SpecsError(
                f"{sources[name].where} holds {what}, so that it is not laid out for {space}; "
                "leave it out of the specs, or read it without specs"
            )
    asked = {"dtype": options.dtype, "scale": options.scale, "shift": options.shift}
    return compile_specs(options.specs, infos, **asked)


def pipeline_in_form(pipeline: CompiledPipeline, layout: BatchLayout) -> CompiledPipeline:
    """Tell a pipeline how batches are taken apart into samples, and put together again."""
    if layout.specs is not None:
        return replace(pipeline, stacked=Stack(axes=layout.specs.batch_axes))
    for step in (*pipeline.whole, *pipeline.sample):
        if step.part is None:  # behind which there may be other parts
            break
        part_of(layout.dims, step.part)  # masks and offsets, too
    flat = any(ragged.layout == "flat" for ragged in layout.ragged.values())
    if flat and pipeline.takes_apart:
        raise LoaderError(
            "ragged='flat' lays examples end to end, so that a pipeline cannot take them one by "
            "one; ask for ragged='list' or 'pad', or mark steps as labeled.transforms.whole"
        )
    examples = {name: source.dims[0] for name, source in layout.sources.items()}
    inner = {name: layout.sources[name].dims[1:] for name in layout.ragged}
    stacked = Stack(next(iter(examples.values())), examples)
    return replace(pipeline, stacked=stacked, inner=inner, flat=flat)
