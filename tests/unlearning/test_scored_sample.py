"""The test items that a published score is about."""

from __future__ import annotations

import pytest
import torch

import graphforget as gf
from graphforget.models.items import Items
from graphforget.unlearning import outcome
from graphforget.unlearning.outcome import scored_sample


def test_few_test_nodes_are_all_scored_and_of_many_a_sample_that_other_nodes_hardly_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = gf.synthetic(nodes=400, edges=800, columns=4, classes=3, train=0.5)
    assert torch.equal(scored_sample(Items.of_nodes(graph)), graph.test_mask)
    monkeypatch.setattr(outcome, "MOST_SCORED", 50)
    sample = scored_sample(Items.of_nodes(graph))
    assert int(sample.sum()) == 50
    assert bool((sample <= graph.test_mask).all())
    other = int(graph.numbers[~sample][0])
    left = graph.without(gf.Request(nodes=[other]))
    assert graph.numbers[sample].tolist() == left.numbers[scored_sample(Items.of_nodes(left))].tolist()
    result = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=[other]))
    score = result.released.scores(result.graph, scored_sample(Items.of_nodes(result.graph)))["micro_f1"]
    assert result.public()["test_micro_f1"] == {"released": score}
