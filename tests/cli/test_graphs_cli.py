"""The commands on a collection of graphs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cases import Run, RunJson


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Paths and cycles of three to seven nodes in TU format; their class is which of the two they are."""
    place = tmp_path / "shapes"
    place.mkdir()
    rng = np.random.default_rng(0)
    edges, indicator, labels, start = [], [], [], 1
    for graph in range(1, 101):
        size, cycle = int(rng.integers(3, 8)), graph % 2
        nodes = range(start, start + size)
        edges += [(u, u + 1) for u in nodes[:-1]] + [(nodes[-1], nodes[0])] * cycle
        indicator += [graph] * size
        labels.append(cycle)
        start += size
    (place / "SHAPES_A.txt").write_text("".join(f"{u}, {v}\n{v}, {u}\n" for u, v in edges))
    (place / "SHAPES_graph_indicator.txt").write_text("".join(f"{graph}\n" for graph in indicator))
    (place / "SHAPES_graph_labels.txt").write_text("".join(f"{label}\n" for label in labels))
    return place


@pytest.mark.slow
def test_a_graph_is_forgotten_by_commands(folder: Path, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    trained = run_json("train", "--data", str(folder), "--out", str(tmp_path / "run"))
    assert (trained["graphs"], trained["recipe"]["model"]) == (100, "graph-wl")
    assert trained["train_graphs"] + trained["test_graphs"] == 100
    assert trained["test_micro_f1"] == 1.0
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"graphs": [0, 1, 2, 3, 4, 5]}))
    arguments = (str(tmp_path / "run"), str(request))
    plan = run_json("plan", *arguments)
    assert (plan["item"], plan["level"]) == ("graph", "certified")
    shown = run("plan", *arguments).stdout
    assert f"training graphs  {plan['training_nodes']} go" in shown
    answer = run_json("unlearn", *arguments, "--in-place")
    assert answer["level"] == "certified"
    verified = run("verify", tmp_path / "run")
    assert verified.code == 0
    assert run("report", tmp_path / "run", "--out", tmp_path / "page.html").code == 0
    assert "the test graphs" in (tmp_path / "page.html").read_text()
    again = run("unlearn", *arguments, "--in-place")
    assert (again.code, "graph 0 is not in the collection" in again.stderr) == (2, True)


def test_what_a_collection_cannot_do_is_one_sentence(folder: Path, tmp_path: Path, run: Run) -> None:
    refused = run("train", "--data", folder, "--task", "node")
    assert (refused.code, "collection of graphs" in refused.stderr) == (2, True)
    assert run("train", "--data", folder, "--out", tmp_path / "run").code == 0
    audit = run("audit", tmp_path / "run", "--request", "graph:2")
    assert (audit.code, "answers for graphs" in audit.stderr) == (2, True)


def test_epochs_of_a_convex_model_are_refused_by_its_own_name(folder: Path, run: Run) -> None:
    for named in ([], ["--model", "wl"]):
        ran = run("train", "--data", str(folder), *named, "--epochs", "3")
        expected = "graphforget: graph-wl is trained by Newton's method and takes no epochs and no learning rate\n"
        assert (ran.code, ran.stderr) == (2, expected)
