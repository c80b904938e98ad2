"""What is measured: each workload, the ways it compares, and the file they all read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bare, ours
from benchmarks.files import BenchFile, FileSpec, image_specs, make, other_specs
from benchmarks.peers import peer_ways
from benchmarks.subject import Subject
from benchmarks.timing import Way

Missing = dict[str, str]


@dataclass(frozen=True)
class Workload:
    """A line of work over one file.

    Parameters
    ----------
    ways : callable
        Makes the ways of a subject, and notes peers that are not installed.
    """

    name: str
    title: str
    file: str
    batch_rows: int
    ways: Callable[[Subject, Missing], list[Way]]


def _contiguous_order(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.pread_in_order(subject),
        bare.few_lines(subject),
        bare.copy_in_order(subject),
        ours.in_order(subject),
        ours.way(subject, "ours, file order, labelled", "file", labelled=True),
        *peer_ways(subject, "file", missing),
    ]


def _large_batches(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.few_lines(subject),
        bare.copy_in_order(subject),
        ours.in_order(subject),
        *peer_ways(subject, "file", missing, "h5py_loops"),
    ]


def _contiguous_full(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.take(subject),
        ours.full(subject),
        *peer_ways(subject, "shuffled", missing),
    ]


def _chunked(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.read_chunks(subject),
        ours.in_order(subject),
        ours.window(subject),
        *peer_ways(subject, "file", missing),
    ]


def _packed_order(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.decode(subject),
        ours.in_order(subject),
        ours.window(subject),
        *peer_ways(subject, "file", missing, "h5py_loops"),
    ]


def _packed_order_peers(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.decode(subject),
        ours.in_order(subject),
        ours.window(subject),
        *peer_ways(subject, "file", missing),
    ]


def _packed_shuffled(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.decode(subject),
        ours.in_order(subject),
        ours.window(subject),
        *peer_ways(subject, "shuffled", missing),
    ]


def _rows_of_a_size(subject: Subject, missing: Missing) -> list[Way]:
    return [
        bare.pread_in_order(subject),
        bare.take(subject),
        ours.in_order(subject),
        ours.full(subject),
        *peer_ways(subject, "file", missing, "h5py_loops"),
    ]


def _lists(shuffle: str) -> Callable[[Subject, Missing], list[Way]]:
    def ways(subject: Subject, missing: Missing) -> list[Way]:
        order = "full" if shuffle == "full" else "window"
        return [
            bare.take(subject) if shuffle == "full" else bare.decode(subject),
            ours.way(subject, "ours, whole range", order, shuffle=shuffle),
            ours.chosen(subject, shuffle=shuffle),
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
        "contiguous-4096",
        "contiguous, file order, batch 4096",
        "contiguous",
        4096,
        _large_batches,
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
    Workload("zstd-digits", "zstd, digits-like u8", "zstd-digits", 256, _packed_order_peers),
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
    Workload("large-rows", "rows of 1 MB, batch 8", "large-rows", 8, _rows_of_a_size),
    Workload("small-rows", "rows of 64 B, batch 256", "small-rows", 256, _rows_of_a_size),
    Workload("tiny-rows", "rows of 16 B, batch 4096", "tiny-rows", 4096, _rows_of_a_size),
)


def specs(scale: int) -> dict[str, FileSpec]:
    """Return every file of a run by name."""
    return {spec.name: spec for spec in (*image_specs(scale), *other_specs(scale))}


def file_of(workload: Workload, folder: Path, scale: int) -> BenchFile:
    return make(specs(scale)[workload.file], folder)


def ways_of(folder: Path, scale: int, workload: str) -> list[Way]:
    """Return the ways of a workload by its name, for a process that measures them alone."""
    line = next(w for w in WORKLOADS if w.name == workload)
    return line.ways(file_of(line, folder, scale).subject(line.batch_rows), {})
