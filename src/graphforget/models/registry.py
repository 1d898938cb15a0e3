"""The built-in models by name, and how each is trained by default."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import nn

from graphforget.errors import InputError
from graphforget.models.affine import AffineModel
from graphforget.models.base import GraphModel
from graphforget.models.boosted import Boosted
from graphforget.models.built_in import alteration, as_stacked, is_built_in
from graphforget.models.fixed import SGC, SIGN, FixedPropagation, MeanSGC, sgc_without_bias
from graphforget.models.gat import GAT
from graphforget.models.gcn import GCN
from graphforget.models.gin import GIN
from graphforget.models.graph_items import GraphView
from graphforget.models.graph_models import GraphSIGN, GraphWL
from graphforget.models.item_features import LinearOnItems
from graphforget.models.item_networks import ItemNetwork
from graphforget.models.items import GRAPH, LINK, ItemView
from graphforget.models.linearised import Linearised, base_of, linearised
from graphforget.models.link import LinkSGC, LinkSIGN
from graphforget.models.link_view import autoencoder_view
from graphforget.models.published import PublishedEraser, PublishedGCN
from graphforget.models.relational import RelationalSIGN
from graphforget.models.sage import SAGE
from graphforget.models.schedules import PAPER, RECIPES, Schedule
from graphforget.models.sharded import Sharded
from graphforget.models.stacked import HOPS, Stacked
from graphforget.models.stacked_items import StackedOnItems
from graphforget.models.stacked_model import EMBEDDING_NORM, PARTS
from graphforget.validation import whole_number


@dataclass(frozen=True)
class ModelEntry:
    """A built-in model and its training defaults, chosen on validation nodes (`benchmarks/tune.py`).

    `affine` models are trained by Newton's method to their one optimum, the others by Adam and then a polish.
    `epochs`, `learning_rate` and `polish_steps` are the quick recipe. A network also has the paper's longer schedule;
    for other models the two recipes are the same.
    """

    name: str
    title: str
    build: Callable[..., nn.Module]  # (columns, classes, **options)
    mu: float
    affine: bool
    epochs: int = 300
    learning_rate: float = 0.01
    polish_steps: int = 100
    paper: Schedule | None = None  # None: as above
    sigma: float = 0.0  # noise in every release, chosen by what it costs on validation nodes (`benchmarks/noise.py`)
    objective_noise: float = 0.0  # noise in the objective
    composite: bool = False  # stacked or boosted: an affine model with a part that is trained by Adam
    loss: str = "cross_entropy"

    @property
    def has_epochs(self) -> bool:
        """Whether it, or a part of it, is trained by Adam."""
        return self.composite or not self.affine

    def schedule(self, recipe: str = RECIPES[0]) -> Schedule:
        """The schedule of the recipe with this name.

        Raises:
            InputError: There is no recipe with this name.
        """
        if recipe not in RECIPES:
            raise InputError(f"there is no recipe {recipe!r}, only {' and '.join(RECIPES)}")
        quick = Schedule(self.epochs, self.learning_rate, self.polish_steps)
        return quick if recipe == "quick" or self.paper is None else self.paper


LINEARISED_SIGMA = 0.05
ENCODER_WIDTHS = {"gcn": 32, "gat": 4, "gin": 32, "sage": 32}  # hidden units of an encoder, of each of its heads
ENCODER_SCHEDULE: dict[str, Any] = {"mu": 1e-4, "epochs": 40, "learning_rate": 0.03, "polish_steps": 0}
NETWORK_SCHEDULE: dict[str, Any] = {"mu": 1e-4, "epochs": 20, "learning_rate": 0.03, "polish_steps": 0}
LINK_NETWORK: dict[str, Any] = {"epochs": 100, "learning_rate": 0.01, "loss": "logistic"}
GRAPH_NETWORK: dict[str, Any] = {"epochs": 100, "learning_rate": 0.01}
NOISY_OBJECTIVE: dict[str, Any] = {"mu": 1e-3, "affine": True, "objective_noise": 1.0, "loss": "one_vs_rest"}
LINKS: dict[str, Any] = {"mu": 1e-4, "sigma": 0.05, "loss": "logistic"}


def _network(
    name: str, title: str, build: Callable[..., nn.Module], quick: Schedule, paper: Schedule, *, mu: float
) -> ModelEntry:
    return ModelEntry(name, title, build, mu=mu, affine=False, **dataclasses.asdict(quick), paper=paper)


def _linearised(name: str, base: Callable[..., nn.Module], **defaults: Any) -> ModelEntry:
    def build(columns: int, classes: int, *, weights_seed: int = 0, **options: Any) -> nn.Module:
        return linearised(base(columns, classes, **{**defaults, **options}), seed=weights_seed, columns=columns)

    title = f"{name.upper()} linearised at public weights"
    return ModelEntry(f"linearised-{name}", title, build, mu=1e-4, affine=True, sigma=LINEARISED_SIGMA)


def _stacked(name: str, base: Callable[..., GraphModel], *, encoder_mu: float, **training: Any) -> ModelEntry:
    def build(
        columns: int,
        classes: int,
        *,
        parts: int | Sequence[str] = PARTS,
        hops: int = HOPS,
        encoder_mu: float = encoder_mu,
        embedding_norm: float = EMBEDDING_NORM,
        attribute_scale: float = 1.0,
        batch_size: int | None = None,
        num_neighbors: Sequence[int] | None = None,
        **options: Any,
    ) -> nn.Module:
        make = functools.partial(base, columns, classes, **{"hidden": ENCODER_WIDTHS[name]} | options)
        with torch.device("meta"):  # its shape is enough
            shape = make()
        return Stacked(
            make,
            columns,
            classes,
            parts=parts,
            hops=hops,
            encoder_mu=encoder_mu,
            embedding_norm=embedding_norm,
            attribute_scale=attribute_scale,
            batch_size=batch_size,
            num_neighbors=num_neighbors,
            width=shape.width,
            encoder_reach=shape.reach,
            scale_rows=shape.scale_rows,
        )

    title = f"{name.upper()} encoders, certified head"
    return ModelEntry(f"stacked-{name}", title, build, affine=True, composite=True, sigma=LINEARISED_SIGMA, **training)


def _stacked_on_items(
    word: str,
    name: str,
    base: Callable[..., GraphModel],
    fixed: Callable[..., LinearOnItems],
    *,
    encoder_mu: float,
    **training: Any,
) -> ModelEntry:
    def build(
        columns: int,
        classes: int,
        *,
        parts: int = PARTS,
        encoder_mu: float = encoder_mu,
        embedding_norm: float = EMBEDDING_NORM,
        hidden: int = ENCODER_WIDTHS[name],
        **options: Any,
    ) -> nn.Module:
        features = fixed(columns, classes, **options)
        view = features.view
        make = functools.partial(_item_network, view.encoder_view(), base, columns, hidden, view.outputs or classes)
        given: Any = {"parts": parts, "encoder_mu": encoder_mu, "embedding_norm": embedding_norm}
        return StackedOnItems(make, features, width=hidden, **given)

    title = f"{word}s, {name.upper()} encoders"
    return ModelEntry(f"{word}-stacked-{name}", title, build, affine=True, composite=True, **training)


def _network_on_items(
    name: str, title: str, base: Callable[..., GraphModel], view: Callable[..., ItemView], **training: Any
) -> ModelEntry:
    def build(
        columns: int, classes: int, *, hidden: int = 32, dropout: float | None = None, **options: Any
    ) -> nn.Module:
        seen = view(**options)
        given: Any = {} if dropout is None else {"dropout": dropout}
        return _item_network(seen, base, columns, hidden, seen.outputs or classes, **given)

    return ModelEntry(name, title, build, affine=False, polish_steps=0, **training)


def _item_network(
    view: ItemView, base: Callable[..., GraphModel], columns: int, hidden: int, outputs: int, **options: Any
) -> ItemNetwork:
    """A network for links (the dot product of two vectors) or for graphs (a linear head on pooled vectors)."""
    head = None if view.word == LINK else outputs
    return ItemNetwork(view, base(columns, hidden, hidden=hidden, **options), width=hidden, outputs=head)


def _boosted(name: str, base: Callable[..., GraphModel], *, network_mu: float, **training: Any) -> ModelEntry:
    def build(
        columns: int, classes: int, *, start: str = "sign", network_mu: float = network_mu, **options: Any
    ) -> nn.Module:
        make = functools.partial(base, columns, classes, **options)
        with torch.device("meta"):  # its shape is enough
            shape = make()
        given: Any = {"network_reach": shape.reach, "scale_rows": shape.scale_rows}
        return Boosted(make, columns, classes, start=start, network_mu=network_mu, **given)

    title = f"certified start, then {name.upper()}"
    return ModelEntry(f"boosted-{name}", title, build, affine=True, composite=True, sigma=LINEARISED_SIGMA, **training)


def _sharded(name: str, base: Callable[..., GraphModel], **training: Any) -> ModelEntry:
    def build(
        columns: int,
        classes: int,
        *,
        shards: int = 10,
        partition: str = "random",
        aggregation: str = "mean",
        **options: Any,
    ) -> nn.Module:
        ensemble: Any = {"shards": shards, "partition": partition, "aggregation": aggregation}
        return Sharded(lambda: base(columns, classes, **options), **ensemble)

    title = f"{name.upper()} on shards, for GraphEraser"
    return ModelEntry(f"sharded-{name}", title, build, affine=False, polish_steps=0, **training)


def _published(columns: int, classes: int, *, hidden: int = 32, **ensemble: Any) -> nn.Module:
    return PublishedEraser(
        lambda: PublishedGCN(columns, classes, hidden=hidden), **({"aggregation": "learned"} | ensemble)
    )


MODELS = {
    entry.name: entry
    for entry in (
        ModelEntry("sgc", "SGC, two hops", SGC, mu=1e-4, affine=True, sigma=0.1),
        ModelEntry("sign", "SIGN, linear head, hops 0 to 3", SIGN, mu=1e-4, affine=True, sigma=0.05),
        ModelEntry(
            "relational-sign", "SIGN over relations, two hops", RelationalSIGN, mu=1e-4, affine=True, sigma=0.05
        ),
        ModelEntry("cgu", "SGC for CGU, noisy objective", MeanSGC, **NOISY_OBJECTIVE),
        ModelEntry("scalegun", "SGC for ScaleGUN, noisy objective", sgc_without_bias, **NOISY_OBJECTIVE),
        _network("gcn", "GCN, two layers", GCN, Schedule(60, 0.03, 0), PAPER, mu=5e-4),
        _network("gat", "GAT, two layers, eight heads", GAT, Schedule(60, 0.01, 0), Schedule(300, 0.01, 20), mu=1e-3),
        _network("gin", "GIN, two layers, no BatchNorm", GIN, Schedule(100, 0.01, 3), Schedule(200, 0.01, 3), mu=5e-3),
        _network("sage", "GraphSAGE, two layers, mean", SAGE, Schedule(200, 0.03, 0), PAPER, mu=5e-4),
        _linearised("gcn", GCN, hidden=256),
        _linearised("gat", GAT, hidden=32),
        _linearised("gin", GIN, hidden=256),
        _linearised("sage", SAGE, hidden=256),
        _stacked("gcn", GCN, encoder_mu=5e-4, **ENCODER_SCHEDULE),
        _stacked("gat", GAT, encoder_mu=1e-3, **ENCODER_SCHEDULE),
        _stacked("gin", GIN, encoder_mu=5e-3, **ENCODER_SCHEDULE),
        _stacked("sage", SAGE, encoder_mu=5e-4, **ENCODER_SCHEDULE),
        _boosted("gcn", GCN, network_mu=5e-4, **NETWORK_SCHEDULE),
        _boosted("gat", GAT, network_mu=1e-3, **NETWORK_SCHEDULE),
        _boosted("gin", GIN, network_mu=5e-3, **NETWORK_SCHEDULE),
        _boosted("sage", SAGE, network_mu=5e-4, **NETWORK_SCHEDULE),
        _sharded("sgc", SGC, mu=1e-4),
        _sharded("gcn", GCN, mu=5e-4, epochs=200),
        _sharded("gat", GAT, mu=1e-3, epochs=200),
        _sharded("gin", GIN, mu=5e-3, epochs=200),
        _sharded("sage", SAGE, mu=5e-4, epochs=200),
        _stacked_on_items(LINK, "gcn", GCN, LinkSIGN, encoder_mu=5e-4, **ENCODER_SCHEDULE | LINKS),
        _stacked_on_items(GRAPH, "gin", GIN, GraphWL, encoder_mu=5e-4, **ENCODER_SCHEDULE | {"sigma": 0.05}),
        _network_on_items("link-gcn", "links, GCN and dot product", GCN, autoencoder_view, mu=1e-5, **LINK_NETWORK),
        _network_on_items("graph-gin", "graphs, GIN", GIN, GraphView, mu=5e-4, **GRAPH_NETWORK),
        _network_on_items("graph-gcn", "graphs, GCN", GCN, GraphView, mu=5e-4, **GRAPH_NETWORK),
        ModelEntry("link-sgc", "links by similarity at two hops", LinkSGC, affine=True, **LINKS),
        ModelEntry("link-sign", "links by similarity, hops 0 to 2", LinkSIGN, affine=True, **LINKS),
        ModelEntry("graph-wl", "graphs by Weisfeiler-Lehman", GraphWL, mu=3e-5, affine=True, sigma=0.05),
        ModelEntry("graph-sign", "graphs by pooled SIGN features", GraphSIGN, mu=2e-5, affine=True, sigma=0.05),
        ModelEntry(
            "sharded-released",
            "for the paper's Table 1 alone",
            _published,
            mu=1e-9,
            affine=False,
            epochs=100,
            polish_steps=0,
        ),
    )
}


AFFINE = (
    *(FixedPropagation, SGC, SIGN, MeanSGC, RelationalSIGN, Linearised, Stacked, StackedOnItems, Boosted),
    *(LinkSGC, LinkSIGN, GraphWL, GraphSIGN),
)


def is_affine(module: nn.Module) -> TypeGuard[AffineModel]:
    """Whether the logits are an affine function of the parameters, by construction.

    It goes by the exact type: no attribute, no subclass and no instance with replaced methods can claim it. With
    cross-entropy and mu > 0 the objective is then strongly convex (docs/maths.md, section 5).
    """
    return type(module) in AFFINE and not alteration(module)


def reach_is_proven(module: nn.Module) -> bool:
    """Whether its reach is known by construction: a model of this package, or one of them linearised."""
    stacked = as_stacked(module)
    return is_built_in(base_of(module)) and (stacked is None or stacked.built_in_modules)


def entry_of(name: str) -> ModelEntry:
    """A built-in model by its name. Raises `InputError` if there is none."""
    entry = MODELS.get(name.lower())
    if entry is None:
        raise InputError(f"there is no model {name!r}, only {', '.join(MODELS)}")
    return entry


def build(name: str, *, columns: int, classes: int, seed: int = 0, **options: Any) -> nn.Module:
    """A built-in model with fresh weights drawn by `seed`; the caller's random state does not change."""
    entry = entry_of(name)
    _check_options(options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return entry.build(columns, classes, **options)
        except (TypeError, RuntimeError, ValueError, MemoryError) as error:
            if isinstance(error, InputError):
                raise
            message = " ".join(str(error).split())
            message = "they need more memory than there is" if "allocate memory" in message else message
            if unknown := re.search(r"unexpected keyword argument '(\w+)'", message):
                raise InputError(f"model {entry.name!r} has no option {unknown[1]!r}") from error
            raise InputError(f"model {entry.name!r} does not take these options: {message}") from error


def count_parameters(name: str, *, columns: int, classes: int, options: dict[str, Any]) -> int:
    """The number of parameters of such a model. None of them is allocated, so any size is possible."""
    ensemble = {"shards": 1} if "shards" in options else {}
    with torch.device("meta"):
        one = build(name, **{"columns": columns, "classes": classes}, **options | ensemble)
    return sum(p.numel() for p in one.parameters()) * (whole_number(options["shards"], "shards") if ensemble else 1)


def _check_options(options: dict[str, Any]) -> None:
    """Checks the options that no constructor checks."""
    for name in ("hidden", "heads"):
        if name in options and whole_number(options[name], name) == 0:
            raise InputError(f"{name} is 0, at least 1 is needed")
    whole_number(options.get("weights_seed", 0), "weights_seed")
    dropout = options.get("dropout", 0.0)
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise InputError(f"dropout is {dropout!r}, a number from 0 to 1 is needed")
    for name in ("scale_rows", "include_self"):
        if not isinstance(options.get(name, True), bool):
            raise InputError(f"{name} is {options[name]!r}, true or false is needed")
