"""What happens at a billion rows: the real order, and a model of what storage makes of it.

    python -m benchmarks.scaling [--rows N] [--files N] [--workers N] [--json FILE]

No data is read. The order of an epoch is worked out by the library's own sampler, row by row
for some of the parts; what each of them asks of storage (reads, bytes, files) is counted, and
a simple model of the storage turns counts into seconds. Planning, states and the headers of
real small files are timed on this machine. Assumptions are arguments of :class:`Storage`, and
are printed with the results.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import labeled
from labeled.display.text import table
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import expected_quality
from labeled.samplers.state import restore, state_of
from labeled.samplers.units import UniformUnits, units_of_boundaries
from labeled.samplers.windows import Mode, Order, WindowRows

ROW_BYTES = 3 * 32 * 32 + 8
CHUNK_ROWS = 64
BATCH_ROWS = 256
SAMPLED_SHARDS = 5
HEADER_FILES = 64

Figures = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How much of everything there is."""

    n_rows: int = 10**9
    n_files: int = 10**5
    n_workers: int = 10**3

    @property
    def file_rows(self) -> int:
        """Rows of a file, all alike."""
        return self.n_rows // self.n_files


@dataclass(frozen=True)
class Storage:
    """What storage does with what is asked of it; seconds, and amounts a second.

    Parameters
    ----------
    open_s, read_s : float
        Until an open, or the first byte of a read, is answered.
    at_once : int
        Requests that one worker has under way.
    worker_bytes : float
        What one worker can take a second.
    all_opens, all_reads, all_bytes : float
        What the whole storage can serve a second; opens that are requests as reads are count
        among `all_reads`, and `all_opens` is None.
    """

    name: str
    open_s: float
    read_s: float
    at_once: int
    worker_bytes: float
    all_opens: float | None
    all_reads: float
    all_bytes: float

    def seconds(self, n_opens: float, n_reads: float, n_bytes: float) -> dict[str, float]:
        """Return how long everything asked of the storage takes, by what it takes that long for."""
        if self.all_opens is None:
            opens = {"requests": (n_opens + n_reads) / self.all_reads}
        else:
            opens = {"opens": n_opens / self.all_opens, "reads": n_reads / self.all_reads}
        return {**opens, "bytes": n_bytes / self.all_bytes}


PARALLEL = Storage("parallel file system", 1e-3, 5e-4, 4, 1e9, 5e4, 2e6, 2e11)
OBJECTS = Storage("object storage", 3e-2, 3e-2, 64, 5e8, None, 1e5, 5e11)


@dataclass(frozen=True)
class Asked:
    """What one part asks of storage in an epoch."""

    n_rows: int
    n_windows: int
    n_reads: int
    n_bytes: int
    n_files: int
    """Different files."""
    n_opens: int
    """Files of each window, added up: few of them stay open from one window to the next."""

    def seconds(self, storage: Storage) -> float:
        """Time of a worker that shares storage with nobody."""
        waits = (self.n_opens * storage.open_s + self.n_reads * storage.read_s) / storage.at_once
        return waits + self.n_bytes / storage.worker_bytes


def runs_of(content: WindowRows, file_rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return what is read at once for a window, (k, 2): consecutive rows of one file."""
    runs = content.runs
    if runs is None:
        rows = np.unique(content.rows)
        ends = np.flatnonzero(np.diff(rows) > 1)
        runs = np.stack([rows[np.r_[0, ends + 1]], rows[np.r_[ends, len(rows) - 1]] + 1], axis=1)
    first, last = runs[:, 0] // file_rows, (runs[:, 1] - 1) // file_rows
    parts = last - first + 1
    if (parts == 1).all():
        return runs
    which = np.repeat(np.arange(len(runs)), parts)
    place = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
    file = first[which] + place
    start = np.maximum(runs[which, 0], file * file_rows)
    stop = np.minimum(runs[which, 1], (file + 1) * file_rows)
    return np.stack([start, stop], axis=1)


def asked_of(plan: EpochPlan, scale: Scale) -> Asked:
    """Walk through a shard, window by window, and count."""
    rows = windows = reads = n_bytes = opens = 0
    files: set[int] = set()
    for window in plan.windows():
        runs = runs_of(window.content, scale.file_rows)
        touched = np.unique(runs[:, 0] // scale.file_rows)
        files.update(touched.tolist())
        rows, windows = rows + window.stop - window.start, windows + 1
        reads, opens = reads + len(runs), opens + len(touched)
        n_bytes += int((runs[:, 1] - runs[:, 0]).sum()) * ROW_BYTES
    return Asked(rows, windows, reads, n_bytes, len(files), opens)


def plan_of(
    scale: Scale, mode: Mode, window_rows: int, shard: int, *, sticky: bool = False
) -> EpochPlan:
    """Return a shard of the first epoch: chunks of 64 rows, or any row for a full shuffle."""
    unit = 1 if mode == "full" else CHUNK_ROWS
    order = Order(mode, UniformUnits(scale.n_rows, unit), window_rows, 7, 0, sticky)
    return EpochPlan(order, (shard, scale.n_workers), BATCH_ROWS, "keep")


WAYS: dict[str, tuple[Mode, int, bool]] = {
    "file order": ("file", 1 << 16, False),
    "window, 40 k rows (256 MiB)": ("window", 40_000, False),
    "window, 160 k rows (1 GiB)": ("window", 160_000, False),
    "window, 40 k rows, sticky shards": ("window", 40_000, True),
    "full shuffle": ("full", 1 << 16, False),
}


def storage_figures(scale: Scale) -> Iterator[Figures]:
    """Yield, for each way through the rows, what a worker asks and how long that takes."""
    for way, (mode, window_rows, sticky) in WAYS.items():
        shards = np.linspace(0, scale.n_workers - 1, SAMPLED_SHARDS).astype(int).tolist()
        plans = [plan_of(scale, mode, window_rows, shard, sticky=sticky) for shard in shards]
        asked = [asked_of(plan, scale) for plan in plans]
        mean = {
            name: float(np.mean([getattr(one, name) for one in asked]))
            for name in ("n_windows", "n_reads", "n_bytes", "n_files", "n_opens")
        }
        found: Figures = {"way": way, **mean, "quality": expected_quality(plans[0])}
        for storage in (PARALLEL, OBJECTS):
            alone = max(one.seconds(storage) for one in asked)
            shared = storage.seconds(
                *(mean[name] * scale.n_workers for name in ("n_opens", "n_reads", "n_bytes"))
            )
            bound = max(shared, key=lambda name: shared[name])
            found[storage.name] = {
                "worker_s": alone,
                "storage_s": shared[bound],
                "bound_by": "the worker" if alone >= shared[bound] else f"all {bound}",
                "epoch_s": max(alone, shared[bound]),
            }
        yield found


def plan_figures(scale: Scale) -> Figures:
    """Time planning, seeking and resuming in the middle of the largest plan."""
    out: Figures = {}
    for mode in ("window", "full"):
        tracemalloc.start()
        began = perf_counter()
        plan = plan_of(scale, mode, 40_000, scale.n_workers // 2)  # type: ignore[arg-type]
        pickled = pickle.dumps(plan)
        planned_s = perf_counter() - began
        middle = plan.n_batches // 2
        began = perf_counter()
        next(plan.windows(middle))
        seek_s = perf_counter() - began
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        state = state_of(plan, middle, "0" * 32)
        fewer = replace(plan, shard=(0, scale.n_workers - 3))
        began = perf_counter()
        went_on, first = restore(state, fewer, "0" * 32)
        next(went_on.windows(first))
        restored_s = perf_counter() - began
        out[mode] = {
            "plan_bytes": len(pickled),
            "plan_s": planned_s,
            "seek_s": seek_s,
            "peak_bytes": peak,
            "state_bytes": len(json.dumps(state.to_dict())),
            "other_count_s": restored_s,
        }
    return out


def uneven_figures(scale: Scale) -> Figures:
    """Measure chunk boundaries that must be listed, at a tenth of the rows."""
    n_rows, file_rows = scale.n_rows // 10, scale.file_rows + 1  # files do not end with a chunk
    starts = np.arange(0, n_rows, file_rows)
    within = np.arange(0, file_rows, CHUNK_ROWS)
    edges = (starts[:, None] + within).reshape(-1)
    edges = np.append(edges[edges < n_rows], n_rows)
    began = perf_counter()
    units = units_of_boundaries(0, n_rows, edges, CHUNK_ROWS)
    return {
        "rows": n_rows,
        "units": units.count,
        "bytes_at_full_scale": 10 * 8 * (units.count + 1),
        "seconds_at_full_scale": 10 * (perf_counter() - began),
    }


def header_figures(scale: Scale) -> Figures:
    """Open real small files, and tell what so many of them would take."""
    with tempfile.TemporaryDirectory() as folder:
        images = np.zeros((CHUNK_ROWS * 4, 3, 32, 32), np.uint8)
        arrays = {"images": images, "targets": np.zeros(len(images), np.int64)}
        names = {"images": ("batch", "channel", "height", "width"), "targets": ("batch",)}
        for number in range(HEADER_FILES):
            path = Path(folder, f"{number:03}.hdf5")
            labeled.write(path, arrays, dims=names, chunks=CHUNK_ROWS, statistics=False)
        paths = sorted(Path(folder).iterdir())
        labeled.open_dataset(paths[:1])  # what only the first file costs
        before, began = _bytes_read(), perf_counter()
        dataset = labeled.open_dataset(paths[1:])
        seconds = (perf_counter() - began) / (HEADER_FILES - 1)
        read = (_bytes_read() - before) / (HEADER_FILES - 1)
        half = labeled.open_dataset(paths[1 : HEADER_FILES // 2])
        longer = len(dataset.files.paths) - len(half.files.paths)
        each = (len(pickle.dumps(dataset)) - len(pickle.dumps(half))) / longer
    return {
        "header_s": seconds,
        "header_bytes": read,
        "pickle_bytes": each,
        "one_process_s": seconds * scale.n_files,
        "dataset_pickle_bytes": each * scale.n_files,
        "all_workers_opens": scale.n_files * scale.n_workers,
        "all_workers_bytes": read * scale.n_files * scale.n_workers,
        "served_s": PARALLEL.seconds(scale.n_files * scale.n_workers, 0, 0)["opens"],
    }


def _bytes_read() -> int:
    """Bytes that this process has asked the system to read, where the system tells."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))


def everything(scale: Scale) -> Figures:
    """Return all figures."""
    return {
        "scale": asdict(scale),
        "storages": [asdict(PARALLEL), asdict(OBJECTS)],
        "plan": plan_figures(scale),
        "uneven": uneven_figures(scale),
        "headers": header_figures(scale),
        "ways": list(storage_figures(scale)),
    }


def lines_of(found: Figures) -> Iterator[str]:
    """Write figures as tables."""
    head = ("way", "windows", "reads", "read size", "files", "opens", "quality")
    rows = [
        (
            way["way"],
            f"{way['n_windows']:,.0f}",
            f"{way['n_reads']:,.0f}",
            f"{way['n_bytes'] / way['n_reads'] / 1024:,.0f} kiB",
            f"{way['n_files']:,.0f}",
            f"{way['n_opens']:,.0f}",
            f"{way['quality']:.3f}",
        )
        for way in found["ways"]
    ]
    yield "One worker, one epoch:"
    yield from table([head, *rows])
    head = ("way", *(f"{s['name']}: {what}" for s in found["storages"] for what in ("s", "by")))
    rows = [
        (
            way["way"],
            *(
                text
                for s in found["storages"]
                for text in (f"{way[s['name']]['epoch_s']:,.1f}", way[s["name"]]["bound_by"])
            ),
        )
        for way in found["ways"]
    ]
    yield "\nAn epoch of all workers, as modelled:"
    yield from table([head, *rows])
    for title in ("plan", "uneven", "headers", "storages", "scale"):
        yield f"\n{title}: {json.dumps(found[title], indent=1)}"


def main() -> None:
    """Simulate, print, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = Scale()
    parser.add_argument("--rows", type=int, default=known.n_rows)
    parser.add_argument("--files", type=int, default=known.n_files)
    parser.add_argument("--workers", type=int, default=known.n_workers)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = everything(Scale(options.rows, options.files, options.workers))
    print("\n".join(lines_of(found)))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
