"""The experiments by name, in the order of the paper; those that are not in the paper come last."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.experiments.experiment import Experiment

ALL = "all"
NAMES = (
    "table1",
    "figure-bounds",
    "figure-time",
    "table-attacks",
    "table-attributes",
    "table-datasets",
    "table-edge-time",
    "table-edge-accuracy",
    "table-noise",
    "table-seconds",
    "opengu",
    "benchmark-2026",
    "newer-attacks",
)


def experiment(name: str) -> Experiment:
    """The experiment of this name, from the file of this name."""
    loaded: Experiment = import_module(f"graphforget.experiments.{name.replace('-', '_')}").EXPERIMENT
    return loaded


def find(name: str) -> list[Experiment]:
    """The experiment of this name; for `all` every one, the cheapest first."""
    key = name.lower()
    if key == ALL:
        return sorted(map(experiment, NAMES), key=cost)
    if key not in NAMES:
        raise InputError(f"there is no experiment {name!r}, only {', '.join(NAMES)} and {ALL}")
    return [experiment(key)]


def cost(experiment: Experiment, *, quick: bool = False, seeds: int = 3, jobs: int = 2) -> float:
    """The estimated seconds of its cells."""
    at_once = 1 if experiment.alone else jobs
    return sum(cell.cost for cell in experiment.cells(quick=quick, seeds=seeds)) / at_once
