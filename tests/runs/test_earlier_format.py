"""Run directories of format 3, as an earlier version wrote them: they are read, go on, and stay checkable."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import graphforget as gf
from cases import Run
from graphforget.certificates.chain import START, Chain, Entry, entry_hash
from graphforget.certificates.ledger import Ledger
from graphforget.runs.history import read_history
from graphforget.runs.layout import ANNEX, CERTIFICATE, EARLIER_LEDGER, LEDGER
from graphforget.runs.write import rewrite_checksums

ARCHIVE = Path(__file__).parents[1] / "data" / "run-format-3.tar.xz"  # by make_run_format_3.py beside it
GONE, NEXT, LAST = "patient-0017", "patient-0100", "patient-0200"
KEY = Ed25519PrivateKey.generate()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs `fresh`, `answered` (it has forgotten `GONE`) and `network`, and requests, in the working directory."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for name, subject in (("request.json", NEXT), ("next.json", LAST)):
        (tmp_path / name).write_text(json.dumps({"nodes": [subject]}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def entries_of(path: Path) -> tuple[Entry, ...]:
    with Ledger(path, readonly=True) as ledger:
        assert ledger.format == (1 if path.name == EARLIER_LEDGER else 2)
        return ledger.entries()


def test_the_archive_holds_what_an_earlier_version_wrote(place: Path) -> None:
    for name in ("fresh", "answered", "network"):
        content = json.loads((place / name / "run.json").read_text())
        assert content["format"] == 3
        assert "releases" not in content["recipe"]
    assert json.loads((place / "answered" / CERTIFICATE).read_text())["schema"] == "graphforget.certificate/2"
    with closing(sqlite3.connect(place / "answered" / LEDGER)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_strongly_convex_model_is_read_with_all_its_releases(place: Path) -> None:
    trained, graph = gf.load_run(place / "fresh")
    assert (trained.recipe.releases, trained.recipe.epsilon, trained.recipe.delta) == (64, 1.0, 1e-5)
    assert (trained.releases, trained.releases_left) == ((), 64)
    assert (
        trained.graph_digest == graph.digest != json.loads((place / "fresh" / "run.json").read_text())["graph_digest"]
    )
    assert trained.micro_f1(graph) > 0.9
    assert gf.plan(trained, graph, gf.Request(nodes=[NEXT])).method == "newton"


def test_releases_that_were_not_counted_count_as_all_that_there_were(place: Path) -> None:
    trained, graph = gf.load_run(place / "answered")
    assert trained.releases_left == 0
    assert graph.subject_ids is not None
    assert GONE not in graph.subject_ids
    planned = gf.plan(trained, graph, gf.Request(nodes=[NEXT]))
    assert (planned.method, planned.level) == ("retrain", "certified")


def test_a_run_without_a_deletion_goes_on(run: Run, place: Path) -> None:
    ran = run("unlearn", "fresh", "request.json", "--in-place", "--id", "one", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = json.loads(ran.stdout)
    assert (result["private"]["method"], result["level"]) == ("newton", "certified")
    assert result["certificate"]["schema"] == "graphforget.certificate/3"
    assert result["certificate"]["releases_left"] == 63
    assert json.loads((place / "fresh" / "run.json").read_text())["format"] == 4
    assert not (place / "fresh" / EARLIER_LEDGER).exists()
    assert read_history(place / "fresh").follows == START
    assert run("verify", "fresh").code == 0


@pytest.mark.slow
def test_a_run_after_a_deletion_goes_on_and_keeps_its_ledger(run: Run, place: Path) -> None:
    folder = place / "answered"
    earlier = (folder / LEDGER).read_bytes()
    (annex,) = json.loads((folder / ANNEX).read_text())
    gf.make_keys(place / "key")
    ran = run("unlearn", "answered", "request.json", "--in-place", "--id", "one", "--key", "key", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = json.loads(ran.stdout)
    assert (result["private"]["method"], result["level"]) == ("retrain", "certified")
    assert result["certificate"]["releases_left"] == 63  # counted anew
    assert (folder / EARLIER_LEDGER).read_bytes() == earlier
    (old,) = entries_of(folder / EARLIER_LEDGER)
    (new,) = entries_of(folder / LEDGER)
    Chain((old,), format=1)
    assert new.previous == old.hash == result["certificate"]["follows"]
    assert read_history(folder).annexes[0].salt.hex() == annex["salt"]
    verified = gf.verify_run(folder, key=gf.public_key(place / "key.pub"))
    actual = {check.name: check.result for check in verified.checks}
    assert actual["deleted data"] == "nothing that the 2 requests so far named is in the retained graph"
    assert actual["ledger"].startswith("unbroken, 1 request,")

    ran = run("unlearn", "answered", "next.json", "--in-place", "--id", "two", "--key", "key", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = json.loads(ran.stdout)
    assert (result["private"]["method"], result["certificate"]["releases_left"]) == ("newton", 62)
    assert (folder / EARLIER_LEDGER).read_bytes() == earlier
    assert [entry.request_id for entry in entries_of(folder / LEDGER)] == ["one", "two"]
    assert run("verify", "answered", "--key", "key.pub").code == 0
    assert run("verify", "answered", "--head", old.hash).code == 0  # past the head of the ledger before
    ran = run("ledger", "answered", "--json")
    assert (ran.code, json.loads(ran.stdout)["releases_left"]) == (0, 62)
    assert run("report", "answered", "--out", "page.html").code == 0


def test_it_goes_on_elsewhere_too(place: Path) -> None:
    before = tree(place / "answered")
    gf.answer(place / "answered", gf.Request(nodes=[NEXT]), out=place / "new")
    assert tree(place / "answered") == before
    assert (place / "new" / EARLIER_LEDGER).read_bytes() == before[LEDGER]
    assert gf.verify_run(place / "new").checks


def test_what_the_earlier_ledger_saw_deleted_stays_deleted(place: Path) -> None:
    """Done right but for one thing: the graph holds again what the earlier version had deleted."""
    trained, graph = gf.load_run(place / "fresh")
    done = gf.unlearn(trained, graph, gf.Request(nodes=[NEXT]))
    gf.save_outcome(place / "forged", done, after=place / "answered")
    with pytest.raises(gf.Mismatch, match="^a node that was to be forgotten is in the retained graph$"):
        gf.verify_run(place / "forged")


@contextmanager
def unguarded(folder: Path) -> Iterator[sqlite3.Connection]:
    """The earlier ledger without the triggers that keep its entries as they are; they are put back afterwards."""
    with closing(sqlite3.connect(folder / EARLIER_LEDGER)) as connection, connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in guards:
            connection.execute(sql)


def edited(folder: Path, **changes: Any) -> None:
    """The earlier ledger's entry with other content, and the old hash unless another is given."""
    with unguarded(folder) as connection:
        for name, value in changes.items():
            connection.execute(f"UPDATE entries SET {name} = ?", (value,))


def rehashed(folder: Path) -> None:
    """The same with a hash that fits, as anybody can compute it."""
    (old,) = entries_of(folder / EARLIER_LEDGER)
    other = dataclasses.replace(old, request_id="another")
    edited(folder, request_id="another", hash=entry_hash(other, 1))


def emptied(folder: Path) -> None:
    with unguarded(folder) as connection:
        connection.execute("DELETE FROM entries")


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an id": (lambda run: edited(run, request_id="another"), "the ledger is broken at entry 1: its hash is not"),
    "a level": (lambda run: edited(run, level="exact"), "the ledger is broken at entry 1: its hash is not"),
    "an id and its hash": (rehashed, "the ledger is broken at entry 1: it does not continue from the entry before it"),
    "no entry": (emptied, "has 1 entries in its ledger and 2 annexes"),
    "another file": (lambda run: (run / EARLIER_LEDGER).write_bytes(b"not a ledger"), "cannot be used as a ledger"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", TAMPERED)
def test_a_changed_earlier_ledger_is_caught(how: str, run: Run, place: Path) -> None:
    folder = place / "answered"
    gf.answer(folder, gf.Request(nodes=[NEXT]), key=KEY)
    change, message = TAMPERED[how]
    change(folder)
    ran = run("verify", "answered")
    assert (ran.code, "is damaged: ledger-1.sqlite is not the file that was written" in ran.stderr) == (1, True)
    rewrite_checksums(folder)
    ran = run("verify", "answered")
    assert (ran.code, message in ran.stderr, ran.stderr.count("\n")) == (1, True, 1)
    before = tree(folder)
    assert run("unlearn", "answered", "next.json", "--in-place").code in (1, 2)
    assert tree(folder) == before


def test_an_earlier_ledger_that_is_gone_is_missed(run: Run, place: Path) -> None:
    gf.answer(place / "answered", gf.Request(nodes=[NEXT]))
    (place / "answered" / EARLIER_LEDGER).unlink()
    ran = run("verify", "answered")
    assert (ran.code, ran.stderr.count("\n")) == (1, 1)
    assert EARLIER_LEDGER in ran.stderr


@pytest.mark.parametrize("command", ["plan", "unlearn"])
def test_a_network_has_to_be_trained_again(command: str, run: Run, place: Path) -> None:
    (place / "node.json").write_text('{"nodes": [3]}')
    before = tree(place)
    ran = run(command, "network", "node.json")
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.endswith(
        "a run of an earlier version, whose training of networks cannot be replayed: train it again\n"
    )
    assert tree(place) == before


def test_a_certificate_of_an_earlier_version_is_not_checked_by_this_one(run: Run, place: Path) -> None:
    """It does not fail either: nothing is wrong with it."""
    for command in (("verify",), ("report", "--out", "page.html")):
        ran = run(command[0], "answered", *command[1:])
        assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert (
            "the certificate has schema graphforget.certificate/2, and this version of graphforget reads" in ran.stderr
        )
        assert "verify it with the version that made it; 'unlearn' goes on from its run" in ran.stderr
    assert not os.path.exists("page.html")
    ran = run("ledger", "answered")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "graphforget: the ledger of answered is of an earlier version; 'unlearn' continues it\n"


def test_a_run_that_was_changed_before_it_goes_on_is_damaged(place: Path) -> None:
    """Its graph is held against the digest that the earlier version wrote down."""
    content = json.loads((place / "fresh" / "run.json").read_text())
    (place / "fresh" / "run.json").write_text(json.dumps(content | {"graph_digest": "0" * 64}))
    with pytest.raises(gf.InputError, match="is damaged: its graph is not the one that the model was trained on"):
        gf.load_run(place / "fresh")
