"""Run directories of stacked and boosted models: what they hold and release, and what cannot be changed unnoticed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import graphforget as gf
from cases import OwnGCN, Run, claim_of, random_graph
from graphforget.certificates.claims.combined import Combined
from graphforget.runs.write import rewrite_checksums
from graphforget.training import encoders
from graphforget.training.state import same_tensors

OPTIONS: dict[str, dict[str, Any]] = {
    "stacked-gcn": {"hidden": 3, "epochs": 3, "parts": 3},
    "boosted-gcn": {"hidden": 3, "epochs": 3},
}
REQUEST = gf.Request(nodes=[4], attributes={6: "all"})


@pytest.fixture(scope="module", params=list(OPTIONS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(name: str, tmp_path: Path) -> Path:
    """A run that has answered one request."""
    graph = random_graph(3, nodes=60, edges=140)
    first = gf.save_run(tmp_path / "first", gf.train(graph, name, **OPTIONS[name]), graph)
    gf.answer(first, REQUEST, out=tmp_path / "second")
    return tmp_path / "second"


def test_a_run_is_read_as_it_was_written(place: Path) -> None:
    trained, graph = gf.load_run(place)
    other = gf.load_run(place.with_name("first"))[0]
    released, _ = gf.load_released(place)
    tensors = load_file(place / "released.safetensors")
    assert torch.equal(released.theta, tensors.pop("theta"))
    assert same_tensors(tensors, trained.released_state)
    assert same_tensors(released.released_state, trained.released_state)
    assert not same_tensors(other.released_state, trained.released_state)
    assert torch.isfinite(released.logits(graph)).all()
    assert not torch.equal(released.logits(graph), trained.logits(graph))


def test_it_is_verified_with_and_without_a_replay(place: Path) -> None:
    plain, replayed = gf.verify_run(place), gf.verify_run(place, replay=True)
    assert any("--replay" in line for line in plain.unchecked)
    assert not any("--replay" in line for line in replayed.unchecked)
    (claim,) = (check.result for check in replayed.checks if check.name == "claim")
    assert "training again gave the same weights, bit for bit" in claim


def test_requests_go_on_from_a_run(place: Path) -> None:
    answer = gf.answer(place, gf.Request(nodes=[7]), request_id="again")
    assert answer.outcome is not None
    assert answer.outcome.level == "certified"
    assert gf.answer(place, gf.Request(nodes=[7]), request_id="again").repeated
    assert gf.verify_run(place, replay=True).checks


def changed(tensors: dict[str, Tensor], name: str, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    return tensors | {name: change(tensors[name])}


CHANGES: dict[str, Callable[[dict[str, Tensor], str], dict[str, Tensor]]] = {
    "another number": lambda tensors, name: changed(tensors, name, lambda value: value + 1e-3),
    "NaN": lambda tensors, name: changed(tensors, name, lambda value: value * float("nan")),
    "another type": lambda tensors, name: changed(tensors, name, lambda value: value.float()),
    "another shape": lambda tensors, name: changed(tensors, name, lambda value: torch.cat([value, value])),
    "missing": lambda tensors, name: {other: value for other, value in tensors.items() if other != name},
    "one more": lambda tensors, name: tensors | {f"{name}.more": torch.zeros(2)},
}


@pytest.mark.parametrize("file", ["weights.safetensors", "released.safetensors"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_tensor_of_an_encoder_or_a_network_can_be_changed(place: Path, file: str, change: str) -> None:
    tensors = load_file(place / file)
    names = [name for name in tensors if "encoders" in name or "network" in name]
    for name in (names[0], names[-1]):
        save_file(CHANGES[change](tensors, name), place / file)
        rewrite_checksums(place)
        with pytest.raises((gf.Mismatch, gf.InputError)):
            gf.verify_run(place)


@pytest.mark.parametrize(
    "option",
    [{"hops": 2}, {"embedding_norm": 0.5}, {"parts": 2}, {"start": "sgc"}, {"hidden": 10**6}, {"parts": 10**9}],
)
def test_options_of_a_run_cannot_be_changed(place: Path, option: dict[str, Any]) -> None:
    content = json.loads((place / "run.json").read_text())
    content["recipe"]["options"] |= option
    (place / "run.json").write_text(json.dumps(content))
    with pytest.raises((gf.Mismatch, gf.InputError)):
        gf.verify_run(place)


def test_who_is_in_a_given_part_is_kept_and_checked(tmp_path: Path) -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, "stacked-gcn", hidden=3, epochs=3, parts={"consented": range(10, 40)})
    run = gf.save_run(tmp_path / "run", trained, graph)
    gf.answer(run, gf.Request(nodes=[12]))
    assert gf.verify_run(run, replay=True).checks
    assert b"member" not in (run / "released.safetensors").read_bytes()
    tensors = load_file(run / "weights.safetensors")
    numbers = tensors["state.member_numbers"]
    assert numbers.tolist() == [number for number in range(10, 40) if number != 12]
    for other in (numbers + 1000, numbers.flip(0), numbers[:-1].clone(), numbers.double()):
        save_file(tensors | {"state.member_numbers": other}, run / "weights.safetensors")
        rewrite_checksums(run)
        with pytest.raises((gf.Mismatch, gf.InputError)):
            gf.verify_run(run)
    parts = tensors["state.member_parts"].clone()
    parts[0] = 7
    save_file(tensors | {"state.member_parts": parts}, run / "weights.safetensors")
    rewrite_checksums(run)
    with pytest.raises((gf.Mismatch, gf.InputError)):
        gf.verify_run(run)


def test_stale_encoders_are_found_by_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who leaves the encoder of a touched part as it is, with an honest head on top."""
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, "stacked-gcn", **OPTIONS["stacked-gcn"])
    with monkeypatch.context() as patch:
        patch.setattr(encoders, "touched_parts", lambda *args, **more: [])
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    given: Any = {"released": outcome.released, "annexes": [outcome.annex]}
    without = gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given)
    assert any("--replay" in line for line in without.unchecked)
    with pytest.raises(gf.Mismatch, match="training again on the retained graph gives other weights"):
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, replay=True, **given)


def test_a_claim_must_be_about_both_parts() -> None:
    graph = random_graph(3, nodes=60, edges=140)
    outcome = gf.unlearn(gf.train(graph, "stacked-gcn", **OPTIONS["stacked-gcn"]), graph, REQUEST)
    parts = claim_of(outcome, Combined).parts
    for claim in (
        parts["head"],
        Combined({"head": parts["head"]}),
        Combined({"encoders": parts["encoders"]}),
        Combined({"encoders": parts["encoders"], "network": parts["head"]}),
        Combined({"encoders": parts["head"], "head": parts["encoders"]}),
    ):
        with pytest.raises(gf.Mismatch):
            gf.verify(dataclasses.replace(outcome.certificate, claim=claim), outcome.trained, outcome.graph)
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph).checks


def test_a_run_of_a_users_module_needs_the_same_construction(tmp_path: Path) -> None:
    graph, model = random_graph(3, nodes=60, edges=140), gf.stacked(OwnGCN, parts=2, epochs=3)
    run = gf.save_run(tmp_path / "run", gf.train(graph, model), graph)
    assert gf.load_run(run, model=model)[0].certifiable
    with pytest.raises(gf.InputError, match=r"give the same gf\.stacked\(\.\.\.\) as model"):
        gf.load_run(run)
    for other in (gf.stacked(OwnGCN, parts=3), gf.stacked(OwnGCN, parts=2, encoder_mu=0.5), gf.boosted(OwnGCN)):
        with pytest.raises(gf.InputError, match="this model is a stacked:"):
            gf.load_run(run, model=other)
    with pytest.raises(gf.InputError, match=r"give the result of gf.stacked or gf.boosted instead"):
        gf.load_run(run, model=model.on(graph))
    with pytest.raises(gf.InputError, match=r"give its name, gf.stacked"):
        gf.train(graph, model.on(graph))


OWN = """
import graphforget as gf
from cases import OwnGCN

model = gf.stacked(OwnGCN, parts=2, epochs=3)


def make():
    return model
"""


def test_a_users_stacked_model_on_the_command_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    graph = random_graph(3, nodes=60, edges=140)
    torch.save(graph.to_pyg(), tmp_path / "graph.pt")
    (tmp_path / "request.json").write_text('{"nodes": [4]}')
    own = ("--module", "own_models:model")
    for arguments in (
        ("train", "--data", "graph.pt", *own, "--out", "one"),
        ("plan", "one", "request.json", "--module", "own_models:make"),
        ("unlearn", "one", "request.json", "--out", "two", *own),
        ("verify", "two", "--replay", *own),
        ("report", "two", "--out", "page.html", *own),
    ):
        ended = run(*arguments, "--json")
        assert ended.code == 0, (arguments, ended.stderr)
    assert run("plan", "one", "request.json").code == 2
    assert "encoders" in run("plan", "one", "request.json", *own).stdout
    exported = run("export", "two", "--out", "served")
    assert (exported.code, (tmp_path / "served").exists()) == (2, False)
    assert "--module" not in exported.stderr  # export has no such option
    both = run("train", "--data", "graph.pt", *own, "--model", "sgc", "--out", "three")
    assert (both.code, (tmp_path / "three").exists()) == (2, False)
    assert "choose one" in both.stderr


def test_modules_are_not_in_run_directories(place: Path) -> None:
    assert all(isinstance(value, Tensor) for value in load_file(place / "weights.safetensors").values())
    assert not any(isinstance(value, nn.Module) for value in json.loads((place / "run.json").read_text()).values())
