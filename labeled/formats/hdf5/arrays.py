"""What lies in a file: a plain list of its datasets, and what conventions say of them.

One walk looks at every link before it follows it, so that nothing outside the file is opened
unless that is allowed. What cannot be reached is in the list too, with the reason. Then each
convention takes the list and gives it back, saying more of what it recognises: what is put aside
and why, which fields of tables are sources, what names the axes. None of them reads more than
headers, attributes and names, and none changes what it was given.

PyTables and pandas (``DataFrame.to_hdf``)
    Times of pandas are whole numbers, and an attribute says of what; booleans of PyTables are
    fields of eight bits. Names of the columns of a "table" are pickles, and so are texts in the
    format "fixed": they are left alone, because unpickling runs whatever the file says.
Sparse matrices by rows: CSR groups of AnnData, and the matrices of 10x Genomics
    Such a group holds ``data`` and ``indices`` (the values that are not zero, and their columns)
    one row after another, and ``indptr``, where each row begins. Here it is one dense source of
    (n_rows, n_columns). The matrices of 10x Genomics are stored by columns, one for each cell,
    so that cells are rows here too.
Files of cells (AnnData, 10x Genomics)
    Cells are the examples, so what describes genes is carried whole: AnnData's own words for
    the dims are `obs_names` and `var_names`, those of 10x Genomics barcodes and features.

Groups: a pattern such as ``data/demo_*`` means every group that it matches, a demonstration,
episode or molecule each; their rows follow one another like those of several files, in the order
of the numbers in their names. If a file looks like that, and no pattern was given, a note says
which pattern fits.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any

import h5py
import numpy as np

from labeled.errors import LabeledError, NotYetError, UnsafeFileError
from labeled.formats.format import Names, Options, natural
from labeled.formats.hdf5 import labels, safety
from labeled.formats.hdf5.dtypes import ItemPart, columns_of, item_of, varies, why_not_a_source
from labeled.formats.hdf5.labels import SHAPE_LABELS, SHAPES, Axis, Scale, Scales
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import FoundObject, NotThereError, address, find, to_text
from labeled.formats.header import FileStamp, SourceHeader


@dataclass(frozen=True, slots=True)
class Opening:
    """A group of an open file, and how it is opened."""

    base: h5py.Group
    stamp: FileStamp
    options: Options
    dims: Mapping[str, Names] = field(default_factory=dict)
    one_of_many: bool = False  # whether the base is one of several groups that are joined
    # whether axes of ragged examples are named by numbers where the file does not name them
    name_all: bool = False
    # whether it has scales: attributes of one value then are that value, as netCDF means them
    netcdf: bool = False
    scales: Scales = field(default_factory=dict)  # scales that were read before
    faults: list[str] = field(default_factory=list)  # what is worth a warning, as it is found
    # datasets that are not sources, each with the reason, as they are found
    not_opened: dict[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> frozenset[str]:
        """Names that the user gives in `sources` or `dims`."""
        return frozenset(self.options.sources or ()) | self.dims.keys()

    def path_of(self, name: str) -> str:
        """Return the path from the root of what lies below the base."""
        return name if name[:1] == "/" else f"{self.base.name.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A dataset of an open file, or one field of its items, and what is said of it."""

    name: str  # what users call it
    path: str  # where it is below the base; of a field, where the table is
    # open as long as the file; None where it cannot be reached, a group for a sparse matrix
    dataset: Any = None
    address: int = 0
    outside: bool = False  # whether a link led out of the file
    why_not: str | None = None  # why it is not a source
    error: LabeledError | None = None  # set where it would be a source if it could be opened
    # which part of the items of a table is meant; None for whole items
    column: ItemPart | None = None
    scale: Scale | None = None  # set for dimension scales
    matrix: tuple[int, int] | None = None  # the shape of a sparse matrix
    axes: tuple[Axis, ...] = ()  # names of its axes that what lies around it tells
    # whether it holds the values of an axis of other datasets, so that it is a coordinate
    along: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it may become a source, as far as is known."""
        return self.why_not is None and self.scale is None and not self.along

    @property
    def item(self) -> np.dtype[Any]:
        """The dtype of an item, as far as it is meant."""
        items = item_of(self.dataset)
        return items if self.column is None else self.column.dtype_in(items)


Infos = list[ArrayInfo]


def arrays_of(opening: Opening) -> Infos:
    """Return every dataset below the base by its path, with all that conventions say of it."""
    infos: Infos = []
    indptrs: Infos = []
    for info in _walk(opening):
        infos += _kinds_of(info)
        scale = infos[-1].scale
        if info.outside and scale is not None:  # its own path is one of another file
            scale = replace(scale, path=opening.path_of(info.path))
            infos[-1] = replace(infos[-1], scale=scale)
            opening.scales.setdefault(info.address, scale)
        if info.name.endswith("/indptr") and infos[-1].is_array:
            indptrs.append(info)
    if indptrs:
        infos = _sparse_matrices(opening, infos, indptrs)
    if indptrs or b"obs" in opening.base.id:
        infos = _cells(opening, infos)
    names: dict[Any, list[str]] = {}
    for info in infos:
        if info.is_array and info.matrix is None:
            names.setdefault((info.address, info.column), []).append(info.name)
    for number, info in enumerate(infos):
        same = names.get((info.address, info.column), [])
        if len(same) > 1 and info.is_array and info.name not in opening.asked:
            # those that are asked for stay, and the least deep of the others, or the first
            best = min(same, key=lambda name: (name not in opening.asked, name.count("/"), name))
            if info.name != best:
                infos[number] = replace(info, why_not=f"it is another name of {best!r}")
    return infos


def _walk(opening: Opening) -> Iterator[ArrayInfo]:
    """Yield datasets, names in order; groups are entered once."""
    base, allow_external = opening.base, opening.options.allow_external
    entered = {address(base)}
    pending: list[tuple[str, h5py.Group, bool]] = [("", base, False)]
    while pending:
        prefix, group, outside = pending.pop()
        below: list[tuple[str, h5py.Group, bool]] = []
        links = group.id.links
        for raw in sorted(group.id):
            name = to_text(raw)
            path, beyond = prefix + name, outside
            shown = prefix + name.removeprefix(
                labels.NON_COORDINATE
            )  # the name a netCDF user knows
            try:
                if links.get_info(raw).type == h5py.h5l.TYPE_HARD:
                    thing = safety.open_object(group, raw)
                else:
                    thing, leads_out = safety.resolve(group, name, allow_external=allow_external)
                    beyond = outside or leads_out
            except (NotThereError, UnsafeFileError) as error:
                lost = None if type(error) is NotThereError else error
                yield ArrayInfo(shown, path, why_not=str(error), error=lost)
                continue
            at = address(thing)
            if isinstance(thing, h5py.Dataset):
                yield ArrayInfo(shown, path, thing, at, beyond)
            elif isinstance(thing, h5py.Group) and at not in entered:
                entered.add(at)
                if path != OWN or base.name != "/":  # checksums that this library wrote
                    below.append((path + "/", thing, beyond))
        pending.extend(reversed(below))


# what a dataset is


_CATEGORIES = re.compile(r"(?:.*/)?meta/[^/]+/meta/table")


def _kinds_of(info: ArrayInfo) -> Infos:
    """Return each field of a table, or the dataset itself: a scale, a source, or why it is none."""
    dataset, why_not = info.dataset, None
    if "/_i_" in f"/{info.path.rpartition('/')[0]}":
        why_not = "it is part of an index of PyTables"
    elif dataset is None:
        return [info]
    elif labels.short_attribute(dataset, "PSEUDOATOM") == "object":
        why_not = "PyTables keeps pickled objects there, which may run code when they are read"
    elif info.path.endswith("table") and _CATEGORIES.fullmatch(info.path):
        why_not = "it names categories of a column of pandas"
    elif h5py.h5a.exists(dataset.id, b"MATLAB_empty") and any(
        labels.attribute_numbers(dataset, "MATLAB_empty")
    ):
        why_not = "it is an empty array of MATLAB: its numbers are the lengths of that"
    if why_not is not None:
        return [replace(info, why_not=why_not, error=None)]
    why_not = why_not_a_source(dataset)
    if labels.short_attribute(dataset, "CLASS") == "DIMENSION_SCALE":
        scale = labels.scale_of(dataset)
        if scale.name in (SHAPES, SHAPE_LABELS):
            why_not = f"it holds the {scale.name!r} of a ragged source"
        elif not scale.has_values:
            why_not = None
        elif why_not is None and dataset.shape == ():
            why_not = "it is a scale of a single value"
        return [replace(info, scale=scale, why_not=why_not)]
    if why_not is None:
        return [info]
    item = item_of(dataset)
    if dataset.shape and item.subdtype is not None:
        return [replace(info, column=ItemPart())]
    if not dataset.shape or item.names is None:
        return [replace(info, why_not=why_not)]
    if varies(item):
        lost = NotYetError(f"table {info.name!r} in {dataset.file.filename!r}: {why_not}")
        return [replace(info, why_not=why_not, error=lost)]
    found = []
    for column, fault in columns_of(item):
        name = "/".join((info.name, *column.fields))
        found.append(replace(info, name=name, column=column, why_not=fault))
    return found


# sparse matrices, and files of cells


PARTS = ("data", "indices", "indptr")  # datasets of a sparse matrix

BY_COLUMNS = (
    "the sparse matrix %r is stored by columns (CSC), where no row can be read alone, and opens as "
    "the arrays it is made of; write it by rows: with AnnData, a.X = a.X.tocsr() and "
    "a.write_h5ad(NEW)"
)


def _sparse_matrices(opening: Opening, infos: Infos, indptrs: Infos) -> Infos:
    """Take each group that holds a sparse matrix for one source, and put its arrays aside."""
    matrices, parts = [], {}
    for info in indptrs:
        name = info.name.removesuffix("/indptr")
        group = opening.base[name]
        shape = _shape_of_matrix(group)
        kinds = (labels.short_attribute(group, key) for key in ("encoding-type", "h5sparse_format"))
        if shape is not None:
            outside = info.outside
            matrices.append(ArrayInfo(name, name, group, outside=outside, matrix=shape))
            for part in PARTS:
                parts[f"{name}/{part}"] = f"it is part of sparse matrix {name!r}"
        elif any(kind.removesuffix("_matrix") == "csc" for kind in kinds):
            opening.faults.append(BY_COLUMNS % name)
    return matrices + [
        replace(info, why_not=parts.get(info.name)) if info.is_array else info for info in infos
    ]


def _shape_of_matrix(group: h5py.Group) -> tuple[int, int] | None:
    """Return the shape of the matrix that a group holds by rows; None where it holds none."""
    data, indices, indptr = (member(group, name) for name in PARTS)
    for part, kinds in ((data, "biuf"), (indices, "iu"), (indptr, "iu")):
        if part is None or len(part.shape or ()) != 1 or part.dtype.kind not in kinds:
            return None
    shape = None
    written, barcodes = member(group, "shape"), member(group, "barcodes")
    for key, name in (("encoding-type", "shape"), ("h5sparse_format", "h5sparse_shape")):
        if key in group.attrs and name in group.attrs:
            if labels.short_attribute(group, key).removesuffix("_matrix") == "csr":
                shape = np.ravel(group.attrs[name]).tolist()
            break
    else:
        if written is not None and written.shape == (2,) and written.dtype.kind in "iu":
            n_features, n_cells = written[()].tolist()
            if barcodes is not None and barcodes.shape == (n_cells,):
                shape = [n_cells, n_features]
    if shape is None or len(shape) != 2 or data.shape != indices.shape:
        return None
    n_rows, n_columns = map(int, shape)
    return (n_rows, n_columns) if indptr.shape[0] == n_rows + 1 else None


def member(group: h5py.Group, name: str, kind: type = h5py.Dataset) -> Any:
    """Return what lies in a group itself; None behind links, which may lead out of the file."""
    raw = name.encode()
    if raw not in group.id or group.id.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
        return None
    thing = group[name]
    return thing if isinstance(thing, kind) else None


# a pattern of paths, and what their axes are called; those that it does not name are numbered
Rule = tuple[str, str]

ANNDATA: tuple[Rule, ...] = (
    ("X", "obs_names var_names"),
    ("layers/*", "obs_names var_names"),
    ("raw/X", "obs_names raw_var_names"),
    ("*/categories", "{group}"),
    ("*/__categories/*", "{name}"),
    ("raw/var/*", "raw_var_names"),
    ("obs/*", "obs_names"),
    ("var/*", "var_names"),
    ("obsm/*", "obs_names"),
    ("varm/*", "var_names"),
    ("obsp/*", "obs_names obs_names_2"),
    ("varp/*", "var_names var_names_2"),
)


def _rules_of(opening: Opening, infos: Infos) -> tuple[Sequence[Rule], str, dict[str, str]]:
    """Return what names axes in a file of cells, the example dim, and by dim where the names of
    genes are; no rules for other files."""
    base = opening.base
    if b"obs" in base.id:
        obs, var = (member(base, name, h5py.Group) for name in ("obs", "var"))
        kind = labels.short_attribute(base, "encoding-type")
        if obs is not None and var is not None:
            index = labels.short_attribute(var, "_index")
            if kind == "anndata" or (not kind and index and labels.short_attribute(obs, "_index")):
                found = {"var_names": f"var/{index or '_index'}"}
                return ANNDATA, "obs_names", found | {"raw_var_names": f"raw/{found['var_names']}"}
    names = {info.name for info in infos if info.is_array}
    for info in infos:
        m = info.name
        if info.matrix is not None and f"{m}/barcodes" in names:
            gene, ids = "feature", f"{m}/features/id"
            if ids not in names:
                gene, ids = "gene", f"{m}/genes"
            rules = ((m, f"barcode {gene}"), (f"{m}/barcodes", "barcode"), (f"{m}/*", gene))
            return rules, "barcode", {gene: ids}
    return (), "", {}


def _cells(opening: Opening, infos: Infos) -> Infos:
    """Name the axes of AnnData and 10x Genomics; names of genes are coordinates."""
    rules, cell, genes = _rules_of(opening, infos)
    if not rules:
        return infos
    arrays = {info.name: info for info in infos if info.is_array and info.column is None}
    shapes = {name: info.matrix or info.dataset.shape for name, info in arrays.items()}
    dims: dict[str, list[str]] = {}
    n_cells: Counter[int] = Counter()
    for name, shape in shapes.items():
        *_, group, last = ("", "", *name.split("/"))
        found = next((axes for rule, axes in rules if fnmatchcase(name, rule)), "")
        named = found.format(group=group, name=last).split()
        if len(named) <= len(shape):
            dims[name] = named + [f"{last}_axis_{axis}" for axis in range(len(named), len(shape))]
            if named[:1] == [cell]:
                n_cells[shape[0]] += 1
    lengths = {cell: max(n_cells, key=n_cells.__getitem__, default=0)}
    scales: dict[str, dict[str, Scale]] = {}
    for gene, ids in genes.items():
        name = ids if ids in shapes else f"{ids}/values"  # texts that may be missing are a group
        if len(shapes.get(name, ())) == 1:
            lengths[gene] = shapes[name][0]
            if name not in opening.asked:
                scales[gene] = {name: Scale(gene, arrays[name].dataset, opening.path_of(name))}
    along: set[str] = set()
    for name, named in dims.items():
        axes = []
        for axis, (length, dim) in enumerate(zip(shapes[name], named, strict=True)):
            if length != lengths.get(dim, length):  # it counts something else
                dim = f"{name.rpartition('/')[2]}_axis_{axis}"
            here = scales.get(dim, {}) if len(named) > 1 else {}
            along |= here.keys()
            axes.append(Axis(length, dim, (*here.values(),), counts_examples=dim == cell))
        arrays[name] = replace(arrays[name], axes=tuple(axes))
    for name in along:
        arrays[name] = replace(arrays[name], along=True)
    return [arrays.get(info.name, info) for info in infos]


# groups and datasets that are alike


MIN_ALIKE = 3  # groups with the same sources that are taken for examples of one kind

# datasets side by side that are taken for one example each; a table has fewer columns
MIN_DATASETS = 50

MAX_NAMED = 4  # sources of such groups that a note names

ROOT_NAME = "x"  # what the source is called whose examples are datasets at the root of the file


def is_pattern(base: h5py.Group, group: str) -> bool:
    """Whether a name means groups by a pattern; one that is there is meant as it is."""
    return has_magic(group) and group not in base


def matching(base: h5py.Group, pattern: str, *, allow_external: bool) -> dict[str, FoundObject]:
    """Return the groups and datasets that a pattern matches, by path in natural order."""
    found = {"": FoundObject(base, False)}
    for part in filter(None, pattern.split("/")):
        found = {
            f"{path}/{name}".lstrip("/"): FoundObject(below.thing, above.outside or below.outside)
            for path, above in found.items()
            if isinstance(above.thing, h5py.Group)
            for name in sorted(map(to_text, above.thing.id), key=natural)
            if fnmatchcase(name, part)
            for below in (find(above.thing, name, allow_external=allow_external),)
            if isinstance(below.thing, h5py.Group | h5py.Dataset)
        }
    return found


def how_to_join(sources: Mapping[str, SourceHeader], nameless: Collection[str]) -> str | None:
    """Return advice where most sources are alike: in groups, or side by side; None elsewhere.

    An axis 0 that has a name counts examples, so that datasets are examples only among the
    `nameless`.
    """
    found = _alike(sources, nameless)
    if found is None:
        return None
    pattern, names, ends = found
    n = len(names)
    if ends == [""]:
        return (
            f" holds {n:,} datasets alike, {names[0]!r} to {names[-1]!r}. If each of them is one "
            f"example: examples={pattern!r} when opening it"
        )
    few = ", ".join(map(repr, ends[:MAX_NAMED])) + ", ..." * (len(ends) > MAX_NAMED)
    one = f"{pattern.rpartition('/')[0]}/{names[0]}".lstrip("/")
    return (
        f" holds the same sources ({few}) in {n:,} groups; group={pattern!r} joins them, rows "
        "after rows, as if they were files, and leaves single values out; "
        f"group={one!r} opens one of them. If each group is one example: examples={pattern!r} "
        "when opening it"
    )


def pattern_of_datasets(sources: Mapping[str, SourceHeader]) -> str | None:
    """Return what matches the datasets alike that most sources are; None where they are not."""
    found = _alike(sources, sources)
    return found[0] if found is not None and found[2] == [""] else None


def _alike(
    sources: Mapping[str, SourceHeader], nameless: Collection[str]
) -> tuple[str, list[str], list[str]] | None:
    """Return a pattern of what lies side by side in a group and holds sources of the same names
    and kinds, what lies there, and what these names end in (``""`` for datasets), where that makes
    most of the sources. A pattern is how all names begin, up to the first digit.

    Datasets of one axis, which may be columns, are alike only if their names differ by digits
    alone.
    """
    for depth in range(1 + max((name.count("/") for name in sources), default=0)):
        held: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
        for name, header in sources.items():
            parts = name.split("/")
            if len(parts) > depth + 1 or (len(parts) == depth + 1 and name in nameless):
                end = "/".join(parts[depth + 1 :])
                kind = end, header.dtype.str, len(header.shape)
                held.setdefault(("/".join(parts[:depth]), parts[depth]), []).append(kind)
        alike: dict[Any, list[str]] = {}
        for (parent, child), kinds in held.items():
            is_column = kinds[0][0] == "" and kinds[0][2] == 1
            stem = re.sub("[0-9]+", "", child) if is_column else None
            alike.setdefault((parent, stem, tuple(sorted(kinds))), []).append(child)
        for (parent, _, kinds), names in alike.items():
            ends = [end for end, *_ in kinds]
            enough = MIN_DATASETS if ends == [""] else MIN_ALIKE
            if len(names) >= enough and 2 * len(names) * len(ends) > len(sources):
                same = os.path.commonprefix(names)  # noqa: RUF071 (of characters)
                pattern = f"{parent}/{re.split('[0-9]', same)[0]}*".lstrip("/")
                return pattern, sorted(names, key=natural), ends
    return None


def name_of(part: str, pattern: str) -> str:
    """Return what a source is called whose examples a pattern matches, or a part of each.

    Examples
    --------
    >>> name_of("obs/image", "demo_*"), name_of("", "data/*"), name_of("", "*")
    ('obs/image', 'data', 'x')
    """
    above = pattern.strip("/").rpartition("/")[0].rpartition("/")[2]
    return part or (ROOT_NAME if not above or has_magic(above) else above)
