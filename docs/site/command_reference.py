"""Writes the command line reference as Markdown, from the commands themselves."""

from __future__ import annotations

from typing import Any

import typer

from graphforget.cli.app import app

INTRODUCTION = """# Command line reference

This page is generated from the commands of graphforget {version}. What the commands are for, and their exit codes, is
described in [Command line](command-line.md).
"""


def command_reference(version: str) -> str:
    """All commands with their arguments, options and examples."""
    root = typer.main.get_command(app)
    parts = [INTRODUCTION.format(version=version)]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        parts.append(_section(command, f"graphforget {name}", depth=2))
        for inner_name, inner in getattr(command, "commands", {}).items():
            parts.append(_section(inner, f"graphforget {name} {inner_name}", depth=3))
    return "\n".join(parts)


def _section(command: Any, title: str, *, depth: int) -> str:
    context = command.context_class(command, info_name=title)
    usage = " ".join([title, *command.collect_usage_pieces(context)])
    lines = [f"{'#' * depth} {title}", "", _plain(command.help or ""), "", "```text", usage, "```", ""]
    records = [record for record in (parameter.get_help_record(context) for parameter in command.params) if record]
    if records:
        lines += ["| argument or option | meaning |", "|---|---|"]
        lines += [f"| `{names}` | {_cell(text)} |" for names, text in records]
        lines.append("")
    if command.epilog:
        lines += [f"Example: `{command.epilog.removeprefix('Example: ')}`", ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")


def _cell(text: str) -> str:
    """Text for a cell of a table: a vertical bar would end it."""
    return _plain(text).replace("|", "&#124;")


if __name__ == "__main__":
    import graphforget as gf

    print(command_reference(gf.__version__))
