"""Commands that are printed to be copied into a shell mean there what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.shell import shell_path, shell_word

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="needs bash")

characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
undecodable = st.binary(max_size=8).map(lambda data: os.fsdecode(data.replace(b"\0", b"\n")))
words = st.lists(st.text(characters, max_size=12) | undecodable, max_size=20)


@given(words)
def test_a_shell_reads_the_words_that_were_meant(texts: list[str]) -> None:
    said = " ".join(map(shell_word, texts))
    assert said.isprintable()
    read = subprocess.run([BASH, "-c", f"printf '%s\\0' {said}"], capture_output=True, check=True)
    meant = b"".join(os.fsencode(text) + b"\0" for text in texts or [""])
    assert read.stdout == meant


@pytest.mark.parametrize("name", ["x.h5", "-x.h5", "--help", "-", "a b/-x", "-\n"])
def test_no_path_is_taken_for_an_option(name: str) -> None:
    said = f"printf '%s' {shell_path(name)}"
    read = subprocess.run([BASH, "-c", said], capture_output=True, check=True).stdout.decode()
    assert not read.startswith("-")
    assert os.path.normpath(read) == os.path.normpath(name)


@pytest.mark.skipif(sys.platform != "linux", reason="such names are none elsewhere")
def test_what_the_doctor_prints_mends_files_of_odd_names(tmp_path: Path) -> None:
    odd = os.fsdecode(b'-it\'s "a" $HOME `id`\n\x1b[31m\xc3\xa9 \xff=*.h5')
    x = np.arange(3000 * 16, dtype="u1").reshape(3000, 16)
    labeled.write(tmp_path / odd, {"a=b c": x, "-n": x}, chunks=1)
    labelled = [sys.executable, "-m", "labeled"]
    found = subprocess.run(
        [*labelled, "doctor", "--seconds", "0.01", f"./{odd}"], cwd=tmp_path, capture_output=True
    )
    shown = found.stdout.decode().rpartition("fix it with:\n")[2].strip()
    assert "\n" not in shown, found.stderr
    command = f'labeled() {{ "{sys.executable}" -m labeled "$@"; }}; {shown}'
    subprocess.run([BASH, "-c", command], cwd=tmp_path, capture_output=True, check=True)
    (made,) = [name for name in os.listdir(tmp_path) if ".mended" in name]
    mended = labeled.open_dataset(tmp_path / made)
    assert mended.sources == ("-n", "a=b c")
    assert all(np.array_equal(mended[name].values, x) for name in mended.sources)
    assert labeled.doctor(tmp_path / made, seconds=0.01).healthy
