"""OpenGU's protocol, the benchmark of 2026 and the newer attacks: splits, requests, choices, numbers of the cells."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from graphforget.errors import InputError
from graphforget.experiments import benchmark_2026, newer_attacks, opengu, table1, table_edge_accuracy
from graphforget.experiments.machine import commit
from graphforget.experiments.memory import with_peak_memory
from graphforget.experiments.paper import published
from graphforget.experiments.random_splits import WORKLOADS, node_request, split_graph
from graphforget.experiments.table import MISSING
from graphforget.experiments.unlearned import contestants
from graphforget.training.retraining import trained_anew

pytestmark = pytest.mark.usefixtures("one_thread")
N = 569


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return split_graph("patients", 1)


def test_the_split_has_four_fifths_of_all_nodes(graph: gf.Graph) -> None:
    assert int(graph.train_mask.sum()) == int(0.8 * N)
    assert int(graph.test_mask.sum()) == N - int(0.8 * N)
    assert not (graph.train_mask & graph.test_mask).any()
    assert not torch.equal(graph.train_mask, split_graph("patients", 2).train_mask)


def test_workloads_name_training_nodes_of_their_kind(graph: gf.Graph) -> None:
    degrees = torch.bincount(graph.edge_index[1], minlength=N)
    train = graph.train_rows
    sizes = torch.bincount(graph.y[train])
    for workload in WORKLOADS:
        request = node_request(graph, workload, seed=0)
        rows = request.resolve(graph).node_rows
        assert len(rows) == int(0.1 * N)
        assert graph.train_mask[rows].all()
        if workload == "most frequent class":
            assert set(graph.y[rows].tolist()) == {int(sizes.argmax())}
        if workload == "second class":
            assert set(graph.y[rows].tolist()) == {int(sizes.argmin())}
        others = train[~torch.isin(train, rows)]
        if workload == "highest degree":
            assert int(degrees[rows].min()) >= int(degrees[others].max())
        if workload == "lowest degree":
            assert int(degrees[rows].max()) <= int(degrees[others].min())
    with pytest.raises(InputError, match="no workload"):
        node_request(graph, "oldest", seed=0)


def test_settings_are_chosen_without_test_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other test labels change the score and not the choice."""
    monkeypatch.setitem(opengu.CHOSEN, "sign", [{"hops": 2, "mu": 1e-4}, {"hops": 2, "mu": 10.0}])
    rows = []
    for flip in (False, True):
        graph = split_graph("patients", 0)
        labels = torch.where(graph.test_mask & flip, 1 - graph.y, graph.y)
        changed = dataclasses.replace(graph, y=labels)
        monkeypatch.setattr(opengu, "split_graph", lambda data, seed, changed=changed: changed)
        rows.append(opengu.chosen_nodes(store=tmp_path, part="chosen", data="patients", model="sign", seed=0))
    assert [row["chosen mu"] for row in rows] == [1e-4, 1e-4]
    assert rows[0]["score"] > 80 > 20 > rows[1]["score"]
    assert rows[0]["level"] == "certified"


@pytest.mark.parametrize("model", opengu.LINK_MODELS)
@pytest.mark.parametrize("releases", [1, 64])
def test_links_are_released_with_a_certificate(
    model: str, releases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[gf.Outcome] = []
    unlearn = gf.unlearn

    def watching(*given: Any) -> gf.Outcome:
        outcomes.append(unlearn(*given))
        return outcomes[-1]

    monkeypatch.setattr(gf, "unlearn", watching)
    monkeypatch.setattr(opengu, "ONE_RELEASE", "patients" if releases == 1 else "physics")
    row = opengu.links(store=tmp_path, part="link", data="patients", model=model, seed=0)
    (outcome,) = outcomes
    assert outcome.trained.recipe.releases == releases
    assert row == {"level": "certified", "score": 100 * outcome.released.scores(outcome.graph)["auc"]}
    assert 50 < row["score"] <= 100
    # A tenth of the edges that are not held out for test (20 %) or validation (5 %).
    assert 2140 - outcome.graph.num_edges == pytest.approx(0.1 * 0.75 * 2140, rel=0.05)


@pytest.mark.parametrize("model", opengu.GRAPH_MODELS)
def test_every_graph_model_has_a_row(model: str) -> None:
    rows = [{"part": "graph", "data": "mutag", "model": model, "seed": 0, "score": 80.0}]
    texts = {line[1]: line for line in opengu.table(rows).texts if line[0].startswith("graph")}
    assert "80.0*" in texts[f"{model}, certified, released"]


def test_the_best_epoch_is_no_worse_than_the_last(tmp_path: Path) -> None:
    row = opengu.adam_nodes(store=tmp_path, part="adam", data="patients", model="sgc", seed=0)
    assert row["best"] >= row["last"] > 80


def test_published_numbers_of_opengu_by_hand() -> None:
    for path, value in {
        ("node", "SGU", "cora"): 89.26,
        ("node", "best", "citeseer"): 77.00,
        ("node", "CEU", "pubmed"): 86.91,
        ("node", "SGU", "cs"): 93.20,
        ("link", "IDEA", "pubmed"): 88.63,
        ("graph", "GST", "nci1"): 59.08,
    }.items():
        number = published("opengu", *path)
        assert number is not None
        assert number.mean == value
        assert number.source.startswith("OpenGU")


def test_the_bars_take_the_rows_with_the_most_choices() -> None:
    keys = [(part, model) for part in ("node", "chosen", "wider") for model in ("sign", "stacked-gcn")]
    scores = dict(zip(keys, (95.0, 95.0, 80.0, 80.0, 87.0, 88.5), strict=True))
    rows = [
        {"part": part, "data": "cora", "model": model, "seed": 0, "score": score}
        for (part, model), score in scores.items()
    ]
    near = opengu.table(rows).bars[1]
    assert near.met
    assert "Cora, -0.76 points" in near.detail
    texts = {(line[0], line[1]): line[2] for line in opengu.table(rows).texts}
    assert texts["node, micro-F1", "stacked GCN, certified, the same, up to 8 hops"] == "88.5*"


def test_the_wider_choice_holds_the_other_one_and_is_made_for_its_own_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for model, choices in opengu.CHOSEN.items():
        assert all(settings in opengu.WIDER[model] for settings in choices)
        assert max(settings["hops"] for settings in opengu.WIDER[model]) == 8
    monkeypatch.setitem(opengu.CHOSEN, "sign", [{"hops": 2}])
    monkeypatch.setitem(opengu.WIDER, "sign", [{"hops": 1}])
    for part, hops in (("chosen", 2), ("wider", 1)):
        row = opengu.chosen_nodes(store=tmp_path, part=part, data="patients", model="sign", seed=0)
        assert row["chosen hops"] == hops


def test_the_bars_take_the_better_model_and_name_the_worst_dataset() -> None:
    scores = {("citeseer", "sign"): 76.0, ("citeseer", "stacked-gcn"): 77.5, ("cora", "sign"): 88.0}
    scores |= {("cora", "stacked-gcn"): 87.0, ("pubmed", "sign"): 80.0}  # only one model of PubMed is there
    rows = [
        {"part": "chosen", "data": data, "model": model, "seed": 0, "score": score}
        for (data, model), score in scores.items()
    ]
    above, near = opengu.table(rows).bars
    assert above.met
    assert "CiteSeer, 0.5 points" in above.detail
    assert near.met is False
    assert "Cora, -1.26 points" in near.detail
    texts = {(line[0], line[1]): line[2] for line in opengu.table(rows).texts}
    assert texts["node, micro-F1", "SIGN, certified, settings by validation"] == "88.0*"
    assert texts["node, micro-F1", "best published"] == f"{MISSING} (89.3)"


def test_a_cell_of_the_benchmark_by_direct_calls(graph: gf.Graph, tmp_path: Path) -> None:
    key = {"data": "patients", "model": "sgc", "workload": "random", "seed": 1}
    row = benchmark_2026.compared(store=tmp_path, method="nothing", **key)  # type: ignore[arg-type]
    trained = gf.train(graph, "sgc", seed=1)
    retained = graph.without(node_request(graph, "random", seed=1))
    gold = trained_anew(trained, retained, seed=1001)
    ours, reference = trained.logits(retained), gold.logits(retained)
    rows = retained.test_mask
    same = (ours.argmax(dim=1) == reference.argmax(dim=1))[rows]
    assert row["fidelity"] == pytest.approx(100 * float(same.double().mean()))
    assert row["logits"] == pytest.approx(float((ours - reference).norm(dim=1).mean()), rel=1e-6)
    assert row["weights"] == pytest.approx(float((trained.theta - gold.theta).norm()), rel=1e-6)
    assert row["gold_f1"] == pytest.approx(100 * gold.micro_f1(retained))
    assert row["gold_weights"] < 1e-2 * row["weights"]  # the optimum is unique
    assert "seconds" not in row
    after = benchmark_2026.compared(store=tmp_path, method="newton", **key)  # type: ignore[arg-type]
    assert after["level"] == "certified"
    assert after["seconds"] > 0


def test_a_model_has_full_fidelity_to_itself(graph: gf.Graph) -> None:
    trained = gf.train(graph, "gcn", seed=0, epochs=2)
    row = benchmark_2026.distances(trained, trained, graph)
    assert (row["fidelity"], row["logits"], row["weights"]) == (100, 0, 0)
    assert row["cosine"] == pytest.approx(1)


def test_peak_memory_sees_a_large_array() -> None:
    def work() -> float:
        return float(torch.ones(2**25, dtype=torch.float64).sum())  # 256 MiB

    result, peak = with_peak_memory(work)
    assert result == 2**25
    assert peak is None or peak > 200


def test_attack_cells_hold_all_rows_of_their_kind(tmp_path: Path) -> None:
    key = {"data": "patients", "model": "sgc", "method": "newton", "seed": 0}
    rows = {kind: newer_attacks.attacked(store=tmp_path, kind=kind, **key) for kind in newer_attacks.WORK}  # type: ignore[arg-type]
    for kind, names in (("nodes", newer_attacks.NODE_ATTACKS), ("edges", newer_attacks.EDGE_ATTACKS)):
        for name in names:
            assert {f"{name} no_op", f"{name} retrained", f"{name} method", f"{name} gap"} <= rows[kind].keys()
            assert rows[kind][f"{name} low"] <= rows[kind][f"{name} gap"] <= rows[kind][f"{name} high"]
    assert rows["nodes"]["output change no_op"] == 50
    for name in newer_attacks.INJECTIONS:
        assert rows["injection"][f"{name} method"] == pytest.approx(rows["injection"][f"{name} retrained"], abs=2)
        assert f"{name} forecast method" in rows["injection"]
    given = [key | {"data": "cora", "kind": kind} | row for kind, row in rows.items()]
    assert len(newer_attacks.table(given).rows) == 10


def test_every_certified_model_is_compared() -> None:
    assert {model for model, method in contestants() if method == "newton"} == {"sgc", "sign", "stacked-gcn"}
    assert ("gcn", "idea") in contestants()


def test_a_cell_names_the_commit_of_a_checkout() -> None:
    found = commit()
    assert found is None or len(found.rstrip("+")) == 40


@pytest.mark.parametrize("model", ["sgc", "stacked-gcn"])
def test_certified_rows_of_the_papers_tables(model: str, tmp_path: Path) -> None:
    edges = table_edge_accuracy.certified(store=tmp_path, model=model, data="patients", share=0.05, seed=0)
    nodes = table1.certified(store=tmp_path, part="newton", data="patients", model=model, seed=0)
    assert edges["level"] == nodes["level"] == "certified"
    assert edges[model] > 80
    assert abs(nodes["f1"] - nodes["retrain"]) < 3
    row = {"model": model, "data": "patients", "share": 0.05, "seed": 0} | edges
    texts = {line[1]: line[4] for line in table_edge_accuracy.table([row]).texts}
    title = {"sgc": "SGC", "stacked-gcn": "stacked GCN"}[model]
    assert texts[f"{title}, certified, released"] == f"{edges[model]:.1f}*"
    assert texts["IDEA"] == MISSING
