"""The end of a request: its result, and the removal of its identities."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from graphforget.service.identities import identity_hashes
from graphforget.service.notices import set_state
from graphforget.service.service import WORKER, Service, record
from graphforget.service.states import COMPLETED, FORGOTTEN, NOTHING_HELD, PART_FINAL, REFUSED, VERIFIED
from graphforget.service.tables import Model, SubjectRequest


def finish(
    session: Session,
    service: Service,
    request: SubjectRequest,
    state: str,
    *,
    result: str | None = None,
    reason: str | None = None,
    actor: str = WORKER,
) -> None:
    """Ends a request. From now on only keyed hashes of its identities are kept."""
    request.result, request.reason, request.finished = result, reason, service.now
    request.identity_hashes = identity_hashes(service.secrets.identity, request.identities or ())
    request.identities = None
    models = (request.scope or {}).get("models")
    request.scope = {"models": models} if models else {}
    request.leased_by = request.leased_until = None
    set_state(session, service, request, state)
    record(session, service, actor, state, request_id=request.id, detail=result or reason)


def _is_unseen(session: Session, request: SubjectRequest) -> bool:
    """Whether a model was registered since the request was looked up in the models."""
    if (request.scope or {}).get("models"):
        return False
    seen = {part.model_id for part in request.parts}
    return not seen.issuperset(session.scalars(select(Model.id)))


def finish_if_answered(session: Session, service: Service, request: SubjectRequest) -> bool:
    """Ends a request if every model has answered it.

    A refusal by one model is a refusal: the request must not look completed while a model still holds the person.
    """
    if any(part.state not in PART_FINAL for part in request.parts) or _is_unseen(session, request):
        return False
    refused = [part for part in request.parts if part.state == REFUSED]
    if refused:
        reason = "; ".join(f"{part.model.name}: {part.reason}" for part in refused)
        finish(session, service, request, REFUSED, reason=reason)
        return True
    forgotten = any(part.state == VERIFIED for part in request.parts)
    finish(session, service, request, COMPLETED, result=FORGOTTEN if forgotten else NOTHING_HELD)
    return True
