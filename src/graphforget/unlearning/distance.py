"""The white-box measurement: how far weights are from the retrained ones, and the exact epsilon that this implies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.stats import chi2
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.linalg.newton import newton_cg
from graphforget.privacy.gaussian import epsilon_of
from graphforget.privacy.noise import grid
from graphforget.training.trained import Trained

TIGHT = 1e-6  # how near to the optimum the reference is


@dataclass(frozen=True)
class Distance:
    """`||theta - theta~||`, and with noise its ratio to sigma and the epsilon of the best test at this delta."""

    distance: float
    ratio: float | None = None
    epsilon: float | None = None


def optimum(trained: Trained, graph: Graph, *, within: float = TIGHT, warm: bool = False) -> Tensor:
    """The minimiser of the model's objective on `graph`, with the noise that is in it, to about this distance.

    It is sought from 0, or from the model's own weights.
    """
    start = trained.theta if warm else torch.zeros_like(trained.theta)
    return newton_cg(trained.objective(graph), start, gradient_tolerance=within * trained.recipe.mu).theta


def off_by(trained: Trained, graph: Graph, theta: Tensor) -> float:
    """`||grad F|| / mu`: how far `theta` can be from that minimiser."""
    return float(trained.objective(graph).gradient(theta).norm()) / trained.recipe.mu


def chance_of_noise(released: Tensor, private: Tensor, *, sigma: float) -> float:
    """The chance that fresh noise of this size is as large or as small as what lies between kept and released weights.

    `||released - private||^2 / sigma^2` is chi-squared; rounding to the grid adds a twelfth of its square a weight. No
    noise where some is due, or more than noise between the two, has none.
    """
    if not sigma:
        return float(torch.equal(released, private))
    weight = sigma**2 + grid(sigma) ** 2 / 12
    found = float((released - private).square().sum()) / weight
    return float(2 * min(chi2.cdf(found, private.numel()), chi2.sf(found, private.numel())))


def distance(theta: Tensor, reference: Tensor, *, sigma: float, delta: float, slack: float = 0.0) -> Distance:
    """Of two weights that both go out with noise `sigma`: the best test between them projects on their difference.

    `slack` is how far the reference may be off; it counts for the model.
    """
    found = float((theta - reference).norm())
    if not sigma:
        return Distance(found)
    ratio = max(0.0, found - slack) / sigma
    return Distance(found, ratio, epsilon_of(ratio=ratio, delta=delta))
