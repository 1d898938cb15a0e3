"""Rows of the certified models in every table: their cells by direct calls, and where their numbers stand."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from graphforget.audits.attributes import blanked_loss
from graphforget.experiments import (
    figure_bounds,
    figure_time,
    table_attacks,
    table_attributes,
    table_edge_time,
    table_noise,
    table_seconds,
    timing,
)
from graphforget.experiments.bases import base, f1_percent, f1_percent_with_noise
from graphforget.experiments.cells import Cell, Record, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.registry import NAMES
from graphforget.experiments.registry import experiment as experiment_of
from graphforget.experiments.settings import CERTIFIED, TITLES
from graphforget.experiments.table import MISSING, Table
from graphforget.request.sampling import Drawing, draw_request

pytestmark = pytest.mark.usefixtures("one_thread")

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
PRIVACY: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
WITH_PEERS = {"table-attacks": {"cora"}, "table-attributes": {"cora"}}  # datasets where SGC's cell holds all methods
OTHER_MODELS = ("sign", "stacked-gcn")

near = functools.partial(pytest.approx, rel=1e-9)


def key_of(cell: Cell) -> dict[str, Any]:
    """The key of a cell, with the model where it is left out because all cells are of SGC."""
    implied = "model" not in cell.key and (cell.key.get("method") == "newton" or "size" in cell.key)
    return ({"model": "sgc"} if implied else {}) | cell.key


@pytest.mark.parametrize("name", [name for name in NAMES if name != "table-datasets"])
def test_every_table_has_cells_of_every_certified_model(name: str) -> None:
    """On each of its datasets of nodes, with three seeds each."""
    cells = [key_of(cell) for cell in experiment_of(name).cells(quick=False, seeds=3)]
    of_nodes = [key for key in cells if key.get("part") not in ("link", "graph")]
    for data in {str(key["data"]) for key in of_nodes}:
        for model in CERTIFIED:
            if model == "sgc" and data in WITH_PEERS.get(name, ()):
                continue
            seeds = {key["seed"] for key in of_nodes if (key.get("model"), key["data"]) == (model, data)}
            assert seeds == {0, 1, 2}, (data, model)


@pytest.mark.parametrize("name", NAMES)
def test_published_cells_are_cells_of_the_experiments(name: str) -> None:
    """Further rows take nothing away from what was computed."""
    path = RESULTS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"nothing of {name} is computed yet")
    record = Record(path, recipe=experiment_of(name).recipe)
    assert len(record.rows(experiment_of(name).cells(quick=False, seeds=3))) == len(record.rows())


# -- cells by direct calls ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return gf.load("patients", seed=0)


@pytest.fixture(scope="module", params=OTHER_MODELS)
def trained(request: pytest.FixtureRequest, graph: gf.Graph, one_thread: None) -> gf.Trained:
    return gf.train(graph, request.param, seed=0, recipe="paper")


def key(trained: gf.Trained, **more: Any) -> dict[str, Any]:
    return {"part": "certified", "model": trained.recipe.model, "data": "patients", "seed": 0} | more


def watched(monkeypatch: pytest.MonkeyPatch) -> list[gf.Outcome]:
    """The outcomes of Newton's steps that a cell asks for."""
    outcomes: list[gf.Outcome] = []
    unlearn = gf.unlearn

    def watching(*given: Any, method: str, **options: Any) -> gf.Outcome:
        outcome = unlearn(*given, method=method, **options)
        outcomes.extend([outcome] if method == "newton" else [])
        return outcome

    monkeypatch.setattr(gf, "unlearn", watching)
    return outcomes


def test_noise_cells_hold_the_release_and_a_retraining_without_noise(trained: gf.Trained, tmp_path: Path) -> None:
    row = table_noise.certified(store=tmp_path, **key(trained))
    trained, graph = base(tmp_path, "patients", trained.recipe.model, 0)
    edges = draw_request(graph, Drawing("edges", share=0.05), seed=0)
    newton = gf.unlearn(trained, graph, edges, method="newton", **PRIVACY)
    retrained = gf.unlearn(trained, graph, edges, method="retrain")
    assert row["level"] == newton.level == "certified"
    assert row["sigma measured"] == trained.recipe.sigma
    assert row["sigma smallest"] <= trained.recipe.sigma
    assert row["distance"] == newton.measured["distance"]
    score = f1_percent_with_noise(newton.trained, newton.centre, newton.graph, sigma=trained.recipe.sigma)
    assert row["f1 measured"] == near(score)
    assert row["retrain"] == near(f1_percent(retrained.trained, retrained.graph))


def test_attribute_cells_hold_the_loss_of_the_released_model(
    trained: gf.Trained, graph: gf.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = watched(monkeypatch)
    row = table_attributes.certified(store=tmp_path, share=0.5, **key(trained))
    (newton,) = outcomes
    assert newton.certificate.epsilon == 1.0
    assert newton.released.noise == trained.recipe.sigma
    asked, rows = table_attributes._request(graph, 0.5, seed=0)
    blanked = graph.without(asked)
    retrained = gf.unlearn(trained, graph, asked, method="retrain").trained
    for name, model in (("nothing", trained), ("retrain", retrained), ("newton", newton.released)):
        loss = blanked_loss(model.logits(blanked)[rows], graph.y[rows])
        assert row[f"true {name}"] == near(loss.true)
        assert row[f"published {name}"] == near(loss.as_published)
    assert row["true before"] == near(blanked_loss(trained.logits(graph)[rows], graph.y[rows]).true)


@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_attack_cells_attack_the_released_model(
    trained: gf.Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("on_nodes", "on_edges"):
        monkeypatch.setattr(table_attacks, name, lambda *given, seed, name=name: {"attack": name, "given": given})
    outcomes = watched(monkeypatch)
    row = table_attacks.certified(store=tmp_path, kind=kind, **key(trained))
    models, _, request = row["given"]
    assert row["attack"] == f"on_{kind}"
    assert (len(request.nodes), len(request.edges)) == ((25, 0) if kind == "nodes" else (0, 107))
    assert list(models) == ["before", "nothing", "retrain", "newton"]
    assert torch.equal(models["before"].theta, trained.theta)
    assert models["newton"] is outcomes[0].released
    assert outcomes[0].certificate.epsilon == 1.0


def test_bound_cells_hold_the_optimum(trained: gf.Trained, tmp_path: Path) -> None:
    row = figure_bounds.certified_cell(store=tmp_path, share=0.05, **key(trained))
    assert row["level"] == "certified"
    assert 0 < row["actual"] <= row["measured"] < row["nothing"] / 10


def test_time_cells_time_a_certified_release(
    trained: gf.Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "REPEATS", 1)
    outcomes = watched(monkeypatch)
    rows = [
        table_edge_time.certified(store=tmp_path, share=0.05, **key(trained)),
        figure_time.certified(store=tmp_path, share=0.05, **key(trained)),
        table_seconds.certified(store=tmp_path, size="one node", **key(trained)),
    ]
    assert {row["level"] for row in rows} == {"certified"}
    assert {outcome.trained.recipe.model for outcome in outcomes} == {trained.recipe.model}
    assert rows[0]["seconds"] == outcomes[1].seconds  # the first is a warm-up
    assert rows[1]["seconds"] == outcomes[3].seconds
    assert rows[2]["newton"] == outcomes[5].seconds
    assert rows[2]["retrain"] > 0
    assert rows[2]["loose"] > 0


# -- where their numbers stand -----------------------------------------------------------------------------------------


def _line(table: Table, *head: str) -> list[str]:
    (line,) = [line for line in table.texts if line[: len(head)] == list(head)]
    return line


def _row(model: str, **more: Any) -> Row:
    return {"part": "certified", "model": model, "seed": 0} | more


@pytest.mark.parametrize("model", OTHER_MODELS)
def test_numbers_of_certified_cells_stand_in_rows_of_their_own(model: str) -> None:
    title = TITLES[model]
    noise = table_noise.table([_row(model, data="cora", **{"f1 measured": 87.5, "retrain": 88.5})])
    assert _line(noise, title, "measured (certified, Newton)")[2] == "87.5*"
    assert _line(noise, title, "re-training, no noise")[2] == "88.5*"
    assert _line(noise, "SGC", "measured (certified, Newton)")[2] == MISSING
    losses = {"true newton": 0.25, "published newton": 1.25, "true retrain": 0.75}
    attributes = table_attributes.table([_row(model, data="citeseer", share=0.5, **losses)])
    assert _line(attributes, f"CiteSeer, {title}", "certified (Newton)", "true loss")[3:] == [MISSING, "0.25*", MISSING]
    assert _line(attributes, f"CiteSeer, {title}", "certified (Newton)", "double softmax")[4] == "1.25*"
    assert _line(attributes, "CiteSeer, GCN", "re-training", "true loss")[4] == MISSING
    attacks = table_attacks.table([_row(model, data="cs", kind="edges", **{"paper newton": 91.0, "honest newton": 55})])
    assert _line(attacks, f"CS, {title}", "certified (Newton)")[2:] == [MISSING, MISSING, "91.0*", "55.0*"]
    assert all(text.startswith(MISSING) for text in _line(attacks, "CS, GCN", "re-training")[2:])
    bounds = figure_bounds.table([_row(model, data="cora", share=0.05, measured=0.5, actual=0.25)])
    assert _line(bounds, title, "Cora", "5 %")[bounds.columns.index("measured")] == "0.5*"
    assert bounds.bars[1].met
    times = _row(model, share=0.01, seconds=1.5, load=0.5)
    assert _line(table_edge_time.table([times | {"data": "cs"}]), f"certified {title} (Newton)")[2] == "1.5*"
    assert _line(figure_time.table([times | {"data": "cora"}]), f"certified {title} (Newton)")[2] == "1.5*"
    release = _row(model, data="cora", size="one node", newton=0.5, retrain=2.0, loose=1.0, level="certified")
    entries = _line(table_seconds.table([release]), title, "Cora", "one node")[3:]
    assert entries == ["0.5*", "2*", "1*", MISSING, "4*", "2*", "certified"]


def test_a_blind_attack_on_a_certified_model_names_the_model() -> None:
    blind = _row("sign", data="cora", kind="nodes", **{"paper nothing": 50.0, "paper retrain": 50.0})
    assert table_attacks.table([blind]).notes[-1].endswith("Cora, SIGN, nodes, paper protocol, seed 0.")


@pytest.mark.parametrize("name", ["table-noise", "figure-bounds", "figure-time", "table-seconds"])
def test_figures_draw_without_the_cells_of_the_paper(name: str) -> None:
    """Cells come in any order, and the certified ones may be the only ones."""
    experiment: Experiment = experiment_of(name)
    first = next(cell for cell in experiment.cells(quick=False, seeds=1) if cell.key.get("part") == "certified")
    values = {"measured": 0.5, "actual": 0.25, "seconds": 1.0, "newton": 1.0, "retrain": 2.0, "loose": 1.0}
    row = first.key | values | {"level": "certified", "share": first.key.get("share", 0.01), "load": 0.5}
    assert experiment.figure is not None
    assert experiment.figure([row]) is not None
    json.dumps(experiment.table([row]).to_dict(), allow_nan=False)
