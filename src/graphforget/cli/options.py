"""Arguments that several commands share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import say
from graphforget.errors import InputError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as 'train --out' writes it.")]
RequestFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="REQUEST", help='The request, a .json or .csv file, such as {"nodes": [17]}.', show_default=False
    ),
]
RequestFiles = Annotated[
    list[Path] | None,
    typer.Option("--request", metavar="FILE", help="The file of a request. May be repeated: one release answers all."),
]
MethodName = Annotated[
    str,
    typer.Option("--method", help="auto (the cheapest method with the best level), or see 'graphforget methods'."),
]
LevelName = Annotated[
    str | None,
    typer.Option("--level", help="The lowest acceptable level: exact, certified, conditional or empirical."),
]
OtherwiseName = Annotated[
    str,
    typer.Option("--otherwise", help="If the level cannot be reached: retrain, or refuse (exit code 3)."),
]
Option = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the method, such as solver=lissa. May be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="How long networks are trained: quick, or paper as in the paper's experiments.")
]
Device = Annotated[str, typer.Option("--device", help="The torch device to compute on, such as cpu or cuda.")]


TargetType = Annotated[
    str | None,
    typer.Option("--target", metavar="TYPE", help="The type of nodes to predict, if DATA is a PyG HeteroData."),
]


def read_request(path: Path) -> gf.Request:
    """The request in a .json or .csv file."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return gf.Request.from_file(path)


def read_requests(first: Path | None, others: list[Path] | None) -> list[gf.Request]:
    """The requests in the file that stands after RUN and in the files of --request, in this order."""
    files = [*([] if first is None else [first]), *(others or [])]
    if not files:
        raise InputError("no REQUEST is given, its file is needed after RUN or as --request FILE")
    return [read_request(path) for path in files]


def named_options(given: list[str] | None, *, reserved: Iterable[Callable[..., Any]] = ()) -> dict[str, Any]:
    """Options of the form `name=value`, the value as JSON if it is JSON. Parameters of `reserved` are refused."""
    options: dict[str, Any] = {}
    for option in given or []:
        name, equals, value = (part.strip() for part in option.partition("="))
        if not equals or not name:
            raise InputError(f"the option {option!r} is not of the form name=value")
        if name in options:
            raise InputError(f"option {name!r} is given twice")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    taken = [name for name in options for function in reserved if name in inspect.signature(function).parameters]
    if taken:
        raise InputError(f"option {taken[0]!r} belongs to the command itself, --option is for the model or method")
    return options


def say_where(folder: Path | None) -> None:
    say(f"Written to {folder}." if folder is not None else "Not saved: --out FOLDER saves the model and its graph.")
