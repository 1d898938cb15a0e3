"""The annex: what was deleted can be recognised by whoever holds the salt, and by nobody else."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import CLASSES, COLUMNS, any_values, present, random_graph
from graphforget.certificates.annex import Annex, request_digest, weights_digest
from graphforget.privacy.salt import SALT_BYTES

IDS = [f"person {'abcdefghijklmnopqrst'[row]}" for row in range(20)]


def graph_of(*, directed: bool = False, ids: bool = False, sparse: bool = True, numbers: bool = True) -> gf.Graph:
    """Full attributes (a value that is 0 already is not missed), and numbers that are not the rows."""
    plain = random_graph(4, nodes=20, edges=30, directed=directed, unlabelled=0)
    x = plain.x.to_dense() + 2 * (plain.x.to_dense() == 0)
    return gf.Graph.create(
        x=x.to_sparse_csr() if sparse else x,
        edges=plain.edge_index,
        y=plain.y,
        train_mask=plain.train_mask,
        test_mask=plain.test_mask,
        directed=directed,
        num_classes=CLASSES,
        numbers=torch.arange(20) * 7 + 1003 if numbers else None,
        subject_ids=IDS if ids else None,
        column_names=["age", "weight", "pulse", "height"],
    )


def names(graph: gf.Graph) -> list[Any]:
    return list(graph.subject_ids or graph.numbers.tolist())


def an_edge(graph: gf.Graph, *, avoid: tuple[int, ...] = ()) -> tuple[int, int]:
    """Rows of an edge between two nodes."""
    pairs = ((int(u), int(v)) for u, v in graph.edge_index.T.tolist())
    return next((u, v) for u, v in pairs if u < v and u not in avoid and v not in avoid)


def some_request(graph: gf.Graph) -> gf.Request:
    """Something of each kind, no part of which takes another with it."""
    called = names(graph)
    u, v = an_edge(graph, avoid=(4, 5, 6))
    return gf.Request(
        nodes=[called[4]],
        edges=[(called[u], called[v])],
        attributes={called[5]: "all", called[6]: ["pulse", "age"]},
        labels=[called[int(graph.train_rows[-1])]],
    )


def put_back(graph: gf.Graph, kind: str) -> gf.Graph:
    """The graph without what `some_request` names, but for one kind of it, which stayed in."""
    request = some_request(graph)
    if kind in ("all attributes", "single attributes"):
        left = {n: c for n, c in request.attributes.items() if (c == "all") == (kind == "single attributes")}
        return graph.without(gf.Request(request.nodes, request.edges, left, labels=request.labels))
    labels = () if kind == "label" else request.labels
    nodes, edges = (() if kind == "node" else request.nodes), (() if kind == "edge" else request.edges)
    return graph.without(gf.Request(nodes, edges, request.attributes, labels=labels))


KINDS = {
    "node": "a node that was to be forgotten",
    "edge": "an edge that was to be forgotten",
    "label": "a label that was to be forgotten",
    "all attributes": "an attribute value that was to be forgotten",
    "single attributes": "an attribute value that was to be forgotten",
}
EVERY_GRAPH = pytest.mark.parametrize(
    ("directed", "ids", "sparse"), list(itertools.product([False, True], repeat=3)), ids=lambda value: str(value)[0]
)


# -- finding what was put back ---------------------------------------------------------------------------------------


@EVERY_GRAPH
def test_nothing_is_found_in_the_retained_graph(directed: bool, ids: bool, sparse: bool) -> None:
    graph = graph_of(directed=directed, ids=ids, sparse=sparse)
    request = some_request(graph)
    annex = Annex.of(graph, request)
    assert annex.still_in(graph.without(request)) is None
    assert annex.still_in(graph) == KINDS["node"]
    later = graph.without(request).without(gf.Request(nodes=[names(graph)[9]]))
    assert annex.still_in(later) is None


@pytest.mark.parametrize("kind", KINDS)
@EVERY_GRAPH
def test_each_kind_that_is_put_back_is_found(directed: bool, ids: bool, sparse: bool, kind: str) -> None:
    graph = graph_of(directed=directed, ids=ids, sparse=sparse)
    annex = Annex.of(graph, some_request(graph))
    assert annex.still_in(put_back(graph, kind)) == KINDS[kind]


@pytest.mark.parametrize("ids", [False, True])
def test_what_was_deleted_is_known_again_in_any_order_and_layout(ids: bool) -> None:
    graph = graph_of(ids=ids)
    annex = Annex.of(graph, some_request(graph))
    for kind, message in KINDS.items():
        left = put_back(graph, kind)
        turned = torch.arange(left.num_nodes).flip(0) if ids else torch.arange(left.num_nodes)  # numbers ascend
        again = gf.Graph.create(
            x=left.x.to_dense()[turned],
            edges=turned.argsort()[left.edge_index],
            y=left.y[turned],
            num_classes=CLASSES,
            numbers=None if ids else left.numbers,
            subject_ids=[left.subject_ids[row] for row in turned] if left.subject_ids else None,
        )
        assert annex.still_in(again) == message


@pytest.mark.parametrize("ids", [False, True])
def test_an_undirected_edge_is_found_whichever_way_it_was_named(ids: bool) -> None:
    graph = graph_of(ids=ids)
    u, v = (names(graph)[row] for row in an_edge(graph))
    for named in ((u, v), (v, u)):
        annex = Annex.of(graph, gf.Request(edges=[named]))
        assert len(annex.edges) == 1
        assert annex.still_in(graph) == KINDS["edge"]
        assert annex.still_in(graph.without(gf.Request(edges=[(v, u)]))) is None


def test_a_directed_edge_is_not_its_reverse() -> None:
    plain = graph_of(directed=True, numbers=False)
    u, v = an_edge(plain)
    edges = torch.cat([plain.edge_index, torch.tensor([[v], [u]])], dim=1)
    graph = gf.Graph.create(x=plain.x, edges=edges, y=plain.y, num_classes=CLASSES, directed=True)
    annex = Annex.of(graph, gf.Request(edges=[(u, v)]))
    assert annex.still_in(graph) == KINDS["edge"]
    assert annex.still_in(graph.without(gf.Request(edges=[(u, v)]))) is None
    assert annex.still_in(graph.without(gf.Request(edges=[(v, u)]))) == KINDS["edge"]


def test_a_self_loop_is_found() -> None:
    plain = graph_of(numbers=False)
    edges = torch.cat([plain.edge_index, torch.tensor([[3], [3]])], dim=1)
    graph = gf.Graph.create(x=plain.x, edges=edges, y=plain.y, num_classes=CLASSES)
    annex = Annex.of(graph, gf.Request(edges=[(3, 3)]))
    assert annex.still_in(graph) == KINDS["edge"]
    assert annex.still_in(graph.without(gf.Request(edges=[(3, 3)]))) is None


def test_an_attribute_of_a_node_that_is_gone_is_missed_by_nobody() -> None:
    graph = graph_of(numbers=False)
    annex = Annex.of(graph, gf.Request(attributes={5: "all"}))
    assert annex.still_in(graph.without(gf.Request(nodes=[5]))) is None


# -- naming nobody ---------------------------------------------------------------------------------------------------


def test_the_annex_and_the_certificate_name_nobody() -> None:
    graph = gf.load("patients")
    request = gf.Request(
        nodes=["patient-0017"],
        edges=[("patient-0000", present(graph.subject_ids)[int(graph.edge_index[0, graph.edge_index[1] == 0][0])])],
        attributes={"patient-0042": ["mean radius"], "patient-0051": "all"},
    )
    outcome = gf.unlearn(gf.train(graph, "sgc"), graph, request)
    message = json.dumps([outcome.certificate.to_dict(), outcome.annex.to_dict(), outcome.answer()])
    assert "patient" not in message
    for name in graph.column_names or ():
        assert name not in message
    assert "mean" not in message


def test_numbers_of_nodes_are_not_told() -> None:
    graph = graph_of()
    request = some_request(graph)
    outcome = gf.unlearn(gf.train(graph, "sgc", mu=1e-2), graph, request)
    content = outcome.annex.to_dict()
    message = [content["request"], *content["nodes"], *content["edges"], *content["attributes"]]
    assert len(message) == 5
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in message)  # no room for a name
    words = re.split(r"[^0-9a-z.]+", json.dumps([content, outcome.certificate.to_dict()]))
    assert not set(map(str, graph.numbers.tolist())) & set(words)
    assert not {"age", "pulse"} & set(json.dumps([content, outcome.certificate.to_dict()]).split('"'))


def test_every_annex_has_a_salt_of_its_own() -> None:
    graph = graph_of(ids=True)
    first, second = (Annex.of(graph, some_request(graph)) for _ in range(2))
    assert len(first.salt) == SALT_BYTES == 32
    assert first.salt != second.salt
    assert first.request != second.request
    for kind in ("nodes", "edges", "attributes"):
        assert getattr(first, kind)
        assert not set(getattr(first, kind)) & set(getattr(second, kind))
    theta = torch.arange(4.0)
    assert first.weights(theta) != second.weights(theta)
    same = Annex.of(graph, some_request(graph), salt=first.salt)
    assert same == first
    assert same.weights(theta) == first.weights(theta)


def test_the_same_request_twice_leaves_certificates_with_nothing_in_common() -> None:
    graph = graph_of(ids=True)
    trained = gf.train(graph, "sgc", mu=1e-2)
    first, second = (gf.unlearn(trained, graph, some_request(graph)).certificate.digests for _ in range(2))
    assert set(first) == set(second) == {"request", "annex", "state", "graph", "weights", "released"}
    assert not set(first.values()) & set(second.values())


def test_no_salted_digest_can_be_guessed_without_the_salt() -> None:
    graph = graph_of(numbers=False)
    trained = gf.train(graph, "sgc", mu=1e-2)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    message = set(outcome.certificate.digests.values()) - {outcome.certificate.digests["released"]}
    words = ["4", '["4"]', '[["4"], [], []]', json.dumps([["4"], [], []]), json.dumps({"nodes": [4]}), "node4"]
    guesses = {hashlib.sha256(word.encode()).hexdigest() for word in words}
    guesses |= {request_digest(gf.Request(nodes=[4]), salt) for salt in (b"", b"\0", bytes(SALT_BYTES))}
    for theta in (trained.theta, outcome.trained.theta, outcome.released_theta):
        guesses.add(hashlib.sha256(theta.numpy().tobytes()).hexdigest())
        guesses |= {weights_digest(theta), weights_digest(theta, salt=bytes(SALT_BYTES))}
    assert not guesses & message
    # the guesses are right ones: with the salt they match
    salt = outcome.annex.salt
    assert request_digest(gf.Request(nodes=[4]), salt) in message
    assert weights_digest(outcome.trained.theta, salt=salt) in message
    assert weights_digest(trained.theta, salt=salt) not in message  # nothing is said of the weights from before
    assert weights_digest(outcome.released_theta) == outcome.certificate.digests["released"]  # anybody has these


def test_who_has_the_old_graph_cannot_try_out_who_is_missing() -> None:
    """The digest of the retained graph is salted too; whoever has the run's salt can check it."""
    graph = graph_of(ids=True)
    outcome = gf.unlearn(gf.train(graph, "sgc", mu=1e-2), graph, gf.Request(nodes=[IDS[4]]))
    digests = outcome.certificate.digests
    graphs = [graph.without(gf.Request(nodes=[name])) for name in IDS[3:]]
    tried = {one.digest for one in graphs} | {hashlib.sha256(one.digest.encode()).hexdigest() for one in graphs}
    assert not tried & set(digests.values())
    unsalted = dataclasses.replace(outcome.trained, graph_salt=bytes(32))
    assert digests["graph"] not in {unsalted.graph_commitment(one) for one in graphs}
    with_salt = [name for name, one in zip(IDS[3:], graphs, strict=True) if _fits(outcome, one)]
    assert with_salt == [IDS[4]]


def _fits(outcome: gf.Outcome, graph: gf.Graph) -> bool:
    return outcome.trained.graph_commitment(graph) == outcome.certificate.digests["graph"]


def test_parts_cannot_be_shifted_between_names() -> None:
    """Lengths stand before the parts: no two requests and no two pairs of names read the same."""
    salt = b"s" * SALT_BYTES
    pairs = [("ab", "c"), ("a", "bc"), ("abc", "-")]
    assert len({request_digest(gf.Request(edges=[pair]), salt) for pair in pairs}) == 3
    ids = ["ab", "c", "a", "bc", *(f"n{row}" for row in range(16))]
    plain = graph_of(numbers=False)
    graph = gf.Graph.create(
        x=plain.x, edges=torch.tensor([[0, 2], [1, 3]]), y=plain.y, num_classes=CLASSES, subject_ids=ids
    )
    annex = Annex.of(graph, gf.Request(edges=[("ab", "c")]))
    assert annex.still_in(graph.without(gf.Request(edges=[("ab", "c")]))) is None
    # a node, an edge and attributes of one name have three hashes
    annex = Annex.of(graph, gf.Request(nodes=["n0"], attributes={"n0": "all"}))
    assert not annex.nodes & set(annex.attributes)


def test_the_digest_of_a_request_knows_no_order_but_knows_everything_else() -> None:
    salt = b"s" * SALT_BYTES
    one = gf.Request(nodes=[1, 2], edges=[(3, 4), (5, 6)], attributes={7: [0, 1], 8: "all"})
    two = gf.Request(nodes=[2, 1], edges=[(5, 6), (3, 4)], attributes={8: "all", 7: [1, 0]})
    assert request_digest(one, salt) == request_digest(two, salt)
    others = [
        gf.Request(nodes=[1], edges=[(3, 4), (5, 6)], attributes={7: [0, 1], 8: "all"}),
        gf.Request(nodes=[1, 2], edges=[(3, 4)], attributes={7: [0, 1], 8: "all"}),
        gf.Request(nodes=[1, 2], edges=[(3, 4), (5, 6)], attributes={7: [0], 8: "all"}),
        gf.Request(nodes=[1, 2], edges=[(3, 4), (5, 6)], attributes={7: "all", 8: "all"}),
        gf.Request(nodes=[1, 2], edges=[(3, 4), (5, 6)], attributes={7: [0, 1], 8: ["all"]}),
    ]
    assert len({request_digest(request, salt) for request in [one, *others]}) == 6


def test_a_request_that_names_a_node_twice_has_a_digest_or_is_refused() -> None:
    """`answer` takes the digest before it resolves the request."""
    assert len(request_digest(gf.Request(attributes={5: "all", "5": [0]}), b"salt")) == 64


def test_the_digest_of_weights_knows_every_bit_and_the_order() -> None:
    theta = torch.linspace(-1, 1, 7, dtype=torch.float64)
    result = weights_digest(theta)
    assert result == weights_digest(theta.clone().requires_grad_())
    assert result == weights_digest(torch.stack([theta, theta], dim=1)[:, 0])  # not contiguous
    assert (
        len({result, weights_digest(theta.flip(0)), weights_digest(theta[:-1]), weights_digest(theta, salt=b"a")}) == 4
    )
    for place in range(7):
        other = theta.clone()
        other[place] = torch.nextafter(other[place], torch.tensor(9.0, dtype=torch.float64))
        assert weights_digest(other) != result


# -- on paper --------------------------------------------------------------------------------------------------------


@EVERY_GRAPH
def test_an_annex_survives_json(directed: bool, ids: bool, sparse: bool) -> None:
    graph = graph_of(directed=directed, ids=ids, sparse=sparse)
    annex = Annex.of(graph, some_request(graph))
    again = Annex.from_dict(json.loads(json.dumps(annex.to_dict())))
    assert again == annex
    assert again.to_dict() == annex.to_dict()
    assert set(annex.attributes.values()) == {"all", (0, 2)}
    for kind, message in KINDS.items():
        assert again.still_in(put_back(graph, kind)) == message


def test_the_order_in_the_document_tells_nothing() -> None:
    graph = graph_of(numbers=False)
    requests = (gf.Request(nodes=[4, 9, 7]), gf.Request(nodes=[7, 9, 4]))
    one, two = (Annex.of(graph, request, salt=b"x" * 32).to_dict() for request in requests)
    assert one == two
    assert one["nodes"] == sorted(one["nodes"])


LATER = ("account", "released", "edge_tags", "labels")  # not in annexes of an earlier version, which can be read


def test_an_annex_of_an_earlier_version_can_be_read() -> None:
    annex = Annex.from_dict({name: value for name, value in GOOD.items() if name not in LATER})
    assert annex == dataclasses.replace(Annex.from_dict(GOOD), edge_tags=frozenset(), labels=frozenset())
    assert (annex.account, annex.released) == ({}, True)


def test_the_digest_follows_everything_that_an_annex_holds() -> None:
    annex = Annex.from_dict(GOOD)
    changes: list[dict[str, Any]] = [
        *({name: frozenset(["0" * 64])} for name in ("nodes", "edges", "labels")),
        *({"attributes": {}}, {"account": {"method": "newton"}}, {"released": False}),
        *({"request": "0" * 64}, {"salt": b"y" * SALT_BYTES}),
    ]
    others = [dataclasses.replace(annex, **change) for change in changes]
    assert len({one.digest for one in (annex, *others)}) == 9
    assert [Annex.from_dict(json.loads(json.dumps(one.to_dict()))) for one in others] == others


def test_what_a_refused_request_names_may_stay() -> None:
    """Nothing was released and nothing was taken out of the graph."""
    graph = graph_of(numbers=False)
    annex = Annex.of(graph, gf.Request(nodes=[4]))
    assert annex.still_in(graph) == "a node that was to be forgotten"
    assert dataclasses.replace(annex, released=False).still_in(graph) is None


GOOD = Annex.of(graph_of(), some_request(graph_of()), salt=b"x" * SALT_BYTES).to_dict()


@pytest.mark.parametrize(
    "content",
    [
        *(None, [], "annex", 5, {}),
        *({name: value for name, value in GOOD.items() if name != gone} for gone in GOOD if gone not in LATER),
        *(GOOD | {"account": bad} for bad in (None, 5, "text")),
        *(GOOD | {"salt": bad} for bad in ("no hex", "abc", None, 7)),
        *(GOOD | {"nodes": bad} for bad in (None, 5)),
        *(GOOD | {"edges": bad} for bad in (None, 5)),
        *(
            GOOD | {"attributes": bad}
            for bad in any_values(None, [], "all", {"h": None}, {"h": 5}, {"h": ["age"]}, {"h": "some"})
        ),
    ],
)
def test_what_is_no_annex_is_told_in_one_sentence(content: Any) -> None:
    with pytest.raises(gf.InputError, match="^this is no annex of a certificate: ") as caught:
        Annex.from_dict(content)
    assert "\n" not in str(caught.value)


def test_a_request_that_the_graph_cannot_forget_has_no_annex() -> None:
    graph = graph_of(numbers=False)
    for request in (
        gf.Request(nodes=[99]),
        gf.Request(edges=[(0, 99)]),
        gf.Request(attributes={0: ["shoe size"]}),
        gf.Request(attributes={0: [COLUMNS]}),
    ):
        with pytest.raises(gf.InputError):
            Annex.of(graph, request)


def test_an_annex_cannot_be_changed_by_accident() -> None:
    annex = Annex.from_dict(GOOD)
    with pytest.raises(dataclasses.FrozenInstanceError):
        annex.salt = b""  # type: ignore[misc]
