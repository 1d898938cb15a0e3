"""The newer attacks after a deletion, with unchanged and retrained weights beside them; and inject-then-delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import graphforget as gf
from graphforget.audits.attacks import Scored
from graphforget.audits.injection import inject, robustness
from graphforget.audits.newer import controls, edge_attacks, halves, make_shadow, node_attacks
from graphforget.audits.rows import METHOD, NO_OP, RETRAINED, rows_of
from graphforget.experiments.bases import draw_request, load_graph
from graphforget.experiments.cells import Cell, Key, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.fingerprint import QUICK
from graphforget.experiments.random_splits import node_request, split_graph
from graphforget.experiments.settings import TITLES
from graphforget.experiments.table import Spread, Table, TableEntry
from graphforget.experiments.unlearned import LONG, answered, contestants, forget_by

NAME = "newer-attacks"
DATA = ("cora", "citeseer")
EDGES = 0.05  # of the edges, as in TrendAttack's protocol
INJECTED = 0.05  # of the training nodes
SEEDS = 3  # of retrained models for each cell
NODE_ATTACKS = ("output change", "recall")
EDGE_ATTACKS = ("mia", "trend mia", "steal", "trend steal")
INJECTIONS = ("inject, random", "inject, by loss")
FORECAST = "forecast"

NOTES = (
    "Attacks: the entries are AUCs in %. The target of a method is the AUC of retrained models, whatever it is. 'gap' "
    "is the AUC of the method less that of retrained models, with the ends of its 95 % bootstrap interval over the "
    "attacked items, as means over seeds. An interval that holds 0 means that the attack does not distinguish the "
    "method from retraining. The private weights are attacked, which have no noise.",
    "output change (MIattack): the score is the distance of the posteriors before and after. It needs the old model, "
    "which no guarantee of unlearning covers. Unchanged weights have exactly 50 by construction, and retrained models "
    "are not at 50, so a high score is no failure of a method.",
    "recall (MRattack): a student of the model's answers and the model itself score removed nodes against test nodes. "
    "The share of the teacher in later targets and the batch size are not published; they are 0.5 and 64 here.",
    "trend mia, trend steal (TrendAttack): removed edges against pairs of the same classes and degrees, by an attacker "
    "that learned on another half of the graph, which was unlearned in the same way. 'mia' and 'steal' are the same "
    "attacks without trend bits, and they learn from removed edges too. Halves are grown breadth first; the published "
    "protocol uses METIS. Linked nodes are alike, so retrained models are above 50 as well.",
    "inject: an attacker adds 5 % more training nodes with wrong labels, each linked to ten training nodes of high "
    "degree, and has them deleted. The entries are test micro-F1 in % on the graph without them: 'no_op' is before "
    "the deletion, 'retrained' is the model that never saw them, 'method' is after the deletion. By loss: the "
    "injected nodes copy those on which the attacker's own model has the largest loss. This is a simple form of the "
    "published attack, whose search over attributes and edges has no released code.",
    "forecast: the score on retained training nodes that `plan` expects after the deletion, in %, beside the present "
    "one in the column no_op.",
    "GraphToxin is left out: the published text that is at hand does not give its losses and weights.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    if quick:
        return further("sgc", "newton", quick=True, seeds=1)
    return _of_pairs(contestants(), DATA, seeds)


def further(model: str, method: str, *, quick: bool, seeds: int) -> list[Cell]:
    """The cells of any other method."""
    return _of_pairs([(model, method)], DATA[:1] if quick else DATA, 1 if quick else seeds)


def _of_pairs(pairs: Sequence[tuple[str, str]], datasets: Sequence[str], seeds: int) -> list[Cell]:
    return [
        _cell(data, model, method, kind, seed)
        for seed in range(seeds)
        for data in datasets
        for model, method in pairs
        for kind in WORK
    ]


def _cell(data: str, model: str, method: str, kind: str, seed: int) -> Cell:
    key: Key = {"data": data, "model": model, "method": method, "kind": kind, "seed": seed}
    cost = 15 if model in ("sgc", "sign") else 40
    return Cell(key, 300 if method in LONG else cost, attacked)


def attacked(*, store: Path, data: str, model: str, method: str, kind: str, seed: int) -> Row:
    return WORK[kind](data, model, method, seed)


def _nodes(data: str, model: str, method: str, seed: int) -> Row:
    graph = split_graph(data, seed)
    request = node_request(graph, "random", seed=seed)
    trained = gf.train(graph, model, seed=seed)
    outcome = answered(trained, graph, request, method)
    assert outcome is not None
    models = controls(trained, graph, request, seeds=SEEDS, seed=seed) | {METHOD: [outcome.trained]}
    return _rows(node_attacks(models, graph, request, seed=seed), seed)


def _edges(data: str, model: str, method: str, seed: int) -> Row:
    graph, other = halves(load_graph(data, seed), seed=seed)
    request = draw_request(graph, "edges", EDGES, seed=seed)
    trained = gf.train(graph, model, seed=seed)
    outcome = answered(trained, graph, request, method)
    assert outcome is not None
    shadow = make_shadow(other, trained, forget_by(method), share=EDGES, seed=seed + 1)
    models = controls(trained, graph, request, seeds=SEEDS, seed=seed) | {METHOD: [outcome.trained]}
    return _rows(edge_attacks(models, graph, request, shadow, seed=seed), seed)


def _rows(scored: Mapping[str, Scored], seed: int) -> Row:
    values: Row = {}
    for name, scores in scored.items():
        for row in rows_of(name, scores, seed=seed):
            values[f"{name} {row.model}"] = 100 * row.auc.value
            if row.model == METHOD and row.gap is not None:
                values |= {f"{name} gap": 100 * row.gap.value}
                values |= {f"{name} low": 100 * row.gap.low, f"{name} high": 100 * row.gap.high}
    return values


def _injection(data: str, model: str, method: str, seed: int) -> Row:
    graph = split_graph(data, seed)
    clean = gf.train(graph, model, seed=seed)
    values: Row = {}
    for name, choice in zip(INJECTIONS, ("random", "loss"), strict=True):
        count = int(INJECTED * graph.train_rows.numel())
        injection = inject(graph, count=count, seed=seed, choice=choice, surrogate=clean)  # type: ignore[arg-type]
        before = gf.train(injection.planted, model, seed=seed)
        outcome = answered(before, injection.planted, injection.request, method)
        assert outcome is not None
        scores = robustness(clean, before, outcome.trained, injection)
        values |= {f"{name} {NO_OP}": 100 * scores.before, f"{name} {RETRAINED}": 100 * scores.clean}
        values |= {f"{name} {METHOD}": 100 * scores.after}
        forecast = gf.plan(before, injection.planted, injection.request).forecast
        if forecast is not None:
            values |= {f"{name} {FORECAST} {NO_OP}": 100 * forecast.present}
            values |= {f"{name} {FORECAST} {METHOD}": 100 * forecast.expected}
    return values


WORK = {"nodes": _nodes, "edges": _edges, "injection": _injection}


def table(rows: Sequence[Row]) -> Table:
    lines: list[tuple[str | TableEntry, ...]] = []
    attacks = (*NODE_ATTACKS, *EDGE_ATTACKS, *INJECTIONS, *(f"{name} {FORECAST}" for name in INJECTIONS))
    keys = list(dict.fromkeys((row["data"], row["model"], row["method"]) for row in rows))
    known = {pair: place for place, pair in enumerate(contestants())}
    for data, model, method in sorted(keys, key=lambda key: (DATA.index(key[0]), known.get(key[1:], len(known)))):
        selected = [row for row in rows if (row["data"], row["model"], row["method"]) == (data, model, method)]
        for attack in attacks:
            entries = [
                TableEntry(Spread.of(row.get(f"{attack} {field}") for row in selected))
                for field in (NO_OP, RETRAINED, METHOD, "gap", "low", "high")
            ]
            if any(entry.ours is not None for entry in entries):
                name = f"{TITLES.get(model, model)}, {TITLES.get(method, method)}"
                lines.append((TITLES[data], name, attack, *entries))
    heads = ("data", "model and method", "attack", NO_OP, RETRAINED, METHOD, "gap", "gap, low", "gap, high")
    return Table("Newer attacks, and inject-then-delete", heads, tuple(lines), NOTES)


EXPERIMENT = Experiment(
    NAME, "newer attacks with controls, and inject-then-delete", cells, table, further=further, recipe=QUICK
)
