"""What this user may not read or write is said with what to check, and leaves nothing behind.

Nothing is forbidden to root, so where tests run as root the work is done by a process without
its privileges, to which its own files' permissions count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import WriteError

if sys.platform == "win32":
    pytest.skip("permissions are others there", allow_module_level=True)

PLAINLY = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""What runs a command without the privileges of root."""

SCRIPT = """
    import json, os, labeled, numpy as np

    made = dict(x=np.arange(3))

    def outcome(call, *args, **options):
        try:
            return str(call(*args, **options))
        except labeled.LabeledError as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:
            return f"bare {type(error).__name__}: {error}"

    def look(path):
        return int(labeled.open_dataset(path)["x"].values.sum())

    calls = {
        "shut": {
            "write": outcome(labeled.write, "shut/new.h5", made),
            "overwrite": outcome(labeled.write, "shut/x.h5", made, overwrite=True),
            "append": outcome(labeled.append, "shut/x.h5", made),
            "convert": outcome(labeled.convert, "a.npy", "shut/new.h5"),
            "export": outcome(labeled.convert, "x.h5", "shut/new.rec"),
            "repack": outcome(labeled.repack, "x.h5", "shut/new.h5"),
            "itself": outcome(labeled.repack, "shut/x.h5", "shut/x.h5", overwrite=True),
        },
        "read": {
            "open": outcome(look, "shut/x.h5"),
            "verify": outcome(lambda: labeled.verify("shut/x.h5").sound),
            "doctor": outcome(lambda: labeled.doctor("shut/x.h5").findings),
            "open kept": outcome(look, "kept.h5"),
            "verify kept": outcome(lambda: labeled.verify("kept.h5").sound),
            "open unlisted": outcome(look, "unlisted/x.h5"),
        },
        "secret": {
            "open": outcome(labeled.open_dataset, "secret.h5"),
            "open texts": outcome(labeled.open_dataset, "secret.csv"),
            "open through": outcome(labeled.open_dataset, "closed/x.h5"),
            "verify": outcome(labeled.verify, "secret.h5"),
            "doctor": outcome(labeled.doctor, "secret.h5"),
            "append": outcome(labeled.append, "secret.h5", made),
            "convert": outcome(labeled.convert, "secret.h5", "new.h5"),
            "convert npy": outcome(labeled.convert, "secret.npy", "new.h5"),
            "convert npz": outcome(labeled.convert, "secret.npz", "new.h5"),
            "convert texts": outcome(labeled.convert, "secret.csv", "new.h5"),
            "repack": outcome(labeled.repack, "secret.h5", "new.h5"),
            "folder": outcome(labeled.open_dataset, "unlisted"),
            "convert folder": outcome(labeled.convert, "unlisted", "new.h5"),
        },
        "replaced": outcome(labeled.write, "replaced.h5", made, overwrite=True),
    }
    print(json.dumps(calls))
"""


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], set[str]]:
    """Return a folder, what was told of its files, and the names that were there before."""
    plainly = PLAINLY if os.geteuid() == 0 else []
    if plainly and shutil.which(plainly[0]) is None:
        pytest.skip("root may do anything, and there is no setpriv to be somebody else")
    folder = tmp_path_factory.mktemp("permissions")
    modes = {"shut": 0o555, "closed": 0o666, "unlisted": 0o333}
    for name in modes:
        (folder / name).mkdir()
    rows = {"x": np.arange(5)}
    for name in ("x", "kept", "secret", "replaced", "shut/x", "closed/x"):
        labeled.write(folder / f"{name}.h5", rows, chunks=2)
    labeled.write(folder / "unlisted" / "x.h5", rows)
    np.save(folder / "a.npy", np.arange(3))
    np.save(folder / "secret.npy", np.arange(3))
    np.savez(folder / "secret.npz", x=np.arange(3))
    (folder / "secret.csv").write_text("a,b\n1,2\n3,4\n")
    before = names(folder)
    for path in folder.glob("secret.*"):
        path.chmod(0)
    for name in ("kept.h5", "replaced.h5"):
        (folder / name).chmod(0o444)
    for name, mode in modes.items():
        (folder / name).chmod(mode)
    try:
        done = subprocess.run(
            [*plainly, sys.executable, "-c", textwrap.dedent(SCRIPT)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for name in modes:
            (folder / name).chmod(0o755)
    if plainly and not done.stdout and "setpriv" in done.stderr:
        pytest.skip(f"setpriv may not be used here: {done.stderr}")
    assert done.stdout, done.stderr
    return folder, json.loads(done.stdout), before


def test_nothing_is_left_behind(tried: Any) -> None:
    folder, _, before = tried
    assert names(folder) == before


def test_a_folder_that_may_not_be_written_is_named(tried: Any) -> None:
    folder, told, _ = tried
    for call, words in told["shut"].items():
        assert words.startswith("WriteError: cannot write"), (call, words)
        assert f"this user may not write in {str(folder / 'shut')!r}; check its perm" in words, call


def test_reading_needs_no_more_than_to_read(tried: Any) -> None:
    _, told, _ = tried
    assert told["read"] == {
        "open": "10",
        "verify": "True",
        "doctor": "()",
        "open kept": "10",
        "verify kept": "True",
        "open unlisted": "10",
    }


def test_what_may_not_be_read_is_named(tried: Any) -> None:
    folder, told, _ = tried
    for call, words in told["secret"].items():
        assert words.startswith("FileFormatError: "), (call, words)
        assert str(folder) in words, call
        assert "this user" in words, call
        assert "check its permissions" in words, call


def test_a_file_that_may_not_be_written_is_replaced_by_another_such(tried: Any) -> None:
    folder, told, _ = tried
    assert told["replaced"] == str(folder / "replaced.h5")
    assert (folder / "replaced.h5").stat().st_mode & 0o777 == 0o444
    with h5py.File(folder / "replaced.h5") as file:
        assert file["x"][:].tolist() == [0, 1, 2]


def test_files_of_others_in_a_sticky_folder_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(3)})
    tmp_path.chmod(0o1777)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 54321)

    with pytest.raises(WriteError, match=r"x\.h5': the file is another user's.*only owners"):
        labeled.write(path, {"x": np.arange(4)}, overwrite=True)
    labeled.write(tmp_path / "y.h5", {"x": np.arange(3)})
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    labeled.write(path, {"x": np.arange(4)}, overwrite=True)
    assert len(labeled.open_dataset(path)) == 4
