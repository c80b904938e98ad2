"""One run: the files that are read, the loaders over them, and how epochs are timed."""

from __future__ import annotations

import statistics
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import numpy as np
import xarray as xr

import labeled
from benchmarks.gpu.card import MIB, Card, Figures

ROW_SHAPE = (3, 64, 64)
NAMES = ("batch", "channel", "height", "width")
LARGE_BATCH = 48 * MIB
CHUNK_ROWS = 64


MAX_LINES = 40
"""What is kept of what a part said last."""


def failed(error: Exception) -> Figures:
    """Return what stands for figures that there are none of, and how it came to that."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return {"failed": f"{type(error).__name__}: {error}"[:500], "lines": lines[-MAX_LINES:]}


@dataclass(frozen=True)
class Bench:
    """One run.

    Parameters
    ----------
    nbytes : int
        Of each file, and eight times that of an array that is copied.
    """

    card: Card
    folder: Path
    nbytes: int
    tell: Callable[[Figures], None] = lambda _: None
    """Gets the rows of a part as they are measured."""

    def rows(self, works: Mapping[str, Callable[[], Any]]) -> Figures:
        """Return the figures of some rows; one that fails costs no other."""
        out: Figures = {}
        for name, work in works.items():
            try:
                out[name] = work()
            except Exception as error:  # the other rows should not be lost
                out[name] = failed(error)
            self.tell(out)
        return out

    def random(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array of the device: numbers that repeat every 1024 rows at most."""
        host = np.random.default_rng(0).integers(0, 256, (min(shape[0], 1024), *shape[1:]))
        part = self.card.xp.asarray(host.astype(dtype))
        return self.card.xp.concatenate([part] * -(-shape[0] // len(part)))[: shape[0]]

    def file(self, dtype: str, codec: str | None = None) -> str:
        """Return a file of random images, made once; each of their lines is there twice.

        So every codec makes them smaller, LZ4 too, which nothing else would.
        """
        path = self.folder / f"{dtype}-{codec}-{self.nbytes}.hdf5"
        if path.exists():
            return str(path)
        row_bytes = int(np.prod(ROW_SHAPE)) * np.dtype(dtype).itemsize
        n = max(self.nbytes // row_bytes // (4 if codec else 1), 64)
        channels, height, width = ROW_SHAPE
        lines = np.random.default_rng(0).integers(
            0, 16, (min(n, 1024), channels, height // 2, width)
        )
        pool = lines.astype(dtype).repeat(2, axis=2)
        if codec is not None:
            images = xr.DataArray(np.resize(pool, (n, *ROW_SHAPE)), dims=NAMES)
            more: Figures = {"statistics": False, "checksums": False, "progress": False}
            return labeled.write(
                path, {"images": images}, compression=codec, chunks=CHUNK_ROWS, **more
            )
        part = path.with_suffix(".part")  # of a part that was ended there may be some
        with h5py.File(part, "w", libver=("v110", "v114")) as f:
            data = f.create_dataset("images", (n, *ROW_SHAPE), dtype)
            for start in range(0, n, len(pool)):
                data[start : start + len(pool)] = pool[: n - start]
            for axis, name in enumerate(NAMES):
                data.dims[axis].label = name
        part.replace(path)
        return str(path)

    def loader(
        self, stored: str, batch_bytes: int, codec: str | None = None, **options: Any
    ) -> Any:
        dataset = labeled.open_dataset(self.file(stored, codec))
        row_bytes = int(np.prod(ROW_SHAPE)) * np.dtype(stored).itemsize
        rows = max(1, min(batch_bytes // row_bytes, dataset.n_rows // 4))
        known = {"memory": max(8 * batch_bytes, 64 * MIB), "device": self.card.device}
        return dataset.batches(rows, **{**known, **options})

    def epoch(self, loader: Any, more: Callable[[Any], object] | None = None) -> float:
        """Seconds of an epoch whose every element is added up on the device."""
        self.card.wait()
        began = perf_counter()
        for batch in loader:
            array = batch["images"].data
            array.sum(dtype=np.float32)
            if more is not None:
                more(array)
        self.card.wait()
        return perf_counter() - began

    def rate(self, loader: Any) -> float:
        """Stored bytes a second, of three epochs after one that warms up."""
        self.epoch(loader)
        seconds = statistics.median(self.epoch(loader) for _ in range(3))
        return float(loader.stats().n_bytes / seconds)
