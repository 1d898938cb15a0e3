"""GraphEraser as behind the paper's table: its defects, on purpose."""

from __future__ import annotations

import torch

import graphforget as gf
from cases import random_graph
from graphforget.ensembles.aggregation import learned_weights
from graphforget.models.inputs import model_inputs
from graphforget.models.published import PublishedEraser, PublishedGCN, published_weights


def test_a_node_without_neighbours_is_blind() -> None:
    torch.manual_seed(0)  # some weights would leave no hidden unit active
    module = PublishedGCN(3, 2, hidden=4).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)  # positive: no ReLU is dead
    edges = torch.tensor([[0, 1], [1, 0]])
    for x in (torch.rand(3, 3, dtype=torch.float64), torch.rand(3, 3, dtype=torch.float64).to_sparse_csr()):
        out = module(x, edges)
        assert torch.equal(out[2], module.second_bias)
        assert not torch.equal(out[0], module.second_bias)


def test_rows_sum_to_1_and_the_layers_are_those_of_the_formula() -> None:
    module = PublishedGCN(3, 2, hidden=4).double().eval()
    x = torch.tensor([[1.0, 0, 3], [0, 2, 0], [0, 0, 0]], dtype=torch.float64)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    a = torch.zeros(3, 3, dtype=torch.float64)
    a[edges[1], edges[0]] = 1
    d = a.sum(dim=1).rsqrt()
    s = d[:, None] * a * d
    scaled = torch.tensor([[0.25, 0, 0.75], [0, 1, 0], [0, 0, 0]], dtype=torch.float64)
    hidden = (s @ scaled @ module.first.weight + module.first_bias).relu()
    expected = s @ hidden @ module.second.weight + module.second_bias
    for given in (x, x.to_sparse_csr()):
        torch.testing.assert_close(module(given, edges), expected)


def test_every_model_answers_on_its_own_shard() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sharded-released", shards=2, hidden=4, epochs=5, aggregation="mean")
    module = trained.module
    assert isinstance(module, PublishedEraser)
    answers = module.answers(*model_inputs(module, graph, dtype=torch.float64))
    for shard in range(2):
        keep = (module.shard_of == shard) | ~graph.train_mask
        part = graph.induced(keep)
        alone = module.models[shard](*model_inputs(module.models[shard], part, dtype=torch.float64)).log_softmax(dim=1)
        torch.testing.assert_close(answers[shard][keep], alone)
    torch.testing.assert_close(trained.logits(graph), answers.mean(dim=0))


def test_its_learned_weights_are_on_the_simplex_and_not_the_right_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(1000) % 3
    logits = torch.randn(10, 1000, 3, generator=generator, dtype=torch.float64) + torch.nn.functional.one_hot(labels, 3)
    answers = logits.log_softmax(dim=2)
    result, again, right = (
        *(published_weights(answers, labels, seed=0) for _ in range(2)),
        learned_weights(answers, labels),
    )
    assert torch.equal(result, again)
    assert abs(float(result.sum()) - 1) < 1e-9
    assert (result >= 0).all()
    of_label = answers.exp()[:, torch.arange(1000), labels]
    assert float((result @ of_label).log().mean()) < float((right @ of_label).log().mean()) - 1e-3


def test_it_says_what_it_is_for() -> None:
    assert gf.MODELS["sharded-released"].title == "for the paper's Table 1 alone"
