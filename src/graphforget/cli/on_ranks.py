"""The command line under torchrun: rank 0 runs the command, the other ranks compute what it asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from graphforget.distributed.launch import BACKEND, GLOO, NCCL
from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.distributed.ranks import Ranks

_ranks: list[Ranks] = []  # of this process, while it runs a command
COMMANDS = ("train", "plan", "unlearn", "verify", "prove-absence")


def ranks() -> Ranks | None:
    """The ranks of the running command; None if it runs in one process."""
    return _ranks[0] if _ranks else None


def run_on_ranks(command: Callable[[], int]) -> int:
    """Runs a command on all ranks, and gives its exit code on each of them."""
    import torch

    from graphforget.distributed.group import Group
    from graphforget.distributed.ranks import Ranks
    from graphforget.runs.part_server import PartServer

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # the number of ranks must not change bits
    group = Group(backend=_backend())
    before = group.ended_before()
    if before is not None:
        return before
    together = Ranks(group, PartServer(group))
    if not group.leads:
        code = together.serve()
    else:
        _ranks.append(together)
        code = command()
        sys.stdout.flush()  # a rank that is killed from here on loses nothing
        group.end(code)
        together.stop(code)
    group.leave()
    return code


def end_rank(code: int) -> NoReturn:
    """Ends the process of a rank at once: a thread of gloo may be left, with which the usual end would abort it.

    torchrun would take that for a rank that died, after the command was done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _backend() -> str:
    return os.environ.get(BACKEND, GLOO)


def check_command() -> None:
    """Raises `InputError` for a command that ranks cannot run, or a backend that they cannot have."""
    together = ranks()
    if _backend() not in (GLOO, NCCL):
        raise InputError(f"{BACKEND} is {_backend()[:80]!r}, there are {GLOO} and {NCCL}")
    if together is not None and together.group.backend != _backend():
        raise InputError(f"{BACKEND} is {_backend()!r}, and not every rank has a GPU of its own")
    name = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    if name not in COMMANDS and name:
        raise InputError(f"{name!r} does not run on several ranks: start it without torchrun")


def refuse(**given: Any) -> None:
    """Raises `InputError` for an option that has no meaning on several ranks."""
    name = next((name for name, value in given.items() if value not in (None, False, [], "cpu")), None)
    if name is not None:
        raise InputError(f"--{name.replace('_', '-')} is not possible on several ranks")
