"""The white-box measurement: the distance of weights to the retrained ones, and the exact epsilon that it implies."""

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

    The search starts from 0, or with `warm` from the weights of the model.
    """
    start = trained.theta if warm else torch.zeros_like(trained.theta)
    return newton_cg(trained.objective(graph), start, gradient_tolerance=within * trained.recipe.mu).theta


def optimum_distance_bound(trained: Trained, graph: Graph, theta: Tensor) -> float:
    """`||grad F|| / mu`: a bound on the distance of `theta` to that minimiser."""
    return float(trained.objective(graph).gradient(theta).norm()) / trained.recipe.mu


def noise_p_value(released: Tensor, private: Tensor, *, sigma: float) -> float:
    """The p-value of the difference of released and private weights as Gaussian noise of this size (two-sided).

    `||released - private||^2 / sigma^2` is chi-squared; rounding to the grid adds a twelfth of its square for each
    weight. It is near 0 if the noise is missing, or if the weights differ by more than noise.
    """
    if not sigma:
        return float(torch.equal(released, private))
    weight = sigma**2 + grid(sigma) ** 2 / 12
    statistic = float((released - private).square().sum()) / weight
    return float(2 * min(chi2.cdf(statistic, private.numel()), chi2.sf(statistic, private.numel())))


def distance(theta: Tensor, reference: Tensor, *, sigma: float, delta: float, slack: float = 0.0) -> Distance:
    """The distance of two weights that are released with noise `sigma`; the best test projects on their difference.

    `slack` bounds the error of the reference. It is subtracted, in favour of the model.
    """
    norm = float((theta - reference).norm())
    if not sigma:
        return Distance(norm)
    ratio = max(0.0, norm - slack) / sigma
    return Distance(norm, ratio, epsilon_of(ratio=ratio, delta=delta))
