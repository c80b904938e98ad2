"""The process in which the peak memory of the ways of a workload is watched."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.rows import ways_of
from labeled.bench.peak import serve


def main() -> None:
    folder, scale, workload = sys.argv[1:4]
    serve(ways_of(Path(folder), int(scale), workload), sys.argv[4:])


if __name__ == "__main__":
    main()
