"""Words that only this project would understand stand nowhere: not in code, texts or test names.

Each word has what to write instead. ``python tests/test_plain_words.py`` lists what is found.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WORDS = {
    r"told|foret(old|ells?)|tells? of": "report, describe, name; predicted",
    r"heed(s|ed)?": "accepts",
    r"dear|dearer": "expensive",
    r"thrifty": "low_memory",
    r"straight": "directly",
    r"dealt|dealer|deals? out": "shared out, handed out, in batch order",
    r"reckon(ed|s|ing)?": "computed",
    r"mend(s|ed|ing)?": "fix",
    r"shall": "will, must, can",
    r"there (is|are) none of": "does not exist",
    r"(?<![Tt]here )is no(?! longer| more| other| less| such)": "is not a",
    r"part=\(": "shard=",
    r"as_=": "output=",
}
"""A pattern, in which a word ends where letters do, so that names of code count as well."""

NAMES = {
    r"(MOST|LEAST|FEWEST)_\w+": "MAX_, MIN_",
    r"(Ragged)?Lane|lanes?": "SourceReader",
    r"DealtExamples|WindowSource|ChunkKeeper|SlotPool|Nursery|Patience": "Prefetcher, BufferPool",
    r"RowForm|module_if_there|room_bytes|two_sides|too_close": "RowSpec, available_bytes, ...",
    r"blind_workers|sparing_of|told_by_program|known_keywords|shell_word": "say what it does",
}
"""The same for names of code, in this spelling."""

ALLOWED = {"zmq.DEALER": "the name of a kind of socket in ZeroMQ"}
"""What may stand although a word is in it, and why."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield what people read: code of the package, pages, notebooks, names of tests."""
    pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    docs = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in p.parts]
    for path in [*sorted((ROOT / "labeled").rglob("*.py")), *docs, *(ROOT / p for p in pages)]:
        if path.name != "benchmarks.md":
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield f"notebooks/{path.name}", "\n".join("".join(cell["source"]) for cell in cells)
    for path in sorted((ROOT / "tests").glob("*.py")):
        names = re.findall(r"^ *(?:def|class) (\w+)", path.read_text("utf-8"), re.MULTILINE)
        yield f"tests/{path.name}", "\n".join([path.stem, *names])


def found(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each file and line with a word."""
    flags = 0 if pattern in NAMES else re.IGNORECASE
    word = re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![a-z])", flags)
    for path, text in texts():
        for line in text.splitlines():
            if word.search(line) and not any(one in line for one in ALLOWED):
                yield path, line.strip()


@pytest.mark.parametrize("pattern", [*WORDS, *NAMES])
def test_everybody_understands_the_words(pattern: str) -> None:
    assert list(found(pattern)) == [], f"write: {(WORDS | NAMES)[pattern]}"


if __name__ == "__main__":
    lines = [f"{place}: {line}" for each in [*WORDS, *NAMES] for place, line in found(each)]
    print(*lines, sep="\n", end="\n" * bool(lines))
    sys.exit(bool(lines))
