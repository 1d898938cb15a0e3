"""Writes the last certificate of a model as tags of its version in an MLflow registry (`graphforget[mlflow]`)."""

from __future__ import annotations

import os

import httpx

from graphforget.errors import InputError
from graphforget.service.service import Service
from graphforget.service.tables import Delivery

CLIENT = {  # settings of its client. The service itself tries again, and other messages must not wait for this one
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def deliver_to_mlflow(service: Service, client: httpx.Client, delivery: Delivery) -> None:
    """Setting a tag twice changes nothing, so an attempt can be repeated."""
    if delivery.url != service.settings.mlflow_url:
        raise InputError("the MLflow server is no longer in the settings")
    for name, value in CLIENT.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise InputError("mlflow is not installed, 'pip install graphforget[mlflow]' installs it") from error
    registry = MlflowClient(tracking_uri=delivery.url, registry_uri=delivery.url)
    for key, value in delivery.body["tags"].items():
        registry.set_model_version_tag(delivery.body["name"], delivery.body["version"], key, value)
