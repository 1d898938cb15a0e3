"""The text output about an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphforget.cli.console import say, show, show_pairs

if TYPE_CHECKING:
    from graphforget.audits.audit import Audit
    from graphforget.audits.scores import Interval


def render_audit(audit: Audit) -> None:
    _render_attacks(audit)
    say("")
    show_pairs([*_claim_pairs(audit), *_distance_pairs(audit), ("time", f"{audit.seconds:.0f} s")])
    for note in audit.notes:
        say(f"Note: {note}.")
    for finding in audit.findings:
        say(f"{'REFUTED' if finding.refutes else 'REMEMBERS'}: {finding.message}.")
    if audit.settings.get("rehearsal"):
        say("A rehearsal: it says nothing about deletions that have happened (--before and --request audit one).")
    if audit.verdict == "passed":
        say("Passed: these tests cannot distinguish the model from a retrained one better than the claim allows.")
    elif audit.verdict == "inconclusive":
        say(f"Inconclusive: these tests detected nothing, but {audit.inconclusive_reason}.")
    say("Private: this table, the result file and the plot depend on deleted data.")


def _render_attacks(audit: Audit) -> None:
    rows = [
        {
            "attack": row.attack,
            "model": row.model,
            "AUC": _percent(row.auc.value),
            "95 % of it": _interval(row.auc),
            "TPR": _percent(row.true_positives),
            "gap": "-" if row.gap is None else f"{100 * row.gap.value:+.1f} {_interval(row.gap)}",
        }
        for row in audit.rows
    ]
    show(rows, as_json=False, hidden=())
    say("\nIn %; TPR at up to 1 % false positives; gap to retrained models with its 95 % interval. A model that has")
    say(
        "forgotten has no gap; its AUC need not be 50. Rows named 'paper' follow the paper's protocol, in which the old"
    )
    say("weights have no gap either.")
    published = {row.model: row.published for row in audit.rows if row.published is not None}
    if published:
        values = ", ".join(f"{model} {_percent(value)}" for model, value in published.items())
        say(f"'AUC' of the membership attack in the paper's code, which is the accuracy of hard labels: {values}.")


def _claim_pairs(audit: Audit) -> list[tuple[str, str]]:
    claim, test, position = audit.claim, audit.per_example_released["method"], audit.position
    promised = "" if claim["epsilon"] is None else f", epsilon = {claim['epsilon']:g}"
    pairs = [
        ("claim", f"{claim['level']}{promised}"),
        ("epsilon", f"at least {test.epsilon:.2f} (95 % confidence), by {test.models} models of each kind"),
        ("", f"at most {test.attainable:.2f} can be shown with so many models"),
        ("", f"at least {audit.per_example_released['no_op'].epsilon:.2f} for the old weights"),
        ("position", f"{'-' if position.place is None else f'{position.place:.2f}'} (0: as retrained, 1: as before)"),
        ("", f"a retrained model is that far away with probability {position.chance:.2g}"),
    ]
    if position.spread is not None:
        pairs.append(("", f"retrained models have a standard deviation of {position.spread:.2g} on this scale"))
    return pairs


def _distance_pairs(audit: Audit) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, measured in audit.distances.items():
        implied = "" if measured.epsilon is None else f", which implies epsilon = {measured.epsilon:.3g}"
        pairs.append((f"distance, {name}", f"{measured.distance:.3g} from retrained weights{implied}"))
    for name, loss in audit.blanked.items():
        losses = f"{loss.true:.3f} of nodes without their attributes, {loss.as_published:.3f} as in the paper's code"
        pairs.append((f"loss, {name}", losses))
    return pairs


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _interval(interval: Interval) -> str:
    return f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
