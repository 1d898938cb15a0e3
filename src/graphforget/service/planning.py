"""Resolves requests against the models that hold the person, plans them, and approves them by policy or by a person."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from graphforget.errors import InputError
from graphforget.request.hashed_items import HashedItems
from graphforget.request.request import Request
from graphforget.runs.absent import ListFull, keep_out
from graphforget.service.completion import finish, finish_if_answered
from graphforget.service.held_data import absent_items, has_column, held_request
from graphforget.service.identities import without_names
from graphforget.service.intake import Conflict
from graphforget.service.leases import Holder, claim, give_back
from graphforget.service.notices import set_state
from graphforget.service.open_models import OpenModel, OpenModels
from graphforget.service.service import POLICY, WORKER, Service, record
from graphforget.service.states import APPROVED, BATCHED, COMPLETED, NOTHING_HELD, PLANNED, RECEIVED, REFUSED, REHEARSED
from graphforget.service.tables import Model, Part, SubjectRequest
from graphforget.unlearning.plan import plan

MOST = 100  # requests that are planned in one transaction
LATE = "the model was registered while the request was being answered, so a person has to submit it again"
FULL = "the list of who is kept out of a model is full, so nobody can be added: the operator has to make room"
PROVEN = ("exact", "certified")
log = logging.getLogger(__name__)


def plan_received(service: Service, models: OpenModels, holder: Holder) -> int:
    """Plans requests that nobody has looked at, and open ones for models that are new. Returns how many there were."""
    with service.database.write() as session:
        claimed = claim(
            session,
            SubjectRequest,
            (SubjectRequest.state == RECEIVED) | _is_unseen(),
            order=SubjectRequest.received,
            holder=holder,
            now=service.now,
            most=MOST,
        )
        registered = list(session.scalars(select(Model).order_by(Model.id)))
        pairs = select(Part.request_id, Part.model_id).where(Part.request_id.in_([one.id for one in claimed]))
        seen = {(request_id, model_id) for request_id, model_id in session.execute(pairs)}
    parts: dict[str, list[Part]] = {}
    problems: dict[str, str | None] = {}
    for request in claimed:
        try:
            wanted = _wanted(request, registered)
            problem = problems[request.id] = _problem(request, wanted, models) if request.state == RECEIVED else None
            new = [] if problem else [model for model in wanted if (request.id, model.id) not in seen]
            parts[request.id] = [_part(request, model, models) for model in new]
        except Exception as error:  # a run directory that cannot be read, say: it is tried again after the lease
            log.error("request %s could not be planned: %s", request.id, type(error).__name__)
    _keep_out(claimed, registered, models, parts, problems)
    first = {request.id for request in claimed if request.state == RECEIVED}
    with service.database.write() as session:
        ours = select(SubjectRequest).where(SubjectRequest.id.in_(parts)).order_by(SubjectRequest.id)
        for request in session.scalars(ours.with_for_update()):
            # A first plan counts even if it took longer than the lease: two slow workers would else never end.
            still_ours = request.state == RECEIVED if request.id in first else request.leased_by == holder.name
            if still_ours:
                give_back(request, holder)
                problem = problems[request.id]
                if problem:
                    finish(session, service, request, REFUSED, reason=problem)
                else:
                    _planned(session, service, request, parts[request.id])
    return len(parts)


def _keep_out(
    claimed: Sequence[SubjectRequest],
    registered: Sequence[Model],
    models: OpenModels,
    parts: dict[str, list[Part]],
    problems: dict[str, str | None],
) -> None:
    """Keeps out who is absent and whose request ends now. For requests that wait for a person the round does it.

    Requests for which that fails are taken from `parts`, and tried again after the lease. A list that is full is a
    problem of new ones, which are refused: they must not look answered.
    """
    by_model: dict[int, list[SubjectRequest]] = {}
    for request in claimed:
        new = parts.get(request.id, [])
        ends_now = all(part.state == NOTHING_HELD for part in new) if request.state == RECEIVED else True
        if request.dry_run or not ends_now or request.state not in (RECEIVED, BATCHED):
            continue
        for part in new:
            if part.state == NOTHING_HELD:
                by_model.setdefault(part.model_id, []).append(request)
    for model in registered:
        absent = by_model.get(model.id, [])
        try:
            full = keep_out_absent(model, models, absent)
            problems |= {request.id: FULL for request in full if request.state == RECEIVED}
        except Exception as error:
            log.error("model %s could not keep out who is absent: %s", model.name, type(error).__name__)
            for request in absent:
                parts.pop(request.id, None)


def keep_out_absent(model: Model, models: OpenModels, absent: Sequence[SubjectRequest]) -> list[SubjectRequest]:
    """Keeps out of a model who asks while it holds nothing of them, before their requests end as answered.

    Returns the requests for which its list has no room.
    """
    if not absent:
        return []
    graph = models.get(model.run).graph

    def hashed(key: bytes) -> HashedItems:
        listed = (
            absent_items(key, graph, one.identities or [], one.scope or {}, model.identity_type) for one in absent
        )
        return reduce(HashedItems.joined, listed, HashedItems(key))

    try:
        keep_out(model.run, hashed)
    except ListFull:
        if len(absent) > 1:  # there may be room for some of them
            return list(chain.from_iterable(keep_out_absent(model, models, [one]) for one in absent))
        log.error("model %s cannot keep out who is absent, its list is full", model.name)
        return list(absent)
    return []


def _is_unseen() -> ColumnElement[bool]:
    """Of an open request: a model was registered since it was looked up. Who names models gets those alone."""
    looked_up = select(Part.id).where(Part.request_id == SubjectRequest.id, Part.model_id == Model.id)
    unseen = select(Model.id).where(~looked_up.exists()).correlate(SubjectRequest).exists()
    is_open = SubjectRequest.state.in_((PLANNED, APPROVED, BATCHED))
    return is_open & SubjectRequest.scope["models"].as_string().is_(None) & unseen


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


def _part(request: SubjectRequest, model: Model, models: OpenModels) -> Part:
    """What a model has to do with a request."""
    part = Part(request_id=request.id, model_id=model.id, state=PLANNED)
    opened = models.get(model.run)
    held: Request | None = None
    try:
        held = held_of(request, model, opened)
        if held is None:
            part.state = NOTHING_HELD
            return part
        part.plan = plan(opened.trained, opened.graph, held, forecast=False).to_dict()
        if part.plan["level"] is None:
            part.state, part.reason = REFUSED, part.plan["meaning"]
    except InputError as error:
        part.state, part.reason = REFUSED, reason_of(error, request, held)
    return part


def held_of(request: SubjectRequest, model: Model, opened: OpenModel) -> Request | None:
    return held_request(opened.graph, opened.names, request.identities or [], request.scope or {}, model.identity_type)


def reason_of(error: Exception, request: SubjectRequest, held: Request | None) -> str:
    """The message of an error without what names a person: it is kept after the identities are gone.

    Identities may be hashes, and a message then has the names that they mean: those of `held`, what the graph holds.
    """
    names = [one["identity_value"] for one in request.identities or ()]
    resolved = () if held is None else (*held.nodes, *held.attributes, *chain.from_iterable(held.edges))
    return without_names(str(error), [*names, *((request.scope or {}).get("edges") or ()), *map(str, resolved)])


def _planned(session: Session, service: Service, request: SubjectRequest, parts: list[Part]) -> None:
    session.add_all(parts)
    session.flush()
    session.refresh(request, ["parts"])
    held = [part for part in parts if part.state != NOTHING_HELD]
    if request.state != RECEIVED:
        _looked_again(session, service, request, held)
    elif request.dry_run:
        finish(session, service, request, COMPLETED, result=REHEARSED if held else NOTHING_HELD)
    elif not finish_if_answered(session, service, request):
        set_state(session, service, request, PLANNED)
        limit = service.settings.approve_losses
        if limit is not None and held and all(_is_small(part.plan, limit) for part in held):
            approve(session, service, request, POLICY)


def _looked_again(session: Session, service: Service, request: SubjectRequest, held: list[Part]) -> None:
    """Adds models that are new to an open request. What the policy would not approve needs a person, again."""
    limit = service.settings.approve_losses
    large = [part for part in held if part.state == PLANNED and (limit is None or not _is_small(part.plan, limit))]
    if large and request.state == APPROVED:
        request.approved_by = request.approved = None
        set_state(session, service, request, PLANNED)
        record(session, service, WORKER, PLANNED, request_id=request.id, detail="a model was registered")
    elif request.state == BATCHED:  # the other models are answering: it cannot go back
        for part in large:
            part.state, part.reason = REFUSED, LATE
    finish_if_answered(session, service, request)


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
