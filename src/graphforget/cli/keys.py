"""The command `graphforget keygen`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import graphforget as gf
from graphforget.cli.console import say
from graphforget.cli.options import AsJson


def keygen(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The file of the private key; the public key is PATH.pub.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key pair to sign certificates with. The private key is readable by you alone."""
    private, public = gf.make_keys(path)
    if as_json:
        print(json.dumps({"private": str(private), "public": str(public)}))
        return
    say(f"Private key: {private} (mode 600, keep it secret). Public key: {public}.")
