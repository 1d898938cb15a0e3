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
    Device,
    LevelName,
    MethodName,
    Option,
    OtherwiseName,
    RequestFile,
    Run,
    named_options,
    read_request,
    say_where,
)
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, RetrainPath, own_code
from graphforget.cli.render import render_outcome, render_plan
from graphforget.errors import InputError
from graphforget.unlearning.catalogue import AUTO


def plan(
    run: Run,
    request_file: RequestFile,
    method: MethodName = AUTO,
    level: LevelName = None,
    otherwise: OtherwiseName = "retrain",
    option: Option = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    retrain: RetrainPath = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show the footprint of a request, the expected level and the expected time. Changes nothing."""
    request, options = read_request(request_file), named_options(option, reserved=(gf.plan,))
    trained, graph = gf.load_run(run, **own_code(module, module_option, loss, retrain))
    settings: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, "device": device}
    result = gf.plan(trained, graph, request, **settings, **options)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    render_plan(result, floor=trained.recipe.floor)


# Longer than 50 lines because every option is documented in the signature.
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
    sigma: Annotated[float | None, typer.Option(help="The noise for --method idea, if the model has none.")] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Replace RUN by its new state; the old state is removed.")
    ] = False,
    request_id: Annotated[
        str | None, typer.Option("--id", help="The request's id: the same id gets the first answer again.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="A private key ('graphforget keygen') to sign with.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the method's own randomness.")] = None,
    option: Option = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    retrain: RetrainPath = None,
    device: Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a deletion request. --out or --in-place saves model, retained graph, certificate and ledger."""
    if in_place and out_folder is not None:
        raise InputError("--in-place and --out are both given, choose one")
    if not in_place and out_folder is None and (request_id is not None or key is not None):
        raise InputError("--id and --key need a place for the answer: add --out FOLDER or --in-place")
    request, signer = read_request(request_file), None if key is None else gf.private_key(key)
    settings: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, "device": device}
    settings |= {"epsilon": epsilon, "delta": delta, "sigma": sigma, "seed": seed}
    settings |= named_options(option, reserved=(gf.unlearn, gf.answer))
    own = own_code(module, module_option, loss, retrain)
    saved = run if in_place else out_folder
    with progress(quiet=as_json) as report:
        if saved is None:
            result = _rehearse(run, request, own, progress=report, **settings)
        else:
            where: dict[str, Any] = {"out": out_folder, "request_id": request_id, "key": signer, "force": force}
            answer = gf.answer(run, request, progress=report, **where, **own, **settings)
            result = answer.summary | {"run": str(saved), "request_id": answer.request_id, "repeated": answer.repeated}
    if as_json:
        print(json.dumps(result))
        return
    _show(result, saved)


def _rehearse(run: Path, request: gf.Request, own: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The answer of a request whose outcome is not saved. It is private, because nobody counts its noise."""
    trained, graph = gf.load_run(run, **own)
    outcome = gf.unlearn(trained, graph, request, **settings)
    return outcome.answer() | {"audience": "private", "run": None, "request_id": None, "repeated": False}


def _show(result: dict[str, Any], saved: Path | None) -> None:
    if result["repeated"]:
        say("This request was answered before. Its first answer:\n")
    if saved is None:
        say("A rehearsal: nothing is saved, so none of it may be shown or released.\n")
    render_outcome(result)
    if not result["repeated"]:
        say_where(saved)
