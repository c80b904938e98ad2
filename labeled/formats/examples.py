"""What readers of examples of different shapes have in common, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.formats.header import SourceHeader
from labeled.formats.reader import describe, native


@dataclass(frozen=True, eq=False)
class ExampleReader:
    """The part of a :class:`~labeled.ragged.RaggedReader` that the header of its source gives."""

    source: SourceHeader

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_axes(self) -> int:
        return len(self.source.dims) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        cf = self.source.cf
        return native(self.source.dtype) if cf is None else cf.dtype

    @property
    def where(self) -> str:
        return describe(self.source)
