"""Registers run directories with the service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select

from graphforget.errors import InputError
from graphforget.runs.read import load_run
from graphforget.service.identities import TYPES
from graphforget.service.service import Service
from graphforget.service.tables import Model

PURGE = ("older checkpoints and copies of the model", "caches of predictions and embeddings", "backups")


def register_model(
    service: Service,
    name: str,
    run: Path,
    *,
    identity_type: str = TYPES[0],
    purge: Sequence[str] = PURGE,
    mlflow: str | None = None,
) -> None:
    """Registers a run directory, or changes how it is registered. An alarm of the model is cleared.

    Raises:
        InputError: The run cannot be read without code of its own, or an argument is not possible.
    """
    if not name.isprintable() or not name.strip() or len(name) > 80:
        raise InputError(f"the model's name is {name[:80]!r}, up to 80 characters that can be printed are needed")
    if identity_type not in TYPES:
        raise InputError(f"the type of identities is {identity_type!r}, one of {', '.join(TYPES)} is needed")
    blank = any(not label.strip() or not label.isprintable() for label in purge)
    if blank:
        raise InputError("a label of the purge list is blank, or has characters that cannot be printed")
    registered_name, _, version = (mlflow or "").rpartition(":")
    if mlflow is not None and not (registered_name and version):
        raise InputError(f"the MLflow version is {mlflow!r}, NAME:VERSION is needed")
    load_run(run)
    with service.database.write() as session:
        model = session.scalar(select(Model).where(Model.name == name))
        if model is None:
            model = Model(name=name, created=service.now)
            session.add(model)
        model.run, model.identity_type, model.purge_labels = str(run.absolute()), identity_type, list(purge)
        model.mlflow_name, model.mlflow_version = registered_name or None, version or None
        model.alarm = None
