"""Stacked models on real ranks: encoders of one machine, bit for bit, and a head that no number of ranks changes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from distributed_cases import ENVIRONMENT, sharded
from distributed_stacked_program import EPOCHS, encoders_of
from graphforget.models.registry import build
from graphforget.models.stacked import Stacked

PROGRAM = Path(__file__).parents[1] / "distributed_stacked_program.py"
RANKS = (1, 2, 4)
MODELS = ("stacked-gcn", "stacked-gat", "stacked-gin", "stacked-sage")
KINDS = ("mixture", "node", "edge between parts", "edge in a part", "attributes", "label")
PUBLIC = ("level", "claim", "model", "objective", "settings", "training_nodes", "releases_left", "algorithms", "words")


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return gf.synthetic(nodes=300, edges=1500, columns=7, classes=3, train=0.6, signal=2.0)


@pytest.fixture(scope="module")
def part_of(graph: gf.Graph) -> list[int]:
    """The part of each node."""
    module = build("stacked-gcn", columns=graph.num_columns, classes=graph.num_classes)
    assert isinstance(module, Stacked)
    return module.part_of(graph, seed=0).tolist()


@pytest.fixture(scope="module")
def requests(graph: gf.Graph, part_of: list[int]) -> dict[str, gf.Request]:
    """One of each kind, and a mixture. None names what an earlier one deletes."""
    pairs = [pair for pair in graph.edge_index.T.tolist() if 17 not in pair]
    trains = graph.train_rows.tolist()
    between = next(pair for pair in pairs if part_of[pair[0]] != part_of[pair[1]] and pair[0] < 60 and pair[1] > 200)
    inside = next(pair for pair in pairs if part_of[pair[0]] == part_of[pair[1]] and pair[0] < 60 and pair[1] > 200)
    others = [pair for pair in pairs if not {*pair} & {17, *between, *inside, 31, 250}]
    named: Any = {42: "all", 130: [0, 3]}
    mixed: Any = {"nodes": [31, 250], "edges": [tuple(others[7])], "attributes": {99: "all"}, "labels": [trains[3]]}
    return {
        "mixture": gf.Request(**mixed),
        "node": gf.Request(nodes=[17]),
        "edge between parts": gf.Request(edges=[tuple(between)]),
        "edge in a part": gf.Request(edges=[tuple(inside)]),
        "attributes": gf.Request(attributes=named),
        "label": gf.Request(labels=[next(node for node in trains if node > 150)]),
    }


Results = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def results(graph: gf.Graph, requests: dict[str, gf.Request], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What the program printed: `stacked-gcn` with two requests on every number of ranks, on two ranks with all."""
    folder = tmp_path_factory.mktemp("stacked")
    paths = [folder / f"request-{number}.json" for number in range(len(requests))]
    for path, request in zip(paths, requests.values(), strict=True):
        path.write_text(json.dumps(request.to_dict()))
    places, printed = sharded(graph, folder, *RANKS), {}
    for number in RANKS:
        models = {"stacked-gcn": 2} if number != 2 else {"stacked-gcn": len(KINDS)} | dict.fromkeys(MODELS[1:], 1)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(number)]
        launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        launcher += [str(PROGRAM), str(places[number]), str(folder / f"runs-{number}"), json.dumps(models)]
        words = [*launcher, *map(str, paths)]
        done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        printed[number] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed


def on_one_machine(graph: gf.Graph, model: str, requests: list[gf.Request]) -> tuple[gf.Trained, list[gf.Outcome]]:
    trained = gf.train(graph, model, epochs=EPOCHS)
    outcomes: list[gf.Outcome] = []
    for request in requests:
        before = outcomes[-1] if outcomes else None
        given = (trained, graph) if before is None else (before.trained, before.graph)
        outcomes.append(gf.unlearn(*given, request))
    return trained, outcomes


def apart(first: list[float], second: torch.Tensor) -> float:
    return float((torch.tensor(first, dtype=torch.float64) - second).norm())


@pytest.mark.slow
def test_the_number_of_ranks_changes_no_bit(results: Results) -> None:
    one = results[1]["stacked-gcn"]
    for number in RANKS[1:]:
        other = results[number]["stacked-gcn"]
        for name in ("theta", "encoders", "digest", "score"):
            assert other[name] == one[name], name
        for kind, step, same in zip(KINDS[:2], other["steps"][:2], one["steps"], strict=True):
            for name in ("theta", "encoders", "centre", "distance", "digest", "renewed"):
                assert step[name] == same[name], (kind, name)
            for name in PUBLIC:
                assert step["certificate"].get(name) == same["certificate"].get(name), (kind, name)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_one_machine_agrees(results: Results, graph: gf.Graph, requests: dict[str, gf.Request], model: str) -> None:
    """Encoders are the same bits, and heads are in one ball."""
    ranks = results[2][model]
    trained, outcomes = on_one_machine(graph, model, list(requests.values())[: len(ranks["steps"])])
    assert ranks["encoders"] == encoders_of(trained)
    assert apart(ranks["theta"], trained.theta) <= 2 * trained.recipe.tolerance
    assert ranks["score"] == pytest.approx(trained.utility(graph), abs=1e-12)
    assert outcomes
    for outcome, step in zip(outcomes, ranks["steps"], strict=True):
        assert step["digest"] == outcome.graph.digest
        assert step["encoders"] == encoders_of(outcome.trained)
        assert step["renewed"] == outcome.details["renewed"]
        assert apart(step["theta"], outcome.trained.theta) <= 2 * (step["distance"] + outcome.measured["distance"])
        certificate = outcome.certificate.to_dict()
        for name in ("level", "claim", "objective", "settings", "training_nodes", "releases_left"):
            assert step["certificate"].get(name) == certificate.get(name), name
        assert step["certificate"]["level"] == "certified"


@pytest.mark.slow
def test_the_plan_is_that_of_one_machine(results: Results, graph: gf.Graph, requests: dict[str, gf.Request]) -> None:
    trained = gf.train(graph, "stacked-gcn", epochs=EPOCHS)
    planned = gf.plan(trained, graph, requests[KINDS[0]]).to_dict()
    counted = ("nodes", "training_nodes", "edges", "values", "labels", "affected", "untouched")
    for name in ("method", "level", "encoders", "renewed_encoders", *counted):
        assert results[2]["stacked-gcn"]["plan"][name] == planned[name], name
    of_one_kind = gf.plan(trained, graph, requests[KINDS[1]]).to_dict()
    for name in ("affected", "affected_by"):
        assert results[2]["stacked-gcn"]["plan of one kind"][name] == of_one_kind[name] != 0, name


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_one_machine_with_products_in_float64_is_within_a_billionth(
    results: Results,
    graph: gf.Graph,
    requests: dict[str, gf.Request],
    model: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphforget.training.objective.SMALLEST_SINGLE_MU", math.inf)  # no products in float32
    ranks = results[2][model]
    trained, outcomes = on_one_machine(graph, model, list(requests.values())[: len(ranks["steps"])])
    assert apart(ranks["theta"], trained.theta) <= 1e-9
    for outcome, step in zip(outcomes, ranks["steps"], strict=True):
        assert apart(step["theta"], outcome.trained.theta) <= 1e-9


@pytest.mark.slow
def test_only_touched_parts_have_another_encoder(
    results: Results, requests: dict[str, gf.Request], part_of: list[int]
) -> None:
    ranks = results[2]["stacked-gcn"]
    before, renewed = ranks["encoders"], {}
    for kind, step in zip(KINDS, ranks["steps"], strict=True):
        request = requests[kind]
        ends = {part_of[int(u)] for u, v in request.edges if part_of[int(u)] == part_of[int(v)]}
        named = {part_of[int(node)] for node in (*request.nodes, *request.attributes, *request.labels)} | ends
        names = {name.split(".")[1] for name, digest in step["encoders"].items() if before[name] != digest}
        other = {int(name) for name in names if name.isdigit()}  # and the scales of all
        assert other <= named, kind
        assert step["renewed"] == len(other), kind
        before, renewed[kind] = step["encoders"], len(other)
    assert renewed["edge between parts"] == 0
    assert renewed["mixture"] >= 2


@pytest.mark.slow
def test_the_ball_of_ranks_holds_the_optimum(
    results: Results, graph: gf.Graph, requests: dict[str, gf.Request]
) -> None:
    """Against training on the retained graph on one machine, far closer to its optimum than the ball is wide."""
    retained, scale = graph, gf.train(graph, "stacked-gcn", epochs=1).recipe.options["attribute_scale"]
    for kind, step in zip(KINDS, results[2]["stacked-gcn"]["steps"], strict=True):
        retained = retained.without(requests[kind])
        optimum = gf.train(retained, "stacked-gcn", epochs=EPOCHS, tolerance=1e-7, attribute_scale=scale)
        assert step["encoders"] == encoders_of(optimum), kind
        assert apart(step["centre"], optimum.theta) <= step["distance"] + 1e-7, kind


@pytest.mark.slow
def test_training_anew_gives_the_same_encoders_and_claim(results: Results) -> None:
    """If one Newton step is not enough, everything is trained from 0 on the ranks, with one claim."""
    result = results[2]["stacked-gcn"]
    fallback, step = result["fallback"], result["steps"][0]
    assert fallback["retrained"] is True
    for name in ("encoders", "digest"):
        assert fallback[name] == step[name]
    for name in PUBLIC:
        if name != "algorithms":  # a rehearsal has no trees from which absence is shown
            assert fallback["certificate"].get(name) == step["certificate"].get(name), name
    centre = torch.tensor(step["centre"], dtype=torch.float64)
    assert apart(fallback["centre"], centre) <= fallback["distance"] + step["distance"]


@pytest.mark.slow
def test_answers_are_repeated_verified_and_counted(results: Results) -> None:
    result = results[2]["stacked-gcn"]
    assert result["repeated"] is True
    assert {"claim", "weights", "released weights", "deleted data", "ledger"} <= {*result["checks"]}
    for number in RANKS:
        for rank in results[number]["counters"]:
            for purpose in ("encoders", "embeddings", "product"):
                assert (rank["sent"].get(purpose, 0) > 0) == (number > 1), purpose
