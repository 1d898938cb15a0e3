"""Lists the tables and figures of the README and docs whose settings are not those that made them.

python docs/site/provenance.py                    # warns, and never fails
python docs/site/provenance.py --update           # adds the commands that are new in the documents, and writes the page
python docs/site/provenance.py --run COMMAND      # runs the command, and records its settings if it succeeds
python docs/site/provenance.py --made COMMAND     # records the settings of a command that has just run elsewhere

A table or figure has its command beside it. The register docs/provenance.toml holds, for each command, the version and
the commit that made its numbers, the day, and its settings (docs/site/script_settings.py). They are unknown for what
was made before settings were recorded. Cells of `graphforget reproduce` hold their own settings, in docs/results.
docs/provenance.md is written from both.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from script_settings import Settings, defaults_of, differences, settings_of

import graphforget as gf
from graphforget.experiments.cells import Record
from graphforget.experiments.machine import commit
from graphforget.experiments.registry import NAMES, experiment

ROOT = Path(__file__).resolve().parents[2]
REPRODUCE = "graphforget reproduce"
COMPARE = "graphforget compare"
SCRIPT = re.compile(r"(python |pytest )[^`]*?((?:benchmarks|docs|notebooks|tests)/(?:\w+/)*\w+\.py)([^`]*)")
NO_NUMBERS = ("docs/site/provenance.py", "notebooks/run.py")  # scripts that make no table and no figure
HASH = 10  # digits of a commit that are shown
INTRODUCTION = """# What made each table and figure

Each table and figure of the README and of these pages names its command. This page lists the commands with the version
that made the numbers, the day, and the commit (with a `+` if the package had other changes). `make provenance` compares
the settings of a command, which are recorded beside it in `provenance.toml`, with those of today: its constants and
arguments, and the defaults of the models and functions that it names. It warns only. Where settings are "not recorded",
the numbers are older than this record, and nobody can tell whether they were made with the settings of today.

The page is written by `python docs/site/provenance.py --update`.
"""

Register = dict[str, dict[str, Any]]  # command -> version, and if it is known: commit, made, settings


def documents() -> list[Path]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "results" / "README.md"]
    return [page for page in pages if page.name != "provenance.md"]


def commands_of(text: str) -> list[tuple[str, str]]:
    """The commands in code of a page that make numbers: the command without its arguments, and the arguments."""
    commands = []
    for code in _codes(text):
        for program, script, rest in SCRIPT.findall(code):
            if script not in NO_NUMBERS:
                commands.append((f"{program}{script}", " ".join(rest.split("#")[0].split(" > ")[0].split())))
        named = re.findall(rf"{REPRODUCE} ([\w-]+)", code)
        commands += [(f"{REPRODUCE} {name}", "") for name in named if name in NAMES]
        if code.startswith(f"{COMPARE} --") and f"`{code}`" in text:  # with its table; in a block it shows how to call
            commands.append((COMPARE, code.removeprefix(COMPARE).strip()))
    return commands


def _codes(text: str) -> list[str]:
    """Inline code, and the lines of blocks, each in one line."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [*lines, *(" ".join(span.split()) for span in spans)]


def commands_in_documents() -> dict[str, dict[str, list[str]]]:
    """The commands that make tables and figures; for each the pages that name it, and its arguments there."""
    shown: dict[str, dict[str, list[str]]] = {}
    for page in documents():
        for command, arguments in commands_of(page.read_text()):
            entry = shown.setdefault(command, {"pages": [], "arguments": []})
            for kind, value in (("pages", str(page.relative_to(ROOT))), ("arguments", arguments)):
                entry[kind] += [] if value in entry[kind] else [value]
    return dict(sorted(shown.items()))


def settings_now(command: str, arguments: list[str], *, root: Path = ROOT) -> Settings:
    """The settings of a script today. Of a file of tests, those of the tests that `-k` chooses."""
    if command == COMPARE:
        return defaults_of(gf.compare, gf.train, arguments=arguments)
    program, script = command.split()
    if program == "python":
        return settings_of(root / script, arguments=arguments)
    chosen = re.search(r"-k (\w+)", " ".join(arguments))
    return settings_of(root / script, functions=chosen[1] if chosen else "")


def read_register() -> Register:
    path = ROOT / "docs" / "provenance.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def status(command: str, entry: dict[str, Any] | None, arguments: list[str]) -> tuple[str, str]:
    """Whether its settings are the "same" as today's, "changed" or "unknown"; and what has changed."""
    if command.startswith(REPRODUCE):
        return _status_of_results(command.split()[-1])
    if entry is None:
        return "unknown", "not in the register, run 'python docs/site/provenance.py --update'"
    if "settings" not in entry:
        return "unknown", ""
    phrases = differences(entry["settings"], settings_now(command, arguments))
    return ("changed", "; ".join(phrases)) if phrases else ("same", "")


def _status_of_results(name: str) -> tuple[str, str]:
    path = ROOT / "docs" / "results" / f"{name}.jsonl"
    if not path.exists():
        return "unknown", "no cell is recorded"
    left_out = Record(path, recipe=experiment(name).recipe).left_out
    return ("changed", left_out) if "other settings" in left_out else ("same", "")


def report() -> list[str]:
    """The lines that `make provenance` prints."""
    register, groups = read_register(), dict[str, list[str]](same=[], changed=[], unknown=[])
    for command, shown in commands_in_documents().items():
        state, why = status(command, register.get(command), shown["arguments"])
        groups[state].append(f"  {command} ({', '.join(shown['pages'])}){': ' if why else ''}{why}")
    counts = {state: len(lines) for state, lines in groups.items()}
    lines = [
        f"{sum(counts.values())} commands make tables and figures: {counts['same']} with the settings of today, "
        f"{counts['changed']} with other settings, {counts['unknown']} with settings that were not recorded"
    ]
    lines += ["warning, the settings have changed since:", *groups["changed"]] if groups["changed"] else []
    lines += ["unknown, made before settings were recorded:", *groups["unknown"]] if groups["unknown"] else []
    return lines


def provenance_page(register: Register) -> str:
    """The page docs/provenance.md. No change of the code makes it old: it says nothing about today's settings."""
    lines = [INTRODUCTION, "| command | version | made | settings | shown in |", "|---|---|---|---|---|"]
    for command, shown in commands_in_documents().items():
        pages = ", ".join(f"`{page}`" for page in shown["pages"])
        version, made, settings = _of_results(command) or _of_script(register[command])
        lines.append(f"| `{command}` | {version} | {made} | {settings} | {pages} |")
    return "\n".join(lines) + "\n"


def _of_script(entry: dict[str, Any]) -> tuple[str, str, str]:
    if "settings" not in entry:
        return entry["version"], "", "not recorded"
    return entry["version"], f"{entry['made']}, commit {entry['commit'] or 'not known'}", "recorded"


def _of_results(command: str) -> tuple[str, str, str] | None:
    """From the file that `graphforget reproduce` writes; None for other commands."""
    if not command.startswith(REPRODUCE):
        return None
    document = json.loads((ROOT / "docs" / "results" / f"{command.split()[-1]}.json").read_text())
    versions = dict.fromkeys(re.findall(r"graphforget ([\w.]+)", " ".join(document["machines"])))
    made = ", ".join(filter(None, (document["made"], document.get("commits", ""))))
    return ", ".join(versions), made, "in each cell"


def updated(register: Register, made: str | None = None) -> Register:
    """The register with the commands of the documents; the settings of `made` as they are now."""
    entries: Register = {}
    for command, shown in commands_in_documents().items():
        if command == made:
            entries[command] = recorded_now(command, shown["arguments"])
        elif not command.startswith(REPRODUCE):
            entries[command] = register.get(command, {"version": gf.__version__})
    return entries


def recorded_now(command: str, arguments: list[str]) -> dict[str, Any]:
    code = commit()
    short = code and code[:HASH] + "+" * code.endswith("+")
    made = datetime.datetime.now(datetime.UTC).date().isoformat()
    settings = settings_now(command, arguments)
    return {"version": gf.__version__, "commit": short or "", "made": made, "settings": settings}


def write(register: Register) -> None:
    lines = ["# Written by docs/site/provenance.py. Settings that are not here were not recorded."]
    for command, entry in register.items():
        lines += ["", f"[{_quoted(command)}]"]
        lines += [f"{name} = {_quoted(entry[name])}" for name in ("version", "commit", "made") if name in entry]
        if "settings" in entry:
            lines += ["", f"[{_quoted(command)}.settings]"]
            lines += [f"{_quoted(name)} = {_quoted(value)}" for name, value in entry["settings"].items()]
    (ROOT / "docs" / "provenance.toml").write_text("\n".join(lines) + "\n")
    (ROOT / "docs" / "provenance.md").write_text(provenance_page(register))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _known(line: str) -> str:
    """The command of a line without variables and arguments. It has to be in the documents."""
    commands = [command for command, _ in commands_of(f"`{line}`")]
    if len(commands) != 1 or commands[0] not in commands_in_documents() or commands[0].startswith(REPRODUCE):
        sys.exit(f"{line!r} is no script that the documents name")
    return commands[0]


def main() -> None:
    option, line = "".join(sys.argv[1:2]), " ".join(sys.argv[2:])
    if option == "--run":
        command, words = _known(line), shlex.split(line)
        variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
        if subprocess.run([*program, *words[1:]], cwd=ROOT, env=os.environ | variables).returncode:
            sys.exit(f"{line!r} failed, nothing is recorded")
        write(updated(read_register(), made=command))
    elif option == "--made":
        write(updated(read_register(), made=_known(line)))
    elif option == "--update":
        write(updated(read_register()))
    else:
        print("\n".join(report()))


if __name__ == "__main__":
    main()
