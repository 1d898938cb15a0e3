"""Steps of Adam, against those of a loss with the L2 term written out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import graphforget as gf
from cases import CLASSES, COLUMNS, random_graph
from graphforget.models.parameters import adam_for, backward_with_l2

MU, RATE = 0.3, 0.1


class Own(nn.Module):
    """A module of a user whose parameters have one unusual property."""

    reach = gf.Reach(1, degree_normalised=False)

    def __init__(self, kind: str) -> None:
        super().__init__()
        weight = torch.randn(COLUMNS, 2 * CLASSES)
        forms = {"sliced": weight[:, ::2], "turned": weight[:, :CLASSES].T.contiguous().T}
        self.weight = nn.Parameter(forms.get(kind, weight[:, :CLASSES].contiguous()))
        self.kinds = nn.Embedding(2, CLASSES, sparse=kind == "sparse")
        self.unused = nn.Parameter(torch.ones(3))
        self.kind = kind

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.kind == "constant":
            return x[:, :CLASSES] * 1.0
        return x @ self.weight + self.kinds((x[:, 0] > 0).long())


KINDS = ("plain", "sliced", "turned", "sparse", "constant")


def trained(kind: str, steps: Callable[[Own, Tensor], None]) -> list[Tensor]:
    torch.manual_seed(0)
    module, x = Own(kind), torch.randn(20, COLUMNS)
    steps(module, x)
    return [parameter.detach().clone() for parameter in module.parameters()]


def data_loss(module: Own, x: Tensor) -> Tensor:
    labels = torch.arange(x.shape[0]) % CLASSES
    return nn.functional.cross_entropy(module(x, torch.zeros(2, 0, dtype=torch.int64)), labels)


def ours(module: Own, x: Tensor) -> None:
    parameters = list(module.parameters())
    optimiser = adam_for(parameters, RATE)
    for _ in range(5):
        optimiser.zero_grad()
        backward_with_l2(data_loss(module, x), parameters, MU)
        optimiser.step()


def written_out(module: Own, x: Tensor) -> None:
    parameters = list(module.parameters())
    optimiser = torch.optim.Adam(parameters, lr=RATE, fused=False)
    for _ in range(5):
        optimiser.zero_grad()
        penalty = torch.stack([one.square().sum() for one in parameters]).sum()
        (data_loss(module, x) + 0.5 * MU * penalty).backward()
        optimiser.step()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_the_objective_whatever_the_parameters_are(kind: str) -> None:
    for left, right in zip(trained(kind, ours), trained(kind, written_out), strict=True):
        assert torch.allclose(left, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("kind", ["sliced", "sparse", "constant"])
def test_encoders_with_unusual_parameters_are_trained(kind: str, batch_size: int | None) -> None:
    graph = random_graph(3, nodes=60, edges=90, sparse=False)
    model = gf.stacked(lambda: Own(kind), parts=2, batch_size=batch_size)
    found = gf.train(graph, model, epochs=30)
    for encoder in found.stacked.encoders.modules:  # type: ignore[union-attr]
        assert float(encoder.get_parameter("unused").detach().max()) < 0.9  # nothing but the L2 term moves it
