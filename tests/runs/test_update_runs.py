"""Updates of run directories: what was deleted does not come back by itself, and nothing published tells of it."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_two_worlds as worlds
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import graphforget as gf
from cases import CLASSES, COLUMNS, Run, graphs, present, random_graph, requests, weighted
from graphforget.graph.differences import gained
from graphforget.graph.edge_arrays import RELATIONS, edge_arrays
from graphforget.request.hashed_items import HashedItems, beyond
from graphforget.runs import arrays
from graphforget.runs.history import read_history
from graphforget.runs.update import _refuse_deleted
from hetero_cases import random_hetero, random_hetero_request


def write_csv(folder: Path, graph: gf.Graph, *, without: tuple[str, ...] = ()) -> Path:
    """The graph as CSV files, without some people."""
    folder.mkdir(exist_ok=True)
    names, x = present(graph.subject_ids), graph.x.to_dense()
    columns = graph.column_names or [f"c{number}" for number in range(graph.num_columns)]
    with (folder / "nodes.csv").open("w", newline="") as file:
        write = csv.writer(file).writerow
        write(["id", "label", *columns])
        for row, name in enumerate(names):
            label = "" if graph.y[row] < 0 else f"class-{int(graph.y[row])}"
            if name not in without:
                write([name, label, *(repr(float(value)) for value in x[row])])
    with (folder / "edges.csv").open("w", newline="") as file:
        write = csv.writer(file).writerow
        write(["source", "target"])
        for u, v in graph.edge_index.T.tolist():
            if u < v and not {names[u], names[v]} & set(without):
                write([names[u], names[v]])
    return folder


@pytest.fixture
def clinic(tmp_path: Path) -> tuple[Path, Path, gf.Graph]:
    """A folder of records, and a run that was trained on them."""
    plain = random_graph(3, nodes=40, edges=60, unlabelled=0)
    graph = dataclasses.replace(plain, subject_ids=tuple(f"patient-{row:02}" for row in range(40)))
    data = write_csv(tmp_path / "data", graph, without=("patient-38", "patient-39"))
    loaded = gf.load(data)
    return gf.save_run(tmp_path / "run", gf.train(loaded, "sgc"), loaded), data, graph


def test_a_deleted_patient_who_comes_back_in_a_csv_file_is_refused(
    clinic: tuple[Path, Path, gf.Graph], run: Run, tmp_path: Path
) -> None:
    folder, data, graph = clinic
    (tmp_path / "r.json").write_text(json.dumps({"nodes": ["patient-07"], "labels": ["patient-08"]}))
    assert run("unlearn", folder, tmp_path / "r.json", "--in-place", "--id", "1").code == 0
    write_csv(data, graph)  # the source still has the patient, and two new ones
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = run("update", folder, "--data", data, "--in-place")
    assert refused.code == 3
    assert "2 deleted items (1 node, 1 label)" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "patient" not in (folder / "suppressed.json").read_text()

    write_csv(data, dataclasses.replace(graph, y=_unlabelled(graph, 8)), without=("patient-07",))
    done = run("update", folder, "--data", data, "--in-place", "--id", "2", "--json")
    assert done.code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["level"], answer["certificate"]["chosen"]) == ("certified", {"update": True})
    assert run("verify", folder).code == 0
    again = run("update", folder, "--data", data, "--in-place", "--id", "2", "--json")
    assert json.loads(again.stdout)["certificate"] == answer["certificate"]
    assert json.loads(again.stdout)["repeated"]
    ledger = json.loads(run("ledger", folder, "--json").stdout)
    assert [entry["request_id"] for entry in ledger["entries"]] == ["1", "2"]
    assert ledger["releases_left"] == 62


@pytest.mark.parametrize(
    "spell", [str.upper, lambda n: f" {n} ", lambda n: f"{n[:3]}\u200b{n[3:]}", lambda n: f"{n}.0"]
)
def test_another_spelling_of_a_deleted_name_is_refused(spell: Callable[[str], str]) -> None:
    people = tuple(str(row) if spell("1") == "1.0" else f"patient-{row}" for row in range(30))
    graph = dataclasses.replace(random_graph(3, nodes=30, edges=60), subject_ids=people, digit_ids=people[0] == "0")
    u, v = next((u, v) for u, v in graph.edge_index.T.tolist() if u != v and 29 not in (u, v))
    request = gf.Request(nodes=[people[29]], edges=[(people[u], people[v])])
    first = gf.unlearn(gf.train(graph, "sgc"), graph, request)
    respelled = {29, u, v}
    names = tuple(spell(name) if row in respelled else name for row, name in enumerate(people))
    with pytest.raises(gf.Refused, match=r"\(1 node, 1 edge\)"):
        gf.update(first.trained, first.graph, dataclasses.replace(graph, subject_ids=names))


def test_somebody_of_a_similar_name_stays() -> None:
    people = ("Ada", "ADA", *(f"p{row}" for row in range(28)))
    graph = dataclasses.replace(random_graph(3, nodes=30, edges=60, unlabelled=0), subject_ids=people)
    request = gf.Request(nodes=["ADA"], labels=["p3"], attributes={"p4": [1], "p5": "all"})
    first = gf.unlearn(gf.train(graph, "sgc"), graph, request)
    again = gf.update(first.trained, first.graph, first.graph)
    assert again.graph.digest == first.graph.digest
    with pytest.raises(gf.Refused, match=r"\(1 node, 1 attribute row, 1 value, 1 label\)"):
        gf.update(again.trained, again.graph, graph)


def test_ids_that_may_mean_others_need_a_word() -> None:
    plain = random_graph(3, nodes=30, edges=60)
    graph = dataclasses.replace(plain, subject_ids=tuple(f"p{row}" for row in range(30)))
    other = dataclasses.replace(plain, subject_ids=tuple(f"p{row}" if row < 14 else f"q{row}" for row in range(30)))
    trained = gf.train(graph, "sgc")
    with pytest.raises(gf.InputError, match="only 14 of the 30 known subjects"):
        gf.update(trained, graph, other)
    assert gf.update(trained, graph, other, trust_ids=True).graph.num_nodes == 30

    first = gf.unlearn(gf.train(plain, "sgc"), plain, gf.Request(nodes=[29]))
    moved = dataclasses.replace(plain.without(gf.Request(nodes=[3])), numbers=torch.arange(29))  # 29 is now 28
    with pytest.raises(gf.InputError, match="numbered by their rows"):
        gf.update(first.trained, first.graph, moved)
    assert gf.update(first.trained, first.graph, first.graph.without(gf.Request(nodes=[3]))).level == "certified"
    assert gf.update(first.trained, first.graph, first.graph, trust_ids=True).level == "certified"


def _unlabelled(graph: gf.Graph, row: int) -> torch.Tensor:
    y = graph.y.clone()
    y[row] = -1
    return y


def test_a_reason_readmits_and_the_ledger_keeps_it(clinic: tuple[Path, Path, gf.Graph], run: Run) -> None:
    folder, data, graph = clinic
    gf.answer(folder, gf.Request(nodes=["patient-07"], attributes={"patient-09": [1]}))
    write_csv(data, graph)
    moved = folder.parent / "elsewhere"  # the list goes with the run
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    assert run("update", moved, "--data", data, "--in-place").code == 3
    done = run("update", moved, "--data", data, "--in-place", "--readmit", "consent of 3 May", "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["certificate"]["chosen"]["readmit"] == "consent of 3 May"
    shown = run("verify", moved)
    assert shown.code == 0, shown.stderr
    assert "readmitted" in " ".join(shown.stdout.split())
    trained, after = gf.load_run(moved)
    assert after.num_nodes == graph.num_nodes
    assert trained.suppressed is None or trained.suppressed.found_in(after) is None
    gf.answer(moved, gf.Request(nodes=["patient-07"]))  # and can be deleted again, for good
    assert run("verify", moved).code == 0
    assert run("update", moved, "--data", data, "--in-place").code == 3
    assert gf.prove_absence(moved, "patient-07").subject == "patient-07"


def test_only_what_a_request_names_is_readmitted(clinic: tuple[Path, Path, gf.Graph], run: Run) -> None:
    folder, data, graph = clinic
    gf.answer(folder, gf.Request(nodes=["patient-07", "patient-11"], labels=["patient-09"]))
    write_csv(data, graph)
    asked = folder.parent / "back.json"
    how = ("update", folder, "--data", data, "--in-place", "--readmit-request", asked)
    asked.write_text(json.dumps({"nodes": ["patient-07"]}))
    assert run(*how).code == 2  # no reason
    refused = run(*how, "--readmit", "consent")
    assert (refused.code, "2 deleted items (1 node, 1 label)" in refused.stderr) == (3, True)
    asked.write_text(json.dumps({"nodes": ["patient-07", "patient-08"]}))
    strange = run(*how, "--readmit", "consent")
    assert (strange.code, "that no request deleted" in strange.stderr) == (2, True)
    asked.write_text(json.dumps({"nodes": ["patient-07"]}))
    write_csv(data, dataclasses.replace(graph, y=_unlabelled(graph, 9)), without=("patient-11",))
    done = run(*how, "--readmit", "consent")
    assert done.code == 0, done.stderr
    assert "brought back 1 deleted item (1 node)" in " ".join(done.stdout.split())
    write_csv(data, graph)
    assert "2 deleted items (1 node, 1 label)" in run("update", folder, "--data", data, "--in-place").stderr


@pytest.mark.parametrize(
    "reason",
    ["consent of patient-07", "PATIENT - 07 agreed", "see patient-07.pdf", "Patient 07 agreed", "see patient_07"],
)
def test_a_reason_that_names_who_returns_is_bad_input(reason: str, clinic: tuple[Path, Path, gf.Graph]) -> None:
    loaded = gf.load_run(clinic[0])[1]
    first = gf.unlearn(*gf.load_run(clinic[0]), gf.Request(nodes=["patient-07"]))
    with pytest.raises(gf.InputError, match="names somebody") as refused:
        gf.update(first.trained, first.graph, loaded, readmit=reason)
    assert "07" not in str(refused.value)
    assert gf.update(first.trained, first.graph, loaded, readmit="consent of 07 May").certificate.chosen["readmit"]


def test_an_annex_that_readmits_without_a_reason_is_found(clinic: tuple[Path, Path, gf.Graph]) -> None:
    folder = clinic[0]
    loaded = gf.load_run(folder)[1]
    first = gf.unlearn(*gf.load_run(folder), gf.Request(nodes=["patient-07"]))
    grown = gf.update(first.trained, first.graph, loaded, readmit="a reason")
    evidence: dict[str, Any] = {"released": grown.released_theta, "annexes": [first.annex, grown.annex]}
    assert gf.verify(grown.certificate, grown.trained, grown.graph, **evidence)
    silent = dataclasses.replace(grown.certificate, chosen={"update": True})
    with pytest.raises(gf.Mismatch, match="without a reason"):
        gf.verify(silent, grown.trained, grown.graph, **evidence)
    hidden = dataclasses.replace(grown.annex, readmitted=None)
    with pytest.raises(gf.Mismatch):
        gf.verify(
            grown.certificate, grown.trained, grown.graph, released=grown.released_theta, annexes=[first.annex, hidden]
        )


def test_a_run_that_readmitted_is_verified_after_a_refusal_too(
    clinic: tuple[Path, Path, gf.Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The annex of the update is held against its own certificate, not against the refusal after it."""
    _, graph = gf.load_run(clinic[0])
    run = gf.save_run(clinic[0].with_name("floor"), gf.train(graph, "sgc", floor=0.0), graph)
    gf.answer(run, gf.Request(nodes=["patient-07"]))
    gf.update_run(run, graph, readmit="consent of 3 May")
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: -1.0)
    for _ in range(2):
        with pytest.raises(gf.Refused):
            gf.answer(run, gf.Request(nodes=["patient-05"]))
    with pytest.raises(gf.FloorMissed):
        gf.answer(run, gf.Request(nodes=["patient-06"]))
    assert [entry.level for entry in read_history(run).entries] == ["certified"] * 2 + ["refused"] * 2
    assert gf.verify_run(run)


def test_what_an_earlier_version_deleted_is_refused_too(clinic: tuple[Path, Path, gf.Graph]) -> None:
    """Its runs have annexes, and no list of hashes."""
    folder, data, _ = clinic
    gf.answer(folder, gf.Request(nodes=["patient-07"]))
    graph = gf.load_run(folder)[1]
    with pytest.raises(gf.Refused, match="a node that was to be forgotten by a request to an earlier version"):
        _refuse_deleted(read_history(folder), gf.load(data), None)
    _refuse_deleted(read_history(folder), graph, None)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_hashes_know_again_what_comes_back_and_nothing_else(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    if data.draw(st.booleans()):
        graph = weighted(graph, data.draw(st.integers(0, 99)))
    check_hashes(graph, data.draw(requests(graph)))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_search_of_what_a_graph_has_gained_finds_all_that_is_not_in_the_one_before(data: st.DataObject) -> None:
    whole = data.draw(graphs())
    if data.draw(st.booleans()):
        whole = weighted(whole, data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        spelled = [str.upper, str.lower]  # two people of one canonical name
        names = tuple(f"{spelled[row % 2](f'person-{row // 2}')}" for row in range(whole.num_nodes))
        whole = dataclasses.replace(whole, subject_ids=names)
    before, new = (whole.without(data.draw(requests(whole))) for _ in range(2))
    after = before.next_state(new)
    hashed = HashedItems.of(whole, data.draw(requests(whole)))
    there, all_, some = hashed.found_in(before), hashed.found_in(after), hashed.found_in(after, gained(before, after))
    first, second = (found if found is None or there is None else beyond(found, there) for found in (all_, some))
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert first.to_dict() == second.to_dict()


def test_who_comes_back_with_the_number_of_another_one_is_refused() -> None:
    """The last node leaves in the same update, so that a new node gets its number."""
    plain = random_graph(3, nodes=30, edges=60, unlabelled=0)
    graph = dataclasses.replace(plain, subject_ids=tuple(f"p{row}" for row in range(30)))
    u, v = next((u, v) for u, v in graph.edge_index.T.tolist() if u != v and 29 not in (u, v))
    for request in (
        gf.Request([f"p{u}"]),
        gf.Request([f"p{u}"], labels=[f"p{v}"]),
        gf.Request(edges=[_ends(graph, 0)]),
    ):
        first = gf.unlearn(gf.train(graph, "sgc"), graph, request)
        new = graph.without(gf.Request(nodes=["p29"]))
        with pytest.raises(gf.Refused, match="would bring back"):
            gf.update(first.trained, first.graph, new)


def test_an_update_searches_what_the_new_graph_has_gained_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all nodes and edges, which could take longer than the update."""
    graph = weighted(random_graph(3, nodes=40, edges=60), 3, most=0.5)
    graph = dataclasses.replace(graph, subject_ids=tuple(f"p{row}" for row in range(40)))
    request = gf.Request(
        ["p20"], [_ends(graph, 0)], {"p1": "all", "p2": [0]}, labels=["p4"], edge_weights=[_ends(graph, -1)]
    )
    first = gf.unlearn(gf.train(graph, "sgc"), graph, request)
    hashed: list[str] = []
    honest = HashedItems._hash

    def counted(items: HashedItems, kind: str, *parts: str) -> str:
        hashed.append(kind)
        return honest(items, kind, *parts)

    monkeypatch.setattr(HashedItems, "_hash", counted)
    smaller = first.graph.without(gf.Request(nodes=["p30"]))
    gf.update(first.trained, first.graph, smaller)
    assert hashed == []
    x = first.graph.x.to_dense().clone()
    x[first.graph.row("p7"), 1] += 1.0
    gf.update(first.trained, first.graph, dataclasses.replace(first.graph, x=x.to_sparse_csr()))
    assert sorted(hashed) == ["attributes", "holder"]


def _ends(graph: gf.Graph, column: int) -> tuple[int | str, int | str]:
    u, v = graph.edge_index[:, column].tolist()
    return graph.name_of(u), graph.name_of(v)


@pytest.mark.parametrize("seed", range(12))
def test_hashes_know_again_nodes_of_any_type(seed: int) -> None:
    graph = random_hetero(seed, papers=20, directed=seed % 3 == 0, weighted=bool(seed % 2), reverse=seed % 5 == 0)
    check_hashes(graph, random_hetero_request(graph, seed))


def check_hashes(graph: gf.Graph, request: gf.Request) -> None:
    hashed = HashedItems.from_dict(json.loads(json.dumps(HashedItems.of(graph, request).to_dict())))
    after = graph.without(request)
    assert hashed.found_in(after) is None
    found = hashed.found_in(graph)
    if found is None:
        assert after.digest == graph.digest
        return
    assert graph.without(found).digest == after.digest
    assert hashed.without(graph, found).found_in(graph) is None


@pytest.mark.parametrize("large", [False, True])
def test_a_run_of_any_size_grows(large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGE", 0 if large else 2**40)
    whole = random_graph(3, nodes=40, edges=60, sparse=False)
    whole = dataclasses.replace(whole, subject_ids=tuple(f"p{row}" for row in range(40)))
    graph = whole.without(gf.Request(nodes=["p3", "p39"]))
    run = gf.save_run(tmp_path / "run", gf.train(graph, "sgc", mu=1e-2), graph)
    gf.answer(run, gf.Request(nodes=["p38"]))
    outcome = present(gf.update_run(run, whole.without(gf.Request(nodes=["p38"]))).outcome)
    assert gf.load_run(run)[1].digest == outcome.graph.digest
    assert sorted(set(outcome.graph.numbers.tolist()) - set(range(38))) == [38, 39]
    assert gf.load_run(run)[1].free_number == 40
    assert gf.verify_run(run).checks
    gf.answer(run, gf.Request(nodes=["p39"]))
    assert gf.load_run(run)[1].free_number == 40
    assert gf.verify_run(run).checks


def two_pasts(seed: int, kind: str = "plain") -> tuple[gf.Graph, gf.Graph, gf.Graph]:
    """Two graphs that differ in what an update removes and corrects, and the state after it, which is the same.

    Of kind "weights" or "relations", edges have these, and those of one edge are corrected too.
    """
    after = random_graph(seed, nodes=14, edges=24, sparse=bool(seed % 2))
    after = with_edge_array(dataclasses.replace(after, subject_ids=tuple(f"p{row}" for row in range(14))), kind, seed)
    pasts = []
    for world in range(2):
        rng = np.random.default_rng([seed, world])
        x, y = after.x.to_dense().clone(), after.y.clone()
        train, test = after.train_mask.clone(), after.test_mask.clone()
        x[4] = torch.from_numpy(rng.normal(size=COLUMNS))
        y[5] = int(rng.integers(CLASSES))
        train[5], test[5] = True, False
        gone = torch.from_numpy(rng.normal(size=(1, COLUMNS)))
        ends = torch.tensor([[14] * 3, rng.choice(13, size=3, replace=False).tolist()])
        lost = int(rng.integers(0, after.edge_index.shape[1] // 2))
        edges = torch.cat([after.edge_index[:, lost:], ends], dim=1)
        corrected = (edges.sort(dim=0).values == after.edge_index[:, -1].sort().values[:, None]).all(dim=0)
        corrected[-3:] = True
        arrays: dict[str, Any] = {"relation_names": after.relation_names}
        for name, array in edge_arrays(after).items():
            values = torch.cat([array[lost:], array[:1].expand(3)])
            values[corrected] = int(rng.integers(1, 4)) if name == RELATIONS else float(rng.uniform(0.2, 5.0))
            arrays[name] = values
        pasts.append(
            gf.Graph.create(
                x=torch.cat([x, gone]),
                edges=edges,
                y=torch.cat([y, torch.tensor([int(rng.integers(CLASSES))])]),
                train_mask=torch.cat([train, torch.tensor([True])]),
                test_mask=torch.cat([test, torch.tensor([False])]),
                num_classes=CLASSES,
                subject_ids=[*present(after.subject_ids), "gone"],
                sparse=bool(seed % 2),
                **arrays,
            )
        )
    return pasts[0], pasts[1], after


def with_edge_array(graph: gf.Graph, kind: str, seed: int) -> gf.Graph:
    """The graph with weights or relations of its edges, the same in both directions."""
    if kind == "plain":
        return graph
    heavy = weighted(graph, seed, most=0.5)
    if kind == "weights":
        return heavy
    masks = 1 + (1000 * present(heavy.edge_weight)).long() % 3
    return dataclasses.replace(graph, edge_relations=masks, relation_names=("knows", "pays"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "kind"),
    [
        ("sgc", {}, "plain"),
        ("stacked-gcn", {"hidden": 3, "epochs": 3, "parts": 3}, "plain"),
        ("boosted-gcn", {"hidden": 3, "epochs": 3}, "plain"),
        ("gcn", {"hidden": 5, "epochs": 3}, "plain"),
        ("sharded-gcn", {"hidden": 5, "epochs": 3, "shards": 2}, "plain"),
        ("link-sign", worlds.LINKS, "plain"),
        ("sgc", {"sigma": 0.0}, "weights"),
        ("sign", {"hops": 2}, "weights"),
        ("stacked-gcn", {"hidden": 3, "epochs": 3, "parts": 3}, "weights"),
        ("gat", {"hidden": 2, "heads": 2, "epochs": 3}, "weights"),
        ("relational-sign", {}, "relations"),
    ],
)
def test_what_an_update_publishes_is_the_same_in_two_worlds(
    model: str, options: dict[str, Any], kind: str, tmp_path: Path, run: Run
) -> None:
    gf.make_keys(tmp_path / "key")
    for seed in range(3):
        *pasts, after = two_pasts(seed, kind)
        documents = []
        for number, past in enumerate(pasts):
            trained = gf.train(past, model, **options)
            folder = gf.save_run(tmp_path / f"run-{seed}-{number}", trained, past)
            answer = gf.update_run(folder, after, key=gf.private_key(tmp_path / "key"), request_id="update 1")
            outcome = present(answer.outcome)
            weights = load_file(folder / "released.safetensors")
            noised = {"theta"} if trained.recipe.sigma else set()
            noised = set(weights) if outcome.trained.is_boosted else noised  # the network follows the noised weights
            shown = {command: json.loads(run(command, folder, "--json").stdout) for command in ("verify", "ledger")}
            documents.append(
                {
                    "public": outcome.public(),
                    "weights": {name: value.numpy().tobytes() for name, value in weights.items() if name not in noised},
                    "shown": shown,
                    "names": sorted(path.name for path in folder.iterdir()),
                    "sizes": {name: (folder / name).stat().st_size for name in worlds.PUBLIC_FILES},
                }
            )
        assert worlds.differences(documents[0], documents[1]) == [], (seed, model)


def test_the_pasts_of_an_update_differ_and_lead_to_one_state() -> None:
    for kind in ("plain", "weights", "relations"):
        first, second, after = two_pasts(1, kind)
        assert len({first.digest, second.digest, after.digest}) == 3
        assert first.next_state(after).digest == second.next_state(after).digest


@pytest.mark.slow
@pytest.mark.parametrize("model", ["stacked", "gcn", "link-stacked-gcn"])
def test_an_update_does_not_tell_how_many_last_nodes_were_deleted(model: str, tmp_path: Path) -> None:
    name, options, _ = worlds.MODELS[model]
    pairs = (worlds.two_worlds(seed, "nodes") for seed in range(20))
    pair = next(pair for pair in pairs if len(pair[0].request.nodes) != len(pair[1].request.nodes))
    documents = []
    for world in pair:
        kept = world.graph.num_nodes - len(world.request.nodes)
        people = [f"p{row}" if row < kept else f"gone-{row}" for row in range(world.graph.num_nodes)]
        graph = dataclasses.replace(world.graph, subject_ids=tuple(people))
        folder = gf.save_run(tmp_path / f"run-{len(people)}", gf.train(graph, name, **options), graph)
        gf.answer(folder, gf.Request(nodes=people[kept:]), request_id="1")
        outcome = present(gf.update_run(folder, _with_two_more(gf.load_run(folder)[1]), request_id="2").outcome)
        weights = load_file(folder / "released.safetensors")
        noised = {"theta"} if model in worlds.NOISED else set()
        encoders = {key: value.numpy().tobytes() for key, value in weights.items() if key not in noised}
        numbers = outcome.graph.numbers.tolist()
        documents.append({"public": outcome.public(), "encoders": encoders, "numbers": numbers})
    assert worlds.differences(documents[0], documents[1]) == []


def _with_two_more(graph: gf.Graph) -> gf.Graph:
    """The graph with two nodes more, who train."""
    n, trains = graph.num_nodes, torch.tensor([True, True])
    return gf.Graph.create(
        x=torch.cat([graph.x.to_dense(), graph.x.to_dense()[:2] + 1]),
        edges=torch.cat([graph.edge_index, torch.tensor([[n, n + 1, n + 1], [0, 1, 3]])], dim=1),
        y=torch.cat([graph.y, graph.y[:2]]),
        train_mask=torch.cat([graph.train_mask, trains]),
        test_mask=torch.cat([graph.test_mask, ~trains]),
        num_classes=CLASSES,
        subject_ids=[*present(graph.subject_ids), "new-0", "new-1"],
        sparse=graph.has_sparse_attributes,
    )


def two_classes(graph: gf.Graph, labels: dict[int, int] | None = None) -> gf.Graph:
    """The graph with class 1 at these nodes, by default two of them, and class 0 at all others."""
    y = torch.zeros_like(graph.y)
    for row, label in ({3: 1, 5: 1} if labels is None else labels).items():
        y[row] = label
    return dataclasses.replace(graph, y=y, num_classes=2)


@pytest.mark.parametrize("kind", ["CSV", "PyG"])
def test_a_class_may_lose_its_last_member(kind: str, tmp_path: Path, run: Run) -> None:
    """The classes are settings of the model, so new data of one class alone are read with those of the model."""
    graph = two_classes(random_graph(3, nodes=40, edges=60, unlabelled=0))
    graph = dataclasses.replace(graph, subject_ids=tuple(f"p{row}" for row in range(40)))

    def write(some: gf.Graph) -> Path:
        if kind == "CSV":
            return write_csv(tmp_path / "data", some)
        data = some.to_pyg()
        del data.num_classes
        torch.save(data, tmp_path / "data.pt")
        return tmp_path / "data.pt"

    loaded = gf.load(write(graph), split="given")
    folder = gf.save_run(tmp_path / "run", gf.train(loaded, "sgc"), loaded)
    after = two_classes(graph, {})
    data = write(after)
    with pytest.raises(gf.InputError, match="at least 2 are needed"):
        gf.load(data)
    planned = run("update", folder, "--data", data, "--split", "given", "--plan", "--json")
    assert json.loads(planned.stdout)["level"] == "certified", planned.stderr
    other = gf.update_run(folder, str(data), out=tmp_path / "other")
    done = run("update", folder, "--data", data, "--split", "given", "--in-place", "--json")
    assert done.code == 0, done.stderr
    state = gf.load_run(folder)[1]
    assert (state.num_classes, state.class_names) == (2, loaded.class_names)
    assert set(state.y.tolist()) == {0}
    assert present(other.outcome).graph.digest == state.digest
    outcome, anew = present(other.outcome), gf.train(state, "sgc", tolerance=1e-8)
    assert outcome.level == "certified"
    assert float((outcome.centre - anew.theta).norm()) <= present(outcome.certificate.tolerance) + 1e-6
    assert run("verify", folder).code == 0

    strange = write(two_classes(graph, {7: 2}))
    refused = run("update", folder, "--data", strange, "--in-place")
    assert (refused.code, len(refused.stderr.strip().splitlines())) == (2, 1)
    write(graph)
    assert run("update", folder, "--data", data, "--in-place").code == 0  # the class comes back
    assert gf.load_run(folder)[1].y[3] == 1
