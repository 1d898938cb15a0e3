"""Modules for nodes that need torch alone, called as `module(x, edge_index)`.

A model of a graph with weights is called as `module(x, edge_index, edge_weight)`, with E weights in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def build(settings: dict[str, Any]) -> nn.Module:
    """A module with these settings, its weights not set."""
    given = dict(settings)
    module: nn.Module = KINDS[given.pop("kind")](**given)
    return module.double()


def scaled(x: Tensor, scale_rows: bool) -> Tensor:
    """The rows of `x` at unit length; rows of zeros stay."""
    if not scale_rows:
        return x
    norms = x.norm(dim=1, keepdim=True)
    if x.dtype == torch.float64:  # squares in short rows are rounded to nothing; a power of two changes no direction
        x = torch.where(norms < 2.0**-400, x * 2.0**600, x)
        norms = x.norm(dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, torch.ones_like(norms))


def with_loops(edge_index: Tensor, n: int) -> Tensor:
    """The edges with a self-loop at every node, once."""
    others = edge_index[:, edge_index[0] != edge_index[1]]
    loops = torch.arange(n, device=edge_index.device)
    return torch.cat([others, torch.stack([loops, loops])], dim=1)


def weights_with_loops(edge_index: Tensor, n: int, edge_weight: Tensor | None) -> Tensor | None:
    """The weights of the edges of `with_loops`; a loop that is not in the graph weighs 1."""
    if edge_weight is None:
        return None
    is_loop = edge_index[0] == edge_index[1]
    loops = torch.ones(n, dtype=edge_weight.dtype, device=edge_weight.device)
    loops = loops.index_copy(0, edge_index[0][is_loop], edge_weight[is_loop])
    return torch.cat([edge_weight[~is_loop], loops])


def refuse_weights(edge_weight: Tensor | None) -> None:
    if edge_weight is not None:
        raise ValueError("this model takes no edge weights")


def message_weights(edges: Tensor, n: int, how: str, dtype: torch.dtype, edge_weight: Tensor | None = None) -> Tensor:
    """What the message of each edge is multiplied by: "normalised", "mean" or "sum"."""
    ones = torch.ones(edges.shape[1], dtype=dtype, device=edges.device) if edge_weight is None else edge_weight
    degrees = torch.zeros(n, dtype=dtype, device=edges.device).index_add(0, edges[1], ones)
    if how == "normalised":
        roots = degrees.rsqrt()
        return roots[edges[0]] * roots[edges[1]] * ones
    return 1 / degrees[edges[1]] if how == "mean" else torch.ones(edges.shape[1], dtype=dtype, device=edges.device)


def propagate(values: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of what every node receives."""
    return torch.zeros_like(values).index_add(0, edges[1], weights[:, None] * values[edges[0]])


class Linear(nn.Module):
    def __init__(self, columns: int, out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(columns, out))
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class Propagation(nn.Module):
    """SGC and SIGN: `sum over h of c_h S^h X W_h`, and a bias."""

    def __init__(
        self,
        columns: int,
        classes: int,
        powers: list[int],
        scales: list[float],
        scale_rows: bool,
        bias: bool,
        mean: bool,
    ) -> None:
        super().__init__()
        self.scale_rows, self.how = scale_rows, "mean" if mean else "normalised"
        self.powers, self.scales = list(powers), list(scales)
        self.weight = nn.Parameter(torch.zeros(len(powers), columns, classes))
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.how == "mean":
            refuse_weights(edge_weight)
        x = scaled(x, self.scale_rows)
        edges, given = with_loops(edge_index, x.shape[0]), weights_with_loops(edge_index, x.shape[0], edge_weight)
        weights = message_weights(edges, x.shape[0], self.how, x.dtype, given)
        total = torch.zeros(x.shape[0], self.weight.shape[2], dtype=x.dtype, device=x.device)
        for hop in range(max(self.powers), -1, -1):  # Horner's rule
            if hop in self.powers:
                place = self.powers.index(hop)
                total = total + self.scales[place] * (x @ self.weight[place])
            if hop:
                total = propagate(total, edges, weights)
        return total if self.bias is None else total + self.bias


class RelationalPropagation(nn.Module):
    """SIGN over relations: means over neighbours along each path of relations, and a bias.

    `edge_relations` has a mask for each edge: bit r says that it is in relation r. With one relation it is not needed.
    """

    def __init__(self, classes: int, paths: list[list[int]], spans: list[list[int]], scale_rows: bool) -> None:
        super().__init__()
        self.scale_rows, self.paths, self.spans = scale_rows, [tuple(path) for path in paths], list(spans)
        self.weight = nn.Parameter(torch.zeros(sum(last - first for first, last in spans), classes))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_relations: Tensor | None = None
    ) -> Tensor:
        if edge_relations is None and any(any(path) for path in self.paths):
            raise ValueError("the model has several relations, and edge_relations says for each edge in which it is")
        x = scaled(x, self.scale_rows)
        everywhere = torch.ones_like(edge_index[0])
        masks = everywhere if edge_relations is None else edge_relations
        weights = everywhere.to(x.dtype) if edge_weight is None else edge_weight.to(x.dtype)
        blocks = self.weight.split([last - first for first, last in self.spans])
        terms = [x[:, first:last] @ block for (first, last), block in zip(self.spans, blocks, strict=True)]
        totals = dict(zip(self.paths, terms, strict=True))
        for path in reversed(self.paths):  # longer ones first
            if path:
                inside = ((masks >> path[0]) & 1).bool()
                edges, own = edge_index[:, inside], weights[inside]
                sums = torch.zeros_like(x[:, 0]).index_add(0, edges[1], own)
                totals[path[1:]] = totals[path[1:]] + propagate(totals[path], edges, own / sums[edges[1]])
        return totals[()] + self.bias


class GCN(nn.Module):
    def __init__(self, columns: int, classes: int, hidden: int, scale_rows: bool) -> None:
        super().__init__()
        self.scale_rows = scale_rows
        self.first, self.second = Linear(columns, hidden, bias=False), Linear(hidden, classes, bias=False)
        self.first_bias, self.second_bias = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(classes))

    def edges(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        edges, given = with_loops(edge_index, x.shape[0]), weights_with_loops(edge_index, x.shape[0], edge_weight)
        return edges, message_weights(edges, x.shape[0], "normalised", x.dtype, given)

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        edges, weights = self.edges(x, edge_index, edge_weight)
        return (propagate(self.first(scaled(x, self.scale_rows)), edges, weights) + self.first_bias).relu()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        edges, weights = self.edges(x, edge_index, edge_weight)
        return propagate(self.second(self.embed(x, edge_index, edge_weight)), edges, weights) + self.second_bias


class GATLayer(nn.Module):
    def __init__(self, columns: int, out: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear = Linear(columns, heads * out, bias=False)
        self.source, self.target = nn.Parameter(torch.zeros(heads, out)), nn.Parameter(torch.zeros(heads, out))
        self.bias = nn.Parameter(torch.zeros(heads * out))

    def forward(self, x: Tensor, edges: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.linear(x).unflatten(1, (self.heads, -1))
        sent, received = (h * self.source).sum(dim=2), (h * self.target).sum(dim=2)
        score = functional.leaky_relu(sent[edges[0]] + received[edges[1]], 0.2)
        if edge_weight is not None:
            score = score + edge_weight.log()[:, None]
        receiver = edges[1][:, None].expand_as(score)
        highest = torch.full_like(sent, -torch.inf).scatter_reduce(0, receiver, score, "amax")
        attention = (score - highest[edges[1]]).exp()
        sums = torch.zeros_like(sent).index_add(0, edges[1], attention)
        messages = (attention / sums[edges[1]])[:, :, None] * h[edges[0]]
        return torch.zeros_like(h).index_add(0, edges[1], messages).flatten(1) + self.bias


class GAT(nn.Module):
    def __init__(self, columns: int, classes: int, hidden: int, heads: int, scale_rows: bool) -> None:
        super().__init__()
        self.scale_rows = scale_rows
        self.first, self.second = GATLayer(columns, hidden, heads), GATLayer(heads * hidden, classes, 1)

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weights = weights_with_loops(edge_index, x.shape[0], edge_weight)
        return functional.elu(self.first(scaled(x, self.scale_rows), with_loops(edge_index, x.shape[0]), weights))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weights = weights_with_loops(edge_index, x.shape[0], edge_weight)
        embedded = self.embed(x, edge_index, edge_weight)
        out: Tensor = self.second(embedded, with_loops(edge_index, x.shape[0]), weights)
        return out


class GINLayer(nn.Module):
    def __init__(self, columns: int, hidden: int, out: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.first, self.second = Linear(columns, hidden, bias=False), Linear(hidden, out, bias=True)
        self.first_bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        sent = self.first(x)
        received = propagate(sent, edge_index, message_weights(edge_index, x.shape[0], "sum", x.dtype))
        out: Tensor = self.second(((1 + self.eps) * sent + received + self.first_bias).relu())
        return out


class GIN(nn.Module):
    def __init__(self, columns: int, classes: int, hidden: int, scale_rows: bool) -> None:
        super().__init__()
        self.scale_rows = scale_rows
        self.first, self.second = GINLayer(columns, hidden, hidden), GINLayer(hidden, hidden, classes)
        self.read_input = Linear(columns, classes, bias=False)
        self.read_first = Linear(hidden, classes, bias=False)

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        refuse_weights(edge_weight)
        activations: Tensor = self.first(scaled(x, self.scale_rows), edge_index).relu()
        return activations

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        refuse_weights(edge_weight)
        hidden = self.embed(x, edge_index)
        read: Tensor = self.read_first(hidden) + self.read_input(scaled(x, self.scale_rows))
        return self.second(hidden, edge_index) + read


class SAGE(nn.Module):
    def __init__(self, columns: int, classes: int, hidden: int, scale_rows: bool, include_self: bool) -> None:
        super().__init__()
        self.scale_rows, self.include_self = scale_rows, include_self
        self.near, self.own = Linear(columns, hidden, bias=False), Linear(columns, hidden, bias=True)
        self.far, self.out = Linear(hidden, classes, bias=False), Linear(hidden, classes, bias=True)

    def mean(self, values: Tensor, edge_index: Tensor) -> Tensor:
        edges = with_loops(edge_index, values.shape[0]) if self.include_self else edge_index
        return propagate(values, edges, message_weights(edges, values.shape[0], "mean", values.dtype))

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        refuse_weights(edge_weight)
        x = scaled(x, self.scale_rows)
        return (self.mean(self.near(x), edge_index) + self.own(x)).relu()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        refuse_weights(edge_weight)
        hidden = self.embed(x, edge_index)
        out: Tensor = self.mean(self.far(hidden), edge_index) + self.out(hidden)
        return out


class Stacked(nn.Module):
    """Fixed propagation, and the embeddings by encoders, under one linear head."""

    def __init__(
        self, fixed: dict[str, Any], encoders: list[dict[str, Any]], width: int, classes: int, norm: float
    ) -> None:
        super().__init__()
        self.norm, self.width = norm, width
        self.fixed = build(fixed)
        self.encoders = nn.ModuleList(build(one) for one in encoders)
        self.weight = nn.Parameter(torch.zeros(width * len(encoders), classes))
        self.scales: Tensor
        self.register_buffer("scales", torch.zeros(len(encoders)))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        edges, given = with_loops(edge_index, x.shape[0]), weights_with_loops(edge_index, x.shape[0], edge_weight)
        weights = message_weights(edges, x.shape[0], "normalised", x.dtype, given)
        blocks = []
        for encoder, scale in zip(self.encoders, self.scales, strict=True):
            embedded = propagate(encoder.embed(x, edge_index, edge_weight), edges, weights)  # type: ignore[operator]
            blocks.append(torch.where(scale > 0, self.norm / scale.clamp_min(1e-300), 0.0) * embedded)
        out: Tensor = self.fixed(x, edge_index, edge_weight) + torch.cat(blocks, dim=1) @ self.weight
        return out


class Boosted(nn.Module):
    """A start, and a network that adds to its logits."""

    def __init__(self, start: dict[str, Any], network: dict[str, Any]) -> None:
        super().__init__()
        self.start, self.network = build(start), build(network)
        self.gate: Tensor
        self.register_buffer("gate", torch.zeros(1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.start(x, edge_index, edge_weight) + self.gate * self.network(x, edge_index, edge_weight)
        return out


class Sharded(nn.Module):
    """The weighted mean of the probabilities of several models, as logarithms."""

    def __init__(self, models: list[dict[str, Any]]) -> None:
        super().__init__()
        self.models = nn.ModuleList(build(one) for one in models)
        self.weights = nn.Parameter(torch.zeros(len(models)))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weights = self.weights.clamp_min(0)
        equal = torch.full_like(weights, 1 / weights.numel())
        weights = torch.where(weights.sum() > 0, weights / weights.sum().clamp_min(1e-300), equal)
        answers = torch.stack([model(x, edge_index, edge_weight).log_softmax(dim=1) for model in self.models])
        return torch.logsumexp(answers + weights.log()[:, None, None], dim=0)


class Linearised(nn.Module):
    """A network at public weights, and its derivative in the direction that was learned."""

    def __init__(self, base: dict[str, Any]) -> None:
        super().__init__()
        self.base = build(base)
        self.delta = nn.Parameter(torch.zeros(sum(p.numel() for p in self.base.parameters())))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        parameters = {name: p.detach() for name, p in self.base.named_parameters()}
        pieces = self.delta.split([p.numel() for p in parameters.values()])
        change = {name: piece.view_as(p) for (name, p), piece in zip(parameters.items(), pieces, strict=True)}

        def outputs(given: dict[str, Tensor]) -> Any:
            return torch.func.functional_call(self.base, given, (x, edge_index, edge_weight))

        both: Any = torch.func.jvp(outputs, (parameters,), (change,))
        logits: Tensor = both[0] + both[1]
        return logits


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Propagation, RelationalPropagation, GCN, GAT, GIN, SAGE, Stacked, Boosted, Sharded, Linearised)
}
