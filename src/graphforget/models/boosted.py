"""A certified convex start, and any network that is trained from it (docs/maths.md, section 14).

The network is computed from the released start and the retained graph, so it has the guarantee of the start.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.reach import Reach
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.sparse import Matrix
from graphforget.models.base import GraphModel
from graphforget.models.composite import (
    NETWORK,
    START,
    CompositeModel,
    checked_positive,
    converted_module,
    inner_inputs,
    inner_state,
    load_inner_state,
    state_digest,
)
from graphforget.models.fixed import FixedPropagation

GATE = "network-gate"
POWERS = {"sgc": (2,), "sign": (0, 1, 2, 3)}  # the powers of the propagation that a start has


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network in float64, and the number that its outputs are multiplied by. Never changed, only replaced."""

    module: nn.Module
    gate: float

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        return self

    @cached_property
    def digest(self) -> str:
        return state_digest(self.state())

    def state(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return inner_state(self.module, "network.") | {GATE: torch.tensor([self.gate], dtype=torch.float64)}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], fresh: nn.Module) -> Network:
        """The network whose `state` this is, in a fresh module. Raises `InputError` if a tensor does not fit."""
        rest = dict(state)
        gate = rest.pop(GATE, None)
        if gate is None or gate.dtype != torch.float64 or gate.shape != (1,) or not torch.isfinite(gate).all():
            raise InputError("the gate of the network is missing, or no finite number")
        module = load_inner_state(fresh, rest, "network.")
        if rest:
            raise InputError(f"there is no tensor {next(iter(rest))[:80]!r} in this network")
        return cls(module, float(gate))

    def outputs(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """What the network adds to the logits of the start, for every node."""
        with torch.no_grad():
            module = converted_module(self.module, x)
            module = module if isinstance(module, GraphModel) else copy.deepcopy(module)  # used once, as encoders are
            out: Tensor = module(*inner_inputs(self.module, x, edge_index, edge_weight))
            return self.gate * out


@dataclass(frozen=True, eq=False)
class BoostedInputs:
    """What is read of a graph beside its attributes: the inputs of the start, and what the network adds."""

    start: Any
    added: Tensor | None

    def to(self, dtype: torch.dtype) -> BoostedInputs:
        """The same inputs in another precision."""
        return BoostedInputs(self.start.to(dtype), None if self.added is None else self.added.to(dtype))


class Boosted(CompositeModel):
    """`start(G) + gate * network(G)`. Its only parameters are those of the start, which is linear in them.

    Without a network its logits are those of the start. The objective is always that of the start. `make` makes a
    network with fresh weights.
    """

    has_fixed_features = True
    claim_parts, replayed_part = (START, NETWORK), NETWORK

    def __init__(
        self,
        make: Callable[[], nn.Module],
        columns: int,
        classes: int,
        *,
        start: str,
        network_mu: float,
        network_reach: Reach,
        scale_rows: bool = True,
        findings: tuple[str, ...] = (),
        built_in_modules: bool = True,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        if start not in POWERS:
            raise InputError(f"the start is {start!r}, it must be one of {', '.join(POWERS)}")
        self.start_name, self.network_mu = start, checked_positive(network_mu, "network_mu")
        self.start = FixedPropagation(columns, classes, powers=POWERS[start], scale_rows=scale_rows)
        self.make, self.findings, self.built_in_modules = make, findings, built_in_modules
        self.network: Network | None = None
        self.network_reach = network_reach
        self.reach = self.start.reach

    def released_state(self) -> dict[str, Tensor]:
        return {} if self.network is None else self.network.state()

    def load_released_state(self, state: Mapping[str, Tensor]) -> None:
        if state:
            self.check_shapes(state, ["network."])
        self.network = Network.from_state(state, self.make()) if state else None

    @property
    def settings(self) -> dict[str, Any]:
        return {"start": self.start_name, "network_mu": self.network_mu}

    def untrained(self) -> Boosted:
        fresh = Boosted(
            self.make,
            self.start.weight.shape[1],
            self.start.weight.shape[2],
            **self.settings,
            network_reach=self.network_reach,
            scale_rows=self.scale_rows,
            findings=self.findings,
            built_in_modules=self.built_in_modules,
        )
        return fresh.to(self.start.weight.dtype)

    # -- as a model ----------------------------------------------------------------------------------------------

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        weight = self.checked_weight(edge_weight)
        rows, inputs = self.start.prepare(x, edge_index, weight)
        added = None if self.network is None else self.network.outputs(x, edge_index, weight)
        return rows, BoostedInputs(inputs, added)

    @property
    def preparation(self) -> Hashable:
        return type(self), self.start.preparation, None if self.network is None else self.network.digest

    def marked_symmetric(self, propagation: object) -> object:
        assert isinstance(propagation, BoostedInputs)
        return BoostedInputs(self.start.marked_symmetric(propagation.start), propagation.added)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, BoostedInputs)
        logits = self.start.logits(x, propagation.start)
        return logits if propagation.added is None else logits + propagation.added

    def start_logits(self, theta: Tensor, x: Matrix, propagation: object) -> Tensor:
        """The logits of the start alone at flat parameters."""
        assert isinstance(propagation, BoostedInputs)
        return self.start.at(theta, x, propagation.start)

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        return self.start.logits_jacobian((inputs[0], inputs[1].start), rows, nodes=nodes)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        return self.start.row_norm_sums((inputs[0], inputs[1].start), rows, jacobian)

    def longest_sum(self, nodes: int) -> int:
        return self.start.longest_sum(nodes)

    def can_share(self, like: Tensor) -> bool:
        return self.start.can_share(like)


class Residual(nn.Module):
    """`offset + gate * network(x, edge_index)`, to train the network. The gate starts at 0, and training at `offset`.

    `offset` are the logits of the start on the graph at hand, which do not change.
    """

    offset: Tensor

    def __init__(self, network: nn.Module, offset: Tensor) -> None:
        super().__init__()
        self.network = network
        self.gate = nn.Parameter(torch.zeros(()))
        self.register_buffer("offset", offset, persistent=False)

    def forward(self, x: Any, edge_index: Any) -> Tensor:
        if isinstance(self.network, GraphModel) and isinstance(x, Tensor):
            x, edge_index = self.network.prepare(x, edge_index)
        return self.offset + self.gate * self.network(x, edge_index)


def as_boosted(module: nn.Module) -> Boosted | None:
    """The module as a boosted model, by its exact type; None for any other."""
    return module if type(module) is Boosted else None
