"""`gf.unlearn`: the one call that runs any method."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphforget.certificates.conditions import sentence
from graphforget.certificates.issue import Filing
from graphforget.certificates.levels import Level
from graphforget.errors import FloorMissed, Refused
from graphforget.graph.graph import Graph
from graphforget.progress import Progress
from graphforget.request.batch import as_requests
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.methods.newton import check_noise
from graphforget.unlearning.outcome import Outcome, PrivacyTarget
from graphforget.unlearning.registry import named_choice
from graphforget.unlearning.selection import RETRAIN, Choice, LevelPolicy, Otherwise, choose, model_option, retraining
from graphforget.unlearning.task import Task


# Longer than 50 lines because of its signature and its documentation.
def unlearn(
    trained: Trained,
    graph: Graph,
    request: Request | Sequence[Request],
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
    filing: Filing | None = None,
    **options: Any,
) -> Outcome:
    """Answers a deletion request: makes `trained` forget the data that `request` names. The arguments do not change.

    `outcome.trained` and `outcome.graph` are private; pass them to the next request. `outcome.released` is the model
    with the noise of the certificate, and `outcome.public()` may be shown together with it.

    `method="auto"` uses the cheapest method whose guarantee holds: Newton steps (`certified`) for strongly convex
    models with noise, and retraining (`exact`) for all others. If you name a method whose guarantee does not hold for
    this model, the request is refused unless `level="empirical"`.

    Args:
        trained: The model, as `train`, `adopt` or an earlier outcome gives it.
        graph: The graph that the model was trained on, or the retained graph of the last request.
        request: The nodes, edges and attributes to forget. A list of requests is answered by one release with one
            certificate, which commits to each of them (`outcome.annex.commitments`, in the order of the list).
        method: The name of a method, or "auto".
        epsilon: By default the epsilon that was fixed at training. The certificate lists every setting that differs.
        delta: By default the delta that was fixed at training.
        sigma: The noise for this request, for methods that accept it; by default that of the model.
        level: The lowest acceptable level.
        otherwise: "retrain" or "refuse", if the level cannot be reached or the method fails.
        seed: The seed of the method's own randomness.
        noise_seed: Makes the noise reproducible, and therefore removable. By default the noise comes from the
            cryptographic source of the operating system.
        device: The torch device to compute on.
        progress: A function that is called with a stage, the steps done and their total.
        **options: Options of the method, such as `solver="lissa"` for `idea`.

    Returns:
        The outcome, with the certificate.

    Raises:
        InputError: The arguments do not fit together, or the request names something that is not in the graph.
        Refused: The level cannot be reached, or the result would be unusable. Nothing is released.

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
    named = named_choice(method, options)
    requests = as_requests(request)
    merged = (named.method if named else RETRAIN).checked_request(trained, graph, requests)
    target = privacy_target(trained, epsilon=epsilon, delta=delta, sigma=sigma)
    if named is None or not named.method.takes_sigma:
        check_noise(trained, target)
    given = {"method": named.method.name if named else None, "epsilon": epsilon, "delta": delta, "sigma": sigma}
    given |= {"level": level, "otherwise": None if otherwise == "retrain" else otherwise, "seed": seed, **options}
    task = Task.of(
        trained,
        graph,
        merged,
        requests=requests,
        target=target,
        seed=seed,
        noise_seed=noise_seed,
        device=device,
        progress=progress,
        may_retrain=otherwise == "retrain",
        chosen=differing(given, trained),
        filing=filing or Filing(),
    )
    choice = choose(task, policy=policy, options=options, named=named)
    return run_choice(task, choice, policy, options)


def run_choice(task: Task, choice: Choice, policy: LevelPolicy, options: Mapping[str, Any]) -> Outcome:
    """The outcome of the chosen method, or of retraining if the method does not reach the required level."""
    only_this = choice.method is RETRAIN or policy.level in (None, "empirical")
    try:
        outcome = choice.method.unlearn(task, choice.options)
    except FloorMissed:
        raise
    except Refused as refusal:
        if only_this or policy.otherwise == "refuse":
            raise
        reason = str(refusal)
    else:
        shortfall = _shortfall(outcome, policy.level, task.target)
        if shortfall is None:
            return outcome
        if only_this:
            raise Refused(shortfall)
        reason = shortfall
    again = retraining(task, policy=policy, options=model_option(options), why=reason)
    task = dataclasses.replace(task, notes=(*task.notes, f"the model was retrained, because {reason}"))
    return again.method.unlearn(task, again.options)


def privacy_target(
    trained: Trained, *, epsilon: float | None, delta: float | None, sigma: float | None = None
) -> PrivacyTarget:
    """The settings of the model, unless the caller gives others."""
    recipe = trained.recipe
    return PrivacyTarget(
        epsilon=recipe.epsilon if epsilon is None else epsilon,
        delta=recipe.delta if delta is None else delta,
        sigma=sigma,
    )


def differing(chosen: dict[str, Any], trained: Trained) -> dict[str, Any]:
    """The settings of the caller that differ from those that were fixed at training."""
    fixed = {name: getattr(trained.recipe, name) for name in ("epsilon", "delta", "sigma", "seed")}
    differing = {name: value for name, value in chosen.items() if value is not None and value != fixed.get(name)}
    return {name: _plain(value) for name, value in differing.items()}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value if isinstance(value, bool | int | float | str) else getattr(value, "__name__", type(value).__name__)


def _shortfall(outcome: Outcome, level: Level | None, target: PrivacyTarget) -> str | None:
    """The reason why an outcome is not acceptable, or None."""
    certificate = outcome.certificate
    if certificate.claim.void and level != "empirical":
        refuted = outcome.measured.get("refuted")
        blockers = outcome.measured.get("obstacles") or ["the noise is too little"]
        reason = f"this condition fails: {sentence(refuted[0])}" if refuted else blockers[0]
        needed = outcome.measured.get("sigma_needed")
        noise = "" if needed is None else f" (the noise that it needs has standard deviation {needed:.3g})"
        return (
            f"the guarantee of {outcome.method!r} does not hold here{noise}: {reason}; nothing was released, ask for "
            "level 'empirical' to go on without a guarantee, or retrain"
        )
    if level is None:
        return None
    if not LevelPolicy(level).met_by(outcome.level):
        return f"{outcome.method!r} reached level {outcome.level!r}, not {level!r}"
    if (certificate.epsilon or 0) > target.epsilon * (1 + 1e-9):
        return f"{outcome.method!r} reached epsilon {certificate.epsilon:.3g}, not {target.epsilon:g}"
    return None
