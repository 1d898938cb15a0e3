"""Answers a request against a run directory, and saves all results.

certificate.json      the last request's certificate: public
released.safetensors  the weights with the certificate's noise: public
outcome.json          the last request's public answer
proofs.safetensors    the trees from which absence is shown: private
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import save as save_bytes

from graphforget.certificates.annex import Annex
from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.entry_fields import check_id
from graphforget.certificates.issue import Filing
from graphforget.certificates.ledger import Ledger
from graphforget.certificates.signing import entry_signer
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.files import read_bytes
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.runs.history import History, history_of, read_history
from graphforget.runs.layout import (
    ANNEX,
    CERTIFICATE,
    EARLIER_LEDGER,
    LEDGER,
    LIMITS,
    OUTCOME,
    PROOFS,
    RELEASED,
    check_free,
    check_writable,
    open_run,
    recover,
)
from graphforget.runs.locks import run_lock
from graphforget.runs.proofs import RunTrees, stored_trees
from graphforget.runs.read import read_run
from graphforget.runs.state import check_state
from graphforget.runs.write import write_run
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.selection import LevelPolicy
from graphforget.unlearning.unlearn import unlearn
from graphforget.verification.entries import answer_digest

BLOCK = 4096  # public files are padded to a multiple of it, so that their size does not reveal the length of a number


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to a request against a run directory. `outcome` is None if an earlier answer was repeated."""

    summary: dict[str, Any]
    folder: Path
    request_id: str
    outcome: Outcome | None

    @property
    def repeated(self) -> bool:
        return self.outcome is None


# Longer than 50 lines because of its documentation.
def answer(
    run: str | Path,
    request: Request,
    *,
    out: str | Path | None = None,
    request_id: str | None = None,
    key: Ed25519PrivateKey | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Answer:
    """Unlearns a request with the model of a run directory, and saves model, certificate, annex and ledger.

    A release under the model's floor is refused. The refusal is recorded too: the same request is then refused again,
    and no new noise is drawn for it.

    Args:
        run: The run directory.
        request: What to unlearn.
        out: A folder for the new state; `run` then stays unchanged. Without it, the new state replaces that of `run`,
            one request at a time, also if several processes ask.
        request_id: An id that makes it safe to ask twice: the same id gets the first answer again, to the bit.
        key: The key that signs the certificate and the ledger.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.
        retrain: The training function of an adopted model.
        force: Whether to overwrite a run directory at `out`.
        progress: The callback to report to.
        **options: Those of `unlearn`.

    Returns:
        The answer.

    Raises:
        InputError: Bad input. Nothing was changed.
        Mismatch: The run does not fit its last certificate. Nothing was changed.
        Refused: The guarantee cannot be given, or was refused before. Nothing was released.
    """
    if request_id is not None:
        check_id(request_id)
    if out is not None and Path(out).resolve() == Path(run).resolve():
        raise InputError(f"{out} is the run itself: for its next state use --in-place (out=None) instead of --out")
    target = Path(run if out is None else out)
    overwrite = force or out is None
    with run_lock(target.resolve()):
        recover(target)
        with open_run(run) as place:
            history = history_of(place)
            if out is not None:
                earlier = _answered_at(target, history, place, request_id, request, model=model, loss=loss)
                if earlier is not None:
                    return _repeated(*earlier, target, options.get("level"))
            entry = history.answered(request_id, request)
            if entry is not None:
                return _repeated(entry, history, Path(run), options.get("level"))
            check_writable(target, force=overwrite)
            trained, graph = read_run(place, model=model, loss=loss, retrain=retrain)
            check_state(place, trained, graph, history)
            trees = RunTrees(graph, stored_trees(place, history), progress)
        filing = Filing(history.head, key, trees.commit)
        try:
            outcome = unlearn(trained, graph, request, progress=progress, filing=filing, **options)
        except FloorMissed as missed:
            with nullcontext() if out is None else run_lock(Path(run).resolve()):
                _save_refusal(Path(run), missed, graph, history, key=key, request_id=request_id)
            raise
        more = {PROOFS: trees.to_bytes()}
        return _save(target, outcome, history, key=key, request_id=request_id, overwrite=overwrite, more=more)


def _answered_at(
    target: Path,
    source: History,
    place: Path,
    request_id: str | None,
    request: Request,
    *,
    model: OwnModel | None,
    loss: Loss | LossFunction | None,
) -> tuple[Entry, History] | None:
    """The entry that answered the request at `target`, and the history there, if that continues the source's.

    A target that continues another run holds answers to other requests, and an id may mean another request there.
    """
    history = read_history(target)
    if history.entries and not history.continues(source, read_run(place, model=model, loss=loss)[0]):
        return None
    entry = history.answered(request_id, request)
    return None if entry is None else (entry, history)


def _repeated(earlier: Entry, history: History, folder: Path, level: Any) -> Answer:
    """The answer that was given before. Raises `Refused` if that was a refusal, or under the `level`."""
    public = history.ledger.answers[earlier.number - 1]
    if earlier.level == REFUSED:
        raise Refused(f"this request was refused before: {public.get('refused')}")
    if not LevelPolicy(level).met_by(earlier.level):  # type: ignore[arg-type]
        message = f"request {earlier.request_id!r} was answered before, at level {earlier.level!r}"
        raise Refused(f"{message}, not {level!r}")
    private = dict(history.annex_of(earlier).account)
    return Answer({**public, "private": private}, folder, earlier.request_id, None)


def save_outcome(
    folder: str | Path,
    outcome: Outcome,
    *,
    after: str | Path | None = None,
    key: Ed25519PrivateKey | None = None,
    request_id: str | None = None,
    force: bool = False,
) -> Path:
    """Saves the run directory of an outcome, with its certificate and released weights.

    Args:
        folder: Where to save it.
        outcome: The outcome of `unlearn`.
        after: The run directory of the model before the request. Its ledger and annexes are continued.
        key: The key that signs the certificate and the ledger.
        request_id: The id of the request in the ledger. By default it is random.
        force: Whether to overwrite a run directory.

    Returns:
        The path of the run directory.

    Raises:
        InputError: The folder cannot be written, or the run at `after` cannot be read.
    """
    with run_lock(Path(folder).resolve()):
        check_free(folder, force=force)
        history = History() if after is None else read_history(after)
        certificate = Filing(history.head, key).file(outcome.certificate)
        outcome = dataclasses.replace(outcome, certificate=certificate)
        return _save(Path(folder), outcome, history, key=key, request_id=request_id, overwrite=force).folder


def _save(
    folder: Path,
    outcome: Outcome,
    history: History,
    *,
    key: Ed25519PrivateKey | None,
    request_id: str | None,
    overwrite: bool,
    more: Mapping[str, bytes] | None = None,
) -> Answer:
    certificate, public = outcome.certificate, outcome.public()
    request_id = str(uuid.uuid4()) if request_id is None else request_id
    entry: dict[str, Any] = {
        "time": certificate.made,
        "request_id": request_id,
        "request_digest": certificate.digests["request"],
        "certificate_digest": certificate.digest,
        "level": certificate.level,
        "ratio": certificate.claim.ratio,
        "answer": json.dumps(public, allow_nan=False),
    }
    files = {
        CERTIFICATE: public_json(certificate.to_dict()),
        OUTCOME: public_json(public),
        RELEASED: save_bytes({"theta": outcome.released_theta.contiguous()} | outcome.trained.released_state),
        **(more or {}),
    }
    _write(folder, outcome.trained, outcome.graph, history, outcome.annex, entry, files, key=key, overwrite=overwrite)
    return Answer(outcome.answer(), folder, request_id, outcome)


def _save_refusal(
    run: Path,
    missed: FloorMissed,
    graph: Graph,
    history: History,
    *,
    key: Ed25519PrivateKey | None,
    request_id: str | None,
) -> None:
    """Records in the ledger of `run` that noise was drawn and nothing was released.

    The model and its last release stay unchanged. A run that somebody else has changed in the meantime is left alone.
    """
    if read_history(run).head != history.head:
        return
    annex: Annex = missed.annex
    public = {
        "audience": "public",
        "level": REFUSED,
        "refused": str(missed),
        "digests": {"request": annex.request, "annex": annex.digest},
        "releases_left": missed.trained.releases_left,
    }
    entry: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "request_id": str(uuid.uuid4()) if request_id is None else request_id,
        "request_digest": annex.request,
        "certificate_digest": answer_digest(public),
        "level": REFUSED,
        "ratio": missed.ratio,
        "answer": json.dumps(public, allow_nan=False),
    }
    with open_run(run) as place:
        names = [name for name in (CERTIFICATE, OUTCOME, RELEASED, PROOFS) if (place / name).exists()]
        files = {name: read_bytes(place / name, largest=LIMITS[name]) for name in names}
    _write(run, missed.trained, graph, history, annex, entry, files, key=key, overwrite=True)


def _write(
    folder: Path,
    trained: Trained,
    graph: Graph,
    history: History,
    annex: Annex,
    entry: dict[str, Any],
    files: dict[str, bytes],
    *,
    key: Ed25519PrivateKey | None,
    overwrite: bool,
) -> None:
    """Writes the run directory with one more entry in its ledger."""

    def write_ledger(staging: Path) -> None:
        with Ledger(staging / LEDGER) as ledger:
            ledger.import_entries(history.chain)
            ledger.append(follows=history.follows, sign=entry_signer(key) if key else None, **entry)

    annexes = {"audience": "private", "annexes": [one.to_dict() for one in (*history.annexes, annex)]}
    files = files | {ANNEX: json_bytes(annexes)}
    if history.earlier is not None:
        files[EARLIER_LEDGER] = history.earlier
    write_run(folder, trained, graph, overwrite=overwrite, extras=files, finish=write_ledger)


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def public_json(content: Any) -> bytes:
    """JSON, padded with spaces to a multiple of `BLOCK` bytes."""
    text = json_bytes(content)
    return text + b" " * (-len(text) % BLOCK)
