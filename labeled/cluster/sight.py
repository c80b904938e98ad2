"""Whether workers see the files: asked before long work, answered by name."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import distributed

from labeled.cluster.door import (
    Reached,
    WorkerInfo,
    addresses_of,
    connected,
    fitting,
    paused_of,
    sent,
)
from labeled.dataset.dataset import Dataset
from labeled.errors import ClusterError
from labeled.version import VERSION

MOST_NAMED = 8
PAUSED = "it is paused, because its memory is nearly full, and begins nothing"
ASK_S = 2.0


def check_files(
    client: Reached,
    dataset: Dataset,
    *,
    workers: Sequence[str] | None = None,
) -> None:
    """Have every worker open the files of a dataset, and compare them with those opened here.

    Parameters
    ----------
    client : distributed.Client, cluster or str
        Or the address of a scheduler.
    dataset : Dataset
    workers : sequence of str, optional
        Names or addresses of those asked; all of them by default.

    Raises
    ------
    ClusterError
        Names the workers that cannot read the files, and what each of them says; or there
        are no workers.
    """
    check_dataset(dataset)
    with connected(client) as at:
        asked = fitting(at, workers, {})
        if not asked:
            raise ClusterError(no_workers(workers, {}))
        blind = blind_workers(at, dataset, asked.values())
        if blind:
            raise ClusterError(blind_words(blind, len(asked)))


def check_dataset(dataset: Any) -> None:
    """Raise :class:`ClusterError` unless workers can open the files they are to read."""
    if not isinstance(dataset, Dataset):
        raise ClusterError(
            f"workers open files by themselves: give what labeled.open_dataset returns, not "
            f"{type(dataset).__module__.partition('.')[0]}'s {type(dataset).__name__}. "
            "cluster.write makes a file of arrays and xarray objects"
        )


def blind_workers(
    client: distributed.Client, dataset: Dataset, workers: Iterable[WorkerInfo]
) -> dict[WorkerInfo, str]:
    """Ask workers to open the files; return what those say that cannot, if still there."""
    return ask(client, workers, _look, dataset, versions())


def ask(
    client: distributed.Client,
    workers: Iterable[WorkerInfo],
    question: Callable[..., str | None],
    *args: Any,
) -> dict[WorkerInfo, str]:
    """Ask workers what is wrong; return what those say that have something, if still there."""
    asked = {worker: sent(client, worker, question, *args) for worker in workers}
    said = {worker: _answer(client, worker, future) for worker, future in asked.items()}
    return {worker: words for worker, words in said.items() if words is not None}


class Question:
    """Whether a worker reads the files of a dataset, asked without waiting for the answer.

    A worker that has other work comes to it when that is done.
    """

    def __init__(self, client: distributed.Client, worker: WorkerInfo, dataset: Dataset) -> None:
        self._client, self.worker = client, worker
        self._future = sent(client, worker, _look, dataset, versions())

    @property
    def answered(self) -> bool:
        return bool(self._future.done())

    def words(self) -> str | None:
        """Return what is wrong, if something is."""
        return _answer(self._client, self.worker, self._future)


def versions() -> dict[str, str]:
    """Return what must be alike for work to travel, and mean the same where it is done."""
    found = platform.python_version_tuple()
    return {"labeled": VERSION, "Python": f"{found[0]}.{found[1]}"}


def _answer(client: distributed.Client, worker: WorkerInfo, future: Any) -> str | None:
    """Wait for what a worker says, as long as it is there."""
    while True:
        try:
            words: str | None = future.result(timeout=ASK_S)
            return words
        except TimeoutError:
            if worker.address not in addresses_of(client):
                return None  # gone, and no worker any more
            if worker.address in paused_of(client):
                future.cancel()
                return PAUSED
        except Exception as error:  # it cannot even take the question: another version, perhaps
            return f"{type(error).__name__}: {error}"


def other_version(wanted: Mapping[str, str]) -> str | None:
    """Compare versions on a worker; return what is wrong, if something is."""
    here = versions()
    for name, version in wanted.items():
        if here[name] != version:
            return f"it has {name} {here[name]}, and {version} asks; install the same"
    return None


def _look(dataset: Dataset, wanted: Mapping[str, str]) -> str | None:
    """Open the files on a worker; return what is wrong, if something is."""
    other = other_version(wanted)
    if other is not None:
        return other
    try:
        dataset.files.check_times()  # and opens them
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def blind_words(
    blind: Mapping[WorkerInfo, str],
    n_asked: int,
    what: str = "read the files of this dataset",
    remedy: str = (
        "put the files where every worker finds them under the same path (paths travel, not "
        "rows), or name the workers to use with workers="
    ),
) -> str:
    """Say who cannot do what."""
    lines = [f"  worker {worker}: {words}" for worker, words in list(blind.items())[:MOST_NAMED]]
    if len(blind) > MOST_NAMED:
        lines.append(f"  and {len(blind) - MOST_NAMED} more")
    return "\n".join(
        [
            f"{len(blind)} of {n_asked} workers cannot {what}:",
            *lines,
            remedy,
        ]
    )


def no_workers(workers: Sequence[str] | None, resources: Mapping[str, Any]) -> str:
    """Say that nobody is there to work."""
    named = "" if workers is None else f" among {list(workers)}"
    having = f" that has resources {dict(resources)}" if resources else ""
    return (
        f"the cluster has no worker{named}{having}; start some (an adaptive cluster has some from "
        "the beginning with adapt(minimum=...)), or correct what was asked for"
    )
