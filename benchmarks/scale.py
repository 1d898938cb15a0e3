"""Time, memory and traffic of training and of requests on several ranks: the numbers of docs/scale.md.

    python benchmarks/scale.py FOLDER --nodes 2450000 --edges 20000000 --columns 100 --classes 47 --ranks 1 2 4

Each number of ranks is started by `graphforget launch` on this machine. Shards and runs go to FOLDER. It prints a line
of JSON for each number of ranks. `benchmarks/scale_tables.py` makes the tables of docs/scale.md from them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.datasets.sharded_folder import is_sharded, shard
from graphforget.distributed.part_files import part_folder, read_header


def on_ranks(number: int, *command: str) -> tuple[dict[str, Any], float]:
    """The JSON that a command prints on so many ranks, and its seconds."""
    started = time.perf_counter()
    call = [sys.executable, "-m", "graphforget", "launch", "--ranks", str(number), "--", *command, "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(call)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]), time.perf_counter() - started


def measure(folder: Path, number: int, requests: dict[str, Path], model: str) -> dict[str, Any]:
    """Training and each request on so many ranks."""
    run = folder / f"run-{number}"
    for left in (run, run.with_name(f"{run.name}.parts")):
        shutil.rmtree(left, ignore_errors=True)
    trained, seconds = on_ranks(
        number, "train", "--data", str(folder / f"shards-{number}"), "--model", model, "--out", str(run)
    )
    train = {"seconds": seconds, "fit": trained["seconds"], "counters": trained["ranks"]}
    result: dict[str, Any] = {"ranks": number, "train": train | {"score": trained.get("test_micro_f1")}}
    for name, path in requests.items():
        answer, seconds = on_ranks(number, "unlearn", str(run), str(path), "--in-place")
        private = answer["private"]
        result[name] = {"seconds": seconds, "request": private["seconds"], "counters": private["ranks"]}
        result[name] |= {"footprint": private["footprint"], "details": private["details"]}
    _, result["verify"] = on_ranks(number, "verify", str(run))
    parts = [boundary_rows(folder / f"shards-{number}", rank) for rank in range(number)]
    return result | {"boundary": parts}


def boundary_rows(shards: Path, rank: int) -> int:
    """How many rows of other parts the lists of a part name."""
    return read_header(part_folder(shards, rank))["boundary"].shape[0]


def idle_memory(folder: Path) -> int:
    """The largest memory of a rank that has next to nothing to do: the interpreter and its libraries."""
    place = folder / "idle"
    if not is_sharded(place):
        shard(gf.synthetic(nodes=64, edges=128, columns=2, classes=2), place, parts=2)
    result, _ = on_ranks(2, "train", "--data", str(place), "--model", "sgc")
    return max(int(rank["memory"]) for rank in result["ranks"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, default in (("nodes", 20_000), ("edges", 160_000), ("columns", 32), ("classes", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="sgc")
    parser.add_argument("--train", type=float, default=0.9)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in given.ranks if not is_sharded(given.folder / f"shards-{number}")]
    sizes = {name: getattr(given, name) for name in ("nodes", "edges", "columns", "classes", "train")}
    requests = {name: given.folder / f"{name}.json" for name in ("node", "edge", "attributes")}
    if missing:
        graph = gf.synthetic(**sizes, signal=3.0)
        sender, receiver = graph.edge_index[:, 1000].tolist()
        named = {"nodes": [17]}, {"edges": [[sender, receiver]]}, {"attributes": [{"node": 99}]}
        for path, content in zip(requests.values(), named, strict=True):
            path.write_text(json.dumps(content))
        for number in missing:
            started = time.perf_counter()
            shard(graph, given.folder / f"shards-{number}", parts=number)
            print(json.dumps({"shard": number, "seconds": time.perf_counter() - started}), flush=True)
        del graph
    print(json.dumps({"graph": sizes, "idle": idle_memory(given.folder)}), flush=True)
    for number in given.ranks:
        print(json.dumps(measure(given.folder, number, requests, given.model)), flush=True)


if __name__ == "__main__":
    main()
