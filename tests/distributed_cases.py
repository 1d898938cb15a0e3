"""Commands on real ranks: processes that torch's launcher starts on this machine."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import graphforget as gf
from graphforget.datasets.sharded_folder import shard

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def on_ranks(number: int, *command: str | Path, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """A command by `graphforget launch`."""
    call = [sys.executable, "-m", "graphforget", "launch", "--ranks", str(number), "--max-restarts", str(restarts)]
    words = [*call, "--", *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=300, check=False)


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command printed."""
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def weights(run: Path) -> torch.Tensor:
    return load_file(run / "weights.safetensors")["theta"]


def sharded(graph: gf.Graph, folder: Path, *numbers: int) -> dict[int, Path]:
    """The graph in parts, for so many ranks each."""
    places = {number: folder / f"shards-{number}" for number in numbers}
    for number, place in places.items():
        shard(graph, place, parts=number)
    return places


def copied(place: Path, name: str, *, of: str = "run") -> Path:
    """A copy of a run, with its parts."""
    run = place / name
    shutil.copytree(place / of, run)
    shutil.copytree(place / f"{of}.parts", place / f"{name}.parts")
    return run


def killed_once(
    seconds: float,
    *command: str | Path,
    ranks: int,
    torchrun: bool = False,
    more: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str] | None:
    """A command by `graphforget launch` or torchrun, one of whose ranks is killed so many seconds after its start.

    None if no rank was alive any more, so that nothing was killed.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--max-restarts", "3"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    launcher += ["--monitor-interval", "0.1", "-m", "graphforget"]
    if not torchrun:
        launcher = [sys.executable, "-m", "graphforget", "launch", "--ranks", str(ranks), "--max-restarts", "3", "--"]
    words = [*launcher, *map(str, command)]
    given = ENVIRONMENT | (more or {})
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given)
    while not children(process.pid) and process.poll() is None:  # the start of the launcher takes its time
        time.sleep(0.01)
    time.sleep(seconds)
    alive = children(process.pid)
    if alive:
        os.kill(random.choice(alive), signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(words, process.returncode, out, err) if alive else None


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def check_answered_once(run: Path, expected: Path, *, ranks: int, beside: tuple[str, ...] = ()) -> None:
    """The run has one entry, the weights of a run that nobody killed, and nothing but this beside it."""
    ledger = subprocess.run(
        [sys.executable, "-m", "graphforget", "ledger", str(run), "--json"], capture_output=True, text=True, check=True
    )
    assert len(json.loads(ledger.stdout)["entries"]) == 1
    assert bool((weights(run) == weights(expected)).all())  # to the bit
    assert result_of(on_ranks(ranks, "verify", run, "--json"))["ok"] is True
    left = [path.name for path in run.parent.iterdir() if path.name.startswith(f".{run.name}.")]
    assert left == list(beside)
    assert not list((run.parent / f"{run.name}.parts").rglob("journal.bin"))
