"""Training by the operator's own function: what it may hold, the call, and the checks of the module that it returns."""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.models.captured import first_captured_value
from graphforget.models.code_references import is_installed_code
from graphforget.models.inputs import model_inputs
from graphforget.models.inspection import data_carriers
from graphforget.models.parameters import flatten
from graphforget.training.environment import environment
from graphforget.training.fit import deterministic
from graphforget.training.losses import Loss, captured_by_loss
from graphforget.training.objective import Objective
from graphforget.training.recipe import Recipe
from graphforget.training.trained import RetrainFunction, Trained


def checked_retrain(retrain: Any) -> RetrainFunction:
    """The function, after a search of its closure, defaults and globals for data.

    The code of installed packages is not searched, unless it is the package of the function itself.

    Raises:
        InputError: It cannot be called, or it reaches something that may hold deleted data.
    """
    if isinstance(retrain, nn.Module) or not callable(retrain):
        kind = type(retrain).__name__
        raise InputError(f"retrain is a {kind}, a function that takes a PyG Data and returns a module is needed")
    package = str(getattr(retrain, "__module__", "")).partition(".")[0]
    skipped = functools.partial(is_installed_code, except_package=package)
    finding = first_captured_value(retrain, registered={}, skipped=skipped)
    if finding is not None:
        place = f" in '{finding.path.lstrip('.')}'" if finding.path else ""
        raise InputError(
            f"retrain reaches {finding.kind}{place}, which may carry deleted data, so take it from the Data that the "
            "function receives"
        )
    function: RetrainFunction = retrain
    return function


def retrained_by_own_function(old: Trained, graph: Graph, *, seed: int, device: str = "cpu") -> Trained:
    """The model that the function of an adopted model makes on `graph`.

    The function receives a PyG `Data` of `graph` and nothing else. Torch's generator is seeded before the call, so a
    function that draws from no other generator gives the same weights again. The caller's generator does not change.

    Raises:
        Refused: There is no function, or its module gives outputs that are not finite.
        InputError: The function fails, or returns a module of another class or shape.
    """
    if old.retrain is None:
        raise Refused(
            "the model was trained elsewhere, and only its own training function can train it again: give it as "
            "retrain=... (--retrain)"
        )
    started = time.perf_counter()
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), deterministic():
        torch.manual_seed(seed)
        try:
            made = old.retrain(graph.to_pyg())
        except (Exception, SystemExit) as error:  # the function is not ours, so it can raise anything
            message = " ".join(str(error).split())
            raise InputError(f"retrain failed with {type(error).__name__}: {message}") from error
    module = _checked_module(made, old.module)
    recipe = dataclasses.replace(old.recipe, seed=seed, environment=environment(device=device))
    fitted = measured_model(
        module, graph, recipe, old.loss, old.reach, blockers=old.certification_blockers, retrain=old.retrain
    )
    if not torch.isfinite(fitted.logits(graph)).all():
        raise Refused("retrain returned a module whose outputs are not finite, so nothing was released")
    return dataclasses.replace(fitted, seconds=time.perf_counter() - started)


def measured_model(
    module: nn.Module,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    reach: Reach,
    *,
    blockers: tuple[str, ...],
    retrain: RetrainFunction | None,
    notes: tuple[str, ...] = (),
) -> Trained:
    """The weights of a module that was trained elsewhere, with their measurements on `graph`. Nothing is trained."""
    objective = Objective(module, graph, mu=recipe.mu, loss=loss)
    theta = flatten(module).detach().clone()
    value, gradient = objective.value_and_gradient(theta)
    return Trained(
        module=module,
        theta=theta,
        recipe=recipe,
        reach=reach,
        certification_blockers=tuple(dict.fromkeys([*blockers, *data_carriers(module), *captured_by_loss(loss)])),
        strongly_convex=False,
        converged=False,
        objective_value=value,
        gradient_norm=float(gradient.norm()),
        graph_digest=graph.digest,
        seconds=0.0,
        loss=loss,
        notes=notes,
        retrain=retrain,
    )


def own_copy(module: nn.Module) -> nn.Module:
    """A copy in float64 on the CPU and in evaluation mode. Raises `InputError` if it cannot be copied."""
    try:
        return copy.deepcopy(module).to(device="cpu", dtype=torch.float64).eval()
    except Exception as error:  # its own methods can raise anything
        message = " ".join(str(error).split())
        raise InputError(f"the {type(module).__name__} cannot be copied: {message}") from error


def float64_logits(module: nn.Module, graph: Graph) -> Tensor:
    """The outputs of a module in float64 on `graph`. Raises `InputError` unless they are a row of logits a node."""
    with torch.no_grad():
        out: Any = module(*model_inputs(module, graph, dtype=torch.float64))
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != graph.num_nodes:
        raise InputError("the module does not give one row of logits for each node")
    if out.shape[1] != graph.num_classes:
        advice = ", so set num_classes of the Data if a class has no node" if graph.target_kind == "classes" else ""
        outputs = f"{graph.num_classes} {graph.target_kind}"
        raise InputError(f"the module gives {out.shape[1]} logits a node and the graph has {outputs}{advice}")
    return out


def _checked_module(made: Any, old: nn.Module) -> nn.Module:
    """A copy of a module that the function returned, which has the class and the shape of the one before."""
    if not isinstance(made, nn.Module) or type(made) is not type(old):
        raise InputError(f"retrain returned a {type(made).__name__}, a trained {type(old).__name__} is needed")
    module = own_copy(made)
    shapes, needed = _shapes(module), _shapes(old)
    for name in dict.fromkeys([*needed, *shapes]):
        if shapes.get(name) != needed.get(name):
            raise InputError(
                f"retrain returned a {type(old).__name__} whose {name!r} has shape {shapes.get(name)}, "
                f"{needed.get(name)} is needed"
            )
    trainable = {name: parameter.requires_grad for name, parameter in old.named_parameters()}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(trainable[name])  # a function may freeze what it has trained
    return module


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in (*module.named_parameters(), *module.named_buffers())}
