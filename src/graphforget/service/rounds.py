"""Rounds: all due requests of a model are answered together, verified and ended.

Every step can be repeated. A worker that is killed leaves a batch that the next one takes up: what the ledger of the
run directory already holds is answered, and only the rest is answered now. `answer` gives the first answer again for
an id that it knows, so two workers that both take themselves for the holder of a lease answer nothing twice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, selectinload
from sqlalchemy.sql.elements import ColumnElement

from graphforget.certificates.chain import REFUSED as ENTRY_REFUSED
from graphforget.errors import FloorMissed, InputError, Mismatch
from graphforget.request.request import Request
from graphforget.runs.history import History, read_history
from graphforget.runs.layout import DamagedRun
from graphforget.service.batches import Asked, answer_batch
from graphforget.service.completion import finish_if_answered
from graphforget.service.leases import Holder, claim, give_back
from graphforget.service.notices import set_state
from graphforget.service.open_models import OpenModel, OpenModels
from graphforget.service.planning import held_of, keep_out_absent, reason_of
from graphforget.service.releases import ledger_id_of, publish_release, record_releases, verify_release
from graphforget.service.service import Service, as_time
from graphforget.service.states import APPLIED, APPROVED, BATCHED, NOTHING_HELD, PLANNED, REFUSED, VERIFIED
from graphforget.service.tables import Model, Part, Release, SubjectRequest

ATTEMPTS = 3  # rounds of a model that may fail in a row for a reason that is not known
MOST = 5000  # requests of one release
UNDER_FLOOR = "the released model would score under its floor, so nothing was released"
log = logging.getLogger(__name__)


def answer_due(service: Service, models: OpenModels, holder: Holder, failures: Counter[int]) -> int:
    """Answers what is due of one model. Returns how many requests that were.

    `failures` counts by model how often in a row this worker failed without a known reason.
    """
    with service.database.write() as session:
        waiting = select(Part.model_id).join(SubjectRequest).where(*_is_due(service)).distinct()
        unverified = select(Part.model_id).where(Part.state == APPLIED).distinct()
        concerned = Model.id.in_(waiting) | Model.id.in_(unverified)
        claimed = claim(
            session, Model, Model.alarm.is_(None), concerned, order=Model.id, holder=holder, now=service.now, most=1
        )
    if not claimed:
        return 0
    model = claimed[0]
    try:
        with holder.keeping(service, Model, model.id):
            count = _answer_model(service, models, model)
    except (DamagedRun, Mismatch) as error:
        _raise_alarm(service, model, f"the run directory does not fit its last certificate ({type(error).__name__})")
        return 1
    except InputError as error:  # a full disk, a folder that is locked: the lease ends, and it is tried again
        log.error("the round of model %s failed: %s", model.name, type(error).__name__)
        return 0
    except SQLAlchemyError:  # the database of the service is away: no fault of the model
        raise
    except Exception as error:
        failures[model.id] += 1
        log.error("the round of model %s failed: %s", model.name, type(error).__name__)
        if failures[model.id] >= ATTEMPTS:
            failures.pop(model.id)
            _raise_alarm(service, model, f"its round failed {ATTEMPTS} times in a row ({type(error).__name__})")
        return 0
    failures.pop(model.id, None)
    with service.database.write() as session:
        give_back(session.get_one(Model, model.id), holder)
    return count


def _is_due(service: Service) -> list[ColumnElement[bool]]:
    """What was approved before the present round, and what a round before it has begun and not finished."""
    states = SubjectRequest.state.in_((APPROVED, BATCHED))
    return [Part.state.in_((PLANNED, BATCHED)), states, SubjectRequest.approved <= service.round]


def _answer_model(service: Service, models: OpenModels, model: Model) -> int:
    due = _batch(service, model)
    if due:
        _answer(service, models, model, due)
    return len(due) + _verify(service, model)


def _batch(service: Service, model: Model) -> list[Part]:
    """Marks the due requests as those of the present round. From now on they cannot be cancelled."""
    with service.database.write() as session:
        query = select(Part).join(SubjectRequest).where(Part.model_id == model.id, *_is_due(service))
        query = query.options(_with_parts()).order_by(Part.request_id).limit(MOST)
        parts = list(session.scalars(query.with_for_update(of=SubjectRequest)))
        for part in parts:
            if part.state == PLANNED:
                part.state, part.round = BATCHED, service.round
            if part.request.state == APPROVED:
                set_state(session, service, part.request, BATCHED)
        return parts


def _reason(error: Exception, request: SubjectRequest, held: Request | None) -> str:
    return UNDER_FLOOR if isinstance(error, FloorMissed) else reason_of(error, request, held)


def _with_parts() -> Any:
    """Loads the request of a part, with all its parts and their models."""
    return selectinload(Part.request).selectinload(SubjectRequest.parts).selectinload(Part.model)


def _answer(service: Service, models: OpenModels, model: Model, due: Sequence[Part]) -> None:
    """Answers a batch, and records what the ledger then says.

    The order is that of their ids in the ledger: that of their arrival is nobody's business.
    """
    by_id = {ledger_id_of(service, part.request, model.id): part for part in due}
    asked = {id: by_id[id] for id in sorted(by_id)}
    answered = {entry.request_id for entry in read_history(model.run).entries}
    fresh = {id: part for id, part in asked.items() if id not in answered}
    failures: dict[str, str] = {}
    gone: set[str] = set()
    if fresh:
        opened = models.get(model.run)
        batch, gone, unclear = _held(model, fresh, opened)
        key, made = service.secrets.signing, as_time(service.round)
        errors = unclear | answer_batch(Path(model.run), batch, lambda: models.get(model.run), key=key, made=made)
        held = {one.id: one.request for one in batch}
        failures = {id: _reason(error, fresh[id].request, held.get(id)) for id, error in errors.items()}
        if failures:  # of a batch in several releases, one may have removed what another one names
            failed = {id: fresh[id] for id in failures if id not in unclear}
            gone |= _held(model, failed, models.get(model.run))[1]
        models.forget(model.run)
    # Beside who was held, an answered request may name somebody who was not.
    answered = {entry.request_id for entry in read_history(model.run).entries if entry.level != ENTRY_REFUSED}
    _keep_out(model, models, asked, gone | (asked.keys() & answered))
    # What the ledger holds decides: another worker may have answered in the meantime.
    _record(service, model, asked, read_history(model.run), gone, failures)


def _keep_out(model: Model, models: OpenModels, asked: Mapping[str, Part], gone: set[str]) -> None:
    """Keeps out of every model those of the round of whom it holds nothing, before their requests end.

    `gone` are the requests of whose people this model holds nothing, or nothing any more. A list that is full stops
    nobody: what a person approved was done.
    """
    absent: dict[int, tuple[Model, list[SubjectRequest]]] = {}
    if gone:  # an update may have taken them out, and another one could bring them in again
        absent[model.id] = model, [asked[id].request for id in sorted(gone)]
    for part in asked.values():
        for other in part.request.parts:
            if other.state == NOTHING_HELD:
                absent.setdefault(other.model_id, (other.model, []))[1].append(part.request)
    for other_model, requests in absent.values():
        try:
            keep_out_absent(other_model, models, requests)
        except DamagedRun as error:  # of another model: this one is not stopped by it
            raise InputError(f"the run directory of {other_model.name} is damaged") from error


def _held(
    model: Model, parts: Mapping[str, Part], opened: OpenModel
) -> tuple[list[Asked], set[str], dict[str, Exception]]:
    """What to answer, of whom nothing is left to answer, and of whom it is not clear, by the ids in the ledger."""
    batch: list[Asked] = []
    gone: set[str] = set()
    unclear: dict[str, Exception] = {}
    for id, part in parts.items():
        try:
            request = held_of(part.request, model, opened)
        except InputError as error:
            unclear[id] = error
            continue
        if request is None:
            gone.add(id)
        else:
            batch.append(Asked(id, request))
    return batch, gone, unclear


def _record(
    service: Service,
    model: Model,
    asked: Mapping[str, Part],
    history: History,
    gone: set[str],
    failures: dict[str, str],
) -> None:
    entries = {entry.request_id: entry for entry in history.entries}
    requests = [part.request_id for part in asked.values()]
    with service.database.write() as session:
        _lock(session, requests)
        releases = record_releases(session, model, history, asked.keys())
        for id, part in asked.items():
            changes: dict[str, Any] = {}
            if id in entries and entries[id].level != ENTRY_REFUSED:
                changes = {"state": APPLIED, "release_id": releases[entries[id].certificate_digest]}
            elif id in entries:
                changes = {"state": REFUSED, "reason": UNDER_FLOOR}
            elif id in gone:
                changes = {"state": NOTHING_HELD}
            elif id in failures:
                changes = {"state": REFUSED, "reason": failures[id]}
            if changes:
                session.execute(update(Part).where(Part.id == part.id, Part.state == BATCHED).values(**changes))
        _finish(session, service, requests)


def _verify(service: Service, model: Model) -> int:
    """Verifies the releases that are not verified yet, and ends the requests that they answer."""
    with service.database.read() as session:
        waiting = list(session.scalars(select(Part).where(Part.model_id == model.id, Part.state == APPLIED)))
    if not waiting:
        return 0
    checks = verify_release(service, model)
    requests = [part.request_id for part in waiting]
    with service.database.write() as session:
        _lock(session, requests)
        for release in session.scalars(select(Release).where(Release.id.in_({part.release_id for part in waiting}))):
            publish_release(session, service, model, release, checks)
        of_these: Any = Part.id.in_([part.id for part in waiting])
        session.execute(update(Part).where(of_these, Part.state == APPLIED).values(state=VERIFIED))
        _finish(session, service, requests)
    return len(waiting)


def _lock(session: Session, request_ids: Sequence[str]) -> None:
    """Locks requests before what their models did is changed and read.

    If two workers answer one request for two models at once, the later one sees what the earlier one did. Else each
    would leave the end of the request to the other.
    """
    query = select(SubjectRequest.id).where(SubjectRequest.id.in_(request_ids)).order_by(SubjectRequest.id)
    session.scalars(query.with_for_update()).all()


def _finish(session: Session, service: Service, request_ids: Sequence[str]) -> None:
    """Ends those of the requests that every model has answered."""
    session.expire_all()
    query = select(SubjectRequest).where(SubjectRequest.id.in_(request_ids), SubjectRequest.state == BATCHED)
    for request in session.scalars(query.options(selectinload(SubjectRequest.parts).selectinload(Part.model))):
        finish_if_answered(session, service, request)


def _raise_alarm(service: Service, model: Model, alarm: str) -> None:
    """Stops the rounds of a model until a person has looked at it."""
    log.error("model %s is stopped: %s", model.name, alarm)
    with service.database.write() as session:
        session.get_one(Model, model.id).alarm = alarm
