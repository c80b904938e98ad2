"""Statistics, histograms and classes measured by workers: the numbers of NumPy."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from two_workers import (
    DATA,
    N,
    file_of_digits,
    two_workers,
)

import labeled
from labeled import cluster as cl
from labeled.errors import ArrayError, ClusterError, LoaderError
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
    assert (told["n_rows"], told["n_values"]) == (12, flat.size)
    np.testing.assert_allclose((told["mean"], told["std"]), (flat.mean(), flat.std()))
    with pytest.raises(ArrayError, match="not one class a row"):
        cl.class_counts(client, ds, "image_features")


def test_histograms_agree_with_numpy(client, ds):
    counts, edges = cl.histogram(client, ds, "features", bins=16, batch_size=30)
    wanted = np.histogram(DATA["features"], 16, (0, 255))
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_array_equal(edges, wanted[1])
    counts, edges = cl.histogram(client, ds, "targets", bins=5, parts=2)  # finds its range first
    wanted = np.histogram(DATA["targets"], 5)
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_allclose(edges, wanted[1])
    counts, edges = cl.histogram(client, ds, "features", bins=4, range=(10, 90))
    wanted = np.histogram(DATA["features"], 4, (10, 90))
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_array_equal(edges, wanted[1])
    with pytest.raises(ArrayError, match="not numbers"):
        cl.histogram(client, ds, "names")
    with pytest.raises(LoaderError, match="bins=0 must be"):
        cl.histogram(client, ds, "features", bins=0)


def test_a_histogram_counts_by_the_edges_it_returns(client, tmp_path):
    """Also of half floats, whose own arithmetic has no such edges."""
    rng = np.random.default_rng(0)
    x = {"half": rng.normal(0, 300, (500, 4)).astype("f2"), "same": np.full((500, 4), 60000, "f2")}
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        for name, values in x.items():
            f[name] = values
            f[name].dims[0].label, f[name].dims[1].label = "batch", "index"
        f["far"] = np.full(500, 2**62)
        f["far"].dims[0].label = "batch"
        f["flags"] = rng.random(500) < 0.3
        f["flags"].dims[0].label = "batch"
        f["real"] = np.zeros(500)
        f["real"].dims[0].label = "batch"
        flags = f["flags"][()]
    ds = labeled.open_dataset(tmp_path / "x.hdf5")
    for name, values in x.items():
        counts, edges = cl.histogram(client, ds, name, bins=10, parts=2)
        np.testing.assert_array_equal(counts, np.histogram(values.astype("f8"), edges)[0])
        assert counts.sum() == values.size
    counts, edges = cl.histogram(client, ds, "flags", bins=2)
    assert (counts.tolist(), edges.tolist()) == ([(~flags).sum(), flags.sum()], [0, 0.5, 1])
    assert cl.class_counts(client, ds, "flags") == {False: (~flags).sum(), True: flags.sum()}
    with pytest.raises(ArrayError, match="float64, not one class a row"):
        cl.class_counts(client, ds, "real")
    with pytest.raises(ArrayError, match=r"'far' of .* no 10 bins from .* give another range="):
        cl.histogram(client, ds, "far", bins=10)


def test_a_cluster_leads_to_its_scheduler(client, ds):
    assert cl.class_counts(client.cluster, ds, "targets") == cl.class_counts(client, ds, "targets")
    with pytest.raises(ClusterError, match=r"int is not a client; pass a distributed\.Client"):
        cl.class_counts(3, ds, "targets")


def test_no_rows_have_no_statistics(client, ds):
    told = cl.statistics(client, ds.subset([]))
    assert told["features"]["n_rows"] == 0
    assert (told["features"]["n_values"], told["features"]["mean"]) == (0, None)
    assert "classes" not in told["targets"]
    counts, edges = cl.histogram(client, ds.subset([]), "targets", bins=3)
    assert counts.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(edges, np.histogram([], 3)[1])
    assert cl.class_counts(client, ds.subset([]), "targets") == {}


def test_classes_are_counted_whatever_they_are(client, ds):
    values, counts = np.unique(DATA["targets"], return_counts=True)
    found = cl.class_counts(client, ds, "targets", batch_size=2)
    assert list(found.items()) == list(zip(values.tolist(), counts.tolist(), strict=True))
    texts = cl.class_counts(client, ds, "names", parts=1)
    assert sum(texts.values()) == N
    assert len(texts) == 4
    with pytest.raises(ArrayError, match="not one class a row"):
        cl.class_counts(client, ds, "features")
