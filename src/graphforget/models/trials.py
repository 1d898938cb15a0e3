"""Trials of a module on small graphs: does a change travel further than the module's reach says?"""

from __future__ import annotations

import copy
import itertools
from inspect import Parameter, signature

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.models.base import reads_edge_weight
from graphforget.models.parameters import trainable
from graphforget.request.footprint import footprint
from graphforget.request.request import Request


def try_on_small_graphs(module: nn.Module, columns: int, classes: int | None, reach: Reach) -> tuple[str, bool]:
    """The first failed trial in words, or an empty text; and whether it refutes the reach."""
    arm = 6 if reach.hops is None else reach.hops + 4
    kinds = itertools.product(weightings(module), (False, True))
    graphs = [small_graph(columns, directed=directed, arm=arm, weighted=weighted) for weighted, directed in kinds]
    for seed in range(2):
        drawn = _with_random_weights(module, seed)
        for graph in graphs:
            before = logits(fresh_copy(drawn), graph)
            _check_shape(before, nodes=graph.num_nodes, classes=classes)
            if not torch.isfinite(before).all():
                return "its outputs are not finite on small positive attributes", False
            if not torch.equal(before, logits(fresh_copy(drawn), graph)):
                return "the same input gives different outputs in eval mode", False
            for request in _small_requests(graph, arm):
                after = graph.without(request)
                expected = logits(fresh_copy(drawn), after)
                used = fresh_copy(drawn)
                logits(used, graph)
                if not torch.equal(logits(used, after), expected):
                    return "its output depends on a graph it has seen before", False
                stays = torch.ones(graph.num_nodes, dtype=torch.bool)
                stays[footprint(graph, request, reach).reached] = False
                rows = torch.isin(graph.numbers, after.numbers) & stays
                new_rows = torch.searchsorted(after.numbers, graph.numbers[rows])
                if not torch.allclose(before[rows], expected[new_rows], rtol=1e-8, atol=1e-9):
                    hops = f"more than {reach.hops} hops away"
                    return (
                        f"a change reaches nodes {hops} (pooling, normalisation over nodes, the order of nodes ...)",
                        True,
                    )
    return "", False


def _check_shape(given: Tensor, *, nodes: int, classes: int | None) -> None:
    if given.dim() != 2 or given.shape[0] != nodes or given.shape[1] != (classes or given.shape[1]):
        shape = f"{nodes} x {classes or 'classes'}"
        raise InputError(f"the model gives an output of shape {tuple(given.shape)}, {shape} is needed")


def fresh_copy(module: nn.Module) -> nn.Module:
    """A copy in float64 and eval mode, so that no trial influences the next."""
    return copy.deepcopy(module).eval().to(device="cpu", dtype=torch.float64)


def _with_random_weights(module: nn.Module, seed: int) -> nn.Module:
    """A copy with random weights, because weights of 0 may hide a path that training would open."""
    module = fresh_copy(module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in trainable(module):
            width = max(1, parameter.shape[0] if parameter.dim() == 2 else 1) ** 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / width)
    return module


def logits(module: nn.Module, graph: Graph) -> Tensor:
    with torch.no_grad():
        weights = () if graph.edge_weight is None else (graph.edge_weight,)
        out: Tensor = module(graph.x, graph.edge_index, *weights)
        return out


def weightings(module: nn.Module) -> tuple[bool, ...]:
    """Whether it is tried without weights of edges and with them: with them alone if it needs them."""
    if not reads_edge_weight(module):
        return (False,)
    given = signature(module.forward).parameters.get("edge_weight")
    return (True,) if given is not None and given.default is Parameter.empty else (False, True)


def small_graph(columns: int, *, directed: bool, arm: int, weighted: bool = False) -> Graph:
    """A hub with five neighbours and two triangles (0 to 5), a path from there, another triangle, a lone node."""
    last = 5 + arm
    edges = [(0, i) for i in range(1, 6)] + [(1, 2), (2, 3)] + [(i, i + 1) for i in range(5, last)]
    edges += [(last + 1, last + 2), (last + 2, last + 3), (last + 3, last + 1)]
    n = last + 5
    x = torch.rand(n, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    x[3] *= 3  # the extremes lie on nodes that the requests change
    x[last] *= 0.2
    weight = None
    if weighted:
        weight = 0.3 + 0.1 * torch.arange(len(edges), dtype=torch.float64)
        weight[5], weight[6] = 50.0, 0.02  # the extremes lie on edges that the requests change
    ends = torch.tensor(edges).T
    return Graph.create(x=x, edges=ends, y=torch.arange(n) % 2, directed=directed, edge_weight=weight)


def _small_requests(graph: Graph, arm: int) -> list[Request]:
    last = 5 + arm
    weights = [] if graph.edge_weight is None else [Request(edge_weights=[(1, 2)]), Request(edge_weights=[(2, 3)])]
    return [
        *weights,
        Request(nodes=[0]),
        Request(nodes=[last]),
        Request(edges=[(1, 2)]),
        Request(edges=[(last - 1, last)]),
        Request(attributes={3: "all"}),
        Request(attributes={last: "all"}),
    ]
