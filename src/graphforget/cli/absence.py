"""The commands `graphforget prove-absence` and `graphforget verify-absence`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import graphforget as gf
from graphforget.cli.console import say
from graphforget.cli.on_ranks import ranks
from graphforget.cli.options import AsJson, Run
from graphforget.cli.render import render_verification
from graphforget.errors import InputError
from graphforget.files import error_reason, write_atomic
from graphforget.runs.layout import inside_run


def prove_absence(
    run: Run,
    subject: Annotated[str, typer.Option(help="The subject id; the node number if nodes have no subject ids.")],
    out: Annotated[Path, typer.Option(help="The file of the proof, for the auditor.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Prove that somebody is not in the retained graph of RUN. The proof names nobody else.

    Exit code 3 if the subject is in the graph; nothing is written then.
    """
    if inside_run(out):
        raise InputError(f"{out} is inside a run directory, choose a place outside")
    if out.exists() and not (force and out.is_file()):
        raise InputError(f"{out} exists already, {'it is not a file' if force else '--force overwrites it'}")
    together = ranks()
    if together is None:
        proof = gf.prove_absence(run, subject)
    else:
        from graphforget.runs.on_ranks import prove_absence_on_ranks

        proof = prove_absence_on_ranks(together, run, subject)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, proof.to_json().encode(), mode=0o600)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error_reason(error)}") from error
    if as_json:
        print(json.dumps({"audience": "private", "subject": subject, "proof": str(out)}))
        return
    signed = proof.certificate.signature is not None
    option = "--key PUBLIC_KEY" if signed else "--certificate CERTIFICATE"
    say(f"Written to {out}. 'graphforget verify-absence {out} {option}' checks it without the graph.")
    if not signed:
        say("The certificate is not signed, so the auditor needs it from another source than you.")


def verify_absence(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="The file that 'prove-absence' wrote.")],
    key: Annotated[Path | None, typer.Option(help="The public key that must have signed the certificate.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate from another source, which must be the one in PROOF.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a proof of absence, without the graph. Exit code 1 and one sentence if it does not hold.

    Give --key, --certificate or both. The output names the subject, so it is as private as the proof.
    """
    if key is None and certificate is None:
        raise InputError("--key and --certificate are both missing, give one of them")
    signer = None if key is None else gf.public_key(key)
    stated = None if certificate is None else gf.Certificate.read(certificate)
    shown = gf.AbsenceProof.read(proof)
    try:
        result = gf.verify_absence(shown, key=signer, certificate=stated)
    except gf.Mismatch as mismatch:
        if as_json:
            print(json.dumps({"audience": "private", "ok": False, "mismatch": str(mismatch)}))
        raise
    if as_json:
        about = {"subject": shown.subject, "certificate": shown.certificate.id, "made": shown.certificate.made}
        print(json.dumps(result.to_dict() | {"audience": "private"} | about))
        return
    render_verification(result)
    say("The proof holds.")
