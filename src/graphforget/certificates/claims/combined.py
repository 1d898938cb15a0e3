"""A claim about a model whose parts are released together: one claim for each part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from graphforget.certificates.claims.base import Claim, Subject
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.levels import LEVELS, Level
from graphforget.errors import InputError


@dataclass(frozen=True)
class Combined(Claim):
    """Every part's claim holds of its part, given the parts before it.

    The level is the weakest one. Exact parts cost nothing, so the numbers are those of the only part that has an
    epsilon. Two such parts would have to be composed, and are an `InputError`.
    """

    kind = "combined/1"

    parts: Mapping[str, Claim]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InputError("a combined claim without parts claims nothing")
        if any(isinstance(part, Combined) for part in self.parts.values()):
            raise InputError("a combined claim cannot hold another one")
        if sum(part.level in ("certified", "conditional") for part in self.parts.values()) > 1:
            raise InputError("a combined claim has two parts with an epsilon, one is possible")
        if sum(bool(part.number("sigma")) for part in self.parts.values()) > 1:
            raise InputError("a combined claim has two parts with noise, one is possible")

    @classmethod
    def of(cls, claim: Claim, parts: Sequence[str], *, exact: str) -> Self:
        """`claim` about one part, and that the part named `exact` is what training gives."""
        return cls({name: Exact() if name == exact else claim for name in parts})

    @property
    def weakest(self) -> Claim:
        return max(self.parts.values(), key=lambda part: LEVELS.index(part.level))

    @property
    def level(self) -> Level:
        return self.weakest.level

    @property
    def statement(self) -> str:
        return "; and given these, ".join(f"{name}: {part.statement}" for name, part in self.parts.items())

    @property
    def conditions(self) -> tuple[str, ...]:
        """The ids of what any part is conditional on."""
        return tuple(dict.fromkeys(one for part in self.parts.values() for one in getattr(part, "conditions", ())))

    @property
    def ratio(self) -> float | None:
        return self.weakest.ratio

    @property
    def counted_ratio(self) -> float | None:
        return self.weakest.counted_ratio

    @property
    def replayable(self) -> bool:
        return any(part.replayable for part in self.parts.values())

    def covers(self, parts: Sequence[str]) -> bool:
        return set(parts) == set(self.parts)

    @property
    def centred(self) -> bool:
        return self.weakest.centred

    @property
    def void(self) -> bool:
        return any(part.void for part in self.parts.values())

    def number(self, name: str) -> float | None:
        return self.weakest.number(name)

    def recheck(self, subject: Subject) -> str:
        return "; ".join(f"{name}: {part.recheck(subject.part(name))}" for name, part in self.parts.items())

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        lines = (line for name, part in self.parts.items() for line in part.unchecked(subject.part(name)))
        return tuple(dict.fromkeys(lines))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": {name: part.to_dict() for name, part in self.parts.items()}}

    @classmethod
    def from_parts(cls, content: Mapping[str, Any], read: Callable[[Any], Claim]) -> Self:
        """Reads the result of `to_dict` with a function that reads a part. Raises `InputError` for anything else."""
        parts = content.get("parts")
        if set(content) != {"kind", "parts"} or not isinstance(parts, Mapping):
            raise InputError("a combined claim has parts and nothing else")
        if any(isinstance(part, Mapping) and part.get("kind") == cls.kind for part in parts.values()):
            raise InputError("a combined claim cannot hold another one")
        return cls({str(name): read(part) for name, part in parts.items()})
