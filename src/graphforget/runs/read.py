"""Reading a run directory: every file of limited size, with its checksum, and checked against the others."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.files import error_reason, read_bytes
from graphforget.graph.digest import digest_of_format_2, digest_of_format_3
from graphforget.graph.graph import Graph
from graphforget.graph.targets import target_kind
from graphforget.graph.validation import checked_edges, is_symmetric
from graphforget.json_files import parse_json
from graphforget.models.built_in import as_composite, as_stacked
from graphforget.models.constructions import Construction, OwnModel
from graphforget.models.inspection import data_carriers
from graphforget.models.items import GRAPH, items_of, view_of
from graphforget.models.parameters import assign, flatten
from graphforget.models.registry import MODELS, build, count_parameters, is_affine
from graphforget.models.sharded import as_ensemble
from graphforget.models.tasks import is_collection
from graphforget.privacy.gaussian import release_ratio
from graphforget.runs.arrays import StoredArrays, check_records, checked_next_number, read_arrays
from graphforget.runs.layout import (
    ARRAYS,
    CERTIFICATE,
    EARLIER_FORMAT,
    LARGEST,
    LIMITS,
    SHARDS,
    WIDEST,
    DamagedRun,
    checksum,
    open_run,
)
from graphforget.runs.run_file import GraphFile, RunFile, read_absent, read_run_file, read_suppressed
from graphforget.runs.tensors import OPTIONAL, RELEASED_STATE, SPARSE, STATE, TARGETS, TENSORS, read_tensors
from graphforget.training.losses import Loss, LossFunction, as_loss, assumed_convex, captured_by_loss, is_recorded
from graphforget.training.own_training import checked_retrain
from graphforget.training.state import untrained_state
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.validation import read_fields


def load_run(
    folder: str | Path,
    *,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
) -> tuple[Trained, Graph]:
    """Reads a run directory.

    Args:
        folder: The run directory.
        model: An instance of the module, or the result of `stacked` or `boosted`, if the model is not a built-in one: a
            run directory cannot store it safely.
        loss: The loss, if it is not a built-in one.
        retrain: The training function of an adopted model, as in `adopt`; without it the model cannot be retrained.

    Returns:
        The model and its graph.

    Raises:
        InputError: The folder is not a run directory, is damaged, or `model` or `loss` is missing or another one,
            or `retrain` is given for a model that was trained here.
    """
    with open_run(folder) as place:
        return read_run(place, model=model, loss=loss, retrain=retrain)


def read_run(
    folder: Path,
    *,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
) -> tuple[Trained, Graph]:
    """What `load_run` does, for a caller that has opened the run."""
    run = read_run_file(folder)
    graph, weights = _files(folder, run)
    try:
        trained = trained_of(run, weights, graph, model, loss)
        suppressed = read_suppressed(folder, run)
        lists: dict[str, Any] = {"suppressed": suppressed, "absent": read_absent(folder, suppressed)}
        trained = dataclasses.replace(trained, retrain=_retrain(run, retrain), **lists)
        digest = graph.digest
        if run.format == EARLIER_FORMAT:
            if digest_of_format_2(graph) != trained.graph_digest:
                raise DamagedRun(f"{folder} is damaged: its graph is not the one that the model was trained on")
            trained = _of_earlier_format(trained, graph, released=(folder / CERTIFICATE).exists())
        elif digest != trained.graph_digest == digest_of_format_3(graph):
            trained = dataclasses.replace(trained, graph_digest=digest)
    except InputError:
        raise
    except Exception as error:  # damaged tensors and a model of one's own can raise any exception there is
        raise DamagedRun(f"{folder} is damaged: {type(error).__name__}: {error_reason(error)}") from error
    if digest != trained.graph_digest:
        raise DamagedRun(f"{folder} is damaged: its graph is not the one that the model was trained on")
    if ARRAYS not in run.sha256:  # of a large graph, `check_in_full` does it
        _check_objective(folder, trained, graph, own=model is not None or loss is not None)
    return trained, graph


def check_in_full(folder: Path, trained: Trained, graph: Graph, *, own: bool) -> None:
    """Checks what `read_run` takes as given for a large graph, at the cost of the whole graph.

    Args:
        folder: The run directory.
        trained: Its model, as `read_run` read it.
        graph: Its graph, as `read_run` read it.
        own: Whether the model or the loss is the user's own.

    Raises:
        InputError: The records are not those of the graph's digest, or the objective has another value.
    """
    if graph.overlay is None or not isinstance(graph.overlay.origin, StoredArrays):
        return
    try:
        check_records(graph)
    except InputError as error:
        raise DamagedRun(f"{folder} is damaged: {error}") from error
    _check_objective(folder, trained, graph, own=own)


def _check_objective(folder: Path, trained: Trained, graph: Graph, *, own: bool) -> None:
    try:
        value = trained.objective(graph).value(trained.theta)
    except InputError:
        raise
    except Exception as error:  # damaged tensors and a model of one's own can raise any exception there is
        raise DamagedRun(f"{folder} is damaged: {type(error).__name__}: {error_reason(error)}") from error
    if not math.isclose(value, trained.objective_value, rel_tol=1e-6):
        values = f"the objective is {value:.10g} instead of {trained.objective_value:.10g}"
        message = f"{folder} is inconsistent: {values}"
        if not own:
            raise DamagedRun(message)
        raise InputError(f"{message}, so the given model or loss is not the one of the training")


def read_graph(folder: Path) -> Graph:
    """The graph of a run that the caller has opened. The checksums of all files are checked, the model is not."""
    return _files(folder, read_run_file(folder))[0]


def _files(folder: Path, run: RunFile) -> tuple[Graph, dict[str, Tensor]]:
    """The content of the other files, after a check of their types, their sizes and their checksums in run.json."""
    if SHARDS in run.sha256:
        commands = "train, plan, unlearn, verify and prove-absence ('graphforget launch'), and export"
        raise InputError(f"the graph of {folder} is in parts: what works with it is {commands}")
    try:
        foreign = [name for name in run.sha256 if name not in LIMITS]
        if foreign:
            raise DamagedRun(f"run.json has a checksum of {foreign[0][:80]!r}, which is not a file of a run")
        weights, weights_content = read_tensors(folder / "weights.safetensors", largest=LARGEST)
        names = read_bytes(folder / "graph.json", largest=LIMITS["graph.json"])
        read = {"weights.safetensors": weights_content, "graph.json": names}
        tensors = None
        if ARRAYS in run.sha256:
            read[ARRAYS] = read_bytes(folder / ARRAYS, largest=LIMITS[ARRAYS])
        else:
            tensors, read["graph.safetensors"] = read_tensors(folder / "graph.safetensors", largest=LARGEST)
        for name in (*read, *sorted(run.sha256.keys() - read.keys())):
            content = read[name] if name in read else read_bytes(folder / name, largest=LIMITS[name])
            if run.sha256.get(name) != checksum(content):
                raise DamagedRun(f"{name} is not the file that was written")
        fields = read_fields(GraphFile, parse_json(names, name="graph.json"), "graph.json")
        if tensors is None:
            graph = read_arrays(folder, parse_json(read[ARRAYS], name=ARRAYS), fields, digest=run.graph_digest)
        else:
            graph = _graph(tensors, fields)
    except InputError as error:
        raise DamagedRun(f"{folder} is damaged: {error}") from error
    except FileNotFoundError as error:
        raise DamagedRun(f"{folder} is damaged: {error.filename} is missing") from error
    except (OSError, RuntimeError) as error:
        raise DamagedRun(f"{folder} cannot be read: {error_reason(error)}") from error
    return graph, weights


def _of_earlier_format(trained: Trained, graph: Graph, *, released: bool) -> Trained:
    """The model with this version's graph digest. A release that was not counted uses up the whole budget."""
    recipe = trained.recipe
    spent = (release_ratio(epsilon=recipe.epsilon, delta=recipe.delta),) if released else ()
    return dataclasses.replace(trained, graph_digest=graph.digest, releases=spent)


def _graph(tensors: dict[str, Tensor], names: GraphFile) -> Graph:
    """The graph, checked in the same way as a user's own graph."""
    if not (0 < names.num_columns <= WIDEST and 0 < names.num_classes <= WIDEST):
        raise InputError(f"the graph has {names.num_columns} columns and {names.num_classes} classes")
    stored = TENSORS | {name: kind for name, kind in OPTIONAL.items() if name in tensors}
    for name, kind in stored.items():
        if name not in tensors or tensors[name].dtype != kind:
            raise InputError(f"the graph's {name} is missing, or not of type {kind}")
    if "y" not in tensors or tensors["y"].dtype not in TARGETS:
        raise InputError("the graph's y is missing, or no classes, labels or values")
    x = _attributes(tensors, names.num_columns)
    edges = checked_edges(tensors["edge_index"], x.shape[0])
    if not names.directed and not is_symmetric(edges, x.shape[0]):  # gradients rely on it
        raise InputError("the graph is undirected and has an edge that goes one way only")
    given: dict[str, Any] = {name: tensors[name] for name in (*stored, "y") if name != "edge_index"}
    given |= {f.name: getattr(names, f.name) for f in dataclasses.fields(names)}
    given["targets"] = target_kind(tensors["y"])  # as it was decided when the graph was made
    digit_ids, next_number = given.pop("digit_ids"), checked_next_number(given.pop("next_number"))
    del given["num_columns"]
    graph = Graph.create(x=x, edges=edges, sparse=False, **given)  # as it was stored, whatever is left in it
    return dataclasses.replace(graph, digit_ids=graph.digit_ids or digit_ids, next_number=next_number)


def _attributes(tensors: dict[str, Tensor], columns: int) -> Tensor:
    """The attributes: dense, or sparse with indices that are in order and within range."""
    x, parts = tensors.get("x"), [tensors[name] for name in SPARSE if name in tensors]
    if x is None and len(parts) == len(SPARSE):
        crow, places, values = parts
        size = (max(crow.numel() - 1, 0), columns)
        try:
            x = torch.sparse_csr_tensor(crow, places, values, size=size, check_invariants=True)
        except RuntimeError as error:
            raise InputError(f"the graph's attributes are no sparse matrix: {error_reason(error)}") from error
    if x is None or x.dtype not in (torch.float32, torch.float64) or x.dim() != 2 or x.shape[1] != columns:
        raise InputError(f"the graph's attributes are missing, or not numbers in {columns} columns")
    return x


def trained_of(
    run: RunFile,
    weights: dict[str, Tensor],
    graph: Graph,
    model: OwnModel | None,
    own_loss: Loss | LossFunction | None,
) -> Trained:
    recipe = run.recipe
    theta, objective_noise_vector = _vectors(run, weights)
    loss = as_loss(recipe.loss if own_loss is None and is_recorded(recipe.loss) else own_loss)
    if recipe.loss != loss.name:
        raise InputError(f"this model was trained with the loss {recipe.loss!r}, give it as loss=...")
    module = _module(run, theta, graph, model)
    if loss.targets not in (None, target_kind(items_of(module, graph).y)):
        raise DamagedRun(f"run.json: the loss {loss.name!r} is for {loss.targets}, which the graph does not have")
    # A user's own module or loss may have captured data since the training.
    captured = [*(() if recipe.model in MODELS else data_carriers(module)), *captured_by_loss(loss)]
    module = module.double().eval()
    _load_state(module, weights, graph)
    assign(module, theta)
    if recipe.model in MODELS and run.reach != getattr(module, "reach", run.reach):
        raise DamagedRun("run.json: the reach is not that of the model")
    view = view_of(module)
    if view is not None and (view.word == GRAPH) != is_collection(graph):
        raise DamagedRun(f"run.json: the model answers for {view.word}s, which does not fit the graph")
    if run.strongly_convex != (is_affine(module) and assumed_convex(loss)):
        raise DamagedRun("run.json: the field 'strongly_convex' is not right for this model and loss")
    return Trained(
        module=module,
        theta=theta,
        recipe=recipe,
        reach=run.reach,
        certification_blockers=tuple(dict.fromkeys([*run.certification_blockers, *captured])),
        strongly_convex=run.strongly_convex,
        converged=run.converged,
        objective_value=run.objective,
        gradient_norm=run.gradient_norm,
        graph_digest=run.graph_digest,
        seconds=run.seconds,
        loss=loss,
        history=run.history,
        noise=run.noise,
        objective_noise_vector=objective_noise_vector,
        releases=run.releases,
        graph_salt=bytes.fromhex(run.graph_salt),
        notes=run.notes,
    )


def _load_state(module: nn.Module, weights: dict[str, Tensor], graph: Graph) -> None:
    """Loads all but the parameters: buffers, and what is released beside the parameters."""
    released = {name: weights.pop(name) for name in list(weights) if name.startswith(RELEASED_STATE)}
    expected = {f"{STATE}{name}" for name in untrained_state(module)}
    if expected != weights.keys() or (released and as_composite(module) is None):
        other = next(iter((expected ^ weights.keys()) | released.keys()))
        raise DamagedRun(f"the weights' file lacks the tensor {other[:80]!r}, or should not have it")
    module.load_state_dict({name.removeprefix(STATE): value for name, value in weights.items()}, strict=False)
    ensemble, stacked, composite = as_ensemble(module), as_stacked(module), as_composite(module)
    if ensemble is not None:
        ensemble.check_shards(graph.train_mask)
    if stacked is not None:
        stacked.check_members(graph)
    if composite is not None:
        composite.load_released_state({name.removeprefix(RELEASED_STATE): part for name, part in released.items()})


def _retrain(run: RunFile, retrain: RetrainFunction | None) -> RetrainFunction | None:
    if retrain is None:
        return None
    if not run.recipe.adopted:
        raise InputError(f"this model is a {run.recipe.model} that was trained here, so it takes no retrain")
    return checked_retrain(retrain)


def _vectors(run: RunFile, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Takes the flat parameters and the objective's noise out of the tensors of the weights' file."""
    theta, objective_noise_vector = weights.pop("theta", None), weights.pop("tilt", None)
    vectors = [vector for vector in (theta, objective_noise_vector) if vector is not None]
    if theta is None or theta.dim() != 1 or any(vector.dtype != torch.float64 for vector in vectors):
        raise DamagedRun("the weights are no list of numbers in float64")
    has_noise = objective_noise_vector is not None
    if bool(run.recipe.objective_noise) != has_noise or any(vector.shape != theta.shape for vector in vectors):
        raise DamagedRun("the noise in the objective is not that of these weights")
    return theta, objective_noise_vector


def _module(run: RunFile, theta: Tensor, graph: Graph, model: OwnModel | None) -> nn.Module:
    """A fresh module of the run's type, or a copy of the user's own, with as many parameters as `theta`."""
    recipe = run.recipe
    if recipe.model in MODELS:
        shape: dict[str, Any] = {"columns": graph.num_columns, "classes": graph.num_classes}
        _check_size(theta, count_parameters(recipe.model, **shape, options=recipe.options))
        module = build(recipe.model, **shape, seed=recipe.seed, **recipe.options)
    elif model is None:
        kind, constructed, _ = recipe.model.partition(":")
        given = f"the same gf.{kind}(...)" if constructed else "an instance of it"
        raise InputError(f"this model is a {recipe.model}, give {given} as model=... (--module)")
    elif as_composite(model) is not None:
        raise InputError(
            "the module is a stacked or boosted model, give the result of gf.stacked or gf.boosted instead"
        )
    elif isinstance(model, Construction):
        model = model.resolved(graph, recipe.options)
        if (model.name, model.options) != (recipe.model, recipe.options):
            raise InputError(
                f"this model is a {recipe.model} with {recipe.options}, not {model.name} with {model.options}"
            )
        module = model.build(columns=graph.num_columns, classes=graph.num_classes)
    else:
        module = copy.deepcopy(model)
    _check_size(theta, flatten(module).numel())
    return module


def _check_size(theta: Tensor, parameters: int) -> None:
    if theta.numel() != parameters:
        raise InputError(f"the weights have {theta.numel()} parameters, the model has {parameters}")
