"""Trains a built-in model or a module of the user."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.graph.targets import target_kind
from graphforget.models.boosted import as_boosted
from graphforget.models.built_in import as_stacked
from graphforget.models.constructions import Construction
from graphforget.models.inspection import Inspection, inspect
from graphforget.models.items import NODE, items_of, num_outputs
from graphforget.models.mini_batches import EPOCHS
from graphforget.models.registry import LINEARISED_SIGMA, MODELS, ModelEntry, is_affine
from graphforget.models.schedules import PAPER, QUICK, RECIPES, Schedule
from graphforget.models.sharded import as_ensemble
from graphforget.privacy.gaussian import LARGEST_DELTA, release_ratio
from graphforget.privacy.noise import with_noise
from graphforget.progress import Progress
from graphforget.training.boosting import fit_boosted
from graphforget.training.encoders import fit_stacked
from graphforget.training.environment import checked_device, environment
from graphforget.training.fit import fit_one
from graphforget.training.loss_checks import check_loss, loss_for
from graphforget.training.losses import Loss, LossFunction, SquaredError, assumed_convex
from graphforget.training.recipe import RELEASES, Recipe
from graphforget.training.rounding import notes_on_rounding
from graphforget.training.score_names import SCORES, SHARES, SHOWN
from graphforget.training.shards import fit_shards
from graphforget.training.trained import Trained
from graphforget.training.untrained import named_model, untrained_module
from graphforget.validation import whole_number

LARGEST_NOISE_COST = 0.02  # of the score; training warns if noise costs more
NOISE_DRAWS = 3
MOST_SCORED = 8_000  # items that the warnings about noise look at
SQUARED_ERROR_SIGMA = 0.1  # weights that give values of order 1 are smaller, and one Newton step ends at the optimum
FAR_FROM_ONE = 30.0  # training warns if values are larger or smaller than 1 by this factor
HALF_PRECISION = (torch.float16, torch.bfloat16)

OWN_MODEL = ModelEntry(
    "own",
    "a model of one's own",
    nn.Module,
    mu=5e-4,
    affine=False,
    **dataclasses.asdict(QUICK),
    paper=PAPER,
    sigma=LINEARISED_SIGMA,
)


# Longer than 50 lines because of the documentation of its parameters.
def train(
    graph: Graph,
    model: str | nn.Module | Construction | None = None,
    *,
    task: str | None = None,
    seed: int = 0,
    recipe: str = RECIPES[0],
    mu: float | None = None,
    loss: Loss | LossFunction | str | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    polish_steps: int | None = None,
    tolerance: float | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    sigma: float | None = None,
    releases: int = RELEASES,
    floor: float | None = None,
    objective_noise: float | None = None,
    noise_seed: int | None = None,
    reach: Reach | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    **options: Any,
) -> Trained:
    """Trains `model` on the graph's training items: nodes, links or graphs.

    A strongly convex objective is minimised from 0 by Newton's method in float64 until `||grad F|| / mu <= tolerance`.
    Any other objective is trained by Adam in float32 with dropout on, then by L-BFGS in float64 with dropout off.
    Training reads only the part of the graph that can influence the training nodes, and dropout is keyed by node
    number, so that the training can be replayed (docs/maths.md, section 11).

    The guarantee for releases after deletions (`epsilon`, `delta`, `sigma`, `releases`, `floor`) is fixed here: a
    guarantee that depended on a request would disclose something about the request.

    Args:
        graph: The graph; it is not changed.
        model: The name of a built-in model (`graphforget models` lists them), or a `torch.nn.Module` that is called as
            `module(x, edge_index)`. A module is copied, never changed. Or the result of `stacked` or `boosted`. The
            default is "sgc" for nodes, "sign" for links and "wl" for graphs.
        task: What the model answers for: "node", "link" or "graph". The default is "graph" for a collection of graphs
            and "node" for any other graph.
        seed: Seed of the initial weights and of dropout.
        recipe: How long a network is trained, unless the settings below say it. "quick": a short schedule, chosen on
            validation nodes. "paper": the longer one of the paper's experiments, 300 epochs and a polish for a GCN. For
            convex models and for ensembles on shards both are the same.
        mu: Weight of the L2 term in the objective. Each model has its own default, as for the loss.
        loss: The name of a built-in loss, a `Loss`, or a callable `(logits, labels) -> one loss per node`. The default
            follows from the targets: "cross_entropy" for classes, "logistic" for labels, "squared_error" for values.
        epochs: Epochs of Adam, for networks, for encoders of a stacked model and for the network of a boosted one. The
            default of this and the next two settings comes from `recipe`.
        learning_rate: Learning rate of Adam.
        polish_steps: Steps of L-BFGS after Adam.
        tolerance: The largest `||grad F|| / mu` of a strongly convex objective. The default is the smallest of 1e-3, a
            fiftieth of `sigma`, and the distance to the optimum that a release may have.
        epsilon: Together with `delta`, the guarantee for `releases` releases taken together.
        delta: See `epsilon`.
        sigma: Standard deviation of the noise in every release. A larger value needs less work per request, a smaller
            one gives a more accurate model. The default is small for a strongly convex objective, and 0 otherwise.
        releases: The number of releases that `epsilon` and `delta` cover.
        floor: A release with a lower score (`Trained.utility`) is refused.
        objective_noise: Standard deviation of `b` in the term `(1/m) b . theta` of the objective (objective
            perturbation), which CGU and CEU use instead of `sigma`.
        noise_seed: Seed of `b`, for experiments. By default the noise comes from the operating system.
        reach: How far messages travel in a module of your own.
        device: A torch device.
        progress: A function that is called with the stage, the steps done and the steps in all.
        **options: Options of a built-in model, such as `hidden=32`.

    Returns:
        The trained model. Its `notes` warn if the noise costs more than two points of its score, or if rounding is
        over the tolerance of a release.

    Raises:
        InputError: A parameter is out of its range, or the model or the loss cannot be trained on this graph.

    Example:
        >>> import graphforget as gf
        >>> trained = gf.train(gf.load("patients"), "sgc", seed=0)
        >>> trained.converged, trained.releases_left
        (True, 64)
    """
    started = time.perf_counter()
    check_graph(graph)
    seed, device = whole_number(seed, "seed"), checked_device(device)
    model = named_model(graph, model, task)
    name, module, options = untrained_module(graph, model, seed, options)
    defaults = MODELS.get(model.defaults if isinstance(model, Construction) else name, OWN_MODEL)
    items = items_of(module, graph)
    if not items.num_training:
        advice = ": nodes without labels can still be learned as links (task 'link')" if items.word == NODE else ""
        raise InputError(f"there is no training {items.word}{advice}")
    targets = target_kind(items.y)
    if targets != "classes" and as_ensemble(module) is not None:
        raise InputError(f"an ensemble on shards votes on classes, and the graph has {targets}")
    loss = loss_for(loss, targets=targets, default=defaults.loss, model=name)
    if isinstance(model, Construction) and epochs is None:
        epochs = model.epochs
    stacked = as_stacked(module)
    if epochs is None and stacked is not None and stacked.mini_batches is not None:
        epochs = EPOCHS
    settings = _recipe(
        module,
        loss,
        defaults,
        defaults.schedule(recipe),
        model=name,
        options=options,
        seed=seed,
        mu=mu,
        epochs=epochs,
        learning_rate=learning_rate,
        polish_steps=polish_steps,
        tolerance=tolerance,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        releases=releases,
        floor=floor,
        objective_noise=objective_noise,
        noise_seed=noise_seed,
    )
    check_loss(loss, classes=num_outputs(module, graph), targets=targets)
    inspection = inspect(module, columns=graph.num_columns, classes=graph.num_classes, declared=reach)
    precision_notes = _precision_notes(module)
    trained = fit(module, graph, settings, loss, inspection, device=device, progress=progress, started=started)
    return dataclasses.replace(trained, notes=(*precision_notes, *_notes(trained, graph)))


def check_graph(graph: Graph) -> None:
    """Raises `InputError` unless it is a graph that holds both directions of every edge that has two."""
    if not isinstance(graph, Graph):
        makers = {"list": "gf.Graph.from_pyg_list", "Data": "gf.Graph.from_pyg", "HeteroData": "gf.Graph.from_hetero"}
        maker = makers.get(type(graph).__name__)
        advice = f", which {maker} makes of it" if maker else ""
        raise InputError(f"the graph is a {type(graph).__name__}, a graphforget.Graph is needed{advice}")
    if not graph.directed and not graph.is_symmetric:  # gradients depend on it
        raise InputError("the graph says that it is undirected and has an edge that goes one way only")


def _recipe(
    module: nn.Module,
    loss: Loss,
    defaults: ModelEntry,
    schedule: Schedule,
    *,
    mu: float | None,
    epochs: int | None,
    learning_rate: float | None,
    polish_steps: int | None,
    tolerance: float | None,
    epsilon: float,
    delta: float,
    sigma: float | None,
    releases: int,
    floor: float | None,
    objective_noise: float | None,
    noise_seed: int | None,
    **identity: Any,
) -> Recipe:
    """The recipe with every setting that the caller left open; `identity` is the model, its options and the seed."""
    objective_noise = _number(
        defaults.objective_noise if objective_noise is None else objective_noise, "objective_noise"
    )
    if sigma is None:  # 0 if no tolerance follows from it
        sigma = defaults.sigma if is_affine(module) and assumed_convex(loss) and not objective_noise else 0.0
        sigma *= SQUARED_ERROR_SIGMA if type(loss) is SquaredError else 1.0
    sigma = _number(sigma, "sigma")
    if whole_number(releases, "releases") == 0:
        raise InputError("releases is 0, at least 1 is needed")
    ratio = release_ratio(epsilon=epsilon, delta=delta, releases=releases)  # checks both
    certifies = bool(sigma) and is_affine(module) and not objective_noise
    if certifies and delta > LARGEST_DELTA:
        raise InputError(f"delta is {delta:g}, and over {LARGEST_DELTA:g} nothing is certified")
    return Recipe(
        **identity,
        mu=defaults.mu if mu is None else float(mu),
        loss=loss.name,
        epochs=schedule.epochs if epochs is None else whole_number(epochs, "epochs"),
        learning_rate=schedule.learning_rate if learning_rate is None else float(learning_rate),
        polish_steps=schedule.polish_steps if polish_steps is None else whole_number(polish_steps, "polish_steps"),
        tolerance=min(1e-3, sigma / 50 or 1e-3, ratio * sigma or 1e-3) if tolerance is None else float(tolerance),
        sigma=sigma,
        objective_noise=objective_noise,
        noise_seed=None if noise_seed is None else whole_number(noise_seed, "noise_seed"),
        epsilon=float(epsilon),
        delta=float(delta),
        releases=releases,
        floor=None if floor is None else _number(floor, "floor"),
    )


def _precision_notes(module: nn.Module) -> tuple[str, ...]:
    halves = sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters() if p.dtype in HALF_PRECISION})
    if not halves:
        return ()
    return (f"the module came in {' and '.join(halves)}; it was trained in float32 or float64 and is now in float64",)


def _notes(trained: Trained, graph: Graph) -> list[str]:
    """Warnings about the first release: a large delta, and the score that the noise costs."""
    recipe, items = trained.recipe, trained.items(graph)
    m = items.num_training
    notes = []
    if trained.strongly_convex and not trained.converged:
        notes.append(
            f"training ended {trained.residual:.1e} from the optimum, over its tolerance {recipe.tolerance:.1e}"
        )
    if recipe.sigma and recipe.delta > 1 / m:
        notes.append(f"delta = {recipe.delta:g} is over 1 / {m}, one over the number of training {items.word}s")
    notes += _notes_on_size(items.y[items.train_rows]) + notes_on_rounding(trained, graph)
    scored = trained.scored_mask(graph)
    if not (recipe.sigma or recipe.floor) or scored is None:
        return notes
    sample = _some_of(scored)
    private, noised = trained.utility(graph, sample), noised_utility(trained, graph, sample)
    if private - noised > LARGEST_NOISE_COST:
        name = SCORES[trained.score_kind(graph)][0]
        cost = f"{100 * (private - noised):.1f} points of {SHOWN[name]}, {100 * private:.1f} % to {100 * noised:.1f} %"
        if name not in SHARES:
            cost = f"{private - noised:.3f} of {SHOWN[name]}, {private:.3f} to {noised:.3f}"
        notes.append(f"noise of sigma = {recipe.sigma:g} costs {cost}: train with a smaller sigma")
    if recipe.floor is not None and noised < recipe.floor:
        notes.append(f"with noise the model scores {noised:.3f}, under its floor {recipe.floor:g}")
    return notes


def _notes_on_size(y: Tensor) -> list[str]:
    """A warning if values are far from 1: the defaults of mu and sigma are made for targets of order 1."""
    size = float(y.square().mean().sqrt()) if target_kind(y) == "values" and y.numel() else 1.0
    if size == 0 or 1 / FAR_FROM_ONE <= size <= FAR_FROM_ONE:
        return []
    advice = "divide them by a number that does not come from the data, or choose mu and sigma for them"
    return [f"the root mean square of the targets is {size:.3g}, and mu and sigma are made for about 1: {advice}"]


def _some_of(mask: Tensor) -> Tensor:
    """At most `MOST_SCORED` of the items of a mask, spread evenly: enough for a warning."""
    rows = mask.nonzero().flatten()
    if rows.numel() <= MOST_SCORED:
        return mask
    return torch.zeros_like(mask).index_fill_(0, rows[:: -(-rows.numel() // MOST_SCORED)], True)


def noised_utility(trained: Trained, graph: Graph, mask: Tensor) -> float:
    """The mean score of a release on the items of `mask` over a few draws of its noise."""
    sigma = trained.recipe.sigma
    if not sigma:
        return trained.utility(graph, mask)
    draws = (with_noise(trained.theta, sigma=sigma, seed=seed) for seed in range(NOISE_DRAWS))
    return sum(trained.with_weights(theta).utility(graph, mask) for theta in draws) / NOISE_DRAWS


def _number(value: Any, label: str) -> float:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not 0 <= value < math.inf:
        raise InputError(f"{label} is {value!r}, a finite number from 0 is needed")
    return float(value)


def fit(
    module: nn.Module,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    inspection: Inspection,
    *,
    warm: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    started: float | None = None,
    objective_noise_vector: Tensor | None = None,
) -> Trained:
    """Trains `module` by `recipe`, from the weights that it has; an ensemble shard by shard. `module` is changed.

    `objective_noise_vector` is the noise in the objective if it has been drawn already.
    """
    recipe = dataclasses.replace(recipe, environment=environment(device=device))
    common: Any = {"warm": warm, "device": device, "progress": progress, "started": started}
    ensemble = as_ensemble(module)
    if ensemble is not None:
        return fit_shards(ensemble, graph, recipe, loss, inspection, **common)
    stacked, boosted = as_stacked(module), as_boosted(module)
    if stacked is not None:
        return fit_stacked(stacked, graph, recipe, loss, inspection, **common)
    if boosted is not None:
        return fit_boosted(boosted, graph, recipe, loss, inspection, **common)
    return fit_one(module, graph, recipe, loss, inspection, objective_noise_vector=objective_noise_vector, **common)
