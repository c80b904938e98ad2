"""``batches(pipeline=...)``: the same results whoever does the work, and where it goes on."""

from __future__ import annotations

import json
import re
from itertools import islice

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from ragged_files import ragged_path

import labeled
from labeled.errors import (
    LabeledWarning,
    LoaderError,
    PipelineError,
    ReadError,
)
from labeled.samplers import shuffled
from labeled.spaces import CompositeSpace, Conv2DSpace, IndexSpace, VectorSpace
from labeled.transforms import (
    Augment,
    Crop,
    SampleContext,
    Stack,
    Stages,
    stack,
    whole,
)
from make_files import fuel_file

N = 157
RNG = np.random.default_rng(9)
IMAGES = RNG.integers(0, 255, (N, 2, 4, 5), dtype=np.uint8)
TARGETS = RNG.integers(0, 10, (N, 1), dtype=np.uint8)
DIMS = ("batch", "channel", "height", "width")


@pytest.fixture(scope="module", params=["contiguous", "gzip"])
def dataset(request, tmp_path_factory):
    chunked = {"chunks": {"images": (8, 2, 4, 5)}, "compression": {"images": "gzip"}}
    path = fuel_file(
        tmp_path_factory.mktemp(request.param) / "d.hdf5",
        {"images": IMAGES, "targets": TARGETS},
        {"all": (0, N)},
        {"images": DIMS, "targets": ("batch", "index")},
        **(chunked if request.param == "gzip" else {}),
    )
    return labeled.open_dataset(path)


def noisy(image, rng):
    """Add numbers of this row's own."""
    return image + rng.integers(0, 1000, image.shape)


def noised(row, seed, epoch, path):
    """What :func:`noisy` makes of a row, worked out outside of any loader."""
    return IMAGES[row] + SampleContext(seed, epoch, row, path=path).rng().integers(
        0, 1000, (2, 4, 5)
    )


def shifted(images, rows, seed, epoch):
    """A transform of whole batches."""
    amount = (np.asarray(rows) * 7 + seed + epoch).reshape(-1, 1, 1, 1)
    return images.astype(np.int64) + amount


few = settings(max_examples=max(4, settings.default.max_examples // 4))

orders = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from([False, True, "full", "window"]),
        "seed": st.integers(0, 5),
        "epoch": st.integers(0, 2),
        "window_rows": st.integers(16, 90),
    }
)
ways = st.fixed_dictionaries(
    {
        "threads": st.none() | st.integers(0, 3),
        "prefetch": st.none() | st.integers(1, 3),
        "memory": st.sampled_from(["7 MiB", "64 MiB"]),
    }
)


@few
@given(orders, ways, st.integers(1, 40), st.integers(1, 3), st.sampled_from(["keep", "pad"]))
def test_a_row_becomes_the_same_whoever_works_on_it(dataset, order, way, size, count, last):
    seen = []
    for index in range(count):
        loader = dataset.batches(
            size, pipeline={"images": noisy}, shard=(index, count), last=last, **order, **way
        )
        plain = dataset.batches(size, shard=(index, count), last=last, **order, **way)
        for batch, other in zip(loader, plain, strict=True):
            np.testing.assert_array_equal(batch.rows, other.rows)
            assert batch.count == other.count
            assert batch["images"].dims == DIMS
            assert len(batch["images"]) == len(other["images"])
            for row, image in zip(batch.rows[: batch.count], batch.arrays["images"], strict=False):
                wanted = noised(row, order["seed"], order["epoch"], ("images",))
                np.testing.assert_array_equal(image, wanted)
            np.testing.assert_array_equal(batch.arrays["targets"], other.arrays["targets"])
            seen += batch.rows[: batch.count].tolist()
    assert sorted(seen) == list(range(N))


@pytest.mark.filterwarnings("ignore:the state was saved with seed")
@few
@given(orders, ways, st.data())
def test_a_saved_place_goes_on_with_the_same_numbers(dataset, order, way, data):
    pipeline = Stages({"images": [noisy, noisy]}, batch=lambda batch: batch["images"].values)
    whole_epoch = list(dataset.batches(11, pipeline=pipeline, **order))
    at = data.draw(st.integers(0, len(whole_epoch) - 1))
    first = dataset.batches(11, pipeline=pipeline, **order)
    with iter(first) as iterator:
        for _ in range(at):
            next(iterator)
        saved = json.loads(json.dumps(first.state_dict()))
    again = dataset.batches(11, pipeline=pipeline, **{**order, "seed": None}, **way)
    again.load_state_dict(saved)
    for mine, wanted in zip(again, whole_epoch[at:], strict=True):
        np.testing.assert_array_equal(mine, wanted)


@few
@given(orders, ways, st.integers(1, 40))
def test_whole_batches_come_first_and_know_their_rows(dataset, order, way, size):
    pipeline = {"images": [shifted, lambda image: image.isel(channel=0)], "targets": whole(np.sqrt)}
    for batch in dataset.batches(size, pipeline=pipeline, **order, **way):
        amount = (batch.rows * 7 + order["seed"] + order["epoch"]).reshape(-1, 1, 1)
        np.testing.assert_array_equal(batch["images"], IMAGES[batch.rows][:, 0] + amount)
        assert batch["images"].dims == ("batch", "height", "width")
        np.testing.assert_array_equal(batch["targets"], np.sqrt(TARGETS[batch.rows]))


def test_a_mark_stays_where_a_stage_is_one_transform(dataset):
    lengths = []
    pipeline = Stages(whole(lambda batch: lengths.append(len(batch.rows)) or batch))
    assert len(list(dataset.batches(50, pipeline=pipeline))) == len(lengths)
    stated = labeled.transforms.takes(row_bytes=8)(lambda sample: sample)
    assert not dataset.batches(50, pipeline=Stages(stated)).explain().uncounted


def test_specs_are_taken_apart_along_their_own_axes(dataset):
    space = CompositeSpace(
        (Conv2DSpace((4, 5), num_channels=2, axes=("c", 0, 1, "b")), IndexSpace(10, 1))
    )
    specs = (space, ("images", "targets"))
    changed = Stages(lambda pair: (pair[0] * 2.0, pair[1]))
    for made, (images, targets) in zip(
        dataset.batches(32, specs=specs, pipeline=changed),
        dataset.batches(32, specs=specs),
        strict=True,
    ):
        assert made[0].shape == images.shape
        np.testing.assert_array_equal(made[0], images * 2.0)
        np.testing.assert_array_equal(made[1], targets)


@pytest.mark.parametrize("options", [{}, {"errors": "skip"}])
@pytest.mark.parametrize("step", [lambda pair: (pair[0] * 2, pair[1]), whole(lambda both: both)])
def test_sparse_batches_are_taken_apart_and_put_together(dataset, options, step):
    pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    space = CompositeSpace((VectorSpace(40, sparse=True), IndexSpace(10, 1)))
    specs, factor = (space, ("images", "targets")), 1 if hasattr(step, "whole") else 2
    made = dataset.batches(32, specs=specs, pipeline=Stages(step), **options)
    for found, plain in zip(made, dataset.batches(32, specs=specs), strict=True):
        assert type(found[0]) is type(plain[0])
        np.testing.assert_array_equal(found[0].toarray(), plain[0].toarray() * factor)
        np.testing.assert_array_equal(found[1], plain[1])


def divided(data):
    raise ZeroDivisionError("no")


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ({"images": divided}, r"in the sample transform .*images=divided\(\), at row 0$"),
        (whole(divided), r"in the whole-batch transform .*divided.*, at row 0 and 9 after it"),
        (Stages(collate=divided), r"in the collate .*divided\(\), at row 0 and 9 after it"),
        (Stages(batch=divided), r"in the batch stage .*divided\(\), at row 0 and 9 after it"),
    ],
)
def test_errors_name_the_stage_the_function_and_the_row(dataset, pipeline, words):
    with pytest.raises(ZeroDivisionError) as caught:
        next(iter(dataset.batches(10, pipeline=pipeline)))
    assert re.search(words, caught.value.__notes__[-1])


@pytest.mark.parametrize("name", ["in_place", "by_name", "rows_too"])
def test_a_transform_that_returns_nothing_is_reported(dataset, name):
    def in_place(sample):
        sample["images"].values[...] = 0

    def by_name(images):
        images.values[...] = 0

    def rows_too(batch, rows):
        return None

    step = {"in_place": in_place, "by_name": {"images": by_name}, "rows_too": rows_too}[name]
    what = {"in_place": "a sample", "by_name": "'images' of a sample", "rows_too": "a batch"}[name]
    with pytest.raises(PipelineError, match=f"returned None in the place of {what}") as e:
        next(iter(dataset.batches(8, pipeline=step)))
    assert name in "".join(e.value.__notes__)
    chosen = Stages(sample=lambda sample: None, collate=len)  # which makes of None what it likes
    assert list(dataset.batches(100, pipeline=chosen)) == [100, 57]


@pytest.mark.parametrize(
    ("threads", "collate"), [(0, None), (2, lambda samples: [one.row for one in samples])]
)
def test_a_batch_without_samples_is_left_out(dataset, threads, collate):
    def failing(sample):
        if 10 <= sample.row < 25:
            raise ReadError("not an image")
        return sample

    seen = []

    def noted(batch, rows):
        seen.append(rows.tolist())
        return batch

    pipeline = Stages(sample=failing, collate=collate, batch=noted)
    loader = dataset.batches(10, pipeline=pipeline, errors="skip", threads=threads)
    rows = [
        [*range(10)],
        [*range(25, 30)],
        *([*range(a, min(a + 10, N))] for a in range(30, N, 10)),
    ]
    with pytest.warns(LabeledWarning, match="is left out"):
        found = [rows.tolist() for _, rows, _ in loader.with_rows()]
    assert found == seen == rows
    assert loader.stats().n_lost == 15
    with pytest.warns(LabeledWarning, match="is left out"):
        assert len(list(islice(loader, 2))) == 2
    assert loader.state_dict()["step"] == 3


def test_what_is_drawn_beside_a_sampler_has_a_seed(dataset):
    own = shuffled(N, 16, seed=3)
    assert dataset.batches(sampler=own, pipeline={"images": noisy}).seed == 3
    several = dataset.batches(sampler=shuffled(N, 16, seed=(3, 4)), pipeline={"images": noisy})
    assert several.seed not in (0, 3)
    lists = [[5, 3], [3, 100, 7], [0]]
    drawn = [dataset.batches(sampler=lists, pipeline={"images": noisy}).seed for _ in range(2)]
    assert 0 not in drawn
    assert drawn[0] != drawn[1]
    loader = dataset.batches(sampler=lists, pipeline={"images": noisy}, seed=11)
    wanted = [noised(row, 11, 0, ("images",)) for row in lists[0]]
    np.testing.assert_array_equal(next(iter(loader))["images"], wanted)
    again = dataset.batches(sampler=lists, pipeline={"images": noisy})
    again.load_state_dict(loader.state_dict())
    wanted = [noised(row, 11, 0, ("images",)) for row in lists[1]]
    np.testing.assert_array_equal(next(iter(again))["images"], wanted)
    with pytest.raises(LoaderError, match="leave seed out"):
        dataset.batches(sampler=lists, pipeline=lambda sample: sample, seed=11)


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ({"pictures": abs}, "for 'pictures', which is not .*'images'"),
        ([{"images": abs}, {"images": shifted}], "takes whole batches, but follows"),
        ({"images": lambda image: image[..., : int(image[0, 0, 0])]}, "different shapes"),
        (whole(lambda batch, rng: batch), "'rng' of one row, but is given whole batches"),
        ({"images": whole(lambda images: images[1:])}, "made 8 examples of 'images', of 9 rows"),
        (whole(lambda batch: batch.part(np.arange(3))), "made 3 examples of 'images', of 9 rows"),
        (Stages(collate=lambda samples: stack(samples[1:])), "made 8 examples of 'images', of 9"),
        (Stages(collate={"targets": lambda some: stack(some[:2])}), "made 2 .*'targets', of 9"),
    ],
)
def test_what_does_not_fit_is_reported(dataset, pipeline, words):
    with pytest.raises(PipelineError, match=words):
        list(dataset.batches(9, pipeline=pipeline))


@pytest.mark.parametrize(
    "pipeline",
    [
        [{"image": abs}, {"images": abs}],
        {"images": lambda images, rows: images, "image": abs},
        Stages(sample={"image": abs}),
    ],
)
def test_sources_that_are_not_there_are_reported_before_anything_is_read(dataset, pipeline):
    with pytest.raises(
        PipelineError, match="for 'image', which is not a source; did you mean 'images'"
    ):
        dataset.batches(9, pipeline=pipeline)


def test_later_steps_may_be_named_for_what_earlier_ones_make(dataset):
    def halved(sample):
        return {"half": sample["images"] / 2}

    for first in (halved, whole(lambda batch: {"half": batch["images"] / 2})):
        (batch,) = dataset.batches(N, pipeline=[first, {"half": lambda x: x * 2}])
        np.testing.assert_array_equal(batch["half"], IMAGES)


def test_ragged_examples_go_through_one_by_one(tmp_path):
    lists = [np.arange(i % 5 + 1, dtype=np.int32) for i in range(23)]
    path = ragged_path(tmp_path / "ragged.h5", "flat", lists)
    ds = labeled.open_dataset(path)
    for batch in ds.batches(7, shuffle=True, seed=1, pipeline={"x": lambda x: x.sum("channel")}):
        np.testing.assert_array_equal(batch["x"], [lists[i].sum() for i in batch.rows])
    cut = dict.fromkeys(("x", "x_mask"), lambda part: part[:2])
    (batch,) = ds.batches(23, ragged="pad", pipeline=cut)
    assert batch["x"].shape == batch["x_mask"].shape == (23, 2)
    with pytest.raises(LoaderError, match=r"ragged='flat'.*one by one"):
        ds.batches(7, ragged="flat", pipeline={"x": abs})


def test_texts_that_nobody_transforms_keep_dtype_and_last_bytes():
    texts = np.array(["a", "bc\0", None, "de"], dtype=object)
    data = {"text": texts, "code": np.array([b"a", b"b", b"abc", b"c"]), "x": np.arange(4)}
    plain = list(labeled.batches(data, 2))
    for batch, wanted in zip(labeled.batches(data, 2, pipeline={"x": abs}), plain, strict=True):
        for name in data:
            assert batch[name].dtype == wanted[name].dtype
            assert batch[name].values.tolist() == wanted[name].values.tolist()


@pytest.mark.parametrize("pipeline", [{"kind": abs}, [{"kind": abs}, {"kind": np.negative}]])
def test_ragged_examples_that_nobody_transforms_stay_as_they_are(tmp_path, pipeline):
    values = [np.arange(1 + row % 3, dtype="f4") for row in range(10)]
    kinds = np.arange(10)
    path = labeled.write(tmp_path / "r.hdf5", {"sound": values, "kind": kinds})
    ds = labeled.open_dataset(path, sources=("sound", "kind"))
    plain = list(ds.batches(4))
    for batch, before in zip(ds.batches(4, pipeline=pipeline), plain, strict=True):
        assert isinstance(batch, labeled.Batch)
        assert list(batch) == list(before) == ["sound", "kind"]
        assert batch["sound"].dims == before["sound"].dims
        for one, row in zip(batch["sound"].values, batch.rows, strict=True):
            np.testing.assert_array_equal(one, values[row])
        np.testing.assert_array_equal(np.abs(batch["kind"]), kinds[batch.rows])


def test_lost_rows_of_ragged_examples_are_lost_with_the_others(tmp_path):
    values = [np.full(1 + row % 3, row) for row in range(10)]
    path = labeled.write(tmp_path / "r.hdf5", {"sound": values, "kind": np.arange(10)})

    def failing(kind):
        if kind % 4 == 1:
            raise ReadError("no")
        return kind

    loader = labeled.open_dataset(path).batches(5, pipeline={"kind": failing}, errors="skip")
    with pytest.warns(LabeledWarning, match="is left out"):
        found = [([int(one[0]) for one in b["sound"].values], b.rows.tolist()) for b in loader]
    assert found == [([0, 2, 3, 4],) * 2, ([6, 7, 8],) * 2]


def test_a_sample_shows_what_it_holds(tmp_path):
    labeled.write(tmp_path / "a.h5", {"x": np.zeros((6, 4), "f4"), "y": np.arange(6)})
    shown = []

    def look(sample):
        shown.append(repr(sample))
        return sample

    for _ in labeled.open_dataset(tmp_path / "a.h5").batches(2, pipeline=look):
        pass
    expected = "<labeled.Sample, row 5>\n  x  (x_axis_1: 4)  float32\n  y  ()  int64  5"
    assert sorted(shown)[-1] == expected


def test_samples_are_examples_wherever_a_step_puts_their_axis():
    rows = np.arange(9.0)[:, np.newaxis, np.newaxis, np.newaxis] * np.ones((9, 3, 4, 5))
    pictures = xr.DataArray(rows, dims=DIMS, name="images")
    steps = [{"images": Augment([Crop((4, 5))], axes=("c", 0, 1, "b"))}, {"images": np.mean}]
    found = [batch["images"].values for batch in labeled.batches(pictures, 3, pipeline=steps)]
    np.testing.assert_array_equal(np.concatenate(found), np.arange(9))


def test_parts_beside_a_collate_keep_the_dim_of_their_examples():
    table = xr.Dataset({"x": (("obs", "f"), np.ones((6, 2))), "y": ("obs", np.arange(6))})
    pipeline = Stages(collate={"x": lambda samples: sum(samples)})
    (batch,) = labeled.batches(table, 6, dim="obs", pipeline=pipeline)
    assert (batch["x"].dims, batch["y"].dims) == (("f",), ("obs",))
    for collate, dim in (({}, "obs"), (Stack("n", own={"x": len}), "n")):
        (batch,) = labeled.batches(table, 6, dim="obs", pipeline=Stages(collate=collate))
        assert batch["y"].dims == (dim,)


@pytest.mark.parametrize("door", ["part", "write", "provider"])
def test_examples_of_a_layout_are_found_along_their_own_axis(dataset, tmp_path, door):
    loader = dataset.select("images").batches(8, layout={"images": "channel height width batch"})
    if door == "part":
        found = next(iter(loader)).part(np.array([1, 3])).arrays["images"]
        np.testing.assert_array_equal(np.moveaxis(found, -1, 0), IMAGES[[1, 3]])
    elif door == "write":
        path = labeled.write(tmp_path / "x.hdf5", loader)
        np.testing.assert_array_equal(labeled.open_dataset(path)["images"], IMAGES)
    else:
        (found,) = next(iter(labeled.providers.IteratorProvider(loader))).data
        np.testing.assert_array_equal(found, IMAGES[:8])
