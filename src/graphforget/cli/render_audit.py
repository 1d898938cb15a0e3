"""What the command line tells people of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphforget.cli.console import say, show, show_pairs

if TYPE_CHECKING:
    from graphforget.audits.audit import Audit
    from graphforget.audits.scores import Interval


def render_audit(found: Audit) -> None:
    rows = [
        {
            "attack": row.attack,
            "model": row.model,
            "AUC": _percent(row.auc.value),
            "95 % of it": _interval(row.auc),
            "TPR": _percent(row.true_positives),
            "gap": "-" if row.gap is None else f"{100 * row.gap.value:+.1f} {_interval(row.gap)}",
        }
        for row in found.rows
    ]
    show(rows, as_json=False, hidden=())
    say("\nIn %; TPR at up to 1 % false positives; gap to retrained models, its 95 % interval. Forgetting shows as no")
    say("gap, not as an AUC of 50. Rows named 'paper' follow the paper's protocol, where doing nothing shows no gap.")
    published = {row.model: row.published for row in found.rows if row.published is not None}
    if published:
        told = ", ".join(f"{model} {_percent(value)}" for model, value in published.items())
        say(f"What the paper's code calls AUC of its membership attack, the accuracy of hard labels: {told}.")
    say("")
    claim, test, position = found.claim, found.per_example_released["method"], found.position
    promised = "" if claim["epsilon"] is None else f", epsilon = {claim['epsilon']:g}"
    pairs = [
        ("claim", f"{claim['level']}{promised}"),
        ("epsilon", f"at least {test.epsilon:.2f} (95 % confidence), by {test.models} models of each kind"),
        ("", f"at most {test.attainable:.2f} could have been shown by so many"),
        ("", f"at least {found.per_example_released['no_op'].epsilon:.2f} had nothing been done"),
        ("position", f"{'-' if position.place is None else f'{position.place:.2f}'} (0: as retrained, 1: as before)"),
        ("", f"a retrained model lies that far off with a chance of {position.chance:.2g}"),
    ]
    if position.spread is not None:
        pairs.append(("", f"retrained models have a standard deviation of {position.spread:.2g} on this scale"))
    for name, measured in found.distances.items():
        implied = "" if measured.epsilon is None else f", which implies epsilon = {measured.epsilon:.3g}"
        pairs.append((f"distance, {name}", f"{measured.distance:.3g} from retrained weights{implied}"))
    for name, loss in found.blanked.items():
        told = f"{loss.true:.3f} of nodes without their attributes, {loss.as_published:.3f} as the paper's code has it"
        pairs.append((f"loss, {name}", told))
    show_pairs([*pairs, ("time", f"{found.seconds:.0f} s")])
    for note in found.notes:
        say(f"Note: {note}.")
    for finding in found.findings:
        say(f"{'REFUTED' if finding.refutes else 'REMEMBERS'}: {finding.message}.")
    if found.settings.get("rehearsal"):
        say("A rehearsal: nothing is said of deletions that have happened (--before and --request audit one).")
    if found.verdict == "passed":
        say("Passed: these tests found nothing that tells the model from a retrained one beyond what was claimed.")
    elif found.verdict == "inconclusive":
        say(f"Inconclusive: these tests found nothing, but {found.inconclusive_reason}.")
    say("Private: this table, the result file and the plot tell of deleted data.")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _interval(found: Interval) -> str:
    return f"[{100 * found.low:.1f}, {100 * found.high:.1f}]"
