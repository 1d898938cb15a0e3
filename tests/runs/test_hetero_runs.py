"""Run directories and commands on heterogeneous graphs: files, predictions, export, and the two-worlds test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import test_two_worlds as worlds
import torch
from torch_geometric.data import HeteroData

import graphforget as gf
from cases import Run, RunJson
from hetero_cases import TARGET, random_data, random_hetero


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(random_data(4, papers=60, authors=30, reverse=True), tmp_path / "library.pt")
    return tmp_path / "library.pt"


def test_every_command_takes_a_heterogeneous_graph(file: Path, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    trained = run_json("train", "--data", str(file), "--target", TARGET, "--out", str(tmp_path / "run"))
    assert trained["recipe"]["model"] == "relational-sign"
    request = tmp_path / "request.json"
    asked = {
        "nodes": ["author:7", "paper:3"],
        "attributes": [{"node": "author:9", "columns": ["author:1"]}],
        "labels": ["paper:1"],
    }
    request.write_text(json.dumps(asked))
    place = (str(tmp_path / "run"), str(request))
    assert run_json("plan", *place)["level"] == "certified"
    assert run_json("unlearn", *place, "--in-place")["level"] == "certified"
    assert run("verify", tmp_path / "run").code == 0
    assert run("report", tmp_path / "run", "--out", tmp_path / "page.html").code == 0
    answers = run_json("predict", str(tmp_path / "run"))["predictions"]
    assert len(answers) == 59
    assert all(answer["node"].startswith("paper:") for answer in answers)
    refused = run("predict", tmp_path / "run", "--nodes", "author:9")
    assert (refused.code, "is not of type 'paper'" in refused.stderr) == (2, True)
    again = run("unlearn", *place, "--in-place")
    assert (again.code, "node 'author:7' is not in the graph" in again.stderr) == (2, True)
    back = run("update", tmp_path / "run", "--data", file, "--target", TARGET, "--in-place")
    assert (back.code, "deleted" in back.stderr) == (3, True)  # the library still has the author


def test_growth_by_a_command(file: Path, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    run_json("train", "--data", str(file), "--target", TARGET, "--out", str(tmp_path / "run"))
    data: HeteroData = random_data(4, papers=60, authors=30, reverse=True)
    data["author"].x = torch.cat([data["author"].x, torch.ones(1, 2, dtype=torch.float64)])
    edges = data["author", "writes", TARGET].edge_index
    data["author", "writes", TARGET].edge_index = torch.cat([edges, torch.tensor([[30], [0]])], dim=1)
    torch.save(data, tmp_path / "grown.pt")
    arguments = (
        "update",
        str(tmp_path / "run"),
        "--data",
        str(tmp_path / "grown.pt"),
        "--target",
        TARGET,
        "--in-place",
    )
    assert run_json(*arguments)["level"] == "certified"
    assert run("verify", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "it holds a HeteroData, so the target is needed, one of its types ('paper', 'author', 'venue')"),
        (["--target", "reader"], "the target is 'reader', one of the types"),
        (["--target", TARGET, "--model", "sgc"], "the graph has relations, and a SGC takes none: relational-sign does"),
        (["--target", TARGET, "--task", "link"], "relations"),
        (["--target", TARGET, "--option", "target=author"], "option 'target'"),
    ],
)
def test_what_is_not_possible_is_one_sentence(
    arguments: list[str], sentence: str, file: Path, tmp_path: Path, run: Run
) -> None:
    refused = run("train", "--data", file, *arguments, "--out", tmp_path / "run")
    assert (refused.code, sentence in refused.stderr) == (2, True), refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_target_is_for_heterogeneous_data_alone(tmp_path: Path, run: Run) -> None:
    for data in ("patients", tmp_path):
        refused = run("train", "--data", data, "--target", TARGET)
        assert (refused.code, "the target is 'paper'" in refused.stderr) == (2, True)


def test_a_file_with_foreign_values_is_refused(tmp_path: Path, run: Run) -> None:
    data = random_data(0)
    data["author"].x = "not a tensor"
    torch.save(data, tmp_path / "bad.pt")
    refused = run("train", "--data", tmp_path / "bad.pt", "--target", TARGET)
    assert (refused.code, "'x' is not a tensor of its size" in refused.stderr) == (2, True)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_run_is_read_as_it_was_written(weighted: bool, tmp_path: Path) -> None:
    graph = random_hetero(1, papers=30, weighted=weighted)
    outcome = gf.unlearn(gf.train(graph), graph, gf.Request(nodes=["author:2"]))
    gf.save_outcome(tmp_path / "run", outcome)
    trained, read = gf.load_run(tmp_path / "run")
    assert (read.digest, read.relation_names) == (outcome.graph.digest, graph.relation_names)
    assert torch.equal(trained.theta, outcome.trained.theta)
    again = gf.unlearn(trained, read, gf.Request(nodes=["author:3"]))
    assert again.level == "certified"


def test_the_exported_module_runs_where_this_package_is_not(tmp_path: Path) -> None:
    graph = random_hetero(1, papers=30)
    outcome = gf.unlearn(gf.train(graph), graph, gf.Request(nodes=["author:2"]))
    gf.save_outcome(tmp_path / "run", outcome)
    folder, after = gf.export_released(tmp_path / "run", tmp_path / "served"), outcome.graph
    case = after.x.to_dense().double(), after.edge_index, after.edge_relations, outcome.released.logits(after)
    torch.save(case, tmp_path / "case.pt")
    code = (
        "import sys, torch, released_model\n"
        "x, edges, relations, expected = torch.load(sys.argv[1])\n"
        "module = released_model.load('model.pt')\n"
        "assert torch.allclose(module(x, edges, edge_relations=relations), expected, rtol=1e-9, atol=1e-9)\n"
        "assert not any(name.startswith('graphforget') for name in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "case.pt")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


# -- two worlds ------------------------------------------------------------------------------------------------------

MODELS = {
    "relational-sign": ("relational-sign", {}, []),
    "retrained": ("relational-sign", {}, ["--method", "retrain"]),
    "without noise": ("relational-sign", {"sigma": 0.0}, []),
}


def two_libraries(seed: int) -> tuple[worlds.World, worlds.World]:
    """With the same retained graph. Authors and venues go with any attributes and papers, and values and edges."""
    populations = []
    for world in range(2):
        own = np.random.default_rng([seed, world])
        data = random_data(seed, weighted=bool(seed % 2))
        more = int(own.integers(1, 4))  # venues, which are the last nodes
        data["venue"].num_nodes = 3 + more
        held = data[TARGET, "in", "venue"]
        count = int(own.integers(0, 6))
        new = np.unique(np.stack([own.integers(12, size=count), 3 + own.integers(more, size=count)]), axis=1)
        held.edge_index = torch.cat([held.edge_index, torch.from_numpy(new)], dim=1)
        data["author"].x[[0, 1, 6, 7]] = torch.from_numpy(own.normal(size=(4, 2)))
        written = data["author", "writes", TARGET]
        stays = written.edge_index[0] < 6
        of_gone = np.unique(np.stack([6 + own.integers(2, size=6), own.integers(12, size=6)]), axis=1)
        written.edge_index = torch.cat([written.edge_index[:, stays], torch.from_numpy(of_gone)], dim=1)
        cited = data[TARGET, "cites", TARGET]
        known = {tuple(edge) for edge in cited.edge_index.T.tolist()}
        pairs = sorted({(u, v) for u in range(12) for v in range(u + 1, 12)} - known)
        gone = [pairs[place] for place in own.choice(len(pairs), size=int(own.integers(0, 3)), replace=False)]
        cited.edge_index = torch.cat([cited.edge_index, torch.tensor(gone, dtype=torch.int64).view(-1, 2).T], dim=1)
        if seed % 2:
            of_stays, of_new = written.edge_weight[stays], torch.from_numpy(own.uniform(0.5, 2, of_gone.shape[1]))
            written.edge_weight = torch.cat([of_stays, of_new])
            held.edge_weight = torch.cat([held.edge_weight, torch.from_numpy(own.uniform(0.5, 2, new.shape[1]))])
            cited.edge_weight = torch.cat([cited.edge_weight, torch.from_numpy(own.uniform(0.5, 2, len(gone)))])
        graph = gf.Graph.from_hetero(data, target=TARGET)
        named = [(f"paper:{u}", f"paper:{v}") for u, v in gone]
        nodes = ["author:6", "author:7", *(f"venue:{3 + place}" for place in range(more))]
        populations.append(worlds.World(graph, gf.Request(nodes, named, {"author:0": "all", "author:1": "all"})))
    first, second = populations
    assert first.graph.without(first.request).digest == second.graph.without(second.request).digest
    return first, second


def check(seed: int, model: str, tmp_path: Path, run: Run) -> None:
    gf.make_keys(tmp_path / f"key-{seed}")
    documents = []
    for number, world in enumerate(two_libraries(seed)):
        place = tmp_path / f"{seed}-{number}"
        place.mkdir()
        documents.append(worlds.published(world, place, model, run, tmp_path / f"key-{seed}"))
    assert worlds.differences(documents[0], documents[1]) == [], (seed, model)


@pytest.fixture
def models_of_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "MODELS", MODELS)
    monkeypatch.setattr(worlds, "NOISED", ("relational-sign", "retrained"))


@pytest.mark.usefixtures("models_of_worlds")
@pytest.mark.parametrize("model", MODELS)
def test_what_is_published_is_the_same_in_two_worlds(model: str, tmp_path: Path, run: Run) -> None:
    for seed in range(2):
        check(seed, model, tmp_path, run)


@pytest.mark.long
@pytest.mark.usefixtures("models_of_worlds")
@pytest.mark.parametrize("model", MODELS)
def test_what_is_published_is_the_same_in_many_pairs_of_worlds(model: str, tmp_path: Path, run: Run) -> None:
    for seed in range(100, 120):
        check(seed, model, tmp_path, run)
