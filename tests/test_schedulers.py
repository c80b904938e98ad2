"""Lazy arrays travel: to dask's processes and to a distributed scheduler, as paths."""

from __future__ import annotations

import distributed
import numpy as np
import pytest
from two_workers import forked_workers

import labeled
from make_files import fuel_file

IMAGES = np.random.default_rng(0).integers(0, 255, (60, 3, 4, 4), dtype=np.uint8)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        {"images": IMAGES},
        {"train": np.arange(60)[::-2].copy()},
        {"images": ("batch", "channel", "height", "width")},
        chunks={"images": (8, 3, 4, 4)},
        compression={"images": "gzip"},
    )
    return labeled.open_dataset(path, chunks={"batch": 8}).split("train")


@pytest.mark.filterwarnings("ignore::labeled.errors.LabeledWarning")
@pytest.mark.parametrize("processes", [False, True])
def test_a_cluster_computes_the_same(train, processes):
    options = {"worker_dashboard_address": "127.0.0.1:0"} if not processes else {}
    with (
        forked_workers(),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=processes,
            dashboard_address="127.0.0.1:0",
            **options,
        ) as cluster,
        distributed.Client(cluster),
    ):
        np.testing.assert_array_equal(train["images"].compute().values, IMAGES[::-2])
        mean = train["images"].mean("batch").compute()
        np.testing.assert_allclose(mean, IMAGES[::-2].mean(0))
