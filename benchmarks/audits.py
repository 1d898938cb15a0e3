"""Audits on Cora: does each tell forgetting from pretending? A method, a planted no-op, a planted wrong deletion.

    python benchmarks/audits.py
    python benchmarks/audits.py --models gcn --jobs 2

One line of JSON for each audit, written as it comes, so that a run that was stopped goes on where it was. The no-op
hands the old weights out with the certificate that an honest deletion earned; the wrong deletion forgets other nodes.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from pathlib import Path

import graphforget as gf
from graphforget.audits.populations import ByMethod
from graphforget.privacy.noise import with_noise
from graphforget.request.sampling import Drawing, draw_request
from results import Results, Row

# A GCN has no noise of its own, and no bound of IDEA's holds that would size one: this much is asked for.
WAYS_TO_FORGET = {"sgc": ByMethod("newton"), "gcn": ByMethod("idea", {"sigma": 0.005})}


def no_op(trained: gf.Trained, graph: gf.Graph, request: gf.Request, noise_seed: int, method: ByMethod) -> gf.Outcome:
    """The old weights, with the certificate of an honest deletion."""
    honest = method(trained, graph, request, noise_seed)
    return pretended(honest, trained, noise_seed)


def wrong(trained: gf.Trained, graph: gf.Graph, request: gf.Request, noise_seed: int, method: ByMethod) -> gf.Outcome:
    """Forgets as many other nodes, and says it were the right ones."""
    honest = method(trained, graph, request, noise_seed)
    others = [graph.name_of(row) for row in graph.train_rows.tolist()]
    requested = set(request.nodes)
    instead = gf.Request(nodes=[name for name in others if name not in requested][: len(requested)])
    forgot = method(trained, graph, instead, noise_seed)
    return pretended(honest, forgot.trained, noise_seed)


def pretended(honest: gf.Outcome, model: gf.Trained, noise_seed: int) -> gf.Outcome:
    there = dataclasses.replace(model, graph_digest=honest.graph.digest)
    released = with_noise(model.theta, sigma=honest.certificate.sigma or 0.0, seed=noise_seed)
    return dataclasses.replace(honest, trained=there, released_theta=released)


WAYS = {"honest": None, "no-op": no_op, "wrong nodes": wrong}


def one(model: str, scenario: str, *, request: str, jobs: int, folder: Path) -> Row:
    graph = gf.load("cora")
    trained = gf.train(graph, model, recipe="paper")
    planted, forget = WAYS[scenario], WAYS_TO_FORGET[model]
    audit = gf.audit(
        trained,
        graph,
        draw_request(graph, Drawing.parse(request), seed=0),
        forget=forget if planted is None else functools.partial(planted, method=forget),
        jobs=jobs,
        folder=folder / f"{model}-{scenario}-{request.replace(':', '-')}".replace(" ", "-"),
        progress=lambda stage, done, total: print(f"{model} {scenario} {stage} {done}/{total}", flush=True),
    )
    return audit.to_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(WAYS_TO_FORGET), choices=list(WAYS_TO_FORGET))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--request", default="node:5%")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/audits.jsonl"))
    args = parser.parse_args()
    results = Results(args.out)
    for model in args.models:
        for scenario in args.ways:
            compute = functools.partial(
                one, model, scenario, request=args.request, jobs=args.jobs, folder=args.out.with_suffix("")
            )
            results.get(compute, model=model, way=scenario, request=args.request)
    summary(results.rows)


def summary(rows: list[Row]) -> None:
    """As Markdown: what each audit said, then every attack of the honest ones."""
    print("| model | deletion | verdict | per-example, kept | released | epsilon, at least | position | distance | s |")
    print("|---" * 9 + "|")
    for row in rows:
        private, released = row["per_example"]["method"], row["per_example_released"]["method"]
        cells = [row["model"], row["way"], row["verdict"], interval(private["auc"]), interval(released["auc"])]
        cells += [f"{released['epsilon']:.2f}", f"{row['position']['place']:.2f}"]
        print(f"| {' | '.join(cells)} | {row['distances']['method']['distance']:.2g} | {row['seconds']:.0f} |")
    for row in (row for row in rows if row["way"] == "honest"):
        print(f"\n{row['model']}\n\n| attack | before | nothing | retrained | method | gap of the method |")
        print("|---" * 6 + "|")
        for attack in dict.fromkeys(line["attack"] for line in row["rows"]):
            of = {line["model"]: line for line in row["rows"] if line["attack"] == attack}
            values = [f"{100 * of[name]['auc']['value']:.1f}" for name in ("before", "no_op", "retrained", "method")]
            print(f"| {attack} | {' | '.join(values)} | {interval(of['method']['gap'])} |")


def interval(estimate: dict[str, float]) -> str:
    value, low, high = (100 * estimate[name] for name in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
