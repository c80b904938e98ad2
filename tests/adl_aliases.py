"""Importing this makes ``import abstract_dataloader...`` find the compatible modules."""

from __future__ import annotations

from labeled.compat.abstract_dataloader import install_aliases

ALIASES = install_aliases()
