"""What a format offers to whoever opens files, and what it is given.

A format is a value, not a class to inherit from: its name, how its files are known, and
functions. :mod:`.registry` lists all of them. How another one is added:

1. A module or package ``labeled/formats/<name>`` that imports no other format. Two contracts of
   ``pyproject.toml`` name it, and the first lines of :mod:`labeled.formats`.
2. ``scan(paths, options)``: one :class:`~.header.FileHeader` for each part that is to be
   joined along the example dim, mostly one a path. It reads headers only, or makes an index
   of rows in one pass, takes memory for nothing that a file merely claims, and raises
   errors that name file, row and remedy. What its readers need to know later goes into
   ``SourceHeader.detail``: a small frozen value whose repr tells all that the values of rows
   depend on. Headers carry ``format=<name>``. Splits are a mapping as in HDF5, and
   :func:`all_rows` where a file names none.
3. ``open_reader(header, region=, io=)``: a :class:`~.reader.Reader`, mostly a subclass of
   :class:`~.reader.FileReader`, with two methods: ``_read(runs, out, places)``, in whatever
   thread calls it, beside others, and ``_ranges(runs)``, the bytes which that takes. Decoding
   belongs there: threads of the loader then share it. Rows that all follow one another in the
   file have one already (:class:`~.contiguous.ContiguousReader`). Its tests inherit
   :class:`labeled.testing.ReaderTests`. Text comes as dtype :data:`~.header.TEXT`.
4. ``open_ragged(header, io)``, where examples differ in shape: a
   :class:`~labeled.ragged.RaggedReader`, mostly an :class:`ExampleReader`. Such headers
   say why in ``ragged``, and name the axes of examples in ``dims``.
5. What the order of rows depends on stands in the header: `chunks` (rows that can only be
   read together, else None), `filters` (what has to be undone, so that reading a chunk is
   expensive), `storage` ("records": any row is found by itself), `scratch_bytes`.
6. A :class:`Format` of all this, ``FORMAT`` in that module; it is added to ``FORMATS`` in
   :mod:`.registry`, to what :func:`labeled.open_dataset` says of ``format=``, what
   :func:`labeled.convert` says of `origin`, the end of ``labeled --help`` (``cli/main.py``), and
   to ``docs/formats.md``.
7. A file of it among the cases of ``tests/test_reader_laws.py``, ``tests/test_loader_laws.py``
   (which inherit :class:`labeled.testing.LoaderTests`) and ``tests/fuzz_layouts.py``, which
   damages it in many ways; or in a module of its own, as ``tests/test_zarr.py``.

Options of one format only are the fields of a frozen dataclass (`Format.options`), which
checks its values when it is made; :func:`labeled.open_dataset` takes them by keyword.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from labeled.dims import default_name
from labeled.errors import DimsError, FileFormatError, UnknownNameError, check_known
from labeled.formats.header import ALL, FileHeader, Rows, SourceHeader
from labeled.formats.reader import Io, Reader, native
from labeled.formats.region import Array
from labeled.ragged import RaggedReader

# words in names of files and folders, and the splits they mean
SPLITS = {split: split for split in ("train", "test", "valid")}
SPLITS |= {"training": "train", "testing": "test", "t10k": "test"}
SPLITS |= {"validation": "valid", "val": "valid"}


def natural(name: str) -> list[Any]:
    """Return a key that sorts by the numbers in names.

    Examples
    --------
    >>> sorted(["demo_10", "demo_9", "demo"], key=natural)
    ['demo', 'demo_9', 'demo_10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


@dataclass(frozen=True)
class Options:
    """How all files of a dataset are opened; see :func:`labeled.open_dataset`."""

    sources: tuple[str, ...] | None = None
    dims: tuple[tuple[str, tuple[str, ...]], ...] = ()
    example_dim: str | None = None
    group: str | None = None
    examples: str | None = None
    io: Io = "auto"
    decode_cf: bool = True
    allow_external: bool = False
    format: str | None = None  # the name of the format; None if the files show it
    own: Any = None  # options of this format only: a value of its Format.options


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: what a format is recognised by.

    Parameters
    ----------
    data : bytes
        The first bytes, unpacked where the file is gzip-compressed.
    at : callable
        Returns some bytes of the file as stored: ``at(offset, n)``.
    packed : bool
        Whether the file is gzip-compressed.
    """

    data: bytes
    at: Callable[[int, int], bytes]
    packed: bool = False


@dataclass(frozen=True)
class NoOptions:
    """A format that has no options of its own."""


def _not_offered(header: SourceHeader, *_: Any) -> Any:
    raise FileFormatError(f"{header.where}: this format reads no such source")


@dataclass(frozen=True, eq=False)
class Format:
    """A kind of file, how it is known, and how it is read.

    Parameters
    ----------
    name : str
        What ``format=`` and headers say.
    title : str
        What people say.
    suffixes : tuple of str
        Endings of file names, lower case. Those of a folder's files decide which are opened.
    recognises : callable
        Whether the beginning of a file is that of this format. Text has no first bytes of its
        own, and some formats are folders: there names decide.
    scan, open_reader, open_ragged
        See above.
    kinds : mapping of str to str
        What ``FileHeader.kind`` may be, in words.
    options : type
        A frozen dataclass of the options that only this format has.
    accepts : frozenset of str
        Which of the general options ``group``, ``examples``, ``decode_cf`` and
        ``allow_external`` mean something.
    read_scalar : callable
        Returns the value of a variable without axes, as stored.
    check_claim : callable
        Refuses to take memory for rows that a file claims and does not store.
    stored_bytes : callable
        Returns the bytes that each of several sources takes in its file.
    statistics : callable
        Returns the statistics of sources that a file carries, by its path.
    named : callable, optional
        Whether a name is that of such a file, where `suffixes` do not tell alone.
    order : callable
        What the files of a folder or a glob are sorted by.
    remote : bool
        Whether files are read by address too (``memory://``, ``s3://``).
    marks : tuple of str
        For formats whose files are folders: a folder that holds one of these names is one.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    scan: Callable[[tuple[str, ...], Options], tuple[FileHeader, ...]]
    open_reader: Callable[..., Reader]
    kinds: Mapping[str, str]
    recognises: Callable[[Head], bool] = lambda head: False
    options: type[Any] = NoOptions
    accepts: frozenset[str] = field(default_factory=frozenset)
    open_ragged: Callable[[SourceHeader, Io], RaggedReader] = _not_offered
    read_scalar: Callable[[SourceHeader], Array] = _not_offered
    check_claim: Callable[[SourceHeader, int], None] = lambda header, n_bytes: None
    stored_bytes: Callable[[Sequence[SourceHeader]], list[int]] = lambda headers: [
        header.stored_bytes or 0 for header in headers
    ]
    statistics: Callable[[str], Mapping[str, Any]] = lambda path: {}
    named: Callable[[str], bool] | None = None
    order: Callable[[str], Any] = str
    remote: bool = False
    marks: tuple[str, ...] = ()

    @property
    def option_names(self) -> tuple[str, ...]:
        """Names of the options that only this format has."""
        return tuple(one.name for one in fields(self.options))

    def claims(self, path: str) -> bool:
        """Whether the name of a file says that it is of this format."""
        if self.named is not None:
            return self.named(path)
        return path.lower().endswith(self.suffixes)


class ExampleReader(RaggedReader):
    """Examples of one source of a file. Nothing is opened before they are asked for."""

    def __init__(self, source: SourceHeader, io: Io = "auto") -> None:
        self.source, self.io, self.where = source, io, source.where
        self.n_rows, self.n_axes = source.n_rows, len(source.dims) - 1
        self.dtype = native(source.dtype) if source.cf is None else source.cf.dtype


# what `sources=`, `dims=` and `example_dim=` ask for


def chosen_sources(there: Collection[str], options: Options, where: str) -> tuple[str, ...]:
    """Return the sources to open: those asked for, in that order, else all, sorted.

    Raises
    ------
    UnknownNameError
        If ``sources=`` or ``dims=`` names what is not there, or one source twice.
    """
    asked = tuple(sorted(there)) if options.sources is None else options.sources
    for argument, names in (("sources=", asked), ("dims=", dict(options.dims))):
        check_known(f"{argument} names", names, there, f"in {where}")
    check_once("sources=", asked)
    return asked


def check_once(argument: str, sources: Iterable[str]) -> None:
    """Raise :class:`UnknownNameError` if an argument names a source twice."""
    for name, times in Counter(sources).items():
        if times > 1:
            raise UnknownNameError(f"{argument} names {name!r} twice; name each source once")


def dims_of(name: str, default: tuple[str, ...], options: Options, path: str) -> tuple[str, ...]:
    """Return the dims of a source: as asked for, else `default`.

    Raises
    ------
    DimsError
        If they are too many, too few, or not all different.
    """
    own = options.example_dim
    found = default if own is None else (own, *default[1:])
    dims, _ = name_dims(path, name, found, dict(options.dims).get(name), has_labels=False)
    if own is not None and dims[0] != own:
        raise DimsError(
            f"example_dim={own!r} is not the first of dims={dims} given for source {name!r}; axis "
            "0 counts the examples"
        )
    return dims


TO_WRITE = "the file to write"  # what messages call a file that is not there yet

Names = Sequence[str | None]  # names that a user gives to axes; None leaves an axis to the file


def name_dims(
    where: str,
    source: str,
    found: Sequence[str],
    given: Names | None = None,
    *,
    has_labels: bool = True,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Name every axis of a source, and return which axes had no name.

    Parameters
    ----------
    where : str
        The file, for messages.
    source : str
        Its name, for messages and for the names of unnamed axes.
    found : names, one an axis
        What the file says; ``""`` for an axis it does not name.
    given : names, one an axis, optional
        What the user says; goes first, and None leaves an axis to the file.
    has_labels : bool
        Whether names can be set in the file.

    Returns
    -------
    dims : tuple of str
        All different.
    unnamed : tuple of int
        Axes that were named here.

    Raises
    ------
    DimsError
        If names repeat, or `given` does not fit the number of axes.

    Examples
    --------
    >>> name_dims("cifar10.hdf5", "features", ("batch", "", "height"))
    (('batch', 'features_axis_1', 'height'), (1,))
    """
    of = "" if where == TO_WRITE else f" of file {where!r}"
    shown = "" if has_labels else f", {', '.join(found)}"
    if given is not None and (isinstance(given, str) or len(given) != len(found)):
        raise DimsError(
            f"dims={{{source!r}: {given!r}}} does not fit source {source!r}{of}, "
            f"which has {len(found)} axes{shown}; pass one name per axis"
        )
    names = list(found)
    for axis, name in enumerate(given or ()):
        if not isinstance(name, str | None):
            raise DimsError(f"dims={{{source!r}: ...}}: {name!r} is not a name; give a str or None")
        names[axis] = names[axis] if name is None else name
    dims, unnamed = list[str](), list[int]()
    for axis, name in enumerate(names):
        dims.append(name or default_name(source, axis))
        if not name:
            unnamed.append(axis)
    for axis, name in enumerate(dims):
        if name in dims[:axis]:
            proposed = (*dims[:axis], default_name(source, axis), *dims[axis + 1 :])
            twice = f"has the dim {name!r} twice, as axis {dims.index(name)} and axis {axis}"
            remedy = f"dims={{{source!r}: {proposed}}}"
            if where == TO_WRITE or not has_labels:
                raise DimsError(f"source {source!r}{of} {twice}; rename one, with {remedy}")
            raise DimsError(
                f"source {source!r} in {where!r} {twice}; its labels are {tuple(names)}. Set "
                f"f[{source!r}].dims[{axis}].label in the file, or pass {remedy} when opening it"
            )
    return tuple(dims), tuple(unnamed)


def all_rows(sources: dict[str, SourceHeader]) -> dict[str, dict[str, Rows]]:
    """Return the splits of a file that names none: all rows of every source."""
    rows: dict[str, Rows] = {}
    for name, header in sources.items():
        rows[name] = range(header.n_rows)
    return {ALL: rows}
