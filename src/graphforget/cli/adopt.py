"""The command `graphforget adopt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import say, show_pairs
from graphforget.cli.options import AsJson, say_where
from graphforget.cli.own_code import (
    MODULE_HELP,
    LossPath,
    ModuleOption,
    RetrainPath,
    imported,
    load_checkpoint,
    made_module,
    named_loss,
)
from graphforget.cli.render import score_pairs, training_result
from graphforget.runs.layout import check_free

if TYPE_CHECKING:
    from torch_geometric.data import Data


# Longer than 50 lines because every option is documented in the signature.
def adopt(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="The state_dict of the module: .safetensors, or by torch.save."),
    ],
    module: Annotated[str, typer.Option("--module", help=MODULE_HELP)],
    data: Annotated[
        str, typer.Option(help="What it was trained on: a PyG .pt file, a folder with CSV files or a dataset's name.")
    ],
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    module_option: ModuleOption = None,
    retrain: RetrainPath = None,
    loss: LossPath = None,
    mu: Annotated[float | None, typer.Option(help="Weight decay of the training, for influence steps.")] = None,
    reach: Annotated[
        int | None, typer.Option(min=0, help="How many hops messages travel; by default it is counted.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="given (for files), random (90/10) or public.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random split, and of torch in --retrain.")] = 0,
    floor: Annotated[
        float | None, typer.Option(help="The lowest score of a release, 0 to 1; a release below it is refused.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a model that is already trained, as it is; with --out save it and its graph in a run directory.

    Import paths are read from the command line only, never from a run directory. Give --module, --module-option and
    --retrain again to the commands that read this run.
    """
    if out_folder is not None:
        check_free(out_folder, force=force)
    from torch import nn

    own = made_module(module, module_option)
    if not isinstance(own, nn.Module):
        raise gf.InputError(f"{module} is a {own.kind} model, which is trained here: use 'graphforget train --module'")
    load_checkpoint(own, checkpoint)
    graph, given = _graph(data, seed=seed, split=split)
    trained = gf.adopt(
        own,
        given,
        loss=None if loss is None else named_loss(loss),
        mu=mu,
        retrain=None if retrain is None else imported(retrain),
        reach=None if reach is None else gf.Reach(reach),
        seed=seed,
        floor=floor,
    )
    if out_folder is not None:
        gf.save_run(out_folder, trained, graph, force=force)
    result = training_result(graph, trained) | {"run": None if out_folder is None else str(out_folder)}
    result |= {"retrain": retrain, "notes": list(dict.fromkeys(result["notes"]))}
    if as_json:
        print(json.dumps(result))
        return
    _render(result)
    say_where(out_folder)


def _graph(data: str, *, seed: int, split: str | None) -> tuple[gf.Graph, gf.Graph | Data]:
    """The graph, and what `gf.adopt` takes for it: of a PyG file the `Data` itself, so that nothing of it is lost."""
    path = Path(data)
    if data.lower() in gf.DATASETS:
        graph = gf.load(data, seed=seed, split=split)
        return graph, graph
    graph = gf.load(data, seed=seed, split="given" if split is None else split)
    if path.suffix.lower() != ".pt":
        return graph, graph
    from graphforget.datasets.pyg_file import read_pyg_data

    raw = read_pyg_data(path)
    for mask in ("train_mask", "val_mask", "test_mask"):
        raw[mask] = getattr(graph, mask)
    return graph, raw


def _render(result: dict[str, Any]) -> None:
    recipe = result["recipe"]
    show_pairs(
        (
            ("graph", f"{result['data']}: {result['nodes']:,} nodes, {result['edges']:,} edges"),
            ("split", f"{result['train_nodes']:,} training nodes, {result['test_nodes']:,} test nodes"),
            ("model", f"{recipe['model']}, {result['parameters']:,} parameters, as it was trained"),
            *score_pairs(result),
            ("level", _level(result["retrain"])),
            ("influence steps", f"loss {recipe['loss']}, mu = {recipe['mu']:g}"),
        )
    )
    for blocker in result["obstacles"]:
        say(f"Note: without --retrain this rules out a guarantee: {blocker}.")
    for note in result["notes"]:
        say(f"Note: {note}.")


def _level(retrain: str | None) -> str:
    if retrain is None:
        return "empirical at best; --retrain FUNCTION makes exact possible"
    return f"exact by {retrain}, if it reads nothing but the retained graph"
