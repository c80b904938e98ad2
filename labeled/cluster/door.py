"""The one door to dask.distributed and dask-cuda: clusters, clients, and who works there.

Whatever is started here listens on this machine only: a scheduler or a worker runs what
anybody who reaches it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dask
import distributed
from distributed.deploy.cluster import Cluster

from labeled.errors import ClusterError
from labeled.later import extra_module

LOOPBACK = "127.0.0.1"
CONNECT_S = 10.0

AGAIN_S = 4.0
"""How long a scheduler is waited for that was there a moment ago: it answers soon, or is gone."""

Reached: TypeAlias = distributed.Client | Cluster | str
"""What leads to a scheduler: a client, a cluster, or an address."""


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as messages name it, and what it has to offer."""

    address: str
    name: str
    host: str
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.name!r} ({self.address}, host {self.host})"

    def offers(self, resources: Mapping[str, float]) -> bool:
        """Whether it has as much of everything as is asked for."""
        return all(self.resources.get(name, 0) >= need for name, need in resources.items())


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

    **This has not run on a GPU yet.**

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
    ClusterError
        If there is no NVIDIA driver or no GPU.
    """
    needed = "a worker a GPU needs dask-cuda and CuPy (for CUDA 13, or 12 to match the driver)"
    dask_cuda = extra_module("dask_cuda", needed, "dask-cuda cupy-cuda13x", "gpu-cu13")
    known = {"host": LOOPBACK, "dashboard_address": f"{LOOPBACK}:0", "resources": {"GPU": 1}}
    try:
        return dask_cuda.LocalCUDACluster(**{**known, **options})
    except Exception as error:
        if not type(error).__name__.startswith("NVML"):
            raise
        raise ClusterError(
            f"no GPU to start a worker for: the NVIDIA driver says {error}; "
            "local_cluster() starts workers without one"
        ) from error


@contextmanager
def connected(client: Reached) -> Iterator[distributed.Client]:
    """Yield a client, connected for as long as needed where a cluster or its address is given.

    Raises
    ------
    ClusterError
        If nobody answers at the address, or nobody does any more where something went wrong, or
        the client was closed.
    """
    if not isinstance(client, str | distributed.Client | Cluster):
        raise ClusterError(
            f"{type(client).__name__} is not a client; pass a distributed.Client, a cluster, or "
            "the address of a scheduler"
        )
    if isinstance(client, distributed.Client):
        if client.asynchronous:
            raise ClusterError("an asynchronous client cannot be waited for; give a plain one")
        with _answering(client):
            yield client
        return
    try:
        made = distributed.Client(client, set_as_default=False, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise ClusterError(f"no scheduler answers at {client!r}: {error}") from error
    with made, _answering(made):
        yield made


@contextmanager
def _answering(client: distributed.Client) -> Iterator[None]:
    """Say that scheduler or client is gone where that is what went wrong, whatever it looked like.

    Futures are cancelled then, connections closed or reset, and workers seem to be gone.
    """
    address = address_of(client)
    try:
        yield
    except Exception as error:
        if _answers(client):
            raise
        if client.status == "closed" and _answers_another(client, address):
            raise ClusterError(
                f"the client was closed in the middle of its work ({type(error).__name__}), and "
                f"what workers reported is lost; the scheduler at {address} is there, so connect "
                "anew, and leave the client open until the call returns"
            ) from error
        raise ClusterError(
            f"the scheduler at {address} does not answer any more, and what workers reported is "
            f"lost; start it and its workers again ({type(error).__name__}: {error})"
        ) from error


def _answers(client: distributed.Client) -> bool:
    if client.status != "running" or client.scheduler is None:
        return False
    try:
        client.sync(client.scheduler.identity, callback_timeout=CONNECT_S)
    except Exception:  # closed, reset, refused, or in the middle of being closed
        return False
    return True


def address_of(client: distributed.Client) -> str:
    """Return where the scheduler of a client is, or was."""
    return "its address" if client.scheduler is None else str(client.scheduler.address)


@contextmanager
def reachable(client: distributed.Client, address: str) -> Iterator[distributed.Client]:
    """Yield a client of the same scheduler: a new one where somebody closed this one."""
    if client.status == "running":
        yield client
        return
    known: dict[str, Any] = {"security": client.security, "set_as_default": False}
    with distributed.Client(address, timeout=AGAIN_S, **known) as made:
        yield made


def _answers_another(client: distributed.Client, address: str) -> bool:
    try:
        with reachable(client, address) as made:
            return _answers(made)
    except Exception:
        return False


def _workers_info(client: distributed.Client) -> Mapping[str, Mapping[str, Any]]:
    """Return what the scheduler knows about its current workers, by address.

    Not by `client.scheduler_info`: that returns a field, into which the client by itself puts
    an answer without workers every two seconds, also just before the field is read.
    """
    scheduler: Any = client.scheduler
    found: Mapping[str, Mapping[str, Any]] = client.sync(scheduler.identity, n_workers=-1)[
        "workers"
    ]
    return found


def workers_of(client: distributed.Client) -> dict[str, WorkerInfo]:
    """Return the workers there are now, by address."""
    return {
        address: WorkerInfo(
            address, str(info["name"]), str(info["host"]), dict(info.get("resources") or {})
        )
        for address, info in _workers_info(client).items()
    }


def addresses_of(client: distributed.Client) -> set[str]:
    """Return the addresses of the workers there are now: little to send, to be asked often."""
    return set(client.nthreads())


def paused_of(client: distributed.Client) -> set[str]:
    """Return the addresses of workers that begin nothing: their memory is nearly full."""
    found = _workers_info(client)
    return {address for address, info in found.items() if info.get("status") == "paused"}


def begun_by(dask_worker: distributed.Worker) -> list[Any]:
    """Return the keys of what a worker is at; runs there."""
    return [task.key for task in dask_worker.state.executing]


@contextmanager
def large_graphs() -> Iterator[None]:
    """Send what is large without dask's advice to load data with dask, which would be none.

    Datasets of listed rows take eight bytes a row, and have to go there.
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        yield


def sent(
    client: distributed.Client,
    worker: WorkerInfo,
    work: Callable[..., Any],
    *args: Any,
    resources: Mapping[str, float] | None = None,
) -> Any:
    """Have one certain worker do something; return the future."""
    with large_graphs():
        return client.submit(
            work,
            *args,
            workers=[worker.address],
            allow_other_workers=False,
            resources=dict(resources or {}) or None,
            pure=False,
        )


def fitting(
    client: distributed.Client,
    workers: Sequence[str] | None,
    resources: Mapping[str, float],
) -> dict[str, WorkerInfo]:
    """Return the workers that may be used, by address.

    Parameters
    ----------
    workers : sequence of str, optional
        Names or addresses; every worker when None.
    """
    there = workers_of(client)
    return {a: info for a, info in there.items() if fits(info, workers, resources)}


def fits(worker: WorkerInfo, workers: Sequence[str] | None, resources: Mapping[str, float]) -> bool:
    """Whether a worker is among those named, and has what is asked for."""
    named = workers is None or worker.address in workers or worker.name in workers
    return named and worker.offers(resources)
