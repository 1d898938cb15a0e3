"""Ranks on this machine: a process each, which find each other by a file of this user and talk over the loopback.

Nothing listens on another interface, and nothing that ranks tell each other is unpickled. It loads no torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from graphforget.distributed.launch import ENDED_FILE, STORE

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
POLL = 0.05  # seconds
GRACE = 5.0  # seconds in which ranks may end by themselves after one of them has ended on purpose


def run_ranks(command: Sequence[str], number: int, *, max_restarts: int, say: Callable[[str], None]) -> int:
    """Runs a command on so many ranks, and starts all of them again if one is killed.

    Args:
        command: The command of every rank.
        number: The number of ranks.
        max_restarts: How often the ranks may start again.
        say: Takes a sentence about a rank that was killed.

    Returns:
        The exit code of the command, or 1 if a rank was killed in every start.
    """
    with TemporaryDirectory(prefix="graphforget-") as folder:  # only this user can open it
        for attempt in range(max_restarts + 1):
            codes = _run_once(command, number, Path(folder), attempt)
            ended = Path(folder) / ENDED_FILE
            if ended.exists():
                return int(ended.read_text())
            if codes[0] == 0:
                return 0
            killed = [(rank, -code) for rank, code in enumerate(codes) if code is not None and code < 0]
            if not killed:  # a rank has ended with an exit code by itself
                return max(code or 0 for code in codes)
            rank, number_of_signal = killed[0]
            told = f"rank {rank} was killed by signal {number_of_signal}"
            say(f"{told}: all start again" if attempt < max_restarts else f"{told}, and no restart is left")
    return 1


def _run_once(command: Sequence[str], number: int, folder: Path, attempt: int) -> list[int | None]:
    """The exit codes of all ranks in one start; None for one that is ended because another one has failed."""
    given = os.environ | {"WORLD_SIZE": str(number), "TORCHELASTIC_RESTART_COUNT": str(attempt), STORE: str(folder)}
    given |= {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK}
    given.setdefault("OMP_NUM_THREADS", "1")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(number):
            mine = given | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(command, env=mine, start_new_session=True))
        late: float | None = None
        while None in (codes := [process.poll() for process in processes]):
            if any(codes) and late is None:
                late = time.monotonic() + (GRACE if (folder / ENDED_FILE).exists() else 0.0)
            if late is not None and time.monotonic() >= late:
                break
            time.sleep(POLL)
        # A rank that has lost another one ends later than that one, so a second look sees who was killed.
        return [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
