"""How long a request takes for its caller, and how long training by the paper's recipe takes."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import graphforget as gf
from graphforget.experiments.cells import Row
from graphforget.models.inputs import model_inputs
from graphforget.unlearning.outcome import Outcome

REPEATS = 3
SHORT = 20.0  # seconds; longer work is timed once
LONG = 2.0  # seconds of Adam, which vary little
ADAM_EPOCHS = 300  # "e.g. 300" in the paper; its code runs 3,000


def timed(work: Callable[[], Outcome], *, warm_up: bool = False) -> list[Outcome]:
    """The same work several times, for a median of their seconds."""
    if warm_up:
        work()
    outcomes = [work()]
    while outcomes[0].seconds < SHORT and len(outcomes) < REPEATS:
        outcomes.append(work())
    return outcomes


def answer(trained: gf.Trained, graph: gf.Graph, request: gf.Request, method: str, *, warm_up: bool = False) -> Row:
    """Time and level of one method's answer; for IDEA also the time of its solver alone, which the paper reports."""
    options: dict[str, Any] = {"level": "empirical", "audit": False} if method == "idea" else {}
    outcomes = timed(lambda: gf.unlearn(trained, graph, fresh(request), method=method, **options), warm_up=warm_up)
    outcome = outcomes[0]
    row: Row = {"seconds": statistics.median(each.seconds for each in outcomes), "level": outcome.level}
    row["load"] = os.getloadavg()[0]
    if method == "idea":
        row["solver_seconds"] = statistics.median(each.details["steps"][0]["seconds"] for each in outcomes)
    if method == "cgu":
        row["retrained"] = bool(outcome.details["retrained"])
    if method == "grapheraser":
        row["shards_retrained"] = outcome.details["retrained"]
    if outcome.level == "certified":
        row |= {"distance": outcome.measured["distance"], "epsilon": outcome.certificate.epsilon}
    return row


def load_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note on the load of the machine while rows were timed."""
    loads = [row["load"] for row in rows if "load" in row]
    if not loads:
        return ()
    return (
        f"The machine's load average was {min(loads):.1f} to {max(loads):.1f} during the runs. 1 is one busy core.",
    )


def fresh(request: gf.Request) -> gf.Request:
    """A copy of the request without its cached lookups."""
    return dataclasses.replace(request)


def adam(trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> float:
    """The seconds of retraining by the paper's recipe: the median of three runs, or of one if it is long."""
    adam_seconds(trained, graph, request, epochs=3)  # warm up
    seconds = [adam_seconds(trained, graph, request)]
    while seconds[0] < LONG and len(seconds) < REPEATS:
        seconds.append(adam_seconds(trained, graph, request))
    return statistics.median(seconds)


def adam_seconds(trained: gf.Trained, graph: gf.Graph, request: gf.Request, *, epochs: int = ADAM_EPOCHS) -> float:
    """The seconds of retraining a model of fixed propagation with `epochs` epochs of full-batch Adam, in float32."""
    started = time.perf_counter()
    retained = graph.without(fresh(request))
    module = trained.with_weights(torch.zeros_like(trained.theta)).module.float()
    inputs = model_inputs(module, retained, dtype=torch.float32)
    rows, labels = retained.train_rows, retained.y[retained.train_rows]
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=trained.recipe.mu)
    for _ in range(epochs):
        optimiser.zero_grad()
        cross_entropy(module(*inputs)[rows], labels).backward()
        optimiser.step()
    return time.perf_counter() - started
