"""From a method's result to a release: the noise, the count of releases, the floor, the certificate."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from graphforget.certificates.annex import Annex, released_digest
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import algorithms, issue_certificate, subject
from graphforget.certificates.releases import counted_ratio
from graphforget.errors import FloorMissed, Refused
from graphforget.models.inputs import fresh_inputs
from graphforget.privacy.gaussian import noise_error_within_budget
from graphforget.privacy.noise import rounding_tv_bound, with_noise
from graphforget.request.hashed_items import HashedItems
from graphforget.request.update import Update
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import MethodResult, Outcome
from graphforget.unlearning.task import Task


def add_noise(task: Task, change: MethodResult, centre: Tensor) -> tuple[Claim, Tensor, list[str]]:
    """The claim, `centre` with the noise that the claim or the caller requires, and notes for the caller."""
    claim, seed, recipe = change.claim, task.noise_seed, task.trained.recipe
    named = claim.number("sigma")
    sigma = next((s for s in (task.target.sigma, named or None, recipe.sigma or None) if s is not None), 0.0)
    if sigma != named:
        claim = dataclasses.replace(claim, sigma=sigma)  # type: ignore[call-arg]
    if not sigma:
        message = "the released weights carry no noise"
        if change.trained.objective_noise_vector is not None:
            message += " except the noise that was in the objective during training"
        return claim, centre, [] if claim.level == "exact" else [message]
    released = with_noise(centre, sigma=sigma, seed=seed)
    if not torch.isfinite(released).all():
        raise Refused(f"noise of standard deviation {sigma:g} leaves no finite weights")
    target, error = task.target, rounding_tv_bound(centre, sigma=sigma)
    budget: Any = {"epsilon": target.epsilon, "delta": target.delta, "releases": recipe.releases}
    if claim.centred and claim.level != "empirical" and not noise_error_within_budget(error, **budget):
        message = f"noise in float64 is {error:.1e} from Gaussian in total variation"
        raise Refused(f"delta = {target.delta:g} is too small for epsilon = {target.epsilon:g}, {message}")
    if seed is None:
        return claim, released, []
    message = "the noise is from a seed, and whoever knows the seed can take it off the weights"
    if claim.level == "exact":
        return claim, released, [message]
    seeded = Empirical(message, sigma=sigma, around_centre=claim.centred, refuted=claim.void)
    return seeded, released, [message]


def count_release(trained: Trained, earlier: tuple[float, ...], claim: Claim) -> Trained:
    """The model with this release counted after the earlier ones."""
    if trained.releases_left is not None:
        earlier = (*earlier, counted_ratio(claim, vars(trained.recipe)))
    return dataclasses.replace(trained, releases=earlier)


def with_suppressed(task: Task, trained: Trained) -> Trained:
    """The model with hashes of everything that requests deleted and nobody readmitted: no update brings it back."""
    suppressed = task.trained.never_again or HashedItems()
    if task.asked is not None:
        suppressed = suppressed.with_request(task.graph, task.asked)
    if task.returning is not None:
        suppressed = suppressed.without(task.retained, task.returning)
    return dataclasses.replace(trained, suppressed=None if suppressed.empty else suppressed, absent=None)


def write_annex(task: Task, salt: bytes, account: dict[str, Any]) -> Annex:
    """The private annex of a request, or of an update."""
    if task.asked is not None:
        return Annex.of(task.graph, task.asked, requests=task.requests, salt=salt, account=account)
    readmitted = None if task.returning is None else HashedItems.of(task.retained, task.returning)
    return Annex.of_update(Update(task.retained), salt=salt, account=account, readmitted=readmitted)


def check_floor(task: Task, outcome: Outcome) -> None:
    """Raises `FloorMissed` if the released weights score under the floor that was fixed when the model was trained."""
    floor = task.trained.recipe.floor
    if floor is not None:
        fresh_inputs(outcome.trained.module, outcome.graph)  # the score is that of the retained graph alone
    if floor is None or outcome.released.utility(outcome.graph) >= floor:
        return
    claim = outcome.certificate.claim
    # The old model stays, even if a retrained one would count its releases from 0.
    counted = count_release(task.trained, task.trained.releases, claim)
    raise FloorMissed(
        f"the released model scores under the floor {floor:g}, so nothing was released, and this counts as a release: "
        "to go on, train the model again, with a smaller sigma or a lower floor",
        trained=counted,
        annex=dataclasses.replace(outcome.annex, released=False),
        ratio=claim.ratio if counted.releases_left is None else counted.releases[-1],
    )


def weak_guarantee_notes(task: Task, claim: Claim) -> list[str]:
    """Notes about a guarantee that is too weak to be useful."""
    epsilon, delta, m = claim.number("epsilon"), task.target.delta, task.after_items.num_training
    if not epsilon:
        return []
    notes = [f"epsilon = {epsilon:.3g} is a very weak guarantee"] if epsilon > 10 else []
    if delta > 1 / m:
        count = f"the number of training {task.after_items.word}s"
        notes.append(f"delta = {delta:g} is over 1 / {m}, one over {count}; choose a smaller one")
    return notes


def write_certificate(
    method: str, claim: Claim, task: Task, trained: Trained, released: Tensor, annex: Annex
) -> Certificate:
    """The document with the claim and the digests of the data that it is about."""
    roots = task.filing.roots(task.retained)
    return issue_certificate(
        claim,
        filing=task.filing,
        method=method,
        chosen=dict(task.chosen),
        algorithms=algorithms(trained, roots),
        **subject(trained, strongly_convex=trained.proven_convex),
        training_nodes=task.after_items.num_training,
        releases_left=trained.releases_left,
        digests={
            "request": annex.request,
            "annex": annex.digest,
            "state": annex.state(trained.state_summary()),
            "graph": trained.graph_commitment(task.retained),
            "weights": annex.weights(trained.theta),
            "released": released_digest(released, trained.released_state),
            **roots,
        },
    )
