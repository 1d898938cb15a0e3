"""Networks from the command line: retrained, replayed, and never certified by a bound that does not hold."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import pytest

import graphforget as gf
from cases import Run
from graphforget.certificates.annex import weights_digest

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = gf.Request(nodes=["patient-0017"])


@functools.cache
def start() -> tuple[gf.Trained, gf.Graph]:
    graph = gf.load("patients", seed=0)
    return gf.train(graph, "gcn", hidden=4, epochs=30, polish_steps=5), graph


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GCN in `run`, and a request, in the working directory."""
    gf.save_run(tmp_path / "run", *start())
    (tmp_path / "request.json").write_text(json.dumps(REQUEST.to_dict()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_auto_retrains_a_network_and_a_replay_gives_the_same_weights(run: Run, place: Path) -> None:
    ran = run("unlearn", "run", "request.json", "--out", "two", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = json.loads(ran.stdout)
    assert (result["level"], result["certificate"]["claim"]["kind"]) == ("exact", "exact/1")
    assert (result["private"]["method"], result["certificate"]["releases_left"]) == ("retrain", None)
    assert result["certificate"]["chosen"] == {}
    replay = run("verify", "two", "--replay", "--json")
    assert (replay.code, replay.stderr) == (0, "")
    without = run("verify", "two", "--json")
    gaps = [json.loads(ran.stdout)["unchecked"] for ran in (without, replay)]
    assert [gap for gap in gaps[0] if gap not in gaps[1]]  # what the replay has shown
    assert not [gap for gap in gaps[1] if gap not in gaps[0]]


@pytest.mark.slow
def test_the_retrained_network_is_the_one_that_was_never_shown_the_deleted(place: Path) -> None:
    trained, graph = start()
    answered = gf.answer(place / "run", REQUEST)
    assert answered.outcome is not None
    again = gf.train(graph.without(REQUEST), "gcn", hidden=4, epochs=30, polish_steps=5)
    assert answered.outcome.trained.theta.equal(again.theta)
    assert not again.theta.equal(trained.theta)


@pytest.mark.slow
def test_a_weight_that_the_signer_changed_is_caught_by_a_replay_alone(run: Run, place: Path) -> None:
    """Whoever has the key can make every digest fit."""
    private, _ = gf.make_keys(place / "key")
    trained, graph = start()
    done = gf.unlearn(trained, graph, REQUEST)
    theta = done.trained.theta.clone()
    theta[0] += 1e-6
    posing = done.trained.with_weights(theta).measured_on(trained.objective(done.graph))
    digests = dict(done.certificate.digests) | {
        "weights": done.annex.weights(theta),
        "state": done.annex.state(posing.state_summary()),
        "graph": posing.graph_commitment(done.graph),
        "released": weights_digest(theta),
    }
    forged = dataclasses.replace(
        done,
        trained=posing,
        centre=theta,
        released_theta=theta,
        certificate=dataclasses.replace(done.certificate, digests=digests),
    )
    gf.save_outcome(place / "forged", forged, key=gf.private_key(private))
    assert run("verify", "forged", "--key", "key.pub").code == 0
    ran = run("verify", "forged", "--key", "key.pub", "--replay")
    assert (ran.code, ran.stdout) == (1, "")
    assert ran.stderr == "graphforget: does not hold: training again on the retained graph gives other weights\n"


@pytest.mark.parametrize("out", [(), ("--out", "two"), ("--in-place",)], ids=["nowhere", "out", "in place"])
def test_a_bound_that_does_not_hold_is_refused(out: tuple[str, ...], run: Run, place: Path) -> None:
    before = tree(place)
    ran = run("unlearn", "run", "request.json", "--method", "idea", *out, "--json")
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert ran.stderr.startswith("graphforget: the guarantee of 'idea' does not hold here")
    assert tree(place) == before


@pytest.mark.slow
def test_without_a_guarantee_there_is_no_noise_and_the_model_stays_good(run: Run, place: Path) -> None:
    asked = ("unlearn", "run", "request.json", "--method", "idea", "--level", "empirical", "--out", "two")
    ran = run(*asked, "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = json.loads(ran.stdout)
    certificate = result["certificate"]
    assert (result["level"], certificate["claim"]["sigma"], certificate["claim"]["epsilon"]) == ("empirical", 0, None)
    assert certificate["chosen"] == {"method": "idea", "level": "empirical"}
    assert result["private"]["measured"]["refuted"]
    assert result["private"]["measured"]["sigma_needed"] > 1  # which would have ruined it
    assert result["test_micro_f1"]["released"] > start()[0].micro_f1(start()[1]) - 0.05
    assert run("verify", "two").code == 0
    ran = run("verify", "two", "--replay")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "graphforget: a replay is for level 'exact', and this certificate has 'empirical'\n"


def test_a_plan_for_a_network_says_that_it_is_retrained(run: Run, place: Path) -> None:
    ran = run("plan", "run", "request.json", "--json")
    planned = json.loads(ran.stdout)
    assert (planned["audience"], planned["method"], planned["level"]) == ("private", "retrain", "exact")
    assert planned["seconds"] > 0
    assert planned["retrain_seconds"] == start()[0].seconds
    assert planned["releases_left"] is None
    text = " ".join(run("plan", "run", "request.json").stdout.split())
    assert "method retrain best level exact: " in text
    assert f"training took {start()[0].seconds:.2g} s" in text
    assert "releases left not counted" in text
