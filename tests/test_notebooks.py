"""The code of every notebook runs, in an empty folder and without a network."""

from __future__ import annotations

import ast
import json
import re
import socket
from contextlib import nullcontext
from pathlib import Path
from time import process_time

import pytest
from two_workers import forked_workers

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
FILES = re.compile(r"\\\"(\w+\.(?:hdf5|rec|idx))\\\"")
LONGEST_S = 30
"""Of processor time in this process."""
MAX_LINES = 60
"""Printed by one notebook: it tells a story, not a log."""


def cells_of(path, kind):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def run_cell(source, names, where):
    """Run a cell as a notebook does: its last expression is shown, unless it ends with ``;``."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    if value is None or source.rstrip().endswith(";"):
        return None
    html = getattr(value, "_repr_html_", None)
    return html() if html is not None else repr(value)


@pytest.fixture
def no_network(monkeypatch):
    """Refuse every connection but those to this machine."""
    connect = socket.socket.connect

    def local(self, address):
        inet = self.family in (socket.AF_INET, socket.AF_INET6)
        if inet and self.type == socket.SOCK_STREAM:  # a datagram socket sends nothing here
            assert address[0] in ("127.0.0.1", "::1", "localhost"), f"connects to {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch, capsys, no_network):
    pytest.importorskip("sklearn")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABELED_SCALE", raising=False)
    for name in FILES.findall(path.read_text("utf-8")):  # as left behind by an earlier run
        (tmp_path / name).write_bytes(b"old")
    names = {"__name__": "__main__"}
    began = process_time()
    try:
        with forked_workers() if "cluster" in path.stem else nullcontext():
            for number, source in enumerate(cells_of(path, "code")):
                run_cell(source, names, f"{path.name}, code cell {number}")
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        for figure in figures:
            figure.canvas.draw()
    finally:
        pyplot.close("all")
    assert figures, "it ends with something to look at"
    assert process_time() - began < LONGEST_S
    assert len(capsys.readouterr().out.splitlines()) <= MAX_LINES


def test_notebooks_are_numbered_in_the_order_of_reading():
    numbers = [path.name.partition("_")[0] for path in NOTEBOOKS]
    assert numbers == [str(i + 1) for i in range(len(NOTEBOOKS))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_results(path):
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    title = cells_of(path, "markdown")[0]
    assert title.startswith(f"# {path.name.partition('_')[0]}. ")
    assert re.search(rf"^!\[.{{20,}}\]\(pictures/{path.stem}\.png\)$", title, re.M)
    assert (path.parent / "pictures" / f"{path.stem}.png").stat().st_size < 1 << 17
    assert not re.search(r"https?://", json.dumps(notebook))
