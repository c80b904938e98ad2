"""The one door to dask.distributed and dask-cuda: clusters, clients, and what workers say.

Whatever is started here listens on this machine only: a scheduler or a worker runs what
anybody who reaches it sends. Datasets travel as paths, so workers are asked whether they see
the files before long work begins, and those that do not are named.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import dask
import distributed
from distributed.deploy.cluster import Cluster

from labeled._optional import extra_module
from labeled.dataset.dataset import Dataset
from labeled.errors import ClusterError
from labeled.version import VERSION

LOOPBACK = "127.0.0.1"
CONNECT_S = 10.0

Question: TypeAlias = Callable[..., str | None]
# what leads to a scheduler: a client, a cluster, or an address
Reached: TypeAlias = distributed.Client | Cluster | str
Names = Sequence[str] | None  # of workers, or their addresses; all of them when None
Needs = Mapping[str, float] | None  # resources that a worker must have

MAX_NAMED = 8


@dataclass(frozen=True)
class Worker:
    """A worker as messages name it."""

    address: str
    name: str
    host: str

    def __str__(self) -> str:
        return f"{self.name!r} ({self.address}, host {self.host})"


def local_cluster(n_workers: int | None = None, **options: Any) -> distributed.LocalCluster:
    """Start worker processes on this machine, one thread each, reachable from here only.

    Parameters
    ----------
    n_workers : int, optional
        From the cores when not given.
    **options
        As for :class:`distributed.LocalCluster`.

    Returns
    -------
    distributed.LocalCluster
        A context manager; its workers end with it.
    """
    known: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": f"{LOOPBACK}:0"}
    if options.get("processes", True):
        known["host"] = LOOPBACK
    else:
        known["worker_dashboard_address"] = f"{LOOPBACK}:0"
    return distributed.LocalCluster(n_workers=n_workers, **{**known, **options})


def cuda_cluster(**options: Any) -> Any:
    """Start one worker a GPU of this machine, each with its own device and ``{"GPU": 1}``.

    It has run with one worker, on an H200; not with several GPUs yet.

    Parameters
    ----------
    **options
        As for :class:`dask_cuda.LocalCUDACluster`: ``CUDA_VISIBLE_DEVICES`` chooses devices,
        ``rmm_pool_size`` makes a pool (which CuPy uses with
        ``rmm_allocator_external_lib_list=["cupy"]``), ``device_memory_limit`` says from where on
        what dask holds is moved to the host.

    Returns
    -------
    dask_cuda.LocalCUDACluster
        Each worker sees its GPU as device 0, so ``device="cuda"`` is right on all of them.

    Raises
    ------
    MissingExtraError
        If dask-cuda is not installed.
    NVMLError
        If there is no NVIDIA driver or no GPU.
    """
    needed = "a worker a GPU needs dask-cuda and CuPy (for CUDA 13, or 12 to match the driver)"
    dask_cuda = extra_module("dask_cuda", needed, "dask-cuda cupy-cuda13x", "gpu-cu13")
    known = {"host": LOOPBACK, "dashboard_address": f"{LOOPBACK}:0", "resources": {"GPU": 1}}
    return dask_cuda.LocalCUDACluster(**{**known, **options})


@contextmanager
def connected(client: Reached) -> Iterator[distributed.Client]:
    """Yield a client, connected for as long as needed where a cluster or its address is given.

    Raises
    ------
    ClusterError
        If nobody answers at the address, or nobody does any more where something went wrong, or
        the client was closed.
    """
    reached = _connect(client) if isinstance(client, str | Cluster) else nullcontext(client)
    with reached as client:
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise ClusterError(
                f"{type(client).__name__} is not a client that can be waited for; pass a "
                "distributed.Client that is not asynchronous, a cluster, or a scheduler's address"
            )
        try:
            yield client
        except Exception as error:  # futures cancelled, connections reset, workers gone
            if _answers(client):
                raise
            raise ClusterError(
                f"the scheduler at {client.scheduler and client.scheduler.address} no longer "
                "answers, or the client was closed in the middle of its work; leave it open until "
                f"the call returns, or start the cluster again ({type(error).__name__}: {error})"
            ) from error


def _connect(client: Cluster | str) -> distributed.Client:
    """Return a new client, or close it before saying that nobody answered.

    A client that failed while it was made lives on in the error's frames. Left to the garbage
    collector it closes itself at any moment, and for ever when that is inside the lock under
    which distributed starts a cluster.
    """
    made = distributed.Client.__new__(distributed.Client)
    try:
        distributed.Client.__init__(made, client, set_as_default=False, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        made.close()
        raise ClusterError(f"no scheduler answers at {client!r}: {error}") from error
    return made


def _answers(client: distributed.Client) -> bool:
    """Whether the scheduler is there, and the client connected to it."""
    scheduler: Any = client.scheduler
    with suppress(Exception):  # closed, reset, refused, or in the middle of being closed
        client.sync(scheduler.identity, callback_timeout=CONNECT_S)
        return bool(client.status == "running")
    return False


def workers_of(
    client: distributed.Client, named: Names = None, resources: Needs = None, required: bool = False
) -> dict[str, Worker]:
    """Return the workers there are now that may be used, by address.

    One that is paused, because its memory is nearly full, begins nothing and counts as gone. The
    scheduler is asked itself: `client.scheduler_info` returns a field, into which the client
    puts an answer without workers every two seconds, also just before the field is read.

    Parameters
    ----------
    named : Names
    resources : Needs
    required : bool
        Raise :class:`ClusterError` where there are none.
    """
    scheduler: Any = client.scheduler
    found = {}
    for address, info in client.sync(scheduler.identity, n_workers=-1)["workers"].items():
        offered = info.get("resources") or {}
        has_all = all(offered.get(name, 0) >= need for name, need in (resources or {}).items())
        name = str(info["name"])
        chosen = named is None or address in named or name in named
        if has_all and chosen and info.get("status") != "paused":
            found[address] = Worker(address, name, str(info["host"]))
    if required and not found:
        among = "" if named is None else f" among {list(named)}"
        having = f" that has resources {dict(resources)}" if resources else ""
        raise ClusterError(
            f"the cluster has no worker{among}{having}; start some (an adaptive cluster has some "
            "from the beginning with adapt(minimum=...)), or correct what was asked for"
        )
    return found


def large_graphs() -> AbstractContextManager[Any]:
    """Send what is large without dask's advice to load data with dask, which would be none.

    Datasets of listed rows take eight bytes a row, and have to go there.
    """
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})


@contextmanager
def reports_of(run: str, client: distributed.Client) -> Iterator[distributed.Queue]:
    """Yield the queue on which workers report; if something goes wrong here, they are to stop."""
    reports = distributed.Queue(run, client=client)
    try:
        yield reports
    except BaseException:
        with suppress(Exception):  # the scheduler may be what failed
            distributed.Event(f"{run}-stop", client=client).set()
        raise
    finally:
        reports.close()


# ---------------------------------------------------------------- what workers say
def check_files(client: Reached, dataset: Dataset, *, workers: Sequence[str] | None = None) -> None:
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
        readers_of(at, dataset, workers)


def readers_of(
    client: distributed.Client, dataset: Dataset, named: Names = None, resources: Needs = None
) -> dict[str, Worker]:
    """Return the workers that may be used, by address, once all of them have opened the files.

    Raises
    ------
    ClusterError
        If there are none, or some cannot.
    """
    found = workers_of(client, named, resources, required=True)
    unable = ask(client, found.values(), dataset.files.check_times)
    if unable:
        how = "put them where every worker finds them under the same path (paths travel, not rows)"
        how += ", or name the workers to use with workers="
        raise ClusterError(unable_words(unable, len(found), "read the files of this dataset", how))
    return found


def check_dataset(dataset: Any) -> None:
    """Raise :class:`ClusterError` unless workers can open the files they are to read."""
    if not isinstance(dataset, Dataset):
        raise ClusterError(
            "workers open files by themselves: give what labeled.open_dataset returns, not a "
            f"{type(dataset).__name__}; cluster.write makes a file of arrays and xarray objects"
        )


def ask(
    client: distributed.Client, workers: Iterable[Worker], question: Question, *args: Any
) -> dict[Worker, str]:
    """Ask workers what is wrong; return what those say that have something, if still there."""
    asked = {worker.address: worker for worker in workers}
    if not asked:
        return {}
    how: Any = {"workers": list(asked), "on_error": "return"}
    answers = client.run(problem, versions(), question, *args, **how)
    found, there = {}, workers_of(client)
    for address, words in answers.items():
        if isinstance(words, BaseException):  # it cannot even take the question
            words = f"{type(words).__name__}: {words}" if address in there else None
        if words is not None:
            found[asked[address]] = words
    return found


def versions() -> dict[str, str]:
    """Return what must be alike for work to travel, and mean the same where it is done."""
    found = platform.python_version_tuple()
    return {"labeled": VERSION, "Python": f"{found[0]}.{found[1]}"}


def problem(wanted: Mapping[str, str], question: Question, *args: Any) -> str | None:
    """Return what is wrong on a worker, if something is: versions first, then what is asked."""
    for name, version in versions().items():
        if wanted[name] != version:
            return f"it has {name} {version}, and {wanted[name]} asks; install the same"
    try:
        return question(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def unable_words(unable: Mapping[Worker, str], n_asked: int, what: str, remedy: str) -> str:
    """Say who cannot do what."""
    lines = [f"  worker {worker}: {words}" for worker, words in list(unable.items())[:MAX_NAMED]]
    if len(unable) > MAX_NAMED:
        lines.append(f"  and {len(unable) - MAX_NAMED} more")
    return "\n".join([f"{len(unable)} of {n_asked} workers cannot {what}:", *lines, remedy])
