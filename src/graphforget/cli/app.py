"""The command line: the app, its commands and its exit codes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer

import graphforget as gf
from graphforget.cli.absence import prove_absence, verify_absence
from graphforget.cli.adopt import adopt
from graphforget.cli.audit import audit
from graphforget.cli.card import card
from graphforget.cli.compare import compare
from graphforget.cli.console import print_error
from graphforget.cli.demo import demo
from graphforget.cli.keys import keygen
from graphforget.cli.launch import launch
from graphforget.cli.ledger import ledger
from graphforget.cli.listing import datasets, methods, models
from graphforget.cli.on_ranks import check_command, end_rank, run_on_ranks
from graphforget.cli.predict import export, predict
from graphforget.cli.report import report
from graphforget.cli.reproduce import reproduce
from graphforget.cli.serve import serve_app
from graphforget.cli.shard import shard
from graphforget.cli.train import train
from graphforget.cli.unlearn import plan, unlearn
from graphforget.cli.update import update
from graphforget.cli.verify import verify
from graphforget.distributed.launch import is_launched
from graphforget.errors import InputError, Mismatch, Refused
from graphforget.plugins import PluginWarning

CHECK_FAILED = 1
BAD_INPUT = 2
REFUSED = 3
INTERRUPTED = 130

# typer exports only this subclass of its usage errors, and where the others are defined depends on its version.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__base__)

COMMANDS: dict[Callable[..., Any], str] = {  # each with an example
    datasets: "graphforget datasets --json",
    models: "graphforget models --json",
    train: "graphforget train --data patients --model sgc --out runs/one",
    adopt: "graphforget adopt model.safetensors --module mypackage.models:MyGNN --data graph.pt --out runs/mine",
    shard: "graphforget shard ./records --parts 4 --out shards/records",
    launch: "graphforget launch --ranks 4 -- train --data shards/records --model sgc --out runs/records",
    methods: "graphforget methods --json",
    compare: "graphforget compare --data cora --model gcn --request node:5%",
    plan: "graphforget plan runs/one request.json",
    unlearn: "graphforget unlearn runs/one request.json --out runs/two --key keys/privacy",
    update: "graphforget update runs/one --data new-folder --in-place",
    predict: "graphforget predict runs/two --nodes patient-0018",
    export: "graphforget export runs/two --out served",
    verify: "graphforget verify runs/two --key keys/privacy.pub",
    prove_absence: "graphforget prove-absence runs/two --subject patient-0017 --out proof.json",
    verify_absence: "graphforget verify-absence proof.json --key keys/privacy.pub",
    audit: "graphforget audit runs/two --before runs/one --request request.json",
    reproduce: "graphforget reproduce table1 --quick",
    ledger: "graphforget ledger runs/two",
    keygen: "graphforget keygen keys/privacy",
    report: "graphforget report runs/two --out report.html",
    card: "graphforget card runs/two --out model-card.md",
    demo: "graphforget demo --out demo.html",
}

app = typer.Typer(
    name="graphforget",
    help="Make graph neural networks forget people, relations and attributes.",
    epilog="Example: graphforget train --data patients --model sgc --out runs/one",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command, example in COMMANDS.items():
    app.command(command.__name__.replace("_", "-"), epilog=f"Example: {example}")(command)
app.add_typer(serve_app)


def main() -> None:
    """The entry point: every error ends with one sentence and its exit code. Under torchrun, so does every rank."""
    if is_launched():
        end_rank(run_on_ranks(_run))
    sys.exit(_run())


def _run() -> int:
    """Runs the command of this process, and gives its exit code."""
    try:
        if is_launched():
            check_command()
        with _plugin_warnings():
            code = app(prog_name="graphforget", standalone_mode=False)
    except UsageError as error:
        print_error(_sentence(error))
        return BAD_INPUT
    except Mismatch as error:
        print_error(f"does not hold: {error}")
        return CHECK_FAILED
    except InputError as error:
        print_error(str(error))
        return BAD_INPUT
    except Refused as error:
        print_error(str(error))
        return REFUSED
    if code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
        print_error("interrupted; every file is either complete or absent")
    return int(code or 0)


@contextmanager
def _plugin_warnings() -> Iterator[None]:
    """Says in one sentence what another package offers and cannot be used; other warnings look as ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, PluginWarning):
                print_error(str(message))
            else:
                plain(message, category, *place, **more)

        warnings.showwarning = show
        yield


def _sentence(error: typer.BadParameter) -> str:
    """The message of typer as one sentence, with the command whose help lists what is possible."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = "graphforget" if error.ctx is None else error.ctx.command_path
    return f"{message[:1].lower()}{message[1:]}; see '{command} --help'"


def _version(show: bool) -> None:
    if show:
        print(gf.__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
