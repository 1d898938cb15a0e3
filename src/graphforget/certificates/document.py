"""The certificate: a claim with what it is about, as a document that can be published, signed and verified.

It is public. Everything in it is a function of the retained graph, of settings that were fixed before the request, and
of the released weights (docs/maths.md, section 12). Digests of anything else are salted; the salts are private.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from graphforget.certificates.chain import START
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.kinds import read_claim
from graphforget.certificates.levels import ESTIMATED, GIVEN_PARTS, NOT_COVERED, OWN_MODULES, Level
from graphforget.errors import InputError, OtherVersion
from graphforget.files import error_reason
from graphforget.json_files import read_json

SCHEMA = "graphforget.certificate/3"
DIGESTS = ("request", "annex", "state", "graph", "weights", "released")
READMIT = "readmit"  # among the chosen settings of an update: why deleted data came back
ROOTS = ("slots", "subjects")  # of the trees from which absence is shown; in certificates of run directories


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A claim and what it is about. `to_dict` gives the document, and `gf.verify` checks it."""

    claim: Claim
    id: str
    made: str  # when, UTC
    method: str  # as chosen by the caller or for the model, and not for this request
    settings: Mapping[str, Any]  # fixed when the model was trained
    chosen: Mapping[str, Any]  # what the caller set for this request alone
    model: Mapping[str, Any]  # name, options, number of parameters
    objective: Mapping[str, Any]  # loss, mu, whether it is strongly convex by construction
    training_nodes: int  # in the retained graph
    releases_left: int | None  # after this one; None where none are counted
    digests: Mapping[str, str]
    algorithms: Mapping[str, str]  # of the digests
    words: Mapping[str, Any]  # the claim for people to read: nothing is computed from them
    environment: Mapping[str, Any]  # library versions
    follows: str = START  # the ledger's last entry when this was written
    signature: Mapping[str, str] | None = field(default=None)  # by `certificates/signing.py`

    @property
    def level(self) -> Level:
        return self.claim.level

    @property
    def epsilon(self) -> float | None:
        return self.claim.number("epsilon")

    @property
    def delta(self) -> float | None:
        return self.claim.number("delta")

    @property
    def sigma(self) -> float | None:
        """Standard deviation of the noise in the released weights."""
        return self.claim.number("sigma")

    @property
    def tolerance(self) -> float | None:
        return self.claim.number("tolerance")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The ids of what the claim is conditional on."""
        return tuple(getattr(self.claim, "conditions", ()))

    @property
    def statement(self) -> str:
        return self.claim.statement

    @property
    def definition(self) -> str:
        """What its level means, in words."""
        return self.claim.definition

    @property
    def not_covered(self) -> tuple[str, ...]:
        return not_covered(self.objective)

    def to_dict(self) -> dict[str, Any]:
        """The document: JSON numbers, strings, lists and objects."""
        content: dict[str, Any] = {"schema": SCHEMA, "audience": "public", "level": self.level}
        content |= {f.name: getattr(self, f.name) for f in fields(self)} | {"claim": self.claim.to_dict()}
        return json.loads(json.dumps(content, allow_nan=False))

    def signed_bytes(self) -> bytes:
        """What a signature covers: everything but itself, in one canonical form."""
        content = self.to_dict()
        del content["signature"]
        return canonical(content)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole document, signature included."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()

    @classmethod
    def from_dict(cls, content: Any) -> Certificate:
        """Reads the result of `to_dict`. Raises `InputError` for missing or unknown fields and for another schema."""
        _check_schema(content)
        known = {f.name for f in fields(cls)}
        given = {name: value for name, value in content.items() if name not in ("schema", "audience", "level")}
        for name in sorted(known ^ set(given)):
            raise InputError(f"the certificate's field {name!r} is {'missing' if name in known else 'unknown'}")
        for name, kinds in _TYPES.items():
            if not isinstance(given[name], kinds) or isinstance(given[name], bool):
                raise InputError(f"the certificate's {name} is {str(given[name])[:80]!r}, which it cannot be")
        names = set(given["digests"]) - set(ROOTS)
        if names != set(DIGESTS) or not all(isinstance(d, str) for d in given["digests"].values()):
            raise InputError(f"the certificate's digests must be those of {', '.join(DIGESTS)}")
        try:
            json.dumps(content, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the certificate holds what JSON does not have: {error}") from error
        certificate = cls(**given | {"claim": read_claim(given["claim"])})
        if (content.get("audience"), content.get("level")) != ("public", certificate.level):
            raise InputError("the certificate's level is not that of its claim, or it is not a public document")
        return certificate

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Reads a certificate from a JSON file. Raises `InputError` if the file is missing or holds something else."""
        try:
            return cls.from_dict(read_json(Path(path), name="the certificate"))
        except OtherVersion:
            raise
        except (OSError, InputError) as error:
            raise InputError(f"{path} cannot be read as a certificate: {error_reason(error)}") from error


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("id", "made", "method", "follows"), str),
    **dict.fromkeys(("settings", "chosen", "model", "objective", "digests", "algorithms", "words"), dict),
    "environment": dict,
    "claim": dict,
    "training_nodes": int,
    "releases_left": int | None,
    "signature": dict | None,
}


def _check_schema(content: Any) -> None:
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema == SCHEMA:
        return
    if isinstance(schema, str) and re.fullmatch(r"graphforget\.certificate/\d{1,4}", schema):
        message = f"the certificate has schema {schema}, and this version of graphforget reads {SCHEMA}"
        raise OtherVersion(f"{message}: verify it with the version that made it; 'unlearn' goes on from its run")
    raise InputError(f"this is no certificate of schema {SCHEMA}")


def not_covered(objective: Mapping[str, Any]) -> tuple[str, ...]:
    more = [ESTIMATED] if objective.get("rounding") == "estimated" else []
    more += [GIVEN_PARTS] if objective.get("parts") == "given" else []
    more += [OWN_MODULES] if objective.get("modules") == "own" else []
    return (*NOT_COVERED, *more)


def canonical(content: Any) -> bytes:
    """JSON in its canonical form: sorted keys, no spaces, ASCII."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
