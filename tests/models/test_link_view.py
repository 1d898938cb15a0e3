"""Links as items: the footprint holds every pair that a request removes, changes or adds, and not all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import COLUMNS, random_graph, requests
from graphforget.graph.links import LinkSettings, edge_sides
from graphforget.models.items import Items, item_footprint, items_of
from graphforget.models.link import LinkFixed
from graphforget.models.link_view import LinkView
from graphforget.models.registry import build

Key = tuple[int, int, int]  # two numbers and the label
SMALL = {"test": 0.2, "validation": 0.1, "messages": 0.6, "negatives": 3, "held_out_negatives": 3}


def make(name: str, **options: Any) -> LinkFixed:
    module = build(name, columns=COLUMNS, classes=3, **SMALL | options)
    assert isinstance(module, LinkFixed)
    return module


def keys_of(items: Items) -> list[Key]:
    return [(u, v, y) for (u, v), (y,) in zip(items.keys.tolist(), items.y.tolist(), strict=True)]


def rows_by_key(module: LinkFixed, graph: gf.Graph) -> dict[Key, list[float]]:
    values = module.item_inputs(graph, dtype=torch.float64, device="cpu")[0].values
    return dict(zip(keys_of(items_of(module, graph)), values.tolist(), strict=True))


def check_footprint(module: LinkFixed, graph: gf.Graph, request: gf.Request) -> tuple[int, int]:
    """Compares all features before and after. Gives how many pairs change, and how many may."""
    retained = graph.without(request)
    items, later = items_of(module, graph), items_of(module, retained)
    touched = item_footprint(module, graph, retained, request, module.reach)
    before, after = rows_by_key(module, graph), rows_by_key(module, retained)
    names = keys_of(items)
    trains = {key for key, mask in zip(names, items.train_mask.tolist(), strict=True) if mask}
    trains_later = {key for key, mask in zip(keys_of(later), later.train_mask.tolist(), strict=True) if mask}
    changed = {key for key in before.keys() & after.keys() if before[key] != after[key]}
    assert {names[row] for row in touched.removed} == trains - after.keys()
    assert {keys_of(later)[row] for row in touched.added} == trains_later - before.keys()
    reached, affected = ({names[row] for row in rows} for rows in (touched.reached, touched.affected))
    assert changed <= reached <= before.keys() & after.keys()
    assert affected == reached & trains
    return len(changed), len(reached)


@pytest.mark.parametrize("name", ["link-sgc", "link-sign"])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(6, 20),
    edges=st.integers(1, 60),
    sparse=st.booleans(),
    hops=st.integers(0, 3),
    split_seed=st.integers(0, 9),
    data=st.data(),
)
def test_footprint_holds_every_pair_that_changes(
    name: str, seed: int, nodes: int, edges: int, sparse: bool, hops: int, split_seed: int, data: st.DataObject
) -> None:
    graph = random_graph(seed, nodes=nodes, edges=edges, sparse=sparse)
    check_footprint(make(name, hops=hops, split_seed=split_seed), graph, data.draw(requests(graph)))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    gone=st.sets(st.integers(0, 17), min_size=1, max_size=5),
    learn=st.booleans(),
    messages=st.sampled_from([0.0, 0.3, 0.9]),
    negatives=st.integers(0, 8),
    data=st.data(),
)
def test_footprint_holds_every_pair_for_other_settings_and_numbers_with_gaps(
    seed: int, gone: set[int], learn: bool, messages: float, negatives: int, data: st.DataObject
) -> None:
    whole = random_graph(seed, nodes=18, edges=60)
    graph = whole.without(gf.Request(nodes=sorted(gone)))
    rows = data.draw(requests(graph))  # names rows of a graph without gaps
    name = graph.numbers.tolist()
    request = gf.Request(
        [name[int(node)] for node in rows.nodes],
        [(name[int(u)], name[int(v)]) for u, v in rows.edges],
        {name[int(node)]: columns for node, columns in rows.attributes.items()},
        labels=[name[int(node)] for node in rows.labels],
    )
    options = {"learn_messages": learn, "messages": messages, "negatives": negatives, "held_out_negatives": 2}
    check_footprint(make("link-sign", hops=2, split_seed=seed % 7, **options), graph, request)


def test_footprint_is_not_needlessly_large() -> None:
    graph = random_graph(4, nodes=400, edges=500)
    module = make("link-sign", hops=2)
    pairs, sides = edge_sides(graph, module.view.settings)
    count = len(items_of(module, graph))
    for side in range(4):
        changed = reached = 0
        for u, v in pairs[sides == side][:5].tolist():
            one = check_footprint(module, graph, gf.Request(edges=[(u, v)]))
            changed, reached = changed + one[0], reached + one[1]
        assert reached < 0.1 * 5 * count  # of five requests
        assert changed >= 0.5 * reached
        assert (reached == 0) == (side > 1)  # no feature sees a held-out edge


def test_training_graph_has_the_same_training_items() -> None:
    graph = random_graph(6, nodes=50, edges=150)
    module = make("link-sign")
    part = module.view.training_graph(graph)
    whole, learned = (
        {key: row for key, row in rows_by_key(module, g).items() if key in trains(module, g)} for g in (graph, part)
    )
    assert whole == learned
    assert len(whole) > 20
    assert part.num_edges < graph.num_edges
    assert not part.train_mask.any()
    again = module.view.training_graph(part)
    assert torch.equal(again.edge_index, part.edge_index)


def trains(module: LinkFixed, graph: gf.Graph) -> set[Key]:
    items = items_of(module, graph)
    return {key for key, mask in zip(keys_of(items), items.train_mask.tolist(), strict=True) if mask}


def test_messages_of_networks_may_be_learned() -> None:
    graph = random_graph(7, nodes=40, edges=120)
    view = LinkView(LinkSettings(messages=1.0, learn_messages=True))
    items, edges = view.items(graph), view.messages(graph)
    learned = {(u, v) for (u, v, y) in keys_of(items) if y == 1} - {
        (u, v) for (u, v, y), mask in zip(keys_of(items), items.train_mask.tolist(), strict=True) if not mask
    }
    assert {(u, v) for u, v in edges.T.tolist() if u < v} == learned
    values = torch.randn(40, 3)
    u, v = view.places(graph, dtype=torch.float32).T
    combined = view.combined(values, view.places(graph, dtype=torch.float32))
    assert torch.equal(combined, values[u] * values[v])


def test_logits_of_any_pair_are_those_of_held_out_pairs() -> None:
    graph = random_graph(9, nodes=30, edges=90)
    module = make("link-sign").double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    items = items_of(module, graph)
    logits = module(*module.item_inputs(graph, dtype=torch.float64, device="cpu"))
    chosen = items.test_mask | items.val_mask
    torch.testing.assert_close(module.pair_logits(graph, items.keys[chosen]), logits[chosen].detach())
