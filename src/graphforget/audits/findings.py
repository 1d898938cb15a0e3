"""Sets what an audit measured against what was claimed of the deletion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphforget.audits.lira import UNLIKELY, PerExample
from graphforget.audits.measurements import FEWEST, Measured, Position
from graphforget.audits.power import MOST_MODELS, Promise, can_fail, fewest_models, models_to_flag
from graphforget.audits.rows import RETRAINED
from graphforget.certificates.document import Certificate
from graphforget.privacy.audit_epsilon import largest_auc
from graphforget.training.trained import Trained
from graphforget.unlearning.distance import TIGHT, Distance, chance_of_noise

FAR = 0.05  # of the way from retrained to never changed: nearer than that is no finding
OUTSIDE = 0.5  # of that way beyond either end: a position that far out is explained


@dataclass(frozen=True)
class Finding:
    """Something that an honest deletion does not show: it `refutes` the claim, or shows a memory that none denied."""

    refutes: bool
    told: str


def promised(claim: Certificate) -> Promise | None:
    """The epsilon and delta that a claim stands for, or None where it claims nothing that could be refuted."""
    if claim.level == "exact":
        return 0.0, 0.0
    if claim.level == "empirical" or claim.epsilon is None:
        return None
    return claim.epsilon, claim.delta or 0.0


def findings(
    measured: Measured,
    claim: Certificate,
    populations: Promise | None,
    released: Trained,
    distances: Mapping[str, Distance],
) -> list[Finding]:
    """`claim` is that of the release, `populations` the loosest one of the worlds'."""
    found = list(told_apart("method", measured.kept, measured.released, populations))
    promise = promised(claim)
    if promise is not None:
        chance = chance_of_noise(released.theta, measured.centre, sigma=measured.sigma)
        if chance < UNLIKELY:
            told = "between what the noise was to be added to and the released weights is not noise of sigma"
            told += f" = {measured.sigma:g}"
            found.append(Finding(True, f"{told}, the chance of that is {chance:.1g}"))
        found += _far(measured, claim, promise, distances.get("method"))
    elif measured.private.strongly_convex:
        found += _on_the_way(measured, distances)
    return found + list(position_findings(measured.position, promise))


def told_apart(
    model: str, kept: Mapping[str, PerExample], released: Mapping[str, PerExample], promise: Promise | None
) -> Iterator[Finding]:
    """What the per-example tests say of one population, if it is what was promised."""
    if promise is None:
        if kept[model].surely > 0.5:
            told = f"single items tell its weights from retrained ones with AUC {_interval(kept[model])}"
            yield Finding(False, f"{told}, and nothing was claimed")
        return
    epsilon, delta = promise
    if released[model].epsilon > epsilon:
        told = f"epsilon is at least {released[model].epsilon:.2f} (95 % confidence), and {epsilon:g} was claimed"
        yield Finding(True, told)
    limit = largest_auc(epsilon=epsilon, delta=delta)
    tests = [released[model]] if epsilon else [released[model], kept[model]]  # exact: of the weights themselves
    over = next((test for test in tests if test.surely > limit), None)
    if over is not None:
        yield Finding(True, f"single items tell it apart with AUC {_interval(over)}, over {limit:.3f}")


def _far(measured: Measured, claim: Certificate, promise: Promise, here: Distance | None) -> Iterator[Finding]:
    """The white-box distance, where there is one optimum to be at."""
    if here is None or not measured.private.strongly_convex:
        return
    allowed = measured.private.recipe.tolerance + TIGHT
    if claim.level == "exact" and here.distance > allowed:
        told = f"the weights are {here.distance:.2g} from the optimum, where training ends within {allowed:.2g}"
        yield Finding(True, told)
    if claim.level != "exact" and here.epsilon is not None and here.epsilon > promise[0]:
        told = f"the weights are {here.distance:.2g} from the retrained optimum, which implies epsilon"
        yield Finding(True, f"{told} {here.epsilon:.3g}, and {promise[0]:g} was claimed")


def _on_the_way(measured: Measured, distances: Mapping[str, Distance]) -> Iterator[Finding]:
    """The same where nothing was claimed: how much of the way to the optimum is left."""
    here, nothing = distances.get("method"), distances.get("nothing")
    allowed = measured.private.recipe.tolerance + TIGHT
    if here is not None and nothing is not None and here.distance > max(allowed, FAR * nothing.distance):
        told = f"the weights are {here.distance:.2g} from the retrained optimum, the old ones {nothing.distance:.2g}"
        yield Finding(False, f"{told}, and nothing was claimed")


def position_findings(position: Position, promise: Promise | None) -> Iterator[Finding]:
    """Where the release lies. A claim of epsilon and delta allows what is unlikely to be that much more likely."""
    epsilon, delta = (0.0, 0.0) if promise is None else promise
    if position.place is None or abs(position.place) < FAR:
        return
    if position.chance < (UNLIKELY - delta) * math.exp(-epsilon):
        told = f"the released weights lie at {position.place:.2f} between retrained (0) and never changed (1)"
        if position.place < 0:
            told = (
                f"the released weights lie at {position.place:.2f}, where 0 is retrained and 1 is never changed: they"
            )
            told += " are further from the unchanged weights than retrained ones are, and that shows what was deleted"
        yield Finding(promise is not None, f"{told}, a chance of {position.chance:.1g} for retrained ones")


def position_notes(position: Position) -> Iterator[str]:
    """Explains a position outside of 0 to 1 that is no finding."""
    place, spread = position.place, position.spread
    if place is None:
        yield "there is no position, since unchanged weights look like retrained ones to this test"
    elif spread is not None and not -OUTSIDE <= place <= 1 + OUTSIDE:
        side = "further from the unchanged weights than" if place < 0 else "beyond the unchanged weights as seen from"
        yield (
            f"the position {place:.2f} means that the release lies {side} retrained ones (0); retrained models lie"
            f" {spread:.2g} (standard deviation) from each other on this scale, and one of them lies as far off with a"
            f" chance of {position.chance:.2g}, so it is no finding"
        )


def no_op_findings(
    measured: Measured, claim: Certificate, populations: Promise | None, distances: Mapping[str, Distance]
) -> list[Finding]:
    """What the same models and seeds would have shown, had the deletion changed no weights."""
    result = list(told_apart("nothing", measured.kept, measured.released, populations))
    promise, unchanged = promised(claim), distances.get("nothing")
    if promise is not None:
        result += _far(measured, claim, promise, unchanged)
    elif measured.private.strongly_convex and unchanged is not None:
        result += _on_the_way(measured, {"method": unchanged, "nothing": unchanged})
    return result + list(position_findings(measured.positions["nothing"], promise))


def inconclusive_reason(
    measured: Measured, claim: Certificate, populations: Promise | None, distances: Mapping[str, Distance]
) -> str | None:
    """Why an audit without a finding says nothing, and how many models would; None if it does say something.

    It says something if the per-example test could have failed with so many models, and if a deletion that did nothing
    would have been flagged. A per-example test that no number of models could fail is left out of account.
    """
    kept, released = measured.kept["nothing"], measured.released["nothing"]
    if not can_fail(released.models, populations):
        needed = fewest_models(populations)
        if needed is not None:
            few = f"the per-example test cannot fail with {released.models} tested models of each kind"
            return f"{few}, whatever they answer: at least {needed} models are needed (--models {needed})"
    if no_op_findings(measured, claim, populations, distances):
        return None
    told = "a deletion that did nothing would not have been flagged either"
    needed = models_to_flag(kept, released, populations)
    if needed is not None and needed > measured.models:
        return f"{told}: about {needed} models would be needed for that (--models {needed})"
    auc = kept.auc.value if populations is None or populations[0] == 0 else released.auc.value
    why = f"unchanged models are told from retrained ones with an AUC of {auc:.3f}"
    if populations is not None:
        why += f", and the claim allows {largest_auc(epsilon=populations[0], delta=populations[1]):.3f}"
    if needed is not None:
        return f"{told}: {why}; more models may show more (--models)"
    return f"{told}, and {MOST_MODELS:,} models would not do: {why}"


def notes(measured: Measured, claim: Certificate, populations: Promise | None) -> list[str]:
    """How much it means to have passed."""
    few = {name: n for name, n in measured.attackable.items() if 0 < n < FEWEST and not name.endswith(" paper")}
    found = [f"the attack {name!r} was left out, with {n} item(s) to go by" for name, n in few.items()]
    found += [f"the attack {name!r} was left out, since {reason}" for name, reason in measured.refusals.items()]
    if not any(told_apart("nothing", measured.kept, measured.released, populations)):
        found.append("a deletion that did nothing would have passed the per-example test too, so it says little here")
    attainable = measured.released["method"].attainable
    if populations is not None and attainable <= populations[0]:
        most = f"so few models can show an epsilon of {attainable:.2f} at most, whatever they answer"
        found.append(f"{most}, and {populations[0]:g} was claimed: more models could show more (--models)")
    if not any(position_findings(measured.position, promised(claim))):
        found += position_notes(measured.position)
    if not measured.kept[RETRAINED].auc.holds(0.5):
        found.append(
            "retrained models seem to differ from retrained models, which is chance: more models would tell (--models)"
        )
    if claim.claim.void:
        found.append("a condition of the claim does not hold, so there is no claim to refute")
    elif populations != promised(claim):
        found.append("the worlds of the per-example test claim another epsilon than the release, and are judged by it")
    return found


def _interval(test: PerExample) -> str:
    return f"{test.auc.value:.3f} [{test.auc.low:.3f}, {test.auc.high:.3f}]"
