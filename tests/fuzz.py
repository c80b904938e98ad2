"""Damaged files: mutants of many layouts, each opened and read in a process of its own.

What is asked of every mutant: an error of ours that names the file, or the values that h5py reads
(or, of rows that HDF5 can no longer find, those that were written), the same in every order. A
process that dies or hangs, takes memory without end or ends in another error is a fault, unless
plain h5py dies or hangs over the same file: nothing can help that from within.

``python tests/fuzz.py --minutes 10 --seed 1`` prints a table of what happened, and keeps the
mutants at fault in a folder.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from fuzz_layouts import LAYOUTS

import labeled
from labeled.errors import LabeledError

WALL_S = 10.0
MEMORY_BYTES = 6 << 30
SIGNATURE = re.compile(
    rb"TREE|SNOD|HEAP|GCOL|OHDR|OCHK|FRHP|FHDB|BTHD|BTLF|BTIN|FAHD|FADB|EAHD|EAIB|EADB|\x89HDF"
)
ORDERS: tuple[Any, ...] = (False, "full", "window")
FINE = ("error of ours", "same values", "values as written", "h5py dies or hangs too")

Values = dict[str, Any]


def mutant(whole: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file: bits, bytes, numbers, stretches, its end; mostly where its structures are."""
    data = bytearray(whole)
    marks = [found.start() for found in SIGNATURE.finditer(whole)]
    for _ in range(int(rng.integers(1, 4))):
        if marks and rng.random() < 0.7:
            at = min(int(rng.choice(marks) + rng.integers(0, 200)), len(data) - 1)
        else:
            at = int(rng.integers(0, max(len(data), 1)))
        kind, size = rng.integers(0, 6), int(rng.integers(1, 40))
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            data[at] = int(rng.integers(0, 256))
        elif kind == 2:
            data[at : at + size] = bytes([int(rng.choice([0, 255]))]) * len(data[at : at + size])
        elif kind == 3:
            number = int(rng.choice([0, 1, 2**16, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]))
            width = int(rng.choice([2, 4, 8]))
            data[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
        elif kind == 4:
            other = int(rng.integers(0, len(data)))
            data[at : at + size] = data[other : other + size]
        elif rng.random() < 0.2:
            del data[at:]
            data += b"\0"
    return bytes(data)


def by_h5py(path: str) -> Values:
    """Read every dataset; None stands for what h5py cannot read."""
    found: Values = {}
    with h5py.File(path, "r") as file:

        def visit(name: str, thing: Any) -> None:
            if isinstance(thing, h5py.Dataset):
                try:
                    found[name] = np.asarray(thing[()])
                except Exception:
                    found[name] = None

        file.visititems(visit)
    return found


def attributes_by_h5py(path: str, names: Collection[str]) -> None:
    """Read every attribute of some things and of their groups, as opening does."""
    with h5py.File(path, "r") as file:
        for name in {"/", *names, *(os.path.dirname(name) or "/" for name in names)}:
            with suppress(Exception):
                for attribute in [*file[name].attrs]:
                    with suppress(Exception):
                        file[name].attrs[attribute]


def by_us(path: str) -> list[Values]:
    """Read every source in each order, put back into that of the file."""
    out = []
    ds = labeled.open_dataset(path, **({"decode_cf": False} if path.endswith(".h5") else {}))
    for shuffle in ORDERS:
        rows: list[Any] = []
        parts: dict[str, list[Any]] = {name: [] for name in ds.sources}
        for batch in ds.batches(7, shuffle=shuffle, seed=1, memory="64 MiB"):
            rows += batch.rows.tolist()
            for name in ds.sources:
                parts[name] += [np.array(one) for one in batch[name]]
        order = np.argsort(rows)
        out.append({name: [some[i] for i in order] for name, some in parts.items()})
    return out


def judge(path: str, written: Values, at_h5py: Values | None) -> str:
    """Say what came of a mutant."""
    try:
        read = by_us(path)
    except LabeledError as error:
        named = os.path.basename(path) in str(error)
        return "error of ours" if named else f"FAULT: names no file: {error}"[:300]
    except MemoryError:
        return "FAULT: memory"
    except Exception as error:
        lines = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(one.filename).name}:{one.lineno}" for one in lines][-2:]
        return f"FAULT: {type(error).__name__} {where}: {str(error)[:120]}"
    if any(not same(read[0][name], other[name]) for other in read[1:] for name in read[0]):
        return "FAULT: orders differ"
    as_written = False
    for name, values in read[0].items():
        if name not in (at_h5py or {}):  # a column of a table, or no HDF5 file
            continue
        if not agree(values, at_h5py[name]):
            if not agree_row_by_row(values, at_h5py[name], written.get(name)):
                return f"FAULT: {name} differs from h5py"
            as_written = True
    return "values as written" if as_written else "same values"


def agree(values: list[Any], stored: Any) -> bool:
    """Whether rows are those of a dataset: one by one, or all of them joined in a flat one."""
    if stored is None or np.ndim(stored) == 0:
        return False
    if same(values, stored):
        return True
    return bool(values) and same(
        np.concatenate([_unwrapped(one).ravel() for one in values]), stored
    )


def agree_row_by_row(values: list[Any], stored: Any, written: Any) -> bool:
    """Whether each row is what h5py reads, or what was written where HDF5 no longer finds it."""
    if agree(values, written):
        return True
    some = [np.ndim(one) and len(one) == len(values) for one in (stored, written)]
    return all(some) and all(
        _same_row(one, theirs) or _same_row(one, before)
        for one, theirs, before in zip(values, stored, written, strict=True)
    )


def same(some: Any, others: Any) -> bool:
    """Whether rows are the same, bit for bit; texts may be str or bytes."""
    return len(some) == len(others) and all(map(_same_row, some, others))


def _same_row(one: Any, other: Any) -> bool:
    one, other = _unwrapped(one), _unwrapped(other)
    if one.dtype.kind in "OSU" or other.dtype.kind in "OSU":
        return one.size == other.size and all(map(_same_item, one.ravel(), other.ravel()))
    plain = one.astype(other.dtype.newbyteorder("="), copy=False)
    return one.shape == other.shape and plain.tobytes() == other.astype(plain.dtype).tobytes()


def _unwrapped(value: Any) -> Any:
    """Take a row of variable length out of the array of no axes that holds it."""
    return np.asarray(value[()] if isinstance(value, np.ndarray) else value)


def _same_item(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _same_row(one, other)
    return bool(_text(one) == _text(other))


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def import_all(paths: Collection[str]) -> None:
    """Import here what children need, once; none of the threads that reading starts."""
    for path in paths:
        how, names = in_child(lambda path=path: (by_us(path), sorted(sys.modules))[1])
        for name in names if how == "done" else ():
            with suppress(ImportError, AttributeError):
                importlib.import_module(name)


def in_child(work: Callable[[], Any], seconds: float = WALL_S) -> tuple[str, Any]:
    """Run something in a child with limits; return how it ended ("done", "died", "hung")."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        warnings.simplefilter("ignore")
        os.environ["LABELED_FAST"] = "0"  # compiling would take longer than all the rest
        try:
            answer = pickle.dumps(work())
        except BaseException as error:
            answer = pickle.dumps(("raised", repr(error)))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    ended, data, limit = "hung", b"", time.monotonic() + seconds
    with os.fdopen(reading, "rb") as pipe:
        while (left := limit - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
            part = os.read(pipe.fileno(), 1 << 20)
            if not part:
                ended = "done" if data else "died"
                break
            data += part
    if ended == "hung":
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if ended == "died":
        return f"died of signal {status & 127}", None
    return ended, pickle.loads(data) if ended == "done" else None


def verdict_of(path: str, written: Values) -> str:
    """Open and read a mutant with h5py, then with us, each in a child."""
    hdf5 = path.endswith(".h5")
    ended, theirs = in_child(lambda: by_h5py(path)) if hdf5 else ("done", None)
    known = theirs if isinstance(theirs, dict) else None
    how, verdict = in_child(lambda: judge(path, written, known))
    if how == "done":
        return str(verdict)
    if hdf5 and ended == "done":
        ended, _ = in_child(lambda: attributes_by_h5py(path, written))
    return f"FAULT: {how}" if ended == "done" else "h5py dies or hangs too"


def main(words: list[str] | None = None) -> int:
    """Try mutants for a while; return 1 if any was at fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--mutants", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="part of a layout's name")
    parser.add_argument("--keep", default="fuzz-faults", help="folder for mutants at fault")
    given = parser.parse_args(words)
    seed = int(time.time()) if given.seed is None else given.seed
    rng, counts = np.random.default_rng(seed), Counter[tuple[str, str]]()
    faults: list[str] = []
    limit = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="labeled-fuzz-") as folder:
        names = [name for name in LAYOUTS if given.only in name]
        paths = {name: str(LAYOUTS[name](Path(folder))) for name in names}
        bytes_of = {name: Path(path).read_bytes() for name, path in paths.items()}
        hdf5 = [name for name in names if paths[name].endswith(".h5")]
        import_all(paths.values())
        written = {name: in_child(lambda p=paths[name]: by_h5py(p))[1] for name in hdf5}
        for number in range(given.mutants):
            if time.monotonic() > limit:
                break
            name = names[number % len(names)]
            path = os.path.join(folder, f"mutant{number}{Path(paths[name]).suffix}")
            data = mutant(bytes_of[name], rng)
            Path(path).write_bytes(data)
            found = verdict_of(path, written.get(name, {}))
            counts[name, found if found in FINE else "FAULT"] += 1
            if found not in FINE:
                faults.append(f"{name} {number}: {found}")
                print(faults[-1], flush=True)
                os.makedirs(given.keep, exist_ok=True)
                kept = f"{seed}-{number}-{name.replace(' ', '-')}{Path(path).suffix}"
                shutil.copy(path, os.path.join(given.keep, kept))
            os.unlink(path)
    print(f"seed {seed}: {table_of(counts)}")
    return 1 if faults else 0


def table_of(counts: Counter[tuple[str, str]]) -> str:
    """Write how many mutants of each layout came to what."""
    columns = [*FINE, "FAULT"]
    names = sorted({name for name, _ in counts})
    lines = [f"{sum(counts.values())} mutants", " " * 26 + "".join(f"{c:>25}" for c in columns)]
    lines += [f"{n:26}" + "".join(f"{counts[n, c]:25}" for c in columns) for n in names]
    sums = [sum(counts[name, c] for name in names) for c in columns]
    return "\n".join([*lines, f"{'all':26}" + "".join(f"{n:25}" for n in sums)])


if __name__ == "__main__":
    sys.exit(main())
