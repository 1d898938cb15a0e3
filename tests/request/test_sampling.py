"""Requests drawn at random."""

from __future__ import annotations

import pytest

import graphforget as gf
from cases import COLUMNS, random_graph
from graphforget.request.kinds import Kind
from graphforget.request.sampling import Drawing, draw_request


@pytest.mark.parametrize(
    ("text", "kind", "share", "count"),
    [
        ("node:5%", "nodes", 0.05, None),
        ("edge:10", "edges", None, 10),
        (" attribute:0.5% ", "attributes", 0.005, None),
        ("partial:1", "partial attributes", None, 1),
    ],
)
def test_what_is_to_be_drawn_is_read(text: str, kind: Kind, share: float | None, count: int | None) -> None:
    assert Drawing.parse(text) == Drawing(kind, share=share, count=count)


@pytest.mark.parametrize(
    "text",
    [
        "node",
        "node:",
        "node:5%%",
        "node:-1",
        "person:5%",
        "node:5.5",
        "node:1e-3%",
        "",
        "edge:5 %",
        "node:\u0663",
        "node:\u0665%",
        "node:\u00b2",
    ],
)
def test_what_cannot_be_read_is_refused_with_examples(text: str) -> None:
    with pytest.raises(gf.InputError, match=r"is neither a file nor of the form node:5%, edge:10, attribute:5%"):
        Drawing.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node:0%", "a share of 0% cannot be drawn"),
        ("node:100%", "a share of 100% cannot be drawn"),
        ("edge:0", "0 cannot be drawn, at least 1"),
    ],
)
def test_no_part_and_everything_cannot_be_drawn(text: str, message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        Drawing.parse(text)


def test_a_drawing_says_how_much() -> None:
    with pytest.raises(gf.InputError, match="either a share or a number"):
        Drawing("nodes")
    with pytest.raises(gf.InputError, match="either a share or a number"):
        Drawing("nodes", share=0.1, count=1)
    with pytest.raises(gf.InputError, match="no kind of request 'node'"):
        Drawing("node", share=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["nodes", "edges", "attributes", "partial attributes"])
def test_what_is_drawn_is_in_the_graph_by_seed_and_of_the_asked_size(kind: Kind, directed: bool) -> None:
    graph = random_graph(5, nodes=60, edges=120, directed=directed)
    graph = graph.without(gf.Request(nodes=[7, 8]))  # rows and numbers part
    sample = Drawing(kind, share=0.2)
    first, again, other = (draw_request(graph, sample, seed=seed) for seed in (0, 0, 1))
    assert first.to_dict() == again.to_dict() != other.to_dict()
    assert first.kinds == (kind,)
    result = first.resolve(graph)
    source, target = graph.edge_index
    if kind == "edges":
        once = graph.edge_index.shape[1] if directed else int((source < target).sum())
        assert len(first.edges) == int(0.2 * once)
        assert result.edges.shape[1] == len(first.edges) * (1 if directed else 2)
        return
    m = graph.train_rows.numel()
    rows = result.node_rows if kind == "nodes" else result.full_rows
    if kind == "partial attributes":
        rows = result.partial_rows.unique()
        assert result.partial_columns.numel() == rows.numel() * (COLUMNS // 2)
    assert rows.numel() == int(0.2 * m)
    assert graph.train_mask[rows].all()


def test_more_than_there_is_cannot_be_drawn() -> None:
    graph = random_graph(5)
    with pytest.raises(gf.InputError, match=r"^1000 are to be drawn and there are only \d+$"):
        draw_request(graph, Drawing("nodes", count=1000), seed=0)


def test_names_are_used_where_there_are_any() -> None:
    graph = gf.load("patients")
    request = draw_request(graph, Drawing("partial attributes", count=2), seed=0)
    assert all(str(name).startswith("patient-") for name in request.attributes)
    assert all(isinstance(column, str) for columns in request.attributes.values() for column in columns)
    request.resolve(graph)
    assert all(
        str(end).startswith("patient-")
        for edge in draw_request(graph, Drawing("edges", count=3), seed=0).edges
        for end in edge
    )
