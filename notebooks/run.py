"""Runs the notebooks from top to bottom and stores their outputs: printed text and pictures.

python notebooks/run.py                            # all of them
python notebooks/run.py 1-forget-a-patient.ipynb   # some of them

No Jupyter is needed. A cell is plain Python, and a picture is stored where a cell leaves a figure open.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent


def run_notebook(path: Path) -> dict[str, Any]:
    """The notebook with fresh outputs. It runs in the current folder; an error of a cell is raised."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        cell["execution_count"], cell["outputs"] = count, _run_cell("".join(cell["source"]), names, path.name, count)
    return notebook


def _run_cell(source: str, names: dict[str, Any], notebook: str, count: int) -> list[dict[str, Any]]:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, f"{notebook}, cell {count}", "exec"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=72, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return outputs


def main() -> None:
    for path in [FOLDER / name for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook = run_notebook(path)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"{path.name}: {os.path.getsize(path) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
