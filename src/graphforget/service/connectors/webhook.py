"""A generic webhook, in both directions: HMAC-SHA256 of the time and the body, and a window against replays."""

from __future__ import annotations

import hashlib
import hmac
import json

import httpx

from graphforget.errors import InputError
from graphforget.service.connectors.posting import post_json
from graphforget.service.secret_files import read_secret
from graphforget.service.service import Service
from graphforget.service.tables import Delivery

TIMESTAMP, SIGNATURE = "X-Graphforget-Timestamp", "X-Graphforget-Signature"
WINDOW = 300  # seconds that a message may be old, or ahead


def signature(secret: bytes, timestamp: int, body: bytes) -> str:
    """`v1=` and the HMAC-SHA256 of the timestamp, a point and the body, in hexadecimal digits."""
    return "v1=" + hmac.new(secret, b"%d." % timestamp + body, hashlib.sha256).hexdigest()


def check_signature(secret: bytes, timestamp: str | None, given: str | None, body: bytes, *, now: int) -> None:
    """Raises `InputError` unless the message was signed with the secret within the window."""
    if timestamp is None or given is None:
        raise InputError(f"the headers {TIMESTAMP} and {SIGNATURE} are needed")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise InputError(f"{TIMESTAMP} is no number of seconds since 1970")
    expected = signature(secret, int(timestamp), body)
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
        raise InputError("the signature does not fit")
    if abs(now - int(timestamp)) > WINDOW:
        raise InputError(f"the message was signed more than {WINDOW} seconds ago, or ahead of time")


def deliver_to_webhook(service: Service, client: httpx.Client, delivery: Delivery) -> None:
    """Signed anew at each attempt, so that a late one is within the window."""
    webhook = next((one for one in service.settings.webhooks if one.url == delivery.url), None)
    if webhook is None:
        raise InputError("the webhook is no longer in the settings")
    body, now = json.dumps(delivery.body).encode(), service.now
    secret = read_secret(service.home / webhook.secret_file)
    headers = {TIMESTAMP: str(now), SIGNATURE: signature(secret, now, body)}
    post_json(client, delivery.url, body, headers)
