"""N-grams, where release 0.2.0 had them."""

from labeled.compat.fuel.transformers.sequences import NGrams

__all__ = ["NGrams"]
