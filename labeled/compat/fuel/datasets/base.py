"""Datasets in memory, of anything that can be iterated, of lines of text; what all share."""

from __future__ import annotations

import gzip
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from labeled.compat.errors import check, old
from labeled.compat.fuel.schemes import SequentialExampleScheme, random_state
from labeled.compat.fuel.streams import DataStream
from labeled.compat.fuel.utils import Subset, kept


class Dataset(ABC):
    """Named sources that give data for a request.

    Parameters
    ----------
    sources : container of str, optional
        Some of `provides_sources`, in the order wanted; all if not given.
    axis_labels : dict, optional
        Source to tuple of axis names.

    Raises
    ------
    ValueError
        If nothing is provided, or a source that is not.
    """

    provides_sources: Any = None
    default_transformers: Any = ()

    def __init__(self, sources: Any = None, axis_labels: Any = None) -> None:
        check(self.provides_sources, f"{type(self).__name__} provides no sources")
        if sources is not None:
            known = sources and all(name in self.provides_sources for name in sources)
            check(known, f"asked for are {sources!r} of the sources {self.provides_sources!r}")
            self.sources = sources
        self.axis_labels = axis_labels

    sources = kept("sources", lambda self: self.provides_sources)

    def _no_scheme(self) -> Any:
        raise old(AttributeError, f"{type(self).__name__} has no example_iteration_scheme")

    example_iteration_scheme = kept("example_iteration_scheme", _no_scheme)

    def apply_default_transformers(self, stream: Any) -> Any:
        """Put `default_transformers`, each (class, arguments, options), behind a stream."""
        for cls, arguments, options in self.default_transformers:
            stream = cls(stream, *arguments, **options)
        return stream

    def get_example_stream(self) -> DataStream:
        """Return a stream of single examples."""
        return DataStream(self, iteration_scheme=self.example_iteration_scheme)

    def open(self) -> Any:
        """Return the state that `get_data` needs; None here."""
        return None

    def close(self, state: Any) -> Any:
        """Release a state."""
        return None

    def reset(self, state: Any) -> Any:
        """Close a state and return a new one."""
        self.close(state)
        return self.open()

    def next_epoch(self, state: Any) -> Any:
        """Return the state for the next epoch."""
        return self.reset(state)

    @abstractmethod
    def get_data(self, state: Any = None, request: Any = None) -> Any:
        """Return the data of a request, a tuple by source."""

    def filter_sources(self, data: Iterable[Any]) -> tuple[Any, ...]:
        """Return what of all provided sources belongs to the chosen ones."""
        pairs = zip(data, self.provides_sources, strict=False)
        return tuple(values for values, name in pairs if name in self.sources)


class IterableDataset(Dataset):
    """Examples of iterables, read one after another.

    Parameters
    ----------
    iterables : dict of iterables, or one of them
        By source; one alone is called ``data``.

    Raises
    ------
    ValueError
        If one cannot be iterated, or their lengths are known and differ.
    """

    example_iteration_scheme: Any = None

    def __init__(self, iterables: Any, **kwargs: Any) -> None:
        named = iterables if isinstance(iterables, dict) else {"data": iterables}
        self.provides_sources = tuple(named)
        super().__init__(**kwargs)
        for one in named.values():
            check(isinstance(one, Iterable), f"a source must be iterable, found {one!r}")
        self.iterables: list[Any] = [named[source] for source in self.sources]
        lengths = self._lengths()
        check(len(lengths) < 2, f"sources have different lengths, {lengths}")

    def _lengths(self) -> set[int]:
        """Return the lengths there are; none where one is not known."""
        try:
            return {len(one) for one in self.iterables}
        except TypeError:
            return set()

    @property
    def num_examples(self) -> Any:
        """How many examples there are; NaN where that is not known."""
        return next(iter(self._lengths()), float("nan"))

    def open(self) -> Any:
        return zip(*map(iter, self.iterables), strict=False)

    def get_data(self, state: Any = None, request: Any = None) -> Any:
        """Return the next example."""
        check(state is not None and request is None, "give the state of open(), and no request")
        return next(state)


class IndexableDataset(Dataset):
    """Examples of arrays, or of anything that is read by index.

    Parameters
    ----------
    indexables : dict of indexables, or one of them
        By source; one alone is called ``data``. Sources are attributes, too.
    start, stop : int, optional
        Cut every source, and then once more apply to requests: the old rule, by which a
        `start` with a `stop` nearly always is an error.

    Raises
    ------
    ValueError
        If lengths differ.
    """

    def __init__(
        self, indexables: Any, start: int | None = None, stop: int | None = None, **kwargs: Any
    ) -> None:
        named = indexables if isinstance(indexables, dict) else {"data": indexables}
        self.provides_sources = tuple(named)
        super().__init__(**kwargs)
        self.indexables: list[Any] = [named[source][start:stop] for source in self.sources]
        lengths = {len(one) for one in self.indexables}
        check(len(lengths) < 2, f"sources have different lengths, {lengths}")
        self.start, self.stop = start, stop
        self.example_iteration_scheme = SequentialExampleScheme(self.num_examples)
        self.subset = Subset(slice(start, stop), self.num_examples)

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        known = state.get("_sources", state.get("provides_sources")) or ()
        if name in known and name != "indexables":
            return self.indexables[list(known).index(name)]
        raise old(AttributeError, f"{type(self).__name__} has no attribute or source {name!r}")

    @property
    def num_examples(self) -> int:
        return len(self.indexables[0])

    def get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        """Return the data of a request: an int, a slice or a list of int."""
        check(state is None and request is not None, "give a request, and no state")
        return tuple(self.subset.index_within_subset(one, request) for one in self.indexables)


# ---------------------------------------------------------------- made-up points
class Spiral(IndexableDataset):
    """Points on spirals in a plane: sources ``features``, ``position`` and ``label``.

    Parameters
    ----------
    num_examples : int
    classes : int
        How many spirals.
    cycles : float
        How often each turns.
    noise : float
        Standard deviation of what is added to the points.
    seed : int, optional
        ``config.default_seed`` if not given.
    """

    def __init__(
        self,
        num_examples: int = 1000,
        classes: int = 1,
        cycles: float = 1.0,
        noise: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        rng = random_state(seed)
        position = rng.uniform(0, cycles, num_examples)
        label = rng.randint(0, classes, num_examples)
        angle = 2 * np.pi * position + label * (2 * np.pi) / classes
        radius = (2 * position + 1) / 3
        features = _noisy(rng, [radius * np.sin(angle), radius * np.cos(angle)], noise)
        super().__init__({"features": features, "position": position, "label": label}, **kwargs)


class SwissRoll(IndexableDataset):
    """Points on a rolled sheet: sources ``features`` (n, 3) and ``position`` (n, 2) on it.

    Parameters
    ----------
    num_examples : int
    noise : float
        Standard deviation of what is added to the points.
    seed : int, optional
        ``config.default_seed`` if not given.
    """

    def __init__(
        self, num_examples: int = 1000, noise: float = 0.0, seed: int | None = None, **kwargs: Any
    ) -> None:
        rng = random_state(seed)
        along, across = rng.uniform(0, 1, num_examples), rng.uniform(-1, 1, num_examples)
        angle, radius = 1.5 * np.pi * (1 + 2 * along), (1 + 2 * along) / 3
        points = [radius * np.cos(angle), radius * np.sin(angle), across]
        position = np.stack([along, across], axis=1).astype("float32")
        super().__init__({"features": _noisy(rng, points, noise), "position": position}, **kwargs)


def _noisy(rng: np.random.RandomState, points: list[Any], noise: float) -> Any:
    """Return points as float32; what is added to them is added to what was rounded."""
    features = np.stack(points, axis=1).astype("float32")
    features += noise * rng.standard_normal(features.shape)
    return features


# ---------------------------------------------------------------- lines of text
class TextLines(Iterator[str]):
    """The lines of some files, one after another; can be pickled halfway."""

    def __init__(self, files: Iterable[str], encoding: str | None) -> None:
        self.files, self.encoding = list(files), encoding
        self.read_lines = 0
        self._lines: Iterator[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lines": None}

    def __next__(self) -> str:
        if self._lines is None:
            self._lines = islice(_lines_of(self.files, self.encoding), self.read_lines, None)
        line = next(self._lines)
        self.read_lines += 1
        return line

    def close(self) -> None:
        """Close the file; going on opens it again."""
        self._lines = None


def _lines_of(files: list[str], encoding: str | None) -> Iterator[str]:
    for path in files:
        opener: Callable[..., Any] = gzip.open if str(path).endswith(".gz") else open
        with opener(path, "rt", encoding=encoding) as file:
            yield from file


class TextFile(Dataset):
    """Lines as lists of numbers: source ``features``, one example a line.

    Parameters
    ----------
    files : list of paths
        Those ending in ``.gz`` are uncompressed.
    dictionary : dict of str to int
        A word whose number is None counts as unknown.
    bos_token, eos_token : str or None
        What begins and ends each line; None or an empty text for nothing.
    unk_token : str or None
        What stands for words that are not in the dictionary; None makes them an error.
    level : {"word", "character"}
    preprocess : callable, optional
        Applied to each line.
    encoding : str, optional

    Raises
    ------
    ValueError
        If a token is not in the dictionary, or `level` is something else.
    """

    provides_sources = ("features",)
    example_iteration_scheme: Any = None

    def __init__(
        self,
        files: Iterable[str],
        dictionary: Mapping[str, int],
        bos_token: str | None = "<S>",
        eos_token: str | None = "</S>",
        unk_token: str | None = "<UNK>",
        level: str = "word",
        preprocess: Callable[[str], str] | None = None,
        encoding: str | None = None,
    ) -> None:
        for token in (bos_token, eos_token, unk_token):
            check(token is None or token in dictionary, f"add {token!r}, or pass None for it")
        check(level in ("word", "character"), f"level is 'word' or 'character', found {level!r}")
        super().__init__()
        self.files, self.dictionary = list(files), dictionary
        self.bos_token, self.eos_token, self.unk_token = bos_token, eos_token, unk_token
        self.level, self.preprocess, self.encoding = level, preprocess, encoding

    def open(self) -> TextLines:
        """Return the lines; each file is tried first.

        Raises
        ------
        OSError
            If one cannot be opened.
        """
        for path in self.files:
            open(path, "rb").close()
        return TextLines(self.files, self.encoding)

    def close(self, state: Any) -> None:
        """Close the file that is being read, if there is one."""
        if state is not None:
            state.close()

    def get_data(self, state: Any = None, request: Any = None) -> tuple[list[int]]:
        """Return the next line.

        Raises
        ------
        KeyError
            If a word is not in the dictionary, and there is no token for that.
        """
        check(request is None, "give the state of open(), and no request")
        line = next(state)
        if self.preprocess is not None:
            line = self.preprocess(line)
        symbols = line.split() if self.level == "word" else list(line.strip())
        begin = [self.dictionary[self.bos_token]] if self.bos_token else []
        end = [self.dictionary[self.eos_token]] if self.eos_token else []
        return ([*begin, *map(self._number, symbols), *end],)

    def _number(self, symbol: str) -> int:
        number = self.dictionary.get(symbol)
        if number is None:
            check(self.unk_token is not None, f"add {symbol!r}, or give unk_token=", KeyError)
            number = self.dictionary[str(self.unk_token)]
        return number
