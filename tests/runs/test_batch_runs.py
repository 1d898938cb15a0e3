"""Several requests against a run directory at once: each with its own id and entry, one release for all of them."""

from __future__ import annotations

import dataclasses
import functools
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from test_records import killed_at
from test_run_directories import Crash, crash_at, tree

import graphforget as gf
from cases import Run, RunJson, random_graph
from graphforget.certificates.annex import digest_of_all
from graphforget.certificates.ledger import Ledger
from graphforget.runs import save, write
from graphforget.runs.history import read_history
from graphforget.runs.layout import ANNEX, LEDGER
from graphforget.runs.write import rewrite_checksums
from graphforget.verification.entries import check_entries

KEY = Ed25519PrivateKey.generate()
LISTED = [gf.Request(nodes=[4]), gf.Request(nodes=[4, 5]), gf.Request(attributes={6: "all"})]
IDS = ["one", "two", "three"]
pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def start() -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    return gf.train(graph, "sgc", sigma=0.03), graph


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return gf.save_run(tmp_path / "place" / "run", *start())


@pytest.fixture
def answered(run_folder: Path) -> tuple[gf.Answer, ...]:
    return gf.answer(run_folder, LISTED, request_ids=IDS, key=KEY)


# -- entries and certificate -----------------------------------------------------------------------------------------


def test_every_request_has_an_entry_of_one_release(run_folder: Path, answered: tuple[gf.Answer, ...]) -> None:
    assert [one.request_id for one in answered] == IDS
    assert len({id(one.outcome) for one in answered}) == 1
    record = read_history(run_folder)
    assert [entry.request_id for entry in record.entries] == IDS
    assert len({entry.certificate_digest for entry in record.entries}) == len(record.annexes) == 1
    certificate = gf.Certificate.read(run_folder / "certificate.json")
    assert certificate.digests["request"] == digest_of_all([entry.request_digest for entry in record.entries])
    for request, entry, commitment in zip(LISTED, record.entries, record.annexes[0].commitments, strict=True):
        assert commitment.digest == entry.request_digest
        assert commitment.is_of(request)


def test_the_release_is_counted_once_and_verified_for_all(run_folder: Path, answered: tuple[gf.Answer, ...]) -> None:
    assert gf.load_run(run_folder)[0].releases_left == 63
    assert gf.releases_so_far(run_folder, delta=1e-5).releases == 1
    results = {check.name: check.result for check in gf.verify_run(run_folder, key=KEY.public_key()).checks}
    assert results["deleted data"].startswith("nothing that the 3 requests so far named is in")
    assert results["ledger"].startswith("unbroken, 3 requests")


def test_a_run_goes_on_after_a_list(run_folder: Path, answered: tuple[gf.Answer, ...], tmp_path: Path) -> None:
    head = read_history(run_folder).head
    later = gf.answer(run_folder, gf.Request(nodes=[7]), key=KEY, request_id="four")
    assert later.outcome is not None
    assert later.outcome.certificate.follows == head
    gf.answer(run_folder, [gf.Request(nodes=[8]), gf.Request(nodes=[9])], key=KEY)
    gf.verify_run(run_folder, key=KEY.public_key(), head=head)
    assert gf.releases_so_far(run_folder, delta=1e-5).releases == 3
    assert gf.load_run(run_folder)[0].releases_left == 61
    assert len(read_history(run_folder).entries) == 6


def test_an_outcome_of_a_list_is_saved_with_its_ids(tmp_path: Path) -> None:
    outcome = gf.unlearn(*start(), LISTED)
    folder = gf.save_outcome(tmp_path / "run", outcome, request_ids=["a", None, "c"])
    first, second, third = (entry.request_id for entry in read_history(folder).entries)
    assert (first, third, len(second)) == ("a", "c", 36)
    gf.verify_run(folder)
    before = tree(tmp_path)
    for ids in ({"request_id": "a"}, {"request_ids": ["a"]}, {"request_ids": ["a", "b", "a"]}, {"request_ids": "abc"}):
        with pytest.raises(gf.InputError, match="request id|request_id"):
            gf.save_outcome(tmp_path / "other", outcome, **ids)
    assert tree(tmp_path) == before


# -- asked again -----------------------------------------------------------------------------------------------------


def test_one_of_the_ids_alone_gives_the_first_answer(run_folder: Path, answered: tuple[gf.Answer, ...]) -> None:
    gf.answer(run_folder, gf.Request(nodes=[7]), key=KEY)
    before = tree(run_folder)
    for request, name, first in zip(LISTED, IDS, answered, strict=True):
        again = gf.answer(run_folder, request, request_id=name, key=KEY)
        assert again.repeated
        assert again.summary == first.summary
    assert [one.summary for one in gf.answer(run_folder, LISTED[::-1], request_ids=IDS[::-1])] == [
        one.summary for one in answered[::-1]
    ]
    assert tree(run_folder) == before


def test_a_list_with_answered_requests_answers_only_the_others(
    run_folder: Path, answered: tuple[gf.Answer, ...]
) -> None:
    first, new, third = gf.answer(
        run_folder, [LISTED[0], gf.Request(nodes=[7]), LISTED[2]], request_ids=["one", "new", "three"], key=KEY
    )
    assert (first.repeated, new.repeated, third.repeated) == (True, False, True)
    assert (first.summary, third.summary) == (answered[0].summary, answered[2].summary)
    record = read_history(run_folder)
    assert [entry.request_id for entry in record.entries] == [*IDS, "new"]
    assert record.annexes[-1].commitments[0].is_of(gf.Request(nodes=[7]))
    gf.verify_run(run_folder)


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an id of another request": (LISTED[:2], {"request_ids": ["new", "one"]}, "^the request id 'one' was used for"),
    "an id twice": (LISTED[:2], {"request_ids": ["x", "x"]}, "^the request id 'x' is given twice"),
    "too few ids": (LISTED[:2], {"request_ids": ["x"]}, "^request_ids must be a list with one id for each"),
    "one id": (LISTED[:2], {"request_id": "x"}, "^request_id is one id for 2 requests"),
    "both": (LISTED[:1], {"request_id": "x", "request_ids": ["x"]}, "^request_ids must be a list"),
    "a blank id": (LISTED[:2], {"request_ids": ["x", " "]}, "^the request id is blank"),
    "no request": ([], {}, "^the list of requests is empty"),
    "no request, no id": ([], {"request_ids": []}, "^the list of requests is empty"),
    "a dictionary": ([LISTED[0], {"nodes": [7]}], {}, "^request 2 of 2 is a dict"),
    "gone already": ([gf.Request(nodes=[7]), gf.Request(nodes=[4])], {}, "^node 4 is not in the graph$"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_changes_nothing(
    case: str, run_folder: Path, answered: tuple[gf.Answer, ...], tmp_path: Path
) -> None:
    requests, named, message = BAD[case]
    before = tree(tmp_path)
    with pytest.raises(gf.InputError, match=message):
        gf.answer(run_folder, requests, **named)
    assert tree(tmp_path) == before


def test_elsewhere_the_first_answers_are_given_again(run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    first = gf.answer(run_folder, LISTED, request_ids=IDS, out=out)
    before = tree(tmp_path)
    again = gf.answer(run_folder, LISTED[:2], request_ids=IDS[:2], out=out)
    assert [one.summary for one in again] == [one.summary for one in first[:2]]
    assert all(one.repeated and one.folder == out for one in again)
    with pytest.raises(gf.InputError, match=r"^request 'one' was answered in .*new, and others of the list were not"):
        gf.answer(run_folder, [LISTED[0], gf.Request(nodes=[7])], request_ids=["one", "x"], out=out, force=True)
    assert tree(tmp_path) == before


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_refused_list_is_counted_once_and_refused_again(tmp_path: Path) -> None:
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    run = gf.save_run(tmp_path / "run", gf.train(graph, "sgc", sigma=1e3, floor=1.0), graph)
    with pytest.raises(gf.FloorMissed):
        gf.answer(run, LISTED, request_ids=IDS, key=KEY)
    record = read_history(run)
    assert [(entry.request_id, entry.level) for entry in record.entries] == [(name, "refused") for name in IDS]
    assert check_entries(record.entries).certificates == (None,)
    assert gf.load_run(run)[0].releases_left == 63
    before = tree(run)
    again: tuple[tuple[Any, dict[str, Any]], ...] = (
        (LISTED[1], {"request_id": "two"}),
        (LISTED[1], {}),
        ([gf.Request(nodes=[7]), LISTED[2]], {}),
    )
    for requests, named in again:
        with pytest.raises(gf.Refused, match="^this request was refused before: "):
            gf.answer(run, requests, **named)
    assert tree(run) == before
    with pytest.raises(gf.FloorMissed):
        gf.answer(run, [gf.Request(nodes=[7]), gf.Request(nodes=[8])], key=KEY)
    assert gf.load_run(run)[0].releases_left == 62


# -- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "name", "call"),
    [
        (save, "save_bytes", 1),
        (Ledger, "append", 1),
        (Ledger, "append", 2),
        (Path, "rename", 2),
        (write, "save_file", 1),
    ],
)
def test_a_list_that_fails_leaves_the_old_state(
    place: Any, name: str, call: int, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, crash_at(call, getattr(place, name)))
        with pytest.raises(Crash):
            gf.answer(run_folder, LISTED, request_ids=IDS)
    assert tree(tmp_path) == before
    assert not any(one.repeated for one in gf.answer(run_folder, LISTED, request_ids=IDS))


def test_a_process_killed_between_two_entries_leaves_the_old_state(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = gf.unlearn(*start(), LISTED)
    shown = outcome.public()
    monkeypatch.setattr(gf.Outcome, "public", lambda self: shown | {"certificate": self.certificate.to_dict()})
    work = functools.partial(gf.save_outcome, run_folder, outcome, after=run_folder, request_ids=IDS, force=True)
    monkeypatch.setattr("test_records.WAYS", ((Ledger, "append"),))
    before = tree(run_folder)
    for call in (1, 2, 3):
        assert killed_at(call, work) == "append"
        assert tree(run_folder) == before
    assert killed_at(4, work) is None
    assert all(one.repeated for one in gf.answer(run_folder, LISTED, request_ids=IDS))
    assert len(read_history(run_folder).entries) == 3
    assert os.listdir(run_folder.parent) == ["run"]
    gf.verify_run(run_folder)


# -- verify ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [1, 2])
def test_what_any_request_of_a_list_deleted_stays_deleted(ignored: int, run_folder: Path, tmp_path: Path) -> None:
    """A later request is done right, on a graph into which the data of one request of the list was put back."""
    gf.answer(run_folder, LISTED)
    others = [request for number, request in enumerate(LISTED) if number != ignored]
    cheat = gf.unlearn(*start(), others)
    done = gf.unlearn(cheat.trained, cheat.graph, gf.Request(nodes=[9]))
    forged = gf.save_outcome(tmp_path / "forged", done, after=run_folder)
    with pytest.raises(gf.Mismatch, match="that was to be forgotten is in the retained graph$"):
        gf.verify_run(forged)


def without_last_entry(run: Path) -> None:
    """The request of the last entry is dropped from the ledger and the annex."""
    with closing(sqlite3.connect(run / LEDGER, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER no_delete")
        connection.execute("DELETE FROM entries WHERE number = 3")
        connection.execute(
            "CREATE TRIGGER no_delete BEFORE DELETE ON entries "
            "BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END"
        )


def without_last_commitment(run: Path) -> None:
    annex = read_history(run).annexes[0]
    shorter = dataclasses.replace(annex, batch=annex.batch[:2])
    (run / ANNEX).write_bytes(save.json_bytes({"audience": "private", "annexes": [shorter.to_dict()]}))
    rewrite_checksums(run)


def both(run: Path) -> None:
    without_last_commitment(run)
    without_last_entry(run)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_last_entry, "has 2 entries in its ledger and 3 annexes$"),
        (without_last_commitment, "has 3 entries in its ledger and 2 annexes$"),
        (both, "^entry 1 of the ledger is not about the requests that its certificate is about$"),
    ],
)
def test_a_request_that_is_dropped_from_a_list_is_noticed(
    spoil: Callable[[Path], None], message: str, run_folder: Path
) -> None:
    gf.answer(run_folder, LISTED, request_ids=IDS)
    spoil(run_folder)
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(run_folder)
    with pytest.raises((gf.Mismatch, gf.InputError), match=message):
        gf.answer(run_folder, gf.Request(nodes=[9]))


def test_entries_of_one_release_that_differ_are_noticed(tmp_path: Path) -> None:
    folder = gf.save_outcome(tmp_path / "run", gf.unlearn(*start(), LISTED[:2]))
    first, second = read_history(folder).entries
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for entry, time in ((first, first.time), (second, "2020-01-01T00:00:00Z")):
            named = ("request_id", "request_digest", "certificate_digest", "level", "ratio", "answer")
            ledger.append(time=time, **{name: getattr(entry, name) for name in named})
        entries = ledger.entries()
    with pytest.raises(gf.Mismatch, match="^entry 2 of the ledger does not agree with the one it was answered with$"):
        check_entries(entries)


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    names = []
    for number, text in enumerate(('{"nodes": [4]}', '{"nodes": [4, 5]}')):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        names.append(str(path))
    return names


def test_the_command_answers_a_list(run_json: RunJson, run: Run, run_folder: Path, files: list[str]) -> None:
    asked = ("--request", files[0], "--request", files[1], "--id", "one", "--id", "two")
    first = run_json("unlearn", str(run_folder), *asked, "--in-place")
    assert (first["audience"], first["run"]) == ("public", str(run_folder))
    assert [(one["request_id"], one["repeated"]) for one in first["answers"]] == [("one", False), ("two", False)]
    assert first["answers"][0]["certificate"] == first["answers"][1]["certificate"]
    assert [one["audience"] for one in first["private"]] == ["private", "private"]
    again = run_json("unlearn", str(run_folder), *asked, "--in-place")
    assert [one | {"repeated": False} for one in again["answers"]] == first["answers"]
    assert [one["request_id"] for one in run_json("ledger", str(run_folder))["entries"]] == ["one", "two"]
    assert len(run_json("ledger", str(run_folder), "--private")["measured"]) == 2
    shown = run("unlearn", run_folder, *asked, "--in-place")
    assert shown.stdout.startswith("Answered before: one, two\n")
    assert shown.stdout.count("Public: may be published.") == 1


def test_the_commands_plan_and_rehearse_a_list(run_json: RunJson, run: Run, run_folder: Path, files: list[str]) -> None:
    before = tree(run_folder)
    assert run_json("plan", str(run_folder), files[0], "--request", files[1])["nodes"] == 2
    rehearsed = run_json("unlearn", str(run_folder), files[0], "--request", files[1])
    assert (rehearsed["audience"], rehearsed["run"], len(rehearsed["answers"])) == ("private", None, 2)
    assert run("unlearn", run_folder, files[0], "--request", files[1]).stdout.startswith("A rehearsal: ")
    assert tree(run_folder) == before


def test_a_command_without_a_request_or_with_too_few_ids_is_refused(
    run: Run, run_folder: Path, files: list[str]
) -> None:
    before = tree(run_folder)
    for arguments, message in (
        ((), "no REQUEST is given, its file is needed after RUN or as --request FILE"),
        (
            (files[0], "--request", files[1], "--id", "one", "--in-place"),
            "--id: 1 given, one is needed for each request, here 2",
        ),
    ):
        ran = run("unlearn", run_folder, *arguments)
        assert (ran.code, ran.stderr) == (2, f"graphforget: {message}\n")
    assert run("plan", run_folder).code == 2
    assert tree(run_folder) == before


def test_public_documents_state_the_round_and_not_the_moment(tmp_path: Path) -> None:
    graph = random_graph(3, nodes=20, edges=30)
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    made = "2026-01-31T00:00:00Z"
    gf.answer(tmp_path / "run", [gf.Request(nodes=[4])], request_ids=["a"], made=made)
    assert gf.Certificate.read(tmp_path / "run" / "certificate.json").made == made
    gf.verify_run(tmp_path / "run")
    with pytest.raises(gf.InputError, match="a time in UTC"):
        gf.answer(tmp_path / "run", [gf.Request(nodes=[5])], request_ids=["b"], made="today")
