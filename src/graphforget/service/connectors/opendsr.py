"""Signed messages to a controller, with the names that each version of OpenDSR has. Version 1 was OpenGDPR."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import httpx

from graphforget.errors import InputError
from graphforget.service.connectors.posting import post_json
from graphforget.service.service import Service
from graphforget.service.tables import Delivery


@dataclass(frozen=True)
class Version:
    """The names of one major version of the specification."""

    source: str  # of its requests, and the kind of their callbacks
    api_version: str
    domain: str  # headers
    signature: str


V1 = Version("opengdpr", "1.0", "X-OpenGDPR-Processor-Domain", "X-OpenGDPR-Signature")
V2 = Version("opendsr", "2.0", "X-OpenDSR-Processor-Domain", "X-OpenDSR-Signature")


def version_of(source: str) -> Version:
    return V1 if source == V1.source else V2


def signature_headers(service: Service, body: bytes, version: Version) -> dict[str, str]:
    """The headers that sign a response or a callback: RSA with SHA-256 over the bytes as they are sent."""
    signature = base64.b64encode(service.secrets.response_signature(body)).decode()
    return {version.domain: service.settings.domain, version.signature: signature}


def deliver_to_controller(service: Service, client: httpx.Client, delivery: Delivery) -> None:
    """The settings are asked again: a host that is no longer in them gets nothing that was stored before."""
    if not service.settings.allows_callback(delivery.url):
        raise InputError("the host is no longer in callback_hosts of the service")
    body = json.dumps(delivery.body).encode()
    post_json(client, delivery.url, body, signature_headers(service, body, version_of(delivery.kind)))
