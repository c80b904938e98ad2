"""`fuel.transformers` by aliases: each with examples, batches, labels and refusals."""

from __future__ import annotations

import logging
import pickle

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel import config
from fuel.datasets import IndexableDataset, IterableDataset
from fuel.exceptions import AxisLabelsMismatchError
from fuel.schemes import ConstantScheme, SequentialExampleScheme, SequentialScheme
from fuel.streams import DataStream
from fuel.transformers import (
    AgnosticSourcewiseTransformer,
    AgnosticTransformer,
    Batch,
    Cache,
    Cast,
    ExpectsAxisLabels,
    Filter,
    FilterSources,
    Flatten,
    ForceFloatX,
    Mapping,
    Merge,
    MultiProcessing,
    Padding,
    Rename,
    ScaleAndShift,
    SortMapping,
    SourcewiseTransformer,
    Transformer,
    Unpack,
)
from fuel.transformers.defaults import ToBytes, uint8_pixels_to_floatX
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


# ---------------------------------------------------------------- the base classes
class Both(Transformer):
    def transform_example(self, example):
        return tuple(values + 1 for values in example)

    def transform_batch(self, batch):
        return tuple(values - 1 for values in batch)


def test_examples_and_batches_are_distinguished(examples, batches, arrays):
    assert_array_equal(items(Both(examples, True))[3][0], arrays["x"][3] + 1)
    assert_array_equal(items(Both(batches, False))[1][0], arrays["x"][4:] - 1)
    assert Both(batches, False).sources == ("x", "y")
    for stream, kind in ((examples, False), (batches, True)):
        with pytest.raises(NotImplementedError):
            items(Both(stream, kind))
    for stream, kind in ((examples, True), (batches, False)):
        with pytest.raises(NotImplementedError):
            items(Transformer(stream, kind))
        with pytest.raises(NotImplementedError):
            items(SourcewiseTransformer(stream, kind))
    with pytest.raises(ValueError):
        _ = Transformer(batches).produces_examples


def test_requests_are_refused_and_calls_handed_on(batches):
    calls = []
    stream = Both(batches, False)
    stream.get_epoch_iterator()
    with pytest.raises(ValueError):
        stream.get_data([0])
    for name in ("close", "reset", "next_epoch"):
        setattr(batches, name, lambda name=name: calls.append(name))
        getattr(stream, name)()
    assert calls == ["close", "reset", "next_epoch"]


class Settled(Transformer):
    """Says itself, or by its class, what it gives."""

    _produces_examples = True

    def __init__(self, stream):
        self.sources = ("a", "b")
        self.n_sources = len(self.sources)
        super().__init__(stream)

    def transform_example(self, example):
        return example


def test_what_a_transformer_says_itself_goes_first(examples):
    stream = Settled(examples)
    assert (stream.n_sources, stream.produces_examples) == (2, True)
    assert items(stream, as_dict=True)[0].keys() == {"a", "b"}


def test_what_a_mapping_gives_beyond_the_sources_is_kept(batches):
    longer = Mapping(batches, lambda data: (*data, "beyond"))
    assert [item[2] for item in items(Negated(longer, False))] == ["beyond", "beyond"]


class Doubled(AgnosticTransformer):
    def transform_any(self, data):
        return tuple(2 * values for values in data)


class Negated(AgnosticSourcewiseTransformer):
    def transform_any_source(self, source_data, _):
        return -source_data


def test_agnostic_and_sourcewise(examples, batches, arrays):
    for stream, kind, place, rows in ((examples, True, 3, 3), (batches, False, 1, slice(4, 8))):
        assert_array_equal(items(Doubled(stream, kind))[place][1], 2 * arrays["y"][rows])
        x, y = items(Negated(stream, kind, which_sources=("y",)))[place]
        assert_array_equal(x, arrays["x"][rows])
        assert_array_equal(y, -arrays["y"][rows])


# ---------------------------------------------------------------- mapping
def test_mapping(batches, arrays):
    mapped = Mapping(batches, lambda data: (data[0] * 2, data[1]))
    assert_array_equal(items(mapped)[0][0], arrays["x"][:4] * 2)
    assert mapped.sources == ("x", "y")
    assert mapped.axis_labels is None
    more = Mapping(batches, lambda data: (data[1] + 1,), add_sources=("z",))
    assert more.sources == ("x", "y", "z")
    assert_array_equal(items(more, as_dict=True)[1]["z"], arrays["y"][4:] + 1)
    with pytest.raises(ValueError):
        more.get_data([0])


def test_mapping_of_dicts(batches, arrays):
    def swapped(data):
        return {"x": data["y"], "y": data["x"], "z": data["y"]}

    assert_array_equal(
        items(Mapping(batches, swapped, mapping_accepts=dict))[0][0], arrays["y"][:4]
    )
    more = Mapping(batches, swapped, add_sources=("z",), mapping_accepts=dict)
    assert_array_equal(items(more)[0][2], arrays["y"][:4])
    with pytest.raises(ValueError):
        Mapping(batches, swapped, mapping_accepts=list.__class__)


def test_sorting_within_batches():
    data = [[3, 1, 2], [6, 5, 4]]
    stream = DataStream(IterableDataset(data))
    stream.produces_examples = False
    assert items(Mapping(stream, SortMapping(lambda e: e[0]))) == [([1, 2, 3],), ([4, 5, 6],)]
    reverse = SortMapping(lambda e: e[0], reverse=True)
    first, second = reverse((np.array([3, 1, 2]), ["c", "a", "b"]))
    assert_array_equal(first, [3, 2, 1])
    assert second == ["c", "b", "a"]
    ragged = np.empty(2, object)
    ragged[:] = [np.arange(3), np.arange(2)]
    (found,) = SortMapping(lambda e: len(e[0]))((ragged,))
    assert [len(one) for one in found] == [2, 3]


# ---------------------------------------------------------------- values
def test_flatten(examples, batches, arrays):
    flat = Flatten(batches)
    assert_array_equal(items(flat)[1][0], arrays["x"][4:].reshape(4, 4))
    assert flat.axis_labels == {"x": ("batch", "feature"), "y": ("batch", "feature")}
    flat = Flatten(batches, which_sources=("x",))
    assert flat.axis_labels == {"x": ("batch", "feature"), "y": ("batch", "index")}
    flat = Flatten(examples)
    assert_array_equal(items(flat)[5][0], arrays["x"][5].ravel())
    assert flat.axis_labels == {"x": ("feature",), "y": ("feature",)}
    batches.axis_labels = {"x": (), "y": None}
    assert Flatten(batches).axis_labels == {"x": None, "y": None}
    batches.axis_labels = None
    assert Flatten(batches).axis_labels is None


def test_scale_shift_and_cast(examples, batches, arrays):
    for stream, place, rows in ((examples, 3, 3), (batches, 1, slice(4, 8))):
        scaled = ScaleAndShift(stream, 2, -1, which_sources=("x",))
        assert_array_equal(items(scaled)[place][0], arrays["x"][rows] * 2 - 1)
        assert_array_equal(items(scaled)[place][1], arrays["y"][rows])
        assert scaled.axis_labels == stream.axis_labels
        assert items(Cast(stream, "float32", which_sources=("y",)))[place][1].dtype == "float32"
        assert items(Cast(stream, "floatX"))[place][1].dtype == config.floatX


def test_force_floatX_leaves_integers_alone(examples, batches, monkeypatch):
    held = dict(config.config["floatX"])
    config.floatX = "float32"
    for stream in (examples, batches):
        x, y = items(ForceFloatX(stream))[0]
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
    config.config["floatX"] = held
    words = DataStream(IterableDataset([[1.5, 2.5]]))
    assert items(ForceFloatX(words)) == [([1.5, 2.5],)]


def test_default_transformers(batches, arrays):
    stream = batches
    for cls, arguments, options in uint8_pixels_to_floatX(("x",)):
        stream = cls(stream, *arguments, **options)
    x, y = items(stream)[0]
    np.testing.assert_allclose(x, arrays["x"][:4] / 255)
    assert x.dtype == config.floatX
    assert y.dtype == arrays["y"].dtype
    assert items(ToBytes(batches, which_sources=("y",)))[1][1] == [
        row.tobytes() for row in arrays["y"][4:]
    ]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, {"y": ("bytes",)}),
        (
            {"x": ("batch", "a"), "y": ("batch", "b")},
            {"x": ("batch", "a"), "y": ("batch", "bytes")},
        ),
    ],
)
def test_bytes_have_an_axis_of_that_name(batches, labels, expected):
    batches.axis_labels = labels
    assert ToBytes(batches, which_sources=("y",)).axis_labels == expected
    assert ToBytes(batches, produces_examples=True).produces_examples
    assert batches.axis_labels == labels


# ---------------------------------------------------------------- choosing and naming
def test_filter(examples, batches):
    kept = Filter(examples, lambda data: data[1][0] % 3 == 0)
    assert [int(y[0]) for _, y in items(kept)] == [0, 3, 6]
    assert isinstance(items(kept, as_dict=True)[0], tuple)
    assert [len(x) for x, _ in items(Filter(batches, lambda data: data[1].min() > 0))] == [4]
    assert kept.axis_labels == examples.axis_labels


def test_filter_sources(batches, arrays):
    only = FilterSources(batches, sources=("y",))
    assert only.sources == ("y",)
    assert only.axis_labels == {"y": ("batch", "index")}
    (found,) = items(only)[0]
    assert_array_equal(found, arrays["y"][:4])
    assert isinstance(items(only)[0], list)
    assert FilterSources(batches, sources=("y", "x")).sources == ("x", "y")
    with pytest.raises(ValueError):
        FilterSources(batches, sources=("z",))


def test_rename(batches, arrays, caplog):
    renamed = Rename(batches, {"x": "features", "y": "targets"})
    assert renamed.sources == ("features", "targets")
    assert renamed.axis_labels == {"features": LABELS["x"], "targets": LABELS["y"]}
    assert_array_equal(items(renamed)[0][0], arrays["x"][:4])
    assert Rename(batches, {"x": "y", "y": "x"}).sources == ("y", "x")
    for wrong in ({"z": "a"}, {"x": "y"}, {"x": "a", "y": "a"}):
        with pytest.raises(KeyError):
            Rename(batches, wrong)
    with pytest.raises(ValueError):
        Rename(batches, {}, on_non_existent="nonsense")
    one_name = {"x": "a", "z": "a"}
    assert Rename(batches, one_name, on_non_existent="ignore").sources == ("a", "y")
    names = {"x": "a", "z": "b"}
    assert Rename(batches, names, on_non_existent="ignore").sources == ("a", "y")
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "fuel.transformers"):
        assert Rename(batches, names, on_non_existent="warn").sources == ("a", "y")
    assert len(caplog.records) == 1


def test_merge(batches, examples):
    other = DataStream(IterableDataset([(n,) for n in range(5)]))
    merged = Merge((examples, other), ("x", "y", "z"))
    assert merged.sources == ("x", "y", "z")
    assert merged.axis_labels is None
    found = items(merged)
    assert len(found) == 5
    assert found[3][2] == (3,)
    assert items(merged, as_dict=True)[2]["z"] == (2,)
    for wrong, names in (((examples, other), ("x", "z")), ((batches, other), ("x", "y", "z"))):
        with pytest.raises(ValueError):
            Merge(wrong, names)
    with pytest.raises(ValueError):
        merged.get_data([0])
    merged.reset()
    merged.next_epoch()
    merged.close()


# ---------------------------------------------------------------- between examples and batches
def test_cache_fills():
    stream = DataStream(
        IndexableDataset(np.arange(100)), iteration_scheme=SequentialScheme(100, 11)
    )
    cached = Cache(stream, ConstantScheme(7))
    epoch = cached.get_epoch_iterator()
    fills = []
    for (batch,), first in zip(epoch, range(0, 84, 7), strict=False):
        assert_array_equal(batch, np.arange(first, first + 7))
        fills.append(len(cached.cache[0]))
    assert fills == [4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 0, 4]
    with pytest.raises(ValueError):
        cached.get_data()
    with pytest.raises(ValueError):
        Cache(stream, SequentialScheme(100, 7))


def test_cache_begins_each_epoch_empty():
    stream = DataStream(IndexableDataset(np.arange(10)), iteration_scheme=SequentialScheme(10, 5))
    cached = Cache(stream, ConstantScheme(4))
    epochs = [[batch.tolist() for (batch,) in items(cached)] for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert epochs[0][0] == [0, 1, 2, 3]


def test_cache_hands_out_what_is_left_at_the_end():
    stream = DataStream(IndexableDataset(np.arange(10)), iteration_scheme=SequentialScheme(10, 5))
    cached = Cache(stream, ConstantScheme(4))
    assert [batch.tolist() for (batch,) in items(cached)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_batch_strictness(examples, arrays):
    for strictness, sizes in ((0, [3, 3, 2]), (1, [3, 3])):
        stream = Batch(examples, ConstantScheme(3), strictness=strictness)
        assert [len(x) for x, _ in items(stream)] == sizes
    assert stream.axis_labels == {"x": ("batch", "height", "width"), "y": ("batch", "index")}
    assert_array_equal(items(stream)[1][0], arrays["x"][3:6])
    with pytest.raises(ValueError):
        items(Batch(examples, ConstantScheme(3), strictness=2))
    assert len(items(Batch(examples, ConstantScheme(4), strictness=2))) == 2


def test_what_batch_refuses(examples, batches):
    for stream, scheme in (
        (batches, ConstantScheme(3)),
        (examples, SequentialExampleScheme(8)),
    ):
        with pytest.raises(ValueError):
            Batch(stream, scheme)
    with pytest.raises(ValueError):
        Batch(examples, ConstantScheme(3)).get_data()


def test_unpack(batches, examples, arrays):
    stream = Unpack(batches)
    assert stream.axis_labels == {"x": ("height", "width"), "y": ("index",)}
    for _ in range(2):
        found = items(stream)
        assert len(found) == 8
        assert_array_equal(found[5][0], arrays["x"][5])
    epoch = stream.get_epoch_iterator()
    next(epoch)
    rest = pickle.loads(pickle.dumps(epoch))  # halfway through the first batch
    assert_array_equal([x for x, _ in rest], arrays["x"][1:])
    with pytest.raises(ValueError):
        Unpack(examples)
    with pytest.raises(ValueError):
        stream.get_data([0])


def sequences(named):
    stream = DataStream(IterableDataset(named), iteration_scheme=None)
    stream.produces_examples = False
    return stream


def test_padding():
    one, two = [[1], [2, 3], []], [[4, 4, 4], [1]]
    stream = Padding(sequences({"x": [one, two], "n": [[1, 2, 3], [1, 2]]}), mask_sources=("x",))
    assert stream.sources == ("x", "x_mask", "n")
    x, mask, n = items(stream)[0]
    assert_array_equal(x, [[1, 0], [2, 3], [0, 0]])
    assert_array_equal(mask, [[1, 0], [1, 1], [0, 0]])
    assert mask.dtype == config.floatX
    assert n == [1, 2, 3]
    _, mask, _ = items(Padding(stream.data_stream, mask_sources=("x",), mask_dtype="uint8"))[1]
    assert mask.dtype == np.uint8
    assert_array_equal(mask, [[1, 1, 1], [1, 0, 0]])


def test_padding_of_sequences_of_vectors():
    batch = [np.ones((2, 3), "float32"), np.ones((4, 3), "float32")]
    x, mask = items(Padding(sequences({"x": [batch]})))[0]
    assert (x.shape, x.dtype, mask.shape) == ((2, 4, 3), np.float32, (2, 4))
    assert x.sum() == 18
    with pytest.raises(ValueError, match="length only"):
        items(Padding(sequences({"x": [[np.ones((2, 3)), np.ones((2, 4))]]})))
    with pytest.raises(ValueError, match=r"source 'y' holds single values.*mask_sources"):
        items(Padding(sequences({"x": [[[1], [2, 3]]], "y": [[1, 2]]})))
    with pytest.raises(ValueError):
        Padding(DataStream(IterableDataset([[1]])))


# ---------------------------------------------------------------- the background, labels
def test_fetching_ahead(batches, arrays):
    stream = MultiProcessing(Mapping(batches, lambda data: (data[0] + 1, data[1])), max_store=2)
    for _ in range(2):
        found = items(stream)
        assert_array_equal(np.concatenate([x for x, _ in found]), arrays["x"] + 1)
    with pytest.raises(ValueError):
        stream.get_data([0])


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
