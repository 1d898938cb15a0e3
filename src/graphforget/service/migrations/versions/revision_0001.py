"""The first tables.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _events()
    _models()
    _tokens()
    _releases()
    _requests()
    _sessions()
    _deliveries()
    _parts()


def downgrade() -> None:
    for name in ("parts", "deliveries", "sessions", "requests", "releases", "tokens", "models", "events"):
        op.drop_table(name)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=80), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_events_request_id"), "events", ["request_id"], unique=False)


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("identity_type", sa.String(length=40), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("alarm", sa.Text(), nullable=True),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
        sa.UniqueConstraint("name"),
    )


def _releases() -> None:
    op.create_table(
        "releases",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("model_id", NUMBER, nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.String(length=20), nullable=False),
        sa.Column("certificate_digest", sa.String(length=64), nullable=False),
        sa.Column("certificate", sa.JSON(), nullable=False),
        sa.Column("attestation", sa.JSON(), nullable=False),
        sa.Column("checks", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["models.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("model_id", "certificate_digest"),
    )
    op.create_index(op.f("ix_releases_model_id"), "releases", ["model_id"], unique=False)


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("source", sa.String(length=20), nullable=False),
        sa.Column("token_id", NUMBER, nullable=True),
        sa.Column("regulation", sa.String(length=20), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=True),
        sa.Column("identities", sa.JSON(), nullable=True),
        sa.Column("identity_hashes", sa.JSON(), nullable=True),
        sa.Column("scope", sa.JSON(), nullable=True),
        sa.Column("callback_urls", sa.JSON(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("submitted", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("result", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("approved_by", sa.String(length=80), nullable=True),
        sa.Column("approved", sa.BigInteger(), nullable=True),
        sa.Column("finished", sa.BigInteger(), nullable=True),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["token_id"],
            ["tokens.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_requests_due"), "requests", ["due"], unique=False)
    op.create_index(op.f("ix_requests_finished"), "requests", ["finished"], unique=False)
    op.create_index(op.f("ix_requests_received"), "requests", ["received"], unique=False)
    op.create_index(op.f("ix_requests_state"), "requests", ["state"], unique=False)


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("token_id", NUMBER, nullable=False),
        sa.Column("csrf", sa.String(length=64), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"],
            ["tokens.id"],
        ),
        sa.PrimaryKeyConstraint("hash"),
    )


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_attempt", sa.BigInteger(), nullable=True),
        sa.Column("delivered", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_deliveries_next_attempt"), "deliveries", ["next_attempt"], unique=False)
    op.create_index(op.f("ix_deliveries_request_id"), "deliveries", ["request_id"], unique=False)


def _parts() -> None:
    op.create_table(
        "parts",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("model_id", NUMBER, nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=True),
        sa.Column("round", sa.BigInteger(), nullable=True),
        sa.Column("release_id", NUMBER, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["models.id"],
        ),
        sa.ForeignKeyConstraint(
            ["release_id"],
            ["releases.id"],
        ),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("request_id", "model_id"),
    )
    op.create_index(op.f("ix_parts_model_id"), "parts", ["model_id"], unique=False)
    op.create_index(op.f("ix_parts_state"), "parts", ["state"], unique=False)
