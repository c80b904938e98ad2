"""What built-in datasets put behind their streams."""

from __future__ import annotations

from typing import Any

from labeled.compat.fuel.transformers import Cast, ScaleAndShift, SourcewiseTransformer
from labeled.compat.fuel.transformers.image import ImagesFromBytes


class ToBytes(SourcewiseTransformer):
    """Makes byte strings of arrays: of each example of a batch one.

    Their axis is labelled 'bytes', behind 'batch' where that was a label.
    """

    def __init__(self, stream: Any, **kwargs: Any) -> None:
        kwargs.setdefault("produces_examples", stream.produces_examples)
        labels = dict(stream.axis_labels or {})
        for source in kwargs.get("which_sources", stream.sources):
            is_batch = "batch" in labels.get(source, ())
            labels[source] = ("batch", "bytes") if is_batch else ("bytes",)
        kwargs.setdefault("axis_labels", labels)
        super().__init__(stream, **kwargs)

    def transform_source_example(self, source_example: Any, source_name: str) -> bytes:
        made: bytes = source_example.tobytes()
        return made

    def transform_source_batch(self, source_batch: Any, source_name: str) -> list[bytes]:
        return [example.tobytes() for example in source_batch]


def uint8_pixels_to_floatX(which_sources: Any) -> tuple[Any, ...]:
    """Return default transformers that scale pixels to 0..1 and cast them to floatX."""
    chosen = {"which_sources": which_sources}
    return (ScaleAndShift, [1 / 255.0, 0], chosen), (Cast, ["floatX"], chosen)


def rgb_images_from_encoded_bytes(which_sources: Any) -> tuple[Any, ...]:
    """Return default transformers that decode images of which a file holds the bytes."""
    chosen = {"which_sources": which_sources}
    return (ToBytes, [], chosen), (ImagesFromBytes, [], chosen)
