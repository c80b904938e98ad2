"""Finding files in the folders that are configured to hold data."""

from __future__ import annotations

import os

from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.exceptions import OldOSError


def find_in_data_path(filename: str) -> str:
    """Return the path of a file in the first folder of ``config.data_path`` that has it.

    Raises
    ------
    OldOSError
        If none has it.
    """
    folders = config.data_path
    for folder in folders:
        path = os.path.join(os.path.expanduser(os.path.expandvars(folder)), filename)
        if os.path.isfile(path):
            return path
    raise OldOSError(f"{filename!r} is in none of the folders of data_path, {list(folders)}")
