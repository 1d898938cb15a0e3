"""The findings of an audit: what was measured, compared with what was claimed of the deletion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphforget.audits.lira import UNLIKELY, PerExample
from graphforget.audits.measurements import FEWEST, Measurements, Position
from graphforget.audits.power import MOST_MODELS, Promise, can_fail, fewest_models, models_to_flag
from graphforget.audits.rows import METHOD, NO_OP, RETRAINED
from graphforget.certificates.document import Certificate
from graphforget.privacy.audit_epsilon import largest_auc
from graphforget.training.trained import Trained
from graphforget.unlearning.distance import TIGHT, Distance, noise_p_value
from graphforget.validation import named_in_files

FAR = 0.05  # of the difference between retrained and unchanged weights: a smaller one is no finding
OUTSIDE = 0.5  # of that difference beyond either end: a note explains a position that far outside


@dataclass(frozen=True)
class Finding:
    """A result that a correct deletion does not have. It refutes the claim, or shows memory where none was claimed."""

    refutes: bool
    message: str = named_in_files("told")


def promised(claim: Certificate) -> Promise | None:
    """The epsilon and delta of a claim; None if it claims nothing that a test could refute."""
    if claim.level == "exact":
        return 0.0, 0.0
    if claim.level == "empirical" or claim.epsilon is None:
        return None
    return claim.epsilon, claim.delta or 0.0


def findings(
    measured: Measurements,
    claim: Certificate,
    populations: Promise | None,
    released: Trained,
    distances: Mapping[str, Distance],
) -> list[Finding]:
    """`claim` is that of the release, `populations` the weakest one of the models of the populations."""
    result = list(per_example_findings(METHOD, measured, populations))
    promise = promised(claim)
    if promise is not None:
        chance = noise_p_value(released.theta, measured.centre, sigma=measured.sigma)
        if chance < UNLIKELY:
            message = "the difference between the released weights and the weights that noise was to be added to"
            message += f" is not noise of sigma = {measured.sigma:g}, its probability is {chance:.1g}"
            result.append(Finding(True, message))
        result += _distance_findings(measured, claim, promise, distances.get(METHOD))
    elif measured.private.strongly_convex:
        result += _unclaimed_distance_findings(measured, distances)
    return result + list(position_findings(measured.position, promise))


def per_example_findings(model: str, measured: Measurements, promise: Promise | None) -> Iterator[Finding]:
    """The findings of the per-example tests for one population, for which `promise` was claimed."""
    private, released = measured.per_example[model], measured.per_example_released[model]
    if promise is None:
        if private.surely > 0.5:
            message = f"single items distinguish its weights from retrained ones with AUC {_interval(private)}"
            yield Finding(False, f"{message}, and nothing was claimed")
        return
    epsilon, delta = promise
    if released.epsilon > epsilon:
        message = f"epsilon is at least {released.epsilon:.2f} (95 % confidence), and {epsilon:g} was claimed"
        yield Finding(True, message)
    limit = largest_auc(epsilon=epsilon, delta=delta)
    tests = [released] if epsilon else [released, private]  # an exact claim is about the private weights too
    over = next((test for test in tests if test.surely > limit), None)
    if over is not None:
        message = f"single items distinguish it from retrained models with AUC {_interval(over)}, over {limit:.3f}"
        yield Finding(True, message)


def _distance_findings(
    measured: Measurements, claim: Certificate, promise: Promise, measured_distance: Distance | None
) -> Iterator[Finding]:
    """The findings of the white-box distance, if the objective has a unique optimum."""
    if measured_distance is None or not measured.private.strongly_convex:
        return
    far, implied = measured_distance.distance, measured_distance.epsilon
    allowed = measured.private.recipe.tolerance + TIGHT
    if claim.level == "exact" and far > allowed:
        yield Finding(True, f"the weights are {far:.2g} from the optimum, training ends within {allowed:.2g} of it")
    if claim.level != "exact" and implied is not None and implied > promise[0]:
        message = f"the weights are {far:.2g} from the retrained optimum, which implies epsilon"
        yield Finding(True, f"{message} {implied:.3g}, and {promise[0]:g} was claimed")


def _unclaimed_distance_findings(measured: Measurements, distances: Mapping[str, Distance]) -> Iterator[Finding]:
    """The same if nothing was claimed: the distance is compared with that of the old weights."""
    method, unchanged = distances.get(METHOD), distances.get(NO_OP)
    allowed = measured.private.recipe.tolerance + TIGHT
    if method is not None and unchanged is not None and method.distance > max(allowed, FAR * unchanged.distance):
        message = f"the weights are {method.distance:.2g} from the retrained optimum, the old weights"
        yield Finding(False, f"{message} {unchanged.distance:.2g}, and nothing was claimed")


def position_findings(position: Position, promise: Promise | None) -> Iterator[Finding]:
    """The findings of a position. A claim of epsilon and delta allows unlikely positions to be that more likely."""
    epsilon, delta = (0.0, 0.0) if promise is None else promise
    if position.place is None or abs(position.place) < FAR:
        return
    if position.chance < (UNLIKELY - delta) * math.exp(-epsilon):
        message = f"the released weights lie at {position.place:.2f} between retrained (0) and never changed (1)"
        if position.place < 0:
            message = f"the released weights lie at {position.place:.2f}, where 0 is retrained and 1 is never changed:"
            message += (
                " they are further from the unchanged weights than retrained ones are, which reveals the deletion"
            )
        yield Finding(promise is not None, f"{message}, with probability {position.chance:.1g} for retrained ones")


def position_notes(position: Position) -> Iterator[str]:
    """A note on a position that is undefined or far outside of 0 to 1 and no finding."""
    place, spread = position.place, position.spread
    if place is None:
        yield "there is no position, because this test cannot distinguish unchanged weights from retrained ones"
    elif spread is not None and not -OUTSIDE <= place <= 1 + OUTSIDE:
        side = "further from the unchanged weights than" if place < 0 else "beyond the unchanged weights as seen from"
        yield (
            f"the position {place:.2f} means that the release lies {side} retrained ones (0); retrained models have a"
            f" standard deviation of {spread:.2g} on this scale, and one of them lies as far off with probability"
            f" {position.chance:.2g}, so it is no finding"
        )


def no_op_findings(
    measured: Measurements, claim: Certificate, populations: Promise | None, distances: Mapping[str, Distance]
) -> list[Finding]:
    """The findings that the same models and seeds would give for a deletion that changes no weights."""
    result = list(per_example_findings(NO_OP, measured, populations))
    promise, unchanged = promised(claim), distances.get(NO_OP)
    if promise is not None:
        result += _distance_findings(measured, claim, promise, unchanged)
    elif measured.private.strongly_convex and unchanged is not None:
        result += _unclaimed_distance_findings(measured, {METHOD: unchanged, NO_OP: unchanged})
    return result + list(position_findings(measured.positions[NO_OP], promise))


def inconclusive_reason(
    measured: Measurements, claim: Certificate, populations: Promise | None, distances: Mapping[str, Distance]
) -> str | None:
    """Why an audit without a finding proves nothing, and how many models would be enough; None if it is conclusive.

    It is conclusive if the per-example test can fail with this number of models, and if a deletion that did nothing
    would have been flagged. A per-example test that cannot fail with any number of models is not considered.
    """
    private, released = measured.per_example[NO_OP], measured.per_example_released[NO_OP]
    if not can_fail(released.models, populations):
        needed = fewest_models(populations)
        if needed is not None:
            few = f"the per-example test cannot fail with {released.models} tested models of each kind"
            return f"{few}, whatever they answer: at least {needed} models are needed (--models {needed})"
    if no_op_findings(measured, claim, populations, distances):
        return None
    message = "a deletion that did nothing would not have been flagged either"
    needed = models_to_flag(private, released, populations)
    if needed is not None and needed > measured.models:
        return f"{message}: about {needed} models would be needed for that (--models {needed})"
    auc = private.auc.value if populations is None or populations[0] == 0 else released.auc.value
    reason = f"unchanged models are distinguished from retrained ones with an AUC of {auc:.3f}"
    if populations is not None:
        reason += f", and the claim allows {largest_auc(epsilon=populations[0], delta=populations[1]):.3f}"
    if needed is not None:
        return f"{message}: {reason}; more models may show more (--models)"
    return f"{message}, and {MOST_MODELS:,} models would not be enough: {reason}"


def notes(measured: Measurements, claim: Certificate, populations: Promise | None) -> list[str]:
    """The limits of an audit that passed."""
    few = {name: n for name, n in measured.item_counts.items() if 0 < n < FEWEST and not name.endswith(" paper")}
    result = [f"the attack {name!r} was left out, because it has only {n} item(s)" for name, n in few.items()]
    result += [f"the attack {name!r} was left out, because {reason}" for name, reason in measured.refusals.items()]
    if not any(per_example_findings(NO_OP, measured, populations)):
        result.append("a deletion that did nothing would have passed the per-example test too, so it says little here")
    attainable = measured.per_example_released[METHOD].attainable
    if populations is not None and attainable <= populations[0]:
        most = f"this number of models can show an epsilon of {attainable:.2f} at most, whatever they answer"
        result.append(f"{most}, and {populations[0]:g} was claimed: more models could show more (--models)")
    if not any(position_findings(measured.position, promised(claim))):
        result += position_notes(measured.position)
    if not measured.per_example[RETRAINED].auc.holds(0.5):
        result.append(
            "retrained models seem to differ from retrained models, which is chance: use more models (--models)"
        )
    if claim.claim.void:
        result.append("a condition of the claim does not hold, so there is no claim to refute")
    elif populations != promised(claim):
        result.append(
            "the populations of the per-example test claim another epsilon than the release, and are judged by it"
        )
    return result


def _interval(test: PerExample) -> str:
    return f"{test.auc.value:.3f} [{test.auc.low:.3f}, {test.auc.high:.3f}]"
