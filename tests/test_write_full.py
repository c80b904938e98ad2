"""Writers on a full disk end with an error that names the target, and leave everything as it was.

The system refuses to let a file grow beyond 4 MB, as a full disk would. HDF5 ends the process
where it meets that among values of variable length, so every case has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

import labeled

CASES = {
    "texts": "labeled.write('new.h5', {'x': texts})",
    "rows of variable length": "labeled.write('new.h5', {'x': lists}, ragged='fuel')",
    "texts and numbers": "labeled.write('new.h5', {'a': texts[:400], 'x': noise})",
    "batches": "labeled.write('new.h5', batches, compression='gzip')",
    "append": "labeled.append('old.h5', {'x': texts})",
    "carried texts": "labeled.repack('carried.h5', 'new.h5')",
    "array": "labeled.write('new.h5', {'x': noise})",
    "array, gzip": "labeled.write('new.h5', {'x': noise}, compression='gzip')",
    "array, chunked": "labeled.write('new.h5', {'x': noise}, layout='chunked')",
    "array converted": "labeled.convert({'x': noise}, 'new.h5')",
    "pictures converted": "labeled.convert('pictures', 'new.h5')",
}

SCRIPT = """
import os, resource, sys, numpy as np, labeled
N = 3000
noise = np.random.default_rng(0).integers(0, 256, (N, 3000), np.uint8)
texts = np.array(["abcdefgh" * 300 + str(i) for i in range(N)], object)
lists = [noise[i, : 1500 + i % 1500] for i in range(N)]
batches = ({"t": texts[i : i + 99], "x": noise[i : i + 99]} for i in range(0, N, 99))
labeled.write, labeled.append, labeled.repack, labeled.convert  # imported once for all cases
for case in sys.argv[1:]:
    child = os.fork()
    if child:
        if status := os.waitpid(child, 0)[1]:
            print("ended by", status, flush=True)
        continue
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
    try:
        eval(case)
    except labeled.LabeledError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes, and fork")
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    texts = np.array([f"{i:2400}" for i in range(2000)], object)
    labeled.write(tmp_path / "old.h5", {"x": texts[:1000]}, chunks=64)
    with h5py.File(tmp_path / "carried.h5", "w") as file:
        file["x"] = np.arange(10)
        file["x"].dims[0].label = "batch"
        file.create_dataset("notes/all", data=texts, dtype=h5py.string_dtype())
    noise = np.random.default_rng(0).integers(0, 256, (1000, 2000, 3), np.uint8)
    (tmp_path / "pictures").mkdir()
    Image.fromarray(noise).save(tmp_path / "pictures" / "a.bmp")
    before = os.listdir(tmp_path)
    words = [sys.executable, "-c", SCRIPT, *CASES.values()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = dict(zip(CASES, done.stdout.splitlines(), strict=True))
    for case, words_of_it in said.items():
        target = "old.h5" if "append" in case else "new.h5"
        assert words_of_it.startswith("WriteError"), case
        assert f"{target}'" in words_of_it, case
        assert "longer than this system" in words_of_it, case
        assert "damaged" not in words_of_it, case
    assert set(os.listdir(tmp_path)) == set(before)
    assert labeled.open_dataset(tmp_path / "old.h5")["x"].values.tolist() == texts[:1000].tolist()
    assert labeled.verify(tmp_path / "old.h5").sound
