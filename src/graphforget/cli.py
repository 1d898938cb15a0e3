"""The command line: arguments, progress bars, tables and exit codes; no mathematics."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import graphforget as gf
from graphforget.rundir import check_free

BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(
    name="graphforget",
    help="Make graph neural networks forget people, relations and attributes.",
    epilog="Example: graphforget train --data cora --model sgc --out runs/cora",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]


def main() -> None:
    """The entry point: bad input ends with one sentence and exit code 2."""
    try:
        app()
    except gf.InputError as error:
        err.print(f"graphforget: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(BAD_INPUT)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
            err.print("graphforget: stopped, nothing was written")
        raise


def _version(show: bool) -> None:
    if show:
        print(gf.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: graphforget datasets --json")
def datasets(as_json: AsJson = False) -> None:
    """The graphs that can be named; own data is a folder with nodes.csv and edges.csv, or a PyG .pt file."""
    rows = [
        {
            "name": name,
            "nodes": d.nodes,
            "edges": d.edges,
            "columns": d.columns,
            "classes": d.classes,
            "title": d.title,
            "source": d.source,
        }
        for name, d in gf.DATASETS.items()
    ]
    _show(rows, as_json=as_json, hidden=("source",))


@app.command(epilog="Example: graphforget models --json")
def models(as_json: AsJson = False) -> None:
    """The built-in models. From Python, any torch.nn.Module called as module(x, edge_index) works too."""
    rows = [
        {
            "name": entry.name,
            "model": entry.title,
            "certifiable": entry.affine,
            "mu": entry.mu,
            "epochs": entry.epochs,
            "learning_rate": entry.learning_rate,
        }
        for entry in gf.MODELS.values()
    ]
    _show(rows, as_json=as_json, hidden=("epochs", "learning_rate"))


@app.command(epilog="Example: graphforget train --data cora --model sgc --out runs/cora")
def train(
    data: Annotated[
        str, typer.Option(help="A dataset's name, a folder with CSV files or a PyG .pt file.")
    ] = "patients",
    model: Annotated[str, typer.Option(help="A built-in model, see 'graphforget models'.")] = "sgc",
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the weights and dropout.")] = 0,
    split: Annotated[str | None, typer.Option(help="random (90/10), public or given; see the README.")] = None,
    mu: Annotated[float | None, typer.Option(help="Weight of the L2 term; by default the model's own.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of Adam, for models that are not convex.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of Adam.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units, for models that have any.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model and, with --out, keep it and its graph in a run directory."""
    if out_folder is not None:
        check_free(out_folder, force=force)
    entry = gf.MODELS.get(model.lower())
    if entry is not None and entry.affine and (epochs is not None or learning_rate is not None):
        raise gf.InputError(f"{model} is trained by Newton's method and takes no epochs and no learning rate")
    graph = gf.load(data, seed=seed, split=split)
    options: dict[str, Any] = {} if hidden is None else {"hidden": hidden}
    with _progress(quiet=as_json) as report:
        trained = gf.train(
            graph,
            model,
            seed=seed,
            mu=mu,
            epochs=epochs,
            learning_rate=learning_rate,
            progress=report,
            **options,
        )
    if out_folder is not None:
        gf.save_run(out_folder, trained, graph, force=force)
    result = _training_result(graph, trained) | {"run": None if out_folder is None else str(out_folder)}
    if as_json:
        print(json.dumps(result))
        return
    _print_training(result)
    if out_folder is not None:
        out.print(f"Written to {out_folder}.", highlight=False, markup=False)
    else:
        out.print("Not kept: --out FOLDER keeps the model and its graph.", highlight=False, markup=False)


@app.command(epilog="Example: graphforget demo")
def demo(as_json: AsJson = False) -> None:
    """Train a model on the embedded patients graph and look at what a deletion request would touch."""
    graph = gf.load("patients", seed=0)
    with _progress(quiet=as_json) as report:
        trained = gf.train(graph, "sgc", seed=0, progress=report)
    patient, other = graph.train_rows[:2].tolist()
    friend = graph.edge_index[0, graph.edge_index[1] == other][0]
    request = gf.Request(
        nodes=[_subject(graph, patient)],
        edges=[(_subject(graph, other), _subject(graph, int(friend)))],
        attributes={_subject(graph, other): ["mean radius", "mean texture"]},
    )
    touched = gf.footprint(graph, request, trained.reach)
    result = _training_result(graph, trained) | {
        "request": request.to_dict(),
        "footprint": {"removed": touched.removed.numel(), "affected": touched.affected.numel()},
    }
    if as_json:
        print(json.dumps(result))
        return
    _print_training(result)
    out.print(
        f"\nA request to forget: {json.dumps(request.to_dict())}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    removed, affected = touched.removed.numel(), touched.affected.numel()
    out.print(
        f"It removes {removed} training node and changes the loss of {affected} others; the remaining "
        f"{result['train_nodes'] - removed - affected} training losses are not touched.",
        highlight=False,
        soft_wrap=True,
    )


def _subject(graph: gf.Graph, row: int) -> str:
    assert graph.subject_ids is not None
    return graph.subject_ids[row]


def _training_result(graph: gf.Graph, trained: gf.Trained) -> dict[str, Any]:
    has_test = bool(graph.test_mask.any())
    return {
        "data": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "train_nodes": int(graph.train_mask.sum()),
        "test_nodes": int(graph.test_mask.sum()),
        "test_micro_f1": trained.micro_f1(graph) if has_test else None,
        **trained.summary(),
    }


def _print_training(result: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    f1 = result["test_micro_f1"]
    reached = f"||grad F|| / mu = {result['gradient_norm_over_mu']:.1e}"
    if result["strongly_convex"]:
        bound = f"{reached}, a bound on the distance to the optimum"
        state = (
            bound
            if result["converged"]
            else f"{reached}: NOT CONVERGED, the tolerance is {result['recipe']['tolerance']}"
        )
    else:
        state = f"||grad F|| = {result['gradient_norm']:.1e} (not convex: no bound follows from it)"
    if result["certifiable"]:
        level = "can be certified: strongly convex by construction"
    elif result["obstacles"]:
        level = f"cannot be certified: {result['obstacles'][0]}"
    else:
        level = "cannot be certified: the objective is not convex"
    for key, value in (
        ("graph", f"{result['data']}: {result['nodes']:,} nodes, {result['edges']:,} edges"),
        ("split", f"{result['train_nodes']:,} training nodes, {result['test_nodes']:,} test nodes"),
        (
            "model",
            f"{result['recipe']['model']}, {result['parameters']:,} parameters, mu = {result['recipe']['mu']:g}",
        ),
        ("test micro-F1", "no test nodes" if f1 is None else f"{100 * f1:.2f} %"),
        ("optimum", state),
        ("certificate", level),
        ("time", f"{result['seconds']:.2f} s"),
    ):
        table.add_row(key, value)
    out.print(table, highlight=False, markup=False)


def _show(rows: list[dict[str, Any]], *, as_json: bool, hidden: tuple[str, ...]) -> None:
    """A table for people, without the `hidden` columns, or all of it as JSON."""
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False)
    for key, value in rows[0].items():
        if key not in hidden:
            table.add_column(key, justify="left" if isinstance(value, str | bool) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for key, value in row.items() if key not in hidden))
    out.print(table, highlight=False)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on standard error, for people."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def report(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total or None)

        yield report
