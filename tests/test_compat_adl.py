"""The old abstract data loader by its own import paths: composition, data, synchronization.

What is expected was written down from runs of the genuine package (0.4.7, and 0.3 where it
has what later ones lack), or is worked out here sample by sample.
"""

from __future__ import annotations

import sys

import adl_aliases  # before the package that it stands for
import numpy as np
import pytest
from abstract_dataloader import abstract, generic, spec
from abstract_dataloader.ext import augment, graph, sample
from hypothesis import given
from hypothesis import strategies as st

import labeled
from make_files import fuel_file

BASE = adl_aliases.ALIASES


class Numbers(abstract.Sensor):
    """A sensor whose samples are its own name and their number."""

    def __getitem__(self, index):
        return f"{self.name}{range(len(self))[index]}"


def sensor(n, name="s", step=0.1):
    return Numbers(generic.Metadata(np.arange(n) * step), name)


class Marked:
    """A pipeline that shows what each stage was given."""

    def __init__(self, name):
        self.name = name

    def sample(self, data):
        return (self.name, data)

    def collate(self, data):
        return [type(data).__name__, *data]

    def batch(self, data):
        return {self.name: data}


def test_every_module_is_found_by_its_old_path():
    assert (
        sys.modules["abstract_dataloader.generic.sync"] is BASE["abstract_dataloader.generic.sync"]
    )
    with pytest.raises(ImportError, match="imported already"):
        labeled.compat.abstract_dataloader.install_aliases("numpy")


def test_every_class_takes_the_types_that_old_annotations_give_it():
    takes = {
        generic.ParallelTransforms: 2,
        generic.ParallelPipelines: 4,
        generic.SequencePipeline: 4,
        generic.DatasetMeta: 1,
        generic.Window: 3,
        sample.SampledDataset: 1,
    }
    for kind, n in takes.items():
        assert kind[(int,) * n].__origin__ is kind


def test_protocols_ask_for_members_alone():
    parts = generic.ParallelPipelines(a=Marked("a"))
    for kinds, those, others in (
        ((spec.Dataset, spec.Trace), ([], {}, "", sensor(2), abstract.Trace({})), (abs,)),
        ((spec.Transform, spec.Collate, spec.Synchronization), (int, generic.Next("a")), (3,)),
        ((spec.Pipeline,), (abstract.Pipeline(), parts, generic.SequencePipeline(parts)), (abs,)),
        ((spec.Sensor,), (sensor(1),), ([],)),
        ((spec.Metadata,), (generic.Metadata(np.zeros(1)),), (abs,)),
    ):
        for kind in kinds:
            assert all(isinstance(one, kind) for one in those)
            assert not any(isinstance(one, kind) for one in others)


def test_a_dataset_of_files_is_a_trace_and_goes_into_one(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    path = fuel_file(tmp_path / "d.hdf5", {"x": x}, {"all": (0, 6)}, {"x": ("batch", "f")})
    dataset = labeled.open_dataset(path)
    assert isinstance(dataset, spec.Dataset)
    assert isinstance(dataset, spec.Trace)
    np.testing.assert_array_equal(dataset[np.int64(4)]["x"], x[4])
    np.testing.assert_array_equal(dataset[-1]["x"], x[-1])
    assert dataset[-1].row == 5
    assert dataset["x"].dims == ("batch", "f")
    twice = abstract.Dataset([dataset, dataset.subset([3, 1])])
    assert len(twice) == 8
    np.testing.assert_array_equal(twice[7]["x"], x[1])
    some = sample.SampledDataset(twice, 3, mode="uniform")
    np.testing.assert_array_equal(some[2]["x"], x[1])


# data


def test_sensors():
    with pytest.raises(TypeError):
        abstract.Sensor(generic.Metadata(np.zeros(1)))
    ten = sensor(10)
    assert (len(ten), ten.duration, ten.framerate) == (10, 0.9, 10.0)
    assert list(ten.stream()) == [f"s{i}" for i in range(10)]
    assert [len(batch) for batch in ten.stream(batch=3)] == [3, 3, 3]
    assert list(ten.stream(batch=20)) == []
    with pytest.raises(ZeroDivisionError):
        list(ten.stream(batch=0))
    assert sensor(0).duration == 0.0
    assert np.isnan(sensor(1).framerate)
    with pytest.raises(ZeroDivisionError):
        _ = sensor(0).framerate
    assert repr(sensor(4, "lidar")) == "Numbers(lidar, n=4)"


def test_traces():
    both = {"a": sensor(3, "a"), "b": sensor(5, "b")}
    plain = abstract.Trace(both)
    assert (len(plain), plain[2], plain["b"]) == (3, {"a": "a2", "b": "b2"}, both["b"])
    assert repr(plain) == "Trace(trace, 3x[a, b])"
    assert "(ride, " in repr(abstract.Trace({"a": sensor(3)}, name="ride"))
    assert list(plain.children()) == list(both.values())
    with pytest.raises(IndexError):
        plain[4]
    with pytest.raises(KeyError):
        plain["c"]
    chosen = abstract.Trace(both, {"a": np.array([2, 1]), "b": np.array([4, 0])})
    assert (len(chosen), chosen[0]) == (2, {"a": "a2", "b": "b4"})
    assert chosen[-1] == chosen[np.uint8(1)] == {"a": "a1", "b": "b0"}
    with pytest.raises(ValueError):
        chosen[0:2]
    with pytest.raises(AttributeError):
        abstract.Trace(both, {"a": [2, 1], "b": [4, 0]})[0]
    with pytest.raises(KeyError):
        abstract.Trace(both, {"a": np.array([2])})[0]
    with pytest.raises(IndexError):
        len(abstract.Trace({}))
    synced = abstract.Trace(both, generic.Next("a"))
    assert [synced[i] for i in range(len(synced))] == [
        {"a": f"a{i}", "b": f"b{i}"} for i in range(3)
    ]


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=6))
def test_datasets_are_traces_one_after_another(traces):
    dataset, flat = abstract.Dataset(traces), [item for trace in traces for item in trace]
    assert [dataset[i] for i in range(len(dataset))] == flat
    if flat:
        assert dataset[np.uint64(len(flat) - 1)] == flat[-1]
    for index in (-1, len(flat)):
        with pytest.raises(IndexError):
            dataset[index]


# composition


def test_transforms_in_sequence_and_stages_that_are_not_given():
    assert abstract.Transform([abs, str])(-3) == "3"
    assert abstract.Transform([])(4) == 4
    assert abstract.Collate()((1, 2)) == (1, 2)
    nothing = abstract.Pipeline()
    assert (nothing.sample(1), nothing.collate([1, 2]), nothing.batch(3)) == (1, [1, 2], 3)
    all_three = abstract.Pipeline(abs, sum, str)
    assert (all_three.sample(-1), all_three.collate([1, 2]), all_three.batch(3)) == (1, 3, "3")
    assert list(all_three.children()) == [abs, sum, str]
    assert list(abstract.Pipeline(batch=str).children()) == [str]


def test_parts_that_are_not_named_are_dropped():
    assert generic.ParallelTransforms(a=abs)({"a": -1, "b": 2}) == {"a": 1}
    assert generic.ParallelTransforms()({"b": 2}) == {}
    with pytest.raises(KeyError):
        generic.ParallelTransforms(a=abs)({"b": 2})
    both = generic.ParallelPipelines(a=Marked("A"), b=Marked("B"))
    assert both.sample({"a": 1, "b": 2, "c": 3}) == {"a": ("A", 1), "b": ("B", 2)}
    assert both.collate([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {
        "a": ["list", 1, 3],
        "b": ["list", 2, 4],
    }
    assert both.batch({"a": 1, "b": 2, "c": 3}) == {"a": {"A": 1}, "b": {"B": 2}}


@pytest.mark.parametrize("pre", [None, abs])
@pytest.mark.parametrize("post", [None, str])
def test_transforms_around_a_pipeline(pre, post):
    inner = Marked("A")
    outer = generic.ComposedPipeline(inner, pre, post)
    assert outer.sample(-1) == ("A", 1 if pre else -1)
    assert outer.collate == inner.collate
    assert outer.batch(2) == ("{'A': 2}" if post else {"A": 2})
    nested = generic.ComposedPipeline(outer, pre=lambda x: x - 5)
    assert nested.sample(-1) == ("A", 6 if pre else -6)


def test_pipelines_over_time_are_cut_to_the_shortest():
    steps = generic.SequencePipeline(Marked("A"))
    assert steps.sample([1, 2]) == [("A", 1), ("A", 2)]
    assert steps.collate([[1, 2], [3, 4], [5]]) == [["tuple", 1, 3, 5]]
    assert steps.collate([]) == []
    assert steps.batch([1, 2]) == [{"A": 1}, {"A": 2}]


def test_stacked_pipelines_see_all_steps_of_all_samples_as_one_batch():
    seen, features = [], 3

    def batch(data):
        seen.append(data["v"].shape)
        return (data["v"] * 2, [data["n"]])

    inner = abstract.Pipeline(
        lambda x: {"v": np.full(features, x), "n": np.array(x)},
        lambda steps: {name: np.stack([one[name] for one in steps]) for name in "vn"},
        batch,
    )
    steps = generic.StackedSequencePipeline(inner)
    collated = steps.collate([steps.sample([1, 2]), steps.sample([3, 4]), steps.sample([5, 6])])
    assert collated["v"].shape == (3, 2, features)
    doubled, (numbers,) = steps.batch(collated)
    assert seen == [(6, features)]
    assert doubled.shape == (3, 2, features)
    np.testing.assert_array_equal(numbers, [[1, 2], [3, 4], [5, 6]])


def test_items_with_something_in_common():
    dataset = generic.DatasetMeta([{"x": 1}, {"meta": 3}], 7)
    assert (dataset[0], dataset[1], len(dataset)) == ({"meta": 7, "x": 1}, {"meta": 3}, 2)
    assert list(dataset[0]) == ["meta", "x"]


@given(st.integers(0, 12), st.integers(0, 4), st.integers(0, 4), st.none() | st.integers(1, 3))
def test_windows(n, past, future, parallel):
    options = {"past": past, "future": future, "parallel": parallel}
    items = [f"s{i}" for i in range(n)]
    cropped = generic.Window(sensor(n), **options)
    whole = generic.Window(sensor(n), crop=False, **options)
    n_whole = max(0, n - past - future)
    assert (len(cropped), len(whole)) == (n_whole, n)
    np.testing.assert_array_equal(
        cropped.metadata.timestamps, (np.arange(n) * 0.1)[past : past + n_whole]
    )
    for i in range(n_whole):
        assert cropped[i] == items[i : i + past + future + 1]
        assert whole[np.int64(i + past)] == cropped[i]
    made = generic.Window.from_partial_sensor(lambda path: sensor(5, path), len, past=1)("p")
    assert (made[0], repr(made)) == (2, "Numbers(p, n=5) x [-1:+0]")
    for window, index in (
        (cropped, n_whole),
        (cropped, -1),
        (whole, n - future),
        (whole, past - 1),
    ):
        with pytest.raises(IndexError):
            window[index]


# synchronization

times = st.lists(st.integers(0, 60), min_size=1, max_size=12).map(
    lambda ticks: np.array(sorted(ticks)) / 8  # exact, so that ties are ties
)
series = st.fixed_dictionaries({"a": times, "b": times, "c": times})


def queries(given, reference, left=0.0, right=0.0):
    """Moments of the reference at which all series are, sample by sample."""
    start = max(min(t for t in one if t >= one[0] + left) for one in given.values())
    end = min(max(t for t in one if t <= one[-1] - right) for one in given.values())
    return [t for t in given[reference] if start <= t <= end]


@given(series, st.sampled_from("abc"))
def test_next_takes_the_first_at_or_after(given, reference):
    found = generic.Next(reference)(given)
    for name, one in given.items():
        wanted = [next(i for i, t in enumerate(one) if t >= q) for q in queries(given, reference)]
        assert found[name].dtype == np.uint32
        np.testing.assert_array_equal(found[name], wanted)


@given(series, st.sampled_from("abc"), st.sampled_from([0, 0.25, 1, np.inf]))
def test_nearest_takes_the_earlier_of_two_and_only_what_is_nearer_than_tol(given, reference, tol):
    found = generic.Nearest(reference, tol=tol)(given)
    moments = queries(given, reference)
    kept = [q for q in moments if all(np.abs(one - q).min() < tol for one in given.values())]
    for name, one in given.items():
        assert found[name].dtype == np.uint32
        wanted = [one[int(np.argmin(np.abs(one - q)))] for q in kept]
        np.testing.assert_array_equal(one[found[name]], wanted)


def test_margins_are_samples_or_seconds():
    a = {"a": np.arange(10.0)}
    for margin, wanted in (
        ((0, 0), range(10)),
        ((1, 2), range(1, 8)),
        ((1.5, 2.0), range(2, 8)),
        ({"a": (0.5, 1)}, range(1, 9)),
        ({"other": (3, 3)}, range(10)),
        ((np.int64(1), 0), range(1, 10)),  # seconds, as it is no int
        ((-2, 0), range(8, 10)),
    ):
        np.testing.assert_array_equal(generic.Next("a", margin)(a)["a"], list(wanted))
        np.testing.assert_array_equal(generic.Nearest("a", margin)(a)["a"], list(wanted))
    assert generic.Next("a", (1.5, 1)).apply_margin(a) == ({"a": 2}, {"a": 8})
    with pytest.raises(TypeError):
        generic.Next("a", (1,))
    with pytest.raises(TypeError):
        generic.Next("a", {"a": (1, 2, 3)})
    with pytest.raises(IndexError):
        generic.Next("a", (100, 0))(a)
    with pytest.raises(KeyError, match="'z'"):
        generic.Next("z")(a)
    with pytest.raises(IndexError):
        generic.Next("a")({**a, "b": np.empty(0)})
    with pytest.raises(ValueError):
        generic.Nearest("a", tol=-1)


def test_decimation_and_nothing():
    a = {"a": np.arange(10.0), "b": np.arange(0.5, 9, 0.5)}
    found = generic.Decimate(generic.Next("a"), 3)(a)
    np.testing.assert_array_equal(found["a"], [1, 4, 7])
    np.testing.assert_array_equal(found["b"], [1, 7, 13])
    thinned = generic.Decimate(generic.Next("a"), 3, "a")(a)
    np.testing.assert_array_equal(thinned["a"], [1, 2])  # of the thinned series: frames 3 and 6
    np.testing.assert_array_equal(thinned["b"], [5, 11])
    with pytest.raises(ValueError):
        generic.Decimate(generic.Next("a"), 0)(a)
    empty = generic.Empty()(a)
    assert {name: (one.dtype, len(one)) for name, one in empty.items()} == dict.fromkeys(
        a, (np.dtype(np.uint32), 0)
    )


# extensions


def test_low_discrepancy():
    for given_, wanted in (
        ((20, 10), [0, 13, 6, 19, 12, 5, 18, 11, 4, 17]),
        ((10, 10), [0, 7, 4, 1, 8, 5, 2, 9, 6, 3]),
        ((10, 4, 0.5), [5, 2, 9, 6]),
        ((10, 4, 0, 4), [0, 4, 8, 2]),
        ((36, 2), [0, 23]),
    ):
        found = sample.sample_ld(*given_)
        assert (found.dtype, found.tolist()) == (np.int64, wanted)
    for given_ in ((10, 11), (10, -1), (1, 1), (0, 0), (6, 2)):
        with pytest.raises(ValueError):
            sample.sample_ld(*given_)
    with pytest.raises(NotImplementedError):
        sample.sample_ld(2**62, 10)


def test_sampled_datasets():
    items = list(range(20))

    def chosen(*given_, **options):
        some = sample.SampledDataset(items, *given_, **options)
        return [some[i] for i in range(len(some))]

    assert [len(chosen(n)) for n in (1, 1.0, 0.33, 50)] == [1, 20, 6, 20]
    assert chosen(5) == [0, 13, 6, 19, 12]
    assert chosen(5, mode="uniform") == [0, 4, 9, 14, 19]
    assert chosen(5, 3, mode="random") == np.random.default_rng(3).integers(0, 20, 5).tolist()
    assert chosen(5, mode=lambda n: np.arange(n)[::-7]) == [19, 12, 5]
    assert chosen(5, mode=lambda n: np.arange(n, dtype=float)[::-7]) == [19, 12, 5]
    with pytest.raises(TypeError):
        chosen(5, mode="best")
    assert repr(sample.SampledDataset([1, 2], 1)) == "Sampled([1, 2], n=1)"


def test_draws():
    def drawn(kind, *given_):
        return [kind(*given_)(np.random.default_rng(seed)) for seed in range(4)]

    assert drawn(augment.Bernoulli) == [False, False, True, True]
    found = drawn(augment.TruncatedLogNormal, 0.5, 0.3, 1.0)
    np.testing.assert_allclose(found, [1.0, 1.0, 0.8548540448082502, 0.7408182206817179])
    np.testing.assert_allclose(
        drawn(augment.Uniform)[:3], [0.8605556614246863, 0.07427745862364432, -1.497835135494595]
    )
    assert drawn(augment.Normal, 0.0) == [0.0] * 4
    expected = [2 + 3 * np.random.default_rng(seed).random() for seed in range(4)]
    np.testing.assert_allclose(drawn(augment.Uniform, 1.0, 2.0, 5.0), expected)
    assert drawn(augment.Uniform, 0.0, 2.0, 5.0) == [0.0] * 4
    both = augment.Augmentations(a=augment.Bernoulli(1.0), b=augment.Normal(1.0, 0.0))
    assert both() == both({"train": True}) == {"a": True, "b": 0.0}
    assert both({"train": False}) == {}
    uncut = [np.exp(3 * np.random.default_rng(seed).normal()) for seed in range(4)]
    np.testing.assert_allclose(drawn(augment.TruncatedLogNormal, 1.0, 3.0, 0.0), uncut)


def test_graphs():
    plus = graph.Node(lambda x: x + 1, "y", {"x": "a"})
    twice = {"transform": lambda x, more=0: 2 * x + more, "output": "z", "inputs": {"x": "y"}}
    data = {"a": 1, "b": 2}
    assert graph.Transform(twice=twice, plus=plus)(data) == {"a": 1, "b": 2, "y": 2, "z": 4}
    assert data == {"a": 1, "b": 2, "y": 2, "z": 4}  # changed in place
    some = graph.Transform({"r": "z"}, plus=plus, twice=twice)
    assert some({"a": 1, "b": 2}) == {"r": 4}
    every = graph.Transform({"r": "z"}, keep_all=True, plus=plus, twice=twice)
    assert every({"a": 1, "b": 2}) == {"a": 1, "b": 2, "y": 2, "z": 4, "r": 4}
    forgets = graph.Transform({"r": "z"}, plus=plus, twice={**twice, "optional": {"more": "b"}})
    assert forgets({"a": 1, "b": 200}) == {"r": 4}
    keeps = graph.Transform(plus=plus, twice=graph.Node(**twice, optional={"more": "b"}))
    assert keeps({"a": 1, "b": 200}) == {"a": 1, "b": 200, "y": 2, "z": 204}
    assert keeps({"a": 1}) == {"a": 1, "y": 2, "z": 4}
    # `early` runs as soon as `plus` has: before `late`, which could have run first
    early = graph.Node(lambda x: f"early {x}", "w", {"x": "y"})
    late = graph.Node(lambda w=None: f"late, behind {w}", "v", optional={"w": "w"})
    ordered = graph.Transform(early=early, plus=plus, late=late)({"a": 1})
    assert ordered == {"a": 1, "y": 2, "w": "early 2", "v": "late, behind early 2"}
    with pytest.raises(ValueError, match=r"There are 1 nodes remaining.*nowhere"):
        graph.Transform(n=graph.Node(abs, "y", {"x": "nowhere"}))({"a": 1})
    for made, kind in (((1,), ValueError), (1, TypeError), (np.zeros(2), TypeError)):
        words = "length mismatch" if kind is ValueError else "is expected to be a sequence"
        with pytest.raises(kind, match=f"Node 'n' output {words}"):
            graph.Node(lambda made=made: made, ["y", "z"]).apply({}, "n")


def test_old_pipelines_run_in_native_loaders(tmp_path):
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    path = fuel_file(tmp_path / "d.hdf5", {"x": x}, {"all": (0, 20)}, {"x": ("batch", "f")})
    pipeline = abstract.Pipeline(lambda data: data["x"].values * 2, np.stack, np.sum)
    made = list(labeled.open_dataset(path).batches(5, pipeline=pipeline))
    np.testing.assert_allclose(made, (2 * x).reshape(4, -1).sum(1))
