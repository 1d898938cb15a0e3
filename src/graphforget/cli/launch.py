"""The command `graphforget launch`: several ranks on this machine, with the exit code of the command."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from graphforget.cli.console import print_error
from graphforget.cli.on_ranks import COMMANDS
from graphforget.cli.options import AsJson
from graphforget.distributed.local_launch import run_ranks
from graphforget.errors import InputError

TERMINATED = 128 + signal.SIGTERM


def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command with its options, after '--'.")],
    number: Annotated[int, typer.Option("--ranks", min=1, help="The number of ranks: as many as there are parts.")],
    max_restarts: Annotated[
        int, typer.Option("--max-restarts", min=0, help="How often the ranks start again after one of them died.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Run train, plan, unlearn, verify or prove-absence on several ranks of this machine.

    Ranks talk over the loopback alone. The exit code is that of the command, where torchrun's is always 1.
    """
    if command[0] not in COMMANDS:
        raise InputError(f"the command is {command[0]!r}, there are {', '.join(COMMANDS)} on several ranks")
    words = [sys.executable, "-m", "graphforget", *command, *(["--json"] if as_json else [])]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that the ranks are ended too
    raise typer.Exit(run_ranks(words, number, max_restarts=max_restarts, say=print_error))
