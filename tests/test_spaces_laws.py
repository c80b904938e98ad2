"""The laws that native spaces and Pylearn2's share."""

from __future__ import annotations

import pylearn2_aliases

import labeled.spaces
from labeled.testing import SpaceTests


class TestNative(SpaceTests):
    spaces = labeled.spaces


class TestPylearn2(SpaceTests):
    spaces = pylearn2_aliases.ALIASES["pylearn2.space"]
