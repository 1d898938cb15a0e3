"""A graph from a file: a PyG `Data` saved by torch, or a list of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.files import check_uncompressed
from graphforget.graph.graph import Graph
from graphforget.graph.targets import kind_of_input

if TYPE_CHECKING:
    from torch_geometric.data import Data

SMALL = 2**24  # tensors of one name may have so many numbers in a file of any size
SPARSE = "x"  # only these may be sparse
NEEDED = (SPARSE, "edge_index", "y", "train_mask", "val_mask", "test_mask", "graph_numbers", "edge_weight")


def read_pyg_file(path: Path, *, target: str | None = None, like: Graph | None = None) -> Graph:
    """The graph of a PyG `Data` that was written by `torch.save(data, path)`; no code in the file ever runs.

    See `Graph.from_pyg` for what the data must hold. A list of `Data` is a collection, see `Graph.from_pyg_list`. A
    `HeteroData` needs the type of the nodes that are predicted as `target`, see `Graph.from_hetero`. Classes are as
    many as those of `like`, if it has classes too.
    """
    from torch_geometric.data import HeteroData

    data = _read(path)
    try:
        if isinstance(data, HeteroData):
            if target is None:
                types = ", ".join(map(repr, data.node_types))
                raise InputError(
                    f"it holds a HeteroData, so the target is needed, one of its types ({types or 'none'})"
                )
            classes = _classes_of(like, data[target] if target in data.node_types else None)
            return Graph.from_hetero(data, target=target, name=path.stem, num_classes=classes)
        if target is not None:
            raise InputError(f"the target is {target!r}, and the file holds no HeteroData, whose nodes have types")
        if isinstance(data, list):
            return Graph.from_pyg_list(data, name=path.stem)
        return Graph.from_pyg(data, name=path.stem, num_classes=_classes_of(like, data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _classes_of(like: Graph | None, data: Any) -> int | None:
    """How many classes `like` has; None if either has no classes."""
    y = getattr(data, "y", None)
    if like is None or y is None:
        return None
    return like.num_classes if like.target_kind == kind_of_input(y) == "classes" else None


def read_pyg_data(path: Path) -> Data:
    """The PyG `Data` of a file, or a `HeteroData`."""
    data = _read(path)
    if isinstance(data, list):
        raise InputError(f"{path} holds a list, one PyG Data is needed (of a dataset, save dataset[0])")
    return data


def _read(path: Path) -> Data | list[Data]:
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    # PyG registers `Data` and `HeteroData` with torch as safe to load, but not the classes that they contain.
    contained = [GlobalStorage, DataEdgeAttr, DataTensorAttr, BaseStorage, EdgeStorage, NodeStorage]
    safe = torch.serialization.safe_globals(contained)
    check_uncompressed(path)
    try:
        # Unchecked, a sparse tensor with indices out of range would pass and read foreign memory later.
        ignored = warnings.catch_warnings(action="ignore")  # of a damaged file, which is refused anyway
        with safe, torch.sparse.check_sparse_tensor_invariants(), ignored:
            data = torch.load(path, map_location="cpu", weights_only=True)
        collection = isinstance(data, list) and bool(data) and all(isinstance(one, Data) for one in data)
        size = path.stat().st_size
        stores = data.stores if isinstance(data, HeteroData) else []
        parts = data if collection else [data] if isinstance(data, Data) else stores
        invalid = _invalid_tensors(parts, max(size, SMALL))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # a damaged file can raise any exception
        raise InputError(f"{path} is not a PyG Data of tensors and plain values, or it is damaged") from error
    if not collection and not isinstance(data, Data | HeteroData):
        kind = type(data).__name__
        raise InputError(f"{path} holds a {kind}, one PyG Data is needed (of a dataset, save dataset[0])")
    if invalid:
        raise InputError(f"{path} holds a Data whose '{invalid[0]}' is not a tensor of its size, which a Graph needs")
    for part in parts:
        edges = getattr(part, "edge_index", None)
        if edges is not None and (edges.dim() != 2 or edges.shape[0] != 2):
            raise InputError(f"{path} holds edges of shape {tuple(edges.shape)}, 2 x E is needed")
    return data


def _invalid_tensors(parts: Sequence[Data], most: int) -> list[str]:
    """The names of values that are no tensors, or of tensors that would take far more memory than the file."""
    values = {name: [value for part in parts if (value := getattr(part, name, None)) is not None] for name in NEEDED}
    return [name for name, tensors in values.items() if not _fit(tensors, most, sparse=name == SPARSE)]


def _fit(values: Sequence[object], most: int, *, sparse: bool) -> bool:
    """Whether all are plain tensors, and together have at most so many numbers; files can name one many times."""
    tensors = [value for value in values if isinstance(value, Tensor) and _is_plain(value, sparse=sparse)]
    longest = max((size for tensor in tensors for size in tensor.shape), default=0)
    return len(tensors) == len(values) and longest <= most and sum(map(_numbers, tensors)) <= most


def _is_plain(tensor: Tensor, *, sparse: bool) -> bool:
    """Whether a tensor holds numbers that can be computed with: none on a device without data, none quantised."""
    of_type = not tensor.is_quantized and (not tensor.dtype.is_floating_point or tensor.dtype.itemsize > 1)
    return of_type and tensor.device.type == "cpu" and (sparse or tensor.layout == torch.strided)


def _numbers(tensor: Tensor) -> int:
    if tensor.layout == torch.strided:
        return tensor.numel()
    stored = tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()
    return tensor.shape[0] + stored.numel()
