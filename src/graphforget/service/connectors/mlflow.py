"""Writes the last certificate of a model as tags of its version in an MLflow registry (`graphforget[mlflow]`)."""

from __future__ import annotations

import httpx

from graphforget.errors import InputError
from graphforget.service.service import Service
from graphforget.service.tables import Delivery


def deliver_to_mlflow(service: Service, client: httpx.Client, delivery: Delivery) -> None:
    """Setting a tag twice changes nothing, so an attempt can be repeated."""
    if delivery.url != service.settings.mlflow_url:
        raise InputError("the MLflow server is no longer in the settings")
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise InputError("mlflow is not installed, 'pip install graphforget[mlflow]' installs it") from error
    registry = MlflowClient(tracking_uri=delivery.url, registry_uri=delivery.url)
    for key, value in delivery.body["tags"].items():
        registry.set_model_version_tag(delivery.body["name"], delivery.body["version"], key, value)
