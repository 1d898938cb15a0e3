"""Attacks of other packages: each adds rows to the table of an audit."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphforget.audits.attacks import Scored, Targets
from graphforget.audits.populations import Case
from graphforget.audits.queries import Answers, Queries
from graphforget.audits.rows import Scores
from graphforget.errors import Refused
from graphforget.graph.graph import Graph
from graphforget.plugins import ATTACKS, Plugin, load_plugins

TAKEN = ("membership", "links", "attributes", "canaries", "per-example", "canary")


@dataclass(frozen=True, eq=False)
class AttackQuery:
    """What an attack on one model is given. It is queried on the graph before the request, removed nodes included."""

    logits: np.ndarray  # of the attacked model, a row for each node of the graph
    shadow: np.ndarray  # the same, of a model that the attacker trained on the retained graph
    graph: Graph
    removed: np.ndarray  # rows: deleted training nodes
    outsiders: np.ndarray  # rows: test nodes
    seed: int


class Attack(ABC):
    """A membership attack of another package.

    Attributes:
        name: The name of its rows, and of its entry point.
        title: One line about it.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def scores(self, query: AttackQuery) -> tuple[np.ndarray, np.ndarray]:
        """A score for each of `removed` and for each of `outsiders`: the higher, the more likely a training node."""


@functools.cache
def plugged_attacks() -> dict[str, Plugin[Attack]]:
    """The attacks of other packages by name."""
    return load_plugins(ATTACKS, _checked, taken=TAKEN)


def plugged_scores(name: str, case: Case, queries: Queries, targets: Targets, shadow: Answers) -> Scored:
    """The scores of one of these attacks on every model of the audit.

    Raises:
        Refused: The attack failed, or its scores are not one finite number for each item.
    """
    plugin, seed = plugged_attacks()[name], case.seeds(f"attack {name}", 0)[0]
    sizes = queries.removed.numel(), queries.outsiders.numel()

    def scores(answers: Answers) -> Scores:
        query = AttackQuery(
            logits=answers["full"].copy(),
            shadow=shadow["full"].copy(),
            graph=queries.full,
            removed=queries.removed.numpy().copy(),
            outsiders=queries.outsiders.numpy().copy(),
            seed=seed,
        )
        try:
            inside, outside = (np.asarray(each, dtype=np.float64) for each in plugin.value.scores(query))
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise Refused(f"the code of package {plugin.package} failed: {reason}") from error
        if (inside.shape, outside.shape) != ((sizes[0],), (sizes[1],)) or not (
            np.isfinite(inside).all() and np.isfinite(outside).all()
        ):
            raise Refused(f"the code of package {plugin.package} did not give one finite number for each item")
        return inside, outside

    return {model: [scores(one) for one in answers] for model, answers in targets.items()}


def _checked(value: Any, name: str, package: str) -> Attack:
    attack = value() if isinstance(value, type) else value
    if not isinstance(attack, Attack):
        raise ValueError("it is no graphforget.audits.plugged.Attack")
    if attack.name != name:
        raise ValueError(f"its attack is called {attack.name!r}")
    return attack
