"""Importing this makes ``import pylearn2...`` find the compatible modules: aliases alone."""

from __future__ import annotations

from labeled.compat.pylearn2 import install_aliases

ALIASES = install_aliases()
