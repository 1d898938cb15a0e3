"""The benchmark of ICLR 2026: fidelity to retraining, distances, time and memory, on skewed request workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

import graphforget as gf
from graphforget.experiments.bases import f1_percent
from graphforget.experiments.cells import Cell, Key, Row
from graphforget.experiments.contestants import NO_OP
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.fingerprint import QUICK
from graphforget.experiments.memory import with_peak_memory
from graphforget.experiments.random_splits import WORKLOADS, node_request, split_graph
from graphforget.experiments.settings import TITLES
from graphforget.experiments.table import Spread, Table, TableEntry
from graphforget.experiments.unlearned import LONG, answered, contestants
from graphforget.training.retraining import trained_anew

NAME = "benchmark-2026"
DATA = ("cora", "citeseer")
GOLD, SECOND_GOLD = 1000, 2000  # added to the seed of a cell: fresh weights for each retrained model
TRAINING = {"gcn": 4.0, "sgc": 0.2, "scalegun": 0.3, "sign": 0.5, "stacked-gcn": 2.0}  # seconds
KEY = ("data", "workload", "model", "method")
COLUMNS = {
    "fidelity, %": ("fidelity", ".1f"),
    "fidelity, two GOLD": ("gold_fidelity", ".1f"),
    "logit distance": ("logits", ".3g"),
    "logits, two GOLD": ("gold_logits", ".3g"),
    "weight distance": ("weights", ".3g"),
    "weights, two GOLD": ("gold_weights", ".3g"),
    "weights, relative": ("relative_weights", ".3g"),
    "weights, cosine": ("cosine", ".3f"),
    "micro-F1, %": ("f1", ".1f"),
    "GOLD, %": ("gold_f1", ".1f"),
    "seconds": ("seconds", ".2g"),
    "peak, MiB": ("memory", ".3g"),
}

NOTES = (
    "A tenth of all nodes is deleted, drawn from the training nodes (80 % of all). Workloads: at random; from the "
    "most frequent class; from the second class; of the highest degree; of the lowest degree. A class with fewer "
    "training nodes is deleted whole.",
    "GOLD is the same kind of model retrained on the retained graph from fresh weights. Fidelity is the share of test "
    "nodes with the same predicted class as GOLD. Distances are to GOLD: the mean Euclidean distance of the logits of "
    "a node, and that of all weights. Beside each stands the same number between two GOLD models of different seeds. "
    "A method cannot be expected to be nearer. 'relative' is the weight distance over the norm of GOLD, 'cosine' that "
    "of the angle of both weight vectors.",
    "All models answer on the retained graph. The published code evaluates GOLD and some methods on the original graph "
    "and others on the reduced one, so its fidelity mixes two effects.",
    "Certified models are scored as released, with their noise (epsilon = 1, delta = 1e-5). Their GOLD has no noise, "
    "and two of them are equal up to the tolerance of training, because the optimum is unique. For a stacked model "
    "GOLD draws other encoders, and GNNDelete adds weights, so there weights are not compared.",
    "'no_op (old weights)' has forgotten nothing. High fidelity and small distances are no evidence of forgetting: "
    "compare with that row.",
    "Seconds and memory are those of the request alone, in one run. Memory is the rise of the resident memory of the "
    "process during the request, as the kernel counts it; 0 means that memory from before was enough.",
    "The repository of the benchmark has no table of results, so no published numbers stand beside these. Its "
    "datasets Photo, ogbn-arxiv, Amazon-ratings, Roman-empire and Reddit are not at hand. Its methods that this "
    "package does not have are left out.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    if quick:
        return _of_pairs([("sgc", "newton")], quick=True, seeds=1)
    return _of_pairs(contestants(), quick=False, seeds=seeds)


def further(model: str, method: str, *, quick: bool, seeds: int) -> list[Cell]:
    """The cells of any other method, and of the unchanged weights of its model."""
    return _of_pairs([(model, method)], quick=quick, seeds=seeds)


def _of_pairs(pairs: Sequence[tuple[str, str]], *, quick: bool, seeds: int) -> list[Cell]:
    result = []
    for seed in range(1 if quick else seeds):
        for data in DATA[:1] if quick else DATA:
            for workload in WORKLOADS[:1] if quick else WORKLOADS:
                models = list(dict.fromkeys(model for model, _ in pairs))
                result += [_cell(data, model, NO_OP, workload, seed) for model in models]
                result += [_cell(data, model, method, workload, seed) for model, method in pairs]
    return result


def _cell(data: str, model: str, method: str, workload: str, seed: int) -> Cell:
    key: Key = {"data": data, "model": model, "method": method, "workload": workload, "seed": seed}
    return Cell(key, 4 * TRAINING.get(model, TRAINING["gcn"]) + (100 if method in LONG else 1), compared)


def compared(*, store: Path, data: str, model: str, method: str, workload: str, seed: int) -> Row:
    graph = split_graph(data, seed)
    request = node_request(graph, workload, seed=seed)
    trained = gf.train(graph, model, seed=seed)
    outcome, memory = with_peak_memory(lambda: answered(trained, graph, request, method))
    retained = graph.without(request) if outcome is None else outcome.graph
    after = trained if outcome is None else outcome.released
    gold, other = (trained_anew(trained, retained, seed=seed + offset) for offset in (GOLD, SECOND_GOLD))
    row: Row = {"f1": f1_percent(after, retained), "gold_f1": f1_percent(gold, retained)}
    row |= distances(after, gold, retained)
    row |= {f"gold_{name}": value for name, value in distances(other, gold, retained).items()}
    return row | ({} if outcome is None else {"seconds": outcome.seconds, "memory": memory, "level": outcome.level})


def distances(model: gf.Trained, gold: gf.Trained, graph: gf.Graph) -> Row:
    """Fidelity on the test nodes, and distances of logits and weights (not of other shapes or encoders)."""
    ours, reference = model.logits(graph), gold.logits(graph)
    test = graph.test_mask
    same = (ours[test].argmax(dim=1) == reference[test].argmax(dim=1)).double().mean()
    row: Row = {"fidelity": 100 * float(same), "logits": float((ours - reference).norm(dim=1).mean())}
    if model.is_stacked or model.theta.shape != gold.theta.shape:
        return row
    apart, size = float((model.theta - gold.theta).norm()), float(gold.theta.norm())
    angle = torch.nn.functional.cosine_similarity(model.theta, gold.theta, dim=0)
    return row | {"weights": apart, "relative_weights": apart / size, "cosine": float(angle)}


def table(rows: Sequence[Row]) -> Table:
    lines: list[tuple[str | TableEntry, ...]] = []
    keys = {(str(row["data"]), str(row["workload"]), str(row["model"]), str(row["method"])) for row in rows}
    for key in sorted(keys, key=_order):
        data, workload, model, method = key
        selected = [row for row in rows if tuple(row[name] for name in KEY) == key]
        entries = [
            TableEntry(Spread.of(row.get(field) for row in selected), None, form) for field, form in COLUMNS.values()
        ]
        lines.append((TITLES[data], workload, TITLES.get(model, model), TITLES.get(method, method), *entries))
    return Table("The benchmark of ICLR 2026", (*KEY, *COLUMNS), tuple(lines), NOTES)


def _order(key: tuple[str, str, str, str]) -> tuple[int, int, str, bool, str]:
    data, workload, model, method = key
    return DATA.index(data), WORKLOADS.index(workload), model, method != NO_OP, method


EXPERIMENT = Experiment(
    NAME,
    "fidelity, distances, time and memory on skewed workloads",
    cells,
    table,
    alone=True,
    further=further,
    recipe=QUICK,
)
