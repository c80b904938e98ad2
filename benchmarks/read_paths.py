"""How close reading comes to the bytes: each storage layout against the shortest loop.

Run ``python benchmarks/read_paths.py [--quick]``. Every line is the best of several
interleaved repeats within one process, so compare the ratios; rates move with the machine.

"bare" is a hand-written loop that makes the same reads into the same memory: ``preadv``
for contiguous rows; ``pread``, libdeflate, un-shuffle and one copy out for gzip chunks.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import deflate
import h5py
import numpy as np

from labeled.formats.bytesource import stamp_of
from labeled.formats.format import Options
from labeled.formats.hdf5.arrays import ArrayInfo, Opening
from labeled.formats.hdf5.headers import header_of
from labeled.formats.hdf5.reader import build_index, open_reader
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Reader, pieces
from labeled.selection import runs_of

BATCH = 256
WINDOW_BYTES = 8 << 20
Work = Callable[[], object]


def header_in(path: Path) -> SourceHeader:
    with h5py.File(path, "r") as file:
        opening = Opening(file["/"], stamp_of(path), Options())
        return header_of(opening, ArrayInfo("x", "/x", file["x"]), ("b",))


class Timing(NamedTuple):
    """Seconds of the fastest round: on the clock, and of processor time in all threads."""

    wall: float
    cpu: float


def best(works: dict[str, Work], repeats: int) -> dict[str, Timing]:
    """Time each work in `repeats` interleaved rounds."""
    times: dict[str, list[Timing]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            times[name].append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: Timing(min(t.wall for t in found), min(t.cpu for t in found))
        for name, found in times.items()
    }


def show(title: str, nbytes: int, found: dict[str, Timing], against: str) -> None:
    print(f"\n{title}")
    base = found[against]
    for name, took in found.items():
        print(
            f"  {name:<34}{nbytes / took.wall / 1e9:8.2f} GB/s {base.wall / took.wall:8.2f} x, "
            f"{base.cpu / took.cpu:6.2f} x by processor time"
        )


def in_threads(n: int, tasks: Iterable[Any], do: Callable[[Any], None]) -> None:
    """Do all tasks in `n` threads that take the next one in turn."""
    turn = iter(list(tasks))
    lock = threading.Lock()

    def take() -> None:
        while True:
            with lock:
                task = next(turn, None)
            if task is None:
                return
            do(task)

    if n == 1:
        take()
        return
    threads = [threading.Thread(target=take) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def contiguous(folder: Path, n_rows: int, repeats: int) -> None:
    path = folder / "contiguous.h5"
    rows = np.random.default_rng(0).integers(0, 256, (n_rows, 3, 32, 32), "u1")
    with h5py.File(path, "w") as file:
        file["x"] = rows
    header, nbytes = header_in(path), rows.nbytes
    reader, pread = open_reader(header), open_reader(header, io="pread")
    row = header.row_bytes
    slot = np.empty((BATCH, 3, 32, 32), "u1")
    n = n_rows // BATCH
    descriptor = os.open(path, os.O_RDONLY)
    mapped = np.memmap(path, "u1", "r", header.offset, (n_rows, row))
    mapped = np.frombuffer(mapped, "u1").reshape(n_rows, row)
    order = np.random.default_rng(1).permutation(n_rows)
    chosen = np.sort(order[: n_rows * 4 // 5])
    runs = [range(i * BATCH, (i + 1) * BATCH) for i in range(n)]

    def bare() -> None:
        for i in range(n):
            os.preadv(descriptor, [slot], header.offset + i * BATCH * row)

    def by_run() -> None:
        for run in runs:
            reader.read(run, slot)

    def h5py_loop() -> None:
        with h5py.File(path, "r") as file:
            x = file["x"]
            for i in range(n):
                x.read_direct(slot, np.s_[i * BATCH : (i + 1) * BATCH])

    show(
        "contiguous u8, file order, batches of 256",
        nbytes,
        best({"bare preadv": bare, "read": by_run, "h5py read_direct": h5py_loop}, repeats),
        "bare preadv",
    )

    def bare_take() -> None:
        flat = slot.reshape(BATCH, row)
        for i in range(n):
            np.take(mapped, order[i * BATCH : (i + 1) * BATCH], 0, flat, "clip")

    def by_rows(source: Reader) -> Work:
        def work() -> None:
            for i in range(n):
                source.read(order[i * BATCH : (i + 1) * BATCH], slot)

        return work

    works = {"bare take": bare_take, "read": by_rows(reader), "... pread": by_rows(pread)}
    show("contiguous u8, shuffled rows", nbytes, best(works, repeats), "bare take")

    big = np.empty((len(chosen), 3, 32, 32), "u1")[: WINDOW_BYTES // row * 2]
    some = [chosen[a : a + len(big)] for a in range(0, len(chosen), len(big))]

    def by_lists() -> None:
        for part in some:
            reader.read(runs_of(part), big)

    def whole() -> None:
        for a in range(0, len(chosen), len(big)):
            n_rows = min(len(big), len(chosen) - a)
            reader.read(range(a, a + n_rows), big)

    spans = {"as many rows in one stretch": whole, "80 % of rows, ascending": by_lists}
    show("contiguous u8, random 80 %", chosen.size * row, best(spans, repeats), next(iter(spans)))
    os.close(descriptor)


def gzip(
    folder: Path, title: str, rows: np.ndarray, chunk: int, repeats: int, *, shuffle: bool = False
) -> None:
    path = folder / f"{title.replace(' ', '_').replace('/', '_')}.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=rows, chunks=(chunk, *rows.shape[1:]), compression="gzip", shuffle=shuffle
        )
    header = header_in(path)
    reader, index = open_reader(header), build_index(header)
    ratio = rows.nbytes / int(index.table["size"].sum())
    window = WINDOW_BYTES // header.row_bytes // chunk * chunk
    slot = np.empty((window, *rows.shape[1:]), rows.dtype)
    chunk_bytes, item = chunk * header.row_bytes, rows.dtype.itemsize
    descriptor = os.open(path, os.O_RDONLY)
    hot = threading.local()
    offsets, sizes = index.table["offset"].tolist(), index.table["size"].tolist()
    n_chunks = len(rows) // chunk
    per_window = window // chunk

    def decode(k: int) -> None:
        """Read one chunk with the fewest steps there are."""
        data = np.frombuffer(
            deflate.zlib_decompress(os.pread(descriptor, sizes[k], offsets[k]), chunk_bytes), "u1"
        )
        if shuffle:
            if not hasattr(hot, "out"):
                hot.out = np.empty(chunk_bytes, "u1")
            planes, elements = data.reshape(item, -1), hot.out.reshape(-1, item)
            for j in range(item):
                elements[:, j] = planes[j]
            data = hot.out
        to = k % per_window * chunk
        slot[to : to + chunk] = data.view(rows.dtype).reshape(chunk, *rows.shape[1:])

    def bare(n: int) -> Work:
        return lambda: in_threads(n, range(n_chunks), decode)

    def windows() -> Iterable[tuple[int, int]]:
        return itertools.pairwise([*range(0, n_chunks * chunk, window), n_chunks * chunk])

    def by_pieces(n: int, dest: np.ndarray | None) -> Work:
        def work() -> None:
            parts = [part for a, b in windows() for part in pieces(reader, range(a, b))]
            in_threads(n, parts, read)

        def read(part: tuple[Any, slice]) -> None:
            rows, which = part
            if dest is None:
                reader.read(rows, slot[which])
            else:
                reader.read(rows, slot, dest[which])

        return work

    def h5py_loop() -> None:
        with h5py.File(path, "r") as file:
            x = file["x"]
            for start in range(0, len(rows) - BATCH + 1, BATCH):
                x.read_direct(slot, np.s_[start : start + BATCH], np.s_[:BATCH])

    dest = np.random.default_rng(0).permutation(window)
    works = {"bare decode, 1 thread": bare(1), "pieces, 1 thread": by_pieces(1, None)}
    works |= {"pieces scattered, 1 thread": by_pieces(1, dest)}
    works |= {"bare decode, 2 threads": bare(2), "pieces, 2 threads": by_pieces(2, None)}
    works |= {"pieces scattered, 2 threads": by_pieces(2, dest), "h5py read_direct": h5py_loop}
    found = best(works, repeats)
    heading = f"gzip, {title}, {chunk_bytes >> 10} KiB chunks, {ratio:.2f} : 1"
    show(heading, n_chunks * chunk_bytes, found, "bare decode, 1 thread")
    rows_used = n_chunks * chunk / len(rows)
    for label in ("1 thread", "2 threads"):
        bare_, ours = found[f"bare decode, {label}"], found[f"pieces, {label}"]
        scattered, loop = found[f"pieces scattered, {label}"], found["h5py read_direct"]
        print(
            f"  {label}: {bare_.wall / ours.wall:.3f} x bare ({bare_.cpu / ours.cpu:.3f} by "
            f"processor time), scattered {bare_.wall / scattered.wall:.3f} "
            f"({bare_.cpu / scattered.cpu:.3f}), {loop.wall / ours.wall * rows_used:.2f} x h5py"
        )
    os.close(descriptor)


def index_of_a_million(folder: Path, n: int) -> None:
    path = folder / "chunks.h5"
    with h5py.File(path, "w", libver=("v110", "v114")) as file:
        x = file.create_dataset("x", (n, 8), "u1", chunks=(1, 8))
        row = bytes(8)
        for i in range(n):
            x.id.write_direct_chunk((i, 0), row)
    header = header_in(path)
    found = best({"index": lambda: build_index(header)}, 3)["index"]
    print(
        f"\nindex of {n:,} chunks: {found.wall:.2f} s, {found.cpu:.2f} s of processor time, "
        f"{build_index(header).nbytes / 1e6:.1f} MB kept"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small files, few repeats")
    parser.add_argument("--only", default="", help="a word of the lines wanted")
    options = parser.parse_args()
    n_rows, repeats = (16_384, 3) if options.quick else (65_536, 7)
    rng = np.random.default_rng(0)
    noisy = np.clip(rng.normal(128, 28, (n_rows, 3, 32, 32)), 0, 255).astype("u1")
    plain = (noisy // 16 * (rng.random(noisy.shape) < 0.5)).astype("u1")
    floats = rng.normal(size=(n_rows // 4, 3, 32, 32)).astype("f2").astype("f4")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines: dict[str, Work] = {
            "index": lambda: index_of_a_million(folder, 100_000 if options.quick else 1_000_000),
            "contiguous": lambda: contiguous(folder, n_rows, repeats),
            "noisy": lambda: gzip(folder, "u8 noisy", noisy, 64, repeats),
            "compressible": lambda: gzip(folder, "u8 compressible", plain, 64, repeats),
            "small": lambda: gzip(folder, "u8 compressible, small", plain, 8, repeats),
            "floats": lambda: gzip(folder, "f4 shuffled", floats, 64, repeats, shuffle=True),
        }
        for word, line in lines.items():
            if options.only in word:
                line()


if __name__ == "__main__":
    main()
