"""What a person has to purge after a release, and the version of a model in MLflow.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("models", sa.Column("purge_labels", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("models", sa.Column("mlflow_name", sa.Text(), nullable=True))
    op.add_column("models", sa.Column("mlflow_version", sa.Text(), nullable=True))
    op.create_table(
        "purges",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("release_id", NUMBER, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("done_by", sa.String(length=80), nullable=True),
        sa.Column("done", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_purges_release_id", "purges", ["release_id"])


def downgrade() -> None:
    op.drop_table("purges")
    for name in ("mlflow_version", "mlflow_name", "purge_labels"):
        op.drop_column("models", name)
