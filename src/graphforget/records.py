"""What a run directory keeps of the deletions that led to it, beside the model and its graph.

certificate.json      the last request's certificate: may be shown
released.safetensors  the weights with the certificate's noise: may go out
outcome.json          how it went: method, times, notes
annex.json            salted hashes of what every request named: private
ledger.sqlite         all requests and releases, chained by hashes
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from torch import Tensor, nn

from graphforget import rundir
from graphforget.certificates.annex import Annex, request_digest
from graphforget.certificates.document import Certificate
from graphforget.certificates.ledger import START, Composed, Entry, Ledger, check_id, composed
from graphforget.certificates.signing import signed
from graphforget.errors import InputError, Mismatch, OtherVersion, Refused
from graphforget.fitting import Progress
from graphforget.graph import Graph
from graphforget.locks import turn
from graphforget.losses import Loss, LossFunction
from graphforget.request import Request
from graphforget.rundir import ANNEX, CERTIFICATE, LEDGER, OUTCOME, RELEASED
from graphforget.trained import Trained
from graphforget.unlearning.auto import Wanted
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.registry import unlearn
from graphforget.verification.entries import check_entries, release_ratio
from graphforget.verify import Verification, verify


@dataclass(frozen=True)
class Record:
    """The deletions of a run directory, oldest first."""

    entries: tuple[Entry, ...]
    annexes: tuple[Annex, ...]

    @property
    def head(self) -> str:
        return self.entries[-1].hash if self.entries else START

    def answered(self, request_id: str, request: Request) -> Entry | None:
        """The entry of this id. The same id for another request is an `InputError`."""
        for entry, annex in zip(self.entries, self.annexes, strict=True):
            if entry.request_id == request_id:
                if request_digest(request, annex.salt) != entry.request_digest:
                    raise InputError(f"the request id {request_id!r} was used for another request")
                return entry
        return None


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
    it is. A `request_id` makes it safe to ask twice: the same id is answered with the first outcome. `key` signs the
    certificate. `options` are those of `unlearn`.
    """
    if request_id is not None:
        check_id(request_id)
    if out is not None and Path(out).resolve() == Path(run).resolve():
        raise InputError(f"{out} is the run itself: for its next state use --in-place (out=None) instead of --out")
    target = Path(run if out is None else out)
    with turn(target.resolve()):
        for place in dict.fromkeys((target, Path(run))):
            earlier = None if request_id is None else read_record(place).answered(request_id, request)
            if earlier is not None:
                if not Wanted(options.get("level")).met_by(earlier.level):
                    told = f"request {request_id!r} was answered before, at level {earlier.level!r}"
                    raise Refused(f"{told}, not {options['level']!r}")
                return Answer(json.loads(earlier.answer), place, earlier.request_id, None)
        over = force or out is None
        rundir.check_free(target, force=over)
        with rundir.settled(run) as place:
            trained, graph = rundir.read(place, model=model, loss=loss)
            record = _record(place)
            _check_state(place, trained, record)
        outcome = unlearn(trained, graph, request, progress=progress, **options)
        return _save(target, outcome, record, key=key, request_id=request_id, over=over)


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
        record = Record((), ()) if after is None else read_record(after)
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
    certificate, summary = outcome.certificate, outcome.answer()
    request_id = str(uuid.uuid4()) if request_id is None else request_id
    annexes = [annex.to_dict() for annex in (*record.annexes, outcome.annex)]

    def write_ledger(staging: Path) -> None:
        with Ledger(staging / LEDGER) as ledger:
            ledger.take_over(record.entries)
            ledger.append(
                time=certificate.made,
                request_id=request_id,
                request_digest=certificate.digests["request"],
                certificate_digest=certificate.digest,
                level=certificate.level,
                ratio=release_ratio(certificate),
                answer=json.dumps(summary, allow_nan=False),
            )

    files = {
        CERTIFICATE: _json(certificate.to_dict()),
        OUTCOME: _json(summary),
        ANNEX: _json(annexes),
        RELEASED: save_bytes({"theta": outcome.released_theta.contiguous()}),
    }
    rundir.write(folder, outcome.trained, outcome.graph, over=over, extras=files, finish=write_ledger)
    return Answer(summary, folder, request_id, outcome)


def read_record(folder: str | Path) -> Record:
    """The ledger's entries and the annexes, none if the run came of no deletion."""
    with rundir.settled(folder) as place:
        return _record(place)


def _record(folder: Path) -> Record:
    if not (folder / LEDGER).is_file():
        return Record((), ())
    with Ledger(folder / LEDGER, readonly=True) as ledger:
        entries = ledger.entries()
    try:
        annexes = tuple(Annex.from_dict(content) for content in json.loads((folder / ANNEX).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder / ANNEX} cannot be read: {error}") from error
    if len(annexes) != len(entries):
        raise InputError(f"{folder} has {len(entries)} entries in its ledger and {len(annexes)} annexes")
    return Record(entries, annexes)


def _check_state(place: Path, trained: Trained, record: Record) -> None:
    """Nothing is built on, and nobody signs, what does not fit the last certificate. Raises `Mismatch`."""
    if not record.entries:
        if trained.history or any((place / name).exists() for name in (CERTIFICATE, ANNEX)):
            raise Mismatch(f"{place} has forgotten something before, and its ledger is missing")
        return
    check_entries(record.entries)
    certificate, annex = Certificate.read(place / CERTIFICATE), record.annexes[-1]
    if certificate.digest != record.entries[-1].certificate_digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    found = {
        "annex": annex.digest,
        "state": annex.state(trained.facts()),
        "graph": trained.graph_digest,
        "weights_after": annex.weights(trained.theta),
    }
    for name, digest in found.items():
        if certificate.digests[name] != digest:
            raise Mismatch(f"{name.replace('_', ' ')}: not what the last certificate speaks of")


def releases_so_far(folder: str | Path, *, delta: float) -> Composed:
    """What all releases of a run's ledger tell together. Raises `Mismatch` if the ledger does not hold."""
    entries = read_record(folder).entries
    check_entries(entries)
    return composed(entries, delta=delta)


def verify_run(
    folder: str | Path,
    *,
    key: Ed25519PublicKey | None = None,
    graph: Graph | None = None,
    model: nn.Module | None = None,
    loss: Loss | LossFunction | None = None,
) -> Verification:
    """Recomputes everything that a run directory claims. Raises `Mismatch` with the first thing that does not match.

    `graph` is the retained graph from records of one's own, to be used instead of the one in the run directory.
    """
    with rundir.settled(folder) as place:
        try:
            trained, kept = rundir.read(place, model=model, loss=loss)
        except rundir.Damaged as damage:
            raise Mismatch(str(damage)) from damage
        if not any((place / name).exists() for name in (CERTIFICATE, LEDGER, ANNEX)) and not trained.history:
            raise InputError(f"{folder} holds no certificate, it did not come of a deletion")
        try:
            certificate, record = Certificate.read(place / CERTIFICATE), _record(place)
            released = released_weights(place)
            told = json.loads((place / OUTCOME).read_text())
        except OtherVersion:
            raise
        except (OSError, ValueError) as error:
            raise Mismatch(str(error)) from error
    if not record.entries:
        raise Mismatch(f"the ledger of {folder} is missing")
    if record.annexes[-1].request != certificate.digests["request"]:
        raise Mismatch("the certificate is not that of this run")
    found = verify(
        certificate,
        trained,
        kept if graph is None else graph,
        released=released,
        annexes=record.annexes,
        entries=record.entries,
        key=key,
    )
    if told != json.loads(record.entries[-1].answer):
        raise Mismatch(f"{OUTCOME} is not what the ledger says was told")
    others = [f"files that are not the run's own: {name}" for name in rundir.strangers(place)]
    return dataclasses.replace(found, unchecked=(*found.unchecked, *others))


def load_released(
    folder: str | Path, *, model: nn.Module | None = None, loss: Loss | LossFunction | None = None
) -> tuple[Trained, Graph]:
    """The model of a run directory that may go out, with the certificate's noise, and its graph."""
    with rundir.settled(folder) as place:
        trained, graph = rundir.read(place, model=model, loss=loss)
        theta = released_weights(place)
        sigma = Certificate.read(place / CERTIFICATE).sigma
    return trained.released(theta, graph, noise=float(sigma or 0.0)), graph


def released_weights(folder: Path) -> Tensor:
    try:
        return load_bytes((folder / RELEASED).read_bytes())["theta"]
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no released weights, it did not come of a deletion") from error
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(f"{folder / RELEASED} cannot be read: {error}") from error


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
