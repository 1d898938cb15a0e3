"""Graph classification after a deletion: certified Weisfeiler-Lehman models against a GIN that is trained again.

    python benchmarks/graphs.py
    python benchmarks/graphs.py --data mutag --folds 2
    python benchmarks/graphs.py --seconds

The graphs of a dataset are divided into ten folds, alike in their classes. Of the nine that train, 10 % of the graphs
are forgotten; the score is the accuracy on the tenth. `wl` and `sign` have their default settings, `wl, chosen` has the
rounds and the mu that are best on a tenth of the retained training graphs. All three are scored as released, with their
noise (epsilon = 1, delta = 1e-5, 64 releases). `gin` is trained on the retained training graphs, but for a tenth of
them: of all epochs the one counts that is best on that tenth. Its size and its learning rate are those of Xu et al.
2019. Each run is a line of the output file and is not repeated when it is there already.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool

import graphforget as gf
from graphforget.models.graph_features import graph_rows
from graphforget.request.sampling import Drawing, draw_request
from results import Results, Row

DATA = ("mutag", "proteins", "imdb-binary", "nci1")
ROWS = ("gin", "wl", "wl, chosen", "sign")
SETTINGS: list[dict[str, Any]] = [
    {"rounds": rounds, "mu": mu} for rounds, mu in itertools.product((2, 4), (1e-3, 3e-4, 1e-4, 3e-5, 1e-5))
]
EPOCHS = {"mutag": 150, "proteins": 60, "imdb-binary": 60, "nci1": 100}
HIDDEN, LAYERS, BATCH, LEARNING_RATE = 32, 5, 128, 0.01
MOST_DEGREES = 64  # attributes of a GIN on graphs without any: the degree, up to this one


# -- folds -----------------------------------------------------------------------------------------------------------


def labels_of(graph: gf.Graph) -> Tensor:
    numbers, of_node = graph_rows(graph)
    y = torch.zeros(len(numbers), dtype=torch.int64)
    y[of_node] = graph.y
    return y


def with_test(graph: gf.Graph, fold: int) -> gf.Graph:
    """The collection with one of ten folds as its test graphs."""
    _, of_node = graph_rows(graph)
    y = labels_of(graph).numpy()
    _, test = list(StratifiedKFold(10, shuffle=True, random_state=0).split(y, y))[fold]
    mask = torch.zeros(len(y), dtype=torch.bool)
    mask[torch.from_numpy(test)] = True
    return dataclasses.replace(graph, train_mask=~mask[of_node], test_mask=mask[of_node])


# -- a GIN -----------------------------------------------------------------------------------------------------------


class GIN(nn.Module):
    """Five layers with BatchNorm, every layer pooled by sums and added to the output (Xu et al. 2019)."""

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        widths = [columns] + [HIDDEN] * LAYERS
        self.layers = nn.ModuleList(GINConv(_mlp(width)) for width in widths[:-1])
        self.heads = nn.ModuleList(nn.Linear(width, classes) for width in widths)

    def forward(self, x: Tensor, edge_index: Tensor, of_node: Tensor, graphs: int) -> Tensor:
        out: Tensor = self.heads[0](global_add_pool(x, of_node, graphs))
        for layer, head in zip(self.layers, self.heads[1:], strict=True):
            x = layer(x, edge_index).relu()
            pooled = head(global_add_pool(x, of_node, graphs))
            out = out + nn.functional.dropout(pooled, 0.5, training=self.training)
        return out


def _mlp(width: int) -> nn.Sequential:
    first, second = nn.Linear(width, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
    return nn.Sequential(first, nn.BatchNorm1d(HIDDEN), nn.ReLU(), second, nn.BatchNorm1d(HIDDEN))


def inputs_of(graph: gf.Graph) -> Tensor:
    """Node labels as columns; where there are none, the degree, as in the paper of the GIN."""
    if graph.column_names is None:
        degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).clamp(max=MOST_DEGREES)
        return nn.functional.one_hot(degrees, MOST_DEGREES + 1).float()
    labels = [place for place, name in enumerate(graph.column_names) if name.startswith("label")]
    return graph.x.to_dense()[:, labels].float()


class Batches:
    """Graphs of a collection, a few at a time, as one graph without edges between them."""

    def __init__(self, graph: gf.Graph) -> None:
        self.x, self.y = inputs_of(graph), labels_of(graph)
        _, self.of_node = graph_rows(graph)
        self.edges, self.of_edge = graph.edge_index, self.of_node[graph.edge_index[0]]

    def get(self, graphs: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        place = torch.full((len(self.y),), -1)
        place[graphs] = torch.arange(len(graphs))
        nodes, edges = place[self.of_node] >= 0, place[self.of_edge] >= 0
        row = nodes.cumsum(0) - 1
        return self.x[nodes], row[self.edges[:, edges]], place[self.of_node[nodes]], len(graphs)

    def accuracy(self, model: nn.Module, graphs: Tensor) -> float:
        model.eval()
        with torch.no_grad():
            right = model(*self.get(graphs)).argmax(dim=1) == self.y[graphs]
        return 100 * float(right.double().mean())


def gin_accuracy(graph: gf.Graph, name: str, *, seed: int) -> Row:
    """The accuracy on the test graphs after the epoch that is best on the validation graphs, the last one of equals."""
    held = graph.hold_out(seed=seed)
    data, (_, of_node) = Batches(graph), graph_rows(graph)
    train, val, test = (of_node[mask].unique() for mask in (held.train_mask, held.val_mask, held.test_mask))
    started = time.perf_counter()
    torch.manual_seed(seed)
    model = GIN(data.x.shape[1], graph.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 50, 0.5)
    best, row = -1.0, Row()
    for epoch in range(EPOCHS[name]):
        model.train()
        for batch in train[torch.randperm(len(train))].split(BATCH):
            if len(batch) > 1:  # BatchNorm needs two
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(*data.get(batch)), data.y[batch]).backward()
                optimiser.step()
        schedule.step()
        score = data.accuracy(model, val)
        if score >= best:
            best, row = score, {"gin": data.accuracy(model, test), "gin epochs": epoch + 1}
    return row | {"gin seconds": time.perf_counter() - started}


# -- certified models ------------------------------------------------------------------------------------------------


def chosen_settings(graph: gf.Graph, *, seed: int) -> dict[str, Any]:
    """The rounds and the mu with the best score on validation graphs."""
    held = graph.hold_out(seed=seed)
    scores = []
    for settings in SETTINGS:
        trained = gf.train(held, "wl", **settings)
        scores.append(trained.micro_f1(held, trained.items(held).val_mask))
    return SETTINGS[int(np.argmax(scores))]


def measured(name: str, fold: int) -> Row:
    graph = with_test(gf.load(name), fold)
    request = draw_request(graph, Drawing.parse("graph:10%"), seed=fold)
    retained = graph.without(request)
    chosen = chosen_settings(retained, seed=fold)
    row: Row = gin_accuracy(retained, name, seed=fold) | {"settings": chosen}
    models: dict[str, tuple[str, dict[str, Any]]] = {
        "wl": ("wl", {}),
        "wl, chosen": ("wl", chosen),
        "sign": ("sign", {}),
    }
    for label, (model, settings) in models.items():
        trained = gf.train(graph, model, **settings)
        outcome = gf.unlearn(trained, graph, request)
        assert (outcome.level, outcome.graph.digest) == ("certified", retained.digest)
        row[label] = 100 * outcome.released.micro_f1(outcome.graph)
        row[f"{label} seconds"] = {"training": trained.seconds, "forgetting": outcome.seconds}
    return row


class Clock:
    """Seconds since it was made, by the clock and of processor time, which a busy machine does not stretch."""

    def __init__(self) -> None:
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        wall, processor = time.perf_counter() - self.wall, time.process_time() - self.processor
        return f"{wall:.2f} s, processor time {processor:.2f} s"


def seconds() -> None:
    """The time to train on the ego networks of Deezer, and to forget one of them, everything counted."""
    graph = gf.load("deezer-egos")
    clock = Clock()
    trained = gf.train(graph)
    print(f"training: {clock}, score {100 * trained.utility(graph):.1f}")
    for seed in range(5):
        request = draw_request(graph, Drawing.parse("graph:1"), seed=seed)
        clock = Clock()
        outcome = gf.unlearn(trained, graph, request)
        print(f"forgetting a graph: {clock}, {outcome.level}")
        trained, graph = outcome.trained, outcome.graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seconds", action="store_true", help="only time the ego networks of Deezer")
    parser.add_argument("--out", type=Path, default=Path("runs/graphs.jsonl"))
    args = parser.parse_args()
    if args.seconds:
        seconds()
        return
    results = Results(args.out)
    for name in args.data:
        for fold in range(args.folds):
            results.get(functools.partial(measured, name, fold), data=name, fold=fold)
    print(f"\n| | {' | '.join(ROWS)} |\n|---|{'---|' * len(ROWS)}")
    for name in args.data:
        rows = [row for row in results.find(data=name) if row["fold"] < args.folds]
        means = (statistics.fmean(row[label] for row in rows) for label in ROWS)
        spread = [statistics.stdev(row[label] for row in rows) if len(rows) > 1 else 0.0 for label in ROWS]
        cells = (f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in zip(means, spread, strict=True))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
