"""A dataset on many machines: whole loaders on workers, and what comes of them put together.

Datasets and lazy arrays travel as paths; every worker opens the files itself.
"""

from labeled.cluster.client import check_files, cuda_cluster, local_cluster
from labeled.cluster.parts import run_parts, statistics
from labeled.cluster.writing import write

__all__ = ["check_files", "cuda_cluster", "local_cluster", "run_parts", "statistics", "write"]
