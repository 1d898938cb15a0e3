"""The ids of requests that are being answered, beside the run, so that a restarted command answers them once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphforget.certificates.annex import Commitment
from graphforget.errors import InputError
from graphforget.files import write_atomic
from graphforget.json_files import read_json
from graphforget.request.request import Request


class PendingRequests:
    """A private file with the id and the salted digest of each request. It is there while they are answered."""

    def __init__(self, run: Path) -> None:
        self._path = run.with_name(f".{run.name}.graphforget-pending")

    def ids(
        self, requests: Sequence[Request], given: Sequence[str | None] | None, *, restarted: bool
    ) -> list[str | None]:
        """The given ids, or those under which the same requests were begun before.

        Requests that were answered keep their ids for a restart of the same command alone.
        """
        ids: list[str | None] = [None] * len(requests) if given is None else list(given)
        begun = self._begun(restarted=restarted)
        if len(ids) != len(requests) or len(begun) != len(requests):
            return ids
        if not all(one.is_of(request) for (_, one), request in zip(begun, requests, strict=True)):
            return ids
        return [before if one is None else one for one, (before, _) in zip(ids, begun, strict=True)]

    def _begun(self, *, restarted: bool) -> list[tuple[str, Commitment]]:
        try:
            content: Any = read_json(self._path, name=str(self._path))
            listed = content["requests"] if restarted or not content["answered"] else []
            return [(str(one["id"]), Commitment(bytes.fromhex(one["salt"]), str(one["digest"]))) for one in listed]
        except (FileNotFoundError, InputError, KeyError, TypeError, ValueError):
            return []

    def write(self, named: Mapping[str, Request], *, answered: bool = False) -> None:
        """Notes that these requests are being answered under these ids, or that they are answered."""
        made = [(name, Commitment.of(request)) for name, request in named.items()]
        listed = [{"id": name, "salt": one.salt.hex(), "digest": one.digest} for name, one in made]
        write_atomic(self._path, json.dumps({"answered": answered, "requests": listed}).encode(), mode=0o600)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
