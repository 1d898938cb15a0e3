"""The model card: it states what the ledger and the certificate say, names nobody, and shows text as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import graphforget as gf
from cases import Run, RunJson
from graphforget.report import card
from graphforget.report.card import card_content, card_markdown


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has answered three requests, two of them together."""
    monkeypatch.chdir(tmp_path)
    graph = gf.load("patients")
    gf.save_run("run", gf.train(graph, "sgc", seed=0), graph)
    names = graph.subject_ids or ()
    gf.answer("run", gf.Request(nodes=[names[3]]), request_id="first")
    both = [gf.Request(nodes=[names[5]]), gf.Request(nodes=[names[8], names[9]])]
    gf.answer("run", both, request_ids=["second", "third"])
    return tmp_path / "run"


def front_matter(text: str) -> dict[str, Any]:
    empty, matter, _ = text.split("---\n", 2)
    assert empty == ""
    result: dict[str, Any] = yaml.safe_load(matter)
    return result


def test_a_card_states_the_level_the_epsilon_so_far_and_the_counts(answered: Path, run_json: RunJson) -> None:
    content = run_json("card", str(answered), "--out", "card.md")
    guarantee, text = content["guarantee"], Path("card.md").read_text()
    assert (guarantee["level"], guarantee["requests_answered"], guarantee["releases"]) == ("certified", 3, 2)
    assert guarantee["releases_left"] == 62
    so_far = gf.releases_so_far(answered, delta=guarantee["delta"])
    assert guarantee["epsilon_so_far"] == so_far.epsilon
    assert f"| epsilon so far | {so_far.epsilon:.3g} at delta = 1e-05" in text
    assert "| requests answered | 3, in 2 releases |" in text
    assert content["data"]["nodes"] == 565
    assert front_matter(text)["tags"] == ["graph-ml", "machine-unlearning"]
    for heading in ("Guarantee", "Intended use", "Limits", "Data sheet"):
        assert f"\n## {heading}\n" in text


def test_a_card_is_of_the_state_that_was_verified(answered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service answers rounds in place, whatever else reads the run."""

    def verified_and_moved_on(run: Path, **options: Any) -> Any:
        found = gf.verify_run(run, **options)
        gf.answer(run, gf.Request(nodes=["patient-0017"]))
        return found

    monkeypatch.setattr(card, "verify_run", verified_and_moved_on)
    with pytest.raises(gf.InputError, match="in the meantime"):
        card_content(answered)


def test_a_card_names_nobody(answered: Path, run: Run) -> None:
    assert run("card", answered, "--out", "card.md").code == 0
    text = Path("card.md").read_text()
    assert "patient" not in text
    assert not any(request_id in text for request_id in ("first", "second", "third"))


def test_the_words_of_the_operator_stay_text(answered: Path) -> None:
    content = card_content(answered, intended_use="# rank | <b>all</b>\n- *x*", data_source="[a](b)")
    text = card_markdown(content)
    assert "\\# rank \\| &lt;b&gt;all&lt;/b&gt; - \\*x\\*" in text
    assert "| source | \\[a\\](b) |" in text


def test_a_run_without_a_release_has_no_card(tmp_path: Path, run: Run) -> None:
    graph = gf.load("patients")
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc", seed=0), graph)
    ended = run("card", tmp_path / "run", "--out", tmp_path / "card.md")
    assert ended.code == 2
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "card.md").exists()


def test_a_card_is_not_written_for_a_run_that_does_not_hold(answered: Path, run: Run) -> None:
    path = answered / "certificate.json"
    path.write_text(path.read_text().replace('"certified"', '"exact"'))
    assert run("card", answered, "--out", "card.md").code == 1
    assert not Path("card.md").exists()


def test_a_model_without_noise_is_not_said_to_carry_noise(tmp_path: Path) -> None:
    graph = gf.load("patients")
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc", seed=0, sigma=0.0), graph)
    gf.answer(tmp_path / "run", gf.Request(nodes=["patient-0017"]))
    text = card_markdown(card_content(tmp_path / "run"))
    assert "| level | exact |" in text
    assert "carry noise" not in text
