"""Batches of records: in any order, parts, axes and threads, past pictures that are none."""

from __future__ import annotations

import io
import pickle

import cv2
import numpy as np
import pytest
from dask.utils import format_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_records import ALIKE, IDS, PICTURES, SIZES, N, picture_records
from PIL import Image

import labeled
from labeled.errors import LabeledWarning, ReadError
from labeled.formats.pictures import decode, encode
from labeled.formats.recordio import records
from labeled.formats.recordio.framing import MAGIC_BYTES
from labeled.formats.recordio.writing import write_records
from labeled.loader.buffers import ALIGNED, ASIDE
from labeled.sources import loading
from labeled.spaces import Conv2DSpace


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return picture_records(tmp_path_factory.mktemp("rec"))


@settings(max_examples=12)
@given(
    name=st.sampled_from(["mixed.rec", "alike.rec", "differing.rec"]),
    shuffle=st.sampled_from([False, "full", "window"]),
    threads=st.sampled_from([0, 1, 3]),
    count=st.integers(1, 3),
    picked=st.sampled_from(["all", "list", "split"]),
)
def test_parts_together_are_the_dataset(folder, name, shuffle, threads, count, picked):
    ds = labeled.open_dataset(folder / name)
    rows = np.arange(N)
    if picked == "list":
        rows = np.random.default_rng(3).permutation(N)[:40]
        ds = ds.subset(rows)
    elif picked == "split":
        ds = ds.split("all")
    pictures = PICTURES if name == "mixed.rec" else list(ALIKE)
    seen = []
    for index in range(count):
        options = {"shuffle": shuffle, "seed": 1, "threads": threads, "memory": "8 MiB"}
        for batch in ds.batches(7, shard=(index, count), **options):
            for row, id, image in zip(
                batch.rows, batch.arrays["ids"], batch.arrays["images"], strict=True
            ):
                assert id == IDS[rows[row]]
                np.testing.assert_array_equal(image, pictures[rows[row]])
            seen += batch.rows.tolist()
    assert sorted(seen) == list(range(len(rows)))


def test_a_loader_goes_on_where_its_state_was_saved(folder):
    options = {"shuffle": True, "seed": 9, "memory": "8 MiB"}
    loader = labeled.open_dataset(folder / "mixed.rec").batches(7, **options)
    epoch = iter(loader)
    for _ in range(3):
        next(epoch)
    state = loader.state_dict()
    rest = [(batch.rows, batch.arrays["images"]) for batch in epoch]
    other = pickle.loads(pickle.dumps(labeled.open_dataset(folder / "mixed.rec"))).batches(
        7, **options
    )
    other.load_state_dict(state)
    for (rows, images), batch in zip(rest, other, strict=True):
        np.testing.assert_array_equal(batch.rows, rows)
        for found, wanted in zip(batch.arrays["images"], images, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_batches_in_the_axes_of_a_space(folder):
    ds = labeled.open_dataset(folder / "alike.rec")
    space = Conv2DSpace(shape=(8, 6), num_channels=3, axes=("c", 0, 1, "b"))
    first = next(iter(ds.batches(10, specs=(space, "images"), dtype="float32", scale=1 / 255)))
    np.testing.assert_allclose(first, ALIKE[:10].transpose(3, 1, 2, 0) / 255, rtol=1e-6)


def test_padded_batches_of_pictures(folder):
    ds = labeled.open_dataset(folder / "mixed.rec", channels=3).select("images")
    batch = next(iter(ds.batches(4, ragged="pad")))
    tallest = max(height for height, _, _ in SIZES[:4])
    assert batch.arrays["images"].shape[:2] == (4, tallest)


def test_pickles_are_small_and_hold_no_index(folder):
    for name in ("mixed.rec", "alike.rec"):
        ds = labeled.open_dataset(folder / name)
        assert len(pickle.dumps(ds)) < 2500
        loader = ds.batches(5)
        next(iter(loader))
        again = pickle.loads(pickle.dumps(loader))
        np.testing.assert_array_equal(next(iter(again)).rows, np.arange(5, 10) - 5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("read_bytes", [1, 3000, 1 << 20])
def test_jpegs_go_directly_to_batches_past_those_that_need_more(
    tmp_path, monkeypatch, threads, read_bytes
):
    monkeypatch.setattr(records, "READ_BYTES", read_bytes)
    soft = [cv2.resize(one, (44, 32), interpolation=cv2.INTER_CUBIC) for one in ALIKE]
    examples = [encode(one) for one in soft]
    examples[3] = encode(soft[3], ".png")
    examples[7] = upside_down(soft[7])
    examples[8] = encode(soft[8], quality=40)
    examples[12] = examples[12][:-300]
    write_records(tmp_path / "a.rec", examples, [[1.0, 2.0]] * N)
    wanted = [None if i == 12 else decode(one) for i, one in enumerate(examples)]
    ds = labeled.open_dataset(tmp_path / "a.rec")
    assert ds.shapes["images"] == (N, 32, 44, 3)
    with pytest.raises(ReadError, match=r"row 12 \(id 12\): the JPEG is cut short"):
        list(ds.batches(8, threads=threads))
    for shuffle in (False, True):
        loader = ds.batches(8, threads=threads, shuffle=shuffle, seed=2, errors="skip")
        with pytest.warns(LabeledWarning, match="1 rows are left out"):
            batches = list(loader)
        seen = [row for batch in batches for row in batch.rows.tolist()]
        assert sorted(seen) == [i for i in range(N) if i != 12]
        for batch in batches:
            for row, image in zip(batch.rows, batch.arrays["images"], strict=True):
                np.testing.assert_array_equal(image, wanted[row])


def upside_down(image: np.ndarray) -> bytes:
    """Return a JPEG that is stored upside down, as its EXIF data say."""
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(image[::-1, ::-1]).save(out, "JPEG", exif=exif)
    return out.getvalue()


def test_memory_for_pictures_starts_beside_a_cache_line_unless_it_is_shared(folder):
    ds = labeled.open_dataset(folder / "alike.rec").select("images", "ids")

    def starts(**options):
        slot = ds.batches(16, **options).pools()[0].take()
        return {name: array.ctypes.data % ALIGNED for name, array in slot.arrays.items()}

    assert starts() == {"images": ASIDE, "ids": 0}
    assert starts(output="numpy") == {"images": 0, "ids": 0}


@pytest.mark.parametrize(("cores", "n_tasks"), [(1, 1), (2, 2), (3, 3), (64, 3)])
def test_a_job_becomes_a_piece_a_core_within_bounds(tmp_path, monkeypatch, cores, n_tasks):
    encoded = [encode(np.full((8, 8, 3), 2 * i, np.uint8)) for i in range(90)]
    write_records(tmp_path / "90.rec", encoded, range(90))
    reader = labeled.open_dataset(tmp_path / "90.rec").files.catalog.sources["images"].reader()
    monkeypatch.setattr(loading, "processors", lambda: cores)
    monkeypatch.setattr(loading, "RECORD_BYTES", 30 * 192)
    out, runs = np.zeros((90, 8, 8, 3), np.uint8), np.array([[0, 40], [40, 90]])

    tasks = loading.tasks_of(reader, loading.Read(runs, np.arange(90)[::-1]), out, 1)

    assert len(tasks) == n_tasks
    for task in reversed(tasks):
        task()
    np.testing.assert_array_equal(out[::-1], [decode(one) for one in encoded])


def test_scattered_pictures_and_one_stored_in_two_parts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (120, 6, 9, 3), np.uint8)
    encoded = [encode(image, ".png") + bytes(600 * (i % 9)) for i, image in enumerate(images)]
    encoded[50] += bytes(-len(encoded[50]) % 4) + MAGIC_BYTES  # stored in two parts
    write_records(tmp_path / "120.rec", encoded, range(120))
    monkeypatch.setattr(records, "GAP_BYTES", 0)
    monkeypatch.setattr(loading, "RECORD_BYTES", 8 * 162)
    monkeypatch.setattr(loading, "processors", lambda: 2)
    rows = np.append(np.arange(0, 120, 2), 119)
    loader = (
        labeled.open_dataset(tmp_path / "120.rec")
        .subset(rows)
        .batches(40, shuffle=True, seed=3, memory="6 MiB", threads=0, errors="skip")
    )
    seen = []
    for batch in loader:
        seen += batch.rows.tolist()
        np.testing.assert_array_equal(batch.arrays["images"], images[rows[batch.rows]])
    assert sorted(seen) == list(range(len(rows)))


def test_readers_leave_what_they_found_out_behind(folder):
    ds = labeled.open_dataset([folder / "mixed.rec"] * 20)
    loader = ds.batches(16, memory="16 MiB")
    told = loader.explain()
    for _ in loader:
        pass
    assert len(pickle.dumps(loader)) < 20_000  # shapes alone take 24 bytes a row
    assert format_bytes(20 * (folder / "mixed.rec").stat().st_size) in str(told)
    assert format_bytes(20 * sum(one.size for one in PICTURES)) in str(told)
