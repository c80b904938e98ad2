"""Arrays in memory, each in a space of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.compat.errors import require
from labeled.compat.pylearn2.datasets.dataset import Dataset, pairs_of
from labeled.compat.pylearn2.utils.data_specs import is_flat_specs
from labeled.compat.pylearn2.utils.rng import make_np_rng

DEFAULT_RNG = (17, 2, 946)
"""What every dataset drew from when no generator was given."""


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

    _default_seed = DEFAULT_RNG

    def __init__(self, data: Any, data_specs: Any, rng: Any = DEFAULT_RNG) -> None:
        require(is_flat_specs(data_specs), f"data_specs must be flat, found {data_specs}")
        source = data_specs[1]
        if isinstance(source, tuple | list):
            require(len(set(source)) == len(source), f"a source is named twice in {source}")
        space = data_specs[0]
        space.np_validate(data)
        arrays = data if isinstance(data, tuple) else (data,)
        lengths = {array.shape[0] for array in arrays}
        require(len(lengths) == 1, f"the arrays hold {sorted(lengths)} examples along axis 0")
        self.data, self.data_specs = data, data_specs
        self.rng = make_np_rng(rng, which_method=["randint"])

    def get_data_specs(self) -> Any:
        return self.data_specs

    def get_data(self) -> Any:
        return self.data

    def set_data(self, data: Any, data_specs: Any) -> None:
        """Put other data in place of what there is."""
        data_specs[0].np_validate(data)
        self.data, self.data_specs = data, data_specs

    def get_num_examples(self) -> int:
        return int(np.shape(self.data[0])[0])

    def get(self, sources: tuple[str, ...], indexes: Any) -> tuple[Any, ...]:
        """Return the rows of some sources."""
        arrays = self.data if isinstance(self.data, tuple) else (self.data,)
        by_name = dict(zip([name for _, name in pairs_of(self.data_specs)], arrays, strict=True))
        return tuple(by_name[name][indexes] for name in sources)
