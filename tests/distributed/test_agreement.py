"""Real processes by torchrun: the number of ranks changes no bit, and one machine gives the same.

The width of rows is odd, so that neither columns nor bytes of a row are shared out evenly.
"""

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

PROGRAM = Path(__file__).parents[1] / "distributed_program.py"
RANKS = (1, 2, 3, 4)
PUBLIC = ("level", "claim", "model", "objective", "settings", "training_nodes", "releases_left", "algorithms", "words")


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return gf.synthetic(nodes=1500, edges=9000, columns=13, classes=4, train=0.6)


@pytest.fixture(scope="module")
def request_(graph: gf.Graph) -> gf.Request:
    """Nodes, an edge between two parts, all and single attributes, on every rank of four."""
    sender, receiver = next(pair for pair in graph.edge_index.T.tolist() if pair[0] < 300 and pair[1] > 1300)
    named: Any = {42: "all", 1200: [0, 3]}
    return gf.Request(nodes=[17, 700, 1400], edges=[(sender, receiver)], attributes=named)


@pytest.fixture(scope="module")
def second(graph: gf.Graph, request_: gf.Request) -> gf.Request:
    """A node, an edge, a single attribute and labels of what the first request leaves."""
    pairs = graph.without(request_).edge_index.T.tolist()
    left = graph.without(request_).numbers.tolist()
    sender, receiver = (left[end] for end in pairs[len(pairs) // 2])
    return gf.Request(nodes=[1000], edges=[(sender, receiver)], attributes={55: [1]}, labels=[900, 1201])


@pytest.fixture(scope="module")
def results(
    graph: gf.Graph, request_: gf.Request, second: gf.Request, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Any]:
    """What the program printed on 1 to 4 ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = [folder / "first.json", folder / "second.json"]
    for path, one in zip(paths, (request_, second), strict=True):
        path.write_text(json.dumps(one.to_dict()))
    printed = {}
    for number, shards in sharded(graph, folder, *RANKS).items():
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(number)]
        launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        words = [*launcher, str(PROGRAM), str(shards), str(folder / f"runs-{number}"), *map(str, paths)]
        done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        printed[number] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign"])
def test_the_number_of_ranks_changes_no_bit(results: dict[int, Any], model: str) -> None:
    one = results[1][model]
    for number in RANKS[1:]:
        other = results[number][model]
        assert other["theta"] == one["theta"]
        for step in ("after", "later"):
            assert other[step] == one[step]
        assert other["digest"] == one["digest"]
        assert other["score"] == one["score"]
        for name in PUBLIC:
            assert other["certificate"].get(name) == one["certificate"].get(name), name


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign"])
def test_one_machine_agrees(results: dict[int, Any], graph: gf.Graph, request_: gf.Request, model: str) -> None:
    trained = gf.train(graph, model)
    outcome = gf.unlearn(trained, graph, request_)
    ranks = results[4][model]
    assert ranks["digest"] == graph.digest
    assert ranks["after"]["digest"] == outcome.graph.digest
    assert ranks["after"]["footprint"] == outcome.private()["footprint"]
    apart = float((torch.tensor(ranks["after"]["theta"], dtype=torch.float64) - outcome.trained.theta).norm())
    assert apart <= 2 * (ranks["after"]["distance"] + outcome.measured["distance"])  # both balls hold one optimum
    assert (
        float((torch.tensor(ranks["theta"], dtype=torch.float64) - trained.theta).norm())
        <= 2 * trained.recipe.tolerance
    )
    certificate = outcome.certificate.to_dict()
    for name in ("level", "claim", "settings", "training_nodes", "releases_left"):
        assert ranks["certificate"].get(name) == certificate.get(name), name
    assert ranks["score"] == pytest.approx(trained.utility(graph), abs=1e-12)
    planned = gf.plan(trained, graph, request_).to_dict()
    for name in ("method", "level", "nodes", "training_nodes", "edges", "values", "affected", "untouched"):
        assert ranks["plan"][name] == planned[name], name


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign"])
def test_one_machine_with_products_in_float64_is_within_a_billionth(
    results: dict[int, Any],
    graph: gf.Graph,
    request_: gf.Request,
    second: gf.Request,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same Newton steps on both, and rounding errors alone between them."""
    monkeypatch.setattr("graphforget.training.objective.SMALLEST_SINGLE_MU", math.inf)  # no products in float32
    trained = gf.train(graph, model)
    first = gf.unlearn(trained, graph, request_)
    later = gf.unlearn(first.trained, first.graph, second)
    ranks = results[4][model]
    for theta, name in ((trained.theta, None), (first.trained.theta, "after"), (later.trained.theta, "later")):
        other = torch.tensor(ranks["theta"] if name is None else ranks[name]["theta"], dtype=torch.float64)
        assert float((other - theta).norm()) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign"])
def test_the_ball_of_ranks_holds_the_optimum(
    results: dict[int, Any], graph: gf.Graph, request_: gf.Request, second: gf.Request, model: str
) -> None:
    """Against training on the retained graph on one machine, far closer to its optimum than the ball is wide."""
    retained = graph
    for request, step in ((request_, "after"), (second, "later")):
        retained = retained.without(request)
        optimum = gf.train(retained, model, tolerance=1e-7)
        ball = results[4][model][step]
        apart = float((torch.tensor(ball["centre"], dtype=torch.float64) - optimum.theta).norm())
        assert ball["distance"] > 1e-5
        assert apart <= ball["distance"] + 1e-7


@pytest.mark.slow
def test_an_answer_is_repeated_and_verified(results: dict[int, Any]) -> None:
    for result in results.values():
        for model in ("sgc", "sign"):
            assert result[model]["repeated"] is True
            assert result[model]["checks"] >= 7


@pytest.mark.slow
def test_what_is_sent_is_counted(results: dict[int, Any]) -> None:
    assert not any(rank["sent"].get("propagation") for rank in results[1]["counters"])
    for number in RANKS[1:]:
        assert all(rank["sent"]["propagation"] > 0 for rank in results[number]["counters"])
        assert all(rank["sent"]["product"] > 0 for rank in results[number]["counters"])
