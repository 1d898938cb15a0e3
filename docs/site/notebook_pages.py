"""A notebook as a page of the site: its text, its code and the outputs that are stored in it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> dict[str, str | bytes]:
    """The page of a notebook and its pictures, by their paths in the site."""
    notebook = json.loads(path.read_text())
    pictures: dict[str, str | bytes] = {}
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            parts.append(_output(output, pictures, path.stem))
    parts.insert(1, f"*This page is the notebook `notebooks/{path.name}`.*")
    return {f"notebooks/{path.stem}.md": "\n\n".join(parts) + "\n"} | pictures


def _output(output: dict[str, Any], pictures: dict[str, str | bytes], stem: str) -> str:
    if output["output_type"] == "stream":
        return "```text\n" + "".join(output["text"]).rstrip() + "\n```"
    name = f"{stem}-{len(pictures) + 1}.png"
    pictures[f"notebooks/{name}"] = base64.b64decode("".join(output["data"]["image/png"]))
    return f"![A picture of this notebook]({name})"
