"""Run directories of models that were trained elsewhere: the module and its training function are given again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from adopted_cases import Normalised, PlainGCN, half_loss, retrain_gcn, retrain_normalised
from cases import random_graph
from graphforget.certificates.claims.own_training import OwnTraining
from graphforget.runs.write import rewrite_checksums

pytestmark = pytest.mark.usefixtures("one_thread")

REQUEST = gf.Request(nodes=[4])
OWN: dict[str, Any] = {"model": PlainGCN(), "retrain": retrain_gcn}


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60, sparse=False)


@pytest.fixture
def run(graph: gf.Graph, tmp_path: Path) -> Path:
    trained = gf.adopt(retrain_gcn(graph.to_pyg()), graph, retrain=retrain_gcn)
    return gf.save_run(tmp_path / "run", trained, graph)


def test_a_run_is_read_as_it_was_written(graph: gf.Graph, tmp_path: Path) -> None:
    module = retrain_normalised(graph.to_pyg())
    trained = gf.adopt(module, graph, loss=half_loss, mu=0.01, retrain=retrain_normalised)
    folder = gf.save_run(tmp_path / "normalised", trained, graph)
    again, same = gf.load_run(folder, model=Normalised(), loss=half_loss, retrain=retrain_normalised)
    assert same.digest == graph.digest
    assert again.summary() == trained.summary()
    assert again.retrain is retrain_normalised
    assert torch.equal(again.logits(graph), trained.logits(graph))  # with the statistics of the BatchNorm


def test_the_function_is_never_in_the_run(run: Path) -> None:
    assert gf.load_run(run, model=PlainGCN())[0].retrain is None
    assert all(b"retrain_gcn" not in path.read_bytes() for path in run.iterdir())
    with pytest.raises(gf.InputError, match=r"this model is a adopted_cases.PlainGCN, give an instance of it"):
        gf.load_run(run)


def test_a_function_is_searched_again_and_only_for_adopted_models(run: Path, graph: gf.Graph, tmp_path: Path) -> None:
    rows = torch.ones(3)
    with pytest.raises(gf.InputError, match="^retrain reaches a tensor in 'rows'"):
        gf.load_run(run, model=PlainGCN(), retrain=lambda data: retrain_gcn(data) if rows.any() else PlainGCN())
    ours = gf.save_run(tmp_path / "ours", gf.train(graph, "sgc"), graph)
    with pytest.raises(gf.InputError, match="this model is a sgc that was trained here, so it takes no retrain"):
        gf.load_run(ours, retrain=retrain_gcn)


def test_requests_in_a_row_are_answered_verified_and_replayed(run: Path) -> None:
    for number, node in enumerate((4, 9)):
        answer = gf.answer(run, gf.Request(nodes=[node]), request_id=str(number), **OWN)
        assert (answer.summary["level"], answer.repeated) == ("exact", False)
    certificate = gf.Certificate.read(run / "certificate.json")
    assert isinstance(certificate.claim, OwnTraining)
    assert gf.answer(run, gf.Request(nodes=[9]), request_id="1", **OWN).repeated
    assert "ledger" in [check.name for check in gf.verify_run(run, model=PlainGCN()).checks]
    replayed = gf.verify_run(run, replay=True, **OWN)
    assert not any("gives these weights" in gap for gap in replayed.unchecked)
    with pytest.raises(gf.Refused, match="only its own training function can train it again"):
        gf.verify_run(run, model=PlainGCN(), replay=True)
    released, retained = gf.load_released(run, model=PlainGCN())
    assert torch.equal(released.theta, gf.load_run(run, model=PlainGCN())[0].theta)
    assert retained.num_nodes == 38
    together = gf.releases_so_far(run, delta=1e-5)
    assert (together.releases, together.epsilon) == (2, 0.0)


def test_without_the_function_nothing_is_released(run: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(gf.Refused, match="has no function that trains it again"):
        gf.answer(run, REQUEST, model=PlainGCN())
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_run_that_hides_where_it_was_trained_does_not_verify(run: Path) -> None:
    """Without the mark its first weights would count as trained by a recipe."""
    gf.answer(run, REQUEST, **OWN)
    path = run / "run.json"
    content = json.loads(path.read_text())
    content["recipe"]["options"] = {}
    content["recipe"]["epochs"] = 10
    path.write_text(json.dumps(content))
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch):
        gf.verify_run(run, model=PlainGCN())


@pytest.mark.slow
def test_the_audit_of_a_run_calls_the_function(run: Path, graph: gf.Graph, tmp_path: Path) -> None:
    request = gf.Request(nodes=[graph.name_of(int(graph.train_rows[0]))])
    gf.answer(run, request, out=tmp_path / "after", **OWN)
    audit = gf.audit_run(tmp_path / "after", before=run, request=request, models=8, seeds=2, **OWN)
    assert audit.claim["level"] == "exact"
