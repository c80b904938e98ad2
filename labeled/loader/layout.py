"""What batches look like: stored values to what a consumer asked for, and to whose arrays.

Without specs, source by source: CF decoding, padding, cast and scale, then labels. With specs, the
compiled specs lay the arrays out. Nothing is copied where nothing changes. Casts, paddings and
libraries that do not fit the sources are refused here, before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled import permute
from labeled._validation import as_array
from labeled.device import HandOff, dtype_of, is_array, reshape
from labeled.display.classes import ExampleInfo, class_names_of
from labeled.errors import (
    ArrayError,
    LoaderError,
    SpaceError,
    SpecsError,
    UnknownNameError,
    did_you_mean,
    warn,
)
from labeled.loader.batch import Batch
from labeled.loader.buffers import RaggedRows
from labeled.loader.options import BatchOptions, RaggedLayout, integer
from labeled.permute.arguments import checked_factor, compute_dtype, result_dtype
from labeled.ragged.flat import comes_one_by_one, flat_of_views
from labeled.ragged.padding import fill_of, padded
from labeled.selection import Selection
from labeled.sources.source import Source
from labeled.spaces import (
    CompiledSpecs,
    DataSpecsMapping,
    IndexSpace,
    SourceInfo,
    Space,
    compile_specs,
)
from labeled.spaces.arrays import check_fits, one_hot, why_not_cast
from labeled.spaces.kinds import call_for
from labeled.transforms.running import CompiledPipeline, Form, Forms
from labeled.transforms.sample import RowSpec, extreme_shapes

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

SHAPE_ROWS = 1 << 16
"""Shapes of examples that are read together."""


# casts

BFLOAT16 = (
    "NumPy has none of that name; take float32, and cast where the model is: x.to(torch.bfloat16) "
    "or torch.autocast, x.astype(jax.numpy.bfloat16)"
)


@dataclass(frozen=True)
class Cast:
    """What becomes of the values of one source; None where nothing is asked.

    Parameters
    ----------
    dtype, scale, shift
        The result is ``values * scale + shift`` in `dtype`.
    axes : tuple of int, optional
        Axis ``k`` of a batch is axis ``axes[k]`` of the stored rows.
    n_classes : int, optional
        Labels become rows of as many zeros with a one in each.
    """

    dtype: np.dtype[Any] | None = None
    scale: Any = None
    shift: Any = None
    axes: tuple[int, ...] | None = None
    n_classes: int | None = None

    @property
    def nothing(self) -> bool:
        asked = (self.dtype, self.scale, self.shift, self.axes, self.n_classes)
        return all(one is None for one in asked)

    @property
    def scaled(self) -> bool:
        return self.scale is not None or self.shift is not None

    @property
    def batch_axis(self) -> int:
        """Which axis of a batch counts its rows."""
        return 0 if self.axes is None else self.axes.index(0)

    def sizes(self, source: Source, n_rows: int) -> dict[str, int]:
        """Return the dims of a batch of `n_rows`, with their lengths."""
        if self.n_classes is not None:
            return {source.dims[0]: n_rows, f"{source.name}_class": self.n_classes}
        lengths = (n_rows, *source.row_shape)
        axes = range(len(lengths)) if self.axes is None else self.axes
        return {source.dims[axis]: lengths[axis] for axis in axes}

    def __call__(self, array: Any, where: str) -> Array:
        """Return a changed copy; an integer or label that does not fit is an error at `where`."""
        if self.n_classes is not None:
            array = array.gathered() if isinstance(array, permute.Taken) else array
            labels = reshape(array, (len(array), 1))
            hot: Array = call_for(where, one_hot, labels, self.n_classes, "merge", self.dtype)
            return hot
        if not self.scaled:
            call_for(where, check_fits, array, self.dtype)
        axes = range(array.ndim) if self.axes is None else self.axes
        changed: Array = permute.copy(
            array, axes, dtype=self.dtype, scale=self.scale, shift=self.shift
        )
        return changed


def casts_of(
    options: BatchOptions, sources: Mapping[str, Source], spaces: Mapping[str, Space]
) -> dict[str, Cast]:
    """Work out the change of each source that has one.

    A single value is meant for the numeric sources; sources of labels
    (:class:`~labeled.spaces.IndexSpace`) change only where a mapping names them.
    A scale or shift per channel runs along the ``channel`` dim, else the last one.

    Raises
    ------
    UnknownNameError
        If a mapping names a source that is not there.
    LoaderError
        If a factor or a layout does not fit, or a cast would lose values.
    """
    asked = {"dtype": options.dtype, "scale": options.scale, "shift": options.shift}
    layout, one_hot = options.layout or {}, options.one_hot or {}
    named = {"normalize": options.normalize, **asked, "layout": layout, "one_hot": one_hot}
    for argument, option in named.items():
        if isinstance(option, Mapping):
            _check_names(option, sources, argument)
    casts = {}
    for name, source in sources.items():
        numeric = source.dtype.kind in "biufc" and not isinstance(spaces.get(name), IndexSpace)
        plain = asked if numeric or source.ragged is not None else {}
        dtype, scale, shift = (
            option.get(name) if isinstance(option, Mapping) else plain.get(key)
            for key, option in asked.items()
        )
        if name in one_hot:
            given = [
                key
                for key in ("scale", "shift")
                if isinstance(asked[key], Mapping) and name in asked[key]
            ]
            if name in layout or given:
                raise LoaderError(
                    f"{source.where}: {[*given, 'layout'][0]}= does not go with one_hot=; leave "
                    "one of them out"
                )
            dtype = dtype if isinstance(options.dtype, Mapping) else options.dtype
            casts[name] = _one_hot(source, one_hot[name], _checked_dtype(dtype, source))
            continue
        cast = Cast(
            _checked_dtype(dtype, source),
            _factor(source, dtype, "scale", scale),
            _factor(source, dtype, "shift", shift),
            _axes(source, layout[name]) if name in layout else None,
        )
        if cast.dtype is not None:
            reason = why_not_cast(source.dtype, cast.dtype, scaled=cast.scaled)
            if reason is not None:
                raise LoaderError(f"{source.where}: {reason}")
        if not cast.nothing:
            casts[name] = cast
    return casts


def _axes(source: Source, layout: str | Sequence[str]) -> tuple[int, ...] | None:
    """Return the order of axes that a layout names; None where it is that of the file."""
    names = tuple(layout.split() if isinstance(layout, str) else layout)
    if source.ragged is not None:
        raise LoaderError(
            f"{source.where}: layout= orders the axes of arrays, and its examples differ in shape; "
            "leave it out"
        )
    if sorted(names) != sorted(source.dims):
        raise LoaderError(
            f"{source.where}: layout={layout!r} must name each of its dims once: "
            f"{' '.join(source.dims)}"
        )
    axes = tuple(source.dims.index(name) for name in names)
    return None if axes == tuple(range(len(axes))) else axes


def _one_hot(source: Source, n: int, dtype: np.dtype[Any] | None) -> Cast:
    """Return what makes rows of zeros and a one of labels, in float32 if no dtype is given."""
    n = integer(f"one_hot of {source.name!r}", n, least=1)
    whole = source.dtype.kind in "iu" and source.ragged is None
    if not whole or math.prod(source.row_shape) != 1:
        raise LoaderError(
            f"{source.where}: one_hot= takes one whole number a row, and this is {source.dtype} "
            f"of dims ({', '.join(source.dims)}); without it, say "
            f"pipeline={{{source.name!r}: lambda y: np.eye({n}, dtype='f4')[int(y.item())]}}"
        )
    dtype = np.dtype(np.float32) if dtype is None else dtype
    if dtype.kind not in "biufc":
        raise LoaderError(f"{source.where}: one_hot= makes numbers, not dtype={dtype}")
    return Cast(dtype, n_classes=n)


def _check_names(option: Any, sources: Mapping[str, Source], argument: str) -> None:
    for name in option:
        if name not in sources:
            hint = did_you_mean(name, sources)
            raise UnknownNameError(f"{argument}= names {name!r}, which is not a source; {hint}")


def _checked_dtype(value: Any, source: Source) -> np.dtype[Any] | None:
    """Return what was asked for as a dtype, None as None; torch's have names of NumPy's."""
    if value is None:
        return None
    wanted = getattr(value, "as_numpy_dtype", value)  # of TensorFlow's
    if type(value).__module__ == "torch":
        wanted = str(value).removeprefix("torch.")
    try:
        if isinstance(wanted, str) and wanted == "bfloat16":  # known once JAX is imported
            raise TypeError(BFLOAT16)
        found: np.dtype[Any] = np.dtype(wanted)
        if found.subdtype is not None or found.fields is not None:
            raise TypeError("it is of several values")
    except (TypeError, ValueError) as error:
        raise LoaderError(f"{source.where}: dtype={value!r} is not a dtype: {error}") from None
    return found


def _factor(source: Source, dtype: Any, option: str, value: Any) -> Any:
    """Check a scale or shift; shape a list of them so that it runs along the channel dim."""
    if value is None:
        return None
    shaped, factors, dims = value, as_array("scale or shift", value, LoaderError), source.dims
    if factors.ndim and source.ragged is not None:
        raise LoaderError(f"{source.where}: scale and shift of ragged examples are one number")
    if factors.ndim:
        axis = dims.index("channel") if "channel" in dims else len(dims) - 1
        if axis == 0 or len(value) != source.row_shape[axis - 1]:
            raise LoaderError(
                f"{source.where}: {len(value)} factors do not fit its dims {dims} of row lengths "
                f"{source.row_shape}; give one number, or one a channel"
            )
        shaped = factors.reshape([-1 if at == axis else 1 for at in range(len(dims))])
    try:
        made = result_dtype(source.dtype, _checked_dtype(dtype, source), True)
        computed = compute_dtype(source.dtype, made)
        with np.errstate(over="ignore"):  # reported below
            factor = checked_factor(option, shaped, computed)
        if factor is not None and not np.isfinite(factor).all():
            raise ArrayError(f"values are computed in {computed}, where it is not finite")
    except ArrayError as error:
        raise LoaderError(f"{source.where}: {option}={value!r} cannot be: {error}") from None
    return shaped


# padding


def padding_of(dtype: np.dtype[Any], value: Any) -> Any:
    """Return what fills padded rows: `value`, or for the default 0 what is empty of a kind."""
    if not isinstance(value, int) or value != 0:
        return value
    if dtype.kind in "mM":  # with their unit: NumPy 2.5 warns of times without one
        return np.array("NaT", dtype) if dtype.kind == "M" else np.zeros((), dtype)
    return {"S": b"", "U": "", "O": ""}.get(dtype.kind, value)


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
                "give one that is, or a mapping from source to value"
            )


# examples of different shapes


@dataclass(frozen=True, eq=False)
class RaggedForm:
    """Turns the examples of a batch into what the consumer gets of one source.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The example dim, then those of an example.
    dtype : numpy.dtype
    layout : {"list", "pad", "flat"}
    value : scalar
        Fills what padding adds, within examples and beyond the last.
    cast : Cast
        As for dense sources; single values only.
    one_by_one : bool
        Examples come in memory of their own each, so that a list needs no copy of them.
    """

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    layout: RaggedLayout
    value: Any = 0
    cast: Cast = Cast()
    one_by_one: bool = False

    @property
    def out_dims(self) -> dict[str, tuple[str, ...]]:
        """Names of what is handed out, and their dims."""
        name, example = self.name, self.dims[0]
        if self.layout == "list":
            return {name: (example,)}
        if self.layout == "pad":
            return {name: self.dims, f"{name}_mask": self.dims}
        return {
            name: (f"{name}_value",),
            f"{name}_offsets": (f"{name}_offset",),
            f"{name}_shapes": (example, f"{name}_axis"),
        }

    @property
    def out_dtype(self) -> np.dtype[Any]:
        return result_dtype(self.dtype, self.cast.dtype, self.cast.scaled)

    @property
    def as_read(self) -> bool:
        """Whether examples are handed out where they were read, and none is made anew."""
        return self.layout == "list" and self.cast.nothing and self.one_by_one

    def __call__(self, array: Array | RaggedRows, count: int) -> dict[str, Array]:
        """Lay out examples of which the first `count` are real.

        Places of objects are left empty: nothing but the batch is to keep them in memory.
        """
        if isinstance(array, RaggedRows):
            passing = not self.cast.nothing or self.layout == "pad"
            flat = array.flat() if passing else array.own_flat()
        else:
            examples = array.copy()
            array[:] = None
            if self.as_read and count == len(array):
                return {self.name: examples}
            n_axes = len(self.dims) - 1
            for padded_place in range(count, len(examples)):
                examples[padded_place] = np.empty((0,) * n_axes, self.dtype)
            flat = flat_of_views(examples, n_axes, self.dtype)
            del examples
        if not self.cast.nothing:
            flat = flat._replace(values=self.cast(flat.values, f"source {self.name!r}"))
        if self.layout == "list":
            return {self.name: flat.examples()}
        if self.layout == "flat":
            return dict(zip(self.out_dims, flat, strict=True))
        lengths = flat.shapes.max(axis=0, initial=0).tolist()
        dense, inside = padded(flat, lengths, self.value, mask=True)
        assert inside is not None
        return {self.name: dense, f"{self.name}_mask": inside}


def _ragged_form(
    source: Source,
    options: BatchOptions,
    cast: Cast,
    value: Any,
    sources: Mapping[str, Source],
) -> RaggedForm:
    """Decide how a ragged source is laid out without specs."""
    name, layout = source.name, options.ragged
    one_by_one = comes_one_by_one(source.examples())
    form = RaggedForm(name, source.dims, source.dtype, layout, value, cast, one_by_one=one_by_one)
    if layout == "pad":
        _check_padding(source, value, form.out_dtype)
    taken = [added for added in form.out_dims if added != name and added in sources]
    if taken:
        raise LoaderError(
            f"ragged={layout!r} of {name!r} hands out {taken[0]!r}, which is a source of its "
            "own; leave it out with select()"
        )
    return form


def shape_blocks(source: Source, selection: Selection) -> Iterator[tuple[Rows, Rows]]:
    """Yield rows and the shapes of their examples, some at a time; reads all shapes."""
    reader = source.examples()
    for first in range(0, len(selection), SHAPE_ROWS):
        rows = selection[first : first + SHAPE_ROWS].rows
        yield rows, reader.shapes(rows)


# the layout of batches


class BatchLayout:
    """Turns the stored rows of a batch into what the consumer gets.

    Parameters
    ----------
    sources : mapping of str to Source
    padding : mapping of str to scalar
        Fills the rows that padding adds to a source.
    specs : CompiledSpecs, optional
        Lays arrays out; without it a :class:`Batch` is handed out.
    casts : mapping of str to Cast
        By source, where there are no specs (these carry their own).
    ragged : mapping of str to RaggedForm
        How ragged sources are laid out.

    Attributes
    ----------
    dims, info : mapping of str
        Of what is handed out without specs.
    out_dtypes : mapping of str to numpy.dtype
        Of each source as it is handed out.
    out_row_bytes : int
        Bytes of one row as handed out, where that takes memory of its own.
    placed_row_bytes : int
        Bytes of one row that are decoded where it was read, and handed out changed.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        padding: Mapping[str, Any],
        specs: CompiledSpecs | None,
        casts: Mapping[str, Cast],
        ragged: Mapping[str, RaggedForm],
    ) -> None:
        self.sources, self.padding, self.specs = sources, padding, specs
        self.casts, self.ragged = casts, ragged
        self.dims, self.info = dict[str, tuple[str, ...]](), dict[str, ExampleInfo]()
        self.out_dtypes, self.decoded = dict[str, np.dtype[Any]](), list[str]()
        self.out_row_bytes = self.placed_row_bytes = 0
        for name, source in sources.items():
            cast, form, inner = casts.get(name), ragged.get(name), source.dims[1:]
            if source.decodes:
                self.decoded.append(name)
                if specs is not None or cast is not None:
                    self.placed_row_bytes += math.prod(source.row_shape) * source.dtype.itemsize
            if specs is not None:
                continue
            dtype, batch_axis, sizes = source.dtype, 0, source.row_shape
            if cast is not None:
                dtype = result_dtype(source.dtype, cast.dtype, cast.scaled)
                batch_axis = cast.batch_axis
            self.out_dtypes[name] = dtype
            if form is not None:
                self.dims.update(form.out_dims)
            elif cast is not None:
                laid_out = cast.sizes(source, 1)
                self.dims[name], sizes = tuple(laid_out), tuple(laid_out.values())
            else:
                self.dims[name] = source.dims
            if form is None and (cast is not None or source.decodes):
                self.out_row_bytes += math.prod(sizes) * dtype.itemsize
            names = class_names_of(getattr(source, "attrs", {}))
            self.info[name] = ExampleInfo(names, () if form is None else inner, batch_axis)
        if specs is not None:
            self.out_dtypes = {step.source: step.dtype for step in specs.steps}
            self.out_row_bytes = specs.out_bytes(1)

    @property
    def form(self) -> Form:
        """How a batch is taken apart into samples, and put together again."""
        if self.specs is not None:
            return Form(axes=self.specs.batch_axes)
        examples = {name: source.dims[0] for name, source in self.sources.items()}
        inner = {name: self.sources[name].dims[1:] for name in self.ragged}
        flat = any(ragged.layout == "flat" for ragged in self.ragged.values())
        return Form(next(iter(examples.values())), examples, inner, flat=flat)

    def forms(self, selections: Mapping[str, Selection]) -> Forms:
        """Return what rows look like before a pipeline; reads shapes of ragged examples."""
        if self.specs is not None:
            axes, steps = self.specs.batch_axes, self.specs.steps
            if len(steps) != 1 or not isinstance(axes, int):
                return None
            shape, dtype = steps[0].target.sizes(1), steps[0].dtype
            return RowSpec((), ((*shape[:axes], *shape[axes + 1 :]),), dtype)
        forms = {}
        for name, source in self.sources.items():
            sizes = self.casts.get(name, Cast()).sizes(source, 0)
            dims, shapes = tuple(sizes)[1:], [tuple(sizes.values())[1:]]
            if source.ragged is not None:
                blocks = shape_blocks(source, selections[name])
                found = list(chain.from_iterable(extreme_shapes(block) for _, block in blocks))
                several = np.array(found, np.int64).reshape(-1, len(source.dims) - 1)
                if self.ragged[name].layout == "pad":
                    several = several.max(axis=0, initial=0)[np.newaxis]
                dims, shapes = source.dims[1:], list(extreme_shapes(several))
            forms[name] = RowSpec(dims, tuple(shapes), self.out_dtypes[name])
        return forms

    @cached_property
    def copied(self) -> frozenset[str]:
        """Sources of which new memory is made in any case."""
        return frozenset(self.sources if self.specs is not None else self.casts)

    def __call__(
        self,
        arrays: dict[str, Array],
        rows: Callable[[], Rows],
        count: int,
        length: int,
        place: Callable[[dict[str, Array]], dict[str, Array]] = lambda arrays: arrays,
    ) -> Any:
        """Lay out `length` rows, of which `count` are real and the others padding.

        What is decoded or ragged is made where it was read, and goes to where batches are by
        `place`. A value that does not fit is named by its row of the dataset, too.
        """
        try:
            if self.decoded:
                for name in self.decoded:
                    arrays[name] = self.sources[name].decode(arrays[name])
                arrays = place(arrays)
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
                out: dict[str, Array] = {}
                for name, array in arrays.items():
                    ragged = self.ragged.get(name)
                    out.update({name: array} if ragged is None else ragged(array, count))
                arrays = place(out)
            return Batch(arrays, self.dims, rows, count, self.info)
        except SpaceError as error:
            if error.row is None:
                raise
            found = int(rows()[error.row])
            what = f"row {found} of the dataset" if found >= 0 else "padding"
            here = f" in row {error.row} "
            text = str(error).replace(here, f"{here}of this batch ({what}) ", 1)
            raise type(error)(text).at_row(found) from error


def layout_of(
    options: BatchOptions,
    sources: Mapping[str, Source],
    spaces: Mapping[str, Space],
    *,
    pads: bool,
) -> tuple[Mapping[str, Source], BatchLayout]:
    """Decide how batches are laid out, and which sources that needs.

    Raises
    ------
    SpecsError
        If specs do not fit the sources, or ragged examples their spaces (reads shapes).
    """
    value = options.pad_value
    if isinstance(value, Mapping):
        _check_names(value, sources, "pad_value")
    padding = {}
    for name, source in sources.items():
        own = value.get(name, 0) if isinstance(value, Mapping) else value
        no_time = source.dtype.kind in "mM" and isinstance(own, int | float) and own == 0
        padding[name] = np.array("NaT", source.dtype)[()] if no_time else own
    casts: dict[str, Cast] = {}
    if options.specs is None:
        casts = casts_of(options, sources, spaces) if options.lays_out else {}
        ragged, compiled = {}, None
        for name, cast in casts.items() if options.compiled_pipeline is not None else ():
            if cast.batch_axis:
                raise LoaderError(
                    f"{sources[name].where}: a pipeline takes batches whose first axis counts "
                    f"examples; put {sources[name].dims[0]!r} first in layout=, or transpose in "
                    "the pipeline"
                )
        for name, source in sources.items():
            if source.ragged is not None:
                cast = casts.get(name, Cast())
                ragged[name] = _ragged_form(source, options, cast, padding[name], sources)
    else:
        infos, ragged = {}, {}
        for name, one in sources.items():
            if name in spaces:
                infos[name] = SourceInfo(name, one.dims, one.row_shape, one.dtype, spaces[name])
        for space, name in DataSpecsMapping(options.specs).specs_to_index:
            if name in sources and name not in infos:
                what, remedy = "no numbers", "read it without specs"
                if sources[name].ragged is not None:
                    what = "examples of different shapes"
                    remedy += ": ragged='pad' makes arrays of them"
                raise SpecsError(
                    f"{sources[name].where} holds {what}, so that it has no space and is not laid "
                    f"out for {space}; leave it out of the specs, or {remedy}"
                )
        asked = {"dtype": options.dtype, "scale": options.scale, "shift": options.shift}
        compiled = compile_specs(options.specs, infos, **asked)
        sources = {name: sources[name] for name in compiled.sources}
    for name, source in sources.items() if pads else ():
        if name not in ragged:
            change = casts.get(name, Cast())
            made = source.dtype if change.scaled or change.dtype is None else change.dtype
            _check_padding(source, padding[name], source.dtype, made)
    return sources, BatchLayout(sources, padding, compiled, casts, ragged)


def pipeline_in_form(pipeline: CompiledPipeline, layout: BatchLayout) -> CompiledPipeline:
    """Tell the steps of a pipeline how batches are laid out."""
    if layout.form.axes is None:
        pipeline.check_named(layout.sources)
    flat = [name for name, ragged in layout.ragged.items() if ragged.layout == "flat"]
    if flat and pipeline.takes_apart:
        raise LoaderError(
            f"ragged='flat' lays the examples of {flat[0]!r} end to end, so that a pipeline cannot "
            "take them one by one; ask for ragged='list' or 'pad', or mark the transforms as "
            "labeled.transforms.whole"
        )
    return pipeline.with_form(layout.form)


# arrays of other libraries


@dataclass(frozen=True)
class HandedOver:
    """Turns what a loader makes into the same nest of another library's arrays.

    Parameters
    ----------
    to : HandOff
    as_tuple : bool
        Make a tuple of a mapping from source to array.
    """

    to: HandOff
    as_tuple: bool = False

    def __call__(self, data: Any) -> Any:
        """Return a batch with arrays of the library."""
        made = self._converted(data)
        return tuple(made.values()) if self.as_tuple and isinstance(made, dict) else made

    def _converted(self, data: Any) -> Any:
        """Return the same nest with arrays of the library; other values stay as they are.

        A pipeline that makes something else of one source leaves the others labelled.
        """
        data = data.arrays if isinstance(data, Batch) else data
        data = data.data if isinstance(data, xr.DataArray) else data
        if isinstance(data, Mapping):
            return {name: self._converted(part) for name, part in data.items()}
        if type(data) in (tuple, list):
            return type(data)(map(self._converted, data))
        if not is_array(data) or self.to.library == "numpy":
            return data
        if dtype_of(data).kind == "O":
            return [self._converted(example) for example in data]
        return self.to(data) if dtype_of(data).kind in "biufc" else data


def handed_over(options: BatchOptions, layout: BatchLayout | None) -> HandedOver:
    """Check that batches can be handed to a library.

    What a pipeline makes is not known before: without `layout` every array of numbers is
    handed over that is met.

    Raises
    ------
    LoaderError
        If the library has no dtype for a source, or no such arrays.

    Warns
    -----
    LabeledWarning
        If the library makes narrower numbers of a source, or nothing can be pinned.
    """
    output, as_tuple = options.output, options.as_tuple
    if as_tuple and layout is not None and layout.specs is not None:
        raise LoaderError("as_tuple=True: batches are nested as specs= asks already; leave one out")
    if output is None and options.pinned:
        raise LoaderError("pinned=True goes with output='torch'")
    to = HandOff(output or "numpy", options.pinned)
    if options.pinned and not to.pins:
        warn(
            "pinned=True: torch finds no CUDA device, so tensors stay in ordinary memory, which is "
            "all that the CPU needs; leave it out here, or install torch for CUDA"
        )
    if layout is None:
        return HandedOver(to, as_tuple)
    if layout.specs is not None and layout.specs.sparse and to.library != "numpy":
        raise LoaderError(
            f"output={output!r}: sparse batches are scipy's; ask for a dense VectorSpace"
        )
    for name, dtype in layout.out_dtypes.items():
        found = to.dtype(dtype)
        if found is None:
            raise LoaderError(f"source {name!r} is {_why_not(name, dtype, to.library)}")
        if found.itemsize < dtype.itemsize:
            warn(
                f"{to.library} makes {found} of source {name!r}, which is {dtype}, and does not "
                f"look whether values fit: give dtype={{{name!r}: {str(found)!r}}}, which does, or "
                "turn 64 bits on there"
            )
    return HandedOver(to, as_tuple)


def _why_not(name: str, dtype: np.dtype[Any], output: Any) -> str:
    """Say what a source is that is not handed over, and what to do about it."""
    if dtype.kind == "V":  # of ml_dtypes, say, which JAX and TensorFlow bring
        return f"{dtype}, which NumPy does not hand over; take dtype='float32', and cast it there"
    what, remedy = str(dtype), "give a dtype= that it has"
    if dtype.kind in "OSU":
        what, remedy = "text", f"make numbers of it with pipeline={{{name!r}: ...}}"
    elif dtype.kind in "Mm":
        remedy = f"say pipeline={{{name!r}: lambda times: times.astype('int64')}}"
    return f"{what}, of which {output} makes no arrays; leave it out with select(), or {remedy}"
