"""The command `graphforget verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import graphforget as gf
from graphforget.cli.console import progress, say
from graphforget.cli.on_ranks import ranks, refuse
from graphforget.cli.options import AsJson, Device, Run
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, RetrainPath, own_code
from graphforget.cli.render import render_verification


def verify(
    run: Run,
    key: Annotated[Path | None, typer.Option(help="The public key that must have signed.")] = None,
    data: Annotated[
        str | None, typer.Option(help="The retained graph from your own records, instead of the one in RUN.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option(help="The run of the release before: its noise must be different.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="A head that 'ledger --head' printed: the ledger of RUN must contain it.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Train again and compare, for level exact.")] = False,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    retrain: RetrainPath = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Recompute a certificate without the deleted data. Exit code 1 and one sentence if a check fails.

    The output is public if all checks hold. The sentence about a failure is private.
    """
    signer = None if key is None else gf.public_key(key)
    graph = None if data is None else gf.load(data)
    own = own_code(module, module_option, loss, retrain)
    try:
        with progress(quiet=as_json or not replay) as report:
            how: Any = {"before": before, "head": head, "replay": replay, "device": device}
            together = ranks()
            if together is None:
                result = gf.verify_run(run, key=signer, graph=graph, progress=report, **how, **own)
            else:
                from graphforget.runs.on_ranks import verify_on_ranks

                refuse(
                    data=data, before=before, replay=replay, module=module, loss=loss, retrain=retrain, device=device
                )
                result = verify_on_ranks(together, run, key=signer, head=head)
    except gf.Mismatch as mismatch:
        if as_json:
            print(json.dumps({"audience": "private", "ok": False, "mismatch": str(mismatch)}))
        raise
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    render_verification(result)
    say("Everything that could be checked holds.")
