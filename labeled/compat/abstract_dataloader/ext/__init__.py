"""The old extensions that need no array library of their own."""

from labeled.compat.abstract_dataloader.ext import augment, graph, sample

__all__ = ["augment", "graph", "sample"]
