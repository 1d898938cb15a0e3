"""Answers a request against a run directory, and writes everything down.

certificate.json      the last request's certificate: public
released.safetensors  the weights with the certificate's noise: public
outcome.json          the last request's public answer
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import save as save_bytes
from torch import nn

from graphforget.certificates.annex import Annex
from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.entry_fields import check_id
from graphforget.certificates.ledger import Ledger
from graphforget.certificates.signing import entry_signer, signed
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.files import read_bytes
from graphforget.graph.graph import Graph
from graphforget.json_files import parse_json
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
    RELEASED,
    check_free,
    open_run,
)
from graphforget.runs.locks import run_lock
from graphforget.runs.read import load_run, read_run
from graphforget.runs.state import check_state
from graphforget.runs.write import write_run
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.selection import LevelPolicy
from graphforget.unlearning.unlearn import unlearn
from graphforget.verification.entries import answer_digest, check_entries

BLOCK = 4096  # public files are filled up to a multiple of it: a size could tell how long a number is


@dataclass(frozen=True, eq=False)
class Answer:
    """What became of a request against a run directory. `outcome` is None if an earlier answer was repeated."""

    summary: dict[str, Any]
    folder: Path
    request_id: str
    outcome: Outcome | None

    @property
    def repeated(self) -> bool:
        return self.outcome is None


def answer(
    run: str | Path,
    request: Request,
    *,
    out: str | Path | None = None,
    request_id: str | None = None,
    key: Ed25519PrivateKey | None = None,
    model: nn.Module | None = None,
    loss: Loss | LossFunction | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Answer:
    """Makes the model of a run directory forget, and writes down everything: model, certificate, annex, ledger.

    Without `out` the run directory itself moves on to the new state, one request at a time however many processes ask;
    the old state, which held what was to be forgotten, is gone. With `out` the new state goes there and `run` stays as
    it is. A `request_id` makes it safe to ask twice: the same id is answered with the first outcome, to the bit. `key`
    signs certificate and ledger. `options` are those of `unlearn`. A release under the model's floor is refused, and
    that is written down too: the same request is then refused again, and no noise is drawn for it anew.
    """
    if request_id is not None:
        check_id(request_id)
    if out is not None and Path(out).resolve() == Path(run).resolve():
        raise InputError(f"{out} is the run itself: for its next state use --in-place (out=None) instead of --out")
    target = Path(run if out is None else out)
    with run_lock(target.resolve()):
        for place in dict.fromkeys((target, Path(run))):
            record = read_history(place)
            is_other = place == target and out is not None and bool(record.entries)
            if is_other and not record.continues(read_history(run), load_run(run, model=model, loss=loss)[0]):
                continue  # another line of runs, whose answers are not this one's
            earlier = record.answered(request_id, request)
            if earlier is not None:
                return _repeated(earlier, record, place, options.get("level"))
        over = force or out is None
        check_free(target, force=over)
        with open_run(run) as place:
            trained, graph = read_run(place, model=model, loss=loss)
            record = history_of(place)
            check_state(place, trained, graph, record)
        try:
            outcome = unlearn(trained, graph, request, progress=progress, **options)
        except FloorMissed as missed:
            with nullcontext() if out is None else run_lock(Path(run).resolve()):
                _save_refusal(Path(run), missed, graph, record, key=key, request_id=request_id)
            raise
        return _save(target, outcome, record, key=key, request_id=request_id, over=over)


def _repeated(earlier: Entry, record: History, place: Path, level: Any) -> Answer:
    check_entries(record.entries, follows=record.follows)
    public = parse_json(earlier.answer)
    if earlier.level == REFUSED:
        raise Refused(f"this request was refused before: {public.get('refused')}")
    if not LevelPolicy(level).met_by(earlier.level):  # type: ignore[arg-type]
        message = f"request {earlier.request_id!r} was answered before, at level {earlier.level!r}"
        raise Refused(f"{message}, not {level!r}")
    private = dict(record.annex_of(earlier).account)
    return Answer(public | {"private": private}, place, earlier.request_id, None)


def save_outcome(
    folder: str | Path,
    outcome: Outcome,
    *,
    after: str | Path | None = None,
    key: Ed25519PrivateKey | None = None,
    request_id: str | None = None,
    force: bool = False,
) -> Path:
    """Writes the run directory of the model that came of an outcome, with its certificate and released weights.

    `after` is the run directory that the model came from, whose ledger and annexes go on here.
    """
    with run_lock(Path(folder).resolve()):
        check_free(folder, force=force)
        record = History() if after is None else read_history(after)
        return _save(Path(folder), outcome, record, key=key, request_id=request_id, over=force).folder


def _save(
    folder: Path,
    outcome: Outcome,
    record: History,
    *,
    key: Ed25519PrivateKey | None,
    request_id: str | None,
    over: bool,
) -> Answer:
    certificate = dataclasses.replace(outcome.certificate, follows=record.head)
    outcome = dataclasses.replace(outcome, certificate=signed(certificate, key) if key else certificate)
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
        RELEASED: save_bytes({"theta": outcome.released_theta.contiguous()}),
    }
    _write(folder, outcome.trained, outcome.graph, record, outcome.annex, entry, files, key=key, over=over)
    return Answer(outcome.answer(), folder, request_id, outcome)


def _save_refusal(
    run: Path,
    missed: FloorMissed,
    graph: Graph,
    record: History,
    *,
    key: Ed25519PrivateKey | None,
    request_id: str | None,
) -> None:
    """Writes down, in the run that was asked, that noise was drawn and nothing was released.

    The model and its last release stay as they are. A run that has moved on in the meantime is left alone.
    """
    if read_history(run).head != record.head:
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
        names = [name for name in (CERTIFICATE, OUTCOME, RELEASED) if (place / name).exists()]
        files = {name: read_bytes(place / name, largest=LIMITS[name]) for name in names}
    _write(run, missed.trained, graph, record, annex, entry, files, key=key, over=True)


def _write(
    folder: Path,
    trained: Trained,
    graph: Graph,
    record: History,
    annex: Annex,
    entry: dict[str, Any],
    files: dict[str, bytes],
    *,
    key: Ed25519PrivateKey | None,
    over: bool,
) -> None:
    """The run directory with one entry more."""

    def write_ledger(staging: Path) -> None:
        with Ledger(staging / LEDGER) as ledger:
            ledger.take_over(record.entries, follows=record.follows)
            ledger.append(follows=record.follows, sign=entry_signer(key) if key else None, **entry)

    annexes = {"audience": "private", "annexes": [one.to_dict() for one in (*record.annexes, annex)]}
    files = files | {ANNEX: json_bytes(annexes)}
    if record.earlier is not None:
        files[EARLIER_LEDGER] = record.earlier
    write_run(folder, trained, graph, over=over, extras=files, finish=write_ledger)


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def public_json(content: Any) -> bytes:
    """Filled up with spaces to a multiple of `BLOCK` bytes."""
    text = json_bytes(content)
    return text + b" " * (-len(text) % BLOCK)
