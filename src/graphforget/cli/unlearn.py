"""The commands `graphforget plan` and `graphforget unlearn`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import progress, say
from graphforget.cli.on_ranks import ranks, refuse
from graphforget.cli.options import (
    AsJson,
    Device,
    LevelName,
    MethodName,
    Option,
    OtherwiseName,
    RequestFile,
    RequestFiles,
    Run,
    named_options,
    read_requests,
    say_where,
)
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, RetrainPath, own_code
from graphforget.cli.render import render_outcome, render_plan
from graphforget.errors import InputError
from graphforget.unlearning.catalogue import AUTO


def plan(
    run: Run,
    request_file: RequestFile = None,
    request_files: RequestFiles = None,
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
    """Show the footprint of a request, the expected level and the expected time. Changes nothing.

    Several requests (--request A --request B) are planned as one release.
    """
    requests, options = read_requests(request_file, request_files), named_options(option, reserved=(gf.plan,))
    settings: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, "device": device}
    together = ranks()
    if together is not None:
        from graphforget.runs.on_ranks import plan_on_ranks

        refuse(module=module, loss=loss, retrain=retrain, device=device)
        result, trained = plan_on_ranks(together, run, requests, **settings, **options)
    else:
        trained, graph = gf.load_run(run, **own_code(module, module_option, loss, retrain))
        result = gf.plan(trained, graph, requests, **settings, **options)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    render_plan(result, floor=trained.recipe.floor)


# Longer than 50 lines because every option is documented in the signature.
def unlearn(
    run: Run,
    request_file: RequestFile = None,
    request_files: RequestFiles = None,
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
    request_ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="A request's id, in their order: it gets the first answer again."),
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
    """Answer a deletion request. --out or --in-place saves model, retained graph, certificate and ledger.

    Several requests are answered by one release, with one certificate. Each has its own id and entry in the ledger.

    \b
    graphforget unlearn runs/one --request a.json --id 1 --request b.json --id 2 --in-place
    """
    if in_place and out_folder is not None:
        raise InputError("--in-place and --out are both given, choose one")
    if not in_place and out_folder is None and (request_ids or key is not None):
        raise InputError("--id and --key need a place for the answer: add --out FOLDER or --in-place")
    requests, signer = read_requests(request_file, request_files), None if key is None else gf.private_key(key)
    if request_ids and len(request_ids) != len(requests):
        raise InputError(f"--id: {len(request_ids)} given, one is needed for each request, here {len(requests)}")
    settings: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, "device": device}
    settings |= {"epsilon": epsilon, "delta": delta, "sigma": sigma, "seed": seed}
    settings |= named_options(option, reserved=(gf.unlearn, gf.answer))
    own = own_code(module, module_option, loss, retrain)
    saved = run if in_place else out_folder
    if ranks() is not None:
        refuse(module=module, loss=loss, retrain=retrain, device=device)
    with progress(quiet=as_json) as report:
        if saved is None:
            results = _rehearse(run, requests, own, progress=report, **settings)
        else:
            where: dict[str, Any] = {"out": out_folder, "request_ids": request_ids or None, "key": signer}
            answers = _answer(run, requests, own, progress=report, force=force, **where, **settings)
            results = [
                one.summary | {"run": str(saved), "request_id": one.request_id, "repeated": one.repeated}
                for one in answers
            ]
    together = ranks()
    if together is not None:
        from graphforget.runs.on_ranks import counters

        sent = {"ranks": counters(together)}
        results = [one | {"private": one["private"] | sent} for one in results]
    if as_json:
        print(json.dumps(results[0] if len(results) == 1 else _together(results)))
        return
    _show(results, saved)


def _answer(run: Path, requests: list[gf.Request], own: dict[str, Any], **settings: Any) -> Sequence[gf.Answer]:
    """The saved answers to requests, in one process or on several ranks."""
    together = ranks()
    if together is None:
        return gf.answer(run, requests, **own, **settings)
    from graphforget.runs.on_ranks import answer_on_ranks

    return answer_on_ranks(together, run, requests, **settings)


def _rehearse(run: Path, requests: list[gf.Request], own: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    """The answers to requests whose outcome is not saved. They are private, because nobody counts their noise."""
    together = ranks()
    if together is None:
        trained, graph = gf.load_run(run, **own)
        outcome = gf.unlearn(trained, graph, requests, **settings)
    else:
        from graphforget.runs.on_ranks import rehearse_on_ranks

        outcome = rehearse_on_ranks(together, run, requests, **settings)
    result = outcome.answer() | {"audience": "private", "run": None, "request_id": None, "repeated": False}
    return [result] * len(requests)


def _together(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The JSON object of several requests: their answers, in their order, and what is private under one key."""
    shared = {name: results[0][name] for name in ("audience", "run")}
    public = [{name: value for name, value in one.items() if name not in (*shared, "private")} for one in results]
    return shared | {"answers": public, "private": [one["private"] for one in results]}


def _show(results: list[dict[str, Any]], saved: Path | None) -> None:
    """One text for each release, with the ids of the requests that it answers if there are several requests."""
    if saved is None:
        say("A rehearsal: nothing is saved, so none of it may be shown or released.\n")
    of_release: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        of_release.setdefault(result["certificate"]["id"], []).append(result)
    for together in of_release.values():
        repeated = together[0]["repeated"]
        if len(results) > 1 and saved is not None:
            say(f"Answered {'before' if repeated else 'now'}: {', '.join(one['request_id'] for one in together)}\n")
        elif repeated:
            say("This request was answered before. Its first answer:\n")
        render_outcome(together[0])
        if not repeated:
            say_where(saved)
