"""Who a request is about: identities on the wire, in a graph, and as keyed hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from graphforget.graph.graph import Graph
from graphforget.graph.schema import MARK, is_typed

TYPES = (
    "controller_customer_id",
    "email",
    "android_advertising_id",
    "android_id",
    "fire_advertising_id",
    "ios_advertising_id",
    "ios_vendor_id",
    "microsoft_advertising_id",
    "microsoft_publisher_id",
    "roku_publisher_id",
    "roku_advertising_id",
)
FORMATS = ("raw", "sha256", "sha1", "md5")
HASHED = FORMATS[1:]
ERASED = "[erased]"


def keyed_hash(secret: bytes, content: Any) -> str:
    """HMAC-SHA256 of JSON in one canonical form."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def identity_hashes(secret: bytes, identities: Iterable[Mapping[str, str]]) -> list[str]:
    """What stays of identities after completion: equal for equal identities, and nothing without the key."""
    return sorted(
        {
            keyed_hash(secret, [one["identity_type"], one["identity_format"], one["identity_value"]])
            for one in identities
        }
    )


def ledger_id(secret: bytes, request_id: str, model_id: int, content_hash: str | None) -> str:
    """The id of a request in the public ledger of one model, in the form of a UUID.

    Who submits chooses the request's id, and may know those in a ledger. Nobody without the key can choose or link
    these. It depends on what was asked, so an entry with this id is an answer to this content and to no other.
    """
    digest = keyed_hash(secret, ["ledger", request_id, model_id, content_hash])
    return str(uuid.UUID(bytes=bytes.fromhex(digest)[:16], version=4))


class SubjectNames:
    """The names of the subjects in a graph: their subject ids, or the node numbers where there are none."""

    def __init__(self, graph: Graph) -> None:
        numbers = graph.numbers.tolist() if graph.subject_ids is None else ()
        self.names = frozenset(graph.subject_ids or map(str, numbers))
        self._untyped = frozenset(name.partition(MARK)[2] for name in self.names) if is_typed(graph) else frozenset()
        self._hashed: dict[str, dict[str, str]] = {}
        self._near: dict[str, frozenset[str]] = {}

    def matching(self, identities: Iterable[Mapping[str, str]], identity_type: str) -> list[str]:
        """The names in the graph that these identities mean, if its subject ids are of this type."""
        found: dict[str, None] = {}
        for one in identities:
            if one["identity_type"] != identity_type:
                continue
            name = self._named(one["identity_value"], one["identity_format"])
            if name is not None:
                found[name] = None
        return list(found)

    def _named(self, value: str, form: str) -> str | None:
        if form == "raw":
            return value if value in self.names else None
        if form not in self._hashed:
            self._hashed[form] = {hashlib.new(form, name.encode()).hexdigest(): name for name in self.names}
        return self._hashed[form].get(value.lower())

    def has_near(self, identities: Iterable[Mapping[str, str]], identity_type: str) -> bool:
        """Whether one of these identities means nobody as it is, and somebody if case and spaces do not count.

        In a heterogeneous graph, neither does the type before a name: who asks need not know it.
        """
        return any(
            self._named(one["identity_value"], one["identity_format"]) is None
            and self._is_near(one["identity_value"], one["identity_format"])
            for one in identities
            if one["identity_type"] == identity_type
        )

    def _is_near(self, value: str, form: str) -> bool:
        if form not in self._near:
            plain = {_plain(name) for name in self.names | self._untyped}
            spelled = plain | self._untyped
            hashed = plain if form == "raw" else {hashlib.new(form, name.encode()).hexdigest() for name in spelled}
            self._near[form] = frozenset(hashed)
        return (_plain(value) if form == "raw" else value.lower()) in self._near[form]


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip().casefold()


def without_names(text: str, names: Iterable[str]) -> str:
    """A message without the names that it may quote."""
    for name in sorted(set(names), key=len, reverse=True):
        if len(name) > 2:
            text = text.replace(repr(name), ERASED).replace(name, ERASED)
        elif name:  # a short one could be part of a word
            text = re.sub(rf"[\'\"]?(?<!\w){re.escape(name)}(?!\w)[\'\"]?", ERASED, text)
    return text[:500]
