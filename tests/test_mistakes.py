"""Likely mistakes and their messages: each line of ``docs/mistakes.md`` is run and compared.

``python tests/test_mistakes.py`` puts the messages of today into the page.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import labeled

PAGE = Path(__file__).parent.parent / "docs" / "mistakes.md"
COLUMNS, MAX_LINES = 92, 3


def cases(text: str) -> Iterator[tuple[str, str]]:
    """Yield each mistake of the page with its message."""
    for block in re.findall(r"```pycon\n(.*?)```", text, re.DOTALL):
        for case in block.split(">>> ")[1:]:
            code, _, message = case.partition("\n")
            yield code, message.rstrip("\n") + "\n"


def names(text: str) -> dict[str, object]:
    """Run the first block of the page, which makes its files in the current folder."""
    known: dict[str, object] = {}
    setup = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    exec(compile(setup, PAGE.name, "exec"), known)
    return known


def message(code: str, known: dict[str, object]) -> str:
    """Return the error or warning that a line of code gives, as the page shows it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", labeled.LabeledWarning)
        try:
            exec(compile(code, PAGE.name, "exec"), known)
        except labeled.LabeledError as error:
            found = f"{type(error).__name__}: {error}"
        else:
            (warning,) = [one for one in caught if one.category is labeled.LabeledWarning]
            found = f"LabeledWarning: {warning.message}"
    found = found.replace(f"{os.getcwd()}/", "")
    lines = textwrap.wrap(found, COLUMNS, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    with contextlib.chdir(tmp_path_factory.mktemp("mistakes")):
        yield names(PAGE.read_text("utf-8"))


@pytest.mark.parametrize(("code", "shown"), list(cases(PAGE.read_text("utf-8"))))
def test_a_mistake_gives_the_message_of_the_page(code, shown, known):
    assert message(code, known) == shown, "python tests/test_mistakes.py shows what changed"
    assert shown.count("\n") <= MAX_LINES


def test_the_page_has_fifty_mistakes():
    assert len(list(cases(PAGE.read_text("utf-8")))) >= 50


def write() -> None:
    """Put the messages of today into the page."""
    text = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        known = names(text)
        for code, shown in cases(text):
            old, new = f">>> {code}\n{shown}", f">>> {code}\n{message(code, known)}"
            assert text.count(old) == 1, code
            text = text.replace(old, new)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
