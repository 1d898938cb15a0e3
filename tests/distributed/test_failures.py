"""A rank that dies, and parts that are damaged: real processes, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import graphforget as gf
from distributed_cases import (
    ENVIRONMENT,
    check_answered_once,
    children,
    copied,
    killed_once,
    on_ranks,
    result_of,
    sharded,
    weights,
)
from graphforget.distributed.part_files import part_folder
from graphforget.models import plain

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
@pytest.mark.parametrize(
    "command", ["verify", pytest.param("plan", marks=pytest.mark.long), pytest.param("train", marks=pytest.mark.long)]
)
def test_every_command_ends_with_one_sentence_and_exit_code_2(place: Path, command: str) -> None:
    """A byte of the second part was changed; for training, of the part that `shard` wrote."""
    run, shards = copied(place, f"bad-{command}"), place / f"shards-of-{command}"
    shutil.copytree(place / f"shards-{RANKS}", shards)
    parts = shards if command == "train" else next((place / f"{run.name}.parts").iterdir())
    with (part_folder(parts, 1) / "indices.bin").open("r+b") as file:
        file.seek(500)
        file.write(b"\xfe")
    words: dict[str, list[str | Path]] = {
        "verify": [run],
        "plan": [run, place / "request.json"],
        "train": ["--data", shards, "--out", place / "trained-on-damage"],
    }
    done = on_ranks(RANKS, command, *words[command], restarts=2)
    assert done.returncode == 2, done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("graphforget:")]
    assert "part-0001" in sentence
    assert "indices.bin is not the file that was written" in sentence
    assert "Traceback" not in done.stderr
    assert not (place / "trained-on-damage").exists()


@pytest.mark.long
def test_a_damaged_part_under_torchrun_ends_all_ranks(place: Path) -> None:
    """Our sentence stands once, among the words of torchrun, whose own exit code is 1. Starts again end at once."""
    run = copied(place, "damaged-torchrun")
    part = part_folder(next((place / f"{run.name}.parts").iterdir()), 1)
    with (part / "attributes.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--max-restarts", "2"]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    words += ["-m", "graphforget", "unlearn", str(run), str(place / "request.json"), "--in-place"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    seen: set[int] = set()
    late = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < late:
        seen |= set(children(process.pid))
        time.sleep(0.05)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 1
    (sentence,) = [line for line in stderr.splitlines() if line.startswith("graphforget:")]
    assert "part-0001" in sentence
    assert "attributes.bin is not the file that was written" in sentence
    assert len(seen) >= RANKS
    assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]
    assert not (run / "ledger.sqlite").exists()


@pytest.mark.slow
def test_a_rank_with_other_versions_is_one_sentence_and_exit_code_2(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 alone takes its Python for another one."""
    code = "import os, platform\nif os.environ.get('RANK') == '1':\n    platform.python_version = lambda: '3.0.0'\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), *filter(None, [ENVIRONMENT.get("PYTHONPATH")])])
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", path)
    run = copied(place, "other-versions")
    done = on_ranks(RANKS, "unlearn", run, place / "request.json", "--in-place", restarts=2)
    assert done.returncode == 2, done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("graphforget:")]
    assert f"rank 1 has python 3.0.0, rank 0 has {platform.python_version()}: all ranks need the same" in sentence
    assert "Traceback" not in done.stderr
    assert not (run / "ledger.sqlite").exists()


@pytest.mark.slow
def test_as_many_ranks_as_parts_are_needed(place: Path) -> None:
    done = on_ranks(1, "plan", place / "run", place / "request.json")
    assert done.returncode == 2
    assert "has 2 parts, and 1 ranks were started" in done.stderr


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
        done = killed_once(seconds, "unlearn", run, place / "request.json", "--in-place", "--json", ranks=RANKS)
        if done is not None:
            break
        seconds *= 0.85
    assert done is not None
    assert done.returncode == 0, done.stderr
    check_answered_once(run, expected, ranks=RANKS)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run on four ranks with a request, the run after it that nobody killed, and how long that took."""
    folder = tmp_path_factory.mktemp("four")
    graph = gf.synthetic(nodes=2000, edges=12000, columns=15, classes=5, train=0.6)
    shards = sharded(graph, folder, 4)[4]
    result_of(on_ranks(4, "train", "--data", shards, "--model", "sgc", "--out", folder / "run", "--json"))
    (folder / "request.json").write_text(json.dumps({"nodes": [5, 1900], "attributes": [{"node": 77}]}))
    run = copied(folder, "answered")
    started = time.perf_counter()
    result_of(on_ranks(4, "unlearn", run, folder / "request.json", "--in-place", "--json"))
    return folder, time.perf_counter() - started


@pytest.mark.long
@pytest.mark.parametrize("attempt", range(10))
def test_kills_at_random_moments_under_torchrun(four: tuple[Path, float], attempt: int) -> None:
    """Four ranks of torchrun itself, with and without a store of their own for each start."""
    place, usual = four
    seconds = random.Random(attempt).uniform(0.3, 1.0) * usual
    shared = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(attempt % 2)}
    for again in range(5):  # until a rank is alive at the moment
        run = copied(place, f"killed-{attempt}-{again}")
        command = ("unlearn", run, place / "request.json", "--in-place", "--json")
        done = killed_once(seconds, *command, ranks=4, torchrun=True, more=shared)
        if done is not None:
            break
        seconds *= 0.85
    assert done is not None
    assert done.returncode == 0, done.stderr
    check_answered_once(run, place / "answered", ranks=4, beside=(f".{run.name}.graphforget-pending",))


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
    check_answered_once(run, undisturbed[0], ranks=RANKS)


@pytest.mark.long
def test_a_killed_training_goes_on(place: Path) -> None:
    shards = place / f"shards-{RANKS}"
    command = ("train", "--data", shards, "--model", "sign", "--out", place / "trained", "--json")
    done = killed_once(2.0, *command, ranks=RANKS, torchrun=True)
    assert done is not None
    assert done.returncode == 0, done.stderr
    assert bool((weights(place / "trained") == weights(place / "run")).all())


KILLS_ITSELF = """
import os, signal
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "graphforget.distributed.checkpoint":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def loaded(module):
            run(module)
            write = module.Checkpoint.write

            def written(place, key, point, *, steps, products):
                write(place, key, point, steps=steps, products=products)
                attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
                with open(os.environ["STEPS"], "a") as file:
                    file.write(f"{attempt} {steps}\\n")
                if attempt == "0" and steps == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

            module.Checkpoint.write = written

        spec.loader.exec_module = loaded
        return spec

import sys
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.long
def test_a_killed_group_takes_the_steps_that_are_left(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 is killed by -9 right after its second checkpoint. The next start begins with the third step."""
    (tmp_path / "sitecustomize.py").write_text(KILLS_ITSELF)
    path = os.pathsep.join([str(tmp_path), *filter(None, [ENVIRONMENT.get("PYTHONPATH")])])
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", path)
    monkeypatch.setitem(ENVIRONMENT, "STEPS", str(tmp_path / "steps"))
    command = ("train", "--data", place / f"shards-{RANKS}", "--model", "sign", "--out", place / "went-on", "--json")
    done = on_ranks(RANKS, *command, restarts=1)
    assert done.returncode == 0, done.stderr
    assert "rank 0 was killed by signal 9" in done.stderr
    steps = [tuple(map(int, line.split())) for line in (tmp_path / "steps").read_text().splitlines()]
    last = steps[-1][1]
    assert last > 2
    assert steps == [(0, 1), (0, 2), *((1, step) for step in range(3, last + 1))]
    assert bool((weights(place / "went-on") == weights(place / "run")).all())


@pytest.mark.slow
def test_a_released_model_is_exported_in_one_process(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    """The graph stays in its parts. The logits are those of one machine with the released weights."""
    run = undisturbed[0]
    folder = gf.export_released(run, tmp_path / "served")
    served = plain.load(folder / "model.pt")
    graph = gf.synthetic(nodes=3000, edges=18000, columns=24, classes=6, train=0.6)
    released = load_file(run / "released.safetensors")["theta"]
    expected = gf.train(graph, "sign").with_weights(released).logits(graph)
    with torch.no_grad():
        logits = served(graph.x.to_dense().double(), graph.edge_index)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    assert served.certificate == gf.Certificate.read(run / "certificate.json").id
    changed = copied(run.parent, "changed-release", of=run.name)
    save_file({"theta": released[:-1]}, changed / "released.safetensors")
    with pytest.raises(gf.InputError, match="does not hold as many weights"):
        gf.export_released(changed, tmp_path / "other")


@pytest.mark.slow
def test_a_run_in_parts_that_has_released_nothing_is_not_exported(place: Path, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="has not answered any request"):
        gf.export_released(place / "run", tmp_path / "served")
    with pytest.raises(gf.InputError, match="what works with it is train, plan, unlearn, verify and prove-absence"):
        gf.predict_run(place / "run")


@pytest.mark.slow
def test_parts_and_ranks_go_together(place: Path) -> None:
    with pytest.raises(gf.InputError, match="is a graph in parts"):
        gf.load(place / f"shards-{RANKS}")
    with pytest.raises(gf.InputError, match="is in parts"):
        gf.load_run(place / "run")
