"""Augmentation against the shortest loops by hand, and against OpenCV and Pillow.

    python benchmarks/augment.py [--quick]

The ways of each row take turns, and the median of each counts: compare the ratios. "by hand" is
NumPy picture by picture; where a library stands beside it, it does the same step alone on one
thread. `ours` draws for each row of a dataset apart from all others, and resizes by areas.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.copies import Effort, medians
from labeled.transforms import Affine, Augment, Mirror, Normalize, RandomCrop, Resize

Ways = dict[str, Callable[[], object]]

FIRST = ("batch", "channel", "height", "width")
LAST = ("batch", "height", "width", "channel")
MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)


def cropped_by_hand(images: Any, size: int, last: bool) -> Any:
    """Crop, mirror and normalise picture by picture into one array."""
    mean, std = (np.array(v, np.float32).reshape(-1, 1, 1) for v in (MEAN, STD))
    planes = images.transpose(0, 3, 1, 2) if last else images
    out = np.empty((len(images), 3, size, size), np.float32)
    slack = planes.shape[2] - size
    for number, image in enumerate(planes):
        top, left = number % (slack + 1), number * 7 % (slack + 1)
        view = image[:, top : top + size, left : left + size]
        out[number] = ((view[..., ::-1] if number % 2 else view) - mean) / std
    return out


def rows(quick: bool) -> Iterator[tuple[str, int, Ways]]:
    """Yield what is compared: its name, how many pictures, and the ways."""
    random = np.random.default_rng(0)
    small = random.integers(0, 256, (256, 3, 32, 32), dtype=np.uint8)
    large = random.integers(0, 256, (8 if quick else 32, 256, 256, 3), dtype=np.uint8)
    for name, images, dims, size in [
        ("crop, mirror, normalise 3 x 28 x 28", small, FIRST, 28),
        ("crop, mirror, normalise, planes of 224 x 224", large, LAST, 224),
    ]:
        steps = [RandomCrop(size), Mirror(), Normalize(MEAN, STD)]
        fused = Augment(steps, axes=("b", "c", 0, 1), dims=dims)
        yield (
            name,
            len(images),
            {
                "ours": lambda fused=fused, images=images: fused(images),
                "by hand": lambda i=images, s=size, d=dims: cropped_by_hand(i, s, d == LAST),
            },
        )
    yield "resize 256 to 224, antialiased", len(large), resizing(large)
    yield "turn by up to 20 degrees", len(large), turning(large)


def resizing(images: Any) -> Ways:
    """Return the ways to resize, of the libraries that are here."""
    ways: Ways = {"ours": lambda: Resize(224)(images, dims=LAST)}
    pillow, opencv = library("PIL.Image"), library("cv2")
    if pillow is not None:
        ways["Pillow"] = lambda: [
            np.asarray(pillow.fromarray(one).resize((224, 224), pillow.Resampling.BILINEAR))
            for one in images
        ]
    if opencv is not None:
        ways["OpenCV, no antialiasing"] = lambda: [opencv.resize(one, (224, 224)) for one in images]
    return ways


def turning(images: Any) -> Ways:
    """Return the ways to turn pictures, of the libraries that are here."""
    ways: Ways = {"ours": lambda: Affine(rotate=(-20, 20))(images, dims=LAST)}
    opencv = library("cv2")
    if opencv is not None:
        turn = opencv.getRotationMatrix2D((128, 128), 13, 1.0)
        ways["OpenCV"] = lambda: [opencv.warpAffine(one, turn, (256, 256)) for one in images]
    return ways


def library(name: str) -> Any:
    """Return a module, on one thread; None where it is missing."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        return None
    if name == "cv2":
        found.setNumThreads(1)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer pictures and repeats")
    quick = parser.parse_args().quick
    print("| what | way | µs a picture | ours / it |\n| --- | --- | --- | --- |")
    for name, count, ways in rows(quick):
        times = medians(ways, Effort(5, 5.0) if quick else Effort(20, 30.0))
        for way, seconds in times.items():
            micros, ratio = seconds / count * 1e6, seconds / times["ours"]
            print(f"| {name} | {way} | {micros:,.1f} | {ratio:.2f} x |")


if __name__ == "__main__":
    main()
