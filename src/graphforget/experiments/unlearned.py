"""The models and methods that the newer tables compare, and how each answers a request."""

from __future__ import annotations

from typing import Any

import graphforget as gf
from graphforget.audits.populations import ByMethod
from graphforget.experiments.contestants import NO_OP
from graphforget.experiments.settings import CERTIFIED, DELTA, EPSILON
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.registry import METHODS

UNCERTIFIED = ("idea", "gif", "ascent", "gnndelete", "megu")  # on a GCN, as far as they are there
SCALEGUN = "scalegun"
LONG = ("gnndelete",)  # minutes on a core
WITHOUT_AUDIT = ("idea",)  # of assumptions, which takes longer than the step


def contestants() -> list[tuple[str, str]]:
    """The pairs of model and method: the certified models, ScaleGUN on its own model, and a GCN with other methods."""
    own = [(SCALEGUN, SCALEGUN)] if SCALEGUN in METHODS else []
    others = [("gcn", method) for method in UNCERTIFIED if method in METHODS]
    return [(model, "newton") for model in CERTIFIED] + own + others


def options_of(method: str) -> dict[str, Any]:
    if method in ("newton", "retrain"):
        return {"epsilon": EPSILON, "delta": DELTA}
    return {"level": "empirical"} | ({"audit": False} if method in WITHOUT_AUDIT else {})


def forget_by(method: str) -> ByMethod:
    """A function that unlearns by the method, for shadow models."""
    return ByMethod(method, options_of(method))


def answered(trained: gf.Trained, graph: gf.Graph, request: gf.Request, method: str) -> Outcome | None:
    """The outcome of the method; None for the row of unchanged weights."""
    return None if method == NO_OP else gf.unlearn(trained, graph, request, method=method, **options_of(method))
