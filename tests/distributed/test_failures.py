"""A rank that dies, and parts that are damaged: real processes, and nothing is lost or doubled."""

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

import pytest

import graphforget as gf
from distributed_cases import ENVIRONMENT, on_ranks, result_of, sharded, weights

RANKS = 2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards, a trained run and a request."""
    folder = tmp_path_factory.mktemp("failures")
    graph = gf.synthetic(nodes=3000, edges=18000, columns=24, classes=6, train=0.6)
    shards = sharded(graph, folder, RANKS)[RANKS]
    result_of(on_ranks(RANKS, "train", "--data", shards, "--model", "sign", "--out", folder / "run", "--json"))
    request = {"nodes": [5, 2500], "attributes": [{"node": 77}]}
    (folder / "request.json").write_text(json.dumps(request))
    return folder


def copied(place: Path, name: str) -> Path:
    """A copy of the run, with its parts."""
    run = place / name
    shutil.copytree(place / "run", run)
    shutil.copytree(place / "run.parts", place / f"{name}.parts")
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("attributes", "is not the file that was written"),
        pytest.param("missing", "is missing", marks=pytest.mark.long),
        pytest.param("version", "format 99", marks=pytest.mark.long),
    ],
)
def test_a_damaged_part_is_one_sentence_and_exit_code_2(place: Path, damage: str, words: str) -> None:
    run = copied(place, f"damaged-{damage}")
    part = next((place / f"{run.name}.parts").iterdir()) / "part-0001"
    if damage == "missing":
        (part / "training.bin").unlink()
    elif damage == "version":
        content = json.loads((part / "part.json").read_text())
        (part / "part.json").write_text(json.dumps(content | {"format": 99}))
    else:
        with (part / "attributes.bin").open("r+b") as file:
            file.seek(1000)
            file.write(b"\xff")
    done = on_ranks(RANKS, "unlearn", run, place / "request.json", "--in-place", restarts=2)
    assert done.returncode == 2
    sentences = [line for line in done.stderr.splitlines() if line.startswith("graphforget:")]
    assert len(sentences) == 1
    assert words in sentences[0]
    assert "part-0001" in sentences[0]
    assert not (run / "ledger.sqlite").exists()


@pytest.mark.slow
def test_as_many_ranks_as_parts_are_needed(place: Path) -> None:
    done = on_ranks(1, "plan", place / "run", place / "request.json")
    assert done.returncode == 2
    assert "has 2 parts, and 1 ranks were started" in done.stderr


def killed_once(
    seconds: float, *command: str | Path, torchrun: bool = False
) -> subprocess.CompletedProcess[str] | None:
    """A command by `graphforget launch` or torchrun, one of whose ranks is killed so many seconds after its start.

    None if no rank was alive any more, so that nothing was killed.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--max-restarts", "3"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    launcher += ["--monitor-interval", "0.1", "-m", "graphforget"]
    if not torchrun:
        launcher = [sys.executable, "-m", "graphforget", "launch", "--ranks", str(RANKS), "--max-restarts", "3", "--"]
    words = [*launcher, *map(str, command)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    while not children(process.pid) and process.poll() is None:  # the start of the launcher takes its time
        time.sleep(0.01)
    time.sleep(seconds)
    ranks = children(process.pid)
    if ranks:
        os.kill(random.choice(ranks), signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(words, process.returncode, out, err) if ranks else None


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def check_answered_once(run: Path, expected: Path) -> None:
    """The run has one entry, the weights of a run that nobody killed, and nothing beside it."""
    ledger = subprocess.run(
        [sys.executable, "-m", "graphforget", "ledger", str(run), "--json"], capture_output=True, text=True, check=True
    )
    assert len(json.loads(ledger.stdout)["entries"]) == 1
    assert weights(run).sub(weights(expected)).abs().max() <= 1e-2 * weights(expected).abs().max()
    assert result_of(on_ranks(RANKS, "verify", run, "--json"))["ok"] is True
    left = [path.name for path in run.parent.iterdir() if path.name.startswith(f".{run.name}.")]
    assert left == []
    assert not list((run.parent / f"{run.name}.parts").rglob("journal.bin"))


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> tuple[Path, float]:
    """The run of the request that nobody killed, and how long it took."""
    run = copied(place, "answered")
    started = time.perf_counter()
    result_of(on_ranks(RANKS, "unlearn", run, place / "request.json", "--in-place", "--json"))
    return run, time.perf_counter() - started


@pytest.mark.long
@pytest.mark.parametrize("attempt", range(10))
def test_kills_at_random_moments(place: Path, undisturbed: tuple[Path, float], attempt: int) -> None:
    """A killed rank costs a restart and nothing else. Most of the moments are after the start of Python."""
    expected, usual = undisturbed
    seconds = random.Random(attempt).uniform(0.3, 1.0) * usual
    for again in range(5):  # until a rank is alive at the moment
        run = copied(place, f"killed-{attempt}-{again}")
        done = killed_once(seconds, "unlearn", run, place / "request.json", "--in-place", "--json")
        if done is not None:
            break
        seconds *= 0.85
    assert done is not None
    assert done.returncode == 0, done.stderr
    check_answered_once(run, expected)


@pytest.mark.slow
def test_a_request_for_labels_is_refused_on_ranks_and_writes_nothing(place: Path) -> None:
    path = place / "labels.json"
    path.write_text(json.dumps({"nodes": [9], "labels": [7]}))
    before = (place / "run" / "weights.safetensors").read_bytes()
    done = on_ranks(RANKS, "unlearn", place / "run", path, "--in-place")
    assert done.returncode == 2
    assert "not labels" in done.stderr
    assert (place / "run" / "weights.safetensors").read_bytes() == before
    assert not (place / "run" / "certificate.json").exists()


@pytest.mark.long
def test_an_id_is_answered_once_and_the_files_forget(place: Path, undisturbed: tuple[Path, float]) -> None:
    """The same id gets the first answer again. No rank is killed here."""
    run = copied(place, "committed")
    before = {path.name: path.read_bytes() for path in (place / "committed.parts").rglob("part-0001/*")}
    result_of(on_ranks(RANKS, "unlearn", run, place / "request.json", "--id", "one", "--in-place", "--json"))
    again = result_of(on_ranks(RANKS, "unlearn", run, place / "request.json", "--id", "one", "--in-place", "--json"))
    assert again["repeated"] is True
    after = {path.name: path.read_bytes() for path in (place / "committed.parts").rglob("part-0001/*")}
    assert before["attributes.bin"] != after["attributes.bin"]
    check_answered_once(run, undisturbed[0])


@pytest.mark.long
def test_a_killed_training_goes_on(place: Path) -> None:
    shards = place / f"shards-{RANKS}"
    command = ("train", "--data", shards, "--model", "sign", "--out", place / "trained", "--json")
    done = killed_once(2.0, *command, torchrun=True)
    assert done is not None
    assert done.returncode == 0, done.stderr
    assert bool((weights(place / "trained") == weights(place / "run")).all())


@pytest.mark.slow
def test_parts_and_ranks_go_together(place: Path) -> None:
    with pytest.raises(gf.InputError, match="is a graph in parts"):
        gf.load(place / f"shards-{RANKS}")
    with pytest.raises(gf.InputError, match="is in parts"):
        gf.load_run(place / "run")
