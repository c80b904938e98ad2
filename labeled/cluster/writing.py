"""Writing with the workers of a cluster: they read, compute and compress; one process stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import distributed

from labeled.api.dataset import Dataset
from labeled.cluster.door import connected, workers_of
from labeled.cluster.sight import check_files, no_workers
from labeled.errors import ClusterError
from labeled.writing.write import Path
from labeled.writing.write import write as write_here


def write(
    client: distributed.Client | str,
    path: Path,
    sources: Any,
    splits: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Write a file of examples whose dask blocks are computed and compressed on a cluster.

    Blocks come back to this process, which alone writes to the file, in order: equal input
    gives equal bytes wherever it was computed. A block whose worker is lost is computed
    again. What is worth a cluster is computing and compressing; rows that are only copied
    are faster written here.

    Parameters
    ----------
    client : distributed.Client or str
        Or the address of a scheduler.
    path, sources, splits, **options
        As for :func:`labeled.write`. The files of a Dataset must lie under the same paths
        on every worker. `memory` bounds the rows on their way, over all workers; by
        default 64 MiB for each of their threads.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ClusterError
        If there are no workers, or some cannot see the files; they are named.
    """
    with connected(client) as at:
        if not workers_of(at):
            raise ClusterError(no_workers(None, {}))
        if isinstance(sources, Dataset):
            check_files(at, sources)
        threads = sum(at.nthreads().values())
        known = {"memory": threads << 26, "threads": min(threads, 64)}
        with at.as_current():
            return write_here(path, sources, splits, **{**known, **options})
