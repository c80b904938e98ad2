"""Writing with the workers of a cluster: they read, compute and compress; one of them stores.

HDF5 has one writer, so one worker makes the file. It asks the others for packed blocks, some
at a time, and takes them one by one from the workers that hold them: whole chunks,
compressed, and of each block the few rows that are no whole chunk. The process that asked
checks everything, sends the recipe and waits.

A worker that is lost costs its blocks, which others make again; if it was the one that
writes, another begins anew. The file takes its name when it is complete, whoever made it,
and equal input gives equal bytes.
"""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

import cloudpickle
import distributed
from dask.base import is_dask_collection
from distributed.comm.addressing import get_address_host

from labeled._validation import check_arguments
from labeled.cluster.client import (
    Reached,
    Worker,
    ask,
    connected,
    large_graphs,
    readers_of,
    reports_of,
    unable_words,
    workers_of,
)
from labeled.dataset.dataset import Dataset
from labeled.errors import ClusterError
from labeled.formats.replacing import check_target
from labeled.writing.layouts import Storage
from labeled.writing.packing import Begin, Packed
from labeled.writing.write import DEFAULTS, Path, Planned, WriteKeywords, check_ending, planned

LOOK_S = 0.5  # how often progress is looked for, and whether somebody is there who can write

HERE = "client"


@check_arguments(but=("client",), options=DEFAULTS)
def write(
    client: Reached,
    path: Path,
    sources: Any,
    splits: Mapping[str, Any] | None = None,
    *,
    writer: str | None = None,
    workers: Sequence[str] | None = None,
    wait_s: float = 60.0,
    **options: Unpack[WriteKeywords],
) -> str:
    """Write a file of examples on a cluster: blocks are packed by all workers, stored by one.

    What is worth a cluster is computing and compressing, and rows that lie nearer to the
    workers than to this process. The file appears under its name only once it is complete.

    Parameters
    ----------
    client : distributed.Client, cluster or str
        Or the address of a scheduler.
    path, sources, splits, overwrite, **options
        As for :func:`labeled.write`. The files of a Dataset must lie under the same paths
        on every worker. `memory` bounds the rows on their way, over all workers; by
        default 64 MiB for each of their threads.
    writer : str, optional
        Name or address of the worker, any of them, that makes the file at `path` there;
        ``"client"`` is this process, through which packed blocks then come. Default: a
        worker that can write into the folder; but this process where the rows are its own
        (batches, or arrays that are all in memory).
    workers : sequence of str, optional
        Names or addresses of those that read, compute and compress; all by default.
    wait_s : float
        How long to wait for a worker that can write, if all are lost.
    progress : bool, optional
        Show a bar of bytes; on a terminal by default, after two seconds.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ClusterError
        If there are no workers, some cannot see the files of the dataset, or none can write
        into the folder; they are named.
    ArrayError, DimsError, SplitError, UnknownNameError, WriteError
        As :func:`labeled.write` raises them; all but the last before anything is sent.
    """
    with connected(client) as at:
        there = workers_of(at, workers, required=True)
        if isinstance(sources, Dataset):
            readers_of(at, sources, workers)
        usual = sum(n for a, n in at.nthreads().items() if a in there) << 26
        asked = replace(DEFAULTS, **options)
        asked = replace(asked, memory=usual) if asked.memory is None else asked
        made = planned(sources, splits, asked, here=False)
        check_ending(path)
        target = os.path.abspath(os.path.expanduser(os.fsdecode(path)))
        named = None if workers is None else list(there)
        if writer == HERE or (writer is None and _is_here(sources)):
            return made.begun_by(_away(at, named)).write(path, asked)
        hosts = _writers(at, there, os.path.dirname(target), writer)
        return _sent_off(at, made, target, asked, hosts, named, wait_s)


def _is_here(sources: Any) -> bool:
    """Whether the rows come from this process: batches, or arrays that are all in memory."""
    if isinstance(sources, Dataset):
        return bool(sources.loaded)
    values = getattr(sources, "data_vars", sources)
    return not isinstance(values, Mapping) or not any(map(is_dask_collection, values.values()))


def _writers(
    client: distributed.Client, there: Mapping[str, Worker], folder: str, writer: str | None
) -> list[str]:
    """Return where a worker that can write may be: its address, or the hosts of all that can."""
    asked = there if writer is None else workers_of(client, [writer])
    if not asked:
        names = sorted(info.name for info in workers_of(client).values())
        raise ClusterError(f"writer={writer!r} is none of the workers {names}, nor {HERE!r}")
    unable = ask(client, asked.values(), _write_problem, folder)
    able = [info for info in asked.values() if info not in unable]
    if not able:
        how = f"name a folder that workers have, or pass writer={HERE!r} to write it from here"
        what = f"write into the folder {folder!r}"
        raise ClusterError(unable_words(unable, len(asked), what, how))
    return [info.address for info in able] if writer else sorted({info.host for info in able})


def _write_problem(folder: str) -> str | None:
    """Look at a folder on a worker; return what is wrong, if something is."""
    if not os.path.isdir(folder):
        return "there is no such folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else "it may not write there"


def _sent_off(
    client: distributed.Client,
    made: Planned,
    target: str,
    asked: Storage,
    hosts: Sequence[str],
    named: Sequence[str] | None,
    wait_s: float,
) -> str:
    """Have a worker write the file, as long as somebody is there who can; return where it lies."""
    run = f"labeled-write-{uuid.uuid4().hex}"
    done, seen_s = 0, time.monotonic()
    with reports_of(run, client) as reports, large_graphs():
        with made.bar(target, asked.progress) as bar:
            args = cloudpickle.dumps(made), target, asked.overwrite, run, named
            future = client.submit(_write, *args, workers=hosts, pure=False, key=run)
            while not future.done():
                with suppress(TimeoutError), client.as_current():  # need not be the default
                    distributed.wait(future, timeout=LOOK_S)
                for now in reports.get(batch=True):
                    bar(max(now - done, 0))  # a restarted write reports less
                    done = max(now, done)
                if any(a in hosts or get_address_host(a) in hosts for a in workers_of(client)):
                    seen_s = time.monotonic()
                elif time.monotonic() - seen_s > wait_s:
                    words = f"no worker that can write is left on {list(hosts)} since {wait_s:g} s"
                    raise ClusterError(f"{words}; start one, or give more wait_s=")
        written: str = future.result()
        future.cancel()  # or it would be made again if its worker were lost while somebody holds it
    return written


def _write(plan: bytes, target: str, overwrite: bool, run: str, named: Sequence[str] | None) -> str:
    """Write the file; runs on a worker, which does other work meanwhile."""
    with distributed.worker_client() as client, large_graphs():
        made: Planned = pickle.loads(plan)
        target = check_target(target, overwrite=overwrite, n_bytes=made.certain_bytes)
        reports = distributed.Queue(run, client=client)
        stop = distributed.Event(f"{run}-stop", client=client)
        done, next_s = 0, 0.0

        def advance(n_bytes: int) -> None:
            nonlocal done, next_s
            done += n_bytes
            if time.monotonic() >= next_s:
                reports.put(done)
                if stop.is_set():
                    raise ClusterError("nobody waits for the file any more")
                next_s = time.monotonic() + LOOK_S

        try:
            made.begun_by(_away(client, named)).create(target, advance, overwrite=overwrite)
        finally:
            reports.close()
    return target


def _away(client: distributed.Client, workers: Sequence[str] | None) -> Begin:
    """Have blocks packed by workers; what is packed stays there until it is asked for."""

    def begin(task: Any) -> Callable[[], Packed]:
        result: Callable[[], Packed] = client.compute(task, workers=workers).result
        return result

    return begin
