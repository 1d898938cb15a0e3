"""Graphs with edge weights: requests of every kind on them, and requests that forget a weight."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import graphforget as gf
from cases import COLUMNS, Run, RunJson, present, random_graph, weighted
from graphforget.linalg.newton import newton_cg
from graphforget.request.change import change_footprint
from graphforget.request.sampling import Drawing, draw_request

MODELS: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {"hops": 2},
    "linearised-gcn": {"hidden": 5},
    "linearised-gat": {"hidden": 2, "heads": 2},
    "gcn": {"hidden": 5, "epochs": 5, "polish_steps": 2},
    "gat": {"hidden": 2, "heads": 2, "epochs": 5, "polish_steps": 2},
    "stacked-gcn": {"hidden": 3, "epochs": 5, "parts": 3},
    "boosted-gcn": {"hidden": 3, "epochs": 5},
    "sharded-gcn": {"hidden": 5, "epochs": 5, "shards": 2},
}
SLACK = 1e-6  # what the oracle may be off by: its gradient over mu
METHOD_MODELS = {"grapheraser": "sharded-gcn", "gnndelete": "gcn"}


def away_from_optimum(outcome: gf.Outcome) -> float:
    """How far what is released lies from the optimum on the retained graph, which is found from 0."""
    start = torch.zeros_like(outcome.trained.theta)
    optimum = newton_cg(outcome.trained.objective(outcome.graph), start, gradient_tolerance=1e-12)
    assert optimum.gradient_norm <= 1e-10
    return float((outcome.centre - optimum.theta).norm())


@functools.cache
def city(*, directed: bool = False, sparse: bool = True) -> gf.Graph:
    graph = weighted(random_graph(3, nodes=40, edges=70, directed=directed, sparse=sparse), 3, most=1.0)
    return dataclasses.replace(graph, subject_ids=tuple(f"person-{row}" for row in range(40)))


def ends(graph: gf.Graph, place: int) -> tuple[str, str]:
    source, target = graph.edge_index
    u, v = graph.edge_index[:, source < target].T[place].tolist()
    return f"person-{u}", f"person-{v}"


def requests(graph: gf.Graph) -> dict[str, gf.Request]:
    return {
        "nodes": gf.Request(nodes=["person-4", "person-30"]),
        "edges": gf.Request(edges=[ends(graph, 3)]),
        "attributes": gf.Request(attributes={"person-6": "all"}),
        "partial attributes": gf.Request(attributes={"person-7": [0, 2]}),
        "labels": gf.Request(labels=["person-8"]),
        "edge weights": gf.Request(edge_weights=[ends(graph, 5), ends(graph, 9)]),
        "mixed": gf.Request(
            nodes=["person-4"],
            edges=[ends(graph, 3)],
            attributes={"person-6": "all"},
            labels=["person-8"],
            edge_weights=[ends(graph, 5)],
        ),
    }


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_the_weights_are_those_of_training_on_the_retained_graph(model: str, directed: bool) -> None:
    graph = city(directed=directed)
    trained = gf.train(graph, model, **MODELS[model])
    listed = requests(graph)
    for kind in listed if model == "sgc" else ("edge weights", "mixed"):
        outcome = gf.unlearn(trained, graph, listed[kind])
        if outcome.level == "exact":
            assert torch.equal(outcome.trained.theta, gf.train(outcome.graph, model, **MODELS[model]).theta)
        else:
            assert outcome.level == "certified"
            assert away_from_optimum(outcome) <= outcome.measured["distance"] + SLACK
            assert outcome.measured["distance"] <= present(outcome.certificate.tolerance)
        between_shards = model == "sharded-gcn" and kind == "edge weights"  # it is in no shard
        assert between_shards or not torch.equal(outcome.trained.theta, trained.theta)
        given: Any = {"released": outcome.released_theta, "annexes": [outcome.annex]}
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given)


@pytest.mark.parametrize("method", gf.METHODS)
def test_every_method_that_can_forgets_a_weight(method: str) -> None:
    graph = city()
    if method == "cgu":
        with pytest.raises(gf.InputError, match="edge weights"):
            gf.train(graph, "cgu")
        return
    model = METHOD_MODELS.get(method, "sgc")
    trained = gf.train(graph, "scalegun", seed=0) if method == "scalegun" else gf.train(graph, model, **MODELS[model])
    request = requests(graph)["edge weights"]
    if method == "scalegun" or "edge weights" not in gf.METHODS[method].kinds:
        with pytest.raises(gf.InputError, match="edge weights"):
            gf.unlearn(trained, graph, request, method=method)
        return
    level: Any = {"level": "empirical"} if method == "idea" else {}  # its bound does not hold for this graph
    outcome = gf.unlearn(trained, graph, request, method=method, **level)
    assert outcome.graph.digest == graph.without(request).digest
    assert outcome.annex.still_in(outcome.graph) is None
    assert outcome.annex.still_in(graph) == "the weight of an edge that was to be forgotten"
    if model == "sgc":
        assert not torch.equal(outcome.trained.theta, trained.theta)


def test_a_weight_of_one_is_forgotten_without_a_change() -> None:
    graph = city()
    request = gf.Request(edge_weights=[ends(graph, 5)])
    once = gf.unlearn(gf.train(graph, "gcn", **MODELS["gcn"]), graph, request)
    again = gf.unlearn(once.trained, once.graph, request)
    assert again.level == "exact"
    assert torch.equal(again.trained.theta, once.trained.theta)
    assert again.graph.digest == once.graph.digest
    plan = gf.plan(once.trained, once.graph, request)
    assert (plan.edge_weights, plan.affected, plan.edges) == (1, 0, 0)


def test_requests_in_a_row_stay_certified() -> None:
    graph = city(sparse=False)
    trained, now = gf.train(graph, "sign", hops=2), graph
    for request in requests(graph).values():
        if request.kinds[0] == "nodes" and len(request.kinds) > 1:
            continue  # it names what is gone
        outcome = gf.unlearn(trained, now, request)
        assert outcome.level == "certified"
        trained, now = outcome.trained, outcome.graph
        assert away_from_optimum(outcome) <= outcome.measured["distance"] + SLACK


def test_a_request_can_be_written_merged_and_drawn(tmp_path: Path) -> None:
    graph = city()
    request = gf.Request(edge_weights=[ends(graph, 5)])
    assert repr(request) == "Request(1 edge weight)"
    assert gf.Request.from_dict(request.to_dict()) == request
    lines = ["kind,node,target,column", f"weight,{request.edge_weights[0][0]},{request.edge_weights[0][1]},"]
    (tmp_path / "request.csv").write_text("\n".join(lines) + "\n")
    assert gf.Request.from_file(tmp_path / "request.csv") == request
    turned = gf.Request(edge_weights=[ends(graph, 5)[::-1]])
    merged = gf.Request.merge([request, turned, requests(graph)["nodes"]], graph)
    assert merged.edge_weights == turned.edge_weights
    assert merged.nodes == requests(graph)["nodes"].nodes
    drawn = draw_request(graph, Drawing.parse("weight:5%"), seed=0)
    assert drawn.kinds == ("edge weights",)
    assert graph.without(drawn).digest != graph.digest
    unweighted = dataclasses.replace(graph, edge_weight=None)
    with pytest.raises(gf.InputError, match="the graph has none"):
        request.resolve(unweighted)
    with pytest.raises(gf.InputError, match="no edge weights"):
        draw_request(unweighted, Drawing.parse("weight:5%"), seed=0)
    with pytest.raises(gf.InputError, match="appears twice"):
        gf.Request(edge_weights=[*request.edge_weights, *turned.edge_weights]).resolve(graph)
    with pytest.raises(gf.InputError, match="is not in the graph"):
        gf.Request(edge_weights=[("person-0", "person-0")]).resolve(graph)


# -- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["sgc", "stacked-gcn", "gat"])
def test_a_run_keeps_its_weights_and_a_served_model_reads_them(
    model: str, tmp_path: Path, run_json: RunJson, run: Run
) -> None:
    graph = city()
    trained = gf.train(graph, model, **MODELS[model])
    gf.save_run(tmp_path / "run", trained, graph)
    again, loaded = gf.load_run(tmp_path / "run")
    assert loaded.digest == graph.digest
    assert torch.equal(again.logits(loaded), trained.logits(graph))
    u, v = ends(graph, 5)
    (tmp_path / "request.json").write_text(f'{{"edge_weights": [["{u}", "{v}"]]}}')
    planned = run_json("plan", tmp_path / "run", "--request", tmp_path / "request.json", "--json")
    assert planned["edge_weights"] == 1
    assert run("unlearn", tmp_path / "run", "--request", tmp_path / "request.json", "--in-place").code == 0
    assert run("verify", tmp_path / "run").code == 0
    released, retained = gf.load_released(tmp_path / "run")
    assert present(retained.edge_weight)[graph.edge_weight != retained.edge_weight].tolist() == [1.0, 1.0]
    gf.export_released(tmp_path / "run", tmp_path / "served")
    from graphforget.models import plain

    module = plain.load(tmp_path / "served" / "model.pt")
    with torch.no_grad():
        served = module(retained.x.to_dense(), retained.edge_index, retained.edge_weight)
    torch.testing.assert_close(served, released.logits(retained), rtol=1e-8, atol=1e-8)
    answers = gf.predict_run(tmp_path / "run")
    assert [row[1] for row in answers.rows] == [str(c) for c in served.argmax(dim=1).tolist()]


def test_a_forgotten_weight_does_not_come_back_by_an_update() -> None:
    graph = city()
    outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(edge_weights=[ends(graph, 5)]))
    with pytest.raises(gf.Refused, match=r"1 deleted item \(1 edge weight\)"):
        gf.update(outcome.trained, outcome.graph, graph)
    back = gf.update(outcome.trained, outcome.graph, graph, readmit="it was measured again")
    assert back.graph.digest == graph.digest
    assert back.level == "certified"
    other = present(outcome.graph.edge_weight).clone()
    source, target = graph.edge_index
    place = (source == source[0]) & (target == target[0]) | (source == target[0]) & (target == source[0])
    other[place] = 5.0
    changed = dataclasses.replace(outcome.graph, edge_weight=other)
    later = gf.update(outcome.trained, outcome.graph, changed)
    assert later.level == "certified"
    assert away_from_optimum(later) <= later.measured["distance"] + SLACK
    touched = change_footprint(outcome.graph, changed, gf.Reach(2))
    expected = gf.footprint(changed, gf.Request(edge_weights=[_names(graph, 0)]), gf.Reach(2))
    assert touched.reached.tolist() == expected.reached.tolist()


def _names(graph: gf.Graph, column: int) -> tuple[int | str, int | str]:
    u, v = graph.edge_index[:, column].tolist()
    return graph.name_of(u), graph.name_of(v)


# -- coming in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
def test_csv_and_pyg_carry_the_weights(directed: bool, tmp_path: Path) -> None:
    graph = city(directed=directed)
    again = gf.Graph.from_pyg(graph.to_pyg(), subject_ids=graph.subject_ids, sparse=True)
    assert again.directed == directed
    assert torch.equal(present(again.edge_weight), present(graph.edge_weight))
    assert again.digest == graph.digest
    names, x = present(graph.subject_ids), graph.x.to_dense()
    rows = [
        f"{name},{max(int(c), 0)},{','.join(map(repr, v.tolist()))}"
        for name, c, v in zip(names, graph.y, x, strict=True)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,a,b,c,d", *rows]) + "\n")
    pairs = zip(graph.edge_index.T.tolist(), present(graph.edge_weight).tolist(), strict=True)
    lines = [f"{names[u]},{names[v]},{weight!r}" for (u, v), weight in pairs]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target,weight", *lines]) + "\n")
    read = gf.Graph.from_csv(tmp_path, directed=directed)
    assert torch.equal(read.edge_index, graph.edge_index)
    assert torch.equal(present(read.edge_weight), present(graph.edge_weight))
    (tmp_path / "edges.csv").write_text("source,target,weight\nperson-1,person-2,heavy\n")
    with pytest.raises(gf.InputError, match="line 2 .*the weight is 'heavy'"):
        gf.Graph.from_csv(tmp_path)


def test_a_data_with_other_weights_both_ways_is_directed() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = Data(x=torch.eye(3), edge_index=edges, y=torch.tensor([0, 1, 0]), edge_weight=torch.tensor([1.0, 2, 3, 3]))
    assert gf.Graph.from_pyg(data).directed
    with pytest.raises(gf.InputError, match="two different weights"):
        gf.Graph.from_pyg(data, directed=False)
    data.edge_weight = torch.tensor([2.0, 2, 3, 3])
    assert not gf.Graph.from_pyg(data).directed


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(COLUMNS, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv(x, edge_index, edge_weight)
        return out


class WithDefault(Conv):
    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        out: torch.Tensor = self.conv(x, edge_index, edge_weight)
        return out


def retrain(data: Data) -> nn.Module:
    module = WithDefault()
    optimiser = torch.optim.Adam(module.parameters())
    for _ in range(3):
        optimiser.zero_grad()
        out = module(data.x.to_dense().float(), data.edge_index, data.edge_weight.float())
        nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    return module


def test_an_adopted_model_reads_the_weights_and_its_retraining_receives_them() -> None:
    data = city(sparse=False).to_pyg()
    trained = gf.adopt(retrain(data), data, retrain=retrain)
    graph = gf.Graph.from_pyg(data, sparse=False)
    u, v = graph.edge_index[:, 0].tolist()
    outcome = gf.unlearn(trained, graph, gf.Request(edge_weights=[(u, v)]))
    assert outcome.level == "exact"
    assert not torch.equal(outcome.trained.theta, trained.theta)
