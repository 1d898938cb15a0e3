"""The commands `graphforget plan` and `graphforget unlearn`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import progress, say
from graphforget.cli.options import (
    AsJson,
    LevelName,
    MethodName,
    Option,
    OtherwiseName,
    RequestFile,
    Run,
    options_of,
    say_where,
)
from graphforget.cli.render import tell_outcome, tell_plan
from graphforget.unlearning.catalogue import AUTO


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
        say_where(kept)
