"""Axes that nobody names in the file, but whose program always means the same by them.

AnnData keeps cells by genes (``X``, `layers`; ``obs`` tells of cells, ``var`` of genes: its own
words for the two axes are `obs_names` and `var_names`), 10x Genomics barcodes by features, and
Imaris pictures by ``z, y, x``. HDF-EOS5 has one text that names the dims of every field, loom genes
by cells, openPMD lists the axes of a mesh beside it, H5MD keeps times by particles, and NWB says of
each group which kind it is.

A program is known by what it writes at the root, never by the name of a file. Where one kind of
row is what such a file is about, its dim is the example dim: what lies along others is carried
whole, instead of standing beside the examples as if it were some.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import h5py
import numpy as np

from labeled.formats.hdf5.labels import default_name, short_attribute
from labeled.formats.hdf5.safety import to_text
from labeled.formats.hdf5.sparse import member

MOST_TEXT = 1 << 20
"""Characters of a text that is looked through; those of HDF-EOS5 have 32,000."""

Names = tuple[str, ...]
"""One an axis; ``""`` for an axis that is not known."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a program means by the axes of its datasets.

    `scales` are datasets that hold the values of a dim, such as names of genes, and `lists` are
    two datasets that are one, both by path.
    """

    names: Mapping[str, Names] = field(default_factory=dict)
    example_dim: str | None = None
    scales: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    """Values of one list after another, and where each list ends."""
    note: str | None = None


def told_by_program(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told:
    """Return what the program that wrote a group means by the axes of its arrays.

    Parameters
    ----------
    base : h5py.Group
        What paths are relative to.
    shapes : mapping of path to shape
        Of datasets, and of sparse matrices by the path of their group.
    """
    for told in (_anndata, _tenx, _loom, _imaris, _hdfeos, _openpmd, _h5md, _nwb):
        found = told(base, shapes)
        if found is not None:
            fitting = {n: d for n, d in found.names.items() if len(d) == len(shapes.get(n, ()))}
            return replace(found, names=_agreeing(fitting, found.example_dim, shapes))
    return Told()


def _root(base: h5py.Group) -> h5py.Group:
    """Return the root of a group's file; of a root, what was given: every file asks three times."""
    return base if base.name == "/" else base.file["/"]


def _agreeing(
    names: Mapping[str, Names], example_dim: str | None, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, Names]:
    """Take the example dim from arrays that are not as long as most that have it."""
    along = [name for name, dims in names.items() if dims[:1] == (example_dim,)]
    usual = Counter(shapes[name][0] for name in along).most_common(1)
    odd = [name for name in along if shapes[name][0] != usual[0][0]]
    last = {name: name.rpartition("/")[2] for name in odd}
    return {**names, **{name: (f"{last[name]}_axis_0", *names[name][1:]) for name in odd}}


def _group_in(base: h5py.Group, name: str) -> h5py.Group | None:
    """Return a group that lies in another itself; links may lead out of the file."""
    raw = name.encode()
    if raw not in base.id or base.id.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
        return None
    thing = base[name]
    return thing if isinstance(thing, h5py.Group) else None


def _text_dataset(base: h5py.Group, path: str) -> str | None:
    """Return the one text in a dataset, in or below a group."""
    *groups, last = path.split("/")
    for name in groups:
        below = _group_in(base, name)
        if below is None:
            return None
        base = below
    found = member(base, last)
    if found is None or found.dtype.kind not in "SO" or found.size != 1:
        return None
    if found.dtype.itemsize > MOST_TEXT:
        return None
    value: Any = np.ravel(found[()])[0]
    return to_text(value) if isinstance(value, bytes | str) else None


# cells


def _anndata(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    obs, var = (_group_in(base, name) for name in ("obs", "var"))
    if obs is None or var is None:
        return None
    said = short_attribute(base, "encoding-type")
    if said == "MuData":
        kept = "MuData keeps each kind of measurement in a group of its own below 'mod'"
        return Told(note=f"{kept}; open one of them: group='mod/NAME'")
    if said != "anndata" and (said or not all(short_attribute(t, "_index") for t in (obs, var))):
        return None
    index = f"var/{short_attribute(var, '_index') or '_index'}"
    there = [one for one in (index, f"{index}/values") if len(shapes.get(one, ())) == 1]
    scales = {"var_names": there[0]} if there else {}  # texts that may be missing are a group
    names = {path: _anndata_names(path.split("/"), len(shape)) for path, shape in shapes.items()}
    return Told(names, "obs_names", scales)


def _anndata_names(parts: list[str], n_axes: int) -> Names:
    """Return what the axes of an array in a file of AnnData are."""
    match parts:
        case ["X"] | ["layers", _]:
            return ("obs_names", "var_names")
        case ["raw", "X"]:
            return ("obs_names", "raw_var_names")
        case [*_, column, "categories"] | [*_, "__categories", column]:
            return (column,)
        case ["raw", "var", *_]:
            return ("raw_var_names",)
        case ["obs" | "var" as along, *_]:
            return (f"{along}_names",)
        case ["obsm" | "varm" as kind, *_, last]:
            return (f"{kind[:3]}_names", *(f"{last}_axis_{axis}" for axis in range(1, n_axes)))
        case ["obsp" | "varp" as kind, _]:
            return (f"{kind[:3]}_names", f"{kind[:3]}_names_2")
        case _:
            return tuple(f"{parts[-1]}_axis_{axis}" for axis in range(n_axes))


def _tenx(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    """Return what 10x Genomics means: one group with barcodes, features and a matrix."""
    for path, shape in shapes.items():
        cells, begin = f"{path}/barcodes", f"{path}/"
        if len(shape) == 2 and shapes.get(cells) == shape[:1]:
            kind = "feature" if f"{begin}features/id" in shapes else "gene"
            ids = f"{begin}features/id" if kind == "feature" else f"{begin}genes"
            names: dict[str, Names] = {
                name: (kind if length == shape[1:] else f"{name.rpartition('/')[2]}_axis_0",)
                for name, length in shapes.items()
                if name.startswith(begin)
            }
            scales = {kind: ids} if shapes.get(ids) == shape[1:] else {}
            names |= {path: ("barcode", kind), cells: ("barcode",)}
            return Told(names, "barcode", scales)
    return None


def _loom(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    """Return what loom means: genes by cells, each told of in a group of its own."""
    along = {"row_attrs": "gene", "col_attrs": "cell"}
    if len(shapes.get("matrix", ())) != 2 or not all(_group_in(base, name) for name in along):
        return None
    names: dict[str, Names] = {}
    for path, shape in shapes.items():
        first, _, last = path.partition("/")
        if first in along:
            names[path] = (along[first], *(f"{last}_axis_{axis}" for axis in range(1, len(shape))))
        elif first in ("matrix", "layers"):
            names[path] = ("gene", "cell")
    ids = {"gene": "row_attrs/Gene", "cell": "col_attrs/CellID"}
    return Told(
        names,
        scales={dim: path for dim, path in ids.items() if path in shapes},
        note="loom keeps a cell in every column; for cells as rows write them so: "
        "labeled.write('cells.hdf5', {'matrix': ds['matrix'].T})",
    )


# pictures of microscopes, fields of satellites and of simulations


def _imaris(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    if "ImarisDataSet" not in _root(base).attrs:
        return None
    begin = base.name.strip("/")
    level = re.compile(r"DataSet\w*/ResolutionLevel \d+/TimePoint \d+/Channel \d+/Data")
    names = {p: ("z", "y", "x") for p in shapes if level.fullmatch(f"{begin}/{p}".strip("/"))}
    first = "" if begin else min(names, default="")
    group = re.sub(r"TimePoint \d+", "TimePoint *", first).removesuffix("/Data")
    note = (
        f"Imaris keeps each channel, time and resolution apart; group={group!r} opens one channel "
        "at full resolution, the slices of all times after one another"
    )
    return Told(names, note=note if first else None)


def _hdfeos(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    text = _text_dataset(_root(base), "HDFEOS INFORMATION/StructMetadata.0")
    if text is None:
        return None
    begin = base.name.strip("/")
    told = dict(_eos_fields(text))
    return Told({p: told.get(f"{begin}/{p}".strip("/"), ()) for p in shapes})


_EOS_LINE = re.compile(r'^[ \t]*(\w+)=(?:"([^"\n]*)"|(\([^)\n]*\)))', re.MULTILINE)
_EOS_KINDS = {"SwathName": "SWATHS", "GridName": "GRIDS", "ZaName": "ZAS"}


def _eos_fields(text: str) -> Iterator[tuple[str, Names]]:
    """Yield the paths of fields that a text of HDF-EOS5 describes, and the names of their axes."""
    where, name = "", ""
    for key, quoted, several in _EOS_LINE.findall(text):
        if key in _EOS_KINDS:
            where = f"HDFEOS/{_EOS_KINDS[key]}/{quoted}"
        elif key in ("GeoFieldName", "DataFieldName"):
            kind = "Geolocation Fields" if key == "GeoFieldName" else "Data Fields"
            name = f"{where}/{kind}/{quoted}"
        elif key == "DimList" and name:
            yield name, tuple(re.findall(r'"([^"]*)"', several))
            name = ""


def _openpmd(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    """Return what openPMD means: meshes whose group, or which themselves, list their axes."""
    if "openPMD" not in _root(base).attrs:
        return None
    names: dict[str, Names] = {}
    for path, shape in shapes.items():
        record, _, component = path.rpartition("/")
        holder = base[record] if record else base
        itself = member(holder, component)
        mesh = holder if itself is None or "axisLabels" not in itself.attrs else itself
        labels = [to_text(one) for one in np.ravel(mesh.attrs.get("axisLabels", ()))]
        if labels:
            names[path] = tuple(reversed(labels) if _is_fortran(mesh) else labels)
        elif len(shape) == 1:
            names[path] = ("particle",)
    return Told(names)


def _h5md(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    """Return what H5MD means: values at times, those of particles one particle after another."""
    if _group_in(_root(base), "h5md") is None:
        return None
    begin = base.name.strip("/")
    names: dict[str, Names] = {}
    for path, shape in shapes.items():
        kind, *inside = f"{begin}/{path}".strip("/").split("/")
        if kind not in ("particles", "observables") or not inside:
            continue
        at_times = inside[-1] in ("value", "step", "time")
        what = inside[-2] if inside[1:] and at_times else inside[-1]
        of_particles = kind == "particles" and "box" not in inside
        known = ("time",) * at_times + ("particle",) * of_particles
        named = range(len(known), len(shape))
        names[path] = (*known[: len(shape)], *(f"{what}_axis_{axis}" for axis in named))
    return Told(names)


def _is_fortran(mesh: h5py.Group | h5py.Dataset) -> bool:
    """Whether the axes of a mesh are listed from the fastest on."""
    return short_attribute(mesh, "dataOrder") == "F"


# recordings of neurons

_NWB_AXES: Mapping[str, Names] = {
    "ElectricalSeries": ("time", "channel"),
    "SpatialSeries": ("time", "coordinate"),
    "RoiResponseSeries": ("time", "roi"),
    "DecompositionSeries": ("time", "channel", "band"),
    "ImageSeries": ("time", "x", "y", "z"),
    "OnePhotonSeries": ("time", "x", "y", "z"),
    "TwoPhotonSeries": ("time", "x", "y", "z"),
    "TimeSeries": ("time",),
}
"""Axes of the array `data` of a group, by its kind; those of other series begin with time."""


def _nwb(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Told | None:
    if not short_attribute(_root(base), "nwb_version"):
        return None
    names: dict[str, Names] = {}
    lists: dict[str, str] = {}
    for path, shape in shapes.items():
        group, _, last = path.rpartition("/")
        holder = base[group] if group else base
        kind = short_attribute(holder, "neurodata_type")
        if "colnames" in holder.attrs:
            rows = _nwb_rows(holder, path, shapes)
            names[path] = (rows, *(default_name(path, axis) for axis in range(1, len(shape))))
            ends = shapes.get(f"{path}_index", ())
            if len(shape) == len(ends) == 1 and f"{path}_index_index" not in shapes:
                lists[path] = f"{path}_index"
        elif last == "timestamps":
            names[path] = ("time",)
        elif last == "data" and ("timestamps" in holder or "starting_time" in holder):
            names[path] = (*_NWB_AXES.get(kind, ("time",)), *[""] * len(shape))[: len(shape)]
    return Told(names, lists=lists)


def _nwb_rows(table: h5py.Group, path: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return what the rows of a column are: those of its table, or values of many rows."""
    if f"{path}_index" in shapes:
        return f"{path.rpartition('/')[2]}_axis_0"
    return f"{to_text(table.name).rpartition('/')[2]}_id"
