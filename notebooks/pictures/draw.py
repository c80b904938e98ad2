"""Draw the picture at the top of each notebook: the last one that its code makes.

Run it from the root of the project, with the extras `demo`, `images` and `plot`; it takes the
notebooks to draw, or draws all: python notebooks/pictures/draw.py 4
"""

import json
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    mpl.use("agg")
    for notebook in sorted(HERE.parent.glob("*.ipynb")):
        if sys.argv[1:] and notebook.name[0] not in sys.argv[1:]:
            continue
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            exec("\n".join(code), {"__name__": "__main__"})
        last = plt.figure(plt.get_fignums()[-1])
        last.savefig(HERE / f"{notebook.stem}.png", dpi=64, bbox_inches="tight")
        plt.close("all")
