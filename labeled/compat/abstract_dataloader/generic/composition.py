"""The old compositions: parts of a sample side by side, transforms around a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from labeled.compat.abstract_dataloader import spec
from labeled.compat.abstract_dataloader.spec import Index


class ParallelTransforms:
    """Transforms by the name of their part; parts that are not named are dropped."""

    def __init__(self, **transforms: spec.Transform[Any, Any]) -> None:
        self.transforms = transforms

    def __call__(self, data: Any) -> dict[str, Any]:
        return {name: transform(data[name]) for name, transform in self.transforms.items()}

    def children(self) -> Iterable[Any]:
        return self.transforms.values()


class ParallelPipelines:
    """Pipelines by the name of their part; parts that are not named are dropped."""

    def __init__(self, **transforms: spec.Pipeline[Any, Any, Any, Any]) -> None:
        self.transforms = transforms

    def sample(self, data: Any) -> dict[str, Any]:
        return {name: one.sample(data[name]) for name, one in self.transforms.items()}

    def collate(self, data: Sequence[Any]) -> dict[str, Any]:
        return {
            name: one.collate([sample[name] for sample in data])
            for name, one in self.transforms.items()
        }

    def batch(self, data: Any) -> dict[str, Any]:
        return {name: one.batch(data[name]) for name, one in self.transforms.items()}

    def children(self) -> Iterable[Any]:
        return self.transforms.values()


class ComposedPipeline:
    """A pipeline with transforms before its samples and after its batches (releases up to 0.3)."""

    def __init__(
        self,
        pipeline: spec.Pipeline[Any, Any, Any, Any],
        pre: spec.Transform[Any, Any] | None = None,
        post: spec.Transform[Any, Any] | None = None,
    ) -> None:
        self.pipeline, self.pre, self.post = pipeline, pre, post
        self.collate = pipeline.collate

    def sample(self, data: Any) -> Any:
        return self.pipeline.sample(data if self.pre is None else self.pre(data))

    def batch(self, data: Any) -> Any:
        made = self.pipeline.batch(data)
        return made if self.post is None else self.post(made)

    def children(self) -> Iterable[Any]:
        return [one for one in (self.pipeline, self.pre, self.post) if one is not None]


class DatasetMeta:
    """A dataset whose items carry one ``"meta"`` in common, unless they have their own."""

    def __init__(self, dataset: spec.Dataset[Any], meta: Any) -> None:
        self.dataset, self.meta = dataset, meta

    def __getitem__(self, index: Index) -> dict[str, Any]:
        return {"meta": self.meta, **self.dataset[index]}

    def __len__(self) -> int:
        return len(self.dataset)
