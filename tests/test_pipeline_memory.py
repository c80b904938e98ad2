"""What augmentations and other stated transforms make is within ``memory=``, like all the rest."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from dask.utils import parse_bytes
from peak_memory import traced

import labeled
from labeled import permute
from labeled import transforms as tf
from labeled.errors import LoaderError, PipelineError

DIMS = ("batch", "channel", "height", "width")
SHAPE = (48, 3, 48, 40)
MIB = 1 << 20
MEAN_IMAGE = np.zeros((3, 30, 30))

TRANSFORMS = [
    tf.Resize(150),
    tf.Resize(20),
    tf.RandomResizedCrop(96),
    tf.Affine(rotate=(-20, 20)),
    tf.Affine(scale=2, canvas=90, method="lanczos"),
    tf.Jitter(0.3, 0.3, 0.3),
    tf.ShiftHSL(10, 0.1, 0.1),
    tf.Contrast(0.3),
    tf.Pad(8),
    tf.Augment([tf.RandomCrop(30), tf.Normalize(MEAN_IMAGE), tf.Mirror()]),
    tf.Augment(
        [tf.RandomResizedCrop(96), tf.Jitter(0.3), tf.Affine(rotate=9), tf.Normalize(127, 60)]
    ),
    tf.Augment(
        [tf.Resize(140), tf.RandomCrop(20), tf.ShiftHSL(9, 0.1, 0.1), tf.Pad(4)], dtype="f8"
    ),
]


@pytest.mark.parametrize("dtype", ["u1", "f4"])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_transforms_take_what_they_state(transform, dtype):
    images = np.random.default_rng(0).integers(0, 200, SHAPE).astype(dtype)
    form = tf.RowSpec(DIMS[1:], (SHAPE[1:],), images.dtype)
    if permute.available():
        importlib.import_module("numba")  # else in whichever call pays for it
    transform(images, seed=3, dims=DIMS)  # imports, and compiled loops
    made, peak_bytes = traced(lambda: transform(images, seed=3, dims=DIMS))
    after, work_bytes = transform.memory_after(form)
    assert made.nbytes == after.row_bytes * len(images)
    assert peak_bytes - made.nbytes <= work_bytes + MIB // 4


SCRIPT = """
import ctypes, json, sys, threading, time
import numpy as np
import labeled
from labeled import permute
from labeled.transforms import *
from labeled.transforms import takes


def held():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) * 1024


@takes(row_bytes=4 * 3 * 96 * 96)
def tripled(sample):
    return {"x": np.tile(sample["x"].values, (1, 2, 2)).astype("f4")}


dataset, memory = labeled.open_dataset(sys.argv[1]), sys.argv[3]
pipeline = eval(sys.argv[2])
next(iter(dataset.subset(slice(0, 32)).batches(32, pipeline=pipeline)))  # imports
loader = dataset.batches(32, pipeline=pipeline, shuffle=True, seed=1, memory=memory)
ctypes.CDLL(None).malloc_trim(0)
before, peak, done = held(), 0, threading.Event()


def watch():
    global peak
    while not done.is_set():
        peak = max(peak, held())
        time.sleep(0.0005)


watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
for number, batch in enumerate(loader):
    data = np.asarray(batch["x"])
    data.reshape(-1).view(np.uint8)[::64].sum()
    if number == 3:
        time.sleep(0.2)
done.set()
watcher.join()
print(json.dumps({"growth": peak - before, "promised": loader.explain().promised_bytes}))
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "pictures.hdf5"
    with h5py.File(path, "w") as f:
        f["x"] = np.random.default_rng(0).integers(0, 256, (600, 3, 48, 48), np.uint8)
        for axis, dim in enumerate(DIMS):
            f["x"].dims[axis].label = dim
    return str(path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="samples /proc/self/status")
@pytest.mark.parametrize(
    ("pipeline", "memory"),
    [
        ("{'x': [RandomResizedCrop(96), Augment([Affine(rotate=9)], dtype='f4')]}", "60 MiB"),
        ("{'x': Augment([RandomCrop(40), Mirror(), Normalize(127, 60)])}", "20 MiB"),
        ("tripled", "48 MiB"),
    ],
)
def test_growth_stays_within_what_is_promised(pictures, pipeline, memory):
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, pictures, pipeline, memory],
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    told = json.loads(out.stdout)
    assert told["promised"] // 3 < told["growth"] <= told["promised"]
    assert told["promised"] <= parse_bytes(memory)


def test_a_pipeline_that_makes_more_than_memory_is_refused(pictures):
    dataset = labeled.open_dataset(pictures)
    with pytest.raises(LoaderError, match=r"too small.*give memory='"):
        dataset.batches(64, pipeline={"x": tf.Resize(512)}, memory="64 MiB")
    dataset.batches(64, pipeline={"x": tf.Resize(64)}, memory="64 MiB")


def test_what_is_not_counted_is_reported_by_name(pictures):
    dataset = labeled.open_dataset(pictures)

    def doubled(image):
        return image * 2

    plain = dataset.batches(16, pipeline={"x": doubled})
    assert "not counted: what" in repr(plain.explain())
    assert "doubled" in repr(plain.explain())
    collated = dataset.batches(16, pipeline=tf.Stages(collate=list)).explain()
    assert collated.uncounted == ("list",)
    for stated in (
        {"x": tf.Resize(20)},
        tf.whole(tf.takes(100)(doubled)),
        {"x": [tf.takes(9)(doubled)]},
    ):
        explained = dataset.batches(16, pipeline=stated).explain()
        assert explained.uncounted == ()
        assert "not counted: what" not in repr(explained)
    with pytest.raises(PipelineError, match="row_bytes=-1"):
        tf.takes(-1)
