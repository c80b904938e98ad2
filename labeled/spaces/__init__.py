"""Spaces and specs: what a consumer wants one batch to look like, and the way there.

A space says how a batch looks; specs, a ``(space, source)`` pair, say also which data it is of.
"""

from labeled.spaces import routes  # noqa: F401 (fills the table of routes)
from labeled.spaces.arrays import canonical_axes as canonical_axes
from labeled.spaces.base import ArraySpace as ArraySpace
from labeled.spaces.base import Space as Space
from labeled.spaces.compiled_specs import CompiledSpecs as CompiledSpecs
from labeled.spaces.compiled_specs import SourceInfo as SourceInfo
from labeled.spaces.compiled_specs import compile_specs as compile_specs
from labeled.spaces.compiled_specs import row_space as row_space
from labeled.spaces.dataarrays import format_dataarray as format_dataarray
from labeled.spaces.dataarrays import undo_format as undo_format
from labeled.spaces.kinds import CompositeSpace as CompositeSpace
from labeled.spaces.kinds import Conv2DSpace as Conv2DSpace
from labeled.spaces.kinds import ConvNDSpace as ConvNDSpace
from labeled.spaces.kinds import IndexSequenceSpace as IndexSequenceSpace
from labeled.spaces.kinds import IndexSpace as IndexSpace
from labeled.spaces.kinds import NullSpace as NullSpace
from labeled.spaces.kinds import VectorSequenceSpace as VectorSequenceSpace
from labeled.spaces.kinds import VectorSpace as VectorSpace
from labeled.spaces.kinds import space_of as space_of
from labeled.spaces.specs import DataSpecsMapping as DataSpecsMapping
from labeled.spaces.specs import combine as combine
