"""Graphs from and to PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphforget.errors import InputError
from graphforget.graph.validation import checked_attributes, checked_edges, is_symmetric

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphforget.graph.graph import Graph


def read_pyg(data: Data, *, directed: bool | None) -> dict[str, Any]:
    """The arguments of `Graph.create` for a PyG `Data`, all but names."""
    from torch_geometric.data import HeteroData

    if isinstance(data, HeteroData):
        raise InputError(
            "a HeteroData was given, and several types of nodes or edges are not supported: a homogeneous Data "
            "with x, edge_index and y is needed (data.to_homogeneous() may help)"
        )
    for needed in ("x", "edge_index", "y"):
        if getattr(data, needed, None) is None:
            raise InputError(f"the PyG data has no '{needed}', which a Graph needs")
    for unsupported in ("edge_weight", "edge_attr"):
        if getattr(data, unsupported, None) is not None:
            raise InputError(f"the PyG data has '{unsupported}', and only unweighted edges are supported")
    given: dict[str, Any] = {m: getattr(data, m, None) for m in ("train_mask", "val_mask", "test_mask")}
    given["numbers"] = getattr(data, "node_numbers", None)
    classes = getattr(data, "num_classes", None)  # a class may have lost its last node
    given["num_classes"] = classes if isinstance(classes, int) else None
    if directed is None:
        n = checked_attributes(data.x).shape[0]
        directed = not is_symmetric(checked_edges(data.edge_index, n), n)
    return given | {"x": data.x, "edges": data.edge_index, "y": data.y, "directed": directed}


def to_pyg(graph: Graph) -> Data:
    """As a PyG `Data`; `node_numbers` holds each row's stable number, `num_classes` how many classes there are."""
    from torch_geometric.data import Data

    return Data(
        x=graph.x.clone(),
        edge_index=graph.edge_index.clone(),
        y=graph.y.clone(),
        train_mask=graph.train_mask.clone(),
        val_mask=graph.val_mask.clone(),
        test_mask=graph.test_mask.clone(),
        node_numbers=graph.numbers.clone(),
        num_classes=graph.num_classes,
    )
