"""Sends a message to another service."""

from __future__ import annotations

from collections.abc import Mapping

import httpx


def post_json(client: httpx.Client, url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Raises an error of httpx unless the answer has a code 2xx. Its body is not read: it may be endless."""
    headers = {"Content-Type": "application/json", **headers}
    with client.stream("POST", url, content=body, headers=headers) as response:
        response.raise_for_status()
