"""Commands on real ranks: processes that torch's launcher starts on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
