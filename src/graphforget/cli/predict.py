"""The commands `graphforget predict` and `graphforget export`: what a release is used for."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import graphforget as gf
from graphforget.cli.console import say
from graphforget.cli.options import AsJson, Run
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, own_code
from graphforget.errors import InputError


def predict(
    run: Run,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--nodes", metavar="NODE", help="A node, or a graph of a collection. May be repeated; else all."),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--pairs", metavar="U,V", help="For a model of links: a pair, or a CSV file with source,target. Repeatable."
        ),
    ] = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    as_json: AsJson = False,
) -> None:
    """Print the predictions of the released model as CSV. They name nodes, so they are private."""
    own = own_code(module, module_option, loss, None)
    own.pop("retrain", None)
    result = gf.predict_run(run, nodes or None, pairs=_pairs(pairs) if pairs else None, **own)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write(result.columns)
    for row in result.rows:
        write(row)


def _pairs(given: list[str]) -> list[tuple[str, str]]:
    """The pairs of `--pairs`: each is U,V or the path of a CSV file."""
    from graphforget.graph.csv_folder import read_pairs

    pairs: list[tuple[str, str]] = []
    for one in given:
        if one.lower().endswith(".csv"):
            pairs += read_pairs(Path(one))
            continue
        names = [name.strip() for name in one.split(",")]
        if len(names) != 2:
            raise InputError(f"--pairs {one!r} is neither two nodes with a comma between them nor a CSV file")
        pairs.append((names[0], names[1]))
    return pairs


def export(
    run: Run,
    out_folder: Annotated[Path, typer.Option("--out", help="A new folder for model.pt and the folder released_model.")],
    as_json: AsJson = False,
) -> None:
    """Write the released model as a plain torch module that needs torch alone, with the id of its certificate."""
    folder = gf.export_released(run, out_folder)
    files = sorted(path.name for path in folder.iterdir())
    if as_json:
        print(json.dumps({"audience": "public", "folder": str(folder), "files": files}))
        return
    say(f"Written to {folder}: {', '.join(files)}. released_model.load('model.pt') gives the module,")
    say("and released_model/__init__.py says how it is called.")
