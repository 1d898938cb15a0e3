"""A trained model, its recipe and its measurements."""
# Longer than 350 lines because everything that can be asked of a trained model is a method.

from __future__ import annotations

import copy
import dataclasses
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.graph.links import named_pairs
from graphforget.graph.reach import Reach
from graphforget.graph.targets import target_kind
from graphforget.linalg.solution import Preconditioner
from graphforget.models.boosted import Boosted, as_boosted
from graphforget.models.built_in import as_composite, as_stacked
from graphforget.models.composite import CompositeModel
from graphforget.models.inputs import outputs
from graphforget.models.items import LINK, ItemModel, Items, items_of
from graphforget.models.linearised import base_of
from graphforget.models.parameters import assign
from graphforget.models.registry import is_affine, reach_is_proven
from graphforget.models.sharded import Sharded, as_ensemble
from graphforget.models.stacked_model import StackedModel
from graphforget.privacy.salt import new_salt
from graphforget.request.hashed_items import HashedItems
from graphforget.training.distributed_objective import model_on_ranks, objective_on
from graphforget.training.losses import Loss, is_convex
from graphforget.training.objective import Objective
from graphforget.training.recipe import UPDATE, HistoryEntry, Recipe
from graphforget.training.score_names import SCORES, ScoreKind
from graphforget.training.scores import can_score, scores, without_last_digits
from graphforget.training.sharded_objective import ShardedObjective
from graphforget.training.state import digest_of, untrained_state
from graphforget.validation import written_fields

if TYPE_CHECKING:
    from torch_geometric.data import Data

# Trains a module on a PyG `Data`; the operator's own training of an adopted model.
RetrainFunction = Callable[["Data"], nn.Module]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model. `theta` are its flat parameters in float64; `module` holds the same and can be called."""

    module: nn.Module
    theta: Tensor = field(repr=False)
    recipe: Recipe
    reach: Reach
    certification_blockers: tuple[str, ...]  # everything that rules out a certificate, in words
    strongly_convex: bool  # by construction, or because its loss is declared convex
    converged: bool  # strongly convex and ||grad F|| / mu <= tolerance
    objective_value: float
    gradient_norm: float  # ||grad F(theta)|| in float64, dropout off
    graph_digest: str
    seconds: float
    loss: Loss = field(repr=False)
    history: tuple[HistoryEntry, ...] = ()  # since it was trained, oldest first
    noise: float = 0.0  # standard deviation of the noise in released weights, which no request can start from
    objective_noise_vector: Tensor | None = field(
        default=None, repr=False
    )  # `b`, the noise in the objective: private, as the weights
    releases: tuple[float, ...] = ()  # the ratio that each release since training may have, see `releases_left`
    graph_salt: bytes = field(default_factory=new_salt, repr=False)  # for the graph's digest in public documents
    notes: tuple[str, ...] = ()  # warnings for the person who trained it
    retrain: RetrainFunction | None = field(default=None, repr=False)  # of an adopted model: its own training
    suppressed: HashedItems | None = field(default=None, repr=False)  # what requests deleted and no update brings back
    absent: HashedItems | None = field(default=None, repr=False)  # what was asked for since then while it was absent
    # Of the curvature at training, for the solves of requests. It is private, in memory alone, and in no pickle.
    preconditioner: Preconditioner | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"preconditioner": None}

    @property
    def obstacles(self) -> tuple[str, ...]:
        """`certification_blockers`, by the name that files have for them."""
        return self.certification_blockers

    def graph_commitment(self, graph: Graph, *, digest: str | None = None) -> str:
        """The graph's digest for public documents, keyed with the salt, so that nobody can test a guess."""
        return hmac.new(self.graph_salt, (digest or graph.digest).encode(), hashlib.sha256).hexdigest()

    @property
    def releases_left(self) -> int | None:
        """How many more releases the recipe's epsilon and delta cover; None if they cover no release."""
        recipe = self.recipe
        if not self.strongly_convex or self.certification_blockers or self.objective_noise_vector is not None:
            return None
        return recipe.releases_left(self.releases)

    @property
    def is_ensemble(self) -> bool:
        """Whether it is an ensemble on shards, as GraphEraser needs it."""
        return as_ensemble(self.module) is not None

    @property
    def ensemble(self) -> Sharded:
        """Its module as an ensemble on shards. Raises `InputError` if it is none."""
        ensemble = as_ensemble(self.module)
        if ensemble is None:
            raise InputError(f"the model is a {type(self.module).__name__}, an ensemble on shards is needed")
        return ensemble

    @property
    def is_stacked(self) -> bool:
        """Whether it has encoders that are trained on parts of the graph, and one head."""
        return as_stacked(self.module) is not None

    @property
    def stacked(self) -> StackedModel:
        """Its module as a stacked model. Raises `InputError` if it is none."""
        stacked = as_stacked(self.module)
        if stacked is None:
            raise InputError(f"the model is a {type(self.module).__name__}, a stacked model is needed")
        return stacked

    @property
    def released_state(self) -> dict[str, Tensor]:
        """The tensors that are released beside the weights, as they are: encoders, or a network."""
        composite = as_composite(self.module)
        if composite is not None:
            return composite.released_state()
        return untrained_state(self.module) if self.recipe.adopted else {}

    @property
    def is_boosted(self) -> bool:
        """Whether it is a convex start with a network that is trained from what is released of it."""
        return as_boosted(self.module) is not None

    @property
    def boosted(self) -> Boosted:
        """Its module as a boosted model. Raises `InputError` if it is none."""
        boosted = as_boosted(self.module)
        if boosted is None:
            raise InputError(f"the model is a {type(self.module).__name__}, a boosted model is needed")
        return boosted

    @property
    def composite(self) -> CompositeModel | None:
        """Its module, if more is released of it than its weights; None for any other."""
        return as_composite(self.module)

    @property
    def is_linearised(self) -> bool:
        """Whether it is a GNN linearised at public weights, so that these weights are part of its objective."""
        return base_of(self.module) is not self.module

    @property
    def reach_is_proven(self) -> bool:
        """Whether its reach is known by construction, and not counted or declared."""
        return reach_is_proven(self.module)

    @property
    def loss_is_convex(self) -> bool:
        """Whether the loss is convex by construction, whatever its author declares."""
        return is_convex(self.loss)

    @property
    def proven_convex(self) -> bool:
        """Whether the objective is strongly convex by construction, whatever anybody declares or wrote down."""
        return is_affine(self.module) and self.loss_is_convex

    @property
    def certifiable(self) -> bool:
        """Whether the level `certified` is possible.

        The objective must be strongly convex by construction, without anything that rules out a certificate and
        without noise: for any weights one could construct noise that makes them the optimum.
        """
        return (
            self.strongly_convex
            and is_convex(self.loss)
            and not self.certification_blockers
            and self.objective_noise_vector is None
        )

    @property
    def residual(self) -> float:
        """`||grad F|| / mu`; for a strongly convex objective an upper bound on the distance to its minimiser.

        Measured in float64 and without an allowance for its rounding. A certificate adds one
        (`training/rounding.py`), and training warns if it is over the tolerance of a release.
        """
        return self.gradient_norm / self.recipe.mu

    def objective(self, graph: Graph, *, device: str = "cpu") -> Objective:
        """The objective it was trained by, on `graph`."""
        given: Any = {"mu": self.recipe.mu, "loss": self.loss, "device": device}
        if self.is_ensemble:
            return ShardedObjective(self.ensemble, graph, **given)
        return objective_on(self.module, graph, objective_noise_vector=self.objective_noise_vector, **given)

    def with_update(
        self,
        theta: Tensor,
        objective: Objective,
        entry: HistoryEntry,
        *,
        measured: tuple[float, float] | None = None,
    ) -> Trained:
        """The same model with weights `theta` on the objective's graph, and one entry more in its history.

        `measured` is the objective's value and the norm of its gradient at `theta`, if they are known.
        """
        updated = self.with_weights(theta, history=(*self.history, entry))
        return updated.measured_on(objective, measured=measured)

    @property
    def refuted(self) -> tuple[str, ...]:
        """Conditions of the claims of earlier requests that measurements refuted, oldest first."""
        return tuple(name for entry in self.history for name in entry.refuted)

    @property
    def was_updated(self) -> bool:
        """Whether the graph grew or was corrected since training. Bounds over the history do not cover that."""
        return any(entry.method == UPDATE for entry in self.history)

    def amend_last_entry(self, **changes: Any) -> Trained:
        """The same model with other fields in the last entry of its history."""
        *earlier, last = self.history
        return dataclasses.replace(self, history=(*earlier, dataclasses.replace(last, **changes)))

    def measured_on(self, objective: Objective, *, measured: tuple[float, float] | None = None) -> Trained:
        """The same weights with their measurements on the objective's graph."""
        if measured is None:
            value, gradient = objective.value_and_gradient(self.theta.to(objective.like))
            measured = value, float(gradient.norm())
        value, norm = measured
        return dataclasses.replace(
            self,
            converged=self.strongly_convex and norm <= self.recipe.tolerance * self.recipe.mu,
            objective_value=value,
            gradient_norm=norm,
            graph_digest=objective.graph.digest,
            graph_salt=new_salt(),
        )

    def with_weights(self, theta: Tensor, **changes: Any) -> Trained:
        """A copy with other weights; `changes` are the other fields that change with them."""
        module = copy.deepcopy(self.module)
        theta = theta.detach().to(device="cpu", dtype=torch.float64)
        assign(module, theta)
        return dataclasses.replace(self, module=module, theta=theta, **changes)

    @property
    def never_again(self) -> HashedItems | None:
        """Everything that no update brings in by itself."""
        if self.suppressed is None or self.absent is None:
            return self.suppressed or self.absent
        return self.suppressed.joined(self.absent)

    def released(self, theta: Tensor, graph: Graph, *, noise: float) -> Trained:
        """The model to publish: weights `theta`, which carry `noise`, and their measurements on `graph`.

        The noise in the objective is left out, because with it the weights would disclose the data that it hides. The
        history of requests and what they deleted are left out too, and which node is in which given part.
        """
        private: dict[str, Any] = {
            "objective_noise_vector": None,
            "history": (),
            "releases": (),
            "notes": (),
            "seconds": 0.0,
            "retrain": None,
            "suppressed": None,
            "absent": None,
            "preconditioner": None,
        }
        released = self.with_weights(theta, noise=noise, **private)
        if released.is_stacked:
            released.stacked.keep_members(torch.zeros(0, dtype=torch.int64))
        return released.measured_on(released.objective(graph))

    def items(self, graph: Graph) -> Items:
        """What the model answers for on `graph`: its nodes, pairs of nodes, or graphs of a collection."""
        return items_of(self.module, graph)

    def logits(self, graph: Graph, rows: Tensor | None = None) -> Tensor:
        """The logits on `graph`, a row for each item, or for some of them, dropout off."""
        return outputs(self.module, graph, rows)

    def link_logits(self, graph: Graph, pairs: Sequence[tuple[int | str, int | str]]) -> Tensor:
        """One logit for each pair of nodes, named as in a request: the higher, the more likely is a link.

        The nodes need not have been a pair in training. Edges that are held out for validation and test are not used.

        Raises:
            InputError: The model does not answer for links, or a pair does not name two different nodes of the graph.
        """
        if not isinstance(self.module, ItemModel):
            raise InputError(f"model {self.recipe.model!r} answers for nodes, not for links")
        return self.module.pair_logits(graph, named_pairs(graph, pairs)).squeeze(1)

    def utility(self, graph: Graph, mask: Tensor | None = None) -> float:
        """The score that `floor` limits: the first of `scores` on the test items, or else on others, see `scored_mask`.

        `mask` are other items to score.

        Raises:
            InputError: There is nothing to score.
        """
        return next(iter(self.scores(graph, self.scored_mask(graph) if mask is None else mask).values()))

    def scored_mask(self, graph: Graph) -> Tensor | None:
        """The test items, or else the validation or training items, whichever can be scored first."""
        items = self.items(graph)
        if isinstance(graph, DistributedGraph):
            return items.test_mask if graph.scored_role else None  # the ranks know which nodes these are
        masks = (items.test_mask, items.val_mask, items.train_mask)
        return next((mask for mask in masks if self.can_score(graph, mask)), None)

    def can_score(self, graph: Graph, mask: Tensor | None = None) -> bool:
        """Whether the items of `mask`, the test items by default, have scores."""
        items = self.items(graph)
        if isinstance(graph, DistributedGraph):
            return bool(graph.counts["test"])
        return can_score(self.score_kind(graph), items.y[items.test_mask if mask is None else mask])

    def scores(self, graph: Graph, mask: Tensor | None = None) -> dict[str, float]:
        """All scores by name (`training/scores.py`) on the items of `mask`, the test items by default.

        On several ranks they have six digits, because the last digits there would tell of earlier deletions.
        """
        items = self.items(graph)
        if isinstance(graph, DistributedGraph):
            more = model_on_ranks(self.module, graph)
            return without_last_digits(scores(self.score_kind(graph), *graph.scored_outputs(self.theta, *more)))
        reason = "the mask is empty"
        if mask is None:
            mask, reason = items.test_mask, f"no {items.word} is a test {items.word}; Graph.split draws some"
        if not mask.any():
            raise InputError(f"there is no {items.word} to score: {reason}")
        return scores(self.score_kind(graph), self.logits(graph, mask.nonzero().flatten()), items.y[mask])

    def score_kind(self, graph: Graph) -> ScoreKind:
        """What the model predicts on `graph`: "classes", "labels", "values" or "links"."""
        items = self.items(graph)
        kind = target_kind(items.y)
        return "links" if items.word == LINK and kind == "labels" else kind

    def micro_f1(self, graph: Graph, mask: Tensor | None = None) -> float:
        """Micro-F1 on the items of `mask`, the test items by default. For one class an item this is the accuracy."""
        names = SCORES[self.score_kind(graph)]
        if "micro_f1" not in names:
            raise InputError(f"the model predicts {self.score_kind(graph)}, which have {' and '.join(names)} as scores")
        return self.scores(graph, mask)["micro_f1"]

    def state_summary(self) -> dict[str, Any]:
        """The state that later requests depend on, beside the weights and the graph."""
        measured = ("objective", "gradient_norm_over_mu", "seconds", "graph_digest", "parameters", "notes")
        facts = {name: value for name, value in self.summary().items() if name not in measured}
        private_state = {"tilt": self.objective_noise_vector} | dict(self.module.named_buffers()) | self.released_state
        digests = {name: digest_of(value) for name, value in private_state.items() if value is not None}
        facts |= {"kept": digests} if digests else {}
        return facts | ({} if self.suppressed is None else {"suppressed": self.suppressed.to_dict()})

    def summary(self) -> dict[str, Any]:
        """The fields that `run.json` and `--json` show."""
        return {
            "recipe": dataclasses.asdict(self.recipe),
            "parameters": self.theta.numel(),
            "reach": dataclasses.asdict(self.reach),
            "certifiable": self.certifiable,
            "obstacles": list(self.certification_blockers),
            "strongly_convex": self.strongly_convex,
            "converged": self.converged,
            "objective": self.objective_value,
            "gradient_norm": self.gradient_norm,
            "gradient_norm_over_mu": self.residual,
            "graph_digest": self.graph_digest,
            "seconds": self.seconds,
            "noise": self.noise,
            "history": [written_fields(entry) for entry in self.history],
            "releases": list(self.releases),
            "releases_left": self.releases_left,
            "notes": list(self.notes),
        }
