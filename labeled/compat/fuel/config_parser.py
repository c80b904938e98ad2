"""Settings: what was assigned, else the environment, else a YAML file, else a default.

The file is ``~/.fuelrc``, or what the environment variable ``FUEL_CONFIG`` names. It is
read once, when this module is imported. The kinds of error that only Fuel had stand here, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]

from labeled.compat.errors import check
from labeled.errors import LabeledError


class AxisLabelsMismatchError(LabeledError, ValueError):
    """A source has other axis labels than a transformer expects."""


class ServerTimeoutError(LabeledError, TimeoutError):
    """A data server gave no sign of life for as long as a client waits."""


class ConfigurationError(LabeledError):
    """A setting is asked for that has no value."""


NOT_SET = object()
Convert = Callable[[Any], Any]


class Configuration:
    """Settings as attributes; each is declared by :meth:`add_config`.

    Examples
    --------
    >>> settings = Configuration()
    >>> settings.add_config("depth", int, default="3")
    >>> settings.depth
    3
    >>> settings.depth = 4
    >>> settings.depth
    4
    """

    def __init__(self) -> None:
        self.__dict__["config"] = {}

    def add_config(
        self, key: str, type_: Convert, default: Any = NOT_SET, env_var: str | None = None
    ) -> None:
        """Declare a setting.

        Parameters
        ----------
        key : str
        type_ : callable
            Applied to the value, wherever it comes from.
        default : optional
            Without one, asking for a setting that has no value is an error.
        env_var : str, optional
            The environment variable that may hold it.
        """
        self.config[key] = {"type": type_, "default": default, "env_var": env_var}

    def load_yaml(self) -> None:
        """Read the file of settings, where there is one.

        Raises
        ------
        ValueError
            If it holds something that is not a setting.
        """
        path = os.path.expanduser(os.environ.get("FUEL_CONFIG", "~/.fuelrc"))
        if not os.path.isfile(path):
            return
        with open(path) as file:
            found = yaml.safe_load(file) or {}
        for key, value in found.items():
            check(key in self.config, f"{path!r} sets {key!r}; there are {sorted(self.config)}")
            self.config[key]["yaml"] = value

    def __getattr__(self, key: str) -> Any:
        entries = self.__dict__.get("config", {})
        check(key in entries, f"no setting {key!r}; there are {sorted(entries)}", AttributeError)
        entry = entries[key]
        given = {"environment": os.environ.get(entry["env_var"] or "", NOT_SET), **entry}
        for where in ("value", "environment", "yaml", "default"):
            if given.get(where, NOT_SET) is not NOT_SET:
                return entry["type"](given[where])
        variable = entry["env_var"]
        raise ConfigurationError(f"{key!r} is not set; assign config.{key}, or set {variable}")

    def __setattr__(self, key: str, value: Any) -> None:
        if key in self.config:
            self.config[key]["value"] = value
        else:
            self.__dict__[key] = value


def multiple_paths_parser(value: Any) -> Any:
    """Return folders given as one text, as PATH holds them, as a list; a list stays as it is."""
    return value.split(os.pathsep) if isinstance(value, str) else value


def extra_downloader_converter(value: Any) -> Any:
    """Return names given as one text, apart by spaces, as a list; a list stays as it is."""
    return value.split() if isinstance(value, str) else value


config = Configuration()
config.add_config("data_path", multiple_paths_parser, default=(), env_var="FUEL_DATA_PATH")
config.add_config("floatX", str, default="float64", env_var="FUEL_FLOATX")
config.add_config("default_seed", int, default=1)
config.add_config("local_data_path", str, default="", env_var="FUEL_LOCAL_DATA_PATH")
# Nothing asks for these two; files of settings that have them are still good.
for _key in ("extra_downloaders", "extra_converters"):
    _variable = f"FUEL_{_key.upper()}"
    config.add_config(_key, extra_downloader_converter, default=(), env_var=_variable)
config.load_yaml()
