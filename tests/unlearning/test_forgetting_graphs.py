"""Forgetting in collections of graphs, against retraining: the certificate's ball, chains, replay, files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import graphforget as gf
from cases import claim_of
from collection_cases import random_collection, random_request
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.linalg.newton import newton_cg
from graphforget.models.items import items_of
from graphforget.runs.write import rewrite_checksums
from graphforget.training.objective import Objective

MODELS: dict[str, dict[str, Any]] = {"graph-wl": {"rounds": 2, "buckets": 64}, "graph-sign": {"hops": 2}}


def optimum(trained: gf.Trained, graph: gf.Graph) -> Tensor:
    """Trained from 0 on the retained collection, as far as float64 goes; a module of its own, nothing shared."""
    fresh = gf.train(graph, trained.recipe.model, mu=trained.recipe.mu, **trained.recipe.options)
    objective = Objective(fresh.module, graph, mu=trained.recipe.mu)
    found = newton_cg(objective, torch.zeros_like(trained.theta), gradient_tolerance=1e-12)
    assert found.gradient_norm <= 1e-10
    return found.theta


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = list(MODELS)[seed % 2]
    graph = random_collection(
        seed,
        graphs=int(rng.integers(6, 14)),
        sparse=bool(rng.integers(2)),
        directed=bool(rng.integers(2)),
        ids=bool(rng.integers(2)),
        mixed=bool(rng.integers(2)),
    )
    mu, sigma = float(rng.choice([1e-4, 1e-2, 1.0])), float(rng.choice([0.02, 0.5, 10.0]))
    releases = int(rng.choice([1, 4, 64]))
    left = float(rng.choice([1e-5, 10.0]))
    trained = gf.train(graph, model, mu=mu, sigma=sigma, releases=releases, tolerance=left, **MODELS[model])
    for number in range(2):
        outcome = gf.unlearn(trained, graph, random_request(graph, seed + 10**6 * number), method="newton")
        assert outcome.level == "certified"
        claim_of(outcome, ResidualBall)
        away = float((outcome.centre - optimum(trained, outcome.graph)).norm())
        assert away <= outcome.measured["distance"] + 1e-10 / mu  # what the oracle may be off by
        assert outcome.measured["distance"] <= outcome.certificate.tolerance
        gf.verify(
            outcome.certificate,
            outcome.trained,
            outcome.graph,
            released=outcome.released_theta,
            annexes=[outcome.annex],
        )
        if outcome.trained.items(outcome.graph).train_rows.numel() < 3 or releases == 1:
            return
        trained, graph = outcome.trained, outcome.graph


@pytest.mark.parametrize("seed", range(12))
def test_the_ball_holds_the_optimum_of_the_retained_collection(seed: int, one_thread: None) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_the_ball_holds_the_optimum_in_five_hundred_cases(part: int, one_thread: None) -> None:
    for seed in range(1000 + 50 * part, 1050 + 50 * part):
        check(seed)


@pytest.mark.parametrize("model", MODELS)
def test_retraining_is_training_on_what_remains(model: str) -> None:
    graph = random_collection(2, graphs=20)
    request = random_request(graph, 2)
    trained = gf.train(graph, model, sigma=0.0, **MODELS[model])
    outcome = gf.unlearn(trained, graph, request, method="retrain")
    fresh = gf.train(graph.without(request), model, sigma=0.0, **MODELS[model])
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, fresh.theta)
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex], replay=True)
    other = outcome.trained.theta.clone()
    other[0] += 1e-12
    cheat = dataclasses.replace(outcome.trained, theta=other)
    with pytest.raises(gf.Mismatch):
        gf.verify(outcome.certificate, cheat, outcome.graph, replay=True)


@pytest.mark.parametrize("model", MODELS)
def test_a_test_graph_leaves_the_weights_as_they_are(model: str) -> None:
    graph = random_collection(2, graphs=20)
    trained = gf.train(graph, model, sigma=0.0, **MODELS[model])
    items = items_of(trained.module, graph)
    outcome = gf.unlearn(trained, graph, gf.Request(graphs=[int(items.keys[items.test_mask][0])]))
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, trained.theta)


def test_a_plan_counts_graphs() -> None:
    graph = random_collection(2, graphs=20)
    trained = gf.train(graph, "wl", **MODELS["graph-wl"])
    items = items_of(trained.module, graph)
    goes, loses = items.keys[items.train_mask][:2].tolist()
    request = gf.Request(graphs=[goes], attributes={graph.nodes_of(loses)[0]: "all"})
    plan = gf.plan(trained, graph, request)
    m = int(items.train_mask.sum())
    assert (plan.nodes, plan.training_nodes) == (len(graph.nodes_of(goes)), 1)
    assert plan.affected_by["graphs"] == 0
    assert plan.affected == plan.affected_by["attributes"]
    assert plan.untouched == m - 1 - plan.affected
    assert plan.level == "certified"


# -- run directories -------------------------------------------------------------------------------------------------


def test_a_run_directory_holds_a_collection(tmp_path: Path) -> None:
    graph = random_collection(2, graphs=20, ids=True)
    trained = gf.train(graph, "wl", **MODELS["graph-wl"])
    gf.save_run(tmp_path / "run", trained, graph)
    again, same = gf.load_run(tmp_path / "run")
    assert same.digest == graph.digest
    assert torch.equal(again.theta, trained.theta)
    assert same.graph_ids == graph.graph_ids


def spoilt(content: dict[str, Tensor], how: str) -> dict[str, Tensor]:
    numbers = content["graph_numbers"]
    if how == "missing":
        return {name: part for name, part in content.items() if name != "graph_numbers"}
    changes = {"swapped": numbers.flip(0), "short": numbers[1:], "float": numbers.double(), "other": numbers + 1}
    return content | {"graph_numbers": changes[how].contiguous()}


@pytest.mark.parametrize("how", ["missing", "swapped", "short", "float", "other"])
def test_spoilt_graph_numbers_are_refused(how: str, tmp_path: Path) -> None:
    graph = random_collection(2, graphs=20)
    gf.save_run(tmp_path / "run", gf.train(graph, "wl", **MODELS["graph-wl"]), graph)
    file = tmp_path / "run" / "graph.safetensors"
    save_file(spoilt(load_file(file), how), file)
    rewrite_checksums(tmp_path / "run")
    with pytest.raises(gf.InputError, match="damaged|does not fit|no collection"):
        gf.load_run(tmp_path / "run")


def test_other_graphs_have_the_files_that_they_had(tmp_path: Path) -> None:
    graph = gf.load("patients")
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    assert "graph_numbers" not in load_file(tmp_path / "run" / "graph.safetensors")
    assert "graph_ids" not in (tmp_path / "run" / "graph.json").read_text()
