"""The kinds of error that Fuel raised, each also a :class:`LabeledError`.

Old code tells built-in kinds apart, so every error here is of exactly one.
"""

from __future__ import annotations

from labeled.compat.pylearn2.errors import (
    OldAttributeError,
    OldKeyError,
    OldNotImplementedError,
    OldTypeError,
    OldValueError,
)
from labeled.errors import LabeledError


class OldOSError(LabeledError, OSError):
    """A file is not open, or not found."""


class AxisLabelsMismatchError(OldValueError):
    """A source has other axis labels than a transformer expects."""


class ServerError(LabeledError, RuntimeError):
    """A data server ended, or was replaced in the middle of an epoch; the message says why."""


class ServerTimeoutError(LabeledError, TimeoutError):
    """A data server gave no sign of life for as long as a client waits."""


class ConfigurationError(LabeledError):
    """A setting is asked for that has no value."""


__all__ = [
    "AxisLabelsMismatchError",
    "ConfigurationError",
    "OldAttributeError",
    "OldKeyError",
    "OldNotImplementedError",
    "OldOSError",
    "OldTypeError",
    "OldValueError",
    "ServerError",
    "ServerTimeoutError",
]
