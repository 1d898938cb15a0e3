"""Correct and Smooth, which MEGU's published prediction ends with. It carries old predictions into the output."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.models.propagation import normalised_adjacency

STEPS, CORRECTION, SMOOTHING = 80, 0.8, 0.5


def correct_and_smooth(probabilities: Tensor, graph: Graph, old: Tensor) -> Tensor:
    """Spreads the errors on training nodes, then the corrected probabilities; `old` stand for the training labels."""
    weight = graph.edge_weight
    propagation = normalised_adjacency(graph.edge_index, graph.num_nodes, dtype=torch.float64, edge_weight=weight)
    wanted = torch.nn.functional.one_hot(old, probabilities.shape[1]).double()
    train = graph.train_mask.unsqueeze(1)
    error = torch.where(train, wanted - probabilities, 0.0)
    spread = error
    for _ in range(STEPS):
        spread = (CORRECTION * (propagation @ spread) + (1 - CORRECTION) * error).clamp(-1, 1)
    start = torch.where(train, wanted, probabilities + spread)
    out = start
    for _ in range(STEPS):
        out = (SMOOTHING * (propagation @ out) + (1 - SMOOTHING) * start).clamp(0, 1)
    return out
