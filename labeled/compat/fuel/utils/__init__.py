"""What old code imported from here: subsets, lazy attributes, paths of data."""

from labeled.compat.fuel.utils.lazy import do_not_pickle_attributes
from labeled.compat.fuel.utils.paths import find_in_data_path
from labeled.compat.fuel.utils.subset import Subset

__all__ = ["Subset", "do_not_pickle_attributes", "find_in_data_path"]
