"""Arguments that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from graphforget.cli.console import say
from graphforget.errors import InputError
from graphforget.unlearning.catalogue import AUTO

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as 'train --out' writes it.")]
RequestFile = Annotated[Path, typer.Argument(metavar="REQUEST", help="What to forget, a .json or .csv file.")]
MethodName = Annotated[
    str, typer.Option("--method", help="auto (the cheapest way to the best level), or see 'graphforget methods'.")
]
LevelName = Annotated[
    str | None, typer.Option("--level", help="The lowest level that will do: exact, certified, conditional, empirical.")
]
OtherwiseName = Annotated[
    str, typer.Option("--otherwise", help="retrain, or refuse (exit code 3), where the level cannot be had.")
]
Option = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the method, such as solver=lissa. May be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]


Device = Annotated[str, typer.Option("--device", help="Where to compute, such as cpu or cuda.")]


def options_of(method: str, given: list[str] | None) -> dict[str, Any]:
    """The method's, checked."""
    options = named_options(given)
    if method.lower() != AUTO:
        from graphforget.unlearning.registry import find

        find(method).parse_options(options)
    return options


def named_options(given: list[str] | None) -> dict[str, Any]:
    """Options of the form `name=value`, the value as JSON where it is any."""
    options: dict[str, Any] = {}
    for option in given or []:
        name, equals, value = (part.strip() for part in option.partition("="))
        if not equals or not name:
            raise InputError(f"the option {option!r} is not of the form name=value")
        if name in options:
            raise InputError(f"option {name!r} stands twice")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def say_where(folder: Path | None) -> None:
    say(f"Written to {folder}." if folder is not None else "Not kept: --out FOLDER keeps the model and its graph.")
