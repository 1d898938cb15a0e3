"""The command `graphforget update`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import progress, say
from graphforget.cli.options import AsJson, Device, LevelName, OtherwiseName, Run, TargetType, say_where
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, RetrainPath, own_code
from graphforget.cli.render import render_outcome, render_update_plan
from graphforget.errors import InputError
from graphforget.unlearning.catalogue import AUTO

SPLITS = ("keep", "given")


# Longer than 50 lines because every option is documented in the signature.
def update(
    run: Run,
    data: Annotated[str, typer.Option(help="The new data: a folder with CSV files, a PyG .pt file or a dataset.")],
    split: Annotated[
        str, typer.Option(help="keep (known nodes keep their side, new labelled ones train), or given by the data.")
    ] = SPLITS[0],
    method: Annotated[str, typer.Option(help="auto, newton or retrain.")] = AUTO,
    level: LevelName = None,
    otherwise: OtherwiseName = "retrain",
    readmit: Annotated[
        str | None,
        typer.Option(help="Why deleted data may come back. The reason is public: the certificate and ledger keep it."),
    ] = None,
    readmit_request: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A request that names what may come back; without it everything may."),
    ] = None,
    trust_ids: Annotated[
        bool, typer.Option("--trust-ids", help="Go on if few known ids are in the data, or if it has no ids.")
    ] = False,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run directory to write.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Replace RUN by its new state; the old state is removed.")
    ] = False,
    request_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The update's id: it gets the first answer again.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="A private key ('graphforget keygen') to sign with.")] = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    retrain: RetrainPath = None,
    target: TargetType = None,
    device: Device = "cpu",
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would change, the expected level and time. Changes nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a model to new data: grown, corrected or smaller. Needs --out or --in-place, or --plan to look first.

    The release is certified against training on the new data, and counts like the answer to a request. Data that a
    request deleted is refused (exit code 3), unless --readmit gives a reason;
    --readmit-request limits what comes back.
    """
    if plan and (in_place or request_id is not None or not all(one is None for one in (out_folder, key))):
        raise InputError("--plan changes nothing, so it takes no --out, --in-place, --id or --key")
    if not plan and in_place == (out_folder is not None):
        raise InputError("an update needs a place for the new state: give either --out FOLDER or --in-place")
    if split not in SPLITS:
        raise InputError(f"the split is {split!r}, {' or '.join(SPLITS)} is needed")
    signer = None if key is None else gf.private_key(key)
    settings: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, "device": device}
    source: dict[str, Any] = {"keep_split": split == "keep", "target": target}
    where: dict[str, Any] = {"out": out_folder, "request_id": request_id, "key": signer, "force": force}
    named = None if readmit_request is None else gf.Request.from_file(readmit_request)
    settings |= {"readmit": readmit, "readmit_request": named, "trust_ids": trust_ids}
    own = own_code(module, module_option, loss, retrain)
    if plan:
        expected = gf.plan_update_run(run, data, **source, **own, **settings)
        print(json.dumps(expected.to_dict())) if as_json else render_update_plan(expected)
        return
    with progress(quiet=as_json) as report:
        answer = gf.update_run(run, data, progress=report, **source, **where, **own, **settings)
    saved = run if in_place else out_folder
    result = answer.summary | {"run": str(saved), "request_id": answer.request_id, "repeated": answer.repeated}
    if as_json:
        print(json.dumps(result))
        return
    if answer.repeated:
        say("This update was made before. Its first answer:\n")
    render_outcome(result)
    if not answer.repeated:
        say_where(saved)
