"""Lists the tables and figures of the README and docs whose settings have changed since they were made.

python docs/site/provenance.py                    # warns, and never fails
python docs/site/provenance.py --update           # adds the commands that are new in the documents, and writes the page
python docs/site/provenance.py --made COMMAND     # COMMAND was run again: its settings are stored as they are now

A table or figure has its command beside it. The register docs/provenance.toml holds, for each command, the version that
made its numbers and a hash of the sources of its settings. docs/provenance.md is written from it.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

import graphforget as gf

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tuple(f"src/graphforget/{name}.py" for name in ("models/registry", "models/schedules", "training/recipe"))
REPRODUCE = "graphforget reproduce"
COMMAND = re.compile(r"python ((?:benchmarks|docs|notebooks)/(?:\w+/)*\w+\.py)|(graphforget reproduce)")
NO_NUMBERS = ("docs/site/provenance.py",)  # scripts that make no table and no figure
INTRODUCTION = """# What made each table and figure

Each table and figure of the README and of these pages names its command. This page lists the commands with the version
that made the numbers. `make provenance` lists those whose settings have changed since. It warns only: another setting
need not change a number. The page is written by `python docs/site/provenance.py --update`.
"""

Register = dict[str, dict[str, str]]  # command -> version, hash


def documents() -> list[Path]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "results" / "README.md"]
    return [page for page in pages if page.name != "provenance.md"]


def commands_in_documents() -> dict[str, list[str]]:
    """The commands that make tables and figures, each with the pages that name it."""
    shown: dict[str, list[str]] = {}
    for page in documents():
        for script, reproduce in COMMAND.findall(page.read_text()):
            if script not in NO_NUMBERS:
                pages = shown.setdefault(reproduce or f"python {script}", [])
                pages += [] if (name := str(page.relative_to(ROOT))) in pages else [name]
    return dict(sorted(shown.items()))


def settings_hash(command: str, *, root: Path = ROOT) -> str:
    """A hash of the sources of a command's settings: its script, and the defaults of models and of training."""
    own = root / "src/graphforget/experiments" if command == REPRODUCE else root / command.split()[1]
    files = sorted(own.glob("*.*")) if own.is_dir() else [own]
    digest = hashlib.sha256()
    for path in (*files, *(root / name for name in SETTINGS)):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def read_register() -> Register:
    path = ROOT / "docs" / "provenance.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def warnings() -> list[str]:
    """One line for each command whose settings are not those that made its numbers, or that is not in the register."""
    register = read_register()
    lines = []
    for command, pages in commands_in_documents().items():
        entry, shown = register.get(command), ", ".join(pages)
        if entry is None:
            lines.append(f"{shown}: '{command}' is not in the register, run 'python docs/site/provenance.py --update'")
        elif entry["hash"] != settings_hash(command):
            lines.append(f"{shown}: the settings of '{command}' have changed since version {entry['version']} made it")
    return lines


def provenance_page(register: Register) -> str:
    """The page docs/provenance.md."""
    lines = [INTRODUCTION, "| command | version | shown in |", "|---|---|---|"]
    for command, pages in commands_in_documents().items():
        version = register[command]["version"]
        lines.append(f"| `{command}` | {version} | {', '.join(f'`{page}`' for page in pages)} |")
    return "\n".join(lines) + "\n"


def updated(register: Register, made: str | None = None) -> Register:
    """The register with the commands of the documents; new ones, and `made`, with their settings as they are now."""
    entries = {}
    for command in commands_in_documents():
        now = {"version": gf.__version__, "hash": settings_hash(command)}
        entries[command] = now if command == made else register.get(command, now)
    return entries


def write(register: Register) -> None:
    entries = [
        f'["{command}"]\nversion = "{entry["version"]}"\nhash = "{entry["hash"]}"\n'
        for command, entry in register.items()
    ]
    (ROOT / "docs" / "provenance.toml").write_text("\n".join(entries))
    (ROOT / "docs" / "provenance.md").write_text(provenance_page(register))


def main() -> None:
    if sys.argv[1:2] in (["--update"], ["--made"]):
        write(updated(read_register(), made=" ".join(sys.argv[2:])))
        return
    lines = warnings()
    print("\n".join(f"warning: {line}" for line in lines) or "no settings of a table or figure have changed")


if __name__ == "__main__":
    main()
