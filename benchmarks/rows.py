"""What is measured: each workload, the ways it compares, and the file they all read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bare, ours
from benchmarks.files import BenchFile, FileSpec, image_specs, make, other_specs
from benchmarks.measure import Way
from benchmarks.peers import peer_ways

Missing = dict[str, str]


@dataclass(frozen=True)
class Workload:
    """A line of work over one file.

    Parameters
    ----------
    ways : callable
        Makes the ways; gets the file, and notes peers that are not installed.
    """

    name: str
    title: str
    file: str
    batch_rows: int
    ways: Callable[[BenchFile, Missing], list[Way]]


def _contiguous_order(file: BenchFile, missing: Missing) -> list[Way]:
    return [
        bare.pread_in_order(file, 256),
        bare.copy_in_order(file, 256),
        ours.in_order(file, 256),
        ours.way(file, 256, "ours, file order, labelled", "file", labelled=True),
        *peer_ways(file, 256, "file", missing),
    ]


def _contiguous_full(file: BenchFile, missing: Missing) -> list[Way]:
    return [
        bare.take(file, 256),
        ours.full(file, 256),
        *peer_ways(file, 256, "shuffled", missing),
    ]


def _chunked(file: BenchFile, missing: Missing) -> list[Way]:
    return [
        bare.read_chunks(file, 256),
        ours.in_order(file, 256),
        ours.window(file, 256),
        *peer_ways(file, 256, "file", missing, "h5py_loops"),
    ]


def _packed_order(file: BenchFile, missing: Missing) -> list[Way]:
    return [
        bare.decode(file),
        ours.in_order(file, 256),
        ours.window(file, 256),
        *peer_ways(file, 256, "file", missing, "h5py_loops"),
    ]


def _packed_order_peers(file: BenchFile, missing: Missing) -> list[Way]:
    return [
        bare.decode(file),
        ours.in_order(file, 256),
        ours.window(file, 256),
        *peer_ways(file, 256, "file", missing),
    ]


def _packed_shuffled(file: BenchFile, missing: Missing) -> list[Way]:
    return [
        bare.decode(file),
        ours.in_order(file, 256),
        ours.window(file, 256),
        *peer_ways(file, 256, "shuffled", missing),
    ]


def _rows_of_a_size(batch_rows: int) -> Callable[[BenchFile, Missing], list[Way]]:
    def ways(file: BenchFile, missing: Missing) -> list[Way]:
        return [
            bare.pread_in_order(file, batch_rows),
            bare.take(file, batch_rows),
            ours.in_order(file, batch_rows),
            ours.full(file, batch_rows),
            *peer_ways(file, batch_rows, "file", missing, "h5py_loops"),
        ]

    return ways


def chosen_rows(n_rows: int) -> Any:
    """Return a random list of 80 % of the rows, as a split into train and test makes it."""
    return np.random.default_rng(9).permutation(n_rows)[: n_rows * 4 // 5]


def _lists(shuffle: str) -> Callable[[BenchFile, Missing], list[Way]]:
    def ways(file: BenchFile, missing: Missing) -> list[Way]:
        rows = chosen_rows(file.spec.n_rows)
        order = "full" if shuffle == "full" else "window"
        return [
            bare.take(file, 256) if shuffle == "full" else bare.decode(file),
            ours.way(file, 256, "ours, whole range", order, shuffle=shuffle),
            ours.way(file, 256, "ours, 80 % list", "list", rows=rows, shuffle=shuffle),
        ]

    return ways


WORKLOADS = (
    Workload(
        "contiguous-order",
        "contiguous, file order",
        "contiguous",
        256,
        _contiguous_order,
    ),
    Workload(
        "contiguous-full",
        "contiguous, full shuffle",
        "contiguous",
        256,
        _contiguous_full,
    ),
    Workload("chunked", "chunked without filter (64 rows)", "chunked", 256, _chunked),
    Workload("gzip-noisy", "gzip, noisy u8", "gzip-noisy", 256, _packed_order_peers),
    Workload("gzip-digits", "gzip, digits-like u8", "gzip-digits", 256, _packed_order),
    Workload("gzip-floats", "gzip + byte shuffle, f32", "gzip-floats", 256, _packed_order),
    Workload("zstd-digits", "zstd, digits-like u8", "zstd-digits", 256, _packed_order),
    Workload(
        "gzip-shuffled",
        "gzip, noisy u8, sorted labels, shuffled",
        "gzip-noisy",
        256,
        _packed_shuffled,
    ),
    Workload(
        "list-contiguous",
        "80 % index list, contiguous, full shuffle",
        "contiguous",
        256,
        _lists("full"),
    ),
    Workload(
        "list-gzip",
        "80 % index list, gzip digits, window shuffle",
        "gzip-digits",
        256,
        _lists("window"),
    ),
    Workload("large-rows", "rows of 1 MB, batch 8", "large-rows", 8, _rows_of_a_size(8)),
    Workload("small-rows", "rows of 64 B, batch 256", "small-rows", 256, _rows_of_a_size(256)),
    Workload("tiny-rows", "rows of 16 B, batch 4096", "tiny-rows", 4096, _rows_of_a_size(4096)),
)


def specs(scale: int) -> dict[str, FileSpec]:
    """Return every file of a run by name."""
    return {spec.name: spec for spec in (*image_specs(scale), *other_specs(scale))}


def file_of(workload: Workload, folder: Path, scale: int) -> BenchFile:
    return make(specs(scale)[workload.file], folder)


def find_way(folder: Path, scale: int, workload: str, name: str) -> Way:
    """Return one way by its names, for a process that measures it alone."""
    line = next(w for w in WORKLOADS if w.name == workload)
    ways = line.ways(file_of(line, folder, scale), {})
    return next(way for way in ways if way.name == name)
