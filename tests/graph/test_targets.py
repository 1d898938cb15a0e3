"""Graphs whose nodes have labels that are on or off, or values: checks, digests, other graphs made of them, files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import graphforget as gf
from cases import random_graph, with_targets
from graphforget.graph.digest import digest_of_format_3
from graphforget.graph.targets import has_target, target_kind
from graphforget.training.training_input import same_training_input, training_input

NAN = math.nan
LABELS = torch.tensor([[1, 0], [0, 0], [-1, -1], [1, 1]])
VALUES = torch.tensor([0.5, -2.0, NAN, 1e3])
KINDS = ("labels", "values")
# As they were before there were labels and values.
CLASSES_DIGEST = "3f5d740e8748809ba2310028e8ac355c60e4b600e00804527116e87c830cf42d"
RANDOM_DIGEST = "060b55724005d9fa0b090096b1f38952268a1525bed1b1d866e3935d23218d85"


def made(y: Any, **more: Any) -> gf.Graph:
    return gf.Graph.create(x=torch.eye(4), edges=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=y, **more)


# -- what y may be -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "kind", "shape", "dtype"),
    [
        (torch.tensor([0, 1, -1, 1]), "classes", (4,), torch.int64),
        (torch.tensor([[0], [1], [2], [1]]), "classes", (4,), torch.int64),
        (torch.tensor([True, False, True, False]), "classes", (4,), torch.int64),
        (LABELS, "labels", (4, 2), torch.int8),
        (LABELS == 1, "labels", (4, 2), torch.int8),
        (LABELS[:, :1] == 1, "labels", (4, 1), torch.int8),
        (LABELS[:, :1].to(torch.int8), "labels", (4, 1), torch.int8),
        (VALUES, "values", (4, 1), torch.float64),
        (VALUES[:, None].half(), "values", (4, 1), torch.float64),
        (torch.stack([VALUES, VALUES], dim=1), "values", (4, 2), torch.float64),
        (torch.tensor([0.0, 1.0, 2.0, 1.0]), "values", (4, 1), torch.float64),
    ],
)
def test_the_type_and_shape_of_y_say_what_is_predicted(
    y: Tensor, kind: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    graph = made(y)
    assert (graph.target_kind, tuple(graph.y.shape), graph.y.dtype) == (kind, shape, dtype)
    assert graph.num_classes == (shape[1] if len(shape) == 2 else max(2, int(y.max()) + 1))
    assert f"{graph.num_classes} {kind}" in repr(graph)
    assert torch.equal(graph.train_mask, has_target(graph.y))


def test_whole_numbers_in_floating_point_are_noted() -> None:
    whole = torch.tensor([0.0, 1.0, NAN, 1.0])
    assert any("is read as values" in note for note in made(whole).notes)
    for graph in (made(whole, targets="values"), made(VALUES), made(LABELS), made(whole.nan_to_num().long())):
        assert not any("is read as values" in note for note in graph.notes)


def test_the_caller_may_say_what_is_predicted() -> None:
    floats = torch.tensor([0.0, 1.0, 2.0, 1.0])
    assert made(floats, targets="classes").num_classes == 3
    assert made(LABELS.float(), targets="labels").target_kind == "labels"
    assert made(torch.tensor([3, 1, 2, 1]), targets="values").y[0].tolist() == [3.0]


@pytest.mark.parametrize(
    ("y", "more", "said"),
    [
        (torch.tensor([[2, 0], [0, 0], [1, 1], [1, 1]]), {}, "label 0 of node 0 is 2, 0 or 1 is needed"),
        (torch.tensor([[1, 0], [0, -1], [1, 1], [1, 1]]), {}, "label 1 of node 1 is -1, 0 or 1 is needed"),
        (torch.tensor([[NAN, 1.0], [0, 0], [1, 1], [1, 1]]), {}, "node 0 has some of its values and not the others"),
        (torch.tensor([math.inf, 1, 2, 3]), {}, "a target is inf, values up to 1e+15 are possible"),
        (torch.tensor([1e16, 1, 2, 3]), {}, "a target is 1e+16"),
        (torch.zeros(4, 0), {}, "shape (4, 0) for 4 nodes"),
        (torch.zeros(3, 2), {}, "shape (3, 2) for 4 nodes"),
        (torch.zeros(4, 2, 2), {}, "shape (4, 2, 2) for 4 nodes"),
        (torch.zeros(4, dtype=torch.complex64), {}, "real numbers are needed"),
        (VALUES, {"targets": "numbers"}, "the targets are 'numbers', classes, labels, values are possible"),
        (VALUES, {"num_classes": 3}, "num_classes is 3, and the targets have 1 columns"),
        (VALUES, {"class_names": ["a", "b"]}, "there are 2 class names for 1"),
        (VALUES, {"test_mask": torch.tensor([False, False, True, False])}, "node 2 is in the split but has no target"),
        (LABELS, {"test_mask": torch.tensor([False, False, True, False])}, "node 2 is in the split but has no label"),
        (torch.full((4,), NAN), {}, "no training node"),
    ],
)
def test_what_is_refused(y: Tensor, more: dict[str, Any], said: str) -> None:
    with pytest.raises(gf.InputError) as caught:
        made(y, **more)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# -- digests -----------------------------------------------------------------------------------------------------------


def test_the_earlier_digest_of_classes_is_the_one_of_earlier_versions() -> None:
    assert digest_of_format_3(made(torch.tensor([0, 1, -1, 1]))) == CLASSES_DIGEST
    assert digest_of_format_3(random_graph(5)) == RANDOM_DIGEST


def test_digests_tell_targets_apart() -> None:
    graphs = [
        made(LABELS),
        made(LABELS.double().masked_fill(LABELS < 0, NAN)),
        made(LABELS, class_names=["a", "b"]),
        made(VALUES),
        made(VALUES * (1 + 2.0**-20)),
        made(torch.stack([VALUES, VALUES], dim=1)),
        made(torch.tensor([0, 1, -1, 1])),
    ]
    assert len({graph.digest for graph in graphs}) == len(graphs)


def test_digests_do_not_depend_on_the_spelling_of_zero_or_of_nan() -> None:
    other = torch.tensor([0x7FF8000000000001], dtype=torch.int64).view(torch.float64)
    first = made(torch.tensor([0.0, 1, NAN, 2]).double())
    second = made(torch.cat([torch.tensor([-0.0, 1]).double(), other, torch.tensor([2.0]).double()]))
    assert first.digest == second.digest


@pytest.mark.parametrize("kind", KINDS)
def test_digests_do_not_depend_on_the_order_of_nodes(kind: str) -> None:
    graph = with_targets(random_graph(2), kind)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    names = [f"p{row}" for row in range(graph.num_nodes)]
    digests = {
        gf.Graph.create(
            x=graph.x.to_dense()[rows],
            edges=where[graph.edge_index],
            y=graph.y[rows],
            train_mask=graph.train_mask[rows],
            subject_ids=[names[row] for row in rows],
            numbers=None,
        )
        .numbered_as(reference)
        .digest
        for reference in [_named(graph, names)]
        for rows, where in ((torch.arange(graph.num_nodes), torch.arange(graph.num_nodes)), (order, place))
    }
    assert len(digests) == 1


def _named(graph: gf.Graph, names: list[str]) -> gf.Graph:
    return gf.Graph.create(x=graph.x, edges=graph.edge_index, y=graph.y, subject_ids=names, train_mask=graph.train_mask)


# -- other graphs made from one ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_targets_stay_with_their_nodes(kind: str) -> None:
    graph = with_targets(random_graph(4, nodes=20, edges=30), kind)
    request = gf.Request(nodes=[3, 7], attributes={5: "all"})
    after = graph.without(request)
    rows = torch.isin(graph.numbers, after.numbers)
    assert torch.equal(after.y.nan_to_num(), graph.y[rows].nan_to_num())
    assert after.y.dtype == graph.y.dtype
    part, inside = graph.neighbourhood(torch.tensor([2, 9]), hops=1)
    assert torch.equal(part.y[inside].nan_to_num(), graph.y[[2, 9]].nan_to_num())
    split = graph.split(seed=1, test=0.3).hold_out(seed=2, share=0.3)
    assert torch.equal(split.train_mask | split.val_mask | split.test_mask, has_target(graph.y))


@pytest.mark.parametrize("kind", KINDS)
def test_training_reads_no_target_of_other_nodes(kind: str) -> None:
    graph = with_targets(random_graph(4, nodes=20, edges=30), kind)
    part = training_input(graph, gf.Reach(2))
    assert torch.equal(has_target(part.y), part.train_mask)
    assert target_kind(part.y) == kind
    test = graph.test_mask.nonzero().flatten()[0]
    y = graph.y.clone()
    y[test] = 1 - y[test]
    changed = gf.Graph.create(
        x=graph.x, edges=graph.edge_index, y=y, train_mask=graph.train_mask, test_mask=graph.test_mask
    )
    assert changed.digest != graph.digest
    assert same_training_input(graph, changed, gf.Reach(2))
    y[graph.train_rows[0]] = 1 - y[graph.train_rows[0]]
    other = gf.Graph.create(
        x=graph.x, edges=graph.edge_index, y=y, train_mask=graph.train_mask, test_mask=graph.test_mask
    )
    assert not same_training_input(graph, other, gf.Reach(2))


def test_named_labels_take_the_order_of_the_other_graph() -> None:
    ids = ["a", "b", "c", "d"]
    first = made(LABELS, subject_ids=ids, class_names=["x", "y"])
    second = made(LABELS.flip(1), subject_ids=ids, class_names=["y", "x"])
    assert second.numbered_as(first).digest == first.digest


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [LABELS, VALUES, torch.stack([VALUES, VALUES], dim=1), LABELS[:, :1] == 1])
def test_pyg_and_back(y: Tensor) -> None:
    graph = made(y)
    assert gf.Graph.from_pyg(graph.to_pyg(), directed=False).digest == graph.digest


def test_labels_of_pyg_may_be_floating_point() -> None:
    data = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 0]]), y=LABELS.float())
    assert gf.Graph.from_pyg(data, targets="labels").target_kind == "labels"
    data.y = data.y[:, 0].clamp_min(0)
    assert gf.Graph.from_pyg(data).target_kind == "values"


def written(folder: Path, nodes: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text("source,target\na,b\nb,c\n")
    return folder


def test_a_folder_with_labels(tmp_path: Path) -> None:
    graph = gf.Graph.from_csv(written(tmp_path / "x", "id,label:ill,age,label:old\na,1,0.5,0\nb,,0.1,\nc,0,0.7,1\n"))
    assert (graph.target_kind, graph.class_names, graph.column_names) == ("labels", ("ill", "old"), ("age",))
    assert graph.y.tolist() == [[1, 0], [-1, -1], [0, 1]]
    assert graph.train_mask.tolist() == [True, False, True]


@pytest.mark.parametrize(("header", "names"), [("target", ("target",)), ("target:dose", ("dose",))])
def test_a_folder_with_values(tmp_path: Path, header: str, names: tuple[str, ...]) -> None:
    text = f"id,{header},split,age\na,1.5,train,0.5\nb,,,0.1\nc,-2e3,test,0.7\n"
    graph = gf.Graph.from_csv(written(tmp_path / "x", text))
    assert (graph.target_kind, graph.class_names) == ("values", names)
    assert graph.y.flatten().nan_to_num(7).tolist() == [1.5, 7.0, -2000.0]
    assert graph.test_mask.tolist() == [False, False, True]


def test_beside_a_label_they_are_attributes(tmp_path: Path) -> None:
    graph = gf.Graph.from_csv(written(tmp_path / "x", "id,label,target,label:x\na,u,1,2\nb,v,3,4\nc,u,0,1\n"))
    assert (graph.target_kind, graph.column_names) == ("classes", ("target", "label:x"))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("id,label:x,target,age\na,1,1,1\n", "line 1 of .*: the header has both 'label:x' and 'target'"),
        ("id,age\na,1\n", "line 1 of .*: the header has no column 'label'"),
        ("id,label:x,age\na,2,1\n", "line 2 of .*: 'label:x' is '2', 0 or 1 is needed"),
        ("id,label:x,label:y,age\na,1,,1\n", "line 2 of .*: 'label:y' is empty and 1 other"),
        ("id,label,age\na,x,1\nb,nan,1\n", "line 3 of .*: 'label' is 'nan', a missing value"),
        ("id,label,age\na,x,1\nb, NaN ,1\n", "line 3 of .*: 'label' is 'NaN', a missing value"),
        ("id,target,age\na,nan,1\n", "line 2 of .*: 'target' is 'nan', a finite number is needed"),
        ("id,target,age\na,one,1\n", "line 2 of .*: 'target' is 'one'"),
        ("id,target\na,1\n", "line 1 of .*: the header names no attribute"),
        ("id,target,split,age\na,,train,1\n", "line 2 of .*: node 'a' is a train node without a target"),
        ("id,target,target,age\na,1,1,1\n", "line 1 of .*: column 'target' appears twice"),
    ],
)
def test_what_a_folder_may_not_hold(tmp_path: Path, nodes: str, said: str) -> None:
    with pytest.raises(gf.InputError, match=said):
        gf.Graph.from_csv(written(tmp_path / "x", nodes))
