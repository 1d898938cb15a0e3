"""Mini-batches with sampled neighbours: every draw belongs to node numbers, so that training can be replayed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import ENVIRONMENT, OwnGCN, any_values, graphs, present, random_graph
from graphforget.models import stacked
from graphforget.models.recorded_settings import has_recorded_settings
from graphforget.training.sampling import NeighbourSampler, batch_rows
from graphforget.training.state import same_tensors

SAMPLED: dict[str, Any] = {"batch_size": 7, "num_neighbors": [2, 2], "parts": 3}
NETWORK: dict[str, Any] = {"hidden": 3, "epochs": 3}
MODELS: dict[str, Any] = {
    **{name: (f"stacked-{name}", NETWORK | SAMPLED) for name in ("gcn", "gin", "sage")},
    "gat": ("stacked-gat", NETWORK | SAMPLED | {"heads": 2}),
    "own": (gf.stacked(OwnGCN, epochs=3, **SAMPLED), {}),
}


def example() -> gf.Graph:
    return random_graph(3, nodes=60, edges=200)


def encoders(trained: gf.Trained) -> tuple[torch.nn.Module, ...]:
    return present(trained.stacked.encoders).modules


def sampled_numbers(graph: gf.Graph, number: int, *, count: int, epoch: int) -> set[int]:
    """The numbers of the neighbours that the node with this number has in an epoch."""
    sampler = NeighbourSampler(graph, (count,), seed=5)
    row = (graph.numbers == number).nonzero().flatten()
    batch = sampler.batch(row.numpy(), sampler.senders(epoch))
    return set(graph.numbers[batch.rows[batch.edge_index[0]]].tolist())


@settings(max_examples=30, deadline=None)
@given(graph=graphs(), removed=st.integers(0, 5), count=st.integers(1, 3), epoch=st.integers(0, 3))
def test_a_removed_node_changes_only_the_samples_of_its_neighbours(
    graph: gf.Graph, removed: int, count: int, epoch: int
) -> None:
    after = graph.without(gf.Request(nodes=[removed]))
    receivers = set(graph.edge_index[1][graph.edge_index[0] == removed].tolist())
    for number in after.numbers.tolist():
        old, new = (sampled_numbers(one, number, count=count, epoch=epoch) for one in (graph, after))
        assert len(old) == min(count, int((graph.edge_index[1] == number).sum()))
        assert old - {removed} <= new
        assert number in receivers or old == new


@settings(max_examples=25, deadline=None)
@given(graph=graphs(), removed=st.integers(0, 5), epoch=st.integers(0, 3), size=st.integers(1, 20))
def test_a_removed_node_leaves_the_others_in_their_order(graph: gf.Graph, removed: int, epoch: int, size: int) -> None:
    """With batches of one node the order of the batches is that of the nodes. Batches are a partition, of one size."""
    after = graph.without(gf.Request(nodes=[removed]))

    def batches(one: gf.Graph, batch_size: int) -> list[list[int]]:
        drawn = batch_rows(one.numbers, one.train_rows, batch_size=batch_size, seed=5, epoch=epoch)
        return [one.numbers[one.train_rows[places]].tolist() for places in drawn]

    old, new = (list(itertools.chain(*batches(one, 1))) for one in (graph, after))
    assert [number for number in old if number != removed] == new
    cut = batches(graph, size)
    assert sorted(itertools.chain(*cut)) == graph.numbers[graph.train_rows].tolist()
    assert max(map(len, cut)) <= size
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


@settings(max_examples=25, deadline=None)
@given(graph=graphs(), first=st.integers(1, 3), second=st.sampled_from([1, 2, -1]))
def test_a_batch_holds_the_samples_of_every_node_it_reaches(graph: gf.Graph, first: int, second: int) -> None:
    sampler = NeighbourSampler(graph, (first, second), seed=5)
    start = graph.train_rows[:3]
    batch = sampler.batch(start.numpy(), sampler.senders(0))
    numbers = graph.numbers[batch.rows]
    assert batch.rows[batch.targets].tolist() == start.tolist()
    near = set(start.tolist())  # rows are numbers here
    sent = {(s, node) for node in near for s in sampled_numbers(graph, node, count=first, epoch=0)}
    count, hop = graph.num_nodes if second < 0 else second, {s for s, _ in sent} - near
    expected = sent | {(s, node) for node in hop for s in sampled_numbers(graph, node, count=count, epoch=0)}
    assert set(zip(*numbers[batch.edge_index].tolist(), strict=True)) == expected
    assert set(numbers.tolist()) == near | {s for s, _ in expected}


def test_samples_differ_between_epochs() -> None:
    graph = example()
    busiest = int(graph.edge_index[1].bincount().argmax())
    samples = {frozenset(sampled_numbers(graph, busiest, count=2, epoch=epoch)) for epoch in range(8)}
    assert len(samples) > 2


@pytest.mark.parametrize("sparse", [False, True])
def test_one_batch_with_all_neighbours_is_the_training_on_the_whole_part(sparse: bool) -> None:
    graph = random_graph(3, nodes=60, edges=200, sparse=sparse)
    every: Any = {"batch_size": 1000, "num_neighbors": [-1, -1]}
    sampled = gf.train(graph, "stacked-sage", **NETWORK, **every, parts=2)
    whole = gf.train(graph, "stacked-sage", **NETWORK, parts=2)
    for one, other in zip(encoders(sampled), encoders(whole), strict=True):
        for name, value in one.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_request_ends_with_the_encoders_of_training_on_the_retained_graph(name: str) -> None:
    graph, (model, options) = example(), MODELS[name]
    trained = gf.train(graph, model, **options)
    request = gf.Request(nodes=[4], attributes={6: "all"})
    plan = gf.plan(trained, graph, request)
    outcome = gf.unlearn(trained, graph, request)
    anew = gf.train(outcome.graph, model, **options)
    assert same_tensors(outcome.trained.released_state, anew.released_state)
    assert not same_tensors(trained.released_state, anew.released_state)
    assert outcome.level == "certified"
    same = sum(a is b for a, b in zip(encoders(trained), encoders(outcome.trained), strict=True))
    assert 0 < same == 3 - present(plan.renewed_encoders)
    given: Any = {"released": outcome.released, "replay": True}
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given).checks


def test_requests_in_a_row_end_where_training_on_the_last_graph_ends() -> None:
    graph = example()
    trained = gf.train(graph, "stacked-sage", **NETWORK, **SAMPLED)
    for number in (4, 9, 23):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[number]))
        trained, graph = outcome.trained, outcome.graph
    anew = gf.train(graph, "stacked-sage", **NETWORK, **SAMPLED)
    assert same_tensors(trained.released_state, anew.released_state)


@pytest.mark.parametrize("name", ["sage", "own"])
def test_a_run_directory_keeps_the_mini_batches(tmp_path: Path, name: str) -> None:
    graph, (model, options) = example(), MODELS[name]
    own: Any = {} if isinstance(model, str) else {"model": gf.stacked(OwnGCN, parts=3)}  # the rest is in the recipe
    gf.save_run(tmp_path / "run", gf.train(graph, model, **options), graph)
    gf.answer(tmp_path / "run", gf.Request(nodes=[4]), **own)
    trained, after = gf.load_run(tmp_path / "run", **own)
    assert (trained.stacked.batch_size, trained.stacked.num_neighbors) == (7, (2, 2))
    assert same_tensors(trained.released_state, gf.train(after, model, **options).released_state)
    assert gf.verify_run(tmp_path / "run", replay=True, **own).checks


@pytest.mark.slow
def test_the_score_is_close_to_that_of_training_on_whole_parts() -> None:
    graph = gf.synthetic(nodes=2000, edges=14_000, columns=16, classes=4, signal=2.0)
    whole = gf.train(graph, "stacked-sage")
    sampled = gf.train(graph, "stacked-sage", batch_size=128, num_neighbors=[5, 5])
    assert sampled.recipe.epochs < whole.recipe.epochs
    assert abs(sampled.micro_f1(graph) - whole.micro_f1(graph)) < 0.04
    assert whole.micro_f1(graph) > 0.5


@pytest.mark.parametrize("own", [False, True])
def test_mini_batches_are_the_default_for_large_parts_and_the_recipe_says_so(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = example()
    model: Any = gf.stacked(OwnGCN, parts=1) if own else "stacked-gcn"
    options: Any = {} if own else {"parts": 1, "hidden": 3}
    monkeypatch.setattr(stacked, "LARGE_PART", graph.train_rows.numel())
    assert not {"batch_size", "num_neighbors"} & gf.train(graph, model, **options, epochs=1).recipe.options.keys()
    monkeypatch.setattr(stacked, "LARGE_PART", graph.train_rows.numel() - 1)
    trained = gf.train(graph, model, **options)
    assert {"batch_size": 1024, "num_neighbors": [10, 10]}.items() <= trained.recipe.options.items()
    assert trained.recipe.epochs == 10
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=graph.train_rows[:1].tolist()))
    assert outcome.trained.stacked.batch_size == 1024  # although so few are left
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, replay=True).checks


def test_the_whole_part_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "LARGE_PART", 1)
    graph = example()
    asked = gf.train(graph, "stacked-gcn", **NETWORK, batch_size=0)
    monkeypatch.undo()
    assert same_tensors(asked.released_state, gf.train(graph, "stacked-gcn", **NETWORK).released_state)


def test_changed_settings_of_mini_batches_are_noticed() -> None:
    graph = example()
    trained = gf.train(graph, "stacked-sage", **NETWORK, **SAMPLED)
    recorded: Any = {"name": trained.recipe.model, "options": trained.recipe.options}
    assert has_recorded_settings(trained.module, graph, **recorded)
    trained.stacked.num_neighbors = (3, 2)
    assert not has_recorded_settings(trained.module, graph, **recorded)


@pytest.mark.parametrize(
    "wrong",
    any_values(
        {"batch_size": -1},
        {"batch_size": 2.5},
        {"num_neighbors": 10},
        {"num_neighbors": [10, 0]},
        {"num_neighbors": [10, -2]},
        {"num_neighbors": "10"},
        {"num_neighbors": []},
        {"batch_size": 0, "num_neighbors": [5, 5]},
    ),
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=r"batch_size|num_neighbors"):
        gf.train(example(), "stacked-sage", **wrong)
    with pytest.raises(gf.InputError, match=r"batch_size|num_neighbors"):
        gf.stacked(OwnGCN, **wrong)


def test_a_polish_needs_the_whole_part() -> None:
    with pytest.raises(gf.InputError, match="mini-batches"):
        gf.train(example(), "stacked-sage", batch_size=5, polish_steps=3)


LARGE = """
import resource
import graphforget as gf
graph = gf.synthetic(nodes=169_343, edges=1_166_243, columns=128, classes=40)
gf.train(graph, "stacked-sage", {options})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.long
@pytest.mark.parametrize("options", ["", "batch_size=1024, epochs=2"])
def test_a_graph_of_169_343_nodes_is_trained_in_less_than_4_gib(options: str) -> None:
    code = LARGE.format(options=options)
    ran = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert float(ran.stdout) < 4
