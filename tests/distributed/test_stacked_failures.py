"""A rank of a stacked model that dies: one answer, one entry, and the encoders and weights of a run without a kill."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import graphforget as gf
from distributed_cases import check_answered_once, copied, killed_once, on_ranks, result_of, sharded
from graphforget.models import plain

RANKS = 2
TRAIN = ("--model", "stacked-gcn", "--epochs", "8", "--hidden", "8", "--option", "parts=3", "--json")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Shards, a trained run, the run after a request that nobody killed, and how long the request took."""
    folder = tmp_path_factory.mktemp("stacked-failures")
    graph = gf.synthetic(nodes=800, edges=4000, columns=12, classes=4, train=0.6)
    shards = sharded(graph, folder, RANKS)[RANKS]
    result_of(on_ranks(RANKS, "train", "--data", shards, "--out", folder / "run", *TRAIN))
    request = {"nodes": [5, 700], "attributes": [{"node": 77}], "labels": [400]}
    (folder / "request.json").write_text(json.dumps(request))
    run = copied(folder, "answered")
    started = time.perf_counter()
    result_of(on_ranks(RANKS, "unlearn", run, folder / "request.json", "--in-place", "--json"))
    return folder, time.perf_counter() - started


def check_same_tensors(run: Path, expected: Path) -> None:
    """The head, the encoders and their scales, to the bit."""
    first, second = (load_file(one / "weights.safetensors") for one in (run, expected))
    assert first.keys() == second.keys()
    assert any(name.endswith("encoders.2.first_bias") for name in first)
    for name, value in first.items():
        assert bool((value == second[name]).all()), name


@pytest.mark.long
@pytest.mark.parametrize("attempt", range(6))
def test_kills_at_random_moments(place: tuple[Path, float], attempt: int) -> None:
    folder, usual = place
    seconds = random.Random(attempt).uniform(0.4, 1.0) * usual
    for again in range(5):  # until a rank is alive at the moment
        run = copied(folder, f"killed-{attempt}-{again}")
        done = killed_once(
            seconds, "unlearn", run, folder / "request.json", "--in-place", "--json", ranks=RANKS, torchrun=False
        )
        if done is not None:
            break
        seconds *= 0.85
    assert done is not None
    assert done.returncode == 0, done.stderr
    check_answered_once(run, folder / "answered", ranks=RANKS)
    check_same_tensors(run, folder / "answered")


@pytest.mark.long
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_killed_training_goes_on(place: tuple[Path, float], share: float) -> None:
    folder, usual = place
    seconds = share * usual
    for again in range(8):  # until a rank is alive at the moment: the machine may be faster now
        out = folder / f"trained-{share}-{again}"
        command = ("train", "--data", folder / f"shards-{RANKS}", "--out", out, *TRAIN)
        done = killed_once(seconds, *command, ranks=RANKS)
        if done is not None:
            break
        seconds *= 0.8
    assert done is not None
    assert done.returncode == 0, done.stderr
    check_same_tensors(out, folder / "run")


@pytest.mark.long
def test_what_ranks_cannot_do_is_one_sentence(place: tuple[Path, float]) -> None:
    folder, _ = place
    shards = folder / f"shards-{RANKS}"
    for more in (("--option", "batch_size=16"), ("--option", "num_neighbors=[2,2]")):
        done = on_ranks(RANKS, "train", "--data", shards, "--model", "stacked-gcn", *more)
        assert done.returncode == 2
        (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("graphforget:")]
        assert "several ranks" in sentence
    done = on_ranks(RANKS, "verify", folder / "answered", "--replay")
    assert done.returncode == 2
    assert "--replay is not possible on several ranks" in done.stderr


@pytest.mark.long
def test_the_released_model_is_exported_with_its_encoders(place: tuple[Path, float], tmp_path: Path) -> None:
    """In one process, against an answer on one machine whose head is the released one."""
    run = place[0] / "answered"
    served = plain.load(gf.export_released(run, tmp_path / "served") / "model.pt")
    graph = gf.synthetic(nodes=800, edges=4000, columns=12, classes=4, train=0.6)
    trained = gf.train(graph, "stacked-gcn", epochs=8, hidden=8, parts=3)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[5, 700], attributes={77: "all"}, labels=[400]))
    expected = outcome.trained.with_weights(load_file(run / "released.safetensors")["theta"]).logits(outcome.graph)
    with torch.no_grad():
        logits = served(outcome.graph.x.to_dense().double(), outcome.graph.edge_index)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
