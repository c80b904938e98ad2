"""Reading files that are not in the page cache; run as a process of its own.

How it is done is told in :mod:`labeled.bench.cold`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.files import BenchFile, image_specs, make
from labeled.bench.cold import measure_cold


def measured(file: BenchFile, rounds: int) -> dict[str, Any]:
    """Time each way from a cold page cache."""
    found = measure_cold(file.subject(256), rounds)
    if "why" in found:
        raise SystemExit(f"{file.path.name} is not cold: {found['why']}")
    return {"file": file.spec.name, **found}


def files(folder: Path, scale: int) -> Iterator[BenchFile]:
    """Yield files of its own: pages of a file that another process maps cannot be dropped."""
    for spec in image_specs(scale):
        if spec.name in ("contiguous", "chunked"):
            yield make(replace(spec, name=f"cold-{spec.name}"), folder)


def main() -> None:
    folder, scale, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps([measured(file, rounds) for file in files(folder, scale)]))


if __name__ == "__main__":
    main()
