"""The command `graphforget train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import progress
from graphforget.cli.on_ranks import ranks, refuse
from graphforget.cli.options import AsJson, Device, RecipeName, TargetType, named_options, say_where
from graphforget.cli.own_code import ModuleOption, ModulePath, made_module
from graphforget.cli.render import render_training, training_result
from graphforget.models.schedules import RECIPES
from graphforget.runs.layout import check_free
from graphforget.training.recipe import RELEASES


# Longer than 50 lines because every option is documented in the signature.
def train(
    data: Annotated[
        str, typer.Option(help="A dataset's name, a folder with CSV files or a PyG .pt file.")
    ] = "patients",
    model: Annotated[
        str | None,
        typer.Option(
            help="A built-in model, see 'graphforget models'; by default sgc, for links sign, for graphs wl, and "
            "relational-sign for a graph with relations."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="What to answer for: node, link or graph; graph by default for a collection.")
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the weights and dropout.")] = 0,
    split: Annotated[str | None, typer.Option(help="random (90/10), public or given; see docs/data.md.")] = None,
    recipe: RecipeName = RECIPES[0],
    mu: Annotated[float | None, typer.Option(help="Weight of the L2 term; by default the model's own.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of Adam, for networks, encoders and boosted networks.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of Adam.")] = None,
    epsilon: Annotated[float, typer.Option(help="The epsilon that all releases together guarantee.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta that all releases together guarantee.")] = 1e-5,
    sigma: Annotated[
        float | None, typer.Option(help="Noise in every release, fixed here; by default the model's own.")
    ] = None,
    releases: Annotated[
        int, typer.Option(min=1, help="The number of releases that epsilon and delta cover together.")
    ] = RELEASES,
    floor: Annotated[
        float | None, typer.Option(help="The lowest score of a release, 0 to 1; a release below it is refused.")
    ] = None,
    objective_noise: Annotated[
        float | None, typer.Option(help="Noise in the objective instead, as CGU and CEU need it.")
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units, for models that have any.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the model, such as shards=20. May be repeated.")
    ] = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    target: TargetType = None,
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model; with --out save it and its graph in a run directory."""
    if ranks() is not None:
        refuse(
            module=module,
            target=target,
            split=split,
            task=None if task == "node" else task,
            device=device,
            objective_noise=objective_noise,
        )
        settings = {"seed": seed, "mu": mu, "epsilon": epsilon, "delta": delta, "sigma": sigma, "floor": floor}
        settings |= {"epochs": epochs, "learning_rate": learning_rate}
        if not (model or "").lower().startswith("stacked-"):
            refuse(epochs=epochs, learning_rate=learning_rate, hidden=hidden)
        options = named_options(option, reserved=(gf.train,)) | ({} if hidden is None else {"hidden": hidden})
        _train_on_ranks(data, model, out_folder, force, as_json, releases=releases, **settings, **options)
        return
    if module is not None and model is not None:
        raise gf.InputError("--module and --model are both given, choose one")
    if out_folder is not None:
        check_free(out_folder, force=force)
    own = None if module is None else made_module(module, module_option)
    graph = gf.load(data, seed=seed, split=split, target=target)
    if own is None and (epochs is not None or learning_rate is not None):
        _check_schedule(graph, model, task)
    options = named_options(option, reserved=(gf.train,)) | ({} if hidden is None else {"hidden": hidden})
    with progress(quiet=as_json) as report:
        trained = gf.train(
            graph,
            model if own is None else own,
            task=task,
            seed=seed,
            recipe=recipe,
            mu=mu,
            epochs=epochs,
            learning_rate=learning_rate,
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            releases=releases,
            floor=floor,
            objective_noise=objective_noise,
            device=device,
            progress=report,
            **options,
        )
    if out_folder is not None:
        gf.save_run(out_folder, trained, graph, force=force)
    _show(training_result(graph, trained), out_folder, as_json)


def _train_on_ranks(
    data: str, model: str | None, out_folder: Path | None, force: bool, as_json: bool, **settings: Any
) -> None:
    """Trains on a graph in parts (docs/scale.md)."""
    from graphforget.runs.on_ranks import counters, train_on_ranks

    together = ranks()
    assert together is not None
    with progress(quiet=as_json) as report:
        trained, graph = train_on_ranks(together, data, model, out=out_folder, force=force, progress=report, **settings)
    _show(training_result(graph, trained) | {"ranks": counters(together)}, out_folder, as_json)


def _show(result: dict[str, Any], out_folder: Path | None, as_json: bool) -> None:
    result |= {"run": None if out_folder is None else str(out_folder)}
    if as_json:
        print(json.dumps(result))
        return
    render_training(result)
    say_where(out_folder)


def _check_schedule(graph: gf.Graph, model: str | None, task: str | None) -> None:
    from graphforget.models.tasks import model_name

    entry = gf.MODELS.get(model_name(graph, model, task))
    if entry is not None and not entry.has_epochs:
        raise gf.InputError(f"{entry.name} is trained by Newton's method and takes no epochs and no learning rate")
