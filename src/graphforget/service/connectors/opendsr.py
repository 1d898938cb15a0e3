"""Callbacks to a controller, as OpenDSR 2.0 specifies them."""

from __future__ import annotations

import base64
import json

import httpx

from graphforget.service.connectors.posting import post_json
from graphforget.service.service import Service
from graphforget.service.tables import Delivery

DOMAIN, SIGNATURE = "X-OpenDSR-Processor-Domain", "X-OpenDSR-Signature"


def signature_headers(service: Service, body: bytes) -> dict[str, str]:
    """The headers that sign a response or a callback: RSA with SHA-256 over the bytes as they are sent."""
    signature = base64.b64encode(service.secrets.response_signature(body)).decode()
    return {DOMAIN: service.settings.domain, SIGNATURE: signature}


def deliver_to_controller(service: Service, client: httpx.Client, delivery: Delivery) -> None:
    body = json.dumps(delivery.body).encode()
    post_json(client, delivery.url, body, signature_headers(service, body))
