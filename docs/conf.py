"""How the documentation is built: ``make docs`` writes it to ``docs/_build/html``."""

from __future__ import annotations

from pathlib import Path

from labeled import __version__

HERE = Path(__file__).parent

project = "labeled"
author = "The labeled developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
# Names such as `Dataset` and `dtype` stand in several modules: a link to either is fine.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"labeled {version}"
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False
autosummary_generate = False


def newest_results() -> Path:
    """Return the table of the newest benchmark run that is committed."""
    return sorted((HERE.parent / "benchmarks" / "results").glob("*-x86_64*.md"))[-1]


def write_benchmarks() -> None:
    """Make the page of benchmarks of the newest results, so that the two cannot differ."""
    lines = newest_results().read_text("utf-8").splitlines()
    about = (
        "This page is the table that `make bench` wrote, as it was committed. Rates move with the "
        "machine; compare the ratios, which were measured in turns within one run. Rows that "
        "missed what they were to reach say so."
    )
    page = ["# Benchmarks", "", about, "", *(f"#{one}" if one[:1] == "#" else one for one in lines)]
    (HERE / "benchmarks.md").write_text("\n".join(page) + "\n", "utf-8")


write_benchmarks()
