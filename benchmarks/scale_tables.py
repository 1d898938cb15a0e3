"""The tables of docs/scale.md from the lines that benchmarks/scale.py printed: what was measured, and what follows.

    python benchmarks/scale.py FOLDER ... > lines.jsonl
    python benchmarks/scale_tables.py lines.jsonl

The second table computes larger graphs. Bytes of a row come from `row_bytes`, times the ratio of measured to computed
bytes on one rank. Seconds of a pass are those of the request for attributes on one rank, for each training row and
parameter. The bandwidth is assumed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2**30
BUDGET = 48 * GIB  # of a rank with 64 GiB
BANDWIDTH = 10e9 / 8  # bytes a second that a rank sends: assumed
COLUMNS_AT_ONCE = 8  # of boundary rows, in float64
REQUESTS = {"node": "one node", "edge": "one edge", "attributes": "attributes of one node"}


@dataclass(frozen=True)
class Large:
    """A graph to compute for."""

    name: str
    nodes: float
    edges: float
    columns: int
    classes: int
    training: float

    @property
    def parameters(self) -> int:
        return (self.columns + 1) * self.classes


PAPERS = Large("papers100M", 111e6, 1.6e9, 128, 172, 1.2e6)
TEN_TIMES = Large("ten times that", 1.11e9, 16e9, 128, 172, 12e6)


def row_bytes(graph: Large) -> float:
    """Of a row of its own that a rank holds while it trains `sgc` with two hops.

    `H_1` with its bound and its defect, the attributes in float32, lists of neighbours twice while it propagates, the
    features of training rows with their bounds, hashes and salts.
    """
    degree = 2 * graph.edges / graph.nodes
    features = 8 * (graph.columns + 2) * (1 + graph.training / graph.nodes)
    return features + 4 * graph.columns + 2 * 4 * degree + 64 + 24


def boundary_bytes() -> int:
    """Of a boundary row: a block of its columns, and about as much for the rows that are sent."""
    return 2 * 8 * COLUMNS_AT_ONCE


def ranks_needed(graph: Large, ratio: float, share: float) -> int | None:
    """How many ranks of 64 GiB hold the graph if so large a share of all other nodes is on a rank's boundary."""
    for number in range(1, 4096):
        boundary = share * graph.nodes * (1 - 1 / number)
        if graph.nodes / number * row_bytes(graph) * ratio + boundary * boundary_bytes() <= BUDGET:
            return number
    return None


def sent(counters: Iterable[dict[str, Any]], *purposes: str) -> int:
    """Bytes that all ranks have sent for these purposes."""
    return sum(rank["sent"].get(purpose, 0) for rank in counters for purpose in purposes)


def size(count: float) -> str:
    """Bytes in words."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count / 1e3:.0f} KB"


def print_table(head: list[str], rows: list[list[str]]) -> None:
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |")


def measured_rows(runs: list[dict[str, Any]]) -> list[list[str]]:
    """What was measured, a column for each number of ranks."""

    def of_all(label: str, cell: Any) -> list[str]:
        return [label, *(cell(run) for run in runs)]

    def memory(name: str) -> Any:
        return lambda run: f"{max(rank['memory'] for rank in run[name]['counters']) / GIB:.2f} GiB"

    def traffic(name: str, *purposes: str) -> Any:
        return lambda run: size(sent(run[name]["counters"], *purposes))

    def product(run: dict[str, Any]) -> str:
        """Of one product. Rank 0 sends a vector for it, and the point of each step once more; the others send sums."""
        details = run["node"]["details"]
        vectors, *sums = (rank["sent"].get("product", 0) for rank in run["node"]["counters"])
        sent_by_others = sum(sums) / max(details["products"], 1)
        return size(vectors / max(details["products"] + details["steps"], 1) + sent_by_others)

    rows = [
        of_all("training: largest memory of a rank", memory("train")),
        of_all(
            "training: seconds, of these the fit",
            lambda run: f"{run['train']['seconds']:.0f}, {run['train']['fit']:.0f}",
        ),
        of_all("training: sent for the propagation, all ranks", traffic("train", "propagation")),
        of_all("training: sent for gradients and products", traffic("train", "gradient", "product")),
    ]
    for name, words in REQUESTS.items():
        words = f"{words} ({runs[0][name]['footprint']['affected']:,} training nodes reached)"
        rows += [
            of_all(f"{words}: largest memory", memory(name)),
            of_all(
                f"{words}: seconds, of these the request",
                lambda run, name=name: f"{run[name]['seconds']:.0f}, {run[name]['request']:.1f}",
            ),
            of_all(f"{words}: sent for it, all ranks", traffic(name, "request")),
            of_all(f"{words}: sent for gradients and products", traffic(name, "gradient", "product")),
            of_all(f"{words}: sent for the score of the release", traffic(name, "score")),
        ]
    rows += [of_all("`verify`: seconds", lambda run: f"{run['verify']:.0f}")]
    return [*rows, of_all("one product: sent by all ranks", product)]


def computed_rows(graph: Large, ratio: float, second: float, share: float) -> list[str]:
    """The column of a larger graph."""
    number = ranks_needed(graph, ratio, share)
    if number is None:
        return [f"{share:g}", "-", "none", f"{graph.parameters:,}", "-", "-", "-", "-"]
    boundary = share * graph.nodes * (1 - 1 / number)
    moved = number * boundary * 8 * (graph.columns + 1) * 2  # two hops
    product = 16 * graph.parameters * (number - 1)
    passing = second * graph.training / number * graph.parameters
    return [
        f"{share:g}",
        f"{row_bytes(graph) * ratio:,.0f}",
        str(number),
        f"{graph.parameters:,}",
        size(product),
        size(moved),
        f"{moved / number / BANDWIDTH:,.0f}",
        f"{passing:.2g}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path)
    parsed = [json.loads(line) for line in parser.parse_args().lines.read_text().splitlines()]
    about = next(line for line in parsed if "idle" in line)
    runs = sorted((line for line in parsed if "train" in line), key=lambda run: run["ranks"])
    print_table(["", *(f"{run['ranks']} rank{'s' * (run['ranks'] > 1)}" for run in runs)], measured_rows(runs))
    given, idle = about["graph"], about["idle"]
    graph = Large(
        "measured", given["nodes"], given["edges"], given["columns"], given["classes"], given["train"] * given["nodes"]
    )
    one = runs[0]
    assert one["ranks"] == 1
    used = {run["ranks"]: max(rank["memory"] for rank in run["train"]["counters"]) - idle for run in runs}
    ratio = used[1] / (graph.nodes * row_bytes(graph))
    details = one["attributes"]["details"]
    passes = details["products"] + 2 * details["steps"] + 2
    second = one["attributes"]["request"] / passes / (graph.training * graph.parameters)
    print(
        f"\nAn idle rank has {idle / GIB:.2f} GiB. A row takes {ratio:.2f} times the {row_bytes(graph):,.0f} bytes of"
    )
    print(f"the formula. A pass takes {second:.2g} seconds for each training row and parameter.")
    for number, boundary in ((run["ranks"], max(run["boundary"])) for run in runs[1:]):
        expected = graph.nodes / number * row_bytes(graph) * ratio + boundary * boundary_bytes()
        print(
            f"{number} ranks: {used[number] / GIB:.2f} GiB over an idle rank, the formula gives {expected / GIB:.2f};"
        )
        print(f"{used[number] / used[1]:.2f} of one rank without what is idle, {boundary:,} boundary rows at most.")
    print()
    shares = [(PAPERS, 1.0), (PAPERS, 0.25), (TEN_TIMES, 1.0), (TEN_TIMES, 0.25)]
    columns = [computed_rows(one, ratio, second, share) for one, share in shares]
    labels = [
        "share of all other nodes on a rank's boundary",
        "bytes of a row, with the measured ratio",
        "ranks of 64 GiB, filled to 48",
        "parameters p",
        "bytes of a product, all ranks",
        "bytes of a propagation, all ranks",
        "seconds to send it at 10 Gbit/s a rank",
        "seconds of a product on a core a rank",
    ]
    rows = [[label, *(column[place] for column in columns)] for place, label in enumerate(labels)]
    print_table(["", *(one.name for one, _ in shares)], rows)
    assert math.isfinite(ratio)


if __name__ == "__main__":
    main()
