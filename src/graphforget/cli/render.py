"""The text output about a training, a plan, an outcome, a verification, a ledger and a comparison."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import graphforget as gf
from graphforget.certificates.chain import Entry
from graphforget.certificates.conditions import sentence
from graphforget.certificates.releases import Composition
from graphforget.cli.console import say, show, show_pairs
from graphforget.request.kinds import in_words
from graphforget.training.score_names import SCORES, SHOWN, shown_score, stored_scores

if TYPE_CHECKING:
    from graphforget.unlearning.plan import Expected

PRIVATE = "\nPrivate: depends on the deleted data."
EXPLAINED = {
    "fresh noise": " (whether the noise differs from that of the previous release; --before RUN compares them)"
}


def training_result(graph: gf.Graph, trained: gf.Trained) -> dict[str, Any]:
    """The JSON object of `train`."""
    items = trained.items(graph)
    scores = trained.scores(graph) if trained.can_score(graph) else {}
    of_graphs = {} if graph.graph_numbers is None else {"graphs": len(graph.numbers_of_graphs)}
    return {
        "data": graph.name,
        **of_graphs,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        f"train_{items.word}s": items.num_training,
        f"test_{items.word}s": int(items.test_mask.sum()) + items.tests_elsewhere,
        **{f"test_{name}": scores.get(name) for name in SCORES[trained.score_kind(graph)]},
        **trained.summary(),
        "notes": [*graph.notes, *trained.notes],
    }


def render_training(result: dict[str, Any]) -> None:
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
        level = "cannot be certified: noise in the objective can be chosen to fit any weights (see 'cgu' and 'ceu')"
    elif result["certifiable"] and not result["recipe"]["sigma"]:
        level = "cannot be certified: sigma = 0, and without noise no distance to the optimum is small enough"
    elif result["certifiable"]:
        level = "can be certified: strongly convex by construction"
    elif result["obstacles"]:
        level = f"cannot be certified: {result['obstacles'][0]}"
    elif result["strongly_convex"]:
        level = "conditional at best: the loss is convex because its author declares it"
    else:
        level = "cannot be certified: the objective is not convex"
    graphs = f"{result['graphs']:,} graphs, " if "graphs" in result else ""
    words = item_words(result)
    pairs = (
        ("graph", f"{result['data']}: {graphs}{result['nodes']:,} nodes, {result['edges']:,} edges"),
        ("split", f"{result[f'train_{words}']:,} training {words}, {result[f'test_{words}']:,} test {words}"),
        (
            "model",
            f"{result['recipe']['model']}, {result['parameters']:,} parameters, mu = {result['recipe']['mu']:g}",
        ),
        *score_pairs(result),
        ("optimum", state),
        ("certificate", level),
        (
            "noise",
            _noise_of(result["recipe"]),
        ),
        ("guarantee", _guarantee_of(result)),
        ("time", f"{result['seconds']:.2f} s"),
    )
    show_pairs(pair for pair in pairs if pair[1])
    for note in result["notes"]:
        say(f"Note: {note}.")


def item_words(result: dict[str, Any]) -> str:
    """What the model of a training answers for, in the plural."""
    return next((word for word in ("nodes", "links", "graphs") if f"train_{word}" in result), "items")


def score_pairs(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The scores on the test items as lines of text."""
    return [
        (f"test {SHOWN[name]}", f"no test {item_words(result)}" if score is None else shown_score(name, score))
        for name, score in stored_scores(result).items()
    ]


def _guarantee_of(result: dict[str, Any]) -> str:
    recipe, left = result["recipe"], result["releases_left"]
    if left is None:
        return ""
    return f"epsilon = {recipe['epsilon']:g}, delta = {recipe['delta']:g} for {recipe['releases']} releases together"


def _noise_of(recipe: dict[str, Any]) -> str:
    if recipe["objective_noise"]:
        return f"standard deviation {recipe['objective_noise']:g} in the objective"
    return f"sigma = {recipe['sigma']:g} in every release" if recipe["sigma"] else "none fixed"


def _removed_lines(plan: gf.Plan) -> list[tuple[str, str]]:
    if plan.item == "node":
        return [("nodes to delete", f"{plan.nodes:,}"), ("training nodes", f"{plan.training_nodes:,} go")]
    words = f"training {plan.item}s"
    added = f", {plan.added:,} become absent {plan.item}s to learn from" if plan.added else ""
    return [("nodes to delete", f"{plan.nodes:,}"), (words, f"{plan.training_nodes:,} go{added}")]


def render_plan(plan: gf.Plan, *, floor: float | None) -> None:
    counts = [
        *_removed_lines(plan),
        ("edges to delete", f"{plan.edges:,}"),
        ("values set to 0", f"{plan.values:,}, of nodes: {plan.attribute_nodes:,}"),
        *([("labels to forget", f"{plan.labels:,}")] if plan.labels else []),
        *([("weights set to 1", f"{plan.edge_weights:,}")] if plan.edge_weights else []),
        _loss_line(plan),
    ]
    if plan.affected_by:  # ranks do not count a mixture by kinds
        counts += [("  by kind", ", ".join(f"{kind}: {count:,}" for kind, count in plan.affected_by.items()))]
    limit = [] if floor is None else [("floor", f"{floor:g}: a release with a lower score is refused")]
    outlook = [] if plan.forecast is None else [("forecast", plan.forecast.text)]
    show_pairs((*counts, *_expected_lines(plan), *outlook, *limit))
    for warning in plan.warnings:
        say(f"\n{warning}")
    if plan.level == "conditional":
        say("\n'unlearn' measures the conditions. If one fails, which is common, the request is refused (exit code 3),")
        say("unless you ask for --level empirical; --method retrain trains the model again instead.")
    _show_limits(plan)


def render_update_plan(plan: gf.UpdatePlan) -> None:
    again = f"{in_words(plan.deleted_again)} would come back" if plan.deleted_again else "nothing"
    counts = [
        ("nodes", f"{plan.new_nodes:,} new, {plan.lost_nodes:,} gone"),
        ("edges", f"{plan.new_edges:,} new, {plan.lost_edges:,} gone"),
        *([("  changed", f"weight or relations: {plan.changed_edges:,}")] if plan.changed_edges else []),
        ("corrections", f"nodes with other attributes: {plan.changed_attributes:,}, labels: {plan.changed_labels:,}"),
        (f"training {plan.item}s", f"{plan.added:,} new, {plan.removed:,} gone"),
        _loss_line(plan),
        ("deleted before", again),
    ]
    show_pairs((*counts, *_expected_lines(plan)))
    _show_limits(plan)


def _loss_line(plan: Expected) -> tuple[str, str]:
    return "training losses", f"{plan.affected:,} may change, {plan.untouched:,} stay as they are"


def _expected_lines(plan: Expected) -> list[tuple[str, str]]:
    return [
        ("method", plan.method),
        ("best level", plan.meaning if plan.level is None else f"{plan.level}: {plan.meaning}"),
        *(("condition", condition) for condition in plan.conditions),
        ("time", _time_of(plan)),
        *_encoder_lines(plan),
        ("releases left", "not counted" if plan.releases_left is None else str(plan.releases_left)),
    ]


def _show_limits(plan: Expected) -> None:
    if plan.advice:
        say("\nOther levels:")
        for way in plan.advice:
            say(f"  - {way}")
    say("\nNot covered at any level (delete these copies yourself, and note the limits):")
    for gap in plan.not_covered:
        say(f"  - {gap}")


def _encoder_lines(plan: Expected) -> list[tuple[str, str]]:
    if plan.encoders is None:
        return []
    return [("encoders", f"{plan.renewed_encoders} of {plan.encoders} are trained again")]


def _time_of(plan: Expected) -> str:
    if plan.retrain_seconds is None:
        return "that of your training, which is not known" if plan.seconds is None else f"about {plan.seconds:.2g} s"
    return f"about {plan.seconds or 0.0:.2g} s; training took {plan.retrain_seconds:.2g} s"


def render_outcome(result: dict[str, Any]) -> None:
    certificate, private = result["certificate"], result["private"]
    claim = certificate["claim"]
    pairs = [("level", f"{result['level']}: {certificate['words']['statement']}")]
    if result["level"] == "exact":
        pairs += [("condition", sentence(condition)) for condition in claim.get("conditions", ())]
    if claim.get("sigma"):
        pairs.append(("noise", f"sigma = {claim['sigma']:.4g}"))
    if certificate["releases_left"] is not None:
        pairs.append(("releases left", f"{certificate['releases_left']} of {certificate['settings']['releases']}"))
    for name, score in stored_scores(result).items():
        if score["released"] is not None:
            pairs.append((f"test {SHOWN[name]}", f"released {shown_score(name, score['released'])}"))
    if certificate["chosen"]:
        chosen = ", ".join(f"{name} = {value}" for name, value in certificate["chosen"].items())
        pairs.append(("chosen for this request", chosen))
    say("Public: may be published." if result["audience"] == "public" else "Would be public:")
    show_pairs(pairs)
    say(PRIVATE)
    touched, measured = private["footprint"], private["measured"]
    own = [
        ("method", private["method"]),
        ("training losses", f"{touched['removed']:,} removed, {touched['affected']:,} may have changed"),
    ]
    if measured.get("epsilon_measured") is not None:
        reached, allowed = f"{measured['distance']:.2g}", f"{measured['tolerance']:.2g}"
        own.append(("distance", f"the optimum is at most {reached} from the centre of the release, allowed {allowed}"))
        own.append(("epsilon", f"{measured['epsilon_measured']:.2g} by the measurement, for this release alone"))
    if measured.get("sigma_needed"):
        own.append(("noise needed", f"sigma = {measured['sigma_needed']:.4g} for this epsilon and delta"))
        own.append(("distance", f"at most {measured['distance']:.4g} from retrained, under the constants assumed"))
    show_pairs([*own, ("time", f"{private['seconds']:.2f} s")])
    if measured.get("conditions"):
        say("\nThe assumptions of the claim, and the measurements:")
        rows = [
            {
                "assumption": sentence(condition["name"]),
                "verdict": condition["verdict"],
                "measured": condition["measured"],
                "constant": condition["threshold"],
            }
            for condition in measured["conditions"]
        ]
        show(rows, as_json=False, hidden=())
    if measured.get("refuted"):
        say("\nAn assumption does NOT hold, so nothing is guaranteed for this model.")
    for note in private["notes"]:
        say(f"Note: {note}.")


def render_verification(verification: gf.Verification) -> None:
    show_pairs((f"ok  {check.name}", check.result) for check in verification.checks)
    for gap in verification.unchecked:
        say(f"Not checked: {gap}{EXPLAINED.get(gap, '')}.")


def ledger_result(entries: tuple[Entry, ...], together: Composition, left: int | None) -> dict[str, Any]:
    """The public JSON object of `ledger`."""
    shown = (
        *("number", "time", "request_id", "request_digest", "certificate_digest"),
        *("level", "ratio", "previous", "hash", "signer"),
    )
    return {
        "audience": "public",
        "entries": [{name: getattr(entry, name) for name in shown} for entry in entries],
        "composed": dataclasses.asdict(together),
        "releases_left": left,
        "head": entries[-1].hash,
    }


def render_ledger(result: dict[str, Any]) -> None:
    columns = ("number", "time", "request_id", "level", "ratio")
    show([{name: entry[name] for name in columns} for entry in result["entries"]], as_json=False, hidden=())
    together = result["composed"]
    if together["epsilon"] is None:
        say(f"\nNo epsilon for all releases together: {together['reason']}.")
    else:
        count = together["releases"]
        one, several = "1 release of this run guarantees", f"{count} releases of this run together guarantee"
        say(f"\n{one if count == 1 else several} epsilon = {together['epsilon']:.3g} at delta = {together['delta']:g}.")
    if result["releases_left"] is not None:
        say(f"Releases left: {result['releases_left']}.")


def render_measured(measured: list[dict[str, Any]]) -> None:
    """The private part of a ledger: the measurements of each request."""
    say(PRIVATE)
    show(measured, as_json=False, hidden=())


def render_comparison(rows: list[dict[str, Any]]) -> None:
    """Times in seconds, scores and agreement in percent; notes below the table."""
    title = "F1" if rows[0]["score"] == "micro_f1" else SHOWN[rows[0]["score"]]
    shown = [
        {
            "method": row["method"],
            "level": row["level"],
            "epsilon": _digits(row["epsilon"]),
            "time": _digits(row["seconds"]),
            title: _score(row["score"], row["f1"]),
            "released": _score(row["score"], row["f1_released"]),
            "agrees": _percent(row["agreement"]),
            "distance": _digits(row["distance"]),
        }
        for row in rows
    ]
    show(shown, as_json=False, hidden=())
    say(
        f"\nSeconds; {title} of the private and of the released weights; predictions equal to those of the retrained "
        "model, in %; distance of the private weights to the retrained ones."
    )
    for row in rows:
        if row["note"]:
            say(f"  {row['method']}: {row['note']}.")


def _score(name: str, value: float | None) -> str | None:
    return None if value is None else shown_score(name, value).removesuffix(" %")


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.2f}"


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
