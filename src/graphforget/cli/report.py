"""The command `graphforget report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import graphforget as gf
from graphforget.cli.console import say
from graphforget.cli.options import AsJson, Run
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, own_code


def report(
    run: Run,
    out_file: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    key: Annotated[Path | None, typer.Option(help="The public key that must have signed.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Include the private measurements. Do not publish it.")
    ] = False,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    as_json: AsJson = False,
) -> None:
    """Verify a run and write one self-contained HTML page about its last deletion. It names nobody."""
    from graphforget.report.content import run_content
    from graphforget.report.page import check_output_path
    from graphforget.report.page import write as write_report

    signer = None if key is None else gf.public_key(key)
    check_output_path(out_file)
    own = own_code(module, module_option, loss)
    write_report(out_file, run_content(run, key=signer, private=private, **own))
    if as_json:
        print(json.dumps({"report": str(out_file), "audience": "private" if private else "public"}))
        return
    say(f"Written to {out_file}.")
