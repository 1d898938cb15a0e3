"""The table of datasets: nodes, edges, attributes and classes, counted in the graphs themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphforget.experiments.bases import load_graph
from graphforget.experiments.cells import Cell, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.paper import published
from graphforget.experiments.settings import DATA, TITLES, shown
from graphforget.experiments.table import Spread, Table, TableEntry

NAME = "table-datasets"
COUNTED = ("nodes", "edges", "columns", "classes")

NOTES = (
    "The paper's numbers are in brackets. Edges are undirected and counted once, without duplicates and self-loops. "
    "The paper counts the edges of Cora with duplicates (5,429 instead of 5,278), and the edges of PubMed, CS and "
    "Physics in both directions. For its 4,723 edges of CiteSeer, we found no count that gives this number (4,732 "
    "with duplicates and self-loops).",
    "Non-zeros are the attributes that are not 0. Only these are stored.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    return [Cell({"data": data}, 0.5, counted) for data in ("patients", *DATA)]


def counted(*, store: Path, data: str) -> Row:
    graph = load_graph(data, 0)
    values = graph.x.values() if graph.x.is_sparse_csr else graph.x
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "columns": graph.num_columns,
        "classes": graph.num_classes,
        "non_zeros": int((values != 0).sum()),
        "train_nodes": int(graph.train_mask.sum()),
        "test_nodes": int(graph.test_mask.sum()),
    }


def table(rows: Sequence[Row]) -> Table:
    def entries(data: str) -> list[TableEntry]:
        selected = [row for row in rows if row["data"] == data]
        counts = [
            TableEntry(Spread.of(row[field] for row in selected), published(NAME, data, field), ",.0f", repeated=False)
            for field in COUNTED
        ]
        more = ("non_zeros", "train_nodes", "test_nodes")
        return counts + [
            TableEntry(Spread.of(row[field] for row in selected), form=",.0f", repeated=False) for field in more
        ]

    columns = ("dataset", "nodes", "edges", "attributes", "classes", "non-zeros", "training nodes", "test nodes")
    lines: tuple[tuple[str | TableEntry, ...], ...] = tuple((TITLES[data], *entries(data)) for data in shown(rows))
    return Table("Table 4: datasets", columns, lines, NOTES)


EXPERIMENT = Experiment(NAME, "sizes of the datasets", cells, table)
