"""Modules that were trained elsewhere: PyG's own layers, in a plain loop, and the functions that train them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

from cases import CLASSES, COLUMNS


class TwoLayers(nn.Module):
    """Two message-passing layers, with dropout, whose outputs are log-probabilities as in PyG's examples."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        hidden = functional.dropout(self.first(x, edge_index).relu(), 0.2, training=self.training)
        return self.second(hidden, edge_index).log_softmax(dim=1)


class PlainGCN(TwoLayers):
    def __init__(self, hidden: int = 8, columns: int = COLUMNS) -> None:
        super().__init__(GCNConv(columns, hidden), GCNConv(hidden, CLASSES))


class PlainSAGE(TwoLayers):
    def __init__(self) -> None:
        super().__init__(SAGEConv(COLUMNS, 8), SAGEConv(8, CLASSES))


class PlainGATv2(TwoLayers):
    def __init__(self) -> None:
        super().__init__(GATv2Conv(COLUMNS, 4, heads=2), GATv2Conv(8, CLASSES))


class Normalised(PlainGCN):
    """With a BatchNorm, whose statistics are those of the training data."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(COLUMNS)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.norm(x.to_dense() if x.layout == torch.sparse_csr else x), edge_index)


def plain_loop(module: nn.Module, data: Data) -> nn.Module:
    """Trains a module as PyG's examples do, in float32."""
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=5e-4)
    x = data.x.to(torch.float32)
    module.train()
    for _ in range(15):
        optimiser.zero_grad()
        out = module(x, data.edge_index)
        functional.nll_loss(out[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    return module


def retrain_gcn(data: Data) -> nn.Module:
    return plain_loop(PlainGCN(), data)


def retrain_sage(data: Data) -> nn.Module:
    return plain_loop(PlainSAGE(), data)


def retrain_gatv2(data: Data) -> nn.Module:
    return plain_loop(PlainGATv2(), data)


def retrain_normalised(data: Data) -> nn.Module:
    return plain_loop(Normalised(), data)


def half_loss(logits: Any, labels: Any) -> Any:
    """A loss of one's own."""
    return functional.cross_entropy(logits, labels, reduction="none") * 0.5


RETRAIN: dict[str, Callable[[Data], nn.Module]] = {
    "gcn": retrain_gcn,
    "sage": retrain_sage,
    "gatv2": retrain_gatv2,
    "normalised": retrain_normalised,
}
