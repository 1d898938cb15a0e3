"""Results of experiments as Markdown and as one HTML page that fetches nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Section:
    """One experiment, ready to be shown. What is empty is left out."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    bars: tuple[tuple[str, bool | None], ...]  # what is to be reached in words, and whether it is
    command: str
    machine: str
    made: str  # the day or days
    missing: str  # what is not there yet, in words
    picture: str | None  # the name of a PNG beside the Markdown
    svg: Markup | None  # the same picture for the HTML page
    caption: str


def markdown(section: Section, *, level: int = 1) -> str:
    """The section as Markdown, its heading of the given level."""
    origin = (f"`{section.command}`", section.machine, section.made)
    parts = [f"{'#' * level} {section.title}", ", ".join(part for part in origin if part) + "."]
    if section.missing:
        parts.append(f"**{_escaped(section.missing)}**")
    if section.picture is not None:
        parts.append(f"![{section.caption or section.title}]({section.picture})")
    parts.append(_table(section.columns, section.rows))
    parts += _listed([text for text, _ in section.bars])
    parts += _listed(section.notes)
    return "\n\n".join(parts) + "\n"


def readme(sections: Sequence[Section]) -> str:
    """All sections on one page."""
    head = (
        "# Results\n\nMade by `graphforget reproduce`; every table and figure by the command below its title. What the "
        "notes say of the paper's released code was found by reading and running that code, and no command here shows "
        "it.\n"
    )
    return "\n".join([head, *(markdown(section, level=2) for section in sections)])


def page(sections: Sequence[Section]) -> str:
    """All sections as HTML. All text is escaped; only figures are not."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files(__package__).joinpath("results.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(sections=sections)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_line(columns), _line(["---"] * len(columns)), *map(_line, rows)]
    return "\n".join(lines)


def _line(places: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(place) for place in places) + " |"


def _escaped(text: str) -> str:
    """What Markdown would take for a column's end, for emphasis, for struck out or for HTML."""
    return "".join(f"\\{sign}" if sign in "|*~<" else sign for sign in text)


def _listed(sentences: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {_escaped(sentence)}" for sentence in sentences)] if sentences else []
