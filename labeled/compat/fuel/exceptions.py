"""The kinds of error that only Fuel had, each also a :class:`LabeledError`."""

from __future__ import annotations

from labeled.compat.errors import OldValueError
from labeled.errors import LabeledError


class AxisLabelsMismatchError(OldValueError):
    """A source has other axis labels than a transformer expects."""


class ServerError(LabeledError, RuntimeError):
    """A data server ended, or was replaced in the middle of an epoch; the message says why."""


class ServerTimeoutError(LabeledError, TimeoutError):
    """A data server gave no sign of life for as long as a client waits."""


class ConfigurationError(LabeledError):
    """A setting is asked for that has no value."""
