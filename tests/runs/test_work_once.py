"""Each command checks a ledger once, and a certificate is made once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import graphforget as gf
from cases import random_graph
from graphforget.certificates import chain
from graphforget.runs import apply, history
from graphforget.runs.history import read_history
from graphforget.runs.layout import CERTIFICATE
from graphforget.runs.save import public_json
from graphforget.verification import entries

KEY = Ed25519PrivateKey.generate()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained() -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    return gf.train(graph, model="sgc", sigma=0.03), graph


@pytest.fixture
def run(trained: tuple[gf.Trained, gf.Graph], tmp_path: Path) -> Path:
    """A run directory with three entries in its ledger."""
    folder = gf.save_run(tmp_path / "run", *trained)
    for number in (4, 5, 6):
        gf.answer(folder, gf.Request(nodes=[number]), key=KEY, request_id=f"request {number}")
    return folder


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often entries are hashed, parsed and checked, and how often a ledger is read."""
    counted: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)

        def wrapped(*args: Any, **named: Any) -> Any:
            counted[name] += 1
            return function(*args, **named)

        monkeypatch.setattr(module, name, wrapped)

    count(chain, "entry_hash")
    count(entries, "_certificate")
    count(entries, "check_entry_signature")
    count(history, "Ledger")
    return counted


ONCE = {"entry_hash": 3, "_certificate": 3, "check_entry_signature": 3, "Ledger": 1}  # of a ledger of three entries


def test_verify_run_checks_every_entry_once(run: Path, calls: Counter[str]) -> None:
    gf.verify_run(run, key=KEY.public_key())
    assert calls == ONCE


def test_answer_checks_every_entry_once(run: Path, calls: Counter[str]) -> None:
    gf.answer(run, gf.Request(nodes=[7]), key=KEY)
    assert calls == ONCE


def test_answer_into_another_folder_checks_every_entry_once(run: Path, calls: Counter[str], tmp_path: Path) -> None:
    gf.answer(run, gf.Request(nodes=[7]), key=KEY, out=tmp_path / "new")
    assert calls == ONCE


def test_a_repeated_answer_checks_every_entry_once(run: Path, calls: Counter[str]) -> None:
    assert gf.answer(run, gf.Request(nodes=[5]), key=KEY, request_id="request 5").repeated
    assert calls == ONCE


def test_an_answer_that_fails_checks_every_entry_once(run: Path, calls: Counter[str]) -> None:
    with pytest.raises(gf.InputError):
        gf.answer(run, gf.Request(nodes=[7]), method="unknown")
    assert calls == ONCE


@pytest.mark.parametrize("key", [None, KEY], ids=["unsigned", "signed"])
def test_the_certificate_that_unlearn_makes_is_the_one_that_is_filed(
    trained: tuple[gf.Trained, gf.Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: Ed25519PrivateKey | None,
) -> None:
    made: list[gf.Outcome] = []

    def unlearn(*args: Any, **named: Any) -> gf.Outcome:
        made.append(gf.unlearn(*args, **named))
        return made[-1]

    monkeypatch.setattr(apply, "unlearn", unlearn)
    folder = gf.save_run(tmp_path / "run", *trained)
    for number in (4, 5):
        head = read_history(folder).head
        answered = gf.answer(folder, gf.Request(nodes=[number]), key=key)
        assert answered.outcome is not None
        assert answered.outcome.certificate is made[-1].certificate
        assert answered.outcome.certificate.follows == head
        assert (folder / CERTIFICATE).read_bytes() == public_json(answered.outcome.certificate.to_dict())
    gf.verify_run(folder, key=key.public_key() if key else None)


@pytest.mark.parametrize("key", [None, KEY], ids=["unsigned", "signed"])
def test_an_outcome_made_without_a_run_is_chained_when_it_is_saved(
    run: Path, tmp_path: Path, key: Ed25519PrivateKey | None
) -> None:
    outcome = gf.unlearn(*gf.load_run(run), gf.Request(nodes=[7]))
    saved = gf.save_outcome(tmp_path / "new", outcome, after=run, key=key)
    certificate = gf.Certificate.read(saved / CERTIFICATE)
    assert outcome.certificate.follows != certificate.follows == read_history(run).head
    assert certificate.id == outcome.certificate.id
    gf.verify_run(saved, key=key.public_key() if key else None)


def test_an_outcome_of_one_run_can_be_filed_in_another_without_its_key(run: Path, tmp_path: Path) -> None:
    """Its signature covers the ledger that it followed, so it is left out."""
    answered = gf.answer(run, gf.Request(nodes=[7]), key=KEY)
    assert answered.outcome is not None
    assert answered.outcome.certificate.signature is not None
    saved = gf.save_outcome(tmp_path / "alone", answered.outcome)
    assert gf.Certificate.read(saved / CERTIFICATE).signature is None
