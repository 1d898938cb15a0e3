"""Predictions of a released model by the command line, and the certificate's id that goes with a release."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import graphforget as gf
from cases import Run, random_graph, with_targets
from collection_cases import random_collection
from graphforget.runs import released
from graphforget.runs.layout import open_run


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    graph = gf.load("patients")
    return gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)


def test_predictions_are_those_of_the_released_model(patients: Path, run: Run) -> None:
    refused = run("predict", patients)
    assert refused.code == 2
    assert "has not answered any request" in refused.stderr
    gf.answer(patients, gf.Request(nodes=["patient-0017"]))
    released, graph = gf.load_released(patients)
    expected = released.logits(graph).softmax(dim=1)
    rows = list(csv.DictReader(io.StringIO(run("predict", patients).stdout)))
    assert [row["node"] for row in rows] == list(graph.subject_ids or ())
    names = graph.class_names or ()
    for row, probabilities in zip(rows, expected, strict=True):
        assert row["prediction"] == names[int(probabilities.argmax())]
        listed = torch.tensor([float(row[f"probability {name}"]) for name in names])
        torch.testing.assert_close(listed.double(), probabilities, rtol=1e-6, atol=1e-6)
    shown = json.loads(run("predict", patients, "--nodes", "patient-0021", "--nodes", "patient-0003", "--json").stdout)
    assert [row["node"] for row in shown["predictions"]] == ["patient-0021", "patient-0003"]
    assert shown["audience"] == "private"
    assert shown["certificate"] == gf.Certificate.read(patients / "certificate.json").id
    gone = run("predict", patients, "--nodes", "patient-0017")
    assert gone.code == 2
    assert len(gone.stderr.strip().splitlines()) == 1


def test_a_release_carries_the_id_of_its_certificate(patients: Path, run: Run, tmp_path: Path) -> None:
    gf.answer(patients, gf.Request(nodes=["patient-0017"]))
    certificate = gf.Certificate.read(patients / "certificate.json").id
    with safe_open(patients / "released.safetensors", framework="pt") as file:
        assert file.metadata() == {"certificate": certificate}
    assert gf.verify_run(patients).checks
    done = run("export", patients, "--out", tmp_path / "served", "--json")
    assert done.code == 0, done.stderr
    assert torch.load(tmp_path / "served" / "model.pt", weights_only=True)["certificate"] == certificate


def test_weights_and_the_id_of_their_certificate_are_of_one_state(
    patients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service answers rounds in place, whatever else reads the run."""
    gf.answer(patients, gf.Request(nodes=["patient-0017"]))
    asked = iter(["patient-0018", "patient-0021"])

    @contextmanager
    def moves_on(folder: Path) -> Iterator[Path]:
        with open_run(folder) as place:
            yield place
        gf.answer(patients, gf.Request(nodes=[next(asked)]))

    for read in (lambda: gf.predict_run(patients).certificate, lambda: _exported(patients, tmp_path / "served")):
        first = gf.Certificate.read(patients / "certificate.json").id
        with monkeypatch.context() as patch:
            patch.setattr(released, "open_run", moves_on)
            assert read() == first
        assert gf.Certificate.read(patients / "certificate.json").id != first


def _exported(run: Path, folder: Path) -> str:
    content = torch.load(gf.export_released(run, folder) / "model.pt", weights_only=True)
    return str(content["certificate"])


@pytest.mark.parametrize("kind", ["labels", "values", "graphs", "links"])
def test_other_things_are_predicted_too(kind: str, tmp_path: Path, run: Run) -> None:
    graph = random_collection(0) if kind == "graphs" else random_graph(4, nodes=40, edges=60)
    graph = with_targets(graph, kind) if kind in ("labels", "values") else graph
    options: dict[str, Any] = {"test": 0.3, "messages": 0.5, "negatives": 4} if kind == "links" else {}
    trained = gf.train(graph, {"graphs": "graph-sign", "links": "link-sign"}.get(kind, "sgc"), **options)
    folder = gf.save_run(tmp_path / "run", trained, graph)
    gf.answer(folder, gf.Request(nodes=[int(graph.numbers[7])]))
    shown = run("predict", folder, "--json")
    if kind == "links":
        assert shown.code == 2
        assert "the model answers for links, so pairs of nodes are needed" in shown.stderr
        return
    result = json.loads(shown.stdout)
    released, after = gf.load_released(folder)
    assert len(result["predictions"]) == len(released.items(after))
    assert result["item"] == ("graph" if kind == "graphs" else "node")


@pytest.mark.parametrize("model", ["link-sign", "link-stacked-gcn", "link-gcn"])
def test_links_are_predicted_for_pairs(model: str, tmp_path: Path, run: Run) -> None:
    graph = random_graph(4, nodes=40, edges=60)
    split: dict[str, Any] = {"test": 0.3} if model == "link-gcn" else {"test": 0.3, "messages": 0.5, "negatives": 4}
    epochs: dict[str, Any] = {} if model == "link-sign" else {"epochs": 3}
    folder = gf.save_run(tmp_path / "run", gf.train(graph, model, **split, **epochs), graph)
    gf.answer(folder, gf.Request(nodes=[7]))
    (tmp_path / "pairs.csv").write_text("source,target\n5,9\n12,3\n")
    shown = run("predict", folder, "--pairs", "2,4", "--pairs", tmp_path / "pairs.csv")
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    released, after = gf.load_released(folder)
    expected = released.link_logits(after, [(2, 4), (5, 9), (3, 12)])
    assert [(row["source"], row["target"]) for row in rows] == [("2", "4"), ("5", "9"), ("12", "3")]
    listed = torch.tensor([float(row["logit"]) for row in rows])
    torch.testing.assert_close(listed.double(), expected, rtol=1e-6, atol=1e-6)
    for bad in ("2,2", "2", "2,7", "2,4,5", str(tmp_path / "none.csv")):
        refused = run("predict", folder, "--pairs", bad)
        assert refused.code == 2
        assert len(refused.stderr.strip().splitlines()) == 1


def test_pairs_are_for_models_of_links(patients: Path, run: Run) -> None:
    gf.answer(patients, gf.Request(nodes=["patient-0017"]))
    refused = run("predict", patients, "--pairs", "patient-0021,patient-0003")
    assert refused.code == 2
    assert "the model answers for nodes, so it takes no pairs" in refused.stderr
