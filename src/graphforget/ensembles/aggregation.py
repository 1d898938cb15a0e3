"""Three rules that aggregate the predictions of k shard models (GraphEraser; Chen et al., CCS 2022)."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphforget.errors import InputError, Refused
from graphforget.graph.targets import UNLABELLED
from graphforget.validation import check_from_zero

AGGREGATIONS = ("mean", "majority", "learned")

TIE = 1e-9  # shares of votes that are closer differ by rounding alone
BREAKER = 1e-6  # the most that breaking ties adds to a share
NEWTON_STEPS = 200  # ten are usual

Array = NDArray[np.float64]


def aggregate(log_probabilities: Tensor, weights: Tensor, *, aggregation: str) -> Tensor:
    """The ensemble's logits n x C, from log-probabilities k x n x C and k weights that sum to 1.

    - mean and learned: `log sum_s w_s p_s`, the mean of the probabilities with equal or with fitted weights;
    - majority: the logarithm of the weighted share of votes, ties broken by the mean; a constant in float64, since
      float32 would round close votes into ties.

    A shard of weight 0 is ignored.
    """
    if aggregation not in AGGREGATIONS:
        raise InputError(f"aggregation {aggregation!r} is unknown, {', '.join(AGGREGATIONS)} are possible")
    check_shape(log_probabilities)
    check_weights(weights, log_probabilities.shape[0])
    if aggregation == "majority":
        log_probabilities = log_probabilities.detach()
    weights = weights.to(log_probabilities)
    counts = weights > 0  # 0 times -infinity is not a number
    if not counts.all():
        log_probabilities, weights = log_probabilities[counts], weights[counts]
    check_values(log_probabilities)
    ruled_out = (log_probabilities == -math.inf).all(dim=0)  # the derivative of logsumexp would be NaN there
    safe = log_probabilities.masked_fill(ruled_out, 0) + weights.log()[:, None, None]
    mean = torch.logsumexp(safe, dim=0).masked_fill(ruled_out, -math.inf)
    if aggregation != "majority":
        return mean
    return log_votes(vote_shares(log_probabilities.argmax(dim=2), weights, classes=mean.shape[1]), mean)


def vote_shares(choices: Tensor, weights: Tensor, *, classes: int) -> Tensor:
    """`v_ic = sum_s w_s [choice of shard s for node i is c]`, in float64."""
    weights = weights.detach().double() / weights.detach().double().sum()
    shares = torch.zeros(choices.shape[1], classes, dtype=torch.float64, device=choices.device)
    return shares.scatter_add(1, choices.T, weights.expand(choices.shape[1], -1))


def log_votes(shares: Tensor, mean: Tensor) -> Tensor:
    """`log(v_c + e r_c / C)`, with `r_c` the rank of class c by the mean: 1 for the lowest, C for the highest.

    `e` is at most half the smallest gap between two shares of the node, so the second term orders classes with equal
    shares and no others. Ranks keep it finite where the mean is -infinity, and apart where two means nearly agree.
    """
    n, classes = shares.shape
    gaps = shares.sort(dim=1).values.diff(dim=1)
    gaps = torch.where(gaps > TIE, gaps, math.inf)
    smallest = torch.cat([gaps, gaps.new_full((n, 1), 2 * BREAKER)], dim=1).amin(dim=1, keepdim=True)
    order = mean.argsort(dim=1, descending=True, stable=True)  # of equal means the first is the highest, as in argmax
    falling = torch.arange(classes, 0, -1, dtype=shares.dtype, device=shares.device).expand(n, -1)
    ranks = torch.zeros_like(shares).scatter(1, order, falling)
    return (shares + smallest / 2 * ranks / classes).log()


def uniform_weights(alive: Tensor, k: int) -> Tensor:
    """1 over the number of shards alive where a shard is alive, and 0 elsewhere."""
    if alive.dtype != torch.bool or alive.shape != (k,):
        raise InputError(f"alive is {alive.dtype} of shape {tuple(alive.shape)}, one boolean for {k} shards is needed")
    if not alive.any():
        raise InputError("no shard is alive, at least one is needed to answer")
    return alive.to(torch.float64) / int(alive.sum())


def learned_weights(
    log_probabilities: Tensor,
    labels: Tensor,
    *,
    penalty: float = 1e-3,
    tolerance: float = 1e-8,
    alive: Tensor | None = None,
) -> Tensor:
    """The weights of the most likely mixture: the minimum of

    `-(1/n) sum_i log sum_s a_s p_s(i, y_i) + penalty ||a||^2` over `a >= 0`, `sum_s a_s = 1`

    up to `tolerance (1 + penalty)`, proven by the duality gap. Unlabelled nodes are left out, and so are nodes whose
    label no shard alive gives any chance, since no weights could help them. The penalty makes the optimum unique; it
    moves the likelihood by at most `penalty` nats a node, so that 0.001 only decides between weights that a few
    thousand nodes cannot distinguish.
    """
    check_shape(log_probabilities)
    k, n, classes = log_probabilities.shape
    check_from_zero(penalty, "the penalty")
    if not math.isfinite(penalty) or not tolerance > 0:
        raise InputError(
            f"penalty {penalty}, tolerance {tolerance}: a finite penalty and a tolerance above 0 are needed"
        )
    if labels.shape != (n,) or labels.dtype.is_floating_point or labels.dtype == torch.bool:
        raise InputError(f"the labels are {labels.dtype} of shape {tuple(labels.shape)}, whole numbers for {n} nodes")
    labelled = (labels != UNLABELLED).nonzero().flatten()
    if not labelled.numel():
        raise InputError("no node is labelled, so there is nothing to learn the weights from")
    classed = labels[labelled].long().to(log_probabilities.device)
    if int(classed.min()) < 0 or int(classed.max()) >= classes:
        raise InputError(
            f"the labels go from {int(classed.min())} to {int(classed.max())}, there are {classes} classes"
        )
    weights = uniform_weights(torch.ones(k, dtype=torch.bool) if alive is None else alive.cpu(), k)
    shards = weights.nonzero().flatten()
    of_label = log_probabilities.detach()[:, labelled.to(classed.device), classed].cpu()[shards].double()
    check_values(of_label)
    best = of_label.amax(dim=0)
    of_label, best = of_label[:, best > -math.inf], best[best > -math.inf]
    if best.numel():
        # A factor for each node changes the likelihood by a constant, so the best shard may have 1.
        likelihoods = np.ascontiguousarray((of_label - best).exp().T.numpy())
        weights[shards] = torch.from_numpy(mixture_weights(likelihoods, penalty=penalty, tolerance=tolerance))
    return weights.to(log_probabilities.device)


def mixture_weights(likelihoods: Array, *, penalty: float, tolerance: float) -> Array:
    """Minimises `f(a) = -(1/n) sum_i log (L a)_i + penalty ||a||^2` on the simplex, from 1/k, by Newton's method.

    Each step minimises the quadratic model over the whole simplex (Kim et al., "A fast algorithm for maximum
    likelihood estimation of mixture proportions", 2020). `n f` is self-concordant, so with `t^2 = n d^T H d` the step
    `d / (1 + t)` is sure to go down, and so is `d` itself for `t <= 1/2`, where values of f would drown in rounding.
    """
    n, k = likelihoods.shape
    allowed = tolerance * (1 + penalty)
    weights = np.full(k, 1 / k)
    for _ in range(NEWTON_STEPS):
        mixed = likelihoods @ weights
        scaled = likelihoods / mixed[:, None]
        gradient = -scaled.mean(axis=0) + 2 * penalty * weights
        gap = gradient @ weights - gradient.min()  # f is convex: it cannot fall by more, wherever on the simplex
        if gap <= allowed:
            return weights / weights.sum()
        square = torch.from_numpy(scaled)  # numpy's threads wait for each other by spinning: seconds on busy cores
        hessian = (square.T @ square).numpy() / n
        # Shards that answer alike leave H singular; a little more on the diagonal makes the model's minimum unique.
        hessian[np.diag_indices(k)] += 2 * penalty + 1e-10 * np.trace(hessian) / k
        target = simplex_minimum(hessian, gradient - hessian @ weights, weights, slack=allowed / 100)
        direction = target - weights
        decrement = math.sqrt(n * max(direction @ hessian @ direction, 0.0))
        value, slope = mixture_objective(mixed, weights, penalty=penalty), gradient @ direction
        step = 1.0
        while decrement > 0.5 and step > 1 / (1 + decrement):
            trial = (1 - step) * weights + step * target
            trial_mixed = likelihoods @ trial
            inside = (trial_mixed > 1e-3 * mixed).all()  # f is infinite where a node is left without any likelihood
            if inside and mixture_objective(trial_mixed, trial, penalty=penalty) <= value + 1e-4 * step * slope:
                break
            step = max(step / 2, 1 / (1 + decrement))
        weights = (1 - step) * weights + step * target  # in this form nothing falls below 0, and 0 stays 0
    raise Refused(f"the shard weights came within {gap:.1e} of the optimum, {allowed:.1e} was asked for")


def mixture_objective(mixed: Array, weights: Array, *, penalty: float) -> float:
    return float(-np.log(mixed).mean() + penalty * (weights @ weights))


def simplex_minimum(hessian: Array, linear: Array, start: Array, *, slack: float) -> Array:
    """The minimum of `x^T H x / 2 + c^T x` over the simplex, from a point of it, for a positive definite H.

    Active sets as in Lawson and Hanson's least squares: go towards the minimum over the coordinates in use, drop those
    that reach 0 before, and at the minimum add the steepest of the others, until none is steeper than `slack`. All
    coordinates in use are above 0, so every iteration lowers the value and no set is repeated.
    """
    x, used = start.copy(), start > 0
    for _ in range(20 * x.size):
        slope = hessian @ x + linear
        move = np.zeros_like(x)
        move[used] = sum_preserving_newton_step(hessian[np.ix_(used, used)], slope[used])
        falls = np.flatnonzero(used & (x + move <= 0))
        if falls.size:
            ratios = x[falls] / -move[falls]
            step = ratios.min()
            if step == 0:  # the coordinate added last would leave again: the rest is rounding
                return x
            x = x + step * move
            used[falls[ratios == step]] = False
            x = np.where(used, np.maximum(x, np.finfo(x.dtype).tiny), 0.0)
            continue
        x = x + move
        slope = hessian @ x + linear
        steepness = np.where(used, math.inf, slope - slope @ x)  # the multiplier of `sum x = 1` is slope @ x
        steepest = int(steepness.argmin())
        if steepness[steepest] >= -slack:
            return x
        used[steepest] = True
    return x


def sum_preserving_newton_step(hessian: Array, slope: Array) -> Array:
    """The minimum of `d^T H d / 2 + slope^T d` over `sum d = 0`."""
    ones = np.ones_like(slope)
    by_slope, by_ones = scipy.linalg.solve(hessian, np.stack([slope, ones], axis=1), assume_a="pos").T
    return by_ones * (by_slope.sum() / by_ones.sum()) - by_slope


def check_shape(log_probabilities: Tensor) -> None:
    if log_probabilities.dim() != 3 or not log_probabilities.dtype.is_floating_point:
        shape = tuple(log_probabilities.shape)
        raise InputError(
            f"log-probabilities {log_probabilities.dtype} of shape {shape} were given, k x n x C is needed"
        )
    if log_probabilities.shape[0] == 0 or log_probabilities.shape[2] == 0:
        raise InputError(f"the log-probabilities have shape {tuple(log_probabilities.shape)}, no shard or no class")


def check_values(log_probabilities: Tensor) -> None:
    if not (log_probabilities < math.inf).all():
        raise InputError("the log-probabilities hold NaN or infinity, numbers up to 0 and -infinity are possible")


def check_weights(weights: Tensor, k: int) -> None:
    if weights.shape != (k,) or not weights.dtype.is_floating_point:
        raise InputError(
            f"the weights are {weights.dtype} of shape {tuple(weights.shape)}, one for {k} shards is needed"
        )
    if not (weights >= 0).all() or not abs(float(weights.detach().sum()) - 1) <= 1e-5:
        raise InputError("the weights must be at least 0 and sum to 1")
