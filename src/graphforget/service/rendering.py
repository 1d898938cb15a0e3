"""Renders the templates of the page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from graphforget.service.planning import losses_of
from graphforget.service.states import WORDS

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _day(seconds: int | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y")


def _moment(seconds: int | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M:%S UTC")


def _words(state: str) -> str:
    return WORDS.get(state, state)


_environment.filters |= {"day": _day, "moment": _moment, "words": _words}
_environment.globals |= {"losses_of": losses_of}


def render(template: str, visitor: Any, *, code: int = 200, **content: Any) -> HTMLResponse:
    text = _environment.get_template(f"{template}.html.j2").render(visitor=visitor, **content)
    return HTMLResponse(text, status_code=code)
