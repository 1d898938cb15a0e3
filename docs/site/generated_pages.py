"""The pages of the documentation site that are made when it is built. MkDocs calls `on_files` and `on_page_markdown`.

The front page is the README, the change log and the contributing guide are the files of the repository, and the
references are written from the code. So none of them can differ from its source.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import graphforget as gf

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "src" / "graphforget" / "__init__.pyi"
API_INTRODUCTION = """# API reference

This page is generated from the docstrings. [Python interface](api.md) lists the same names by their purpose.
"""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the generated pages to those in `docs/`."""
    from mkdocs.structure.files import File

    for name, content in generated_pages().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links from `docs/` to files of the repository lead to their pages."""
    return markdown.replace("](../CONTRIBUTING.md", "](contributing.md").replace("](../CHANGELOG.md", "](changelog.md")


def generated_pages() -> dict[str, str]:
    """The content of each generated page, by its path in the site."""
    pages = {
        "index.md": _at_the_root_of_the_site((ROOT / "README.md").read_text()),
        "changelog.md": _at_the_root_of_the_site((ROOT / "CHANGELOG.md").read_text()),
        "contributing.md": _at_the_root_of_the_site((ROOT / "CONTRIBUTING.md").read_text()),
        "security.md": _at_the_root_of_the_site((ROOT / "SECURITY.md").read_text()),
        "api-reference.md": api_reference(STUB.read_text()),
        "command-line-reference.md": _neighbour("command_reference").command_reference(gf.__version__),
    }
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        pages |= _neighbour("notebook_pages").notebook_page(path)
    return pages


def api_reference(stub: str) -> str:
    """One entry of mkdocstrings for each public name of the stub."""
    parts = [API_INTRODUCTION]
    for module, name in sorted(re.findall(r"from \.([\w.]+) import (\w+) as \2", stub), key=lambda found: found[1]):
        parts.append(f"## gf.{name}\n\n::: graphforget.{module}.{name}\n")
    return "\n".join(parts)


def _at_the_root_of_the_site(text: str) -> str:
    """The same page with links as `docs/` is the root of the site."""
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        text = text.replace(f"]({name}.md", f"]({name.lower()}.md")
    return re.sub(r"\]\(docs/", "](", text).replace("](notebooks)", "](notebooks/1-forget-a-patient.md)")


def _neighbour(name: str) -> Any:
    """A module of this folder. MkDocs reads this file by its path, so the folder is in no package."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
