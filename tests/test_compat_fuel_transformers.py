"""`fuel.transformers` by aliases: each with examples, batches, labels and refusals."""

from __future__ import annotations

import gc
import logging
import pickle
import subprocess
import sys

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel.datasets import IndexableDataset
from fuel.exceptions import AxisLabelsMismatchError
from fuel.schemes import SequentialExampleScheme, SequentialScheme
from fuel.streams import DataStream
from fuel.transformers import (
    ExpectsAxisLabels,
    Mapping,
    MultiProcessing,
    Rename,
    Unpack,
)
from numpy.testing import assert_array_equal

LABELS = {"x": ("batch", "height", "width"), "y": ("batch", "index")}


@pytest.fixture
def arrays():
    return {"x": np.arange(32.0).reshape(8, 2, 2), "y": np.arange(8).reshape(8, 1)}


@pytest.fixture
def batches(arrays):
    dataset = IndexableDataset(arrays, axis_labels=dict(LABELS))
    return DataStream(dataset, iteration_scheme=SequentialScheme(8, 4))


@pytest.fixture
def examples(arrays):
    dataset = IndexableDataset(arrays, axis_labels=dict(LABELS))
    return DataStream(dataset, iteration_scheme=SequentialExampleScheme(8))


def items(stream, **options):
    return list(stream.get_epoch_iterator(**options))


# ---------------------------------------------------------------- the background, labels
def test_fetching_ahead(batches, arrays):
    stream = MultiProcessing(Mapping(batches, lambda data: (data[0] + 1, data[1])), max_store=2)
    for _ in range(2):
        found = items(stream)
        assert_array_equal(np.concatenate([x for x, _ in found]), arrays["x"] + 1)
    with pytest.raises(ValueError):
        stream.get_data([0])


def test_nothing_is_fetched_for_nobody(batches):
    stream = MultiProcessing(batches, max_store=1)
    items(stream)
    background = stream.background
    del stream
    gc.collect()
    background.join(10)
    assert not background.is_alive()


BROKEN_OFF = """
import atexit, time
begun, ended = [], []
atexit.register(lambda: print(len(begun), len(begun) - len(ended)))  # after whatever comes later
import numpy as np
from labeled.compat.fuel.datasets import IndexableDataset
from labeled.compat.fuel.schemes import SequentialScheme
from labeled.compat.fuel.streams import DataStream
from labeled.compat.fuel.transformers import Mapping, MultiProcessing


def slowly(data):
    begun.append(0)
    time.sleep(0.3)
    ended.append(0)
    return data


stream = DataStream(IndexableDataset(np.arange(90)), iteration_scheme=SequentialScheme(90, 9))
stream = MultiProcessing(Mapping(stream, slowly))
for batch in stream.get_epoch_iterator():
    raise SystemExit("broken off")
"""


def test_the_background_ends_what_it_fetches_before_the_program_ends():
    out = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF], capture_output=True, text=True, timeout=60, check=False
    )
    assert (out.returncode, out.stderr) == (1, "broken off\n")
    begun, on_their_way = map(int, out.stdout.split())
    assert begun > 1
    assert on_their_way == 0


def test_errors_of_the_background_arrive(batches):
    stream = MultiProcessing(Mapping(batches, lambda data: data[7]))
    for _ in range(2):
        with pytest.raises(IndexError):
            items(stream)


class Images(ExpectsAxisLabels):
    pass


def test_labels_are_verified_once(caplog):
    images = Images()
    images.verify_axis_labels(("batch", "x"), ("batch", "x"), "a")
    images.verify_axis_labels(("batch", "x"), ("other",), "a")
    with pytest.raises(AxisLabelsMismatchError):
        images.verify_axis_labels(("batch", "x"), ("other",), "b")
    with caplog.at_level(logging.WARNING, "fuel.transformers"):
        for _ in range(2):
            images.verify_axis_labels(("batch", "x"), None, "c")
    assert len(caplog.records) == 1


def test_unpacking_goes_on_after_pickling(batches, arrays):
    epoch = Unpack(batches).get_epoch_iterator()
    next(epoch)
    rest = pickle.loads(pickle.dumps(epoch))  # halfway through the first batch
    assert_array_equal([x for x, _ in rest], arrays["x"][1:])


def test_a_rename_that_is_not_there_is_logged(batches, caplog):
    with caplog.at_level(logging.WARNING, "fuel.transformers"):
        Rename(batches, {"z": "b"}, on_non_existent="ignore")
        assert not caplog.records
        Rename(batches, {"z": "b"}, on_non_existent="warn")
    assert len(caplog.records) == 1
