"""Bearer tokens: random, shown once, stored as a hash, with scopes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from graphforget.errors import InputError
from graphforget.service.tables import Token

SUBMIT, APPROVE, READ, ADMIN = SCOPES = ("submit", "approve", "read", "admin")
PREFIX = "gft_"


def token_hash(secret: str) -> str:
    """A token has 256 random bits, so a plain hash cannot be guessed."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def make_token(session: Session, name: str, scopes: Iterable[str], *, now: int, days: int | None = None) -> str:
    """Stores a new token and returns it. It cannot be shown again."""
    listed = list(dict.fromkeys(scopes))
    unknown = [scope for scope in listed if scope not in SCOPES]
    if unknown or not listed:
        raise InputError(f"the scopes are {listed}, one or more of {', '.join(SCOPES)} are needed")
    if not name.strip() or not name.isprintable() or len(name) > 80:
        raise InputError(f"the token's name is {name[:80]!r}, up to 80 characters that can be printed are needed")
    if session.scalar(select(Token).where(Token.name == name)):
        raise InputError(f"there is a token {name!r} already, choose another name")
    secret = PREFIX + secrets.token_urlsafe(32)
    expires = None if days is None else now + days * 86_400
    session.add(Token(name=name, hash=token_hash(secret), scopes=listed, created=now, expires=expires))
    return secret


def revoke_token(session: Session, name: str, *, now: int) -> None:
    token = session.scalar(select(Token).where(Token.name == name))
    if token is None:
        raise InputError(f"there is no token {name[:80]!r}")
    token.revoked = token.revoked or now


def find_token(session: Session, secret: str, *, now: int) -> Token | None:
    """The token, if it is one that may still be used."""
    token = session.scalar(select(Token).where(Token.hash == token_hash(secret)))
    return token if token is not None and is_valid(token, now) else None


def is_valid(token: Token, now: int) -> bool:
    return token.revoked is None and (token.expires is None or now < token.expires)


def allows(token: Token, *scopes: str) -> bool:
    """Whether a token has one of these scopes. An administrator's token has all."""
    return bool({*scopes, ADMIN} & set(token.scopes))
