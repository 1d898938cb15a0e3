"""Links on the command line: from training to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import graphforget as gf
from cases import Run, RunJson

TRAIN = ("train", "--data", "patients", "--task", "link", "--model", "sign")


@pytest.fixture
def request_file(tmp_path: Path) -> str:
    edge = gf.load("patients").edge_index[:, 0].tolist()
    names = [gf.load("patients").name_of(row) for row in edge]
    content = {"nodes": [gf.load("patients").name_of(17)], "edges": [names], "attributes": [{"node": names[0]}]}
    (tmp_path / "request.json").write_text(json.dumps(content))
    return str(tmp_path / "request.json")


@pytest.mark.slow
def test_links_from_training_to_the_report(tmp_path: Path, run: Run, run_json: RunJson, request_file: str) -> None:
    folder, page = str(tmp_path / "run"), str(tmp_path / "report.html")
    trained = run_json(*TRAIN, "--option", "messages=0.7", "--out", folder)
    assert trained["recipe"]["options"] == {"messages": 0.7, "split_seed": 0}
    assert trained["test_auc"] > 0.8
    assert trained["train_links"] > trained["test_links"] > 50
    plan = run_json("plan", folder, request_file)
    assert plan["item"] == "link"
    assert plan["level"] == "certified"
    assert "training links" in run("plan", folder, request_file).stdout
    outcome = run_json("unlearn", folder, request_file, "--in-place")
    assert outcome["level"] == "certified"
    assert outcome["test_auc"]["released"] > 0.8
    assert run("verify", folder).code == 0
    assert run("report", folder, "--out", page).code == 0
    text = Path(page).read_text()
    assert "AUC" in text
    assert "test nodes" not in text


@pytest.mark.slow
def test_retrained_links_are_replayed(tmp_path: Path, run: Run, run_json: RunJson, request_file: str) -> None:
    folder = str(tmp_path / "run")
    run_json(*TRAIN, "--sigma", "0", "--out", folder)
    outcome = run_json("unlearn", folder, request_file, "--in-place", "--method", "retrain")
    assert outcome["level"] == "exact"
    assert run("verify", folder, "--replay").code == 0


def test_text_of_training_counts_links(run: Run) -> None:
    ran = run(*TRAIN)
    assert ran.code == 0
    assert "training links" in ran.stdout
    assert "training nodes" not in ran.stdout
    assert "test average precision" in ran.stdout


def test_unknown_model_for_links_is_refused(run: Run) -> None:
    ran = run("train", "--data", "patients", "--task", "link", "--model", "wl")
    assert ran.code == 2
    assert "sign" in ran.stderr


def test_a_model_of_another_task_is_named_with_its_task(run: Run) -> None:
    ran = run("train", "--model", "wl")
    assert (ran.code, ran.stderr) == (
        2,
        "graphforget: there is no model 'wl' for nodes, it is for graphs (task 'graph')\n",
    )
