"""What a run directory keeps of the deletions that led to it, beside the model and its graph.

certificate.json      the last request's certificate: public
released.safetensors  the weights with the certificate's noise: public
outcome.json          the last request's public answer
ledger.sqlite         all requests, their public answers and certificates, chained by hashes and signed
annex.json            salted hashes of what every request named, and everything measured on the way: private
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from safetensors.torch import save as save_bytes
from torch import Tensor, nn

from graphforget import rundir
from graphforget.certificates.annex import Annex, request_digest
from graphforget.certificates.document import Certificate
from graphforget.certificates.ledger import REFUSED, START, Composed, Entry, Ledger, check, check_id
from graphforget.certificates.releases import composed_since_training
from graphforget.certificates.signing import entry_signer, signed
from graphforget.errors import FloorMissed, InputError, Mismatch, OtherVersion, Refused
from graphforget.fitting import Progress
from graphforget.graph import Graph
from graphforget.locks import turn
from graphforget.losses import Loss, LossFunction
from graphforget.request import Request
from graphforget.rundir import ANNEX, CERTIFICATE, EARLIER_LEDGER, LEDGER, OUTCOME, RELEASED
from graphforget.safe_files import read_bytes, read_tensors
from graphforget.safe_json import parse_json, read_json
from graphforget.trained import Trained
from graphforget.unlearning.auto import Wanted
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.registry import unlearn
from graphforget.verification.entries import answer_digest, check_entries
from graphforget.verification.evidence import Evidence
from graphforget.verify import Verification, verify

BLOCK = 4096  # public files are filled up to a multiple of it: a size could tell how long a number is


@dataclass(frozen=True)
class Record:
    """The deletions of a run directory, oldest first."""

    entries: tuple[Entry, ...] = ()
    annexes: tuple[Annex, ...] = ()  # those of an earlier format included
    earlier: bytes | None = None  # the ledger of an earlier format, as it was
    follows: str = START  # its head

    @property
    def head(self) -> str:
        return self.entries[-1].hash if self.entries else self.follows

    @property
    def own_annexes(self) -> tuple[Annex, ...]:
        """Of the entries."""
        return self.annexes[len(self.annexes) - len(self.entries) :]

    def answered(self, request_id: str | None, request: Request) -> Entry | None:
        """The entry of this id, or one that refused this very request. The same id for another is an `InputError`."""
        for entry, annex in zip(self.entries, self.own_annexes, strict=True):
            same = request_digest(request, annex.salt) == entry.request_digest
            if entry.request_id == request_id and not same:
                raise InputError(f"the request id {request_id!r} was used for another request")
            if entry.request_id == request_id or (entry.level == REFUSED and same):
                return entry
        return None

    def continues(self, other: Record, trained: Trained) -> bool:
        """Whether its ledger goes on from the other one, and from the model that belongs to that."""
        if self.follows != other.follows or self.entries[: len(other.entries)] != other.entries:
            return False
        following = self.own_annexes[len(other.entries) :][:1]
        return all(annex.account.get("weights_before") == annex.weights(trained.theta) for annex in following)

    def annex_of(self, entry: Entry) -> Annex:
        return self.own_annexes[self.entries.index(entry)]  # its number may be anything, until the chain is checked


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
    with turn(target.resolve()):
        for place in dict.fromkeys((target, Path(run))):
            record = read_record(place)
            is_other = place == target and out is not None and bool(record.entries)
            if is_other and not record.continues(read_record(run), rundir.load(run, model=model, loss=loss)[0]):
                continue  # another line of runs, whose answers are not this one's
            earlier = record.answered(request_id, request)
            if earlier is not None:
                return _repeated(earlier, record, place, options.get("level"))
        over = force or out is None
        rundir.check_free(target, force=over)
        with rundir.settled(run) as place:
            trained, graph = rundir.read(place, model=model, loss=loss)
            record = _record(place)
            _check_state(place, trained, graph, record)
        try:
            outcome = unlearn(trained, graph, request, progress=progress, **options)
        except FloorMissed as missed:
            with nullcontext() if out is None else turn(Path(run).resolve()):
                _save_refusal(Path(run), missed, graph, record, key=key, request_id=request_id)
            raise
        return _save(target, outcome, record, key=key, request_id=request_id, over=over)


def _repeated(earlier: Entry, record: Record, place: Path, level: Any) -> Answer:
    check_entries(record.entries, follows=record.follows)
    public = parse_json(earlier.answer)
    if earlier.level == REFUSED:
        raise Refused(f"this request was refused before: {public.get('refused')}")
    if not Wanted(level).met_by(earlier.level):  # type: ignore[arg-type]
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
    with turn(Path(folder).resolve()):
        rundir.check_free(folder, force=force)
        record = Record() if after is None else read_record(after)
        return _save(Path(folder), outcome, record, key=key, request_id=request_id, over=force).folder


def _save(
    folder: Path,
    outcome: Outcome,
    record: Record,
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
        CERTIFICATE: _public_json(certificate.to_dict()),
        OUTCOME: _public_json(public),
        RELEASED: save_bytes({"theta": outcome.released_theta.contiguous()}),
    }
    _write(folder, outcome.trained, outcome.graph, record, outcome.annex, entry, files, key=key, over=over)
    return Answer(outcome.answer(), folder, request_id, outcome)


def _save_refusal(
    run: Path,
    missed: FloorMissed,
    graph: Graph,
    record: Record,
    *,
    key: Ed25519PrivateKey | None,
    request_id: str | None,
) -> None:
    """Writes down, in the run that was asked, that noise was drawn and nothing was released.

    The model and its last release stay as they are. A run that has moved on in the meantime is left alone.
    """
    if read_record(run).head != record.head:
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
    with rundir.settled(run) as place:
        names = [name for name in (CERTIFICATE, OUTCOME, RELEASED) if (place / name).exists()]
        files = {name: read_bytes(place / name, largest=rundir.LIMITS[name]) for name in names}
    _write(run, missed.trained, graph, record, annex, entry, files, key=key, over=True)


def _write(
    folder: Path,
    trained: Trained,
    graph: Graph,
    record: Record,
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
    files = files | {ANNEX: _json(annexes)}
    if record.earlier is not None:
        files[EARLIER_LEDGER] = record.earlier
    rundir.write(folder, trained, graph, over=over, extras=files, finish=write_ledger)


def read_record(folder: str | Path) -> Record:
    """The ledger's entries and the annexes, none if the run came of no deletion."""
    with rundir.settled(folder) as place:
        return _record(place)


def _record(folder: Path) -> Record:
    if not os.path.lexists(folder / LEDGER):
        return Record()
    for name in sorted(rundir.DATABASES):  # a run is written as a whole, so nothing can be left in a log
        if name.endswith("-wal") and (folder / name).exists() and (folder / name).stat().st_size:
            raise InputError(f"{folder / name} is not the run's own, and SQLite would change the ledger by it")
    with Ledger(folder / LEDGER, readonly=True) as ledger:
        entries, is_earlier = ledger.entries(), ledger.format == 1
    earlier_entries: tuple[Entry, ...] = entries if is_earlier else ()
    if not is_earlier and os.path.lexists(folder / EARLIER_LEDGER):
        with Ledger(folder / EARLIER_LEDGER, readonly=True) as ledger:
            earlier_entries = ledger.entries()
    source = folder / (LEDGER if is_earlier else EARLIER_LEDGER)
    check(earlier_entries, format=1)
    annexes = _annexes(folder / ANNEX)
    record = Record(
        entries=() if is_earlier else entries,
        annexes=annexes,
        earlier=read_bytes(source, largest=rundir.LIMITS[LEDGER]) if earlier_entries else None,
        follows=earlier_entries[-1].hash if earlier_entries else START,
    )
    if len(annexes) != len(record.entries) + len(earlier_entries):
        count = len(record.entries) + len(earlier_entries)
        raise InputError(f"{folder} has {count} entries in its ledger and {len(annexes)} annexes")
    return record


def _annexes(path: Path) -> tuple[Annex, ...]:
    try:
        content = read_json(path, what="the annex", largest=rundir.LIMITS[ANNEX])
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error
    listed = content.get("annexes") if isinstance(content, dict) else content  # a plain list in an earlier format
    if not isinstance(listed, list):
        raise InputError(f"{path} holds no list of annexes")
    return tuple(Annex.from_dict(one) for one in listed)


def _check_state(place: Path, trained: Trained, graph: Graph, record: Record) -> None:
    """Nothing is built on, and nobody signs, what does not fit the last certificate. Raises `Mismatch`."""
    if not record.entries and record.earlier is None:
        if trained.history or any((place / name).exists() for name in (CERTIFICATE, ANNEX)):
            raise Mismatch(f"{place} has forgotten something before, and its ledger is missing")
        return
    certificates = check_entries(record.entries, follows=record.follows)
    trained = as_certified(trained, record.entries)
    released = [number for number, certificate in enumerate(certificates) if certificate is not None]
    if not released:
        return
    certificate, annex = Certificate.read(place / CERTIFICATE), record.own_annexes[released[-1]]
    if certificate.digest != record.entries[released[-1]].certificate_digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    digests = {
        "annex": annex.digest,
        "state": annex.state(trained.facts()),
        "graph": trained.graph_commitment(graph),
        "weights": annex.weights(trained.theta),
    }
    for name, digest in digests.items():
        if certificate.digests[name] != digest:
            raise Mismatch(f"{name}: not what the last certificate speaks of")
    _check_annexes(record, certificates)


def _check_annexes(record: Record, certificates: Sequence[Certificate | None]) -> None:
    """Raises `Mismatch` unless every annex, also of what was refused, is the one that its entry speaks of."""
    for entry, certificate, annex in zip(record.entries, certificates, record.own_annexes, strict=True):
        digests = parse_json(entry.answer).get("digests") if certificate is None else certificate.digests
        if not isinstance(digests, Mapping) or digests.get("annex") != annex.digest:
            raise Mismatch("the ledger and the annexes speak of other requests")


def as_certified(trained: Trained, entries: tuple[Entry, ...]) -> Trained:
    """The model as its last certificate speaks of it: without the releases that were counted and refused since.

    Raises `Mismatch` if the model does not count them.
    """
    refused: list[float] = []
    for entry in reversed(entries):
        if entry.level != REFUSED:
            break
        refused += [entry.ratio] if entry.ratio else []  # exact ones are not counted
    if not refused:
        return trained
    if list(trained.releases[-len(refused) :]) != refused[::-1]:
        raise Mismatch("the model does not count a release that was refused")
    return dataclasses.replace(trained, releases=trained.releases[: -len(refused)])


def releases_so_far(folder: str | Path, *, delta: float) -> Composed:
    """What all releases of a run's ledger tell together. Raises `Mismatch` if the ledger does not hold."""
    record = read_record(folder)
    certificates = check_entries(record.entries, follows=record.follows)
    return composed_since_training(record.entries, certificates, delta=delta)


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


def check_head(record: Record, head: str) -> None:
    """Raises `Mismatch` unless the run is at the entry of this hash, or past it."""
    if not re.fullmatch(r"[0-9a-f]{64}", head):
        raise InputError(f"the head is {head!r}, 64 hexadecimal digits are needed, as 'ledger --head' prints them")
    if head not in (record.follows, *(entry.hash for entry in record.entries)):
        raise Mismatch("the run is not at this head or past it: it was rolled back, or is another one")


def _evidence(
    folder: str | Path, *, model: nn.Module | None, loss: Loss | LossFunction | None
) -> tuple[Evidence, Record, tuple[str, ...]]:
    with rundir.settled(folder) as place:
        try:
            trained, graph = rundir.read(place, model=model, loss=loss)
        except rundir.Damaged as damage:
            raise Mismatch(str(damage)) from damage
        if not any((place / name).exists() for name in (CERTIFICATE, LEDGER, ANNEX)) and not trained.history:
            raise InputError(f"{folder} holds no certificate, it did not come of a deletion")
        if not trained.history and _released_nothing(place):
            raise InputError(f"{folder} holds no certificate: its requests were refused, and nothing was released")
        try:
            record = _record(place)
            check(record.entries, follows=record.follows)
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
    _check_annexes(record, check_entries(record.entries, follows=record.follows))
    evidence = Evidence(
        certificate=certificate,
        trained=as_certified(trained, record.entries),
        graph=graph,
        released=released,
        annexes=record.annexes[:upto],
        entries=record.entries,
        follows=record.follows,
    )
    others = tuple(f"files that are not the run's own: {name}" for name in rundir.strangers(place))
    return evidence, record, others


def _released_nothing(place: Path) -> bool:
    """Whether every request so far was refused. Raises `Mismatch` if the ledger does not hold."""
    if (place / CERTIFICATE).exists():
        return False
    try:
        record = _record(place)
    except (OSError, ValueError):  # whoever reads it next says why
        return False
    return bool(record.entries) and record.earlier is None and not any(check_entries(record.entries))


def load_released(
    folder: str | Path, *, model: nn.Module | None = None, loss: Loss | LossFunction | None = None
) -> tuple[Trained, Graph]:
    """The model of a run directory that may go out, with the certificate's noise, and its graph."""
    with rundir.settled(folder) as place:
        trained, graph = rundir.read(place, model=model, loss=loss)
        theta = released_weights(place, like=trained.theta)
        sigma = Certificate.read(place / CERTIFICATE).sigma
    return trained.released(theta, graph, noise=float(sigma or 0.0)), graph


def released_weights(folder: Path, *, like: Tensor | None = None) -> Tensor:
    """The weights that may go out, as many as `like` has."""
    try:
        tensors = read_tensors(folder / RELEASED, largest=rundir.LARGEST)[0]
        theta = tensors.get("theta") if len(tensors) == 1 else None  # nothing else may go out with it
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no released weights, it did not come of a deletion") from error
    if theta is None or theta.dtype != torch.float64 or (like is not None and theta.shape != like.shape):
        raise InputError(f"{folder / RELEASED} does not hold as many weights as the model has, in float64")
    return theta


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def _public_json(content: Any) -> bytes:
    """Filled up with spaces to a multiple of `BLOCK` bytes."""
    text = _json(content)
    return text + b" " * (-len(text) % BLOCK)
