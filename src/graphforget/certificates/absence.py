"""A proof of absence: a document that shows, with a certificate, that one subject is not in the retained graph.

It is for whom it is shown to. It names nobody else; what several proofs together tell of others is in
docs/certificates.md, "Proof of absence".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from graphforget.certificates.document import Certificate
from graphforget.certificates.slot_tree import SlotOpening
from graphforget.certificates.subject_tree import SubjectOpening
from graphforget.errors import InputError, OtherVersion
from graphforget.files import error_reason
from graphforget.json_files import read_json

SCHEMA = "graphforget.absence/1"
AUDIENCE = "private"
FIELDS = ("schema", "audience", "subject", "tree", "opening", "certificate")
OPENINGS: Mapping[str, type[SlotOpening] | type[SubjectOpening]] = {"slots": SlotOpening, "subjects": SubjectOpening}
LARGEST = 2**22  # bytes of a proof's file


@dataclass(frozen=True)
class AbsenceProof:
    """A subject, the certificate of the graph that they are not in, and the opening that shows it."""

    subject: str  # a subject id; a node number where nodes have no subject ids
    opening: SlotOpening | SubjectOpening
    certificate: Certificate

    @property
    def tree(self) -> str:
        """The name of the tree's root among the certificate's digests."""
        return next(name for name, kind in OPENINGS.items() if isinstance(self.opening, kind))

    def to_dict(self) -> dict[str, Any]:
        """The document: JSON numbers, strings, lists and objects."""
        opening = {field.name: _written(getattr(self.opening, field.name)) for field in fields(self.opening)}
        values = (SCHEMA, AUDIENCE, self.subject, self.tree, opening, self.certificate.to_dict())
        return dict(zip(FIELDS, values, strict=True))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, content: Any) -> AbsenceProof:
        """Reads the result of `to_dict`. Raises `InputError` for anything else."""
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise InputError(f"this is no proof of absence of schema {SCHEMA}")
        if set(content) != set(FIELDS) or not isinstance(content["subject"], str):
            raise InputError(f"a proof of absence must have the fields {', '.join(FIELDS)} and no others")
        if content["audience"] != AUDIENCE:
            raise InputError(f"a proof of absence names somebody, so its audience must be {AUDIENCE!r}")
        kind = OPENINGS.get(content["tree"]) if isinstance(content["tree"], str) else None
        given = content["opening"]
        if kind is None or not isinstance(given, dict) or set(given) != {field.name for field in fields(kind)}:
            raise InputError("the proof's opening is none of a tree that this version knows")
        opening = kind(**{name: _read(name, value) for name, value in given.items()})
        return cls(content["subject"], opening, Certificate.from_dict(content["certificate"]))

    @classmethod
    def read(cls, path: str | Path) -> AbsenceProof:
        """Reads a proof from a JSON file. Raises `InputError` if the file is missing or holds something else."""
        try:
            return cls.from_dict(read_json(Path(path), name="the proof", largest=LARGEST))
        except OtherVersion:
            raise
        except (OSError, InputError) as error:
            raise InputError(f"{path} cannot be read as a proof of absence: {error_reason(error)}") from error


def _written(value: Any) -> Any:
    """Bytes in hex, also in lists."""
    if isinstance(value, tuple):
        return [part.hex() for part in value]
    return value.hex() if isinstance(value, bytes) else value


def _read(name: str, value: Any) -> Any:
    """The reverse of `_written`. Hex has one form here, so that there is one form of a proof."""
    if name == "height":
        if type(value) is not int:
            raise InputError("the proof's height is no whole number")
        return value
    texts = value if isinstance(value, list) else [value]
    if isinstance(value, list) != (name in ("path", "cell")) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"the proof's {name} is not of the right kind")
    try:
        parts = tuple(bytes.fromhex(text) for text in texts)
    except ValueError as error:
        raise InputError(f"the proof's {name} is not in hexadecimal digits") from error
    if [part.hex() for part in parts] != texts:
        raise InputError(f"the proof's {name} is not in hexadecimal digits")
    return parts if isinstance(value, list) else parts[0]
