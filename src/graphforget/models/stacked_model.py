"""What stacked models have in common: encoders on parts of the graph, and one linear head (docs/maths.md, section 13).

Given the encoders, the logits are linear in the weights of the head, so the head can be certified. The encoders are
deterministic functions of their own parts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.hashing import node_hashes, salt, salted, uniform
from graphforget.graph.reach import Reach
from graphforget.linalg.blocked import BlockedFeatures
from graphforget.linalg.jacobian import Jacobian
from graphforget.models.affine import AffineModel
from graphforget.models.composite import ENCODERS, HEAD, CompositeModel, checked_positive
from graphforget.models.encoders import Encoders
from graphforget.models.items import ItemView
from graphforget.models.mini_batches import MiniBatches, checked_mini_batches
from graphforget.models.propagated import PropagatedFeatures
from graphforget.validation import whole_number

PARTS = 4
EMBEDDING_NORM = 0.2  # small, so that the head trusts an encoder only where this pays
MOST_PARTS = 1000
OUTSIDE = -1  # the part of a node that is in none
MEMBERS = ("member_numbers", "member_parts")


@dataclass(frozen=True, eq=False)
class StackedInputs:
    """What the head reads of a graph beside its attributes: the inputs of the fixed features, and the embeddings."""

    fixed: Any  # None if the fixed features stand in the place of the attributes
    embeddings: Tensor

    def to(self, dtype: torch.dtype) -> StackedInputs:
        """The same inputs in another precision."""
        return StackedInputs(None if self.fixed is None else self.fixed.to(dtype), self.embeddings.to(dtype))


class StackedModel(CompositeModel):
    """`[Phi, E_1, ..., E_K] W` with `Phi` fixed features and `E_k` the embedding by encoder k: linear in `W`.

    Its only parameters are `W`, the weights of the head. `make` makes an encoder with fresh weights. `fixed` is a model
    of fixed features, whose weights are those of the head for `Phi`.
    """

    has_fixed_features = True
    claim_parts, replayed_part = (ENCODERS, HEAD), ENCODERS
    member_numbers: Tensor
    member_parts: Tensor

    def __init__(
        self,
        make: Callable[[], nn.Module],
        fixed: AffineModel,
        classes: int,
        *,
        parts: int | Sequence[str],
        encoder_mu: float,
        embedding_norm: float,
        width: int,
        encoder_reach: Reach,
        batch_size: int | None = None,
        num_neighbors: Sequence[int] | None = None,
        scale_rows: bool = True,
        findings: tuple[str, ...] = (),
        built_in_modules: bool = True,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.part_names = checked_parts(parts)
        self.encoder_mu, self.width = checked_positive(encoder_mu, "encoder_mu"), width
        self.embedding_norm = checked_positive(embedding_norm, "embedding_norm")
        self.fixed: Any = fixed
        self.weight = nn.Parameter(torch.zeros(self.num_parts * width, classes))
        self.make = make
        self.encoders: Encoders | None = None
        self.findings = findings  # everything in a fresh encoder that rules out a certificate, in words
        self.built_in_modules = built_in_modules
        self.encoder_reach = encoder_reach
        self.batch_size, self.num_neighbors = checked_mini_batches(batch_size, num_neighbors, hops=encoder_reach.hops)
        own: Reach = fixed.reach  # type: ignore[assignment]
        if encoder_reach.hops is None or own.hops is None:
            self.reach = encoder_reach if encoder_reach.hops is None else own
        else:
            farthest = max(own.hops, encoder_reach.hops + 1)
            self.reach = Reach(farthest, degree_normalised=True, both_ways=encoder_reach.both_ways)
        for name in MEMBERS:
            self.register_buffer(name, torch.zeros(0, dtype=torch.int64))

    @abstractmethod
    def untrained(self) -> StackedModel:
        """The same architecture and parts without encoders, the head at 0."""

    @property
    def mini_batches(self) -> MiniBatches | None:
        """How encoders are trained in mini-batches; None: on the whole of their parts."""
        return MiniBatches(self.batch_size, self.num_neighbors or ()) if self.batch_size else None

    # -- parts ---------------------------------------------------------------------------------------------------

    @property
    def num_parts(self) -> int:
        return self.part_names if isinstance(self.part_names, int) else len(self.part_names)

    @property
    def has_given_parts(self) -> bool:
        """Whether the caller said which nodes are in which part, and no hash."""
        return not isinstance(self.part_names, int)

    def part_of(self, graph: Graph, *, seed: int) -> Tensor:
        """The part of each row of the graph; `OUTSIDE` for nodes that are in none.

        A keyed hash of the node's own number decides, or the caller did: no other node has a say.
        """
        if not self.has_given_parts:
            return self.hashed_part_of(self.part_numbers(graph), seed=seed)
        if not self.member_numbers.numel():
            return torch.full_like(graph.numbers, OUTSIDE)
        place = torch.searchsorted(self.member_numbers, graph.numbers).clamp_max(self.member_numbers.numel() - 1)
        return torch.where(self.member_numbers[place] == graph.numbers, self.member_parts[place], OUTSIDE)

    def hashed_part_of(self, numbers: Tensor, *, seed: int) -> Tensor:
        """The parts of nodes with these numbers, if a hash decides."""
        return (uniform(salted(node_hashes(numbers), salt("part", seed))) * self.num_parts).long()

    @property
    def encoder_view(self) -> ItemView | None:
        """How encoders see the graph that they are trained on; None if their items are nodes."""
        return None

    def part_numbers(self, graph: Graph) -> Tensor:
        """The number of each row that decides its part: that of its node."""
        return graph.numbers

    def set_members(self, graph: Graph, parts: Mapping[str, Iterable[int | str]]) -> None:
        """Sets the nodes of each given part, by their numbers or subject ids in `graph`."""
        part_of: dict[int, int] = {}
        for number, name in enumerate(self.part_names if not isinstance(self.part_names, int) else ()):
            for node in parts[name]:
                row = int(graph.numbers[graph.row(node)])
                if part_of.setdefault(row, number) != number:
                    raise InputError(f"node {node!r} is in two parts, a node can be in one")
        numbers = sorted(part_of)
        self.member_numbers = torch.tensor(numbers, dtype=torch.int64)
        self.member_parts = torch.tensor([part_of[number] for number in numbers], dtype=torch.int64)

    def keep_members(self, numbers: Tensor) -> None:
        """Forgets the members whose number is not among these."""
        stays = torch.isin(self.member_numbers, numbers)
        self.member_numbers, self.member_parts = self.member_numbers[stays], self.member_parts[stays]

    def check_members(self, graph: Graph) -> None:
        """Raises `InputError` if the members, read from a file, cannot be those of this graph."""
        numbers, parts = self.member_numbers, self.member_parts
        if numbers.dtype != torch.int64 or parts.dtype != torch.int64 or numbers.shape != parts.shape:
            raise InputError("the parts are not one whole number a node")
        ordered = numbers.dim() == 1 and bool((numbers.diff() > 0).all())
        expected = self.has_given_parts or not numbers.numel()
        if not ordered or not expected or not torch.isin(numbers, graph.numbers).all():
            raise InputError("the parts are not those of nodes of the graph")
        if (parts < 0).any() or (parts >= self.num_parts).any():
            raise InputError(f"a node is in a part that does not exist, there are {self.num_parts}")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in MEMBERS:
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))  # as many as there are members
        super()._load_from_state_dict(state_dict, prefix, *args)

    # -- released state ------------------------------------------------------------------------------------------

    def released_state(self) -> dict[str, Tensor]:
        """What is released beside the weights: the encoders, as they are."""
        return {} if self.encoders is None else self.encoders.state()

    def load_released_state(self, state: Mapping[str, Tensor]) -> None:
        """Raises `InputError` if these are not the tensors of as many encoders."""
        self.check_shapes(state, [f"encoders.{k}." for k in range(self.num_parts)])
        self.encoders = Encoders.from_state(state, [self.make() for _ in range(self.num_parts)])

    # -- as an affine model --------------------------------------------------------------------------------------

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        features, stacked = inputs
        if not isinstance(features, PropagatedFeatures):
            return _StackedJacobian(self, inputs, rows, nodes=nodes)
        embeddings = stacked.embeddings.index_select(0, rows)
        together = torch.cat([embeddings, features.of_rows(rows)()], dim=1)
        return BlockedFeatures(lambda: together, classes=self.weight.shape[1], bias=self.fixed.bias is not None)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        x, stacked = inputs
        if isinstance(x, PropagatedFeatures):
            squares = x.row_norms(rows).square() + (0.0 if self.fixed.bias is None else 1.0)
        else:
            squares = self.fixed.feature_norms(x, stacked.fixed)[rows].square()
        embeddings = stacked.embeddings.index_select(0, rows)
        squares = squares + torch.linalg.vecdot(embeddings, embeddings)
        return float(squares.sqrt().sum()), float(squares.sum())

    def feature_error(self, inputs: tuple[Any, Any]) -> float | None:
        error: float | None = self.fixed.feature_error(inputs)
        return error

    def longest_sum(self, nodes: int) -> int:
        longest: int = self.fixed.longest_sum(nodes)
        return longest + (self.reach.hops or 1) * (nodes + self.weight.shape[0] + 10)

    def can_share(self, like: Tensor) -> bool:
        return self.weight.to(like) is self.weight


class _StackedJacobian(Jacobian):
    """Some rows of the logits: those of the fixed features, and the embeddings of these rows as a dense matrix."""

    has_shared_features = True

    def __init__(self, module: StackedModel, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> None:
        x, stacked = inputs
        self._fixed = module.fixed.logits_jacobian((x, stacked.fixed), rows, nodes=nodes)
        self._embeddings = stacked.embeddings.index_select(0, rows)
        self._turned = self._embeddings.T.contiguous()  # products with few columns are fastest along long rows
        self._shape, self._size = module.weight.shape, module.weight.numel()
        self.value = self._fixed.value

    def apply(self, v: Tensor) -> Tensor:
        return self._fixed.apply(v[self._size :]) + (v[: self._size].view(self._shape).T.contiguous() @ self._turned).T

    def adjoint(self, u: Tensor) -> Tensor:
        return torch.cat([(u.T @ self._embeddings).T.flatten(), self._fixed.adjoint(u)])


def checked_parts(parts: Any) -> int | tuple[str, ...]:
    """The number of parts, or the names of given ones."""
    if isinstance(parts, Mapping):
        parts = tuple(parts)
    if isinstance(parts, list | tuple):
        names = tuple(map(str, parts))
        if not names or len(set(names)) != len(names) or len(names) > MOST_PARTS:
            raise InputError(f"the parts are named {names!r}, one to {MOST_PARTS} different names are needed")
        return names
    count = whole_number(parts, "the number of parts")
    if not 1 <= count <= MOST_PARTS:
        raise InputError(f"the number of parts is {count}, a whole number from 1 to {MOST_PARTS} is needed")
    return count
