"""F1 of released models at epsilon = 1, delta = 1e-5, with the noise that each theorem requires."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import graphforget as gf
from graphforget.experiments.bases import (
    base,
    draw_request,
    f1_percent,
    f1_percent_with_noise,
    idea_bound,
    retrained_without_edges,
)
from graphforget.experiments.cells import Cell, Key, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.fingerprint import RECIPE
from graphforget.experiments.settings import (
    CERTIFIED,
    CERTIFIED_PART,
    DATA,
    DELTA,
    EPSILON,
    QUICK_EPOCHS,
    TITLES,
    hand_picked_sigma,
    shown,
    step_cost,
    titles_of,
    train_cost,
    training_part,
)
from graphforget.experiments.table import Bar, Spread, Table, TableEntry
from graphforget.privacy import paper_bounds
from graphforget.privacy.gaussian import epsilon_of, exact_sigma, paper_sigma
from graphforget.report.charts import Dots, Groups, dot_chart

NAME = "table-noise"
SHARE = 0.05  # of the edges: the one kind of request that every method takes
MODELS = ("sgc", "gcn")
ALONE = tuple(model for model in CERTIFIED if model not in MODELS)  # with the measured bound alone
CGU = {"cgu": 1.0, "cgu_less": 0.1}  # noise in the objective: our default, and that of its README
BOUNDS = {  # titles by the name of a bound
    "measured": "measured (certified, Newton)",
    "idea": "IDEA's bound, exact accounting",
    "idea_paper": "IDEA's bound, the paper's formula",
    "ceu_data": "CEU's data-dependent bound",
    "ceu_worst": "CEU's worst-case bound",
    "cgu": "CGU, noise of 1 in its objective",
    "cgu_less": "CGU, noise of 0.1 in its objective",
    "hand": "IDEA with the sigma of the paper's tables",
}

NOTES = (
    "This table is not in the paper. 5 % of the edges are removed. The table shows test micro-F1 in % of the "
    "released weights, as mean ± deviation over seeds. The value of each seed is a mean over 20 draws of the noise "
    "(CGU: one draw). The row of a bound has epsilon = 1, delta = 1e-5 if the bound holds. The bounds of the paper "
    "and of CEU use the paper's constants. The measured bound assumes no constants.",
    "The first row, re-training, has no noise. The measured sigma is that of the model, 0.1 for SGC. It is fixed "
    "before any request. The distance is reduced below what this sigma hides. A GCN has no measured bound.",
    "CEU adds its noise to the objective. Here its bound on the gradient is turned into a distance by lambda = 0.05. "
    "The noise that hides this distance is added to the weights, as for the others.",
    "CGU is its own model (one logistic regression for each class) with noise in its objective. No theorem gives the "
    "size of this noise: it buys a budget for requests. A request of this size spends the budget, and the model is "
    "trained anew, in the share of runs that the table shows. Then the row is the accuracy of training with such "
    "noise.",
    "'IDEA with the sigma of the paper's tables' adds the noise of these tables, which was chosen by hand, to our "
    "weights. No epsilon was requested. The last row has the epsilon that the paper's own bound implies, by exact "
    "Gaussian accounting. The paper prints 79.3, 68.5, 79.6, 91.6 and 95.5 for its own weights of a GCN (its Table "
    "6). These weights are fewer and have a larger norm: on Cora, they are 23,000 of norm 61. Ours are 92,000 of "
    "norm 27, so the same sigma is too large for them.",
    "SIGN and the stacked GCN have the measured bound alone. Their sigma is 0.05. The bounds of IDEA and CEU are for "
    "models of the paper.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    if quick:
        linear = [_cell("sgc", data, 0) for data in ("patients", "cora")]
        return [*linear, _cell("gcn", "cora", 0, epochs=QUICK_EPOCHS), _alone("sign", "cora", 0)]
    places = [(data, seed) for data in DATA for seed in range(seeds)]
    certified = [_alone(model, *place) for model in ALONE for place in places]
    return [*(_cell(model, *place) for model in MODELS for place in places), *certified]


def _cell(model: str, data: str, seed: int, **short: int) -> Cell:
    trainings = 1.3 * training_part(short.get("epochs")) if model == "gcn" else 4.0
    cost = trainings * train_cost(model, data) + 2 * step_cost(model, data)
    return Cell({"model": model, "data": data, "seed": seed, **short}, cost, measured)


def _alone(model: str, data: str, seed: int) -> Cell:
    key: Key = {"part": CERTIFIED_PART, "model": model, "data": data, "seed": seed}
    return Cell(key, 2 * train_cost(model, data) + step_cost(model, data), certified)


def measured(*, store: Path, model: str, data: str, seed: int, epochs: int | None = None) -> Row:
    trained, graph = base(store, data, model, seed, epochs=epochs)
    request = draw_request(graph, "edges", SHARE, seed=seed)
    idea = gf.unlearn(trained, graph, request, method="idea", level="empirical", audit=False)
    entry, constants = idea.trained.history[-1], gf.Constants()
    removed = graph.num_edges - idea.graph.num_edges
    bound = idea_bound(idea)
    data_dependent = paper_bounds.ceu_data_dependent_residual(step_norm=entry.step_norm, constants=constants)
    worst = paper_bounds.ceu_worst_residual(m=entry.m, touched=2 * removed, constants=constants)
    privacy: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
    sigmas = {
        "idea": exact_sigma(zeta=bound, **privacy),
        "idea_paper": paper_sigma(zeta=bound, **privacy),
        "ceu_data": exact_sigma(
            zeta=paper_bounds.ceu_distance(residual=data_dependent, constants=constants), **privacy
        ),
        "ceu_worst": exact_sigma(zeta=paper_bounds.ceu_distance(residual=worst, constants=constants), **privacy),
        "hand": hand_picked_sigma(model, data),
    }
    values: Row = {
        "idea_bound": bound,
        "epsilon hand": epsilon_of(ratio=bound / sigmas["hand"], delta=DELTA),
        "private": f1_percent(idea.trained, idea.graph),
    }
    for name, sigma in sigmas.items():
        f1 = f1_percent_with_noise(idea.trained, idea.trained.theta, idea.graph, sigma=sigma)
        values |= {f"sigma {name}": sigma, f"f1 {name}": f1}
    retrained, retained = retrained_without_edges(store, data, model, seed, SHARE, epochs=epochs)
    values["retrain"] = f1_percent(retrained, retained)
    return values | (_convex(trained, graph, request) if model == "sgc" else {})


def _convex(trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> Row:
    """What only convex models have: a measured bound, and CGU."""
    privacy: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
    values = _released(trained, graph, request)
    for name, noise in CGU.items():
        start = gf.train(graph, "cgu", seed=trained.recipe.seed, recipe=RECIPE, objective_noise=noise)
        cgu = gf.unlearn(start, graph, request, method="cgu", **privacy)
        values |= {f"f1 {name}": f1_percent(cgu.released, cgu.graph), f"anew {name}": float(cgu.details["retrained"])}
    return values


def certified(*, store: Path, part: str, model: str, data: str, seed: int) -> Row:
    """A certified model with the noise that hides its measured distance, and its retraining without noise."""
    trained, graph = base(store, data, model, seed)
    retrained, retained = retrained_without_edges(store, data, model, seed, SHARE)
    released = _released(trained, graph, draw_request(graph, "edges", SHARE, seed=seed))
    return {"retrain": f1_percent(retrained, retained)} | released


def _released(trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> Row:
    """The measured distance of Newton's steps, and the accuracy with the model's noise."""
    privacy: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
    newton = gf.unlearn(trained, graph, request, method="newton", **privacy)
    sigma = trained.recipe.sigma
    distance = newton.measured["distance"]
    assert distance is not None
    return {
        "level": newton.level,
        "distance": distance,
        "sigma measured": sigma,
        "sigma smallest": exact_sigma(zeta=distance, **privacy),
        "f1 measured": f1_percent_with_noise(newton.trained, newton.centre, newton.graph, sigma=sigma),
    }


def table(rows: Sequence[Row]) -> Table:
    data = shown(rows)
    lines: list[tuple[str | TableEntry, ...]] = []
    for model in (*MODELS, *ALONE):
        bounds = [bound for bound in BOUNDS if model == "sgc" or bound not in ("measured", *CGU)]
        bounds = ["measured"] if model in ALONE else bounds
        fields = [("re-training, no noise", "retrain", ".1f")]
        for bound in bounds:
            fields.append((BOUNDS[bound], f"f1 {bound}", ".1f"))
            if bound in CGU:
                fields.append((f"trained anew: {BOUNDS[bound]}", f"anew {bound}", ".0%"))
            else:
                fields.append((f"sigma: {BOUNDS[bound]}", f"sigma {bound}", ".3g"))
        fields += [("the epsilon of that sigma", "epsilon hand", ".3g")] if model in MODELS else []
        for title, field, form in fields:
            spreads = [_spread(rows, model, name, field) for name in data]
            lines.append((TITLES[model], title, *(TableEntry(spread, form=form) for spread in spreads)))
    columns = ("model", "released with", *titles_of(data))
    return Table("Accuracy with the noise that each bound requires", columns, tuple(lines), NOTES, _bars(rows, data))


def _spread(rows: Sequence[Row], model: str, data: str, field: str) -> Spread | None:
    return Spread.of(row.get(field) for row in rows if (row["model"], row["data"]) == (model, data))


def _bars(rows: Sequence[Row], data: Sequence[str]) -> tuple[Bar, ...]:
    lost: dict[str, float] = {}
    for name in data:
        ours, retrained = (_spread(rows, "sgc", name, field) for field in ("f1 measured", "retrain"))
        if ours is not None and retrained is not None:
            lost[TITLES[name]] = retrained.mean - ours.mean
    claim = "Certified SGC with its noise at epsilon = 1 is within 0.5 points of re-training without noise"
    return (Bar.of(claim, lost, most=0.5, unit="points below"),)


def figure(rows: Sequence[Row]) -> Figure:
    data = [name for name in shown(rows) if any((row["model"], row["data"]) == ("sgc", name) for row in rows)]
    bounds = ("measured", "idea", "ceu_data", "ceu_worst")
    series = [Dots("re-training, no noise", _means(rows, data, "retrain"))]
    series += [Dots(BOUNDS[bound], _means(rows, data, f"f1 {bound}"), ours=bound == "measured") for bound in bounds]
    return dot_chart([Groups("SGC", list(titles_of(data)), series)], "test micro-F1, %")


def _means(rows: Sequence[Row], data: Sequence[str], field: str) -> list[float | None]:
    spreads = [_spread(rows, "sgc", name, field) for name in data]
    return [None if spread is None else spread.mean for spread in spreads]


EXPERIMENT = Experiment(
    NAME,
    "F1 with the noise that each method's own theorem requires",
    cells,
    table,
    figure,
    "SGC released at epsilon = 1, delta = 1e-5 after 5 % of the edges are removed, with the noise that each bound "
    "requires.",
)
