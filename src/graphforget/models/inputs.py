"""The inputs that a module is called with, made from a graph."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.overlay import SlotChange
from graphforget.linalg.sparse import SparseMatrix, converted
from graphforget.models.base import GraphModel, reads_edge_weight
from graphforget.models.built_in import is_built_in
from graphforget.models.embedding_nodes import DenseNodes, SparseNodes
from graphforget.models.fixed import FixedPropagation
from graphforget.models.followed import followed
from graphforget.models.followed_embeddings import can_embed_by_rows, row_embeddings
from graphforget.models.items import ItemModel
from graphforget.models.linearised import base_of
from graphforget.models.parameters import call_with, flatten
from graphforget.models.prepared import prepared_once
from graphforget.models.propagated import PropagatedFeatures, propagate
from graphforget.models.relational import RelationalSIGN
from graphforget.models.stacked import Stacked
from graphforget.models.stacked_model import StackedInputs
from graphforget.models.trials import weightings


def model_inputs(
    module: nn.Module, graph: Graph, *, dtype: torch.dtype, device: str | torch.device = "cpu"
) -> tuple[Any, Any]:
    """The two inputs of `module`: a model of this package prepares the graph, any other gets `(x, edge_index)`.

    If the graph has edge weights, such a module gets them as a third input. A linearised model takes the inputs of its
    base. Sparse attributes become dense for a module that cannot use them.
    """
    module = base_of(module)
    check_edge_arrays(module, graph)
    if isinstance(module, ItemModel):
        key = (module.preparation, dtype, str(device))
        return prepared_once(graph, key, lambda: module.item_inputs(graph, dtype=dtype, device=device))
    if is_built_in(module) and isinstance(module, GraphModel) and module.preparation is not None:
        if dtype == torch.float64 and str(device) == "cpu" and can_follow(module, graph):
            assert isinstance(module, FixedPropagation)
            return propagated_inputs(module, graph)
        key = (module.preparation, dtype, str(device))
        plain = dtype == torch.float64 and str(device) == "cpu"
        if plain and isinstance(module, Stacked):
            if can_follow(module.fixed, graph):
                return prepared_once(graph, key, lambda: _stacked_inputs(module, graph))
            if can_embed_by_rows(module, graph):
                return prepared_once(graph, key, lambda: _sparse_stacked_inputs(module, graph))
        return prepared_once(graph, key, lambda: _inputs(module, graph, dtype=dtype, device=device))
    return _inputs(module, graph, dtype=dtype, device=device)


def inputs_for_one_use(
    module: nn.Module, graph: Graph, *, dtype: torch.dtype, device: str | torch.device = "cpu"
) -> tuple[Any, Any]:
    """The same inputs for a graph that is used once. They do not take the place of prepared inputs of other graphs."""
    module = base_of(module)
    check_edge_arrays(module, graph)
    if isinstance(module, ItemModel):
        return module.item_inputs(graph, dtype=dtype, device=device)
    inputs: tuple[Any, Any] = _inputs(module, graph, dtype=dtype, device=device)
    return inputs


def check_edge_arrays(module: nn.Module, graph: Graph) -> None:
    """Raises `InputError` for a graph with arrays of edges that the module would not read."""
    if graph.edge_relations is not None and not (isinstance(module, GraphModel) and module.takes_relations):
        raise InputError(f"the graph has relations, and a {type(module).__name__} takes none: relational-sign does")
    if graph.edge_weight is None:
        if weightings(module) == (True,):
            raise InputError(f"{type(module).__name__}.forward needs 'edge_weight', and the graph has no edge weights")
        return
    if isinstance(module, GraphModel):
        module.checked_weight(graph.edge_weight)
    if not reads_edge_weight(module):
        method = f"{type(module).__name__}.{'propagation' if isinstance(module, GraphModel) else 'forward'}"
        raise InputError(f"the graph has edge weights, and {method} has no parameter 'edge_weight' in its place")


def outputs(module: nn.Module, graph: Graph, rows: Tensor | None = None) -> Tensor:
    """What `module` gives in float64 for all items of the graph, or for some of them. Nothing is recorded."""
    inputs = model_inputs(module, graph, dtype=torch.float64)
    propagated = isinstance(inputs[0], PropagatedFeatures) and inputs[1] is None
    if propagated and rows is not None:  # a few nodes cost less than all
        inputs, rows = (inputs[0].only(rows), None), None
    with torch.no_grad():
        out: Tensor = module(*inputs)
    return out if rows is None else out[rows]


def can_follow(module: nn.Module, graph: Graph) -> bool:
    """Whether the features of a model are propagated once and follow deletions: those of SGC and SIGN do.

    For undirected graphs with dense attributes. `||S||_2 <= 1`, which the bound on rounding needs, holds there.
    """
    return isinstance(module, FixedPropagation) and module.symmetric_propagation and graph.overlay is not None


def propagated_inputs(module: FixedPropagation, graph: Graph, *, anew: bool = False) -> tuple[Any, None]:
    """The inputs of such a model. They follow those of the graph before a deletion if these are still there."""
    overlay, settings = graph.overlay, module.propagated_settings
    assert overlay is not None

    def prepare() -> PropagatedFeatures:
        return PropagatedFeatures(propagate(overlay, settings, overlay.slots_of(graph.train_rows.numpy())))

    def follow(earlier: PropagatedFeatures) -> PropagatedFeatures:
        assert isinstance(graph.change, SlotChange)
        train_slots = overlay.slots_of(graph.train_rows.numpy())
        return PropagatedFeatures(followed(earlier.propagated, overlay, graph.change, train_slots))

    return prepared_once(graph, settings, prepare, follow=None if anew else follow, anew=anew), None


def _stacked_inputs(module: Stacked, graph: Graph) -> tuple[Any, StackedInputs]:
    """Fixed features that follow deletions, and the embeddings: they follow too, or are computed anew."""
    features, _ = propagated_inputs(module.fixed, graph)
    if can_embed_by_rows(module, graph):
        return features, StackedInputs(None, row_embeddings(module, graph, DenseNodes(graph)))
    x = converted(graph.x, dtype=torch.float64, device="cpu")
    return features, StackedInputs(None, module.embedded(x, graph.edge_index))


def _sparse_stacked_inputs(module: Stacked, graph: Graph) -> tuple[Any, StackedInputs]:
    """Attributes and propagation, and embeddings that follow deletions."""
    x = converted(graph.x, dtype=torch.float64, device="cpu")
    attributes, propagation = module.fixed.prepare(x, graph.edge_index)
    assert isinstance(attributes, SparseMatrix)
    assert isinstance(propagation, SparseMatrix)
    nodes = SparseNodes(graph, propagation, attributes, scaled=module.fixed.scale_rows)
    embeddings = row_embeddings(module, graph, nodes)
    return attributes, StackedInputs(module.fixed.marked_symmetric(propagation), embeddings)


def fresh_inputs(module: nn.Module, graph: Graph, *, device: str | torch.device = "cpu") -> tuple[Any, Any] | None:
    """The inputs as propagating the graph anew gives them, bit for bit; None for a model that does not propagate so.

    Features that followed deletions by differences are close to them, and training has to be a function of the graph.
    """
    if str(device) != "cpu" or not is_built_in(module):
        return None
    if isinstance(module, Stacked) and can_follow(module.fixed, graph):
        features, stacked = model_inputs(module, graph, dtype=torch.float64)
        if not features.propagated.is_fresh:
            features, _ = propagated_inputs(module.fixed, graph, anew=True)
            key = (module.preparation, torch.float64, "cpu")
            prepared_once(graph, key, lambda: (features, stacked), anew=True)
        return features, stacked
    if not can_follow(module, graph):
        return None
    assert isinstance(module, FixedPropagation)
    inputs = propagated_inputs(module, graph)
    return inputs if inputs[0].propagated.is_fresh else propagated_inputs(module, graph, anew=True)


def _inputs(module: nn.Module, graph: Graph, *, dtype: torch.dtype, device: str | torch.device) -> Any:
    x, edge_index = converted(graph.x, dtype=dtype, device=device), graph.edge_index.to(device)
    if isinstance(module, RelationalSIGN):
        return module.prepare_graph(x, edge_index, graph)
    if isinstance(module, GraphModel):
        attributes, propagation = module.prepare(x, edge_index, *_weight(graph, device))
        symmetric = is_built_in(module) and module.symmetric_propagation  # a subclass may weigh messages differently
        return attributes, module.marked_symmetric(propagation) if symmetric and not graph.directed else propagation
    if x.layout == torch.sparse_csr and not accepts_sparse(module, x):
        x = x.to_dense()
    return x, edge_index, *(weight.to(dtype) for weight in _weight(graph, device))


def _weight(graph: Graph, device: str | torch.device) -> tuple[Tensor, ...]:
    """The weights of the edges, if there are any, as further arguments."""
    return () if graph.edge_weight is None else (graph.edge_weight.to(device),)


def accepts_sparse(module: nn.Module, x: Tensor) -> bool:
    """Whether `module` runs on sparse CSR attributes and can be differentiated twice there, as PyG's GCNConv can."""
    module = copy.deepcopy(module).eval()  # the trial must not change the module
    probe = torch.eye(2, x.shape[1], dtype=x.dtype, device=x.device).to_sparse_csr()
    edge_index = torch.tensor([[0, 1], [1, 0]], device=x.device)
    theta = flatten(module).to(x.dtype).requires_grad_()
    try:
        with torch.enable_grad():
            out = call_with(module, theta, probe, edge_index).square().sum()
            (gradient,) = torch.autograd.grad(out, theta, create_graph=True)
            torch.autograd.grad(gradient.square().sum(), theta)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, AssertionError):
        return False
    return True
