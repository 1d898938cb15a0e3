"""The experiments by name, in the order of the paper; the two that it lacks come last."""

from __future__ import annotations

from graphforget.errors import InputError
from graphforget.experiments import (
    figure_bounds,
    figure_time,
    table1,
    table_attacks,
    table_attributes,
    table_datasets,
    table_edge_accuracy,
    table_edge_time,
    table_noise,
    table_seconds,
)
from graphforget.experiments.experiment import Experiment

ALL = "all"

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        table1,
        figure_bounds,
        figure_time,
        table_attacks,
        table_attributes,
        table_datasets,
        table_edge_time,
        table_edge_accuracy,
        table_noise,
        table_seconds,
    )
}


def find(name: str) -> list[Experiment]:
    """The experiment of this name; for `all` every one, the cheapest first."""
    wanted = name.lower()
    if wanted == ALL:
        return sorted(EXPERIMENTS.values(), key=cost)
    if wanted not in EXPERIMENTS:
        raise InputError(f"there is no experiment {name!r}, only {', '.join(EXPERIMENTS)} and {ALL}")
    return [EXPERIMENTS[wanted]]


def cost(experiment: Experiment, *, quick: bool = False, seeds: int = 3, jobs: int = 2) -> float:
    """About how many seconds its cells take."""
    at_once = 1 if experiment.alone else jobs
    return sum(cell.cost for cell in experiment.cells(quick=quick, seeds=seeds)) / at_once
