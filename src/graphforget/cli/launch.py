"""The command `graphforget launch`: torchrun on this machine, with the exit code of the command."""

from __future__ import annotations

import os
import sys
import uuid
from typing import Annotated

import typer

from graphforget.cli.on_ranks import COMMANDS
from graphforget.cli.options import AsJson
from graphforget.errors import InputError


def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command with its options, after '--'.")],
    number: Annotated[int, typer.Option("--ranks", min=1, help="The number of ranks: as many as there are parts.")],
    max_restarts: Annotated[
        int, typer.Option("--max-restarts", min=0, help="How often the ranks start again after one of them died.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Run train, plan, unlearn or verify on several ranks of this machine.

    It is torchrun with 127.0.0.1 and a free port. Its exit code is that of the command, where torchrun's is always 1.
    """
    if command[0] not in COMMANDS:
        raise InputError(f"the command is {command[0]!r}, there are {', '.join(COMMANDS)} on several ranks")
    raise typer.Exit(_launched([*command, *(["--json"] if as_json else [])], number, max_restarts))


def _launched(command: list[str], number: int, max_restarts: int) -> int:
    """The exit code of a command that torch's own launcher runs."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import logging

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=number,
        max_restarts=max_restarts,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        run_id=uuid.uuid4().hex,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "graphforget", *command)
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        return code if code > 0 else 1
    return 0
