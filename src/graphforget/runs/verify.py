"""Verifies a run directory: everything that it claims, recomputed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import nn

from graphforget.certificates.chain import REFUSED, check_chain
from graphforget.certificates.document import Certificate
from graphforget.errors import InputError, Mismatch, OtherVersion
from graphforget.graph.graph import Graph
from graphforget.json_files import parse_json, read_json
from graphforget.progress import Progress
from graphforget.runs.history import History, history_of
from graphforget.runs.layout import ANNEX, CERTIFICATE, LEDGER, OUTCOME, Damaged, foreign_files, open_run
from graphforget.runs.read import read_run
from graphforget.runs.released import released_weights
from graphforget.runs.state import as_certified, check_annexes
from graphforget.training.losses import Loss, LossFunction
from graphforget.verification.entries import check_entries
from graphforget.verification.evidence import Evidence
from graphforget.verification.verify import Verification, verify


def verify_run(
    folder: str | Path,
    *,
    key: Ed25519PublicKey | None = None,
    graph: Graph | None = None,
    model: nn.Module | None = None,
    loss: Loss | LossFunction | None = None,
    before: str | Path | None = None,
    head: str | None = None,
    replay: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Recomputes everything that a run directory claims. Raises `Mismatch` with the first thing that does not match.

    `graph` is the retained graph from records of one's own, to be used instead of the one in the run directory.
    `before` is the run of the release before, whose noise must be another one. `head` is a ledger's head that was kept
    elsewhere: the run must be at it or past it. `replay` trains again, for `exact` claims.
    """
    evidence, record, place_notes = _evidence(folder, model=model, loss=loss)
    if head is not None:
        check_head(record, head)
    if graph is not None:
        try:
            evidence = dataclasses.replace(evidence, graph=graph.numbered_as(evidence.graph))
        except InputError as error:  # it holds somebody whom the run does not know; the message names nobody
            raise Mismatch("the graph is not the one that the model stands on") from error
    earlier = None if before is None else _evidence(before, model=model, loss=loss)[0]
    result = verify(
        evidence.certificate,
        evidence.trained,
        evidence.graph,
        released=evidence.released,
        annexes=evidence.annexes,
        entries=evidence.entries,
        follows=evidence.follows,
        key=key,
        before=earlier,
        replay=replay,
        progress=progress,
    )
    if head is None:
        rollback = "that this is not an older copy of the run: keep 'ledger --head' elsewhere and give it as --head"
        place_notes = (*place_notes, rollback)
    return dataclasses.replace(result, unchecked=(*result.unchecked, *place_notes))


def check_head(record: History, head: str) -> None:
    """Raises `Mismatch` unless the run is at the entry of this hash, or past it."""
    if not re.fullmatch(r"[0-9a-f]{64}", head):
        raise InputError(f"the head is {head!r}, 64 hexadecimal digits are needed, as 'ledger --head' prints them")
    if head not in (record.follows, *(entry.hash for entry in record.entries)):
        raise Mismatch("the run is not at this head or past it: it was rolled back, or is another one")


def _evidence(
    folder: str | Path, *, model: nn.Module | None, loss: Loss | LossFunction | None
) -> tuple[Evidence, History, tuple[str, ...]]:
    with open_run(folder) as place:
        try:
            trained, graph = read_run(place, model=model, loss=loss)
        except Damaged as damage:
            raise Mismatch(str(damage)) from damage
        if not any((place / name).exists() for name in (CERTIFICATE, LEDGER, ANNEX)) and not trained.history:
            raise InputError(f"{folder} holds no certificate: it has not answered any request")
        if not trained.history and _released_nothing(place):
            raise InputError(f"{folder} holds no certificate: its requests were refused, and nothing was released")
        try:
            record = history_of(place)
            check_chain(record.entries, follows=record.follows)
            certificate = Certificate.read(place / CERTIFICATE)
            released = released_weights(place, like=trained.theta)
            public = read_json(place / OUTCOME, what=OUTCOME)
        except OtherVersion:
            raise
        except (OSError, ValueError) as error:
            raise Mismatch(str(error)) from error
    last = next((entry for entry in reversed(record.entries) if entry.level != REFUSED), None)
    if last is None:
        raise Mismatch(f"the ledger of {folder} is missing")
    upto = record.own_annexes.index(record.annex_of(last)) + 1 + len(record.annexes) - len(record.entries)
    if record.annex_of(last).request != certificate.digests["request"]:
        raise Mismatch("the certificate is not that of this run")
    if public != parse_json(last.answer):
        raise Mismatch(f"{OUTCOME} is not what the ledger says was answered")
    check_annexes(record, check_entries(record.entries, follows=record.follows))
    evidence = Evidence(
        certificate=certificate,
        trained=as_certified(trained, record.entries),
        graph=graph,
        released=released,
        annexes=record.annexes[:upto],
        entries=record.entries,
        follows=record.follows,
    )
    others = tuple(f"files that are not the run's own: {name}" for name in foreign_files(place))
    return evidence, record, others


def _released_nothing(place: Path) -> bool:
    """Whether every request so far was refused. Raises `Mismatch` if the ledger does not hold."""
    if (place / CERTIFICATE).exists():
        return False
    try:
        record = history_of(place)
    except (OSError, ValueError):  # whoever reads it next says why
        return False
    return bool(record.entries) and record.earlier is None and not any(check_entries(record.entries))
