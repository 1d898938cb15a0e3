"""Requests: what is refused, in which words, and that files say the same as Python."""

from __future__ import annotations

import copy
import csv
import dataclasses
import functools
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import any_values, graphs, requests

QUICK = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
HEADER = "kind,node,target,column\n"

Content = dict[str, list[Any]]  # the object of a request.json
Form = Callable[[Content, Path], gf.Request]


def by_python(content: Content, folder: Path) -> gf.Request:
    attributes = {entry["node"]: entry.get("columns", "all") for entry in content.get("attributes", ())}
    return gf.Request(content.get("nodes", ()), content.get("edges", ()), attributes, labels=content.get("labels", ()))


def by_json(content: Content, folder: Path) -> gf.Request:
    path = folder / "request.json"
    path.write_text(json.dumps(content))
    return gf.Request.from_file(path)


def by_csv(content: Content, folder: Path) -> gf.Request:
    path = folder / "request.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        write = csv.writer(file).writerow
        write(["kind", "node", "target", "column"])
        for node in content.get("nodes", ()):
            write(["node", node, "", ""])
        for source, target in content.get("edges", ()):
            write(["edge", source, target, ""])
        for node in content.get("labels", ()):
            write(["label", node, "", ""])
        for entry in content.get("attributes", ()):
            for column in entry.get("columns", [""]):
                write(["attribute", entry["node"], "", column])
    return gf.Request.from_file(path)


FORMS: dict[str, Form] = {"python": by_python, "json": by_json, "csv": by_csv}


def path_graph(**names: Any) -> gf.Graph:
    """0 - 1 - 2 - 3 - 4 - 5; node 5 is the only training node of class 2, and node 4 is a test node."""
    return gf.Graph.create(
        x=torch.arange(1.0, 19.0).reshape(6, 3),
        edges=torch.stack([torch.arange(5), torch.arange(1, 6)]),
        y=torch.tensor([0, 1, 0, 1, 2, 2]),
        test_mask=torch.tensor([False, False, False, False, True, False]),
        **names,
    )


@pytest.fixture
def numbered() -> gf.Graph:
    return path_graph()


@pytest.fixture
def named() -> gf.Graph:
    return path_graph(
        subject_ids=["ann", "bob", "cid", "dan", "eve", "fay"],
        column_names=["age", "height", "weight"],
        class_names=["well", "ill", "unclear"],
    )


def sentence(graph: gf.Graph, make: Callable[[], gf.Request]) -> str:
    """The one sentence by which what `make` asks for is refused; nothing may have changed."""
    before = [t.clone() for t in (graph.x, graph.edge_index, graph.y, graph.train_mask, graph.test_mask, graph.numbers)]
    digest = dataclasses.replace(graph).digest
    with pytest.raises(gf.InputError) as caught:
        graph.without(make())
    after = [graph.x, graph.edge_index, graph.y, graph.train_mask, graph.test_mask, graph.numbers]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert dataclasses.replace(graph).digest == digest
    message = str(caught.value)
    assert "\n" not in message
    assert not message.endswith(".")
    return message


# -- what a graph cannot forget, in all three forms ----------------------------------------------------------

BAD: dict[str, tuple[Content, str]] = {
    "unknown node": ({"nodes": [1, 99, 98]}, "node 99 is not in the graph"),
    "unknown number of a node just past the last": ({"nodes": [6]}, "node 6 is not in the graph"),
    "unknown name": ({"nodes": ["zoe"]}, "node 'zoe' is not in the graph"),
    "unknown end of an edge": ({"edges": [[0, 1], [2, 99], [98, 1]]}, "node 99 is not in the graph"),
    "unknown start of an edge": ({"edges": [[98, 1]]}, "node 98 is not in the graph"),
    "unknown node's attributes": ({"attributes": [{"node": 1}, {"node": 99}]}, "node 99 is not in the graph"),
    "edge that does not exist": ({"edges": [[0, 1], [0, 5], [0, 4]]}, "edge (<0>, <5>) is not in the graph"),
    "edge past the last one": ({"edges": [[5, 5]]}, "edge (<5>, <5>) is not in the graph"),
    "edge of a node to itself": ({"edges": [[0, 0]]}, "edge (<0>, <0>) is not in the graph"),
    "column out of range": (
        {"attributes": [{"node": 1, "columns": [0, 3, 4]}]},
        "column 3 is out of range, the graph has columns 0 to 2",
    ),
    "column of no name": (
        {"attributes": [{"node": 1, "columns": ["age"]}]},
        "column 'age' is not in the graph, whose columns have no names",
    ),
    "node twice": ({"nodes": [1, 2, 1]}, "node <1> appears twice in the request"),
    "edge twice": ({"edges": [[0, 1], [1, 2], [0, 1]]}, "edge (<0>, <1>) appears twice in the request"),
    "edge and its reverse": (
        {"edges": [[0, 1], [2, 1], [1, 2]]},
        "edge (<1>, <2>) appears twice in the request",
    ),
    "column twice": (
        {"attributes": [{"node": 1, "columns": [0, 2, 2]}]},
        "node <1>, column <2> appears twice in the request",
    ),
    "empty": ({}, "the request is empty: it names no node, edge, attribute, label, edge weight or graph"),
    "empty lists": (
        {"nodes": [], "edges": [], "attributes": []},
        "the request is empty: it names no node, edge, attribute, label, edge weight or graph",
    ),
    "one bad thing among good ones": (
        {"nodes": [0], "edges": [[1, 2]], "attributes": [{"node": 3}, {"node": 77, "columns": [1]}]},
        "node 77 is not in the graph",
    ),
}


def expected_message(message: str, form: str) -> str:
    """`<1>` is how the form at hand gives a name back: a CSV file holds text only."""
    return re.sub(r"<(\d+)>", r"'\1'" if form == "csv" else r"\1", message)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_told_in_one_sentence(case: str, form: str, numbered: gf.Graph, tmp_path: Path) -> None:
    content, message = BAD[case]
    assert sentence(numbered, lambda: FORMS[form](content, tmp_path)) == expected_message(message, form)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_node_twice_among_the_attributes(form: str, numbered: gf.Graph, tmp_path: Path) -> None:
    content = {"attributes": [{"node": 1}, {"node": 2}, {"node": 1}]}
    message = sentence(numbered, lambda: FORMS[form](content, tmp_path))
    assert message.endswith(expected_message("node <1> appears twice among the attributes", form))


@pytest.mark.parametrize("lines", ["attribute,1,,\nattribute,1,,0\n", "attribute,1,,0\nattribute,1,,\n"])
def test_all_and_single_attributes_of_one_node_in_csv(lines: str, numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.csv"
    path.write_text(HEADER + lines)
    message = sentence(numbered, lambda: gf.Request.from_csv(path))
    assert message == f"line 3 of {path}: node '1' appears twice among the attributes"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"nodes": ["bob", "zoe"]}, "node 'zoe' is not in the graph"),
        ({"nodes": ["Bob"]}, "node 'Bob' is not in the graph"),
        ({"nodes": ["1"]}, "node '1' is not in the graph"),
        ({"edges": [["ann", "bob"], ["ann", "cid"]]}, "edge ('ann', 'cid') is not in the graph"),
        ({"edges": [["ann", "bob"], ["bob", "ann"]]}, "edge ('bob', 'ann') appears twice in the request"),
        ({"attributes": [{"node": "ann", "columns": ["age", "size"]}]}, "column 'size' is not in the graph"),
    ],
)
def test_bad_requests_by_subject_id(form: str, content: Content, message: str, named: gf.Graph, tmp_path: Path) -> None:
    assert sentence(named, lambda: FORMS[form](content, tmp_path)) == message


@pytest.mark.parametrize("form", ["python", "json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"nodes": ["bob", 1]}, "node 1 appears twice in the request"),
        ({"nodes": [1, "bob"]}, "node 'bob' appears twice in the request"),
        ({"edges": [["ann", "bob"], [0, 1]]}, "edge (0, 1) appears twice in the request"),
        ({"edges": [["ann", "bob"], [1, "ann"]]}, "edge (1, 'ann') appears twice in the request"),
        (
            {"attributes": [{"node": 0, "columns": [1]}, {"node": "ann"}]},
            "attributes of node 'ann' appears twice in the request",
        ),
        (
            {"attributes": [{"node": 0, "columns": ["age", 0]}]},
            "node 0, column 0 appears twice in the request",
        ),
    ],
)
def test_two_names_of_one_thing_are_a_duplicate(
    form: str, content: Content, message: str, named: gf.Graph, tmp_path: Path
) -> None:
    assert sentence(named, lambda: FORMS[form](content, tmp_path)) == message


@pytest.mark.parametrize("nodes", [[5, "5"], ["5", 5]])
def test_a_number_and_its_digits_are_a_duplicate_where_subject_ids_are_digits(nodes: list[Any]) -> None:
    graph = path_graph(subject_ids=["5", "6", "7", "8", "9", "10"])
    assert sentence(graph, lambda: gf.Request(nodes)) == f"node {nodes[1]!r} appears twice in the request"
    assert sentence(graph, lambda: gf.Request([0])) == "node 0 is not in the graph"


def test_a_number_and_its_digits_are_a_duplicate_without_subject_ids(numbered: gf.Graph) -> None:
    assert sentence(numbered, lambda: gf.Request([1, "1"])) == "node '1' appears twice in the request"
    attributes: dict[int | str, Any] = {1: "all", "1": [0]}
    expected = "attributes of node '1' appears twice in the request"
    assert sentence(numbered, lambda: gf.Request(attributes=attributes)) == expected


def test_directed_edges_are_two_in_both_directions() -> None:
    graph = gf.Graph.create(
        x=torch.eye(3), edges=torch.tensor([[0, 1, 1], [1, 0, 2]]), y=torch.tensor([0, 1, 0]), directed=True
    )
    assert graph.without(gf.Request(edges=[(0, 1), (1, 0)])).num_edges == 1
    assert sentence(graph, lambda: gf.Request(edges=[(2, 1)])) == "edge (2, 1) is not in the graph"


def test_a_graph_without_edges_has_none_to_forget() -> None:
    graph = gf.Graph.create(x=torch.eye(3), edges=torch.zeros(2, 0), y=torch.tensor([0, 1, 0]))
    assert sentence(graph, lambda: gf.Request(edges=[(0, 1)])) == "edge (0, 1) is not in the graph"


# -- values that are no names --------------------------------------------------------------------------------

NO_NAMES: list[Any] = [float("nan"), float("inf"), True, False, 1.5, 1.0, -1, None, "", "  ", [1], {}]
PLACES: dict[str, Callable[[Any], Content]] = {
    "node": lambda bad: {"nodes": [0, bad]},
    "edge": lambda bad: {"edges": [[0, 1], [1, bad]]},
    "edge start": lambda bad: {"edges": [[bad, 1]]},
    "attribute": lambda bad: {"attributes": [{"node": bad}]},
    "column": lambda bad: {"attributes": [{"node": 0, "columns": [1, bad]}]},
}


NOT_HASHABLE: list[tuple[str, str, Any]] = [("python", "attribute", [1]), ("python", "attribute", {})]
NO_NAMES_ANYWHERE = [(form, place, bad) for form in ("python", "json") for place in PLACES for bad in NO_NAMES]


@pytest.mark.parametrize(("form", "place", "bad"), [case for case in NO_NAMES_ANYWHERE if case not in NOT_HASHABLE])
def test_values_that_are_no_names(form: str, place: str, bad: Any, numbered: gf.Graph, tmp_path: Path) -> None:
    message = sentence(numbered, lambda: FORMS[form](PLACES[place](bad), tmp_path))
    label = "column" if place == "column" else "node"
    if form == "json" and bad in NO_NAMES[:2]:  # no numbers of JSON
        assert message.endswith("is no finite number")
        return
    assert message == f"{label} {bad!r} is neither a whole number from 0 nor a name"


@pytest.mark.parametrize("place", ["node", "edge", "attribute"])
@pytest.mark.parametrize("bad", ["nan", "inf", "True", "1.5", "1.0", "-1", "None", "1e0", "\u0661"])
def test_text_in_csv_that_names_nobody(bad: str, place: str, numbered: gf.Graph, tmp_path: Path) -> None:
    message = sentence(numbered, lambda: by_csv(PLACES[place](bad), tmp_path))
    assert message == f"node {bad!r} is not in the graph"


@pytest.mark.parametrize(
    "bad",
    [np.float64(1.0), np.nan, np.True_, np.int64(-1), torch.tensor(1.0), torch.tensor(True), b"1", (1, 2)],
    ids=repr,
)
def test_values_of_python_that_are_no_names(bad: Any, numbered: gf.Graph) -> None:
    assert "is neither a whole number from 0 nor a name" in sentence(numbered, lambda: gf.Request([bad]))


@pytest.mark.parametrize("bad", ["17", b"17", 17, {"a": 1}, None, 1.5], ids=repr)
@pytest.mark.parametrize("field", ["nodes", "edges"])
def test_what_is_no_list(field: str, bad: Any, numbered: gf.Graph) -> None:
    assert sentence(numbered, lambda: gf.Request(**{field: bad})) == f"'{field}' is {bad!r}, a list is needed"
    assert sentence(numbered, lambda: gf.Request.from_dict({field: bad})) == f"'{field}' is {bad!r}, a list is needed"


@pytest.mark.parametrize("bad", [[3], "all", 3, {3}], ids=repr)
def test_attributes_that_are_no_mapping(bad: Any, numbered: gf.Graph) -> None:
    assert "attributes" in sentence(numbered, lambda: gf.Request(attributes=bad))


@pytest.mark.parametrize("bad", [5, None, "01", [0], [0, 1, 2], [], {"source": 0, "target": 1}, {0, 1}], ids=repr)
def test_edges_that_are_no_pairs(bad: Any, numbered: gf.Graph) -> None:
    message = sentence(numbered, lambda: gf.Request(edges=[(0, 1), bad]))
    assert message == f"edge {bad!r} is not a pair of nodes"


@pytest.mark.parametrize("bad", ["age", "0", 0, None, {"age": 1}, b"all", "ALL"], ids=repr)
def test_columns_that_are_no_list(bad: Any, numbered: gf.Graph) -> None:
    expected = f"'columns' is {bad!r}, a list is needed"
    assert sentence(numbered, lambda: gf.Request(attributes={1: bad})) == expected
    content = {"attributes": [{"node": 1, "columns": bad}]}
    assert sentence(numbered, lambda: gf.Request.from_dict(content)) == expected


def test_an_empty_list_of_columns_is_not_taken_for_all(numbered: gf.Graph) -> None:
    expected = "the columns of node 1 are an empty list, leave them out to mean all"
    assert sentence(numbered, lambda: gf.Request(attributes={1: []})) == expected
    content = {"attributes": [{"node": 1, "columns": []}]}
    assert sentence(numbered, lambda: gf.Request.from_dict(content)) == expected


@pytest.mark.parametrize(
    "content", [{"nodes": [1, 1]}, {"edges": [(0, 1), (0, 1)]}, {"attributes": {1: [0, 0]}}, {}], ids=repr
)
def test_what_no_graph_could_forget_is_refused_without_one(content: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match="appears twice in the request|the request is empty"):
        gf.Request(**content)


def test_two_keys_that_are_one_number_do_not_overwrite_each_other(numbered: gf.Graph) -> None:
    """0-dimensional tensors are told apart by identity, so a dictionary can hold two that mean node 1."""
    attributes: dict[Any, Any] = {torch.tensor(1): "all", torch.tensor(1): [0]}
    assert "appears twice" in sentence(numbered, lambda: gf.Request(attributes=attributes))


# -- files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_files_that_cannot_be_read(suffix: str, numbered: gf.Graph, tmp_path: Path) -> None:
    missing, folder, latin = (tmp_path / f"{name}{suffix}" for name in ("missing", "folder", "latin"))
    folder.mkdir()
    latin.write_bytes((HEADER + "node,zo\xe9,,\n").encode("latin-1"))
    for path in (missing, folder, latin):
        message = sentence(numbered, functools.partial(gf.Request.from_file, path))
        assert message.startswith(f"{path} cannot be read: ")


@pytest.mark.parametrize("name", ["request.txt", "request", "request.json.bak", "requestjson"])
def test_files_of_another_kind(name: str, numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text('{"nodes": [1]}')
    assert sentence(numbered, lambda: gf.Request.from_file(path)) == f"{path} is neither a .json nor a .csv file"


@pytest.mark.parametrize(
    "text", ["", "nodes", '{"nodes": [1}', '{"nodes": [1]} x', "{'nodes': [1]}", "\x00", "[" * 100_000]
)
def test_text_that_is_not_json(text: str, numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(text)
    assert sentence(numbered, lambda: gf.Request.from_json(path)).startswith(f"{path} is not JSON")


def test_a_number_of_too_many_digits(numbered: gf.Graph, tmp_path: Path) -> None:
    digits = "1" * 5000
    path = tmp_path / "request.json"
    path.write_text(f'{{"nodes": [{digits}]}}')
    assert sentence(numbered, lambda: gf.Request.from_json(path))
    path.write_text(f'{{"nodes": ["{digits}"]}}')
    assert sentence(numbered, lambda: gf.Request.from_json(path)).endswith("is not in the graph")
    assert sentence(numbered, lambda: by_csv({"attributes": [{"node": 1, "columns": [digits]}]}, tmp_path))


@pytest.mark.parametrize("content", [[], [1], "nodes", 3, None, True], ids=repr)
def test_json_that_is_no_object(content: Any, numbered: gf.Graph, tmp_path: Path) -> None:
    message = sentence(numbered, lambda: by_json(content, tmp_path))
    assert message == "a request is an object with 'nodes', 'edges', 'attributes', 'labels', 'edge_weights' or 'graphs'"


def test_unknown_fields_are_named_in_alphabetical_order(numbered: gf.Graph, tmp_path: Path) -> None:
    content: dict[str, Any] = {"zeta": 1, "node": [1], "Nodes": [1], "nodes": [1]}
    expected = "a request has no field 'Nodes', only 'nodes', 'edges', 'attributes', 'graphs', 'labels', 'edge_weights'"
    assert sentence(numbered, lambda: by_json(content, tmp_path)) == expected


@pytest.mark.parametrize("text", ['{"nodes": [0], "nodes": [1]}', '{"attributes": [{"node": 1, "node": 2}]}'])
def test_a_json_field_given_twice_is_refused(text: str, numbered: gf.Graph, tmp_path: Path) -> None:
    """Python's parser keeps the last one, and part of the request would silently not be forgotten."""
    path = tmp_path / "request.json"
    path.write_text(text)
    assert "node" in sentence(numbered, lambda: gf.Request.from_json(path))


@pytest.mark.parametrize("entry", [1, "ann", None, [1], {}, {"columns": [1]}, {"node": 1, "column": [1]}], ids=repr)
def test_attribute_entries_of_another_form(entry: Any, numbered: gf.Graph, tmp_path: Path) -> None:
    message = sentence(numbered, lambda: by_json({"nodes": [0], "attributes": [entry]}, tmp_path))
    assert message == f'{entry!r} is no attribute entry, {{"node": u, "columns": [..]}} is needed'


@pytest.mark.parametrize("attributes", [{"1": "all"}, "all", 3, None], ids=repr)
def test_attributes_in_json_are_a_list(attributes: Any, numbered: gf.Graph, tmp_path: Path) -> None:
    message = sentence(numbered, lambda: by_json({"attributes": attributes}, tmp_path))
    assert message == f"'attributes' is {attributes!r}, a list is needed"


@pytest.mark.parametrize("header", ["", "kind,node,target", "node,kind,target,column", "kind;node;target", "node,1,,"])
def test_csv_with_another_header(header: str, numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.csv"
    path.write_text(f"{header}\nnode,1,,\n" if header else "")
    message = sentence(numbered, lambda: gf.Request.from_csv(path))
    assert message == f"{path} starts with {header!r}, the header 'kind,node,target,column' is needed"


@pytest.mark.parametrize(
    "line",
    [
        *(
            "person,1,,",
            "Node,1,,",
            ",1,,",
            "node,,,",
            "node,1,2,",
            "node,1,,0",
            "node,1",
            "node,1,,,",
            "node",
        ),
        *(
            "edge,1,,",
            "edge,,1,",
            "edge,0,1,0",
            "edge,0,1",
            "attribute,,,",
            "attribute,,,0",
            "attribute,1,2,0",
            "1",
        ),
    ],
)
def test_csv_lines_of_another_form(line: str, numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.csv"
    path.write_text(f"{HEADER}node,0,,\n\n{line}\nnode,99,,\n")
    message = sentence(numbered, lambda: gf.Request.from_csv(path))
    assert message == f"line 4 of {path} is {line!r}, which is no node, edge, attribute, label, graph or weight"


@pytest.mark.parametrize(("separator", "name"), [(";", "';'"), ("\t", "a tab"), ("|", "'|'")])
@pytest.mark.parametrize("quote", ["", '"'])
def test_csv_with_another_separator(separator: str, name: str, quote: str, numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.csv"
    lines = (("kind", "node", "target", "column"), ("node", "1", "", ""))
    path.write_text("".join(separator.join(f"{quote}{cell}{quote}" for cell in line) + "\n" for line in lines))
    message = sentence(numbered, lambda: gf.Request.from_csv(path))
    assert message.startswith(f"the separator of {path} is {name}, a comma is needed: save it with commas")


def test_csv_of_a_cell_beyond_all_bounds(numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.csv"
    path.write_text(f"{HEADER}node,{'a' * 140_000},,\n")
    assert sentence(numbered, lambda: gf.Request.from_csv(path))


def test_csv_of_a_quote_that_never_closes_swallows_no_line(numbered: gf.Graph, tmp_path: Path) -> None:
    path = tmp_path / "request.csv"
    for line in ('node,"0,,', 'node,0,,"', 'attribute,0,,"', '"node,0,,'):
        path.write_text(f"{HEADER}{line}\nnode,1,,\n")
        assert sentence(numbered, lambda: gf.Request.from_csv(path))


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffkind,node,target,column\nnode,bob,,\n",
        "kind,node,target,column\r\nnode,bob,,\r\n",
        " kind , node,target ,column\n node , bob , , \n\n\n",
        'kind,node,target,column\n"node","bob","",""',
        "kind,node,target,column\n,,,\nnode,bob,,",
    ],
    ids=["byte order mark", "Windows", "spaces", "quotes", "blank lines"],
)
def test_csv_dialects(text: str, tmp_path: Path) -> None:
    path = tmp_path / "request.CSV"
    path.write_bytes(text.encode())
    assert gf.Request.from_file(path) == gf.Request(nodes=["bob"])


def test_json_dialects(tmp_path: Path) -> None:
    path = tmp_path / "request.JSON"
    path.write_bytes(b'\xef\xbb\xbf{"attributes": [{"node": "bob", "columns": "all"}]}\r\n')
    assert gf.Request.from_file(path) == gf.Request(attributes={"bob": "all"})


# -- round trips ---------------------------------------------------------------------------------------------

WORDS = st.text(alphabet='al 0,"é-', min_size=1, max_size=4).filter(lambda text: text == text.strip())
NAMES = st.one_of(st.integers(0, 10**20), WORDS)


@st.composite
def any_requests(draw: st.DrawFn, names: st.SearchStrategy[Any]) -> gf.Request:
    nodes = draw(st.lists(names, max_size=3, unique=True))
    edges = draw(st.lists(st.tuples(names, names), max_size=3, unique=True))
    columns = st.one_of(st.just("all"), st.lists(names, min_size=1, max_size=3, unique=True))
    attributes = draw(st.dictionaries(names, columns, max_size=3, min_size=0 if nodes or edges else 1))
    return gf.Request(nodes, edges, attributes)


@pytest.mark.slow
@QUICK
@given(request_=any_requests(NAMES))
def test_dict_and_json_round_trip(request_: gf.Request, tmp_path: Path) -> None:
    content = request_.to_dict()
    assert gf.Request.from_dict(content) == request_
    assert by_python(content, tmp_path) == request_
    assert by_json(content, tmp_path) == request_
    assert list(by_json(content, tmp_path).attributes) == list(request_.attributes)


@QUICK
@given(request_=any_requests(WORDS))
def test_csv_round_trip(request_: gf.Request, tmp_path: Path) -> None:
    assert by_csv(request_.to_dict(), tmp_path) == request_


@pytest.mark.slow
@QUICK
@given(data=st.data())
def test_all_three_forms_forget_the_same(data: st.DataObject, tmp_path: Path) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    after = graph.without(request)
    for form in FORMS.values():
        result = graph.without(form(request.to_dict(), tmp_path))
        assert result.digest == after.digest
        assert torch.equal(result.numbers, after.numbers)


def test_different_requests_are_not_equal() -> None:
    assert gf.Request([1]) == gf.Request((1,))
    assert gf.Request([1]) != gf.Request([2])
    assert gf.Request([1]) != gf.Request(attributes={1: "all"})
    assert gf.Request(attributes={1: "all"}) != gf.Request(attributes={1: ["all"]})


# -- what is accepted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, torch.tensor], ids=lambda kind: kind.__name__)
def test_whole_numbers_of_other_libraries(kind: Callable[[int], Any], numbered: gf.Graph) -> None:
    request = gf.Request([kind(0)], [(kind(1), kind(2))], {kind(3): [kind(0), kind(2)]})
    assert request == gf.Request([0], [(1, 2)], {3: [0, 2]})
    assert json.loads(json.dumps(request.to_dict())) == request.to_dict()
    assert all(type(node) is int for node in (*request.nodes, *request.edges[0], *request.attributes))
    assert numbered.without(request).digest == numbered.without(gf.Request([0], [(1, 2)], {3: [0, 2]})).digest


def test_arrays_tensors_and_generators(numbered: gf.Graph) -> None:
    expected = gf.Request([0, 2], [(0, 1), (1, 2)], {3: [0, 2]})
    assert gf.Request(np.array([0, 2]), np.array([[0, 1], [1, 2]]), {3: np.array([0, 2])}) == expected
    assert gf.Request(torch.tensor([0, 2]), torch.tensor([[0, 1], [1, 2]]), {3: (c for c in (0, 2))}) == expected
    pairs: Any = ([u, u + 1] for u in (0, 1))
    attributes: Any = {np.int64(3): (0, 2)}
    assert gf.Request((n for n in (0, 2)), pairs, attributes) == expected


def test_a_request_cannot_be_changed_from_outside() -> None:
    nodes: list[int | str] = [1, 2]
    attributes: dict[int | str, list[int | str]] = {3: [0]}
    request = gf.Request(nodes, attributes=attributes)
    nodes.append(4)
    attributes[5] = [1]
    attributes[3].append(2)
    assert request == gf.Request([1, 2], attributes={3: [0]})
    with pytest.raises(TypeError):
        request.attributes[5] = "all"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.nodes = ()  # type: ignore[misc]


def test_a_removed_node_may_also_be_named_by_its_edges_and_attributes(numbered: gf.Graph) -> None:
    request = gf.Request([0], [(0, 1)], {0: "all"})
    assert numbered.without(request).digest == numbered.without(gf.Request([0])).digest


def test_resolved_rows(named: gf.Graph) -> None:
    graph = named.without(gf.Request(nodes=["ann"]))
    resolved = gf.Request(["dan"], [("eve", 3)], {"bob": "all", 2: ["weight", 0]}).resolve(graph)
    assert resolved.node_rows.tolist() == [2]
    assert graph.numbers[resolved.edges].T.tolist() == [[4, 3], [3, 4]]
    assert resolved.full_rows.tolist() == [0]
    assert resolved.partial_rows.tolist() == [1, 1]
    assert resolved.partial_columns.tolist() == [2, 0]
    assert {t.dtype for t in (resolved.node_rows, resolved.full_rows, resolved.partial_rows)} == {torch.int64}


# -- the order of checks -------------------------------------------------------------------------------------


def test_the_first_offender_is_the_same_every_time(numbered: gf.Graph) -> None:
    """What no graph could have comes first; then nodes, attributes, edges; then what would be left."""
    all_training_nodes = [0, 1, 2, 3, 5]
    worse: list[tuple[gf.Request, str]] = [
        (gf.Request([98, 99], [(97, 0)], {96: [9]}), "node 98 is not in the graph"),
        (gf.Request(all_training_nodes, [(97, 0)], {0: [9], 96: "all"}), "node 96 is not in the graph"),
        (
            gf.Request(all_training_nodes, [(97, 0)], {0: [9], 1: [8]}),
            "column 9 is out of range, the graph has columns 0 to 2",
        ),
        (gf.Request(all_training_nodes, [(0, 5), (97, 0)], {0: [1]}), "node 97 is not in the graph"),
        (gf.Request(all_training_nodes, [(0, 1), (1, 0), (0, 5)]), "edge (0, 5) is not in the graph"),
        (gf.Request(all_training_nodes, [(0, 1), (1, 0)]), "edge (1, 0) appears twice in the request"),
    ]
    for request, message in worse:
        for _ in range(2):
            assert sentence(numbered, functools.partial(copy.copy, request)) == message
    with pytest.raises(gf.InputError, match=r"^node -1 is neither"):
        gf.Request([99, -1, -2], [(0, 0)])


# -- repr ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (gf.Request([17]), "Request(1 node)"),
        (gf.Request([17, "a"]), "Request(2 nodes)"),
        (gf.Request(edges=[(1, 2)]), "Request(1 edge)"),
        (gf.Request(attributes={1: "all"}), "Request(all attributes of 1 node)"),
        (gf.Request(attributes={1: "all", 2: "all"}), "Request(all attributes of 2 nodes)"),
        (gf.Request(attributes={1: [0]}), "Request(1 single attribute)"),
        (
            gf.Request([17], [(3, 9)], {42: "all", 43: [0, 5]}),
            "Request(1 node, 1 edge, all attributes of 1 node, 2 single attributes)",
        ),
    ],
)
def test_repr(request_: gf.Request, text: str) -> None:
    assert repr(request_) == text


def test_requests_can_be_compared_hashed_and_pickled() -> None:
    request = gf.Request([1], [(2, 3)], {4: "all", 5: [0]})
    same = gf.Request([1], [(2, 3)], {5: [0], 4: "all"})
    assert request == same == pickle.loads(pickle.dumps(request)) == copy.deepcopy(request)
    assert len({request, same}) == 1


def test_ids_with_line_breaks_in_a_csv_file_are_read_whole(tmp_path: Path) -> None:
    """Cut at the break, "1\n2" would become the id of somebody else."""
    graph = gf.Graph.create(
        x=torch.eye(4),
        edges=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 1, 0, 1]),
        subject_ids=["1\n2", "12", "a", "b"],
    )
    (tmp_path / "request.csv").write_text('kind,node,target,column\nnode,"1\n2",,\n')
    after = graph.without(gf.Request.from_file(tmp_path / "request.csv"))
    assert after.subject_ids == ("12", "a", "b")


@pytest.mark.parametrize("ids", [["1.0", "2.0", "3.0", "4.0"], ["+1", "+2", "+3", "+4"]])
def test_a_whole_number_never_means_a_row_where_ids_are_numbers(ids: list[str]) -> None:
    graph = gf.Graph.create(
        x=torch.eye(4), edges=torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 0, 1]), subject_ids=ids
    )
    with pytest.raises(gf.InputError, match="node 1 is not in the graph"):
        graph.without(gf.Request(nodes=[1]))


def test_some_training_node_has_to_remain(numbered: gf.Graph) -> None:
    trained = gf.train(numbered, "sgc")
    for nodes in ([0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 5]):
        for ask in (gf.plan, gf.unlearn):
            with pytest.raises(gf.InputError, match="^the request leaves no training node$"):
                ask(trained, numbered, gf.Request(nodes=nodes))


def test_a_class_may_lose_its_last_node_and_stays_a_class() -> None:
    """A refusal would tell which label the last one had; how many classes there are is a setting of the model."""
    graph = gf.Graph.create(
        x=torch.eye(4),
        edges=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 1, 0, 2]),
        test_mask=torch.tensor([False, False, False, True]),
        class_names=["x", "y", "rare"],
    )
    left = graph.without(gf.Request(nodes=[3]))
    assert (left.num_classes, left.class_names) == (3, ("x", "y", "rare"))
    trained = gf.train(graph, "sgc")
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[3]))
    assert outcome.level == "certified"
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph).checks
    assert gf.unlearn(trained, graph, gf.Request(nodes=[1])).level == "certified"


def test_a_broken_csv_header_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "request.csv").write_text('"kind,node,target,column\n')
    with pytest.raises(gf.InputError, match="is not CSV"):
        gf.Request.from_file(tmp_path / "request.csv")


def test_names_that_only_look_a_little_like_numbers_do_not_switch_numbers_off() -> None:
    graph = gf.Graph.create(
        x=torch.eye(4),
        edges=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 1, 0, 1]),
        subject_ids=["Ann", "Nan", "inf", "4e10"],
    )
    right: tuple[Any, ...] = (1, "Nan", np.int64(1))
    assert [graph.row(name) for name in right] == [1, 1, 1]
    for wrong in any_values(True, np.bool_(True), 1.0, np.float32(1)):
        with pytest.raises(gf.InputError, match="is not in the graph"):
            graph.row(wrong)
        with pytest.raises(gf.InputError, match="neither a whole number nor a name"):
            graph.column(wrong)
