"""The command `graphforget compare`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import progress
from graphforget.cli.options import AsJson, Device, RecipeName, read_request
from graphforget.cli.render import render_comparison
from graphforget.models.schedules import RECIPES


def compare(
    data: Annotated[
        str, typer.Option(help="A dataset's name, a folder with CSV files or a PyG .pt file.")
    ] = "patients",
    model: Annotated[
        str, typer.Option(help="The model to compare on: sgc, sign, gcn, gat, gin, sage, linearised-gcn ...")
    ] = "gcn",
    request: Annotated[
        str,
        typer.Option(
            help="node:5%, edge:10, attribute:1%, partial:5%, label:1% (drawn by the seed), or a request file."
        ),
    ] = "node:5%",
    methods: Annotated[
        str | None,
        typer.Option(help="Names of methods, separated by commas; 'no_op' leaves the old weights. Default: all."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the weights and the draw.")] = 0,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Shards of GraphEraser; by default one for 300 training nodes.")
    ] = None,
    recipe: RecipeName = RECIPES[0],
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of Adam, for models that are not convex.")] = None,
    epsilon: Annotated[float, typer.Option(help="The epsilon to guarantee.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta to guarantee.")] = 1e-5,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Run the methods on one graph, one split and one request, and show time, F1, distance and level side by side."""
    graph = gf.load(data, seed=seed)
    to_forget = _read_or_draw(request, graph, seed=seed)
    settings: dict[str, Any] = {
        "methods": None if methods is None else [name.strip() for name in methods.split(",")],
        "shards": max(2, round(graph.train_rows.numel() / 300)) if shards is None else shards,
        "seed": seed,
        "recipe": recipe,
        "epochs": epochs,
        "epsilon": epsilon,
        "delta": delta,
        "device": device,
    }
    with progress(quiet=as_json) as report:
        rows = [dataclasses.asdict(row) for row in gf.compare(graph, model, to_forget, progress=report, **settings)]
    about = {"data": graph.name, "model": model, "request": request, "seed": seed, "shards": settings["shards"]}
    if as_json:
        print(json.dumps(about | {"rows": rows}))
        return
    render_comparison(rows)


def _read_or_draw(request: str, graph: gf.Graph, *, seed: int) -> gf.Request:
    """The request in a file, or one that is drawn at random, such as `node:5%`."""
    from graphforget.request.sampling import Drawing, draw_request

    path = Path(request)
    if path.is_file() or path.suffix.lower() in (".json", ".csv"):
        return read_request(path)
    return draw_request(graph, Drawing.parse(request), seed=seed)
