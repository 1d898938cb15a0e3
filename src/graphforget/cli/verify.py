"""The command `graphforget verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import graphforget as gf
from graphforget.cli.console import progress, say
from graphforget.cli.on_ranks import ranks, refuse
from graphforget.cli.options import AsJson, Device, TargetType
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, RetrainPath, own_code
from graphforget.cli.render import render_verification
from graphforget.errors import InputError


# Longer than 50 lines because every option is documented here.
def verify(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, or the file of an attestation (in-toto, DSSE).")
    ],
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
    released: Annotated[
        Path | None, typer.Option(help="For an attestation: the file with the released weights that it is about.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Train again and compare, for level exact.")] = False,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    retrain: RetrainPath = None,
    target: TargetType = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Recompute a certificate without the deleted data. Exit code 1 and one sentence if a check fails.

    The output is public if all checks hold. The sentence about a failure is private.
    """
    signer = None if key is None else gf.public_key(key)
    if target is not None and data is None:
        raise InputError("--target is given without --data")
    if run.is_file():
        _only_for_runs(data=data, before=before, head=head, replay=replay, module=module, loss=loss, retrain=retrain)
        _attestation(run, signer, released, as_json=as_json)
        return
    if released is not None:
        raise InputError("--released is for an attestation, a run directory holds its own released weights")
    graph = None if data is None else gf.load(data, target=target)
    own = own_code(module, module_option, loss, retrain)
    try:
        with progress(quiet=as_json or not replay) as report:
            how: Any = {"before": before, "head": head, "replay": replay, "device": device}
            together = ranks()
            if together is None:
                result = gf.verify_run(run, key=signer, graph=graph, progress=report, **how, **own)
            else:
                from graphforget.runs.on_ranks import verify_on_ranks

                refuse(data=data, replay=replay, module=module, loss=loss, retrain=retrain, device=device)
                result = verify_on_ranks(together, run, key=signer, head=head, before=before)
    except gf.Mismatch as mismatch:
        _say_mismatch(mismatch, as_json=as_json)
        raise
    _say_result(result, as_json=as_json)


def _only_for_runs(**given: Any) -> None:
    """Raises `InputError` for an option that the check of an attestation would leave out."""
    name = next((name for name, value in given.items() if value not in (None, False)), None)
    if name is not None:
        raise InputError(f"--{name} needs a run directory, and the file of an attestation is given")


def _attestation(path: Path, key: Ed25519PublicKey | None, released: Path | None, *, as_json: bool) -> None:
    """Checks a certificate in its standard form. It is public."""
    from graphforget.verification.attestation import verify_attestation_file

    try:
        result = verify_attestation_file(path, key=key, released=released)
    except gf.Mismatch as mismatch:
        _say_mismatch(mismatch, as_json=as_json)
        raise
    _say_result(result, as_json=as_json)


def _say_mismatch(mismatch: gf.Mismatch, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"audience": "private", "ok": False, "mismatch": str(mismatch)}))


def _say_result(result: gf.Verification, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    render_verification(result)
    say("Everything that could be checked holds.")
