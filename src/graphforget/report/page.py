"""What a report tells, and the page that tells it: one HTML file that fetches nothing and runs nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from graphforget.errors import InputError
from graphforget.files import write_whole
from graphforget.runs.layout import inside_run


@dataclass(frozen=True)
class Picture:
    """A figure of `figures.py` with its words. An `svg` that is a plain string is shown as text, like all text."""

    title: str
    svg: Markup
    caption: str


@dataclass(frozen=True)
class CheckRow:
    """One line of a verification. Of a planted failure, `ok` means that it was caught."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Story:
    """Everything a report says, ready to be shown. What is empty is left out."""

    title: str
    audience: str  # public or private, in words
    made: str  # ISO time
    level: str
    statement: str  # what is claimed, in words
    facts: tuple[tuple[str, str], ...]  # name, value
    requests: tuple[str, ...]  # what was asked for, in words; none in a report that names nobody
    pictures: tuple[Picture, ...]
    guaranteed: tuple[str, ...]  # what the level means and what is claimed here
    proven: bool  # False: it comes to nothing
    not_guaranteed: tuple[str, ...]
    checks: tuple[CheckRow, ...]
    unchecked: tuple[str, ...]  # what could not be checked
    planted: tuple[CheckRow, ...]  # failures planted on purpose
    conditions: tuple[tuple[str, str, str, str], ...]  # assumption, measured, constant, verdict
    notes: tuple[str, ...]
    certificate: str  # JSON for people to read
    composed: tuple[str, ...]  # on all releases together


def page(story: Story) -> str:
    """The report as HTML. All text is escaped; only figures made by `figures.py` are not."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(story=story)


def check_place(path: str | Path) -> None:
    """Refuses a place that `write` could not write to, before the work that leads there."""
    folder = Path(path).absolute().parent
    if inside_run(path):
        raise InputError(f"{path} lies inside a run directory, choose a place outside")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"the report cannot be written to {path}: {folder} is not a folder that can be written to")


def write(path: str | Path, story: Story) -> None:
    """Writes the report, replacing the file that is there. A failure leaves what was there before, and nothing else."""
    path = Path(path)
    content = page(story).encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"the report cannot be written to {path}, which is not a file")
        write_whole(path, content, mode=0o600)  # it tells more than the certificate
    except OSError as error:
        raise InputError(f"the report cannot be written to {path}: {error.strerror or error}") from error
