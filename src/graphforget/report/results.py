"""Results of experiments as Markdown and as one HTML page that loads nothing and runs no script."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

WIDTH = 120  # of a line of text; lines of tables are longer
# A space before a word that would start a list, a heading or a quotation at the beginning of a line.
_NO_BREAK = re.compile(r" (?=(?:[-+*>]|#+|=+|-+|\d+[.)])(?: |$))")


@dataclass(frozen=True)
class Section:
    """One experiment, ready to be shown. Empty fields are left out."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    bars: tuple[tuple[str, bool | None], ...]  # each goal in words, and whether it is reached
    command: str
    machine: str
    made: str  # the day or days
    commits: str  # of the code that computed the cells, in words
    missing: str  # which cells are missing, in words
    picture: str | None  # the name of a PNG beside the Markdown
    svg: Markup | None  # the same picture for the HTML page
    caption: str


def markdown(section: Section, *, level: int = 1) -> str:
    """The section as Markdown, its heading of the given level."""
    origin = (f"`{section.command}`", section.machine, section.made, section.commits)
    parts = [f"{'#' * level} {section.title}", _wrapped(", ".join(part for part in origin if part) + ".")]
    if section.missing:
        parts.append(_wrapped(f"**{_escaped(section.missing)}**"))
    if section.picture is not None:
        parts.append(_wrapped(f"![{section.caption or section.title}]({section.picture})"))
    parts.append(_table(section.columns, section.rows))
    parts += _listed([text for text, _ in section.bars])
    parts += _listed(section.notes)
    return "\n\n".join(parts) + "\n"


def readme(sections: Sequence[Section]) -> str:
    """All sections on one page."""
    introduction = (
        "Made by `graphforget reproduce`; every table and figure by the command below its title. What the notes say of "
        "the paper's released code was found by reading and running that code, and no command here shows it."
    )
    return "\n".join(
        ["# Results\n", _wrapped(introduction) + "\n", *(markdown(section, level=2) for section in sections)]
    )


def page(sections: Sequence[Section]) -> str:
    """All sections as HTML. All text is escaped; only figures are not."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files(__package__).joinpath("results.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(sections=sections)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_line(columns), _line(["---"] * len(columns)), *map(_line, rows)]
    return "\n".join(lines)


def _line(entries: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(entry) for entry in entries) + " |"


def _escaped(text: str) -> str:
    """The text with a backslash before what Markdown reads as the end of a column, emphasis, strikethrough or HTML."""
    return "".join(f"\\{sign}" if sign in "|*~<" else sign for sign in text)


def _listed(sentences: Sequence[str]) -> list[str]:
    return ["\n".join(_wrapped(f"- {_escaped(text)}", indent="  ") for text in sentences)] if sentences else []


def _wrapped(text: str, *, indent: str = "") -> str:
    """The text in lines of at most `WIDTH` characters, all but the first one indented."""
    unbroken = _NO_BREAK.sub("\0", text)
    lines = textwrap.wrap(
        unbroken, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(lines).replace("\0", " ")
