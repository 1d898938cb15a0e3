"""Resolves requests against the models that hold the person, plans them, and approves them by policy or by a person."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from graphforget.errors import InputError
from graphforget.request.request import Request
from graphforget.service.completion import finish, finish_if_answered
from graphforget.service.held_data import has_column, held_request
from graphforget.service.identities import without_names
from graphforget.service.intake import Conflict
from graphforget.service.leases import Holder, claim, give_back
from graphforget.service.notices import set_state
from graphforget.service.open_models import OpenModel, OpenModels
from graphforget.service.service import POLICY, Service, record
from graphforget.service.states import APPROVED, COMPLETED, NOTHING_HELD, PLANNED, RECEIVED, REFUSED, REHEARSED
from graphforget.service.tables import Model, Part, SubjectRequest
from graphforget.unlearning.plan import plan

MOST = 100  # requests that are planned in one transaction
PROVEN = ("exact", "certified")
log = logging.getLogger(__name__)


def plan_received(service: Service, models: OpenModels, holder: Holder) -> int:
    """Plans requests that nobody has looked at. Returns how many there were."""
    with service.database.write() as session:
        claimed = claim(
            session,
            SubjectRequest,
            SubjectRequest.state == RECEIVED,
            order=SubjectRequest.received,
            holder=holder,
            now=service.now,
            most=MOST,
        )
        registered = list(session.scalars(select(Model).order_by(Model.id)))
    parts: dict[str, list[Part]] = {}
    problems: dict[str, str | None] = {}
    for request in claimed:
        try:
            wanted = _wanted(request, registered)
            problems[request.id] = _problem(request, wanted, models)
            parts[request.id] = [] if problems[request.id] else _parts(request, wanted, models)
        except Exception as error:  # a run directory that cannot be read, say: it is tried again after the lease
            log.error("request %s could not be planned: %s", request.id, type(error).__name__)
    with service.database.write() as session:
        for request in session.scalars(select(SubjectRequest).where(SubjectRequest.id.in_(parts))):
            if request.state == RECEIVED and request.leased_by == holder.name:  # it may have been cancelled
                give_back(request, holder)
                problem = problems[request.id]
                if problem:
                    finish(session, service, request, REFUSED, reason=problem)
                else:
                    _planned(session, service, request, parts[request.id])
    return len(parts)


def _wanted(request: SubjectRequest, registered: list[Model]) -> list[Model]:
    names = (request.scope or {}).get("models")
    return [model for model in registered if not names or model.name in names]


def _problem(request: SubjectRequest, wanted: list[Model], models: OpenModels) -> str | None:
    """Why nobody can say whether the models hold what is asked; None if they can be asked."""
    if not wanted:
        return "no model is registered with the service, so the request cannot be answered"
    given = {one["identity_type"] for one in request.identities or ()}
    used = sorted({model.identity_type for model in wanted})
    if given.isdisjoint(used):
        types = " or ".join(used)
        return f"the identities are of the type {' or '.join(sorted(given))}, the models know people by {types} alone"
    graphs = [models.get(model.run).graph for model in wanted]
    for number, column in enumerate((request.scope or {}).get("columns") or (), 1):
        if not any(has_column(graph, column) for graph in graphs):
            return f"column {number} of the request is in no model, so it cannot be erased"
    return None


def _parts(request: SubjectRequest, wanted: list[Model], models: OpenModels) -> list[Part]:
    parts = (_part(request, model, models) for model in wanted)
    return [part for part in parts if part is not None]


def _part(request: SubjectRequest, model: Model, models: OpenModels) -> Part | None:
    """What a model has to do with a request; None if it holds nothing of the person."""
    part = Part(request_id=request.id, model_id=model.id, state=PLANNED)
    opened = models.get(model.run)
    try:
        held = held_of(request, model, opened)
        if held is None:
            return None
        part.plan = plan(opened.trained, opened.graph, held).to_dict()
        if part.plan["level"] is None:
            part.state, part.reason = REFUSED, part.plan["meaning"]
    except InputError as error:
        part.state, part.reason = REFUSED, reason_of(error, request)
    return part


def held_of(request: SubjectRequest, model: Model, opened: OpenModel) -> Request | None:
    return held_request(opened.graph, opened.names, request.identities or [], request.scope or {}, model.identity_type)


def reason_of(error: Exception, request: SubjectRequest) -> str:
    """The message of an error without what names a person: it is kept after the identities are gone."""
    names = [one["identity_value"] for one in request.identities or ()]
    return without_names(str(error), [*names, *((request.scope or {}).get("edges") or ())])


def _planned(session: Session, service: Service, request: SubjectRequest, parts: list[Part]) -> None:
    session.add_all(parts)
    session.flush()
    session.refresh(request, ["parts"])
    if not parts:
        finish(session, service, request, COMPLETED, result=NOTHING_HELD)
    elif request.dry_run:
        finish(session, service, request, COMPLETED, result=REHEARSED)
    elif not finish_if_answered(session, service, request):
        set_state(session, service, request, PLANNED)
        limit = service.settings.approve_losses
        if limit is not None and all(_is_small(part.plan, limit) for part in parts):
            approve(session, service, request, POLICY)


def _is_small(plan: dict[str, Any] | None, limit: int) -> bool:
    """Whether a plan is proven and changes at most so many training losses."""
    return plan is not None and plan["level"] in PROVEN and losses_of(plan) <= limit


def losses_of(plan: dict[str, Any]) -> int:
    """How many training losses go, change or come."""
    return int(plan["training_nodes"]) + int(plan["affected"]) + int(plan["added"])


def approve(session: Session, service: Service, request: SubjectRequest, actor: str) -> None:
    """Approves a planned request: the next round answers it. Raises `Conflict` if it is not planned."""
    if request.state != PLANNED:
        raise Conflict(f"the request is {request.state}, only one that waits for approval can be approved")
    request.approved_by, request.approved = actor, service.now
    set_state(session, service, request, APPROVED)
    record(session, service, actor, APPROVED, request_id=request.id)


def refuse(session: Session, service: Service, request: SubjectRequest, actor: str, reason: str) -> None:
    """Refuses a request that is not approved yet, with the reason. Raises `Conflict` if it is."""
    if request.state != PLANNED:
        raise Conflict(f"the request is {request.state}, only one that waits for approval can be refused")
    finish(session, service, request, REFUSED, reason=reason, actor=actor)
