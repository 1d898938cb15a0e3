"""Graphs from and to PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphforget.errors import InputError
from graphforget.graph.validation import checked_attributes, checked_edges, is_symmetric

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphforget.graph.graph import Graph


def from_pyg(
    data: Data,
    *,
    name: str = "graph",
    directed: bool | None = None,
    subject_ids: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> Graph:
    """From a PyG `Data` with `x`, `edge_index`, `y` and, if it has them, boolean masks and `node_numbers`.

    Undirected if every edge is there in both directions, unless `directed` says otherwise.
    """
    from torch_geometric.data import HeteroData

    from graphforget.graph.graph import Graph

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
    given |= {"subject_ids": subject_ids, "column_names": column_names, "class_names": class_names}
    if directed is None:
        n = checked_attributes(data.x).shape[0]
        directed = not is_symmetric(checked_edges(data.edge_index, n), n)
    return Graph.create(x=data.x, edges=data.edge_index, y=data.y, directed=directed, name=name, **given)


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
