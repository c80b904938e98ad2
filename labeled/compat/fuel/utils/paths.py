"""Finding files in the folders that are configured to hold data."""

from __future__ import annotations

import os

from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.exceptions import ConfigurationError, OldOSError


def find_in_data_path(filename: str) -> str:
    """Return the path of a file in the first folder of ``config.data_path`` that has it.

    Raises
    ------
    ConfigurationError
        If ``config.data_path`` is not set.
    OldOSError
        If none has it.
    """
    folders = config.data_path
    if not folders:
        raise ConfigurationError(
            f"data_path is not set, so {filename!r} is not found; assign config.data_path, or set "
            "FUEL_DATA_PATH"
        )
    for folder in folders:
        path = os.path.join(os.path.expanduser(os.path.expandvars(folder)), filename)
        if os.path.isfile(path):
            return path
    raise OldOSError(f"{filename!r} is in none of the folders of data_path, {list(folders)}")
