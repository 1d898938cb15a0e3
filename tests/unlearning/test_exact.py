"""`exact` is an equality: the weights are those of training on the retained graph, bit for bit."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, TransformerConv

import graphforget as gf
from cases import CLASSES, COLUMNS, MODELS, OwnGCN, graphs, make, random_graph, reach_of, requests
from graphforget.models.dropout import KeyedDropout, dropout_mask
from graphforget.models.parameters import flatten
from graphforget.models.registry import reach_is_proven
from graphforget.request.footprint import footprint
from graphforget.training.environment import environment
from graphforget.training.fit import NOT_REPLAYABLE
from graphforget.training.losses import CrossEntropy
from graphforget.training.objective import Objective
from graphforget.training.retraining import replayed
from graphforget.training.training_input import same_training_input, training_input

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT: dict[str, Any] = {"epochs": 4, "polish_steps": 2}
SHARDS: dict[str, Any] = {"epochs": 4, "shards": 3, "aggregation": "learned"}
RECIPES: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {"hops": 2},
    "gcn": {"hidden": 5, "dropout": 0.5} | SHORT,
    "gat": {"hidden": 2, "heads": 2, "dropout": 0.6} | SHORT,
    "gin": {"hidden": 5, "dropout": 0.3} | SHORT,
    "sage": {"hidden": 5, "dropout": 0.5} | SHORT,
    "linearised-gcn": {"hidden": 5},
    "sharded-sgc": SHARDS,
    "sharded-gcn": {"hidden": 4, "dropout": 0.5} | SHARDS,
    "sharded-gin": {"hidden": 4, "dropout": 0.5} | SHARDS,
    "sharded-sage": {"hidden": 4, "dropout": 0.5} | SHARDS,
}
SHARDED = [name for name in RECIPES if name.startswith("sharded-")]


@functools.cache
def graph() -> gf.Graph:
    return random_graph(5, nodes=60, edges=70)


@functools.cache
def trained_on(model: str) -> gf.Trained:
    return gf.train(graph(), model, seed=3, **RECIPES[model])


def request_of(kind: str) -> gf.Request:
    row, other = graph().train_rows[5:7].tolist()
    test = int(graph().test_mask.nonzero()[2])
    edge = tuple(graph().edge_index[:, 11].tolist())
    edges, nodes = [edge], [row, test]
    whole: dict[Any, Any] = {other: "all", test: [0, 2]}
    return {
        "nodes": gf.Request(nodes=nodes),
        "edges": gf.Request(edges=edges),
        "attributes": gf.Request(attributes=whole),
        "mixed": gf.Request(nodes=[row], edges=[tuple(graph().edge_index[:, 20].tolist())], attributes={other: "all"}),
    }[kind]


KINDS = ("nodes", "edges", "attributes", "mixed")


# -- equalities ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", RECIPES)
def test_retraining_ends_at_the_weights_of_training_on_the_retained_graph(model: str, kind: str) -> None:
    request = request_of(kind)
    outcome = gf.unlearn(trained_on(model), graph(), request, method="retrain")
    scratch = gf.train(graph().without(request), model, seed=3, **RECIPES[model])
    assert torch.equal(outcome.trained.theta, scratch.theta)
    assert outcome.trained.recipe == scratch.recipe
    if kind != "edges" or model not in SHARDED:  # the edge may go from one shard to another
        assert not torch.equal(scratch.theta, trained_on(model).theta)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", SHARDED)
def test_grapheraser_ends_at_the_weights_of_training_on_the_retained_graph(model: str, kind: str) -> None:
    request = request_of(kind)
    scratch = gf.train(graph().without(request), model, seed=3, **RECIPES[model])
    for seed in (None, 8):  # a caller's seed is not that of a shard
        outcome = gf.unlearn(trained_on(model), graph(), request, method="grapheraser", seed=seed)
        assert outcome.level == "exact"
        assert torch.equal(outcome.trained.theta, scratch.theta)
        assert outcome.trained.recipe == scratch.recipe


def with_far_nodes(seed: int = 2) -> gf.Graph:
    """A chain of nodes that do not train, and a triangle apart from everything; they come first and in between."""
    near, chain = random_graph(seed, nodes=30, edges=35), 10
    rng = np.random.default_rng(seed)
    total = near.num_nodes + chain + 3
    place = torch.from_numpy(np.sort(rng.permutation(total)[: near.num_nodes]))  # where the near nodes lie
    others = torch.tensor([row for row in range(total) if row not in set(place.tolist())])
    x = torch.from_numpy(rng.normal(size=(total, COLUMNS)))
    x[place] = near.x.to_dense()
    far, triangle = others[3:], others[:3]
    edges = torch.cat(
        [
            place[near.edge_index],
            torch.stack([far[:-1], far[1:]]),
            torch.stack([place[near.train_rows[:1]], far[:1]]),
            torch.stack([triangle, triangle.roll(1)]),
        ],
        dim=1,
    )
    y, train = torch.zeros(total, dtype=torch.int64), torch.zeros(total, dtype=torch.bool)
    y[place], train[place] = near.y, near.train_mask
    return gf.Graph.create(x=x, edges=edges, y=y, train_mask=train, test_mask=(~train) & (y >= 0), num_classes=CLASSES)


def far_requests(whole: gf.Graph) -> list[gf.Request]:
    """Of nodes that no training node hears of, at every reach of the models here."""
    far = [row for row in range(whole.num_nodes) if not footprint_of(whole, row)]
    edges = [e for e in whole.edge_index.T.tolist() if set(e) <= set(far)]
    requests = [gf.Request(nodes=[far[0]]), gf.Request(nodes=far[-2:]), gf.Request(attributes={far[0]: "all"})]
    return [*requests, gf.Request(edges=[tuple(edges[-1])]), gf.Request(nodes=[far[0]], attributes={far[-1]: [1]})]


def footprint_of(whole: gf.Graph, row: int) -> bool:
    return not footprint(whole, gf.Request(nodes=[row]), gf.Reach(3, degree_normalised=True)).empty


@pytest.mark.slow
@pytest.mark.parametrize("model", RECIPES)
def test_what_training_never_saw_changes_no_weight(model: str) -> None:
    """Whether the weights stand or are trained anew, and though every row lies elsewhere than before."""
    whole = with_far_nodes()
    trained = gf.train(whole, model, seed=4, **RECIPES[model])
    for request in far_requests(whole):
        scratch = gf.train(whole.without(request), model, seed=4, **trained.recipe.options, **how(trained))
        assert torch.equal(scratch.theta, trained.theta)
        method = "grapheraser" if model in SHARDED else "newton" if trained.strongly_convex else "retrain"
        outcome = gf.unlearn(trained, whole, request, method=method)
        assert outcome.details.get("untouched", outcome.details.get("steps") == 0)
        assert torch.equal(outcome.trained.theta, scratch.theta)


def how(trained: gf.Trained) -> dict[str, Any]:
    return {"epochs": trained.recipe.epochs, "polish_steps": trained.recipe.polish_steps}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "gcn", "gat", "sharded-gcn"])
def test_a_replay_gives_the_weights_of_training(model: str) -> None:
    again = replayed(trained_on(model), graph())
    assert torch.equal(again.theta, trained_on(model).theta)
    request = request_of("mixed")
    outcome = gf.unlearn(trained_on(model), graph(), request, method="retrain", seed=9)
    assert torch.equal(replayed(outcome.trained, outcome.graph).theta, outcome.trained.theta)
    assert not torch.equal(replayed(outcome.trained, graph()).theta, outcome.trained.theta)


def test_noise_in_the_objective_is_replayed_from_its_seed_or_from_what_was_kept() -> None:
    seeded = gf.train(graph(), "cgu", noise_seed=4)
    assert torch.equal(replayed(seeded, graph()).theta, seeded.theta)
    secret = gf.train(graph(), "cgu")
    assert torch.equal(replayed(secret, graph()).theta, secret.theta)
    assert not torch.equal(
        replayed(secret, graph(), objective_noise_vector=seeded.objective_noise_vector).theta, secret.theta
    )
    assert torch.equal(
        replayed(
            dataclasses.replace(secret, objective_noise_vector=None),
            graph(),
            objective_noise_vector=secret.objective_noise_vector,
        ).theta,
        secret.theta,
    )
    with pytest.raises(gf.Refused, match="the noise in the objective has no seed and was not kept"):
        replayed(dataclasses.replace(secret, objective_noise_vector=None), graph())


def test_retrained_modules_of_ones_own_are_replayed() -> None:
    trained = gf.train(graph(), OwnDropout(), **SHORT)
    outcome = gf.unlearn(trained, graph(), request_of("nodes"), method="retrain")
    assert torch.equal(replayed(outcome.trained, outcome.graph).theta, outcome.trained.theta)


@pytest.mark.slow
def test_threads_do_not_change_from_run_to_run_what_comes_out() -> None:
    """Without deterministic algorithms two threads add up the gradients of attention in any order."""
    generator, n = torch.Generator().manual_seed(0), 3000
    large = gf.Graph.create(
        x=torch.rand(n, 8, generator=generator),
        edges=torch.randint(0, n, (2, 9000), generator=generator),
        y=torch.randint(0, CLASSES, (n,), generator=generator),
    )
    torch.set_num_threads(2)
    try:
        first, second = (gf.train(large, "gat", epochs=2, polish_steps=0) for _ in range(2))
    finally:
        torch.set_num_threads(1)
    assert torch.equal(first.theta, second.theta)
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    gf.train(graph(), "sgc")
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)


# -- what training sees ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(whole=graphs(), data=st.data(), hops=st.integers(0, 3), normalised=st.booleans(), both_ways=st.booleans())
def test_the_input_is_unchanged_exactly_when_the_footprint_is_empty(
    whole: gf.Graph, data: st.DataObject, hops: int, normalised: bool, both_ways: bool
) -> None:
    drawn = data.draw(st.lists(st.booleans(), min_size=whole.num_nodes, max_size=whole.num_nodes))
    few = dataclasses.replace(whole, train_mask=whole.train_mask & torch.tensor(drawn))
    request, reach = data.draw(requests(few)), gf.Reach(hops, degree_normalised=normalised, both_ways=both_ways)
    same = same_training_input(few, few.without(request), reach)
    assert same == footprint(few, request, reach).empty


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(whole=graphs(), data=st.data(), name=st.sampled_from(sorted(MODELS)), node=st.integers(0, 5))
def test_training_nodes_have_the_same_losses_on_the_input(
    whole: gf.Graph, data: st.DataObject, name: str, node: int
) -> None:
    whole = dataclasses.replace(whole, train_mask=torch.arange(whole.num_nodes) == node, y=whole.y.clamp_min(0))
    module, reach = make(name), reach_of(name)
    part = training_input(whole, reach)
    first, second = (Objective(module, each, mu=1e-3, loss=CrossEntropy()) for each in (whole, part))
    theta = flatten(module)
    torch.testing.assert_close(first.data.losses(theta), second.data.losses(theta), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(first.gradient(theta), second.gradient(theta), rtol=1e-8, atol=1e-10)
    again = training_input(part, reach)
    assert again.digest == part.digest
    assert again.directed == part.directed


def test_the_input_of_a_chain_by_hand() -> None:
    """0 - 1 - 2 - 3 - 4 - 5 of which 0 trains."""
    n = 6
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    chain = gf.Graph.create(
        x=torch.ones(n, 2),
        edges=edges,
        y=torch.arange(n) % 2,
        train_mask=torch.arange(n) == 0,
        test_mask=torch.arange(n) > 3,
        numbers=10 * torch.arange(n),
        subject_ids=[f"p{i}" for i in range(n)],
    )
    plain = training_input(chain, gf.Reach(2, degree_normalised=False))
    assert plain.numbers.tolist() == [0, 10, 20]
    assert plain.edge_index.T.tolist() == [[1, 0], [0, 1], [2, 1]]
    assert plain.x.tolist() == [[1, 1]] * 3
    assert plain.directed
    assert plain.y.tolist() == [0, -1, -1]
    assert not (plain.val_mask | plain.test_mask).any()
    assert plain.subject_ids is None
    normalised = training_input(chain, gf.Reach(2, degree_normalised=True))
    assert normalised.numbers.tolist() == [0, 10, 20, 30]
    assert normalised.edge_index.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2], [3, 2]]
    assert normalised.x.tolist() == [[1, 1]] * 3 + [[0, 0]]
    assert training_input(chain, gf.Reach(0)).edge_index.numel() == 0
    assert not training_input(chain, gf.Reach(5)).directed
    unknown = training_input(chain, gf.Reach(None))
    assert unknown.numbers.tolist() == chain.numbers.tolist()
    assert unknown.y.tolist() == [0] + [-1] * 5


def test_labels_and_roles_of_nodes_that_do_not_train_are_not_seen() -> None:
    other = dataclasses.replace(
        graph(),
        y=torch.where(graph().train_mask, graph().y, 0),
        test_mask=torch.zeros_like(graph().test_mask),
        val_mask=~graph().train_mask,
    )
    assert same_training_input(graph(), other, gf.Reach(2))
    for model in ("gcn", "sharded-gcn"):
        assert torch.equal(gf.train(other, model, seed=3, **RECIPES[model]).theta, trained_on(model).theta)
    labels = dataclasses.replace(graph(), y=torch.where(graph().train_mask, (graph().y + 1) % CLASSES, graph().y))
    assert not same_training_input(graph(), labels, gf.Reach(2))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_proven_reach_is_one_of_a_built_in_model(name: str) -> None:
    assert reach_is_proven(make(name)) == (not name.startswith("own"))
    assert reach_of(name).hops is not None


# -- dropout ---------------------------------------------------------------------------------------------------------


def keyed(numbers: Tensor, edges: Tensor | None = None, *, seed: int = 0) -> KeyedDropout:
    return KeyedDropout(numbers, edges, seed=seed)


def masks(dropout: KeyedDropout, shape: tuple[int, ...], *, p: float, epochs: int = 1, calls: int = 1) -> Tensor:
    """epochs x calls x rows x columns."""
    drawn = []
    for epoch in range(epochs):
        with dropout.at(epoch):
            drawn.append(torch.stack([functional.dropout(torch.ones(shape), p) for _ in range(calls)]))
    return torch.stack(drawn)


@pytest.mark.parametrize("p", [0.5, 0.6, 0.1, 0.97])
def test_the_masks_have_the_right_rate_everywhere_and_keep_the_mean(p: float) -> None:
    drawn = masks(keyed(torch.arange(400) * 7), (400, 65), p=p, epochs=6, calls=2)
    stays = (drawn != 0).double()
    keep = round((1 - p) * 2**16) / 2**16
    assert abs(keep - (1 - p)) < 2**-16
    assert drawn.unique().tolist() == pytest.approx([0.0, 1 / keep])

    def within(dimensions: tuple[int, ...], sigmas: float) -> None:
        means = stays.mean(dim=dimensions)
        count = stays.numel() / means.numel()
        assert float((means - keep).abs().max()) < sigmas * (keep * (1 - keep) / count) ** 0.5

    within((0, 1, 2, 3), 4)
    within((1, 2, 3), 4)  # each epoch
    within((0, 2, 3), 4)  # each call
    within((0, 1, 2), 4)  # each column
    within((0, 1, 3), 4.5)  # each node: of 400 the farthest
    assert float(drawn.double().mean()) == pytest.approx(1, abs=4 * ((1 - keep) / keep / drawn.numel()) ** 0.5)


def test_columns_nodes_epochs_calls_seeds_and_edges_are_uncorrelated() -> None:
    nodes, columns = 300, 64
    drawn = torch.cat(
        [
            masks(keyed(torch.arange(nodes), seed=seed), (nodes, columns), p=0.5, epochs=4, calls=3).flatten(0, 1)
            for seed in (0, 1)
        ]
    )
    signs = (drawn - 1).double()  # draws x nodes x columns, plus or minus 1

    def largest(table: Tensor, sigmas: float) -> None:
        """Rows are variables."""
        count = table.shape[1]
        products = table @ table.T / count
        assert float((products - torch.diag(products.diagonal())).abs().max()) < sigmas / count**0.5

    largest(signs.flatten(1), 4)  # epochs, calls and seeds
    largest(signs.permute(2, 0, 1).flatten(1), 5)  # columns: 2016 pairs
    largest(signs.permute(1, 0, 2).flatten(1), 5.5)  # nodes: 44850 pairs
    lagged = (signs[:, :, :-1] * signs[:, :, 1:]).mean() * (signs[:, :, 1:].numel() ** 0.5)
    assert abs(float(lagged)) < 4
    triples = (signs[:, :, :-2] * signs[:, :, 1:-1] * signs[:, :, 2:]).mean() * (signs[:, :, 2:].numel() ** 0.5)
    assert abs(float(triples)) < 4
    assert abs(float((signs[:, 1:] * signs[:, :-1]).mean())) < 4 / signs[:, 1:].numel() ** 0.5


def test_nodes_keep_their_masks_when_others_go() -> None:
    numbers = torch.arange(50) * 3 + 1
    edges = torch.randint(0, 50, (2, 130), generator=torch.Generator().manual_seed(1))
    stays = torch.rand(50, generator=torch.Generator().manual_seed(2)) < 0.7
    there = stays[edges].all(dim=0)
    left = (stays.cumsum(0) - 1)[edges[:, there]]
    before, after = keyed(numbers, edges), keyed(numbers[stays], left)
    for shape in ((5,), (2, 3), ()):
        first, second = masks(before, (50, *shape), p=0.4)[0, 0], masks(after, (int(stays.sum()), *shape), p=0.4)[0, 0]
        assert torch.equal(first[stays], second)
        first, second = masks(before, (130, *shape), p=0.4)[0, 0], masks(after, (left.shape[1], *shape), p=0.4)[0, 0]
        assert torch.equal(first[there], second)
        loops = edges[0] != edges[1]
        rows = torch.cat([there[loops], stays])
        first = masks(before, (rows.numel(), *shape), p=0.4)[0, 0]
        second = masks(after, (int(rows.sum()), *shape), p=0.4)[0, 0]
        assert torch.equal(first[rows], second)
    assert not before.unkeyed
    assert not after.unkeyed


def test_a_wider_layer_begins_with_the_same_columns() -> None:
    keys = torch.arange(9) * 1234567891011
    wide = dropout_mask(keys, torch.Size([30]), p=0.5, dtype=torch.float64)
    assert torch.equal(dropout_mask(keys, torch.Size([7]), p=0.5, dtype=torch.float64), wide[:, :7])


def test_dropout_is_differentiated_and_may_work_in_place() -> None:
    x = torch.rand(6, 5, dtype=torch.float64, requires_grad=True)
    with keyed(torch.arange(6)).at(0):
        out = functional.dropout(x, 0.5)
    with keyed(torch.arange(6)).at(0):
        inplace = functional.dropout(x * 1, 0.5, inplace=True)
    assert torch.equal(out, inplace)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, (out != 0) * 2.0)
    with keyed(torch.arange(6)).at(0):
        assert torch.equal(functional.dropout(x, 0.5, training=False), x)
        assert torch.equal(functional.dropout(x, 1.0), torch.zeros_like(x))


# -- modules of one's own --------------------------------------------------------------------------------------------


class OwnDropout(nn.Module):
    """Attention with dropout, and dropout between the layers."""

    def __init__(self, layer: Callable[..., nn.Module] = GATConv) -> None:
        super().__init__()
        self.first, self.second = layer(COLUMNS, 4, heads=2, dropout=0.5), layer(8, CLASSES, dropout=0.5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        return self.second(self.drop(self.first(self.drop(x), edge_index).relu()), edge_index)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [GATConv, TransformerConv])
def test_dropout_of_ones_own_layers_is_keyed_too(layer: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    module, whole = OwnDropout(layer), with_far_nodes()
    state = torch.random.get_rng_state()
    trained = gf.train(whole, module, **SHORT)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert trained.certification_blockers == ()
    for request in far_requests(whole):
        assert torch.equal(gf.train(whole.without(request), module, **SHORT).theta, trained.theta)
    assert not torch.equal(gf.train(whole, module, seed=1, **SHORT).theta, trained.theta)
    assert gf.unlearn(trained, whole, gf.Request(nodes=[int(whole.train_rows[0])]), method="retrain").level == "exact"


def noisy(draw: Callable[[Tensor], Tensor]) -> nn.Module:
    class Noisy(OwnGCN):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out = super().forward(x, edge_index)
            return draw(out) if self.training else out

    return Noisy()


GENERATOR = torch.Generator().manual_seed(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        lambda out: out + 0.01 * torch.rand(out.shape[0], 1),
        lambda out: out * torch.bernoulli(torch.full_like(out, 0.9)),
        lambda out: functional.dropout(out.T, 0.5).T,  # neither nodes nor edges come first
        lambda out: functional.alpha_dropout(out, 0.5, training=True),
        lambda out: out + 0.01 * torch.rand(out.shape[0], 1, generator=GENERATOR),
        lambda out: out + 0.01 * float(np.random.rand()),  # noqa: NPY002
        lambda out: out + 0.01 * random.random(),
    ],
)
def test_other_random_numbers_in_training_are_an_obstacle(draw: Callable[[Tensor], Tensor]) -> None:
    trained = gf.train(graph(), noisy(draw), **SHORT)
    assert NOT_REPLAYABLE in trained.certification_blockers
    assert (
        len(trained.certification_blockers) == 1 or "GENERATOR" in trained.certification_blockers[0]
    )  # it may carry data
    assert not trained.certifiable
    outcome = gf.unlearn(trained, graph(), request_of("nodes"), method="retrain")
    assert outcome.level == "empirical"
    assert NOT_REPLAYABLE in outcome.trained.certification_blockers


def test_a_module_without_random_numbers_has_no_obstacle() -> None:
    assert gf.train(graph(), noisy(lambda out: functional.dropout(out, 0.5)), **SHORT).certification_blockers == ()


# -- recipes that cannot have made the weights -----------------------------------------------------------------------


class Brought(nn.Module):
    """Trained elsewhere, before it came here."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(COLUMNS, 5), GCNConv(5, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("own", {"epochs": 0, "polish_steps": 0}),
        ("own", {"epochs": 0, "polish_steps": 3}),
        ("gcn", {"epochs": 0, "polish_steps": 0}),
        ("sharded-gcn", {"epochs": 0, "shards": 2}),
    ],
)
def test_weights_that_the_recipe_did_not_make_cannot_be_made_anew(model: str, options: dict[str, Any]) -> None:
    module: Any = Brought() if model == "own" else model
    trained = gf.train(graph(), module, **options)
    theta = trained.theta.clone()
    for method in ("retrain", *(["grapheraser"] if model.startswith("sharded") else [])):
        plan = gf.plan(trained, graph(), request_of("nodes"), method=method)
        assert plan.level is None
        with pytest.raises(gf.Refused, match="^the recipe has 0 epochs and .*, so it did not make these weights") as e:
            gf.unlearn(trained, graph(), request_of("nodes"), method=method)
        assert "\n" not in str(e.value)
    with pytest.raises(gf.Refused):
        replayed(trained, graph())
    assert torch.equal(trained.theta, theta)
    assert torch.equal(flatten(trained.module), theta)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gcn", {"epochs": 0, "polish_steps": 3, "hidden": 4}),
        ("sgc", {"epochs": 0, "polish_steps": 0}),
        ("sharded-sgc", {"epochs": 0, "shards": 2}),
    ],
)
def test_recipes_that_made_the_weights_without_epochs_are_followed_again(model: str, options: dict[str, Any]) -> None:
    trained = gf.train(graph(), model, **options)
    level = "certified" if trained.recipe.sigma else "exact"
    assert gf.unlearn(trained, graph(), request_of("nodes"), method="retrain").level == level
    assert torch.equal(replayed(trained, graph()).theta, trained.theta)


def test_the_environment_names_versions_threads_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment()
    assert before["torch"] == importlib.metadata.version("torch")
    assert {"graphforget", "numpy", "scipy", "torch_geometric", "python", "machine", "threads"} <= before.keys()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert environment() == before | {"threads": 7}
