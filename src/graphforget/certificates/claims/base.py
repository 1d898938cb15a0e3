"""The base class of claims: a claim has a level and a statement, and can be stored and rechecked."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from graphforget.certificates.levels import MEANING, Level
from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.certificates.residual import Residual
    from graphforget.graph.graph import Graph
    from graphforget.training.trained import Trained


class Subject(Protocol):
    """What a claim is about: the private model and the retained graph, with what can be measured on them."""

    @property
    def trained(self) -> Trained: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def strongly_convex(self) -> bool:
        """Whether the objective is, by the construction of the model and the loss, whatever a file says."""

    @property
    def measured(self) -> Residual:
        """Where the optimum on the retained graph can be, by a gradient that is computed for the check."""

    @property
    def replayed(self) -> bool:
        """Whether training was run again and gave the same weights, bit for bit."""

    def part(self, name: str) -> Subject:
        """The part of the model with this name. Raises `Mismatch` if there is none."""


@dataclass(frozen=True)
class Claim(ABC):
    """A claim about released weights.

    The fields of a claim are public. They are settings that were fixed before the request, and never measurements on
    deleted data. The code knows a kind of claim by its type, and a file knows it by `kind`.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def level(self) -> Level: ...

    @property
    @abstractmethod
    def statement(self) -> str:
        """The claim in words, for people. Nothing is computed from them."""

    @property
    def definition(self) -> str:
        """What its level means, in words."""
        return MEANING[self.level]

    @abstractmethod
    def recheck(self, subject: Subject) -> str:
        """Recomputes the claim, and returns in words what was checked. Raises `Mismatch` if it does not hold."""

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        """What cannot be checked with this evidence, in words."""
        return ()

    def number(self, name: str) -> float | None:
        """A number of the claim by its name, such as epsilon, delta or sigma; None if it has no such number."""
        value = getattr(self, name, None)
        return None if value is None else float(value)

    @property
    def ratio(self) -> float | None:
        """A bound on `distance / sigma` of the release, for composition. None if nothing is proven."""
        return None

    @property
    def counted_ratio(self) -> float | None:
        """The part of the model's budget that a release takes. None if releases are not counted."""
        return self.ratio if self.centred else None

    @property
    def replayable(self) -> bool:
        """Whether training again can show that the claim holds, or that a part of it does."""
        return self.level == "exact"

    def covers(self, parts: Sequence[str]) -> bool:
        """Whether it is about all parts of a model whose parts have claims of their own; none for other models."""
        return not parts or self.level in ("exact", "empirical")

    @property
    def centred(self) -> bool:
        """Whether the noise was added to the centre of the ball that holds the optimum, and not to the weights."""
        return False

    @property
    def sizes_noise(self) -> bool:
        """Whether the claim may determine the size of the noise if the model has no sigma of its own."""
        return False

    @property
    def void(self) -> bool:
        """Whether a guarantee was requested and does not hold."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """JSON numbers, strings, lists and objects."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Reads the result of `to_dict`. Raises `InputError` for anything else."""
        names = {field.name for field in dataclasses.fields(cls)}
        given = {name: value for name, value in content.items() if name != "kind"}
        for name in sorted(names ^ set(given)):
            raise InputError(f"the claim's field {name!r} is {'missing' if name in names else 'unknown'}")
        return cls(**given)


def checked_number(value: Any, name: str, *, above: float | None = None, below: float = math.inf) -> float:
    """A finite number from a file: from 0, or above `above`, and below `below`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value > above if above is not None else value >= 0) or not value < below:
        least = "from 0" if above is None else f"above {above:g}"
        most = "" if below == math.inf else f" and below {below:g}"
        raise InputError(f"the claim's {name} is {value!r}, a number {least}{most} is needed")
    return float(value)


def checked_ids(value: Any, name: str) -> tuple[str, ...]:
    """A list of ids from a file."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InputError(f"the claim's {name} are {value!r}, a list of ids is needed")
    return tuple(value)


def checked_flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"the claim's {name} is {value!r}, true or false is needed")
    return value
