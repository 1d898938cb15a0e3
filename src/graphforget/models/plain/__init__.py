"""A released model that needs torch alone: `load("model.pt")` gives a module.

This folder is copied beside the weights when a model is exported. A module is called as

- `module(x, edge_index)` for nodes: a row of logits for each node; `module(x, edge_index, edge_weight)` if edges have
  weights,
- `module(x, edge_index, edge_relations=masks)` for nodes of a heterogeneous graph,
- `module(x, edge_index, batch)` for graphs: a row for each graph, where `batch` is the graph of each node, from 0,
- `module(x, edge_index, pairs, numbers)` for links: a row for each row of `pairs`, which is n x 2.

`x` are n x d attributes, dense, in float64. `edge_index` is 2 x E as in PyG: messages flow from row 0 to row 1, and an
undirected edge stands in both directions. `numbers` are the permanent numbers of the nodes, 0 to n - 1 by default: they
say which edges were held out for validation and test, and a link is never predicted from those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from .items import ITEM_KINDS
from .nodes import KINDS


def load(path: str | Path) -> nn.Module:
    """The module in a file that was exported. `module.certificate` is the id of the certificate of its weights."""
    content: dict[str, Any] = torch.load(path, weights_only=True)
    module = build(content["settings"])
    module.load_state_dict(content["state_dict"])
    module.certificate = content["certificate"]
    return module.eval()


def build(settings: dict[str, Any]) -> nn.Module:
    """A module with these settings, its weights not set."""
    given = dict(settings)
    module: nn.Module = (KINDS | ITEM_KINDS)[given.pop("kind")](**given)
    return module.double()
