"""mypy over the code of notebooks, pages and README: the public types fit what is told to do.

Run by ``make lint``. Each page becomes one module of a package ``examples`` in a temporary
folder, for which pyproject.toml allows what examples need: functions without annotations, and
names used again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def main() -> int:
    """Check every example; return mypy's exit code."""
    with tempfile.TemporaryDirectory(prefix="labeled-examples-") as folder:
        package = Path(folder) / "examples"
        package.mkdir()
        (package / "__init__.py").touch()
        made = [written(page, code, package) for page, code in examples()]
        print(f"{len(made)} pages with code", flush=True)
        command = [sys.executable, "-m", "mypy", *map(str, made)]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def examples() -> Iterator[tuple[Path, str]]:
    """Yield every page that has code, with its code."""
    pages = [p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts]
    for page in sorted([*pages, ROOT / "README.md"]):
        blocks = BLOCK.findall(page.read_text("utf-8"))
        if blocks:
            yield page, "\n".join(blocks)
    for page in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(page.read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield page, "\n".join(f"{cell}\n" for cell in code)


def written(page: Path, code: str, package: Path) -> Path:
    """Write the code of one page as a module named after it."""
    words = page.relative_to(ROOT).with_suffix("").parts
    name = "_".join(words)
    path = package / f"{name}.py"
    path.write_text(code, "utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
