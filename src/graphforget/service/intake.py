"""Accepts, finds and cancels requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from graphforget.errors import InputError
from graphforget.service.completion import finish
from graphforget.service.identities import keyed_hash
from graphforget.service.notices import call_back
from graphforget.service.service import Service, record
from graphforget.service.settings import DAY
from graphforget.service.states import CANCELLED, PENDING, RECEIVED
from graphforget.service.tables import Model, SubjectRequest, Token
from graphforget.service.tokens import APPROVE, READ, allows

OLDEST = 10 * 366 * DAY  # how long ago a person can have asked
MOST_PAIRS = 1000  # of an identity and a relation or a column: each is looked up, and kept out if it is absent


class Conflict(InputError):
    """The request cannot be accepted or changed in its present state."""


class Forbidden(InputError):
    """The caller may not do this."""


@dataclass(frozen=True)
class Submission:
    """A request as it comes in."""

    id: str
    source: str
    regulation: str
    identities: list[dict[str, str]]
    scope: dict[str, Any]  # models, edges, attributes, columns
    submitted: int
    callback_urls: tuple[str, ...] = ()
    dry_run: bool = False


def accept_once(
    service: Service,
    given: Submission,
    token: Token | None,
    *,
    if_new: Callable[[Session, SubjectRequest], None] = lambda session, request: None,
    if_known: Callable[[Session, SubjectRequest], None] = lambda session, request: None,
) -> SubjectRequest:
    """Stores a request in a transaction of its own. If another caller stores the same one at once, theirs stays.

    `if_new` stores what goes with a new request, `if_known` what goes with a repeated one, in the same transaction.
    """

    def store() -> SubjectRequest:
        with service.database.write() as session:
            request, is_new = accept(session, service, given, token)
            (if_new if is_new else if_known)(session, request)
            return request

    try:
        return store()
    except IntegrityError:
        return store()


def accept(session: Session, service: Service, given: Submission, token: Token | None) -> tuple[SubjectRequest, bool]:
    """Stores a request, and whether it is new. The same id gets the first answer again.

    Raises:
        Conflict: The id was used for another request.
        Forbidden: A dry run shows its plan, which is for who may read.
        InputError: A model or a callback is not allowed, or too much is named.
    """
    if given.dry_run and not (token and allows(token, READ)):
        raise Forbidden("a dry run needs a token with the scope read")
    content = [given.regulation, given.identities, given.scope, given.dry_run]
    content_hash = keyed_hash(service.secrets.identity, content)
    callback_urls = list(dict.fromkeys(given.callback_urls))
    known = session.get(SubjectRequest, given.id)
    if known is not None:
        same = (known.content_hash, known.callback_urls) == (content_hash, callback_urls)
        if not same or known.token_id != (token and token.id):
            raise Conflict("this subject_request_id was used for another request")
        return known, False
    listed = len(given.scope.get("edges") or ()) + len(given.scope.get("columns") or ())
    if len(given.identities) * listed > MOST_PAIRS:
        raise InputError(f"identities times relations and columns are over {MOST_PAIRS:,}, send several requests")
    _check_models(session, given.scope.get("models") or ())
    if not all(map(service.settings.allows_callback, given.callback_urls)):
        raise InputError("a status_callback_url is not https, or its host is not in callback_hosts of the service")
    now = service.now
    submitted = min(max(given.submitted, now - OLDEST), now)
    request = SubjectRequest(
        id=given.id,
        source=given.source,
        token_id=token.id if token else None,
        regulation=given.regulation,
        content_hash=content_hash,
        identities=given.identities,
        scope=given.scope,
        callback_urls=callback_urls,
        dry_run=given.dry_run,
        submitted=submitted,
        received=now,
        due=submitted + service.settings.deadline_days * DAY,
        state=RECEIVED,
    )
    session.add(request)
    session.flush()
    call_back(session, service, request)
    record(session, service, token.name if token else given.source, "received", request_id=request.id)
    return request, True


def cancel(session: Session, service: Service, request: SubjectRequest, token: Token) -> None:
    """Cancels a request for who submitted it, or for who may approve.

    Raises:
        Forbidden: The token is another one.
        Conflict: The request is no longer pending.
    """
    if request.token_id != token.id and not allows(token, APPROVE):
        raise Forbidden("only who submitted a request, or who may approve, can cancel it")
    if request.state not in PENDING:
        raise Conflict("only a pending request can be cancelled")
    finish(session, service, request, CANCELLED, actor=token.name)


def _check_models(session: Session, names: Any) -> None:
    known = set(session.scalars(select(Model.name)))
    if not known.issuperset(names):
        raise InputError("the extension names a model that is not registered with the service")
