"""Data in a module of one's own, whatever carries it: no claim is made that it would break."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnGCN, random_graph
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.levels import Level
from graphforget.models.built_in import is_built_in
from graphforget.models.fixed import SGC
from graphforget.models.registry import is_affine, reach_is_proven

REQUEST = gf.Request(nodes=[4])


@functools.cache
def people() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60, sparse=False)


@functools.cache
def mean() -> Tensor:
    """Of the data: what a deletion has to take out of the model."""
    return people().x[people().train_rows].mean(dim=0)


class Holder:
    def __init__(self, value: object) -> None:
        self.value = value


class Shifts(OwnGCN):
    """Moves the attributes by the mean of the training data, which `of_the_data` gives."""

    def of_the_data(self) -> Any:
        raise NotImplementedError

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        return super().forward(x - torch.as_tensor(self.of_the_data(), dtype=x.dtype), edge_index)


class ByAttribute(Shifts):
    def __init__(self, held: object, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.held, self.read = held, read

    def of_the_data(self) -> Any:
        return self.read(self.held)


class ByClassAttribute(Shifts):
    table = mean().tolist()

    def of_the_data(self) -> Any:
        return self.table


def by_closure() -> Shifts:
    value = mean()
    return ByAttribute(lambda: value, lambda held: held())


def from_bytes(held: bytes) -> Tensor:
    return torch.frombuffer(bytearray(held), dtype=torch.float64)


def call(held: Callable[[], Any]) -> Any:
    return held()


def itself(value: Any) -> Any:
    return value


CARRIERS: dict[str, Callable[[], nn.Module]] = {
    "list": lambda: ByAttribute(mean().tolist(), itself),
    "object": lambda: ByAttribute(Holder(mean()), lambda held: held.value),
    "closure": by_closure,
    "partial": lambda: ByAttribute(functools.partial(itself, mean()), call),
    "bytes": lambda: ByAttribute(mean().numpy().tobytes(), from_bytes),
    "class attribute": ByClassAttribute,
    "fitted scaler": lambda: ByAttribute(
        StandardScaler().fit(people().x[people().train_rows].numpy()), lambda held: held.mean_
    ),
}


def carrier_named(certification_blockers: tuple[str, ...]) -> bool:
    return any("which may carry data" in one and ("'held'" in one or "table'" in one) for one in certification_blockers)


@functools.cache
def trained(name: str) -> gf.Trained:
    return gf.train(people(), CARRIERS[name](), epochs=2, polish_steps=0)


@pytest.mark.parametrize("name", CARRIERS)
def test_the_carrier_reaches_the_output(name: str) -> None:
    """Else it would be no carrier: the same weights without the shift answer otherwise."""
    module = CARRIERS[name]().double()
    plain = OwnGCN().double()
    plain.load_state_dict(module.state_dict())
    given = people().x, people().edge_index
    assert torch.allclose(module(*given), plain(people().x - mean(), people().edge_index))
    assert not torch.allclose(module(*given), plain(*given))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "retrain"])
@pytest.mark.parametrize("name", CARRIERS)
def test_a_trained_module_that_carries_data_guarantees_nothing(name: str, method: str) -> None:
    """Not even retraining does: fresh weights, and the same mean of the deleted data beside them."""
    assert carrier_named(trained(name).certification_blockers)
    outcome = gf.unlearn(trained(name), people(), REQUEST, method=method, model=CARRIERS[name])
    assert outcome.level == "empirical"
    assert outcome.certificate.epsilon is None
    assert carrier_named(outcome.trained.certification_blockers)
    assert "may carry data" in outcome.certificate.statement
    gf.verify(outcome.certificate, outcome.trained, outcome.graph)
    forged = dataclasses.replace(outcome.certificate, claim=Exact())
    with pytest.raises(gf.Mismatch, match="^the level is too high for this model: .* may carry data"):
        gf.verify(forged, outcome.trained, outcome.graph)


@pytest.mark.parametrize("level", ["exact", "certified", "conditional"])
@pytest.mark.parametrize("method", ["auto", "retrain", "idea"])
def test_no_level_with_a_guarantee_can_be_had(method: str, level: Level) -> None:
    given: dict[str, Any] = {} if method == "idea" else {"model": CARRIERS["list"]}
    with pytest.raises(gf.Refused):
        gf.unlearn(trained("list"), people(), REQUEST, method=method, level=level, **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", CARRIERS)
def test_a_module_that_carries_data_is_not_linearised(name: str) -> None:
    with pytest.raises(gf.InputError, match="^this model cannot be linearised: .* which may carry data$"):
        gf.linearised(CARRIERS[name](), columns=COLUMNS)


class Plain(OwnGCN):
    """Nothing is in it when it is linearised."""

    held: object = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        return super().forward(x, edge_index)


def spoilt(name: str) -> nn.Module:
    """Linearised first, and the data put in afterwards, where it changes every logit."""
    module = gf.linearised(Plain(), columns=COLUMNS)
    carrier = CARRIERS[name]().double()
    carrier.load_state_dict(module.base.state_dict())
    module._base = (carrier,)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", CARRIERS)
def test_data_put_into_a_linearised_module_rules_a_certificate_out(name: str) -> None:
    old = gf.train(people(), spoilt(name), sigma=0.01)
    assert carrier_named(old.certification_blockers)
    assert not old.certifiable
    assert old.releases_left is None
    with pytest.raises(gf.Refused, match="may carry data"):
        gf.unlearn(old, people(), REQUEST, method="newton")
    outcome = gf.unlearn(old, people(), REQUEST, method="newton", level="empirical")
    assert outcome.level == "empirical"
    assert outcome.certificate.epsilon is None
    recipe = old.recipe
    claim = ResidualBall(1.0, 1e-5, recipe.sigma, recipe.mu, recipe.releases, 1.0)
    with pytest.raises(gf.Mismatch, match="^the level is too high for this model: .* may carry data"):
        gf.verify(dataclasses.replace(outcome.certificate, claim=claim), outcome.trained, outcome.graph)


def test_the_same_module_without_data_is_certified() -> None:
    old = gf.train(people(), gf.linearised(Plain(), columns=COLUMNS), sigma=0.01)
    assert old.certification_blockers == ()
    assert gf.unlearn(old, people(), REQUEST, method="newton").level == "certified"


def test_data_in_a_module_that_is_handed_over_later_is_named(tmp_path: Path) -> None:
    """A run directory says what was in the module when it was trained, not what is in the one handed over."""
    module = gf.linearised(Plain(), columns=COLUMNS)
    gf.save_run(tmp_path / "run", gf.train(people(), module, sigma=0.01), people())
    assert gf.load_run(tmp_path / "run", model=module)[0].certification_blockers == ()
    module.base.held = mean()
    loaded, graph = gf.load_run(tmp_path / "run", model=module)
    assert carrier_named(loaded.certification_blockers)
    with pytest.raises(gf.Refused, match="may carry data"):
        gf.unlearn(loaded, graph, REQUEST, method="newton")


# -- forged origins ----------------------------------------------------------------------------------------------------


def forged(kind: type[nn.Module], **attributes: Any) -> type[nn.Module]:
    """A class that says that it is one of this package's."""
    return type("SGC", (kind,), {"__module__": "graphforget.models.x", "__qualname__": "SGC", **attributes})


def test_a_forged_origin_is_not_trusted() -> None:
    assert forged(SGC).__module__ == "graphforget.models.x"
    module = forged(SGC)(COLUMNS, CLASSES)
    assert not is_built_in(module)
    assert not is_affine(module)
    assert not reach_is_proven(module)
    old = gf.train(people(), module, epochs=1, polish_steps=0)
    assert not old.strongly_convex
    assert not old.certifiable
    with pytest.raises(gf.InputError, match="'newton' does not work here"):
        gf.unlearn(old, people(), REQUEST, method="newton")


@pytest.mark.slow
@pytest.mark.parametrize("module_name", ["graphforget.models.x", "graphforget.models.fixed", "torch.nn", "numpy"])
def test_data_in_a_class_of_a_forged_origin_is_named(module_name: str) -> None:
    kind = forged(Shifts, __module__=module_name, table=mean().tolist(), of_the_data=lambda self: self.table)
    module = kind()
    assert carrier_named(gf.inspect(module, columns=COLUMNS).certification_blockers)
    with pytest.raises(gf.InputError, match="cannot be linearised"):
        gf.linearised(copy.deepcopy(module), columns=COLUMNS)
    old = gf.train(people(), module, epochs=1, polish_steps=0)
    assert gf.unlearn(old, people(), REQUEST, method="retrain", model=kind).level == "empirical"


def test_a_forged_reach_is_tried_out() -> None:
    kind = forged(OwnGCN, reach=gf.Reach(0))
    with pytest.raises(gf.InputError, match="declared reach .* is too small"):
        gf.train(people(), kind(), epochs=1, polish_steps=0)
