"""What may be shown and what may not: every document says which it is, and the public ones tell nothing private."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf
from cases import Run, RunJson
from graphforget.runs.history import read_history
from graphforget.runs.layout import ANNEX, CERTIFICATE, OUTCOME
from graphforget.runs.save import BLOCK

pytestmark = pytest.mark.usefixtures("one_thread")
PRIVATE = ("distance", "epsilon_measured", "changed", "footprint", "seconds", "steps")
GONE = "patient-0017"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, a run, the run that came of a request, signed, and another request."""
    folder = tmp_path_factory.mktemp("made")
    graph = gf.load("patients")
    gf.save_run(folder / "run", gf.train(graph, "sgc"), graph)
    private, _ = gf.make_keys(folder / "key")
    request = gf.Request(nodes=[GONE])
    gf.answer(folder / "run", request, out=folder / "two", request_id="one", key=gf.private_key(private))
    (folder / "request.json").write_text(json.dumps({"nodes": ["patient-0042"]}))
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(content: Any) -> Iterator[str]:
    """All names in a JSON document."""
    if isinstance(content, dict):
        yield from content
        content = list(content.values())
    if isinstance(content, list):
        for part in content:
            yield from keys(part)


def private_words(text: str) -> list[str]:
    return [word for word in PRIVATE if re.search(word, text, re.IGNORECASE)]


def private_numbers(folder: Path) -> set[str]:
    """What was measured for the last request, as JSON has it."""
    account = read_history(folder).annexes[-1].account
    measured = {name: value for name, value in account["measured"].items() if name != "tolerance"}
    return {json.dumps(value) for value in (*measured.values(), account["seconds"])}


@pytest.mark.slow
def test_an_answer_is_public_and_has_a_private_part(run_json: RunJson, place: Path) -> None:
    result = run_json("unlearn", "two", "request.json", "--in-place")
    private = result.pop("private")
    assert (result["audience"], result["certificate"]["audience"], private["audience"]) == (
        "public",
        "public",
        "private",
    )
    assert set(private) == {
        *("audience", "method", "weights_before", "changed", "footprint"),
        *("measured", "details", "notes", "seconds"),
    }
    assert private["measured"].keys() == {"distance", "tolerance", "epsilon_measured", "rounding"}
    assert not private_words(json.dumps(result))
    assert set(result) == {
        *("audience", "level", "certificate", "test_micro_f1"),
        *("run", "request_id", "repeated"),
    }
    assert run_json("plan", "run", "request.json")["audience"] == "private"


def test_files_say_for_whom_they_are(place: Path) -> None:
    audiences = {
        name: json.loads((place / "two" / name).read_text())["audience"]
        for name in (CERTIFICATE, OUTCOME, ANNEX, "run.json")
    }
    assert audiences == {CERTIFICATE: "public", OUTCOME: "public", ANNEX: "private", "run.json": "private"}
    assert json.loads((place / "run" / "run.json").read_text())["audience"] == "private"
    for name in (CERTIFICATE, OUTCOME):
        content = (place / "two" / name).read_text()
        assert not private_words(content), name
        assert not [number for number in private_numbers(place / "two") if f" {number}" in content], name


@pytest.mark.slow
def test_public_files_have_sizes_that_tell_nothing(run: Run, place: Path) -> None:
    assert BLOCK == 4096
    sizes: list[int] = []
    for more in ((), ("--epsilon", "0.123456789"), ("--key", "key")):
        assert run("unlearn", "two", "request.json", "--out", f"new{len(sizes)}", *more).code == 0
        sizes += [(place / f"new{len(sizes)}" / name).stat().st_size for name in (CERTIFICATE, OUTCOME)]
    assert [size % 4096 for size in sizes] == [0] * 6
    assert min(sizes) > 0


def test_the_ledger_is_public_unless_asked_for_more(run: Run, run_json: RunJson, place: Path) -> None:
    public = run_json("ledger", "two")
    assert public["audience"] == "public"
    assert not private_words(json.dumps(public))
    private = run_json("ledger", "two", "--private")
    assert private["audience"] == "private"
    (measured,) = private.pop("measured")
    account = read_history(place / "two").annexes[-1].account
    assert measured == {
        "number": 1,
        "method": "newton",
        "changed": True,
        "distance": account["measured"]["distance"],
        "epsilon_measured": account["measured"]["epsilon_measured"],
    }
    assert private | {"audience": "public"} == public
    assert not private_words(run("ledger", "two").stdout)
    text = run("ledger", "two", "--private").stdout
    assert "Private: depends on the deleted data." in text
    assert "distance" in text


def test_the_entries_of_a_ledger_hold_the_public_answer(place: Path) -> None:
    (entry,) = read_history(place / "two").entries
    assert not private_words(entry.answer)
    assert "private" not in keys(json.loads(entry.answer))
    content = (place / "two" / "ledger.sqlite").read_bytes().decode("latin-1")
    assert not [word for word in PRIVATE if f'"{word}"' in content]


def test_a_verification_that_holds_may_be_shown(run: Run, run_json: RunJson, place: Path) -> None:
    found = run_json("verify", "two", "--key", "key.pub")
    assert found["audience"] == "public"
    assert not private_words(json.dumps(found))
    (place / "two" / "released.safetensors").unlink()
    ran = run("verify", "two", "--json")
    assert (ran.code, json.loads(ran.stdout)["audience"]) == (1, "private")


@pytest.mark.slow
def test_a_report_is_public_unless_asked_for_more(run: Run, run_json: RunJson, place: Path) -> None:
    assert run_json("report", "two", "--out", "public.html") == {"report": "public.html", "audience": "public"}
    assert run_json("report", "two", "--out", "own.html", "--private") == {"report": "own.html", "audience": "private"}
    public, private = (
        re.sub(r"<style>.*?</style>", "", (place / name).read_text(), flags=re.DOTALL)
        for name in ("public.html", "own.html")
    )
    assert not private_words(public)
    assert "public: it may be shown" in public
    assert "private: it depends on what was deleted" in private
    assert "private: it depends on what was deleted" not in public
    account = read_history(place / "two").annexes[-1].account
    for label in ("way taken", "training losses", "distance, at most", "time taken"):
        assert (label in public, label in private) == (False, True)
    assert f"<td>{account['measured']['distance']:.4g}</td>" in private
    assert GONE not in public + private


@pytest.mark.parametrize("command", ["ledger", "report", "verify"])
def test_no_number_that_was_measured_is_shown(command: str, run: Run, place: Path) -> None:
    out = ("--out", "page.html") if command == "report" else ()
    ran = run(command, "two", *out)
    assert ran.code == 0
    shown = ran.stdout + ((place / "page.html").read_text() if out else "")
    account = read_history(place / "two").annexes[-1].account
    for number in (account["measured"]["distance"], account["measured"]["epsilon_measured"]):
        assert not re.search(rf"(?<![\d.]){re.escape(f'{number:g}')}(?![\d.])", shown)
