"""The command line: arguments, progress bars, tables and exit codes; no mathematics."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.certificates.releases import composed_since_training
from graphforget.cli.audit import add_audit
from graphforget.cli.console import complain, progress, say, show
from graphforget.cli.demo import run_demo
from graphforget.cli.options import (
    AsJson,
    LevelName,
    MethodName,
    Option,
    OtherwiseName,
    RequestFile,
    Run,
    named_options,
    options_of,
)
from graphforget.cli.render import (
    ledger_result,
    tell_comparison,
    tell_ledger,
    tell_measured,
    tell_outcome,
    tell_plan,
    tell_training,
    tell_verification,
    training_result,
)
from graphforget.cli.reproduce import add_reproduce
from graphforget.report.content import run_story
from graphforget.report.page import check_place
from graphforget.report.page import write as write_report
from graphforget.request.request import KINDS
from graphforget.request.sampling import Drawing, drawn
from graphforget.runs.history import read_history
from graphforget.runs.layout import CERTIFICATE, check_free
from graphforget.training.recipe import RELEASES
from graphforget.unlearning.selection import AUTO
from graphforget.verification.entries import check_entries

CHECK_FAILED = 1
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


def main() -> None:
    """The entry point: whatever goes wrong ends with one sentence and its exit code."""
    try:
        app()
    except gf.Mismatch as error:
        complain(f"does not hold: {error}")
        sys.exit(CHECK_FAILED)
    except gf.InputError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)
    except gf.Refused as error:
        complain(str(error))
        sys.exit(REFUSED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
            complain("stopped; what was to be written is there as a whole or not at all")
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
            "certifiable": entry.affine and not entry.objective_noise,
            "mu": entry.mu,
            "sigma": entry.sigma,
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
    epsilon: Annotated[float, typer.Option(help="The epsilon that all releases together guarantee.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta that all releases together guarantee.")] = 1e-5,
    sigma: Annotated[
        float | None, typer.Option(help="Noise in every release, fixed here; by default the model's own.")
    ] = None,
    releases: Annotated[
        int, typer.Option(min=1, help="How many releases epsilon and delta cover together, before it retrains.")
    ] = RELEASES,
    floor: Annotated[
        float | None, typer.Option(help="The least score of a release, 0 to 1; one under it is refused.")
    ] = None,
    objective_noise: Annotated[
        float | None, typer.Option(help="Noise in the objective instead, as CGU and CEU need it.")
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units, for models that have any.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the model, such as shards=20. May be repeated.")
    ] = None,
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
    options: dict[str, Any] = named_options(option) | ({} if hidden is None else {"hidden": hidden})
    taken = [name for name in options if name in inspect.signature(gf.train).parameters]
    if taken:
        raise gf.InputError(f"option {taken[0]!r} is none of the model's, it belongs to training itself")
    with progress(quiet=as_json) as report:
        trained = gf.train(
            graph,
            model,
            seed=seed,
            mu=mu,
            epochs=epochs,
            learning_rate=learning_rate,
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            releases=releases,
            floor=floor,
            objective_noise=objective_noise,
            progress=report,
            **options,
        )
    if out_folder is not None:
        gf.save_run(out_folder, trained, graph, force=force)
    result = training_result(graph, trained) | {"run": None if out_folder is None else str(out_folder)}
    if as_json:
        print(json.dumps(result))
        return
    tell_training(result)
    _say_where(out_folder)


@app.command(epilog="Example: graphforget methods --json")
def methods(as_json: AsJson = False) -> None:
    """The unlearning methods, what they can forget and the best level of guarantee they can give."""
    rows = [
        {
            "name": method.name,
            "method": method.title,
            "forgets": "all kinds" if len(method.kinds) == len(KINDS) else ", ".join(sorted(method.kinds)),
            "models": method.models,
            "level": method.level,
            "sequential": method.sequential,
            "reference": method.reference,
        }
        for method in gf.METHODS.values()
    ]
    show(rows, as_json=as_json, hidden=("method",))


@app.command(epilog="Example: graphforget compare --data cora --model gcn --request node:5%")
def compare(
    data: Annotated[
        str, typer.Option(help="A dataset's name, a folder with CSV files or a PyG .pt file.")
    ] = "patients",
    model: Annotated[
        str, typer.Option(help="The model to compare on: sgc, sign, gcn, gat, gin, linearised-gcn ...")
    ] = "gcn",
    request: Annotated[
        str, typer.Option(help="node:5%, edge:10, attribute:1%, partial:5% (drawn by the seed), or a request file.")
    ] = "node:5%",
    methods: Annotated[
        str | None, typer.Option(help="Some of the methods, by commas; 'nothing' leaves the old weights. Default: all.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the weights and the draw.")] = 0,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Shards of GraphEraser; by default 1 for 300 nodes.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of Adam, for models that are not convex.")] = None,
    epsilon: Annotated[float, typer.Option(help="The epsilon to guarantee.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta to guarantee.")] = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Run the methods on one graph, one split and one request, and show time, F1, distance and level side by side."""
    graph = gf.load(data, seed=seed)
    file = Path(request)
    what = gf.Request.from_file(file) if file.is_file() else drawn(graph, Drawing.parse(request), seed=seed)
    how: dict[str, Any] = {
        "methods": None if methods is None else [name.strip() for name in methods.split(",")],
        "shards": max(2, round(graph.train_rows.numel() / 300)) if shards is None else shards,
        "seed": seed,
        "epochs": epochs,
        "epsilon": epsilon,
        "delta": delta,
    }
    with progress(quiet=as_json) as report_progress:
        rows = [dataclasses.asdict(row) for row in gf.compare(graph, model, what, progress=report_progress, **how)]
    about = {"data": graph.name, "model": model, "request": request, "seed": seed, "shards": how["shards"]}
    if as_json:
        print(json.dumps(about | {"rows": rows}))
        return
    tell_comparison(rows)


@app.command(epilog="Example: graphforget plan runs/cora request.json")
def plan(
    run: Run,
    request_file: RequestFile,
    method: MethodName = AUTO,
    level: LevelName = None,
    otherwise: OtherwiseName = "retrain",
    option: Option = None,
    as_json: AsJson = False,
) -> None:
    """What a request would touch, what can be guaranteed and about how long it takes. Changes nothing."""
    request, options = gf.Request.from_file(request_file), options_of(method, option)
    trained, graph = gf.load_run(run)
    wanted: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise}
    found = gf.plan(trained, graph, request, **wanted, **options)
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    tell_plan(found)


@app.command(epilog="Example: graphforget unlearn runs/cora request.json --epsilon 1 --delta 1e-5 --out runs/cora-2")
def unlearn(
    run: Run,
    request_file: RequestFile,
    method: MethodName = AUTO,
    level: LevelName = None,
    otherwise: OtherwiseName = "retrain",
    epsilon: Annotated[
        float | None, typer.Option(help="Another epsilon than the model's; the certificate lists it.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Another delta than the model's; the certificate lists it.")
    ] = None,
    sigma: Annotated[float | None, typer.Option(help="The noise for --method idea, where the model has none.")] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="RUN itself moves on to the new state, and the old one is gone.")
    ] = False,
    request_id: Annotated[
        str | None, typer.Option("--id", help="The request's id: asked again, the first answer is given again.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="A private key ('graphforget keygen') to sign with.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the method's own randomness.")] = None,
    option: Option = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget what a request names. --out or --in-place keeps model, retained graph, certificate and ledger."""
    if in_place and out_folder is not None:
        raise gf.InputError("--in-place and --out are both given, choose one")
    if not in_place and out_folder is None and (request_id is not None or key is not None):
        raise gf.InputError("--id and --key need a place to keep the answer: add --out FOLDER or --in-place")
    request, options = gf.Request.from_file(request_file), options_of(method, option)
    wanted: dict[str, Any] = {
        "method": method,
        "level": level,
        "otherwise": otherwise,
        "epsilon": epsilon,
        "delta": delta,
        "sigma": sigma,
        "seed": seed,
    } | options
    kept = run if in_place else out_folder
    with progress(quiet=as_json) as report:
        if kept is None:
            trained, graph = gf.load_run(run)
            outcome = gf.unlearn(trained, graph, request, progress=report, **wanted)
            result = outcome.answer() | {"audience": "private"}  # noise that nobody counts may not go out
            about: dict[str, Any] = {"run": None, "request_id": None, "repeated": False}
        else:
            signer = None if key is None else gf.private_key(key)
            answered = gf.answer(
                run,
                request,
                out=out_folder,
                request_id=request_id,
                key=signer,
                force=force,
                progress=report,
                **wanted,
            )
            result = answered.summary
            about = {"run": str(kept), "request_id": answered.request_id, "repeated": answered.repeated}
    if as_json:
        print(json.dumps(result | about))
        return
    if about["repeated"]:
        say("This request was answered before; its first answer:\n")
    if kept is None:
        say("A rehearsal: nothing is kept, so nothing of it may be shown or released.\n")
    tell_outcome(result)
    if not about["repeated"]:
        _say_where(kept)


@app.command(epilog="Example: graphforget verify runs/cora-2 --key keys/privacy.pub")
def verify(
    run: Run,
    key: Annotated[Path | None, typer.Option(help="The public key that must have signed.")] = None,
    data: Annotated[
        str | None, typer.Option(help="The retained graph from your own records, instead of the one in RUN.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option(help="The run of the release before: its noise must be another one.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="A head that 'ledger --head' printed: RUN must be at it or past it.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Train again and compare, for level exact.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recompute what a certificate says, without the deleted data. Exit code 1 with the first thing that fails.

    What it prints may be shown if everything holds; what it says of a failure is private.
    """
    signer = None if key is None else gf.public_key(key)
    graph = None if data is None else gf.load(data)
    try:
        with progress(quiet=as_json or not replay) as report:
            result = gf.verify_run(
                run, key=signer, graph=graph, before=before, head=head, replay=replay, progress=report
            )
    except gf.Mismatch as mismatch:
        if as_json:
            print(json.dumps({"audience": "private", "ok": False, "mismatch": str(mismatch)}))
        raise
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    tell_verification(result)
    say("Everything that could be checked holds.")


add_audit(app)
add_reproduce(app)


@app.command(epilog="Example: graphforget ledger runs/cora-2")
def ledger(
    run: Run,
    delta: Annotated[float | None, typer.Option(help="The delta at which to tell the epsilon of all releases.")] = None,
    head: Annotated[
        bool, typer.Option("--head", help="Print the ledger's head alone: keep it elsewhere for 'verify --head'.")
    ] = False,
    private: Annotated[bool, typer.Option("--private", help="Show what was measured, too. Not to be shown.")] = False,
    as_json: AsJson = False,
) -> None:
    """The requests that a run has answered, what all its releases promise together, and how many are left."""
    trained, _ = gf.load_run(run)
    record = read_history(run)
    if not record.entries:
        if trained.history or (Path(run) / CERTIFICATE).exists():
            if record.earlier is not None:
                raise gf.InputError(f"the ledger of {run} is of an earlier version; 'unlearn' goes on from it")
            raise gf.Mismatch(f"the ledger of {run} is missing")
        raise gf.InputError(f"{run} has no ledger, it did not come of a deletion")
    certificates = check_entries(record.entries, follows=record.follows)
    if head:
        print(json.dumps({"audience": "public", "head": record.head}) if as_json else record.head)
        return
    at = trained.recipe.delta if delta is None else delta
    together = composed_since_training(record.entries, certificates, delta=at)
    result = ledger_result(record.entries, together, trained.releases_left)
    measured = [
        {"number": entry.number, "method": annex.account.get("method"), "changed": annex.account.get("changed")}
        | {name: annex.account.get("measured", {}).get(name) for name in ("distance", "epsilon_measured")}
        for entry, annex in zip(record.entries, record.own_annexes, strict=True)
    ]
    if as_json:
        print(json.dumps(result | ({"audience": "private", "measured": measured} if private else {})))
        return
    tell_ledger(result)
    if private:
        tell_measured(measured)


@app.command(epilog="Example: graphforget keygen keys/privacy")
def keygen(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Where the private key goes; the public one: PATH.pub.")],
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key pair to sign certificates with. The private key is readable by you alone."""
    private, public = gf.make_keys(path)
    if as_json:
        print(json.dumps({"private": str(private), "public": str(public)}))
        return
    say(f"Private key: {private} (mode 600, keep it secret). Public key: {public}.")


@app.command(epilog="Example: graphforget report runs/cora-2 --out report.html")
def report(
    run: Run,
    out_file: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    key: Annotated[Path | None, typer.Option(help="The public key that must have signed.")] = None,
    private: Annotated[bool, typer.Option("--private", help="With what was measured. Not to be shown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a run and write one self-contained HTML page about its last deletion. It names nobody."""
    signer = None if key is None else gf.public_key(key)
    check_place(out_file)
    write_report(out_file, run_story(run, key=signer, private=private))
    if as_json:
        print(json.dumps({"report": str(out_file), "audience": "private" if private else "public"}))
        return
    say(f"Written to {out_file}.")


@app.command(epilog="Example: graphforget demo --out demo.html")
def demo(
    out_file: Annotated[Path, typer.Option("--out", help="The HTML report to write.")] = Path("graphforget-demo.html"),
    as_json: AsJson = False,
) -> None:
    """The whole story on the embedded patients graph: train, plan, forget, certify, verify, catch cheats, report."""
    with progress(quiet=as_json) as show_progress:
        result = run_demo(out_file, progress=show_progress, tell=None if as_json else say)
    if as_json:
        print(json.dumps(result))


def _say_where(folder: Path | None) -> None:
    say(f"Written to {folder}." if folder is not None else "Not kept: --out FOLDER keeps the model and its graph.")
