"""The methods by name, and the one call that runs any of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from graphforget.certificates.levels import Level
from graphforget.errors import InputError, Refused
from graphforget.fitting import Progress
from graphforget.graph import Graph
from graphforget.request import Request
from graphforget.trained import Trained
from graphforget.unlearning.ascent import Ascent
from graphforget.unlearning.auto import AUTO, RETRAIN, WITHOUT_RETRAINING, Otherwise, Wanted, choose, retraining
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.ceu import Ceu
from graphforget.unlearning.cgu import Cgu
from graphforget.unlearning.gif import Gif
from graphforget.unlearning.grapheraser import GraphEraser
from graphforget.unlearning.newton import check_noise
from graphforget.unlearning.outcome import Asked, Outcome

PEERS: tuple[Method[Any], ...] = (GraphEraser(), Gif(), Ceu(), Cgu(), Ascent())  # by name only, never chosen by `auto`
METHODS: dict[str, Method[Any]] = {method.name: method for method in (*WITHOUT_RETRAINING, RETRAIN, *PEERS)}


def find(name: str) -> Method[Any]:
    method = METHODS.get(str(name).lower())
    if method is None:
        raise InputError(f"there is no method {name!r}, only {AUTO}, {', '.join(METHODS)}")
    return method


def unlearn(
    trained: Trained,
    graph: Graph,
    request: Request,
    *,
    method: str = AUTO,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    sigma: float | None = None,
    level: Level | None = None,
    otherwise: Otherwise = "retrain",
    seed: int | None = None,
    noise_seed: int | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    **options: Any,
) -> Outcome:
    """Makes `trained` forget what `request` names of `graph`. Arguments are left as they are.

    `outcome.trained` and `outcome.graph` go into the next request and stay private; `outcome.released` has the noise
    that the certificate speaks of.

    `method="auto"` takes the cheapest method that reaches the best level in reach without retraining: Newton steps to
    `certified` for strongly convex models, IDEA's step to `conditional` for others. `level` is the lowest that will do;
    where it cannot be had, or the chosen method fails, the model is retrained, or with `otherwise="refuse"` nothing is
    released and `Refused` is raised.

    The noise is the model's own `sigma`, fixed when it was trained. (`idea` takes another one if `sigma` is given, and
    sizes it by `epsilon`, `delta` and the request for a model that was trained with 0.) It comes from the operating
    system's cryptographic source; a `noise_seed` makes it reproducible, and removable. `seed` is that of a method's own
    randomness. `options` belong to the method (`solver="lissa"` for `idea`).
    """
    wanted = Wanted(level, otherwise)
    automatic = str(method).lower() == AUTO
    named: Method[Any] = RETRAIN if automatic else find(method)
    chosen: Any = None if automatic else named.chosen(options)
    named.check(trained, graph, request)
    asked = Asked(epsilon=epsilon, delta=delta, sigma=sigma)
    if automatic or named.name != "idea":
        check_noise(trained, asked)
    given: Any = {"asked": asked, "seed": seed, "noise_seed": noise_seed, "device": device, "progress": progress}
    task = Task.of(trained, graph, request, **given)
    if automatic:
        way = choose(task, wanted=wanted, options=options)
        named, chosen = way.method, way.options
        wanted = dataclasses.replace(wanted, level=level or way.level)
    try:
        outcome = named.unlearn(task, chosen)
        why = _short_of(outcome, level, asked)
        if why is None:
            return outcome
    except Refused as refusal:
        if named is RETRAIN or not (automatic or level):
            raise
        why = str(refusal)
    if named is RETRAIN:
        raise Refused(why)
    own = {name: value for name, value in options.items() if name == "model"}
    why = why.partition("; ")[0]  # what follows is advice to retrain
    again = retraining(trained, task.retained, wanted=wanted, options=own, why=why)
    outcome = again.method.unlearn(task, again.options)
    return dataclasses.replace(outcome, notes=(*outcome.notes, f"the model was retrained, because {why}"))


def _short_of(outcome: Outcome, level: Level | None, asked: Asked) -> str | None:
    """Why an outcome will not do, or None. A conditional claim that was refuted is no claim."""
    if level is None:
        return None
    if not Wanted(level).met_by(outcome.level):
        return f"{outcome.method!r} reached level {outcome.level!r}, not {level!r}"
    if level == "conditional" and outcome.certificate.refuted:
        return f"a condition of its claim does not hold: {outcome.certificate.refuted[0]}"
    if (outcome.certificate.epsilon or 0) > asked.epsilon:
        return f"{outcome.method!r} reached epsilon {outcome.certificate.epsilon:.3g}, not {asked.epsilon:g}"
    return None
