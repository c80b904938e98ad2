"""``errors="skip"``: pictures too small for an augmentation are left out like undecodable ones."""

from __future__ import annotations

import numpy as np
import pytest
from ragged_files import ragged_path
from record_files import png, write_records

import labeled
from labeled.errors import LabeledWarning, ReadError
from labeled.transforms import Augment, Mirror, Normalize, RandomCrop, whole

N, SMALL, BROKEN = 60, (3, 4, 17, 40, 41, 42, 43, 59), (11, 40, 58)
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.filterwarnings("ignore:row .* is left out of this epoch")
DIMS = ("height", "width", "channel")
STEPS = Augment([RandomCrop(12), Mirror(), Normalize(128, 64)])


def picture(row):
    side = 9 if row in SMALL else 14 + row % 3
    return RNG.integers(0, 256, (side, side + row % 2, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def pictures():
    return [picture(row) for row in range(N)]


@pytest.fixture(scope="module")
def arrays(tmp_path_factory, pictures):
    path = ragged_path(tmp_path_factory.mktemp("skip") / "r.hdf5", "flat", pictures)
    return labeled.open_dataset(path, dims={"x": ("batch", "height", "width", "channel")})


def batches(dataset, name, **options):
    given = {"shuffle": True, "seed": 7, "errors": "skip"} | options
    return dataset.batches(8, pipeline={name: STEPS}, **given)


def seen(loader):
    """Return what an epoch hands out by row, its batches in order."""
    with pytest.warns(LabeledWarning, match="left out of this epoch: a picture of 9"):
        return [(batch.rows.tolist(), batch["x"].values) for batch in loader]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_small_pictures_are_left_out_and_no_other_row_moves(arrays, pictures, threads, shuffle):
    loader = batches(arrays, "x", threads=threads, shuffle=shuffle)
    planned = [batch.rows for batch in arrays.batches(8, shuffle=shuffle, seed=7)]
    made = seen(loader)
    expected = [rows[~np.isin(rows, SMALL)].tolist() for rows in planned]
    assert [rows for rows, _ in made] == expected
    assert loader.stats().n_lost == len(SMALL)
    for rows, images in made:
        for row, image in zip(rows, images, strict=True):
            np.testing.assert_array_equal(image, STEPS(pictures[row], rows=row, seed=7, dims=DIMS))


def test_both_kinds_of_loss_are_counted_together(arrays):
    def read(sample):
        if sample.row in BROKEN:
            raise ReadError("broken")
        return sample

    loader = arrays.batches(8, pipeline=[{"x": STEPS}, read], errors="skip", seed=7)
    with pytest.warns(LabeledWarning):
        rows = np.concatenate([batch.rows for batch in loader])
    lost = {*SMALL, *BROKEN}
    assert sorted(rows) == sorted({*range(N)} - lost)
    assert loader.stats().n_lost == len(lost)
    few = arrays.batches(
        8, pipeline=[{"x": STEPS}, read], errors="skip", max_lost=len(lost) - 1, seed=7
    )
    with pytest.warns(LabeledWarning), pytest.raises(ReadError, match="max_lost"):
        list(few)


def test_no_row_is_changed_twice_where_others_are_left_out(arrays, pictures):
    def darker(images):
        for image in images.values:
            image //= 2
        return images

    steps = {"x": [whole(darker), RandomCrop(12)]}
    for batch in arrays.batches(8, pipeline=steps, errors="skip", seed=7, shuffle=True):
        for row, image in zip(batch.rows, batch["x"].values, strict=True):
            halved = RandomCrop(12)(pictures[row] // 2, rows=row, seed=7, dims=DIMS)
            np.testing.assert_array_equal(image, halved)


@pytest.mark.parametrize("stop", [1, 5])
def test_a_resumed_epoch_and_parts_agree(arrays, stop):
    whole = seen(batches(arrays, "x"))
    loader = batches(arrays, "x", threads=2)
    epoch = iter(loader)
    for _ in range(stop):
        next(epoch)
    state = loader.state_dict()
    resumed = batches(arrays, "x")
    resumed.load_state_dict(state)
    rest = [batch.rows.tolist() for batch in resumed]
    assert rest == [rows for rows, _ in whole[stop:]]
    parts = [batch.rows for k in range(3) for batch in batches(arrays, "x", shard=(k, 3))]
    assert sorted(np.concatenate(parts)) == sorted({*range(N)} - {*SMALL})


@pytest.mark.filterwarnings("ignore:.* rows? (is|are) left out")
def test_damaged_and_small_pictures_of_record_files_are_left_out(tmp_path, pictures):
    encoded = [png(one) for one in pictures]
    for row in BROKEN:
        encoded[row] = encoded[row][: len(encoded[row]) // 2]
    write_records(tmp_path / "x.rec", encoded, np.arange(N))
    records = labeled.open_dataset(tmp_path / "x.rec")
    lost = {*SMALL, *BROKEN}
    for options in ({"threads": 1}, {"threads": 3}, {"shuffle": "window"}, {"shuffle": False}):
        loader = batches(records, "images", **options)
        with pytest.warns(LabeledWarning, match="left out"):
            made = list(loader)
        found = {}
        for batch in made:
            assert batch["labels"].values.tolist() == batch.rows.tolist()
            found |= dict(zip(batch.rows.tolist(), batch["images"].values, strict=True))
        assert sorted(found) == sorted({*range(N)} - lost)
        assert loader.stats().n_lost == len(lost)
        for row, image in found.items():
            once = STEPS(pictures[row], rows=row, seed=7, dims=DIMS)
            np.testing.assert_array_equal(image, once)
    parts = [b.rows for k in range(2) for b in batches(records, "images", shard=(k, 2))]
    assert sorted(np.concatenate(parts)) == sorted({*range(N)} - lost)
    few = batches(records, "images", max_lost=len(lost) - 1)
    with pytest.warns(LabeledWarning), pytest.raises(ReadError, match="max_lost"):
        list(few)
