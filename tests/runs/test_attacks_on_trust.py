"""What somebody tried who wanted to break the claims: each of these once went through."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import graphforget as gf
from cases import random_graph, weighted
from graphforget.certificates.issue import EARLIER_GRAPH, graph_digest
from graphforget.certificates.signing import make_keys, private_key, public_key
from graphforget.runs.history import read_history
from graphforget.runs.write import rewrite_checksums

SHARDS: dict[str, Any] = {"hidden": 4, "shards": 2, "epochs": 2}


def small() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Any, Any]:
    private, public = make_keys(tmp_path / "key")
    return private_key(private), public_key(public)


def test_a_run_s_reach_is_that_of_its_model(tmp_path: Path, keys: tuple[Any, Any]) -> None:
    """With a smaller one nothing would seem to depend on what is deleted, and the old weights would be signed."""
    graph = small()
    run = gf.save_run(tmp_path / "run", gf.train(graph, "gcn", hidden=4, epochs=2, polish_steps=0), graph)
    content = json.loads((run / "run.json").read_text())
    content["reach"] = {"hops": 0, "degree_normalised": False, "both_ways": False}
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(gf.InputError, match="the reach is not that of the model"):
        gf.answer(run, gf.Request(nodes=[int(graph.test_mask.nonzero()[0])]), key=keys[0])


def test_an_ensemble_forgets_a_node_that_training_never_saw() -> None:
    graph = small()
    lone = gf.Graph.create(
        x=torch.cat([graph.x.to_dense(), torch.ones(1, graph.num_columns)]),
        edges=graph.edge_index,
        y=torch.cat([graph.y, torch.tensor([-1])]),
        train_mask=torch.cat([graph.train_mask, torch.tensor([False])]),
        test_mask=torch.cat([graph.test_mask, torch.tensor([False])]),
        num_classes=graph.num_classes,
    )
    trained = gf.train(lone, "sharded-gcn", **SHARDS)
    outcome = gf.unlearn(trained, lone, gf.Request(nodes=[40]))
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, gf.train(outcome.graph, "sharded-gcn", **SHARDS).theta)


@pytest.mark.slow
def test_in_another_environment_every_shard_is_trained_anew() -> None:
    """Else the bits of those that stay would tell which one was touched."""
    graph = small()
    trained = gf.train(graph, "sharded-gcn", **SHARDS)
    here = next(
        outcome
        for node in graph.train_rows.tolist()
        if (outcome := gf.unlearn(trained, graph, gf.Request(nodes=[node]), method="grapheraser")).details["retrained"]
        == 1
    )
    node = next(number for number in range(40) if number not in here.graph.numbers.tolist())
    elsewhere = dataclasses.replace(trained.recipe, environment=trained.recipe.environment | {"threads": 99})
    outcome = gf.unlearn(
        dataclasses.replace(trained, recipe=elsewhere), graph, gf.Request(nodes=[node]), method="grapheraser"
    )
    assert outcome.details["retrained"] == 2
    assert outcome.trained.recipe.environment == trained.recipe.environment
    assert torch.equal(outcome.trained.theta, here.trained.theta)


@pytest.mark.parametrize("setting", ["matmul", "dtype"])
def test_weights_do_not_stand_where_torch_computes_otherwise(setting: str) -> None:
    graph = small()
    trained = gf.train(graph, "sgc", sigma=0.0)
    before = trained.recipe.environment
    try:
        if setting == "matmul":
            torch.set_float32_matmul_precision("medium")
        else:
            torch.set_default_dtype(torch.float64)
        assert gf.train(graph, "sgc", sigma=0.0).recipe.environment != before
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_the_model_to_go_out_holds_nothing_that_was_measured_of_requests(model: str) -> None:
    graph = small()
    options: dict[str, Any] = {} if model == "sgc" else {"hidden": 4, "epochs": 2, "polish_steps": 0}
    trained = gf.train(graph, model, **options)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="gif")
    assert outcome.trained.history
    released = outcome.released
    assert (released.history, released.releases, released.notes, released.seconds) == ((), (), (), 0.0)


@pytest.mark.slow
def test_branches_that_are_filed_in_one_ledger_are_not_counted_as_one(tmp_path: Path, keys: tuple[Any, Any]) -> None:
    graph = small()
    trained = gf.train(graph, "sgc", releases=3)
    place = gf.save_outcome(tmp_path / "0", gf.unlearn(trained, graph, gf.Request(nodes=[4])), key=keys[0])
    assert gf.verify_run(place, key=keys[1]).checks
    again = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    place = gf.save_outcome(tmp_path / "1", again, after=place, key=keys[0])
    with pytest.raises(gf.Mismatch, match="does not count the releases that its ledger holds"):
        gf.verify_run(place, key=keys[1])


@pytest.mark.parametrize(
    ("more", "metadata"), [(True, None), (False, {"private": "what was deleted"})], ids=["a tensor", "metadata"]
)
def test_nothing_goes_out_beside_the_released_weights(
    more: bool, metadata: dict[str, str] | None, tmp_path: Path
) -> None:
    graph = small()
    outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=[4]))
    run = gf.save_outcome(tmp_path / "run", outcome)
    tensors = load_file(run / "released.safetensors")
    private = {"private": outcome.trained.theta} if more else {}
    save_file(tensors | private, run / "released.safetensors", metadata=metadata)
    rewrite_checksums(run)
    with pytest.raises(
        (gf.Mismatch, gf.InputError), match="holds something else beside the weights than the model releases"
    ):
        gf.verify_run(run)


@pytest.mark.slow
def test_an_answer_of_another_line_of_runs_is_not_repeated(tmp_path: Path) -> None:
    graph, request = small(), gf.Request(nodes=[4])
    first = gf.save_run(tmp_path / "first", gf.train(graph, "sgc"), graph)
    other = gf.save_run(tmp_path / "other", gf.train(graph, "sign"), graph)
    gf.answer(other, request, request_id="1")
    with pytest.raises(gf.InputError, match="exists already"):
        gf.answer(first, request, out=other, request_id="1")


@pytest.mark.slow
def test_the_annex_of_a_refusal_is_held_against_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another salt the same request would not be known again, and noise be drawn anew."""
    graph = small()
    run = gf.save_run(tmp_path / "run", gf.train(graph, "sgc", floor=0.5), graph)
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 1.0)
    gf.answer(run, gf.Request(nodes=[4]))
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 0.0)
    with pytest.raises(gf.FloorMissed):
        gf.answer(run, gf.Request(nodes=[5]))
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 1.0)
    assert [entry.level for entry in read_history(run).entries] == ["certified", "refused"]
    content = json.loads((run / "annex.json").read_text())
    content["annexes"][1]["salt"] = "00" * 32
    (run / "annex.json").write_text(json.dumps(content))
    rewrite_checksums(run)
    for look in (gf.verify_run, lambda place: gf.answer(place, gf.Request(nodes=[5]))):
        with pytest.raises(gf.Mismatch, match="the ledger and the annexes are about different requests"):
            look(run)


def test_a_factory_that_hands_trained_weights_back_is_refused() -> None:
    class Own(torch.nn.Module):
        reach = gf.Reach(0, degree_normalised=False)

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.linear(x.to_dense() if x.layout == torch.sparse_csr else x)

    graph = small()
    trained = gf.train(graph, Own(), epochs=3, polish_steps=0)
    kept = {name: 1.1 * value for name, value in trained.module.float().state_dict().items()}

    def pretrained() -> torch.nn.Module:
        module = Own()
        module.load_state_dict(kept)
        return module

    with pytest.raises(gf.InputError, match="whatever the seed"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="retrain", model=pretrained)


def test_no_graph_with_weights_has_the_digest_of_an_earlier_version(tmp_path: Path, keys: tuple[Any, Any]) -> None:
    """It was an empty text for all of them, so a run or a certificate could be about any such graph."""
    graph = weighted(small(), 3)
    run = gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(content | {"graph_digest": ""}))
    with pytest.raises(gf.InputError, match="its graph is not the one that the model was trained on"):
        gf.load_run(run)
    certificate = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=[4])).certificate
    earlier = dict(certificate.algorithms) | {"graph": EARLIER_GRAPH}
    assert graph_digest(dataclasses.replace(certificate, algorithms=earlier), graph) == graph.digest
