"""The settings of a service, in the file `service.json` of its folder.

service.json          the settings
service.sqlite        the database, unless the settings name another one
signing.key(.pub)     the key that signs certificates, ledgers and attestations
identity.key          the key of the HMAC that replaces identities
response.key(.crt)    the key and the certificate of the signatures on HTTP responses
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from graphforget.errors import InputError
from graphforget.files import write_atomic
from graphforget.json_files import read_json
from graphforget.validation import read_fields

FILE = "service.json"
DATABASE = "service.sqlite"
SIGNING_KEY, IDENTITY_KEY, RESPONSE_KEY, RESPONSE_CERTIFICATE = (
    "signing.key",
    "identity.key",
    "response.key",
    "response.crt",
)
DAY = 86_400


@dataclass(frozen=True)
class Webhook:
    """A receiver of every change of state, signed with the secret in a file of mode 600."""

    url: str
    secret_file: str


@dataclass(frozen=True)
class Settings:
    """The content of `service.json`. Paths are relative to its folder."""

    base_url: str = "http://127.0.0.1:8080"  # as callers see it: of the proxy, if there is one
    database: str | None = None  # an address such as postgresql+psycopg://user@host/name; default: SQLite in the folder
    signing_key: str = SIGNING_KEY
    signing_key_command: tuple[str, ...] = ()  # a command that prints the key, instead of the file
    deadline_days: int = 30
    round_seconds: int = DAY  # requests are answered together, at multiples of this time since 1970
    approve_losses: int | None = None  # certified and exact plans that change at most so many losses need no person
    keep_identities_days: int = 30  # how long the keyed hashes of identities stay after completion
    requests_per_minute: int = 1200  # of one token
    logins_per_minute: int = 10  # of one address
    trusted_proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For says who the caller is
    callback_hosts: tuple[str, ...] = ()  # hosts that callbacks may go to, with the port if it is not that of HTTPS
    insecure_callbacks: bool = False  # whether callbacks may use http, for trials on one machine
    webhooks: tuple[Webhook, ...] = ()
    incoming_webhook_secret_file: str | None = None  # of a ticket system that signs instead of using a token
    fides_url: str | None = None  # of the Fides server that callbacks go to
    mlflow_url: str | None = None  # of the MLflow tracking server

    @property
    def domain(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_secure(self) -> bool:
        """Whether callers use TLS, by a proxy."""
        return self.base_url.startswith("https://")

    def allows_callback(self, url: str) -> bool:
        """Whether the service may send to this address. A caller must not choose where it connects."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        secure = parts.scheme == "https" or (self.insecure_callbacks and parts.scheme == "http")
        named = host if port is None else f"{host}:{port}"
        return secure and parts.username is None and named in self.callback_hosts and url == url.lstrip()


def read_settings(home: Path) -> Settings:
    """The settings of the service in this folder. Raises `InputError` if there are none, or wrong ones."""
    try:
        settings = read_fields(Settings, read_json(home / FILE, name=FILE), FILE)
    except FileNotFoundError as error:
        message = f"{home} holds no service, 'graphforget serve init --home {home}' makes one"
        raise InputError(message) from error
    _check(settings)
    return settings


def write_settings(home: Path, settings: Settings) -> None:
    _check(settings)
    content = json.dumps(dataclasses.asdict(settings), indent=2) + "\n"
    write_atomic(home / FILE, content.encode(), mode=0o600)


def _check(settings: Settings) -> None:
    if not re.fullmatch(r"https?://[^/?#\s]+", settings.base_url):
        raise InputError(f"base_url is {settings.base_url!r}, an address such as https://forget.example.org is needed")
    limits = {
        "deadline_days": (1, 3650),
        "round_seconds": (1, 31 * DAY),
        "keep_identities_days": (0, 3650),
        "requests_per_minute": (1, 10**6),
        "logins_per_minute": (1, 1000),
    }
    for name, (least, most) in limits.items():
        if not least <= getattr(settings, name) <= most:
            raise InputError(f"{name} is {getattr(settings, name)}, a whole number from {least} to {most} is needed")
    if settings.approve_losses is not None and settings.approve_losses < 0:
        raise InputError(f"approve_losses is {settings.approve_losses}, a whole number from 0 or null is needed")
    for proxy in settings.trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            message = f"trusted_proxies names {proxy!r}, an address or a network such as 10.0.0.0/24 is needed"
            raise InputError(message) from error
    for host in settings.callback_hosts:
        if host != host.lower() or not re.fullmatch(r"[^/@\[\]\s]+", host):
            message = "a host in lower letters such as tickets.example.org or tickets.example.org:8443 is needed"
            raise InputError(f"callback_hosts names {host!r}, {message}")
    addresses = [one for one in (settings.fides_url, settings.mlflow_url) if one is not None]
    for url in (*addresses, *(webhook.url for webhook in settings.webhooks)):
        if not re.fullmatch(r"https?://[^\s]+", url):
            raise InputError(f"{url!r} is no address of a connector, one that starts with https:// is needed")
