"""The methods by name, and the one call that runs any of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from graphforget.certificates.conditions import sentence
from graphforget.certificates.levels import Level
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.privacy.gaussian import release_ratio
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.method import Method, Task
from graphforget.unlearning.methods.ascent import Ascent
from graphforget.unlearning.methods.ceu import Ceu
from graphforget.unlearning.methods.cgu import Cgu
from graphforget.unlearning.methods.gif import Gif
from graphforget.unlearning.methods.grapheraser import GraphEraser
from graphforget.unlearning.methods.idea import Idea
from graphforget.unlearning.methods.newton import check_noise
from graphforget.unlearning.methods.retrain import has_noised_optimum
from graphforget.unlearning.outcome import Outcome, PrivacyTarget
from graphforget.unlearning.selection import NEWTON, RETRAIN, LevelPolicy, Otherwise, choose, retraining

# By name only, never chosen by `auto`.
BY_NAME: tuple[Method[Any], ...] = (Idea(), GraphEraser(), Gif(), Ceu(), Cgu(), Ascent())
ALL: tuple[Method[Any], ...] = (NEWTON, RETRAIN, *BY_NAME)
METHODS: dict[str, Method[Any]] = {method.name: method for method in ALL}


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
    epsilon: float | None = None,
    delta: float | None = None,
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
    that the certificate speaks of, and `outcome.public()` is what may be shown beside it.

    `epsilon` and `delta` are those that were fixed when the model was trained. Another value, method or option is
    accepted for this request, and the certificate lists it as chosen for it.

    `method="auto"` takes the cheapest method whose guarantee holds: Newton steps to `certified` for strongly convex
    models with noise, retraining (`exact`) for all others. A method that is named and whose guarantee does not hold
    here is refused, unless `level="empirical"` says that none is wanted. `level` is the lowest that will do; where it
    cannot be had, or the chosen method fails, the model is retrained, or with `otherwise="refuse"` nothing is released
    and `Refused` is raised.

    The noise is the model's own `sigma`, fixed when it was trained. It comes from the operating system's cryptographic
    source; a `noise_seed` makes it reproducible, and removable. `seed` is that of a method's own randomness. `options`
    belong to the method (`solver="lissa"` for `idea`).

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> trained = gf.train(graph, "sgc")
        >>> outcome = gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"]))
        >>> outcome.method, outcome.level, outcome.certificate.epsilon
        ('newton', 'certified', 1.0)
        >>> graph.num_nodes - outcome.graph.num_nodes
        1
    """
    policy = LevelPolicy(level, otherwise)
    automatic = str(method).lower() == AUTO
    named: Method[Any] = RETRAIN if automatic else find(method)
    parsed: Any = None if automatic else named.parse_options(options)
    named.check(trained, graph, request)
    target = privacy_target(trained, epsilon=epsilon, delta=delta, sigma=sigma)
    if automatic or not named.takes_sigma:
        check_noise(trained, target)
    chosen = {"method": None if automatic else named.name, "epsilon": epsilon, "delta": delta, "sigma": sigma}
    chosen |= {"level": level, "otherwise": None if otherwise == "retrain" else otherwise, "seed": seed, **options}
    task = Task.of(
        trained,
        graph,
        request,
        target=target,
        seed=seed,
        noise_seed=noise_seed,
        device=device,
        progress=progress,
        may_retrain=otherwise == "retrain",
        chosen=_differing(chosen, trained),
    )
    promises = automatic or named.level == "certified"  # others promise nothing that there could be no room for
    exhausted = promises and has_noised_optimum(trained) and not _covers(trained, target)
    if exhausted:
        reason = f"the {trained.recipe.releases} releases that were promised leave no room for one more"
        choice = retraining(trained, task.retained, policy=policy, options=model_option(options), why=reason)
        named, parsed, automatic = choice.method, choice.options, False
    elif automatic:
        choice = choose(task, policy=policy, options=options)
        named, parsed = choice.method, choice.options
    try:
        outcome = named.unlearn(task, parsed)
        shortfall = _shortfall(outcome, level, target)
        if shortfall is None:
            return outcome
        reason = shortfall
    except FloorMissed:
        raise
    except Refused as refusal:
        reason = str(refusal)
        if named is RETRAIN or level in (None, "empirical") or otherwise == "refuse":
            raise
    if named is RETRAIN or level in (None, "empirical"):
        raise Refused(reason)
    again = retraining(trained, task.retained, policy=policy, options=model_option(options), why=reason)
    task = dataclasses.replace(task, notes=(f"the model was retrained, because {reason}",))
    return again.method.unlearn(task, again.options)


def privacy_target(
    trained: Trained, *, epsilon: float | None, delta: float | None, sigma: float | None = None
) -> PrivacyTarget:
    """What is asked for: the model's own settings, unless the caller names others."""
    recipe = trained.recipe
    return PrivacyTarget(
        epsilon=recipe.epsilon if epsilon is None else epsilon,
        delta=recipe.delta if delta is None else delta,
        sigma=sigma,
    )


def _covers(trained: Trained, target: PrivacyTarget) -> bool:
    """Whether one more release keeps all of them together within what was fixed when the model was trained."""
    recipe = trained.recipe
    whole = release_ratio(epsilon=recipe.epsilon, delta=recipe.delta)
    own = release_ratio(epsilon=target.epsilon, delta=target.delta, releases=recipe.releases)
    ratio = max(own, release_ratio(epsilon=recipe.epsilon, delta=recipe.delta, releases=recipe.releases))
    return math.hypot(*trained.releases, ratio) <= whole * (1 + 1e-9)


def _differing(chosen: dict[str, Any], trained: Trained) -> dict[str, Any]:
    """What the caller set for this request and was not fixed before."""
    fixed = {name: getattr(trained.recipe, name) for name in ("epsilon", "delta", "sigma", "seed")}
    differing = {name: value for name, value in chosen.items() if value is not None and value != fixed.get(name)}
    return {name: _plain(value) for name, value in differing.items()}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value if isinstance(value, bool | int | float | str) else getattr(value, "__name__", type(value).__name__)


def model_option(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that any retraining takes, whichever method was named."""
    return {name: value for name, value in options.items() if name == "model"}


def _shortfall(outcome: Outcome, level: Level | None, target: PrivacyTarget) -> str | None:
    """Why an outcome will not do, or None."""
    certificate = outcome.certificate
    if certificate.claim.void and level != "empirical":
        refuted = outcome.measured.get("refuted") or outcome.measured.get("obstacles") or ["the noise is too little"]
        needed = outcome.measured.get("sigma_needed")
        noise = "" if needed is None else f" (the noise that it asks for has standard deviation {needed:.3g})"
        return (
            f"the guarantee of {outcome.method!r} does not hold here{noise}: {sentence(refuted[0])}; nothing was "
            "released, ask for level 'empirical' to go on without a guarantee, or retrain"
        )
    if level is None:
        return None
    if not LevelPolicy(level).met_by(outcome.level):
        return f"{outcome.method!r} reached level {outcome.level!r}, not {level!r}"
    if (certificate.epsilon or 0) > target.epsilon * (1 + 1e-9):
        return f"{outcome.method!r} reached epsilon {certificate.epsilon:.3g}, not {target.epsilon:g}"
    return None
