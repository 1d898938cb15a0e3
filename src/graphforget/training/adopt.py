"""`gf.adopt`: a model that was trained elsewhere, as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.graph.validation import count_repeated_edges
from graphforget.models.built_in import has_built_in_type
from graphforget.models.inspection import inspect
from graphforget.models.parameters import trainable
from graphforget.training.loss_checks import check_loss, loss_for
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.own_training import checked_retrain, float64_logits, measured_model, own_copy
from graphforget.training.recipe import ADOPTED, Recipe
from graphforget.training.train import OWN_MODEL, check_graph
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.validation import whole_number

if TYPE_CHECKING:
    from torch_geometric.data import Data

PREDICTION_TOLERANCE = 1e-6  # of the largest logit
# What a Graph holds of a Data; `num_nodes` follows from the attributes.
GRAPH_PARTS = frozenset({"x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "node_numbers"})
GRAPH_PARTS |= {"num_classes", "num_nodes", "edge_weight"}


# Longer than 50 lines because of the documentation of its parameters.
def adopt(
    module: nn.Module,
    graph: Graph | Data,
    *,
    loss: Loss | LossFunction | str | None = None,
    mu: float | None = None,
    retrain: RetrainFunction | None = None,
    reach: Reach | None = None,
    seed: int = 0,
    floor: float | None = None,
) -> Trained:
    """Takes a model that was trained elsewhere. Its weights are not changed, and nothing is trained.

    With `retrain`, a deletion calls this function with the retained graph, and the certificate has the level `exact`
    under the condition that the function reads nothing else. Without it, only the level `empirical` is possible
    (`method="idea"` or `"gif"`). A network that was trained on all data cannot be certified afterwards. The same class
    can be certified if it is trained as `gf.train(graph, gf.stacked(MyGNN))`.

    Args:
        module: The trained module, called as `module(x, edge_index)`. It is copied, never changed. If the graph has
            edge weights, it is called as `module(x, edge_index, edge_weight)`.
        graph: The graph that it was trained on, or the PyG `Data`. The graph of a `Data` for the other functions is
            `gf.Graph.from_pyg(data)`. Self-loops are kept. Repeated edges are refused.
        loss: The loss of its training: a name, a `Loss` or a callable `(logits, labels) -> one loss per node`. Only
            influence steps (`idea`, `gif` ...) use it. The default is the cross-entropy.
        mu: The weight of the L2 term, which is the `weight_decay` of torch's optimisers. Only influence steps use it.
            The default is 5e-4.
        retrain: Trains the model: a function from a PyG `Data` of the retained graph to a module of the same class.
            The `Data` has `x`, `edge_index`, `y`, the masks, `node_numbers`, `num_classes` and, if the graph has
            weights, `edge_weight`. The function must not hold data, neither in its closure nor in global variables.
        reach: How far messages travel, if it is known; by default it is counted.
        seed: The seed of torch's generator when `retrain` is called.
        floor: A release with a lower score (`Trained.utility`) is refused.

    Returns:
        The model, with the weights of `module` in float64. Its `certification_blockers` say what in the module may
        carry data, and its `notes` what the graph does not hold of the `Data`.

    Raises:
        InputError: The module does not fit the graph, the declared reach is too small, the `Data` has edges that a
            graph cannot hold, or `retrain` reaches data.

    Example:
        >>> import graphforget as gf, torch
        >>> from torch_geometric.nn import GCN
        >>> graph = gf.load("patients")
        >>> def retrain(data):  # the training loop of your own, here of one step
        ...     module = GCN(data.num_features, 8, num_layers=2, out_channels=data.num_classes)
        ...     loss = torch.nn.functional.cross_entropy
        ...     loss(module(data.x.float(), data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        ...     torch.optim.SGD(module.parameters(), lr=0.1).step()
        ...     return module
        >>> trained = gf.adopt(retrain(graph.to_pyg()), graph, retrain=retrain)
        >>> gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"])).level
        'exact'
    """
    own, data = (graph, None) if isinstance(graph, Graph) else _graph_of(graph)
    check_graph(own)
    _check_module(module)
    retrain = None if retrain is None else checked_retrain(retrain)
    loss = loss_for(loss, targets=own.target_kind)
    check_loss(loss, classes=own.num_classes, targets=own.target_kind)
    recipe = Recipe(
        model=f"{type(module).__module__}.{type(module).__qualname__}",
        options={ADOPTED: True},
        seed=whole_number(seed, "seed"),
        mu=OWN_MODEL.mu if mu is None else _number(mu, "mu"),
        loss=loss.name,
        epochs=0,
        learning_rate=OWN_MODEL.learning_rate,
        polish_steps=0,
        tolerance=1e-3,
        floor=None if floor is None else _number(floor, "floor"),
    )
    copied = own_copy(module)
    inspection = inspect(copied, columns=own.num_columns, declared=reach)
    logits = float64_logits(copied, own)
    if not torch.isfinite(logits).all():
        raise InputError("the module gives outputs on this graph that are not finite")
    if data is not None:
        _check_predictions(copied, data, logits)
    blockers, notes = inspection.certification_blockers, (*own.notes, *_dropped(data))
    return measured_model(copied, own, recipe, loss, inspection.reach, blockers=blockers, retrain=retrain, notes=notes)


def _graph_of(data: Any) -> tuple[Graph, Data]:
    from torch_geometric.data import Data, HeteroData

    if not isinstance(data, Data | HeteroData):
        raise InputError(f"the graph is a {type(data).__name__}, a graphforget.Graph or a PyG Data is needed")
    graph = Graph.from_pyg(data, sparse=False)  # as the module had it; it refuses a HeteroData with its own sentence
    assert isinstance(data, Data)
    repeated = count_repeated_edges(data.edge_index, graph.num_nodes)
    if repeated:
        raise InputError(
            f"the Data repeats {repeated:,} of its edges, which the module counts again and a Graph holds once, so "
            "train the module without repetitions (data.coalesce())"
        )
    return graph, data


def _check_module(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise InputError(f"the model is a {type(module).__name__}, a trained torch.nn.Module is needed")
    if has_built_in_type(module):
        raise InputError(f"the module is a {type(module).__name__} of graphforget, which gf.train trains")
    if not trainable(module):
        raise InputError("the model has no trainable parameter")


def _check_predictions(module: nn.Module, data: Data, logits: Tensor) -> None:
    """Raises `InputError` if the module predicts something else on the `Data` itself than on its graph.

    This is the last line against anything of the `Data` that a graph does not hold.
    """
    x = torch.as_tensor(data.x).detach().cpu()
    x = x if x.layout == torch.strided else x.to_dense()
    with torch.no_grad():
        weight = getattr(data, "edge_weight", None)
        weights = () if weight is None else (weight.detach().cpu().to(torch.float64),)
        expected: Tensor = module(x.to(torch.float64), torch.as_tensor(data.edge_index).cpu(), *weights)
    difference = float((expected - logits).abs().max())
    if not difference <= PREDICTION_TOLERANCE * max(1.0, float(expected.abs().max())):
        raise InputError(f"the module's predictions on the Data and on its Graph differ by {difference:.1e}")


def _dropped(data: Data | None) -> tuple[str, ...]:
    """A note for each part of the `Data` that a graph does not hold."""
    names = [] if data is None else sorted(set(data.keys()) - GRAPH_PARTS)
    return tuple(f"the Data's {name!r} is not part of the graph, and retrain does not receive it" for name in names)


def _number(value: Any, label: str) -> float:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not 0 <= value < math.inf:
        raise InputError(f"{label} is {value!r}, a finite number from 0 is needed")
    return float(value)
