"""Statistics measured by workers: the numbers of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from two_workers import (
    DATA,
    file_of_digits,
    two_workers,
)

import labeled
from labeled import cluster as cl
from labeled.errors import ArrayError, ClusterError
from make_files import ragged_file


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    return labeled.open_dataset(file_of_digits(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def client():
    with two_workers() as made:
        yield made


def test_statistics_agree_with_numpy(client, ds):
    found = cl.statistics(client, ds.split("train"), batch_size=7)
    assert set(found) == {"features", "targets"}  # texts have no mean
    x = DATA["features"][:150].astype(float)
    told = found["features"]
    assert (told["n_rows"], told["by"], told["n_values"]) == (150, "channel", [150 * 35] * 3)
    np.testing.assert_allclose(told["mean"], x.mean((0, 2, 3)))
    np.testing.assert_allclose(told["std"], x.std((0, 2, 3)))
    np.testing.assert_array_equal(told["max"], x.max((0, 2, 3)))
    values, counts = np.unique(DATA["targets"][:150], return_counts=True)
    assert found["targets"]["classes"] == dict(zip(map(str, values), counts, strict=True))


def test_statistics_of_ragged_rows(client, tmp_path):
    images = [np.full((1, n % 3 + 1, 2), n, np.uint8) for n in range(12)]
    ds = labeled.open_dataset(ragged_file(tmp_path / "r.hdf5", images, np.zeros((12, 1), int)))
    told = cl.statistics(client, ds, batch_size=5)["image_features"]
    flat = np.concatenate([image.reshape(-1) for image in images])
    assert (told["n_rows"], told["n_values"], told["by"]) == (12, [flat.size], "channel")
    np.testing.assert_allclose((told["mean"], told["std"]), ([flat.mean()], [flat.std()]))
    assert told == ds.statistics("image_features")  # which are small integers: exact


def test_a_cluster_leads_to_its_scheduler(client, ds):
    assert cl.statistics(client.cluster, ds) == cl.statistics(client, ds)
    with pytest.raises(ClusterError, match=r"int is not a client .*pass a distributed\.Client"):
        cl.statistics(3, ds)


def test_no_rows_have_no_statistics(client, ds):
    told = cl.statistics(client, ds.subset([]))
    assert told["features"]["n_rows"] == 0
    assert (told["features"]["n_values"], told["features"]["mean"]) == (0, None)
    assert "classes" not in told["targets"]
    with pytest.raises(ArrayError, match="holds numbers to measure"):
        cl.statistics(client, ds.select("names"))
