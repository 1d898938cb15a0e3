"""What a run may release: how many times, not under its floor, and each request once."""

from __future__ import annotations

import functools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import graphforget as gf
from cases import Run, RunJson
from graphforget.privacy.gaussian import epsilon_of, release_ratio
from graphforget.privacy.noise import with_noise
from graphforget.runs.history import read_history
from graphforget.runs.layout import CERTIFICATE, LEDGER, OUTCOME, RELEASED

pytestmark = pytest.mark.usefixtures("one_thread")
SIGMA = gf.MODELS["sgc"].sigma


@functools.cache
def start(model: str = "sgc", **settings: Any) -> tuple[gf.Trained, gf.Graph]:
    graph = gf.load("patients", seed=0)
    return gf.train(graph, model, **settings), graph


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Requests for one patient each, in an empty working directory."""
    for number in (1, 2, 3, 4):
        (tmp_path / f"{number}.json").write_text(json.dumps({"nodes": [f"patient-0{number}00"]}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(place: Path, model: str = "sgc", **settings: Any) -> Path:
    return gf.save_run(place / "run", *start(model, **settings))


class Noise:
    """The noise of releases, counted; while it is `bad`, it turns every answer of the model around."""

    def __init__(self) -> None:
        self.draws, self.bad = 0, False
        self.seed: int | None = None  # None: from the operating system

    def __call__(self, centre: Tensor, *, sigma: float, seed: int | None = None) -> Tensor:
        self.draws += 1
        noised = with_noise(centre, sigma=sigma, seed=self.seed if seed is None else seed)
        return -noised if self.bad else noised


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Noise:
    counted = Noise()
    monkeypatch.setattr("graphforget.unlearning.release.with_noise", counted)
    return counted


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- the floor -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_release_under_the_floor_is_refused_and_counted(
    run: Run, run_json: RunJson, place: Path, noise: Noise
) -> None:
    folder = saved(place, floor=0.9)
    noise.bad = True
    weights = (folder / "weights.safetensors").read_bytes()
    ran = run("unlearn", "run", "1.json", "--in-place", "--id", "one", "--json")
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr == (
        "graphforget: the released model scores under the floor 0.9, so nothing was released, "
        "and this counts as a release: to go on, train the model again, with a smaller sigma or a lower floor\n"
    )
    assert noise.draws == 1
    assert not [name for name in (CERTIFICATE, OUTCOME, RELEASED) if (folder / name).exists()]
    assert (folder / "weights.safetensors").read_bytes() == weights
    trained, graph = gf.load_run(folder)
    assert graph.digest == start()[1].digest
    assert trained.releases_left == 63
    ledger = run_json("ledger", "run")
    (entry,) = ledger["entries"]
    assert (entry["level"], entry["request_id"], ledger["releases_left"]) == ("refused", "one", 63)
    assert entry["ratio"] == release_ratio(epsilon=1, delta=1e-5, releases=64)
    assert ledger["composed"]["epsilon"] == epsilon_of(ratio=entry["ratio"], delta=1e-5) > 0
    assert run_json("plan", "run", "1.json")["releases_left"] == 63
    ran = run("verify", "run")  # there is nothing to verify, and nothing that fails
    assert (ran.code, ran.stderr.count("\n")) == (2, 1)
    assert "nothing was released" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("again", [("--id", "one"), ("--id", "two"), ()], ids=["same id", "another id", "no id"])
@pytest.mark.parametrize("out", [("--in-place",), ("--out", "new")], ids=["in place", "elsewhere"])
def test_a_refused_request_is_refused_again_without_new_noise(
    again: tuple[str, ...], out: tuple[str, ...], run: Run, place: Path, noise: Noise
) -> None:
    saved(place, floor=0.9)
    noise.bad = True
    assert run("unlearn", "run", "1.json", "--in-place", "--id", "one").code == 3
    noise.bad = False  # the next draw would do
    before = tree(place)
    ran = run("unlearn", "run", "1.json", *out, *again)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert ran.stderr.startswith("graphforget: this request was refused before: the released model scores under")
    assert noise.draws == 1
    assert tree(place) == before


@pytest.mark.slow
def test_another_request_goes_on_after_a_refusal(run: Run, run_json: RunJson, place: Path, noise: Noise) -> None:
    """First the refusal, then a release, then another refusal, then another release."""
    folder = saved(place, floor=0.9)
    gf.make_keys(place / "key")
    signed = ("--in-place", "--key", "key")
    left = 64
    for number in (1, 2, 3, 4):
        noise.bad = number % 2 == 1
        before = tree(folder)
        ran = run("unlearn", "run", f"{number}.json", *signed, "--id", str(number))
        assert ran.code == (3 if noise.bad else 0)
        left -= 1
        assert run_json("ledger", "run")["releases_left"] == left
        if noise.bad:
            kept = {name: content for name, content in tree(folder).items() if name in (CERTIFICATE, OUTCOME, RELEASED)}
            assert kept == {name: before[name] for name in kept}
        if number == 1:
            continue
        verified = gf.verify_run(folder, key=gf.public_key(place / "key.pub"), head=read_history(folder).head)
        assert {"signature", "weights", "claim", "noise", "deleted data", "ledger"} <= {c.name for c in verified.checks}
        assert run("report", "run", "--out", "page.html", "--key", "key.pub").code == 0
    entries = read_history(folder).entries
    assert [entry.level for entry in entries] == ["refused", "certified"] * 2
    assert len({entry.signer for entry in entries}) == 1
    assert entries[0].signer is not None
    assert gf.Certificate.read(folder / CERTIFICATE).releases_left == 60
    _, graph = gf.load_run(folder)
    assert graph.subject_ids is not None
    assert {f"patient-0{number}00" in graph.subject_ids for number in (1, 3)} == {True}
    assert {f"patient-0{number}00" in graph.subject_ids for number in (2, 4)} == {False}
    assert "refused" in run("ledger", "run").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counted", "mismatch"),
    [
        (0, "the model does not count a release that was refused"),
        (1, "the certificate has 63 releases left, the model"),
    ],
)
def test_a_refusal_that_is_not_counted_is_caught(
    counted: int, mismatch: str, run: Run, place: Path, noise: Noise
) -> None:
    folder = saved(place, floor=0.9)
    assert run("unlearn", "run", "1.json", "--in-place").code == 0
    noise.bad = True
    assert run("unlearn", "run", "2.json", "--in-place").code == 3
    content = json.loads((folder / "run.json").read_text())
    assert len(content["releases"]) == 2
    (folder / "run.json").write_text(json.dumps(content | {"releases": content["releases"][:counted]}))
    ran = run("verify", "run")
    assert (ran.code, mismatch in ran.stderr, ran.stderr.count("\n")) == (1, True, 1)
    before = tree(place)
    assert run("unlearn", "run", "3.json", "--in-place").code == 1
    assert tree(place) == before


@pytest.mark.slow
def test_a_floor_that_is_met_changes_nothing(run_json: RunJson, place: Path, noise: Noise) -> None:
    noise.seed = 7
    answers = []
    for floor in (None, 0.9):
        folder = saved(place, floor=floor)
        answers.append(run_json("unlearn", "run", "1.json", "--in-place", "--id", "one"))
        assert gf.verify_run(folder).checks
        shutil.rmtree(folder)
    for answer, floor in zip(answers, (None, 0.9), strict=True):
        certificate = answer["certificate"]
        assert certificate["settings"].pop("floor") == floor
        for name in ("id", "made"):
            del certificate[name]
        salted = ("request", "annex", "state", "graph", "weights", "slots", "subjects")
        certificate["digests"] = {name: d for name, d in certificate["digests"].items() if name not in salted}
        del answer["private"]["seconds"], answer["private"]["weights_before"]  # a salted digest
    assert answers[0] == answers[1]
    assert set(answers[0]["certificate"]["digests"]) == {"released"}


@pytest.mark.slow
def test_a_network_under_its_floor_is_refused_too(run: Run, run_json: RunJson, place: Path) -> None:
    folder = saved(place, "gcn", hidden=2, epochs=1, polish_steps=0, floor=1.0)
    assert start("gcn", hidden=2, epochs=1, polish_steps=0, floor=1.0)[0].notes  # training says so
    for _ in range(2):
        assert run("unlearn", "run", "1.json", "--in-place").code == 3
    assert [entry.level for entry in read_history(folder).entries] == ["refused"]
    assert run("unlearn", "run", "2.json", "--in-place").code == 3  # it can be asked for others
    assert run_json("ledger", "run")["composed"]["epsilon"] == 0


@pytest.mark.slow
def test_a_retrained_model_under_the_floor_leaves_the_old_one_used_up(
    run: Run, run_json: RunJson, place: Path, noise: Noise
) -> None:
    """The old model stays, so its count must not begin anew."""
    saved(place, floor=0.9, releases=1)
    assert run_json("unlearn", "run", "1.json", "--in-place")["certificate"]["releases_left"] == 0
    noise.bad = True
    assert run("unlearn", "run", "2.json", "--in-place").code == 3
    assert run_json("ledger", "run")["releases_left"] == 0
    assert run("verify", "run").code == 0
    noise.bad = False
    result = run_json("unlearn", "run", "3.json", "--in-place")
    assert (result["private"]["method"], result["certificate"]["releases_left"]) == ("retrain", 0)
    assert run("verify", "run").code == 0


# -- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_the_last_release_the_model_is_retrained(run: Run, run_json: RunJson, place: Path) -> None:
    folder = saved(place, releases=2)
    for number, left in ((1, 1), (2, 0)):
        assert run_json("plan", "run", f"{number}.json")["releases_left"] == left + 1
        result = run_json("unlearn", "run", f"{number}.json", "--in-place")
        assert (result["private"]["method"], result["level"]) == ("newton", "certified")
        assert result["certificate"]["releases_left"] == left
        assert result["certificate"]["claim"]["releases"] == result["certificate"]["settings"]["releases"] == 2
        assert run_json("ledger", "run")["releases_left"] == left
    planned = run_json("plan", "run", "3.json")
    assert (planned["method"], planned["level"], planned["releases_left"]) == ("retrain", "certified", 0)
    text = " ".join(run("plan", "run", "3.json").stdout.split())
    assert "method retrain best level certified" in text
    assert "releases left 0" in text
    assert "Releases left: 0." in run("ledger", "run").stdout
    before = tree(place)
    ran = run("unlearn", "run", "3.json", "--in-place", "--otherwise", "refuse")
    assert (ran.code, ran.stdout) == (3, "")
    assert (
        ran.stderr
        == "graphforget: the guarantee for 2 releases together covers no further one, and retraining was ruled out\n"
    )
    assert tree(place) == before
    result = run_json("unlearn", "run", "3.json", "--in-place")
    assert (result["private"]["method"], result["level"]) == ("retrain", "certified")
    assert (result["certificate"]["releases_left"], gf.load_run(folder)[0].releases_left) == (1, 1)
    assert run("verify", "run").code == 0
    text = " ".join(run("unlearn", "run", "4.json", "--in-place").stdout.split())
    assert "releases left 0 of 2" in text


@pytest.mark.slow
def test_all_releases_together_keep_what_was_promised(run_json: RunJson, place: Path) -> None:
    saved(place, releases=2)
    for number in (1, 2):
        run_json("unlearn", "run", f"{number}.json", "--in-place")
        composed = run_json("ledger", "run")["composed"]
        ratio = math.sqrt(number) * release_ratio(epsilon=1, delta=1e-5, releases=2)
        assert composed["epsilon"] == pytest.approx(epsilon_of(ratio=ratio, delta=1e-5), rel=1e-9)
    assert 0.95 < composed["epsilon"] <= 1  # a share of delta is kept for rounding


@pytest.mark.slow
def test_another_epsilon_takes_more_of_the_releases_and_is_listed(run: Run, run_json: RunJson, place: Path) -> None:
    saved(place)
    as_fixed = run_json("unlearn", "run", "1.json", "--epsilon", "1", "--delta", "1e-5")
    assert (as_fixed["certificate"]["chosen"], as_fixed["certificate"]["releases_left"]) == ({}, 63)
    result = run_json("unlearn", "run", "1.json", "--in-place", "--epsilon", "3")
    assert result["certificate"]["chosen"] == {"epsilon": 3.0}
    assert result["certificate"]["claim"]["epsilon"] == 3
    share = {epsilon: release_ratio(epsilon=epsilon, delta=1e-5, releases=64) for epsilon in (1, 3)}
    left = int(64 - (share[3] / share[1]) ** 2)
    assert result["certificate"]["releases_left"] == left < 60
    assert run_json("ledger", "run")["releases_left"] == left
    assert run("verify", "run").code == 0
    unchecked = run_json("verify", "run")["unchecked"]
    assert "why this was chosen for this request, which may tell of it: epsilon" in unchecked
    text = " ".join(run("unlearn", "run", "2.json", "--epsilon", "0.5").stdout.split())
    assert "chosen for this request epsilon = 0.5" in text


# -- asked again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", [("--in-place",), ("--out", "new")], ids=["in place", "elsewhere"])
def test_the_same_id_gives_the_same_bits(out: tuple[str, ...], run: Run, place: Path, noise: Noise) -> None:
    saved(place)
    gf.make_keys(place / "key")
    asked = ("unlearn", "run", "1.json", *out, "--id", "one", "--key", "key", "--json")
    first = run(*asked)
    before = tree(place)
    again = run(*asked)
    assert (first.code, again.code, noise.draws) == (0, 0, 1)
    assert again.stdout == first.stdout.replace('"repeated": false', '"repeated": true')
    assert tree(place) == before
    folder = place / (out[1] if len(out) > 1 else "run")
    assert {CERTIFICATE, OUTCOME, RELEASED, LEDGER} <= set(tree(folder))


# -- the head --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_was_rolled_back_is_caught_by_the_head(run: Run, run_json: RunJson, place: Path) -> None:
    folder = saved(place)
    heads = []
    for number in (1, 2):
        assert run("unlearn", "run", f"{number}.json", "--in-place").code == 0
        ran = run("ledger", "run", "--head")
        assert (ran.code, ran.stderr) == (0, "")
        heads.append(ran.stdout.strip())
        assert run_json("ledger", "run", "--head") == {"audience": "public", "head": heads[-1]}
        assert run_json("ledger", "run")["head"] == heads[-1] == read_history(folder).head
        for head in heads:  # at it, and past it
            assert run("verify", "run", "--head", head).code == 0
        if number == 1:
            shutil.copytree(folder, place / "kept")
    assert not [gap for gap in run_json("verify", "run", "--head", heads[-1])["unchecked"] if "older copy" in gap]
    assert [gap for gap in run_json("verify", "run")["unchecked"] if "older copy" in gap]
    assert run("verify", "kept").code == 0
    ran = run("verify", "kept", "--head", heads[-1])
    assert (ran.code, ran.stdout) == (1, "")
    assert ran.stderr == (
        "graphforget: does not hold: the run is not at this head or past it: it was rolled back, or is another one\n"
    )
    assert run("verify", "run", "--head", "nonsense").code == 2
    assert run("verify", "run", "--head", "1" * 64).code == 1


@pytest.mark.slow
def test_the_noise_of_the_release_before_is_not_used_again(
    run: Run, run_json: RunJson, place: Path, noise: Noise
) -> None:
    saved(place)
    assert run("unlearn", "run", "1.json", "--out", "one").code == 0
    assert run("unlearn", "one", "2.json", "--out", "two").code == 0
    assert "fresh noise" in run_json("verify", "two", "--before", "one")["checks"]
    noise.seed = 5
    assert run("unlearn", "run", "1.json", "--out", "three").code == 0
    assert run("unlearn", "three", "2.json", "--out", "four").code == 0
    assert run("verify", "four").code == 0
    ran = run("verify", "four", "--before", "three")
    assert (ran.code, "the noise is at least in part that of the release before" in ran.stderr) == (1, True)
