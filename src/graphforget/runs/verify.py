"""Verifies a run directory: recomputes everything that it claims."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor

from graphforget.certificates.document import Certificate
from graphforget.errors import InputError, Mismatch, OtherVersion
from graphforget.files import error_reason
from graphforget.graph.graph import Graph
from graphforget.json_files import read_json
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.runs.history import History, history_of
from graphforget.runs.layout import ANNEX, CERTIFICATE, LEDGER, OUTCOME, DamagedRun, foreign_files, open_run
from graphforget.runs.proofs import check_stored_trees, read_trees
from graphforget.runs.read import check_in_full, read_run
from graphforget.runs.released import released_weights
from graphforget.runs.state import as_certified, check_annexes
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.verification.evidence import Evidence
from graphforget.verification.verify import Check, Verification, verify_evidence

ROLLBACK = "that this is not an older copy of the run: keep 'ledger --head' elsewhere and give it as --head"
RunReader = Callable[[Path], tuple[Trained, Graph]]
TreesCheck = Callable[[dict[str, Tensor], History, Any], Check | None]


# Longer than 50 lines because of its documentation.
def verify_run(
    folder: str | Path,
    *,
    key: Ed25519PublicKey | None = None,
    graph: Graph | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    before: str | Path | None = None,
    head: str | None = None,
    replay: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    read: RunReader | None = None,
    check_absence: TreesCheck = check_stored_trees,
) -> Verification:
    """Recomputes everything that a run directory claims.

    Args:
        folder: The run directory.
        key: The public key of the signer.
        graph: The retained graph from the verifier's own records, used instead of the one in the run directory.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.
        retrain: The training function of an adopted model, for a replay.
        before: The run directory of the release before. Its noise must be independent of this one's.
        head: The head of the ledger, as it was kept elsewhere. The run must be at it or past it.
        replay: Whether to train again and compare the weights, for `exact` claims and for encoders.
        device: The torch device of a replay.
        progress: The callback to report to.
        read: How the model and the graph are read and checked, if the graph is not in the run directory.
        check_absence: How the trees from which absence is shown are checked.

    Returns:
        What was checked, and what could not be checked.

    Raises:
        Mismatch: Something does not match. The message names the first such thing.
        InputError: The run holds no certificate, or an argument cannot be used.
    """
    earlier = None
    if before is not None and read is not None:
        earlier = _evidence(before, model=model, loss=loss, read=read)[0]
        _ = earlier.noise  # measured now: the next run that is read replaces its graph
    evidence, history, notes, stored = _evidence(folder, model=model, loss=loss, retrain=retrain, read=read)
    if head is not None:
        check_head(history, head)
    if graph is not None:
        try:
            evidence = dataclasses.replace(evidence, graph=graph.numbered_as(evidence.graph))
        except InputError as error:  # it holds a node that the run does not know; the message names nobody
            raise Mismatch("the graph is not the one that the model stands on") from error
    if before is not None and read is None:
        earlier = _evidence(before, model=model, loss=loss)[0]
    evidence = dataclasses.replace(evidence, key=key, before=earlier)
    result = verify_evidence(evidence, replay=replay, device=device, progress=progress)
    try:
        shown = check_absence(stored, history, evidence.graph)
    except DamagedRun as damage:
        raise Mismatch(str(damage)) from damage
    if shown is not None:
        result = dataclasses.replace(result, checks=(*result.checks, shown))
    if head is None:
        notes = (*notes, ROLLBACK)
    return dataclasses.replace(result, unchecked=(*result.unchecked, *notes))


def check_head(history: History, head: str) -> None:
    """Raises `Mismatch` unless the run is at the entry of this hash, or past it."""
    if not re.fullmatch(r"[0-9a-f]{64}", head):
        raise InputError(f"the head is {head!r}, 64 hexadecimal digits are needed, as 'ledger --head' prints them")
    if head not in (history.follows, *(entry.hash for entry in history.entries)):
        raise Mismatch("the run is not at this head or past it: it was rolled back, or is another one")


def _evidence(
    folder: str | Path,
    *,
    model: OwnModel | None,
    loss: Loss | LossFunction | None,
    retrain: RetrainFunction | None = None,
    read: RunReader | None = None,
) -> tuple[Evidence, History, tuple[str, ...], dict[str, Tensor]]:
    """What a run's certificate is checked against, its history, notes on what cannot be checked, and stored trees."""
    with open_run(folder) as place:
        try:
            if read is not None:
                trained, graph = read(place)
            else:
                trained, graph = read_run(place, model=model, loss=loss, retrain=retrain)
                check_in_full(place, trained, graph, own=model is not None or loss is not None)
            stored = read_trees(place)
        except DamagedRun as damage:
            raise Mismatch(str(damage)) from damage
        history = _history(place, folder, trained)
        try:
            certificate = Certificate.read(place / CERTIFICATE)
            released = released_weights(place, trained)
            public = read_json(place / OUTCOME, name=OUTCOME)
        except OtherVersion:
            raise
        except (OSError, ValueError) as error:
            raise Mismatch(_cannot_be_read(error)) from error
        others = tuple(f"files that are not the run's own: {name}" for name in foreign_files(place))
    ledger = history.ledger
    last = ledger.last_release
    if last is None:
        raise Mismatch(f"the ledger of {folder} is missing")
    if history.own_annexes[last].request != certificate.digests["request"]:
        raise Mismatch("the certificate is not that of this run")
    if public != ledger.answers[last]:
        raise Mismatch(f"{OUTCOME} is not what the ledger says was answered")
    check_annexes(history)
    refused_since = len(ledger.releases) - 1 - last
    evidence = Evidence(
        certificate=certificate,
        trained=as_certified(trained, ledger.releases),
        graph=graph,
        released=released,
        annexes=history.annexes[: len(history.annexes) - refused_since],
        ledger=ledger,
    )
    return evidence, history, others, stored


def _history(place: Path, folder: str | Path, trained: Trained) -> History:
    """The history of a run that has released something, its ledger checked. Raises `InputError` if it has not."""
    has_certificate = (place / CERTIFICATE).exists()
    if not (trained.history or has_certificate or any((place / name).exists() for name in (LEDGER, ANNEX))):
        raise InputError(f"{folder} holds no certificate: it has not answered any request")
    try:
        history = history_of(place)
    except OtherVersion:
        raise
    except (OSError, ValueError) as error:
        raise Mismatch(_cannot_be_read(error)) from error
    nothing_released = history.ledger.last_release is None and bool(history.entries) and history.earlier is None
    if nothing_released and not trained.history and not has_certificate:
        raise InputError(f"{folder} holds no certificate: its requests were refused, and nothing was released")
    return history


def _cannot_be_read(error: Exception) -> str:
    """An `InputError` says it itself; an error of the operating system names the file."""
    return f"{error.filename} cannot be read: {error_reason(error)}" if isinstance(error, OSError) else str(error)
