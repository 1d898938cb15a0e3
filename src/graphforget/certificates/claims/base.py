"""What every kind of claim can do: say its level, word itself, write itself down, recheck itself."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from graphforget.certificates.levels import Level
from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.certificates.residual import Residual
    from graphforget.graph.graph import Graph
    from graphforget.training.trained import Trained


class Subject(Protocol):
    """What a claim is about: the private model and the retained graph, with what can be measured of them now."""

    @property
    def trained(self) -> Trained: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def strongly_convex(self) -> bool:
        """By construction of model and loss, whatever anybody wrote down."""

    @property
    def measured(self) -> Residual:
        """Where the optimum on the retained graph can be, by a gradient that is computed now."""

    @property
    def replayed(self) -> bool:
        """Whether training was run again and gave the same weights, bit for bit."""

    def part(self, name: str) -> Subject:
        """The part of an ensemble that this name stands for. Raises `Mismatch` if there is none."""


@dataclass(frozen=True)
class Claim(ABC):
    """A claim about released weights.

    The fields of a claim are published with it. They are settings that were fixed before the request, never
    something that was measured on what was deleted. A kind is known by its type in the code and by `kind` in a file.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def level(self) -> Level: ...

    @property
    @abstractmethod
    def statement(self) -> str:
        """The claim in words. Nothing depends on how they are chosen."""

    @abstractmethod
    def recheck(self, subject: Subject) -> str:
        """Says in words what was recomputed. Raises `Mismatch` unless the claim follows from what is there."""

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        """What nobody can check with what is there, in words."""
        return ()

    def number(self, name: str) -> float | None:
        """One of its numbers, such as epsilon, delta, sigma; None if it has none of this name."""
        value = getattr(self, name, None)
        return None if value is None else float(value)

    @property
    def ratio(self) -> float | None:
        """At most `distance / sigma` of the release, by which releases add up. None where nothing is proven."""
        return None

    @property
    def counted_ratio(self) -> float | None:
        """What a release takes of those that the model's epsilon and delta cover. None where none are counted."""
        return self.ratio if self.centred else None

    @property
    def centred(self) -> bool:
        """Whether the noise lies around the centre of where the optimum can be, and not around the kept weights."""
        return False

    @property
    def sizes_noise(self) -> bool:
        """Whether the noise may be sized by the claim where the model has no sigma of its own."""
        return False

    @property
    def void(self) -> bool:
        """Whether a guarantee of this kind was wanted and does not hold here."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """JSON numbers, strings, lists and objects."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Reads `to_dict` back. Raises `InputError` on anything that is not such a claim."""
        names = {field.name for field in dataclasses.fields(cls)}
        given = {name: value for name, value in content.items() if name != "kind"}
        for name in sorted(names ^ set(given)):
            raise InputError(f"the claim's field {name!r} is {'missing' if name in names else 'unknown'}")
        return cls(**given)


def checked_number(value: Any, name: str, *, above: float | None = None, below: float = math.inf) -> float:
    """A finite number from 0, or above `above` and below `below`, as it stands in a file."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value > above if above is not None else value >= 0) or not value < below:
        least = "from 0" if above is None else f"above {above:g}"
        most = "" if below == math.inf else f" and below {below:g}"
        raise InputError(f"the claim's {name} is {value!r}, a number {least}{most} is needed")
    return float(value)


def checked_ids(value: Any, name: str) -> tuple[str, ...]:
    """A list of ids, as it stands in a file."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InputError(f"the claim's {name} are {value!r}, a list of ids is needed")
    return tuple(value)


def checked_flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"the claim's {name} is {value!r}, true or false is needed")
    return value
