"""Runs of models that predict labels or values: files, tampering, replay, and every command on CSV files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import graphforget as gf
from cases import Run, RunJson, random_graph, with_targets
from graphforget.runs.layout import DamagedRun
from graphforget.runs.write import rewrite_checksums

KINDS = ("labels", "values")


def people(kind: str) -> gf.Graph:
    return with_targets(random_graph(3, nodes=40, edges=60), kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_a_run_is_saved_answered_and_replayed(kind: str, model: str, tmp_path: Path) -> None:
    graph = people(kind)
    options: Any = {} if model == "sgc" else {"hidden": 3, "epochs": 2, "polish_steps": 0}
    gf.save_run(tmp_path / "run", gf.train(graph, model, **options), graph)
    loaded, again = gf.load_run(tmp_path / "run")
    assert again.digest == graph.digest
    assert again.y.dtype == graph.y.dtype
    assert loaded.recipe.loss == {"labels": "logistic", "values": "squared_error"}[kind]
    answered = gf.answer(tmp_path / "run", gf.Request(nodes=[4], attributes={6: [1]}), out=tmp_path / "after")
    assert answered.outcome is not None
    assert answered.outcome.level == ("certified" if model == "sgc" else "exact")
    checks = {check.name for check in gf.verify_run(tmp_path / "after", replay=model != "sgc").checks}
    assert "claim" in checks
    _, retained = gf.load_run(tmp_path / "after")
    assert retained.digest == graph.without(gf.Request(nodes=[4], attributes={6: [1]})).digest


def flip(y: Tensor) -> Tensor:
    y = y.clone()
    y[0] = 1 - y[0]
    return y


TAMPERED: dict[str, Callable[[Tensor], Tensor]] = {
    "another target": flip,
    "float32": lambda y: y.float(),
    "int32": lambda y: y.nan_to_num().int(),
    "one column less": lambda y: y[:, :1].contiguous(),
    "one row less": lambda y: y[1:].contiguous(),
    "flat": lambda y: y.flatten(),
    "seven": lambda y: torch.full_like(y, 7),
    "no target": lambda y: torch.full_like(y, -1) if y.dtype == torch.int8 else torch.full_like(y, torch.nan),
    "classes": lambda y: torch.zeros(len(y), dtype=torch.int64),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_targets_are_refused(kind: str, change: str, tmp_path: Path) -> None:
    graph = people(kind)
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    tensors = load_file(tmp_path / "run" / "graph.safetensors")
    tensors["y"] = TAMPERED[change](tensors["y"])
    save_file(tensors, tmp_path / "run" / "graph.safetensors")
    rewrite_checksums(tmp_path / "run")
    with pytest.raises(DamagedRun) as caught:
        gf.load_run(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_loss_for_other_targets_is_refused(tmp_path: Path) -> None:
    """A run whose recipe was changed to a loss that cannot have trained it."""
    graph = people("labels")
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    for name in ("squared_error", "cross_entropy", "one_vs_rest"):
        content["recipe"]["loss"] = name
        path.write_text(json.dumps(content))
        with pytest.raises(DamagedRun):
            gf.load_run(tmp_path / "run")


# -- commands ----------------------------------------------------------------------------------------------------------


def written(folder: Path, kind: str) -> Path:
    """A folder with the columns of docs/data.md."""
    rng = np.random.default_rng(1)
    header = {"labels": "label:ill,label:old", "values": "target:dose,target:days"}[kind]
    x = rng.normal(size=(60, 3))
    z = x @ rng.normal(size=(3, 2)) * 0.4
    targets = (z > 0).astype(int) if kind == "labels" else z
    rows = [f"p{i},{targets[i, 0]},{targets[i, 1]},{x[i, 0]},{x[i, 1]},{x[i, 2]}" for i in range(60)]
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join([f"id,{header},a,b,c", *rows]) + "\n")
    ends = rng.integers(0, 60, size=(40, 2))
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"p{u},p{v}" for u, v in ends)]) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_command_names_the_scores_of_the_targets(kind: str, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    data, folder = written(tmp_path / "data", kind), tmp_path / "run"
    names = {"labels": ("micro-F1", "macro-F1"), "values": ("R2", "RMSE")}[kind]
    keys = {"labels": ("test_micro_f1", "test_macro_f1"), "values": ("test_r2", "test_rmse")}[kind]
    ended = run("train", "--data", data, "--model", "sign", "--out", folder)
    assert ended.code == 0, ended.stderr
    assert all(f"test {name}" in ended.stdout for name in names)
    assert "can be certified" in ended.stdout
    request = tmp_path / "request.json"
    request.write_text(json.dumps(gf.Request(nodes=["p7"], attributes={"p9": ["a"]}).to_dict()))
    assert run("plan", folder, request).code == 0
    result = run_json("unlearn", str(folder), str(request), "--out", str(tmp_path / "after"))
    assert result["level"] == "certified"
    assert all(isinstance(result[key]["released"], float) for key in keys)
    assert ("test_micro_f1" in result) == (kind == "labels")
    shown = run("unlearn", folder, request, "--out", tmp_path / "again").stdout
    assert all(f"test {name}" in shown for name in names)
    assert run("verify", tmp_path / "after").code == 0
    assert run("report", tmp_path / "after", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert f"The {names[0]} of the predictions for the test nodes" in page
    assert "classified correctly" not in page
    compared = run("compare", "--data", data, "--model", "sgc", "--request", "node:2", "--methods", "newton,no_op")
    assert compared.code == 0, compared.stderr
    assert {"labels": "F1 of the private", "values": "R2 of the private"}[kind] in compared.stdout
    audited = run("audit", folder, "--request", request)
    assert audited.code != 0
    assert f"the graph has {kind}" in audited.stderr


def test_a_network_of_values_is_replayed_by_the_command(tmp_path: Path, run: Run) -> None:
    data, folder = written(tmp_path / "data", "values"), tmp_path / "run"
    assert run("train", "--data", data, "--model", "gcn", "--epochs", "3", "--out", folder).code == 0
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"nodes": ["p7"]}))
    assert run("unlearn", folder, request, "--in-place").code == 0
    verified = run("verify", folder, "--replay")
    assert verified.code == 0, verified.stderr
