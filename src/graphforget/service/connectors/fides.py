"""Fides calls the service for each erasure, and is called back when it is done.

`fides_connector/` holds the connector to register with Fides: `config.yml` and `dataset.yml`. `connector_package` makes
the zip that Fides takes.
"""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from pathlib import Path

import httpx

from graphforget.errors import InputError
from graphforget.service.connectors.posting import post_json
from graphforget.service.service import Service
from graphforget.service.tables import Delivery

CALLBACK_PATH = "/api/v1/request-task/callback"
NAMESPACE = uuid.UUID("5f0a4a39-6b7b-5d7b-9a34-0f5f3f1c6f0e")
CONNECTOR = Path(__file__).parent / "fides_connector"
WORDS = {  # by the type of identities of the models: that type, the identity and the data category of Fides
    "controller_customer_id": ("controller_customer_id", "external_id", "user.unique_id"),
    "email": ("email", "email", "user.contact.email"),
}


def connector_package(identity_type: str) -> bytes:
    """The zip to register with Fides, for models whose subject ids are of this type. Always the same bytes.

    Raises:
        InputError: Fides knows no such identity.
    """
    if identity_type not in WORDS:
        raise InputError(f"the type of identities is {identity_type!r}, Fides sends {' or '.join(WORDS)}")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as package:
        for name in ("config.yml", "dataset.yml"):
            text = (CONNECTOR / name).read_text(encoding="utf-8")
            for here, there in zip(WORDS["controller_customer_id"], WORDS[identity_type], strict=True):
                text = text.replace(here, there)
            entry = zipfile.ZipInfo(name)  # of 1980, so that it does not say when it was made
            entry.external_attr = 0o644 << 16
            package.writestr(entry, text)
    return packed.getvalue()


def request_id(privacy_request_id: str) -> str:
    """The id of a request of Fides in the service: always the same, and of the same form as all ids."""
    return str(uuid.uuid5(NAMESPACE, privacy_request_id))


def check_reply(service: Service, reply_to: str) -> str:
    """The address to call back. Raises `InputError` unless it is the one path of the Fides server in the settings."""
    if service.settings.fides_url is None:
        raise InputError("fides_url is not in the settings of the service, so Fides cannot be called back")
    if reply_to != CALLBACK_PATH:
        raise InputError(f"the header reply-to must be {CALLBACK_PATH}")
    return _address(service.settings.fides_url)


def _address(fides_url: str) -> str:
    return fides_url.rstrip("/") + CALLBACK_PATH


def deliver_to_fides(service: Service, client: httpx.Client, delivery: Delivery) -> None:
    """Fides answers 400 to a second callback and also to one that it refuses, so a person has to look at it.

    The settings are asked again: a server that is no longer in them gets neither a message nor a token.
    """
    fides_url = service.settings.fides_url
    if fides_url is None or delivery.url != _address(fides_url):
        raise InputError("the Fides server is no longer in the settings")
    headers = {"Authorization": f"Bearer {delivery.secret}"}
    post_json(client, delivery.url, json.dumps(delivery.body).encode(), headers)
