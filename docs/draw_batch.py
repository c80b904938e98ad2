"""Draw docs/batch.png, the picture in the README: one shuffled batch of scanned digits.

Run it from the root of the project, with the extras `demo` and `plot`: python docs/draw_batch.py
"""

import tempfile
from pathlib import Path

import matplotlib as mpl
from sklearn.datasets import load_digits

import labeled

mpl.use("agg")
digits = load_digits()
with tempfile.TemporaryDirectory() as folder:
    path = labeled.write(
        f"{folder}/digits.hdf5",
        {"images": digits.images.astype("u1"), "targets": digits.target.astype("u1")},
        splits={"train": (0, 1437), "test": (1437, 1797)},
        dims={"images": ("batch", "height", "width"), "targets": ("batch",)},
    )
    train = labeled.open_dataset(path).split("train")
    batch = next(iter(train.batches(16, shuffle=True, seed=7)))
    figure = batch.plot().figure
    figure.savefig(Path(__file__).parent / "batch.png", dpi=80, bbox_inches="tight")
