"""Work that is done once for a request: graphs are prepared once, options are parsed once."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import random_graph
from graphforget.models.fixed import FixedPropagation
from graphforget.models.gcn import GCN
from graphforget.models.inputs import model_inputs
from graphforget.models.prepared import MOST_GRAPHS
from graphforget.unlearning.method import Method


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often a graph of so many nodes was prepared."""
    counts: Counter[int] = Counter()
    original = FixedPropagation.prepare

    def counted(self: FixedPropagation, x: Tensor, edge_index: Tensor) -> Any:
        counts[x.shape[0]] += 1
        return original(self, x, edge_index)

    monkeypatch.setattr(FixedPropagation, "prepare", counted)
    return counts


@pytest.mark.parametrize("model", ["sgc", "sign"])
@pytest.mark.parametrize("method", ["auto", "retrain"])
def test_a_request_prepares_each_graph_once(prepared: Counter[int], tmp_path: Path, model: str, method: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    gf.save_run(tmp_path / "run", gf.train(graph, model), graph)
    prepared.clear()
    answer = gf.answer(tmp_path / "run", gf.Request(nodes=[graph.name_of(int(graph.train_rows[0]))]), method=method)
    assert answer.outcome is not None
    answer.outcome.public()
    gf.verify(
        answer.outcome.certificate, answer.outcome.trained, answer.outcome.graph, released=answer.outcome.released
    )
    # Retraining sees the part of the graph that training nodes can feel, which is a graph of its own.
    assert set(prepared) <= {40, 39} if method == "auto" else {40, 39} <= set(prepared)
    assert prepared[40] == 1
    assert prepared[39] <= (1 if method == "auto" else 2)


def test_prepared_graphs_are_dropped(prepared: Counter[int]) -> None:
    """Only the graphs used last are kept, and none longer than the graph itself."""
    graphs = [random_graph(seed, nodes=30 + seed, edges=40) for seed in range(MOST_GRAPHS + 1)]
    module = gf.train(graphs[0], "sgc").module
    prepared.clear()
    for graph in (*graphs, graphs[0], graphs[0]):
        model_inputs(module, graph, dtype=torch.float64)
    assert prepared == {30: 1, 31: 1, 32: 1}  # training had prepared the first, then the others took its place
    inputs = weakref.ref(model_inputs(module, graphs[0], dtype=torch.float64)[1])
    del graph
    graphs.clear()
    gc.collect()
    assert inputs() is None


def test_scoring_in_inference_mode_leaves_the_graph_usable() -> None:
    """Autograd refuses tensors that were made in inference mode, so none of them is kept."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "gcn", epochs=3, hidden=8)
    fresh = random_graph(3, nodes=40, edges=60)
    with torch.inference_mode():
        trained.logits(fresh)
    assert trained.objective(fresh).gradient(trained.theta).isfinite().all()


def test_models_that_prepare_otherwise_share_nothing() -> None:
    graph = random_graph(5, nodes=30, edges=50)
    scaled, plain = (GCN(graph.num_columns, graph.num_classes, scale_rows=scale) for scale in (True, False))
    first, second = (model_inputs(module, graph, dtype=torch.float64)[0] for module in (scaled, plain))
    eye = torch.eye(graph.num_columns, dtype=torch.float64)
    assert not torch.equal(first @ eye, second @ eye)


@pytest.mark.parametrize("call", ["unlearn", "plan"])
@pytest.mark.parametrize("method", ["newton", "retrain", "idea"])
def test_options_are_parsed_once(monkeypatch: pytest.MonkeyPatch, call: str, method: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", sigma=0.0 if method == "idea" else None)
    request = gf.Request(nodes=[graph.name_of(int(graph.train_rows[0]))])
    parsed: list[str] = []
    original = Method.parse_options

    def counted(self: Method[Any], options: dict[str, Any]) -> Any:
        parsed.append(self.name)
        return original(self, options)

    monkeypatch.setattr(Method, "parse_options", counted)
    getattr(gf, call)(trained, graph, request, method=method, level="empirical")
    assert parsed == [method]
