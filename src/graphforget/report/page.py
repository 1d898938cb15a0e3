"""The content of a report, and its page: one HTML file that loads nothing and runs no script."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from graphforget.errors import InputError
from graphforget.files import write_atomic
from graphforget.runs.layout import inside_run


@dataclass(frozen=True)
class Picture:
    """A figure of `figures.py` with its title and caption. An `svg` that is a plain string is shown as text."""

    title: str
    svg: Markup
    caption: str


@dataclass(frozen=True)
class CheckRow:
    """One line of a verification. For a planted failure, `ok` means that it was detected."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class ReportContent:
    """Everything that a report shows. Empty fields are left out."""

    title: str
    audience: str  # public or private, in words
    made: str  # ISO time
    level: str
    statement: str  # what is claimed, in words
    facts: tuple[tuple[str, str], ...]  # name, value
    requests: tuple[str, ...]  # the requests in words; none in a report that names nobody
    pictures: tuple[Picture, ...]
    guaranteed: tuple[str, ...]  # what the level means and what is claimed here
    proven: bool  # False: nothing is guaranteed
    not_guaranteed: tuple[str, ...]
    checks: tuple[CheckRow, ...]
    unchecked: tuple[str, ...]  # what was not checked
    planted: tuple[CheckRow, ...]  # failures planted on purpose
    conditions: tuple[tuple[str, str, str, str], ...]  # assumption, measured, constant, verdict
    notes: tuple[str, ...]
    certificate: str  # JSON for people to read
    composed: tuple[str, ...]  # on all releases together


def page(content: ReportContent) -> str:
    """The report as HTML. All text is escaped; only figures made by `figures.py` are not."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(content=content)


def check_output_path(path: str | Path) -> None:
    """Raises `InputError` if `write` could not write to this path, so that no work is done in vain."""
    folder = Path(path).absolute().parent
    if inside_run(path):
        raise InputError(f"{path} is inside a run directory, choose a path outside")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"the report cannot be written to {path}: {folder} is not a folder that can be written to")


def write(path: str | Path, content: ReportContent) -> None:
    """Writes the report and replaces an existing file. A failure leaves the old file as it was."""
    write_text(path, page(content))


def write_text(path: str | Path, text: str) -> None:
    """Writes a page of text, as `write` does."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"the report cannot be written to {path}, which is not a file")
        write_atomic(path, text.encode("utf-8", "backslashreplace"), mode=0o600)  # it may reveal more than certificates
    except OSError as error:
        raise InputError(f"the report cannot be written to {path}: {error.strerror or error}") from error
