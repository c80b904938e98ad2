"""What can go wrong, by kind, and what was probably meant.

Every error of the library is a :class:`LabeledError` and, at the same time, the
built-in kind a caller would guess, so both ``except LabeledError`` and
``except ValueError`` work. Messages name the file, the source, what was found,
what was expected and what to do next.

Names from other libraries have an answer in one table, for unknown options, methods and attributes
of the package; any other name gets the closest match. An answer is one sentence of code to copy:
this is a hint, not a manual.
"""

from __future__ import annotations

import difflib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

_PASSED_BY = {"labeled", "xarray", "dask", "contextlib"}
"""Libraries whose lines are not the caller's: a warning points at the line that calls them."""


class LabeledError(Exception):
    """Any error raised on purpose by this library."""


class ArgumentError(LabeledError, TypeError, ValueError):
    """An argument has a type, or a value, that means nothing to the call."""


class OptionError(ArgumentError):
    """A call has no option of that name, or one that means nothing for this file."""


class FileFormatError(LabeledError, OSError):
    """A file is missing, damaged, or not what its name promises."""


class FileChangedError(LabeledError, OSError):
    """A file is no longer the one that was opened (its size or time changed)."""


class UnsafeFileError(LabeledError, PermissionError):
    """A file points outside itself, or claims far more data than it stores."""


class SplitError(LabeledError, ValueError):
    """A split table, or a split asked for, does not fit the file."""


class SplitTypeError(SplitError, TypeError):
    """Something that names no rows, or no comment, stands in a split."""


class NoLengthError(SplitError, TypeError):
    """Sources have different numbers of rows, so the dataset has no single length."""


class UnknownNameError(LabeledError, KeyError):
    """No split, source or dim has the name asked for."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


class UnknownAttributeError(LabeledError, AttributeError):
    """An object has no attribute of that name; the message names what to say instead."""


class DimsError(LabeledError, ValueError):
    """Dimension names are missing, repeated or do not fit the shape."""


class SelectionError(LabeledError, IndexError):
    """Rows asked for are not there."""


class SelectionTypeError(LabeledError, TypeError):
    """Rows were asked for by something that does not name rows."""


class ArrayError(LabeledError, ValueError):
    """An array to read, to compute with or to write into does not fit the others."""


class AugmentError(LabeledError, ValueError):
    """Pictures cannot be changed as asked: their shape, their colours, or the parameters."""


class UnfitPictureError(AugmentError):
    """One picture cannot be changed as asked, though others might be: too small, or damaged."""


class SpaceError(LabeledError, ValueError):
    """A batch does not fit a space, or two spaces do not fit each other.

    Attributes
    ----------
    row : int or None
        The row of the batch at fault, where it is one.
    """

    row: int | None = None

    def at_row(self, row: int | None) -> Self:
        """Return this error, which knows its row now."""
        self.row = row
        return self


class SpaceTypeError(SpaceError, TypeError):
    """A batch has a type or dtype that a space cannot hold."""


class UnsupportedSpaceError(SpaceError, NotImplementedError):
    """No conversion leads from one kind of space to another, or a space has no such quantity."""


class SpecsError(LabeledError, ValueError):
    """A ``(space, source)`` pair is malformed, or asks for what is not there."""


class LoaderError(LabeledError, ValueError):
    """A loader was asked for something impossible: sizes, parts, memory."""


class PipelineError(LabeledError, ValueError):
    """Transforms do not fit together, or what one of them made does not fit the next step."""


class PipelineTypeError(PipelineError, TypeError):
    """A step of a pipeline cannot be called, or is given data of a type that it cannot take."""


class StateError(LabeledError, ValueError):
    """A saved state does not fit the loader it is given to."""


class ReadError(LabeledError, OSError):
    """Reading failed: names the file, the source and the rows.

    Attributes
    ----------
    row : int or None
        The one row at fault, where it is known that others around it can be read.
    """

    row: int | None = None


class WriteError(LabeledError, OSError):
    """Writing failed or was refused; the target is as it was before."""


class NotYetError(LabeledError, NotImplementedError):
    """A file asks for something this version cannot do yet."""


class RowsMemoryError(LabeledError, MemoryError):
    """This machine has too little memory for the rows that are read at once."""


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error came from outside: Ctrl-C, or what the handler of a signal raised.

    A handler is known by what it was called with: the frame that it interrupted.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for at, frame in enumerate(frames):
        for given in frame.f_locals.values():
            each = given if isinstance(given, tuple) else (given,)
            if any(one is before for one in each for before in frames[:at]):
                return True
    return not isinstance(error, Exception)


@contextmanager
def explain_memory_errors(message: Callable[[str], str]) -> Iterator[None]:
    """Raise :class:`RowsMemoryError` in place of a MemoryError; `message` gets its text."""
    try:
        yield
    except MemoryError as error:
        if isinstance(error, LabeledError):
            raise
        raise RowsMemoryError(message(str(error) or "not enough memory")) from error


class DeviceMemoryError(LabeledError, MemoryError):
    """A device has too little memory for what a loader needs there."""


class ClusterError(LabeledError, RuntimeError):
    """A cluster cannot do the work: no workers, workers that see no files, or lost ones."""


class MissingExtraError(LabeledError, ImportError):
    """An optional library is not installed; the message names the extra."""


def how_to_install(libraries: str, extra: str) -> str:
    """Return the end of an error message: how to get an optional library.

    Naming the library serves wherever this one came from; naming the extra, a checkout.

    Examples
    --------
    >>> how_to_install("matplotlib", "plot")
    "pip install matplotlib (the extra 'plot'; in a checkout: pip install -e '.[plot]')"
    """
    checkout = f"in a checkout: pip install -e '.[{extra}]'"
    return f"pip install {libraries} (the extra {extra!r}; {checkout})"


class LabeledWarning(UserWarning):
    """Something works, but not as well as it could; the message says what to change."""


def warn(message: str) -> None:
    """Warn at the line of the first caller outside this library and what it is called through."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None:
        library: str = frame.f_globals.get("__name__", "")
        if library.partition(".")[0] not in _PASSED_BY:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, LabeledWarning, stacklevel=level)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the nearest names, then the known names.

    Examples
    --------
    >>> did_you_mean("trian", ["test", "train"])
    "did you mean 'train'? There are: 'test', 'train'"
    >>> did_you_mean("colour", ["test", "train"])
    "there are: 'test', 'train'"
    >>> did_you_mean("images", ["image_features", "targets"])
    "did you mean 'image_features'? There are: 'image_features', 'targets'"
    """
    names = sorted(known)
    there, close = listed(names), closest(name, names)
    return f"there are: {there}" if close is None else f"did you mean {close!r}? There are: {there}"


def check_known(
    what: str,
    names: Iterable[object],
    known: Iterable[str],
    kind: str,
    error: type[LabeledError] = UnknownNameError,
) -> None:
    """Refuse names that are not known; `what` names them, and each should be a `kind`.

    Examples
    --------
    >>> check_known("dims= names", ["imags"], ["images", "targets"], "a source")
    Traceback (most recent call last):
    labeled.errors.UnknownNameError: dims= names 'imags', which is not a source; did you mean \
'images'? There are: 'images', 'targets'
    """
    there = set(known)
    for name in names:
        if name not in there:
            hint = did_you_mean(str(name), there)
            raise error(f"{what} {name!r}, which is not {kind}; {hint}")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is most likely meant for, if there is one."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.7)
    close = close or [one for one in names if _starts_alike(str(name), one)][:1]
    close = close or difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return close[0] if close else None


def _starts_alike(one: str, two: str) -> bool:
    """Whether two names begin alike: in four letters, and all but two of the first.

    Examples
    --------
    >>> _starts_alike("images", "image_features"), _starts_alike("target", "test")
    (True, False)
    """
    n = max(4, len(one) - 2)
    return one[:n].lower() == two[:n].lower()


def listed(names: Sequence[str], limit: int = 12) -> str:
    """Return names for a message: the first of them, and how many there are.

    Examples
    --------
    >>> listed(["test", "train", "valid"], limit=2)
    "'test', 'train', ... (3 in all)"
    """
    there = ", ".join(map(repr, names[:limit])) or "none"
    return f"{there}, ... ({len(names):,} in all)" if len(names) > limit else there


def ends_early(offset: int, want: int, got: int) -> EOFError:
    """Return what is raised where a file has fewer bytes than it should."""
    return EOFError(f"the file ends early: {want} bytes wanted at offset {offset}, {got} found")


# ---------------------------------------------------------------- names from other libraries
_ANSWERS = {
    "batch DataLoader loader iterate shuffle sample": "use ds.batches(64, shuffle=True, seed=7)",
    "map apply transform collate_fn": "use ds.batches(64, pipeline={'x': function})",
    "normalize mean std": "use normalize={'x': (mean, std)}",
    "axes data_format": "use layout={'images': 'batch height width channel'}",
    "axis_labels": "use dims={'x': ('batch', 'height', 'width')} when opening; ds.dims has them",
    "bucket_by_length max_length padding": "use bucket=True, and ragged='pad' or 'flat'",
    "class_weight stratify": "use balance='y', weights=, or ds.train_test_split(stratify='y')",
    "buffer_size": "use memory= or window_rows= to set how many rows are shuffled together",
    "drop_remainder": "use last='drop'",
    "random_state generator rng": "use seed=7",
    "rank world_size num_replicas num_shards": "use shard=(rank, world_size) or 'torch'",
    "num_workers n_jobs": "use threads=4, or labeled.torch.data_loader for worker processes",
    "persistent_workers prefetch_factor worker_init_fn": "use torch_options= of "
    "labeled.torch.data_loader",
    "prefetch_to_device": "use device='cuda', which copies ahead",
    "pin_memory": "use pinned=True with output='torch'",
    "to to_torch to_tensor to_tf cuda jax": "use ds.batches(64, output='torch'), or 'jax', "
    "'tensorflow', 'cupy'",
    "repeat epochs reset": "each `for` over a loader is the next epoch",
    "take limit head skip iloc rows": "use ds[:10] or ds.subset([5, 3]) for rows, "
    "itertools.islice(loader, 10) for batches",
    "filter query loc": "use a mask: ds.subset(ds['y'].values == 3)",
    "columns features fields": "use ds.select('x', 'y'); ds.sources has the names",
    "kfold folds": "use scikit-learn: for train, test in KFold(5).split(ds): ds.subset(train)",
    "cache persist compute": "use ds.load()",
    "values numpy to_numpy array data": "use ds['x'].values for one source, batch.arrays for all",
    "shape ndim dtype": "each source has its own: ds.shapes, ds.dtypes, batch['x'].shape",
    "size num_rows num_batches": "use len(ds) or batch.count for rows, len(loader) for batches",
    "index ids": "use batch.rows, positions in the dataset",
    "save to_hdf5": "use labeled.write('new.hdf5', ds)",
    "concatenate merge": "use labeled.concat([a, b])",
    "open load read load_dataset File open_mfdataset": "use labeled.open_dataset(path) with a "
    "file, a list, a glob or a folder",
    "from_numpy from_xarray from_arrays": "use labeled.batches({'x': array}, 64)",
    "engine mode": "files are opened for reading, whatever their format; to write use "
    "labeled.write or labeled.append",
    "info describe": "use print(ds), ds.statistics('x'), or `labeled info FILE` in a shell",
    "lengths tolist": "use ragged.shapes for lengths, list(ragged) for examples",
    "split which_sets": "use ds.split('train'); to write splits, labeled.write(..., splits=...)",
}
GUESSES = {name: answer for names, answer in _ANSWERS.items() for name in names.split()}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message for an unknown name.

    Examples
    --------
    >>> suggestion("drop_remainder", ["last", "seed"])
    "use last='drop'"
    >>> suggestion("sed", ["last", "seed"])
    "did you mean 'seed'? There are: 'last', 'seed'"
    """
    return GUESSES.get(name) or did_you_mean(name, known)


def unknown_attribute(
    thing: object, name: str, sources: Callable[[], Iterable[str]] = tuple
) -> AttributeError:
    """Return the error for an attribute that `thing` lacks; called from its ``__getattr__``.

    Parameters
    ----------
    sources : callable, optional
        Returns the names that belong in brackets instead.

    Raises
    ------
    AttributeError
        The one that a property of `thing` raised itself, if it has one of that name.

    Examples
    --------
    >>> class Thing:
    ...     size = 3
    >>> unknown_attribute(Thing(), "siez")
    UnknownAttributeError("Thing has no attribute 'siez'; did you mean 'size'?")
    """
    kind = type(thing)
    if hasattr(kind, name):
        object.__getattribute__(thing, name)  # raises again what brought us here
    plain = f"{kind.__name__} has no attribute {name!r}"
    if name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ()):
        return AttributeError(plain)  # asked for by protocols and while unpickling
    names = list(sources())
    source = name if name in names else closest(name, names)
    if source is not None:
        return UnknownAttributeError(f"{plain}; did you mean {kind.__name__.lower()}[{source!r}]?")
    public = [one for one in dir(kind) if not one.startswith("_")]
    near = closest(name, public)
    answer = GUESSES.get(name) or (near and f"did you mean {near!r}?")
    return UnknownAttributeError(f"{plain}; {answer}" if answer else plain)
