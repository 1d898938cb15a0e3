"""The command `graphforget card`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import graphforget as gf
from graphforget.cli.console import say
from graphforget.cli.options import AsJson, Run
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, own_code


def card(
    run: Run,
    out_file: Annotated[Path, typer.Option("--out", help="The Markdown file to write.")] = Path("model-card.md"),
    key: Annotated[Path | None, typer.Option(help="The public key that must have signed.")] = None,
    intended_use: Annotated[str | None, typer.Option(help="What the model is for, in your words.")] = None,
    data_source: Annotated[str | None, typer.Option(help="Where the data comes from, in your words.")] = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    as_json: AsJson = False,
) -> None:
    """Verify a run and write a model card in Markdown: level, epsilon so far, limits, data sheet. It names nobody."""
    from graphforget.report.card import card_content, card_markdown
    from graphforget.report.page import check_output_path, write_text

    signer = None if key is None else gf.public_key(key)
    check_output_path(out_file)
    own = own_code(module, module_option, loss)
    content = card_content(run, key=signer, intended_use=intended_use, data_source=data_source, **own)
    write_text(out_file, card_markdown(content))
    if as_json:
        print(json.dumps({"card": str(out_file), **content}))
        return
    say(f"Written to {out_file}.")
