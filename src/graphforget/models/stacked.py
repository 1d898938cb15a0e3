"""Any GNN as encoders on parts of the graph, with one linear head on top (docs/maths.md, section 13).

Given the encoders, the logits are linear in the weights of the head, so the head can be certified. The encoders are
deterministic functions of their own parts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.hashing import node_hashes, salt, salted, uniform
from graphforget.graph.reach import Reach
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.composite import (
    ENCODERS,
    HEAD,
    CompositeModel,
    checked_positive,
)
from graphforget.models.encoders import Encoders
from graphforget.models.fixed import FixedPropagation
from graphforget.validation import whole_number

PARTS = 4
HOPS = 3
EMBEDDING_NORM = 0.2  # small, so that the head trusts an encoder only where this pays
# The factor of a node's own attributes by the number of training nodes: with few labels a head overfits to them.
ATTRIBUTE_SCALES = ((1000, 1.0), (250, 0.5), (0, 0.25))
MOST_PARTS = 1000
OUTSIDE = -1  # the part of a node that is in none
MEMBERS = ("member_numbers", "member_parts")


def default_attribute_scale(training_nodes: int) -> float:
    """The factor of a node's own attributes for so many training nodes. It is fixed when a model is first trained."""
    return next(scale for fewest, scale in ATTRIBUTE_SCALES if training_nodes >= fewest)


@dataclass(frozen=True, eq=False)
class StackedInputs:
    """What the head reads of a graph beside its attributes: the inputs of the fixed features, and the embeddings."""

    fixed: Any
    embeddings: Tensor

    def to(self, dtype: torch.dtype) -> StackedInputs:
        """The same inputs in another precision."""
        return StackedInputs(self.fixed.to(dtype), self.embeddings.to(dtype))


class Stacked(CompositeModel):
    """`[c X, S X, ..., S^H X, E_1, ..., E_K, 1] W` with `E_k` the embedding by encoder k: linear in `W`.

    Its only parameters are `W`, the weights of the head. `make` makes an encoder with fresh weights.
    """

    has_fixed_features = True
    claim_parts, replayed_part = (ENCODERS, HEAD), ENCODERS
    member_numbers: Tensor
    member_parts: Tensor

    def __init__(
        self,
        make: Callable[[], nn.Module],
        columns: int,
        classes: int,
        *,
        parts: int | Sequence[str],
        hops: int,
        encoder_mu: float,
        embedding_norm: float,
        attribute_scale: float,
        width: int,
        encoder_reach: Reach,
        scale_rows: bool = True,
        findings: tuple[str, ...] = (),
        built_in_modules: bool = True,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.part_names = checked_parts(parts)
        self.encoder_mu, self.width = checked_positive(encoder_mu, "encoder_mu"), width
        self.embedding_norm = checked_positive(embedding_norm, "embedding_norm")
        self.attribute_scale = checked_positive(attribute_scale, "attribute_scale")
        averages = Reach(hops).hops or 0  # checks the number
        self.fixed = FixedPropagation(
            columns,
            classes,
            powers=tuple(range(averages + 1)),
            scales=(self.attribute_scale, *(1.0,) * averages),
            scale_rows=scale_rows,
        )
        self.weight = nn.Parameter(torch.zeros(self.num_parts * width, classes))
        self.make = make
        self.encoders: Encoders | None = None
        self.findings = findings  # everything in a fresh encoder that rules out a certificate, in words
        self.built_in_modules = built_in_modules
        self.encoder_reach = encoder_reach
        self.reach = self.fixed.reach
        if encoder_reach.hops is None:
            self.reach = encoder_reach
        else:
            farthest = max(hops, encoder_reach.hops + 1)
            self.reach = Reach(farthest, degree_normalised=True, both_ways=encoder_reach.both_ways)
        for name in MEMBERS:
            self.register_buffer(name, torch.zeros(0, dtype=torch.int64))

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
            positions = uniform(salted(node_hashes(graph.numbers), salt("part", seed)))
            return (positions * self.num_parts).long()
        if not self.member_numbers.numel():
            return torch.full_like(graph.numbers, OUTSIDE)
        place = torch.searchsorted(self.member_numbers, graph.numbers).clamp_max(self.member_numbers.numel() - 1)
        return torch.where(self.member_numbers[place] == graph.numbers, self.member_parts[place], OUTSIDE)

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

    def drop_members(self, graph: Graph | None) -> None:
        """Forgets the members that are not in `graph`; all of them without a graph."""
        stays = torch.isin(self.member_numbers, torch.zeros(0, dtype=torch.int64) if graph is None else graph.numbers)
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

    @property
    def settings(self) -> dict[str, Any]:
        parts = self.part_names if isinstance(self.part_names, int) else list(self.part_names)
        names = ("encoder_mu", "embedding_norm", "attribute_scale")
        return {"parts": parts, "hops": max(self.fixed.powers)} | {name: getattr(self, name) for name in names}

    def untrained(self) -> Stacked:
        """The same architecture and parts without encoders, the head at 0."""
        fresh = Stacked(
            self.make,
            self.fixed.weight.shape[1],
            self.fixed.weight.shape[2],
            **self.settings,
            width=self.width,
            encoder_reach=self.encoder_reach,
            scale_rows=self.scale_rows,
            findings=self.findings,
            built_in_modules=self.built_in_modules,
        )
        fresh.member_numbers, fresh.member_parts = self.member_numbers, self.member_parts
        return fresh.to(self.weight.dtype)

    # -- as a model ----------------------------------------------------------------------------------------------

    def prepare(self, x: Tensor, edge_index: Tensor) -> tuple[Matrix, object]:
        if self.encoders is None:
            raise InputError("the encoders of this model are not trained yet")
        rows, inputs = self.fixed.prepare(x, edge_index)
        propagation = self.propagation(edge_index, x.shape[0], x.dtype) if isinstance(inputs, Tensor) else inputs
        assert isinstance(propagation, SparseMatrix)
        embeddings = self.encoders.embeddings(
            x, edge_index, propagation, rows=rows, width=self.width, norm=self.embedding_norm
        )
        return rows, StackedInputs(inputs, embeddings)

    @property
    def preparation(self) -> Hashable:
        encoders = None if self.encoders is None else self.encoders.digest
        return type(self), self.fixed.preparation, self.embedding_norm, encoders

    def marked_symmetric(self, propagation: object) -> object:
        assert isinstance(propagation, StackedInputs)
        return StackedInputs(self.fixed.marked_symmetric(propagation.fixed), propagation.embeddings)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, StackedInputs)
        return self.fixed.logits(x, propagation.fixed) + propagation.embeddings @ self.weight

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        return _StackedJacobian(self, inputs, rows, nodes=nodes)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        x, stacked = inputs
        squares = self.fixed.feature_norms(x, stacked.fixed)[rows].square()
        squares = squares + stacked.embeddings[rows].square().sum(dim=1)
        return float(squares.sqrt().sum()), float(squares.sum())

    def longest_sum(self, nodes: int) -> int:
        powers, columns, _ = self.fixed.weight.shape
        return (powers + 2) * (nodes + powers * columns + self.weight.shape[0] + 10)

    def can_share(self, like: Tensor) -> bool:
        return self.weight.to(like) is self.weight


class _StackedJacobian(Jacobian):
    """Some rows of the logits: those of the fixed features, and the embeddings of these rows as a dense matrix."""

    def __init__(self, module: Stacked, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> None:
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


# -- encoders --------------------------------------------------------------------------------------------------------


def as_stacked(module: nn.Module) -> Stacked | None:
    """The module as a stacked model, by its exact type; None for any other."""
    return module if type(module) is Stacked else None


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
