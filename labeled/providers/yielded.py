"""What iterators yield, taken apart into data and labels with names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from labeled.device import Array, is_array
from labeled.errors import ArrayError, LoaderError, UnknownNameError, did_you_mean
from labeled.loader.batches.batch import Batch
from labeled.providers.batch import DataBatch, sample_first
from labeled.providers.samples import named_arrays, samples_of


class Parts(NamedTuple):
    """What was yielded, taken apart."""

    data: dict[str, Array]
    label: dict[str, Array]
    n_real: int | None = None
    """How many samples are real, where that was told."""

    @property
    def lengths(self) -> dict[str, int]:
        return {name: a.shape[0] for part in (self.data, self.label) for name, a in part.items()}

    @property
    def holds_samples(self) -> bool:
        return self.n_real != 0 and any(self.lengths.values())


@dataclass(frozen=True)
class Naming:
    """How what is yielded is taken apart into data and labels.

    Parameters
    ----------
    data_name, label_name : str
        What an array without a name is called.
    label_names : tuple of str
        Which names of a mapping are labels.
    """

    data_name: str = "data"
    label_name: str = "softmax_label"
    label_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.data_name, self.label_name, *self.label_names):
            if not isinstance(name, str):
                raise LoaderError(f"the name {name!r} of an array is no str")

    def parts_of(self, item: Any) -> Parts:
        """Return data and labels by name, and how many samples are real where that is told."""
        if isinstance(item, Batch):
            return self._by_name(item.arrays, item.count)
        if isinstance(item, DataBatch):
            data, label = (
                {name: sample_first(a, item.axes) for name, a in part.items()}
                for part in (item.named_data, item.named_label)
            )
            return Parts(data, label, item.count_samples)
        if isinstance(item, Mapping):
            return self._by_name(item, None)
        if hasattr(item, "data") and hasattr(item, "label") and not is_array(item):
            parts = self._listed(item.data, item.label)
            return parts._replace(n_real=_count_of(item, parts))
        if isinstance(item, tuple | list) and len(item) == 2 and not isinstance(item[0], str):
            return self._listed(item[0], item[1])
        return self._listed(item, None)

    def _by_name(self, given: Mapping[str, Any], n_real: int | None) -> Parts:
        labels = self.label_names or (self.label_name,)
        for name in self.label_names:
            if name not in given:
                hint = did_you_mean(name, map(str, given))
                raise UnknownNameError(f"a batch has no array {name!r} for a label; {hint}")
        arrays = {name: samples_of(str(name), a) for name, a in given.items()}
        data = {str(name): a for name, a in arrays.items() if name not in labels}
        return Parts(data, {str(name): a for name, a in arrays.items() if name in labels}, n_real)

    def _listed(self, data: Any, label: Any) -> Parts:
        labels = {} if label is None else _named(label, self.label_name)
        return Parts(_named(data, self.data_name), labels)


def _named(given: Any, name: str) -> dict[str, Array]:
    """Name arrays that have no name: one by `name`, several by ``_0_name``, ``_1_name``."""
    several = isinstance(given, list | tuple) and len(given) > 0
    if several and all(_is_one(one) for one in given):
        names = [name] if len(given) == 1 else [f"_{i}_{name}" for i in range(len(given))]
        pairs = list(zip(names, given, strict=True))
    else:
        pairs = named_arrays(given, name)
    arrays = {n: samples_of(n, one) for n, one in pairs}
    if len(arrays) < len(pairs):
        raise ArrayError(f"a batch names two arrays alike: {[n for n, _ in pairs]}")
    return arrays


def _is_one(value: Any) -> bool:
    return is_array(value) or hasattr(value, "asnumpy") or hasattr(value, "__array__")


def _count_of(item: Any, parts: Parts) -> int | None:
    pad = getattr(item, "pad", None)
    if pad is None:
        return None
    size = next(iter(parts.lengths.values()), 0)
    if not 0 <= pad <= size:
        raise ArrayError(f"a batch of {size} samples says that pad={pad} of them are padded")
    return size - int(pad)


def label_names(label: Any) -> tuple[str, ...]:
    """Return which names of a mapping are labels: of one name, several, or None."""
    if label is None or isinstance(label, str):
        return () if label is None else (label,)
    if not isinstance(label, Iterable):
        raise LoaderError(f"label={label!r} must be a name or a list of names")
    return tuple(label)
