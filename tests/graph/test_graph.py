"""The graph: what a deletion leaves, what the digest sees, who a name means, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

import graphforget as gf
from cases import CLASSES, COLUMNS, MODELS, graphs, make, present, random_graph, reach_of, requests
from graphforget.graph.digest import digest_of_format_2
from graphforget.graph.targets import UNLABELLED
from graphforget.models.inputs import model_inputs

QUICK = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FIELDS = ("edge_index", "y", "train_mask", "val_mask", "test_mask", "numbers")

Plain = dict[str, Any]  # {"nodes": {number: what is known of it}, "edges": {(source number, target number)}}


@st.composite
def dressed_graphs(draw: st.DrawFn) -> gf.Graph:
    """One of `cases.graphs` with subject ids, names and validation nodes."""
    graph = draw(graphs())
    val = graph.test_mask & torch.from_numpy(np.arange(graph.num_nodes) % 2 == 0)
    return gf.Graph.create(
        x=graph.x,
        edges=graph.edge_index,
        y=graph.y,
        train_mask=graph.train_mask,
        val_mask=val,
        test_mask=graph.test_mask & ~val,
        directed=graph.directed,
        num_classes=CLASSES,
        subject_ids=[f"person-{7 * row % graph.num_nodes}-{row}" for row in range(graph.num_nodes)],
        column_names=["age", "height", "weight", "pulse"],
        class_names=["well", "ill", "unclear"],
    )


def plain(graph: gf.Graph) -> Plain:
    """The graph as dictionaries by node number, which knows nothing of rows."""
    numbers = graph.numbers.tolist()
    subjects: Any = graph.subject_ids or [None] * graph.num_nodes
    columns = [graph.x.to_dense().tolist(), graph.y.tolist(), graph.train_mask.tolist()]
    columns += [graph.val_mask.tolist(), graph.test_mask.tolist(), subjects]
    edges = [(numbers[u], numbers[v]) for u, v in graph.edge_index.T.tolist()]
    assert len(set(numbers)) == graph.num_nodes
    assert len(set(edges)) == len(edges)
    return {"nodes": dict(zip(numbers, zip(*columns, strict=True), strict=True)), "edges": set(edges)}


def plain_without(graph: gf.Graph, request: gf.Request) -> Plain:
    """The oracle: docs/maths.md, section 1 read literally, for a request that names nodes and columns by number."""
    before = plain(graph)
    removed = set(request.edges)
    if not graph.directed:
        removed |= {(v, u) for u, v in request.edges}
    edges = {(u, v) for u, v in before["edges"] - removed if u not in request.nodes and v not in request.nodes}
    nodes = {}
    for number, (values, *rest) in before["nodes"].items():
        if number in request.nodes:
            continue
        named = request.attributes.get(number, ())
        blank = range(COLUMNS) if named == "all" else named
        rest = [-1, False, False, False, rest[-1]] if number in request.labels else rest
        nodes[number] = ([0.0 if c in blank else value for c, value in enumerate(values)], *rest)
    return {"nodes": nodes, "edges": edges}


def fresh_digest(graph: gf.Graph) -> str:
    """The digest computed anew: the property itself is cached."""
    return dataclasses.replace(graph).digest


def tensors(graph: gf.Graph) -> dict[str, Tensor]:
    parts = {"x": graph.x}
    if graph.x.layout == torch.sparse_csr:
        parts = {"crow": graph.x.crow_indices(), "columns": graph.x.col_indices(), "values": graph.x.values()}
    return {name: part.clone() for name, part in (parts | {f: getattr(graph, f) for f in FIELDS}).items()}


def assert_same_tensors(result: gf.Graph, expected: dict[str, Tensor]) -> None:
    now = tensors(result)
    assert now.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(now[name], tensor), name
        assert now[name].dtype == tensor.dtype, name


def assert_canonical(graph: gf.Graph) -> None:
    """What every other room relies on."""
    keys = graph.edge_index[1] * graph.num_nodes + graph.edge_index[0]
    assert (keys.diff() > 0).all()
    assert (graph.numbers.diff() > 0).all()
    if not graph.directed:
        assert {(v, u) for u, v in graph.edge_index.T.tolist()} == set(map(tuple, graph.edge_index.T.tolist()))
    if graph.x.layout == torch.sparse_csr:
        x = graph.x
        torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), x.values(), x.shape, check_invariants=True)
        assert (x.values() != 0).all()


# -- without -------------------------------------------------------------------------------------------------


@QUICK
@given(data=st.data())
def test_without_against_the_plain_oracle(data: st.DataObject) -> None:
    graph = data.draw(st.one_of(graphs(), dressed_graphs()))
    request = data.draw(requests(graph))
    after = graph.without(request)
    assert plain(after) == plain_without(graph, request)
    assert_canonical(after)
    assert after.x.layout == graph.x.layout
    assert after.x.dtype == graph.x.dtype
    fields = ("num_classes", "directed", "column_names", "class_names", "name", "digit_ids")
    assert all(getattr(after, name) == getattr(graph, name) for name in fields)


@QUICK
@given(data=st.data())
def test_without_leaves_its_input_untouched(data: st.DataObject) -> None:
    graph = data.draw(dressed_graphs())
    request = data.draw(requests(graph))
    before, digest, subjects = tensors(graph), fresh_digest(graph), graph.subject_ids
    after = graph.without(request)
    after.edge_index.fill_(0)
    (after.x.values() if after.x.layout == torch.sparse_csr else after.x).fill_(9.0)
    assert_same_tensors(graph, before)
    assert graph.subject_ids == subjects
    assert fresh_digest(graph) == digest


@QUICK
@given(data=st.data())
def test_requests_in_a_row_equal_one_joint_request(data: st.DataObject) -> None:
    """Numbers survive: the second request means the same nodes although the first has moved every row."""
    graph = data.draw(dressed_graphs())
    joint = data.draw(requests(graph))
    coin = st.booleans()
    nodes = {node: data.draw(coin) for node in joint.nodes}
    early = {node for node, first in nodes.items() if first}
    edges = {edge: bool(early & set(edge)) or data.draw(coin) for edge in joint.edges}
    attributes = {node: node in early or data.draw(coin) for node in joint.attributes}
    labels = {node: node in early or data.draw(coin) for node in joint.labels}
    parts: list[tuple[Any, ...]] = [
        (
            [node for node in nodes if nodes[node] is first],
            [edge for edge in edges if edges[edge] is first],
            {node: joint.attributes[node] for node in attributes if attributes[node] is first},
            (),
            [node for node in labels if labels[node] is first],
        )
        for first in (True, False)
    ]
    assume(all(any(part) for part in parts))
    step_by_step = graph.without(gf.Request(*parts[0])).without(gf.Request(*parts[1]))
    at_once = graph.without(joint)
    assert plain(step_by_step) == plain(at_once)
    assert_same_tensors(step_by_step, tensors(at_once))
    assert step_by_step.digest == at_once.digest


def test_forgetting_a_value_twice_is_allowed_and_changes_nothing_more() -> None:
    graph = random_graph(3)
    once = graph.without(gf.Request(attributes={4: "all"}))
    assert once.without(gf.Request(attributes={4: [0, 1]})).digest == once.digest


def test_a_removed_edge_cannot_be_removed_again_in_either_direction() -> None:
    graph = random_graph(3)
    u, v = graph.edge_index[:, 0].tolist()
    after = graph.without(gf.Request(edges=[(u, v)]))
    assert after.num_edges == graph.num_edges - 1
    for edge in ((u, v), (v, u)):
        with pytest.raises(gf.InputError, match="is not in the graph"):
            after.without(gf.Request(edges=[edge]))


def test_one_direction_of_a_directed_pair_goes_alone() -> None:
    graph = gf.Graph.create(
        x=torch.eye(3), edges=torch.tensor([[0, 1, 1], [1, 0, 2]]), y=torch.tensor([0, 1, 0]), directed=True
    )
    after = graph.without(gf.Request(edges=[(0, 1)]))
    assert after.edge_index.T.tolist() == [[1, 0], [1, 2]]


def test_an_undirected_self_loop_is_one_edge() -> None:
    graph = gf.Graph.create(x=torch.eye(3), edges=torch.tensor([[1, 0], [1, 1]]), y=torch.tensor([0, 1, 0]))
    assert graph.num_edges == 2
    after = graph.without(gf.Request(edges=[(1, 1)]))
    assert after.edge_index.T.tolist() == [[1, 0], [0, 1]]


@QUICK
@given(data=st.data())
def test_rows_whose_attributes_really_change(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    blanked = graph.without(gf.Request(attributes=request.attributes)) if request.attributes else graph
    expected = (graph.x.to_dense() != blanked.x.to_dense()).any(dim=1).nonzero().flatten()
    assert graph.changed_attribute_rows(request.resolve(graph)).tolist() == expected.tolist()


# -- the digest ----------------------------------------------------------------------------------------------


def made(**changes: Any) -> gf.Graph:
    """A small graph with everything in it, apart from `changes`."""
    content: dict[str, Any] = {
        "x": torch.tensor([[0.0, 1.5], [2.0, 0.0], [0.0, 0.0], [0.25, -1.0], [3.0, 4.0]], dtype=torch.float64),
        "edges": torch.tensor([[0, 1, 2, 4], [1, 2, 3, 0]]),
        "y": torch.tensor([0, 1, 1, 0, UNLABELLED]),
        "train_mask": torch.tensor([True, True, False, False, False]),
        "val_mask": torch.tensor([False, False, True, False, False]),
        "test_mask": torch.tensor([False, False, False, True, False]),
        "subject_ids": ["eve", "bob", "ann", "dan", "cid"],
        "column_names": ["age", "height"],
        "class_names": ["well", "ill"],
    }
    return gf.Graph.create(**(content | changes))


def changed(name: str, place: Any, value: Any) -> dict[str, Any]:
    tensor = (made().x if name == "x" else getattr(made(), name)).clone()
    tensor[place] = value
    return {name: tensor}


CHANGES: dict[str, dict[str, Any]] = {
    "one attribute": changed("x", (0, 1), 1.5 + 1e-15),
    "an attribute that was 0": changed("x", (2, 0), 1e-300),
    "an attribute forgotten": changed("x", (3, 0), 0.0),
    "two attributes exchanged": changed("x", 0, torch.tensor([1.5, 0.0], dtype=torch.float64)),
    "one more edge": {"edges": torch.tensor([[0, 1, 2, 4, 4], [1, 2, 3, 0, 1]])},
    "one edge less": {"edges": torch.tensor([[0, 1, 2], [1, 2, 3]])},
    "another edge": {"edges": torch.tensor([[0, 1, 2, 4], [1, 2, 3, 1]])},
    "no edges": {"edges": torch.zeros(2, 0, dtype=torch.int64)},
    "a self-loop": {"edges": torch.tensor([[0, 1, 2, 4, 3], [1, 2, 3, 0, 3]])},
    "directed": {"directed": True},
    "directed, the same stored edges": {
        "edges": torch.tensor([[0, 1, 2, 4, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 4]]),
        "directed": True,
    },
    "a label": changed("y", 2, 0),
    "a label of a node outside the split": changed("y", 4, 1),
    "one training node less": changed("train_mask", 1, False),
    "one validation node less": changed("val_mask", 2, False),
    "one test node less": changed("test_mask", 3, False),
    "a test node validates": changed("val_mask", 3, True) | changed("test_mask", 3, False),
    "a subject id": {"subject_ids": ["eve", "bob", "ann", "dan", "cyd"]},
    "two subject ids exchanged": {"subject_ids": ["bob", "eve", "ann", "dan", "cid"]},
    "no subject ids": {"subject_ids": None},
    "a column name": {"column_names": ["age", "weight"]},
    "column names exchanged": {"column_names": ["height", "age"]},
    "no column names": {"column_names": None},
    "a class name": {"class_names": ["well", "unwell"]},
    "one class more": {"class_names": ["well", "ill", "unclear"]},
    "no class names": {"class_names": None},
    "one class more without names": {"class_names": None, "num_classes": 3},
    "one column more": {"x": torch.cat([made().x, torch.zeros(5, 1)], dim=1), "column_names": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_changes_with_each_single_thing(change: str) -> None:
    others = {name: made(**changes).digest for name, changes in CHANGES.items() if name != change}
    digest = made(**CHANGES[change]).digest
    assert digest != made().digest
    assert digest not in others.values()


def test_the_digest_is_a_sha256_and_the_same_every_time() -> None:
    assert made().digest == made().digest
    assert len(bytes.fromhex(made().digest)) == 32


@pytest.mark.slow
@QUICK
@given(order=st.permutations(range(5)))
def test_with_subject_ids_the_digest_sees_numbers_and_not_the_order_of_nodes(order: list[int]) -> None:
    """A number decides whom a later request means, so it is under the digest; records of one's own do not know it."""
    graph = made()
    new_row = torch.tensor(order).argsort()
    shuffled = made(
        edges=new_row[graph.edge_index],
        subject_ids=[present(graph.subject_ids)[row] for row in order],
        **{f: getattr(graph, f)[order] for f in ("x", "y", "train_mask", "val_mask", "test_mask")},
    )
    assert (shuffled.digest == graph.digest) == (order == sorted(order))
    assert shuffled.numbered_as(graph).digest == graph.digest
    assert digest_of_format_2(shuffled) == digest_of_format_2(graph)


def test_numbers_of_another_graph_are_taken_for_its_subjects_alone() -> None:
    graph = made()
    left = graph.without(gf.Request(nodes=[2]))
    assert left.numbers.tolist() == [0, 1, 3, 4]
    with pytest.raises(gf.InputError, match="is not in the other graph"):
        graph.numbered_as(left)
    bare = made(subject_ids=None)
    assert bare.numbered_as(left) is bare


def test_whether_ids_are_numbers_is_under_the_digest() -> None:
    graph = made(subject_ids=["a", "b", "c", "d", "e"])
    assert dataclasses.replace(graph, digit_ids=True).digest != graph.digest


def test_without_subject_ids_a_nodes_number_is_its_name() -> None:
    graph = made(subject_ids=None)
    assert made(subject_ids=None, numbers=torch.tensor([0, 1, 2, 3, 5])).digest != graph.digest
    assert made(numbers=torch.tensor([0, 1, 2, 3, 5])).digest != made().digest
    lone = torch.zeros(2, 0, dtype=torch.int64)
    first, last = (made(subject_ids=None, edges=lone).without(gf.Request(nodes=[node])) for node in (2, 4))
    assert first.digest != last.digest


@pytest.mark.parametrize(
    "edges",
    [
        [[4, 2, 1, 0], [0, 3, 2, 1]],
        [[1, 2, 3, 0], [0, 1, 2, 4]],
        [[0, 1, 2, 4, 0, 4, 1], [1, 2, 3, 0, 1, 0, 0]],
    ],
    ids=["another order", "the other direction", "duplicates and reverses"],
)
def test_the_digest_does_not_see_how_edges_are_listed(edges: list[list[int]]) -> None:
    assert made(edges=torch.tensor(edges)).digest == made().digest


def test_a_directed_graph_keeps_directions_and_drops_duplicates() -> None:
    graph = made(directed=True)
    assert graph.num_edges == 4
    assert made(directed=True, edges=torch.tensor([[4, 0, 1, 2, 0], [0, 1, 2, 3, 1]])).digest == graph.digest
    assert made(directed=True, edges=torch.tensor([[1, 2, 3, 0], [0, 1, 2, 4]])).digest != graph.digest


def explicit_zeros(x: Tensor) -> Tensor:
    """Every entry stored, zeros too."""
    crow = torch.arange(0, x.numel() + 1, x.shape[1])
    columns = torch.arange(x.shape[1]).repeat(x.shape[0])
    return torch.sparse_csr_tensor(crow, columns, x.flatten(), tuple(x.shape), check_invariants=True)


@pytest.mark.parametrize(
    "layout",
    [
        Tensor.to_sparse_csr,
        Tensor.to_sparse_coo,
        Tensor.to_sparse_csc,
        explicit_zeros,
        lambda x: sp.csr_matrix(x.numpy()),
        lambda x: sp.coo_matrix(x.numpy()),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: torch.where(x == 0, -0.0, x),
        lambda x: x.T.contiguous().T,
        lambda x: x.clone().requires_grad_(),
    ],
    ids=[
        *("csr", "coo", "csc", "explicit zeros", "scipy csr", "scipy coo"),
        *("lists", "numpy", "negative zeros", "transposed", "with gradient"),
    ],
)
def test_the_digest_does_not_see_the_layout(layout: Callable[[Tensor], Any]) -> None:
    graph = made(x=layout(made().x))
    assert graph.digest == made().digest
    assert dataclasses.replace(made(), x=explicit_zeros(made().x)).digest == made().digest
    assert graph.x.layout in (torch.strided, torch.sparse_csr)
    assert not graph.x.requires_grad
    assert_canonical(graph)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_digest_does_not_see_the_precision_of_equal_values(dtype: torch.dtype, sparse: bool) -> None:
    x = made().x.to(dtype)
    assert made(x=x.to_sparse_csr() if sparse else x).digest == made().digest


@pytest.mark.slow
@QUICK
@given(data=st.data())
def test_digest_of_without_is_that_of_a_graph_that_never_held_it(data: st.DataObject) -> None:
    graph = data.draw(dressed_graphs())
    request = data.draw(requests(graph))
    left = plain_without(graph, request)
    numbers = data.draw(st.permutations(sorted(left["nodes"])))
    values, y, train, val, test, subjects = zip(*(left["nodes"][number] for number in numbers), strict=True)
    x = torch.tensor(values, dtype=torch.float64)
    rebuilt = gf.Graph.create(
        x=x.to_sparse_csr() if data.draw(st.booleans()) else x,
        edges=torch.tensor([[numbers.index(end[side]) for end in left["edges"]] for side in (0, 1)]),
        y=torch.tensor(y),
        train_mask=torch.tensor(train),
        val_mask=torch.tensor(val),
        test_mask=torch.tensor(test),
        directed=graph.directed,
        subject_ids=subjects,
        column_names=graph.column_names,
        class_names=graph.class_names,
        num_classes=graph.num_classes,
    )
    retained = graph.without(request)
    assert rebuilt.numbered_as(retained).digest == retained.digest


# -- PyG -----------------------------------------------------------------------------------------------------


@QUICK
@given(data=st.data())
def test_pyg_round_trip_before_and_after_a_deletion(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    if data.draw(st.booleans()):
        graph = graph.without(data.draw(requests(graph)))
    back = gf.Graph.from_pyg(graph.to_pyg(), directed=graph.directed)
    assert_same_tensors(back, tensors(graph))
    assert back.digest == graph.digest
    assert back.num_classes == graph.num_classes
    assert [back.row(number) for number in graph.numbers.tolist()] == list(range(graph.num_nodes))


def test_numbers_survive_pyg() -> None:
    graph = random_graph(1, nodes=10).without(gf.Request(nodes=[4, 7]))
    data = graph.to_pyg()
    assert data.node_numbers.tolist() == [0, 1, 2, 3, 5, 6, 8, 9]
    back = gf.Graph.from_pyg(data)
    assert back.row(8) == 6
    with pytest.raises(gf.InputError, match="node 7 is not in the graph"):
        back.row(7)


def test_to_pyg_shares_no_memory_with_the_graph() -> None:
    for sparse in (False, True):
        graph = random_graph(1, sparse=sparse)
        before, data = tensors(graph), graph.to_pyg()
        (data.x.values() if sparse else data.x).fill_(9.0)
        for name in ("edge_index", "y", "train_mask", "val_mask", "test_mask", "node_numbers"):
            data[name].fill_(0)
        assert_same_tensors(graph, before)


@pytest.mark.parametrize(
    ("edges", "directed"),
    [([[0, 1], [1, 0]], False), ([[0, 1], [1, 2]], True), ([[], []], False), ([[1], [1]], False)],
)
def test_direction_is_found_unless_it_is_said(edges: list[list[int]], directed: bool) -> None:
    data = Data(x=torch.eye(3), edge_index=torch.tensor(edges, dtype=torch.int64), y=torch.tensor([0, 1, 0]))
    assert gf.Graph.from_pyg(data).directed is directed
    assert gf.Graph.from_pyg(data, directed=not directed).directed is not directed


def test_labels_in_a_column_and_masks_of_pyg() -> None:
    masks = {"train_mask": torch.tensor([True, False, True]), "test_mask": torch.tensor([False, True, False])}
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([[0], [1], [1]]), **masks)
    graph = gf.Graph.from_pyg(data, name="own")
    assert graph.y.tolist() == [0, 1, 1]
    assert graph.train_rows.tolist() == [0, 2]
    assert graph.test_mask.tolist() == [False, True, False]
    assert graph.name == "own"


def test_attributes_of_edges_are_refused() -> None:
    data = random_graph(0).to_pyg()
    data.edge_attr = torch.ones(data.edge_index.shape[1], 1)
    with pytest.raises(gf.InputError, match="put the column that is the weight into 'edge_weight'"):
        gf.Graph.from_pyg(data)


@pytest.mark.parametrize("field", ["x", "edge_index", "y"])
def test_missing_fields_are_named(field: str) -> None:
    data = random_graph(0).to_pyg()
    data[field] = None
    with pytest.raises(gf.InputError, match=f"^the PyG data has no '{field}', which a Graph needs$"):
        gf.Graph.from_pyg(data)


def test_bad_content_of_pyg_is_refused_as_in_create() -> None:
    for field, value in (("x", torch.ones(3)), ("x", torch.tensor(1.0)), ("edge_index", torch.ones(3, 2))):
        data = random_graph(0).to_pyg()
        data[field] = value
        with pytest.raises(gf.InputError):
            gf.Graph.from_pyg(data)


# -- what create refuses -------------------------------------------------------------------------------------


def masks(train: list[int], val: list[int], test: list[int]) -> dict[str, Tensor]:
    return {
        f"{name}_mask": torch.isin(torch.arange(5), torch.tensor(rows, dtype=torch.int64))
        for name, rows in (("train", train), ("val", val), ("test", test))
    }


BAD: list[tuple[dict[str, Any], str]] = [
    (changed("x", (3, 1), float("nan")), "the attributes hold NaN or infinity"),
    (changed("x", (3, 1), float("-inf")), "the attributes hold NaN or infinity"),
    ({"x": changed("x", (3, 1), float("nan"))["x"].to_sparse_csr()}, "the attributes hold NaN or infinity"),
    ({"x": sp.csr_matrix([[1.0, np.inf]] * 5)}, "the attributes hold NaN or infinity"),
    ({"x": torch.ones(5)}, "the attributes have shape (5,)"),
    ({"x": torch.ones(5, 2, 1)}, "the attributes have shape (5, 2, 1)"),
    ({"x": torch.ones(0, 2)}, "the attributes have shape (0, 2)"),
    ({"x": torch.ones(5, 0)}, "the attributes have shape (5, 0)"),
    ({"x": torch.ones(5, 2, dtype=torch.complex64)}, "attributes"),
    ({"y": torch.tensor([0, 1, 1, 0])}, "there are 4 labels for 5 nodes"),
    ({"y": torch.tensor([0, 1, 1, 0, 0.5]), "targets": "classes"}, "the labels are not whole numbers"),
    ({"y": torch.tensor([0, 1, 1, 0, float("nan")]), "targets": "classes"}, "the labels are not whole numbers"),
    ({"y": torch.tensor([0, 1, 1, 0, -2])}, "label -2 is negative"),
    (
        {"y": torch.tensor([0, 1, 1, 0, 2]), "num_classes": 2, "class_names": None},
        "label 2 is out of range for 2 classes",
    ),
    ({"y": torch.zeros(5, dtype=torch.int64), "class_names": None}, "the labels name 1 class(es)"),
    ({"num_classes": 1, "class_names": None}, "the labels name 1 class(es)"),
    ({"num_classes": 0, "class_names": None}, "the labels name 0 class(es)"),
    ({"train_mask": torch.tensor([1, 1, 0, 0, 0])}, "train_mask is torch.int64"),
    ({"val_mask": torch.zeros(4, dtype=torch.bool)}, "val_mask is torch.bool of shape (4,)"),
    ({"test_mask": torch.zeros(5, 2, dtype=torch.bool)}, "test_mask is torch.bool of shape (5, 2)"),
    (masks([], [2], [3]), "the graph has no training node"),
    (masks([0, 1, 2], [2], [3]), "a node is in two parts of the split"),
    (masks([0, 1, 3], [2], [3]), "a node is in two parts of the split"),
    (masks([0, 1], [2, 3], [3]), "a node is in two parts of the split"),
    (masks([0, 1, 4], [2], [3]), "node 4 is in the split but has no label"),
    (masks([0, 1], [2], [3, 4]), "node 4 is in the split but has no label"),
    (masks([0, 1], [2, 4], [3]), "node 4 is in the split but has no label"),
    ({"subject_ids": ["eve", "bob", "ann", "bob", "ann"]}, "'bob' appears twice among the subject ids"),
    ({"subject_ids": ["eve", "bob"]}, "there are 2 subject ids for 5"),
    ({"subject_ids": ["eve", "bob", "ann", "", "cid"]}, "subject id"),
    ({"column_names": ["age", "age"]}, "'age' appears twice among the column names"),
    ({"column_names": ["age"]}, "there are 1 column names for 2"),
    ({"column_names": ["age", " "]}, "column name"),
    ({"class_names": ["ill", "ill"]}, "'ill' appears twice among the class names"),
    ({"class_names": ["ill"], "num_classes": 2}, "there are 1 class names for 2"),
    ({"numbers": torch.tensor([0, 1, 2, 3])}, "the node numbers must be"),
    ({"numbers": torch.tensor([0, 1, 2, 3, 3])}, "the node numbers must be"),
    ({"numbers": torch.tensor([0, 2, 1, 3, 4])}, "the node numbers must be"),
    ({"numbers": torch.tensor([-1, 0, 1, 2, 3])}, "the node numbers must be"),
    ({"numbers": torch.arange(5.0)}, "the node numbers must be"),
    ({"edges": torch.tensor([[0, 5], [1, 2]])}, "an edge names node 5, the graph has nodes 0 to 4"),
    ({"edges": torch.tensor([[0, 1], [1, -1]])}, "an edge names node -1, the graph has nodes 0 to 4"),
    ({"edges": torch.tensor([[0, 1], [1, 2], [2, 3]])}, "the edges are torch.int64 of shape (3, 2)"),
    ({"edges": torch.tensor([0, 1])}, "the edges are torch.int64 of shape (2,)"),
    ({"edges": torch.tensor([[0.0], [1.0]])}, "the edges are torch.float32"),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=[said for _, said in BAD])
def test_what_create_refuses(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(gf.InputError) as caught:
        made(**changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_create_copies_its_input() -> None:
    given_ = {
        "x": made().x.clone(),
        "edges": torch.tensor([[0, 1, 2, 4], [1, 2, 3, 0]]),
        **{f: getattr(made(), f).clone() for f in ("y", "train_mask", "val_mask", "test_mask", "numbers")},
    }
    for x in (given_["x"], given_["x"].to_sparse_csr()):
        graph = made(**(given_ | {"x": x}))
        for tensor in (*given_.values(), x.values() if x.layout == torch.sparse_csr else x):
            before = tensor.clone()
            tensor.fill_(1)
            assert fresh_digest(graph) == made().digest
            tensor.copy_(before)


def test_every_labelled_node_trains_by_default() -> None:
    graph = made(train_mask=None, val_mask=None, test_mask=None)
    assert graph.train_rows.tolist() == [0, 1, 2, 3]
    assert not (graph.val_mask | graph.test_mask).any()
    assert made(train_mask=None).train_rows.tolist() == [0, 1]


def test_repr_counts_as_people_do() -> None:
    assert (
        repr(made(name="club")) == "Graph('club': 5 nodes, 4 undirected edges, 2 columns, 2 classes, 2 train / 1 test)"
    )
    assert "4 directed edges" in repr(made(directed=True))


# -- names ---------------------------------------------------------------------------------------------------

ALL_TRAIN = {"train_mask": None, "val_mask": None, "test_mask": None}


def refused(graph: gf.Graph, *names: Any) -> bool:
    for name in names:
        with pytest.raises(gf.InputError, match="is not in the graph"):
            graph.row(name)
    return True


def test_numbers_name_nodes_for_ever() -> None:
    graph = made(subject_ids=None, **ALL_TRAIN)
    assert [graph.row(node) for node in (0, 4, "0", "4", "04")] == [0, 4, 0, 4, 4]
    assert refused(graph, 5, -1, "5", "-1", "eve", "", "1.0", "\u0663", " 1")
    after = graph.without(gf.Request(nodes=[1, 3]))
    assert [after.row(node) for node in (0, 2, "2", 4)] == [0, 1, 1, 2]
    assert refused(after, 1, 3, "1", "3")


def test_subject_ids_name_nodes_and_so_do_numbers() -> None:
    graph = made(**ALL_TRAIN)
    assert [graph.row(node) for node in ("eve", "cid", 0, 4)] == [0, 4, 0, 4]
    assert refused(graph, "Eve", "eve ", "0", "4", 5)
    after = graph.without(gf.Request(nodes=["bob", 3]))
    assert [after.row(node) for node in ("eve", "ann", 2, "cid", 4)] == [0, 1, 1, 2, 2]
    assert refused(after, "bob", "dan", 1, 3)
    assert after.subject_ids == ("eve", "ann", "cid")


def test_a_whole_number_means_the_subject_with_these_digits_and_never_another() -> None:
    graph = made(subject_ids=["5", "4", "3", "1", "x"], **ALL_TRAIN)
    assert [graph.row(node) for node in (5, "5", 4, 3, 1, "1", "x")] == [0, 0, 1, 2, 3, 3, 4]
    assert refused(graph, 0, 2, "0", "05", "2")
    after = graph.without(gf.Request(nodes=[4]))
    assert after.subject_ids == ("5", "3", "1", "x")
    assert refused(after, 4, "4", 0, 2)
    assert [after.row(node) for node in (5, 3, 1)] == [0, 1, 2]


def test_a_number_means_nobody_else_after_the_last_subject_of_digits_has_gone() -> None:
    graph = made(subject_ids=["eve", "2", "ann", "dan", "cid"], **ALL_TRAIN)
    assert graph.row(2) == 1
    after = graph.without(gf.Request(nodes=[2]))
    assert after.subject_ids == ("eve", "ann", "dan", "cid")
    assert refused(after, 2, "2", 0)
    for request in (gf.Request(nodes=[2]), gf.Request(attributes={2: "all"}), gf.Request(edges=[("ann", 3)])):
        with pytest.raises(gf.InputError, match="is not in the graph"):
            after.without(request)
    assert refused(after.split(seed=1), 2)
    assert refused(after.hold_out(seed=1, share=0.3), 2)


def test_columns_are_named_by_the_same_rules() -> None:
    unnamed, named, digits = (made(column_names=names) for names in (None, ["age", "height"], ["1", "x"]))
    assert [unnamed.column(c) for c in (0, 1, "1")] == [0, 1, 1]
    assert [named.column(c) for c in (0, 1, "age", "height")] == [0, 1, 0, 1]
    assert [digits.column(c) for c in (1, "1", "x")] == [0, 0, 1]
    for graph, column in ((unnamed, 2), (unnamed, "2"), (unnamed, "age"), (unnamed, -1)):
        with pytest.raises(gf.InputError, match=f"^column '?{column}'? is "):
            graph.column(column)
    for graph, column in ((named, 2), (named, "1"), (named, "Age"), (digits, 0), (digits, "0"), (digits, 2)):
        with pytest.raises(gf.InputError, match=f"^column '?{column}'? is "):
            graph.column(column)


# -- the neighbourhood ---------------------------------------------------------------------------------------


def logits(module: nn.Module, graph: gf.Graph) -> Tensor:
    with torch.no_grad():
        return module(*model_inputs(module, graph, dtype=torch.float64))


@functools.cache
def hops(name: str) -> int:
    result = reach_of(name).hops
    assert result is not None
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_neighbourhood_decides_the_logits(name: str, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    rows = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=3, unique=True)))
    module = make(name, seed=data.draw(st.integers(0, 99)))
    part, inside = graph.neighbourhood(rows, hops=hops(name))
    full = logits(module, graph)
    close = 1e-12 * max(1.0, float(full.abs().max()))
    torch.testing.assert_close(logits(module, part)[inside], full[rows], rtol=0, atol=close)
    for field in ("y", "train_mask", "val_mask", "test_mask", "numbers"):
        assert torch.equal(getattr(part, field)[inside], getattr(graph, field)[rows])
    assert_canonical(part)


@pytest.mark.parametrize(
    ("hops", "nodes", "edges"),
    [
        (0, [3, 4, 5], {(3, 4), (4, 3), (4, 5), (5, 4)}),
        (1, [2, 3, 4, 5, 6], {(2, 3), (3, 2), (3, 4), (4, 3), (4, 5), (5, 4), (5, 6), (6, 5)}),
    ],
)
def test_the_neighbourhood_holds_no_more_than_is_needed(
    hops: int, nodes: list[int], edges: set[tuple[int, int]]
) -> None:
    ends = torch.stack([torch.arange(8), torch.arange(1, 9)])
    path = gf.Graph.create(
        x=torch.eye(9), edges=ends, y=torch.arange(9) % 2, subject_ids=[f"n{row}" for row in range(9)]
    )
    part, inside = path.neighbourhood(torch.tensor([4]), hops=hops)
    assert part.numbers.tolist() == nodes
    assert part.subject_ids == tuple(f"n{node}" for node in nodes)
    assert plain(part)["edges"] == edges
    assert torch.equal(part.x, path.x[nodes])
    assert part.numbers[inside].tolist() == [4]


def test_the_neighbourhood_of_a_directed_graph_goes_both_ways() -> None:
    """Some layers weigh messages by what a node sends."""
    ends = torch.stack([torch.arange(5), torch.arange(1, 6)])
    chain = gf.Graph.create(x=torch.eye(6), edges=ends, y=torch.arange(6) % 2, directed=True)
    part, inside = chain.neighbourhood(torch.tensor([3, 1]), hops=1)
    assert part.numbers.tolist() == [0, 1, 2, 3, 4, 5]
    assert inside.tolist() == [3, 1]
    assert chain.neighbourhood(torch.tensor([0]), hops=1)[0].numbers.tolist() == [0, 1, 2]


# -- splits --------------------------------------------------------------------------------------------------


def labelled(count: int, *, unlabelled: int = 0) -> gf.Graph:
    y = torch.arange(count + unlabelled) % 3
    y[:unlabelled] = UNLABELLED
    return gf.Graph.create(x=torch.ones(count + unlabelled, 1), edges=torch.zeros(2, 0), y=y)


@pytest.mark.parametrize("count", [2708, 569, 3327, 10, 11, 3, 2])
def test_about_a_tenth_is_tested_and_at_least_one_node(count: int) -> None:
    for unlabelled in (0, 7):
        sizes = []
        for seed in range(20):
            graph = labelled(count, unlabelled=unlabelled).split(seed=seed)
            sizes.append(int(graph.test_mask.sum()))
            assert torch.equal(graph.train_mask ^ graph.test_mask, graph.y != UNLABELLED)
            assert not graph.val_mask.any()
            assert graph.train_mask.any()
        assert min(sizes) >= 1
        spread = 4 * (0.09 * count) ** 0.5
        assert all(size <= 1 + 0.1 * count + spread for size in sizes)
        if count > 100:
            assert all(abs(size - 0.1 * count) < spread for size in sizes)
            assert abs(sum(sizes) / 20 - 0.1 * count) < spread / 20**0.5


@pytest.mark.parametrize("seed", range(5))
def test_removing_nodes_moves_no_other_node_to_another_side(seed: int) -> None:
    graph = labelled(300)
    removed = torch.randperm(300, generator=torch.Generator().manual_seed(seed))[:40].tolist()
    stays = torch.ones(300, dtype=torch.bool)
    stays[removed] = False
    first, second = graph.split(seed=seed), graph.without(gf.Request(nodes=removed)).split(seed=seed)
    assert torch.equal(second.test_mask, first.test_mask[stays])
    held, again = first.hold_out(seed=seed), second.hold_out(seed=seed)
    assert torch.equal(again.val_mask, held.val_mask[stays])
    assert not torch.equal(held.val_mask, graph.hold_out(seed=seed + 1).val_mask)


def test_the_sides_of_two_nodes_are_independent_over_the_seeds() -> None:
    graph = labelled(40)
    drawn = torch.stack([graph.split(seed=seed, test=0.5).test_mask for seed in range(600)]).double()
    deviation = (drawn - 0.5) * 2
    correlation = deviation.T @ deviation / 600
    assert float((correlation - torch.diag(correlation.diagonal())).abs().max()) < 5 / 600**0.5
    assert float((drawn.mean(dim=0) - 0.5).abs().max()) < 4.5 * 0.5 / 600**0.5
    held = torch.stack([graph.hold_out(seed=seed, share=0.5).val_mask for seed in range(600)]).double()
    assert abs(float(((held - 0.5) * (drawn - 0.5)).mean())) < 4 * 0.25 / 24000**0.5  # another purpose, another draw


def test_the_split_depends_on_the_seed_alone() -> None:
    graph = labelled(200)
    state = torch.random.get_rng_state()
    first = graph.split(seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(99)
    assert torch.equal(graph.split(seed=1).test_mask, first.test_mask)
    assert torch.equal(first.split(seed=1).test_mask, first.test_mask)
    assert not torch.equal(graph.split(seed=2).test_mask, first.test_mask)
    drawn = torch.stack([graph.split(seed=seed).test_mask for seed in range(60)]).double().mean(dim=0)
    assert float(drawn.max()) < 0.35
    assert not (graph.test_mask | ~graph.train_mask).any()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan"), float("inf")])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(gf.InputError, match=f"{share}.* must be between 0 and 1"):
        labelled(20).split(test=share)


@pytest.mark.parametrize("share", [1.0, -0.1, 1.5, float("nan"), float("inf")])
def test_held_out_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(gf.InputError):
        labelled(20).hold_out(share=share)


def test_a_split_or_a_held_out_share_that_leaves_nobody_to_train_is_refused() -> None:
    y = torch.tensor([1, UNLABELLED, UNLABELLED])
    lone = gf.Graph.create(x=torch.ones(3, 1), edges=torch.zeros(2, 0), y=y)
    with pytest.raises(gf.InputError, match=r"a test share of 0\.1 leaves no training node"):
        lone.split(test=0.1)
    with pytest.raises(gf.InputError, match="leaves no training node"):
        lone.hold_out(share=0.9)
    assert int(lone.hold_out(share=0.0).val_mask.sum()) == 0
    for share in (0.001, 0.999):
        assert int(labelled(4).split(test=share).test_mask.sum()) == (1 if share < 0.5 else 3)
        assert int(labelled(4).hold_out(share=share).val_mask.sum()) == (1 if share < 0.5 else 3)


def test_hold_out_takes_training_nodes_only() -> None:
    graph = labelled(203, unlabelled=9).split(seed=3)
    held = graph.hold_out(seed=4, share=0.25)
    count = int(graph.train_mask.sum())
    assert abs(int(held.val_mask.sum()) - 0.25 * count) < 4 * (0.25 * 0.75 * count) ** 0.5
    assert (graph.train_mask[held.val_mask]).all()
    assert torch.equal(held.train_mask, graph.train_mask & ~held.val_mask)
    assert torch.equal(held.test_mask, graph.test_mask)
    assert not graph.val_mask.any()
    assert torch.equal(graph.hold_out(seed=4, share=0.25).val_mask, held.val_mask)
    assert not torch.equal(graph.hold_out(seed=5, share=0.25).val_mask, held.val_mask)


# -- notes -----------------------------------------------------------------------------------------------------

REPEATED = torch.tensor([[0, 1, 2, 4, 0, 0, 1], [1, 2, 3, 0, 1, 1, 0]])  # (0, 1) three times, and once turned round


@pytest.mark.parametrize("directed", [False, True])
def test_repeated_edges_are_counted_and_the_other_direction_is_none(directed: bool) -> None:
    graph = made(edges=REPEATED, directed=directed, notes=["a note of the caller"])
    (given_note, counted) = graph.notes
    assert given_note == "a note of the caller"
    assert counted == "2 repeated entries of the edge list were dropped, each edge counts once"
    assert made(edges=REPEATED[:, [0, 4]]).notes == (
        "1 repeated entry of the edge list was dropped, each edge counts once",
    )
    assert made().notes == ()
    both = torch.cat([made().edge_index, made().edge_index.flip(0)], dim=1)[:, : made().edge_index.shape[1]]
    assert made(edges=both, directed=directed).notes == ()
    assert made(edges=torch.zeros(2, 0, dtype=torch.int64)).notes == ()


def test_pyg_data_with_repeated_edges_has_a_note() -> None:
    data = made().to_pyg()
    assert gf.Graph.from_pyg(data).notes == ()
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :1]], dim=1)
    assert gf.Graph.from_pyg(data).notes == ("1 repeated entry of the edge list was dropped, each edge counts once",)


def test_notes_are_no_part_of_the_digest_and_do_not_survive_a_deletion() -> None:
    graph = made(edges=REPEATED)
    assert graph.notes
    assert graph.digest == made().digest
    assert graph.split().notes == graph.hold_out(share=0.1).notes == graph.notes
    requests_of = (gf.Request(nodes=["cid"]), gf.Request(edges=[("eve", "bob")]), gf.Request(attributes={"eve": "all"}))
    assert [graph.without(request).notes for request in requests_of] == [()] * 3
    assert graph.induced(torch.ones(5, dtype=torch.bool)).notes == ()
    assert graph.neighbourhood(torch.tensor([0]), hops=1)[0].notes == ()


def test_hetero_data_is_not_supported() -> None:
    data = HeteroData()
    data["person"].x = torch.eye(3)
    data["person", "knows", "person"].edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(gf.InputError, match=r"^a HeteroData was given.*Graph\.from_hetero"):
        gf.Graph.from_pyg(data)
