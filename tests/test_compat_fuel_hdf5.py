"""`fuel.datasets.hdf5` by aliases: the assertions of its own suite, and reading against h5py."""

from __future__ import annotations

import os
import pickle

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import h5py
import numpy as np
import pytest
from fuel.datasets.hdf5 import H5PYDataset, PytablesDataset
from fuel.schemes import SequentialScheme, ShuffledScheme
from fuel.streams import DataStream
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import labeled
from labeled.cli.main import main
from labeled.errors import UnsafeFileError

FEATURES = np.arange(3600, dtype="uint16").reshape(100, 36)
TARGETS = np.arange(30, dtype="uint8").reshape(30, 1)


def fill(f):
    """Write labelled features and targets, and the splits train, test and unlabeled."""
    f["features"], f["targets"] = FEATURES, TARGETS
    for name, labels in (("features", ("batch", "feature")), ("targets", ("batch", "index"))):
        for axis, label in enumerate(labels):
            f[name].dims[axis].label = label
    f.attrs["split"] = H5PYDataset.create_split_array(
        {
            "train": {"features": (0, 20, None, "."), "targets": (0, 20)},
            "test": {"features": (20, 30, None, ""), "targets": (20, 30)},
            "unlabeled": {"features": (30, 100)},
        }
    )
    return f


@pytest.fixture(autouse=True)
def no_handle_is_left():
    yield
    for handle in H5PYDataset._file_handles.values():
        handle.close()
    H5PYDataset._file_handles.clear()
    H5PYDataset._ref_counts.clear()


def read(dataset, request):
    state = dataset.open()
    found = dataset.get_data(state, request)
    dataset.close(state)
    return found


def test_pickling_while_the_writer_is_open(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        dataset = H5PYDataset(fill(f), which_sets=("train",))
        text = pickle.dumps(dataset)
        assert pickle.loads(pickle.dumps(DataStream(dataset))).sources == dataset.sources
    again = pickle.loads(text)
    again._out_of_memory_open()
    again._out_of_memory_close()
    assert again.data_sources is None
    assert_array_equal(read(again, slice(0, 10))[0], FEATURES[:10])


def test_an_iterator_goes_on_after_pickling(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        fill(f)
    stream = DataStream(
        H5PYDataset(str(tmp_path / "a.h5"), ("train",)), iteration_scheme=ShuffledScheme(20, 6)
    )
    epoch = stream.get_epoch_iterator()
    next(epoch)
    again = pickle.loads(pickle.dumps(epoch))
    for one, other in zip(list(epoch), list(again), strict=True):
        assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("mode", ["r", "r+"])  # by range, and through the handle
def test_big_endian_and_strings_keep_their_dtype(tmp_path, mode):
    values = {
        "x": np.arange(6, dtype=">i4"),
        "s": np.array([b"ab", b"c", b"de", b"f", b"gh", b"i"]),
    }
    values["t"] = np.array([b"a", b"bc", b"d", b"e", b"f", b"g"], object)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"], f["s"], f["t"] = values["x"], values["s"], [t.decode() for t in values["t"]]
        pairs = dict.fromkeys("xst", (0, 6))
        f.attrs["split"] = H5PYDataset.create_split_array({"all": pairs})
    with h5py.File(tmp_path / "a.h5", mode) as f:
        dataset = H5PYDataset(f, ("all",), sources=("x", "s", "t"))
        for request in ([4, 0, 3], slice(0, 6), [2]):
            for found, expected in zip(read(dataset, request), values.values(), strict=True):
                assert found.dtype == expected.dtype
                assert_array_equal(found, expected[request])


@pytest.mark.parametrize("mode", ["r", "r+"])  # by range, and through the handle
def test_names_need_not_be_utf_8(tmp_path, mode):
    source, split, path = b"\xe9", b"tr\xe9", os.fsencode(tmp_path / "a") + b"\xe9.h5"
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f[source] = FEATURES
        table = H5PYDataset.create_split_array({"t--": {"x": (10, 30)}})
        table["split"], table["source"] = split, source
        f.attrs["split"] = table
    os.rename(tmp_path / "a.h5", path)
    with h5py.File(path, mode) as f:
        for given in (f, path):
            dataset = H5PYDataset(given, (os.fsdecode(split),), sources=(os.fsdecode(source),))
            assert dataset.axis_labels == {os.fsdecode(source): ("", "")}
            again = dataset if given is f else pickle.loads(pickle.dumps(dataset))
            assert_array_equal(read(again, [4, 0])[0], FEATURES[[14, 10]])


@pytest.mark.parametrize("as_handle", [False, True])
def test_a_link_to_another_file_is_not_read_out_of_this_one(tmp_path, as_handle):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["features"] = FEATURES
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as f:
        f["more"] = np.zeros((1000, 36), "uint16")  # bytes of this file, where the other has rows
        f["features"] = h5py.ExternalLink("other.h5", "/features")
        f.attrs["split"] = H5PYDataset.create_split_array({"all": {"features": (0, 100)}})
    with h5py.File(path, "r") as f:
        dataset = H5PYDataset(f if as_handle else path, ("all",))
        with pytest.raises(UnsafeFileError, match="labeled repack FILE NEW --allow-ext"):
            read(dataset, slice(0, 2))
    whole = str(tmp_path / "whole.h5")
    main(["repack", path, whole, "--allow-external"], standalone_mode=False)
    assert_array_equal(read(H5PYDataset(whole, ("all",)), slice(0, 2))[0], FEATURES[:2])


def test_a_file_that_is_open_is_read_after_another_took_its_place(tmp_path):
    path = str(tmp_path / "a.h5")

    def write(above, values):
        with h5py.File(path + ".new", "w") as f:
            f["above"], f["x"] = np.zeros((above, 100)), values  # the rows lie elsewhere
            f.attrs["split"] = H5PYDataset.create_split_array({"all": {"x": (0, 100)}})
        os.replace(path + ".new", path)

    write(1, FEATURES)
    dataset, f = H5PYDataset(path, ("all",)), h5py.File(path, "r")
    dataset.open()
    write(40, FEATURES + 1)
    for held in (dataset, H5PYDataset(path, ("all",)), H5PYDataset(f, ("all",))):
        assert_array_equal(held.get_data(None, slice(0, 3))[0], FEATURES[:3])
    f.close()
    dataset.close(None)
    assert_array_equal(read(H5PYDataset(path, ("all",)), [2])[0], FEATURES[[2]] + 1)


def test_a_window_of_arrays_in_a_group(tmp_path):
    path = str(tmp_path / "tables.h5")
    with h5py.File(path, "w") as f:
        f["Data/x"] = np.arange(40).reshape(20, 2)
    dataset = PytablesDataset(path, ("x",), 5, 15)
    assert dataset.num_examples == 10
    assert_array_equal(dataset.get_data(None, slice(0, 3))[0][:, 0], [10, 12, 14])
    assert_array_equal(dataset.get_data(None, [3, 1])[0][:, 0], [16, 12])
    with pytest.raises(ValueError):
        dataset.get_data(None, True)
    again = pickle.loads(pickle.dumps(dataset))
    assert_array_equal(again.get_data(None, [0])[0][:, 0], [10])
    again.close_file()
    dataset.close_file()


# ---------------------------------------------------------------- against h5py
@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("rows") / "rows.h5")
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 99, (120, 4))
    listed = np.sort(rng.permutation(120)[:70])
    with h5py.File(path, "w") as f:
        f["contiguous"] = rows
        f.create_dataset("chunked", data=rows, chunks=(7, 3))
        f.create_dataset("packed", data=rows, chunks=(7, 4), compression="gzip")
        f.create_dataset("straight", data=rows, chunks=(7, 4))
        sparse = f.create_dataset("sparse", rows.shape, rows.dtype, chunks=(7, 4), fillvalue=5)
        sparse[40:60] = rows[40:60]
        f["rows"] = listed
        names = ("contiguous", "chunked", "packed", "straight", "sparse")
        f.attrs["split"] = H5PYDataset.create_split_array(
            {
                "run": dict.fromkeys(names, (10, 90)),
                "list": dict.fromkeys(names, (0, 0, f["rows"].ref)),
            }
        )
    holes = rows.copy()
    holes[:40], holes[60:] = 5, 5
    return path, {
        "run": [*[rows[10:90]] * 3, holes[10:90], rows[10:90]],
        "list": [*[rows[listed]] * 3, holes[listed], rows[listed]],
    }


requests = st.one_of(
    st.integers(0, 69),
    st.lists(st.integers(0, 69), min_size=1, max_size=12, unique=True),
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda p: slice(p[0], p[0] + p[1])),
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda p: [*range(p[0], p[0] + p[1])]),
    st.tuples(st.integers(0, 30), st.integers(2, 5)).map(lambda p: slice(p[0], 70, p[1])),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(requests, min_size=1, max_size=6),
    st.sampled_from(["run", "list"]),
    st.booleans(),
)
def test_any_requests_one_after_another_give_the_rows(stored, asked, split, in_memory):
    path, expected = stored
    dataset = H5PYDataset(path, (split,), load_in_memory=in_memory)
    state = dataset.open()
    for request in asked:
        for found, rows in zip(dataset.get_data(state, request), expected[split], strict=True):
            assert_array_equal(found, rows[request])
    dataset.close(state)


def test_epochs_hand_out_rows_of_their_own(stored):
    path, expected = stored
    stream = DataStream(H5PYDataset(path, ("run",)), iteration_scheme=SequentialScheme(80, 9))
    for _ in range(2):
        batches = list(stream.get_epoch_iterator())
        for source, rows in enumerate(expected["run"]):
            joined = np.concatenate([batch[source] for batch in batches])
            assert_array_equal(joined, rows)
        for batch in batches:  # what is done to a batch is seen nowhere else
            for values in batch:
                values[...] = -1
    stream.close()


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("as_handle", [False, True])
def test_ragged_sources_of_plain_write(tmp_path, in_memory, as_handle):
    path = tmp_path / "flat.h5"
    rows = [np.full((n, 2), n, "f4") for n in (3, 1, 2, 4)]
    words = [np.arange(n) for n in (2, 0, 3, 1)]
    labeled.write(
        path,
        {"images": rows, "words": words, "y": np.arange(4)},
        {"train": (0, 3), "test": (3, 4)},
        dims={"images": ("batch", "height", "width"), "words": ("batch", "time")},
    )
    with h5py.File(path) as handle:
        where = handle if as_handle else path
        dataset = H5PYDataset(where, which_sets=("train",), load_in_memory=in_memory)
        assert dataset.num_examples == 3
        assert sorted(dataset.vlen_sources) == ["images", "words"]
        assert dataset.axis_labels["images"] == ("batch", "height", "width")
        for request, expected in ((slice(0, 3), [0, 1, 2]), ([2, 0], [2, 0])):
            images, found, y = read(dataset, request)
            assert y.tolist() == expected
            for row, image, word in zip(expected, images, found, strict=True):
                assert_array_equal(image, rows[row])
                assert_array_equal(word, words[row])
        assert_array_equal(read(dataset, 1)[0], rows[1])
        test = H5PYDataset(where, which_sets=("test",), subset=[0], load_in_memory=in_memory)
        assert_array_equal(read(test, 0)[0], rows[3])


def test_axes_may_share_a_name(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(24).reshape(6, 2, 2)
        for axis, name in enumerate(("batch", "side", "side")):
            file["x"].dims[axis].label = name
        file.attrs["split"] = H5PYDataset.create_split_array({"train": {"x": (0, 6)}})
    dataset = H5PYDataset(str(tmp_path / "x.h5"), ("train",))
    assert dataset.axis_labels == {"x": ("batch", "side", "side")}
    (rows,) = dataset.get_data(dataset.open(), [3, 0])
    np.testing.assert_array_equal(rows, np.arange(24).reshape(6, 2, 2)[[3, 0]])
    dataset.close(None)
