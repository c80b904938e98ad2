"""Importing this makes ``import fuel...`` find the compatible modules: aliases alone."""

from __future__ import annotations

from labeled.compat.fuel import install_aliases

ALIASES = install_aliases()
