"""`fuel.schemes`, `fuel.streams`, `fuel.datasets` and sequences by aliases."""

from __future__ import annotations

import gzip
import math
import pickle
from itertools import islice

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel.datasets import Dataset, IndexableDataset, IterableDataset, TextFile
from fuel.datasets.toy import Spiral, SwissRoll
from fuel.iterator import DataIterator
from fuel.schemes import (
    BatchSizeScheme,
    ConcatenatedScheme,
    ConstantScheme,
    SequentialExampleScheme,
    SequentialScheme,
    ShuffledExampleScheme,
    ShuffledScheme,
    cross_validation,
)
from fuel.streams import AbstractDataStream, DataStream
from fuel.transformers import Mapping
from fuel.transformers import text as text_of_0_2_0
from fuel.transformers.sequences import NGrams, Window
from numpy.testing import assert_allclose, assert_array_equal


def requests(scheme):
    return list(scheme.get_request_iterator())


# ---------------------------------------------------------------- schemes
def test_sequential():
    assert requests(SequentialScheme(5, 3)) == [[0, 1, 2], [3, 4]]
    assert requests(SequentialScheme(4, 2)) == [[0, 1], [2, 3]]
    assert requests(SequentialScheme(range(4, 9), 3)) == [[4, 5, 6], [7, 8]]
    assert requests(SequentialScheme([9, 0, 3], 2)) == [[9, 0], [3]]
    assert requests(SequentialExampleScheme(3)) == [0, 1, 2]
    assert requests(SequentialExampleScheme([7, 6])) == [7, 6]
    assert not SequentialScheme(3, 2).requests_examples
    assert SequentialExampleScheme(3).requests_examples


def test_a_generator_lasts_for_one_epoch():
    scheme = SequentialScheme((row for row in (3, 1, 2)), 2)
    assert requests(scheme) == [[3, 1], [2]]
    assert requests(scheme) == []


@pytest.mark.parametrize("rows", [7, range(3, 20), [4, 8, 15, 16, 23, 42]], ids=str)
def test_shuffled_as_a_random_state_shuffles_a_list(rows):
    expected = list(range(rows)) if isinstance(rows, int) else list(rows)
    state = np.random.RandomState(3)
    scheme = ShuffledScheme(rows, 3, rng=np.random.RandomState(3))
    sorted_ = ShuffledScheme(rows, 3, rng=np.random.RandomState(3), sorted_indices=True)
    single = ShuffledExampleScheme(rows, rng=np.random.RandomState(3))
    for _ in range(3):  # one stream, epoch after epoch
        order = list(expected)
        state.shuffle(order)
        cut = [order[a : a + 3] for a in range(0, len(order), 3)]
        assert requests(scheme) == cut
        assert requests(sorted_) == [sorted(batch) for batch in cut]
        assert requests(single) == order


def test_shuffles_begin_with_seed_1():
    rows = list(range(10))
    np.random.RandomState(1).shuffle(rows)
    assert requests(ShuffledScheme(10, 10)) == [rows]
    assert requests(ShuffledExampleScheme(10)) == rows


def test_constant_sizes():
    assert requests(ConstantScheme(3, num_examples=7)) == [3, 3, 1]
    assert requests(ConstantScheme(3, num_examples=9)) == [3, 3, 3]
    assert requests(ConstantScheme(3, times=2)) == [3, 3]
    assert list(islice(ConstantScheme(3).get_request_iterator(), 4)) == [3] * 4
    assert isinstance(ConstantScheme(3), BatchSizeScheme)
    assert not ConstantScheme(3).requests_examples
    with pytest.raises(ValueError):
        ConstantScheme(2, num_examples=5, times=3)


def test_concatenated():
    joined = ConcatenatedScheme([SequentialScheme(range(3), 2), SequentialScheme([7, 9], 1)])
    assert requests(joined) == [[0, 1], [2], [7], [9]]
    assert not joined.requests_examples
    joined = ConcatenatedScheme([SequentialExampleScheme(2), SequentialExampleScheme([5])])
    assert requests(joined) == [0, 1, 5]
    assert joined.requests_examples
    with pytest.raises(ValueError):
        ConcatenatedScheme([SequentialScheme(3, 2), SequentialExampleScheme(3)])


def test_requests_can_be_pickled_halfway():
    for scheme in (
        SequentialScheme(9, 2),
        ShuffledScheme(9, 2),
        ShuffledExampleScheme(9),
        ConstantScheme(2, num_examples=9),
        ConcatenatedScheme([SequentialScheme(5, 2), SequentialScheme(3, 2)]),
    ):
        running = scheme.get_request_iterator()
        next(running)
        assert list(pickle.loads(pickle.dumps(running))) == list(running)


def test_folds():
    folds = cross_validation(SequentialExampleScheme, 10, 5)
    for fold, (train, valid) in enumerate(folds):
        left_out = [2 * fold, 2 * fold + 1]
        for _ in range(2):
            assert requests(valid) == left_out
            assert requests(train) == [row for row in range(10) if row not in left_out]
    with pytest.raises(StopIteration):
        next(folds)


def test_folds_of_unequal_size():
    folds = cross_validation(SequentialExampleScheme, 10, 6)  # no error yet
    with pytest.raises(ValueError):
        next(folds)
    sizes = [
        len(requests(v))
        for _, v, _ in cross_validation(SequentialScheme, 10, 4, False, batch_size=1)
    ]
    assert sizes == [2, 3, 2, 3]
    told = [size for _, _, size in cross_validation(SequentialExampleScheme, 10, 4, strict=False)]
    assert told == sizes


# ---------------------------------------------------------------- streams
class Nothing(AbstractDataStream):
    """The least that a stream must have."""

    sources = ("data",)

    def reset(self):
        pass

    def close(self):
        pass

    def next_epoch(self):
        pass

    def get_data(self, request=None):
        return (request,)


def test_what_is_produced_comes_of_the_scheme_or_is_assigned():
    with pytest.raises(ValueError):
        _ = Nothing().produces_examples
    with pytest.raises(ValueError):
        Nothing(SequentialExampleScheme(2)).produces_examples = True
    stream = Nothing()
    stream.produces_examples = False
    assert not stream.produces_examples
    assert list(Nothing(SequentialExampleScheme(2)).get_epoch_iterator()) == [(0,), (1,)]


@pytest.fixture
def eye():
    return IterableDataset(np.eye(2))


def test_sources_of_a_stream_can_be_assigned(eye):
    stream = DataStream(eye)
    assert stream.sources == ("data",)
    stream.sources = ("features",)
    assert stream.sources == ("features",)


def test_streams_of_examples_lose_the_label_batch(eye):
    assert DataStream(eye).axis_labels is None
    eye.axis_labels = {"data": ("batch", "features")}
    assert DataStream(eye).axis_labels == {"data": ("features",)}
    assert DataStream(eye, iteration_scheme=SequentialScheme(2, 2)).axis_labels == eye.axis_labels
    assert eye.axis_labels == {"data": ("batch", "features")}
    assert DataStream(eye).produces_examples


# ---------------------------------------------------------------- datasets
def test_iterables_one_and_several():
    assert IterableDataset([1, 2, 3]).num_examples == 3
    assert list(DataStream(IterableDataset([1, 2, 3])).get_epoch_iterator()) == [(1,), (2,), (3,)]
    named = {"x": range(3), "y": "abc"}
    stream = DataStream(IterableDataset(named))
    assert list(stream.get_epoch_iterator()) == [(0, "a"), (1, "b"), (2, "c")]
    assert list(stream.get_epoch_iterator(as_dict=True))[2] == {"x": 2, "y": "c"}
    turned = DataStream(IterableDataset(named, sources=("y", "x")))
    assert next(turned.get_epoch_iterator()) == ("a", 0)
    assert math.isnan(IterableDataset(iter([1])).num_examples)


def test_epochs_follow_one_another():
    stream = DataStream(IterableDataset([1, 2, 3]))
    for _, epoch in zip(range(2), stream.iterate_epochs(), strict=False):
        assert list(epoch) == [(1,), (2,), (3,)]
    epoch = stream.get_epoch_iterator()
    assert isinstance(epoch, DataIterator)
    next(epoch)
    stream.reset()
    assert next(stream.get_epoch_iterator()) == (1,)
    stream.close()


def test_what_is_no_dataset_of_iterables():
    for wrong in (1, {"x": 1}, {"x": [1], "y": [1, 2]}):
        with pytest.raises(ValueError):
            IterableDataset(wrong)
    dataset = IterableDataset([1, 2])
    for state, request in ((None, None), (dataset.open(), [0])):
        with pytest.raises(ValueError):
            dataset.get_data(state, request)
    with pytest.raises(ValueError):
        IterableDataset([1, 2], sources=("nothing",))
    with pytest.raises(ValueError):
        IterableDataset([1, 2], sources=())


class Bare(Dataset):
    provides_sources = ("a", "b", "c")

    def get_data(self, state=None, request=None):
        return (1, 2, 3)


class Settled(Bare):
    _sources = ("a",)
    _example_iteration_scheme = SequentialExampleScheme(3)


def test_what_a_class_says_of_its_datasets():
    dataset = Settled()
    assert dataset.sources == DataStream(dataset).sources == ("a",)
    assert requests(dataset.example_iteration_scheme) == [0, 1, 2]


def test_what_all_datasets_share():
    with pytest.raises(AttributeError):
        _ = Bare().example_iteration_scheme
    assert Bare(sources=("a", "c")).filter_sources((1, 2, 3)) == (1, 3)
    with pytest.raises(ValueError):
        type("Empty", (Bare,), {"provides_sources": None})()
    dataset = IterableDataset([1, 2, 3])
    dataset.default_transformers = ((Mapping, [lambda d: (d[0] * 2,)], {}),)
    assert list(DataStream.default_stream(dataset).get_epoch_iterator()) == [(2,), (4,), (6,)]


class Counting(IterableDataset):
    """Keeps its state over epochs."""

    def next_epoch(self, state):
        return iter([(99,)])


def test_a_state_of_ones_own():
    stream = DataStream(Counting([1]))
    assert list(stream.get_epoch_iterator()) == [(1,)]
    assert list(stream.get_epoch_iterator()) == [(99,)]


def test_indexables():
    x, y = np.arange(10) * 2, list("abcdefghij")
    dataset = IndexableDataset({"x": x, "y": y})
    assert dataset.num_examples == 10
    assert_array_equal(dataset.x, x)
    with pytest.raises(AttributeError):
        _ = dataset.z
    found = dataset.get_data(request=[3, 1, 3])
    assert_array_equal(found[0], [6, 2, 6])
    assert found[1] == ["d", "b", "d"]
    assert dataset.get_data(request=slice(0, 2))[1] == ["a", "b"]
    assert dataset.get_data(request=4)[1] == "e"
    assert [
        a.tolist()
        for a, _ in DataStream(
            dataset, iteration_scheme=SequentialScheme(10, 8)
        ).get_epoch_iterator()
    ] == [[*range(0, 16, 2)], [16, 18]]
    assert len(list(dataset.get_example_stream().get_epoch_iterator())) == 10


def test_indexables_that_are_cut_refused_and_pickled():
    assert IndexableDataset(np.arange(10), stop=4).num_examples == 4
    with pytest.raises(ValueError):
        IndexableDataset({"x": [1, 2], "y": [1]})
    dataset = IndexableDataset(np.arange(10))
    for state, request in ((None, None), (True, [0])):
        with pytest.raises(ValueError):
            dataset.get_data(state, request)
    again = pickle.loads(pickle.dumps(dataset))
    assert_array_equal(again.get_data(request=[2])[0], [2])
    assert_array_equal(again.data, np.arange(10))


@pytest.mark.parametrize("seed", [None, 7])
def test_spirals_are_those_of_a_random_state(seed):
    rng = np.random.RandomState(1 if seed is None else seed)
    positions = [rng.uniform(0, 2) for _ in range(50)]
    labels = rng.randint(0, 3, 50)
    features, position, label = Spiral(50, classes=3, cycles=2, seed=seed).get_data(
        None, slice(0, 50)
    )
    assert (position.tolist(), label.tolist()) == (positions, labels.tolist())
    for point, place, arm in zip(features, positions, labels, strict=True):
        turn, radius = 2 * math.pi * (place + arm / 3), (2 * place + 1) / 3
        assert point.tolist() == pytest.approx(
            [radius * math.sin(turn), radius * math.cos(turn)], abs=1e-6
        )
    assert features.dtype == np.float32


@pytest.mark.parametrize("seed", [None, 7])
def test_rolls_are_those_of_a_random_state(seed):
    rng = np.random.RandomState(1 if seed is None else seed)
    along = [rng.uniform(0, 1) for _ in range(50)]
    across = [rng.uniform(-1, 1) for _ in range(50)]
    features, position = SwissRoll(50, seed=seed).get_data(None, slice(0, 50))
    assert_array_equal(position, np.array([along, across], np.float32).T)
    for point, place, height in zip(features, along, across, strict=True):
        turn, radius = 1.5 * math.pi * (1 + 2 * place), (1 + 2 * place) / 3
        assert point.tolist() == pytest.approx(
            [radius * math.cos(turn), radius * math.sin(turn), height], abs=1e-6
        )


def test_noise_of_toys_is_drawn_last():
    for toy, draws in ((Spiral, ("uniform", "randint")), (SwissRoll, ("uniform", "uniform"))):
        rng = np.random.RandomState(5)
        for draw in draws:
            getattr(rng, draw)(0, 1, 20)
        quiet, loud = toy(20, seed=5).features, toy(20, noise=0.5, seed=5).features
        assert_allclose(loud - quiet, 0.5 * rng.normal(size=quiet.shape), atol=1e-6)


# ---------------------------------------------------------------- sequences
WORDS = {"<UNK>": 0, "</S>": 1, "<S>": 2, "this": 3, "is": 4, "a": 5, "test": 6}


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "one.txt").write_text("This is a sentence\nThis another one\n")
    with gzip.open(tmp_path / "two.txt.gz", "wt") as f:
        f.write("a test\nmore\n")
    return [str(tmp_path / "one.txt"), str(tmp_path / "two.txt.gz")]


def test_lines_of_words(texts):
    stream = DataStream(TextFile(texts, WORDS, bos_token=None, preprocess=str.lower))
    lines = [line for (line,) in stream.get_epoch_iterator()]
    assert lines == [[3, 4, 5, 0, 1], [3, 0, 0, 1], [5, 6, 1], [0, 1]]
    epoch = stream.get_epoch_iterator()
    assert next(epoch) == ([3, 4, 5, 0, 1],)
    again = pickle.loads(pickle.dumps(epoch.data_stream.data_state))
    assert list(again) == list(epoch.data_stream.data_state)


def test_lines_of_characters(texts):
    letters = {letter: n for n, letter in enumerate("abcdefghijklmnopqrstuvwxyz T")}
    dataset = TextFile(texts, letters, None, None, None, level="character")
    first, *_ = (line for (line,) in DataStream(dataset).get_epoch_iterator())
    assert first == [letters[letter] for letter in "This is a sentence"]
    with pytest.raises(KeyError):
        list(DataStream(TextFile(texts, {"this": 1}, None, None, None)).get_epoch_iterator())


def test_a_closed_text_is_opened_again(texts):
    stream = DataStream(TextFile(texts, WORDS))
    whole = list(stream.get_epoch_iterator())
    stream.close()
    stream.close()
    assert list(stream.get_epoch_iterator()) == whole
    stream.close()
    stream.reset()
    assert next(stream.get_epoch_iterator()) == whole[0]


def test_a_text_that_is_not_there_is_missed_before_the_first_line(texts):
    with pytest.raises(FileNotFoundError):
        DataStream(TextFile([*texts, "nowhere.txt"], WORDS))


def test_empty_tokens_are_none_and_words_without_a_number_unknown(texts):
    words = {**WORDS, "": 9, "test": None}
    text = TextFile(texts[1:], words, bos_token="", eos_token="")
    assert list(DataStream(text).get_epoch_iterator()) == [([5, 0],), ([0],)]
    text = TextFile(texts[1:], words, unk_token=None)
    with pytest.raises(KeyError):
        list(DataStream(text).get_epoch_iterator())


def test_what_is_no_text_dataset(texts):
    for options in ({"bos_token": "x"}, {"eos_token": "x"}, {"unk_token": "x"}, {"level": "line"}):
        with pytest.raises(ValueError):
            TextFile(texts, WORDS, **options)
    with pytest.raises(ValueError):
        TextFile(texts, WORDS).get_data(iter("a"), [0])


def sentences():
    return DataStream(IterableDataset([[1, 2, 3, 4], [5], [6, 7, 8]]))


def test_ngrams_are_where_release_0_2_0_had_them():
    assert text_of_0_2_0.NGrams is NGrams


def test_ngrams():
    stream = NGrams(2, sentences())
    assert stream.sources == ("data", "targets")
    for _ in range(2):
        assert list(stream.get_epoch_iterator()) == [([1, 2], 3), ([2, 3], 4), ([6, 7], 8)]


@pytest.mark.parametrize(
    ("offset", "overlapping", "expected"),
    [
        (0, False, [([1, 2], [3]), ([2, 3], [4]), ([6, 7], [8])]),
        (1, False, [([1, 2], [4])]),
        (0, True, [([1, 2], [1]), ([2, 3], [2]), ([3, 4], [3]), ([6, 7], [6]), ([7, 8], [7])]),
        (-1, True, [([2, 3], [1]), ([3, 4], [2]), ([7, 8], [6])]),
    ],
)
def test_windows(offset, overlapping, expected):
    assert list(Window(offset, 2, 1, overlapping, sentences()).get_epoch_iterator()) == expected


def test_windows_slide_over_examples_of_one_source():
    two = DataStream(IterableDataset({"x": [1], "y": [1]}))
    batches = DataStream(IndexableDataset([[1, 2]]), iteration_scheme=SequentialScheme(1, 1))
    for wrong in (two, batches):
        with pytest.raises(ValueError):
            Window(0, 1, 1, True, wrong)
