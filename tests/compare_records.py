"""Compare the old iterators with what the genuine programs returned: one line for every case.

``LABELED_REFERENCE=folder python tests/compare_records.py [--mnist folder] [word ...]`` runs the
recorded cases whose names hold one of the words, all without any, and prints a table: the case,
whether labels, order and shapes agree, how far values are apart, in what share of them, and why.
It ends with status 1 where a case is beyond its bounds: labels, pads, row numbers and shapes have
to agree exactly, values to within 4.5 levels in at most 30 % of places.

The folder holds ``ref/`` and ``ref095/``, each a ``cases.json`` with parameters and an ``.npz``
file for each case, the inputs that these name, and mean images that the recorded runs made. The
four IDX files of MNIST, which some cases name, may lie in a folder of their own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labeled.compat import mxnet
from labeled.transforms import read_mean_file

MAX_LEVELS = 4.5
MAX_SHARE = 0.30

VERSIONS = {"ref": "1.9.1", "ref095": "0.9.5"}
PATHS = ("path_imgrec", "path_imgidx", "path_imglist", "mean_img", "data_csv", "label_csv")
FILES = ("image", "label")
"""Parameters that are paths; the second kind only of `MNISTIter`."""

MNIST = "mnist"
"""Where cases look for the files of MNIST, beside the others."""

STALE_ROWS = "padded rows are uninitialised memory in the recording; the others are compared"
STALE_PAD = "pad is stale from the second epoch on in the recording; compared in the first"
DEFECTS = {
    "ref/round0_b5": STALE_ROWS,
    "ref/round1_b5_idx": STALE_PAD,
}
"""What cannot be repeated, by case: defects of the recorded programs."""

N_PHOTOS = 12
"""Records of the files of the cases whose padded rows are stale."""

MEANS = ("ref/mean_img", "ref/mean_img_created_scaled", "ref095/mean_img_created_scaled")
"""Cases whose mean image was made by their own parameters."""

REASONS = {
    "ref095/plain_jpeg": "another libjpeg decoded the recording; its pixels need jpeglib",
}
"""Why values may differ, by case."""

LATER_OPENCV = "the recording used OpenCV 3; here is {}, which rounds otherwise"
"""Why they may differ in any other."""


@dataclass(frozen=True)
class Case:
    """One recorded run."""

    name: str
    folder: Path
    version: str
    iterator: str
    parameters: dict[str, Any]
    epochs: int
    mnist: Path

    @property
    def missing(self) -> list[str]:
        """Input files that are not there."""
        return [path for path in self._paths.values() if not Path(path).exists()]

    @property
    def _paths(self) -> dict[str, str]:
        """Parameters that are paths, as they are to be opened."""
        names = FILES if self.iterator == "MNISTIter" else PATHS
        given = {name: Path(self.parameters[name]) for name in names if self.parameters.get(name)}
        return {
            name: str(self.mnist / path.name if path.parts[0] == MNIST else self.folder / path)
            for name, path in given.items()
        }

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Run the case: yield (epoch, batch)."""
        given = {name: value for name, value in self.parameters.items() if name != "limit"}
        given |= self._paths
        batches = getattr(mxnet, self.iterator)(version=self.version, **given)
        limit = self.parameters.get("limit", sys.maxsize)
        for epoch in range(self.epochs):
            if epoch:
                batches.reset()
            for number, batch in enumerate(batches):
                if number < limit:
                    yield epoch, batch


@dataclass(frozen=True)
class Found:
    """What the comparison of one case found."""

    name: str
    wrong: tuple[str, ...] = ()
    furthest: float = 0.0
    share: float = 0.0
    reason: str = ""
    compared: bool = True

    @property
    def good(self) -> bool:
        return not self.wrong and self.furthest <= MAX_LEVELS and self.share <= MAX_SHARE

    def line(self) -> str:
        if not self.compared:
            return f"{self.name:34} {'not run':8} {'':10} {'':8} {self.reason}"
        status = "exact" if self.furthest == 0 and self.good else "near" if self.good else "WRONG"
        words = "; ".join((*self.wrong, *([self.reason] if self.reason else [])))
        return f"{self.name:34} {status:8} {self.furthest:10.4g} {self.share:8.2%} {words}"


def cases(folder: Path, mnist: Path | None = None) -> Iterator[Case]:
    """Yield the recorded cases of a folder; the files of MNIST may lie in another."""
    for part, version in VERSIONS.items():
        for one in json.loads((folder / part / "cases.json").read_text())["cases"]:
            yield Case(
                f"{part}/{one['name']}", folder, version, one["iterator"], one["params"],
                one["epochs"], mnist or folder / MNIST,
            )  # fmt: skip


def compare(case: Case) -> Found:
    """Run one case, and compare every batch with the recording."""
    if case.missing:
        return Found(case.name, reason=f"there is no {case.missing[0]}", compared=False)
    with np.load(case.folder / f"{case.name}.npz") as recording:
        wanted = dict(recording)
    try:
        found = list(case.batches())
    except Exception as error:  # a case that fails is a line of the table
        return Found(case.name, (f"{type(error).__name__}: {error}",))
    epochs = [epoch for epoch, _ in found]
    if epochs != wanted["epoch"].tolist():
        return Found(case.name, (f"batches of epochs {epochs} for {wanted['epoch'].tolist()}",))
    defect = DEFECTS.get(case.name, "")
    wrong: set[str] = set()
    away: list[Any] = []
    for place, (epoch, batch) in enumerate(found):
        recorded = {name: wanted[name][place] for name in ("data", "label", "pad", "index")}
        real = len(batch.data[0])
        if defect == STALE_ROWS and epoch != [*epochs[1:], -1][place]:
            real -= -N_PHOTOS % real
        wrong |= _differences(batch, recorded, real, tells_pad=defect != STALE_PAD or not epoch)
        if "shape" not in wrong:
            away.append(_apart(batch.data[0][:real], recorded["data"][:real]))
    return _summed(case.name, away, tuple(sorted(wrong)), defect)


def _differences(batch: Any, recorded: dict[str, Any], real: int, *, tells_pad: bool) -> set[str]:
    """Return what differs that must not; of `real` rows where it is told by row."""
    data, label = batch.data[0], batch.label[0]
    same = {
        "shape": data.shape == recorded["data"].shape and label.shape == recorded["label"].shape,
        "dtype": data.dtype == recorded["data"].dtype and label.dtype == recorded["label"].dtype,
        "pad": not tells_pad or batch.pad == recorded["pad"],
    }
    if same["shape"]:
        same["labels"] = np.array_equal(label[:real], recorded["label"][:real])
        same["index"] = np.array_equal(batch.index[:real], recorded["index"][:real])
    return {name for name, good in same.items() if not good}


def _apart(found: Any, recorded: Any) -> Any:
    """Return how far values are apart; 0 where both are the same, infinite or not a number."""
    same = (found == recorded) | ((found != found) & (recorded != recorded))
    return np.abs(np.where(same, 0, found) - np.where(same, 0, recorded).astype(float))


def _summed(name: str, away: list[Any], wrong: tuple[str, ...] = (), reason: str = "") -> Found:
    values = np.concatenate([one.ravel() for one in away]) if away else np.zeros(1)
    share = np.count_nonzero(values) / values.size
    reasons = [reason] if reason else []
    if share:
        opencv = importlib.import_module("cv2").__version__
        reasons.append(REASONS.get(name, LATER_OPENCV.format(opencv)))
    return Found(name, wrong, float(values.max()), share, "; ".join(reasons))


def made_means(folder: Path, only: Sequence[str]) -> Iterator[Found]:
    """Let iterators compute mean images, and compare the files with those that were recorded."""
    for case in cases(folder):
        name = f"{case.name} (file)"
        if case.name not in MEANS or (only and not any(word in name for word in only)):
            continue
        recorded = folder / case.parameters["mean_img"]
        with tempfile.TemporaryDirectory() as place:
            made = Path(place) / "mean.bin"
            parameters = case.parameters | {"mean_img": str(made)}
            next(replace(case, parameters=parameters).batches())
            away = _apart(read_mean_file(made), read_mean_file(recorded))
            same = made.read_bytes() == recorded.read_bytes()
        yield _summed(name, [away], () if same or away.any() else ("bytes of the file",))


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a case is beyond its bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="words that names of cases hold")
    parser.add_argument("--mnist", type=Path, help="folder of the IDX files of MNIST")
    given = parser.parse_args(words)
    folder = os.environ.get("LABELED_REFERENCE")
    if not folder:
        parser.error("set LABELED_REFERENCE to the folder of recorded cases")
    print(f"{'case':34} {'status':8} {'furthest':>10} {'share':>8} reason")
    found = []
    for case in cases(Path(folder), given.mnist):
        if not given.only or any(word in case.name for word in given.only):
            found.append(compare(case))
            print(found[-1].line(), flush=True)
    for one in made_means(Path(folder), given.only):
        found.append(one)
        print(one.line(), flush=True)
    run = [one for one in found if one.compared]
    exact = sum(one.good and one.furthest == 0 for one in run)
    near = sum(one.good for one in run) - exact
    print(
        f"{len(found)} cases: {exact} exact, {near} near, {len(run) - exact - near} wrong, "
        f"{len(found) - len(run)} not run"
    )
    return 0 if exact + near == len(run) else 1


if __name__ == "__main__":
    sys.exit(main())
