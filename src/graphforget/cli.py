"""The command line: arguments, progress bars, tables and exit codes; no mathematics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.request import KINDS
from graphforget.rundir import check_free
from graphforget.terminal import complain, facts, progress, say, show
from graphforget.unlearning.registry import find

BAD_INPUT = 2
REFUSED = 3
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
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as 'train --out' writes it.")]
RequestFile = Annotated[Path, typer.Argument(metavar="REQUEST", help="What to forget, a .json or .csv file.")]
MethodName = Annotated[str, typer.Option("--method", help="An unlearning method, see 'graphforget methods'.")]
Option = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the method, such as solver=lissa. May be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]


def main() -> None:
    """The entry point: bad input ends with one sentence and exit code 2."""
    try:
        app()
    except gf.InputError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)
    except gf.Refused as error:
        complain(str(error))
        sys.exit(REFUSED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
            complain("stopped, nothing was written")
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
    show(rows, as_json=as_json, hidden=("source",))


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
    show(rows, as_json=as_json, hidden=("epochs", "learning_rate"))


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
    with progress(quiet=as_json) as report:
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
    _say_where(out_folder)


@app.command(epilog="Example: graphforget methods --json")
def methods(as_json: AsJson = False) -> None:
    """The unlearning methods, what they can forget and the best level of guarantee they can give."""
    rows = [
        {
            "name": method.name,
            "method": method.title,
            "level": method.level,
            "forgets": ", ".join(kind for kind in KINDS if kind in method.kinds),
            "reference": method.reference,
        }
        for method in gf.METHODS.values()
    ]
    show(rows, as_json=as_json, hidden=())


@app.command(epilog="Example: graphforget plan runs/cora request.json")
def plan(
    run: Run, request_file: RequestFile, method: MethodName = "idea", option: Option = None, as_json: AsJson = False
) -> None:
    """What a request would touch, what can be guaranteed and about how long it takes. Changes nothing."""
    options = _options(method, option)
    trained, graph = gf.load_run(run)
    found = gf.plan(trained, graph, gf.Request.from_file(request_file), method=method, **options)
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    facts(
        (
            ("nodes that go", f"{found.nodes:,}, of which {found.training_nodes:,} in training"),
            ("edges that go", f"{found.edges:,}"),
            ("values set to 0", f"{found.values:,}, of nodes: {found.attribute_nodes:,}"),
            ("training losses", f"{found.affected:,} may change, {found.untouched:,} stay as they are"),
            ("method", found.method),
            ("best level", found.meaning if found.level is None else f"{found.level}: {found.meaning}"),
            ("time", f"about {found.seconds:.2g} s; training took {found.retrain_seconds:.2g} s"),
        )
    )
    say("\nNot covered, whatever the level:")
    for gap in found.not_covered:
        say(f"  - {gap}")


@app.command(epilog="Example: graphforget unlearn runs/cora request.json --method idea --out runs/cora-2")
def unlearn(
    run: Run,
    request_file: RequestFile,
    method: MethodName = "idea",
    epsilon: Annotated[float, typer.Option(help="The epsilon to guarantee, which sets the noise.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta to guarantee.")] = 1e-5,
    sigma: Annotated[
        float | None, typer.Option(help="The noise itself; the epsilon it implies is reported. 0: none.")
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the method's own randomness.")] = None,
    option: Option = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget what a request names. With --out, keep the model, the retained graph and the weights to release."""
    if out_folder is not None:
        check_free(out_folder, force=force)
    request = gf.Request.from_file(request_file)
    trained, graph = gf.load_run(run)
    options = _options(method, option)
    with progress(quiet=as_json) as report:
        outcome = gf.unlearn(
            trained,
            graph,
            request,
            method=method,
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            seed=seed,
            progress=report,
            **options,
        )
    if out_folder is not None:
        gf.save_outcome(out_folder, outcome, force=force)
    result = outcome.summary() | {
        "test_micro_f1": _scores(trained, outcome),
        "run": None if out_folder is None else str(out_folder),
    }
    if as_json:
        print(json.dumps(result))
        return
    _print_outcome(result)
    _say_where(out_folder)


@app.command(epilog="Example: graphforget demo")
def demo(as_json: AsJson = False) -> None:
    """Train a model on the embedded patients graph, forget a patient, a relation and two values, and compare."""
    graph = gf.load("patients", seed=0)
    with progress(quiet=as_json) as report:
        trained = gf.train(graph, "sgc", seed=0, progress=report)
        patient, other = graph.train_rows[:2].tolist()
        friend = graph.edge_index[0, graph.edge_index[1] == other][0]
        request = gf.Request(
            nodes=[_subject(graph, patient)],
            edges=[(_subject(graph, other), _subject(graph, int(friend)))],
            attributes={_subject(graph, other): ["mean radius", "mean texture"]},
        )
        outcome = gf.unlearn(trained, graph, request, method="idea", progress=report)
        retrained = gf.unlearn(trained, graph, request, method="retrain", progress=report)
    away = {
        name: float((model.theta - retrained.trained.theta).norm())
        for name, model in (("old weights", trained), ("unlearned", outcome.trained))
    }
    result = _training_result(graph, trained) | {
        "request": request.to_dict(),
        "outcome": outcome.summary() | {"test_micro_f1": _scores(trained, outcome)},
        "distance_to_retrained": away,
    }
    if as_json:
        print(json.dumps(result))
        return
    _print_training(result)
    say(f"\nA request to forget: {json.dumps(request.to_dict())}\n")
    _print_outcome(result["outcome"])
    moved = f"{away['old weights']:.3f} before, {away['unlearned']:.3f} after"
    say(f"\nDistance to the weights retrained without it: {moved}.")


def _options(method: str, given: list[str] | None) -> dict[str, Any]:
    """The method's, each of the form `name=value`, the value as JSON where it is any."""
    options: dict[str, Any] = {}
    for option in given or []:
        name, equals, value = (part.strip() for part in option.partition("="))
        if not equals or not name:
            raise gf.InputError(f"the option {option!r} is not of the form name=value")
        if name in options:
            raise gf.InputError(f"option {name!r} stands twice")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    find(method).chosen(options)
    return options


def _scores(old: gf.Trained, outcome: gf.Outcome) -> dict[str, float] | None:
    """Test micro-F1 on the retained graph."""
    if not outcome.graph.test_mask.any():
        return None
    models = {"old weights": old, "unlearned": outcome.trained, "released": outcome.released}
    return {name: model.micro_f1(outcome.graph) for name, model in models.items()}


def _say_where(folder: Path | None) -> None:
    say(f"Written to {folder}." if folder is not None else "Not kept: --out FOLDER keeps the model and its graph.")


def _print_outcome(result: dict[str, Any]) -> None:
    certificate, touched = result["certificate"], result["footprint"]
    pairs = [
        ("method", result["method"]),
        ("training losses", f"{touched['removed']:,} removed, {touched['affected']:,} may have changed"),
        ("level", f"{result['level']}: {certificate['statement']}"),
    ]
    if certificate["sigma"]:
        pairs.append(("noise", f"sigma = {certificate['sigma']:.4g}"))
    if certificate["sigma_needed"]:
        pairs.append(("noise needed", f"sigma = {certificate['sigma_needed']:.4g} for what was asked"))
        pairs.append(("distance", f"at most {certificate['distance']:.4g} from retrained, under the constants assumed"))
    if result["test_micro_f1"] is not None:
        scores = ", ".join(f"{name} {100 * f1:.2f} %" for name, f1 in result["test_micro_f1"].items())
        pairs.append(("test micro-F1", scores))
    facts([*pairs, ("time", f"{result['seconds']:.2f} s")])
    if certificate["conditions"]:
        say("\nWhat the claim assumes, and what was measured:")
        rows = [
            {"assumption": c["name"], "verdict": c["verdict"], "measured": c["measured"], "constant": c["threshold"]}
            for c in certificate["conditions"]
        ]
        show(rows, as_json=False, hidden=())
    if certificate["refuted"]:
        say("\nSome of it does NOT hold here, so nothing follows for this model.")
    for note in result["notes"]:
        say(f"Note: {note}.")


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
    pairs = (
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
    )
    facts(pairs)
