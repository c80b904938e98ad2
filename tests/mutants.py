"""Mutation check of the way of a row: does a test fail when the code is changed?

``python tests/mutants.py --count 300`` copies the repository, changes one operator, number or
keyword of it at a time with cosmic-ray (``pip install cosmic-ray``), runs the tests of that part,
and prints a table and the changes that no test noticed. The same ``--seed`` draws the same
changes. Changes within annotations are left out: they are never evaluated.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parent.parent
LOADER = ("test_loader_laws.py", "test_loader_values.py")
READERS = ("test_reader_laws.py", "test_hdf5_rows.py", *LOADER)
PARTS = {  # what is changed: the tests that should notice, quick ones first
    "labeled/selection.py": ("test_selection.py", "test_dataset.py"),
    "labeled/samplers/*.py": (
        "test_order_*.py",
        "test_samplers_*.py",
        "test_loader_sampler.py",
        "test_loader_refusals.py",
        "test_resume.py",
    ),
    "labeled/loader/collate.py": (
        *LOADER,
        "test_loader_skip.py",
        "test_ragged_batches.py",
        "test_pipeline_batches.py",
    ),
    "labeled/formats/reader.py": (*READERS, "test_hdf5_damage.py", "test_cold_files.py"),
    "labeled/formats/contiguous.py": (*READERS, "test_cold_files.py"),
    "labeled/formats/region.py": (*READERS, "test_lazy_slices.py"),
    "labeled/formats/hdf5/reader.py": (*READERS, "test_aligned_chunks.py", "test_hdf5_damage.py"),
}
TIMEOUT_S = 240
TIMES = 4
"""How many times as long as unchanged code the tests of a changed one may take."""
Change = tuple[str, Path, str, int]  # part, file, operator of cosmic-ray, which occurrence


@dataclass(frozen=True)
class Mutant:
    """One changed file: ``text`` in place of what stands at ``path``."""

    part: str
    path: Path
    text: str

    def diff(self) -> str:
        """Return the changed lines, with the function that holds them."""
        name = str(self.path)
        lines = difflib.unified_diff(
            (ROOT / self.path).read_text().splitlines(),
            self.text.splitlines(),
            name,
            name,
            n=0,
            lineterm="",
        )
        return "\n".join(list(lines)[2:])


def main() -> int:
    """Draw mutants, test each, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0, help="which changes are drawn")
    parser.add_argument("--part", default="", help="only parts whose path contains this")
    parser.add_argument("--skip", type=int, default=0, help="how many of those were tried before")
    parser.add_argument("--workers", type=int, default=2, help="how many to try at a time")
    given = parser.parse_args()
    every = [one for part in PARTS if given.part in part for one in sites_of(part)]
    draw = random.Random(given.seed)
    draw.shuffle(every)
    mutants = (one for site in every if (one := made(draw.choice(site))))
    drawn = list(islice(mutants, given.skip, given.count))
    killed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="labeled-mutants-") as folder:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(given.workers):
            copies.put(copied(Path(folder, str(number))))
        limits = {}
        for part in sorted({one.part for one in drawn}):
            start = time.monotonic()
            if noticed(Path(folder, "0"), part, TIMEOUT_S):
                raise SystemExit(f"the tests of {part} fail before anything is changed")
            limits[part] = TIMES * (time.monotonic() - start)

        def outcome(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return tried(copy, mutant, limits[mutant.part])
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(given.workers) as pool:
            outcomes = pool.map(outcome, drawn)
            for number, (mutant, was_noticed) in enumerate(zip(drawn, outcomes, strict=True), 1):
                if was_noticed:
                    killed[mutant.part] += 1
                else:
                    print(f"{mutant.path}\n{mutant.diff()}\n", flush=True)
                state = "killed" if was_noticed else "survived"
                print(f"{number}/{len(drawn)} {mutant.path} {state}", file=sys.stderr, flush=True)
    print(f"{'part':34} {'mutants':>8} {'killed':>7}   (of {len(every)} possible)")
    for part in PARTS:
        n = sum(one.part == part for one in drawn)
        if n:
            print(f"{part:34} {n:8} {killed[part]:7} {killed[part] / n:8.0%}")
    total = killed.total()
    print(f"{'all':34} {len(drawn):8} {total:7} {total / len(drawn):8.0%}")
    return 0


def sites_of(part: str) -> list[list[Change]]:
    """List the places of ``part`` that can be changed, each with its possible changes."""
    sites: dict[object, list[Change]] = {}
    for path in sorted(ROOT.glob(part)):
        nodes = list(ast_nodes(get_ast(path.read_text())))
        for name in sorted(operator_names()):
            if get_operator(name).arguments():
                continue
            operator = get_operator(name)()
            places = [place for node in nodes for place in operator.mutation_positions(node)]
            for occurrence, (start, _) in enumerate(places):
                change = part, path, name, occurrence
                sites.setdefault((path, start), []).append(change)
    return list(sites.values())


def made(change: Change) -> Mutant | None:
    """Make the mutant of one change; return None if what runs stays the same."""
    part, path, name, occurrence = change
    text = path.read_text()
    changed = mutate_code(text, get_operator(name)(), occurrence)
    if changed is None or what_runs(changed) == what_runs(text):
        return None
    return Mutant(part, path.relative_to(ROOT), changed)


def what_runs(text: str) -> str:
    """Return the syntax tree of ``text`` without annotations."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = None if isinstance(node, ast.arg) else ast.Constant(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)


def copied(folder: Path) -> Path:
    """Copy the files that git knows into ``folder``."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def tried(copy: Path, mutant: Mutant, timeout_s: float) -> bool:
    """Test ``mutant`` in ``copy`` and put the file back; return whether a test failed."""
    place = copy / mutant.path
    text = place.read_text()
    place.write_text(mutant.text)
    try:
        return noticed(copy, mutant.part, timeout_s)
    finally:
        place.write_text(text)


def noticed(copy: Path, part: str, timeout_s: float) -> bool:
    """Return whether a test of ``part`` fails in ``copy``, or takes for ever."""
    tests = [str(path) for name in PARTS[part] for path in sorted((copy / "tests").glob(name))]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "HYPOTHESIS_PROFILE": "mutants"},
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode != 0


if __name__ == "__main__":
    raise SystemExit(main())
