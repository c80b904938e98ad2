"""The code of the documentation runs as it stands, and what pages name exists."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest
from two_workers import forked_workers

import labeled
import labeled.testing
from labeled.cli.main import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
WITH_CODE = [page for page in PAGES if "```python\n" in page.read_text("utf-8")]


def named(page: Path) -> str:
    return str(page.relative_to(DOCS).with_suffix(""))


def blocks_of(page: Path, library: str | None = None) -> list[str]:
    """Return the code of a page that needs no other library, and what needs this one."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    needs = [re.match(r"# needs (\w+)\n", block) for block in blocks]
    return [b for b, one in zip(blocks, needs, strict=True) if one is None or one[1] == library]


@pytest.mark.parametrize("page", [p for p in WITH_CODE if p.name != "index.md"], ids=named)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    workers = forked_workers() if page.stem == "cluster" else nullcontext()
    with workers, warnings.catch_warnings():  # pages show what is warned of; else stays an error
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        for number, block in enumerate(blocks_of(page)):
            exec(compile(block, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("library", ["sklearn", "torch", "jax", "keras", "tensorflow"])
def test_the_recipes_for_another_library_run(library: str, tmp_path: Path) -> None:
    """In a process of their own, as a script: threads of these libraries do not bear a fork."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    page = DOCS / "how_to" / "training_loops.md"
    blocks = blocks_of(page, library)
    assert len(blocks) > len(blocks_of(page))
    (tmp_path / "recipe.py").write_text("\n\n".join(blocks), "utf-8")
    done = subprocess.run(
        [sys.executable, "recipe.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_commands_that_pages_name_exist() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    commands = set(re.findall(r"\blabeled ([a-z]+) (?:FILE|ORIGIN|FOLDER|--|[a-z]+\.hdf5)", text))
    assert {"info", "head", "verify"} <= commands <= set(main.commands)


def test_guarantees_name_tests_that_exist() -> None:
    text = (DOCS / "guarantees.md").read_text("utf-8")
    found = re.findall(r"`(test_\w+)::(test_\w+)`", text)
    assert len(found) > 20
    for module, test in found:
        source = (ROOT / "tests" / f"{module}.py").read_text("utf-8")
        assert re.search(rf"^ *def {test}\b", source, re.MULTILINE), f"{module}::{test}"
    for laws, test in re.findall(r"`(\w+Tests)\.(test_\w+)`", text):
        assert callable(getattr(getattr(labeled.testing, laws), test))


def test_the_reference_names_modules_that_exist() -> None:
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    modules = re.findall(r"automodule:: ([\w.]+)", text)
    objects = re.findall(r"auto(?:class|function):: ([\w.]+)", text)
    assert modules
    assert objects
    for module in modules:
        assert importlib.import_module(module).__doc__
    for path in objects:
        home, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(home), name).__doc__
