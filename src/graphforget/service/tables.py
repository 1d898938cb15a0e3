"""The tables of the service. Times are seconds since 1970, in UTC."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, ForeignKey, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up only columns of type INTEGER


class Base(DeclarativeBase):
    """All tables."""

    type_annotation_map: ClassVar[Any] = {
        int: BigInteger,
        str: Text,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


class Leased:
    """A row that one worker works on at a time, until its lease ends."""

    leased_by: Mapped[str | None]
    leased_until: Mapped[int | None]


class Model(Leased, Base):
    """A run directory that is registered with the service."""

    __tablename__ = "models"

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    run: Mapped[str]  # path
    identity_type: Mapped[str] = mapped_column(String(40))  # of its subject ids
    purge_labels: Mapped[list[Any]]  # what the model cannot forget by itself: old checkpoints, caches, backups
    created: Mapped[int]
    alarm: Mapped[str | None]  # why its rounds are stopped until a person looks
    mlflow_name: Mapped[str | None]
    mlflow_version: Mapped[str | None]


class SubjectRequest(Leased, Base):
    """A request of a person, from one controller."""

    __tablename__ = "requests"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)  # the subject_request_id
    source: Mapped[str] = mapped_column(String(20))  # opendsr, opengdpr, webhook, fides, page
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))  # who submitted it
    regulation: Mapped[str] = mapped_column(String(20))
    content_hash: Mapped[str | None] = mapped_column(String(64))  # keyed: whether a repeated id asks for the same
    identities: Mapped[list[Any] | None]  # None after completion
    identity_hashes: Mapped[list[Any] | None]  # keyed; None after the retention time
    scope: Mapped[dict[str, Any] | None]  # models, edges, attributes, columns; names are removed after completion
    callback_urls: Mapped[list[Any]]
    dry_run: Mapped[bool]
    submitted: Mapped[int]
    received: Mapped[int] = mapped_column(index=True)
    due: Mapped[int] = mapped_column(index=True)
    state: Mapped[str] = mapped_column(String(20), index=True)
    result: Mapped[str | None] = mapped_column(String(20))  # forgotten, nothing_held, rehearsed
    reason: Mapped[str | None]  # of a refusal
    approved_by: Mapped[str | None] = mapped_column(String(80))
    approved: Mapped[int | None]
    finished: Mapped[int | None] = mapped_column(index=True)

    parts: Mapped[list[Part]] = relationship(back_populates="request", order_by="Part.id")


class Release(Base):
    """One release of a model, as a round made it. Everything in it is public, except the verification's failure."""

    __tablename__ = "releases"
    __table_args__ = (UniqueConstraint("model_id", "certificate_digest"),)

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), index=True)
    round: Mapped[int]
    level: Mapped[str] = mapped_column(String(20))
    certificate_digest: Mapped[str] = mapped_column(String(64))
    certificate: Mapped[dict[str, Any]]
    attestation: Mapped[dict[str, Any]]
    checks: Mapped[list[Any] | None]  # what was verified; None until then

    model: Mapped[Model] = relationship()
    purges: Mapped[list[Purge]] = relationship(back_populates="release", order_by="Purge.id")


class Part(Base):
    """What one model has to do with a request."""

    __tablename__ = "parts"
    __table_args__ = (UniqueConstraint("request_id", "model_id"),)

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"))
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), index=True)
    state: Mapped[str] = mapped_column(String(20), index=True)
    plan: Mapped[dict[str, Any] | None]  # counts, level and cost: private, names nobody
    round: Mapped[int | None]
    release_id: Mapped[int | None] = mapped_column(ForeignKey("releases.id"))
    reason: Mapped[str | None]

    request: Mapped[SubjectRequest] = relationship(back_populates="parts")
    model: Mapped[Model] = relationship()
    release: Mapped[Release | None] = relationship()


class Purge(Base):
    """Something that a person has to purge after a release, because the model cannot."""

    __tablename__ = "purges"

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    release_id: Mapped[int] = mapped_column(ForeignKey("releases.id"), index=True)
    label: Mapped[str]
    done_by: Mapped[str | None] = mapped_column(String(80))
    done: Mapped[int | None]

    release: Mapped[Release] = relationship(back_populates="purges")


class Delivery(Leased, Base):
    """A message to another service that must arrive."""

    __tablename__ = "deliveries"

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))  # opendsr, opengdpr, webhook, fides, mlflow
    request_id: Mapped[str | None] = mapped_column(ForeignKey("requests.id"), index=True)
    url: Mapped[str]
    secret: Mapped[str | None]  # a token of the receiver; removed after delivery
    body: Mapped[dict[str, Any]]
    created: Mapped[int]
    attempts: Mapped[int]
    next_attempt: Mapped[int | None] = mapped_column(index=True)  # None: nothing more to do
    delivered: Mapped[int | None]
    error: Mapped[str | None]  # of the last attempt


class Token(Base):
    """A bearer token: its hash, never itself."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]]
    created: Mapped[int]
    expires: Mapped[int | None]
    revoked: Mapped[int | None]


class WebSession(Base):
    """Somebody who is signed in on the page."""

    __tablename__ = "sessions"

    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_id: Mapped[int] = mapped_column(ForeignKey("tokens.id"))
    csrf: Mapped[str] = mapped_column(String(64))
    expires: Mapped[int]

    token: Mapped[Token] = relationship()


class Event(Base):
    """Who did what, and when. Names no subject."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(Number, primary_key=True)
    time: Mapped[int]
    actor: Mapped[str] = mapped_column(String(80))
    action: Mapped[str] = mapped_column(String(40))
    request_id: Mapped[str | None] = mapped_column(String(36), index=True)
    detail: Mapped[str | None]
