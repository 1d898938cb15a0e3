"""Link prediction with a certificate against a GCN with dot products without one, after 5 % of the edges are deleted.

    python benchmarks/links.py
    python benchmarks/links.py --data cora citeseer --seeds 1
    python benchmarks/links.py --data cora citeseer --audit
    python benchmarks/links.py --data cora citeseer --validate '{"messages": [0.5, 0.8], "negatives": [1, 2, 4]}'

For each dataset and seed, 10 % of the edges test, 5 % validate, and 5 % of the others are deleted. `link-sign` and
`link-sgc` are scored as released, with their noise (epsilon = 1, delta = 1e-5, for 64 releases), on the retained graph.
`gcn` is a two-layer GCN encoder with a dot product as its decoder, trained on the retained graph without any
guarantee; the number of its epochs is chosen on the validation edges of this graph. Test links and test negatives are
the same for all. All settings of the certified models are defaults, which were chosen on validation edges
(`--validate`, with noise and nothing deleted; docs/links.md). Each run is a line of the output file and is not repeated
when it is there already.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import graphforget as gf
from graphforget.audits.link_audit import audit_deleted_links, audit_link_canaries
from graphforget.graph.links import SUPERVISED, edge_sides
from graphforget.linalg.sparse import as_matrix, scale_rows_to_unit
from graphforget.models.link import LinkFixed
from graphforget.models.link_view import LinkView
from graphforget.models.propagation import normalised_adjacency
from graphforget.privacy.noise import with_noise
from graphforget.training.scores import scores
from results import Results, Row

DATA = ("cora", "citeseer", "pubmed", "facebook-large")
MODELS = ("sgc", "sign")
ROWS = ("gcn", *(f"link-{name}" for name in MODELS))
HIDDEN, OUT, LEARNING_RATE, EPOCHS, EVERY, PATIENCE = 128, 64, 0.01, 300, 5, 60


def measured(data: str, seed: int, share: float) -> Row:
    graph = gf.load(data, seed=seed)
    row: Row = {}
    for name in MODELS:
        started = time.perf_counter()
        trained = gf.train(graph, name, task="link", seed=seed)
        row[f"link-{name} training seconds"] = time.perf_counter() - started
        assert isinstance(trained.module, LinkFixed)
        view = trained.module.view
        request = some_training_edges(graph, view, share=share, seed=seed)
        started = time.perf_counter()
        outcome = gf.unlearn(trained, graph, request)
        row[f"link-{name} seconds"] = time.perf_counter() - started
        row |= {f"link-{name} {score}": 100 * value for score, value in outcome.released.scores(outcome.graph).items()}
        row[f"link-{name} level"] = outcome.level
    started = time.perf_counter()
    found = gcn_scores(outcome.graph, view, seed=seed)
    row |= {f"gcn {score}": value for score, value in found.items()}
    row["gcn training seconds"] = time.perf_counter() - started
    return row


def validated(data: str, seed: int, options: dict[str, Any]) -> Row:
    """The AUC on validation links with the noise of a release, mean of ten draws."""
    graph = gf.load(data, seed=seed)
    trained = gf.train(graph, "sign", task="link", seed=seed, **options)
    draws = [trained.with_weights(with_noise(trained.theta, sigma=trained.recipe.sigma, seed=i)) for i in range(10)]
    mask = trained.items(graph).val_mask
    return {"validation auc": statistics.fmean(100 * model.scores(graph, mask)["auc"] for model in draws)}


def print_validation(results: Results, args: argparse.Namespace) -> None:
    """A line for each combination of the options, a column for each dataset: means over the seeds."""
    grid: dict[str, list[Any]] = json.loads(args.validate)
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    print(f"\n| | {' | '.join(args.data)} |\n|---|{'---|' * len(args.data)}")
    for options in combinations:
        means = []
        for data in args.data:
            keys: list[Row] = [{"data": data, "seed": seed, "options": options} for seed in range(args.seeds)]
            rows = [results.get(functools.partial(validated, **key), **key) for key in keys]
            means.append(statistics.fmean(row["validation auc"] for row in rows))
        print(f"| {json.dumps(options)} | {' | '.join(f'{mean:.2f}' for mean in means)} |", flush=True)


def audited(data: str, seed: int, share: float) -> Row:
    """Deleted edges and canaries against other unlinked pairs: areas under the ROC curve, and positions."""
    graph = gf.load(data, seed=seed)
    trained = gf.train(graph, "sign", task="link", seed=seed)
    assert isinstance(trained.module, LinkFixed)
    request = some_training_edges(graph, trained.module.view, share=share, seed=seed)
    outcome = gf.unlearn(trained, graph, request, noise_seed=seed)
    audits = {
        "deleted": audit_deleted_links(trained, graph, request, outcome, seed=seed),
        "canaries": audit_link_canaries(trained, graph, count=100, seed=seed),
    }
    return {f"{kind} {name}": value for kind, found in audits.items() for name, value in vars(found).items()}


def print_audits(results: Results, args: argparse.Namespace) -> None:
    names = ("before", "released", "retrained", "position", "error")
    print(f"\n| | | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    for data in args.data:
        keys: list[Row] = [{"data": data, "seed": seed, "share": args.share} for seed in range(args.seeds)]
        rows = [results.get(functools.partial(audited, **key), **key) for key in keys]
        for kind in ("deleted", "canaries"):
            means = [statistics.fmean(row[f"{kind} {name}"] for row in rows) for name in names]
            print(f"| {data} | {kind} | {' | '.join(f'{mean:.4f}' for mean in means)} |", flush=True)


def some_training_edges(graph: gf.Graph, view: LinkView, *, share: float, seed: int) -> gf.Request:
    pairs, sides = edge_sides(graph, view.settings)
    pairs = graph.numbers[pairs[sides <= SUPERVISED]]
    chosen = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))[: round(share * len(pairs))]
    return gf.Request(edges=[(u, v) for u, v in pairs[chosen].tolist()])


def gcn_scores(graph: gf.Graph, view: LinkView, *, seed: int) -> dict[str, float]:
    """The test scores of the epoch that has the best AUC on validation links."""
    torch.manual_seed(seed)
    x = as_matrix(scale_rows_to_unit(graph.x.float()))
    edges = view.edges(graph, held_out=True)
    both = torch.cat([edges, edges.flip(1)]).T
    s = normalised_adjacency(both, graph.num_nodes, dtype=torch.float32).symmetric()
    shapes = ((graph.num_columns, HIDDEN), (HIDDEN, OUT))
    first, second = (torch.nn.init.xavier_uniform_(torch.empty(shape)).requires_grad_() for shape in shapes)
    optimiser = torch.optim.Adam([first, second], lr=LEARNING_RATE)
    items, rows = view.items(graph), view.pairs(graph).rows
    target = torch.cat([torch.ones(len(edges)), torch.zeros(len(edges))])
    best, chosen = {"auc": 0.0}, 0
    for epoch in range(1, EPOCHS + 1):
        optimiser.zero_grad()
        z = s @ ((s @ (x @ first)).relu() @ second)
        pairs = torch.cat([edges, torch.randint(graph.num_nodes, edges.shape)])
        functional.binary_cross_entropy_with_logits(products(z, pairs), target).backward()
        optimiser.step()
        if epoch % EVERY:
            continue
        with torch.no_grad():
            logits = products(s @ ((s @ (x @ first)).relu() @ second), rows)
        validation = scores("links", logits[items.val_mask], items.y[items.val_mask])
        if validation["auc"] > best["auc"]:
            best, chosen, at_best = validation, epoch, logits
        if epoch >= chosen + PATIENCE:
            break
    test = scores("links", at_best[items.test_mask], items.y[items.test_mask])
    return {score: 100 * value for score, value in test.items()} | {"epochs": chosen}


def products(z: Tensor, pairs: Tensor) -> Tensor:
    return (z[pairs[:, 0]] * z[pairs[:, 1]]).sum(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.05, help="Share of the training edges to delete.")
    parser.add_argument("--validate", help="Options of link-sign and the values of each to try, as JSON.")
    parser.add_argument("--audit", action="store_true", help="Ask whether deleted edges and canaries can be detected.")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    kind = "_validation" if args.validate else "_audit" if args.audit else ""
    results = Results(args.out or Path(f"runs/links{kind}.jsonl"))
    if args.validate or args.audit:
        (print_validation if args.validate else print_audits)(results, args)
        return
    for data in args.data:
        for seed in range(args.seeds):
            run = functools.partial(measured, data, seed, args.share)
            results.get(run, data=data, seed=seed, share=args.share)
    for score, title in (("auc", "AUC"), ("average_precision", "average precision")):
        print(f"\n| {title} | {' | '.join(ROWS)} |\n|---|{'---|' * len(ROWS)}")
        for data in args.data:
            rows = [row for row in results.find(data=data, share=args.share) if row["seed"] < args.seeds]
            means = (statistics.fmean(row[f"{label} {score}"] for row in rows) for label in ROWS)
            print(f"| {data} | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    main()
