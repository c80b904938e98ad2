"""Values of variables without axes: one value, read at once through h5py.

Such a variable (a projection, the one height of a whole grid) has no rows, so none of the
readers of rows applies; there is nothing to be lazy about either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import FileChangedError
from labeled.formats.bytesource import stamp_of
from labeled.formats.hdf5.door import opened
from labeled.formats.hdf5.safety import resolve
from labeled.formats.header import SourceHeader


def read_scalar(header: SourceHeader) -> npt.NDArray[Any]:
    """Return the stored value of a dataset without axes, as an array without axes.

    Raises
    ------
    FileChangedError
        If the file is no longer the one that was opened.
    """
    path = header.file.path
    with opened(path) as file:
        found = resolve(file, header.key, allow_external=header.storage == "external").thing
        value = found[()]
    if stamp_of(path) != header.file:
        raise FileChangedError(f"file {path!r} changed since it was opened; open it again")
    return np.asarray(value, header.dtype).astype(header.dtype.newbyteorder("="), copy=False)
