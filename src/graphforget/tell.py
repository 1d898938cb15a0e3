"""What the command line tells people of a training, a plan, an outcome, a verification and a ledger."""

from __future__ import annotations

from typing import Any

import graphforget as gf
from graphforget.certificates.ledger import MEASURED, Composed, Entry
from graphforget.terminal import facts, say, show


def training_result(graph: gf.Graph, trained: gf.Trained) -> dict[str, Any]:
    """What `train --json` shows."""
    has_test = bool(graph.test_mask.any())
    return {
        "data": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "train_nodes": int(graph.train_mask.sum()),
        "test_nodes": int(graph.test_mask.sum()),
        "test_micro_f1": trained.micro_f1(graph) if has_test else None,
        **trained.summary(),
        "notes": list(graph.notes),
    }


def tell_training(result: dict[str, Any]) -> None:
    f1 = result["test_micro_f1"]
    reached = f"||grad F|| / mu = {result['gradient_norm_over_mu']:.1e}"
    if result["strongly_convex"]:
        bound = f"{reached}, a bound on the distance to the optimum"
        state = (
            bound
            if result["converged"]
            else f"{reached}: NOT CONVERGED, the tolerance is {result['recipe']['tolerance']}"
        )
    else:
        state = f"||grad F|| = {result['gradient_norm']:.1e} (not convex: no bound follows from it)"
    if result["recipe"]["objective_noise"]:
        level = "cannot be certified: the noise in the objective can be made to fit any weights (see 'cgu' and 'ceu')"
    elif result["certifiable"] and not result["recipe"]["sigma"]:
        level = "cannot be certified: sigma = 0, and without noise no distance is near enough"
    elif result["certifiable"]:
        level = "can be certified: strongly convex by construction"
    elif result["obstacles"]:
        level = f"cannot be certified: {result['obstacles'][0]}"
    else:
        level = "cannot be certified: the objective is not convex"
    pairs = (
        ("graph", f"{result['data']}: {result['nodes']:,} nodes, {result['edges']:,} edges"),
        ("split", f"{result['train_nodes']:,} training nodes, {result['test_nodes']:,} test nodes"),
        (
            "model",
            f"{result['recipe']['model']}, {result['parameters']:,} parameters, mu = {result['recipe']['mu']:g}",
        ),
        ("test micro-F1", "no test nodes" if f1 is None else f"{100 * f1:.2f} %"),
        ("optimum", state),
        ("certificate", level),
        (
            "noise",
            _noise_of(result["recipe"]),
        ),
        ("time", f"{result['seconds']:.2f} s"),
    )
    facts(pairs)
    for note in result["notes"]:
        say(f"Note: {note}.")


def _noise_of(recipe: dict[str, Any]) -> str:
    if recipe["objective_noise"]:
        return f"standard deviation {recipe['objective_noise']:g} in the objective"
    return f"sigma = {recipe['sigma']:g} in every release" if recipe["sigma"] else "none fixed"


def tell_plan(plan: gf.Plan) -> None:
    facts(
        (
            ("nodes that go", f"{plan.nodes:,}, of which {plan.training_nodes:,} in training"),
            ("edges that go", f"{plan.edges:,}"),
            ("values set to 0", f"{plan.values:,}, of nodes: {plan.attribute_nodes:,}"),
            ("training losses", f"{plan.affected:,} may change, {plan.untouched:,} stay as they are"),
            ("  by kind", ", ".join(f"{kind}: {count:,}" for kind, count in plan.affected_by.items())),
            ("method", plan.method),
            ("best level", plan.meaning if plan.level is None else f"{plan.level}: {plan.meaning}"),
            ("time", f"about {plan.seconds:.2g} s; training took {plan.retrain_seconds:.2g} s"),
        )
    )
    if plan.level == "conditional":
        say("\nThe conditions are measured by unlearn. Where one fails, as they often do, nothing follows;")
        say("with --level exact the model is retrained instead.")
    say("\nNot covered, whatever the level (what to purge, and what to know):")
    for gap in plan.not_covered:
        say(f"  - {gap}")


def tell_outcome(result: dict[str, Any]) -> None:
    certificate, touched = result["certificate"], result["footprint"]
    pairs = [
        ("method", result["method"]),
        ("training losses", f"{touched['removed']:,} removed, {touched['affected']:,} may have changed"),
        ("level", f"{result['level']}: {certificate['statement']}"),
    ]
    if certificate["sigma"]:
        pairs.append(("noise", f"sigma = {certificate['sigma']:.4g}"))
    if certificate["epsilon_measured"] is not None:
        reached, allowed = f"{certificate['distance']:.2g}", f"{certificate['tolerance']:.2g}"
        implied = f"{certificate['epsilon_measured']:.2g}"
        told = f"measured: the optimum is at most {reached} from what the noise is around, allowed: {allowed}"
        pairs.append(("distance", told))
        pairs.append(("epsilon", f"{certificate['epsilon']:g} guaranteed; the distance measured implies {implied}"))
    elif certificate["tolerance"] and certificate["epsilon"] is not None:
        pairs.append(("epsilon", f"{certificate['epsilon']:.2g}, if every condition below holds"))
    if certificate["sigma_needed"]:
        pairs.append(("noise needed", f"sigma = {certificate['sigma_needed']:.4g} for what was asked"))
        pairs.append(("distance", f"at most {certificate['distance']:.4g} from retrained, under the constants assumed"))
    if result["test_micro_f1"] is not None:
        scores = ", ".join(f"{name} {100 * f1:.2f} %" for name, f1 in result["test_micro_f1"].items())
        pairs.append(("test micro-F1", scores))
    facts([*pairs, ("time", f"{result['seconds']:.2f} s")])
    if certificate["conditions"]:
        say("\nWhat the claim assumes, and what was measured:")
        rows = [
            {"assumption": c["name"], "verdict": c["verdict"], "measured": c["measured"], "constant": c["threshold"]}
            for c in certificate["conditions"]
        ]
        show(rows, as_json=False, hidden=())
    if certificate["refuted"]:
        say("\nSome of it does NOT hold here, so nothing follows for this model.")
    for note in result["notes"]:
        say(f"Note: {note}.")


def tell_verification(found: gf.Verification) -> None:
    facts((f"ok  {check.name}", check.found) for check in found.checks)
    for gap in found.unchecked:
        say(f"Not checked: {gap}.")


def tell_ledger(entries: tuple[Entry, ...], together: Composed) -> None:
    columns = ("number", "time", "request_id", "level", "ratio")
    show([{name: getattr(entry, name) for name in columns} for entry in entries], as_json=False, hidden=())
    if together.epsilon is None:
        say(f"\nNo epsilon for all releases together: {together.reason}.")
    else:
        releases = f"{together.releases} release{'s' * (together.releases != 1)} in this line of runs"
        say(f"\nAll together, {releases}: epsilon = {together.epsilon:.3g} at delta = {together.delta:g}, {MEASURED}.")


def tell_comparison(rows: list[dict[str, Any]]) -> None:
    """Times in seconds, F1 and agreement in percent of the test nodes; notes below, where there is room."""
    shown = [
        {
            "method": row["method"],
            "level": row["level"],
            "epsilon": _digits(row["epsilon"]),
            "time": _digits(row["seconds"]),
            "F1": _percent(row["f1"]),
            "released": _percent(row["f1_released"]),
            "agrees": _percent(row["agreement"]),
            "distance": _digits(row["distance"]),
        }
        for row in rows
    ]
    show(shown, as_json=False, hidden=())
    say(
        "\nSeconds; F1 of the private and of the released weights; answers that agree with the retrained model's, in "
        "%; distance of the private weights to the retrained ones."
    )
    for row in rows:
        if row["note"]:
            say(f"  {row['method']}: {row['note']}.")


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.2f}"


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
