"""``errors="skip"``: what cannot be read is left out, and nothing else moves."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import LabeledWarning
from labeled.spaces import NullSpace

N, CHUNK, BAD = 400, 10, (7, 21)
VALUES = np.random.default_rng(0).integers(0, 99, (N, 64), dtype=np.uint8)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("skip") / "bad.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=VALUES, chunks=(CHUNK, 64), compression="gzip")
        f["y"] = np.arange(N)
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "feature"
        f["y"].dims[0].label = "batch"
        places = [f["x"].id.get_chunk_info(number) for number in BAD]
    status = os.stat(path)
    with open(path, "r+b") as raw:
        for info in places:
            raw.seek(info.byte_offset + 6)
            raw.write(b"\xff" * 40)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return labeled.open_dataset(path)


LOST = np.concatenate([np.arange(b * CHUNK, (b + 1) * CHUNK) for b in BAD])


@pytest.mark.parametrize("shuffle", [False, "window", "full"])
@pytest.mark.parametrize("last", ["keep", "pad"])
@pytest.mark.parametrize("threads", [0, 2])
def test_batches_shrink_and_later_ones_stay(dataset, shuffle, last, threads):
    options = {"shuffle": shuffle, "seed": 3, "last": last, "memory": "8 MiB", "threads": threads}
    unread = dataset.batches(16, specs=(NullSpace(), ""), **options).with_rows()
    planned = [(rows, count) for _, rows, count in unread]
    loader = dataset.batches(16, errors="skip", **options)
    seen = []
    with pytest.warns(LabeledWarning, match="10 rows are left out.*'x'"):
        batches = list(loader)
    assert len(batches) == len(planned)
    for number, batch in enumerate(batches):
        rows, count = planned[number]
        left = rows[:count][~np.isin(rows[:count], LOST)]
        np.testing.assert_array_equal(batch.rows[: batch.count], left)
        np.testing.assert_array_equal(batch.arrays["x"][: batch.count], VALUES[left])
        np.testing.assert_array_equal(batch.arrays["y"][: batch.count], left)
        assert len(batch.arrays["x"]) == (16 if last == "pad" else batch.count)
        assert (batch.rows[batch.count :] == -1).all()
        assert not batch.arrays["x"][batch.count :].any()
        seen.append(left)
    assert sorted(np.concatenate(seen)) == sorted(set(range(N)) - set(LOST))
    assert loader.stats().n_lost == len(LOST)


def test_a_bad_row_of_a_second_file_is_the_one_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("v\n" + "".join(f"{n}\n" for n in range(10)))
    (tmp_path / "b.csv").write_text("v\n" + "".join(f"{n}\n" for n in [10, 11, 12, "?", 14]))
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    ds = labeled.open_dataset(paths, columns="separate", dtype={"v": "int64"})
    with pytest.warns(LabeledWarning, match="1 row is left out"):
        batches = list(ds.batches(4, errors="skip"))
    rows = np.concatenate([batch.rows for batch in batches])
    assert rows.tolist() == [*range(13), 14]
    assert np.concatenate([batch.arrays["v"] for batch in batches]).tolist() == rows.tolist()


def test_no_chunk_is_left_out_for_that_of_another_file(tmp_path):
    for name, values in (("a", range(12)), ("b", range(12, 32))):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            rows = np.array(values).reshape(-1, 1)
            x = file.create_dataset("x", data=rows, chunks=(8, 1), compression="gzip")
            x.dims[0].label, x.dims[1].label = "batch", "feature"
            damaged = x.id.get_chunk_info(0)
    with open(tmp_path / "b.h5", "r+b") as raw:
        raw.seek(damaged.byte_offset)
        raw.write(b"\xff" * damaged.size)
    loader = labeled.open_dataset([tmp_path / "a.h5", tmp_path / "b.h5"]).batches(4, errors="skip")
    with pytest.warns(LabeledWarning, match="left out of this epoch"):
        found = np.concatenate([batch["x"].values.ravel() for batch in loader])
    assert sorted({*range(32)} - {*found.tolist()}) == list(range(12, 20))
