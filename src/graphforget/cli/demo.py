"""The command `graphforget demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphforget.cli.console import progress, say
from graphforget.cli.options import AsJson


def demo(
    out_file: Annotated[Path, typer.Option("--out", help="The HTML report to write.")] = Path("graphforget-demo.html"),
    as_json: AsJson = False,
) -> None:
    """Show a deletion on the patients graph: train, plan, forget, certify, verify, detect planted failures, report."""
    from graphforget.cli.walkthrough import run_demo

    with progress(quiet=as_json) as show_progress:
        result = run_demo(out_file, progress=show_progress, say=None if as_json else say)
    if as_json:
        print(json.dumps(result))
